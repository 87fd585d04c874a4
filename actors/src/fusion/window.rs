//! What one window holds, and how it is put together. Every collection is bounded; when one is full the
//! weakest entry gives way. Scores that are no numbers are left out before they can spread.

use std::collections::BTreeMap;
use std::sync::Arc;

use media::result::{Audio, Vision};
use media::{Observation, Polarity, Pts, SafetyScore, Scored, SpeechSegment, Tone, Understanding};

use super::objects::Objects;
use super::screen::Screen;

/// Scene labels kept in one window.
const SCENES_MAX: usize = 64;
/// Utterances kept in one window; more than one a second is babble.
const UTTERANCES_MAX: usize = 128;
/// A mean closer to zero than this is neutral, as VADER has it (Hutto & Gilbert, 2014).
const NEUTRAL_MAX: f32 = 0.05;

/// Contents of one window, growing by observations.
#[derive(Clone, Debug, Default)]
pub struct WindowContents {
    objects: Objects,
    scenes: BTreeMap<Arc<str>, f32>,
    screen: Screen,
    safety: Option<SafetyScore>,
    speech: BTreeMap<u64, SpeechSegment>,
    tones: ToneSum,
    understanding: Option<(Pts, Box<Understanding>)>,
}

impl WindowContents {
    /// Takes in one observation. Subtitles are for the text stage and leave no trace here.
    pub fn add(&mut self, observation: Observation) {
        match observation {
            Observation::Objects { pts, objects } => self.objects.add(pts, objects),
            Observation::Scenes { scenes, .. } => self.add_scenes(scenes),
            Observation::Screen { lines, .. } => self.screen.add(lines),
            Observation::Safety { pts, score } => self.add_safety(pts, score),
            Observation::Speech(segment) => self.add_speech(segment),
            Observation::Subtitle { .. } => {}
            Observation::Tone { tone, .. } => self.tones.add(tone),
            Observation::Understanding { pts, answer } => {
                // Answers may overtake each other: the one to the newest text counts.
                if self.understanding.as_ref().is_none_or(|(have, _)| pts >= *have) {
                    self.understanding = Some((pts, answer));
                }
            }
        }
    }

    /// What was seen.
    pub fn vision(&self) -> Vision {
        let mut scenes: Vec<Scored> = self
            .scenes
            .iter()
            .map(|(label, score)| Scored { label: label.clone(), score: *score })
            .collect();
        scenes.sort_by(|a, b| b.score.total_cmp(&a.score));
        Vision {
            objects: self.objects.seen(),
            scenes,
            text: self.screen.lines(),
            safety: self.safety.clone(),
        }
    }

    /// What was heard.
    pub fn audio(&self) -> Audio {
        let mut speech: Vec<SpeechSegment> = self.speech.values().cloned().collect();
        speech.sort_by_key(|s| (s.start_ms, s.utterance));
        Audio { speech, sentiment: self.tones.mean() }
    }

    /// What it is about.
    pub fn text(&self) -> Option<Understanding> {
        let (_, answer) = self.understanding.as_ref()?;
        let mut answer = (**answer).clone();
        answer.scores.retain(|_, score| score.is_finite());
        answer.flags.retain(|flag| flag.score.is_finite());
        answer.sentiment = answer.sentiment.filter(|tone| tone.score.is_finite());
        Some(answer)
    }

    fn add_scenes(&mut self, scenes: Vec<Scored>) {
        for scene in scenes.into_iter().filter(|s| s.score.is_finite()) {
            let score = scene.score.clamp(0.0, 1.0);
            if let Some(best) = self.scenes.get_mut(&scene.label) {
                *best = best.max(score);
            } else if self.scenes.len() < SCENES_MAX {
                self.scenes.insert(scene.label, score);
            }
        }
    }

    fn add_safety(&mut self, pts: Pts, score: f32) {
        if score.is_finite() && self.safety.as_ref().is_none_or(|worst| score > worst.score) {
            self.safety = Some(SafetyScore { score: score.clamp(0.0, 1.0), pts_ms: pts.ms() });
        }
    }

    fn add_speech(&mut self, mut segment: SpeechSegment) {
        if !segment.confidence.is_finite() {
            segment.confidence = 0.0;
        }
        let room = self.speech.len() < UTTERANCES_MAX;
        match self.speech.get_mut(&segment.utterance) {
            // A running version that was overtaken by its final one says nothing new.
            Some(have) if have.is_final => {}
            Some(have) => *have = segment,
            None if room || segment.is_final => {
                self.speech.insert(segment.utterance, segment);
                if self.speech.len() > UTTERANCES_MAX {
                    self.drop_a_running_utterance();
                }
            }
            None => {}
        }
    }

    /// Finals are the transcript and are kept as long as there is a running one to drop.
    fn drop_a_running_utterance(&mut self) {
        let running = self.speech.values().find(|s| !s.is_final).map(|s| s.utterance);
        match running.or_else(|| self.speech.keys().next().copied()) {
            Some(utterance) => self.speech.remove(&utterance),
            None => None,
        };
    }
}

/// Signed mean of several sentiments, each weighing as much as it is given.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ToneSum {
    signed: f32,
    weight: f32,
}

impl ToneSum {
    fn add(&mut self, tone: Tone) {
        self.add_weighted(tone, 1.0);
    }

    /// Sentiments that are no numbers are left out.
    pub(super) fn add_weighted(&mut self, tone: Tone, weight: f32) {
        if !tone.score.is_finite() || weight <= 0.0 {
            return;
        }
        let strength = tone.score.clamp(0.0, 1.0);
        self.signed += weight
            * match tone.label {
                Polarity::Negative => -strength,
                Polarity::Neutral => 0.0,
                Polarity::Positive => strength,
            };
        self.weight += weight;
    }

    /// None when nothing was added.
    pub(super) fn mean(&self) -> Option<Tone> {
        if self.weight <= 0.0 {
            return None;
        }
        let mean = (self.signed / self.weight).clamp(-1.0, 1.0);
        let label = if mean > NEUTRAL_MAX {
            Polarity::Positive
        } else if mean < -NEUTRAL_MAX {
            Polarity::Negative
        } else {
            Polarity::Neutral
        };
        Some(Tone { label, score: mean.abs() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(utterance: u64, text: &str, is_final: bool) -> Observation {
        Observation::Speech(SpeechSegment {
            utterance,
            text: text.into(),
            start_ms: utterance as i64 * 1_000,
            end_ms: utterance as i64 * 1_000 + 500,
            is_final,
            language: "en".into(),
            confidence: 0.9,
        })
    }

    fn texts(contents: &WindowContents) -> Vec<(String, bool)> {
        contents.audio().speech.into_iter().map(|s| (s.text, s.is_final)).collect()
    }

    #[test]
    fn the_latest_words_of_an_utterance_replace_the_earlier_and_the_final_ones_win() {
        let mut contents = WindowContents::default();
        contents.add(said(2, "next", false));
        contents.add(said(1, "the tr", false));
        contents.add(said(1, "the train", false));
        contents.add(said(1, "the train is late", true));
        contents.add(said(1, "the train is", false));
        assert_eq!(texts(&contents), [("the train is late".into(), true), ("next".into(), false)]);
    }

    #[test]
    fn a_full_window_keeps_the_finals() {
        let mut contents = WindowContents::default();
        for utterance in 0..UTTERANCES_MAX as u64 {
            contents.add(said(utterance, "running", false));
        }
        contents.add(said(9_000, "one running more", false));
        contents.add(said(9_001, "the final", true));
        let all = texts(&contents);
        assert_eq!(all.len(), UTTERANCES_MAX);
        assert_eq!(all.last(), Some(&("the final".into(), true)));
    }

    #[test]
    fn the_worst_frame_is_the_safety_score_and_the_best_one_the_scene() {
        let mut contents = WindowContents::default();
        for (ms, score) in [(100, 0.2), (300, 0.9), (500, f32::NAN), (700, 0.4)] {
            contents.add(Observation::Safety { pts: Pts::from_ms(ms), score });
            let scenes = vec![
                Scored { label: "street".into(), score: 1.0 - score },
                Scored { label: "nature".into(), score: 0.3 },
            ];
            contents.add(Observation::Scenes { pts: Pts::from_ms(ms), scenes });
        }
        let vision = contents.vision();
        assert_eq!(vision.safety, Some(SafetyScore { score: 0.9, pts_ms: 300 }));
        assert_eq!(&*vision.scenes[0].label, "street");
        assert_eq!(vision.scenes[0].score, 0.8);
        assert_eq!(vision.scenes.len(), 2);
    }

    #[test]
    fn sentiments_are_averaged_with_their_sign() {
        let tone = |label, score| Observation::Tone { pts: Pts::ZERO, tone: Tone { label, score } };
        let mut contents = WindowContents::default();
        assert_eq!(contents.audio().sentiment, None);
        contents.add(tone(Polarity::Negative, 0.8));
        contents.add(tone(Polarity::Positive, 0.2));
        contents.add(tone(Polarity::Positive, f32::NAN));
        let mean = contents.audio().sentiment.expect("two sentiments");
        assert_eq!(mean.label, Polarity::Negative);
        assert!((mean.score - 0.3).abs() < 1e-6);
        contents.add(tone(Polarity::Positive, 0.62));
        assert_eq!(contents.audio().sentiment.map(|t| t.label), Some(Polarity::Neutral));
    }

    #[test]
    fn the_answer_to_the_newest_text_counts() {
        let answer = |model: &str| {
            Box::new(Understanding {
                category: None,
                scores: [("news".into(), f32::NAN), ("music".into(), 0.5)].into(),
                summary: None,
                summary_from: None,
                summary_age_ms: 0,
                sentiment: None,
                flags: vec![],
                keywords: vec![],
                language: None,
                model: model.into(),
                backend: "embedded".into(),
                age_ms: 0,
                truncated: false,
            })
        };
        let mut contents = WindowContents::default();
        for (ms, model) in [(500, "newest"), (200, "overtaken")] {
            let pts = Pts::from_ms(ms);
            contents.add(Observation::Understanding { pts, answer: answer(model) });
        }
        let text = contents.text().expect("an answer");
        assert_eq!(text.model, "newest");
        assert_eq!(text.scores.len(), 1, "what is no number is left out");
    }
}
