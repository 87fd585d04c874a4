//! Asks the engine what a call asks, and brings the answers to the client, whole or as they come.
//!
//! Its neighbours are `events` and `answer`, which know what is written. One rule: whatever is dropped here is
//! cancelled in the engine.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use engine::language::{BackendError, Delta, GenerateRequest, Generation, Prompt};
use futures_util::future::try_join_all;
use futures_util::stream::{BoxStream, StreamExt, select_all};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;

use super::answer::{Api, Choice, Head, Spent};
use super::asked::Asked;
use super::error::ApiError;
use super::events::{Events, failed};
use super::meter::Meter;
use super::served::{Model, unix_s};
use super::{RETRY_AFTER_MS, Room};

/// Pieces that wait for a client to read; full: the answer waits, for [`SEND_MAX`] at most.
const EVENTS_MAX: usize = 64;
/// A client that takes longer to take one piece is gone.
const SEND_MAX: Duration = Duration::from_secs(30);

/// A call that was read.
pub(super) struct Call {
    pub(super) api: Api,
    pub(super) asked: Asked,
    /// With the longest answer to each.
    pub(super) prompts: Vec<(Prompt, u32)>,
    pub(super) arrived: Instant,
}

/// What the answers of a call say, with the number of the answer.
type Said = BoxStream<'static, (usize, Result<Delta, BackendError>)>;

/// Answers a call.
pub(super) async fn answer(
    room: &Room,
    model: &Model,
    call: Call,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let permit = enter(room)?;
    let Call { api, asked, prompts, arrived } = call;
    let head = Head {
        api,
        id: id(api, &asked, headers),
        created: unix_s(),
        model: model.name().to_owned(),
    };
    let requests = asked.requests(prompts);
    let (count, wants_logprobs) = (requests.len(), asked.request.logprobs.is_some());
    let generations = start(model, requests, arrived).await?;
    if asked.stream {
        let events = Events::new(head, count, asked.answers, wants_logprobs, asked.include_usage);
        return stream(merged(generations), events, room.cut.clone(), permit).await;
    }
    let mut spent = Spent::default();
    let collected =
        try_join_all(generations.into_iter().map(|g| collect(g, wants_logprobs))).await?;
    let mut choices = Vec::with_capacity(count);
    for (index, (choice, usage)) in collected.into_iter().enumerate() {
        spent.add(&usage, index.is_multiple_of(asked.answers));
        choices.push(choice);
    }
    Ok(Json(head.whole(&choices, spent)).into_response())
}

/// One answer to one prompt, and nothing around it.
pub(super) async fn text(
    room: &Room,
    model: &Model,
    request: GenerateRequest,
    arrived: Instant,
) -> Result<String, ApiError> {
    let _permit = enter(room)?;
    let mut answer = String::new();
    for generation in start(model, vec![request], arrived).await? {
        answer += &collect(generation, false).await?.0.text;
    }
    Ok(answer)
}

fn enter(room: &Room) -> Result<OwnedSemaphorePermit, ApiError> {
    Arc::clone(&room.api.0.calls).try_acquire_owned().map_err(|_| {
        let message = "too many calls are being answered";
        ApiError::later(StatusCode::TOO_MANY_REQUESTS, message, RETRY_AFTER_MS)
    })
}

fn id(api: Api, asked: &Asked, headers: &HeaderMap) -> String {
    let sent = || {
        let header = headers.get("x-request-id")?.to_str().ok()?;
        (1..=256).contains(&header.len()).then(|| header.to_owned())
    };
    let name = asked.id.clone().or_else(sent);
    let name = name.unwrap_or_else(|| uuid::Uuid::now_v7().simple().to_string());
    match api {
        Api::Completions => format!("cmpl-{name}"),
        Api::Chat => format!("chatcmpl-{name}"),
    }
}

/// Starts all at once, each watched. If one is refused, the others are dropped.
async fn start(
    model: &Model,
    requests: Vec<GenerateRequest>,
    arrived: Instant,
) -> Result<Vec<BoxStream<'static, Result<Delta, BackendError>>>, ApiError> {
    let all = requests.into_iter().map(|request| model.backend().generate(request));
    let generations: Vec<Generation> = try_join_all(all).await?;
    let watched = generations.into_iter().map(|generation| {
        let mut meter = Meter::new(model.name(), arrived);
        generation.inspect(move |said| meter.saw(said, Instant::now())).boxed()
    });
    Ok(watched.collect())
}

async fn collect(
    mut generation: BoxStream<'static, Result<Delta, BackendError>>,
    wants_logprobs: bool,
) -> Result<(Choice, engine::language::Usage), BackendError> {
    let mut text = String::new();
    let mut logprobs = wants_logprobs.then(Vec::new);
    while let Some(said) = generation.next().await {
        match said? {
            Delta::Text(more) => text += &more,
            Delta::Logprobs(tokens) => {
                if let Some(all) = &mut logprobs {
                    all.extend(tokens);
                }
            }
            Delta::End { finish, usage } => return Ok((Choice { text, logprobs, finish }, usage)),
        }
    }
    Err(BackendError::Failed { detail: "the answer stopped without an end".into() })
}

fn merged(generations: Vec<BoxStream<'static, Result<Delta, BackendError>>>) -> Said {
    let numbered = generations
        .into_iter()
        .enumerate()
        .map(|(index, generation)| generation.map(move |said| (index, said)).boxed());
    select_all(numbered).boxed()
}

/// Sends an answer as it comes. Waits for the first thing said, so that a refusal has its own status.
async fn stream(
    mut said: Said,
    events: Events,
    cut: watch::Receiver<bool>,
    permit: OwnedSemaphorePermit,
) -> Result<Response, ApiError> {
    let first = match said.next().await {
        Some((index, Ok(delta))) => (index, Ok(delta)),
        Some((_, Err(error))) => return Err(error.into()),
        None => {
            let detail = "the answer stopped without an end".into();
            return Err(BackendError::Failed { detail }.into());
        }
    };
    let said = futures_util::stream::iter([first]).chain(said).boxed();
    let (to, from) = mpsc::channel(EVENTS_MAX);
    tokio::spawn(send(said, events, to, cut, permit));
    let from = ReceiverStream::new(from).map(Ok::<Event, Infallible>);
    Ok(Sse::new(from).keep_alive(KeepAlive::default()).into_response())
}

/// Ends with the answer, with the client, or with the server.
async fn send(
    mut said: Said,
    mut events: Events,
    to: mpsc::Sender<Event>,
    mut cut: watch::Receiver<bool>,
    _permit: OwnedSemaphorePermit,
) {
    let put = async |event: Event| matches!(timeout(SEND_MAX, to.send(event)).await, Ok(Ok(())));
    let data = |value: &Value| Event::default().data(value.to_string());
    for opening in events.opening() {
        if !put(data(&opening)).await {
            return;
        }
    }
    loop {
        let next = tokio::select! {
            () = to.closed() => return,
            // An error means that the server is gone, which ends connections as well.
            _ = cut.wait_for(|cut| *cut) => return,
            next = said.next() => next,
        };
        let piece = match next {
            None => break,
            Some((index, Ok(delta))) => events.said(index, delta),
            Some((_, Err(error))) => {
                let _ = put(data(&failed(error))).await;
                let _ = put(Event::default().data("[DONE]")).await;
                return;
            }
        };
        if let Some(piece) = piece
            && !put(data(&piece)).await
        {
            return;
        }
    }
    if let Some(closing) = events.closing()
        && !put(data(&closing)).await
    {
        return;
    }
    let _ = put(Event::default().data("[DONE]")).await;
}
