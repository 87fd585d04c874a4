//! What a model is: the catalogue of weights, pre- and post-processing, and the forward passes.
//!
//! Knows nothing of who runs a model and when, of actors or of configuration files.

mod files;
pub mod llama;
mod model;
mod runtime;
pub mod speech;
pub mod words;

pub use model::{Model, ModelError};
pub use runtime::{Provider, Runtime};
