//! A class's guaranteed share, kept as a credit of lane time.
//!
//! The credit grows by the share of all lanes while the class has work, shrinks by the lane time it holds,
//! and never says more, or less, than one second of the share: what is longer ago is forgotten. Idle time
//! earns nothing, but pays back what the class has had beyond its share.

use std::time::Duration;

/// How far back a share is owed, or counted against it.
const SPAN_US: f64 = 1e6;

/// One class's lane time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// Guaranteed fraction of lane time.
    fraction: f64,
    credit_us: f64,
    total_us: u64,
}

impl Share {
    pub(super) fn new(fraction: f64) -> Self {
        Share { fraction, credit_us: 0.0, total_us: 0 }
    }

    pub(super) fn is_none(&self) -> bool {
        self.fraction <= 0.0
    }

    /// Accounts for `passed`, in which the class held `held` of `lanes` lanes and had work if `demand`.
    pub(super) fn advance(&mut self, passed: Duration, lanes: usize, held: u64, demand: bool) {
        let passed_us = passed.as_micros() as u64;
        self.total_us += held * passed_us;
        let due = self.fraction * lanes as f64;
        let bound = due * SPAN_US;
        let most = if demand { bound } else { self.credit_us.max(0.0).min(bound) };
        let credit = self.credit_us + (due - held as f64) * passed_us as f64;
        self.credit_us = credit.clamp(-bound, most);
    }

    /// Whether a job of `cost` lane time is owed, when `committed` more is still to be held by running ones:
    /// at least half of it must be, so that the class is as often ahead as behind.
    pub(super) fn owes(&self, cost: Duration, committed: Duration, lanes: usize) -> bool {
        let micros = |duration: Duration| duration.as_micros() as f64;
        // A job longer than the span allows would else never be owed.
        let half_us = (micros(cost) / 2.0).min(self.fraction * lanes as f64 * SPAN_US / 2.0);
        !self.is_none() && self.credit_us - micros(committed) > half_us
    }

    /// Lane time held since the start.
    pub(super) fn held(&self) -> Duration {
        Duration::from_micros(self.total_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_class_is_owed_half_a_job_before_it_gets_one() {
        let mut share = Share::new(0.25);
        share.advance(ms(40), 2, 0, true);
        assert!(!share.owes(ms(40), ms(0), 2), "exactly half");
        share.advance(ms(1), 2, 0, true);
        assert!(share.owes(ms(40), ms(0), 2));
        assert!(!share.owes(ms(40), ms(1), 2), "what runs already counts");
        assert!(!Share::new(0.0).owes(ms(0), ms(0), 2));
    }

    #[test]
    fn what_is_longer_ago_than_a_second_of_work_is_forgotten() {
        let mut share = Share::new(0.25);
        share.advance(ms(60_000), 2, 2, true);
        share.advance(ms(999), 2, 0, true);
        assert!(!share.owes(ms(0), ms(0), 2), "it had more than its share within the last second");
        share.advance(ms(2), 2, 0, true);
        assert!(share.owes(ms(0), ms(0), 2));
        share.advance(ms(1_000), 2, 2, true);
        share.advance(ms(60_000), 2, 0, false);
        assert!(!share.owes(ms(0), ms(0), 2), "idle time earns nothing");
        share.advance(ms(1), 2, 0, true);
        assert!(share.owes(ms(0), ms(0), 2), "but what was had before it is paid back");
        share.advance(ms(60_000), 2, 0, true);
        share.advance(ms(501), 2, 2, true);
        assert!(
            !share.owes(ms(0), ms(0), 2),
            "a minute of waiting buys no more than a second's share"
        );
        assert_eq!(share.held(), ms(123_002));
    }

    #[test]
    fn a_job_longer_than_the_span_is_owed_in_the_end() {
        let mut share = Share::new(0.1);
        share.advance(ms(900), 1, 0, true);
        assert!(share.owes(ms(30_000), ms(0), 1));
    }
}
