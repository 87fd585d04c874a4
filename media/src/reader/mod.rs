//! The ffmpeg reader: a URI becomes timed frames, chunks of sound and subtitles.
//!
//! `open` turns the URI into an open input and `track` chooses what is read of it; `video`, `audio` and `subtitle`
//! decode; `timestamps`, `sampler`, `cuts`, `damage`, `chunks`, `orientation` and `plain` decide and are pure;
//! `guard` bounds every blocking call; `ffi` and `pipe` hold what is unsafe. Knows nothing of who reads it.

mod audio;
mod chunks;
mod cuts;
mod damage;
mod failure;
mod ffi;
mod guard;
mod notes;
mod open;
mod orientation;
mod picture;
mod pipe;
mod plain;
mod pool;
mod sampler;
mod subtitle;
mod timestamps;
mod track;
mod video;

use std::sync::Arc;
use std::time::Duration;

use ff::format::context::Input;
use ffmpeg_next as ff;

use self::audio::AudioTrack;
use self::failure::Name;
use self::guard::Guard;
use self::notes::{Note, Outbox};
use self::subtitle::SubtitleTrack;
use self::timestamps::Timeline;
use self::track::{Base, Chosen};
use self::video::VideoTrack;
use crate::error::MediaError;
use crate::source::{
    Cancel, Opener, Reader, SourceInfo, SourceSpec, Track, TrackCounts, TrackKind, Unit, mask_uri,
};
use crate::time::{Clock, Mono};

/// Failed reads in a row at one position of the file after which it is taken as ended.
const STUCK_MAX: u32 = 50;
/// Failed reads in a row altogether.
const BAD_READS_MAX: u32 = 10_000;
/// Limit on closing: RTSP says goodbye to the camera.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);
/// Longest title and description taken from a container, in characters.
const TITLE_MAX: usize = 1_000;

/// Opens files, pipes and RTSP streams with ffmpeg.
#[derive(Clone, Copy, Debug, Default)]
pub struct FfmpegOpener;

impl Opener for FfmpegOpener {
    fn open(
        &self,
        spec: &SourceSpec,
        clock: Arc<dyn Clock>,
        cancel: Cancel,
    ) -> Result<Box<dyn Reader>, MediaError> {
        Ok(Box::new(FfmpegReader::open(spec, clock, cancel)?))
    }
}

/// Why a track can't be used; the others may go on.
#[derive(Debug)]
struct TrackError {
    track: TrackKind,
    found: String,
    supported: String,
}

impl TrackError {
    fn into_media(self, uri: String) -> MediaError {
        let TrackError { track, found, supported } = self;
        MediaError::Unsupported { uri, track: track.name(), found, supported }
    }
}

/// One thread: a source has one decode thread, and frame threads would each hold back a picture.
fn decoder_options<'a>() -> ff::Dictionary<'a> {
    let mut options = ff::Dictionary::new();
    options.set("threads", "1");
    options
}

enum State {
    Reading,
    /// Everything is in the outbox; then comes this.
    Finished(Result<(), MediaError>),
}

struct FfmpegReader {
    name: Name,
    info: SourceInfo,
    state: State,
    out: Outbox,
    timeline: Timeline,
    video: Option<VideoTrack>,
    audio: Option<AudioTrack>,
    subtitle: Option<SubtitleTrack>,
    input: Input,
    guard: Arc<Guard>,
    clock: Arc<dyn Clock>,
    read_timeout: Duration,
}

impl Reader for FfmpegReader {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn next(&mut self) -> Result<Option<Unit>, MediaError> {
        loop {
            if let Some(stopped) = self.cancelled() {
                return Err(stopped);
            }
            if let Some(unit) = self.out.pop() {
                return Ok(Some(unit));
            }
            if let State::Finished(end) = &self.state {
                return end.clone().map(|()| None);
            }
            let end = match self.read() {
                Ok(Some(packet)) => match self.route(&packet) {
                    Ok(()) => continue,
                    Err(error) => Err(error),
                },
                Ok(None) => self.drain(),
                Err(error) => self.drain().and(Err(error)),
            };
            self.state = State::Finished(end);
        }
    }

    fn video_counts(&self) -> TrackCounts {
        self.video.as_ref().map(|track| track.counts).unwrap_or_default()
    }

    fn audio_counts(&self) -> TrackCounts {
        self.audio.as_ref().map(|track| track.counts).unwrap_or_default()
    }
}

impl Drop for FfmpegReader {
    fn drop(&mut self) {
        self.guard.arm(CLOSE_LIMIT);
    }
}

impl FfmpegReader {
    fn open(spec: &SourceSpec, clock: Arc<dyn Clock>, cancel: Cancel) -> Result<Self, MediaError> {
        let name = Name { uri: mask_uri(&spec.uri), live: spec.is_live() };
        let guard = Guard::new(clock.clone(), cancel);
        let mut input = open::open(spec, &name, &guard)?;
        let chosen = track::choose(&input);
        // Only MP4 and its kin count their packets reliably.
        let counted = input.format().name().split(',').any(|n| n == "mov");
        let mut out = Outbox::default();
        let mut failed = None;
        let sampling = &spec.sampling;

        let stream = |index: Option<usize>| index.and_then(|i| input.stream(i));
        let mut keep = |error: TrackError, out: &mut Outbox, kind| {
            let text = || format!("{} can't be used ({})", error.found, error.supported);
            out.note(Note::Unusable, kind, text);
            failed.get_or_insert(error);
        };
        let video = stream(chosen.video).and_then(|s| {
            let opened = VideoTrack::open(&s, sampling, counted, &mut out);
            opened.map_err(|e| keep(e, &mut out, TrackKind::Video)).ok()
        });
        // Without any picture even unwanted sound is followed: it tells how time passes.
        let audio = stream(chosen.audio).filter(|_| sampling.audio || video.is_none());
        let audio = audio.and_then(|s| {
            let opened = AudioTrack::open(&s, sampling.audio, name.live, counted);
            opened.map_err(|e| keep(e, &mut out, TrackKind::Audio)).ok()
        });
        let subtitle = stream(chosen.subtitle).filter(|_| sampling.subtitles).and_then(|s| {
            let opened = SubtitleTrack::open(&s);
            opened.map_err(|e| keep(e, &mut out, TrackKind::Subtitle)).ok()
        });
        if video.is_none() && audio.is_none() {
            return Err(match failed {
                Some(error) => error.into_media(name.uri),
                None => no_tracks(name.uri, &chosen),
            });
        }

        let bases = [
            video.as_ref().map(|t| &t.base),
            audio.as_ref().map(|t| &t.base),
            subtitle.as_ref().map(|t| &t.base),
        ];
        let read: Vec<usize> = bases.iter().flatten().map(|base| base.index).collect();
        let timed = bases[..2].iter().flatten().copied();
        let start_us = if name.live { None } else { start_us(&input, timed) };
        let mut info = SourceInfo {
            tracks: Vec::new(),
            duration: u64::try_from(input.duration()).ok().map(Duration::from_micros),
            title: None,
            description: None,
        };
        // A camera's session name says nothing of what it sees.
        if !name.live {
            info.title = text_of(&input, &[c"title"]);
            info.description = text_of(&input, &[c"description", c"synopsis", c"comment"]);
        }
        let mut list = |base: &Base, detail: &dyn Fn(&ff::Stream<'_>) -> String| {
            if let Some(stream) = input.stream(base.index) {
                let codec = stream.parameters().id().name().to_owned();
                info.tracks.push(Track { kind: base.kind, codec, detail: detail(&stream) });
            }
        };
        if let Some(track) = &video {
            list(&track.base, &|stream| track.detail(stream));
        }
        if let Some(track) = &audio {
            list(&track.base, &|_| track.detail());
        }
        if let Some(track) = &subtitle {
            list(&track.base, &|_| "text".to_owned());
        }
        for index in 0..input.streams().count() {
            if !read.contains(&index) {
                ffi::discard(&mut input, index);
            }
        }
        Ok(FfmpegReader {
            timeline: Timeline::new(name.live, start_us),
            name,
            info,
            state: State::Reading,
            out,
            video,
            audio,
            subtitle,
            input,
            guard,
            clock,
            read_timeout: spec.read_timeout,
        })
    }

    fn cancelled(&self) -> Option<MediaError> {
        // Asked here too: a file that is read from memory never blocks.
        self.guard.must_stop();
        self.name
            .stopped(&self.guard, "reading", self.read_timeout)
            .filter(|stopped| matches!(stopped, MediaError::Cancelled { .. }))
    }

    /// The next packet; none at the end of a file.
    fn read(&mut self) -> Result<Option<ff::Packet>, MediaError> {
        let (mut bad, mut stuck) = (0, 0);
        let mut position = ffi::position(&self.input);
        loop {
            let mut packet = ff::Packet::empty();
            self.guard.arm(self.read_timeout);
            let read = packet.read(&mut self.input);
            if let Some(stopped) = self.name.stopped(&self.guard, "reading", self.read_timeout) {
                return Err(stopped);
            }
            let error = match read {
                Ok(()) => return Ok(Some(packet)),
                Err(error) => error,
            };
            let passing =
                matches!(error, ff::Error::InvalidData | ff::Error::Other { errno: libc::EAGAIN });
            if !passing {
                let ended = error == ff::Error::Eof && !self.name.live;
                return if ended { Ok(None) } else { Err(self.failed(error)) };
            }
            let now = ffi::position(&self.input);
            stuck = if now == position { stuck + 1 } else { 0 };
            bad += 1;
            position = now;
            if stuck > STUCK_MAX || bad > BAD_READS_MAX {
                if self.name.live {
                    return Err(self.failed(error));
                }
                self.say_bad_bytes("the rest of the file can't be read");
                return Ok(None);
            }
            self.say_bad_bytes("parts of the file can't be read and are skipped");
        }
    }

    fn failed(&self, error: ff::Error) -> MediaError {
        self.name.reading(error, self.read_timeout)
    }

    fn say_bad_bytes(&mut self, text: &str) {
        let kind = if self.video.is_some() { TrackKind::Video } else { TrackKind::Audio };
        self.out.note(Note::BadBytes, kind, || text.to_owned());
    }

    fn route(&mut self, packet: &ff::Packet) -> Result<(), MediaError> {
        let arrival = self.clock.now();
        let index = packet.stream();
        let (timeline, out) = (&mut self.timeline, &mut self.out);
        let fed = if let Some(track) = self.video.as_mut().filter(|t| t.base.index == index) {
            track.feed(packet, arrival, timeline, out).map(|last| (last, TrackKind::Video))
        } else if let Some(track) = self.audio.as_mut().filter(|t| t.base.index == index) {
            track.feed(packet, arrival, timeline, out).map(|last| (last, TrackKind::Audio))
        } else {
            if let Some(track) = self.subtitle.as_mut().filter(|t| t.base.index == index) {
                track.feed(packet, arrival, timeline, out);
            }
            return Ok(());
        };
        match fed {
            Ok((last, kind)) => {
                if last {
                    self.end(kind, arrival)?;
                }
                self.pass_subtitles();
                Ok(())
            }
            Err(error) => self.give_up(error),
        }
    }

    /// A track has delivered its last packet while others go on.
    fn end(&mut self, kind: TrackKind, arrival: Mono) -> Result<(), MediaError> {
        let (timeline, out) = (&mut self.timeline, &mut self.out);
        let drained = match (kind, &mut self.video, &mut self.audio) {
            (TrackKind::Video, Some(track), _) => track.drain(arrival, timeline, out),
            (TrackKind::Audio, _, Some(track)) => track.drain(arrival, timeline, out),
            _ => Ok(()),
        };
        match drained {
            Ok(()) => {
                self.out.push(Unit::TrackEnded(kind));
                Ok(())
            }
            Err(error) => self.give_up(error),
        }
    }

    /// A track turned out to be unusable: the source goes on with the other one, if there is one.
    fn give_up(&mut self, error: TrackError) -> Result<(), MediaError> {
        let kind = error.track;
        let alone = match kind {
            TrackKind::Video => self.audio.is_none(),
            _ => self.video.is_none(),
        };
        if alone {
            return Err(error.into_media(self.name.uri.clone()));
        }
        let index = match kind {
            TrackKind::Video => self.video.take().map(|track| track.base.index),
            _ => self.audio.take().map(|track| track.base.index),
        };
        if let Some(index) = index {
            ffi::discard(&mut self.input, index);
        }
        self.out.note(Note::Unusable, kind, || {
            format!("{} can't be used ({})", error.found, error.supported)
        });
        self.out.push(Unit::TrackEnded(kind));
        Ok(())
    }

    /// Text is as far as the slowest of the other tracks.
    fn pass_subtitles(&mut self) {
        let Some(subtitle) = &mut self.subtitle else {
            return;
        };
        let video = self.video.as_ref().map(|t| t.base.last());
        let audio = self.audio.as_ref().map(|t| t.base.last());
        // A track that has not begun holds nothing back.
        if let Some(pts) = [video, audio].into_iter().flatten().flatten().min() {
            subtitle.passed(pts, &mut self.out);
        }
    }

    /// Hands out what the decoders still hold.
    fn drain(&mut self) -> Result<(), MediaError> {
        let arrival = self.clock.now();
        let (timeline, out) = (&mut self.timeline, &mut self.out);
        let video = self.video.as_mut().map_or(Ok(()), |t| t.drain(arrival, timeline, out));
        let audio = self.audio.as_mut().map_or(Ok(()), |t| t.drain(arrival, timeline, out));
        match (video, audio) {
            (Err(error), _) | (_, Err(error)) => self.give_up(error),
            _ => Ok(()),
        }
    }
}

fn no_tracks(uri: String, chosen: &Chosen) -> MediaError {
    let mut found = chosen.found.clone();
    found.dedup();
    let found = if found.is_empty() { "nothing".to_owned() } else { found.join(", ") };
    MediaError::NoTracks { uri, found }
}

/// Earliest start over the tracks that are read, where the container knows it.
fn start_us<'a>(input: &Input, bases: impl Iterator<Item = &'a Base>) -> Option<i64> {
    let starts = bases.filter_map(|base| {
        let ticks = input.stream(base.index)?.start_time();
        (ticks != ff::ffi::AV_NOPTS_VALUE).then(|| base.us(ticks))
    });
    starts.min()
}

/// The first of these metadata values that is not empty.
fn text_of(input: &Input, keys: &[&std::ffi::CStr]) -> Option<String> {
    keys.iter().find_map(|key| {
        let text = ffi::metadata(input, key)?;
        let text: String = text.trim().chars().take(TITLE_MAX).collect();
        (!text.is_empty()).then_some(text)
    })
}
