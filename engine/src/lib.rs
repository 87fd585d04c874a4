//! Who computes, and when: the priority-aware scheduler, lanes, batching and the language backends.
//!
//! Never sees a stream's source, an actor or an HTTP server.

pub mod compute;
pub mod cost;
pub mod events;
pub mod language;

mod job;
pub mod runs;
pub mod scheduler;

pub use job::{Answered, Class, JobEnd, Ticket};
