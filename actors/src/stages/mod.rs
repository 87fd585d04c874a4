//! Stages are data: a kind is one file with its settings, its input and output types and its actor.
//! Adding one touches that file and the list here.

mod detect;
mod frames;
mod fuse;
mod ocr;
mod safety;
mod scene;
mod sentiment;
mod transcribe;
mod understand;

use engine::Class;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;

pub use detect::DetectSettings;
pub use frames::FramesSettings;
pub use fuse::{FuseSettings, WindowLength};
pub use ocr::OcrSettings;
pub use safety::SafetySettings;
pub use scene::SceneSettings;
pub use sentiment::SentimentSettings;
pub use transcribe::TranscribeSettings;
pub use understand::{CategoryScorer, UnderstandSettings};

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
