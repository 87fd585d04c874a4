//! The language engine's lane in virtual time: text goes from step to step, others get their share between two of them.
//!
//! Scheduler, leases and lane are the production ones; the engine is a clockwork of steps that pauses when told to.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::compute::simulated::{SimulatedDevice, TokioClock};
use engine::compute::{Compute, ComputeConfig, ModelHandle, NoLane};
use engine::events::Event;
use engine::language::{
    BackendError, EngineStats, GenerateRequest, Generation, Health, LanguageBackend, ModelInfo,
    OnLane, Score, ScoreRequest, TextLane,
};
use engine::scheduler::Why;
use engine::{Class, JobEnd, Ticket};
use futures_util::future::{BoxFuture, FutureExt};
use media::{Clock, Mono};
use models::{Model, ModelError};
use tokio::sync::watch;
use tokio::time::sleep;

const STEP: Duration = Duration::from_millis(15);
const DETECT: Duration = Duration::from_millis(20);

struct Null;

impl Model for Null {
    type Input = ();
    type Output = ();

    fn batch_max(&self) -> usize {
        1
    }

    fn run(&mut self, batch: &[()]) -> Result<Vec<()>, ModelError> {
        Ok(batch.to_vec())
    }
}

/// Computes in steps while somebody has work for it and it is not paused.
struct Clockwork {
    wanted: watch::Sender<usize>,
    paused: watch::Sender<bool>,
    is_stepping: watch::Sender<bool>,
    steps: AtomicU64,
    /// Start of every step.
    began: Mutex<Vec<Mono>>,
    clock: TokioClock,
}

impl Clockwork {
    fn start(clock: TokioClock) -> Arc<Self> {
        let clockwork = Arc::new(Clockwork {
            wanted: watch::channel(0).0,
            paused: watch::channel(false).0,
            is_stepping: watch::channel(false).0,
            steps: AtomicU64::new(0),
            began: Mutex::default(),
            clock,
        });
        let engine = clockwork.clone();
        tokio::spawn(async move {
            let (mut wanted, mut paused) = (engine.wanted.subscribe(), engine.paused.subscribe());
            loop {
                wanted.wait_for(|w| *w > 0).await.unwrap();
                paused.wait_for(|p| !*p).await.unwrap();
                engine.is_stepping.send_replace(true);
                engine.began.lock().unwrap().push(engine.clock.now());
                sleep(STEP).await;
                engine.steps.fetch_add(1, Ordering::Relaxed);
                engine.is_stepping.send_replace(false);
            }
        });
        clockwork
    }
}

impl LanguageBackend for Clockwork {
    fn name(&self) -> &str {
        "clockwork"
    }

    fn model(&self) -> &str {
        "clockwork"
    }

    fn generate(&self, _: GenerateRequest) -> BoxFuture<'_, Result<Generation, BackendError>> {
        std::future::ready(Err(BackendError::TimeLimit)).boxed()
    }

    fn score(&self, _: ScoreRequest) -> BoxFuture<'_, Result<Vec<Score>, BackendError>> {
        std::future::ready(Err(BackendError::TimeLimit)).boxed()
    }

    fn health(&self) -> Health {
        Health::Ready
    }

    fn stats(&self) -> EngineStats {
        EngineStats::default()
    }

    fn pause(&self) -> BoxFuture<'_, ()> {
        self.paused.send_replace(true);
        let mut is_stepping = self.is_stepping.subscribe();
        async move { drop(is_stepping.wait_for(|s| !*s).await) }.boxed()
    }

    fn resume(&self) {
        self.paused.send_replace(false);
    }

    fn info(&self) -> Option<Arc<ModelInfo>> {
        None
    }

    fn tokenize(&self, _: String, _: bool) -> BoxFuture<'_, Result<Vec<i32>, BackendError>> {
        std::future::ready(Err(BackendError::TimeLimit)).boxed()
    }

    fn detokenize(&self, _: Vec<i32>) -> BoxFuture<'_, Result<String, BackendError>> {
        std::future::ready(Err(BackendError::TimeLimit)).boxed()
    }
}

/// One lane with a language engine and a detector on it.
struct Stage {
    compute: Compute,
    clock: TokioClock,
    engine: Arc<Clockwork>,
    lane: TextLane,
    detect: ModelHandle<Null>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Stage {
    async fn new(vision_share: f64) -> Self {
        let clock = TokioClock::new();
        let events = Arc::new(Mutex::new(Vec::new()));
        let mut config = ComputeConfig::for_lanes(1);
        config.scheduler.shares.clear();
        config.scheduler.shares.insert(Class::Vision, vision_share);
        let sink = events.clone();
        config.observer =
            Some(Arc::new(move |event: &Event| sink.lock().unwrap().push(event.clone())));
        let device = SimulatedDevice::new(clock.clone(), |_, _, _| DETECT);
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let compute = Compute::with_device(config, shared.clone(), Arc::new(device)).unwrap();
        let engine = Clockwork::start(clock.clone());
        let lane = TextLane::new(compute.clone(), engine.clone(), shared);
        let detect = compute.register("detect", Class::Vision, || Ok(Null)).unwrap();
        let stage = Stage { compute, clock, engine, lane, detect, events };
        for _ in 0..3 {
            stage.ask(None).await.unwrap();
        }
        sleep(Duration::from_secs(2)).await;
        stage.events.lock().unwrap().clear();
        stage
    }

    fn ask(&self, slack: Option<Duration>) -> tokio::task::JoinHandle<JobEnd<()>> {
        let deadline = slack.map(|slack| self.clock.now() + slack);
        let (detect, ticket) = (self.detect.clone(), ticket("cam", 0, deadline));
        tokio::spawn(async move { detect.run(ticket, ()).await })
    }

    async fn enter(&self, name: &str) -> Result<Talk, NoLane> {
        let inside = self.lane.enter(ticket(name, 0, None), STEP * 4).await?;
        self.engine.wanted.send_modify(|w| *w += 1);
        Ok(Talk { _inside: inside, engine: self.engine.clone() })
    }

    /// More detections than a lane could do.
    fn flood(&self) -> tokio::task::JoinHandle<()> {
        let detect = self.detect.clone();
        tokio::spawn(async move {
            loop {
                let jobs = (0..4).map(|n| detect.run(ticket(&format!("cam-{n}"), 0, None), ()));
                futures_util::future::join_all(jobs).await;
            }
        })
    }

    fn starts(&self, class: Class) -> Vec<(Mono, Why)> {
        let events = self.events.lock().unwrap();
        let starts = events.iter().filter_map(|event| match event {
            Event::Started { at, class: c, why, .. } if *c == class => Some((*at, *why)),
            _ => None,
        });
        starts.collect()
    }
}

/// A request inside the engine.
struct Talk {
    _inside: OnLane,
    engine: Arc<Clockwork>,
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.engine.wanted.send_modify(|w| *w -= 1);
    }
}

fn ticket(stream: &str, priority: i32, deadline: Option<Mono>) -> Ticket {
    Ticket { stream: stream.into(), priority, deadline }
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_between_two_steps_of_a_sequence_except_by_share_or_age() {
    for share in [0.0, 0.25] {
        let stage = Stage::new(share).await;
        let talk = stage.enter("talk").await.unwrap();
        let flood = stage.flood();
        sleep(Duration::from_secs(20)).await;
        let vision = stage.starts(Class::Vision);
        let by_order = vision.iter().filter(|(_, why)| *why == Why::Order).count();
        assert_eq!(by_order, 0, "share {share}: {vision:?}");
        let by_share = vision.iter().filter(|(_, why)| *why == Why::Share).count();
        assert_eq!(by_share > 0, share > 0.0);
        drop(talk);
        flood.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_share_is_kept_under_endless_text_and_no_step_overlaps_it() {
    let stage = Stage::new(0.25).await;
    let talk = stage.enter("talk").await.unwrap();
    let flood = stage.flood();
    let (from, steps) = (stage.clock.now(), stage.engine.steps.load(Ordering::Relaxed));
    sleep(Duration::from_secs(30)).await;
    let passed = stage.clock.now().since(from).as_secs_f64();
    let vision = stage.starts(Class::Vision);
    let share = vision.len() as f64 * DETECT.as_secs_f64() / passed;
    assert!((0.23..0.29).contains(&share), "vision had {share} of the lane");
    let steps = stage.engine.steps.load(Ordering::Relaxed) - steps;
    let text = steps as f64 * STEP.as_secs_f64() / passed;
    assert!(text > 0.65, "text had {text} of the lane");
    let began = stage.engine.began.lock().unwrap().clone();
    let overlaps = vision.iter().filter(|(start, _)| {
        began.iter().any(|step| *step < *start + DETECT && *start < *step + STEP)
    });
    assert_eq!(overlaps.count(), 0);
    drop(talk);
    flood.abort();
}

#[tokio::test(start_paused = true)]
async fn who_comes_later_joins_and_the_lane_is_free_when_the_last_has_left() {
    let stage = Stage::new(0.0).await;
    let first = stage.enter("a").await.unwrap();
    let second = stage.enter("b").await.unwrap();
    assert_eq!(stage.starts(Class::Text).len(), 1, "one lease for both");
    drop(first);
    sleep(Duration::from_millis(200)).await;
    let waiting = stage.ask(Some(Duration::from_millis(60)));
    assert_eq!(waiting.await.unwrap(), JobEnd::Expired, "the second still computes");
    drop(second);
    sleep(Duration::from_millis(1)).await;
    let seen = stage.ask(Some(Duration::from_millis(60))).await.unwrap();
    assert!(matches!(seen, JobEnd::Done { .. }), "{seen:?}");
    sleep(Duration::from_secs(3)).await;
    let third = stage.enter("c").await.unwrap();
    sleep(Duration::from_secs(15)).await;
    assert!(stage.compute.stats().lanes_stuck.is_empty(), "a long lease is no stuck call");
    drop(third);
}

#[tokio::test(start_paused = true)]
async fn the_most_urgent_of_those_who_wait_decides_when_the_lane_comes() {
    let stage = Stage::new(0.0).await;
    let busy: Vec<_> = (0..3).map(|_| stage.ask(None)).collect();
    sleep(Duration::from_millis(1)).await;
    let lane = stage.lane.clone();
    let late = tokio::spawn(async move {
        let far = ticket("file", 10, None);
        lane.enter(far, STEP).await.map(drop)
    });
    sleep(Duration::from_millis(1)).await;
    let deadline = Some(stage.clock.now() + Duration::from_millis(100));
    let asked = stage.clock.now();
    let inside = stage.lane.enter(ticket("live", 0, deadline), STEP).await.unwrap();
    assert!(stage.clock.now().since(asked) <= DETECT, "it waited for one detection at most");
    assert_eq!(late.await.unwrap(), Ok(()), "the other joined");
    drop(inside);
    for job in busy {
        assert!(matches!(job.await.unwrap(), JobEnd::Done { .. }));
    }
}
