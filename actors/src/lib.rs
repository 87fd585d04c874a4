//! Typed ractor actors, the ports between them, and the pure fusion window.
//!
//! Knows nothing of ffmpeg, model internals or configuration syntax.

mod ask;
pub mod duration;
pub mod fusion;
pub mod plan;
mod port;
mod source;
mod stage;
pub mod stages;
pub mod windows;
