//! What stages say: the typed outputs that flow between them and into fusion.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::Pts;

/// x, y, width, height as fractions of the upright picture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rect(pub f32, pub f32, pub f32, pub f32);

impl Rect {
    /// Intersection over union, 0..1.
    pub fn iou(self, other: Rect) -> f32 {
        let w = (self.0 + self.2).min(other.0 + other.2) - self.0.max(other.0);
        let h = (self.1 + self.3).min(other.1 + other.3) - self.1.max(other.1);
        if w <= 0.0 || h <= 0.0 {
            return 0.0;
        }
        let inter = w * h;
        let union = self.2 * self.3 + other.2 * other.3 - inter;
        if union > 0.0 { inter / union } else { 0.0 }
    }
}

/// A label with a score in 0..1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scored {
    /// What it is called.
    pub label: Arc<str>,
    /// 0..1.
    pub score: f32,
}

/// One object in one frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Detection {
    /// COCO class name.
    pub label: Arc<str>,
    /// 0..1.
    pub score: f32,
    /// Where.
    pub rect: Rect,
    /// The tracker's id, stable over windows; none when tracking is off or the object is not confirmed.
    pub track: Option<u64>,
}

/// One line of text read on the screen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScreenLine {
    /// As read.
    pub text: String,
    /// Mean character probability, 0..1.
    pub score: f32,
    /// Where.
    #[serde(rename = "box")]
    pub rect: Rect,
    /// Time of the frame it was read in.
    pub pts_ms: i64,
}

impl ScreenLine {
    /// Letters and digits only, lower case: two readings of one line differ in spaces and stops.
    pub fn folded(&self) -> String {
        self.text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    }
}

/// Probability that a frame is unsafe to show.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SafetyScore {
    /// 0..1, the worst frame of the window.
    pub score: f32,
    /// Time of that frame.
    pub pts_ms: i64,
}

/// One word with its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Word {
    /// As transcribed.
    pub text: String,
    /// Start.
    pub start_ms: i64,
    /// End.
    pub end_ms: i64,
}

/// What was said between two pauses. An utterance is final exactly once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpeechSegment {
    /// Counts from 0 in the stream; the same number while it is still running.
    pub utterance: u64,
    /// Transcript so far.
    pub text: String,
    /// Start of the utterance; may lie before the window.
    pub start_ms: i64,
    /// End of the utterance, or how far it was heard.
    pub end_ms: i64,
    /// Whether the text will not change any more.
    #[serde(rename = "final")]
    pub is_final: bool,
    /// ISO 639-1.
    pub language: String,
    /// Mean token probability, 0..1.
    pub confidence: f32,
}

/// negative, neutral or positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Polarity {
    /// Unfavourable.
    Negative,
    /// Neither.
    Neutral,
    /// Favourable.
    Positive,
}

/// Sentiment of some words.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tone {
    /// Which way it leans.
    pub label: Polarity,
    /// Strength in 0..1.
    pub score: f32,
}

/// The text model's typed answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Understanding {
    /// Best category of the configured list; none when no text supports one.
    pub category: Option<Arc<str>>,
    /// Score of every category that has one, 0..1.
    pub scores: std::collections::BTreeMap<Arc<str>, f32>,
    /// One sentence.
    pub summary: Option<String>,
    /// Where the summary comes from: the model's own words, or a sentence of the source.
    pub summary_from: Option<SummaryFrom>,
    /// Age of the text that the summary was made from.
    pub summary_age_ms: i64,
    /// Sentiment of the words.
    pub sentiment: Option<Tone>,
    /// Raised flags of the configured list.
    pub flags: Vec<Scored>,
    /// Most telling words and phrases of the source.
    pub keywords: Vec<String>,
    /// ISO 639-1 of the text.
    pub language: Option<String>,
    /// Name of the model that answered.
    pub model: String,
    /// Which backend answered.
    pub backend: String,
    /// Time since the newest text that it was made from was new, in media time; 0 when made in this window.
    pub age_ms: i64,
    /// Whether text had to be cut to fit the model or the deadline.
    pub truncated: bool,
}

/// Where a summary's words come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SummaryFrom {
    /// Written by the model, content words checked against the source.
    Model,
    /// The best sentence of the source, because the model's words were not supported by it.
    Source,
}

/// One output of one stage.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// All objects of one frame.
    Objects {
        /// The frame's time.
        pts: Pts,
        /// Possibly empty.
        objects: Vec<Detection>,
    },
    /// Scene groups of one frame, best first.
    Scenes {
        /// The frame's time.
        pts: Pts,
        /// Best first.
        scenes: Vec<Scored>,
    },
    /// Text on one frame, in reading order.
    Screen {
        /// The frame's time.
        pts: Pts,
        /// In reading order; possibly empty.
        lines: Vec<ScreenLine>,
    },
    /// Unsafe-picture score of one frame.
    Safety {
        /// The frame's time.
        pts: Pts,
        /// 0..1.
        score: f32,
    },
    /// A running or final utterance.
    Speech(SpeechSegment),
    /// A subtitle shown.
    Subtitle {
        /// When it appears.
        pts: Pts,
        /// Plain text.
        text: String,
    },
    /// Sentiment of what was said.
    Tone {
        /// End of the utterance it belongs to.
        pts: Pts,
        /// The sentiment.
        tone: Tone,
    },
    /// The text model's answer.
    Understanding {
        /// End of the newest text it was made from.
        pts: Pts,
        /// The answer.
        answer: Box<Understanding>,
    },
}

impl Observation {
    /// The media time that decides which window it belongs to.
    pub fn pts(&self) -> Pts {
        match self {
            Observation::Objects { pts, .. }
            | Observation::Scenes { pts, .. }
            | Observation::Screen { pts, .. }
            | Observation::Safety { pts, .. }
            | Observation::Subtitle { pts, .. }
            | Observation::Tone { pts, .. }
            | Observation::Understanding { pts, .. } => *pts,
            Observation::Speech(s) => Pts::from_ms(s.end_ms),
        }
    }
}
