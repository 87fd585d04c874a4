//! Real clips, made by ffmpeg out of the cache's media and kept beside the build by recipe.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::binary::profile_dir;

const FONT: &str = "/usr/share/fonts/truetype/dejavu/DejaVuSans-Bold.ttf";
const FONT_CHINESE: &str = "/usr/share/fonts/truetype/wqy/wqy-microhei.ttc";

/// Written on [`street`], top left.
pub const SIGN: &str = "GATE 7";
/// Written on [`street`], at the bottom.
pub const TICKER: &str = "TRAIN TO BERLIN DELAYED";
/// Written on [`street`], top right.
pub const SIGN_CHINESE: &str = "请勿靠近站台";

/// 12 s, 768x576, 25 fps: people walking, `jfk.wav` from 0.5 s on, drawn text. H.264 and AAC.
pub fn street() -> PathBuf {
    let sign = |font: &str, size: u32, x: &str, y: &str, text: &str| {
        format!(
            "drawtext=fontfile={font}:text='{text}':fontsize={size}:x={x}:y={y}:\
             fontcolor=white:box=1:boxcolor=black@0.85:boxborderw=10"
        )
    };
    let signs = [
        sign(FONT, 40, "24", "24", SIGN),
        sign(FONT, 30, "(w-tw)/2", "h-70", TICKER),
        sign(FONT_CHINESE, 40, "w-tw-24", "24", SIGN_CHINESE),
    ]
    .join(",");
    let graph = format!("[0:v]fps=25,{signs}[v];[1:a]adelay=500,apad,aresample=48000[a]");
    let (video, speech) = (media("vtest/vtest.avi"), media("jfk/jfk.wav"));
    make(
        "street.mp4",
        &["-i", &video, "-i", &speech, "-filter_complex", &graph],
        &[
            "-map",
            "[v]",
            "-map",
            "[a]",
            "-t",
            "12",
            "-c:v",
            "libx264",
            "-preset",
            "veryfast",
            "-g",
            "25",
            "-pix_fmt",
            "yuv420p",
            "-c:a",
            "aac",
            "-ac",
            "1",
            "-movflags",
            "+faststart",
        ],
    )
}

/// [`street`] without sound.
pub fn silent() -> PathBuf {
    let street = text(&street());
    make("silent.mp4", &["-i", &street], &["-an", "-c", "copy"])
}

/// [`street`] without pictures.
pub fn sound() -> PathBuf {
    let street = text(&street());
    make("sound.m4a", &["-i", &street], &["-vn", "-c", "copy"])
}

/// [`street`] in a container that can be read without seeking.
pub fn matroska() -> PathBuf {
    let street = text(&street());
    make("street.mkv", &["-i", &street], &["-c", "copy"])
}

/// Sound of a WAV file of the cache, in its own container.
pub fn spoken(file: &str) -> PathBuf {
    let name = Path::new(file).with_extension("m4a");
    let name = name.file_name().expect("a file has a name").to_string_lossy();
    let input = media(file);
    make(&name, &["-i", &input, "-af", "adelay=300,apad=pad_dur=0.7"], &["-c:a", "aac"])
}

/// `minutes` of nothing to hear.
pub fn silence(minutes: u32) -> PathBuf {
    let length = format!("{}", minutes * 60);
    let input = ["-f", "lavfi", "-i", "anullsrc=r=16000:cl=mono"];
    make("silence.flac", &input, &["-t", &length, "-c:a", "flac"])
}

/// The clip of `make demo`.
pub fn demo() -> PathBuf {
    media("demo/demo.mp4").into()
}

/// `count` clips of 2 s, 320x240, each of another moment of the walk, with a tone.
pub fn short(count: usize) -> Vec<PathBuf> {
    let video = media("vtest/vtest.avi");
    (0..count)
        .map(|i| {
            let from = format!("{}", i * 3);
            let name = format!("short-{i}.mp4");
            let input = ["-ss", &from, "-i", &video, "-f", "lavfi", "-i", "sine=440:r=48000"];
            make(
                &name,
                &input,
                &[
                    "-t",
                    "2",
                    "-vf",
                    "fps=25,scale=320:240",
                    "-c:v",
                    "libx264",
                    "-preset",
                    "veryfast",
                    "-pix_fmt",
                    "yuv420p",
                    "-c:a",
                    "aac",
                ],
            )
        })
        .collect()
}

/// Length of a media file in ms, as ffprobe has it.
pub fn length_ms(path: &Path) -> i64 {
    let text = probe(path, &["-show_entries", "format=duration"]);
    let seconds: f64 = text.trim().parse().unwrap_or_else(|e| panic!("{e}: {text:?}"));
    (seconds * 1000.0).round() as i64
}

/// Video frames of a media file, counted by ffprobe.
pub fn frames(path: &Path) -> u64 {
    let args =
        ["-count_frames", "-select_streams", "v:0", "-show_entries", "stream=nb_read_frames"];
    let text = probe(path, &args);
    text.trim().parse().unwrap_or_else(|e| panic!("{e}: {text:?}"))
}

/// Path of a file below the cache's `media` folder. Fails when it was not fetched.
pub fn media(file: &str) -> String {
    let path = cache().join("media").join(file);
    assert!(path.is_file(), "{} is missing: make test fetches it", path.display());
    text(&path)
}

/// The user's cache folder.
pub fn cache() -> PathBuf {
    let below =
        |name: &str, rest: &str| std::env::var_os(name).map(|v| PathBuf::from(v).join(rest));
    below("PIPELINE_CACHE", "")
        .or_else(|| below("XDG_CACHE_HOME", "pipeline"))
        .or_else(|| below("HOME", ".cache/pipeline"))
        .expect("HOME is set")
}

fn text(path: &Path) -> String {
    path.to_str().expect("test folders have plain names").to_owned()
}

fn probe(path: &Path, args: &[&str]) -> String {
    let output = Command::new("ffprobe")
        .args(["-v", "error", "-of", "csv=p=0"])
        .args(args)
        .arg(path)
        .output()
        .expect("ffprobe is installed by make setup");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs ffmpeg unless this recipe's file is there. Several tests may ask at once: the file is moved into place.
fn make(name: &str, input: &[&str], output: &[&str]) -> PathBuf {
    let mut recipe = DefaultHasher::new();
    (input, output).hash(&mut recipe);
    let dir = profile_dir().join("system-tests-clips").join(format!("{:016x}", recipe.finish()));
    let path = dir.join(name);
    if path.is_file() {
        return path;
    }
    std::fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let part = dir.join(format!("{}-{name}", std::process::id()));
    let made = Command::new("ffmpeg")
        .args(["-nostdin", "-v", "error", "-y"])
        .args(input)
        .args(output)
        .arg(&part)
        .output()
        .expect("ffmpeg is installed by make setup");
    assert!(made.status.success(), "ffmpeg: {}", String::from_utf8_lossy(&made.stderr));
    std::fs::rename(&part, &path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    path
}
