//! The language model: an engine in a child process, the seam in front of it, and what is asked of it.

mod admission;
mod answer;
mod backend;
mod before;
mod blocks;
mod cache;
mod cached;
mod category;
mod check;
mod child;
mod embedded;
mod hold;
mod inbox;
mod inputs;
mod lane;
mod leased;
mod likelihood;
mod measure;
mod plan;
mod pool;
mod process;
mod prompt;
mod quantum;
mod rank;
mod resident;
mod route;
mod routed;
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
pub use cache::CacheLimits;
pub use cached::CachedBackend;
pub use category::{
    Calibration, category_by_embedding, combined, decide, flag_sentence, flags_by_embedding,
    label_sentence, softmax,
};
pub use child::{ChildArgs, run_child};
pub use embedded::{EmbeddedBackend, EmbeddedConfig, Recycle};
pub use inputs::TextInputs;
pub use lane::{OnLane, TextLane};
pub use leased::LeasedBackend;
pub use pool::{MODELS_MAX, ModelPool, PoolModel, PoolStats, PooledBackend};
pub use prompt::{PromptShape, quoted, shape_of};
pub use route::{of_category, of_generate, of_score};
pub use routed::RoutedBackend;
pub use understand::{CategoryAnswer, Parts, SummaryAnswer, UnderstandSpec, Understander};
