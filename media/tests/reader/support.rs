//! Clips made with the `ffmpeg` command, and a reader run to its end.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use media::{
    Cancel, Clock, FfmpegOpener, Frame, MediaError, Opener, Reader, Samples, Sampling, SourceInfo,
    SourceSpec, Subtitle, SystemClock, TrackCounts, TrackKind, Transport, Unit,
};

/// Takes every frame of any clip made here, at its full size.
pub(crate) const EVERYTHING: Sampling =
    Sampling { fps: 1_000.0, cuts: false, side_max: 4_096, audio: true, subtitles: true };

/// Runs a program; its standard output.
pub(crate) fn run(program: &str, args: &[&str]) -> Vec<u8> {
    let output = Command::new(program).args(args).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {errors}");
    output.stdout
}

/// Makes a clip: `args` as written on a command line (no quoting), then the file.
pub(crate) fn make(dir: &Path, name: &str, args: &str) -> PathBuf {
    let path = dir.join(name);
    let mut all = vec!["-v", "error", "-nostdin", "-y"];
    all.extend(args.split_whitespace());
    let url = format!("file:{}", path.to_str().unwrap());
    all.push(&url);
    run("ffmpeg", &all);
    path
}

/// What ffprobe says of one entry of the first track of a kind (`v`, `a`).
pub(crate) fn probe(path: &Path, track: &str, entry: &str) -> String {
    let url = format!("file:{}", path.to_str().unwrap());
    let args = "-v error -count_frames -of csv=p=0 -select_streams".split(' ');
    let args: Vec<&str> = args.chain([track, "-show_entries", entry, &url]).collect();
    String::from_utf8(run("ffprobe", &args)).unwrap().trim().to_owned()
}

/// A source that is opened with generous limits.
pub(crate) fn spec(uri: impl Into<String>, sampling: Sampling) -> SourceSpec {
    SourceSpec {
        uri: uri.into(),
        transport: Transport::Tcp,
        open_timeout: Duration::from_secs(30),
        read_timeout: Duration::from_secs(30),
        sampling,
    }
}

/// Opens a source.
pub(crate) fn open(spec: &SourceSpec) -> Result<Box<dyn Reader>, MediaError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    FfmpegOpener.open(spec, clock, Cancel::new())
}

/// Everything that a source handed out.
#[derive(Default)]
pub(crate) struct Whole {
    pub(crate) info: Option<SourceInfo>,
    pub(crate) frames: Vec<Frame>,
    pub(crate) samples: Vec<Samples>,
    pub(crate) subtitles: Vec<Subtitle>,
    pub(crate) progress: Vec<(TrackKind, media::Pts)>,
    pub(crate) ended: Vec<TrackKind>,
    pub(crate) notes: Vec<String>,
    pub(crate) video: TrackCounts,
    pub(crate) audio: TrackCounts,
    pub(crate) error: Option<MediaError>,
}

impl Whole {
    /// Length of all sound in samples.
    pub(crate) fn sound_len(&self) -> usize {
        self.samples.iter().map(|s| s.pcm.len()).sum()
    }
}

/// Reads until the end, an error, or until `enough` says so; checks what must hold for every source.
pub(crate) fn read_until(reader: &mut dyn Reader, enough: impl Fn(&Whole) -> bool) -> Whole {
    let mut whole = Whole { info: Some(reader.info().clone()), ..Whole::default() };
    while !enough(&whole) {
        match reader.next() {
            Ok(Some(Unit::Frame(frame))) => {
                assert_eq!(frame.pixels.len(), (frame.width * frame.height * 3) as usize);
                assert!(whole.frames.last().is_none_or(|last| last.pts < frame.pts));
                whole.frames.push(frame);
            }
            Ok(Some(Unit::Samples(samples))) => {
                let end = whole.samples.last().map(Samples::end);
                assert!(end.is_none_or(|end| end.0 <= samples.pts.0 + 1));
                assert!(samples.pcm.iter().all(|s| (-1.0..=1.0).contains(s)));
                whole.samples.push(samples);
            }
            Ok(Some(Unit::Subtitle(subtitle))) => whole.subtitles.push(subtitle),
            Ok(Some(Unit::Progress { track, pts })) => whole.progress.push((track, pts)),
            Ok(Some(Unit::TrackEnded(kind))) => whole.ended.push(kind),
            Ok(Some(Unit::Note(note))) => whole.notes.push(note),
            Ok(None) => break,
            Err(error) => {
                whole.error = Some(error);
                break;
            }
        }
    }
    whole.video = reader.video_counts();
    whole.audio = reader.audio_counts();
    let TrackCounts { decoded, sampled, skipped, withheld, .. } = whole.video;
    assert_eq!(decoded, sampled + skipped + withheld);
    assert_eq!(sampled, whole.frames.len() as u64);
    whole
}

/// Reads a file to its end.
pub(crate) fn read(uri: impl Into<String>, sampling: Sampling) -> Whole {
    read_until(&mut *open(&spec(uri, sampling)).unwrap(), |_| false)
}

/// Reads a file to its end, everything in it.
pub(crate) fn read_all(path: &Path) -> Whole {
    read(path.to_str().unwrap(), EVERYTHING)
}

/// Mean difference of two pictures' bytes.
pub(crate) fn mean_difference(a: &[u8], b: &[u8]) -> f64 {
    assert_eq!(a.len(), b.len());
    let sum: u64 = a.iter().zip(b).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    sum as f64 / a.len() as f64
}
