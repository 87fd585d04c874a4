//! The HTTP port: results over WebSocket and SSE, what runs, health, metrics, and the language models for other
//! programs.
//!
//! Knows only what [`ServerState`] hands it. One rule: whatever a client sends or fails to read costs that client
//! alone. Every connection has a bounded number of bytes waiting for it, a limit on silence and on slowness.

mod access;
pub mod language;
mod results;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actors::hub::Hub;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::ListenerExt;
use axum::{Json, Router, middleware};
use media::StreamId;
use media::result::StreamState;
use serde::Serialize;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use crate::plan::{Secret, ServerPlan};
use language::LanguageApi;

/// Subscribers at a time; more get 503.
const SUBSCRIBERS_MAX: u32 = 1_024;

/// What the server shows. Everything in it is asked anew for each request.
#[derive(Clone)]
pub struct ServerState {
    /// Where results come from.
    pub hub: Hub,
    /// What is being processed.
    pub streams: Arc<dyn StreamList>,
    /// The stage graph, as [`crate::graph::to_json`] writes it.
    pub graph: Arc<Value>,
    /// Metrics in Prometheus' text format.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// Whether it is worth sending work here, or what is missing.
    pub ready: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
    /// The language models for other programs; none: without these routes.
    pub language: Option<LanguageApi>,
}

/// Knows the streams.
pub trait StreamList: Send + Sync + 'static {
    /// All of them, in a steady order.
    fn list(&self) -> Vec<StreamView>;
}

/// A stream as clients see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StreamView {
    /// Its name in results.
    pub id: StreamId,
    /// Password and query masked.
    pub uri: String,
    /// Given with the source.
    pub title: Option<String>,
    /// Whether deadlines bind.
    pub paced: bool,
    /// Where it is.
    pub state: StreamState,
    /// Why, for people.
    pub reason: Option<String>,
    /// Index of the window that opens next.
    pub window_next: u64,
}

/// Why the server can't start.
#[derive(Debug, Error)]
pub enum ServerError {
    /// An address that others can reach, without a token.
    #[error("{0}")]
    Refused(String),
    /// The address can't be had.
    #[error("can't listen on {address}: {error}; `--listen ADDR` takes another address")]
    Bind {
        /// As configured.
        address: SocketAddr,
        /// What the system said.
        error: std::io::Error,
    },
}

/// A running server.
pub struct Server {
    address: SocketAddr,
    hub: Hub,
    subscribers: Arc<Semaphore>,
    accepting: watch::Sender<bool>,
    cut: watch::Sender<bool>,
    task: JoinHandle<std::io::Result<()>>,
}

/// Shared by all handlers.
#[derive(Clone)]
struct App {
    state: ServerState,
    token: Option<Arc<Secret>>,
    subscribers: Arc<Semaphore>,
    /// True once connections must end.
    cut: watch::Receiver<bool>,
}

impl Server {
    /// Listens and serves until [`Server::shutdown`].
    ///
    /// # Errors
    /// When the address can't be had, or could be reached from outside without a token.
    pub async fn start(plan: &ServerPlan, state: ServerState) -> Result<Self, ServerError> {
        crate::config::check_listen(plan.listen, plan.token.is_some())
            .map_err(ServerError::Refused)?;
        let failed = |error| ServerError::Bind { address: plan.listen, error };
        let listener = TcpListener::bind(plan.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (accepting, mut stop_accepting) = watch::channel(true);
        let (cut, is_cut) = watch::channel(false);
        let subscribers = Arc::new(Semaphore::new(SUBSCRIBERS_MAX as usize));
        let hub = state.hub.clone();
        let app = App {
            state,
            token: plan.token.clone().map(Arc::new),
            subscribers: Arc::clone(&subscribers),
            cut: is_cut,
        };
        // Results are small and wanted now: not held back to fill a packet.
        let listener = listener.tap_io(|socket| {
            if let Err(error) = socket.set_nodelay(true) {
                tracing::debug!(%error, "a client's socket stays slow");
            }
        });
        let serve = axum::serve(listener, router(app)).with_graceful_shutdown(async move {
            // Also ends when the server is dropped.
            let _ = stop_accepting.wait_for(|accepting| !accepting).await;
        });
        let task = tokio::spawn(async move { serve.await });
        Ok(Server { address, hub, subscribers, accepting, cut, task })
    }

    /// Where it listens, with the port that port 0 became.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more clients, lets subscribers read what is there for at most `grace`, then cuts them off.
    /// Closes the hub.
    pub async fn shutdown(mut self, grace: Duration) {
        self.accepting.send_replace(false);
        self.hub.close();
        let all = self.subscribers.acquire_many(SUBSCRIBERS_MAX);
        if tokio::time::timeout(grace, all).await.is_err() {
            tracing::warn!("subscribers cut off at shutdown: they did not read in time");
        }
        self.cut.send_replace(true);
        if tokio::time::timeout(Duration::from_secs(1), &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

fn router(app: App) -> Router {
    let language = app.state.language.clone();
    let language = language.map(|api| language::routes(api, app.cut.clone()));
    Router::new()
        .route("/v1/results", get(results::results))
        .route("/v1/streams", get(streams))
        .route("/v1/streams/{id}", get(stream))
        .route(
            "/v1/graph",
            get(async |State(app): State<App>| Json(app.state.graph.as_ref().clone())),
        )
        .route("/metrics", get(metrics))
        .route("/readyz", get(ready))
        .route("/healthz", get(async || Json(json!({ "status": "ok" }))))
        .fallback(unknown)
        .with_state(app.clone())
        .merge(language.unwrap_or_default())
        .layer(middleware::from_fn_with_state(app, access::guard))
}

async fn streams(State(app): State<App>) -> Response {
    Json(json!({ "streams": app.state.streams.list() })).into_response()
}

async fn stream(State(app): State<App>, Path(id): Path<String>) -> Response {
    match app.state.streams.list().into_iter().find(|s| s.id.as_str() == id) {
        Some(stream) => Json(stream).into_response(),
        None => refusal(StatusCode::NOT_FOUND, format!("no stream `{id}`; see /v1/streams")),
    }
}

async fn metrics(State(app): State<App>) -> Response {
    if let Some(language) = &app.state.language {
        language.publish();
    }
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, (app.state.metrics)()).into_response()
}

async fn ready(State(app): State<App>) -> Response {
    match (app.state.ready)() {
        Ok(()) => Json(json!({ "status": "ready" })).into_response(),
        Err(reason) => refusal(StatusCode::SERVICE_UNAVAILABLE, reason),
    }
}

async fn unknown(State(app): State<App>) -> Response {
    let known =
        "/v1/results, /v1/streams, /v1/streams/{id}, /v1/graph, /metrics, /healthz, /readyz";
    let language = match app.state.language {
        Some(_) => format!(", {}", language::PATHS),
        None => String::new(),
    };
    refusal(StatusCode::NOT_FOUND, format!("nothing here; there is {known}{language}"))
}

/// An answer that says why not.
fn refusal(status: StatusCode, reason: String) -> Response {
    (status, Json(json!({ "error": reason }))).into_response()
}
