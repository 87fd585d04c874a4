//! Broken media: what can be read is read, the rest is told, nothing hangs.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{self, EVERYTHING, Whole, make, mean_difference, open, read_all, spec};
use media::{Cancel, FfmpegOpener, MediaError, Opener, Pts, SourceSpec, SystemClock};

const PATTERN: &str = "-f lavfi -i testsrc2=size=320x180:rate=25";
const X264: &str = "-c:v libx264 -preset veryfast -pix_fmt yuv420p";
const TS_PACKET: usize = 188;

fn refused(path: &Path) -> MediaError {
    match open(&spec(path.to_str().unwrap(), EVERYTHING)) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error,
    }
}

#[test]
fn what_is_no_media_is_told_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let whole = make(dir.path(), "whole.mp4", &format!("{PATTERN} -t 2 {X264}"));
    let bytes = fs::read(&whole).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    for path in [
        write("no_moov.mp4", &bytes[..bytes.len() * 6 / 10]),
        write("zero_bytes.mp4", &[]),
        write("only_zeros.ts", &[0; 4096]),
        write("text.mp4", b"#EXTM3U\nhttp://127.0.0.1:1/a.ts\n"),
        write("playlist.m3u8", b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:1/a.ts\n#EXT-X-ENDLIST\n"),
        write(
            "list.ffconcat",
            format!("ffconcat version 1.0\nfile {}\n", whole.display()).as_bytes(),
        ),
    ] {
        let error = refused(&path);
        assert!(matches!(error, MediaError::NotMedia { .. }), "{error}");
        assert!(!error.is_transient());
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
    assert!(matches!(refused(&dir.path().join("none.mp4")), MediaError::NotFound { .. }));
}

#[test]
fn header_without_sound_ends_cleanly() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(dir.path(), "full.wav", "-f lavfi -i sine=sample_rate=16000 -t 1 -bitexact");
    let mut header = fs::read(&path).unwrap();
    header.truncate(44);
    header[40..44].fill(0);
    fs::write(&path, header).unwrap();
    let whole = read_all(&path);
    assert!(whole.samples.is_empty() && whole.error.is_none());
}

/// A clip as transport stream, and its packets' numbers that carry video (PID 0x100).
fn stream(dir: &Path, codec: &str) -> (Vec<u8>, Vec<usize>, Whole) {
    let path = make(dir, "clean.ts", &format!("{PATTERN} -t 6 {codec} -g 50 -pix_fmt yuv420p"));
    let bytes = fs::read(&path).unwrap();
    let pid = |p: &[u8]| u16::from_be_bytes([p[1] & 0x1f, p[2]]);
    let video = bytes.chunks(TS_PACKET).enumerate().filter(|(_, p)| pid(p) == 0x100);
    let video = video.map(|(i, _)| i).collect();
    (bytes, video, read_all(&path))
}

/// Frames handed out whose pixels are far from those of the undamaged clip at the same time.
fn smeared(clean: &Whole, damaged: &Whole) -> usize {
    let bad = damaged.frames.iter().filter(|frame| {
        let same = clean.frames.iter().find(|c| (c.pts - frame.pts).abs() < 2_000);
        same.is_none_or(|same| mean_difference(&same.pixels, &frame.pixels) > 3.0)
    });
    bad.count()
}

#[test]
fn packet_loss_shows_no_smeared_pictures() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, video, clean) = stream(dir.path(), "-c:v libx264 -preset veryfast");
    let (mut shown, mut bad) = (0, 0);
    for seed in 0..12usize {
        // A burst of two packets, once in each GOP of two seconds, never the clip's head.
        let lost: Vec<usize> = (0..3)
            .flat_map(|gop| {
                let at = video.len() * (gop * 10 + 2 + (seed * 7 + gop) % 8) / 30;
                [video[at], video[at + 1]]
            })
            .collect();
        let packets = bytes.chunks(TS_PACKET).enumerate().filter(|(i, _)| !lost.contains(i));
        let path = dir.path().join("lossy.ts");
        fs::write(&path, packets.flat_map(|(_, p)| p).copied().collect::<Vec<u8>>()).unwrap();
        let damaged = read_all(&path);
        assert!(damaged.video.withheld > 0, "seed {seed}");
        assert!(damaged.notes.iter().any(|n| n.contains("damaged")), "{:?}", damaged.notes);
        shown += damaged.frames.len();
        bad += smeared(&clean, &damaged);
    }
    assert!(shown > 500, "{shown}");
    assert_eq!(bad, 0, "of {shown} frames");
}

#[test]
fn one_damaged_hevc_packet_does_not_end_the_clip() {
    let dir = tempfile::tempdir().unwrap();
    let codec =
        "-c:v libx265 -preset veryfast -x265-params log-level=error:pools=1:frame-threads=1";
    let (mut bytes, video, clean) = stream(dir.path(), codec);
    // The heads of two pictures: their slices become units of an unknown kind.
    let heads = video.iter().filter(|i| bytes[**i * TS_PACKET + 1] & 0x40 != 0);
    let heads: Vec<usize> = heads.copied().collect();
    for picture in [30, 90] {
        let start = heads[picture] * TS_PACKET;
        let packet = &mut bytes[start..start + TS_PACKET];
        let slice = packet.windows(3).rposition(|w| w == [0, 0, 1]).unwrap() + 3;
        for byte in &mut packet[slice..] {
            *byte ^= 0x5a;
        }
    }
    let path = dir.path().join("flipped.ts");
    fs::write(&path, bytes).unwrap();
    let damaged = read_all(&path);
    assert!(damaged.error.is_none());
    assert!(damaged.frames.last().unwrap().pts > Pts::from_ms(5_800));
    assert!(damaged.frames.len() > 40, "{}", damaged.frames.len());
    // ffmpeg's HEVC decoder does not notice everything: the pictures around the damage may be hurt.
    let bad = smeared(&clean, &damaged);
    assert!(bad <= 10, "{bad} frames are smeared");
}

#[test]
fn packets_that_the_decoder_refuses_are_counted_and_the_clip_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let args = format!("{PATTERN} -t 6 {X264} -g 50");
    let path = make(dir.path(), "clip.mp4", &args);
    let clean = read_all(&path);
    let positions = support::probe(&path, "v:0", "packet=pos");
    let positions: Vec<usize> =
        positions.lines().map(|l| l.trim_matches(',').parse().unwrap()).collect();
    let mut bytes = fs::read(&path).unwrap();
    for packet in [20, 21, 110] {
        // The length of its first unit: far beyond the packet.
        bytes[positions[packet]..][..4].fill(0x7f);
    }
    fs::write(&path, bytes).unwrap();
    let damaged = read_all(&path);
    assert_eq!(damaged.video.bad_packets, 3, "{:?}", damaged.notes);
    assert_eq!(smeared(&clean, &damaged), 0);
    assert!((50..140).contains(&damaged.frames.len()), "{} frames", damaged.frames.len());
    assert_eq!(damaged.video.decoded, 147);
}

#[test]
fn a_clip_that_starts_inside_a_gop_shows_nothing_before_its_keyframe() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, video, _) = stream(dir.path(), "-c:v libx264 -preset veryfast");
    let cut = video[video.len() / 10] * TS_PACKET;
    let path = dir.path().join("inside.ts");
    // The tables come first.
    fs::write(&path, [&bytes[..3 * TS_PACKET], &bytes[cut..]].concat()).unwrap();
    let whole = read_all(&path);
    assert!(whole.notes.iter().any(|n| n.contains("waiting for a keyframe")), "{:?}", whole.notes);
    assert_eq!(whole.frames.len(), 100);
    let first = whole.frames[0].pts.ms();
    assert!((1_000..2_000).contains(&first), "{first}");
    assert!(!whole.progress.is_empty(), "waiting is told as progress");
}

#[test]
fn clips_put_end_to_end_change_size_and_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let small = "-f lavfi -i testsrc2=size=320x240:rate=25 -t 2";
    let large = "-f lavfi -i testsrc2=size=640x360:rate=25 -t 2 -output_ts_offset 2";
    let small = make(dir.path(), "a.ts", &format!("{small} {X264}"));
    let large = make(dir.path(), "b.ts", &format!("{large} {X264}"));
    let path = dir.path().join("both.ts");
    fs::write(&path, [fs::read(small).unwrap(), fs::read(large).unwrap()].concat()).unwrap();
    let whole = read_all(&path);
    let sizes: Vec<u32> = whole.frames.iter().map(|f| f.width).collect();
    assert_eq!(sizes, [[320; 50], [640; 50]].concat());
    assert!(whole.notes.iter().any(|n| n.contains("320x240 to 640x360")), "{:?}", whole.notes);
}

#[test]
fn a_clock_that_jumps_by_hours_is_told_once_and_costs_no_time() {
    let dir = tempfile::tempdir().unwrap();
    let tone = "-f lavfi -i sine=sample_rate=44100";
    let part = |name: &str, offset: u32| {
        let args = format!("{PATTERN} {tone} -t 2 {X264} -c:a aac -output_ts_offset {offset}");
        fs::read(make(dir.path(), name, &args)).unwrap()
    };
    let path = dir.path().join("jumps.ts");
    let parts = [part("a.ts", 41_700), part("b.ts", 10), part("c.ts", 60_000)];
    fs::write(&path, parts.concat()).unwrap();
    let whole = read_all(&path);
    assert!(whole.frames.len() >= 145, "{}", whole.frames.len());
    let end = whole.frames.last().unwrap().pts;
    assert!((Pts::from_ms(5_800)..Pts::from_ms(6_400)).contains(&end), "{end}");
    let sound_end = whole.samples.last().unwrap().end();
    assert!((Pts::from_ms(5_800)..Pts::from_ms(6_600)).contains(&sound_end), "{sound_end}");
    assert_eq!(whole.notes.iter().filter(|n| n.contains("jumped")).count(), 1, "{:?}", whole.notes);
}

#[test]
fn no_times_at_all_are_made_from_the_rate() {
    let dir = tempfile::tempdir().unwrap();
    let args = format!("{PATTERN} -t 4 {X264} -g 50 -bf 2 -f h264");
    let whole = read_all(&make(dir.path(), "bare.h264", &args));
    let times: Vec<i64> = whole.frames.iter().map(|f| f.pts.ms()).collect();
    assert_eq!(times, (0..100).map(|i| i * 40).collect::<Vec<_>>());
    assert!(whole.notes.iter().any(|n| n.contains("made from its rate")), "{:?}", whole.notes);
}

#[test]
fn an_edited_start_shows_neither_run_up_nor_negative_times() {
    let dir = tempfile::tempdir().unwrap();
    let args = format!("{PATTERN} -f lavfi -i sine=sample_rate=44100 -t 5 {X264} -g 50 -c:a aac");
    let source = make(dir.path(), "source.mp4", &args);
    let args = format!("-ss 1.0 -i {} -t 3 -c copy", source.display());
    let path = make(dir.path(), "edited.mp4", &args);
    let whole = read_all(&path);
    let shown = support::probe(&path, "v:0", "stream=nb_read_frames");
    assert_eq!(whole.frames.len().to_string(), shown);
    assert_eq!(whole.frames[0].pts, Pts::ZERO);
    assert!(whole.samples[0].pts < Pts::from_ms(50));
}

#[test]
fn sound_that_changes_its_rate_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let part = |name: &str, args: &str| {
        let tone = "-f lavfi -i sine=frequency=440 -t 3 -write_xing 0 -id3v2_version 0";
        fs::read(make(dir.path(), name, &format!("{tone} {args}"))).unwrap()
    };
    let path = dir.path().join("both.mp3");
    let parts = [part("a.mp3", "-ar 44100 -ac 2"), part("b.mp3", "-ar 24000 -ac 1")];
    fs::write(&path, parts.concat()).unwrap();
    let whole = read_all(&path);
    let seconds = whole.sound_len() as f64 / 16_000.0;
    assert!((5.9..6.3).contains(&seconds), "{seconds}");
    let gaps = whole.samples.windows(2).filter(|w| (w[1].pts - w[0].end()).abs() > 1);
    assert_eq!(gaps.count(), 0);
}

#[test]
fn cancelling_ends_reading() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(dir.path(), "clip.mp4", &format!("{PATTERN} -t 1 {X264}"));
    let cancel = Cancel::new();
    let clock = Arc::new(SystemClock::new());
    let spec = spec(path.to_str().unwrap(), EVERYTHING);
    let mut reader = FfmpegOpener.open(&spec, clock.clone(), cancel.clone()).unwrap();
    assert!(reader.next().unwrap().is_some());
    cancel.cancel();
    assert!(matches!(reader.next(), Err(MediaError::Cancelled { .. })));
    let opened = FfmpegOpener.open(&spec, clock, cancel);
    assert!(matches!(opened.err(), Some(MediaError::Cancelled { .. })));
}

#[test]
fn a_pipe_whose_writer_says_nothing_ends_at_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    support::run("mkfifo", &[path.to_str().unwrap()]);
    let limit = Duration::from_millis(300);
    let spec = SourceSpec { open_timeout: limit, ..spec(path.to_str().unwrap(), EVERYTHING) };
    let error = open(&spec).err().unwrap();
    assert!(matches!(error, MediaError::TimedOut { doing: "opening", .. }), "{error}");
}

#[test]
fn opening_again_and_again_leaks_no_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let clip = make(dir.path(), "clip.mp4", &format!("{PATTERN} -t 1 {X264}"));
    let broken = dir.path().join("broken.mp4");
    let bytes = fs::read(&clip).unwrap();
    fs::write(&broken, &bytes[..bytes.len() / 2]).unwrap();
    let count = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = count();
    for _ in 0..100 {
        assert!(open(&spec(clip.to_str().unwrap(), EVERYTHING)).is_ok());
        refused(&broken);
    }
    // Other tests may run beside this one in the same process.
    assert!(count() < before + 50, "{before} descriptors became {}", count());
}
