//! Who computes, and when: the priority-aware scheduler, lanes, batching and the language backends.
//!
//! Never sees a stream's source, an actor or an HTTP server.

pub mod language;

mod job;

pub use job::{Class, JobEnd, Ticket};
