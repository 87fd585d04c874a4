//! What the book is told once, and the words it shares with whoever drives it.

use std::sync::Arc;
use std::time::Duration;

use media::result::{FusedResult, MissingReason};
use media::{Mono, StageId, StreamId};

use super::alerts::RuleFault;
use crate::plan::StageIndex;
use crate::stages::{FuseSettings, PortType, WindowLength};

/// A stage that fusion waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpectedStage {
    /// Its place in the graph.
    pub index: StageIndex,
    /// Its name in results.
    pub id: StageId,
    /// What it says.
    pub output: PortType,
    /// False when the source lacks the track that it reads: it is neither waited for nor missing.
    pub applies: bool,
}

/// How one stream's answers go out.
#[derive(Clone, Debug, PartialEq)]
pub struct BookSettings {
    /// Which stream.
    pub stream: StreamId,
    /// Names this start of the process.
    pub run: Arc<str>,
    /// In the order in which results list them.
    pub stages: Vec<ExpectedStage>,
    /// Whether deadlines bind.
    pub paced: bool,
    /// Sealed to emitted, for the result's `budget_ms`; the deadline itself comes with the seal.
    pub budget: Duration,
    /// Whether windows are whole clips, whose processing time is counted from `admitted`.
    pub clip: bool,
    /// When the source was taken in.
    pub admitted: Mono,
    /// An incomplete answer goes out this long before its deadline: fusing and sending take time too.
    pub emit_margin: Duration,
    /// Whether a late answer brings a corrected result.
    pub revisions: bool,
    /// How long after an incomplete result its revision may follow.
    pub revise_within: Duration,
    /// Unpaced: a sealed window goes out incomplete when no stage has said anything for this long.
    pub hang_max: Duration,
    /// Windows held at once. See [`FusionBook::has_room`].
    pub open_max: usize,
}

/// Time kept free before a deadline for fusing and sending.
pub const EMIT_MARGIN: Duration = Duration::from_millis(15);

impl BookSettings {
    /// Defaults for what the configuration doesn't say.
    pub fn new(
        stream: StreamId,
        run: Arc<str>,
        fuse: &FuseSettings,
        paced: bool,
        admitted: Mono,
        stages: Vec<ExpectedStage>,
    ) -> Self {
        BookSettings {
            stream,
            run,
            stages,
            paced,
            budget: fuse.budget,
            clip: !paced && fuse.window == WindowLength::Clip,
            admitted,
            emit_margin: EMIT_MARGIN,
            revisions: fuse.revisions,
            revise_within: Duration::from_secs(5),
            hang_max: Duration::from_secs(60),
            open_max: 256,
        }
    }
}

/// How a stage's work on one window ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything it had to say was offered.
    Ok,
    /// There is no answer, and why.
    Missing(MissingReason),
}

/// Something to publish.
#[derive(Clone, Debug, PartialEq)]
pub struct Emit {
    /// The result; its `seq` is 0 until the hub numbers it.
    pub result: FusedResult,
    /// Rules that could not be evaluated, each named once per stream.
    pub rule_faults: Vec<RuleFault>,
}
