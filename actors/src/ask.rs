//! How stages ask models: a lane behind a trait, so that a test can answer instead.

use std::sync::Arc;

use engine::{JobEnd, Ticket};
use futures_util::future::BoxFuture;

/// Something that answers jobs under the scheduler's rules.
pub trait Ask<I, O>: Send + Sync + 'static {
    /// The answer to `input`, or how the job ended without one. Dropping the future cancels a waiting job.
    fn ask(&self, ticket: Ticket, input: I) -> BoxFuture<'static, JobEnd<O>>;
}

/// A shared model.
pub type Asked<I, O> = Arc<dyn Ask<I, O>>;
