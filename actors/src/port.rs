//! Ports: the bounded queues that media and observations travel in.
//!
//! A port outlives the actor that reads it, so a restarted stage finds its queue. Packets are bounded by the
//! port's capacity; marks and the end are not packets, they are never dropped, and there are at most as many
//! of them as windows open.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use media::result::{MissingReason, Timing};
use media::{Frame, Mono, Observation, Samples, Span, Subtitle};
use serde::Serialize;
use tokio::sync::Notify;

/// What a packet carries.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    Frame(Frame),
    Samples(Samples),
    Subtitle(Subtitle),
    Observation(Observation),
}

/// A piece of data and the window it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) window: u64,
    /// When the window's answer has to be out; an estimate until the window is sealed, none when unpaced.
    pub(crate) deadline: Option<Mono>,
    pub(crate) payload: Payload,
}

/// Says that a stage has answered a window: no packet of it follows but late ones.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) window: u64,
    pub(crate) span: Span,
    pub(crate) deadline: Option<Mono>,
    /// No window follows it.
    pub(crate) last: bool,
    /// Whether the stage that sends the mark answered, or why not.
    pub(crate) outcome: Result<(), MissingReason>,
    /// Where that stage's time went.
    pub(crate) timing: Option<Timing>,
}

/// What comes out of a port, in order.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Packet(Packet),
    Mark(Mark),
    /// Nothing follows.
    End,
}

/// What a full port does with one packet more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The producer asks [`Port::has_room`] first and waits: files are processed whole.
    Block,
    /// The oldest packet goes and is counted: live streams never fall behind.
    DropOldest,
}

/// Counts of one port; `offered = taken + dropped + queued` always holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortCounts {
    /// Packets pushed.
    pub offered: u64,
    /// Packets popped.
    pub taken: u64,
    /// Packets dropped because the consumer was too slow.
    pub dropped: u64,
    /// Packets waiting.
    pub queued: u64,
}

/// Wakes the actor that reads a set of ports; many rings before an answer are one message.
#[derive(Default)]
pub(crate) struct Doorbell {
    rung: AtomicBool,
    notify: Notify,
    actor: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
}

impl Doorbell {
    /// Sends rings to a (new) actor, beginning with one for what already waits.
    pub(crate) fn attach(&self, ring: Arc<dyn Fn() + Send + Sync>) {
        *self.actor.lock().unwrap_or_else(PoisonError::into_inner) = Some(ring);
        self.rung.store(false, Ordering::Release);
        self.ring();
    }

    pub(crate) fn ring(&self) {
        self.notify.notify_one();
        if !self.rung.swap(true, Ordering::AcqRel) {
            let actor = self.actor.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match actor {
                Some(ring) => ring(),
                None => self.rung.store(false, Ordering::Release),
            }
        }
    }

    /// Called when the actor begins to look: later rings are new messages.
    pub(crate) fn answer(&self) {
        self.rung.store(false, Ordering::Release);
    }

    /// Waits, inside a handler, for the next ring.
    pub(crate) async fn rung(&self) {
        self.notify.notified().await;
    }
}

/// When a port wakes its consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wakes {
    /// For each item.
    Always,
    /// For a mark or the end, for a packet of a window that was marked already, and when the port is half full:
    /// a consumer that can do nothing before a window is answered sleeps until then.
    AtMarks,
}

struct Inner {
    items: VecDeque<Item>,
    counts: PortCounts,
    /// The newest window that was marked.
    marked: Option<u64>,
    dropped_by_window: BTreeMap<u64, u32>,
}

struct Shared {
    inner: Mutex<Inner>,
    capacity: usize,
    policy: Policy,
    wakes: Wakes,
    consumer: Arc<Doorbell>,
    room: Notify,
}

/// One edge of the graph. Cheap to clone; all clones are the same queue.
#[derive(Clone)]
pub(crate) struct Port(Arc<Shared>);

impl Port {
    /// A queue of at most `capacity` packets whose consumer is woken by `consumer`.
    pub(crate) fn new(
        capacity: usize,
        policy: Policy,
        wakes: Wakes,
        consumer: Arc<Doorbell>,
    ) -> Self {
        Port(Arc::new(Shared {
            inner: Mutex::new(Inner {
                items: VecDeque::with_capacity(capacity.min(64)),
                counts: PortCounts::default(),
                marked: None,
                dropped_by_window: BTreeMap::new(),
            }),
            capacity,
            policy,
            wakes,
            consumer,
            room: Notify::new(),
        }))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an item at the end. Returns whether an older packet had to go for it.
    pub(crate) fn push(&self, item: Item) -> bool {
        let (dropped, rings) = {
            let inner = &mut *self.lock();
            let mut dropped = false;
            if let Item::Mark(mark) = &item {
                inner.marked = Some(mark.window);
            }
            let mut rings = true;
            if let Item::Packet(Packet { window, .. }) = item {
                inner.counts.offered += 1;
                inner.counts.queued += 1;
                if self.0.policy == Policy::DropOldest
                    && inner.counts.queued > self.0.capacity as u64
                    && let Some(at) =
                        inner.items.iter().position(|item| matches!(item, Item::Packet(_)))
                    && let Some(Item::Packet(packet)) = inner.items.remove(at)
                {
                    inner.counts.queued -= 1;
                    inner.counts.dropped += 1;
                    *inner.dropped_by_window.entry(packet.window).or_default() += 1;
                    dropped = true;
                }
                rings = self.0.wakes == Wakes::Always
                    || inner.marked.is_some_and(|marked| window <= marked)
                    || inner.counts.queued * 2 >= self.0.capacity as u64;
            }
            inner.items.push_back(item);
            (dropped, rings)
        };
        if rings {
            self.0.consumer.ring();
        }
        dropped
    }

    /// Whether a `Block` producer may push a packet. A producer with several packets under way may overshoot
    /// by those.
    pub(crate) fn has_room(&self) -> bool {
        self.0.policy == Policy::DropOldest || self.lock().counts.queued < self.0.capacity as u64
    }

    /// Waits until [`Port::has_room`].
    pub(crate) async fn room(&self) {
        loop {
            let freed = self.0.room.notified();
            if self.has_room() {
                return;
            }
            freed.await;
        }
    }

    /// Takes the first item.
    pub(crate) fn pop(&self) -> Option<Item> {
        let item = {
            let inner = &mut *self.lock();
            let item = inner.items.pop_front()?;
            if let Item::Packet(_) = item {
                inner.counts.taken += 1;
                inner.counts.queued -= 1;
            }
            item
        };
        self.0.room.notify_one();
        Some(item)
    }

    /// How many packets of `window`, and of windows before it, were dropped since last asked.
    pub(crate) fn take_dropped(&self, window: u64) -> u32 {
        let inner = &mut *self.lock();
        let later = inner.dropped_by_window.split_off(&(window + 1));
        std::mem::replace(&mut inner.dropped_by_window, later).into_values().sum()
    }

    pub(crate) fn counts(&self) -> PortCounts {
        self.lock().counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use media::Pts;
    use proptest::prelude::*;

    fn packet(window: u64) -> Item {
        Item::Packet(Packet {
            window,
            deadline: None,
            payload: Payload::Observation(Observation::Safety { pts: Pts(0), score: 0.0 }),
        })
    }

    fn mark(window: u64) -> Item {
        Item::Mark(Mark {
            window,
            span: Span { start: Pts(0), end: Pts(1) },
            deadline: None,
            last: false,
            outcome: Ok(()),
            timing: None,
        })
    }

    proptest! {
        #[test]
        fn counts_balance_and_marks_are_never_dropped(
            steps in prop::collection::vec(0u8..4, 0..200),
            capacity in 1usize..8,
        ) {
            let port = Port::new(capacity, Policy::DropOldest, Wakes::Always, Arc::default());
            let (mut window, mut marks_in, mut marks_out) = (0, 0, 0);
            for step in steps {
                match step {
                    0 | 1 => { port.push(packet(window)); }
                    2 => { port.push(mark(window)); window += 1; marks_in += 1; }
                    _ => if let Some(Item::Mark(_)) = port.pop() { marks_out += 1 },
                }
                let c = port.counts();
                prop_assert_eq!(c.offered, c.taken + c.dropped + c.queued);
                prop_assert!(c.queued <= capacity as u64);
            }
            while let Some(item) = port.pop() {
                if let Item::Mark(_) = item { marks_out += 1 }
            }
            prop_assert_eq!(marks_in, marks_out);
        }
    }

    #[test]
    fn a_consumer_of_marks_sleeps_until_a_mark_a_late_packet_or_half_a_queue() {
        let rings = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let bell = Arc::new(Doorbell::default());
        let counter = rings.clone();
        bell.attach(Arc::new(move || _ = counter.fetch_add(1, Ordering::Relaxed)));
        let port = Port::new(6, Policy::DropOldest, Wakes::AtMarks, bell.clone());
        let rung = |item| {
            bell.answer();
            let before = rings.load(Ordering::Relaxed);
            port.push(item);
            rings.load(Ordering::Relaxed) > before
        };
        assert!(!rung(packet(0)), "nothing can be said of the window yet");
        assert!(rung(mark(0)));
        assert!(rung(packet(0)), "late");
        assert!(rung(packet(1)), "half full");
        while port.pop().is_some() {}
        assert!(!rung(packet(1)));
        assert!(rung(Item::End));
    }

    #[tokio::test]
    async fn a_blocked_producer_goes_on_when_a_packet_is_taken() {
        let port = Port::new(1, Policy::Block, Wakes::Always, Arc::default());
        port.push(packet(0));
        assert!(!port.has_room());
        let waiting = tokio::spawn({
            let port = port.clone();
            async move { port.room().await }
        });
        tokio::task::yield_now().await;
        port.pop();
        waiting.await.unwrap();
    }
}
