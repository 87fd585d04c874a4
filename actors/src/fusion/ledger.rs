//! Counts of the fusion window. Each line balances after every call.

use serde::Serialize;

/// Everything that was counted since the stream's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// Windows.
    pub windows: WindowCounts,
    /// Observations.
    pub observations: ObservationCounts,
    /// Revisions sent, which are no windows of their own.
    pub revisions: u64,
    /// Answers without which their window went out; their observations are counted as late or revised.
    pub answers_late: u64,
}

/// `sealed = complete + partial + open`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WindowCounts {
    /// Sealed.
    pub sealed: u64,
    /// Emitted with every answer.
    pub complete: u64,
    /// Emitted with answers missing.
    pub partial: u64,
    /// Sealed and not emitted yet.
    pub open: u64,
}

/// `offered = fused + late + dropped + held`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObservationCounts {
    /// Taken in.
    pub offered: u64,
    /// Part of an emitted result or revision.
    pub fused: u64,
    /// Came after their window's last result.
    pub late: u64,
    /// For a window that was skipped, or further ahead than the book goes.
    pub dropped: u64,
    /// Waiting in a window that was not emitted, or for its revision.
    pub held: u64,
}

impl Ledger {
    /// Whether both lines balance.
    pub fn balances(&self) -> bool {
        let (w, o) = (&self.windows, &self.observations);
        w.sealed == w.complete + w.partial + w.open
            && o.offered == o.fused + o.late + o.dropped + o.held
    }
}
