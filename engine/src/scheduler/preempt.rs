//! The choice of the batches that end half-way so that text which is due need not wait for them.

use std::time::Duration;

use media::Mono;

use super::{Running, Scheduler, Why};
use crate::Class;

/// Times that one job may be interrupted.
const PREEMPTED_MAX: u8 = 2;
/// A batch with less left is awaited: ending it takes a while, too, and loses all it has computed.
const LEFT_MIN: Duration = Duration::from_millis(3);

impl Scheduler {
    /// Chooses batches until there is a lane for every text job that is due, or nothing left to choose.
    pub(super) fn preempt(&mut self, now: Mono) {
        if !self.config.preempt {
            return;
        }
        let free = self.lanes.iter().filter(|lane| lane.is_none()).count();
        let leaving = self.running.values().filter(|r| r.is_preempted && !r.stuck);
        let mut lanes = free + leaving.map(|r| r.lanes.len()).sum::<usize>();
        let wanted = self.lanes_due_text_wants(now);
        while lanes < wanted {
            let chosen = self.running.iter().filter_map(|(id, r)| Some((self.left(now, r)?, *id)));
            let Some((_, id)) = chosen.max() else { return };
            let Some(running) = self.running.get_mut(&id) else { return };
            running.is_preempted = true;
            running.asked_at = Some(now);
            lanes += running.lanes.len();
            self.preempted.push(id);
        }
    }

    fn lanes_due_text_wants(&self, now: Mono) -> usize {
        let texts = self.models.iter().filter(|m| m.spec.class == Class::Text);
        let ready = texts.filter(|m| self.is_ready(m, now));
        let batches = |dated: usize, batch_max: usize| dated.div_ceil(batch_max.max(1));
        ready.map(|m| batches(m.queue.len_dated(), m.spec.batch_max) * m.spec.width.max(1)).sum()
    }

    /// What a batch that may be ended has left to do.
    fn left(&self, now: Mono, running: &Running) -> Option<Duration> {
        let spec = &self.models[running.model].spec;
        let is_exempt = running.is_preempted
            || running.stuck
            || !spec.interruptible
            || spec.class == Class::Text
            || running.why != Why::Order
            || running.members.iter().any(|(_, job)| job.preempted >= PREEMPTED_MAX);
        let left = running.estimate?.saturating_sub(now.since(running.started));
        (!is_exempt && left >= LEFT_MIN).then_some(left)
    }

    /// Puts the jobs of an ended batch back where they were.
    pub(super) fn wait_again(&mut self, running: Running) {
        let counts = &mut self.models[running.model].counts;
        counts.running -= running.members.len() as u64;
        counts.preempted += 1;
        let rank = self.models[running.model].rank;
        // The last one first, so that a stream with several members stands where it stood before all of them.
        for (id, mut job) in running.members.into_iter().rev() {
            let (stream, served) = (job.stream, job.served_before);
            self.streams.take_back(stream, rank, served);
            self.order_stream(stream, rank, served);
            job.preempted += 1;
            self.enqueue(id, job);
        }
    }
}
