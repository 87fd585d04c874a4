//! Who gets a place, who gives one up, and what is given back: the part of the engine that accounts for slots and
//! cells. Its neighbour is `serve`, the loop.

use std::sync::Arc;

use media::Mono;

use super::inbox::Next;
use super::serve::Engine;
use super::task::Task;

impl Engine {
    /// Lets waiting requests in, most urgent first, as long as they fit.
    pub(super) fn admit(&mut self, now: Mono) {
        let inbox = Arc::clone(&self.inbox);
        loop {
            match inbox.next(|task| self.make_room(task)) {
                Next::Starts(mut task) => {
                    self.place(&mut task, now);
                    self.running.push(*task);
                }
                Next::Nothing => return,
                Next::Blocked => {
                    let Some(task) = self.give_way() else { return };
                    inbox.put_back(task);
                }
            }
        }
    }

    /// Whether `task` can start now; shares what is shared, and drops unused prefixes if that helps.
    fn make_room(&mut self, task: &mut Task) -> bool {
        let reserved = if task.is_urgent() { 0 } else { self.places.slots_urgent };
        if self.running.len() + reserved >= self.places.slots && !self.running.is_empty() {
            return false;
        }
        let cells = self.stats.cells as usize;
        if task.saved.is_none() {
            task.shared = self.prefixes.acquire(&task.tokens);
        }
        let fits_without_unused = |engine: &Self, task: &Task| {
            engine.cells_running() + engine.prefixes.cells_shared() + task.cells() <= cells
        };
        if !fits_without_unused(self, task) {
            // A long prefix of which little is shared may cost more than it saves.
            if let Some(shared) = task.shared.take() {
                self.prefixes.release(shared.key);
            }
            if !fits_without_unused(self, task) {
                return false;
            }
        }
        while self.cells_used() + task.cells() > cells {
            let Some(seq) = self.prefixes.evict() else { return false };
            self.ctx.seq_cut(seq, 0);
            self.free.push(seq);
        }
        true
    }

    /// Gives the task its sequence.
    fn place(&mut self, task: &mut Task, now: Mono) {
        // There is one for each slot and each prefix, so one is free.
        task.seq = self.free.pop().unwrap_or_default();
        task.computed = 0;
        if let Some(state) = task.saved.take() {
            self.cells_saved = self.cells_saved.saturating_sub(task.tokens.len());
            if self.ctx.seq_restore(task.seq, &state) {
                task.computed = self.ctx.seq_len(task.seq) as usize;
            } else {
                task.start_over();
            }
        }
        if let Some(shared) = task.shared {
            self.ctx.seq_share(shared.seq, task.seq, shared.len as u32);
            task.computed = shared.len;
        }
        if task.started.is_none() {
            task.started = Some(now);
            task.cached = task.computed;
            self.stats.prefix_tokens_hit += task.computed as u64;
            self.stats.prefix_queries += u64::from(task.reuse > 0);
        }
    }

    /// Takes the place of the least urgent request with the least to lose, if an urgent one waits for it.
    fn give_way(&mut self) -> Option<Task> {
        let urgent = self.inbox.most_urgent().filter(|&p| p < 0)?;
        let candidates = self.running.iter().enumerate().filter(|(_, t)| t.priority > urgent);
        let (at, _) =
            candidates.max_by_key(|(_, t)| (t.priority, std::cmp::Reverse(t.computed)))?;
        // Saved, it goes on as if nothing had happened; computed anew, near ties could fall the other way. At
        // most as much is saved as the pool holds.
        let task = &self.running[at];
        let saves = self.cells_saved + task.tokens.len() <= self.stats.cells as usize;
        let saved = if saves { self.ctx.seq_save(task.seq) } else { None };
        let mut task = self.leave(at);
        if saved.is_some() {
            self.cells_saved += task.tokens.len();
            task.saved = saved;
        } else {
            task.start_over();
        }
        self.stats.preemptions += 1;
        Some(task)
    }

    /// Takes a request out and frees what it held.
    pub(super) fn leave(&mut self, at: usize) -> Task {
        let mut task = self.running.swap_remove(at);
        self.ctx.seq_cut(task.seq, 0);
        self.free.push(task.seq);
        if let Some(shared) = task.shared.take() {
            self.prefixes.release(shared.key);
        }
        task
    }

    fn cells_running(&self) -> usize {
        self.running.iter().map(Task::cells).sum()
    }

    pub(super) fn cells_used(&self) -> usize {
        self.cells_running() + self.prefixes.cells()
    }
}
