//! The waiting jobs of one model, per stream, and the order among the streams' first jobs.
//!
//! Everything is an ordered set: taking, adding and withdrawing cost O(log n).

use std::collections::{BTreeMap, BTreeSet};

use media::Mono;

use super::JobId;

/// A stream's number inside the scheduler; small and reused.
pub(super) type StreamIndex = u32;

/// Where a job stands: stream priority, then deadline (none last), then age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    pub(super) priority: i32,
    deadline_us: u64,
    pub(super) job: JobId,
}

impl Rank {
    pub(super) fn new(priority: i32, deadline: Option<Mono>, job: JobId) -> Self {
        Rank { priority, deadline_us: deadline.map_or(u64::MAX, |d| d.0), job }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        (self.deadline_us != u64::MAX).then_some(Mono(self.deadline_us))
    }
}

/// A stream's first job among the other streams': equal ones go to the stream served longest ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Head {
    priority: i32,
    deadline_us: u64,
    served: u64,
    pub(super) job: JobId,
    pub(super) stream: StreamIndex,
}

impl Head {
    fn new(rank: Rank, served: u64, stream: StreamIndex) -> Self {
        let Rank { priority, deadline_us, job } = rank;
        Head { priority, deadline_us, served, job, stream }
    }

    pub(super) fn rank(&self) -> Rank {
        Rank { priority: self.priority, deadline_us: self.deadline_us, job: self.job }
    }
}

#[derive(Debug, Default)]
struct StreamQueue {
    jobs: BTreeSet<Rank>,
    served: u64,
}

/// Streams' queues and the order among their first jobs.
#[derive(Debug, Default)]
struct Streams {
    queues: BTreeMap<StreamIndex, StreamQueue>,
    heads: BTreeSet<Head>,
}

/// Bounded by the scheduler, which asks for [`ModelQueue::len_of`] before it pushes. Jobs with and without
/// deadline are kept apart, since the latter may use a lane that the former may not.
#[derive(Debug, Default)]
pub(super) struct ModelQueue {
    dated: Streams,
    undated: Streams,
    deadlines: BTreeSet<(Mono, JobId)>,
    ages: BTreeSet<JobId>,
}

impl ModelQueue {
    pub(super) fn len(&self) -> usize {
        self.ages.len()
    }

    /// Jobs with a deadline.
    pub(super) fn len_dated(&self) -> usize {
        self.deadlines.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ages.is_empty()
    }

    pub(super) fn len_of(&self, stream: StreamIndex) -> usize {
        [&self.dated, &self.undated]
            .iter()
            .filter_map(|s| s.queues.get(&stream))
            .map(|q| q.jobs.len())
            .sum()
    }

    /// The job to serve first.
    pub(super) fn first(&self) -> Option<Head> {
        self.dated.heads.first().into_iter().chain(self.first_undated().as_ref()).min().copied()
    }

    /// The job to serve first among those without deadline.
    pub(super) fn first_undated(&self) -> Option<Head> {
        self.undated.heads.first().copied()
    }

    /// The job that waits longest.
    pub(super) fn oldest(&self) -> Option<JobId> {
        self.ages.first().copied()
    }

    /// The job whose deadline comes first.
    pub(super) fn due_first(&self) -> Option<(Mono, JobId)> {
        self.deadlines.first().copied()
    }

    /// The stream's first job with a deadline: what a newer one displaces from a full queue.
    pub(super) fn displaced(&self, stream: StreamIndex) -> Option<Rank> {
        self.dated.queues.get(&stream)?.jobs.first().copied()
    }

    pub(super) fn push(&mut self, stream: StreamIndex, served: u64, rank: Rank) {
        self.ages.insert(rank.job);
        match rank.deadline() {
            Some(deadline) => {
                self.deadlines.insert((deadline, rank.job));
                self.dated.push(stream, served, rank);
            }
            None => self.undated.push(stream, served, rank),
        }
    }

    pub(super) fn remove(&mut self, stream: StreamIndex, rank: Rank) {
        self.ages.remove(&rank.job);
        match rank.deadline() {
            Some(deadline) => {
                self.deadlines.remove(&(deadline, rank.job));
                self.dated.remove(stream, rank);
            }
            None => self.undated.remove(stream, rank),
        }
    }

    /// Moves the stream behind those equal to it.
    pub(super) fn served(&mut self, stream: StreamIndex, served: u64) {
        self.dated.served(stream, served);
        self.undated.served(stream, served);
    }
}

impl Streams {
    fn push(&mut self, stream: StreamIndex, served: u64, rank: Rank) {
        let queue = self.queues.entry(stream).or_default();
        let first = queue.jobs.first().copied();
        if first.is_none_or(|first| rank < first) {
            if let Some(first) = first {
                self.heads.remove(&Head::new(first, queue.served, stream));
            }
            queue.served = served;
            self.heads.insert(Head::new(rank, served, stream));
        }
        queue.jobs.insert(rank);
    }

    fn remove(&mut self, stream: StreamIndex, rank: Rank) {
        let Some(queue) = self.queues.get_mut(&stream) else { return };
        let first = queue.jobs.first().copied();
        if !queue.jobs.remove(&rank) || first != Some(rank) {
            return;
        }
        self.heads.remove(&Head::new(rank, queue.served, stream));
        match queue.jobs.first() {
            Some(next) => _ = self.heads.insert(Head::new(*next, queue.served, stream)),
            None => _ = self.queues.remove(&stream),
        }
    }

    fn served(&mut self, stream: StreamIndex, served: u64) {
        let Some(queue) = self.queues.get_mut(&stream) else { return };
        if let Some(first) = queue.jobs.first() {
            self.heads.remove(&Head::new(*first, queue.served, stream));
            self.heads.insert(Head::new(*first, served, stream));
        }
        queue.served = served;
    }
}
