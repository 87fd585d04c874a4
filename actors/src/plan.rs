//! A compiled graph: what the configuration becomes. Stages are known by position, never by a string.

use std::time::Duration;

use engine::Class;
use media::{SourceSpec, StageId, StreamId};

use crate::stages::Settings;

/// Position of a stage in [`GraphPlan::stages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StageIndex(pub usize);

/// The stage graph, in an order in which every stage comes after its inputs. Exactly one `fuse`, the last.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphPlan {
    /// All stages.
    pub stages: Vec<StagePlan>,
}

/// One stage.
#[derive(Clone, Debug, PartialEq)]
pub struct StagePlan {
    /// As named in the configuration.
    pub id: StageId,
    /// Kind and its settings.
    pub settings: Settings,
    /// Where it reads from.
    pub inputs: Vec<Input>,
    /// Rank for compute.
    pub class: Class,
}

/// An input of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// `source.video`
    SourceVideo,
    /// `source.audio`
    SourceAudio,
    /// `source.subtitles`
    SourceSubtitles,
    /// Another stage.
    Stage(StageIndex),
}

/// One source and how it is treated.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamPlan {
    /// Unique among running streams.
    pub id: StreamId,
    /// What to open. Its sampling is filled in from the graph.
    pub source: SourceSpec,
    /// Live, or a file played at its own pace: deadlines bind, ports drop oldest.
    pub paced: bool,
    /// Inside a class: lower goes first.
    pub priority: i32,
    /// Given with the source; data for the text model, never instruction.
    pub title: Option<String>,
    /// Ditto.
    pub description: Option<String>,
    /// ISO 639-1, when the caller knows it.
    pub language: Option<String>,
    /// Time from admission within which a clip wants its answer.
    pub clip_budget: Option<Duration>,
}
