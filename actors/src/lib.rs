//! Typed ractor actors, the ports between them, and the pure fusion window.
//!
//! Knows nothing of ffmpeg, model internals or configuration syntax.

pub mod duration;
pub mod hub;
pub mod plan;
pub mod stages;
