//! Picks frames by time: the first one at or after each multiple of 1/fps. Pure.

use media::Frame;

#[derive(Clone, Debug)]
pub(super) struct Thinner {
    /// None: every frame.
    fps: Option<f64>,
    slot: Option<i64>,
}

impl Thinner {
    pub(super) fn new(fps: Option<f64>) -> Self {
        Thinner { fps, slot: None }
    }

    /// A scene cut is always wanted.
    pub(super) fn wants(&mut self, frame: &Frame) -> bool {
        let Some(fps) = self.fps else { return true };
        // A microsecond of tolerance: 0.2 s is 200000 us, and 5 x 0.2 is not quite 1.
        let slot = ((frame.pts.0 + 1) as f64 * fps / 1e6).floor() as i64;
        if self.slot.is_some_and(|last| slot <= last) && !frame.cut {
            return false;
        }
        self.slot = Some(slot);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use media::{Mono, Pts};

    #[test]
    fn takes_by_time_never_by_counting() {
        let frame = |us| Frame {
            pts: Pts(us),
            arrival: Mono(0),
            width: 1,
            height: 1,
            pixels: bytes::Bytes::from_static(&[0; 3]),
            cut: false,
        };
        let mut thin = Thinner::new(Some(2.0));
        // Bursts and holes: variable frame rate.
        let taken: Vec<i64> = [0, 40_000, 80_000, 510_000, 530_000, 990_000, 1_000_000, 3_100_000]
            .into_iter()
            .filter(|us| thin.wants(&frame(*us)))
            .collect();
        assert_eq!(taken, [0, 510_000, 1_000_000, 3_100_000]);
    }
}
