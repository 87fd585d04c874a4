//! Where one window of media time ends and the next begins.
//!
//! Pure: given deliveries and the time, says which windows are sealed. Its neighbour is `fusion`, which waits
//! for the stages' answers to a sealed window. It never reads a clock and never sees a frame's pixels.

mod seal;
mod sealer;

pub use seal::{Seal, SealerEvent, SealerSettings};
pub use sealer::Sealer;

#[cfg(test)]
mod tests;
