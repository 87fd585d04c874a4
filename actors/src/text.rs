//! How the text stage asks its language model: the understander behind a lane lease.
//!
//! The language engine is a process of its own; what it computes on this machine's lanes is leased here. While
//! one request holds the lane, further ones join its batch without a lease of their own.

use std::sync::{Arc, Weak};
use std::time::Duration;

use engine::compute::{Compute, LaneGuard, NoLane};
use engine::language::{Meaning, Summary, TextInputs, UnderstandError, UnderstandSpec, Understander};
use engine::{Class, Ticket};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use media::Clock;
use media::result::MissingReason;
use tokio::sync::Mutex;

/// Something that understands text.
pub trait AskText: Send + Sync + 'static {
    /// Category, flags, sentiment and keywords, due by the ticket's deadline; and the wait for compute.
    fn meaning(
        &self,
        ticket: Ticket,
        inputs: TextInputs,
        spec: Arc<UnderstandSpec>,
    ) -> BoxFuture<'static, Result<(Meaning, Duration), MissingReason>>;

    /// One sentence; may take longer than a window.
    fn summary(
        &self,
        ticket: Ticket,
        inputs: TextInputs,
        spec: Arc<UnderstandSpec>,
    ) -> BoxFuture<'static, Result<Summary, MissingReason>>;

    /// Makes what the first answer would otherwise wait for.
    fn prepare(&self, spec: Arc<UnderstandSpec>) -> BoxFuture<'static, ()>;

    /// Name of the model.
    fn model(&self) -> String;

    /// Kind of backend.
    fn backend(&self) -> String;

    /// Whether it knows a language (ISO 639-1).
    fn knows(&self, language: &str) -> bool;
}

/// A shared text model.
pub type AskedText = Arc<dyn AskText>;

/// A language model on this machine's lanes, or elsewhere.
pub struct TextModel {
    parts: Arc<Parts>,
}

struct Parts {
    understander: Understander,
    lane: Option<Lane>,
    clock: Arc<dyn Clock>,
    languages: Vec<String>,
}

struct Lane {
    compute: Compute,
    name: String,
    held: Mutex<Weak<LaneGuard>>,
}

impl TextModel {
    /// `compute` is given when the model computes on this machine's lanes. `languages` are ISO 639-1.
    pub fn new(
        understander: Understander,
        compute: Option<Compute>,
        clock: Arc<dyn Clock>,
        languages: Vec<String>,
    ) -> Self {
        let name = understander.model().to_owned();
        let lane = compute.map(|compute| Lane { compute, name, held: Mutex::default() });
        TextModel { parts: Arc::new(Parts { understander, lane, clock, languages }) }
    }
}

impl Lane {
    async fn lease(&self, ticket: Ticket, predicted: Duration) -> Result<Arc<LaneGuard>, NoLane> {
        let mut held = self.held.lock().await;
        if let Some(guard) = held.upgrade() {
            return Ok(guard);
        }
        let guard = self.compute.lane(ticket, Class::Text, &self.name, predicted).await?;
        let guard = Arc::new(guard);
        *held = Arc::downgrade(&guard);
        Ok(guard)
    }
}

impl Parts {
    async fn lease(
        &self,
        ticket: &Ticket,
        predicted: Duration,
    ) -> Result<Option<Arc<LaneGuard>>, MissingReason> {
        match &self.lane {
            None => Ok(None),
            Some(lane) => lane.lease(ticket.clone(), predicted).await.map(Some).map_err(reason),
        }
    }
}

fn reason(no: NoLane) -> MissingReason {
    match no {
        NoLane::Shed | NoLane::Full => MissingReason::Shed,
        NoLane::Expired => MissingReason::Deadline,
        NoLane::Closing => MissingReason::Unavailable,
    }
}

fn failed(error: UnderstandError) -> MissingReason {
    tracing::warn!(%error, "the text model gave no answer");
    match error {
        UnderstandError::Late => MissingReason::Deadline,
        _ => MissingReason::Failed,
    }
}

impl AskText for TextModel {
    fn meaning(
        &self,
        ticket: Ticket,
        inputs: TextInputs,
        spec: Arc<UnderstandSpec>,
    ) -> BoxFuture<'static, Result<(Meaning, Duration), MissingReason>> {
        let parts = self.parts.clone();
        async move {
            let predicted = parts.understander.meaning_cost(&inputs, &spec);
            let asked = parts.clock.now();
            let _lane = match predicted.is_zero() {
                true => None,
                false => parts.lease(&ticket, predicted).await?,
            };
            let queue = parts.clock.now().since(asked);
            let limit = ticket.deadline.map(|deadline| deadline.since(parts.clock.now()));
            let meaning =
                parts.understander.meaning(&inputs, &spec, &ticket, limit).await.map_err(failed)?;
            Ok((meaning, queue))
        }
        .boxed()
    }

    fn summary(
        &self,
        ticket: Ticket,
        inputs: TextInputs,
        spec: Arc<UnderstandSpec>,
    ) -> BoxFuture<'static, Result<Summary, MissingReason>> {
        let parts = self.parts.clone();
        async move {
            let predicted = parts.understander.summary_cost(&inputs, &spec);
            let _lane = parts.lease(&ticket, predicted).await?;
            let limit = ticket.deadline.map(|deadline| deadline.since(parts.clock.now()));
            parts.understander.summary(&inputs, &spec, limit).await.map_err(failed)
        }
        .boxed()
    }

    fn prepare(&self, spec: Arc<UnderstandSpec>) -> BoxFuture<'static, ()> {
        let parts = self.parts.clone();
        async move {
            if let Err(error) = parts.understander.prepare(&spec).await {
                // The first answers will try again.
                tracing::warn!(%error, "the text model could not be prepared");
            }
        }
        .boxed()
    }

    fn model(&self) -> String {
        self.parts.understander.model().to_owned()
    }

    fn backend(&self) -> String {
        self.parts.understander.backend().to_owned()
    }

    fn knows(&self, language: &str) -> bool {
        self.parts.languages.iter().any(|known| known == language)
    }
}
