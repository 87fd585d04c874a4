//! The bare parts: the same clips decoded by the same reader and the same model calls, in plain loops on threads,
//! with the same sessions and batches, and nothing of the graph, its scheduler, its actors or its fusion.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actors::{AskedText, Library};
use engine::Ticket;
use media::{Cancel, Clock, FfmpegOpener, Opener, SourceSpec};
use models::speech::{Transcriber, VoiceActivity};
use models::vision::{
    Detector, Safety, SceneClassifier, TextDetector, TextRecognizer, TrackerSettings,
};
use models::{Model, ModelError};
use tokio::runtime::Handle;

use super::recorder::{Names, Work};

/// A clip and what there is to do about it.
pub(super) struct Job {
    pub(super) spec: SourceSpec,
    pub(super) work: Work,
}

/// What loops need.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) library: Arc<Library>,
    pub(super) names: Arc<Names>,
    pub(super) clock: Arc<dyn Clock>,
    /// Without a lane: nobody else computes.
    pub(super) text: AskedText,
    pub(super) ocr_side_max: u32,
}

/// Where a loop's time went.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    pub(super) decode: Duration,
    pub(super) objects: Duration,
    pub(super) scenes: Duration,
    pub(super) safety: Duration,
    pub(super) screen: Duration,
    pub(super) speech: Duration,
    pub(super) text: Duration,
}

/// Threads with models of their own, loaded once.
pub(super) struct Loops {
    parts: Parts,
    threads: Vec<Models>,
}

struct Models {
    objects: Detector,
    scenes: SceneClassifier,
    safety: Safety,
    areas: TextDetector,
    lines: TextRecognizer,
    activity: VoiceActivity,
    speech: Transcriber,
}

impl Models {
    fn open(parts: &Parts) -> Result<Self, ModelError> {
        let Parts { library, names, .. } = parts;
        let runtime = &library.runtime;
        let dir = |name: &str| -> Result<PathBuf, ModelError> { (library.dir)(name) };
        let screen = dir(&names.screen)?;
        Ok(Models {
            objects: Detector::open(
                runtime,
                &dir(&names.objects)?,
                TrackerSettings::default().score_low,
            )?,
            scenes: SceneClassifier::open(runtime, &dir(&names.scenes)?, 20)?,
            safety: Safety::open(runtime, &dir(&names.safety)?)?,
            areas: TextDetector::open(runtime, &screen, parts.ocr_side_max)?,
            lines: TextRecognizer::open(runtime, &screen)?,
            activity: VoiceActivity::open(runtime, &dir("silero-vad-v6")?)?,
            speech: Transcriber::open(runtime, &dir(&names.speech)?)?,
        })
    }

    fn clip(&mut self, parts: &Parts, job: &Job, handle: &Handle) -> Result<Spent, String> {
        let clock = &*parts.clock;
        let mut spent = Spent::default();
        timed(clock, &mut spent.decode, || decode(&job.spec, &parts.clock))?;
        let work = &job.work;
        timed(clock, &mut spent.objects, || batches(&mut self.objects, &work.objects))?;
        timed(clock, &mut spent.scenes, || batches(&mut self.scenes, &work.scenes))?;
        timed(clock, &mut spent.safety, || batches(&mut self.safety, &work.safety))?;
        timed(clock, &mut spent.screen, || {
            batches(&mut self.areas, &work.areas)?;
            batches(&mut self.lines, &work.lines)
        })?;
        timed(clock, &mut spent.speech, || {
            batches(&mut self.activity, &work.activity)?;
            batches(&mut self.speech, &work.speech)
        })?;
        timed(clock, &mut spent.text, || {
            for (inputs, spec) in &work.meanings {
                let asked = parts.text.meaning(ticket(), inputs.clone(), spec.clone());
                handle.block_on(asked).map_err(|reason| format!("text: {reason:?}"))?;
            }
            for (inputs, spec) in &work.summaries {
                let asked = parts.text.summary(ticket(), inputs.clone(), spec.clone());
                handle.block_on(asked).map_err(|reason| format!("summary: {reason:?}"))?;
            }
            Ok(())
        })?;
        Ok(spent)
    }
}

impl Loops {
    /// Loads the models of `threads` loops.
    pub(super) fn open(parts: Parts, threads: usize) -> Result<Self, String> {
        let threads = (0..threads).map(|_| Models::open(&parts)).collect::<Result<Vec<_>, _>>();
        Ok(Loops { threads: threads.map_err(|e| e.to_string())?, parts })
    }

    /// Does every job on the first `threads` loops; how long that took, and for what.
    pub(super) fn run(
        &mut self,
        jobs: &[Job],
        threads: usize,
        handle: &Handle,
    ) -> Result<(Duration, Vec<Spent>), String> {
        let from = self.parts.clock.now();
        let next = AtomicUsize::new(0);
        let spent = Mutex::new(Vec::new());
        let parts = &self.parts;
        let ended: Vec<Result<(), String>> = std::thread::scope(|scope| {
            let each = self.threads.iter_mut().take(threads).map(|models| {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(job) = jobs.get(number) else { return Ok(()) };
                        let one = models.clip(parts, job, handle)?;
                        spent.lock().unwrap_or_else(PoisonError::into_inner).push(one);
                    }
                })
            });
            let each: Vec<_> = each.collect();
            let gone = |_| Err("a bare loop fell".to_owned());
            each.into_iter().map(|thread| thread.join().unwrap_or_else(gone)).collect()
        });
        ended.into_iter().collect::<Result<(), String>>()?;
        let wall = self.parts.clock.now().since(from);
        Ok((wall, spent.into_inner().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Decodes every job on `threads` threads; how long that took.
pub(super) fn decode_all(
    jobs: &[Job],
    clock: &Arc<dyn Clock>,
    threads: usize,
) -> Result<Duration, String> {
    let from = clock.now();
    let next = AtomicUsize::new(0);
    let ended: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let one = || {
            while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                decode(&job.spec, clock)?;
            }
            Ok(())
        };
        let each: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        let gone = |_| Err("a decoding loop fell".to_owned());
        each.into_iter().map(|thread| thread.join().unwrap_or_else(gone)).collect()
    });
    ended.into_iter().collect::<Result<(), String>>()?;
    Ok(clock.now().since(from))
}

fn decode(spec: &SourceSpec, clock: &Arc<dyn Clock>) -> Result<(), String> {
    let opened = FfmpegOpener.open(spec, clock.clone(), Cancel::new());
    let mut reader = opened.map_err(|e| e.to_string())?;
    while reader.next().map_err(|e| e.to_string())?.is_some() {}
    Ok(())
}

fn batches<M: Model>(model: &mut M, inputs: &[M::Input]) -> Result<(), String> {
    for batch in inputs.chunks(model.batch_max().max(1)) {
        std::hint::black_box(model.run(batch).map_err(|e| e.to_string())?);
    }
    Ok(())
}

fn timed(
    clock: &dyn Clock,
    spent: &mut Duration,
    work: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let from = clock.now();
    work()?;
    *spent += clock.now().since(from);
    Ok(())
}

fn ticket() -> Ticket {
    Ticket { stream: "bare".into(), priority: 10, deadline: None }
}
