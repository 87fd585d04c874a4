//! Whether a lane that is lent for as long as its holder has work would go to others if it were free.
//!
//! Its neighbour is `pick`, whose order it follows. The holder asks once a quantum, and hands the lane back between two
//! steps when the answer is yes; nothing is taken from it half-way.

use media::Mono;

use super::pick::Fit;
use super::{DispatchId, Scheduler};

impl Scheduler {
    /// Whether, with the lanes of `id` free, a job would start on them: one of its own or a higher class, one of a
    /// lower class that is owed its share, or one that waited too long. False if no such batch runs.
    pub fn is_wanted(&mut self, now: Mono, id: DispatchId) -> bool {
        let now = self.advance(now);
        let Some(running) = self.running.remove(&id) else { return false };
        let own = self.models[running.model].rank;
        let is_stuck = running.stuck;
        if !is_stuck {
            self.lend(&running.lanes, None);
            self.classes[own].lanes_held -= running.lanes.len() as u64;
        }
        let wanted = !is_stuck
            && (self.pick_aged(now).is_some()
                || (0..self.classes.len()).any(|rank| self.would_start(now, rank, own)));
        if !is_stuck {
            self.lend(&running.lanes, Some(id));
            self.classes[own].lanes_held += running.lanes.len() as u64;
        }
        self.running.insert(id, running);
        wanted
    }

    fn would_start(&mut self, now: Mono, rank: usize, own: usize) -> bool {
        if rank > own && self.classes[rank].share.is_none() {
            return false;
        }
        match self.plan_class(now, rank) {
            Fit::Start(plan) => {
                rank <= own || self.is_owed(now, rank, plan.leader, plan.lanes.len())
            }
            Fit::Hold => rank <= own,
            Fit::Nothing => false,
        }
    }

    fn lend(&mut self, lanes: &[usize], to: Option<DispatchId>) {
        for lane in lanes {
            self.lanes[*lane] = to;
        }
    }
}
