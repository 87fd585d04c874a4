use std::collections::BTreeSet;
use std::time::Duration;

use media::{Mono, Pts, TrackKind};
use proptest::prelude::*;

use super::{Seal, Sealer, SealerEvent, SealerSettings};
use crate::stages::WindowLength;

const VIDEO: TrackKind = TrackKind::Video;
const AUDIO: TrackKind = TrackKind::Audio;

fn settings(paced: bool) -> SealerSettings {
    SealerSettings {
        length: WindowLength::Fixed(Duration::from_secs(1)),
        clip_max: Duration::from_secs(60),
        paced,
        seal_grace: Duration::from_millis(200),
        track_idle: Duration::from_secs(2),
        skew_max: Duration::from_secs(10),
        budget: Duration::from_millis(500),
        decode_delay: Duration::ZERO,
        clip_budget: None,
    }
}

fn ms(ms: u64) -> Mono {
    Mono::from_ms(ms)
}

fn at(ms: i64) -> Pts {
    Pts::from_ms(ms)
}

fn drain(sealer: &mut Sealer) -> Vec<SealerEvent> {
    std::iter::from_fn(|| sealer.next_event()).collect()
}

fn seals(sealer: &mut Sealer) -> Vec<Seal> {
    drain(sealer)
        .into_iter()
        .map(|event| match event {
            SealerEvent::Sealed(seal) => seal,
            SealerEvent::Skipped { from, to } => panic!("skipped {from}..={to}"),
        })
        .collect()
}

#[test]
fn sealed_when_the_slower_track_is_past_the_end() {
    let mut sealer = Sealer::new(settings(true), ms(0));
    sealer.track_started(VIDEO, ms(0));
    sealer.track_started(AUDIO, ms(0));
    sealer.delivered(AUDIO, at(0), ms(100), ms(100));
    sealer.delivered(VIDEO, at(0), ms(110), ms(110));
    sealer.delivered(VIDEO, at(1_000), ms(1_105), ms(1_105));
    assert_eq!(drain(&mut sealer), []);
    sealer.delivered(AUDIO, at(1_010), ms(1_120), ms(1_120));
    let [seal] = seals(&mut sealer)[..] else { panic!("one window") };
    assert_eq!((seal.window.index, seal.window.start_ms, seal.window.end_ms), (0, 0, 1_000));
    assert_eq!(seal.sealed_at, ms(1_120));
    assert_eq!(seal.air_end, Some(ms(1_100)), "the smallest arrival - pts is 100 ms");
    assert_eq!(seal.deadline, Some(ms(1_600)), "budget after the end was on air");
}

#[test]
fn the_budget_binds_latency_and_age_but_leaves_time_to_answer() {
    let deadline = |decode_delay, grace| {
        let mut late = settings(true);
        late.decode_delay = Duration::from_millis(decode_delay);
        late.seal_grace = Duration::from_millis(grace);
        let mut sealer = Sealer::new(late, ms(0));
        sealer.delivered(VIDEO, at(0), ms(0), ms(0));
        let hint = sealer.deadline_hint(0);
        sealer.tick(ms(2_000));
        let seal = seals(&mut sealer)[0];
        assert_eq!(seal.deadline, hint, "known before the seal");
        seal.deadline
    };
    assert_eq!(deadline(0, 200), Some(ms(1_500)), "500 ms after its end");
    assert_eq!(deadline(100, 200), Some(ms(1_600)), "the decoder's delay doesn't count");
    assert_eq!(deadline(900, 200), Some(ms(1_700)), "500 ms after the seal");
    assert_eq!(deadline(0, 600), Some(ms(1_850)), "half of it is left");
}

#[test]
fn a_silent_but_connected_source_is_sealed_by_grace() {
    let mut sealer = Sealer::new(settings(true), ms(0));
    sealer.delivered(VIDEO, at(0), ms(50), ms(50));
    assert_eq!(sealer.next_wakeup(), Some(ms(1_250)));
    sealer.tick(ms(1_249));
    assert_eq!(drain(&mut sealer), []);
    // The tick comes late: the window counts from the instant that sealed it.
    sealer.tick(ms(1_400));
    let [seal] = seals(&mut sealer)[..] else { panic!("one window") };
    assert_eq!((seal.sealed_at, seal.air_end), (ms(1_250), Some(ms(1_050))));
    sealer.tick(ms(4_250));
    assert_eq!(seals(&mut sealer).iter().map(|s| s.window.index).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn an_idle_track_holds_nothing_open() {
    let mut slow = settings(true);
    slow.seal_grace = Duration::from_secs(30);
    let mut sealer = Sealer::new(slow, ms(0));
    sealer.track_started(AUDIO, ms(0));
    sealer.delivered(VIDEO, at(1_000), ms(1_000), ms(1_000));
    assert_eq!(sealer.next_wakeup(), Some(ms(2_000)));
    sealer.tick(ms(2_000));
    assert_eq!(seals(&mut sealer).len(), 1);
    // It comes back and counts again.
    sealer.delivered(AUDIO, at(1_500), ms(2_500), ms(2_500));
    sealer.delivered(VIDEO, at(2_500), ms(2_600), ms(2_600));
    assert_eq!(seals(&mut sealer).len(), 0);
    sealer.track_ended(AUDIO, ms(2_700));
    assert_eq!(seals(&mut sealer).len(), 1);
}

#[test]
fn the_last_window_ends_with_its_media_and_a_border_leaves_no_empty_one() {
    let mut sealer = Sealer::new(settings(false), ms(0));
    sealer.delivered(VIDEO, at(1_960), ms(1), ms(1));
    sealer.delivered(AUDIO, at(1_900), ms(2), ms(2));
    sealer.progressed(AUDIO, Pts(2_300_100), ms(2));
    sealer.ended(ms(3));
    let all = seals(&mut sealer);
    assert_eq!(all.iter().map(|s| s.window.end_ms).collect::<Vec<_>>(), [1_000, 2_000, 2_301]);
    assert!(all.iter().all(|s| s.deadline.is_none() && s.air_end.is_none()));

    let mut border = Sealer::new(settings(false), ms(0));
    border.delivered(VIDEO, at(1_960), ms(1), ms(1));
    border.progressed(AUDIO, at(2_000), ms(2));
    border.ended(ms(3));
    assert_eq!(seals(&mut border).last().map(|s| s.window.end_ms), Some(2_000));

    let mut frame = Sealer::new(settings(false), ms(0));
    frame.delivered(VIDEO, at(2_000), ms(1), ms(1));
    frame.ended(ms(3));
    assert_eq!(
        seals(&mut frame).last().map(|s| (s.window.start_ms, s.window.end_ms)),
        Some((2_000, 2_001)),
        "a frame on the border lies in the window that starts there"
    );

    let mut nothing = Sealer::new(settings(false), ms(0));
    nothing.ended(ms(3));
    nothing.tick(ms(9_000));
    assert_eq!(drain(&mut nothing), []);
}

#[test]
fn a_clip_is_one_window_and_a_long_file_is_cut() {
    let clip = SealerSettings {
        length: WindowLength::Clip,
        clip_budget: Some(Duration::from_millis(800)),
        ..settings(false)
    };
    let mut sealer = Sealer::new(clip.clone(), ms(40));
    sealer.delivered(VIDEO, at(4_960), ms(100), ms(100));
    sealer.ended(ms(150));
    let [seal] = seals(&mut sealer)[..] else { panic!("one window") };
    assert_eq!((seal.window.end_ms, seal.deadline), (4_961, Some(ms(840))));

    let mut long = Sealer::new(clip, ms(0));
    long.delivered(VIDEO, at(90_000), ms(100), ms(100));
    long.ended(ms(150));
    assert_eq!(
        seals(&mut long).iter().map(|s| (s.window.start_ms, s.window.end_ms)).collect::<Vec<_>>(),
        [(0, 60_000), (60_000, 90_001)]
    );
}

#[test]
fn a_file_whose_sound_starts_late_is_not_held_for_ever() {
    let mut sealer = Sealer::new(settings(false), ms(0));
    sealer.track_started(VIDEO, ms(0));
    sealer.track_started(AUDIO, ms(0));
    sealer.delivered(VIDEO, at(9_000), ms(1), ms(1));
    assert_eq!(drain(&mut sealer), []);
    sealer.delivered(VIDEO, at(10_001), ms(2), ms(2));
    assert_eq!(seals(&mut sealer).len(), 10, "sound is more than skew_max behind");
}

#[test]
fn indexes_of_an_outage_are_reported_and_media_time_goes_on() {
    let mut sealer = Sealer::new(settings(true), ms(0));
    sealer.delivered(VIDEO, at(0), ms(100), ms(100));
    sealer.delivered(VIDEO, at(2_400), ms(2_500), ms(2_500));
    assert_eq!(seals(&mut sealer).len(), 2);
    sealer.disconnected(ms(2_600));
    assert_eq!(sealer.next_wakeup(), Some(ms(3_300)), "window 2 has media and is sealed by grace");
    sealer.tick(ms(3_300));
    assert_eq!(seals(&mut sealer).len(), 1);
    assert_eq!(sealer.next_wakeup(), None, "nothing opens while it is away");
    sealer.tick(ms(60_000));
    assert_eq!(drain(&mut sealer), []);
    assert_eq!(sealer.reconnected(ms(61_300)), at(61_200));
    assert_eq!(drain(&mut sealer), [SealerEvent::Skipped { from: 3, to: 60 }]);
    // The new connection is slower: its own anchor counts.
    sealer.delivered(VIDEO, at(61_200), ms(61_800), ms(61_800));
    sealer.tick(ms(62_799));
    assert_eq!(drain(&mut sealer), []);
    sealer.tick(ms(62_800));
    let [seal] = seals(&mut sealer)[..] else { panic!("window 61") };
    assert_eq!((seal.window.index, seal.air_end), (61, Some(ms(62_600))));
}

#[test]
fn a_short_outage_inside_a_window_skips_nothing() {
    let mut sealer = Sealer::new(settings(true), ms(0));
    sealer.delivered(VIDEO, at(0), ms(0), ms(0));
    sealer.disconnected(ms(300));
    assert_eq!(sealer.reconnected(ms(700)), at(700));
    sealer.delivered(VIDEO, at(1_000), ms(1_000), ms(1_000));
    assert_eq!(seals(&mut sealer).len(), 1);
}

#[test]
fn a_window_cut_off_by_an_outage_is_sealed_not_skipped() {
    let mut sealer = Sealer::new(settings(true), ms(0));
    sealer.delivered(VIDEO, at(0), ms(0), ms(0));
    sealer.delivered(VIDEO, at(900), ms(900), ms(900));
    sealer.disconnected(ms(950));
    // Its grace isn't over, but what it waits for can't come over the new connection.
    sealer.reconnected(ms(1_100));
    let [seal] = seals(&mut sealer)[..] else { panic!("one window") };
    assert_eq!((seal.window.index, seal.window.end_ms, seal.sealed_at), (0, 1_000, ms(1_100)));
}

#[test]
fn one_wild_timestamp_asks_for_no_million_results() {
    let mut sealer = Sealer::new(settings(false), ms(0));
    sealer.delivered(VIDEO, at(500), ms(1), ms(1));
    sealer.delivered(VIDEO, Pts(i64::MAX - 5), ms(2), ms(2));
    sealer.ended(ms(3));
    let events = drain(&mut sealer);
    assert_eq!(events.len(), 3, "window 0, the hole, the last window: {events:?}");
    assert!(matches!(events[1], SealerEvent::Skipped { from: 1, .. }));
}

#[test]
fn a_slow_camera_clock_moves_the_anchor() {
    let mut sealer = Sealer::new(settings(true), ms(0));
    // 1 ms slow per second: after an hour the old anchor would be 3.6 s early.
    for s in 0..3_600_u64 {
        let now = ms(s * 1_001);
        sealer.delivered(VIDEO, at(s as i64 * 1_000), now, now);
    }
    let last = seals(&mut sealer).pop().expect("windows");
    let true_air_end = (last.window.end_ms as u64) * 1_001 / 1_000;
    assert!(true_air_end * 1_000 - last.air_end.expect("paced").0 <= 130_000);
}

#[derive(Clone, Debug)]
enum Step {
    Deliver(bool, i64),
    Progress(bool, i64),
    Wait(u64),
    End(bool),
    Away,
    Back,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (any::<bool>(), -50..400_i64).prop_map(|(v, d)| Step::Deliver(v, d)),
        2 => (any::<bool>(), 0..400_i64).prop_map(|(v, d)| Step::Progress(v, d)),
        4 => (1..700_u64).prop_map(Step::Wait),
        1 => any::<bool>().prop_map(Step::End),
        1 => Just(Step::Away),
        1 => Just(Step::Back),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #[test]
    fn windows_tile_media_time_and_each_is_sealed_once(
        steps in steps(),
        paced in any::<bool>(),
        length in prop_oneof![Just(100_i64), Just(1_000), Just(700)],
    ) {
        let mut cut = settings(paced);
        cut.length = WindowLength::Fixed(Duration::from_millis(length as u64));
        let mut sealer = Sealer::new(cut, ms(0));
        let mut now = 0_u64;
        let mut media = [0_i64; 2];
        // A connection's pts never lie before its start.
        let mut floor = 0_i64;
        let mut away = false;
        let mut events = Vec::new();
        let mut with_media = BTreeSet::new();
        for step in steps {
            match step {
                Step::Deliver(video, by) if !away => {
                    let track = &mut media[usize::from(video)];
                    *track = (*track + by).max(floor);
                    let kind = if video { VIDEO } else { AUDIO };
                    with_media.insert(sealer.index_of(at(*track)));
                    sealer.delivered(kind, at(*track), ms(now), ms(now));
                }
                Step::Progress(video, by) if !away => {
                    let track = &mut media[usize::from(video)];
                    *track += by;
                    sealer.progressed(if video { VIDEO } else { AUDIO }, at(*track), ms(now));
                }
                Step::Wait(by) => {
                    // Woken as asked, so no window may be sealed later than grace says.
                    let until = now + by;
                    while let Some(wake) = sealer.next_wakeup().filter(|wake| *wake <= ms(until)) {
                        sealer.tick(wake);
                        let woken = drain(&mut sealer);
                        prop_assert!(!woken.is_empty(), "a wake-up at {wake:?} seals something");
                        for event in &woken {
                            if let SealerEvent::Sealed(seal) = event {
                                prop_assert_eq!(seal.sealed_at, wake);
                            }
                        }
                        events.extend(woken);
                    }
                    now = until;
                    sealer.tick(ms(now));
                }
                Step::End(video) => {
                    sealer.track_ended(if video { VIDEO } else { AUDIO }, ms(now));
                }
                Step::Away => { away = true; sealer.disconnected(ms(now)); }
                Step::Back => {
                    let from = sealer.reconnected(ms(now)).ms() + 1;
                    if away { (media, floor) = ([from; 2], from); }
                    away = false;
                }
                _ => {}
            }
            for event in drain(&mut sealer) {
                if let SealerEvent::Sealed(Seal { sealed_at, air_end: Some(air_end), .. }) = event {
                    let grace = air_end + Duration::from_millis(200);
                    prop_assert!(sealed_at <= grace.max(ms(now)), "{event:?} at {now}");
                }
                events.push(event);
            }
        }
        sealer.ended(ms(now));
        events.extend(drain(&mut sealer));
        sealer.ended(ms(now));
        sealer.tick(ms(now + 10_000));
        prop_assert_eq!(drain(&mut sealer), []);

        let mut next = 0;
        let mut last_sealed = Mono(0);
        let count = events.len();
        for (position, event) in events.into_iter().enumerate() {
            match event {
                SealerEvent::Sealed(seal) => {
                    prop_assert_eq!(seal.window.index, next);
                    prop_assert_eq!(seal.window.start_ms, next as i64 * length);
                    let nominal = seal.window.start_ms + length;
                    prop_assert!(seal.window.end_ms > seal.window.start_ms);
                    prop_assert!(seal.window.end_ms <= nominal);
                    if position + 1 < count {
                        prop_assert_eq!(seal.window.end_ms, nominal, "only the last is short");
                    }
                    prop_assert!(seal.sealed_at >= last_sealed, "seals go forward");
                    last_sealed = seal.sealed_at;
                    next += 1;
                }
                SealerEvent::Skipped { from, to } => {
                    prop_assert_eq!(from, next);
                    prop_assert!(to >= from);
                    prop_assert_eq!(with_media.range(from..=to).next(), None, "media was skipped");
                    next = to + 1;
                }
            }
        }
    }
}
