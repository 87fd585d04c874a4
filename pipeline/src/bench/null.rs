//! Models that do nothing, or nothing but take time: what is left is the framework.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use media::Clock;
use models::{Model, ModelError};

/// Answers the default at once.
pub(super) struct Null<I, O>(PhantomData<fn(I) -> O>);

impl<I, O> Null<I, O> {
    pub(super) fn new() -> Self {
        Null(PhantomData)
    }
}

impl<I: Send + 'static, O: Send + Default + 'static> Model for Null<I, O> {
    type Input = I;
    type Output = O;

    fn batch_max(&self) -> usize {
        4
    }

    fn run(&mut self, batch: &[I]) -> Result<Vec<O>, ModelError> {
        Ok(batch.iter().map(|_| O::default()).collect())
    }
}

/// Answers the default after a time, one input at a time. It waits rather than computes, so that a busy machine
/// does not make the stage slower than it claims to be.
pub(super) struct Slow<I, O> {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) takes: Duration,
    kind: PhantomData<fn(I) -> O>,
}

impl<I, O> Slow<I, O> {
    pub(super) fn new(clock: Arc<dyn Clock>, takes: Duration) -> Self {
        Slow { clock, takes, kind: PhantomData }
    }
}

impl<I: Send + 'static, O: Send + Default + 'static> Model for Slow<I, O> {
    type Input = I;
    type Output = O;

    fn batch_max(&self) -> usize {
        1
    }

    fn run(&mut self, batch: &[I]) -> Result<Vec<O>, ModelError> {
        let due = self.clock.now() + self.takes;
        loop {
            let left = due.since(self.clock.now());
            if left.is_zero() {
                break;
            }
            std::thread::park_timeout(left);
        }
        Ok(batch.iter().map(|_| O::default()).collect())
    }
}
