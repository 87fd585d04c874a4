//! Holds back pictures that can't be trusted: before the first keyframe, and from damage to the next keyframe.
//!
//! A lost reference smears every picture up to the next keyframe, long after the decoder stopped saying so.
//! Pure; times are raw presentation times of the track in microseconds.

/// A stream refreshed without keyframes (gradual refresh) is let through again after this much clean time.
const CLEAN_MAX_US: i64 = 10_000_000;
/// The same limit where pictures carry no time.
const CLEAN_MAX_FRAMES: u32 = 300;

/// What the decoder says of a picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Health {
    /// Decodable on its own.
    pub(super) key: bool,
    /// The decoder itself found damage in it.
    pub(super) damaged: bool,
    /// Presentation time, where there is one.
    pub(super) raw_us: Option<i64>,
}

/// The gate.
#[derive(Debug, Default)]
pub(super) struct DamageGate {
    open: bool,
    /// Presentation time of the newest damage: an earlier keyframe does not heal it.
    damage_us: Option<i64>,
    clean_since_us: Option<i64>,
    clean_frames: u32,
}

impl DamageGate {
    /// Whether pictures are being held back.
    pub(super) fn is_closed(&self) -> bool {
        !self.open
    }

    /// A packet was refused by the decoder or arrived incomplete.
    pub(super) fn packet_lost(&mut self, raw_us: Option<i64>) {
        self.open = false;
        self.damage_us = raw_us;
        self.clean_since_us = None;
        self.clean_frames = 0;
    }

    /// Whether this picture may be handed out.
    pub(super) fn admits(&mut self, picture: Health) -> bool {
        if picture.damaged {
            self.packet_lost(picture.raw_us);
            return false;
        }
        if !self.open && (self.heals(picture) || self.long_clean(picture.raw_us)) {
            self.open = true;
        }
        self.open
    }

    fn heals(&self, picture: Health) -> bool {
        let after = match (picture.raw_us, self.damage_us) {
            // Far before the damage: the clock was set back meanwhile.
            (Some(now), Some(damage)) => {
                now > damage || now < damage.saturating_sub(CLEAN_MAX_US)
            }
            _ => true,
        };
        picture.key && after
    }

    fn long_clean(&mut self, raw_us: Option<i64>) -> bool {
        self.clean_frames = self.clean_frames.saturating_add(1);
        let Some(now) = raw_us else {
            return self.clean_frames > CLEAN_MAX_FRAMES;
        };
        let since = *self.clean_since_us.get_or_insert(now);
        now.saturating_sub(since) > CLEAN_MAX_US && self.clean_frames > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(index: i64, key: bool) -> Health {
        Health { key, damaged: false, raw_us: Some(index * 40_000) }
    }

    #[test]
    fn nothing_before_the_first_keyframe() {
        let mut gate = DamageGate::default();
        assert!(!gate.admits(frame(0, false)));
        assert!(!gate.admits(frame(1, false)));
        assert!(gate.admits(frame(2, true)));
        assert!(gate.admits(frame(3, false)));
    }

    #[test]
    fn damage_lasts_until_a_later_keyframe() {
        let mut gate = DamageGate::default();
        assert!(gate.admits(frame(0, true)));
        // The packet of frame 5 is lost while keyframe 4 still waits in the decoder's reorder buffer.
        gate.packet_lost(Some(5 * 40_000));
        assert!(!gate.admits(frame(4, true)));
        assert!(!gate.admits(frame(6, false)));
        assert!(gate.admits(frame(7, true)));
    }

    #[test]
    fn damage_the_decoder_reports_closes_the_gate() {
        let mut gate = DamageGate::default();
        assert!(gate.admits(frame(0, true)));
        assert!(!gate.admits(Health { damaged: true, ..frame(1, false) }));
        assert!(!gate.admits(frame(2, false)));
        assert!(gate.admits(frame(3, true)));
    }

    #[test]
    fn gradual_refresh_is_let_through_in_the_end() {
        let mut gate = DamageGate::default();
        let admitted = (0..400).find(|i| gate.admits(frame(*i, false)));
        assert_eq!(admitted, Some(251));
    }

    #[test]
    fn pictures_without_time_heal_too() {
        let mut gate = DamageGate::default();
        let untimed = |key| Health { key, damaged: false, raw_us: None };
        assert!(gate.admits(untimed(true)));
        gate.packet_lost(None);
        assert!(!gate.admits(untimed(false)));
        assert!(gate.admits(untimed(true)));
    }

    #[test]
    fn a_clock_set_back_does_not_hold_pictures_for_ever() {
        let mut gate = DamageGate::default();
        gate.packet_lost(Some(36_000_000_000));
        assert!(gate.admits(frame(0, true)));
    }
}
