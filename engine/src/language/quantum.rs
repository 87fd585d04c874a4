//! How long steps take, and how many prompt tokens the next one may read so that it stays under the quantum. Pure.
//!
//! The model: time = base(requests that generate) + tokens read x time of one. Both are upper quartiles of what was
//! measured lately, so that one step that waited for a core does not count, and many that did count at once.

/// Recent measurements that a cost is taken from.
const RECENT: usize = 24;
/// Fewest prompt tokens of a step, whatever they cost: below it the step's fixed part dominates.
const CHUNK_MIN: usize = 8;
/// Prompt tokens of a step before anything is measured.
const CHUNK_START: usize = 16;
/// Tokens that are computed at once. Attention over so many is a matrix product, over fewer a loop.
pub(super) const MICRO_BATCH: usize = 64;
/// Bins of the number of requests that generate: 0, 1, 2-3, 4-7, ... 64 and more.
const BINS: usize = 8;

/// A quantile over the last measurements.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    values: Vec<f64>,
    at: usize,
    size: usize,
}

impl Recent {
    /// Over the last `size`.
    pub(super) fn new(size: usize) -> Self {
        Recent { values: Vec::new(), at: 0, size: size.max(1) }
    }

    pub(super) fn push(&mut self, value: f64) {
        if self.values.len() < self.size {
            self.values.push(value);
        } else {
            self.values[self.at] = value;
            self.at = (self.at + 1) % self.size;
        }
    }

    /// The value that the fraction `q` (0 to 1) of them does not exceed; none before the first.
    pub(super) fn quantile(&self, q: f64) -> Option<f64> {
        let mut sorted = self.values.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = ((sorted.len() as f64 * q).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
        sorted.get(at).copied()
    }
}

/// What steps cost lately.
#[derive(Clone, Debug)]
pub(super) struct StepCost {
    /// Steps without prompt tokens, by the number that generated.
    base_ms: [Recent; BINS],
    prompt_token_ms: Recent,
}

impl StepCost {
    pub(super) fn new() -> Self {
        let base_ms = std::array::from_fn(|_| Recent::new(RECENT));
        StepCost { base_ms, prompt_token_ms: Recent::new(RECENT) }
    }

    /// A step took `ms`, in which `generating` requests had one token each and `read` tokens were read.
    pub(super) fn measured(&mut self, generating: usize, read: usize, ms: f64) {
        if read == 0 {
            self.base_ms[bin(generating)].push(ms);
        } else if read >= CHUNK_MIN / 2 {
            // Less would say more about the fixed part than about a token.
            let each = (ms - self.base_ms(generating)) / read as f64;
            self.prompt_token_ms.push(each.max(0.0));
        }
    }

    /// Prompt tokens that fit into a step of `quantum_ms` beside `generating` requests, at most `max`; a quantum of
    /// 0 means no limit.
    pub(super) fn chunk(&self, generating: usize, quantum_ms: f64, max: usize) -> usize {
        let least = CHUNK_MIN.min(max);
        if quantum_ms <= 0.0 {
            return max;
        }
        let Some(each) = self.prompt_token_ms.quantile(0.75) else {
            return CHUNK_START.clamp(least, max);
        };
        let left = (quantum_ms - self.base_ms(generating)).max(0.0);
        // A free token is a measurement that is off; the bound holds all the same.
        let fit = (left / each.max(1e-6)).min(max as f64) as usize;
        // The rest of a micro-batch would pay for a whole one; beside answers the batch is never even.
        let fit = if generating == 0 && fit > MICRO_BATCH { fit - fit % MICRO_BATCH } else { fit };
        fit.clamp(least, max)
    }

    /// The part of a step that does not depend on what is read: of the nearest number that was seen.
    fn base_ms(&self, generating: usize) -> f64 {
        let at = bin(generating);
        let below = self.base_ms[..=at].iter().rev();
        let known = below.chain(&self.base_ms[at..]).find_map(|r| r.quantile(0.75));
        known.unwrap_or(0.0)
    }
}

fn bin(generating: usize) -> usize {
    generating.checked_ilog2().map_or(0, |log| (log as usize + 1).min(BINS - 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_quantile_is_over_the_last_ones_only() {
        let mut recent = Recent::new(4);
        assert_eq!(recent.quantile(0.5), None);
        for value in [900.0, 1.0, 2.0, 3.0, 4.0] {
            recent.push(value);
        }
        assert_eq!((recent.quantile(0.5), recent.quantile(0.99)), (Some(2.0), Some(4.0)));
        assert_eq!((recent.quantile(0.0), recent.quantile(1.0)), (Some(1.0), Some(4.0)));
    }

    #[test]
    fn the_chunk_follows_the_measured_cost() {
        let mut cost = StepCost::new();
        assert_eq!(cost.chunk(0, 60.0, 128), 16);
        let step = |generating: usize, read: usize| {
            let base = if generating > 0 { 16.0 + 3.0 * generating as f64 } else { 19.0 };
            base + 2.0 * read as f64
        };
        for _ in 0..40 {
            for generating in [1, 8] {
                cost.measured(generating, 0, step(generating, 0));
                let read = cost.chunk(generating, 60.0, 128);
                cost.measured(generating, read, step(generating, read));
            }
        }
        assert_eq!((cost.chunk(0, 60.0, 128), cost.chunk(8, 60.0, 128)), (20, 10));
        assert_eq!(cost.chunk(1, 0.0, 128), 128, "no quantum");
        assert_eq!(cost.chunk(1, 5.0, 128), 8, "never below the least");
        assert_eq!(cost.chunk(1, 5.0, 4), 4, "never above the most");
        assert_eq!(
            (cost.chunk(0, 240.0, 512), cost.chunk(1, 240.0, 512)),
            (64, 110),
            "whole pieces"
        );
        // One step that waited for a core changes nothing; a machine that became slower does.
        cost.measured(8, 16, 900.0);
        assert_eq!(cost.chunk(8, 60.0, 128), 10);
        for _ in 0..RECENT {
            cost.measured(1, 16, 19.0 + 5.0 * 16.0);
        }
        assert_eq!(cost.chunk(1, 60.0, 128), 8);
    }

    proptest! {
        #[test]
        fn the_chunk_stays_within_its_bounds(
            seen in prop::collection::vec((0usize..200, 0usize..300, 0.0f64..1e6), 0..60),
            generating in 0usize..200, quantum in 0.0f64..1e4, max in 1usize..5_000,
        ) {
            let mut cost = StepCost::new();
            for (generating, read, ms) in seen {
                cost.measured(generating, read, ms);
            }
            let chunk = cost.chunk(generating, quantum, max);
            prop_assert!((CHUNK_MIN.min(max)..=max).contains(&chunk));
        }
    }
}
