//! A folder of short videos through `configs/short-videos.yaml`: how long one takes alone, how many a second both
//! cores do, and how much of what the bare parts do that is.
//!
//! Graph and bare loops take turns, so that whoever else computes on the machine slows both.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use actors::TextModel;
use actors::stages::Settings;
use engine::language::Understander;
use media::result::FusedResult;
use media::{StageId, StreamId};
use serde_json::{Map, Value, json};
use tokio::runtime::Handle;

use super::bare::{self, Job, Loops, Parts, Spent};
use super::recorder::{Log, Names, Work};
use super::report::{Aim, Report};
use super::stand::{self, Kept, Stand};
use super::stats::{Times, ratio};
use super::{BenchArgs, clips_made, machine, reference};
use crate::plan::Plan;
use crate::run::Rooms;

const CONFIG: &str = include_str!("../../../configs/short-videos.yaml");
/// Times that graph and bare loops take turns.
const TURNS: usize = 3;

pub(super) async fn bench(args: &BenchArgs) -> Result<Report, String> {
    let plan = stand::plan("short-videos.yaml", CONFIG)?;
    let catalogue = models::Catalogue::builtin();
    let clips = clips_made::clips(&catalogue.cache().join("media"))?;

    let mut rooms = Rooms::open(&plan).await?;
    let (names, ocr_side_max) = names(&plan)?;
    let log = Log::wrap(&mut rooms.models, &names).map_err(|e| e.to_string())?;
    let parts = parts(&rooms, Arc::new(names), ocr_side_max)?;
    let results = Arc::new(Kept::default());
    let stand = Stand::up(&plan.graph, rooms, results.clone()).await?;
    let run = Run { stand: &stand, plan: &plan, clips: &clips, results: &results };

    // Not measured: everything is warm afterwards, and it is known what the models were asked.
    run.one_by_one("noted").await?;
    let jobs = jobs(&plan, &clips, &log.take());
    let mut alone = run.one_by_one("alone").await?;
    alone.extend(run.one_by_one("again").await?);

    let cores = machine::cores();
    let mut loops = {
        let parts = parts.clone();
        blocking(move || Loops::open(parts, cores + 1)).await?
    };
    let jobs = Arc::new(jobs);
    let (decode_s, ffmpeg_s) = decoding(&jobs, &parts, cores).await?;
    let (mut graph_s, mut busy) = (0.0, Vec::new());
    let mut bare = [Turns::default(), Turns::default()];
    for turn in 0..TURNS {
        let (wall, results) = run.all_at_once(turn).await?;
        graph_s += wall.as_secs_f64();
        busy.extend(results);
        for (turns, threads) in bare.iter_mut().zip([cores, cores + 1]) {
            tracing::info!(turn, threads, "bare loops");
            let (handle, own_jobs) = (Handle::current(), jobs.clone());
            let (back, done) = blocking(move || {
                let done = loops.run(&own_jobs, threads, &handle)?;
                Ok((loops, done))
            })
            .await?;
            loops = back;
            turns.seconds += done.0.as_secs_f64();
            turns.spent.extend(done.1);
        }
    }
    tracing::info!("forward passes in Python");
    let passes = {
        let (program, parts) = (args.python.clone(), parts.clone());
        let compare =
            move || reference::python(&program, &parts.library, &parts.names, &*parts.clock);
        blocking(compare).await?
    };
    stand.down().await;

    let count = (clips.len() * TURNS) as f64;
    let best = if bare[0].seconds <= bare[1].seconds { &bare[0] } else { &bare[1] };
    let rate = count / graph_s;
    let mut report = Report::new("clips");
    let processing =
        |results: &[FusedResult]| results.iter().filter_map(|r| r.processing_ms).collect::<Times>();
    let alone_times = processing(&alone);
    report.hold("alone_p50_ms", alone_times.at(0.5), Aim::AtMost(380.0));
    report.tell("alone_p99_ms", alone_times.at(0.99));
    report.tell_times("sustained", &processing(&busy));
    report.tell("clips_per_s", rate);
    report.tell("bare_clips_per_s", count / best.seconds);
    report.hold("ratio", Some(rate * best.seconds / count), Aim::AtLeast(0.95));
    report.tell("decode_clips_per_s", clips.len() as f64 / decode_s);
    report.tell("ffmpeg_clips_per_s", clips.len() as f64 / ffmpeg_s);
    report.hold("decode_ratio", ratio(Some(ffmpeg_s), Some(decode_s)), Aim::AtLeast(0.9));
    python_figures(&mut report, passes);
    let stages = stages(&alone);
    report.tell("slowest_stage", slowest(&stages));
    report.tell("stages_alone", stage_figures(&stages));
    report.tell("stages_sustained", stage_figures(&self::stages(&busy)));
    report.tell("bare_ms", bare_figures(&best.spent));
    report.tell("incomplete", incomplete(&alone) + incomplete(&busy));
    Ok(report)
}

#[derive(Default)]
struct Turns {
    seconds: f64,
    spent: Vec<Spent>,
}

/// Blocking work beside the graph.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|e| e.to_string())?
}

async fn decoding(jobs: &Arc<Vec<Job>>, parts: &Parts, cores: usize) -> Result<(f64, f64), String> {
    tracing::info!("decoding, and decoding by ffmpeg");
    let (jobs, clock) = (jobs.clone(), parts.clock.clone());
    blocking(move || {
        let files: Vec<&Path> = jobs.iter().map(|job| Path::new(&job.spec.uri)).collect();
        let (mut ours, mut ffmpeg) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..2 {
            ours += bare::decode_all(&jobs, &clock, cores)?;
            ffmpeg += reference::ffmpeg(&files, &*clock, cores)?;
        }
        Ok((ours.as_secs_f64() / 2.0, ffmpeg.as_secs_f64() / 2.0))
    })
    .await
}

struct Run<'a> {
    stand: &'a Stand,
    plan: &'a Plan,
    clips: &'a [String],
    results: &'a Kept,
}

impl Run<'_> {
    async fn add(&self, id: &str, clip: &str) -> Result<(), String> {
        self.stand.add(stand::stream(id, clip, false, &self.plan.graph)).await
    }

    async fn one_by_one(&self, round: &str) -> Result<Vec<FusedResult>, String> {
        tracing::info!(round, "one clip at a time");
        for (number, clip) in self.clips.iter().enumerate() {
            self.add(&format!("{round}-{number}"), clip).await?;
            self.stand.all_ended().await?;
        }
        self.taken(self.clips.len())
    }

    /// As many at once as the system takes.
    async fn all_at_once(&self, turn: usize) -> Result<(Duration, Vec<FusedResult>), String> {
        tracing::info!(turn, "all clips at once");
        let from = self.stand.clock.now();
        for (number, clip) in self.clips.iter().enumerate() {
            self.add(&format!("turn{turn}-{number}"), clip).await?;
        }
        self.stand.all_ended().await?;
        let wall = self.stand.clock.now().since(from);
        Ok((wall, self.taken(self.clips.len())?))
    }

    fn taken(&self, expected: usize) -> Result<Vec<FusedResult>, String> {
        let results = self.results.take();
        if results.len() != expected {
            return Err(format!("{} results of {expected} clips", results.len()));
        }
        Ok(results)
    }
}

fn names(plan: &Plan) -> Result<(Names, u32), String> {
    let mut found: BTreeMap<&str, String> = BTreeMap::new();
    let mut side_max = 0;
    for stage in &plan.graph.stages {
        let (kind, model) = match &stage.settings {
            Settings::Detect(s) => ("detect", &s.model),
            Settings::Scene(s) => ("scene", &s.model),
            Settings::Safety(s) => ("safety", &s.model),
            Settings::Ocr(s) => {
                side_max = s.side_max;
                ("ocr", &s.model)
            }
            Settings::Transcribe(s) => ("transcribe", &s.model),
            Settings::Understand(s) => ("understand", &s.model),
            Settings::Frames(_) | Settings::Sentiment(_) | Settings::Fuse(_) => continue,
        };
        found.insert(kind, model.clone());
    }
    let mut take = |kind: &str| {
        found.remove(kind).ok_or_else(|| format!("short-videos.yaml has no `{kind}` stage"))
    };
    let names = Names {
        objects: take("detect")?,
        scenes: take("scene")?,
        safety: take("safety")?,
        screen: take("ocr")?,
        speech: take("transcribe")?,
        text: take("understand")?,
    };
    Ok((names, side_max))
}

fn parts(rooms: &Rooms, names: Arc<Names>, ocr_side_max: u32) -> Result<Parts, String> {
    let library = rooms.library.clone().ok_or("nothing was loaded")?;
    let backend = rooms.backends.first().cloned().ok_or("no language model was started")?;
    let clock = rooms.clock.clone();
    let languages = vec!["en".to_owned()];
    let text = TextModel::new(Understander::new(backend), None, None, clock.clone(), languages);
    Ok(Parts { library, names, clock, text: Arc::new(text), ocr_side_max })
}

fn jobs(plan: &Plan, clips: &[String], noted: &BTreeMap<StreamId, Work>) -> Vec<Job> {
    let job = |(number, clip): (usize, &String)| {
        let id = StreamId::from(format!("noted-{number}"));
        let spec = stand::stream("bare", clip, false, &plan.graph).source;
        Job { spec, work: noted.get(&id).cloned().unwrap_or_default() }
    };
    clips.iter().enumerate().map(job).collect()
}

/// Per stage and clip: wait for compute, and compute.
type StageTimes = BTreeMap<StageId, (Times, Times)>;

fn stages(results: &[FusedResult]) -> StageTimes {
    let mut stages = StageTimes::new();
    for timing in results.iter().flat_map(|result| &result.timings) {
        let (queue, compute) = stages.entry(timing.stage.clone()).or_default();
        queue.add(timing.queue_ms);
        compute.add(timing.compute_ms);
    }
    stages
}

fn slowest(stages: &StageTimes) -> Option<String> {
    let median = |(_, compute): &(Times, Times)| compute.at(0.5).unwrap_or_default();
    let slowest = stages.iter().max_by(|a, b| median(a.1).total_cmp(&median(b.1)));
    slowest.map(|(stage, _)| stage.to_string())
}

fn stage_figures(stages: &StageTimes) -> Value {
    let figures = |(queue, compute): &(Times, Times)| {
        json!({
            "compute_p50_ms": compute.at(0.5),
            "compute_p99_ms": compute.at(0.99),
            "queue_p50_ms": queue.at(0.5),
        })
    };
    stages.iter().map(|(id, times)| (id.to_string(), figures(times))).collect::<Map<_, _>>().into()
}

/// Mean per clip of a bare loop.
fn bare_figures(spent: &[Spent]) -> Value {
    let mean = |part: fn(&Spent) -> Duration| {
        let sum: f64 = spent.iter().map(|one| part(one).as_secs_f64() * 1e3).sum();
        sum / spent.len().max(1) as f64
    };
    json!({
        "decode": mean(|s| s.decode),
        "objects": mean(|s| s.objects),
        "scenes": mean(|s| s.scenes),
        "unsafe": mean(|s| s.safety),
        "screen": mean(|s| s.screen),
        "speech": mean(|s| s.speech),
        "meaning": mean(|s| s.text),
    })
}

fn python_figures(report: &mut Report, passes: Option<Vec<reference::Pass>>) {
    let Some(passes) = passes else {
        report.tell("python_onnxruntime", "not there: nothing to compare with");
        return;
    };
    let sum = |of: fn(&reference::Pass) -> f64| passes.iter().map(of).sum::<f64>();
    let each = |pass: &reference::Pass| {
        (pass.name.clone(), json!({ "ours_ms": pass.ours_ms, "python_ms": pass.python_ms }))
    };
    report.tell("python_onnxruntime", passes.iter().map(each).collect::<Map<_, _>>());
    let all = ratio(Some(sum(|p| p.python_ms)), Some(sum(|p| p.ours_ms)));
    report.hold("python_ratio", all, Aim::AtLeast(0.9));
}

fn incomplete(results: &[FusedResult]) -> usize {
    results.iter().filter(|result| !result.missing.is_empty()).count()
}
