//! The scheduler's rules on random traces, held against a naive reference that keeps one flat list.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod oracle;

use std::collections::BTreeMap;
use std::time::Duration;

use engine::Class;
use engine::scheduler::{
    Dispatch, JobSpec, ModelFigures, ModelSpec, Outcome, Scheduler, SchedulerConfig, SubmitOutcome,
};
use media::{Mono, StreamId};
use oracle::{Load, Run, run};
use proptest::prelude::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn loads() -> impl Strategy<Value = Vec<Load>> {
    let load = (
        0u64..25,
        0usize..oracle::MODELS.len(),
        0u8..5,
        prop_oneof![3 => Just(0), 1 => Just(10)],
        prop_oneof![2 => (5u64..600).prop_map(Some), 1 => Just(None)],
        prop_oneof![8 => Just(false), 1 => Just(true)],
    );
    let load = load.prop_map(|(gap_ms, model, stream, priority, slack_ms, cancel_one)| Load {
        gap_ms,
        model,
        stream,
        priority,
        slack_ms,
        cancel_one,
    });
    prop::collection::vec(load, 1..160)
}

fn rules(lanes: usize, has_shares: bool, wait_ms: u64, queue_max: usize) -> SchedulerConfig {
    let mut config = SchedulerConfig::for_lanes(lanes);
    if !has_shares {
        config.shares.clear();
    }
    config.wait_max = ms(wait_ms);
    config.queue_max = queue_max;
    config.stuck_after = ms(400);
    config
}

proptest! {
    /// Every rule of the module's documentation, checked from outside at every event.
    #[test]
    fn every_rule_holds_on_random_traces(
        loads in loads(),
        lanes in 1usize..4,
        has_shares: bool,
        wait_ms in prop_oneof![Just(100), Just(5_000)],
        queue_max in 1usize..12,
        seed: u64,
    ) {
        run(rules(lanes, has_shares, wait_ms, queue_max), &loads, seed);
    }

    #[test]
    fn same_trace_same_dispatches(loads in loads(), lanes in 1usize..4, seed: u64) {
        let once: Run = run(rules(lanes, true, 500, 8), &loads, seed);
        let again = run(rules(lanes, true, 500, 8), &loads, seed);
        prop_assert_eq!(once.dispatches, again.dispatches);
    }

    /// Streams with equal rank and endless work: none is more than one job ahead.
    #[test]
    fn equal_streams_are_served_alike(
        streams in 2usize..9,
        batch_max in 1usize..5,
        rounds in 20usize..60,
    ) {
        let mut bench = Bench::new(SchedulerConfig::for_lanes(2));
        let model = bench.model("detect", Class::Vision, batch_max);
        for stream in 0..streams {
            for _ in 0..rounds {
                bench.submit(model, stream, 0, None);
            }
        }
        let mut served = vec![0usize; streams];
        while served.iter().sum::<usize>() + 2 * batch_max * 2 < streams * rounds {
            for (dispatch, members) in bench.step(ms(10)) {
                members.iter().for_each(|stream| served[*stream] += 1);
                prop_assert!(dispatch.jobs.len() <= batch_max);
            }
            let (least, most) = (served.iter().min(), served.iter().max());
            let gap = most.unwrap() - least.unwrap();
            prop_assert!(gap <= 1, "{served:?}");
        }
    }

    /// A clip behind live streams that fill both lanes, of a class without a share, under endless text.
    #[test]
    fn work_without_deadline_waits_no_longer_than_stated(
        older in 0u64..4,
        wait_ms in 200u64..1_000,
        piece_ms in 5u64..60,
    ) {
        let mut config = SchedulerConfig::for_lanes(2);
        config.wait_max = ms(wait_ms);
        config.shares.clear();
        let mut bench = Bench::new(config);
        let text = bench.model("language", Class::Text, 1);
        let clip = bench.model("ocr", Class::TextInput, 1);
        for stream in 0..6 {
            bench.submit(text, stream, 0, None);
        }
        bench.step(ms(piece_ms));
        for _ in 0..=older {
            bench.submit(clip, 99, 10, None);
        }
        let submitted = bench.now;
        let bound = (wait_ms + 4 * piece_ms) * (older + 1);
        let mut started = 0;
        let mut live = 0;
        while started <= older {
            // Text without end; the oldest of it is always old, too.
            for _ in 0..2 {
                live += 1;
                bench.submit(text, live % 6, 0, None);
            }
            for (dispatch, _) in bench.step(ms(piece_ms)) {
                started += u64::from(dispatch.model == clip);
            }
            let waited = bench.now.since(submitted).as_millis() as u64;
            prop_assert!(waited <= bound + piece_ms, "{waited} ms, stated {bound}");
        }
    }
}

/// The random traces reach what they are meant to test: each reason to start, each end, each refusal.
#[test]
fn traces_reach_every_reason_and_every_end() {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut random = 7u64;
    let mut next = |below: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for seed in 0..40 {
        let load = |_| Load {
            gap_ms: next(12),
            model: next(6) as usize,
            stream: next(5) as u8,
            priority: 0,
            slack_ms: (next(3) > 0).then_some(5 + next(400)),
            cancel_one: next(9) == 0,
        };
        let loads: Vec<Load> = (0..300).map(load).collect();
        for (name, count) in run(rules(2, true, 100, 4), &loads, seed).seen {
            *seen.entry(name).or_default() += count;
        }
    }
    let expected = [
        "Order",
        "Share",
        "Aged",
        "Done",
        "Late",
        "Shed",
        "Expired",
        "Cancelled",
        "Failed",
        "Preempted",
        "submit: Queued",
        "submit: Shed",
        "submit: Full",
    ];
    for name in expected {
        assert!(seen.get(name).is_some_and(|count| *count >= 10), "{name} in {seen:?}");
    }
}

/// Endless work on every side: who gets how much of two lanes.
fn lane_time(seconds: u64, costs_ms: [(Class, u64); 3]) -> BTreeMap<Class, f64> {
    let mut bench = Bench::new(SchedulerConfig::for_lanes(2));
    let models = costs_ms.map(|(class, cost)| {
        let model = bench.model(&format!("{class:?}"), class, 1);
        bench.costs.insert(model, ms(cost));
        model
    });
    let end = Mono(seconds * 1_000_000);
    while bench.now < end {
        for model in models {
            for stream in 0..2 {
                if bench.queued(model) < 8 {
                    bench.submit(model, stream, 0, None);
                }
            }
        }
        bench.step_to_next_end();
    }
    let whole = 2.0 * bench.now.0 as f64 / 1e6;
    let held = bench.scheduler.lane_time();
    held.into_iter().map(|(class, time)| (class, time.as_secs_f64() / whole)).collect()
}

#[test]
fn guaranteed_shares_are_kept_within_a_twentieth_under_endless_text() {
    for (text, vision, audio) in [(25, 20, 8), (5, 30, 30), (60, 12, 3), (10, 60, 25)] {
        let costs = [(Class::Text, text), (Class::Vision, vision), (Class::Audio, audio)];
        let shares = lane_time(30, costs);
        let near = |class: Class, expected: f64| {
            let found = shares[&class];
            assert!(
                (found / expected - 1.0).abs() <= 0.05,
                "{class:?} got {found:.3} of lane time, guaranteed {expected} (costs {costs:?})"
            );
        };
        near(Class::Vision, 0.25);
        near(Class::Audio, 0.15);
        near(Class::Text, 0.60);
    }
}

#[test]
fn a_thousand_clips_take_what_two_live_streams_leave_and_no_more() {
    let mut bench = Bench::new(SchedulerConfig::for_lanes(2));
    let model = bench.model("detect", Class::Vision, 4);
    bench.costs.insert(model, ms(20));
    bench.per_member = true;
    let mut late = 0;
    let mut live = 0;
    let mut bulk = 0;
    let mut next_live = 0;
    let mut clip = 0;
    while bench.now < Mono::from_ms(20_000) {
        while bench.queued(model) < 1_000 {
            clip += 1;
            bench.submit(model, 10 + clip % 1_000, 10, None);
        }
        if bench.now >= Mono::from_ms(next_live) {
            next_live += 200;
            for stream in 0..2 {
                let deadline = bench.now + ms(300);
                live += 1;
                bench.submit(model, stream, 0, Some(deadline));
            }
        }
        let limit = Mono::from_ms(next_live);
        for (_, members) in bench.step_until(limit) {
            bulk += members.iter().filter(|stream| **stream >= 10).count();
        }
    }
    for line in bench.scheduler.ledger() {
        late += line.counts.late + line.counts.expired + line.counts.shed;
        assert!(line.counts.balanced(), "{line:?}");
    }
    assert_eq!(late, 0, "of {live} live jobs");
    let left_ms = 2 * 20_000 - live * 20;
    let taken = bulk as f64 * 20.0 / left_ms as f64;
    assert!(taken >= 0.9, "bulk took {taken:.2} of what live left");
}

#[test]
fn due_text_ends_the_batch_with_the_most_left_and_each_job_twice_at_most() {
    let mut bench = Bench::new(SchedulerConfig::for_lanes(1));
    let spec = bench.spec("detect", Class::Vision, 1);
    let vision = bench.scheduler.add_model(ModelSpec { interruptible: true, ..spec });
    let text = bench.model("language", Class::Text, 1);
    bench.costs.insert(vision, ms(20));
    bench.costs.insert(text, ms(10));
    bench.submit(vision, 1, 0, None);
    bench.step_until(Mono::from_ms(20));
    assert!(bench.scheduler.take_preempted().is_empty());

    bench.submit(vision, 1, 0, None);
    bench.start(None);
    bench.submit(text, 0, 0, None);
    bench.start(None);
    assert!(bench.scheduler.take_preempted().is_empty(), "text that nobody waits for waits");
    for times in 1..=3 {
        bench.now = bench.now + ms(5);
        bench.submit(text, 0, 0, Some(bench.now + ms(500)));
        bench.start(None);
        let chosen = bench.scheduler.take_preempted();
        if times == 3 {
            assert!(chosen.is_empty(), "a third time");
            break;
        }
        assert_eq!(chosen, [bench.running[0].1.id]);
        bench.now = bench.now + ms(2);
        let (_, dispatch) = bench.running.remove(0);
        assert!(bench.scheduler.complete(bench.now, dispatch.id, Outcome::Preempted));
        assert_eq!(bench.start(None)[0].0.model, text);
        // All text there is goes before the detection goes on.
        while bench.running.iter().any(|(_, d)| d.model == text) {
            bench.step_to_next_end();
            bench.start(None);
        }
    }
    bench.step_until(Mono::from_ms(500));
    let counts = bench.scheduler.ledger()[0].counts;
    assert_eq!((counts.done, counts.preempted, counts.submitted), (2, 2, 2));
    let figures = bench.scheduler.figures(bench.now);
    let [vision, text] = &figures[..] else { panic!("{figures:?}") };
    let found = |of: &ModelFigures| (of.interruptible, of.pieces, of.piece_max);
    assert_eq!(found(vision), (true, 2, Some(ms(2))), "it ends within 2 ms of being asked to");
    let (interruptible, pieces, longest) = found(text);
    assert_eq!((interruptible, longest), (false, Some(ms(10))), "a whole step");
    let all: u64 = bench.scheduler.take_pieces().len() as u64;
    assert_eq!(all, pieces + 2, "each is told once");
    assert!(bench.scheduler.take_pieces().is_empty());
}

#[test]
fn what_was_measured_before_the_start_refuses_work_that_can_not_make_it() {
    let mut bench = Bench::new(SchedulerConfig::for_lanes(1));
    let model = bench.model("detect", Class::Vision, 2);
    let job = |due| JobSpec {
        model,
        stream: StreamId::from("cam"),
        priority: 0,
        deadline: Some(Mono::from_ms(due)),
        predicted: None,
    };
    let now = Mono::from_ms(0);
    let blind = bench.scheduler.submit(now, job(50));
    assert!(matches!(blind, SubmitOutcome::Queued(_)), "nothing is known yet: {blind:?}");
    bench.scheduler.prime(now, "other", 1, ms(1), ms(1));
    bench.scheduler.prime(now, "detect", 1, ms(80), ms(90));
    assert_eq!(bench.scheduler.cost_p90(now, model, 1), Some(ms(90)));
    assert_eq!(bench.scheduler.submit(now, job(50)), SubmitOutcome::Shed);
    let fits = bench.scheduler.submit(now, job(95));
    assert!(matches!(fits, SubmitOutcome::Queued(_)), "{fits:?}");
    assert!(bench.scheduler.figures(now)[0].learned.is_empty(), "nothing was learned from it");
}

#[test]
fn a_wide_text_step_holds_free_lanes_instead_of_starving() {
    let mut bench = Bench::new(SchedulerConfig::for_lanes(2));
    let vision = bench.model("detect", Class::Vision, 1);
    let spec = bench.spec("language", Class::Text, 1);
    let text = bench.scheduler.add_model(ModelSpec { width: 2, ..spec });
    bench.costs.insert(vision, ms(40));
    bench.costs.insert(text, ms(10));
    for _ in 0..6 {
        bench.submit(vision, 1, 0, None);
    }
    let first = bench.step_until(Mono::from_ms(5));
    assert_eq!(first.len(), 2, "both lanes for clips while no text is there");
    bench.submit(text, 0, 0, None);
    let then = bench.step_until(Mono::from_ms(55));
    assert_eq!(then[0].0.model, text, "lanes freed first are kept for the step that needs both");
    assert_eq!(then[0].0.lanes, [0, 1]);
}

#[test]
fn a_batch_waits_only_beside_a_busy_lane_and_closes_on_size_slack_or_time() {
    let mut bench = Bench::new(SchedulerConfig::for_lanes(2));
    let busy = bench.model("busy", Class::Audio, 1);
    let spec = bench.spec("batched", Class::Vision, 3);
    let batched = bench.scheduler.add_model(ModelSpec { batch_wait_max: ms(20), ..spec });
    bench.costs.insert(batched, ms(4));
    bench.costs.insert(busy, ms(500));
    bench.submit(batched, 0, 0, None);
    assert_eq!(bench.step_until(Mono::from_ms(10)).len(), 1, "at once on an idle device");

    bench.submit(busy, 9, 0, None);
    bench.step_until(Mono::from_ms(20));
    bench.submit(batched, 0, 0, None);
    assert!(bench.step_until(Mono::from_ms(39)).is_empty(), "no other member yet");
    assert_eq!(bench.scheduler.next_wakeup(bench.now), Some(Mono::from_ms(40)));
    assert_eq!(bench.step_until(Mono::from_ms(40)).len(), 1, "closed by time");

    bench.step_until(Mono::from_ms(50));
    (0..3).for_each(|stream| bench.submit(batched, stream, 0, None));
    let full = bench.step_until(Mono::from_ms(50));
    assert_eq!(full[0].1, [1, 2, 0], "closed by size, the stream served last comes last");

    bench.step_until(Mono::from_ms(70));
    bench.submit(batched, 0, 0, Some(Mono::from_ms(82)));
    assert_eq!(
        bench.scheduler.next_wakeup(bench.now),
        Some(Mono::from_ms(77)),
        "4 ms, and a quarter"
    );
    assert!(bench.step_until(Mono::from_ms(76)).is_empty());
    assert_eq!(bench.step_until(Mono::from_ms(77)).len(), 1, "closed by slack");
}

#[test]
fn a_full_queue_of_a_live_stream_sheds_its_oldest_and_of_a_file_refuses_the_newest() {
    let mut config = SchedulerConfig::for_lanes(1);
    config.queue_max = 2;
    let mut bench = Bench::new(config);
    let model = bench.model("detect", Class::Vision, 1);
    let deadline = Some(Mono::from_ms(900));
    for _ in 0..5 {
        bench.submit(model, 0, 0, deadline);
    }
    let counts = bench.scheduler.ledger()[0].counts;
    assert_eq!((counts.submitted, counts.queued, counts.shed, counts.refused), (5, 2, 3, 0));
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        outcomes.push(bench.offer(model, 1, 10, None));
    }
    assert_eq!(outcomes[2], SubmitOutcome::Full { limit: 2 });
    let counts = bench.scheduler.ledger()[0].counts;
    assert_eq!((counts.submitted, counts.queued, counts.refused), (7, 4, 1));
    assert!(counts.balanced());
}

/// A scheduler with a small world around it: lanes whose batches take a fixed time.
struct Bench {
    scheduler: Scheduler,
    now: Mono,
    costs: BTreeMap<engine::scheduler::ModelKey, Duration>,
    per_member: bool,
    running: Vec<(Mono, Dispatch)>,
    streams: BTreeMap<engine::scheduler::JobId, usize>,
}

impl Bench {
    fn new(config: SchedulerConfig) -> Self {
        Bench {
            scheduler: Scheduler::new(config).unwrap(),
            now: Mono(0),
            costs: BTreeMap::new(),
            per_member: false,
            running: Vec::new(),
            streams: BTreeMap::new(),
        }
    }

    fn spec(&self, name: &str, class: Class, batch_max: usize) -> ModelSpec {
        ModelSpec {
            name: name.into(),
            class,
            batch_max,
            width: 1,
            batch_wait_max: Duration::ZERO,
            interruptible: false,
        }
    }

    fn model(&mut self, name: &str, class: Class, batch_max: usize) -> engine::scheduler::ModelKey {
        let spec = self.spec(name, class, batch_max);
        self.scheduler.add_model(spec)
    }

    fn queued(&self, model: engine::scheduler::ModelKey) -> u64 {
        let name = &self.scheduler.model(model).unwrap().name;
        let ledger = self.scheduler.ledger();
        ledger.iter().find(|line| *line.model == **name).unwrap().counts.queued
    }

    fn offer(
        &mut self,
        model: engine::scheduler::ModelKey,
        stream: usize,
        priority: i32,
        deadline: Option<Mono>,
    ) -> SubmitOutcome {
        let id = StreamId::from(format!("s{stream}"));
        let spec = JobSpec { model, stream: id, priority, deadline, predicted: None };
        let outcome = self.scheduler.submit(self.now, spec);
        if let SubmitOutcome::Queued(job) = outcome {
            self.streams.insert(job, stream);
        }
        outcome
    }

    fn submit(
        &mut self,
        model: engine::scheduler::ModelKey,
        stream: usize,
        priority: i32,
        deadline: Option<Mono>,
    ) {
        assert!(matches!(self.offer(model, stream, priority, deadline), SubmitOutcome::Queued(_)));
    }

    /// Starts what may start; every batch takes `cost` and ends before this returns.
    fn step(&mut self, cost: Duration) -> Vec<(Dispatch, Vec<usize>)> {
        let started = self.start(Some(cost));
        self.end_until(self.now + cost);
        started
    }

    fn step_to_next_end(&mut self) {
        self.start(None);
        if let Some(next) = self.running.iter().map(|(end, _)| *end).min() {
            self.end_until(next);
        }
    }

    /// Starts and ends batches until `limit`.
    fn step_until(&mut self, limit: Mono) -> Vec<(Dispatch, Vec<usize>)> {
        let mut all = Vec::new();
        loop {
            all.extend(self.start(None));
            let next = self.running.iter().map(|(end, _)| *end).min();
            match next.filter(|next| *next <= limit) {
                Some(next) => self.end_until(next),
                None => {
                    self.now = limit.max(self.now);
                    all.extend(self.start(None));
                    return all;
                }
            }
        }
    }

    fn start(&mut self, cost: Option<Duration>) -> Vec<(Dispatch, Vec<usize>)> {
        let dispatches = self.scheduler.schedule(self.now);
        let with_streams = |dispatch: Dispatch| {
            let members = dispatch.jobs.iter().map(|job| self.streams[job]).collect();
            let size = if self.per_member { dispatch.jobs.len() as u32 } else { 1 };
            let cost = cost.unwrap_or_else(|| self.costs[&dispatch.model] * size);
            self.running.push((self.now + cost, dispatch.clone()));
            (dispatch, members)
        };
        dispatches.into_iter().map(with_streams).collect()
    }

    fn end_until(&mut self, until: Mono) {
        self.now = until;
        let (over, running): (Vec<_>, Vec<_>) =
            self.running.drain(..).partition(|(end, _)| *end <= until);
        self.running = running;
        for (_, dispatch) in over {
            assert!(self.scheduler.complete(self.now, dispatch.id, Outcome::Done));
        }
        self.scheduler.take_ended();
    }
}
