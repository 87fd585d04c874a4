//! All runs of one kind since the start, in constant memory: counts of lengths that grow by three percent.
//!
//! Its neighbour is [`cost`](crate::cost), whose windows follow changes within seconds; this one forgets nothing.

use std::time::Duration;

/// Logarithm of the growth from one bucket to the next: 3 %.
const GROWTH_LN: f64 = 0.029_558_8;
/// Up to 100 s; longer runs count as that long.
const BUCKETS: usize = 624;

/// Lengths of runs.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    buckets: Vec<u32>,
    count: u64,
    max: Duration,
}

impl Runs {
    /// Takes a run into account.
    pub fn record(&mut self, length: Duration) {
        let micros = length.as_micros().max(1) as f64;
        let bucket = ((micros.ln() / GROWTH_LN) as usize).min(BUCKETS - 1);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] = self.buckets[bucket].saturating_add(1);
        self.count += 1;
        self.max = self.max.max(length);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest.
    pub fn max(&self) -> Option<Duration> {
        (self.count > 0).then_some(self.max)
    }

    /// What this fraction of them did not exceed, within 3 %; never above the longest.
    pub fn at(&self, fraction: f64) -> Option<Duration> {
        let rank = ((fraction * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += u64::from(*count);
            seen >= rank
        })?;
        let micros = ((bucket as f64 + 0.5) * GROWTH_LN).exp();
        Some(Duration::from_micros(micros as u64).min(self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_three_percent_and_the_longest_is_exact() {
        let mut runs = Runs::default();
        assert_eq!((runs.at(0.5), runs.max(), runs.count()), (None, None, 0));
        for ms in 1..=1_000 {
            runs.record(Duration::from_millis(ms));
        }
        for (fraction, want) in [(0.0, 1.0), (0.5, 500.0), (0.9, 900.0), (0.99, 990.0), (1.0, 1e3)]
        {
            let got = runs.at(fraction).unwrap().as_secs_f64() * 1e3;
            assert!((got / want - 1.0).abs() < 0.031, "{fraction}: {got}, not {want}");
        }
        runs.record(Duration::from_secs(4_000));
        runs.record(Duration::ZERO);
        assert_eq!(runs.max(), Some(Duration::from_secs(4_000)));
        assert_eq!(runs.count(), 1_002);
    }
}
