//! How many jobs there were and how they ended, so that nothing is lost silently.

use serde::Serialize;

use super::End;
use crate::Class;

/// The jobs of one model. Balanced at every event: `submitted` is the sum of all the rest but `refused`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Taken in, or shed at once.
    pub submitted: u64,
    /// Answered in time, or without a deadline.
    pub done: u64,
    /// Answered after their deadline.
    pub late: u64,
    /// Refused before start: could not have made their deadline, or displaced by newer ones.
    pub shed: u64,
    /// Deadline passed while queued.
    pub expired: u64,
    /// Withdrawn before start.
    pub cancelled: u64,
    /// The model failed, or its lane was stuck.
    pub failed: u64,
    /// Waiting now.
    pub queued: u64,
    /// Running now.
    pub running: u64,
    /// Never taken in, because the queue was full: not among `submitted`, the submitter keeps them.
    pub refused: u64,
    /// Runs ended half-way for text. Their jobs waited again and are counted where they ended.
    pub preempted: u64,
}

impl Counts {
    /// Whether no job is unaccounted for.
    pub fn balanced(&self) -> bool {
        self.submitted == self.ended() + self.queued + self.running
    }

    /// Jobs that ended, in whichever way.
    pub fn ended(&self) -> u64 {
        self.done + self.late + self.shed + self.expired + self.cancelled + self.failed
    }

    pub(super) fn count(&mut self, end: End) {
        *match end {
            End::Done => &mut self.done,
            End::Late => &mut self.late,
            End::Shed => &mut self.shed,
            End::Expired => &mut self.expired,
            End::Cancelled => &mut self.cancelled,
            End::Failed => &mut self.failed,
        } += 1;
    }

    /// Adds another model's counts.
    pub fn add(&mut self, other: &Counts) {
        self.submitted += other.submitted;
        self.done += other.done;
        self.late += other.late;
        self.shed += other.shed;
        self.expired += other.expired;
        self.cancelled += other.cancelled;
        self.failed += other.failed;
        self.queued += other.queued;
        self.running += other.running;
        self.refused += other.refused;
        self.preempted += other.preempted;
    }
}

/// One line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LedgerLine {
    /// The model's rank.
    pub class: Class,
    /// The model's name.
    pub model: String,
    /// Its jobs.
    pub counts: Counts,
}
