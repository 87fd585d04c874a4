//! Lane threads of this machine's processor, parked when idle, and the one that watches the time.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use media::{Clock, Mono};

use super::device::{Device, Wake, Work};
use super::{ComputeError, nice};

/// One thread per lane, named `lane-N`.
pub struct Threads {
    lanes: Vec<Arc<Slot<Work>>>,
    timer: Arc<Slot<(Mono, Wake)>>,
}

/// What a thread is to do next; at most one thing.
struct Slot<T> {
    next: Mutex<Next<T>>,
    changed: Condvar,
}

struct Next<T> {
    item: Option<T>,
    is_closed: bool,
}

impl<T> Slot<T> {
    fn new() -> Arc<Self> {
        let next = Mutex::new(Next { item: None, is_closed: false });
        Arc::new(Slot { next, changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Next<T>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }
}

impl Threads {
    /// Starts the threads with `nice` added to their nice value.
    ///
    /// # Errors
    /// [`ComputeError::Thread`] when the system gives no thread.
    pub fn start(lanes: usize, nice: i32, clock: Arc<dyn Clock>) -> Result<Self, ComputeError> {
        let threads =
            Threads { lanes: (0..lanes).map(|_| Slot::new()).collect(), timer: Slot::new() };
        for (lane, slot) in threads.lanes.iter().cloned().enumerate() {
            let run = move || {
                nice::lower(nice);
                run_lane(&slot);
            };
            spawn(&format!("lane-{lane}"), lane, run)?;
        }
        let timer = threads.timer.clone();
        spawn("lane-timer", lanes, move || run_timer(&timer, &*clock))?;
        Ok(threads)
    }
}

impl Device for Threads {
    fn launch(&self, work: Work) {
        let Some(slot) = self.lanes.get(work.lane) else { return };
        slot.lock().item = Some(work);
        slot.changed.notify_one();
    }

    fn wake_at(&self, at: Mono, wake: Wake) {
        let mut next = self.timer.lock();
        if next.item.as_ref().is_none_or(|(armed, _)| at < *armed) {
            next.item = Some((at, wake));
            drop(next);
            self.timer.changed.notify_one();
        }
    }

    fn close(&self) {
        self.lanes.iter().for_each(|slot| slot.close());
        self.timer.close();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.close();
    }
}

fn spawn(name: &str, lane: usize, run: impl FnOnce() + Send + 'static) -> Result<(), ComputeError> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(run).map(drop).map_err(|source| ComputeError::Thread { lane, source })
}

fn run_lane(slot: &Slot<Work>) {
    loop {
        let mut next = slot.lock();
        let work = loop {
            match next.item.take() {
                Some(work) => break work,
                None if next.is_closed => return,
                None => next = slot.changed.wait(next).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(next);
        work.run();
    }
}

fn run_timer(slot: &Slot<(Mono, Wake)>, clock: &dyn Clock) {
    loop {
        let mut next = slot.lock();
        let wake = loop {
            if next.is_closed {
                return;
            }
            let left = next.item.as_ref().map(|(at, _)| at.since(clock.now()));
            match left {
                Some(Duration::ZERO) => break next.item.take(),
                Some(left) => {
                    let waited = slot.changed.wait_timeout(next, left);
                    next = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => next = slot.changed.wait(next).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(next);
        if let Some((_, wake)) = wake {
            wake.wake();
        }
    }
}
