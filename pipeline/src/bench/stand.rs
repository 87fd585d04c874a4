//! The production graph on a bench: compiled from a configuration's text, run over rooms, watched by a sink.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actors::plan::{GraphPlan, StreamPlan};
use actors::{Board, ResultSink, System};
use bytes::Bytes;
use engine::compute::{Compute, ComputeStats};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use media::result::{FusedResult, StreamMessage};
use media::{Clock, SourceSpec, Transport};

use crate::config::{self, Overrides};
use crate::plan::Plan;
use crate::run::{self, Front, Rooms};
use crate::wiring;

/// Loading weights and the language model's worked examples.
const READY_LIMIT: Duration = Duration::from_secs(120);
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// Compiles a configuration that is part of the program.
pub(super) fn plan(name: &str, text: &str) -> Result<Plan, String> {
    config::compile(text, Path::new(name), Overrides::default(), &wiring::context())
        .map_err(|problems| problems.to_string())
}

/// A running graph.
pub(super) struct Stand {
    pub(super) system: System,
    pub(super) hub: actors::hub::Hub,
    pub(super) board: Arc<Board>,
    pub(super) compute: Compute,
    pub(super) clock: Arc<dyn Clock>,
}

impl Stand {
    /// Waits for the language model and starts the actors.
    pub(super) async fn up(
        graph: &GraphPlan,
        rooms: Rooms,
        sink: Arc<dyn ResultSink>,
    ) -> Result<Self, String> {
        rooms.ready(READY_LIMIT).await;
        let (compute, clock) = (rooms.compute.clone(), rooms.clock.clone());
        let front = Front::default();
        let system = run::start(graph.clone(), rooms, Some(sink), &front).await?;
        let Front { hub, board } = front;
        Ok(Stand { system, hub, board, compute, clock })
    }

    pub(super) async fn add(&self, stream: StreamPlan) -> Result<(), String> {
        self.system.add(stream).await.map_err(|e| e.to_string())
    }

    /// Waits until every stream has ended.
    ///
    /// # Errors
    /// The first stream that failed: a bench of less than it was told to measure is void.
    pub(super) async fn all_ended(&self) -> Result<(), String> {
        let progress = self.system.all_ended().await;
        match progress.failed.first() {
            Some((stream, reason)) => Err(format!("stream {stream} failed: {reason}")),
            None => Ok(()),
        }
    }

    pub(super) async fn down(self) -> ComputeStats {
        self.system.drain(DRAIN_LIMIT).await;
        let stats = self.compute.stats();
        self.compute.shutdown(Duration::from_secs(1)).await;
        stats
    }
}

/// A stream of a bench.
pub(super) fn stream(id: &str, uri: &str, paced: bool, graph: &GraphPlan) -> StreamPlan {
    StreamPlan {
        id: id.into(),
        source: SourceSpec {
            uri: uri.to_owned(),
            transport: Transport::Tcp,
            open_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(10),
            sampling: graph.sampling(),
        },
        paced,
        priority: if paced { 0 } else { 10 },
        title: None,
        description: None,
        language: None,
        clip_budget: None,
    }
}

/// Jobs a model has answered.
pub(super) fn answered(stats: &ComputeStats, model: &str) -> u64 {
    let of_model = stats.models.iter().filter(|m| m.model == model);
    of_model.map(|m| m.counts.done + m.counts.late).sum()
}

/// Keeps every result.
#[derive(Default)]
pub(super) struct Kept(Mutex<Vec<FusedResult>>);

impl Kept {
    /// What came since the last call.
    pub(super) fn take(&self) -> Vec<FusedResult> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ResultSink for Kept {
    fn result<'a>(&'a self, result: &'a FusedResult, _: Bytes, _: bool) -> BoxFuture<'a, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(result.clone());
        std::future::ready(()).boxed()
    }

    fn ended<'a>(&'a self, _: &'a StreamMessage) -> BoxFuture<'a, ()> {
        std::future::ready(()).boxed()
    }
}

/// Counts first results.
#[derive(Default)]
pub(super) struct Counted(AtomicU64);

impl Counted {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl ResultSink for Counted {
    fn result<'a>(&'a self, result: &'a FusedResult, _: Bytes, _: bool) -> BoxFuture<'a, ()> {
        if result.revision == 0 {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        std::future::ready(()).boxed()
    }

    fn ended<'a>(&'a self, _: &'a StreamMessage) -> BoxFuture<'a, ()> {
        std::future::ready(()).boxed()
    }
}
