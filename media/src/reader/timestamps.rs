//! Turns the times a container claims into media time that can be trusted.
//!
//! One [`Timeline`] per source holds what its tracks share (zero, and the shifts made at clock jumps); one
//! [`TrackClock`] per track holds where that track is. Works on microseconds in output order, reads no clock.
//! Its one rule: the times of a track never go back, and healthy times keep their differences.

use std::collections::VecDeque;

use crate::time::Pts;

/// MPEG-TS and MPEG-PS count 33 bits of 90 kHz: they start again after 26.5 hours.
const WRAP_US: i64 = 95_443_717_689;
/// A step back up to this is jitter and waits until time catches up; beyond it the clock was set back.
const BACK_MAX_US: i64 = 500_000;
/// A file may pause this long (a frame every half minute, a night without motion); beyond it its clock jumped.
const FORWARD_MAX_FILE_US: i64 = 3_600_000_000;
/// A live clock may run ahead of the arrivals by this; beyond it the camera's clock jumped.
const FORWARD_MAX_LIVE_US: i64 = 10_000_000;
/// Two tracks saw the same jump when this shift of one puts the other within this of where it is expected.
const SAME_JUMP_US: i64 = 2_000_000;
/// A track that starts further than this before zero is worth a note.
const NEGATIVE_NOTED_US: i64 = 100_000;
/// Frames whose times went back are put so far behind each other: still apart in milliseconds.
const APART_US: i64 = 1_000;
/// A distance between frames is learned from their times up to this.
const STEP_LEARNED_MAX_US: i64 = 500_000;
/// No stall is longer than this: the read limit ends it before.
const ELAPSED_MAX_US: i64 = 86_400_000_000;
/// Shifts that are remembered: a clock that alternates between more than these is re-anchored each time.
const SHIFTS_MAX: usize = 8;
/// No container's time is beyond this (about 36,000 years); keeps sums far from overflow.
const RAW_MAX_US: i64 = i64::MAX / 8;

/// What had to be repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fix {
    /// There was no time: it was made from the track's rate.
    Missing,
    /// The time was before the source's start.
    Negative,
    /// The time was not later than the one before.
    Backward,
    /// The clock jumped by this many microseconds; times go on without the jump.
    Jump(i64),
}

/// A repaired time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) pts: Pts,
    pub(super) fix: Option<Fix>,
}

/// One time as the container claims it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// Microseconds on the source's own clock; none when it says nothing.
    pub(super) raw_us: Option<i64>,
    /// Length of this frame in microseconds, 0 when unknown.
    pub(super) duration_us: i64,
    /// Microseconds between the arrivals of this and the previous frame of the track; counts for live sources.
    pub(super) elapsed_us: i64,
}

/// What all tracks of a source share.
#[derive(Debug)]
pub(super) struct Timeline {
    live: bool,
    zero: Option<i64>,
    /// Newest last; added to `raw - zero`.
    shifts: VecDeque<i64>,
    /// The newest media time over all tracks.
    head: i64,
}

/// Where one track is.
#[derive(Clone, Debug)]
pub(super) struct TrackClock {
    shift: i64,
    last_raw: Option<i64>,
    last_out: Option<i64>,
    /// Expected distance to the next frame.
    step: i64,
}

impl Timeline {
    /// `start_us` is the earliest start over the active tracks where the container knows it; otherwise the
    /// first time that is placed becomes zero.
    pub(super) fn new(live: bool, start_us: Option<i64>) -> Self {
        let zero = start_us.map(|us| us.clamp(-RAW_MAX_US, RAW_MAX_US));
        Timeline { live, zero, shifts: VecDeque::from([0]), head: 0 }
    }

    /// Places the next frame of a track.
    pub(super) fn place(&mut self, track: &mut TrackClock, claim: Claim) -> Placed {
        let placed = match claim.raw_us {
            Some(raw) => self.place_timed(track, raw.clamp(-RAW_MAX_US, RAW_MAX_US), claim),
            None => {
                let pts = track.expected();
                // The source's clock is taken to have gone on by as much.
                track.last_raw = track.last_raw.map(|raw| raw + track.step);
                Placed { pts: Pts(pts), fix: Some(Fix::Missing) }
            }
        };
        track.last_out = Some(placed.pts.0);
        if (1..=FORWARD_MAX_FILE_US).contains(&claim.duration_us) {
            track.step = claim.duration_us;
        }
        self.head = self.head.max(placed.pts.0);
        placed
    }

    /// Where a time would lie by the newest shift, for what only reports progress or rides along (subtitles).
    /// None before anything was placed, and while the tracks disagree by hours (a clock jump passes through them).
    pub(super) fn map(&self, raw_us: i64) -> Option<Pts> {
        let raw = raw_us.clamp(-RAW_MAX_US, RAW_MAX_US);
        let out = raw - self.zero? + self.newest_shift();
        ((out - self.head).abs() <= FORWARD_MAX_FILE_US).then_some(Pts(out.max(0)))
    }

    fn place_timed(&mut self, track: &mut TrackClock, raw: i64, claim: Claim) -> Placed {
        let expected = track.expected();
        let zero = *self.zero.get_or_insert(raw - expected);
        let (base, jump) = match track.last_raw {
            None => {
                track.shift = self.newest_shift();
                let out = raw - zero + track.shift;
                let off = out - self.head;
                // A late start is the source's own business; a start hours away is another clock.
                let odd = off > self.forward_max(0) || off < -self.forward_max(0);
                (out, odd.then_some(off))
            }
            Some(last) => {
                let delta = raw - last;
                let jumped = delta < -BACK_MAX_US || delta > self.forward_max(claim.elapsed_us);
                if claim.duration_us <= 0 && (1..=STEP_LEARNED_MAX_US).contains(&delta) {
                    track.step = delta;
                }
                (raw - zero + track.shift, jumped.then_some(delta))
            }
        };
        track.last_raw = Some(raw);
        let Some(jump) = jump else {
            return settle(track, base);
        };
        // Against where the track, or for its first frame the source, ought to be.
        let target = if track.last_out.is_some() { expected } else { self.head };
        for wrap in [WRAP_US, -WRAP_US] {
            let off = base + wrap - target;
            if (-BACK_MAX_US..=self.forward_max(claim.elapsed_us)).contains(&off) {
                self.adopt(track, track.shift + wrap);
                return settle(track, base + wrap);
            }
        }
        let near = |shift: &i64| (raw - zero + shift - target).abs() <= SAME_JUMP_US;
        let known = self.shifts.iter().rev().copied().find(near);
        let shift = known.unwrap_or(target - (raw - zero));
        self.adopt(track, shift);
        let mut placed = settle(track, raw - zero + shift);
        placed.fix = Some(Fix::Jump(jump));
        placed
    }

    fn adopt(&mut self, track: &mut TrackClock, shift: i64) {
        track.shift = shift;
        self.shifts.retain(|known| *known != shift);
        self.shifts.push_back(shift);
        if self.shifts.len() > SHIFTS_MAX {
            self.shifts.pop_front();
        }
    }

    fn newest_shift(&self) -> i64 {
        self.shifts.back().copied().unwrap_or(0)
    }

    fn forward_max(&self, elapsed_us: i64) -> i64 {
        if self.live {
            FORWARD_MAX_LIVE_US + elapsed_us.clamp(0, ELAPSED_MAX_US)
        } else {
            FORWARD_MAX_FILE_US
        }
    }
}

impl TrackClock {
    /// `step_us` is the distance of two frames that the container declares, used where times are missing.
    pub(super) fn new(step_us: i64) -> Self {
        let step = if step_us > 0 { step_us.min(FORWARD_MAX_FILE_US) } else { 40_000 };
        TrackClock { shift: 0, last_raw: None, last_out: None, step }
    }

    /// The newest time that was handed out.
    pub(super) fn last(&self) -> Option<Pts> {
        self.last_out.map(Pts)
    }

    fn expected(&self) -> i64 {
        self.last_out.map_or(0, |out| out + self.step)
    }
}

/// Keeps `out` behind the track's last time and not before zero.
fn settle(track: &TrackClock, out: i64) -> Placed {
    match track.last_out {
        Some(last) if out <= last => Placed { pts: Pts(last + APART_US), fix: Some(Fix::Backward) },
        None if out < 0 => {
            Placed { pts: Pts::ZERO, fix: (out < -NEGATIVE_NOTED_US).then_some(Fix::Negative) }
        }
        _ => Placed { pts: Pts(out), fix: None },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR_US: i64 = 3_600_000_000;

    fn claim(raw_us: i64) -> Claim {
        Claim { raw_us: Some(raw_us), duration_us: 40_000, elapsed_us: 40_000 }
    }

    fn run(live: bool, raws: impl IntoIterator<Item = Option<i64>>) -> Vec<Placed> {
        let (mut timeline, mut track) = (Timeline::new(live, None), TrackClock::new(40_000));
        raws.into_iter()
            .map(|raw_us| timeline.place(&mut track, Claim { raw_us, ..claim(0) }))
            .collect()
    }

    #[test]
    fn camera_clock_falls_back_by_hours_and_comes_back() {
        let raws = [10 * HOUR_US, 10 * HOUR_US + 40_000, 7 * HOUR_US, 7 * HOUR_US + 40_000];
        let placed = run(false, raws.into_iter().chain([10 * HOUR_US + 160_000]).map(Some));
        let times: Vec<i64> = placed.iter().map(|p| p.pts.0).collect();
        assert_eq!(times, [0, 40_000, 80_000, 120_000, 160_000]);
        assert_eq!(placed[2].fix, Some(Fix::Jump(-3 * HOUR_US - 40_000)));
        assert_eq!(placed[3].fix, None);
    }

    #[test]
    fn sound_follows_the_jump_that_the_picture_saw() {
        let mut timeline = Timeline::new(false, Some(0));
        let (mut video, mut audio) = (TrackClock::new(40_000), TrackClock::new(21_333));
        timeline.place(&mut video, claim(0));
        timeline.place(&mut audio, claim(10_000));
        timeline.place(&mut video, claim(5 * HOUR_US));
        let after = timeline.place(&mut audio, claim(5 * HOUR_US + 10_000));
        let picture = timeline.place(&mut video, claim(5 * HOUR_US + 40_000));
        assert_eq!(picture.pts.0 - after.pts.0, 30_000, "offset of the tracks is kept");
    }

    #[test]
    fn wrap_of_33_bits_is_no_jump() {
        let placed = run(false, [WRAP_US - 40_000, 0, 40_000].map(Some));
        assert_eq!(placed.iter().map(|p| p.pts.0).collect::<Vec<_>>(), [0, 40_000, 80_000]);
        assert!(placed.iter().all(|p| p.fix.is_none()));
    }

    #[test]
    fn no_time_at_all_counts_by_the_rate() {
        let placed = run(false, [None, None, None]);
        assert_eq!(placed.iter().map(|p| p.pts.0).collect::<Vec<_>>(), [0, 40_000, 80_000]);
        assert!(placed.iter().all(|p| p.fix == Some(Fix::Missing)));
    }

    #[test]
    fn live_frames_without_time_at_first_stay_in_line() {
        let placed = run(true, [None, None, Some(7_000_000), Some(7_040_000)]);
        let times: Vec<i64> = placed.iter().map(|p| p.pts.0).collect();
        assert_eq!(times, [0, 40_000, 80_000, 120_000]);
    }

    #[test]
    fn a_step_back_of_61_ms_waits_for_time_to_catch_up() {
        let raws = (0..5).map(|i| i * 40_000).chain((0..5).map(|i| 160_000 - 61_000 + i * 40_000));
        let placed = run(true, raws.map(Some));
        assert!(placed.windows(2).all(|w| w[0].pts < w[1].pts));
        assert_eq!(placed[9].pts.0, 160_000 - 61_000 + 160_000, "back on the source's own time");
        assert!(placed.iter().all(|p| !matches!(p.fix, Some(Fix::Jump(_)))));
    }

    #[test]
    fn late_track_keeps_its_offset() {
        let mut timeline = Timeline::new(false, Some(100_000_000));
        let (mut video, mut audio) = (TrackClock::new(40_000), TrackClock::new(21_333));
        assert_eq!(timeline.place(&mut video, claim(100_000_000)).pts, Pts(0));
        assert_eq!(timeline.place(&mut audio, claim(101_454_000)).pts, Pts(1_454_000));
    }

    #[test]
    fn a_stall_of_a_live_source_is_no_jump() {
        let (mut timeline, mut track) = (Timeline::new(true, None), TrackClock::new(40_000));
        timeline.place(&mut track, claim(0));
        let stalled = Claim { elapsed_us: 25_000_000, ..claim(25_000_000) };
        assert_eq!(timeline.place(&mut track, stalled), Placed { pts: Pts(25_000_000), fix: None });
        let jumped = timeline.place(&mut track, claim(50_000_000));
        assert_eq!(jumped.pts, Pts(25_040_000));
    }

    fn any_raw() -> impl Strategy<Value = Option<i64>> {
        prop_oneof![
            1 => Just(None),
            4 => (-2_000_000i64..30_000_000).prop_map(Some),
            2 => any::<i64>().prop_map(Some),
            1 => prop_oneof![Just(WRAP_US), Just(-WRAP_US), Just(i64::MIN), Just(i64::MAX)].prop_map(Some),
        ]
    }

    proptest! {
        #[test]
        fn never_goes_back(
            live: bool,
            start in proptest::option::of(any::<i64>()),
            claims in proptest::collection::vec(
                (any::<bool>(), any_raw(), prop_oneof![0i64..100_000, any::<i64>()], any::<i64>()), 1..200),
        ) {
            let mut timeline = Timeline::new(live, start);
            let mut tracks = [TrackClock::new(40_000), TrackClock::new(0)];
            for (which, raw_us, duration_us, elapsed_us) in claims {
                let track = &mut tracks[usize::from(which)];
                let before = track.last();
                let placed = timeline.place(track, Claim { raw_us, duration_us, elapsed_us });
                prop_assert!(placed.pts >= Pts::ZERO);
                prop_assert!(before.is_none_or(|b| b < placed.pts));
                prop_assert_eq!(track.last(), Some(placed.pts));
            }
        }

        #[test]
        fn healthy_times_keep_their_differences(
            live: bool,
            start in -1_000_000_000_000i64..1_000_000_000_000,
            steps in proptest::collection::vec(1i64..10_000_000, 1..100),
        ) {
            let mut raw = start;
            let mut raws = vec![raw];
            for step in steps {
                raw += step;
                raws.push(raw);
            }
            let placed = run(live, raws.iter().copied().map(Some));
            for (raw, placed) in raws.iter().zip(placed) {
                prop_assert_eq!(placed, Placed { pts: Pts(raw - start), fix: None });
            }
        }
    }
}
