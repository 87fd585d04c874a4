//! Whether what was said is in a language that the model knows.
//!
//! Stands between [`Transcriber`](super::Transcriber) and whoever publishes text. A model that knows one
//! language turns every other into fluent nonsense in its own, but it is not sure of it: its token probability
//! falls from about 0.9 to about 0.4, it goes round in circles, and words come out with letters that English
//! does not have. That is the evidence; utterances of a stream support each other. Pure, one per stream.

use super::decode::{DecodingEnd, Transcript};

/// Confidence at which an utterance speaks neither for nor against the language. Between the worst clear English
/// (0.75) and nearly all other languages (95 % below 0.66), measured on people and on synthetic voices.
const CONFIDENCE_EVEN: f32 = 0.70;
/// Log-odds per unit of confidence.
const SLOPE: f32 = 25.0;
/// Tokens from which an utterance counts in full: the mean over fewer says less.
const TOKENS_FULL: f32 = 12.0;
/// Of one utterance, in log-odds.
const EVIDENCE_MAX: f32 = 5.0;
/// What the next utterance inherits …
const MEMORY_KEPT: f32 = 0.6;
/// … and at most, in log-odds: one clear utterance in another language still shows.
const MEMORY_MAX: f32 = 3.0;
/// When the caller named the language: dialects and noise lower the confidence too.
const TOLD: f32 = 3.0;
/// A verdict that differs from the last one needs this much.
const HYSTERESIS: f32 = 0.5;

/// What language an utterance is in, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct LanguageVerdict {
    /// ISO 639-1; none when it is not known which.
    pub language: Option<String>,
    /// How sure the verdict is, 0.5..1.
    pub confidence: f32,
    /// Whether the text may be published. An empty text is supported unless the stream was found not to be.
    pub supported: bool,
}

/// Judges the utterances of one stream.
#[derive(Clone, Debug)]
pub struct LanguageTracker {
    /// Of the model.
    language: String,
    /// By the caller, ISO 639-1.
    told: Option<String>,
    /// Log-odds from earlier utterances.
    memory: f32,
    /// The last verdict.
    supported: Option<bool>,
}

impl LanguageTracker {
    /// For a model of one `language`, and a stream whose language the caller may have `told` (both ISO 639-1;
    /// `en-GB` counts as `en`).
    pub fn new(language: &str, told: Option<&str>) -> Self {
        LanguageTracker {
            language: primary(language),
            told: told.map(primary).filter(|t| !t.is_empty()),
            memory: 0.0,
            supported: None,
        }
    }

    /// Verdict on a running utterance; nothing is remembered.
    pub fn judge(&self, transcript: &Transcript) -> LanguageVerdict {
        if let Some(told) = self.told.as_ref().filter(|told| **told != self.language) {
            return LanguageVerdict {
                language: Some(told.clone()),
                confidence: 1.0,
                supported: false,
            };
        }
        let odds = self.odds(transcript);
        if transcript.text.is_empty() {
            return LanguageVerdict {
                language: None,
                confidence: probability(odds.abs()),
                supported: self.supported.unwrap_or(true),
            };
        }
        let margin = match self.supported {
            Some(true) => -HYSTERESIS,
            Some(false) => HYSTERESIS,
            None => 0.0,
        };
        let supported = odds > margin;
        LanguageVerdict {
            language: supported.then(|| self.language.clone()),
            confidence: probability(odds.abs()),
            supported,
        }
    }

    /// Verdict on a closed utterance, which later ones will be judged by as well.
    pub fn observe(&mut self, transcript: &Transcript) -> LanguageVerdict {
        let verdict = self.judge(transcript);
        if !transcript.text.is_empty() {
            let memory = self.memory * MEMORY_KEPT + evidence(transcript);
            self.memory = memory.clamp(-MEMORY_MAX, MEMORY_MAX);
            self.supported = Some(verdict.supported);
        }
        verdict
    }

    fn odds(&self, transcript: &Transcript) -> f32 {
        let told = if self.told.is_some() { TOLD } else { 0.0 };
        evidence(transcript) + self.memory * MEMORY_KEPT + told
    }
}

/// Log-odds that this utterance is in the model's language.
fn evidence(transcript: &Transcript) -> f32 {
    let circles = match transcript.ended_by {
        DecodingEnd::Repetition => 0.15,
        DecodingEnd::Length => 0.05,
        DecodingEnd::Model | DecodingEnd::Silence => 0.0,
    };
    let confidence = transcript.confidence - circles - 0.6 * foreign_share(&transcript.text);
    let weight = ((transcript.tokens as f32 + 1.0) / TOKENS_FULL).min(1.0);
    let odds = (confidence - CONFIDENCE_EVEN) * SLOPE * weight;
    if odds.is_nan() { 0.0 } else { odds.clamp(-EVIDENCE_MAX, EVIDENCE_MAX) }
}

/// Share of words with letters outside the English alphabet, or that only other languages use as often.
fn foreign_share(text: &str) -> f32 {
    let (mut words, mut foreign) = (0u32, 0u32);
    for word in text.split(|c: char| !c.is_alphabetic()).filter(|w| !w.is_empty()) {
        words += 1;
        let other_letter = !word.is_ascii();
        let lower = word.to_lowercase();
        if other_letter || FOREIGN_WORDS.contains(&lower.as_str()) {
            foreign += 1;
        }
    }
    if words == 0 { 0.0 } else { foreign as f32 / words as f32 }
}

/// Short words of Spanish, French, Italian, Portuguese, German and Dutch that are no English words.
const FOREIGN_WORDS: &[&str] = &[
    "aber", "auf", "avec", "che", "como", "dans", "das", "de", "del", "della", "der", "des", "di",
    "du", "ein", "eine", "el", "en", "es", "est", "et", "het", "ich", "il", "ist", "je", "la",
    "las", "le", "les", "los", "mais", "mit", "mon", "nicht", "nous", "numero", "para", "pas",
    "perfavor", "por", "pour", "que", "qui", "se", "sie", "sono", "su", "sur", "te", "una", "und",
    "une", "uno", "von", "vous", "wir", "zu",
];

fn primary(tag: &str) -> String {
    tag.split(['-', '_']).next().unwrap_or_default().to_lowercase()
}

fn probability(odds: f32) -> f32 {
    1.0 / (1.0 + (-odds).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str, confidence: f32, ended_by: DecodingEnd) -> Transcript {
        let tokens = text.split(' ').filter(|w| !w.is_empty()).count() * 4 / 3;
        Transcript { text: text.into(), confidence, tokens, seconds: 3.0, ended_by }
    }

    fn clear(text: &str) -> Transcript {
        said(text, 0.9, DecodingEnd::Model)
    }

    #[test]
    fn sure_text_is_english_and_unsure_text_is_unknown() {
        let tracker = LanguageTracker::new("en", None);
        let yes = tracker.judge(&clear("the train to the airport leaves in twenty minutes"));
        assert_eq!((yes.language.as_deref(), yes.supported), (Some("en"), true));
        assert!(yes.confidence > 0.95);
        let no = tracker.judge(&said(
            "the other one is a very important part of the family",
            0.4,
            DecodingEnd::Model,
        ));
        assert_eq!((no.language, no.supported), (None, false));
        assert!(no.confidence > 0.95);
    }

    #[test]
    fn circles_and_foreign_words_speak_against_it_even_when_the_model_is_sure() {
        let tracker = LanguageTracker::new("en", None);
        for (text, end) in [
            ("la persona en la extensión", DecodingEnd::Model),
            ("the first one is the first one is the first one", DecodingEnd::Repetition),
        ] {
            assert!(!tracker.judge(&said(text, 0.79, end)).supported, "{text}");
        }
        assert!(tracker.judge(&clear("we met at the café on the corner of the street")).supported);
    }

    #[test]
    fn a_stream_remembers() {
        let mut tracker = LanguageTracker::new("en", None);
        let mumbled = said("and stir them mixed slowly until big", 0.64, DecodingEnd::Model);
        assert!(!tracker.judge(&mumbled).supported, "alone it is doubtful");
        for _ in 0..3 {
            tracker.observe(&clear("please enter your password followed by the pound key"));
        }
        assert!(tracker.observe(&mumbled).supported, "between clear English it is English");
        let other =
            said("i am not going to the front of the table but i am", 0.45, DecodingEnd::Model);
        assert!(!tracker.observe(&other).supported, "another language shows at once");
        tracker.observe(&other);
        tracker.observe(&other);
        let lucky = said("is it exact i think it is so today", 0.73, DecodingEnd::Model);
        assert!(!tracker.observe(&lucky).supported, "a lucky guess among nonsense is nonsense");
        for _ in 0..2 {
            tracker.observe(&clear("good evening and welcome back to the programme tonight"));
        }
        assert!(tracker.judge(&clear("good evening and welcome back")).supported, "it comes back");
    }

    #[test]
    fn what_the_caller_knows_counts() {
        let accent =
            said("the train to me poor leaves in twenty minutes", 0.62, DecodingEnd::Model);
        assert!(LanguageTracker::new("en", Some("en-IN")).judge(&accent).supported);
        let told = LanguageTracker::new("en", Some("fr")).judge(&clear("good evening and welcome"));
        assert_eq!((told.language.as_deref(), told.supported), (Some("fr"), false));
    }

    #[test]
    fn silence_changes_nothing() {
        let mut tracker = LanguageTracker::new("en", None);
        let nothing = said("", 0.0, DecodingEnd::Silence);
        let verdict = tracker.observe(&nothing);
        assert_eq!((verdict.language, verdict.supported), (None, true));
        assert!(tracker.judge(&clear("the train to the airport leaves now")).supported);
    }

    #[test]
    fn a_confidence_that_is_no_number_does_not_stick() {
        let mut tracker = LanguageTracker::new("en", None);
        tracker.observe(&said("hello", f32::NAN, DecodingEnd::Model));
        assert!(
            tracker.judge(&clear("the train to the airport leaves in twenty minutes")).supported
        );
    }
}
