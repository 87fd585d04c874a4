//! Real pictures for tests: photographs, frames of a video, text drawn by ffmpeg.

use std::path::{Path, PathBuf};
use std::process::Command;

use media::{Frame, Mono, Pts};
use models::Catalogue;

/// Has Chinese characters; Debian package fonts-wqy-microhei.
const FONT: &str = "/usr/share/fonts/truetype/wqy/wqy-microhei.ttc";
/// Size of vtest.avi.
const VTEST: (u32, u32) = (768, 576);

fn media(name: &str) -> PathBuf {
    Catalogue::builtin().dir(name).unwrap_or_else(|e| panic!("{e}"))
}

fn frame(pts: Pts, width: u32, height: u32, pixels: Vec<u8>) -> Frame {
    Frame { pts, arrival: Mono::default(), width, height, pixels: pixels.into(), cut: false }
}

/// A photograph of scikit-image, without its ending.
pub(crate) fn photograph(name: &str) -> Frame {
    let dir = media("skimage");
    let path = ["png", "jpg"].map(|end| dir.join(format!("{name}.{end}")));
    let path = path.iter().find(|p| p.exists()).unwrap_or_else(|| panic!("no photograph {name}"));
    let picture = image::open(path).unwrap().to_rgb8();
    frame(Pts::ZERO, picture.width(), picture.height(), picture.into_raw())
}

/// The coffee photograph with a Latin and a Chinese line.
pub(crate) fn drawn_text() -> Frame {
    assert!(Path::new(FONT).exists(), "{FONT} is not there; apt-get install fonts-wqy-microhei");
    let draw = |text: &str, place: &str| format!("drawtext=fontfile={FONT}:text='{text}':{place}");
    let filter = [
        draw("PLATFORM 7 CLOSES", "fontcolor=white:fontsize=40:x=40:y=40"),
        draw("欢迎光临北京", "fontcolor=yellow:fontsize=48:x=200:y=300"),
    ]
    .join(",");
    let picture = media("skimage").join("coffee.png");
    let input = ["-i", picture.to_str().unwrap()];
    let pixels = decode(&[&input[..], &["-vf", &filter, "-frames:v", "1"]].concat());
    frame(Pts::ZERO, 600, 400, pixels)
}

/// The frame of vtest.avi at `seconds`.
pub(crate) fn vtest_frame(seconds: f64) -> Frame {
    let video = media("vtest").join("vtest.avi");
    let at = seconds.to_string();
    let pixels = decode(&["-ss", &at, "-i", video.to_str().unwrap(), "-frames:v", "1"]);
    frame(Pts((seconds * 1e6) as i64), VTEST.0, VTEST.1, pixels)
}

/// `fps` frames a second of the first `seconds` of vtest.avi.
pub(crate) fn vtest_frames(fps: i64, seconds: u32) -> Vec<Frame> {
    let video = media("vtest").join("vtest.avi");
    let (length, filter) = (seconds.to_string(), format!("fps={fps}"));
    let input = ["-i", video.to_str().unwrap(), "-t", &length, "-vf", &filter];
    let pixels = decode(&input);
    pixels
        .chunks_exact((VTEST.0 * VTEST.1 * 3) as usize)
        .enumerate()
        .map(|(i, p)| frame(Pts(i as i64 * 1_000_000 / fps), VTEST.0, VTEST.1, p.to_vec()))
        .collect()
}

/// What ffmpeg decodes as RGB24.
fn decode(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("ffmpeg")
        .args(["-v", "error", "-nostdin"])
        .args(arguments)
        .args(["-f", "rawvideo", "-pix_fmt", "rgb24", "-"])
        .output()
        .expect("ffmpeg is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
