//! Stages are data: a kind is one file with its settings, its input and output types and its actor.
//! Adding one touches that file and the list here.

mod detect;
mod frames;
mod fuse;
mod ocr;
mod ordered;
mod safety;
mod scene;
mod sentiment;
mod thin;
mod transcribe;
mod understand;
mod work;

use std::sync::Arc;
use std::time::Duration;

use ::models::ModelError;
use engine::Class;
use futures_util::FutureExt;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;

use crate::plan::StreamPlan;
use crate::stage::{LeftOut, StageActor, StageIo, StageLogic};
use crate::system::{Deps, Spawner};
use ordered::Ordered;

pub use detect::DetectSettings;
pub use frames::FramesSettings;
pub use fuse::{FuseSettings, WindowLength};
pub use ocr::OcrSettings;
pub use safety::SafetySettings;
pub use scene::SceneSettings;
pub use sentiment::SentimentSettings;
pub use transcribe::TranscribeSettings;
pub use understand::{CategoryScorer, UnderstandSettings};
pub use work::{Due, Lever, LeverTo, OCR_SIDE_MEASURED, Work, WorkModel};

/// What flows over an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PortType {
    /// Decoded video of the source (`source.video`).
    Video,
    /// 16 kHz mono audio of the source (`source.audio`).
    Audio,
    /// Timed text of the source (`source.subtitles`).
    Subtitles,
    /// Sampled frames.
    Frames,
    /// Detections.
    Objects,
    /// Scene groups.
    Scenes,
    /// On-screen text.
    Screen,
    /// Unsafe-picture scores.
    Safety,
    /// Utterances.
    Speech,
    /// Sentiment of speech.
    Tone,
    /// The text model's answers.
    Understanding,
    /// Fused results; read by no stage.
    Fused,
}

impl PortType {
    /// Its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            PortType::Video => "video",
            PortType::Audio => "audio",
            PortType::Subtitles => "subtitles",
            PortType::Frames => "frames",
            PortType::Objects => "objects",
            PortType::Scenes => "scenes",
            PortType::Screen => "screen text",
            PortType::Safety => "safety",
            PortType::Speech => "speech",
            PortType::Tone => "sentiment",
            PortType::Understanding => "understanding",
            PortType::Fused => "fused results",
        }
    }
}

/// What the configuration compiler must know of a kind.
pub struct Kind {
    /// As written after `kind:`.
    pub name: &'static str,
    /// One line for `pipeline schema` and messages.
    pub about: &'static str,
    /// Accepted input types.
    pub inputs: &'static [PortType],
    /// Whether more than one input is allowed.
    pub many: bool,
    /// Output type.
    pub output: PortType,
    /// Rank for compute.
    pub class: Class,
    /// Schema of its settings, an object.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
    /// Settings from a JSON object without `kind` and `from`.
    pub parse: fn(serde_json::Value) -> Result<Settings, serde_json::Error>,
}

/// Settings of a stage, by kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Settings {
    /// `frames`
    Frames(FramesSettings),
    /// `detect`
    Detect(DetectSettings),
    /// `scene`
    Scene(SceneSettings),
    /// `ocr`
    Ocr(OcrSettings),
    /// `safety`
    Safety(SafetySettings),
    /// `transcribe`
    Transcribe(TranscribeSettings),
    /// `sentiment`
    Sentiment(SentimentSettings),
    /// `understand`
    Understand(UnderstandSettings),
    /// `fuse`
    Fuse(FuseSettings),
}

impl Settings {
    /// Rough time this stage adds to a window after its inputs are there, kept free by those before it. The
    /// scheduler's own learned costs decide what is shed.
    pub(crate) fn cost_hint(&self) -> Duration {
        Duration::from_millis(match self {
            Settings::Understand(s) if s.category_by != CategoryScorer::Embedding => 200,
            Settings::Understand(_) => 50,
            Settings::Fuse(_) => 20,
            _ => 1,
        })
    }

    /// The kind these settings belong to.
    pub fn kind(&self) -> &'static Kind {
        match self {
            Settings::Frames(_) => &frames::KIND,
            Settings::Detect(_) => &detect::KIND,
            Settings::Scene(_) => &scene::KIND,
            Settings::Ocr(_) => &ocr::KIND,
            Settings::Safety(_) => &safety::KIND,
            Settings::Transcribe(_) => &transcribe::KIND,
            Settings::Sentiment(_) => &sentiment::KIND,
            Settings::Understand(_) => &understand::KIND,
            Settings::Fuse(_) => &fuse::KIND,
        }
    }
}

/// Every kind there is.
pub static KINDS: &[&Kind] = &[
    &frames::KIND,
    &detect::KIND,
    &scene::KIND,
    &ocr::KIND,
    &safety::KIND,
    &transcribe::KIND,
    &sentiment::KIND,
    &understand::KIND,
    &fuse::KIND,
];

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    T::json_schema(generator)
}

fn parse<T: DeserializeOwned>(
    value: serde_json::Value,
    wrap: fn(T) -> Settings,
) -> Result<Settings, serde_json::Error> {
    serde_json::from_value(value).map(wrap)
}

/// How the actor of a stage is started; none for `fuse`, which the stream starts itself.
pub(crate) fn spawner(
    settings: &Settings,
    io: &StageIo,
    stream: &StreamPlan,
    deps: &Arc<Deps>,
) -> Result<Option<Spawner>, ModelError> {
    let models = &deps.models;
    Ok(Some(match settings.clone() {
        Settings::Frames(s) => spawn(io, move || frames::FramesLogic::new(&s)),
        Settings::Detect(s) => {
            let model = models.detector(&s.model)?;
            spawn(io, move || Ordered::new(detect::Detecting::new(&s, model.clone())))
        }
        Settings::Scene(s) => {
            let model = models.classifier(&s.model)?;
            spawn(io, move || Ordered::new(scene::Classifying::new(&s, model.clone())))
        }
        Settings::Safety(s) => {
            let model = models.safety(&s.model)?;
            spawn(io, move || Ordered::new(safety::Guarding::new(&s, model.clone())))
        }
        Settings::Ocr(s) => {
            let (detector, recognizer) = models.reader(&s.model)?;
            spawn(io, move || {
                Ordered::new(ocr::ReadingText::new(&s, detector.clone(), recognizer.clone()))
            })
        }
        Settings::Transcribe(s) => {
            let (activity, transcriber) = models.listener(&s.model)?;
            let language = stream.language.clone();
            spawn(io, move || {
                transcribe::TranscribeLogic::new(
                    &s,
                    language.clone(),
                    activity.clone(),
                    transcriber.clone(),
                )
            })
        }
        Settings::Sentiment(_) => spawn(io, || sentiment::SentimentLogic),
        Settings::Understand(s) => {
            let text = models.text(&s.model)?;
            let given = understand::Given::new(stream);
            spawn(io, move || understand::UnderstandLogic::new(&s, given.clone(), text.clone()))
        }
        Settings::Fuse(_) => return Ok(None),
    }))
}

/// The stand-in for a stage that was given up.
pub(crate) fn left_out(io: &StageIo) -> Spawner {
    spawn(io, || LeftOut)
}

fn spawn<L: StageLogic>(io: &StageIo, make: impl Fn() -> L + Send + Sync + 'static) -> Spawner {
    let io = io.clone();
    let make: Arc<dyn Fn() -> L + Send + Sync> = Arc::new(make);
    Arc::new(move |supervisor| {
        let actor = StageActor { io: io.clone(), make: make.clone() };
        async move {
            let (actor, _) = ractor::Actor::spawn_linked(None, actor, (), supervisor).await?;
            Ok(actor.get_cell())
        }
        .boxed()
    })
}
