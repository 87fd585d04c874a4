//! What a user should know of a source, each kind said once.

use std::collections::{BTreeSet, VecDeque};

use crate::source::{TrackKind, Unit};

/// Kinds of note. Each is said at most once for each track, a clock jump once for the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Note {
    /// There are no times: they are made from the rate.
    SyntheticTimes,
    /// Times before the start.
    NegativeTimes,
    /// Times that went back a little.
    BackwardTimes,
    /// The clock jumped.
    ClockJump,
    /// Nothing is shown before the first keyframe.
    AwaitingKeyframe,
    /// Pictures are withheld because of damage.
    Damage,
    /// The decoder refused packets.
    BadPackets,
    /// The demuxer skipped bytes it could not read.
    BadBytes,
    /// Sound was missing for a while.
    SoundGap,
    /// The track can't be used.
    Unusable,
    /// A rotation that is no multiple of 90 degrees.
    OddRotation,
    /// Picture size or sound format changed.
    FormatChange,
}

/// Units waiting to be handed out, notes among them. Bounded by what one packet (or draining a decoder) yields;
/// the reader takes the next packet only when it is empty.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    units: VecDeque<Unit>,
    said: BTreeSet<(Note, TrackKind)>,
}

impl Outbox {
    pub(super) fn push(&mut self, unit: Unit) {
        self.units.push_back(unit);
    }

    pub(super) fn pop(&mut self) -> Option<Unit> {
        self.units.pop_front()
    }

    /// Says `text` if nothing of this kind was said of this track yet.
    pub(super) fn note(&mut self, kind: Note, track: TrackKind, text: impl FnOnce() -> String) {
        // All tracks of a source share its clock.
        let (track, name) = match track {
            _ if kind == Note::ClockJump => (TrackKind::Video, "source"),
            _ => (track, track.name()),
        };
        if self.said.insert((kind, track)) {
            self.push(Unit::Note(format!("{name}: {}", text())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_said_once_for_each_track() {
        let mut outbox = Outbox::default();
        for track in [TrackKind::Video, TrackKind::Video, TrackKind::Audio] {
            outbox.note(Note::SoundGap, track, || "gap".to_owned());
            outbox.note(Note::ClockJump, track, || "jumped".to_owned());
        }
        let said: Vec<String> = std::iter::from_fn(|| outbox.pop())
            .filter_map(|unit| match unit {
                Unit::Note(text) => Some(text),
                _ => None,
            })
            .collect();
        assert_eq!(said, ["video: gap", "source: jumped", "audio: gap"]);
    }
}
