//! A small world around the actors: a scripted source, a scripted detector, and a sink that keeps results.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of a test")]

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actors::fusion::{Alerts, Taxonomy};
use actors::hub::Hub;
use actors::plan::{GraphPlan, Input, StageIndex, StagePlan, StreamPlan};
use actors::stages::{DetectSettings, FramesSettings, FuseSettings, Settings};
use actors::{AddError, Ask, Board, Deps, ModelSet, ResultSink, StreamStatus, System};
use bytes::Bytes;
use engine::compute::{Compute, ComputeConfig};
use engine::{JobEnd, Ticket};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use media::result::{FusedResult, StreamMessage};
use media::{
    Cancel, Clock, Detection, Frame, MediaError, Opener, Pts, Reader, Rect, Samples, SourceInfo,
    SourceSpec, StreamId, SystemClock, Track, TrackCounts, TrackKind, Transport, Unit,
};

/// Answers each frame with as many objects as the script says.
pub(crate) struct Answers {
    script: Box<dyn Fn(&Frame) -> usize + Send + Sync>,
    asked: AtomicU32,
}

impl Answers {
    pub(crate) fn new(script: impl Fn(&Frame) -> usize + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Answers { script: Box::new(script), asked: AtomicU32::new(0) })
    }

    pub(crate) fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }
}

struct Detector(Arc<Answers>);

impl Ask<Frame, Vec<Detection>> for Detector {
    fn ask(&self, _: Ticket, frame: Frame) -> BoxFuture<'static, JobEnd<Vec<Detection>>> {
        self.0.asked.fetch_add(1, Ordering::Relaxed);
        let objects = (self.0.script)(&frame);
        let detection = Detection {
            label: "person".into(),
            score: 0.9,
            rect: Rect(0.1, 0.1, 0.2, 0.4),
            track: None,
        };
        let done = JobEnd::Done {
            output: vec![detection; objects],
            queue: Duration::ZERO,
            compute: Duration::from_millis(1),
            batch: 1,
        };
        async move {
            tokio::task::yield_now().await;
            done
        }
        .boxed()
    }
}

/// What a source hands out, and how it ends.
#[derive(Clone)]
pub(crate) struct Script {
    kind: TrackKind,
    units: Vec<Unit>,
    error: Option<MediaError>,
    hangs: bool,
}

impl Script {
    pub(crate) fn frames(seconds: i64, fps: i64) -> Self {
        let units = (0..seconds * fps)
            .map(|i| {
                Unit::Frame(Frame {
                    pts: Pts(i * 1_000_000 / fps),
                    arrival: Default::default(),
                    width: 2,
                    height: 1,
                    pixels: Bytes::from_static(&[0; 6]),
                    cut: false,
                })
            })
            .collect();
        Script { kind: TrackKind::Video, units, error: None, hangs: false }
    }

    pub(crate) fn sound(seconds: i64) -> Self {
        let units = (0..seconds * 10)
            .map(|i| {
                Unit::Samples(Samples {
                    pts: Pts(i * 100_000),
                    arrival: Default::default(),
                    pcm: vec![0.0; 1_600],
                })
            })
            .collect();
        Script { kind: TrackKind::Audio, units, error: None, hangs: false }
    }

    pub(crate) fn then(mut self, error: MediaError) -> Self {
        self.error = Some(error);
        self
    }

    /// Delivers nothing more, and does not end until it is cancelled.
    pub(crate) fn then_hang(mut self) -> Self {
        self.hangs = true;
        self
    }
}

struct Scripts(Script);

impl Opener for Scripts {
    fn open(
        &self,
        _: &SourceSpec,
        clock: Arc<dyn Clock>,
        cancel: Cancel,
    ) -> Result<Box<dyn Reader>, MediaError> {
        let script = self.0.clone();
        let track = Track { kind: script.kind, codec: "script".into(), detail: String::new() };
        let info =
            SourceInfo { tracks: vec![track], duration: None, title: None, description: None };
        let units = script.units.clone().into();
        Ok(Box::new(Scripted { info, units, script, clock, cancel }))
    }
}

struct Scripted {
    info: SourceInfo,
    units: VecDeque<Unit>,
    script: Script,
    clock: Arc<dyn Clock>,
    cancel: Cancel,
}

impl Reader for Scripted {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn next(&mut self) -> Result<Option<Unit>, MediaError> {
        if let Some(mut unit) = self.units.pop_front() {
            if let Unit::Frame(frame) = &mut unit {
                frame.arrival = self.clock.now();
            }
            return Ok(Some(unit));
        }
        if self.script.hangs {
            while !self.cancel.is_cancelled() {
                std::thread::park_timeout(Duration::from_millis(5));
            }
            return Err(MediaError::Cancelled { uri: "script".into() });
        }
        match self.script.error.take() {
            Some(error) => Err(error),
            None => Ok(None),
        }
    }

    fn video_counts(&self) -> TrackCounts {
        TrackCounts::default()
    }

    fn audio_counts(&self) -> TrackCounts {
        TrackCounts::default()
    }
}

#[derive(Default)]
struct Kept(Mutex<Vec<FusedResult>>);

impl ResultSink for Kept {
    fn result<'a>(&'a self, result: &'a FusedResult, _: Bytes, _: bool) -> BoxFuture<'a, ()> {
        async move { self.0.lock().unwrap().push(result.clone()) }.boxed()
    }

    fn ended<'a>(&'a self, _: &'a StreamMessage) -> BoxFuture<'a, ()> {
        async {}.boxed()
    }
}

pub(crate) struct World {
    pub(crate) answers: Arc<Answers>,
    board: Arc<Board>,
}

impl World {
    pub(crate) fn new(answers: Arc<Answers>) -> Self {
        World { answers, board: Arc::default() }
    }

    /// Runs one stream to its end, or stops it when its script hangs.
    pub(crate) async fn run(&self, script: Script) -> Vec<FusedResult> {
        let kept = Arc::new(Kept::default());
        let hangs = script.hangs;
        let system = self.start(script, kept.clone()).await;
        system.add(stream("clip")).await.unwrap();
        if hangs {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(system.remove(&StreamId::from("clip")).await);
        }
        let ended = tokio::time::timeout(Duration::from_secs(60), system.all_ended()).await;
        ended.expect("the stream ends by itself");
        system.drain(Duration::from_secs(5)).await;
        let mut results = kept.0.lock().unwrap().clone();
        results.sort_by_key(|r| r.window.index);
        results
    }

    /// Runs several streams of the same script; windows answered per stream.
    pub(crate) async fn run_many(&self, script: Script, count: usize) -> BTreeMap<StreamId, usize> {
        let kept = Arc::new(Kept::default());
        let system = self.start(script, kept.clone()).await;
        for i in 0..count {
            system.add(stream(&format!("clip-{i}"))).await.unwrap();
        }
        let again = system.add(stream(&format!("clip-{}", count - 1))).await;
        assert!(matches!(again, Err(AddError::Duplicate(_)) | Ok(())));
        let ended = tokio::time::timeout(Duration::from_secs(60), system.all_ended()).await;
        let progress = ended.expect("the streams end by themselves");
        assert!(progress.failed.is_empty(), "{progress:?}");
        system.drain(Duration::from_secs(5)).await;
        let mut counts = BTreeMap::new();
        for result in kept.0.lock().unwrap().iter() {
            *counts.entry(result.stream.clone()).or_default() += 1;
        }
        counts
    }

    pub(crate) fn status(&self) -> StreamStatus {
        self.board.stream(&StreamId::from("clip")).unwrap()
    }

    async fn start(&self, script: Script, kept: Arc<Kept>) -> System {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let mut models = ModelSet::default();
        models.insert_detector("script", Arc::new(Detector(self.answers.clone())));
        let deps = Deps {
            compute: Compute::start(ComputeConfig::for_lanes(1), clock.clone()).unwrap(),
            clock,
            opener: Arc::new(Scripts(script)),
            models,
            hub: Hub::new("test".into()),
            sink: Some(kept),
            board: self.board.clone(),
            taxonomy: Arc::new(Taxonomy::builtin().unwrap()),
            alerts: Arc::new(Alerts::compile(&BTreeMap::new()).unwrap()),
            files_at_once: 3,
        };
        System::start(graph(), deps).await.unwrap()
    }
}

fn graph() -> GraphPlan {
    let stage = |id: &str, settings: Settings, input: Input| StagePlan {
        id: id.into(),
        class: settings.kind().class,
        settings,
        inputs: vec![input],
    };
    GraphPlan {
        stages: vec![
            stage("frames", Settings::Frames(FramesSettings::default()), Input::SourceVideo),
            stage(
                "objects",
                Settings::Detect(DetectSettings {
                    model: "script".into(),
                    track: false,
                    ..DetectSettings::default()
                }),
                Input::Stage(StageIndex(0)),
            ),
            stage("fused", Settings::Fuse(FuseSettings::default()), Input::Stage(StageIndex(1))),
        ],
    }
}

fn stream(id: &str) -> StreamPlan {
    let source = SourceSpec {
        uri: "script".into(),
        transport: Transport::Tcp,
        open_timeout: Duration::from_secs(1),
        read_timeout: Duration::from_secs(1),
        sampling: graph().sampling(),
    };
    StreamPlan {
        id: id.into(),
        source,
        paced: false,
        priority: 10,
        title: None,
        description: None,
        language: None,
        clip_budget: None,
    }
}
