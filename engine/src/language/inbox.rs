//! Where requests wait between the thread that reads them and the thread that computes. Bounded: full means
//! `Busy` to the sender. An urgent arrival raises the abort flag if the running step is less urgent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use media::Mono;

use super::backend::{BackendError, EngineStats};
use super::task::Task;

/// Cancels that are remembered between two steps; more of them name requests that can't be there.
const CANCELS_MAX: usize = 4096;
/// Before any request has ended.
const RETRY_AFTER_MS_DEFAULT: f64 = 500.0;

#[derive(Debug)]
pub(super) struct Inbox {
    state: Mutex<State>,
    wake: Condvar,
    abort: Arc<AtomicBool>,
    queue_max: usize,
}

#[derive(Debug)]
struct State {
    waiting: Vec<Task>,
    cancelled: Vec<u64>,
    /// Who asked for a pause and was not told yet.
    pausing: Vec<u64>,
    paused: bool,
    closed: bool,
    arrivals: u64,
    /// Most urgent request of the running step; between steps everything is more urgent.
    step_priority: i32,
    step_began: Option<Mono>,
    stats: EngineStats,
    request_ms: Option<f64>,
}

/// What the engine finds between two steps.
#[derive(Debug)]
pub(super) struct Between {
    pub(super) closed: bool,
    pub(super) cancelled: Vec<u64>,
    /// Waiting requests that are too late.
    pub(super) late: Vec<Task>,
}

/// The most urgent waiting request.
#[derive(Debug)]
pub(super) enum Next {
    Nothing,
    Starts(Box<Task>),
    Blocked,
}

impl Inbox {
    pub(super) fn new(queue_max: usize, abort: Arc<AtomicBool>) -> Self {
        let state = State {
            waiting: Vec::new(),
            cancelled: Vec::new(),
            pausing: Vec::new(),
            paused: false,
            closed: false,
            arrivals: 0,
            step_priority: i32::MAX,
            step_began: None,
            stats: EngineStats::default(),
            request_ms: None,
        };
        Inbox { state: Mutex::new(state), wake: Condvar::new(), abort, queue_max }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request.
    ///
    /// # Errors
    /// `Busy` when as many wait as may.
    pub(super) fn push(&self, mut task: Task) -> Result<(), BackendError> {
        let mut state = self.lock();
        let waiting = state.waiting.len();
        if waiting >= self.queue_max {
            let each = state.request_ms.unwrap_or(RETRY_AFTER_MS_DEFAULT);
            let places = f64::from(state.stats.running.max(1));
            return Err(BackendError::Busy {
                waiting: waiting as u32,
                retry_after_ms: (each * waiting as f64 / places).clamp(20.0, 30_000.0) as u64,
            });
        }
        state.arrivals += 1;
        task.arrival = state.arrivals;
        // Under the lock, as is the clearing in `next`: a task is either seen there or raises the flag.
        if task.is_urgent() && task.priority < state.step_priority {
            self.abort.store(true, Ordering::Relaxed);
        }
        state.waiting.push(task);
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    /// A request gave up its place; it keeps its rank, and may exceed the bound by the number of places.
    pub(super) fn put_back(&self, task: Task) {
        self.lock().waiting.push(task);
    }

    /// Forgets a request, waiting or running.
    pub(super) fn cancel(&self, id: u64) {
        let mut state = self.lock();
        state.waiting.retain(|t| t.id != id);
        if state.cancelled.len() < CANCELS_MAX {
            state.cancelled.push(id);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// No more requests; the running step is aborted.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.abort.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// No steps until [`Inbox::resume`]; `id` is told when that is so.
    pub(super) fn pause(&self, id: u64) {
        let mut state = self.lock();
        state.paused = true;
        state.pausing.push(id);
        drop(state);
        self.wake.notify_one();
    }

    pub(super) fn resume(&self) {
        self.lock().paused = false;
        self.wake.notify_one();
    }

    /// Parks while there is a pause; `told` hears who asked for it.
    pub(super) fn rest(&self, mut told: impl FnMut(u64)) {
        let mut state = self.lock();
        loop {
            let asked = std::mem::take(&mut state.pausing);
            if !asked.is_empty() {
                // Telling may wait for the reader, who must not wait for this lock.
                drop(state);
                asked.into_iter().for_each(&mut told);
                state = self.lock();
                continue;
            }
            if !state.paused || state.closed {
                return;
            }
            state.step_began = None;
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A step has ended: says what happened meanwhile.
    pub(super) fn between(&self, now: Mono) -> Between {
        let mut state = self.lock();
        state.step_priority = i32::MAX;
        state.step_began = None;
        let late = state.waiting.extract_if(.., |t| t.until.is_some_and(|u| u <= now)).collect();
        Between { closed: state.closed, cancelled: std::mem::take(&mut state.cancelled), late }
    }

    /// Takes the most urgent request out if `starts` says so. All that wait are looked at, so the abort flag
    /// is cleared: later arrivals raise it again.
    pub(super) fn next(&self, starts: impl FnOnce(&mut Task) -> bool) -> Next {
        let mut state = self.lock();
        if !state.closed {
            self.abort.store(false, Ordering::Relaxed);
        }
        let best = state.waiting.iter().enumerate().min_by_key(|(_, t)| (t.priority, t.arrival));
        let Some((at, _)) = best else { return Next::Nothing };
        if starts(&mut state.waiting[at]) {
            Next::Starts(Box::new(state.waiting.swap_remove(at)))
        } else {
            Next::Blocked
        }
    }

    /// Priority of the most urgent waiting request.
    pub(super) fn most_urgent(&self) -> Option<i32> {
        self.lock().waiting.iter().map(|t| t.priority).min()
    }

    /// A step begins, whose most urgent request has this priority.
    pub(super) fn step_begins(&self, priority: i32, now: Mono) {
        let mut state = self.lock();
        state.step_priority = priority;
        state.step_began = Some(now);
    }

    /// Parks until there is something to do.
    pub(super) fn wait(&self) {
        let idle = |s: &mut State| {
            s.waiting.is_empty() && s.cancelled.is_empty() && s.pausing.is_empty() && !s.closed
        };
        drop(self.wake.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner));
    }

    /// The engine's counts, and how long an ended request was in it.
    pub(super) fn report(&self, stats: EngineStats, request_ms: Option<f64>) {
        let mut state = self.lock();
        state.stats = stats;
        if let Some(ms) = request_ms {
            state.request_ms = Some(state.request_ms.map_or(ms, |old| old * 0.8 + ms * 0.2));
        }
    }

    pub(super) fn stats(&self, now: Mono) -> EngineStats {
        let state = self.lock();
        EngineStats {
            waiting: state.waiting.len() as u32,
            step_age_ms: state.step_began.map_or(0, |began| now.since(began).as_millis() as u64),
            ..state.stats
        }
    }
}
