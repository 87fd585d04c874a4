//! How a stage asks a model: one call per job, answered when its batch ends.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use models::{Model, ModelError};
use tokio::sync::oneshot;

use super::entry::Entry;
use super::{Answer, Refused, Reply, Shared};
use crate::scheduler::{JobId, JobSpec, ModelKey};
use crate::{JobEnd, Ticket};

/// A registered model. Cheap to clone; its instances are released with the last clone and job.
pub struct ModelHandle<M: Model> {
    shared: Arc<Shared>,
    key: ModelKey,
    entry: Arc<Entry>,
    model: PhantomData<fn() -> M>,
}

impl<M: Model> Clone for ModelHandle<M> {
    fn clone(&self) -> Self {
        ModelHandle::new(self.shared.clone(), self.key, self.entry.clone())
    }
}

impl<M: Model> ModelHandle<M> {
    pub(super) fn new(shared: Arc<Shared>, key: ModelKey, entry: Arc<Entry>) -> Self {
        ModelHandle { shared, key, entry, model: PhantomData }
    }

    /// Loads instances until there are `lanes` of them, so that no live job waits for a load. Blocks.
    ///
    /// # Errors
    /// What loading returned.
    pub fn prepare(&self, lanes: usize) -> Result<(), ModelError> {
        self.entry.prepare(lanes)
    }

    /// Has the model answer `input`. Without a deadline it waits for room in the stream's queue, too. When
    /// the future is dropped before the job has started, the job is cancelled.
    pub async fn run(&self, ticket: Ticket, input: M::Input) -> JobEnd<M::Output> {
        let mut input: Box<dyn Any + Send> = Box::new(input);
        loop {
            let room = self.shared.changed.notified();
            let (answer, receiver) = oneshot::channel();
            let reply = Reply::Model { input: Some(input), answer };
            let spec = JobSpec {
                model: self.key,
                stream: ticket.stream.clone(),
                priority: ticket.priority,
                deadline: ticket.deadline,
                predicted: None,
            };
            match self.shared.submit(spec, reply) {
                Ok(job) => {
                    let waiting = Waiting::new(self.shared.clone(), job);
                    let answer = receiver.await;
                    waiting.settled();
                    return self.typed(answer);
                }
                Err(Refused::Full(Reply::Model { input: Some(back), .. })) => input = back,
                Err(Refused::Shed) => return JobEnd::Shed,
                Err(Refused::Closing | Refused::Full(_)) => return JobEnd::Cancelled,
            }
            room.await;
        }
    }

    fn typed(&self, answer: Result<Answer, oneshot::error::RecvError>) -> JobEnd<M::Output> {
        match answer {
            Ok(JobEnd::Done { output, queue, compute, batch }) => match output.downcast() {
                Ok(output) => JobEnd::Done { output: *output, queue, compute, batch },
                Err(_) => JobEnd::Failed(super::entry::gone("of another type")),
            },
            Ok(JobEnd::Shed) => JobEnd::Shed,
            Ok(JobEnd::Expired) => JobEnd::Expired,
            Ok(JobEnd::Failed(error)) => JobEnd::Failed(error),
            // Without an answer, the device was closed under the job.
            Ok(JobEnd::Cancelled) | Err(_) => JobEnd::Cancelled,
        }
    }
}

/// Cancels a job whose asker went away.
pub(super) struct Waiting {
    job: Option<(Arc<Shared>, JobId)>,
}

impl Waiting {
    pub(super) fn new(shared: Arc<Shared>, job: JobId) -> Self {
        Waiting { job: Some((shared, job)) }
    }

    pub(super) fn settled(mut self) {
        self.job = None;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((shared, job)) = self.job.take() {
            shared.cancel(job);
        }
    }
}
