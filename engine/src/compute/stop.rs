//! How a batch under way is told to end half-way.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use models::Interrupt;
use tokio::sync::Notify;

/// One batch's way out. Asked from any thread, before, while or after it runs.
#[derive(Default)]
pub(super) struct Stop {
    state: Mutex<State>,
    asked: Notify,
}

#[derive(Default)]
struct State {
    is_asked: bool,
    running: Option<Arc<dyn Interrupt>>,
}

impl Stop {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the run under way, or keeps it from beginning.
    pub(super) fn ask(&self) {
        let mut state = self.lock();
        state.is_asked = true;
        if let Some(running) = &state.running {
            running.stop();
        }
        drop(state);
        self.asked.notify_one();
    }

    /// Until the batch is asked to end; for devices that only wait.
    pub(super) async fn asked(&self) {
        self.asked.notified().await;
    }

    /// The instance behind `interrupt` begins to run; false if it must not.
    pub(super) fn begin(&self, interrupt: Option<Arc<dyn Interrupt>>) -> bool {
        let mut state = self.lock();
        if !state.is_asked {
            state.running = interrupt;
        }
        !state.is_asked
    }

    /// It has ended, and may run whole again. True if it was asked to end half-way.
    pub(super) fn end(&self) -> bool {
        let mut state = self.lock();
        if let Some(running) = state.running.take().filter(|_| state.is_asked) {
            running.reset();
        }
        state.is_asked
    }
}
