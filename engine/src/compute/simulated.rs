//! A device in virtual time: batches take what a script says, on tokio's clock.
//!
//! The scheduler, the handles and the models above it are the production ones. No threads, so that paused
//! time drives it; a model's own code runs in no time at its batch's end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use media::{Clock, Mono};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::device::{Device, Wake, Work};

/// tokio's clock, counted from its creation; virtual where tokio's time is paused.
#[derive(Clone, Debug)]
pub struct TokioClock(Instant);

impl TokioClock {
    /// A clock whose origin is now.
    #[expect(clippy::new_without_default, reason = "its origin is an effect, not a default")]
    pub fn new() -> Self {
        TokioClock(Instant::now())
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Mono {
        Mono(self.0.elapsed().as_micros() as u64)
    }
}

/// How long a batch takes, given the model's name, the batch's members and the time it starts.
pub type Script = dyn Fn(&str, usize, Mono) -> Duration + Send + Sync;

/// Lanes that are tasks of the runtime it was made in.
pub struct SimulatedDevice {
    clock: TokioClock,
    script: Box<Script>,
    runtime: Handle,
    timer: Arc<Mutex<Option<(Mono, AbortHandle)>>>,
}

impl SimulatedDevice {
    /// A device on the current runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(
        clock: TokioClock,
        script: impl Fn(&str, usize, Mono) -> Duration + Send + Sync + 'static,
    ) -> Self {
        SimulatedDevice {
            clock,
            script: Box::new(script),
            runtime: Handle::current(),
            timer: Arc::default(),
        }
    }
}

impl Device for SimulatedDevice {
    fn launch(&self, work: Work) {
        let cost = (self.script)(&work.model, work.batch, self.clock.now());
        self.runtime.spawn(async move {
            tokio::select! {
                () = sleep(cost) => {}
                () = work.stop.asked() => {}
            }
            work.run();
        });
    }

    fn wake_at(&self, at: Mono, wake: Wake) {
        let mut timer = self.timer.lock().unwrap_or_else(PoisonError::into_inner);
        if timer.as_ref().is_some_and(|(armed, _)| *armed <= at) {
            return;
        }
        let due = self.clock.0 + Duration::from_micros(at.0);
        let armed = self.timer.clone();
        let task = self.runtime.spawn(async move {
            sleep_until(due).await;
            *armed.lock().unwrap_or_else(PoisonError::into_inner) = None;
            wake.wake();
        });
        if let Some((_, later)) = timer.replace((at, task.abort_handle())) {
            later.abort();
        }
    }

    fn close(&self) {
        let timer = self.timer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((_, task)) = timer {
            task.abort();
        }
    }
}

impl Drop for SimulatedDevice {
    fn drop(&mut self) {
        self.close();
    }
}
