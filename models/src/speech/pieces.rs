//! Transcription in pieces short enough to run beside a language model: the encoder, then a few tokens at a time.
//!
//! Each piece is a model of its own, so that whoever schedules learns what each costs and may put other work
//! between any two of them.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::decode::{Decoding, Progress, Transcript};
use super::transcribe::{SpeechInput, Transcriber};
use crate::model::{Model, ModelError};
use crate::runtime::Runtime;

/// Tokens of one piece: about 25 ms on one core.
const PIECE_TOKENS: usize = 3;

/// The first piece of an utterance.
pub struct SpeechEncoder(Transcriber);

/// All further pieces.
pub struct SpeechDecoder(Transcriber);

/// An utterance between two pieces.
pub struct Unfinished(Mutex<Option<Decoding>>);

/// What a piece brought.
pub enum Spoken {
    /// Ask again with this.
    More(Unfinished),
    /// All of it.
    Whole(Transcript),
}

impl SpeechEncoder {
    /// Loads the model in `dir`.
    ///
    /// # Errors
    /// `Absent` or `Load`.
    pub fn open(runtime: &Runtime, dir: &Path) -> Result<Self, ModelError> {
        Transcriber::open(runtime, dir).map(SpeechEncoder)
    }
}

impl SpeechDecoder {
    /// Loads the model in `dir`.
    ///
    /// # Errors
    /// `Absent` or `Load`.
    pub fn open(runtime: &Runtime, dir: &Path) -> Result<Self, ModelError> {
        Transcriber::open(runtime, dir).map(SpeechDecoder)
    }
}

impl Model for SpeechEncoder {
    type Input = SpeechInput;
    type Output = Unfinished;

    fn batch_max(&self) -> usize {
        1
    }

    fn run(&mut self, batch: &[SpeechInput]) -> Result<Vec<Unfinished>, ModelError> {
        batch
            .iter()
            .map(|input| {
                let encoded = self.0.encode(&input.pcm)?;
                let decoding = Decoding::new(encoded, input.tokens_per_s_max);
                Ok(Unfinished(Mutex::new(Some(decoding))))
            })
            .collect()
    }
}

impl Model for SpeechDecoder {
    type Input = Unfinished;
    type Output = Spoken;

    fn batch_max(&self) -> usize {
        1
    }

    fn run(&mut self, batch: &[Unfinished]) -> Result<Vec<Spoken>, ModelError> {
        batch.iter().map(|unfinished| self.go_on(unfinished)).collect()
    }
}

impl SpeechDecoder {
    fn go_on(&mut self, unfinished: &Unfinished) -> Result<Spoken, ModelError> {
        let taken = unfinished.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut decoding) = taken else {
            return Err(self.0.unexpected("a decoding that was taken".into(), "one under way"));
        };
        for _ in 0..PIECE_TOKENS {
            if decoding.step(&mut self.0)? == Progress::Done {
                return decoding.finish(&self.0).map(Spoken::Whole);
            }
        }
        Ok(Spoken::More(Unfinished(Mutex::new(Some(decoding)))))
    }
}
