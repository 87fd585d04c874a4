//! Decides which frames are wanted, by time and never by count. Pure.

use crate::time::Pts;

/// Containers round times (Matroska to whole milliseconds): a frame this little early counts as on time.
const EARLY_MAX_US: f64 = 1_000.0;

/// Takes the first frame at or after each multiple of 1/fps.
#[derive(Debug)]
pub(super) struct Sampler {
    fps: f64,
    /// Index of the multiple that the next wanted frame belongs to.
    next: f64,
}

impl Sampler {
    /// `fps` of 0 (or anything that is not a positive number) takes nothing.
    pub(super) fn new(fps: f64) -> Self {
        Sampler { fps: if fps.is_finite() && fps > 0.0 { fps } else { 0.0 }, next: 0.0 }
    }

    /// Whether the frame at `pts` is wanted. Must be asked once for each frame, in order.
    pub(super) fn take(&mut self, pts: Pts) -> bool {
        if self.fps == 0.0 {
            return false;
        }
        let position = (pts.0 as f64 + EARLY_MAX_US) * self.fps / 1e6;
        if position < self.next {
            return false;
        }
        self.next = position.floor() + 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(fps: f64, times_ms: impl IntoIterator<Item = i64>) -> Vec<i64> {
        let mut sampler = Sampler::new(fps);
        times_ms.into_iter().filter(|ms| sampler.take(Pts::from_ms(*ms))).collect()
    }

    #[test]
    fn five_of_25_a_second() {
        assert_eq!(taken(5.0, (0..50).map(|i| i * 40)).len(), 10);
        assert_eq!(taken(5.0, (0..6).map(|i| i * 40)), [0, 200]);
    }

    #[test]
    fn every_frame_when_asked_for_the_source_rate() {
        assert_eq!(taken(25.0, (0..50).map(|i| i * 40)).len(), 50);
        // 30 fps in Matroska: 0, 33, 67, 100 …
        assert_eq!(taken(30.0, (0..90).map(|i| (i * 1000 + 15) / 30)).len(), 90);
    }

    #[test]
    fn a_long_gap_is_not_made_up_for() {
        assert_eq!(taken(5.0, [0, 40, 5_010, 5_050, 5_200]), [0, 5_010, 5_200]);
    }

    #[test]
    fn slower_than_a_frame_a_second() {
        assert_eq!(taken(0.5, (0..10).map(|i| i * 1_000)), [0, 2_000, 4_000, 6_000, 8_000]);
    }

    #[test]
    fn zero_takes_nothing() {
        for fps in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(taken(fps, [0, 40, 80]).is_empty());
        }
    }
}
