//! A lane lent to work done elsewhere, one piece at a time.

use std::sync::Arc;
use std::time::Duration;

use media::{Mono, StreamId};
use thiserror::Error;
use tokio::sync::oneshot;

use super::handle::Waiting;
use super::{Refused, Reply, Shared};
use crate::events::Event;
use crate::scheduler::{DispatchId, JobSpec, ModelKey, Outcome};
use crate::{Class, Ticket};

/// Why there is no lane.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NoLane {
    /// The deadline could not have been made.
    #[error("the deadline can't be made")]
    Shed,
    /// The deadline passed while waiting.
    #[error("the deadline passed while waiting for a lane")]
    Expired,
    /// As many pieces of this stream wait already as may.
    #[error("the stream's queue for lanes is full")]
    Full,
    /// The process is ending.
    #[error("no more work is taken")]
    Closing,
}

/// A running batch or lease, as its end must report it.
pub(super) struct Batch {
    pub(super) id: DispatchId,
    pub(super) class: Class,
    pub(super) model: Arc<str>,
    pub(super) lanes: Vec<usize>,
    pub(super) started: Mono,
    pub(super) estimate: Option<Duration>,
}

impl Batch {
    pub(super) fn finished(&self, now: Mono) -> Event {
        Event::Finished {
            at: now,
            dispatch: self.id,
            class: self.class,
            model: self.model.clone(),
            lanes: self.lanes.clone(),
            compute: now.since(self.started),
            estimate: self.estimate,
        }
    }

    pub(super) fn preempted(&self, now: Mono) -> Event {
        Event::Preempted {
            at: now,
            dispatch: self.id,
            class: self.class,
            model: self.model.clone(),
            lanes: self.lanes.clone(),
            lost: now.since(self.started),
        }
    }
}

/// One lane, until dropped.
pub struct LaneGuard {
    shared: Arc<Shared>,
    batch: Option<Batch>,
    key: ModelKey,
    stream: StreamId,
    lane: usize,
}

impl LaneGuard {
    pub(super) fn new(shared: Arc<Shared>, batch: Batch, key: ModelKey, stream: StreamId) -> Self {
        let lane = batch.lanes.first().copied().unwrap_or_default();
        LaneGuard { shared, batch: Some(batch), key, stream, lane }
    }

    /// Which lane.
    pub fn lane(&self) -> usize {
        self.lane
    }

    /// Whether others would get the lane if it were given back now.
    pub fn is_wanted(&self) -> bool {
        let Some(batch) = &self.batch else { return false };
        self.shared.with(|state, now, _| state.scheduler.is_wanted(now, batch.id))
    }

    /// Gives the lane back and asks for the next piece in one step: nothing of a lower class starts between
    /// them, except by its guaranteed share.
    ///
    /// # Errors
    /// [`NoLane`]; the lane is given back even so.
    pub async fn renew(
        self,
        priority: i32,
        deadline: Option<Mono>,
        predicted: Duration,
    ) -> Result<LaneGuard, NoLane> {
        let (shared, key) = (self.shared.clone(), self.key);
        let ticket = Ticket { stream: self.stream.clone(), priority, deadline };
        LaneGuard::acquire(&shared, key, ticket, predicted, Some(self)).await
    }

    /// Gives the lane back after work that failed, of which no cost is learned.
    pub fn fail(mut self) {
        self.release(Outcome::Failed);
    }

    pub(super) async fn acquire(
        shared: &Arc<Shared>,
        key: ModelKey,
        ticket: Ticket,
        predicted: Duration,
        previous: Option<LaneGuard>,
    ) -> Result<LaneGuard, NoLane> {
        let (sender, receiver) = oneshot::channel();
        let Ticket { stream, priority, deadline } = ticket;
        let predicted = Some(predicted);
        let spec = JobSpec { model: key, stream, priority, deadline, predicted };
        let previous = previous.and_then(|mut guard| guard.batch.take());
        let submitted = shared.with(|state, now, effects| {
            let submitted = Shared::offer(state, now, spec, Reply::Lease(sender), effects);
            if let Some(batch) = previous {
                state.scheduler.complete(now, batch.id, Outcome::Done);
                effects.events.push(batch.finished(now));
            }
            submitted
        });
        let job = submitted.map_err(|refused| match refused {
            Refused::Shed => NoLane::Shed,
            Refused::Full(_) => NoLane::Full,
            Refused::Closing => NoLane::Closing,
        })?;
        let waiting = Waiting::new(shared.clone(), job);
        let granted = receiver.await;
        waiting.settled();
        granted.unwrap_or(Err(NoLane::Closing))
    }

    fn release(&mut self, outcome: Outcome) {
        if let Some(batch) = self.batch.take() {
            self.shared.finish(batch, outcome, None);
        }
    }
}

impl Drop for LaneGuard {
    fn drop(&mut self) {
        self.release(Outcome::Done);
    }
}
