//! A unit of model work and the ways it can end.

use std::time::Duration;

use media::{Mono, StreamId};
use models::ModelError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A stage's rank for compute.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// The language model.
    Text,
    /// Work that text waits for: speech, on-screen text.
    TextInput,
    /// Detection, scenes, safety.
    Vision,
    /// Voice activity and other listening.
    Audio,
}

/// What the scheduler must know of a job besides its model.
#[derive(Clone, Debug, PartialEq)]
pub struct Ticket {
    /// For fairness between equals.
    pub stream: StreamId,
    /// Inside a class: lower goes first (live 0, files 10 by default).
    pub priority: i32,
    /// When the answer stops being useful; none for unpaced sources, which are never shed.
    pub deadline: Option<Mono>,
}

/// The ways a job ends. Each job ends exactly once.
#[derive(Debug, PartialEq)]
pub enum JobEnd<T> {
    /// Answered.
    Done {
        /// The model's answer.
        output: T,
        /// Submission to start.
        queue: Duration,
        /// Start to end of its batch.
        compute: Duration,
        /// Members of its batch.
        batch: u32,
    },
    /// Refused before start: could not have made its deadline.
    Shed,
    /// Deadline passed while it waited.
    Expired,
    /// Nobody waits for it any more, or the process is ending.
    Cancelled,
    /// The model failed.
    Failed(ModelError),
}
