//! The words every room shares, and the reader that turns a URI into timed frames and samples.
//!
//! Knows nothing of models, scheduling or actors. Two halves: the shared words (`time`, `ids`, `frame`,
//! `observation`, `result`) and the reader (`source` is its interface, `reader` the ffmpeg behind it).

mod error;
mod frame;
mod ids;
mod observation;
mod reader;
pub mod result;
mod source;
mod time;

pub use error::MediaError;
pub use frame::{Frame, SAMPLE_RATE_HZ, Samples, Subtitle};
pub use ids::{StageId, StreamId};
pub use observation::{
    Detection, Observation, Polarity, Rect, SafetyScore, Scored, ScreenLine, SpeechSegment,
    SummaryFrom, Tone, Understanding, Word,
};
pub use reader::FfmpegOpener;
pub use source::{
    Cancel, Opener, Reader, Sampling, SourceInfo, SourceSpec, Track, TrackCounts, TrackKind,
    Transport, Unit, mask_uri,
};
pub use time::{Clock, Mono, Pts, Span, SystemClock};
