//! Short videos for the bench: twelve of 5 s, 720p, 25 fps, H.264 and AAC, each another moment of people walking,
//! another voice and another sign. Made by ffmpeg out of the cache's media, once.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Part of the folder's name: another recipe makes other files.
const RECIPE: &str = "1";
const FONT: &str = "/usr/share/fonts/truetype/dejavu/DejaVuSans-Bold.ttf";
const SENSE: &str = "librivox/sense_and_sensibility_01_austen_64kb";

/// Speech, the second it is taken from, and what is written on the picture.
const CLIPS: [(&str, u32, &str); 12] = [
    ("jfk/jfk.wav", 0, "INAUGURAL ADDRESS"),
    ("jfk/jfk.wav", 5, "LIVE FROM THE CAPITOL"),
    ("-0870.wav", 0, "GATE 7"),
    ("-0870.wav", 2, "TRAIN TO BERLIN DELAYED"),
    ("-0880.wav", 0, "NOW BOARDING"),
    ("-0890.wav", 0, "PLATFORM 2"),
    ("-0920.wav", 0, "CITY MARATHON SUNDAY"),
    ("-0920.wav", 1, "HALF PRICE TODAY"),
    ("-0930.wav", 0, "SCORE 2 TO 1"),
    ("jfk/jfk.wav", 3, "BREAKING NEWS"),
    ("-0890.wav", 1, "FRESH BREAD AND COFFEE"),
    ("jfk/jfk.wav", 6, "WEATHER UPDATE"),
];

/// The clips, made if they are not there.
///
/// # Errors
/// One sentence: what is missing, or what ffmpeg said.
pub(super) fn clips(media: &Path) -> Result<Vec<String>, String> {
    let dir = media.join("bench").join(RECIPE);
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let path = |number| clip(media, &dir, number).map(|path| path.display().to_string());
    (0..CLIPS.len()).map(path).collect()
}

fn clip(media: &Path, dir: &Path, number: usize) -> Result<PathBuf, String> {
    let path = dir.join(format!("clip-{number:02}.mp4"));
    if path.is_file() {
        return Ok(path);
    }
    let (speech, from, sign) = CLIPS[number];
    let speech = match speech.strip_prefix('-') {
        Some(rest) => media.join(format!("{SENSE}-{rest}")),
        None => media.join(speech),
    };
    let walk = media.join("vtest/vtest.avi");
    for file in [&walk, &speech, &PathBuf::from(FONT)] {
        if !file.is_file() {
            return Err(format!("{} is not there; run `make setup`", file.display()));
        }
    }
    let part = dir.join(format!("clip-{number:02}.{}.part", std::process::id()));
    let graph = format!(
        "[0:v]fps=25,scale=1280:720,drawtext=fontfile={FONT}:text='{sign}':fontsize=48:x=40:y=40:\
         fontcolor=white:box=1:boxcolor=black@0.85:boxborderw=12[v];[1:a]adelay=300,apad,aresample=48000[a]"
    );
    let made = Command::new("ffmpeg")
        .args(["-nostdin", "-v", "error", "-y", "-ss", &(number * 6).to_string(), "-i"])
        .arg(&walk)
        .args(["-ss", &from.to_string(), "-i"])
        .arg(&speech)
        .args(["-filter_complex", &graph, "-map", "[v]", "-map", "[a]", "-t", "5"])
        .args(["-c:v", "libx264", "-preset", "veryfast", "-crf", "22", "-g", "50"])
        .args(["-pix_fmt", "yuv420p", "-c:a", "aac", "-b:a", "96k", "-ac", "1"])
        .args(["-movflags", "+faststart", "-f", "mp4"])
        .arg(&part)
        .output()
        .map_err(|e| format!("ffmpeg can't be started ({e}); run `make setup`"))?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr);
        return Err(format!("{}: ffmpeg: {}", path.display(), said.trim()));
    }
    std::fs::rename(&part, &path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}
