//! What the framework costs: the whole graph, its scheduler and its lanes, with models that do nothing.
//!
//! Processor time of the process per frame and model stage, as fast as it goes and at a live pace, where every
//! frame wakes everything anew; and windows fused per second with one frame per stage and window, serialised and
//! read by one subscriber.

use std::sync::Arc;
use std::time::Duration;

use actors::ModelSet;
use actors::hub::Filter;
use engine::Class;
use engine::compute::Compute;
use media::{Detection, Frame, Scored};
use models::vision::{ReadText, TextArea, TextCrop};

use super::BenchArgs;
use super::machine::processor_time;
use super::null::Null;
use super::report::{Aim, Report};
use super::stand::{self, Counted, Stand};
use super::synthetic::{self, BenchOpener, Script};
use crate::plan::Plan;
use crate::run::Rooms;

/// Stages that ask a model about each frame.
const STAGES: u64 = 5;
const LIVE_STREAMS: u64 = 8;
const FPS: u64 = 30;

fn config(window: &str) -> String {
    format!(
        "
version: 1
stages:
  frames: {{ kind: frames, from: source.video, fps: 120 }}
  objects: {{ kind: detect, from: frames, model: ssdlite-300, track: false }}
  others: {{ kind: detect, from: frames, model: nanodet-416, track: false }}
  scenes: {{ kind: scene, from: frames, fps: 120 }}
  unsafe: {{ kind: safety, from: frames, fps: 120 }}
  screen: {{ kind: ocr, from: frames, fps: 120 }}
  fused: {{ kind: fuse, from: [objects, others, scenes, unsafe, screen], window: {window} }}
"
    )
}

pub(super) async fn bench(args: &BenchArgs) -> Result<Report, String> {
    let span = args.span(8);
    let by_second = stand::plan("overhead", &config("1s"))?;
    let by_frame = stand::plan("overhead", &config("100ms"))?;
    let mut report = Report::new("overhead");
    let fast = run(&by_second, 1, "bench:0", false, span).await?;
    let per_stage = |run: &Measured| {
        let frames = run.windows * FPS;
        (frames > 0).then(|| run.processor.as_secs_f64() * 1e6 / (frames * STAGES) as f64)
    };
    report.hold("cpu_us_per_frame_stage", per_stage(&fast), Aim::AtMost(20.0));
    report.tell("frames", fast.windows * FPS);
    let live = run(&by_second, LIVE_STREAMS, "rtsp://bench/0", true, span).await?;
    report.hold("cpu_us_per_frame_stage_live", per_stage(&live), Aim::AtMost(20.0));
    report.tell("frames_live", live.windows * FPS);
    let fused = run(&by_frame, 3, "bench:1", false, span).await?;
    let rate = fused.windows as f64 / fused.wall.as_secs_f64();
    report.hold("windows_per_s", Some(rate), Aim::AtLeast(5_000.0));
    report.tell("windows", fused.windows);
    report.tell("delivered_to_subscriber", fused.delivered);
    report.tell("gaps_of_subscriber", fused.gaps);
    report.tell("bytes_per_window", fused.bytes.checked_div(fused.delivered));
    report.tell("cores_busy", fused.processor.as_secs_f64() / fused.wall.as_secs_f64());
    Ok(report)
}

struct Measured {
    wall: Duration,
    processor: Duration,
    windows: u64,
    delivered: u64,
    gaps: u64,
    bytes: u64,
}

async fn run(
    plan: &Plan,
    streams: u64,
    uri: &str,
    paced: bool,
    span: Duration,
) -> Result<Measured, String> {
    let mut rooms = Rooms::unfurnished(&plan.compute)?;
    rooms.models = null_models(&rooms.compute).map_err(|e| e.to_string())?;
    let pictures = synthetic::grey(64, 36);
    rooms.opener = Arc::new(BenchOpener {
        scripts: vec![
            Script::Frames { pictures: pictures.clone(), fps: FPS as u32 },
            Script::Frames { pictures, fps: 10 },
        ],
    });
    let sink = Arc::new(Counted::default());
    let stand = Stand::up(&plan.graph, rooms, sink.clone()).await?;
    let mut subscription = stand.hub.subscribe(Filter::default(), None, None);
    let reader = tokio::spawn(async move {
        let (mut delivered, mut gaps, mut bytes) = (0, 0, 0);
        while let Some(delivery) = subscription.recv().await {
            match delivery.seq {
                Some(_) => delivered += 1,
                None => gaps += 1,
            }
            bytes += delivery.json.len() as u64;
        }
        (delivered, gaps, bytes)
    });
    for number in 0..streams {
        stand.add(stand::stream(&format!("s{number}"), uri, paced, &plan.graph)).await?;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (windows, processor, from) = (sink.count(), processor_time(), stand.clock.now());
    tokio::time::sleep(span).await;
    let (windows, processor) = (sink.count() - windows, processor_time() - processor);
    let wall = stand.clock.now().since(from);
    let hub = stand.hub.clone();
    stand.down().await;
    hub.close();
    let (delivered, gaps, bytes) = reader.await.map_err(|e| e.to_string())?;
    Ok(Measured { wall, processor, windows, delivered, gaps, bytes })
}

fn null_models(compute: &Compute) -> Result<ModelSet, models::ModelError> {
    let mut models = ModelSet::default();
    for name in ["ssdlite-300", "nanodet-416"] {
        let model =
            compute.register(name, Class::Vision, || Ok(Null::<Frame, Vec<Detection>>::new()))?;
        models.insert_detector(name, Arc::new(model));
    }
    let scenes =
        compute.register("scenes", Class::Vision, || Ok(Null::<Frame, Vec<Scored>>::new()))?;
    models.insert_classifier("efficientnet-lite0", Arc::new(scenes));
    let safety = compute.register("safety", Class::Vision, || Ok(Null::<Frame, f32>::new()))?;
    models.insert_safety("open-nsfw", Arc::new(safety));
    let areas =
        compute.register("areas", Class::TextInput, || Ok(Null::<Frame, Vec<TextArea>>::new()))?;
    let lines = compute.register("lines", Class::TextInput, || Ok(Nothing))?;
    models.insert_reader("ppocr-v5", Arc::new(areas), Arc::new(lines));
    Ok(models)
}

/// Reads lines; there are none to read.
struct Nothing;

impl models::Model for Nothing {
    type Input = TextCrop;
    type Output = ReadText;

    fn batch_max(&self) -> usize {
        1
    }

    fn run(&mut self, batch: &[TextCrop]) -> Result<Vec<ReadText>, models::ModelError> {
        Ok(batch.iter().map(|_| ReadText { text: String::new(), score: 0.0 }).collect())
    }
}
