//! What happens when, in virtual time on a simulated device, one timeline per behaviour.
//!
//! The scheduler, the handles and the leases are the production ones; only the lanes are simulated.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::compute::simulated::{SimulatedDevice, TokioClock};
use engine::compute::{Compute, ComputeConfig, ModelHandle};
use engine::events::{Event, class_label, end_label};
use engine::scheduler::{SchedulerConfig, Why};
use engine::{Class, JobEnd, Ticket};
use media::{Clock, Mono, StreamId};
use models::{Model, ModelError};
use tokio::time::sleep;

/// Answers nothing, in the time that the device's script says.
#[derive(Default)]
struct Null {
    /// May be ended half-way.
    interruptible: bool,
}

struct Nothing;

impl models::Interrupt for Nothing {
    fn stop(&self) {}

    fn reset(&self) {}
}

const BATCH_MAX: usize = 4;

impl Model for Null {
    type Input = ();
    type Output = ();

    fn batch_max(&self) -> usize {
        BATCH_MAX
    }

    fn run(&mut self, batch: &[()]) -> Result<Vec<()>, ModelError> {
        Ok(batch.to_vec())
    }

    fn interrupt(&self) -> Option<Arc<dyn models::Interrupt>> {
        self.interruptible.then(|| Arc::new(Nothing) as Arc<dyn models::Interrupt>)
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A device with its timeline, which starts after the models have been run in.
struct Stage {
    compute: Compute,
    clock: TokioClock,
    start: Arc<Mutex<Option<Mono>>>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Stage {
    fn new(
        change: impl FnOnce(&mut SchedulerConfig),
        script: impl Fn(&str, usize, u64) -> u64 + Send + Sync + 'static,
    ) -> Self {
        let clock = TokioClock::new();
        let start = Arc::new(Mutex::new(None::<Mono>));
        let events = Arc::new(Mutex::new(Vec::new()));
        let mut config = ComputeConfig::for_lanes(2);
        change(&mut config.scheduler);
        let sink = events.clone();
        config.observer =
            Some(Arc::new(move |event: &Event| sink.lock().unwrap().push(event.clone())));
        let began = start.clone();
        let device = SimulatedDevice::new(clock.clone(), move |model, batch, now| {
            let since =
                began.lock().unwrap().map_or(0, |start| now.since(start).as_millis() as u64);
            ms(script(model, batch, since))
        });
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let compute = Compute::with_device(config, shared, Arc::new(device)).unwrap();
        Stage { compute, clock, start, events }
    }

    fn model(&self, name: &str, class: Class) -> ModelHandle<Null> {
        self.compute.register(name, class, || Ok(Null::default())).unwrap()
    }

    /// Runs each model in on both lanes, so that its cost is known; then the timeline starts.
    async fn begin(&self, models: &[&ModelHandle<Null>]) {
        for model in models {
            for _ in 0..3 {
                let ticket =
                    |n| Ticket { stream: format!("warm-{n}").into(), priority: 0, deadline: None };
                let jobs = (0..2).map(|n| model.run(ticket(n), ()));
                futures_util::future::join_all(jobs).await;
            }
        }
        sleep(ms(2_000)).await;
        *self.start.lock().unwrap() = Some(self.clock.now());
        self.events.lock().unwrap().clear();
    }

    fn at(&self, offset_ms: u64) -> Mono {
        self.start.lock().unwrap().unwrap() + ms(offset_ms)
    }

    async fn until(&self, offset_ms: u64) {
        let left = self.at(offset_ms).since(self.clock.now());
        sleep(left).await;
    }

    /// One job whose deadline, if any, is counted from now.
    fn ask(
        &self,
        model: &ModelHandle<Null>,
        stream: &str,
        slack_ms: Option<u64>,
    ) -> tokio::task::JoinHandle<JobEnd<()>> {
        let deadline = slack_ms.map(|slack| self.clock.now() + ms(slack));
        let ticket = Ticket { stream: StreamId::from(stream), priority: 0, deadline };
        let model = model.clone();
        tokio::spawn(async move { model.run(ticket, ()).await })
    }

    /// A sequence of the language engine: `steps` steps, each on a lease renewed at its end.
    fn talk(&self, stream: &str, steps: usize, step_ms: u64) -> tokio::task::JoinHandle<()> {
        let compute = self.compute.clone();
        let ticket = Ticket { stream: StreamId::from(stream), priority: 0, deadline: None };
        tokio::spawn(async move {
            let lane = compute.lane(ticket, Class::Text, "language", ms(step_ms)).await;
            let mut lane = lane.unwrap();
            for _ in 1..steps {
                sleep(ms(step_ms)).await;
                lane = lane.renew(0, None, ms(step_ms)).await.unwrap();
            }
            sleep(ms(step_ms)).await;
        })
    }

    fn timeline(&self) -> String {
        let start = self.at(0);
        let mut text = String::new();
        for event in self.events.lock().unwrap().iter() {
            let line = match event {
                Event::Started { at, model, lanes, streams, why, .. } => {
                    let why = match why {
                        Why::Order => "",
                        Why::Share => "  (by share)",
                        Why::Aged => "  (by age)",
                    };
                    let streams: Vec<&str> = streams.iter().map(StreamId::as_str).collect();
                    Some((at, format!("lane {lanes:?} {model}: {}{why}", streams.join(" "))))
                }
                Event::Ended { at, model, stream, end, queue, .. } if end_label(*end) != "done" => {
                    let waited = queue.as_millis();
                    Some((at, format!("{model}: {stream} {} after {waited} ms", end_label(*end))))
                }
                Event::Stuck { at, lanes, .. } => Some((at, format!("lanes stuck: {lanes:?}"))),
                Event::Preempted { at, model, lanes, lost, .. } => {
                    let lost = lost.as_millis();
                    Some((at, format!("lane {lanes:?} {model}: ended half-way, {lost} ms lost")))
                }
                Event::Finished { .. } | Event::Piece { .. } | Event::Ended { .. } => None,
            };
            if let Some((at, line)) = line {
                writeln!(text, "{:>5} ms  {line}", at.since(start).as_millis()).unwrap();
            }
        }
        text
    }

    /// Ends per span of time and model, for timelines too long to read.
    fn ends_per(&self, span_ms: u64) -> String {
        let start = self.at(0);
        let mut spans: BTreeMap<(u64, String, &str), u64> = BTreeMap::new();
        for event in self.events.lock().unwrap().iter() {
            if let Event::Ended { at, model, end, .. } = event {
                let span = at.since(start).as_millis() as u64 / span_ms;
                *spans.entry((span, model.to_string(), end_label(*end))).or_default() += 1;
            }
        }
        let mut text = String::new();
        for ((span, model, end), count) in spans {
            writeln!(text, "{:>5} ms  {model}: {count} {end}", span * span_ms).unwrap();
        }
        text
    }

    /// Lane time of each class since `before`, in percent of both lanes.
    fn lane_time(&self, before: &engine::compute::ComputeStats, over_ms: f64) -> String {
        let now = self.compute.stats();
        let mut text = String::new();
        for (class, stats) in now.classes {
            let held = stats.lane_time_ms - before.classes[&class].lane_time_ms;
            let percent = 100.0 * held / (2.0 * over_ms);
            writeln!(text, "{:<10} {percent:>5.1} % of lane time", class_label(class)).unwrap();
        }
        text
    }
}

#[tokio::test(start_paused = true)]
async fn due_text_ends_a_long_piece_half_way_and_nothing_is_lost() {
    let stage = Stage::new(|_| (), |model, _, _| if model == "words" { 16 } else { 50 });
    let make = || Ok(Null { interruptible: true });
    let objects = stage.compute.register("objects", Class::Vision, make).unwrap();
    let words = stage.model("words", Class::Text);
    let warm = || Ticket { stream: "warm".into(), priority: 0, deadline: None };
    for _ in 0..2 {
        tokio::join!(objects.run(warm(), ()), objects.run(warm(), ()));
    }
    stage.begin(&[&words]).await;
    let burst: Vec<_> = (0..6)
        .map(|n| {
            let ticket = Ticket { stream: format!("clip-{n}").into(), priority: 0, deadline: None };
            let objects = objects.clone();
            tokio::spawn(async move { objects.run(ticket, ()).await })
        })
        .collect();
    stage.until(20).await;
    assert!(matches!(stage.ask(&words, "live", Some(400)).await, Ok(JobEnd::Done { .. })));
    for job in burst {
        assert!(matches!(job.await.unwrap(), JobEnd::Done { .. }));
    }
    insta::assert_snapshot!(stage.timeline());
    let objects = &stage.compute.stats().models[0];
    assert_eq!((objects.counts.preempted, objects.counts.done), (1, 10));
}

#[tokio::test(start_paused = true)]
async fn text_arriving_during_a_vision_burst_takes_the_next_lane() {
    let stage = Stage::new(|_| (), |_, batch, _| 20 * batch as u64);
    let detect = stage.model("detect", Class::Vision);
    stage.begin(&[&detect]).await;
    let burst: Vec<_> =
        (0..12).map(|n| stage.ask(&detect, &format!("cam-{}", n % 3), Some(500))).collect();
    stage.until(15).await;
    let talk = stage.talk("talk", 4, 8);
    talk.await.unwrap();
    for job in burst {
        assert!(matches!(job.await.unwrap(), JobEnd::Done { .. }));
    }
    insta::assert_snapshot!(stage.timeline());
}

#[tokio::test(start_paused = true)]
async fn vision_near_its_deadline_under_endless_text_is_served_by_its_share() {
    let stage = Stage::new(|_| (), |_, batch, _| 20 * batch as u64);
    let detect = stage.model("detect", Class::Vision);
    stage.begin(&[&detect]).await;
    let talks: Vec<_> = (0..3).map(|n| stage.talk(&format!("talk-{n}"), 12, 25)).collect();
    stage.until(60).await;
    let in_time = stage.ask(&detect, "cam", Some(120));
    assert!(matches!(in_time.await.unwrap(), JobEnd::Done { .. }));
    for talk in talks {
        talk.await.unwrap();
    }
    insta::assert_snapshot!(stage.timeline());
}

#[tokio::test(start_paused = true)]
async fn without_a_share_vision_expires_under_endless_text() {
    let stage = Stage::new(|rules| rules.shares.clear(), |_, batch, _| 20 * batch as u64);
    let detect = stage.model("detect", Class::Vision);
    stage.begin(&[&detect]).await;
    let talks: Vec<_> = (0..3).map(|n| stage.talk(&format!("talk-{n}"), 8, 25)).collect();
    stage.until(60).await;
    assert_eq!(stage.ask(&detect, "cam", Some(100)).await.unwrap(), JobEnd::Expired);
    for talk in talks {
        talk.await.unwrap();
    }
    insta::assert_snapshot!(stage.timeline());
}

#[tokio::test(start_paused = true)]
async fn shares_are_kept_when_every_class_has_more_than_it_can_do() {
    let stage =
        Stage::new(|_| (), |model, batch, _| batch as u64 * if model == "hear" { 8 } else { 20 });
    let detect = stage.model("detect", Class::Vision);
    let hear = stage.model("hear", Class::Audio);
    stage.begin(&[&detect, &hear]).await;
    let before = stage.compute.stats();
    let talks: Vec<_> = (0..4).map(|n| stage.talk(&format!("talk-{n}"), 1_000, 25)).collect();
    for step in 0..1_000 {
        stage.until(step * 10).await;
        // Twice what two lanes could do, so that jobs are shed and expire.
        drop(stage.ask(&detect, &format!("cam-{}", step % 4), Some(400)));
        drop(stage.ask(&detect, &format!("cam-{}", step % 3), Some(400)));
        drop(stage.ask(&hear, &format!("mic-{}", step % 4), Some(200)));
    }
    stage.until(10_000).await;
    let figures = stage.lane_time(&before, 10_000.0);
    talks.iter().for_each(|talk| talk.abort());
    insta::assert_snapshot!(figures);
}

#[tokio::test(start_paused = true)]
async fn a_device_that_stalls_loses_one_lane_and_gets_it_back() {
    let stalls = |_: &str, batch: usize, since: u64| match since {
        40..60 => 900,
        _ => 20 * batch as u64,
    };
    let stage = Stage::new(|rules| rules.stuck_after = ms(300), stalls);
    let detect = stage.model("detect", Class::Vision);
    stage.begin(&[&detect]).await;
    for step in 0..14 {
        stage.until(step * 80).await;
        drop(stage.ask(&detect, "cam-1", Some(400)));
        if step > 0 {
            drop(stage.ask(&detect, "cam-2", Some(400)));
        } else {
            stage.until(45).await;
            drop(stage.ask(&detect, "cam-2", Some(400)));
        }
    }
    stage.until(1_300).await;
    insta::assert_snapshot!(stage.timeline());
}

#[tokio::test(start_paused = true)]
async fn a_model_that_was_too_slow_is_used_again_soon_after_it_is_not() {
    let slow_until_4s =
        |_: &str, batch: usize, since: u64| batch as u64 * if since < 4_000 { 150 } else { 15 };
    let stage = Stage::new(|_| (), slow_until_4s);
    let detect = stage.model("detect", Class::Vision);
    stage.begin(&[&detect]).await;
    for step in 0..100 {
        stage.until(step * 100).await;
        drop(stage.ask(&detect, "cam", Some(90)));
    }
    stage.until(10_500).await;
    insta::assert_snapshot!(stage.ends_per(1_000));
}

#[tokio::test(start_paused = true)]
async fn files_fill_both_lanes_and_text_takes_the_first_to_free() {
    let stage = Stage::new(|_| (), |_, batch, _| 50 * batch as u64);
    let ocr = stage.model("ocr", Class::TextInput);
    stage.begin(&[&ocr]).await;
    let clips: Vec<_> = (0..8).map(|n| stage.ask(&ocr, &format!("clip-{n}"), None)).collect();
    stage.until(70).await;
    stage.talk("talk", 6, 10).await.unwrap();
    for clip in clips {
        assert!(matches!(clip.await.unwrap(), JobEnd::Done { .. }));
    }
    insta::assert_snapshot!(stage.timeline());
}

#[tokio::test(start_paused = true)]
async fn long_live_pieces_leave_text_a_lane_whichever_it_took() {
    let stage =
        Stage::new(|_| (), |model, batch, _| batch as u64 * if model == "ocr" { 50 } else { 10 });
    let ocr = stage.model("ocr", Class::Vision);
    let detect = stage.model("detect", Class::Vision);
    stage.begin(&[&ocr, &detect]).await;
    for step in 0..4 {
        stage.until(step * 50).await;
        for cam in 0..2 {
            drop(stage.ask(&ocr, &format!("cam-{cam}"), Some(400)));
        }
        stage.until(step * 50 + 5).await;
        drop(stage.ask(&detect, "cam-0", Some(400)));
        if step == 1 {
            stage.until(70).await;
            stage.talk("talk", 6, 10);
        }
    }
    stage.until(600).await;
    insta::assert_snapshot!(stage.timeline());
}

#[tokio::test(start_paused = true)]
async fn the_same_day_twice_is_the_same_day() {
    let mut days = Vec::new();
    for _ in 0..2 {
        let stage = Stage::new(|_| (), |_, batch, since| 5 + batch as u64 * (10 + since % 7));
        let detect = stage.model("detect", Class::Vision);
        stage.begin(&[&detect]).await;
        let talk = stage.talk("talk", 40, 9);
        for step in 0..60 {
            stage.until(step * 7).await;
            drop(stage.ask(&detect, &format!("cam-{}", step % 5), (step % 3 > 0).then_some(120)));
        }
        stage.until(2_000).await;
        talk.await.unwrap();
        days.push(stage.timeline());
    }
    assert!(days[0].lines().count() > 50);
    assert_eq!(days[0], days[1]);
}

#[tokio::test(start_paused = true)]
async fn on_a_card_shared_with_a_language_server_text_goes_first() {
    // One slot: a vision batch has the card to itself, and so has the server while it holds requests.
    let stage = Stage::new(|rules| rules.lanes = 1, |_, batch, _| 12 * batch as u64);
    let detect = stage.model("detect", Class::Vision);
    stage.begin(&[&detect]).await;
    let burst: Vec<_> =
        (0..10).map(|n| stage.ask(&detect, &format!("cam-{}", n % 5), Some(900))).collect();
    stage.until(10).await;
    let clip = stage.talk("clip", 8, 30);
    stage.until(100).await;
    let live = stage.talk("live", 3, 30);
    for talk in [clip, live] {
        talk.await.unwrap();
    }
    for job in burst {
        assert!(matches!(job.await.unwrap(), JobEnd::Done { .. }));
    }
    insta::assert_snapshot!(stage.timeline());
}
