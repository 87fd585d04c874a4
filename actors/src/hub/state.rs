//! Who has read how far: the deciding part of the hub. Pure; wakers are handed back to be woken outside the lock.

use std::collections::BTreeMap;
use std::task::Waker;

use bytes::Bytes;
use media::result::GapReason;

use super::HubLimits;
use super::filter::Filter;
use super::journal::{Entry, Journal};

/// A subscriber's place.
struct Reader {
    filter: Filter,
    /// Everything up to here was read, skipped, or does not concern it.
    read: u64,
    /// Messages after `read` that concern it. All of them are in the journal.
    waiting: usize,
    /// Reading what was there when it came; only the journal's end limits it.
    catching_up: bool,
    /// Told before anything else, oldest first: at most one from the start and one of lag.
    start_gap: Option<Missed>,
    lag: Option<Missed>,
    waker: Option<Waker>,
}

/// Results that a subscriber does not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missed {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) count: u64,
    pub(super) reason: GapReason,
}

/// What a subscriber gets next.
#[derive(Debug)]
pub(super) enum Next {
    Gap(Missed),
    Message {
        seq: u64,
        json: Bytes,
    },
    /// Nothing yet.
    Wait,
    /// Nothing any more.
    End,
}

pub(super) struct State {
    journal: Journal,
    queue_max: usize,
    readers: BTreeMap<u64, Reader>,
    next_reader: u64,
    last: u64,
    closed: bool,
}

impl State {
    pub(super) fn new(limits: HubLimits) -> Self {
        State {
            journal: Journal::new(limits.journal, limits.journal_bytes),
            queue_max: limits.queue.max(1),
            readers: BTreeMap::new(),
            next_reader: 0,
            last: 0,
            closed: false,
        }
    }

    pub(super) fn subscribers(&self) -> usize {
        self.readers.len()
    }

    /// Takes the next message; returns whom to wake.
    pub(super) fn append(&mut self, entry: Entry) -> Vec<Waker> {
        let (seq, topic) = (entry.seq, entry.topic.clone());
        self.last = seq;
        let gone = self.journal.push(entry);
        let mut wakers = Vec::new();
        for reader in self.readers.values_mut() {
            for old in &gone {
                if old.seq <= reader.read {
                    continue;
                }
                if reader.filter.wants(&old.topic) {
                    reader.miss(old);
                }
                reader.read = old.seq;
            }
            if !reader.filter.wants(&topic) {
                if reader.waiting == 0 {
                    reader.read = seq;
                }
                continue;
            }
            if reader.waiting == 0 {
                reader.read = seq - 1;
                reader.catching_up = false;
            }
            reader.waiting += 1;
            if reader.waiting > self.queue_max && !reader.catching_up {
                for old in self.journal.after(reader.read) {
                    if old.seq < seq && reader.filter.wants(&old.topic) {
                        reader.miss(old);
                    }
                }
                reader.read = seq - 1;
            }
            wakers.extend(reader.waker.take());
        }
        wakers
    }

    /// A new reader; `other_run`: `after` counts in another process start.
    pub(super) fn subscribe(&mut self, filter: Filter, after: Option<u64>, other_run: bool) -> u64 {
        let last = self.last;
        let first = self.journal.range().map_or(last + 1, |(first, _)| first);
        // A number that was never given can only come from another run.
        let other_run = other_run || after.is_some_and(|after| after > last);
        let (read, start_gap) = match after {
            None => (last, None),
            Some(_) if other_run => {
                let missed =
                    Missed { from: 1, to: first - 1, count: first - 1, reason: GapReason::Restart };
                (first - 1, Some(missed))
            }
            Some(after) if after + 1 < first => {
                let missed = Missed {
                    from: after + 1,
                    to: first - 1,
                    count: first - 1 - after,
                    reason: GapReason::Journal,
                };
                (first - 1, Some(missed))
            }
            Some(after) => (after, None),
        };
        let waiting = self.journal.after(read).filter(|e| filter.wants(&e.topic)).count();
        let reader = Reader {
            filter,
            read: if waiting == 0 { last } else { read },
            waiting,
            catching_up: waiting > 0,
            start_gap,
            lag: None,
            waker: None,
        };
        let id = self.next_reader;
        self.next_reader += 1;
        self.readers.insert(id, reader);
        id
    }

    pub(super) fn unsubscribe(&mut self, id: u64) {
        self.readers.remove(&id);
    }

    /// What reader `id` gets next; `waker` is kept when that is nothing yet.
    pub(super) fn next(&mut self, id: u64, waker: &Waker) -> Next {
        let Some(reader) = self.readers.get_mut(&id) else { return Next::End };
        if let Some(gap) = reader.start_gap.take().or_else(|| reader.lag.take()) {
            return Next::Gap(gap);
        }
        if reader.waiting > 0
            && let Some(entry) =
                self.journal.after(reader.read).find(|e| reader.filter.wants(&e.topic))
        {
            reader.waiting -= 1;
            reader.read = if reader.waiting == 0 { self.last } else { entry.seq };
            reader.catching_up &= reader.waiting > self.queue_max;
            return Next::Message { seq: entry.seq, json: entry.json.clone() };
        }
        if self.closed {
            return Next::End;
        }
        if !reader.waker.as_ref().is_some_and(|w| w.will_wake(waker)) {
            reader.waker = Some(waker.clone());
        }
        Next::Wait
    }

    pub(super) fn close(&mut self) -> Vec<Waker> {
        self.closed = true;
        self.readers.values_mut().filter_map(|r| r.waker.take()).collect()
    }

    #[cfg(test)]
    pub(super) fn journal_bytes(&self) -> usize {
        self.journal.bytes()
    }
}

impl Reader {
    /// `old` was waiting and will not be read. States are not counted: a gap counts results.
    fn miss(&mut self, old: &Entry) {
        self.waiting -= 1;
        if !old.topic.is_result() {
            return;
        }
        match &mut self.lag {
            Some(missed) => {
                missed.to = old.seq;
                missed.count += 1;
            }
            None => {
                let (from, to) = (old.seq, old.seq);
                self.lag = Some(Missed { from, to, count: 1, reason: GapReason::Lag });
            }
        }
    }
}
