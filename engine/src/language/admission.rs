//! Who gets a place, who gives one up, and what is given back: the part of the engine that does to the model
//! context what `blocks` and `rank` decide. Its neighbour is `serve`, the loop.
//!
//! All cells a request can ever need are promised when it starts: then no answer stops halfway for want of them,
//! and taking turns is decided in one place. The price is that long answers that end early hold cells they never
//! use; they come back at the end.
//!
//! A request that gives up its place keeps its cells until others need them. Then it is saved outside the pool,
//! bit by bit, up to the size of the pool; beyond that it is computed anew, where near ties may fall the other way.

use std::sync::Arc;

use media::Mono;

use super::blocks::{Cut, Wish};
use super::inbox::Next;
use super::rank::victims;
use super::serve::Engine;
use super::task::Task;

/// Where a waiting request's computed tokens are.
#[derive(Debug)]
pub(super) enum Parked {
    /// In the pool, in this sequence.
    Held(u32),
    /// Outside, with their number.
    Saved(Vec<u8>, usize),
}

/// Whether a request can start.
enum Room {
    Granted,
    /// If these running ones (by position) give way, one after the other until it fits.
    After(Vec<usize>),
    No,
}

impl Engine {
    /// Lets waiting requests in, in their order, as long as they fit or others give way.
    pub(super) fn admit(&mut self, now: Mono) {
        let inbox = Arc::clone(&self.inbox);
        loop {
            let mut after = None;
            let next = inbox.next(now, |task| match self.room(task) {
                Room::Granted => true,
                Room::After(victims) => {
                    after = victims.first().copied();
                    false
                }
                Room::No => false,
            });
            match (next, after) {
                (Next::Starts(mut task), _) => {
                    task.turn.let_in(now, self.inbox.halving());
                    if self.place(&mut task, now) {
                        self.running.push(*task);
                    } else {
                        inbox.put_back(*task);
                        return;
                    }
                }
                (Next::Blocked, Some(at)) => {
                    let mut task = self.give_way(at);
                    task.turn.give_way(now);
                    inbox.put_back(task);
                }
                (Next::Blocked, None) | (Next::Nothing, _) => return,
            }
        }
    }

    /// Whether `task` can start now, or who would have to give way for it.
    fn room(&self, task: &Task) -> Room {
        let slots_max = self.slots_for(task);
        let wish = self.wish(task);
        if self.running.len() < slots_max && self.blocks.fits(&wish, |_| true) {
            return Room::Granted;
        }
        let running = self.running.iter().map(|t| (t.turn, t.computed));
        let victims = victims(&task.turn, running);
        let stays = |seq| !victims.iter().any(|&at| self.running[at].seq == seq);
        // Nobody gives way in vain.
        let slots_left = self.running.len() - victims.len();
        if victims.is_empty() || slots_left >= slots_max || !self.blocks.fits(&wish, stays) {
            return Room::No;
        }
        Room::After(victims)
    }

    fn slots_for(&self, task: &Task) -> usize {
        let reserved = if task.turn.is_urgent() { 0 } else { self.places.slots_urgent };
        (self.places.slots - reserved).max(1)
    }

    fn wish<'a>(&self, task: &'a Task) -> Wish<'a> {
        let parked = self.parked.get(&task.id);
        Wish {
            // What was saved comes back bit by bit, so nothing else is looked for.
            tokens: if let Some(Parked::Saved(..)) = parked { &[] } else { &task.tokens },
            salt: task.salt.as_ref(),
            reserve: task.reserve,
            reuse: task.reuse,
            parked: if let Some(Parked::Held(seq)) = parked { Some(*seq) } else { None },
        }
    }

    /// Gives the task its sequence; false if it does not fit after all.
    fn place(&mut self, task: &mut Task, now: Mono) -> bool {
        let Some(granted) = self.blocks.admit(&self.wish(task)) else { return false };
        task.seq = granted.seq;
        match (self.parked.remove(&task.id), granted.shared) {
            (Some(Parked::Held(_)), _) => {}
            (Some(Parked::Saved(state, len)), _) => {
                // Room first: what others lose for it is still in the pool.
                self.apply(granted.cuts);
                self.cells_saved = self.cells_saved.saturating_sub(len);
                if self.ctx.seq_restore(task.seq, &state) {
                    task.computed = self.ctx.seq_len(task.seq) as usize;
                    self.blocks.computed(task.seq, &task.tokens[..task.computed]);
                } else {
                    task.start_over();
                }
                return true;
            }
            (None, Some(shared)) => {
                task.start_over();
                self.ctx.seq_share(shared.from, task.seq, shared.len as u32);
                task.computed = shared.len;
            }
            (None, None) => task.start_over(),
        }
        self.apply(granted.cuts);
        if task.started.is_none() {
            task.started = Some(now);
            task.cached = task.computed;
            self.stats.prefix_tokens_hit += task.computed as u64;
            self.stats.prefix_queries += 1;
        }
        true
    }

    /// Takes a running request's place; what it computed is kept for it.
    fn give_way(&mut self, at: usize) -> Task {
        let task = self.running.swap_remove(at);
        self.parked.insert(task.id, Parked::Held(task.seq));
        let cuts = self.blocks.park(task.seq, task.id);
        self.apply(cuts);
        self.stats.preemptions += 1;
        task
    }

    /// Takes out a request that has ended or is not wanted any more; what it computed can be shared by others.
    pub(super) fn leave(&mut self, at: usize) -> Task {
        let task = self.running.swap_remove(at);
        let cuts = self.blocks.keep(task.seq);
        self.apply(cuts);
        task
    }

    /// Takes out a request whose cells can't be trusted.
    pub(super) fn fail(&mut self, at: usize) -> Task {
        let task = self.running.swap_remove(at);
        let cut = self.blocks.remove(task.seq);
        self.apply(cut.into_iter().collect());
        task
    }

    /// A waiting request is gone: what was kept for it is kept for nobody in particular.
    pub(super) fn forget(&mut self, id: u64) {
        match self.parked.remove(&id) {
            Some(Parked::Held(seq)) => {
                let cuts = self.blocks.unpark(seq);
                self.apply(cuts);
            }
            Some(Parked::Saved(_, len)) => {
                self.cells_saved = self.cells_saved.saturating_sub(len);
            }
            None => {}
        }
    }

    /// Evicts what is kept for nobody in particular.
    pub(super) fn drop_caches(&mut self) {
        let cuts = self.blocks.drop_cached();
        self.apply(cuts);
    }

    fn apply(&mut self, cuts: Vec<Cut>) {
        for Cut { seq, len, parked } in cuts {
            if let Some(id) = parked {
                let cells = self.ctx.seq_len(seq) as usize;
                let fits = self.cells_saved + cells <= self.blocks.cells();
                let saved = if fits { self.ctx.seq_save(seq) } else { None };
                if let Some(state) = saved {
                    self.cells_saved += cells;
                    self.parked.insert(id, Parked::Saved(state, cells));
                } else {
                    self.parked.remove(&id);
                }
            }
            self.ctx.seq_cut(seq, len as u32);
        }
    }
}
