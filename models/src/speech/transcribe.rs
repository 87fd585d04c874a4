//! What is said: Moonshine (Useful Sensors, MIT; arXiv 2410.15608), English.
//!
//! Source of the weights: npm `@usefulsensors/moonshine-js` 0.1.16, tiny or base, quantised to 8 bits. The shape
//! of the decoder is read from the file, so both sizes open. An encoder pass, then one decoder step per token
//! ([`Decoding`]): whoever runs it may stop between any two of them and go on later.
//!
//! There are no word times: the exported decoder does not give its cross-attention, and times guessed from the
//! order of tokens are off by half a second.

use std::path::Path;
use std::sync::Arc;

use media::SAMPLE_RATE_HZ;
use ort::session::Session;
use ort::value::{DynValue, TensorRef, ValueType};
use tokenizers::Tokenizer;

use super::decode::{Decoding, Progress, Transcript};
use crate::files::{name_of, present};
use crate::model::{Model, ModelError};
use crate::runtime::{Provider, Runtime};

/// Tokens per second of audio that fast English needs; more is a hallucination.
pub const TOKENS_PER_S_MAX: f32 = 6.5;
/// Shorter audio is filled up with silence: the encoder's convolutions need something to stand on.
const SAMPLES_MIN: usize = SAMPLE_RATE_HZ as usize / 4;
/// The model was trained on up to 30 s.
const SAMPLES_MAX: usize = SAMPLE_RATE_HZ as usize * 40;
/// Audio whose loudest tenth of a second is below this (-70 dBFS) holds no speech.
const SILENCE_RMS: f32 = 3e-4;

/// The speech-to-text model.
pub struct Transcriber {
    pub(super) name: String,
    encoder: Session,
    pub(super) decoder: Session,
    pub(super) cache: CacheShape,
    tokenizer: Tokenizer,
}

/// Names and sizes of the decoder's key-value cache, as its file states them.
pub(super) struct CacheShape {
    /// `past_key_values.0.decoder.key` → `present.0.decoder.key`, in the file's order.
    pub(super) names: Vec<(String, String)>,
    pub(super) heads: usize,
    pub(super) width: usize,
}

/// An utterance, closed or still running.
#[derive(Clone, Debug)]
pub struct SpeechInput {
    /// 16 kHz mono, at most 40 s. Samples that are not finite count as silence.
    pub pcm: Arc<[f32]>,
    /// No more tokens than this per second of audio; [`TOKENS_PER_S_MAX`] unless there is a reason.
    pub tokens_per_s_max: f32,
}

/// Audio after the encoder.
pub struct Encoded {
    /// None: silence, there is nothing to decode.
    pub(super) hidden: Option<DynValue>,
    pub(super) seconds: f32,
}

impl Transcriber {
    /// Loads `encoder.onnx`, `decoder.onnx` and `tokenizer.json` from `dir`.
    ///
    /// # Errors
    /// `Absent` or `Load`.
    pub fn open(runtime: &Runtime, dir: &Path) -> Result<Self, ModelError> {
        let name = name_of(dir);
        let load = |detail: String| ModelError::Load { name: name.clone(), detail };
        let encoder =
            runtime.session(&name, &present(&name, dir, "encoder.onnx")?, Provider::Cpu)?;
        let decoder =
            runtime.session(&name, &present(&name, dir, "decoder.onnx")?, Provider::Cpu)?;
        let cache = CacheShape::of(&decoder).map_err(load)?;
        let tokenizer = Tokenizer::from_file(present(&name, dir, "tokenizer.json")?)
            .map_err(|e| load(format!("tokenizer.json: {e}")))?;
        Ok(Transcriber { name, encoder, decoder, cache, tokenizer })
    }

    /// The encoder pass: the first piece of the work, a few milliseconds per second of audio.
    ///
    /// # Errors
    /// `Run` for audio longer than 40 s or when the runtime fails, `Answer` when its output is not there.
    pub fn encode(&mut self, pcm: &[f32]) -> Result<Encoded, ModelError> {
        let seconds = pcm.len() as f32 / SAMPLE_RATE_HZ as f32;
        if pcm.len() > SAMPLES_MAX {
            return Err(self.failed(format!("utterance of {seconds:.1} s, expected at most 40 s")));
        }
        let mut pcm: Vec<f32> = pcm.iter().map(|s| if s.is_finite() { *s } else { 0.0 }).collect();
        if loudest_rms(&pcm) < SILENCE_RMS {
            return Ok(Encoded { hidden: None, seconds });
        }
        pcm.resize(pcm.len().max(SAMPLES_MIN), 0.0);

        let name = &self.name;
        let failed = |e: ort::Error| ModelError::Run { name: name.clone(), detail: e.to_string() };
        let audio = TensorRef::from_array_view(([1, pcm.len()], &pcm[..])).map_err(failed)?;
        let mut outputs =
            self.encoder.run(ort::inputs! { "input_values" => audio }).map_err(failed)?;
        let hidden = outputs.remove("last_hidden_state");
        drop(outputs);
        match hidden {
            Some(hidden) => Ok(Encoded { hidden: Some(hidden), seconds }),
            None => Err(self.unexpected("no `last_hidden_state`".into(), "the encoder's output")),
        }
    }

    /// Text of tokens, without special ones.
    pub(super) fn text_of(&self, tokens: &[u32]) -> Result<String, ModelError> {
        let text = self.tokenizer.decode(tokens, true);
        let text = text.map_err(|e| self.unexpected(e.to_string(), "tokens of its vocabulary"))?;
        Ok(text.trim().to_owned())
    }

    pub(super) fn failed(&self, detail: String) -> ModelError {
        ModelError::Run { name: self.name.clone(), detail }
    }

    pub(super) fn unexpected(&self, found: String, expected: &str) -> ModelError {
        ModelError::Answer { name: self.name.clone(), found, expected: expected.into() }
    }
}

impl Model for Transcriber {
    type Input = SpeechInput;
    type Output = Transcript;

    /// One: utterances differ in length, and on one thread a padded batch saves nothing.
    fn batch_max(&self) -> usize {
        1
    }

    fn run(&mut self, batch: &[SpeechInput]) -> Result<Vec<Transcript>, ModelError> {
        batch
            .iter()
            .map(|input| {
                let encoded = self.encode(&input.pcm)?;
                let mut decoding = Decoding::new(encoded, input.tokens_per_s_max);
                while decoding.step(self)? == Progress::More {}
                decoding.finish(self)
            })
            .collect()
    }
}

impl CacheShape {
    fn of(decoder: &Session) -> Result<Self, String> {
        let mut names = Vec::new();
        let mut sizes = None;
        for input in decoder.inputs() {
            let Some(rest) = input.name().strip_prefix("past_key_values.") else { continue };
            let ValueType::Tensor { shape, .. } = input.dtype() else { continue };
            if let [_, heads, _, width] = shape[..] {
                sizes = usize::try_from(heads).ok().zip(usize::try_from(width).ok());
            }
            names.push((input.name().to_owned(), format!("present.{rest}")));
        }
        let (heads, width) = sizes
            .filter(|(heads, width)| heads * width > 0)
            .ok_or("decoder.onnx: no `past_key_values.*` of [batch, heads, length, width]")?;
        Ok(CacheShape { names, heads, width })
    }
}

/// Root mean square of the loudest 100 ms.
fn loudest_rms(pcm: &[f32]) -> f32 {
    pcm.chunks(SAMPLE_RATE_HZ as usize / 10)
        .map(|c| (c.iter().map(|s| s * s).sum::<f32>() / c.len() as f32).sqrt())
        .fold(0.0, f32::max)
}
