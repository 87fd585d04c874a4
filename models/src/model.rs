//! The seam between a model and whoever runs it.

use std::sync::Arc;

use thiserror::Error;

/// A model that answers batches. One instance runs on one lane at a time.
pub trait Model: Send + 'static {
    /// One member of a batch.
    type Input: Send + 'static;
    /// The answer to it.
    type Output: Send + 'static;

    /// Largest batch that pays off.
    fn batch_max(&self) -> usize;

    /// Answers `batch` in order; as many outputs as inputs.
    ///
    /// # Errors
    /// [`ModelError`], which concerns the whole batch.
    fn run(&mut self, batch: &[Self::Input]) -> Result<Vec<Self::Output>, ModelError>;

    /// What ends this instance's run half-way; none when a run once begun is finished. A run that may be ended
    /// must leave nothing behind, since the same batch is asked again.
    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        None
    }
}

/// Ends a run half-way, from another thread.
pub trait Interrupt: Send + Sync + 'static {
    /// The run under way, or the next one, ends with [`ModelError::Interrupted`] as soon as it can.
    fn stop(&self);

    /// Later runs are whole again.
    fn reset(&self);
}

/// Why a model could not be loaded or could not answer.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ModelError {
    /// Not in the catalogue.
    #[error("model `{name}` is not in the catalogue (known: {known})")]
    Unknown {
        /// As asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// Weights are not in the cache.
    #[error(
        "model `{name}`: {path} is not there; run `pipeline models pull` (for this one alone: `pipeline models pull {name}`)"
    )]
    Absent {
        /// Catalogue name.
        name: String,
        /// Expected place.
        path: String,
    },
    /// Weights differ from the catalogue.
    #[error(
        "model `{name}`: {path} has sha256 {found}, expected {expected}; run `pipeline models pull {name}`"
    )]
    Corrupt {
        /// Catalogue name.
        name: String,
        /// Which file.
        path: String,
        /// What it hashes to.
        found: String,
        /// What the catalogue says.
        expected: String,
    },
    /// The runtime refused the weights or the provider.
    #[error("model `{name}`: {detail}")]
    Load {
        /// Catalogue name.
        name: String,
        /// What the runtime said.
        detail: String,
    },
    /// The forward pass failed.
    #[error("model `{name}` failed: {detail}")]
    Run {
        /// Catalogue name.
        name: String,
        /// What the runtime said.
        detail: String,
    },
    /// Ended half-way, as asked.
    #[error("model `{name}` was interrupted")]
    Interrupted {
        /// Catalogue name.
        name: String,
    },
    /// An answer with an impossible shape or value.
    #[error("model `{name}` answered {found}, expected {expected}")]
    Answer {
        /// Catalogue name.
        name: String,
        /// Shape or value found.
        found: String,
        /// Shape or value expected.
        expected: String,
    },
}
