//! Where requests wait between the thread that reads them and the thread that computes. Bounded: full means
//! `Busy` to the sender. An urgent arrival raises the abort flag if the running step is less urgent.
//!
//! Its neighbours are `child`, which reads, and `serve`, which computes; the order is `rank`'s.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use media::Mono;

use super::backend::{BackendError, EngineStats};
use super::rank;
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
    halving: Duration,
}

#[derive(Debug)]
struct State {
    waiting: Vec<Task>,
    cancelled: Vec<u64>,
    /// Who asked for a pause and was not told yet.
    pausing: Vec<u64>,
    paused: bool,
    closed: bool,
    drop_caches: bool,
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
    /// Whether computed beginnings that nobody needs are to be forgotten.
    pub(super) drop_caches: bool,
}

/// The waiting request that goes next.
#[derive(Debug)]
pub(super) enum Next {
    Nothing,
    Starts(Box<Task>),
    Blocked,
}

impl Inbox {
    /// At most `queue_max` wait; `halving` is the waiting time that halves a rank.
    pub(super) fn new(queue_max: usize, halving: Duration, abort: Arc<AtomicBool>) -> Self {
        let state = State {
            waiting: Vec::new(),
            cancelled: Vec::new(),
            pausing: Vec::new(),
            paused: false,
            closed: false,
            drop_caches: false,
            arrivals: 0,
            step_priority: i32::MAX,
            step_began: None,
            stats: EngineStats::default(),
            request_ms: None,
        };
        Inbox { state: Mutex::new(state), wake: Condvar::new(), abort, queue_max, halving }
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
        task.turn.arrival = state.arrivals;
        // Under the lock, as is the clearing in `next`: a task is either seen there or raises the flag.
        if task.turn.is_urgent() && task.turn.priority < state.step_priority {
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

    /// Waiting time that halves a rank.
    pub(super) fn halving(&self) -> Duration {
        self.halving
    }

    /// Computed beginnings that nobody needs are to be forgotten before the next step.
    pub(super) fn drop_caches(&self) {
        self.lock().drop_caches = true;
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
        let cancelled = std::mem::take(&mut state.cancelled);
        if !cancelled.is_empty() {
            // One that gave up its place just now was not waiting yet when it was cancelled.
            state.waiting.retain(|t| !cancelled.contains(&t.id));
        }
        let late = state.waiting.extract_if(.., |t| t.until.is_some_and(|u| u <= now)).collect();
        let drop_caches = std::mem::take(&mut state.drop_caches);
        Between { closed: state.closed, cancelled, late, drop_caches }
    }

    /// Takes the next request out if `starts` says so. All that wait are looked at, so the abort flag
    /// is cleared: later arrivals raise it again.
    pub(super) fn next(&self, now: Mono, starts: impl FnOnce(&Task) -> bool) -> Next {
        let mut state = self.lock();
        if !state.closed {
            self.abort.store(false, Ordering::Relaxed);
        }
        let turns = state.waiting.iter().map(|t| t.turn);
        let Some(at) = rank::next(turns, now, self.halving) else { return Next::Nothing };
        if starts(&state.waiting[at]) {
            Next::Starts(Box::new(state.waiting.swap_remove(at)))
        } else {
            Next::Blocked
        }
    }

    /// A step begins, whose most urgent request has this priority.
    pub(super) fn step_begins(&self, priority: i32, now: Mono) {
        let mut state = self.lock();
        state.step_priority = priority;
        state.step_began = Some(now);
    }

    /// Parks until there is something to do; then, unless it is urgent, up to `window` longer for more requests, as
    /// long as fewer than `places` wait.
    pub(super) fn wait(&self, window: Duration, places: usize) {
        let called = |s: &State| {
            !s.cancelled.is_empty() || !s.pausing.is_empty() || s.closed || s.drop_caches
        };
        let idle = |s: &mut State| s.waiting.is_empty() && !called(s);
        let state = self.wake.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        if window.is_zero() {
            return;
        }
        let gathers = |s: &mut State| {
            !called(s)
                && (1..places).contains(&s.waiting.len())
                && !s.waiting.iter().any(|t| t.turn.is_urgent())
        };
        drop(self.wake.wait_timeout_while(state, window, gathers));
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

#[cfg(test)]
mod tests {
    use super::super::rank::Turn;
    use super::super::task::{Kind, Scoring};
    use super::*;

    /// Longer than any test may take: what would wait for its end would hang.
    const WINDOW: Duration = Duration::from_secs(3600);

    fn inbox(queue_max: usize) -> Arc<Inbox> {
        Arc::new(Inbox::new(queue_max, Duration::from_secs(2), Arc::default()))
    }

    fn task(id: u64, priority: i32) -> Task {
        let scoring = Scoring { continuations: Vec::new(), sums: Vec::new(), next: None };
        let task = Task::of(id, Mono(0), vec![1], 0, Kind::Score(scoring));
        Task { turn: Turn::new(priority, Mono(0)), ..task }
    }

    fn ids(inbox: &Inbox, now: Mono) -> Vec<u64> {
        let next = || match inbox.next(now, |_| true) {
            Next::Starts(task) => Some(task.id),
            Next::Nothing | Next::Blocked => None,
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn the_lowest_number_goes_first_and_waiting_lowers_it() {
        let inbox = inbox(8);
        let old = Task { turn: Turn::new(1000, Mono(0)), ..task(1, 1000) };
        let new = |id, priority| Task {
            turn: Turn::new(priority, Mono::from_ms(20_000)),
            ..task(id, priority)
        };
        for task in [new(2, 5), old, new(3, 1), new(4, -1)] {
            inbox.push(task).unwrap();
        }
        assert_eq!(ids(&inbox, Mono::from_ms(20_000)), [4, 1, 3, 2]);
    }

    #[test]
    fn a_full_inbox_refuses_and_says_how_many_wait() {
        let inbox = inbox(1);
        inbox.push(task(1, 0)).unwrap();
        let refused = inbox.push(task(2, 0)).unwrap_err();
        assert!(matches!(refused, BackendError::Busy { waiting: 1, .. }), "{refused:?}");
    }

    #[test]
    fn who_was_cancelled_while_giving_way_does_not_come_back() {
        let inbox = inbox(8);
        inbox.cancel(7);
        inbox.put_back(task(7, 5));
        assert_eq!(inbox.between(Mono(0)).cancelled, [7]);
        assert!(ids(&inbox, Mono(0)).is_empty());
    }

    #[test]
    fn an_idle_engine_waits_for_more_until_its_places_are_taken() {
        let inbox = inbox(8);
        inbox.push(task(1, 0)).unwrap();
        let waiter = {
            let inbox = Arc::clone(&inbox);
            std::thread::spawn(move || inbox.wait(WINDOW, 2))
        };
        inbox.push(task(2, 0)).unwrap();
        waiter.join().unwrap();
        assert_eq!(ids(&inbox, Mono(0)), [1, 2]);
    }

    #[test]
    fn an_urgent_request_a_call_and_the_end_are_not_kept_waiting() {
        let causes: [fn(&Inbox); 4] = [
            |inbox| inbox.push(task(2, -1)).unwrap(),
            |inbox| inbox.cancel(9),
            Inbox::drop_caches,
            Inbox::close,
        ];
        for cause in causes {
            let inbox = inbox(8);
            inbox.push(task(1, 0)).unwrap();
            let waiter = {
                let inbox = Arc::clone(&inbox);
                std::thread::spawn(move || inbox.wait(WINDOW, 8))
            };
            cause(&inbox);
            waiter.join().unwrap();
        }
    }
}
