//! A language backend whose requests take the engine's lane by themselves: for those who have no ticket of a stream.
//!
//! Its neighbour is `lane`. Requests of streams enter the lane with their own tickets and ask the backend directly.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use media::{Clock, StreamId};

use super::backend::{
    BackendError, CostHint, GenerateRequest, Generation, LanguageBackend, Prompt, Score,
    ScoreRequest,
};
use super::before::Before;
use super::lane::{OnLane, TextLane};
use crate::Ticket;
use crate::compute::NoLane;

/// Rough time of a token before anything was measured: what a small model takes on one core.
const TOKEN: Duration = Duration::from_millis(6);
/// When to come again if no lane was to be had.
const RETRY_AFTER_MS: u64 = 1000;

/// A backend behind its lane. Cheap to clone.
#[derive(Clone)]
pub struct LeasedBackend {
    backend: Arc<dyn LanguageBackend>,
    lane: TextLane,
    stream: StreamId,
    clock: Arc<dyn Clock>,
}

impl LeasedBackend {
    /// Requests to `backend` take `lane` and count as those of `stream`.
    pub fn new(
        backend: Arc<dyn LanguageBackend>,
        lane: TextLane,
        stream: StreamId,
        clock: Arc<dyn Clock>,
    ) -> Self {
        LeasedBackend { backend, lane, stream, clock }
    }

    async fn enter(
        &self,
        priority: i32,
        limit_ms: Option<u64>,
        cost: CostHint,
    ) -> Result<OnLane, BackendError> {
        let deadline = limit_ms.map(|ms| self.clock.now() + Duration::from_millis(ms));
        let ticket = Ticket { stream: self.stream.clone(), priority, deadline };
        let predicted = cost.duration_or(&self.backend.stats(), TOKEN);
        self.lane.enter(ticket, predicted).await.map_err(|no_lane| match no_lane {
            NoLane::Expired => BackendError::TimeLimit,
            // It could not have been in time: others are, once there is less to do.
            NoLane::Shed | NoLane::Full => BackendError::Busy {
                waiting: self.backend.stats().waiting,
                retry_after_ms: RETRY_AFTER_MS,
            },
            NoLane::Closing => BackendError::Unavailable {
                detail: "the program is ending".into(),
                retry_after_ms: RETRY_AFTER_MS,
            },
        })
    }
}

fn cost(prompt: &Prompt, tokens_max: u32) -> CostHint {
    CostHint { prefill_tokens: prompt.tokens_estimate() as u32, decode_tokens: tokens_max }
}

impl Before for LeasedBackend {
    fn behind(&self) -> &Arc<dyn LanguageBackend> {
        &self.backend
    }

    fn answer(&self, request: GenerateRequest) -> BoxFuture<'_, Result<Generation, BackendError>> {
        async move {
            let cost = cost(&request.prompt, request.tokens_max);
            let inside = self.enter(request.priority, request.time_limit_ms, cost).await?;
            let answer = self.backend.generate(request).await?;
            // The lane is held until the answer has ended or nobody listens any more.
            Ok(Generation::new(answer.map(move |delta| {
                let _ = &inside;
                delta
            })))
        }
        .boxed()
    }

    fn weigh(&self, request: ScoreRequest) -> BoxFuture<'_, Result<Vec<Score>, BackendError>> {
        async move {
            let cost = cost(&request.prefix, 0);
            let _inside = self.enter(request.priority, request.time_limit_ms, cost).await?;
            self.backend.score(request).await
        }
        .boxed()
    }
}
