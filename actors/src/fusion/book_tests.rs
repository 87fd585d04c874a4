use std::time::Duration;

use media::result::Window;
use media::{Pts, Scored};
use proptest::prelude::*;

use super::*;
use crate::stages::FuseSettings;

const OBJECTS: StageIndex = StageIndex(1);
const SPEECH: StageIndex = StageIndex(4);

fn stage(index: StageIndex, id: &str, output: PortType) -> ExpectedStage {
    ExpectedStage { index, id: id.into(), output, applies: true }
}

fn settings(paced: bool) -> BookSettings {
    let stages =
        vec![stage(OBJECTS, "scenes", PortType::Scenes), stage(SPEECH, "speech", PortType::Speech)];
    BookSettings::new("s".into(), "run".into(), &FuseSettings::default(), paced, Mono(0), stages)
}

fn book(settings: BookSettings) -> FusionBook {
    let taxonomy = Taxonomy::builtin().expect("sound");
    FusionBook::new(settings, Arc::new(taxonomy), Arc::new(Alerts::default()))
}

fn ms(ms: u64) -> Mono {
    Mono::from_ms(ms)
}

fn seal(index: u64, sealed_ms: u64, paced: bool) -> Seal {
    let start_ms = index as i64 * 1_000;
    Seal {
        window: Window { index, start_ms, end_ms: start_ms + 1_000 },
        sealed_at: ms(sealed_ms),
        air_end: paced.then(|| ms(sealed_ms) - Duration::from_millis(50)),
        deadline: paced.then(|| ms(sealed_ms + 500)),
    }
}

fn scene() -> Observation {
    let scenes = vec![Scored { label: "street".into(), score: 0.8 }];
    Observation::Scenes { pts: Pts::ZERO, scenes }
}

fn timing() -> Timing {
    Timing { stage: "x".into(), queue_ms: 0.0, compute_ms: 1.0, batch: 1 }
}

fn answer(book: &mut FusionBook, now: u64, index: u64, stage: StageIndex) {
    book.answered(ms(now), index, stage, Outcome::Ok, Some(timing()));
}

#[test]
fn a_stage_that_is_gone_is_not_waited_for_and_is_named() {
    let mut book = book(settings(true));
    book.sealed(ms(1_000), seal(0, 1_000, true));
    answer(&mut book, 1_010, 0, OBJECTS);
    assert_eq!(book.poll(ms(1_010)), []);
    book.stage_gone(SPEECH, MissingReason::Unavailable);
    let emits = book.poll(ms(1_020));
    let speech = Missing { stage: "speech".into(), reason: MissingReason::Unavailable };
    assert_eq!(emits[0].result.missing, [speech]);
    // It comes back within the time for revisions and answers from its queue.
    book.stage_back(SPEECH);
    answer(&mut book, 1_400, 0, SPEECH);
    let revised = book.poll(ms(1_400));
    assert_eq!((revised[0].result.revision, revised[0].result.status), (1, Status::Complete));
    book.sealed(ms(2_000), seal(1, 2_000, true));
    answer(&mut book, 2_010, 1, OBJECTS);
    assert_eq!(book.poll(ms(2_020)), [], "it is waited for again");
}

#[test]
fn a_stage_without_its_track_is_neither_waited_for_nor_missing() {
    let mut silent = settings(true);
    silent.stages[1].applies = false;
    let mut book = book(silent);
    book.sealed(ms(1_000), seal(0, 1_000, true));
    book.offer(ms(1_001), 0, SPEECH, scene());
    answer(&mut book, 1_010, 0, OBJECTS);
    let emits = book.poll(ms(1_010));
    assert_eq!((emits[0].result.status, &emits[0].result.audio), (Status::Complete, &None));
    assert!(emits[0].result.vision.is_some());
    assert_eq!(book.ledger().observations.dropped, 1);
}

#[test]
fn a_late_answer_that_brings_nothing_makes_no_revision() {
    let mut book = book(settings(true));
    book.sealed(ms(1_000), seal(0, 1_000, true));
    answer(&mut book, 1_010, 0, OBJECTS);
    assert_eq!(book.next_wakeup(ms(1_010)), Some(ms(1_485)));
    assert_eq!(book.poll(ms(1_485)).len(), 1);
    book.answered(ms(1_600), 0, SPEECH, Outcome::Missing(MissingReason::Failed), None);
    assert_eq!(book.poll(ms(1_600)), []);
    assert!(book.is_idle());
}

#[test]
fn what_came_by_the_limit_is_revised_and_later_is_counted() {
    let mut book = book(settings(true));
    book.sealed(ms(1_000), seal(0, 1_000, true));
    assert_eq!(book.poll(ms(1_485)).len(), 1);
    book.offer(ms(2_000), 0, OBJECTS, scene());
    assert_eq!(book.poll(ms(6_000)), []);
    assert_eq!(book.next_wakeup(ms(6_000)), Some(ms(6_485)));
    let revised = book.poll(ms(6_485));
    assert_eq!((revised[0].result.revision, revised[0].result.stream_seq), (1, 1));
    assert_eq!(revised[0].result.status, Status::Partial);
    book.offer(ms(6_500), 0, OBJECTS, scene());
    answer(&mut book, 6_500, 0, OBJECTS);
    let ledger = book.ledger();
    assert_eq!((ledger.observations.fused, ledger.observations.late), (1, 1));
    assert_eq!((ledger.revisions, ledger.answers_late), (1, 1));
}

#[test]
fn without_revisions_late_answers_are_counted() {
    let mut fixed = settings(true);
    fixed.revisions = false;
    let mut book = book(fixed);
    book.sealed(ms(1_000), seal(0, 1_000, true));
    assert_eq!(book.poll(ms(1_485)).len(), 1);
    book.offer(ms(1_500), 0, OBJECTS, scene());
    assert_eq!(book.poll(ms(9_000)), []);
    assert_eq!(book.ledger().observations.late, 1);
}

#[test]
fn only_silence_of_all_stages_is_a_hang() {
    let mut book = book(settings(false));
    book.sealed(ms(0), seal(0, 0, false));
    answer(&mut book, 0, 0, OBJECTS);
    assert_eq!(book.poll(ms(59_999)), []);
    answer(&mut book, 50_000, 1, OBJECTS);
    assert_eq!(book.next_wakeup(ms(59_999)), Some(ms(110_000)));
    assert_eq!(book.poll(ms(109_999)), []);
    let emits = book.poll(ms(110_000));
    assert_eq!(emits[0].result.missing[0].reason, MissingReason::Deadline);
    assert_eq!((emits[0].result.age_ms, emits[0].result.budget_ms), (None, None));
}

#[test]
fn a_window_never_waits_past_its_own_deadline_for_the_one_before_it() {
    let mut book = book(settings(true));
    let patient = Seal { deadline: Some(ms(9_000)), ..seal(0, 1_000, true) };
    book.sealed(ms(1_000), patient);
    book.sealed(ms(1_100), seal(1, 1_100, true));
    book.sealed(ms(1_150), seal(2, 1_150, true));
    assert_eq!(book.next_wakeup(ms(1_150)), Some(ms(1_585)));
    assert_eq!(book.poll(ms(1_584)), []);
    // The poll is late: everything that is due goes out at once, in order.
    let out: Vec<u64> = book.poll(ms(1_700)).iter().map(|e| e.result.window.index).collect();
    assert_eq!(out, [0, 1, 2]);
}

#[test]
fn the_number_of_windows_is_bounded() {
    let mut few = settings(false);
    few.open_max = 2;
    let mut book = book(few);
    book.offer(ms(1), 7, OBJECTS, scene());
    book.offer(ms(1), 8, OBJECTS, scene());
    assert!(!book.has_room());
    book.offer(ms(1), 9, OBJECTS, scene());
    assert_eq!(book.ledger().observations.dropped, 1);
    for index in 0..3 {
        book.sealed(ms(2), seal(index, 2, false));
    }
    let out: Vec<u64> = book.poll(ms(2)).iter().map(|e| e.result.window.index).collect();
    assert_eq!(out, [0, 1, 2], "five are held, three too many");
}

#[test]
fn a_skipped_window_takes_its_observations_along() {
    let mut book = book(settings(true));
    book.offer(ms(1), 3, OBJECTS, scene());
    book.offer(ms(1), 5, OBJECTS, scene());
    book.skipped(4);
    assert_eq!(book.ledger().observations.dropped, 1);
    book.offer(ms(2), 4, OBJECTS, scene());
    assert_eq!(book.ledger().observations.late, 1);
    book.sealed(ms(6_000), seal(5, 6_000, true));
    assert_eq!(book.close(ms(6_001)).len(), 1);
    assert!(book.is_idle() && book.ledger().balances());
}

#[test]
fn a_rule_fault_is_told_once() {
    let rules = [("unsafe".to_owned(), "vision.safety.score > 0.8".to_owned())];
    let alerts = Alerts::compile(&rules.into()).expect("sound");
    let taxonomy = Taxonomy::builtin().expect("sound");
    let mut book = FusionBook::new(settings(true), Arc::new(taxonomy), Arc::new(alerts));
    book.sealed(ms(1_000), seal(0, 1_000, true));
    book.sealed(ms(2_000), seal(1, 2_000, true));
    let emits = book.close(ms(2_100));
    assert_eq!(emits.iter().map(|e| e.rule_faults.len()).collect::<Vec<_>>(), [1, 0]);
}

#[derive(Clone, Debug)]
enum Step {
    Offer(u64, bool),
    Answer(u64, bool, bool),
    Seal,
    Skip,
    Gone(bool),
    Back(bool),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let window = || 0..6_u64;
    let step = prop_oneof![
        4 => (window(), any::<bool>()).prop_map(|(w, s)| Step::Offer(w, s)),
        6 => (window(), any::<bool>(), any::<bool>()).prop_map(|(w, s, ok)| Step::Answer(w, s, ok)),
        3 => Just(Step::Seal),
        1 => Just(Step::Skip),
        1 => any::<bool>().prop_map(Step::Gone),
        1 => any::<bool>().prop_map(Step::Back),
        4 => (1..900_u64).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..150)
}

fn which(speech: bool) -> StageIndex {
    if speech { SPEECH } else { OBJECTS }
}

proptest! {
    #[test]
    fn every_window_goes_out_once_in_order_and_on_time_and_the_ledger_balances(
        steps in steps(),
        paced in any::<bool>(),
        revisions in any::<bool>(),
    ) {
        let mut fixed = settings(paced);
        (fixed.revisions, fixed.open_max) = (revisions, 5);
        let mut book = book(fixed);
        let (mut now, mut next) = (1_000_u64, 0_u64);
        let mut sealed = BTreeMap::new();
        let mut emits: Vec<(u64, Emit)> = Vec::new();
        for step in steps {
            // Windows near the one that is sealed next, before and after.
            let near = |w: u64| (next + w).saturating_sub(3);
            match step {
                Step::Offer(w, speech) => book.offer(ms(now), near(w), which(speech), scene()),
                Step::Answer(w, speech, ok) => {
                    let shed = Outcome::Missing(MissingReason::Shed);
                    let outcome = if ok { Outcome::Ok } else { shed };
                    book.answered(ms(now), near(w), which(speech), outcome, Some(timing()));
                }
                Step::Seal => {
                    book.sealed(ms(now), seal(next, now, paced));
                    sealed.insert(next, now);
                    next += 1;
                }
                Step::Skip => { book.skipped(next); next += 1; }
                Step::Gone(speech) => book.stage_gone(which(speech), MissingReason::Unavailable),
                Step::Back(speech) => book.stage_back(which(speech)),
                Step::Wait(by) => {
                    let until = now + by;
                    while let Some(wake) = book.next_wakeup(ms(now)).filter(|w| *w <= ms(until)) {
                        let woken = wake.max(ms(now));
                        let out = book.poll(woken);
                        prop_assert!(
                            !out.is_empty() || book.next_wakeup(woken) > Some(woken)
                                || book.next_wakeup(woken).is_none(),
                            "a wake-up that changes nothing would spin"
                        );
                        emits.extend(out.into_iter().map(|e| (woken.0 / 1_000, e)));
                    }
                    now = until;
                }
            }
            emits.extend(book.poll(ms(now)).into_iter().map(|e| (now, e)));
            prop_assert!(book.ledger().balances(), "{:?}", book.ledger());
        }
        emits.extend(book.close(ms(now)).into_iter().map(|e| (now, e)));
        let ledger = book.ledger();
        prop_assert!(ledger.balances() && book.is_idle());
        prop_assert_eq!((ledger.windows.open, ledger.observations.held), (0, 0));

        let first: Vec<u64> = emits.iter().filter(|(_, e)| e.result.revision == 0)
            .map(|(_, e)| e.result.window.index).collect();
        prop_assert_eq!(first, sealed.keys().copied().collect::<Vec<_>>());
        let mut went_out = BTreeMap::new();
        for (seq, (at, emit)) in emits.iter().enumerate() {
            let result = &emit.result;
            prop_assert_eq!(result.stream_seq, seq as u64);
            prop_assert_eq!(result.missing.is_empty(), result.status == Status::Complete);
            let index = result.window.index;
            if result.revision == 0 {
                went_out.insert(index, *at);
                if paced {
                    prop_assert!(*at <= sealed[&index] + 485, "{index} went out at {at}");
                }
            } else {
                let first = went_out.remove(&index);
                prop_assert!(revisions && first.is_some_and(|first| *at <= first + 5_000));
            }
        }
    }
}
