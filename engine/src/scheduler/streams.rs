//! The streams that have or had work, and when each was last served in each class.
//!
//! Bounded: of more than [`STREAMS_MAX`] streams, the idle one served longest ago is forgotten, which then
//! counts as never served and goes first among equals once.

use std::collections::{BTreeSet, HashMap};

use media::StreamId;

use super::queue::StreamIndex;

/// Streams remembered; streams with work are always remembered.
const STREAMS_MAX: usize = 4_096;

#[derive(Debug)]
struct Stream {
    id: StreamId,
    /// Jobs that wait or run.
    jobs: usize,
    /// Per class rank, a number that grows with each service.
    served: [u64; 4],
}

#[derive(Debug, Default)]
pub(super) struct Streams {
    slots: Vec<Stream>,
    index: HashMap<StreamId, StreamIndex>,
    idle: BTreeSet<(u64, StreamIndex)>,
    services: u64,
}

impl Streams {
    /// The stream's number, and one more job of it.
    pub(super) fn enter(&mut self, id: &StreamId) -> StreamIndex {
        let index = match self.index.get(id) {
            Some(index) => *index,
            None => self.learn(id),
        };
        if let Some(stream) = self.slots.get_mut(index as usize) {
            self.idle.remove(&(latest(stream), index));
            stream.jobs += 1;
        }
        index
    }

    /// The number of a stream that is known already.
    pub(super) fn find(&self, id: &StreamId) -> Option<StreamIndex> {
        self.index.get(id).copied()
    }

    /// One job of the stream ended.
    pub(super) fn leave(&mut self, index: StreamIndex) {
        let Some(stream) = self.slots.get_mut(index as usize) else { return };
        stream.jobs = stream.jobs.saturating_sub(1);
        if stream.jobs == 0 {
            self.idle.insert((latest(stream), index));
        }
    }

    /// When the stream was last served in the class of this rank.
    pub(super) fn served(&self, index: StreamIndex, rank: usize) -> u64 {
        self.slots.get(index as usize).map_or(0, |s| s.served[rank])
    }

    /// The stream, still counted as having work, is served now.
    pub(super) fn serve(&mut self, index: StreamIndex, rank: usize) -> u64 {
        self.services += 1;
        if let Some(stream) = self.slots.get_mut(index as usize) {
            stream.served[rank] = self.services;
        }
        self.services
    }

    /// Takes a service back: the stream stands where it stood before. It has work.
    pub(super) fn take_back(&mut self, index: StreamIndex, rank: usize, served: u64) {
        if let Some(stream) = self.slots.get_mut(index as usize) {
            stream.served[rank] = served;
        }
    }

    fn learn(&mut self, id: &StreamId) -> StreamIndex {
        let fresh = Stream { id: id.clone(), jobs: 0, served: [0; 4] };
        let oldest = if self.slots.len() >= STREAMS_MAX { self.idle.pop_first() } else { None };
        let index = match oldest {
            Some((_, index)) => {
                let gone = std::mem::replace(&mut self.slots[index as usize], fresh);
                self.index.remove(&gone.id);
                index
            }
            None => {
                self.slots.push(fresh);
                (self.slots.len() - 1) as StreamIndex
            }
        };
        self.index.insert(id.clone(), index);
        index
    }
}

fn latest(stream: &Stream) -> u64 {
    stream.served.iter().copied().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_of_clips_leaves_a_bounded_memory_and_busy_streams_stay() {
        let mut streams = Streams::default();
        let live = streams.enter(&StreamId::from("live"));
        streams.serve(live, 0);
        for i in 0..20_000 {
            let clip = streams.enter(&StreamId::from(format!("clip-{i}")));
            streams.serve(clip, 2);
            streams.leave(clip);
        }
        assert_eq!(streams.slots.len(), STREAMS_MAX);
        assert_eq!(streams.find(&StreamId::from("live")), Some(live));
        assert_eq!(streams.served(live, 0), 1);
        assert_eq!(streams.find(&StreamId::from("clip-0")), None);
    }
}
