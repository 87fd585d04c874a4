//! The language model: an engine in a child process, the seam in front of it, and what is asked of it.

mod admission;
mod backend;
mod blocks;
mod category;
mod child;
mod embedded;
mod inbox;
mod inputs;
mod measure;
mod plan;
mod prompt;
mod quantum;
mod rank;
mod sample;
mod serve;
mod stop;
mod supervise;
mod task;
mod understand;
mod wire;

pub use backend::{
    Answer, BackendError, Constraint, CostHint, Delta, EngineStats, Finish, GenerateRequest,
    Generation, Health, LanguageBackend, ModelInfo, Part, Prompt, Sampling, Score, ScoreRequest,
    TokenLogprob, Usage,
};
pub use category::{
    Calibration, category_by_embedding, combined, decide, flag_sentence, flags_by_embedding,
    label_sentence, softmax,
};
pub use child::{ChildArgs, run_child};
pub use embedded::{EmbeddedBackend, EmbeddedConfig};
pub use inputs::TextInputs;
pub use prompt::{PromptShape, quoted, shape_of};
pub use understand::{CategoryAnswer, Parts, SummaryAnswer, UnderstandSpec, Understander};
