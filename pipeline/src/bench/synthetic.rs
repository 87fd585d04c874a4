//! Sources made up on the spot: frames, silence and sentences at their own pace or as fast as they are taken,
//! and files that begin again at their end. Behind the reader's own seam, so that all behind it is production.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use media::{
    Cancel, Clock, FfmpegOpener, Frame, MediaError, Mono, Opener, Pts, Reader, SAMPLE_RATE_HZ,
    Samples, SourceInfo, SourceSpec, Span, Subtitle, Track, TrackCounts, TrackKind, Unit, mask_uri,
};

/// What a made-up source yields.
#[derive(Clone)]
pub(super) enum Script {
    /// These frames over and over, so many a second.
    Frames { pictures: Arc<[Frame]>, fps: u32 },
    /// Silence in chunks of 100 ms.
    Silence,
    /// A sentence at the start of each `every`; the last word is its number, so that none is like another.
    Sentences { texts: &'static [&'static str], every: Duration },
}

/// Opens `bench:N` and `rtsp://bench/N` as script N: the latter live, at its own pace. Anything else is a file,
/// which begins again whenever it ends.
pub(super) struct BenchOpener {
    pub(super) scripts: Vec<Script>,
}

impl Opener for BenchOpener {
    fn open(
        &self,
        spec: &SourceSpec,
        clock: Arc<dyn Clock>,
        cancel: Cancel,
    ) -> Result<Box<dyn Reader>, MediaError> {
        let number = ["bench:", "rtsp://bench/"].iter().find_map(|p| spec.uri.strip_prefix(p));
        let Some(number) = number else {
            return Ok(Box::new(Looped::open(spec, clock, cancel)?));
        };
        let script = number.parse::<usize>().ok().and_then(|n| self.scripts.get(n)).cloned();
        let Some(script) = script else {
            let detail = format!("{} scripts", self.scripts.len());
            return Err(MediaError::NotFound { uri: spec.uri.clone(), detail });
        };
        let started = spec.is_live().then(|| clock.now());
        let info = script.info();
        let uri = spec.uri.clone();
        Ok(Box::new(Scripted { script, info, uri, clock, cancel, started, count: 0 }))
    }
}

impl Script {
    fn info(&self) -> SourceInfo {
        let kinds: &[TrackKind] = match self {
            Script::Frames { .. } => &[TrackKind::Video],
            Script::Silence => &[TrackKind::Audio],
            // Text says nothing about how far its source is; a track without pictures does.
            Script::Sentences { .. } => &[TrackKind::Video, TrackKind::Subtitle],
        };
        let track = |kind: &TrackKind| Track {
            kind: *kind,
            codec: "synthetic".into(),
            detail: String::new(),
        };
        SourceInfo {
            tracks: kinds.iter().map(track).collect(),
            duration: None,
            title: None,
            description: None,
        }
    }

    /// Unit number `count`, and the media time at which it is complete.
    fn unit(&self, count: u64, arrival: impl FnOnce(Pts) -> Mono) -> Unit {
        match self {
            Script::Frames { pictures, fps } => {
                let pts = Pts((count * 1_000_000 / u64::from(*fps)) as i64);
                let frame = pictures[count as usize % pictures.len()].clone();
                Unit::Frame(Frame { pts, arrival: arrival(pts), ..frame })
            }
            Script::Silence => {
                let pts = Pts(count as i64 * 100_000);
                let pcm = vec![0.0; SAMPLE_RATE_HZ as usize / 10];
                Unit::Samples(Samples { pts, arrival: arrival(Pts(pts.0 + 100_000)), pcm })
            }
            Script::Sentences { texts, every } => {
                let every = every.as_micros() as i64;
                let start = Pts(count as i64 / 2 * every);
                let end = Pts(start.0 + every);
                if count % 2 == 1 {
                    arrival(end);
                    return Unit::Progress { track: TrackKind::Video, pts: end };
                }
                let number = count / 2;
                let text = format!("{} {number}", texts[number as usize % texts.len()]);
                Unit::Subtitle(Subtitle {
                    span: Span { start, end },
                    arrival: arrival(start),
                    text,
                })
            }
        }
    }
}

struct Scripted {
    script: Script,
    info: SourceInfo,
    uri: String,
    clock: Arc<dyn Clock>,
    cancel: Cancel,
    /// None: as fast as it is taken.
    started: Option<Mono>,
    count: u64,
}

impl Reader for Scripted {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn next(&mut self) -> Result<Option<Unit>, MediaError> {
        let Scripted { clock, cancel, started, .. } = self;
        let unit = self.script.unit(self.count, |complete| {
            let Some(started) = started else { return clock.now() };
            wait_until(*started + Duration::from_micros(complete.0 as u64), &**clock, cancel);
            clock.now()
        });
        if self.cancel.is_cancelled() {
            return Err(MediaError::Cancelled { uri: mask_uri(&self.uri) });
        }
        self.count += 1;
        Ok(Some(unit))
    }

    fn video_counts(&self) -> TrackCounts {
        let frames = if self.info.has(TrackKind::Video) { self.count } else { 0 };
        TrackCounts { decoded: frames, sampled: frames, ..TrackCounts::default() }
    }

    fn audio_counts(&self) -> TrackCounts {
        TrackCounts::default()
    }
}

fn wait_until(due: Mono, clock: &dyn Clock, cancel: &Cancel) {
    loop {
        let left = due.since(clock.now());
        if left.is_zero() || cancel.is_cancelled() {
            return;
        }
        std::thread::park_timeout(left.min(Duration::from_millis(50)));
    }
}

/// A file that never ends.
struct Looped {
    spec: SourceSpec,
    clock: Arc<dyn Clock>,
    cancel: Cancel,
    reader: Box<dyn Reader>,
    info: SourceInfo,
    shift: i64,
    reached: i64,
}

impl Looped {
    fn open(spec: &SourceSpec, clock: Arc<dyn Clock>, cancel: Cancel) -> Result<Self, MediaError> {
        let reader = FfmpegOpener.open(spec, clock.clone(), cancel.clone())?;
        let info = reader.info().clone();
        Ok(Looped { spec: spec.clone(), clock, cancel, reader, info, shift: 0, reached: 0 })
    }

    fn shifted(&mut self, mut unit: Unit) -> Unit {
        let end = match &mut unit {
            Unit::Frame(frame) => {
                frame.pts.0 += self.shift;
                frame.pts.0 + 1
            }
            Unit::Samples(samples) => {
                samples.pts.0 += self.shift;
                samples.end().0
            }
            Unit::Subtitle(subtitle) => {
                subtitle.span.start.0 += self.shift;
                subtitle.span.end.0 += self.shift;
                subtitle.span.start.0
            }
            Unit::Progress { pts, .. } => {
                pts.0 += self.shift;
                pts.0
            }
            Unit::TrackEnded(_) | Unit::Note(_) => 0,
        };
        self.reached = self.reached.max(end);
        unit
    }
}

impl Reader for Looped {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn next(&mut self) -> Result<Option<Unit>, MediaError> {
        loop {
            match self.reader.next()? {
                // No track has ended while the file goes on.
                Some(Unit::TrackEnded(_)) => {}
                Some(unit) => return Ok(Some(self.shifted(unit))),
                None => {
                    // A frame's length, so that no two of them share a time.
                    self.shift = self.reached + 40_000;
                    let (clock, cancel) = (self.clock.clone(), self.cancel.clone());
                    self.reader = FfmpegOpener.open(&self.spec, clock, cancel)?;
                }
            }
        }
    }

    fn video_counts(&self) -> TrackCounts {
        self.reader.video_counts()
    }

    fn audio_counts(&self) -> TrackCounts {
        self.reader.audio_counts()
    }
}

/// One grey picture: for stages that do not look.
pub(super) fn grey(width: u32, height: u32) -> Arc<[Frame]> {
    let pixels = Bytes::from(vec![128; (width * height * 3) as usize]);
    [Frame { pts: Pts::ZERO, arrival: Mono(0), width, height, pixels, cut: false }].into()
}

/// The first `count` frames of a file as `spec` samples it.
pub(super) fn frames_of(
    spec: &SourceSpec,
    clock: Arc<dyn Clock>,
    count: usize,
) -> Result<Arc<[Frame]>, String> {
    let mut reader = FfmpegOpener.open(spec, clock, Cancel::new()).map_err(|e| e.to_string())?;
    let mut frames = Vec::new();
    while frames.len() < count {
        match reader.next().map_err(|e| e.to_string())? {
            // A copy: the reader's buffers are for the reader.
            Some(Unit::Frame(frame)) => {
                let pixels = Bytes::copy_from_slice(&frame.pixels);
                frames.push(Frame { pixels, cut: false, ..frame });
            }
            Some(_) => {}
            None => break,
        }
    }
    if frames.is_empty() {
        return Err(format!("{}: no frames", mask_uri(&spec.uri)));
    }
    Ok(frames.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_at_their_rate_and_sentences_before_their_end() {
        let frames = Script::Frames { pictures: grey(2, 2), fps: 30 };
        let pts = |count| match frames.unit(count, |pts| Mono(pts.0 as u64)) {
            Unit::Frame(frame) => (frame.pts.0, frame.arrival.0),
            _ => (-1, 0),
        };
        assert_eq!([pts(0), pts(1), pts(30)], [(0, 0), (33_333, 33_333), (1_000_000, 1_000_000)]);

        let texts = Script::Sentences { texts: &["a", "b"], every: Duration::from_millis(500) };
        let Unit::Subtitle(third) = texts.unit(4, |_| Mono(0)) else { panic!("no sentence") };
        assert_eq!((third.text.as_str(), third.span.start), ("a 2", Pts::from_ms(1_000)));
        let Unit::Progress { pts, .. } = texts.unit(5, |_| Mono(0)) else { panic!("no progress") };
        assert_eq!(pts, Pts::from_ms(1_500));
    }
}
