//! Typed ractor actors, the ports between them, and the pure fusion window.
//!
//! Knows nothing of ffmpeg, model internals or configuration syntax.

mod ask;
pub mod duration;
pub mod fusion;
mod fusion_actor;
pub mod hub;
mod models;
pub mod plan;
mod port;
mod source;
mod stage;
pub mod stages;
mod system;
mod text;
pub mod windows;

pub use ask::{Ask, Asked};
pub use models::{
    AskActivity, AskReading, AskRegions, AskTranscriber, FindWeights, INSTANCES_READY, Library,
    ModelSet,
};
pub use port::PortCounts;
pub use system::{AddError, Board, Deps, EdgeStatus, Progress, ResultSink, StreamStatus, System};
pub use text::{AskText, AskedText, Meaning, TextModel, TextSpec};
