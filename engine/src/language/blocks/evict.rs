//! What goes when room is wanted, and what of ended requests is not worth keeping.

use super::{BLOCK_TOKENS, Blocks, Cut, Holder, State, blocks_of};

impl Blocks {
    /// Evicts until `wanted` blocks are free or nothing can go: tails that nobody shared, then what was shared, then
    /// (if `parked`) what waiting requests had computed; of these the least recently used.
    pub(super) fn make_free(&mut self, wanted: usize, parked: bool) -> Vec<Cut> {
        let mut cuts: Vec<Cut> = Vec::new();
        while self.free.len() < wanted {
            let Some((rank, _, seq)) = self.evictable().min() else { break };
            let Some(holder) = self.holders.get(&seq) else { break };
            let keep = if rank == 0 { blocks_of(holder.worth) } else { 0 };
            let mut len = holder.table.len();
            if rank == 2 {
                if !parked {
                    break;
                }
                len = 0;
            }
            // From the tail: what others share gives nothing back, so it is gone through at once.
            let mut gained = 0;
            while len > keep && self.free.len() + gained < wanted {
                len -= 1;
                gained += usize::from(self.refs[holder.table[len] as usize] == 1);
            }
            // What is left of it is of no use when another holds all of it.
            let left = len.checked_sub(1).and_then(|last| holder.table.get(last));
            if left.is_none_or(|&block| len == keep && self.refs[block as usize] > 1) {
                cuts.extend(self.remove(seq));
            } else {
                self.cut(seq, len);
                cuts.push(Cut { seq, len: len * BLOCK_TOKENS, parked: None });
            }
        }
        cuts
    }

    /// What can be evicted: rank, last use, sequence.
    fn evictable(&self) -> impl Iterator<Item = (u8, u64, u32)> {
        self.holders.iter().filter_map(|(&seq, holder)| {
            let rank = match holder.state {
                State::Cached => u8::from(holder.table.len() <= blocks_of(holder.worth)),
                State::Parked(_) => 2,
                State::Running => return None,
            };
            Some((rank, holder.used, seq))
        })
    }

    /// Brings what is kept back within its bounds.
    pub(super) fn trim(&mut self) -> Vec<Cut> {
        let mut cuts = Vec::new();
        while self.kept() > self.size.kept {
            let Some((_, _, seq)) = self.evictable().min() else { break };
            cuts.extend(self.remove(seq));
        }
        let spoken_for = self.distinct(|state| state != State::Cached);
        let cached = self.refs.len() - self.free.len() - spoken_for;
        let over = cached.saturating_sub(self.size.cached_cells / BLOCK_TOKENS);
        if over > 0 {
            cuts.extend(self.make_free(self.free.len() + over, false));
        }
        cuts
    }

    /// Whether another holder has all that `seq` has.
    pub(super) fn is_elsewhere(&mut self, seq: u32) -> bool {
        let Some(holder) = self.holders.get(&seq) else { return false };
        let candidates = holder.chain.last().and_then(|link| self.index.get(link));
        let same = |&&other: &&u32| {
            other != seq
                && self
                    .holders
                    .get(&other)
                    .is_some_and(|o| o.salt == holder.salt && o.tokens.starts_with(&holder.tokens))
        };
        let Some(&other) = candidates.and_then(|c| c.iter().find(same)) else { return false };
        let (worth, used) = (holder.worth.min(holder.tokens.len()), holder.used);
        if let Some(other) = self.holders.get_mut(&other) {
            other.worth = other.worth.max(worth);
            other.used = other.used.max(used);
        }
        true
    }

    /// What is kept of others and is a beginning of `seq`, such as earlier turns of a talk, is of no further use.
    pub(super) fn drop_beginnings_of(&mut self, seq: u32) -> Vec<Cut> {
        let Some(holder) = self.holders.get(&seq) else { return Vec::new() };
        let is_beginning = |o: &Holder| {
            o.state == State::Cached
                && o.salt == holder.salt
                && o.chain.last().is_some_and(|link| holder.chain.contains(link))
                && holder.tokens.starts_with(&o.tokens)
        };
        let found = self.holders.iter().filter(|&(&other, o)| other != seq && is_beginning(o));
        let found: Vec<(u32, usize)> = found.map(|(&other, o)| (other, o.worth)).collect();
        let worth = found.iter().map(|f| f.1).max().unwrap_or(0);
        if let Some(holder) = self.holders.get_mut(&seq) {
            holder.worth = holder.worth.max(worth);
        }
        found.into_iter().filter_map(|(other, _)| self.remove(other)).collect()
    }
}
