//! Text first: the text stage's answer while vision and audio take all they can get, against the same when they
//! are silent; the same without priorities; and what vision and audio get while text never ends.
//!
//! The load is two endless files of real frames and one of sound, without deadlines, so that nothing of it is
//! ever shed. In the last part text is a made-up asker of lanes, since no real one wants all of them all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actors::{Ask, Asked};
use engine::compute::{Compute, ComputeStats};
use engine::{Class, Ticket};
use media::{Frame, SourceSpec};
use models::speech::{ActivityInput, CHUNK_SAMPLES, VoiceState};

use super::BenchArgs;
use super::report::{Aim, Report};
use super::stand::{self, Kept, Stand, answered};
use super::stats::{Times, ratio};
use super::synthetic::{self, BenchOpener, Script};
use crate::plan::Plan;
use crate::run::Rooms;

/// Only the answer that is due in its window is asked for; the budget is long enough for every answer to be timed.
const CONFIG: &str = "
version: 1
models:
  text: { backends: [{ kind: embedded, model: smollm2-135m }] }
stages:
  frames: { kind: frames, from: source.video, fps: 30 }
  objects: { kind: detect, from: frames, track: false }
  speech: { kind: transcribe, from: source.audio, partials: false }
  meaning: { kind: understand, from: source.subtitles, model: text, summary_tokens_max: 0 }
  fused: { kind: fuse, from: [objects, speech, meaning], window: 500ms, budget: 2s, revisions: false }
";

const TEXTS: &[&str] = &[
    "The train to Berlin is late because of snow on the line",
    "The striker scored twice in the second half and the crowd went wild",
    "Stir the onions in butter until they are golden and add the stock",
    "The central bank left interest rates where they were in March",
    "Heavy rain is expected along the coast this evening and tomorrow",
    "The band plays its new album in full tonight at the old town hall",
    "Doctors say that a short walk after dinner is good for the heart",
    "The new phone has a larger battery and charges in half an hour",
    "Police closed the motorway after a lorry lost its load near the bridge",
    "Fresh bread and coffee are half price until noon on Sundays",
];

const DETECTOR: &str = "ssdlite-300";
/// What a piece of endless text takes.
const PIECE: Duration = Duration::from_millis(20);

pub(super) async fn bench(args: &BenchArgs) -> Result<Report, String> {
    let plan = stand::plan("priority", CONFIG)?;
    let first = Loaded::measure(&plan, args, true).await?;
    let equal = Loaded::measure(&equal_classes(&plan), args, false).await?;
    let Loaded { idle, busy, before, after, wall, granted } = first;

    let mut report = Report::new("priority");
    let held = |of: fn(&Times) -> Option<f64>| ratio(of(&busy.times), of(&idle.times));
    report.hold("text_p50_ratio", held(|times| times.at(0.5)), Aim::AtMost(1.25));
    report.hold("text_p99_ratio", held(|times| times.at(0.99)), Aim::AtMost(1.25));
    let wanted = |class: Class| plan.compute.shares.get(&class).copied();
    let configured = [Class::Vision, Class::Audio].map(|class| {
        let default = engine::scheduler::SchedulerConfig::for_lanes(2).shares;
        wanted(class).or_else(|| default.get(&class).copied()).unwrap_or_default()
    });
    let granted = granted.unwrap_or_default();
    let error = granted.iter().zip(configured).map(|(got, want)| (got - want).abs());
    report.hold("share_error", error.reduce(f64::max), Aim::AtMost(0.03));
    report.tell("share_vision", granted[0]);
    report.tell("share_audio", granted[1]);
    // The same load on the same models when no class goes first.
    let of = |fraction| ratio(equal.busy.times.at(fraction), equal.idle.times.at(fraction));
    report.tell("without_priorities_text_p50_ratio", of(0.5));
    report.tell("without_priorities_text_p99_ratio", of(0.99));
    report.tell_times("without_priorities_text_busy", &equal.busy.times);
    report.tell("without_priorities_unanswered", equal.busy.missing);
    let without = answered(&equal.after, DETECTOR) - answered(&equal.before, DETECTOR);
    report.tell("without_priorities_detections_per_s", without as f64 / equal.wall.as_secs_f64());
    report.tell_times("text_idle", &idle.times);
    report.tell_times("text_busy", &busy.times);
    report.tell("text_busy_queue_p50_ms", busy.queue.at(0.5));
    report.tell("text_busy_queue_p99_ms", busy.queue.at(0.99));
    report.tell("answers_idle", idle.times.count());
    report.tell("answers_busy", busy.times.count());
    report.tell("unanswered_idle", idle.missing);
    report.tell("unanswered_busy", busy.missing);
    let detections = answered(&after, DETECTOR) - answered(&before, DETECTOR);
    report.tell("detections_per_s_busy", detections as f64 / wall.as_secs_f64());
    for class in [Class::Text, Class::TextInput, Class::Vision, Class::Audio] {
        let name = format!("lanes_busy_{}", engine::events::class_label(class));
        report.tell(&name, lanes(&before, &after, class, wall));
    }
    Ok(report)
}

/// The rules without text first: nobody's work is interrupted, no lane is kept, and every class has its equal share.
fn equal_classes(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    let rules = &mut plan.compute;
    (rules.preempt, rules.text_lane) = (false, false);
    rules.order.reverse();
    let share = 1.0 / rules.order.len() as f64;
    rules.shares = rules.order.iter().map(|class| (*class, share)).collect();
    plan
}

/// What one set of rules makes of the load.
struct Loaded {
    idle: Answers,
    busy: Answers,
    before: ComputeStats,
    after: ComputeStats,
    wall: Duration,
    /// Shares of vision and audio while text never ends.
    granted: Option<[f64; 2]>,
}

impl Loaded {
    async fn measure(plan: &Plan, args: &BenchArgs, endless: bool) -> Result<Self, String> {
        let span = args.span(40);
        let mut rooms = Rooms::open(plan).await?;
        let clip = models::Catalogue::builtin().cache().join("media/vtest/vtest.avi");
        let spec = SourceSpec {
            uri: clip.display().to_string(),
            ..stand::stream("frames", "", false, &plan.graph).source
        };
        let pictures = {
            let clock = rooms.clock.clone();
            let read = move || synthetic::frames_of(&spec, clock, 30);
            tokio::task::spawn_blocking(read).await.map_err(|e| e.to_string())??
        };
        rooms.opener = Arc::new(BenchOpener {
            scripts: vec![
                Script::Sentences { texts: TEXTS, every: Duration::from_millis(500) },
                Script::Frames { pictures: pictures.clone(), fps: 30 },
                Script::Silence,
            ],
        });
        let objects = rooms.models.detector(DETECTOR).map_err(|e| e.to_string())?;
        let activity = rooms.models.listener("moonshine-tiny").map_err(|e| e.to_string())?.0;
        let results = Arc::new(Kept::default());
        let stand = Stand::up(&plan.graph, rooms, results.clone()).await?;
        stand.add(stand::stream("text", "rtsp://bench/0", true, &plan.graph)).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        results.take();
        tokio::time::sleep(span).await;
        let idle = Answers::of(&results);

        for (id, uri) in [("video-1", "bench:1"), ("video-2", "bench:1"), ("audio", "bench:2")] {
            stand.add(stand::stream(id, uri, false, &plan.graph)).await?;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        results.take();
        let (before, from) = (stand.compute.stats(), stand.clock.now());
        tokio::time::sleep(span).await;
        let busy = Answers::of(&results);
        let (after, wall) = (stand.compute.stats(), stand.clock.now().since(from));
        for id in ["text", "video-1", "video-2", "audio"] {
            stand.system.remove(&id.into()).await;
        }
        let _ = tokio::time::timeout(Duration::from_secs(10), stand.system.all_ended()).await;
        let granted = if endless {
            let span = args.span(15);
            Some(endless_text(&stand.compute, objects, activity, &pictures, span).await)
        } else {
            None
        };
        stand.down().await;
        Ok(Loaded { idle, busy, before, after, wall, granted })
    }
}

/// Mean number of lanes that a class held.
fn lanes(before: &ComputeStats, after: &ComputeStats, class: Class, wall: Duration) -> f64 {
    let held = |stats: &ComputeStats| stats.classes.get(&class).map_or(0.0, |c| c.lane_time_ms);
    (held(after) - held(before)) / (wall.as_secs_f64() * 1e3)
}

struct Answers {
    times: Times,
    queue: Times,
    missing: usize,
}

impl Answers {
    /// What the text stage did since the last call: from its mark to its answer.
    fn of(results: &Kept) -> Self {
        let mut answers = Answers { times: Times::default(), queue: Times::default(), missing: 0 };
        for result in results.take() {
            if result.stream.as_str() != "text" {
                continue;
            }
            let text = |stage: &media::StageId| stage.as_str() == "meaning";
            answers.missing += result.missing.iter().filter(|m| text(&m.stage)).count();
            if let Some(timing) = result.timings.iter().find(|t| text(&t.stage)) {
                answers.times.add(timing.queue_ms + timing.compute_ms);
                answers.queue.add(timing.queue_ms);
            }
        }
        answers
    }
}

/// Fractions of all lane time that vision and audio get while text wants every lane.
async fn endless_text(
    compute: &Compute,
    objects: Asked<Frame, Vec<media::Detection>>,
    activity: Asked<ActivityInput, models::speech::ActivityOutput>,
    pictures: &Arc<[Frame]>,
    span: Duration,
) -> [f64; 2] {
    let over = Arc::new(AtomicBool::new(false));
    let mut askers = Vec::new();
    for number in 0..4 {
        let frame = pictures[number % pictures.len()].clone();
        askers.push(ask_on(objects.clone(), move || frame.clone(), over.clone()));
        let sound = || ActivityInput {
            state: VoiceState::default(),
            chunks: vec![[0.0; CHUNK_SAMPLES]; 64],
        };
        askers.push(ask_on(activity.clone(), sound, over.clone()));
        let (compute, over) = (compute.clone(), over.clone());
        askers.push(tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let lane = compute.lane(ticket(0), Class::Text, "endless", PIECE).await;
                tokio::time::sleep(PIECE).await;
                drop(lane);
            }
        }));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = compute.stats();
    tokio::time::sleep(span).await;
    let after = compute.stats();
    over.store(true, Ordering::Relaxed);
    for asker in askers {
        // One that fell shows as a share that is not granted.
        let _ = asker.await;
    }
    let all = after.lanes as f64;
    [Class::Vision, Class::Audio].map(|class| lanes(&before, &after, class, span) / all)
}

fn ask_on<I: Send + 'static, O: Send + 'static>(
    model: Arc<dyn Ask<I, O>>,
    input: impl Fn() -> I + Send + 'static,
    over: Arc<AtomicBool>,
) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        while !over.load(Ordering::Relaxed) {
            model.ask(ticket(10), input()).await;
        }
    })
}

fn ticket(priority: i32) -> Ticket {
    Ticket { stream: "load".into(), priority, deadline: None }
}
