//! What each stage asks of which model: how often while a stream runs, and how much is left to do when a window ends.
//!
//! Its neighbour is whoever multiplies this with what models cost. One rule: where work depends on what is seen and
//! said, the constants here say what is assumed; nothing is measured and nothing is refused here.

use engine::Class;

use super::{CategoryScorer, Settings, WindowLength, transcribe, understand};
use crate::models::VOICE_ACTIVITY;
use crate::plan::{GraphPlan, Input, StageIndex};

/// Lines that are new in a frame, while a stream runs: lines that did not change are not read again.
const LINES_NEW: f64 = 1.0;
/// Lines that are new at once in a window's last frame, if the stage may read so many: a title card or a slide.
const LINES_NEW_DUE: usize = 4;
/// Utterances are on average this part of the longest: people pause.
const UTTERANCE_PART: f64 = 0.5;
/// Prompt tokens of a text whose category is asked of the language model, the question included.
const CATEGORY_TOKENS: f64 = 56.0;
/// Prompt tokens of each category that is weighed.
const LABEL_TOKENS: f64 = 2.0;
/// English, in the vocabularies of small models.
const TOKENS_PER_WORD: f64 = 1.4;
/// A summary is on average this part of the longest.
const SUMMARY_PART: f64 = 0.5;
/// Longest side of the picture that the text detector's cost is measured with.
pub const OCR_SIDE_MEASURED: u32 = 480;

/// Whose work it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkModel {
    /// A model of the catalogue, or a part of one (`ppocr-v5/detect`).
    Catalogue(String),
    /// The sentence embedder.
    Embedder,
    /// A language model by the name that stages use, reading a prompt.
    Prefill(String),
    /// A language model by the name that stages use, writing an answer.
    Decode(String),
}

/// A setting that lessens work.
#[derive(Clone, Debug, PartialEq)]
pub struct Lever {
    /// Whose setting.
    pub stage: StageIndex,
    /// Its key.
    pub key: &'static str,
    /// What it can be set to.
    pub to: LeverTo,
}

/// How a setting lessens work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LeverTo {
    /// The work is in proportion to this number, which can be lowered to `min`.
    Less {
        /// As it is.
        now: f64,
        /// As low as it may be.
        min: f64,
        /// Whether it has to be a whole number.
        whole: bool,
    },
    /// It is done without.
    Without(&'static str),
}

/// Work that a stage asks for, again and again, for one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// Of which model.
    pub model: WorkModel,
    /// Its rank for compute.
    pub class: Class,
    /// Asked so often in a second of media, while the stream runs.
    pub rate_hz: f64,
    /// Units of one ask (frames 1; seconds of sound; tokens).
    pub units: f64,
    /// The cost of one ask is this multiple of the measured one.
    pub scale: f64,
    /// What lessens it.
    pub lever: Option<Lever>,
    /// What is left to do when a window ends; none when it may run across windows.
    pub due: Option<Due>,
}

/// Work that is left when a window ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Due {
    /// So many asks, one after the other.
    pub asks: f64,
    /// Units of each.
    pub units: f64,
    /// What lessens it.
    pub lever: Option<Lever>,
}

impl Work {
    fn catalogue(model: &str, class: Class, rate_hz: f64) -> Self {
        let model = WorkModel::Catalogue(model.to_owned());
        let due = Some(Due { asks: 1.0, units: 1.0, lever: None });
        Work { model, class, rate_hz, units: 1.0, scale: 1.0, lever: None, due }
    }
}

impl GraphPlan {
    /// What the stage at `at` asks of models for one stream, paced or not. Empty for a stage that needs none, or
    /// that is not in the graph.
    pub fn work(&self, at: StageIndex, paced: bool) -> Vec<Work> {
        let Some(stage) = self.stages.get(at.0) else { return Vec::new() };
        let class = stage.class;
        let of_frames = |model: &str, fps: Option<f64>| {
            let (rate_hz, lever) = self.frame_rate(at, fps);
            Work { lever, ..Work::catalogue(model, class, rate_hz) }
        };
        match &stage.settings {
            Settings::Detect(s) => vec![of_frames(&s.model, s.fps)],
            Settings::Scene(s) => vec![of_frames(&s.model, s.fps)],
            Settings::Safety(s) => vec![of_frames(&s.model, s.fps)],
            Settings::Ocr(s) => {
                let side = f64::from(s.side_max) / f64::from(OCR_SIDE_MEASURED);
                let areas = of_frames(&format!("{}/detect", s.model), s.fps);
                let lines = of_frames(&format!("{}/recognise", s.model), s.fps);
                let read = s.lines_max.min(LINES_NEW_DUE);
                let lever = Lever {
                    stage: at,
                    key: "lines_max",
                    to: LeverTo::Less { now: read as f64, min: 1.0, whole: true },
                };
                let due = Due { asks: read as f64, units: 1.0, lever: Some(lever) };
                let rate_hz = lines.rate_hz * LINES_NEW;
                vec![
                    Work { scale: side * side, ..areas },
                    Work { rate_hz, due: Some(due), ..lines },
                ]
            }
            Settings::Transcribe(s) => self.listening(at, s, paced),
            Settings::Understand(s) => self.understanding(at, s, paced),
            Settings::Frames(_) | Settings::Sentiment(_) | Settings::Fuse(_) => Vec::new(),
        }
    }

    /// Frames a second that reach a stage which takes at most `own`, and the setting that says so.
    fn frame_rate(&self, at: StageIndex, own: Option<f64>) -> (f64, Option<Lever>) {
        let inputs = self.stages.get(at.0).map(|stage| &stage.inputs[..]).unwrap_or_default();
        let given = inputs.iter().find_map(|input| match input {
            Input::Stage(from) => match &self.stages.get(from.0)?.settings {
                Settings::Frames(frames) => Some((frames.fps, *from)),
                _ => None,
            },
            _ => None,
        });
        let bound = match (own, given) {
            (Some(own), Some((fps, from))) if fps < own => Some((fps, from)),
            (Some(own), _) => Some((own, at)),
            (None, given) => given,
        };
        let Some((fps, stage)) = bound else { return (0.0, None) };
        let to = LeverTo::Less { now: fps, min: 0.01, whole: false };
        (fps, Some(Lever { stage, key: "fps", to }))
    }

    /// Somebody talks all the time.
    fn listening(
        &self,
        at: StageIndex,
        settings: &super::TranscribeSettings,
        paced: bool,
    ) -> Vec<Work> {
        let longest_s = settings.utterance_ms_max as f64 / 1e3;
        let typical_s = longest_s * UTTERANCE_PART;
        let hear = Work::catalogue(VOICE_ACTIVITY, Class::Audio, 1.0 / transcribe::GATHERED_S);
        let lever = |to| Lever { stage: at, key: "utterance_ms_max", to };
        let shorter = lever(LeverTo::Less {
            now: settings.utterance_ms_max as f64,
            min: 1_000.0,
            whole: true,
        });
        let mut all = vec![hear];
        for part in ["encode", "decode"] {
            let model = format!("{}/{part}", settings.model);
            let whole = Work::catalogue(&model, Class::TextInput, 1.0 / typical_s);
            let due = Due { asks: 1.0, units: longest_s, lever: Some(shorter.clone()) };
            all.push(Work { units: typical_s, due: Some(due), ..whole.clone() });
            if settings.partials && paced {
                // An utterance that runs at a window's end is, on average, half of what it will be.
                let to = LeverTo::Without("false");
                let lever = Some(Lever { stage: at, key: "partials", to });
                let (rate_hz, units) = (1.0 / self.window_s(), typical_s / 2.0);
                // Either this or the end of an utterance comes last in a window.
                all.push(Work { rate_hz, units, lever, due: None, ..whole });
            }
        }
        all
    }

    /// New text in every window.
    fn understanding(
        &self,
        at: StageIndex,
        settings: &super::UnderstandSettings,
        paced: bool,
    ) -> Vec<Work> {
        let name = settings.model.clone();
        let text = Work::catalogue("", Class::Text, 1.0 / self.window_s());
        let mut all = Vec::new();
        if settings.wants_embedder() {
            all.push(Work { model: WorkModel::Embedder, ..text.clone() });
        }
        if settings.category_by != CategoryScorer::Embedding && !settings.categories.is_empty() {
            let units = CATEGORY_TOKENS + LABEL_TOKENS * settings.categories.len() as f64;
            let due = Some(Due { asks: 1.0, units, lever: None });
            all.push(Work { model: WorkModel::Prefill(name.clone()), units, due, ..text.clone() });
        }
        if settings.summary_tokens_max > 0 {
            let longest = f64::from(settings.summary_tokens_max);
            let every_s = understand::SUMMARY_EVERY_US as f64 / 1e6;
            let rate_hz = if paced { 1.0 / every_s.max(self.window_s()) } else { text.rate_hz };
            let lever = |to| Some(Lever { stage: at, key: "summary_tokens_max", to });
            let words = if paced {
                understand::SUMMARY_WORDS_LIVE_MAX
            } else {
                understand::SUMMARY_WORDS_MAX
            };
            let read = Work { rate_hz, due: None, ..text };
            let without = lever(LeverTo::Without("0"));
            let units = words as f64 * TOKENS_PER_WORD;
            let model = WorkModel::Prefill(name.clone());
            all.push(Work { model, units, lever: without, ..read.clone() });
            let fewer = lever(LeverTo::Less { now: longest, min: 1.0, whole: true });
            // One token a step.
            let rate_hz = rate_hz * longest * SUMMARY_PART;
            let model = WorkModel::Decode(name);
            all.push(Work { model, rate_hz, lever: fewer, ..read });
        }
        all
    }

    fn window_s(&self) -> f64 {
        let window = self.fuse_settings().map(|fuse| match fuse.window {
            WindowLength::Fixed(length) => length,
            WindowLength::Clip => fuse.clip_max,
        });
        window.map_or(1.0, |window| window.as_secs_f64()).max(1e-3)
    }
}

#[cfg(test)]
mod tests {
    use media::StageId;
    use serde_json::json;

    use super::*;
    use crate::plan::StagePlan;
    use crate::stages::KINDS;

    fn plan(stages: &[(&str, serde_json::Value, Vec<Input>)]) -> GraphPlan {
        let stage = |(kind, settings, inputs): &(&str, serde_json::Value, Vec<Input>)| {
            let kind = KINDS.iter().find(|k| k.name == *kind).unwrap();
            StagePlan {
                id: StageId::from(kind.name),
                settings: (kind.parse)(settings.clone()).unwrap(),
                inputs: inputs.clone(),
                class: kind.class,
            }
        };
        GraphPlan { stages: stages.iter().map(stage).collect() }
    }

    fn from(index: usize) -> Vec<Input> {
        vec![Input::Stage(StageIndex(index))]
    }

    #[test]
    fn a_frame_stage_is_asked_at_the_slower_of_two_rates_and_names_the_setting() {
        let graph = plan(&[
            ("frames", json!({ "fps": 5 }), vec![Input::SourceVideo]),
            ("detect", json!({}), from(0)),
            ("scene", json!({ "fps": 1 }), from(0)),
            ("safety", json!({ "fps": 30 }), from(0)),
        ]);
        let found: Vec<(f64, usize)> = (1..4)
            .map(|at| {
                let work = graph.work(StageIndex(at), true).remove(0);
                (work.rate_hz, work.lever.unwrap().stage.0)
            })
            .collect();
        assert_eq!(found, [(5.0, 0), (1.0, 2), (5.0, 0)]);
        assert!(graph.work(StageIndex(0), true).is_empty());
        assert!(graph.work(StageIndex(9), true).is_empty());
    }

    #[test]
    fn running_utterances_are_asked_about_in_every_window_of_a_paced_stream_only() {
        let graph = plan(&[
            ("transcribe", json!({ "utterance_ms_max": 4000 }), vec![Input::SourceAudio]),
            ("fuse", json!({ "window": "2s" }), from(0)),
        ]);
        let decoded = |paced| {
            let work = graph.work(StageIndex(0), paced);
            let name = |w: &Work| w.model == WorkModel::Catalogue("moonshine-tiny/decode".into());
            work.into_iter().filter(name).map(|w| (w.rate_hz, w.units)).collect::<Vec<_>>()
        };
        assert_eq!(decoded(false), [(0.5, 2.0)]);
        assert_eq!(decoded(true), [(0.5, 2.0), (0.5, 1.0)]);
    }

    #[test]
    fn a_larger_picture_for_on_screen_text_costs_with_its_square() {
        let graph = plan(&[
            ("frames", json!({}), vec![Input::SourceVideo]),
            ("ocr", json!({ "side_max": 960, "lines_max": 2 }), from(0)),
        ]);
        let work = graph.work(StageIndex(1), true);
        assert_eq!((work[0].scale, work[1].scale), (4.0, 1.0));
        assert_eq!(work[1].due.as_ref().unwrap().asks, 2.0);
    }

    #[test]
    fn a_summary_is_never_due_and_a_category_always_is() {
        let graph = plan(&[
            ("transcribe", json!({}), vec![Input::SourceAudio]),
            ("understand", json!({ "category_by": "likelihood" }), from(0)),
        ]);
        let due: Vec<(WorkModel, bool)> = graph
            .work(StageIndex(1), true)
            .into_iter()
            .map(|work| (work.model, work.due.is_some()))
            .collect();
        let text = || "text".to_owned();
        assert_eq!(
            due,
            [
                (WorkModel::Prefill(text()), true),
                (WorkModel::Prefill(text()), false),
                (WorkModel::Decode(text()), false)
            ]
        );
    }
}
