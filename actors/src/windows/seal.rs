//! What the sealer is told once, and what it says.

use std::time::Duration;

use media::Mono;
use media::result::Window;

use crate::plan::StreamPlan;
use crate::stages::{FuseSettings, WindowLength};

/// How windows of one stream are cut and sealed.
#[derive(Clone, Debug, PartialEq)]
pub struct SealerSettings {
    /// Length of a window; `clip` means up to `clip_max`.
    pub length: WindowLength,
    /// Length at which a clip is cut.
    pub clip_max: Duration,
    /// Live, or a file at its own pace.
    pub paced: bool,
    /// Paced: wait for late packets after the end was on air.
    pub seal_grace: Duration,
    /// Paced: a track that is silent this long holds nothing open.
    pub track_idle: Duration,
    /// Unpaced: a track this far behind the furthest one holds nothing open.
    pub skew_max: Duration,
    /// Paced: time for the answer. Counted from the seal and from the window's end on air, whichever ends
    /// first, but a window sealed late by grace keeps half of it.
    pub budget: Duration,
    /// Paced: delay that the decoder states; the window's end counts as on air this much later.
    pub decode_delay: Duration,
    /// Unpaced: admission to deadline, when one was asked for.
    pub clip_budget: Option<Duration>,
}

impl SealerSettings {
    /// From the compiled stage and stream.
    pub fn new(fuse: &FuseSettings, stream: &StreamPlan) -> Self {
        SealerSettings {
            length: fuse.window,
            clip_max: fuse.clip_max,
            paced: stream.paced,
            seal_grace: fuse.seal_grace,
            track_idle: fuse.track_idle,
            skew_max: Duration::from_secs(10),
            budget: fuse.budget,
            decode_delay: Duration::ZERO,
            clip_budget: stream.clip_budget,
        }
    }
}

/// A window that takes no more media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// Which span. The last one of a stream ends with its media.
    pub window: Window,
    /// When the rule that sealed it came true.
    pub sealed_at: Mono,
    /// When its end was on air (anchor + end); none for unpaced sources.
    pub air_end: Option<Mono>,
    /// When its answer is due; none without a budget.
    pub deadline: Option<Mono>,
}

/// What the sealer says, in window order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealerEvent {
    /// A window is sealed.
    Sealed(Seal),
    /// These indexes, both included, never open: the source was away, or media time jumped over them.
    Skipped {
        /// First.
        from: u64,
        /// Last.
        to: u64,
    },
}
