//! What subscribers receive: `fused-result/1`, `gap/1` and `stream/1`, with their published JSON Schema.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{StageId, StreamId};
use crate::observation::{
    Rect, SafetyScore, Scored, ScreenLine, SpeechSegment, Tone, Understanding,
};

/// Schema name of a [`FusedResult`].
pub const RESULT_SCHEMA: &str = "fused-result/1";

/// One fused answer for one window of one stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FusedResult {
    /// Always `fused-result/1`.
    pub schema: Arc<str>,
    /// Names this start of the process.
    pub run: Arc<str>,
    /// Grows by one per message over all streams.
    pub seq: u64,
    /// Grows by one per result within the stream.
    pub stream_seq: u64,
    /// Which stream.
    pub stream: StreamId,
    /// Which span of media time.
    pub window: Window,
    /// Whether every expected stage answered in time.
    pub status: Status,
    /// 0 first, 1 for the correction.
    pub revision: u32,
    /// Emitted minus sealed.
    pub latency_ms: f64,
    /// Emitted minus the instant the window's end was on air; none for unpaced sources.
    pub age_ms: Option<f64>,
    /// Admission to result, for clips.
    pub processing_ms: Option<f64>,
    /// Time allowed from sealed to emitted; none for unpaced sources.
    pub budget_ms: Option<u64>,
    /// What was seen; none when no stage looks.
    pub vision: Option<Vision>,
    /// What was heard; none when no stage listens.
    pub audio: Option<Audio>,
    /// What it is about; none when nothing was read or said.
    pub text: Option<Understanding>,
    /// All modalities together.
    pub fusion: Fusion,
    /// Stages without an answer, and why.
    pub missing: Vec<Missing>,
    /// Where the time went, per stage.
    pub timings: Vec<Timing>,
}

/// Half-open span of media time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// Counts from 0 in the stream.
    pub index: u64,
    /// First millisecond inside.
    pub start_ms: i64,
    /// First millisecond after.
    pub end_ms: i64,
}

/// Whether every expected stage answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Every one.
    Complete,
    /// See `missing`.
    Partial,
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Vision {
    /// One per track and window, its best frame.
    pub objects: Vec<SeenObject>,
    /// Scene groups, best first.
    pub scenes: Vec<Scored>,
    /// On-screen text in reading order, each line once.
    pub text: Vec<ScreenLine>,
    /// The worst frame; none when no stage checks.
    pub safety: Option<SafetyScore>,
}

/// An object over a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeenObject {
    /// COCO class name.
    pub label: Arc<str>,
    /// Of its best frame, 0..1.
    pub score: f32,
    /// Of its best frame.
    #[serde(rename = "box")]
    pub rect: Rect,
    /// Stable over windows; none without tracking.
    pub track: Option<u64>,
    /// Time of its best frame.
    pub pts_ms: i64,
    /// First frame of this window it was seen in.
    pub first_ms: i64,
    /// Last frame of this window it was seen in.
    pub last_ms: i64,
}

/// What was heard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Audio {
    /// Utterances that ran or ended in this window.
    pub speech: Vec<SpeechSegment>,
    /// Sentiment of what was said.
    pub sentiment: Option<Tone>,
}

/// All modalities together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fusion {
    /// Pooled labels, best first.
    pub labels: Vec<PooledLabel>,
    /// Voice and words combined.
    pub sentiment: Option<Tone>,
    /// Rules that hold.
    pub alerts: Vec<Alert>,
}

/// A label of the common taxonomy with the evidence behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PooledLabel {
    /// Of the taxonomy.
    pub label: Arc<str>,
    /// Noisy-or of the weighted evidence, 0..1.
    pub score: f32,
    /// Per modality, 0..1.
    pub evidence: BTreeMap<Modality, f32>,
}

/// Where evidence comes from.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Modality {
    /// Pictures.
    Vision,
    /// Sound.
    Audio,
    /// Words.
    Text,
}

/// A user rule that holds for this window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Alert {
    /// The rule's name.
    pub name: Arc<str>,
    /// Time of the evidence, or the window's start.
    pub pts_ms: i64,
}

/// A stage without an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Missing {
    /// Which stage.
    pub stage: StageId,
    /// Why.
    pub reason: MissingReason,
}

/// Why a stage has no answer.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum MissingReason {
    /// Still computing, or waiting for compute, when the window had to go out.
    Deadline,
    /// Refused: could not have made the deadline.
    Shed,
    /// Its input was dropped because it fell behind.
    Dropped,
    /// The model or backend failed.
    Failed,
    /// Only an answer to older text exists.
    Stale,
    /// No configured model knows the language.
    UnsupportedLanguage,
    /// The stage is being restarted, or was given up.
    Unavailable,
    /// A stage it needs has no answer.
    Upstream,
}

impl MissingReason {
    /// As it is written in results and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            MissingReason::Deadline => "deadline",
            MissingReason::Shed => "shed",
            MissingReason::Dropped => "dropped",
            MissingReason::Failed => "failed",
            MissingReason::Stale => "stale",
            MissingReason::UnsupportedLanguage => "unsupported_language",
            MissingReason::Unavailable => "unavailable",
            MissingReason::Upstream => "upstream",
        }
    }
}

/// Where a stage's time went in this window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timing {
    /// Which stage.
    pub stage: StageId,
    /// Longest wait for compute.
    pub queue_ms: f64,
    /// Total compute.
    pub compute_ms: f64,
    /// Largest batch one of its jobs was part of.
    pub batch: u32,
}

/// Results that a subscriber did not get.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// Always `gap/1`.
    pub schema: Arc<str>,
    /// Names this start of the process.
    pub run: Arc<str>,
    /// First missing seq.
    pub from: u64,
    /// Last missing seq.
    pub to: u64,
    /// How many of them matched the subscription.
    pub count: u64,
    /// Why.
    pub reason: GapReason,
}

/// Why results are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GapReason {
    /// The subscriber was too slow.
    Lag,
    /// Older than the journal.
    Journal,
    /// Of an earlier start of the process.
    Restart,
}

/// A stream changed its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamMessage {
    /// Always `stream/1`.
    pub schema: Arc<str>,
    /// Names this start of the process.
    pub run: Arc<str>,
    /// Shares the sequence of results.
    pub seq: u64,
    /// Which stream.
    pub stream: StreamId,
    /// Its new state.
    pub state: StreamState,
    /// Why, for people; passwords masked.
    pub reason: Option<String>,
    /// Index of the window that will open next.
    pub window_next: u64,
}

/// States of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StreamState {
    /// Connecting.
    Opening,
    /// Frames or samples arrive.
    Running,
    /// The connection is gone; trying again.
    Reconnecting,
    /// Given up.
    Failed,
    /// All of it was processed.
    Ended,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_called_the_same_in_results_and_metrics() {
        for reason in [
            MissingReason::Deadline,
            MissingReason::Shed,
            MissingReason::Dropped,
            MissingReason::Failed,
            MissingReason::Stale,
            MissingReason::UnsupportedLanguage,
            MissingReason::Unavailable,
            MissingReason::Upstream,
        ] {
            let written = serde_json::to_value(reason).unwrap();
            assert_eq!(written, reason.name());
        }
    }
}
