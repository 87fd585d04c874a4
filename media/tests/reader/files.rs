//! Whole clips through the reader, compared with what ffmpeg and ffprobe say of them.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::{self, EVERYTHING, make, mean_difference, probe, read, read_all, run};
use media::{Pts, Sampling, Subtitle, TrackKind};

const PATTERN: &str = "-f lavfi -i testsrc2=size=320x180:rate=25";
const TONE: &str = "-f lavfi -i sine=frequency=440:sample_rate=44100";
const X264: &str = "-c:v libx264 -preset veryfast -pix_fmt yuv420p";

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn counts_and_times_agree_with_ffprobe() {
    let dir = dir();
    let args = format!("{PATTERN} {TONE} -t 4 {X264} -g 50 -bf 2 -c:a aac");
    for name in ["clip.mp4", "clip.mkv", "clip.ts", "clip.avi"] {
        let path = make(dir.path(), name, &args);
        let whole = read_all(&path);
        let frames = probe(&path, "v:0", "stream=nb_read_frames");
        assert_eq!(whole.frames.len().to_string(), frames.lines().next().unwrap(), "{name}");
        let at = |i: usize| whole.frames[i].pts.0;
        for i in 1..whole.frames.len() {
            // Matroska rounds to milliseconds.
            assert!((at(i) - at(i - 1) - 40_000).abs() <= 1_000, "{name}: frame {i}");
        }
        assert_eq!(whole.notes, Vec::<String>::new(), "{name}");
        assert!(whole.video.withheld == 0 && whole.audio.bad_packets == 0, "{name}");
        let seconds = whole.sound_len() as f64 / 16_000.0;
        assert!((3.95..4.15).contains(&seconds), "{name}: {seconds} s of sound");
        let first = whole.samples[0].pts.0 - at(0);
        assert!(first.abs() < 100_000, "{name}: sound begins {first} us after the picture");
    }
}

#[test]
fn pixels_equal_ffmpegs_own_when_not_scaled() {
    let dir = dir();
    let args = format!("-f lavfi -i testsrc2=size=300x300:rate=25 -t 1 {X264}");
    let path = make(dir.path(), "square.mp4", &args);
    let raw = make(
        dir.path(),
        "square.rgb",
        &format!("-i {} -f rawvideo -pix_fmt rgb24", path.display()),
    );
    let raw = std::fs::read(raw).unwrap();
    let whole = read_all(&path);
    assert_eq!((whole.frames.len(), raw.len()), (25, 25 * 300 * 300 * 3));
    for (frame, want) in whole.frames.iter().zip(raw.chunks(300 * 300 * 3)) {
        assert!(frame.pixels == want, "frame at {}", frame.pts);
    }
}

#[test]
fn colour_matrix_and_range_are_honoured() {
    let dir = dir();
    for (name, tags) in [
        (
            "bt709",
            "-vf scale=out_color_matrix=bt709:out_range=tv -colorspace bt709 -color_range tv",
        ),
        (
            "full",
            "-vf scale=out_color_matrix=bt601:out_range=pc -colorspace smpte170m -color_range pc",
        ),
    ] {
        let source = "-f lavfi -i color=c=0xd01040:size=64x64:rate=5 -t 1";
        let args = format!("{source} {tags} -c:v libx264 -qp 0 -pix_fmt yuv420p");
        let path = make(dir.path(), &format!("{name}.mp4"), &args);
        let frame = &read_all(&path).frames[0];
        let want = [0xd0u8, 0x10, 0x40];
        for (got, want) in frame.pixels[..3].iter().zip(want) {
            assert!(got.abs_diff(want) <= 3, "{name}: {:?}", &frame.pixels[..3]);
        }
    }
}

#[test]
fn turned_clips_are_upright_in_the_other_shape() {
    let dir = dir();
    let flat = make(dir.path(), "flat.mp4", &format!("{PATTERN} -t 1 {X264}"));
    for (angle, size) in [("90", (180, 320)), ("180", (320, 180)), ("270", (180, 320))] {
        let args = format!("-i {} -c copy -metadata:s:v:0 rotate={angle}", flat.display());
        let turned = make(dir.path(), &format!("turned{angle}.mp4"), &args);
        let whole = read_all(&turned);
        assert_eq!(whole.frames.len(), 25);
        let frame = &whole.frames[10];
        assert_eq!((frame.width, frame.height), size, "rotate={angle}");
        // ffmpeg turns pictures by itself.
        let raw = format!("-i {} -f rawvideo -pix_fmt rgb24", turned.display());
        let raw = std::fs::read(make(dir.path(), &format!("{angle}.rgb"), &raw)).unwrap();
        let want = raw.chunks(320 * 180 * 3).nth(10).unwrap();
        let difference = mean_difference(&frame.pixels, want);
        assert!(difference < 2.0, "rotate={angle}: {difference}");
    }
}

#[test]
fn longest_side_is_scaled_down_and_sampling_goes_by_time() {
    let dir = dir();
    let args = format!("-f lavfi -i testsrc2=size=1280x720:rate=30 -t 3 {X264}");
    let path = make(dir.path(), "wide.mp4", &args);
    let sampling = Sampling { fps: 5.0, side_max: 400, ..EVERYTHING };
    let whole = read(path.to_str().unwrap(), sampling);
    assert!(whole.frames.iter().all(|f| (f.width, f.height) == (400, 225)));
    let times: Vec<i64> = whole.frames.iter().map(|f| f.pts.ms()).collect();
    assert_eq!(times, (0..15).map(|i| i * 200).collect::<Vec<_>>());
    assert_eq!((whole.video.decoded, whole.video.sampled, whole.video.skipped), (90, 15, 75));
    let video = |(track, pts): &(TrackKind, Pts)| (*track == TrackKind::Video).then_some(pts.0);
    let progress: Vec<i64> = whole.progress.iter().filter_map(video).collect();
    let (end, reports) = progress.split_last().unwrap();
    assert!(reports.windows(2).all(|w| w[1] - w[0] >= 100_000), "{progress:?}");
    assert!(reports.len() >= 10, "{progress:?}");
    // The last picture was not sampled; the track reaches to its end all the same.
    assert!((3_000_000 - end).abs() <= 1, "{progress:?}");
}

#[test]
fn variable_rate_keeps_its_own_times() {
    let dir = dir();
    let select = "select='lt(n,10)+between(n,30,33)+gt(n,60)*not(mod(n,13))'";
    let args = format!("{PATTERN} -t 5 -vf {select} -fps_mode vfr {X264}");
    let path = make(dir.path(), "vfr.mp4", &args);
    let times: Vec<i64> = read_all(&path).frames.iter().map(|f| f.pts.ms()).collect();
    let kept = (0..125).filter(|n| *n < 10 || (30..=33).contains(n) || (*n > 60 && n % 13 == 0));
    assert_eq!(times, kept.map(|n| n * 40).collect::<Vec<i64>>());
}

#[test]
fn all_25_frames_come_though_the_decoder_holds_some_back() {
    let dir = dir();
    let args = format!("{PATTERN} -frames:v 25 {X264} -bf 3 -g 25");
    let whole = read_all(&make(dir.path(), "short.mp4", &args));
    assert_eq!(whole.frames.len(), 25);
    assert_eq!(whole.ended, [TrackKind::Video]);
    let png = make(dir.path(), "one.png", "-f lavfi -i testsrc2=size=160x120 -frames:v 1");
    assert_eq!(read_all(&png).frames.len(), 1);
}

#[test]
fn video_without_sound() {
    let dir = dir();
    let whole = read_all(&make(dir.path(), "mute.mp4", &format!("{PATTERN} -t 1 {X264}")));
    let info = whole.info.unwrap();
    assert!(info.has(TrackKind::Video) && !info.has(TrackKind::Audio));
    assert_eq!((whole.frames.len(), whole.samples.len()), (25, 0));
    assert_eq!(info.duration.unwrap().as_millis(), 1_000);
    assert_eq!(info.tracks[0].codec, "h264");
    assert_eq!(info.tracks[0].detail, "320x180, 25 fps");
}

#[test]
fn sound_without_video_is_whole_at_every_rate() {
    let dir = dir();
    for (name, args) in [
        ("8k.wav", "-ar 8000 -c:a pcm_alaw"),
        ("11k.wav", "-ar 11025 -c:a pcm_u8"),
        ("16k.flac", "-ar 16000"),
        ("44k.wav", "-ac 2"),
        ("48k.mka", "-ar 48000 -ac 6 -c:a pcm_s24le"),
        ("48k.opus", "-ar 48000 -c:a libopus"),
        ("44k.m4a", "-c:a aac"),
    ] {
        let path = make(dir.path(), name, &format!("{TONE} -t 5 {args}"));
        let whole = read_all(&path);
        let info = whole.info.as_ref().unwrap();
        assert!(info.has(TrackKind::Audio) && !info.has(TrackKind::Video), "{name}");
        let url = format!("file:{}", path.display());
        let output = ["-f", "f32le", "-ac", "1", "-ar", "16000", "-"];
        let decoded = run("ffmpeg", &[&["-v", "error", "-i", &url], &output[..]].concat());
        let (got, want) = (whole.sound_len() as i64, decoded.len() as i64 / 4);
        assert!((got - want).abs() <= 32, "{name}: {got} samples, ffmpeg has {want}");
        assert!(whole.samples.iter().rev().skip(1).all(|s| s.pcm.len() == 512), "{name}");
        // The same tone at the same place, not only the same length.
        let pcm: Vec<f32> = whole.samples.iter().flat_map(|s| s.pcm.iter().copied()).collect();
        let theirs = decoded.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap()));
        let differences = pcm.iter().zip(theirs).map(|(a, b)| f64::from((a - b).abs()));
        let mean = differences.sum::<f64>() / pcm.len() as f64;
        assert!(mean < 0.005, "{name}: mean difference {mean}");
    }
}

#[test]
fn cover_picture_is_no_video() {
    let dir = dir();
    let cover = make(dir.path(), "cover.jpg", "-f lavfi -i testsrc2=size=200x200 -frames:v 1");
    let args = format!(
        "{TONE} -i {} -map 0 -map 1 -t 2 -c:a libmp3lame -c:v copy -disposition:v attached_pic",
        cover.display()
    );
    let whole = read_all(&make(dir.path(), "song.mp3", &args));
    let info = whole.info.unwrap();
    assert_eq!(info.tracks.len(), 1);
    assert_eq!(info.tracks[0].kind, TrackKind::Audio);
    assert!(whole.frames.is_empty() && !whole.samples.is_empty());
}

#[test]
fn subtitles_title_and_description_are_found() {
    let dir = dir();
    let srt = dir.path().join("text.srt");
    let text = "1\n00:00:00,500 --> 00:00:01,500\n<i>first</i> line\n\n\
                2\n00:00:02,000 --> 00:00:02,800\nsecond\nline\n";
    std::fs::write(&srt, text).unwrap();
    for (name, codec) in
        [("t.mkv", "srt"), ("t.mp4", "mov_text"), ("t2.mkv", "ass"), ("t.webm", "webvtt")]
    {
        let video = if name.ends_with("webm") { "-c:v libvpx" } else { X264 };
        let meta = "-metadata title=Interview -metadata comment=Recorded_outside";
        let args = format!("{PATTERN} -i {} -t 3 {video} -c:s {codec} {meta}", srt.display());
        let whole = read_all(&make(dir.path(), name, &args));
        let texts: Vec<&str> = whole.subtitles.iter().map(|s| s.text.as_str()).collect();
        assert_eq!(texts, ["first line", "second\nline"], "{name}");
        let Subtitle { span, .. } = &whole.subtitles[0];
        assert_eq!((span.start.ms(), span.end.ms()), (500, 1_500), "{name}");
        let info = whole.info.unwrap();
        assert_eq!(info.title.as_deref(), Some("Interview"), "{name}");
        assert_eq!(info.description.as_deref(), Some("Recorded_outside"), "{name}");
        assert!(whole.progress.iter().any(|(track, _)| *track == TrackKind::Subtitle), "{name}");
    }
}

#[test]
fn tracks_that_end_early_say_so() {
    let dir = dir();
    let sound = format!("{TONE} -t 1 -c:a aac");
    let sound = make(dir.path(), "short.m4a", &sound);
    let args = format!("{PATTERN} -i {} -t 3 {X264} -c:a copy", sound.display());
    let path = make(dir.path(), "early.mp4", &args);
    let mut reader = support::open(&support::spec(path.to_str().unwrap(), EVERYTHING)).unwrap();
    let until = support::read_until(&mut *reader, |w| w.ended.contains(&TrackKind::Audio));
    assert!(until.frames.len() < 60, "told at the end only ({} frames)", until.frames.len());
    assert!(until.samples.last().unwrap().end() >= Pts::from_ms(900), "its tail comes first");
}

#[test]
fn offsets_between_tracks_are_kept() {
    let dir = dir();
    let args =
        format!("{PATTERN} -itsoffset 1.5 {TONE} -t 4 {X264} -c:a aac -output_ts_offset 100");
    let whole = read_all(&make(dir.path(), "late.mkv", &args));
    assert_eq!(whole.frames[0].pts, Pts::ZERO);
    let start = whole.samples[0].pts.ms();
    assert!((1_400..1_560).contains(&start), "sound begins at {start} ms");
}

#[test]
fn odd_file_names_are_opened() {
    let dir = dir();
    let clip = make(dir.path(), "plain.mp4", &format!("{PATTERN} -t 1 {X264}"));
    for name in
        ["two words ünïcødé 视频.mp4", "100%d done %03d.mp4", "-i.mp4", "a:b?c#d&e.mp4", "*.mp4"]
    {
        let path = dir.path().join(name);
        std::fs::copy(&clip, &path).unwrap();
        assert_eq!(read_all(&path).frames.len(), 25, "{name}");
        assert_eq!(read(format!("file://{}", path.display()), EVERYTHING).frames.len(), 25);
    }
    for name in ["img%03d.png", "sample_0001.png", "what*.png"] {
        let one = make(dir.path(), "one.png", "-f lavfi -i testsrc2=size=160x120 -frames:v 1");
        let path = dir.path().join(name);
        std::fs::rename(&one, &path).unwrap();
        assert_eq!(read_all(&path).frames.len(), 1, "{name}");
    }
}

#[test]
fn a_relative_name_with_a_leading_dash() {
    // Run in a folder of its own: the working directory belongs to the whole process.
    let dir = dir();
    make(dir.path(), "-v.mp4", &format!("{PATTERN} -t 1 {X264}"));
    let program = std::env::current_exe().unwrap();
    let status = Command::new(program)
        .args(["--exact", "files::child_reads_a_leading_dash", "--ignored"])
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
#[ignore = "run by a_relative_name_with_a_leading_dash in its own folder"]
fn child_reads_a_leading_dash() {
    assert_eq!(read("-v.mp4", EVERYTHING).frames.len(), 25);
}

#[test]
fn standard_input_is_read() {
    let dir = dir();
    let args = format!("{PATTERN} {TONE} -t 2 {X264} -c:a aac");
    for (name, format) in [("pipe.ts", "-f mpegts"), ("pipe.mkv", "-f matroska")] {
        let bytes = std::fs::read(make(dir.path(), name, &format!("{args} {format}"))).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "files::child_reads_standard_input", "--ignored"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        assert!(child.wait().unwrap().success(), "{name}");
    }
}

#[test]
#[ignore = "run by standard_input_is_read with a clip on standard input"]
fn child_reads_standard_input() {
    let whole = read("-", EVERYTHING);
    assert_eq!((whole.frames.len(), &whole.error), (50, &None));
    assert!(whole.sound_len() > 30_000);
}

#[test]
fn cuts_are_handed_out_beside_the_sampled_frames() {
    let dir = dir();
    let args = "-f lavfi -i testsrc2=size=320x180:rate=25:duration=2 \
                -f lavfi -i mandelbrot=size=320x180:rate=25 \
                -filter_complex [1]trim=duration=2[b];[0][b]concat=n=2 -pix_fmt yuv420p";
    let path = make(dir.path(), "cut.mp4", &format!("{args} -c:v libx264 -preset veryfast"));
    let sampling = Sampling { fps: 0.0, cuts: true, ..EVERYTHING };
    let whole = read(path.to_str().unwrap(), sampling);
    let cuts: Vec<i64> = whole.frames.iter().map(|f| f.pts.ms()).collect();
    assert_eq!(cuts, [2_000]);
    assert!(whole.frames[0].cut);
    assert_eq!(whole.video.decoded, 100);
}

#[test]
fn unwanted_tracks_are_not_decoded_but_followed() {
    let dir = dir();
    let args = format!("{PATTERN} {TONE} -t 2 {X264} -c:a aac");
    let path = make(dir.path(), "clip.mp4", &args);
    let nothing = Sampling { fps: 0.0, audio: false, subtitles: false, ..EVERYTHING };
    let whole = read(path.to_str().unwrap(), nothing);
    assert!(whole.frames.is_empty() && whole.samples.is_empty());
    assert_eq!(whole.video.decoded, 0);
    let last = whole.progress.last().unwrap();
    assert_eq!(last.0, TrackKind::Video);
    assert!(last.1 > Pts::from_ms(1_700));
}
