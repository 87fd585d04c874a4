//! The seam between decisions and whatever computes: lane threads, or a simulation in virtual time.

use std::fmt;
use std::sync::{Arc, Weak};

use media::Mono;

use super::Shared;
use super::stop::Stop;
use crate::Class;

/// Runs batches on lanes and wakes the scheduler. Never decides.
pub trait Device: Send + Sync + 'static {
    /// Starts `work` on its lane, which is free, and returns at once. The work must be run once.
    fn launch(&self, work: Work);

    /// Calls `wake` at `at` or soon after. An earlier request still pending may stand for this one, since a
    /// woken scheduler asks again.
    fn wake_at(&self, at: Mono, wake: Wake);

    /// No more work comes. Lanes end when idle; a stuck one is left behind.
    fn close(&self);
}

/// A batch ready to run.
pub struct Work {
    /// The lane to run on.
    pub lane: usize,
    /// The model, for simulated devices that look up its cost.
    pub model: Arc<str>,
    /// Its rank.
    pub class: Class,
    /// Members.
    pub batch: usize,
    pub(super) stop: Arc<Stop>,
    run: Box<dyn FnOnce() + Send>,
}

impl Work {
    pub(super) fn new(
        lane: usize,
        model: Arc<str>,
        class: Class,
        batch: usize,
        stop: Arc<Stop>,
        run: impl FnOnce() + Send + 'static,
    ) -> Self {
        Work { lane, model, class, batch, stop, run: Box::new(run) }
    }

    /// Runs the model, frees the lane, answers the members and starts what comes next.
    pub fn run(self) {
        (self.run)();
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x{} on lane {}", self.model, self.batch, self.lane)
    }
}

/// Lets the scheduler look at the time. Keeps nothing alive.
#[derive(Clone)]
pub struct Wake(pub(super) Weak<Shared>);

impl Wake {
    /// Ends what is over and starts what may start.
    pub fn wake(self) {
        if let Some(shared) = self.0.upgrade() {
            shared.with(|_, _, _| ());
        }
    }
}
