//! Lane time of one class over the last second, beside the time in which the class had work.

use media::Mono;

const BUCKETS: usize = 50;
const BUCKET_US: u64 = 20_000;

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    used_us: u64,
    demand_us: u64,
}

/// A sliding second in buckets of 20 ms; constant work per call.
#[derive(Clone, Debug)]
pub(super) struct Usage {
    buckets: [Bucket; BUCKETS],
    newest: u64,
    sum: Bucket,
    total_us: u64,
}

impl Usage {
    pub(super) fn new() -> Self {
        Usage {
            buckets: [Bucket::default(); BUCKETS],
            newest: 0,
            sum: Bucket::default(),
            total_us: 0,
        }
    }

    /// Accounts for `from..to`, during which the class held `lanes` and had work if `demand`.
    pub(super) fn advance(&mut self, from: Mono, to: Mono, lanes: u64, demand: bool) {
        self.total_us += lanes * to.0.saturating_sub(from.0);
        // What lies before the last second would be overwritten anyway.
        let mut at = from.0.max(to.0.saturating_sub(BUCKETS as u64 * BUCKET_US));
        loop {
            self.turn_to(at / BUCKET_US);
            let until = to.0.min((at / BUCKET_US + 1) * BUCKET_US);
            let passed = until.saturating_sub(at);
            let bucket = &mut self.buckets[(at / BUCKET_US) as usize % BUCKETS];
            bucket.used_us += lanes * passed;
            self.sum.used_us += lanes * passed;
            if demand {
                bucket.demand_us += passed;
                self.sum.demand_us += passed;
            }
            if until >= to.0 {
                return;
            }
            at = until;
        }
    }

    /// Lane time held within the last second, in microseconds.
    pub(super) fn used_us(&self) -> u64 {
        self.sum.used_us
    }

    /// Time of the last second in which the class had work, in microseconds.
    pub(super) fn demand_us(&self) -> u64 {
        self.sum.demand_us
    }

    /// Lane time held since the start, in microseconds.
    pub(super) fn total_us(&self) -> u64 {
        self.total_us
    }

    fn turn_to(&mut self, bucket: u64) {
        let steps = bucket.saturating_sub(self.newest).min(BUCKETS as u64);
        for i in 0..steps {
            let old = std::mem::take(&mut self.buckets[(bucket - i) as usize % BUCKETS]);
            self.sum.used_us -= old.used_us;
            self.sum.demand_us -= old.demand_us;
        }
        self.newest = self.newest.max(bucket);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_second_ago_is_forgotten() {
        let mut usage = Usage::new();
        usage.advance(Mono::from_ms(0), Mono::from_ms(500), 2, true);
        assert_eq!((usage.used_us(), usage.demand_us()), (1_000_000, 500_000));
        usage.advance(Mono::from_ms(500), Mono::from_ms(1_250), 0, false);
        assert_eq!(usage.demand_us(), 240_000, "260 to 500 ms are within the last buckets");
        usage.advance(Mono::from_ms(1_250), Mono::from_ms(90_000), 0, false);
        assert_eq!((usage.used_us(), usage.demand_us(), usage.total_us()), (0, 0, 1_000_000));
    }

    proptest! {
        #[test]
        fn sums_match_the_buckets(steps in prop::collection::vec((0u64..1_500_000, 0u64..3, any::<bool>()), 1..40)) {
            let mut usage = Usage::new();
            let mut now = Mono(0);
            for (step, lanes, demand) in steps {
                let next = Mono(now.0 + step);
                usage.advance(now, next, lanes, demand);
                now = next;
                prop_assert_eq!(usage.sum.used_us, usage.buckets.iter().map(|b| b.used_us).sum::<u64>());
                prop_assert_eq!(usage.sum.demand_us, usage.buckets.iter().map(|b| b.demand_us).sum::<u64>());
                prop_assert!(usage.demand_us() <= 1_000_000);
                prop_assert!(usage.used_us() <= 3 * 1_000_000);
            }
        }
    }
}
