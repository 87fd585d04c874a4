//! What the engine tells of itself: counts, rates and times. Its neighbour is `serve`, the loop.

use media::{Clock, Mono};

use super::quantum::Recent;
use super::serve::{Engine, Step};

/// Weight of the newest step in a measured rate.
const RATE_WEIGHT: f64 = 0.1;

impl Engine {
    /// Notes how long urgent requests waited for their first step.
    pub(super) fn begin_urgent(&mut self, step: &Step, now: Mono) {
        for &(at, _) in &step.parts {
            let task = &mut self.running[at];
            if task.turn.is_urgent() && !task.stepped {
                self.urgent_wait_ms.push(now.ms_since(task.enqueued));
            }
            task.stepped = true;
        }
    }

    pub(super) fn measure(&mut self, step: &Step, ms: f64) {
        self.stats.steps += 1;
        let tokens = step.batch.len();
        self.step_ms.push(ms);
        self.cost.measured(step.generating, tokens - step.generating, ms);
        if ms <= 0.0 {
            return;
        }
        let rate = match (step.parts.as_slice(), step.rounds.is_empty()) {
            ([(_, 1)], true) => &mut self.stats.decode_tokens_per_s,
            (parts, true) if parts.iter().all(|&(_, n)| n >= 8) => {
                &mut self.stats.prefill_tokens_per_s
            }
            _ => return,
        };
        let weight = if *rate == 0.0 { 1.0 } else { RATE_WEIGHT };
        *rate += (tokens as f64 / ms * 1e3 - *rate) * weight;
    }

    pub(super) fn report(&mut self, enqueued: Option<Mono>) {
        self.stats.running = self.running.len() as u32;
        self.stats.cells_used = self.blocks.cells_used() as u32;
        self.stats.cells_cached = self.blocks.cells_cached() as u32;
        self.stats.prefixes = self.blocks.kept() as u32;
        let of = |times: &Recent, q| times.quantile(q).unwrap_or(0.0);
        self.stats.step_ms_p99 = of(&self.step_ms, 0.99);
        self.stats.step_ms_max = of(&self.step_ms, 1.0);
        self.stats.urgent_wait_ms_p50 = of(&self.urgent_wait_ms, 0.5);
        self.stats.urgent_wait_ms_p99 = of(&self.urgent_wait_ms, 0.99);
        let ended_ms = enqueued.map(|at| self.clock.now().ms_since(at));
        self.inbox.report(self.stats, ended_ms);
    }
}
