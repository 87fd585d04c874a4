//! Accounts for the cells of the key-value pool, in blocks of 16 tokens: who holds which, what is kept of ended
//! requests, and which computed beginning a new prompt can share. Pure: the cells themselves are the model context's.
//!
//! Its neighbour is `admission`, which does to the context what is decided here. The one rule: blocks held, each
//! counted once, never exceed the pool.
//!
//! A holder is a sequence of the context. Running ones hold all blocks their request can ever need, so that no
//! answer fails or gives way halfway for want of memory; what they did not use comes back at their end. An ended
//! request's sequence is kept as the holder of what it computed. Sharing is by token: cells below a block's end may
//! be shared while both holders count a block of their own for them, so the count is never below the truth.
//!
//! A kept holder may be cut while others share from it: their sequences keep the cells, their tables the blocks.
//! What a request is about to share is in its own table before anything is cut to make room for it.
//!
//! What is kept costs time: the context's attention walks over every used cell (measured, 8,000 kept cells: prefill
//! 2.1 times, decode 1.3 times as long). So what is kept is bounded, and what was never shared goes first.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use models::llama::Token;

mod evict;
#[cfg(test)]
mod tests;

/// Tokens of a block.
pub(super) const BLOCK_TOKENS: usize = 16;

/// Sizes of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolSize {
    /// Cells, in tokens.
    pub(super) cells: usize,
    /// Most sequences that hold something.
    pub(super) sequences: usize,
    /// Most sequences that are kept after their request.
    pub(super) kept: usize,
    /// Most cells that are kept for nobody in particular.
    pub(super) cached_cells: usize,
}

/// What a request wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish<'a> {
    /// What it has; beginnings of it may be shared.
    pub(super) tokens: &'a [Token],
    /// Shares with its like only.
    pub(super) salt: Option<&'a Arc<str>>,
    /// Most tokens it can come to.
    pub(super) reserve: usize,
    /// Leading tokens that are known to come again; evicted late.
    pub(super) reuse: usize,
    /// Holder that was kept for it when it gave up its place.
    pub(super) parked: Option<u32>,
}

/// What it gets. The sharing comes before the cuts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Granted {
    /// Its sequence.
    pub(super) seq: u32,
    /// Begins with so many tokens of another sequence.
    pub(super) shared: Option<Shared>,
    /// What others lose for it.
    pub(super) cuts: Vec<Cut>,
}

/// A computed beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shared {
    /// Sequence that holds it.
    pub(super) from: u32,
    /// Tokens.
    pub(super) len: usize,
}

/// A sequence that is to be cut to its first `len` tokens; 0 frees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Which.
    pub(super) seq: u32,
    /// Tokens that stay.
    pub(super) len: usize,
    /// The waiting request it was kept for, which will have to do without.
    pub(super) parked: Option<u64>,
}

#[derive(Debug)]
struct Holder {
    salt: Option<Arc<str>>,
    /// What is computed.
    tokens: Vec<Token>,
    /// One for each full block of `tokens`, over all before it.
    chain: Vec<u64>,
    table: Vec<u32>,
    /// Leading tokens that were shared or are known to come again.
    worth: usize,
    /// When it was last used.
    used: u64,
    state: State,
}

/// In the order in which they are evicted, before what they are worth is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Cached,
    Parked(u64),
    Running,
}

/// The pool.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Holders of each block.
    refs: Vec<u16>,
    free: Vec<u32>,
    free_seqs: Vec<u32>,
    holders: BTreeMap<u32, Holder>,
    /// Who holds the full blocks up to here.
    index: HashMap<u64, Vec<u32>>,
    size: PoolSize,
    clock: u64,
}

impl Blocks {
    pub(super) fn new(size: PoolSize) -> Self {
        let blocks = size.cells / BLOCK_TOKENS;
        Blocks {
            refs: vec![0; blocks],
            free: (0..blocks as u32).rev().collect(),
            free_seqs: (0..size.sequences as u32).rev().collect(),
            holders: BTreeMap::new(),
            index: HashMap::new(),
            size,
            clock: 0,
        }
    }

    /// Whether `wish` could be granted if of the running ones only those that `stays` names were there.
    pub(super) fn fits(&self, wish: &Wish<'_>, stays: impl Fn(u32) -> bool) -> bool {
        let mut pinned = vec![false; self.refs.len()];
        let mut pin = |table: &[u32]| table.iter().for_each(|&b| pinned[b as usize] = true);
        for (&seq, holder) in &self.holders {
            if holder.state == State::Running && stays(seq) {
                pin(&holder.table);
            }
        }
        let mut own = 0;
        if let Some((_, table)) = self.beginning(wish) {
            pin(table);
            own = table.len();
        }
        let pinned = pinned.iter().filter(|&&p| p).count();
        pinned + blocks_of(wish.reserve).saturating_sub(own) <= self.refs.len()
    }

    /// Grants `wish`, at the cost of what is kept for nobody and then of what is kept for waiting requests; none if
    /// that is not enough, and then nothing has changed.
    pub(super) fn admit(&mut self, wish: &Wish<'_>) -> Option<Granted> {
        if !self.fits(wish, |_| true) {
            return None;
        }
        self.clock += 1;
        let resumed = wish.parked.filter(|seq| self.holders.contains_key(seq));
        let shared = if resumed.is_none() { self.find(wish.tokens, wish.salt) } else { None };
        let seq = match resumed {
            Some(seq) => seq,
            None => {
                let seq = self.free_seqs.pop()?;
                let holder = Holder {
                    salt: wish.salt.cloned(),
                    tokens: Vec::new(),
                    chain: Vec::new(),
                    table: Vec::new(),
                    worth: 0,
                    used: 0,
                    state: State::Running,
                };
                self.holders.insert(seq, holder);
                seq
            }
        };
        if let Some(Shared { from, len }) = shared {
            self.share(from, seq, &wish.tokens[..len]);
        }
        let clock = self.clock;
        let mut missing = blocks_of(wish.reserve);
        if let Some(holder) = self.holders.get_mut(&seq) {
            holder.state = State::Running;
            holder.used = clock;
            holder.worth = holder.worth.max(wish.reuse);
            missing = missing.saturating_sub(holder.table.len());
        }
        let cuts = self.make_free(missing, true);
        let table = self.free.split_off(self.free.len().saturating_sub(missing));
        for &block in &table {
            self.refs[block as usize] = 1;
        }
        if let Some(holder) = self.holders.get_mut(&seq) {
            holder.table.extend(table);
        }
        Some(Granted { seq, shared, cuts })
    }

    /// The first `tokens` of sequence `seq` are computed; never fewer than before.
    pub(super) fn computed(&mut self, seq: u32, tokens: &[Token]) {
        let Some(holder) = self.holders.get_mut(&seq) else { return };
        let known = holder.tokens.len().min(tokens.len());
        holder.tokens.extend(&tokens[known..]);
        let full = holder.tokens.len() / BLOCK_TOKENS;
        while holder.chain.len() < full {
            let at = holder.chain.len() * BLOCK_TOKENS;
            let parent = holder.chain.last().copied();
            let block = &holder.tokens[at..at + BLOCK_TOKENS];
            let link = link(parent, holder.salt.as_deref(), block);
            holder.chain.push(link);
            self.index.entry(link).or_default().push(seq);
        }
    }

    /// A running request has ended; what it computed is kept, within bounds.
    pub(super) fn keep(&mut self, seq: u32) -> Vec<Cut> {
        let Some(holder) = self.holders.get(&seq) else { return Vec::new() };
        if holder.tokens.len() < BLOCK_TOKENS || self.is_elsewhere(seq) {
            return self.remove(seq).into_iter().collect();
        }
        self.rest(seq, State::Cached);
        let mut cuts = self.drop_beginnings_of(seq);
        cuts.extend(self.trim());
        cuts
    }

    /// A running request gives up its place to wait as `id`; what it computed is kept for it.
    pub(super) fn park(&mut self, seq: u32, id: u64) -> Vec<Cut> {
        self.rest(seq, State::Parked(id));
        self.trim()
    }

    /// The waiting request that `seq` was kept for is gone.
    pub(super) fn unpark(&mut self, seq: u32) -> Vec<Cut> {
        match self.holders.get(&seq).map(|h| h.state) {
            Some(State::Parked(_)) => self.keep(seq),
            _ => Vec::new(),
        }
    }

    /// Forgets a sequence; nothing of it can be shared any more.
    pub(super) fn remove(&mut self, seq: u32) -> Option<Cut> {
        let state = self.holders.get(&seq)?.state;
        self.cut(seq, 0);
        self.holders.remove(&seq);
        self.free_seqs.push(seq);
        let parked = if let State::Parked(id) = state { Some(id) } else { None };
        Some(Cut { seq, len: 0, parked })
    }

    /// Forgets all that is kept for nobody in particular.
    pub(super) fn drop_cached(&mut self) -> Vec<Cut> {
        let cached = self.holders.iter().filter(|(_, h)| h.state == State::Cached);
        let cached: Vec<u32> = cached.map(|(&seq, _)| seq).collect();
        cached.into_iter().filter_map(|seq| self.remove(seq)).collect()
    }

    /// Cells of the pool.
    pub(super) fn cells(&self) -> usize {
        self.refs.len() * BLOCK_TOKENS
    }

    /// Cells held or promised, in whole blocks.
    pub(super) fn cells_used(&self) -> usize {
        (self.refs.len() - self.free.len()) * BLOCK_TOKENS
    }

    /// Those of them that no running request holds.
    pub(super) fn cells_cached(&self) -> usize {
        let running = self.distinct(|state| state == State::Running);
        self.cells_used() - running * BLOCK_TOKENS
    }

    /// Sequences that are kept.
    pub(super) fn kept(&self) -> usize {
        self.holders.values().filter(|h| h.state != State::Running).count()
    }

    /// The longest computed beginning of `tokens`, leaving at least one to compute, and at least a block.
    fn find(&self, tokens: &[Token], salt: Option<&Arc<str>>) -> Option<Shared> {
        let wanted = &tokens[..tokens.len().saturating_sub(1)];
        let mut found: Vec<&Vec<u32>> = Vec::new();
        let mut parent = None;
        for block in wanted.chunks_exact(BLOCK_TOKENS) {
            let next = link(parent, salt.map(|s| &**s), block);
            let Some(holders) = self.index.get(&next) else { break };
            found.push(holders);
            parent = Some(next);
        }
        // Hashes find, tokens decide: should two chains have one hash, a shorter beginning may still be right.
        while let Some(holders) = found.pop() {
            let depth = (found.len() + 1) * BLOCK_TOKENS;
            let beyond = |seq: &u32| {
                let tail = self.holders.get(seq).and_then(|h| h.tokens.get(depth..));
                common(tail.unwrap_or_default(), &wanted[depth..])
            };
            let Some(&from) = holders.iter().max_by_key(|seq| beyond(seq)) else { continue };
            let Some(holder) = self.holders.get(&from) else { continue };
            let len = common(&holder.tokens, wanted);
            if len >= depth && holder.salt.as_ref() == salt {
                return Some(Shared { from, len });
            }
        }
        None
    }

    /// What `wish` would begin with, and the full blocks of it.
    fn beginning(&self, wish: &Wish<'_>) -> Option<(u32, &[u32])> {
        if let Some((seq, holder)) = wish.parked.and_then(|s| self.holders.get_key_value(&s)) {
            return Some((*seq, &holder.table));
        }
        let Shared { from, len } = self.find(wish.tokens, wish.salt)?;
        let table = &self.holders.get(&from)?.table;
        Some((from, table.get(..len / BLOCK_TOKENS)?))
    }

    /// Lets the new holder `to` begin with `tokens` of `from`.
    fn share(&mut self, from: u32, to: u32, tokens: &[Token]) {
        let clock = self.clock;
        let Some(source) = self.holders.get_mut(&from) else { return };
        source.worth = source.worth.max(tokens.len());
        source.used = clock;
        let full = tokens.len() / BLOCK_TOKENS;
        let table = source.table[..full].to_vec();
        for &block in &table {
            self.refs[block as usize] += 1;
        }
        if let Some(holder) = self.holders.get_mut(&to) {
            holder.table = table;
            holder.worth = tokens.len();
        }
        self.computed(to, tokens);
    }

    /// What a holder was promised and did not use comes back.
    fn rest(&mut self, seq: u32, state: State) {
        self.clock += 1;
        let clock = self.clock;
        let Some(holder) = self.holders.get_mut(&seq) else { return };
        holder.state = state;
        holder.used = clock;
        holder.worth = holder.worth.min(holder.tokens.len());
        let unused = holder.table.split_off(blocks_of(holder.tokens.len()).min(holder.table.len()));
        self.release(&unused);
    }

    fn release(&mut self, blocks: &[u32]) {
        for &block in blocks {
            let refs = &mut self.refs[block as usize];
            *refs -= 1;
            if *refs == 0 {
                self.free.push(block);
            }
        }
    }

    /// Cuts a holder to its first `len` blocks.
    fn cut(&mut self, seq: u32, len: usize) {
        let Some(holder) = self.holders.get_mut(&seq) else { return };
        let blocks = holder.table.split_off(len.min(holder.table.len()));
        let links = holder.chain.split_off(len.min(holder.chain.len()));
        holder.tokens.truncate(len * BLOCK_TOKENS);
        holder.worth = holder.worth.min(holder.tokens.len());
        for link in links {
            if let Some(holders) = self.index.get_mut(&link) {
                if let Some(at) = holders.iter().position(|&s| s == seq) {
                    holders.swap_remove(at);
                }
                if holders.is_empty() {
                    self.index.remove(&link);
                }
            }
        }
        self.release(&blocks);
    }

    fn distinct(&self, of: impl Fn(State) -> bool) -> usize {
        let mut held = vec![false; self.refs.len()];
        for holder in self.holders.values().filter(|h| of(h.state)) {
            holder.table.iter().for_each(|&b| held[b as usize] = true);
        }
        held.iter().filter(|&&h| h).count()
    }
}

fn blocks_of(tokens: usize) -> usize {
    tokens.div_ceil(BLOCK_TOKENS)
}

fn common(a: &[Token], b: &[Token]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Names a block by its tokens and all before it; the salt goes into the first.
fn link(parent: Option<u64>, salt: Option<&str>, tokens: &[Token]) -> u64 {
    let mut hasher = DefaultHasher::new();
    match parent {
        Some(parent) => parent.hash(&mut hasher),
        None => salt.hash(&mut hasher),
    }
    tokens.hash(&mut hasher);
    hasher.finish()
}
