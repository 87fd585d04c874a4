//! What goes in and comes out: models, jobs, batches, ends.

use std::sync::Arc;
use std::time::Duration;

use media::{Mono, StreamId};

use super::Counts;
use crate::Class;
use crate::runs::Runs;

/// A model known to the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelKey(pub(super) u32);

/// A job taken in. Grows with each submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// A batch started. Grows with each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DispatchId(pub u64);

/// What the scheduler must know of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// For the ledger and metrics.
    pub name: Arc<str>,
    /// Its rank for compute.
    pub class: Class,
    /// Largest batch that pays off.
    pub batch_max: usize,
    /// Lanes that one batch takes; never more than its class may use.
    pub width: usize,
    /// How long a batch may wait for more members while some lane is busy. Zero: never.
    pub batch_wait_max: Duration,
    /// Whether its batches can be ended half-way.
    pub interruptible: bool,
}

/// A job to take in.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSpec {
    /// Which model is to answer it.
    pub model: ModelKey,
    /// For fairness between equals.
    pub stream: StreamId,
    /// Inside a class: lower goes first.
    pub priority: i32,
    /// None: never shed, never expires.
    pub deadline: Option<Mono>,
    /// The submitter's prediction, where the cost differs from job to job. Such jobs run alone.
    pub predicted: Option<Duration>,
}

/// What became of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitOutcome {
    /// It waits; its end is reported by [`Scheduler::take_ended`].
    Queued(JobId),
    /// It could not have made its deadline. Its end is counted, and not reported again.
    Shed,
    /// The stream's queue for this model holds as many jobs without deadline as it may. Not taken in: offer
    /// it again when one has left.
    Full {
        /// The queue's bound.
        limit: usize,
    },
    /// No such model. Not taken in.
    UnknownModel,
}

/// Why a batch goes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its turn.
    Order,
    /// Its class was below its guaranteed share, before a higher class's runnable job.
    Share,
    /// It waited longest, and too long.
    Aged,
}

/// A batch to run now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// To be given back to [`Scheduler::complete`].
    pub id: DispatchId,
    /// The one model of all members.
    pub model: ModelKey,
    /// Members in the order of their answers.
    pub jobs: Vec<JobId>,
    /// The lanes it holds until completed, at least one.
    pub lanes: Vec<usize>,
    /// Why now.
    pub why: Why,
    /// p90 believed at its start.
    pub estimate: Option<Duration>,
}

/// How a batch went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered; its cost is learned.
    Done,
    /// Answered by an instance's first run, whose cost says little about the next.
    DoneCold,
    /// Not answered.
    Failed,
    /// Ended half-way, as [`Scheduler::take_preempted`] asked: its jobs wait again.
    Preempted,
}

/// The ways a job ends; [`JobEnd`](crate::JobEnd) without the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// Answered.
    Done,
    /// Answered after its deadline.
    Late,
    /// Refused before start.
    Shed,
    /// Deadline passed while queued.
    Expired,
    /// Withdrawn before start.
    Cancelled,
    /// The model failed, or its lane was stuck.
    Failed,
}

/// A job's end, reported once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which job.
    pub job: JobId,
    /// Its model.
    pub model: ModelKey,
    /// How it ended.
    pub end: End,
    /// Submission to start, or to its end if it never started.
    pub queue: Duration,
    /// Start to end of its batch.
    pub compute: Duration,
    /// Members of its batch; zero if it never started.
    pub batch: u32,
}

/// A model's figures at one instant.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFigures {
    /// Its name.
    pub name: Arc<str>,
    /// Its rank.
    pub class: Class,
    /// Its jobs.
    pub counts: Counts,
    /// Median cost of a single job.
    pub cost_p50: Option<Duration>,
    /// p90 of the cost of a single job.
    pub cost_p90: Option<Duration>,
    /// Median and p90 of the relative error of its estimates.
    pub estimate_error: Option<(f64, f64)>,
    /// Whether its batches can be ended half-way.
    pub interruptible: bool,
    /// p99 of the stretches that could not be ended once begun: whole batches, or where those can be ended the time
    /// from being asked to having ended.
    pub piece_p99: Option<Duration>,
    /// The longest of them.
    pub piece_max: Option<Duration>,
    /// How many there were.
    pub pieces: u64,
    /// What batches of each size cost, all runs since the start.
    pub learned: Vec<LearnedCost>,
}

/// What batches of one size cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnedCost {
    /// Members.
    pub batch: usize,
    /// How many ran.
    pub runs: u64,
    /// Median.
    pub p50: Duration,
    /// Nine in ten took no longer.
    pub p90: Duration,
    /// All but one in a hundred took no longer.
    pub p99: Duration,
}

impl LearnedCost {
    pub(super) fn of((batch, runs): (usize, &Runs)) -> Option<Self> {
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|fraction| runs.at(fraction));
        Some(LearnedCost { batch, runs: runs.count(), p50: p50?, p90: p90?, p99: p99? })
    }
}

/// A stretch that could not be ended once begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Whose.
    pub model: ModelKey,
    /// How long.
    pub length: Duration,
}
