//! Runs what the [`scheduler`](crate::scheduler) decides: lanes, model instances, leases.
//!
//! Thin around the state machine: one short lock, taken to submit, to complete and to wake; whatever follows
//! from a decision (starting, answering, counting) happens outside it.

mod device;
mod entry;
mod handle;
mod lease;
mod nice;
mod shared;
pub mod simulated;
mod stats;
mod stop;
mod threads;

use std::sync::Arc;
use std::time::Duration;

use media::Clock;
use models::{Model, ModelError};
use thiserror::Error;

pub use device::{Device, Wake, Work};
pub use handle::ModelHandle;
pub use lease::{LaneGuard, NoLane};
pub use stats::{ClassStats, ComputeStats, LearnedStats, ModelStats};
pub use threads::Threads;

use crate::events::Event;
use crate::scheduler::{ModelSpec, Scheduler, SchedulerConfig, SchedulerError};
use crate::{Class, Ticket};
use entry::Entry;
use shared::{Answer, Refused, Reply, Shared};

/// Sees every event, in order of its cause; called on whichever thread caused it, so it must be quick.
pub type Observer = Arc<dyn Fn(&Event) + Send + Sync>;

/// How a device computes.
#[derive(Clone)]
pub struct ComputeConfig {
    /// Lanes, class order, shares and limits.
    pub scheduler: SchedulerConfig,
    /// Added to the nice value of lane threads, so that decoding's consumers and the front end go first.
    pub nice: i32,
    /// Sees every event besides the metrics.
    pub observer: Option<Observer>,
}

impl ComputeConfig {
    /// Defaults for the processor with `lanes` cores.
    pub fn for_lanes(lanes: usize) -> Self {
        ComputeConfig { scheduler: SchedulerConfig::for_lanes(lanes), nice: 5, observer: None }
    }
}

/// Why computing could not start.
#[derive(Debug, Error)]
pub enum ComputeError {
    /// A rule that cannot hold.
    #[error(transparent)]
    Rule(#[from] SchedulerError),
    /// The system gave no thread.
    #[error("no thread for lane {lane}: {source}")]
    Thread {
        /// Which lane.
        lane: usize,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A device's lanes and the models that run on them. Cheap to clone; the lanes end with the last clone,
/// handle and lease.
#[derive(Clone)]
pub struct Compute {
    shared: Arc<Shared>,
}

impl Compute {
    /// Lane threads on this machine's processor. Install the metrics recorder before.
    ///
    /// # Errors
    /// A rule that cannot hold, or no thread to be had.
    pub fn start(config: ComputeConfig, clock: Arc<dyn Clock>) -> Result<Self, ComputeError> {
        let threads = Threads::start(config.scheduler.lanes, config.nice, clock.clone())?;
        Compute::with_device(config, clock, Arc::new(threads))
    }

    /// On any device.
    ///
    /// # Errors
    /// A rule that cannot hold.
    pub fn with_device(
        config: ComputeConfig,
        clock: Arc<dyn Clock>,
        device: Arc<dyn Device>,
    ) -> Result<Self, ComputeError> {
        let scheduler = Scheduler::new(config.scheduler)?;
        let shared = Shared::new(scheduler, clock, device, config.observer);
        Ok(Compute { shared: Arc::new(shared) })
    }

    /// Makes a model available and loads its first instance now, so that load errors show at once; further
    /// ones, up to one per lane, are loaded when lanes first run it side by side. Loading blocks the caller.
    ///
    /// # Errors
    /// What `make` returned.
    pub fn register<M: Model>(
        &self,
        name: &str,
        class: Class,
        make: impl Fn() -> Result<M, ModelError> + Send + Sync + 'static,
    ) -> Result<ModelHandle<M>, ModelError> {
        self.register_batching(name, class, Duration::ZERO, make)
    }

    /// As [`Compute::register`]; while lanes are busy, a batch waits up to `batch_wait_max` for more members.
    ///
    /// # Errors
    /// What `make` returned.
    pub fn register_batching<M: Model>(
        &self,
        name: &str,
        class: Class,
        batch_wait_max: Duration,
        make: impl Fn() -> Result<M, ModelError> + Send + Sync + 'static,
    ) -> Result<ModelHandle<M>, ModelError> {
        let (entry, batch_max) = Entry::load(Arc::from(name), make)?;
        let interruptible = entry.is_interruptible();
        let name = Arc::from(name);
        let spec = ModelSpec { name, class, batch_max, width: 1, batch_wait_max, interruptible };
        let entry = Arc::new(entry);
        let key = self.shared.add(spec, &entry);
        Ok(ModelHandle::new(self.shared.clone(), key, entry))
    }

    /// Leases one lane for work done elsewhere (the language engine's process), called `model` in the ledger
    /// and predicted to take `predicted`. The lane is given back when the guard is dropped, and what it
    /// really took corrects later predictions.
    ///
    /// # Errors
    /// [`NoLane`], when the ticket's deadline can't be made or the process is ending.
    pub async fn lane(
        &self,
        ticket: Ticket,
        class: Class,
        model: &str,
        predicted: Duration,
    ) -> Result<LaneGuard, NoLane> {
        let key = self.shared.lease_key(class, model);
        LaneGuard::acquire(&self.shared, key, ticket, predicted, None).await
    }

    /// Has the registered model of this name believe, until it has run, that a batch of `batch` costs this much; so
    /// that the first seconds are not spent learning what was measured before.
    pub fn prime(&self, model: &str, batch: usize, p50: Duration, p90: Duration) {
        let now = self.shared.clock.now();
        self.shared.lock().scheduler.prime(now, model, batch, p50, p90);
    }

    /// Figures at this instant.
    pub fn stats(&self) -> ComputeStats {
        let state = self.shared.lock();
        stats::of(&state.scheduler, self.shared.clock.now())
    }

    /// Takes no more work, waits up to `drain_limit` for what there is, then cancels what is queued and
    /// waits no longer for what runs. True if nothing had to be left.
    pub async fn shutdown(&self, drain_limit: Duration) -> bool {
        self.shared.lock().is_closing = true;
        let drained = async {
            loop {
                let changed = self.shared.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if self.shared.lock().is_idle() {
                    return;
                }
                changed.await;
            }
        };
        let all_done = tokio::time::timeout(drain_limit, drained).await.is_ok();
        self.shared.with(|state, now, _| state.scheduler.cancel_queued(now));
        self.shared.device.close();
        all_done
    }
}
