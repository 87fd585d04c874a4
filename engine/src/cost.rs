//! What a batch costs, learned from what batches cost: quantiles over the latest runs, never a mean.
//!
//! The scheduler asks before it starts or refuses work. Never reads a clock.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use media::Mono;

use crate::runs::Runs;

/// Runs remembered per batch size: enough for a p90, few enough to follow a change within seconds.
const WINDOW_RUNS: usize = 32;
/// A batch size not run for this long is estimated from fresher ones, where there are any.
const STALE_AFTER: Duration = Duration::from_secs(10);
/// While its work is refused, a model's estimate halves in this time after its latest run.
const DECAY_HALF_LIFE: Duration = Duration::from_secs(4);
/// A run observed while work is refused outweighs what was believed: old runs are cut to this fraction.
const TRIAL_KEEPS: usize = 4;
/// Runs that stand for what was measured before the start: the first real ones soon outweigh them.
const PRIMED_RUNS: usize = 4;
/// Ratios (actual to predicted) are kept in thousandths, so that one window type serves both.
const RATIO_ONE: u64 = 1_000;

/// The latest runs of one kind, with their quantiles.
#[derive(Clone, Debug, Default)]
struct Window {
    latest: VecDeque<u64>,
    p50: u64,
    p90: u64,
    newest: Mono,
    /// All runs since the start, where they are costs.
    all: Runs,
}

impl Window {
    fn record(&mut self, now: Mono, value: u64) {
        if self.latest.len() == WINDOW_RUNS {
            self.latest.pop_front();
        }
        self.latest.push_back(value);
        self.newest = now;
        let mut sorted = [u64::MAX; WINDOW_RUNS];
        for (slot, value) in sorted.iter_mut().zip(&self.latest) {
            *slot = *value;
        }
        sorted.sort_unstable();
        let at = |percent: usize| sorted[(self.latest.len() * percent).div_ceil(100).max(1) - 1];
        (self.p50, self.p90) = (at(50), at(90));
    }

    /// Forgets all but the newest fraction, so that the next runs decide.
    fn cut(&mut self) {
        let keep = self.latest.len() / TRIAL_KEEPS;
        self.latest.drain(..self.latest.len() - keep);
    }

    fn is_fresh(&self, now: Mono) -> bool {
        now.since(self.newest) <= STALE_AFTER
    }
}

/// What the cost says about a job that has a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It can make its deadline.
    Fits,
    /// It can't, but the model has not run for a while: run this one alone to learn what it costs now.
    Probe,
    /// It can't.
    Shed,
}

/// The cost of one model, per batch size.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    sizes: BTreeMap<usize, Window>,
    /// Actual to predicted, for work whose submitter predicts its cost (language steps).
    ratio: Window,
    /// |actual − estimate| / estimate of every run that had an estimate.
    error: Window,
    newest: Option<Mono>,
    refusing_since: Option<Mono>,
    probed: Option<Mono>,
}

impl Cost {
    /// Believes, until a batch of `batch` has run, what was measured before the start.
    pub fn prime(&mut self, now: Mono, batch: usize, p50: Duration, p90: Duration) {
        if self.sizes.contains_key(&batch) {
            return;
        }
        let window = self.sizes.entry(batch).or_default();
        for run in 0..PRIMED_RUNS {
            let believed = if run + 1 == PRIMED_RUNS { p90 } else { p50 };
            window.record(now, believed.as_micros() as u64);
        }
    }

    /// All runs since the start, per batch size; sizes that never ran are left out.
    pub fn runs(&self) -> impl Iterator<Item = (usize, &Runs)> {
        let sizes = self.sizes.iter().map(|(batch, window)| (*batch, &window.all));
        sizes.filter(|(_, runs)| runs.count() > 0)
    }

    /// p90 of a batch of `batch`, scaled from its neighbours when that size was never or long not run;
    /// none when nothing was ever run.
    pub fn p90(&self, now: Mono, batch: usize) -> Option<Duration> {
        self.quantile(now, batch, |w| w.p90)
    }

    /// Median of a batch of `batch`, as [`Cost::p90`].
    pub fn p50(&self, now: Mono, batch: usize) -> Option<Duration> {
        self.quantile(now, batch, |w| w.p50)
    }

    /// p90 of a job that may carry its submitter's prediction, which is then corrected by how such
    /// predictions turned out.
    pub fn estimate(
        &self,
        now: Mono,
        batch: usize,
        predicted: Option<Duration>,
    ) -> Option<Duration> {
        let Some(predicted) = predicted else { return self.p90(now, batch) };
        if self.ratio.latest.is_empty() {
            return Some(predicted);
        }
        let micros = predicted.as_micros() as u64;
        Some(Duration::from_micros(micros.saturating_mul(self.ratio.p90) / RATIO_ONE))
    }

    /// Median and p90 of the relative error of past estimates (0.1 is ten percent).
    pub fn error(&self) -> Option<(f64, f64)> {
        let share = |thousandths: u64| thousandths as f64 / RATIO_ONE as f64;
        (!self.error.latest.is_empty()).then(|| (share(self.error.p50), share(self.error.p90)))
    }

    /// Whether a job due at `deadline` can make it when started at `now`. Refusing starts the decay that
    /// keeps refusal from locking in; a job that fits by the undecayed estimate ends it.
    pub fn admit(
        &mut self,
        now: Mono,
        deadline: Mono,
        predicted: Option<Duration>,
        probe_interval: Duration,
    ) -> Admission {
        let Some(estimate) = self.estimate(now, 1, predicted) else {
            return if now < deadline { Admission::Fits } else { Admission::Shed };
        };
        if now + estimate <= deadline {
            self.refusing_since = None;
            return Admission::Fits;
        }
        let since = *self.refusing_since.get_or_insert(now);
        let idle = now.since(self.newest.map_or(since, |newest| newest.max(since)));
        let halvings = idle.as_secs_f64() / DECAY_HALF_LIFE.as_secs_f64();
        if now + estimate.mul_f64(0.5_f64.powf(halvings)) <= deadline {
            return Admission::Fits;
        }
        let quiet_since = self.newest.max(self.probed).unwrap_or(since);
        if now < deadline && now.since(quiet_since) >= probe_interval {
            self.probed = Some(now);
            return Admission::Probe;
        }
        Admission::Shed
    }

    /// Remembers that a batch of `batch` took `actual`, when `estimate` was believed at its start.
    pub fn record(
        &mut self,
        now: Mono,
        batch: usize,
        actual: Duration,
        estimate: Option<Duration>,
        predicted: Option<Duration>,
    ) {
        let micros = actual.as_micros() as u64;
        let window = match predicted {
            Some(_) => &mut self.ratio,
            None => self.sizes.entry(batch).or_default(),
        };
        if self.refusing_since.is_some() {
            window.cut();
        }
        let value = match predicted {
            Some(p) => micros.saturating_mul(RATIO_ONE) / (p.as_micros() as u64).max(1),
            None => micros,
        };
        window.record(now, value);
        if predicted.is_none() {
            window.all.record(actual);
        }
        self.newest = Some(now);
        if let Some(estimate) = estimate.map(|e| e.as_micros() as u64) {
            self.error.record(now, micros.abs_diff(estimate) * RATIO_ONE / estimate.max(1));
        }
    }

    fn quantile(&self, now: Mono, batch: usize, of: fn(&Window) -> u64) -> Option<Duration> {
        let scaled = |size: usize, w: &Window| match size.cmp(&batch) {
            // A smaller batch, repeated as often as needed, bounds a larger one from above; a larger one
            // bounds a smaller one as it is.
            std::cmp::Ordering::Less => of(w).saturating_mul(batch as u64).div_ceil(size as u64),
            _ => of(w),
        };
        let nearest = |fresh_only: bool| {
            let counts = |w: &Window| !fresh_only || w.is_fresh(now);
            if let Some(own) = self.sizes.get(&batch).filter(|w| counts(w)) {
                return Some(of(own));
            }
            let below = self.sizes.range(..batch).rev().find(|(_, w)| counts(w));
            let above = self.sizes.range(batch + 1..).find(|(_, w)| counts(w));
            below.into_iter().chain(above).map(|(size, w)| scaled(*size, w)).min()
        };
        nearest(true).or_else(|| nearest(false)).map(Duration::from_micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn learned(cost_ms: u64, runs: u64) -> Cost {
        let mut cost = Cost::default();
        for i in 0..runs {
            cost.record(Mono::from_ms(i), 1, ms(cost_ms), None, None);
        }
        cost
    }

    #[test]
    fn one_slow_run_in_twenty_moves_neither_quantile() {
        let mut cost = Cost::default();
        for i in 0..20 {
            cost.record(Mono::from_ms(i), 1, ms(if i == 7 { 400 } else { 20 }), None, None);
        }
        assert_eq!(cost.p90(Mono::from_ms(20), 1), Some(ms(20)));
        assert_eq!(cost.p50(Mono::from_ms(20), 1), Some(ms(20)));
    }

    #[test]
    fn the_window_forgets_the_oldest_runs() {
        let mut cost = learned(100, 32);
        for i in 32..64 {
            cost.record(Mono::from_ms(i), 1, ms(10), None, None);
        }
        assert_eq!(cost.p90(Mono::from_ms(64), 1), Some(ms(10)));
    }

    #[test]
    fn what_was_measured_before_is_believed_until_runs_say_otherwise() {
        let mut cost = Cost::default();
        let now = Mono::from_ms(0);
        cost.prime(now, 1, ms(20), ms(26));
        assert_eq!((cost.p50(now, 1), cost.p90(now, 1)), (Some(ms(20)), Some(ms(26))));
        assert_eq!(cost.p90(now, 2), Some(ms(52)), "two are bounded by one and one");
        assert_eq!(cost.runs().count(), 0, "nothing has run yet");
        for i in 0..12 {
            cost.record(Mono::from_ms(i), 1, ms(50), None, None);
        }
        assert_eq!(cost.p50(Mono::from_ms(12), 1), Some(ms(50)));
        cost.prime(Mono::from_ms(12), 1, ms(1), ms(1));
        assert_eq!(cost.p50(Mono::from_ms(12), 1), Some(ms(50)), "what ran is known better");
        assert_eq!(cost.runs().map(|(b, runs)| (b, runs.count())).collect::<Vec<_>>(), [(1, 12)]);
    }

    #[test]
    fn unknown_sizes_are_scaled_from_their_neighbours() {
        let mut cost = learned(10, 1);
        let now = Mono::from_ms(5);
        assert_eq!(cost.p90(now, 4), Some(ms(40)));
        cost.record(now, 6, ms(30), None, None);
        assert_eq!(cost.p90(now, 4), Some(ms(30)), "six take 30 ms, so four take no more");
        assert_eq!(cost.p90(now, 12), Some(ms(60)));
        assert_eq!(Cost::default().p90(now, 1), None);
    }

    #[test]
    fn a_size_long_not_run_follows_fresher_ones() {
        let mut cost = Cost::default();
        cost.record(Mono::from_ms(0), 4, ms(800), None, None);
        cost.record(Mono::from_ms(20_000), 1, ms(10), None, None);
        assert_eq!(cost.p90(Mono::from_ms(20_001), 4), Some(ms(40)));
    }

    #[test]
    fn predictions_are_corrected_by_how_they_turned_out() {
        let mut cost = Cost::default();
        let now = Mono::from_ms(1);
        assert_eq!(cost.estimate(now, 1, Some(ms(8))), Some(ms(8)));
        cost.record(now, 1, ms(12), Some(ms(8)), Some(ms(8)));
        assert_eq!(cost.estimate(now, 1, Some(ms(20))), Some(ms(30)));
        assert_eq!(cost.error(), Some((0.5, 0.5)));
    }

    #[test]
    fn refusal_probes_once_a_second_and_never_past_the_deadline() {
        let mut cost = learned(300, 32);
        let mut probes = 0;
        for t in (40..3_040).step_by(10) {
            // Slow runs arrive as probes finish, so that the decay starts anew each time.
            match cost.admit(Mono::from_ms(t), Mono::from_ms(t + 50), None, SECOND) {
                Admission::Probe => {
                    probes += 1;
                    cost.record(Mono::from_ms(t), 1, ms(300), None, None);
                }
                Admission::Shed => {}
                Admission::Fits => panic!("300 ms never fit into 50"),
            }
        }
        assert_eq!(probes, 2);
        let past = Mono::from_ms(9_000);
        assert_eq!(cost.admit(past, past, None, SECOND), Admission::Shed);
    }

    #[test]
    fn an_estimate_nobody_can_check_decays_until_work_is_let_in() {
        let mut cost = learned(300, 32);
        let admitted = (1..60).find(|s| {
            let now = Mono::from_ms(s * 1_000 - 500);
            // The interval is never over: no probes, only the decay.
            let deadline = now + ms(100);
            cost.admit(now, deadline, None, Duration::MAX) == Admission::Fits
        });
        assert_eq!(admitted, Some(8), "300 ms fall to 100 in 6.3 s of the half-life of 4 s");
    }

    #[test]
    fn few_good_probes_outweigh_a_window_of_bad_runs() {
        let mut cost = learned(300, 32);
        let mut now = Mono::from_ms(100);
        let mut probes = 0;
        while cost.p90(now, 1) > Some(ms(50)) {
            now = now + SECOND;
            assert_ne!(cost.admit(now, now + ms(60), None, SECOND), Admission::Shed);
            cost.record(now, 1, ms(10), None, None);
            probes += 1;
        }
        assert!(probes <= 4, "{probes} probes to recover");
    }
}
