//! Where one window of media time ends and the next begins.
//!
//! Pure: given deliveries and the time, says which windows are sealed. Its neighbour is `fusion`, which waits
//! for the stages' answers to a sealed window. It never reads a clock and never sees a frame's pixels.

mod sealer;

pub use sealer::{Seal, Sealer, SealerEvent, SealerSettings};

#[cfg(test)]
mod tests;
