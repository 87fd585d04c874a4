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

/// An answer with what it cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answered<T> {
    /// The model's answer.
    pub output: T,
    /// Submission to start.
    pub queue: Duration,
    /// Start to end of its batch.
    pub compute: Duration,
    /// Members of its batch.
    pub batch: u32,
}

impl<T> JobEnd<T> {
    /// The answer and its cost.
    ///
    /// # Errors
    /// The same end, of a job that would have answered something else.
    pub fn answered<U>(self) -> Result<Answered<T>, JobEnd<U>> {
        match self {
            JobEnd::Done { output, queue, compute, batch } => {
                Ok(Answered { output, queue, compute, batch })
            }
            JobEnd::Shed => Err(JobEnd::Shed),
            JobEnd::Expired => Err(JobEnd::Expired),
            JobEnd::Cancelled => Err(JobEnd::Cancelled),
            JobEnd::Failed(error) => Err(JobEnd::Failed(error)),
        }
    }
}

impl<T> From<Answered<T>> for JobEnd<T> {
    fn from(answer: Answered<T>) -> Self {
        let Answered { output, queue, compute, batch } = answer;
        JobEnd::Done { output, queue, compute, batch }
    }
}
