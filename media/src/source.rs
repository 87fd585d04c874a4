//! The seam between media and the rest: what a source is, and the trait behind which it is read.
//!
//! A `Reader` is blocking and lives on one named thread; it yields `Unit`s in reading order until it ends.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::MediaError;
use crate::frame::{Frame, Samples, Subtitle};
use crate::time::{Clock, Pts};

/// How RTSP media is carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Interleaved in the RTSP connection.
    #[default]
    Tcp,
    /// RTP over UDP.
    Udp,
}

/// Which decoded frames are wanted. Decoding is whole; only wanted frames are scaled and handed out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Frames per second of media time: the first frame at or after each multiple of 1/fps. 0: none.
    pub fps: f64,
    /// Also hand out the first frame after a scene cut.
    pub cuts: bool,
    /// Longest side of a frame handed out, in pixels; larger pictures are scaled down, smaller ones kept.
    pub side_max: u32,
    /// Whether sound is wanted.
    pub audio: bool,
    /// Whether subtitle tracks are wanted.
    pub subtitles: bool,
}

impl Sampling {
    /// Nothing at all.
    pub const NONE: Sampling =
        Sampling { fps: 0.0, cuts: false, side_max: 0, audio: false, subtitles: false };
}

/// A URI and how to open it. Printed, it holds no password.
#[derive(Clone, PartialEq)]
pub struct SourceSpec {
    /// Path, `rtsp://` URL, or `-` for standard input.
    pub uri: String,
    /// For `rtsp://`.
    pub transport: Transport,
    /// Limit on opening.
    pub open_timeout: Duration,
    /// Limit on the wait for one packet.
    pub read_timeout: Duration,
    /// What to hand out.
    pub sampling: Sampling,
}

impl fmt::Debug for SourceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SourceSpec { uri, transport, open_timeout, read_timeout, sampling } = self;
        f.debug_struct("SourceSpec")
            .field("uri", &mask_uri(uri))
            .field("transport", transport)
            .field("open_timeout", open_timeout)
            .field("read_timeout", read_timeout)
            .field("sampling", sampling)
            .finish()
    }
}

impl SourceSpec {
    /// Whether media arrives at its own pace and can't be asked to wait.
    pub fn is_live(&self) -> bool {
        self.uri.starts_with("rtsp://") || self.uri.starts_with("rtsps://")
    }
}

/// Kinds of track that are read.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum TrackKind {
    /// Pictures.
    Video,
    /// Sound.
    Audio,
    /// Timed text.
    Subtitle,
}

impl TrackKind {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            TrackKind::Video => "video",
            TrackKind::Audio => "audio",
            TrackKind::Subtitle => "subtitle",
        }
    }
}

/// A track that is being read.
#[derive(Clone, Debug, PartialEq)]
pub struct Track {
    /// What it carries.
    pub kind: TrackKind,
    /// Codec name.
    pub codec: String,
    /// For people: size and rate, or channels and sample rate.
    pub detail: String,
}

/// What was found on opening.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceInfo {
    /// Tracks that will be read.
    pub tracks: Vec<Track>,
    /// Whole length, where the container says so.
    pub duration: Option<Duration>,
    /// `title` and `description`/`comment` of the container.
    pub title: Option<String>,
    /// Ditto.
    pub description: Option<String>,
}

impl SourceInfo {
    /// Whether a track of this kind is read.
    pub fn has(&self, kind: TrackKind) -> bool {
        self.tracks.iter().any(|t| t.kind == kind)
    }
}

/// Counts of one track; `decoded = sampled + skipped + withheld` always holds for video.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrackCounts {
    /// Pictures (or audio frames) that left the decoder.
    pub decoded: u64,
    /// Handed out.
    pub sampled: u64,
    /// Not wanted by the sampling.
    pub skipped: u64,
    /// Held back because they are damaged.
    pub withheld: u64,
    /// Packets that the decoder refused.
    pub bad_packets: u64,
}

/// What a reader yields.
#[derive(Clone, Debug)]
pub enum Unit {
    /// A wanted frame.
    Frame(Frame),
    /// A chunk of sound.
    Samples(Samples),
    /// A subtitle.
    Subtitle(Subtitle),
    /// A track has delivered everything before this time, though nothing of it was wanted.
    Progress {
        /// Which track.
        track: TrackKind,
        /// How far it is.
        pts: Pts,
    },
    /// A track ended before the others.
    TrackEnded(TrackKind),
    /// Something a user should know (timestamps repaired, clock jumped); said once per kind.
    Note(String),
}

/// Tells a reader to stop, from another thread; ends blocking calls within their poll.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ask to stop; can't be taken back.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Opens sources. Called on the reader's own thread.
pub trait Opener: Send + Sync + 'static {
    /// Opens `spec`; blocks until the tracks are known or a limit passes.
    ///
    /// # Errors
    /// Any [`MediaError`]; `Cancelled` when `cancel` was set meanwhile.
    fn open(
        &self,
        spec: &SourceSpec,
        clock: Arc<dyn Clock>,
        cancel: Cancel,
    ) -> Result<Box<dyn Reader>, MediaError>;
}

/// An open source. Not `Send`: it stays on the thread that opened it.
pub trait Reader {
    /// What was found on opening.
    fn info(&self) -> &SourceInfo;

    /// The next unit in reading order; `None` after the last one (decoders drained).
    ///
    /// # Errors
    /// `Disconnected` or `TimedOut` for a live source whose peer is gone, `Cancelled`.
    fn next(&mut self) -> Result<Option<Unit>, MediaError>;

    /// Counts so far of the video track.
    fn video_counts(&self) -> TrackCounts;

    /// Counts so far of the audio track.
    fn audio_counts(&self) -> TrackCounts;
}

/// `uri` without user, password and query values, for logs, metrics and results.
pub fn mask_uri(uri: &str) -> String {
    let Some((scheme, rest)) = uri.split_once("://") else {
        return uri.to_owned();
    };
    let (authority, tail) = match rest.find(['/', '?', '#']) {
        Some(i) => rest.split_at(i),
        None => (rest, ""),
    };
    // A password may itself hold `/` or `@` unescaped: everything up to the last `@` counts as user info.
    let (authority, tail) = match rest.rfind('@') {
        Some(at) if at >= authority.len() && !rest[..at].contains('?') => {
            let after = &rest[at..];
            match after[1..].find(['/', '?', '#']) {
                Some(i) => after.split_at(i + 1),
                None => (after, ""),
            }
        }
        _ => (authority, tail),
    };
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let user = if authority.contains('@') { "***@" } else { "" };
    let tail = match tail.split_once('?') {
        Some((path, _)) => format!("{path}?***"),
        None => tail.to_owned(),
    };
    format!("{scheme}://{user}{host}{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_queries_never_show() {
        for (uri, want) in [
            ("rtsp://admin:secret@10.0.0.1/cam", "rtsp://***@10.0.0.1/cam"),
            ("rtsp://admin:p@ss/w0rd@cam:554/a", "rtsp://***@cam:554/a"),
            ("http://host/a.m3u8?sig=abc", "http://host/a.m3u8?***"),
            ("rtsp://host/x", "rtsp://host/x"),
            ("clip one.mp4", "clip one.mp4"),
            ("rtsp://u:p@host", "rtsp://***@host"),
        ] {
            assert_eq!(mask_uri(uri), want);
        }
    }
}
