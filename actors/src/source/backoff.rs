//! How long to wait before a lost source is tried again. Pure; jitter comes from the stream's name.

use std::time::Duration;

use media::MediaError;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// A camera that refuses a password locks the account when asked too often: at most 6 tries a minute.
const REFUSED: Duration = Duration::from_secs(10);

/// Capped exponential delays.
#[derive(Debug)]
pub(crate) struct Backoff {
    attempt: u32,
    noise: u64,
}

impl Backoff {
    pub(crate) fn new(name: &str) -> Self {
        // FNV-1a: fifty cameras of one switch must not come back in step.
        let noise = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
        });
        Backoff { attempt: 0, noise: noise | 1 }
    }

    /// Something was read: the next loss starts over.
    pub(crate) fn reset(&mut self) {
        self.attempt = 0;
    }

    pub(crate) fn next(&mut self, error: &MediaError) -> Duration {
        self.noise = self.noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let base = FIRST.saturating_mul(1 << self.attempt.min(5)).min(LONGEST);
        let base = match error {
            MediaError::Unauthorized { .. } => base.max(REFUSED),
            _ => base,
        };
        self.attempt = self.attempt.saturating_add(1);
        // Up to a quarter longer, never shorter: a limit stays a limit.
        base + base.mul_f64((self.noise >> 40) as f64 / f64::from(1 << 24) / 4.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost() -> MediaError {
        MediaError::Disconnected { uri: "rtsp://cam".into(), detail: "closed".into() }
    }

    #[test]
    fn grows_is_capped_and_starts_over() {
        let mut backoff = Backoff::new("lobby");
        let waits: Vec<Duration> = (0..10).map(|_| backoff.next(&lost())).collect();
        assert!(waits[0] >= FIRST && waits[0] <= FIRST.mul_f64(1.25));
        assert!(waits.iter().all(|w| *w <= LONGEST.mul_f64(1.25)));
        assert!(waits[9] >= LONGEST);
        backoff.reset();
        assert!(backoff.next(&lost()) < Duration::from_secs(2));
    }

    #[test]
    fn a_refused_password_is_tried_at_most_six_times_a_minute() {
        let mut backoff = Backoff::new("lobby");
        for _ in 0..10 {
            let wait = backoff.next(&MediaError::Unauthorized { uri: "rtsp://cam".into() });
            assert!(wait >= Duration::from_secs(10));
        }
    }
}
