//! The newest messages, by number and bytes bounded. Their `seq` has no holes, so a place is found by counting.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use media::StreamId;
use media::result::{FusedResult, Status, StreamMessage};

/// A published message.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) seq: u64,
    pub(super) topic: Topic,
    pub(super) json: Bytes,
}

/// What a filter looks at.
#[derive(Clone, Debug)]
pub(super) struct Topic {
    pub(super) stream: StreamId,
    pub(super) kind: TopicKind,
}

#[derive(Clone, Debug)]
pub(super) enum TopicKind {
    State,
    Result { status: Status, alerts: Vec<Arc<str>> },
}

impl Topic {
    pub(super) fn of_result(result: &FusedResult) -> Self {
        let alerts = result.fusion.alerts.iter().map(|a| Arc::clone(&a.name)).collect();
        Topic {
            stream: result.stream.clone(),
            kind: TopicKind::Result { status: result.status, alerts },
        }
    }

    pub(super) fn of_state(message: &StreamMessage) -> Self {
        Topic { stream: message.stream.clone(), kind: TopicKind::State }
    }

    pub(super) fn is_result(&self) -> bool {
        matches!(self.kind, TopicKind::Result { .. })
    }
}

/// A bounded run of messages without holes.
pub(super) struct Journal {
    entries: VecDeque<Entry>,
    bytes: usize,
    entries_max: usize,
    bytes_max: usize,
}

impl Journal {
    pub(super) fn new(entries_max: usize, bytes_max: usize) -> Self {
        Journal { entries: VecDeque::new(), bytes: 0, entries_max: entries_max.max(1), bytes_max }
    }

    /// Appends the next message; what has to go for it comes back, oldest first.
    pub(super) fn push(&mut self, entry: Entry) -> Vec<Entry> {
        self.bytes += entry.json.len();
        self.entries.push_back(entry);
        let mut gone = Vec::new();
        while self.entries.len() > 1
            && (self.entries.len() > self.entries_max || self.bytes > self.bytes_max)
        {
            if let Some(entry) = self.entries.pop_front() {
                self.bytes -= entry.json.len();
                gone.push(entry);
            }
        }
        gone
    }

    /// Messages with a greater `seq`, in order.
    pub(super) fn after(&self, seq: u64) -> impl Iterator<Item = &Entry> {
        let first = self.entries.front().map_or(0, |e| e.seq);
        let skip = (seq + 1).saturating_sub(first);
        self.entries.range(usize::try_from(skip).unwrap_or(usize::MAX).min(self.entries.len())..)
    }

    /// `seq` of the oldest and the newest message.
    pub(super) fn range(&self) -> Option<(u64, u64)> {
        Some((self.entries.front()?.seq, self.entries.back()?.seq))
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
