//! Limits that I/O can't exceed: ffmpeg asks the [`Guard`] many times a second whether to give up.
//!
//! Once it has said yes it says yes for ever: a demuxer that is interrupted once may hand out a last frame and
//! call again, which would otherwise start the wait anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crate::source::Cancel;
use crate::time::Clock;

/// Why a blocking call was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Somebody asked.
    Cancelled,
    /// The limit passed.
    TimedOut,
}

const NONE: u8 = 0;
const CANCELLED: u8 = 1;
const TIMED_OUT: u8 = 2;

/// Shared by a reader and the callbacks of its input.
pub(super) struct Guard {
    clock: Arc<dyn Clock>,
    cancel: Cancel,
    deadline_us: AtomicU64,
    stopped: AtomicU8,
}

impl Guard {
    /// Nothing is limited until [`Guard::arm`].
    pub(super) fn new(clock: Arc<dyn Clock>, cancel: Cancel) -> Arc<Self> {
        let deadline_us = AtomicU64::new(u64::MAX);
        Arc::new(Guard { clock, cancel, deadline_us, stopped: AtomicU8::new(NONE) })
    }

    /// What happens from now on must be over after `limit`.
    pub(super) fn arm(&self, limit: Duration) {
        self.deadline_us.store((self.clock.now() + limit).0, Ordering::Relaxed);
    }

    /// Whether a blocking call must return at once.
    pub(super) fn must_stop(&self) -> bool {
        if self.stop().is_some() {
            return true;
        }
        let stop = if self.cancel.is_cancelled() {
            CANCELLED
        } else if self.clock.now().0 > self.deadline_us.load(Ordering::Relaxed) {
            TIMED_OUT
        } else {
            return false;
        };
        self.stopped.store(stop, Ordering::Relaxed);
        true
    }

    /// Why, once [`Guard::must_stop`] has said so.
    pub(super) fn stop(&self) -> Option<Stop> {
        match self.stopped.load(Ordering::Relaxed) {
            CANCELLED => Some(Stop::Cancelled),
            TIMED_OUT => Some(Stop::TimedOut),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Mono;

    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> Mono {
            Mono(self.0.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn a_limit_that_passed_stays_passed() {
        let hand = Arc::new(Hand(AtomicU64::new(0)));
        let guard = Guard::new(hand.clone(), Cancel::new());
        guard.arm(Duration::from_millis(5));
        assert!(!guard.must_stop());
        hand.0.store(5_001, Ordering::Relaxed);
        assert!(guard.must_stop());
        guard.arm(Duration::from_secs(60));
        assert!(guard.must_stop());
        assert_eq!(guard.stop(), Some(Stop::TimedOut));
    }

    #[test]
    fn cancelling_stops_without_a_limit() {
        let cancel = Cancel::new();
        let guard = Guard::new(Arc::new(Hand(AtomicU64::new(0))), cancel.clone());
        assert!(!guard.must_stop());
        cancel.cancel();
        assert!(guard.must_stop());
        assert_eq!(guard.stop(), Some(Stop::Cancelled));
    }
}
