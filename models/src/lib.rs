//! What a model is: the catalogue of weights, pre- and post-processing, and the forward passes.
//!
//! Knows nothing of who runs a model and when, of actors or of configuration files.

mod arena;
pub mod catalogue;
pub mod convert;
mod files;
pub mod llama;
mod model;
mod pull;
mod runtime;
pub mod speech;
pub mod vision;
pub mod words;
pub use catalogue::Catalogue;
pub use model::{Interrupt, Model, ModelError};
pub use pull::{PullError, PullEvent};
pub use runtime::{Provider, Runtime};
