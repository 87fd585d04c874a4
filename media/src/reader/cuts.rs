//! Finds scene cuts from small grey pictures. Pure; `video` makes the pictures.
//!
//! A cut is a picture that differs much from the one before, and much more than pictures have differed lately:
//! the second half keeps camera pans and handheld shaking from counting.

use crate::time::Pts;

/// Width and height of the grey pictures.
pub(super) const GREY_SIZE: (u32, u32) = (48, 27);
/// Mean difference of grey levels (0..255) below which nothing is a cut.
const DIFFERENCE_MIN: f32 = 18.0;
/// How many times the recent mean difference a cut must reach.
const CONTRAST_MIN: f32 = 4.0;
/// Weight of the newest difference in the recent mean.
const RECENT_WEIGHT: f32 = 0.2;
/// Flashes and strobes would otherwise be a cut each.
const APART_MIN_US: i64 = 400_000;

/// Compares each picture with the one before.
#[derive(Debug, Default)]
pub(super) struct CutFinder {
    previous: Vec<u8>,
    recent: f32,
    last_cut: Option<Pts>,
}

impl CutFinder {
    /// Whether a new scene starts with this picture (`GREY_SIZE`, packed rows). The first picture is no cut.
    pub(super) fn is_cut(&mut self, pts: Pts, grey: &[u8]) -> bool {
        let comparable = self.previous.len() == grey.len() && !grey.is_empty();
        let difference = if comparable { mean_difference(&self.previous, grey) } else { 0.0 };
        let contrast = difference >= CONTRAST_MIN * self.recent.max(1.0);
        let apart = self.last_cut.is_none_or(|cut| pts - cut >= APART_MIN_US);
        let cut = difference >= DIFFERENCE_MIN && contrast && apart;
        if cut {
            self.last_cut = Some(pts);
        } else {
            self.recent += (difference - self.recent) * RECENT_WEIGHT;
        }
        self.previous.clear();
        self.previous.extend_from_slice(grey);
        cut
    }
}

fn mean_difference(a: &[u8], b: &[u8]) -> f32 {
    let sum: u64 = a.iter().zip(b).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    sum as f32 / a.len() as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A diagonal gradient moved by `shift`, brightness `base`.
    fn picture(base: u8, shift: usize) -> Vec<u8> {
        let (w, h) = (GREY_SIZE.0 as usize, GREY_SIZE.1 as usize);
        (0..w * h).map(|i| base.wrapping_add(((i % w + i / w + shift) % 64) as u8)).collect()
    }

    fn cuts(pictures: impl IntoIterator<Item = Vec<u8>>) -> Vec<usize> {
        let mut finder = CutFinder::default();
        let found = pictures.into_iter().enumerate().filter_map(|(i, picture)| {
            finder.is_cut(Pts::from_ms(i as i64 * 40), &picture).then_some(i)
        });
        found.collect()
    }

    #[test]
    fn one_change_of_scene_is_one_cut() {
        let scenes = (0..60).map(|i| picture(if i < 30 { 20 } else { 150 }, i));
        assert_eq!(cuts(scenes), [30]);
    }

    #[test]
    fn steady_motion_is_no_cut() {
        assert!(cuts((0..60).map(|i| picture(20, i * 7))).is_empty());
    }

    #[test]
    fn strobe_light_is_not_a_cut_for_each_flash() {
        let flashes = cuts((0..100).map(|i| picture(if i % 2 == 0 { 10 } else { 180 }, 0)));
        assert!(flashes.len() <= 2, "{flashes:?}");
    }
}
