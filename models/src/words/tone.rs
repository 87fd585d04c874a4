//! Sentiment of English words: VADER (Hutto and Gilbert, 2014; lexicon MIT).

use media::{Polarity, Tone};
use vader_sentiment::SentimentIntensityAnalyzer;

/// Compound scores nearer to 0 than this are neutral, as VADER's authors have it.
const NEUTRAL_BELOW: f64 = 0.05;

/// Sentiment of `text`; none without a word in it. Positive and negative: how strong, 0..1 (VADER's compound
/// score). Neutral: how far from either, 0.95..1.
pub fn sentiment(text: &str) -> Option<Tone> {
    if !text.chars().any(char::is_alphabetic) {
        return None;
    }
    let analyzer = SentimentIntensityAnalyzer::new();
    let scores = analyzer.polarity_scores(text);
    // The crate adds in the order of a hash map: without rounding the last digit differs from run to run.
    let compound = (scores.get("compound")? * 1e4).round() / 1e4;
    let label = if compound >= NEUTRAL_BELOW {
        Polarity::Positive
    } else if compound <= -NEUTRAL_BELOW {
        Polarity::Negative
    } else {
        Polarity::Neutral
    };
    let strength = match label {
        Polarity::Neutral => 1.0 - compound.abs(),
        Polarity::Negative | Polarity::Positive => compound.abs(),
    };
    Some(Tone { label, score: strength.clamp(0.0, 1.0) as f32 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn people_say_what_they_feel() {
        for (text, label) in [
            ("I absolutely love this place!", Polarity::Positive),
            ("Thank you, that was a wonderful evening.", Polarity::Positive),
            ("I hate this, it is horrible.", Polarity::Negative),
            ("The food was not good at all.", Polarity::Negative),
            ("The train leaves from platform four.", Polarity::Neutral),
            ("Поезд отправляется", Polarity::Neutral),
        ] {
            assert_eq!(sentiment(text).expect("words").label, label, "{text}");
        }
        let (some, much) = (sentiment("It is good."), sentiment("It is extremely good!!!"));
        assert!(some.expect("words").score < much.expect("words").score);
    }

    #[test]
    fn without_words_there_is_none() {
        for text in ["", "  ", "12:45", "…!?", "🙂"] {
            assert_eq!(sentiment(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_a_score_in_range(text in ".{0,200}") {
            if let Some(tone) = sentiment(&text) {
                prop_assert!((0.0..=1.0).contains(&tone.score));
            }
        }

        #[test]
        fn any_words_in_any_order_have_a_score(
            words in prop::collection::vec(
                prop::sample::select(vec!["but", "not", "never", "so", "this", "least", "at", "very", "kind",
                    "of", "good", "BAD", "the", "bomb", "without", "doubt", "😀", "?", "!", "a"]), 0..12)
        ) {
            let text = words.join(" ");
            prop_assert_eq!(sentiment(&text), sentiment(&text));
        }
    }
}
