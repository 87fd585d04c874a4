//! The binary `pipeline`: configuration → plan → running graph; HTTP and WebSocket; command line.
//!
//! Nothing is above it. `config` compiles text to a `plan::Plan`; `cost` holds it against
//! the machine; `inputs` and `resume` say which clips a run has;
//! `server`, `output` and `summary` carry results away; `cli` puts a call together; `wiring` is where the rooms
//! below are joined to it.

pub mod bench;
pub mod cli;
pub mod config;
pub mod cost;
pub mod graph;
pub mod inputs;
pub mod launch;
pub mod output;
pub mod plan;
pub mod resume;
pub mod run;
pub mod serve;
pub mod server;
pub mod show;
pub mod subscribe;
pub mod summary;
pub mod validate;
pub mod wiring;
