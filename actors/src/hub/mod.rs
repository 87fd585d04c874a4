//! The publisher's heart: gives every message its `seq`, serialises it once, and lets any number of subscribers
//! read it at their own pace.
//!
//! One rule: a subscriber costs a position in the shared journal and nothing more. Its "queue" is what it has not
//! read yet; when that grows beyond [`HubLimits::queue`] it is dropped as a whole, counted, and the subscriber goes
//! on with the newest. So no subscriber slows another, and none makes memory grow.

mod filter;
mod journal;
mod state;
mod subscription;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use media::result::{FusedResult, StreamMessage};

pub use filter::{AlertFilter, Filter};
pub use subscription::{Delivery, Subscription};

use journal::{Entry, Topic};
use state::State;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HubLimits {
    /// Messages that a subscriber may be behind before it is moved to the newest.
    pub queue: usize,
    /// Messages in the journal.
    pub journal: usize,
    /// Bytes in the journal; the newest message is kept whatever its size.
    pub journal_bytes: usize,
}

impl Default for HubLimits {
    fn default() -> Self {
        HubLimits { queue: 256, journal: 10_000, journal_bytes: 64 << 20 }
    }
}

/// Where results and stream states are published and subscribed to. Cheap to clone.
#[derive(Clone)]
pub struct Hub {
    shared: Arc<Shared>,
}

struct Shared {
    run: Arc<str>,
    /// Held while a message gets its `seq` and is serialised, so that subscribers are not held up by it.
    /// Taken before `state`, never after.
    publishing: Mutex<u64>,
    state: Mutex<State>,
}

/// A message as it went out.
#[derive(Clone, Debug, PartialEq)]
pub struct Published<T> {
    /// With its `seq` and `run`.
    pub message: T,
    /// Its JSON, shared by all subscribers; without a line end.
    pub json: Bytes,
}

impl Hub {
    /// `run` names this start of the process.
    pub fn new(run: Arc<str>) -> Self {
        Self::with_limits(run, HubLimits::default())
    }

    /// With limits of one's own.
    pub fn with_limits(run: Arc<str>, limits: HubLimits) -> Self {
        let state = Mutex::new(State::new(limits));
        Hub { shared: Arc::new(Shared { run, publishing: Mutex::new(0), state }) }
    }

    /// Names this start of the process.
    pub fn run(&self) -> &Arc<str> {
        &self.shared.run
    }

    /// The last `seq` given; 0 before the first.
    pub fn seq(&self) -> u64 {
        *lock(&self.shared.publishing)
    }

    /// How many subscribe at present.
    pub fn subscribers(&self) -> usize {
        lock(&self.shared.state).subscribers()
    }

    /// Gives `result` its `seq` and `run` and hands it to everyone whom it concerns. Never waits for a subscriber.
    ///
    /// # Errors
    /// When it can't be written as JSON; nothing is published then and no `seq` is used up.
    pub fn publish_result(
        &self,
        mut result: FusedResult,
    ) -> Result<Published<FusedResult>, serde_json::Error> {
        let topic = Topic::of_result(&result);
        result.run = Arc::clone(&self.shared.run);
        self.publish(topic, |seq| {
            result.seq = seq;
            serde_json::to_vec(&result).map(|json| (result, json))
        })
    }

    /// Gives `message` its `seq` and `run` and hands it to everyone whom its stream concerns.
    ///
    /// # Errors
    /// As [`Hub::publish_result`].
    pub fn publish_state(
        &self,
        mut message: StreamMessage,
    ) -> Result<Published<StreamMessage>, serde_json::Error> {
        let topic = Topic::of_state(&message);
        message.run = Arc::clone(&self.shared.run);
        self.publish(topic, |seq| {
            message.seq = seq;
            serde_json::to_vec(&message).map(|json| (message, json))
        })
    }

    fn publish<T>(
        &self,
        topic: Topic,
        write: impl FnOnce(u64) -> Result<(T, Vec<u8>), serde_json::Error>,
    ) -> Result<Published<T>, serde_json::Error> {
        let mut last = lock(&self.shared.publishing);
        let seq = *last + 1;
        let (message, json) = write(seq)?;
        let json = Bytes::from(json);
        *last = seq;
        let wakers = lock(&self.shared.state).append(Entry { seq, topic, json: json.clone() });
        drop(last);
        for waker in wakers {
            waker.wake();
        }
        Ok(Published { message, json })
    }

    /// Everything from now on that `filter` lets through; with `after` also what came after that `seq`, from the
    /// journal, or a `gap/1` that says what the journal no longer has. `run` is the process start that `after`
    /// belongs to; of another one, a `gap/1` says so and everything of this one follows.
    pub fn subscribe(&self, filter: Filter, after: Option<u64>, run: Option<&str>) -> Subscription {
        let other_run = run.is_some_and(|run| run != &*self.shared.run);
        let id = lock(&self.shared.state).subscribe(filter, after, other_run);
        Subscription::new(Arc::clone(&self.shared), id)
    }

    /// Ends every subscription once it has read what is there, and every later one at once after the journal.
    pub fn close(&self) {
        let wakers = lock(&self.shared.state).close();
        for waker in wakers {
            waker.wake();
        }
    }
}

/// A panic elsewhere must not take the publisher with it; the state is whole between its methods.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
