//! The language model's forward pass: a thin safe wrapper over llama.cpp's C API.
//!
//! Its neighbour is `engine::language`, which decides what goes into a batch. The one rule: everything the C
//! side would answer with an assertion (which ends the process) is checked here first and becomes an error.

mod context;
mod grammar;
mod guide;
mod log;
mod model;
mod processor;
mod quantise;
mod text;

pub use context::{BatchToken, ContextSettings, Decoded, LlamaContext};
pub use grammar::Grammar;
pub use guide::{ConstraintError, Guide};
pub use model::{LlamaModel, Token};
pub use quantise::requantise;
pub use text::Utf8Stream;
