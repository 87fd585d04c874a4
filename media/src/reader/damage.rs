//! Holds back pictures that can't be trusted: before the first keyframe, and from damage to the next keyframe.
//!
//! A lost reference smears every picture up to the next keyframe, long after the decoder stopped saying so.
//! Pure. Pictures and damage are compared in decoding order (the number of their packet), because pictures that
//! were decoded before a loss still leave the decoder after it.
//!
//! It sees what demuxer and decoder report. Damage that neither notices (a changed byte in HEVC without picture
//! hashes, a whole picture lost over RTP) passes.

use std::ops::Range;

/// A stream refreshed without keyframes (gradual refresh) is let through after this many clean pictures.
const CLEAN_MAX: u32 = 250;
/// Packets between the one that is marked and the keyframe behind a seam.
const SEAM_MAX: u64 = 3;

/// What is known of a picture that left the decoder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Health {
    /// Decodable on its own.
    pub(super) key: bool,
    /// The decoder itself found damage in it.
    pub(super) damaged: bool,
    /// Number of its packet; none for a picture that can't be told apart (no time).
    pub(super) order: Option<u64>,
    /// Number of the newest packet.
    pub(super) newest: u64,
}

/// The gate.
#[derive(Debug, Default)]
pub(super) struct DamageGate {
    /// Pictures from this packet on are good.
    good_from: Option<u64>,
    /// Good pictures of before the newest damage, some of which may still be in the decoder.
    good_before: Range<u64>,
    /// The newest damage: only a keyframe after it heals.
    damage: Option<u64>,
    near: Option<u64>,
    clean: u32,
}

impl DamageGate {
    /// Whether pictures that are yet to be decoded will be held back.
    pub(super) fn is_closed(&self) -> bool {
        self.good_from.is_none()
    }

    /// Packet `order` never became a whole picture.
    pub(super) fn lost(&mut self, order: u64) {
        self.close(order, order);
    }

    /// Something is missing at packet `order` or after it: whether the packet itself is whole, the decoder tells.
    /// A keyframe starts anew.
    pub(super) fn lost_near(&mut self, order: u64) {
        self.close(order.saturating_sub(1), order.saturating_add(1));
        self.near = Some(order);
    }

    /// Packet `order` is a keyframe. Soon after `lost_near` it is a seam where one recording follows another, not
    /// a loss: a demuxer and its parser are a little ahead of the packet that they mark.
    pub(super) fn keyframe(&mut self, order: u64) {
        let seam = self.near.take().is_some_and(|near| order.saturating_sub(near) <= SEAM_MAX);
        if seam && !self.good_before.is_empty() {
            self.good_before.end = self.good_before.end.max(order);
        }
    }

    /// A keyframe was decoded that the container wants not shown (the run-up to an edited start).
    pub(super) fn unseen_keyframe(&mut self, order: u64) {
        if self.is_closed() && self.heals(order) {
            self.good_from = Some(order);
        }
    }

    /// Whether this picture may be handed out.
    pub(super) fn admits(&mut self, picture: Health) -> bool {
        let Health { key, damaged, order, newest } = picture;
        if damaged {
            self.lost(order.unwrap_or(newest));
            return false;
        }
        let before = order.is_some_and(|order| self.good_before.contains(&order));
        if self.is_closed() && (key || !before) {
            self.clean = self.clean.saturating_add(1);
            if (key && self.heals(order.unwrap_or(newest))) || self.clean > CLEAN_MAX {
                // Of a keyframe that can't be told apart only this is known: it comes after the damage.
                let earliest = self.damage.map_or(0, |damage| damage.saturating_add(1));
                self.good_from = Some(order.unwrap_or(earliest));
            }
        }
        before || self.good_from.is_some_and(|from| order.is_none_or(|order| from <= order))
    }

    fn heals(&self, order: u64) -> bool {
        self.damage.is_none_or(|damage| damage < order)
    }

    fn close(&mut self, damage: u64, good_until: u64) {
        if let Some(from) = self.good_from.take() {
            self.good_before = from..good_until;
        } else {
            self.good_before.end = self.good_before.end.min(good_until);
        }
        self.damage = self.damage.max(Some(damage));
        self.near = None;
        self.clean = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(order: u64, key: bool) -> Health {
        Health { key, damaged: false, order: Some(order), newest: order }
    }

    #[test]
    fn nothing_before_the_first_keyframe() {
        let mut gate = DamageGate::default();
        assert!(!gate.admits(picture(0, false)));
        assert!(!gate.admits(picture(1, false)));
        assert!(gate.admits(picture(2, true)));
        assert!(gate.admits(picture(3, false)));
    }

    #[test]
    fn a_keyframe_from_before_the_damage_heals_nothing() {
        let mut gate = DamageGate::default();
        assert!(gate.admits(picture(0, true)));
        // Packet 5 is lost while pictures 3 and 4 still wait in the decoder.
        gate.lost(5);
        assert!(gate.admits(picture(4, true)));
        assert!(gate.admits(picture(3, false)));
        assert!(!gate.admits(picture(6, false)));
        assert!(gate.admits(picture(7, true)));
        assert!(gate.admits(picture(8, false)));
    }

    #[test]
    fn damage_the_decoder_reports_closes_the_gate() {
        let mut gate = DamageGate::default();
        assert!(gate.admits(picture(0, true)));
        assert!(!gate.admits(Health { damaged: true, ..picture(2, false) }));
        assert!(gate.admits(picture(1, false)));
        assert!(!gate.admits(picture(3, false)));
        assert!(gate.admits(picture(4, true)));
    }

    #[test]
    fn files_put_end_to_end_lose_nothing() {
        let mut gate = DamageGate::default();
        assert!(gate.admits(picture(0, true)));
        // The transport stream's counter breaks at the seam before keyframe 4.
        gate.lost_near(2);
        gate.keyframe(4);
        assert!(gate.admits(picture(3, false)));
        assert!(gate.admits(picture(2, false)));
        assert!(gate.admits(picture(4, true)));
        assert!(gate.admits(picture(6, false)));
    }

    #[test]
    fn what_follows_a_loss_is_held_back() {
        let mut gate = DamageGate::default();
        assert!(gate.admits(picture(0, true)));
        gate.lost_near(2);
        assert!(gate.admits(picture(2, false)), "the decoder found it whole");
        assert!(!gate.admits(picture(3, false)));
        gate.keyframe(9);
        assert!(!gate.admits(picture(8, false)));
        assert!(gate.admits(picture(9, true)));
    }

    #[test]
    fn pictures_without_time_pass_after_a_keyframe() {
        let untimed = |key, newest| Health { key, damaged: false, order: None, newest };
        let mut gate = DamageGate::default();
        assert!(gate.admits(untimed(true, 3)));
        assert!(gate.admits(picture(2, false)), "decoded after the keyframe, read before packet 3");
        gate.lost(4);
        assert!(!gate.admits(untimed(true, 4)), "may be from before the damage");
        assert!(!gate.admits(untimed(false, 5)));
        assert!(gate.admits(untimed(true, 6)));
        assert!(gate.admits(untimed(false, 7)));
    }

    #[test]
    fn leading_pictures_of_a_healing_keyframe_stay_back() {
        let mut gate = DamageGate::default();
        gate.lost(2);
        // Keyframe 3 is shown after 4, which also refers to pictures before 3.
        assert!(!gate.admits(picture(4, false)));
        assert!(gate.admits(picture(3, true)));
        assert!(gate.admits(picture(5, false)));
    }

    #[test]
    fn gradual_refresh_is_let_through_in_the_end() {
        let mut gate = DamageGate::default();
        let admitted = (0..400).find(|i| gate.admits(picture(*i, false)));
        assert_eq!(admitted, Some(u64::from(CLEAN_MAX)));
    }

    #[test]
    fn an_edited_start_needs_no_keyframe_of_its_own() {
        let mut gate = DamageGate::default();
        gate.unseen_keyframe(0);
        assert!(gate.admits(picture(25, false)));
    }
}
