//! A compiled graph: what the configuration becomes. Stages are known by position, never by a string.

use std::time::Duration;

use engine::Class;
use media::{Sampling, SourceInfo, SourceSpec, StageId, StreamId, TrackKind};

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

impl GraphPlan {
    /// Position of the `fuse` stage.
    pub fn fuse(&self) -> Option<usize> {
        self.stages.iter().position(|stage| matches!(stage.settings, Settings::Fuse(_)))
    }

    /// Settings of the `fuse` stage.
    pub fn fuse_settings(&self) -> Option<&crate::stages::FuseSettings> {
        self.stages.iter().find_map(|stage| match &stage.settings {
            Settings::Fuse(settings) => Some(settings),
            _ => None,
        })
    }

    /// What the reader must hand out so that every stage gets what it asks for.
    pub fn sampling(&self) -> Sampling {
        let mut sampling = Sampling::NONE;
        for stage in &self.stages {
            if let Settings::Frames(frames) = &stage.settings {
                sampling.fps = sampling.fps.max(frames.fps);
                sampling.cuts |= frames.cuts;
                sampling.side_max = sampling.side_max.max(frames.side_max);
            }
            sampling.audio |= stage.inputs.contains(&Input::SourceAudio);
            sampling.subtitles |= stage.inputs.contains(&Input::SourceSubtitles);
        }
        sampling
    }

    /// Per stage: time to keep free for what follows it in a window.
    pub(crate) fn tails(&self) -> Vec<Duration> {
        let mut tails = vec![Duration::ZERO; self.stages.len()];
        for (at, stage) in self.stages.iter().enumerate().rev() {
            let through = tails[at] + stage.settings.cost_hint();
            for input in &stage.inputs {
                if let Input::Stage(from) = input {
                    tails[from.0] = tails[from.0].max(through);
                }
            }
        }
        tails
    }

    /// Per stage: whether it can say anything about a source with these tracks.
    pub(crate) fn applies(&self, info: &SourceInfo, titled: bool) -> Vec<bool> {
        let mut applies: Vec<bool> = Vec::with_capacity(self.stages.len());
        for stage in &self.stages {
            let fed = stage.inputs.iter().any(|input| match input {
                Input::SourceVideo => info.has(TrackKind::Video),
                Input::SourceAudio => info.has(TrackKind::Audio),
                Input::SourceSubtitles => info.has(TrackKind::Subtitle),
                Input::Stage(from) => applies[from.0],
            });
            let text = matches!(stage.settings, Settings::Understand(_));
            applies.push(fed || (text && titled));
        }
        applies
    }
}
