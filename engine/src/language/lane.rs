//! The lane that a language engine computes on: leased from the scheduler while any request is inside, whoever's it is.
//!
//! Its neighbours are the [`scheduler`](crate::scheduler) and the backend, which runs elsewhere. The lease is sticky: the
//! engine keeps it from step to step. Once a quantum its keeper asks whether others would get the lane (a share that is
//! owed, a job that waited too long); then the engine is paused between two steps, hands the lane over, and goes on when
//! it has one again. The one rule: without a lane, nothing of the engine computes, except while the process ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use media::{Clock, Mono};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use super::backend::LanguageBackend;
use crate::compute::{Compute, LaneGuard, NoLane};
use crate::{Class, Ticket};

/// Longest time between two questions whether others would get the lane.
const QUANTUM: Duration = Duration::from_millis(50);
/// A lease is renewed so early that nobody takes it for a call that never returns.
const RENEW_AFTER: Duration = Duration::from_secs(1);

/// Leases lanes for one language engine. Cheap to clone.
#[derive(Clone)]
pub struct TextLane(Arc<Inner>);

struct Inner {
    compute: Compute,
    backend: Arc<dyn LanguageBackend>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Whether there is a lane; changed under the lock.
    has_lane: watch::Sender<bool>,
    /// Rings when nobody is inside any more.
    empty: Notify,
}

#[derive(Default)]
struct State {
    /// Priority and deadline of each request that computes or waits for the lane.
    requests: BTreeMap<u64, (i32, Option<Mono>)>,
    entered: u64,
    /// Requests that came since the lane was got.
    shared_by: u64,
    is_paused: bool,
}

/// A request that may compute, until dropped.
pub struct OnLane {
    inner: Arc<Inner>,
    number: u64,
}

impl TextLane {
    /// Lanes of `compute` for `backend`.
    pub fn new(compute: Compute, backend: Arc<dyn LanguageBackend>, clock: Arc<dyn Clock>) -> Self {
        let (has_lane, _) = watch::channel(false);
        let (state, empty) = Default::default();
        TextLane(Arc::new(Inner { compute, backend, clock, state, has_lane, empty }))
    }

    /// Waits for a lane, or joins those who have it. `predicted` is what the request will take alone.
    ///
    /// # Errors
    /// [`NoLane`], when the ticket's deadline can't be made or the process is ending.
    pub async fn enter(&self, ticket: Ticket, predicted: Duration) -> Result<OnLane, NoLane> {
        let inner = &self.0;
        let (inside, mut has_lane) = inner.register(&ticket);
        if *has_lane.borrow_and_update() {
            return Ok(inside);
        }
        // Everybody who finds no lane asks for one, so that the most urgent decides when it comes.
        let lane = inner.compute.lane(ticket, Class::Text, inner.backend.model(), predicted);
        tokio::select! {
            granted = lane => inner.take(granted?, true),
            _ = has_lane.wait_for(|has| *has) => {}
        }
        Ok(inside)
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(self: &Arc<Self>, ticket: &Ticket) -> (OnLane, watch::Receiver<bool>) {
        let mut state = self.lock();
        let number = state.entered;
        state.entered += 1;
        state.shared_by += 1;
        state.requests.insert(number, (ticket.priority, ticket.deadline));
        (OnLane { inner: self.clone(), number }, self.has_lane.subscribe())
    }

    /// The engine has this lane from now on, unless somebody else was quicker: then it goes back.
    fn take(self: &Arc<Self>, guard: LaneGuard, is_first: bool) {
        {
            let mut state = self.lock();
            if self.has_lane.send_replace(true) {
                return;
            }
            state.shared_by = state.requests.len() as u64;
        }
        self.resume();
        tokio::spawn(keep(self.clone(), guard, is_first));
    }

    /// Lets the lane go if nobody is inside: whether one request had it all the time.
    fn is_over(&self) -> Option<bool> {
        let state = self.lock();
        state.requests.is_empty().then(|| {
            self.has_lane.send_replace(false);
            state.shared_by == 1
        })
    }

    /// Ticket of the most urgent request inside; its deadline is the next that can still be made.
    fn ticket(&self) -> Ticket {
        let soon = self.clock.now() + QUANTUM;
        let state = self.lock();
        let priority = state.requests.values().map(|r| r.0).min().unwrap_or_default();
        let deadline = state.requests.values().filter_map(|r| r.1).filter(|d| *d > soon).min();
        Ticket { stream: self.backend.model().into(), priority, deadline }
    }

    /// Gives the lane back and asks for it again; the engine pauses until it has one if others are to have it. None when
    /// somebody else got one for the engine, nobody is left, or the process is ending.
    async fn renew(&self, guard: LaneGuard, is_wanted: bool) -> Option<LaneGuard> {
        if is_wanted {
            self.pause().await;
        }
        self.has_lane.send_replace(false);
        let mut has_lane = self.has_lane.subscribe();
        let Ticket { priority, deadline, .. } = self.ticket();
        let mut lane = tokio::select! {
            biased;
            lane = guard.renew(priority, deadline, QUANTUM) => lane,
            _ = has_lane.wait_for(|has| *has) => return None,
            () = self.deserted() => return None,
        };
        while let Err(no_lane) = lane {
            if no_lane == NoLane::Closing {
                // Whoever is inside may finish: nobody else computes any more.
                self.resume();
                return None;
            }
            self.pause().await;
            // Too late for that deadline: those requests end by their own, the others go on.
            let ticket = Ticket { deadline: None, ..self.ticket() };
            let model = self.backend.model();
            lane = tokio::select! {
                lane = self.compute.lane(ticket, Class::Text, model, QUANTUM) => lane,
                _ = has_lane.wait_for(|has| *has) => return None,
                () = self.deserted() => return None,
            };
        }
        lane.ok()
    }

    async fn pause(&self) {
        if !std::mem::replace(&mut self.lock().is_paused, true) {
            self.backend.pause().await;
        }
    }

    fn resume(&self) {
        if std::mem::take(&mut self.lock().is_paused) {
            self.backend.resume();
        }
    }

    async fn deserted(&self) {
        while !self.lock().requests.is_empty() {
            self.empty.notified().await;
        }
    }
}

/// Keeps a lane while requests are inside.
async fn keep(inner: Arc<Inner>, guard: LaneGuard, is_first: bool) {
    let since = Instant::now();
    loop {
        tokio::select! {
            () = inner.empty.notified() => {}
            () = sleep(QUANTUM) => {}
        }
        if let Some(is_alone) = inner.is_over() {
            // What several requests or pieces took together says nothing about what one takes.
            return if is_first && is_alone { drop(guard) } else { guard.fail() };
        }
        let is_wanted = guard.is_wanted();
        if is_wanted || since.elapsed() >= RENEW_AFTER {
            if let Some(guard) = inner.renew(guard, is_wanted).await {
                inner.take(guard, false);
            }
            return;
        }
    }
}

impl Drop for OnLane {
    fn drop(&mut self) {
        let mut state = self.inner.lock();
        state.requests.remove(&self.number);
        if state.requests.is_empty() {
            drop(state);
            self.inner.empty.notify_one();
        }
    }
}
