//! What a model is: the catalogue of weights, pre- and post-processing, and the forward passes.
//!
//! Knows nothing of who runs a model and when, of actors or of configuration files.

pub mod convert;
mod model;
mod runtime;

pub use model::{Model, ModelError};
pub use runtime::{Provider, Runtime};
