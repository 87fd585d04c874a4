//! How hard a request is, from 0 (any model can do it) to 1: by its length, its kind and what holds its answer. Pure.
//!
//! A rough measure, and meant as one: it costs nothing, and what it is worth is measured by how often both routes agree.

use super::backend::{Constraint, GenerateRequest, ScoreRequest};
use super::inputs::TextInputs;

/// Prompts from so many tokens on count as long.
const PROMPT_TOKENS_LONG: f64 = 512.0;
/// Answers from so many tokens on count as long.
const ANSWER_TOKENS_LONG: f64 = 128.0;
/// A text of so many words tells its topic plainly to most models; one of fewer hardly, one of many more wanders.
const WORDS_PLAIN: std::ops::RangeInclusive<usize> = 6..=24;
/// Categories from so many on lie close together.
const CATEGORIES_MANY: f64 = 24.0;

/// Of a free answer: half its prompt, half its length; less if the answer can only be one of a few.
pub fn of_generate(request: &GenerateRequest) -> f64 {
    let prompt = share(request.prompt.tokens_estimate() as f64, PROMPT_TOKENS_LONG);
    let answer = share(f64::from(request.tokens_max), ANSWER_TOKENS_LONG);
    let held = match &request.constraint {
        Some(Constraint::Choice(_)) => 0.4,
        Some(Constraint::Regex(_) | Constraint::Grammar(_) | Constraint::Json(_)) => 0.8,
        None => 1.0,
    };
    ((0.5 * prompt + 0.5 * answer) * held).clamp(0.0, 1.0)
}

/// Of a score: by its prefix and how many texts are told apart.
pub fn of_score(request: &ScoreRequest) -> f64 {
    let prefix = share(request.prefix.tokens_estimate() as f64, PROMPT_TOKENS_LONG);
    let texts = share(request.continuations.len() as f64, CATEGORIES_MANY);
    (0.5 * prefix + 0.3 * texts).clamp(0.0, 1.0)
}

/// Of choosing a category for a text.
pub fn of_category(inputs: &TextInputs, categories: usize) -> f64 {
    let words = inputs.whole().split_whitespace().count();
    let length = if WORDS_PLAIN.contains(&words) {
        0.0
    } else if words < *WORDS_PLAIN.start() {
        1.0 - words as f64 / *WORDS_PLAIN.start() as f64
    } else {
        share((words - WORDS_PLAIN.end()) as f64, 100.0)
    };
    // What is said and what stands behind it are two stories.
    let sources = [!inputs.transcript.is_empty(), !inputs.screen.is_empty()];
    let mixed = if sources == [true, true] { 0.2 } else { 0.0 };
    (0.6 * length + 0.2 * share(categories as f64, CATEGORIES_MANY) + mixed).clamp(0.0, 1.0)
}

fn share(value: f64, of: f64) -> f64 {
    (value / of).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::super::backend::Prompt;
    use super::*;

    #[test]
    fn longer_and_freer_is_harder() {
        let ask = |words: usize, tokens| {
            GenerateRequest::new(Prompt::template("word ".repeat(words)), tokens)
        };
        assert!(of_generate(&ask(10, 16)) < of_generate(&ask(200, 16)));
        assert!(of_generate(&ask(10, 16)) < of_generate(&ask(10, 100)));
        let held = GenerateRequest {
            constraint: Some(Constraint::Choice(vec!["a".into(), "b".into()])),
            ..ask(200, 16)
        };
        assert!(of_generate(&held) < of_generate(&ask(200, 16)));
        assert!(of_generate(&ask(10_000, 10_000)) <= 1.0);
    }

    #[test]
    fn a_plain_sentence_is_simpler_than_a_word_and_than_a_page() {
        let text = |transcript: &str| TextInputs {
            transcript: transcript.into(),
            ..TextInputs::default()
        };
        let plain = text("The train to Berlin is twenty minutes late because of snow");
        let of = |inputs: &TextInputs| of_category(inputs, 10);
        assert!(of(&plain) < of(&text("Berlin")));
        assert!(of(&plain) < of(&text(&"word ".repeat(200))));
        let signs = TextInputs { screen: "GATE 7".into(), ..plain.clone() };
        assert!(of(&plain) < of(&signs) && of_category(&plain, 10) < of_category(&plain, 20));
    }
}
