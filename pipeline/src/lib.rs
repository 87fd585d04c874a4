//! The binary `pipeline`: configuration → plan → running graph; HTTP and WebSocket; command line.
//!
//! Nothing is above it. `config` compiles text to a `plan::Plan`, `inputs` and `resume` say which clips a run has,
//! `server` and `output` carry results away; `run` starts the graph.

pub mod config;
pub mod inputs;
pub mod plan;
