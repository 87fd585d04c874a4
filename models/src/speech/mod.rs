//! From samples to words: where somebody speaks, where an utterance begins and ends, what is said, and whether
//! it is said in a language that the model knows.
//!
//! [`Chunker`] → [`VoiceActivity`] → [`Segmenter`] → [`Transcriber`] → [`LanguageTracker`]. The models answer;
//! the chunker, segmenter and tracker are pure state machines, one of each per stream, and never read a clock.
//! One rule: every sample of speech ends up in exactly one utterance.

mod activity;
mod chunks;
mod decode;
mod language;
mod pieces;
mod segment;
mod transcribe;

pub use activity::{ActivityInput, ActivityOutput, VoiceActivity, VoiceState};
pub use chunks::{CHUNK_SAMPLES, CHUNK_US, Chunk, Chunker};
pub use decode::{Decoding, DecodingEnd, Progress, Transcript};
pub use language::{LanguageTracker, LanguageVerdict};
pub use pieces::{SpeechDecoder, SpeechEncoder, Spoken, Unfinished};
pub use segment::{Running, Segmenter, SegmenterSettings, SpeechEvent, Utterance, UtteranceEnd};
pub use transcribe::{Encoded, SpeechInput, TOKENS_PER_S_MAX, Transcriber};
