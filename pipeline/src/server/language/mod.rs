//! HTTP for other programs in front of the language engine: OpenAI's API as vLLM serves it.
//!
//! A call goes from its bytes to `fields`, `asked` and `completions` or `chat` (what is asked), `template` (a chat's
//! prompt), `calls` (the engine is asked), `answer` and `events` (what the client reads). Knows the engine as a
//! [`LanguageBackend`] only. One rule: a client that goes away takes its work along.

mod answer;
mod asked;
#[cfg(test)]
mod asked_tests;
mod calls;
mod chat;
mod completions;
mod error;
mod events;
mod fields;
mod meter;
mod served;
mod strftime;
mod template;
mod words;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use engine::language::Health;
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

pub use served::Served;

use answer::Api;
use error::ApiError;
use fields::Fields;
use served::Model;

pub(crate) use meter::{buckets, describe};

/// Longest body; longer ones get 413.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Calls that are answered at once; more get 429. Below them the engine has a queue of its own.
const CALLS_MAX: usize = 256;
/// When to ask again while models are loading, and when too many calls are being answered.
const RETRY_AFTER_MS: u64 = 1_000;

/// The language models that other programs may use; none before [`LanguageApi::open`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LanguageApi(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    models: OnceLock<Vec<Model>>,
    calls: Arc<Semaphore>,
}

impl Default for LanguageApi {
    fn default() -> Self {
        let calls = Arc::new(Semaphore::new(CALLS_MAX));
        LanguageApi(Arc::new(Inner { models: OnceLock::new(), calls }))
    }
}

impl LanguageApi {
    /// From now on these answer; until now the routes said 503. Only the first call counts.
    pub fn open(&self, models: Vec<Served>) {
        // A second call would take models from under running answers.
        let _ = self.0.models.set(models.into_iter().map(Model::new).collect());
    }

    /// Brings the engines' own counts up to date in the metrics.
    pub(super) fn publish(&self) {
        for model in self.0.models.get().into_iter().flatten() {
            model.publish();
        }
    }

    /// All models, once they are there.
    fn models(&self) -> Result<&[Model], ApiError> {
        match self.0.models.get().map(Vec::as_slice) {
            None => Err(loading("models are loading")),
            Some([]) => {
                Err(ApiError::new(StatusCode::NOT_FOUND, "no language model is configured"))
            }
            Some(models) => Ok(models),
        }
    }

    /// The model of that name; the first when none is named.
    fn model(&self, name: Option<&str>) -> Result<&Model, ApiError> {
        let models = self.models()?;
        let Some(name) = name else {
            return models.first().ok_or_else(|| loading("models are loading"));
        };
        models.iter().find(|model| model.is_called(name)).ok_or_else(|| {
            let known: Vec<&str> = models.iter().map(Model::name).collect();
            ApiError::no_model(name, &known)
        })
    }
}

fn loading(what: &str) -> ApiError {
    ApiError::later(StatusCode::SERVICE_UNAVAILABLE, what, RETRY_AFTER_MS)
}

/// What handlers share.
#[derive(Clone)]
struct Room {
    api: LanguageApi,
    /// True once connections must end.
    cut: watch::Receiver<bool>,
}

type Body = Result<Bytes, BytesRejection>;

/// The paths of this API, for those who look for them.
pub(super) const PATHS: &str = "/v1/completions, /v1/chat/completions, /v1/models, /tokenize, /detokenize, \
                                /generate, /version, /health";

/// Whether a path is one of this API's, whose clients read errors in its own shape.
pub(super) fn owns(path: &str) -> bool {
    PATHS.split(", ").any(|known| path == known) || path.starts_with("/v1/models/")
}

/// An error in this API's shape.
pub(super) fn refusal(status: StatusCode, message: &str) -> Response {
    ApiError::new(status, message).into_response()
}

pub(super) fn routes(api: LanguageApi, cut: watch::Receiver<bool>) -> Router {
    Router::new()
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/models", get(models))
        .route("/v1/models/{name}", get(model))
        .route("/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .route("/generate", get(generate_by_query).post(generate))
        .route(
            "/version",
            get(async || axum::Json(json!({ "version": env!("CARGO_PKG_VERSION") }))),
        )
        .route("/health", get(health))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Room { api, cut })
}

/// A body as an object, or why not.
fn object(body: Body) -> Result<Map<String, Value>, ApiError> {
    let body = body.map_err(|rejection| {
        let status = rejection.status();
        let message = match status {
            StatusCode::PAYLOAD_TOO_LARGE => {
                format!("the body is longer than {BODY_BYTES_MAX} bytes")
            }
            _ => rejection.body_text(),
        };
        ApiError::new(status, message)
    })?;
    fields::object(&body)
}

async fn completions(State(room): State<Room>, headers: HeaderMap, body: Body) -> Response {
    let arrived = Instant::now();
    let answer = async {
        let body = object(body)?;
        let call = completions::read(&Fields::new(&body))?;
        let model = room.api.model(call.asked.model.as_deref())?;
        let prompts = model.prompts(call.prompts, call.asked.tokens_max).await?;
        let call = calls::Call { api: Api::Completions, asked: call.asked, prompts, arrived };
        calls::answer(&room, model, call, &headers).await
    };
    answer.await.unwrap_or_else(IntoResponse::into_response)
}

async fn chat(State(room): State<Room>, headers: HeaderMap, body: Body) -> Response {
    let arrived = Instant::now();
    let answer = async {
        let body = object(body)?;
        let (asked, chat) = chat::read(&Fields::new(&body))?;
        let model = room.api.model(asked.model.as_deref())?;
        let prompts = vec![model.chat_prompt(chat, asked.tokens_max).await?];
        let call = calls::Call { api: Api::Chat, asked, prompts, arrived };
        calls::answer(&room, model, call, &headers).await
    };
    answer.await.unwrap_or_else(IntoResponse::into_response)
}

async fn generate(State(room): State<Room>, body: Body) -> Response {
    let arrived = Instant::now();
    let answer = async { words::generate(&room, object(body)?, arrived).await };
    answer.await.unwrap_or_else(IntoResponse::into_response)
}

async fn generate_by_query(
    State(room): State<Room>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let arrived = Instant::now();
    let answer = words::generate(&room, words::from_query(query), arrived);
    answer.await.unwrap_or_else(IntoResponse::into_response)
}

async fn tokenize(State(room): State<Room>, body: Body) -> Response {
    let answer = async { words::tokenize(&room, &object(body)?).await };
    answer.await.unwrap_or_else(IntoResponse::into_response)
}

async fn detokenize(State(room): State<Room>, body: Body) -> Response {
    let answer = async { words::detokenize(&room, &object(body)?).await };
    answer.await.unwrap_or_else(IntoResponse::into_response)
}

async fn models(State(room): State<Room>) -> Response {
    let list = room.api.models().map(|models| {
        let data: Vec<Value> = models.iter().map(Model::json).collect();
        axum::Json(json!({ "object": "list", "data": data }))
    });
    list.into_response()
}

async fn model(State(room): State<Room>, Path(name): Path<String>) -> Response {
    room.api.model(Some(&name)).map(|model| axum::Json(model.json())).into_response()
}

async fn health(State(room): State<Room>) -> Response {
    let health = room.api.models().and_then(|models| {
        for model in models {
            match model.health() {
                Health::Ready => {}
                Health::Loading => return Err(loading("the model is loading")),
                Health::Down { detail } => return Err(loading(&detail)),
            }
        }
        Ok(StatusCode::OK)
    });
    health.into_response()
}
