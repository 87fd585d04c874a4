//! Tokens of an utterance, one step at a time, with guards against a model that makes things up.
//!
//! Neighbour of [`Transcriber`], whose decoder it steps. Between two steps it is plain data: it may wait, be
//! dropped, or go on with another instance of the same model.

use ort::session::SessionInputValue;
use ort::value::{DynValue, Tensor, TensorRef};

use super::transcribe::{Encoded, Transcriber};
use crate::model::ModelError;

const START: i64 = 1;
const END: u32 = 2;
/// Longest repeating pattern that is looked for, in tokens.
const LOOP_TOKENS_MAX: usize = 32;

/// What was said, as far as the model can tell.
#[derive(Clone, Debug, PartialEq)]
pub struct Transcript {
    /// Possibly empty.
    pub text: String,
    /// Mean probability of the tokens, the end included, 0..1; 0 when the model was not asked. Says nothing
    /// when the text is empty.
    pub confidence: f32,
    /// Tokens kept.
    pub tokens: usize,
    /// Length of the audio.
    pub seconds: f32,
    /// What ended it.
    pub ended_by: DecodingEnd,
}

/// What ended a decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodingEnd {
    /// The model said so.
    Model,
    /// The audio is silent; the model was not asked.
    Silence,
    /// More tokens than such an utterance can hold.
    Length,
    /// The model went round in circles; the pattern is kept once.
    Repetition,
}

/// Whether there is more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Another step.
    More,
    /// Nothing: [`Decoding::finish`] gives the text.
    Done,
}

/// A decoding under way.
pub struct Decoding {
    encoded: Encoded,
    /// Keys and values so far, in the order of the model's names; empty before the first step.
    past: Vec<DynValue>,
    tokens: Vec<u32>,
    /// Of each of `tokens`, and of the end when it came.
    probabilities: Vec<f32>,
    tokens_max: usize,
    end: Option<DecodingEnd>,
}

impl Decoding {
    /// Of `encoded`, with at most `tokens_per_s_max` tokens per second of audio and a few for the rest.
    pub fn new(encoded: Encoded, tokens_per_s_max: f32) -> Self {
        let per_s =
            if tokens_per_s_max.is_finite() { tokens_per_s_max.clamp(0.0, 100.0) } else { 0.0 };
        let tokens_max = (encoded.seconds * per_s).ceil() as usize + 4;
        let end = encoded.hidden.is_none().then_some(DecodingEnd::Silence);
        Decoding {
            encoded,
            past: Vec::new(),
            tokens: Vec::new(),
            probabilities: Vec::new(),
            tokens_max,
            end,
        }
    }

    /// One decoder step: one token, a few milliseconds.
    ///
    /// # Errors
    /// `Run` when the runtime fails, `Answer` when a score is no number or an output is not there.
    pub fn step(&mut self, model: &mut Transcriber) -> Result<Progress, ModelError> {
        let (None, Some(_)) = (self.end, &self.encoded.hidden) else {
            return Ok(Progress::Done);
        };
        let (token, probability) = self.forward(model)?;
        self.probabilities.push(probability);
        self.end = if token == END {
            Some(DecodingEnd::Model)
        } else {
            self.tokens.push(token);
            if let Some(keep) = without_loop(&self.tokens) {
                self.tokens.truncate(keep);
                self.probabilities.truncate(keep);
                Some(DecodingEnd::Repetition)
            } else {
                (self.tokens.len() >= self.tokens_max).then_some(DecodingEnd::Length)
            }
        };
        Ok(if self.end.is_some() { Progress::Done } else { Progress::More })
    }

    /// The text so far; the whole of it after [`Progress::Done`].
    ///
    /// # Errors
    /// `Answer` when a token is not in the vocabulary.
    pub fn finish(self, model: &Transcriber) -> Result<Transcript, ModelError> {
        let (sum, count) =
            self.probabilities.iter().fold((0.0, 0.0f32), |(sum, count), p| (sum + p, count + 1.0));
        Ok(Transcript {
            text: model.text_of(&self.tokens)?,
            confidence: sum / count.max(1.0),
            tokens: self.tokens.len(),
            seconds: self.encoded.seconds,
            ended_by: self.end.unwrap_or(DecodingEnd::Length),
        })
    }

    fn forward(&mut self, model: &mut Transcriber) -> Result<(u32, f32), ModelError> {
        let first = self.past.is_empty();
        let inputs = self.inputs(model).map_err(|e| model.failed(e.to_string()))?;
        let Transcriber { name, decoder, cache, .. } = &mut *model;
        let mut outputs = decoder
            .run(inputs)
            .map_err(|e| ModelError::Run { name: name.clone(), detail: e.to_string() })?;
        let best = match outputs.get("logits").map(|v| v.try_extract_tensor::<f32>()) {
            Some(Ok((_, logits))) => best_of(logits),
            _ => None,
        };
        // With its cache branch on, the decoder gives no new encoder keys and values.
        let present: Vec<Option<DynValue>> = cache
            .names
            .iter()
            .map(|(_, present)| {
                let keep = !first && present.contains(".encoder.");
                if keep { None } else { outputs.remove(present) }
            })
            .collect();
        drop(outputs);
        let best = best.ok_or_else(|| {
            model.unexpected("token scores that are no numbers".into(), "finite `logits`")
        })?;
        let missing = || model.unexpected("no keys and values".into(), "`present.*`");
        if first {
            self.past = present.into_iter().collect::<Option<Vec<_>>>().ok_or_else(missing)?;
        } else {
            for (old, new) in self.past.iter_mut().zip(present) {
                if let Some(new) = new {
                    *old = new;
                }
            }
        }
        Ok(best)
    }

    fn inputs(&self, model: &Transcriber) -> ort::Result<Vec<(String, SessionInputValue<'_>)>> {
        let first = self.past.is_empty();
        let token = self.tokens.last().map_or(START, |t| i64::from(*t));
        let mut inputs: Vec<(String, SessionInputValue<'_>)> = vec![
            ("input_ids".into(), Tensor::from_array(([1usize, 1], vec![token]))?.into()),
            ("use_cache_branch".into(), Tensor::from_array(([1usize], vec![!first]))?.into()),
        ];
        if let Some(hidden) = &self.encoded.hidden {
            inputs.push(("encoder_hidden_states".into(), hidden.into()));
        }
        for (i, (name, _)) in model.cache.names.iter().enumerate() {
            let value = match self.past.get(i) {
                Some(value) => value.into(),
                None => {
                    let empty = [1usize, model.cache.heads, 0, model.cache.width];
                    TensorRef::from_array_view((empty, &[] as &[f32]))?.into()
                }
            };
            inputs.push((name.clone(), value));
        }
        Ok(inputs)
    }
}

/// The best token with its softmax probability; none when a score is no number.
fn best_of(logits: &[f32]) -> Option<(u32, f32)> {
    let (mut token, mut best) = (0, f32::NEG_INFINITY);
    for (i, logit) in logits.iter().enumerate() {
        if !logit.is_finite() {
            return None;
        }
        if *logit > best {
            (token, best) = (i, *logit);
        }
    }
    let sum: f32 = logits.iter().map(|l| (l - best).exp()).sum();
    (sum >= 1.0).then_some((u32::try_from(token).ok()?, 1.0 / sum))
}

/// When the tokens end in a pattern that repeats more often than people repeat themselves: how many to keep so
/// that the pattern stands once.
fn without_loop(tokens: &[u32]) -> Option<usize> {
    (1..=LOOP_TOKENS_MAX).find_map(|period| {
        let times = match period {
            1 => 6,
            2 | 3 => 4,
            _ => 3,
        };
        let tail = tokens.len().checked_sub(period * times).and_then(|at| tokens.get(at..))?;
        let (pattern, rest) = tail.split_at(period);
        rest.chunks(period).all(|c| c == pattern).then(|| tokens.len() - period * (times - 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_cut_and_stand_once() {
        assert_eq!(without_loop(&[9, 1, 1, 1, 1, 1, 1]), Some(2));
        assert_eq!(without_loop(&[9, 1, 2, 1, 2, 1, 2, 1, 2]), Some(3));
        assert_eq!(without_loop(&[9, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4]), Some(5));
        assert_eq!(without_loop(&[7, 7, 7, 7, 7]), None, "people do say no, no, no, no, no");
        assert_eq!(without_loop(&[1, 2, 3, 4, 1, 2, 3, 4, 5]), None);
        assert_eq!(without_loop(&[]), None);
    }

    #[test]
    fn the_best_token_comes_with_its_probability() {
        let (token, p) = best_of(&[0.0, 2.0, 1.0]).expect("numbers");
        assert_eq!(token, 1);
        assert!((p - 0.665_24).abs() < 1e-4);
        assert_eq!(best_of(&[0.0, f32::NAN]), None);
        assert_eq!(best_of(&[0.0, f32::INFINITY]), None);
        assert_eq!(best_of(&[]), None);
    }
}
