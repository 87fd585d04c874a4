//! Configuration: YAML text → a tree that knows its lines → checked against the schema → `Plan`.
//!
//! All problems are found at once; after this nothing is known by a string that may be wrong.

mod check;
mod compile;
mod env;
mod graph;
mod mask;
mod place;
mod problem;
mod raw;
mod scalar;
mod schema;
mod set;
mod settings;
mod tree;

pub use compile::{Overrides, compile, load, stream_plans};
pub use place::place;
pub use problem::{At, Problem, Problems};
pub use raw::{
    RawBackend, RawCompute, RawConfig, RawLanes, RawModel, RawServer, RawShares, RawStream, Time,
};
pub use schema::{config_schema, result_schema};

pub(crate) use compile::{check_listen, listen};
pub(crate) use problem::alternatives;

/// What the compiler must know of the world.
pub struct Context<'a> {
    /// Names of the model catalogue.
    pub catalogue: &'a [&'a str],
    /// Environment variables.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Says what is wrong with the rule of an alert.
    pub alert: &'a dyn Fn(&str) -> Result<(), String>,
}

#[cfg(test)]
mod tests;
