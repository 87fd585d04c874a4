//! Who goes first, and who gives way to whom. Pure: the time is given.
//!
//! Its neighbours are `inbox`, where requests wait, and `admission`, which moves them. The one rule: a place is
//! taken from another strictly by number, never by arrival, so that two requests can't push each other out in turn.
//!
//! A request's rank is its priority; lower goes first. While a request of priority above 0 waits, its rank halves
//! every `halving`: priority p has rank 0 after `halving * (floor(log2 p) + 1)` (1000: ten halvings, 20 s at 2 s).
//! From then on nothing is let in before it but urgent requests (below 0, which no waiting makes one) and those of
//! rank 0 that came before it, at most as many as the queue holds: that is the bound on its wait.
//!
//! Age orders those who wait and takes nobody's place; a lower priority does. A running request keeps the rank it
//! was let in with, so one that came to rank 0 by age gives way to urgent requests alone and gets to its end.

use std::time::Duration;

use media::Mono;

/// Waiting time that halves a rank, unless configured.
pub(super) const HALVING_MS_DEFAULT: u32 = 2_000;

/// A request's place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// As asked for: lower goes first, below 0 is urgent.
    pub(super) priority: i32,
    /// Earlier goes first among equals.
    pub(super) arrival: u64,
    /// While it runs: the rank it was let in with.
    pub(super) rank: i32,
    /// While it waits: since when.
    since: Mono,
    /// Waits before this one.
    waited: Duration,
}

impl Turn {
    pub(super) fn new(priority: i32, now: Mono) -> Self {
        let waited = Duration::ZERO;
        Turn { priority, arrival: 0, rank: priority, since: now, waited }
    }

    pub(super) fn is_urgent(&self) -> bool {
        self.priority < 0
    }

    /// Its rank, having waited until `now`; `halving` of zero: no aging.
    pub(super) fn rank_at(&self, now: Mono, halving: Duration) -> i32 {
        if self.priority <= 0 || halving.is_zero() {
            return self.priority;
        }
        let waited = self.waited.saturating_add(now.since(self.since));
        let halvings = waited.as_micros() / halving.as_micros().max(1);
        self.priority.checked_shr(u32::try_from(halvings).unwrap_or(u32::MAX)).unwrap_or(0)
    }

    /// It runs from now on.
    pub(super) fn let_in(&mut self, now: Mono, halving: Duration) {
        self.rank = self.rank_at(now, halving);
        self.waited = self.waited.saturating_add(now.since(self.since));
    }

    /// It waits again; what it has waited before counts.
    pub(super) fn give_way(&mut self, now: Mono) {
        self.since = now;
    }
}

/// The position of the next one.
pub(super) fn next(
    waiting: impl Iterator<Item = Turn>,
    now: Mono,
    halving: Duration,
) -> Option<usize> {
    let order = |(_, turn): &(usize, Turn)| (turn.rank_at(now, halving), turn.arrival);
    waiting.enumerate().min_by_key(order).map(|(at, _)| at)
}

/// Who of the running gives way to `waiting`, by position: the least urgent first, of these the one with the
/// fewest computed tokens.
pub(super) fn victims(waiting: &Turn, running: impl Iterator<Item = (Turn, usize)>) -> Vec<usize> {
    let gives_way = |(_, (turn, _)): &(usize, (Turn, usize))| waiting.priority < turn.rank;
    let mut candidates: Vec<(usize, (Turn, usize))> =
        running.enumerate().filter(gives_way).collect();
    candidates.sort_by_key(|(_, (turn, computed))| (std::cmp::Reverse(turn.rank), *computed));
    candidates.into_iter().map(|(at, _)| at).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HALVING: Duration = Duration::from_millis(2_000);

    fn turn(priority: i32, arrival: u64, since_ms: u64) -> Turn {
        Turn { arrival, ..Turn::new(priority, Mono::from_ms(since_ms)) }
    }

    #[test]
    fn waiting_halves_the_rank_down_to_0_and_never_below() {
        let rank = |priority, ms| turn(priority, 0, 0).rank_at(Mono::from_ms(ms), HALVING);
        assert_eq!((rank(1000, 1_999), rank(1000, 2_000), rank(1000, 18_000)), (1000, 500, 1));
        assert_eq!((rank(1000, 20_000), rank(1000, 1 << 40)), (0, 0));
        assert_eq!((rank(0, 1 << 40), rank(-3, 1 << 40), rank(i32::MAX, 62_000)), (0, -3, 0));
        assert_eq!(turn(9, 0, 0).rank_at(Mono::from_ms(1 << 40), Duration::ZERO), 9);
    }

    #[test]
    fn the_least_urgent_gives_way_and_of_these_the_one_with_the_least_to_lose() {
        let running = [(turn(5, 0, 0), 10), (turn(7, 1, 0), 300), (turn(7, 2, 0), 200)];
        let victims_of = |t: Turn| victims(&t, running.into_iter());
        assert_eq!(victims_of(turn(5, 3, 0)), [2, 1]);
        assert_eq!(victims_of(turn(-1, 3, 0)), [2, 1, 0]);
        assert!(victims_of(turn(7, 3, 0)).is_empty(), "never by arrival");
    }

    #[test]
    fn age_takes_no_place_and_keeps_the_one_it_came_to() {
        let (mut low, mut old) = (turn(5, 0, 0), turn(1000, 1, 0));
        low.let_in(Mono(0), HALVING);
        assert!(victims(&old, [(low, 1)].into_iter()).is_empty());
        old.let_in(Mono::from_ms(20_000), HALVING);
        let class_0 = turn(0, 2, 20_000);
        assert_eq!(victims(&class_0, [(old, 1), (low, 1)].into_iter()), [1]);
        assert_eq!(victims(&turn(-1, 3, 0), [(old, 1)].into_iter()), [0]);
    }

    proptest! {
        /// One place, every request takes 300 ms of it, class 0 arrives faster than that, and the queue is bounded.
        #[test]
        fn a_low_class_starts_within_the_stated_bound(
            priority in 1i32..2_000, every_ms in 100u64..290, urgent_every in 5u64..20,
        ) {
            const QUEUE: usize = 16;
            const TAKES_MS: u64 = 300;
            let mut waiting = vec![turn(priority, 0, 0)];
            let mut running: Option<(Turn, u64)> = Some((turn(0, 0, 0), TAKES_MS));
            let mut started = None;
            let halvings = u64::from(priority.ilog2()) + 1;
            // Every urgent request on the way costs its own time as well.
            let line_ms = (QUEUE as u64 + 2) * TAKES_MS;
            let bound_ms = (halvings * 2_000 + line_ms) * urgent_every / (urgent_every - 4) + TAKES_MS;
            for ms in 1..bound_ms + 1 {
                let now = Mono::from_ms(ms);
                if ms % every_ms == 0 {
                    let class = if (ms / every_ms).is_multiple_of(urgent_every) { -1 } else { 0 };
                    if waiting.len() < QUEUE {
                        waiting.push(turn(class, ms, ms));
                    }
                }
                if let Some((_, left)) = &mut running {
                    *left -= 1;
                }
                if running.is_some_and(|(_, left)| left == 0) {
                    running = None;
                }
                if running.is_none() && let Some(at) = next(waiting.iter().copied(), now, HALVING) {
                    let mut turn = waiting.swap_remove(at);
                    turn.let_in(now, HALVING);
                    if turn.priority == priority {
                        started = Some(ms);
                        break;
                    }
                    running = Some((turn, TAKES_MS));
                }
            }
            prop_assert!(started.is_some(), "not within {bound_ms} ms");
        }

        /// Two that want one place, neither of which ever ends: it changes hands once, if at all.
        #[test]
        fn two_requests_do_not_push_each_other_out_in_turn(a in -9i32..2_000, b in -9i32..2_000) {
            let (mut inside, mut outside) = (turn(a, 0, 0), turn(b, 1, 0));
            inside.let_in(Mono(0), HALVING);
            let mut changes = 0;
            for ms in (0..120_000).step_by(100) {
                let now = Mono::from_ms(ms);
                if !victims(&outside, [(inside, 0)].into_iter()).is_empty() {
                    outside.let_in(now, HALVING);
                    inside.give_way(now);
                    std::mem::swap(&mut inside, &mut outside);
                    changes += 1;
                }
            }
            prop_assert_eq!(changes, i32::from(b < a));
        }
    }
}
