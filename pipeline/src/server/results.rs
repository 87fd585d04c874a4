//! `GET /v1/results`: the hub over WebSocket or server-sent events.

use std::sync::Arc;
use std::time::Duration;

use actors::hub::{AlertFilter, Delivery, Filter, Subscription};
use axum::extract::rejection::QueryRejection;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{SinkExt, StreamExt, stream};
use media::result::Status;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::{App, refusal};

/// Clients have nothing to say beyond control frames.
const CLIENT_FRAME_BYTES_MAX: usize = 4 << 10;
/// How often a quiet connection is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(20);
/// A client silent for longer is gone.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// A client that takes longer to take one message is gone.
const SEND_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    stream: Option<String>,
    status: Option<Status>,
    /// `true`, or the name of a rule.
    alerts: Option<String>,
    after: Option<u64>,
    run: Option<String>,
}

impl Wanted {
    fn filter(&self) -> Filter {
        Filter {
            stream: self.stream.as_deref().map(Into::into),
            status: self.status,
            alerts: match self.alerts.as_deref() {
                None | Some("false") => None,
                Some("" | "true") => Some(AlertFilter::Any),
                Some(name) => Some(AlertFilter::Named(Arc::from(name))),
            },
        }
    }

    /// A browser that lost its event stream says where it was; that is newer than what its address says.
    fn resumed_from(mut self, headers: &HeaderMap) -> Self {
        let last = headers.get("last-event-id").and_then(|v| v.to_str().ok());
        if let Some((run, seq)) = last.and_then(|id| id.rsplit_once(':'))
            && let Ok(seq) = seq.parse()
        {
            self.run = Some(run.to_owned());
            self.after = Some(seq);
        }
        self
    }
}

pub(super) async fn results(
    State(app): State<App>,
    query: Result<Query<Wanted>, QueryRejection>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let wanted = match query {
        Ok(Query(wanted)) => wanted.resumed_from(&headers),
        Err(error) => {
            let known = "known: stream, status=complete|partial, alerts=true|RULE, after=SEQ, run";
            return refusal(StatusCode::BAD_REQUEST, format!("{} ({known})", error.body_text()));
        }
    };
    let Ok(permit) = Arc::clone(&app.subscribers).try_acquire_owned() else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "too many subscribers".into());
    };
    let hub = &app.state.hub;
    let subscribe = || hub.subscribe(wanted.filter(), wanted.after, wanted.run.as_deref());
    match upgrade {
        Ok(upgrade) => {
            let subscription = subscribe();
            upgrade
                .max_message_size(CLIENT_FRAME_BYTES_MAX)
                .max_frame_size(CLIENT_FRAME_BYTES_MAX)
                .on_upgrade(move |socket| web_socket(socket, subscription, app.cut, permit))
        }
        Err(_) if accepts_events(&headers) => events(subscribe(), hub.run(), app.cut, permit),
        Err(error) => refusal(
            StatusCode::UPGRADE_REQUIRED,
            format!("expected a WebSocket or `Accept: text/event-stream` ({})", error.body_text()),
        ),
    }
}

fn accepts_events(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok());
    accept.is_some_and(|a| a.contains("text/event-stream"))
}

async fn web_socket(
    socket: WebSocket,
    mut subscription: Subscription,
    mut cut: watch::Receiver<bool>,
    permit: OwnedSemaphorePermit,
) {
    let (mut send, mut receive) = socket.split();
    let mut ping = interval(PING_EVERY);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    loop {
        let message = tokio::select! {
            () = until(&mut cut) => break,
            heard_now = receive.next() => match heard_now {
                Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                // Pings are answered by the library; anything else means nothing here.
                Some(Ok(_)) => {
                    heard = Instant::now();
                    continue;
                }
            },
            _ = ping.tick() => {
                if heard.elapsed() > SILENCE_MAX {
                    tracing::debug!("subscriber gone: silent for {SILENCE_MAX:?}");
                    break;
                }
                Message::Ping(Default::default())
            }
            delivery = subscription.recv() => match delivery {
                Some(Delivery { json, .. }) => match Utf8Bytes::try_from(json) {
                    Ok(text) => Message::Text(text),
                    Err(_) => continue,
                },
                None => {
                    let (code, reason) = (close_code::AWAY, Utf8Bytes::from_static("ended"));
                    let close = Message::Close(Some(CloseFrame { code, reason }));
                    let _ = timeout(SEND_MAX, send.send(close)).await;
                    break;
                }
            },
        };
        let sent = tokio::select! {
            () = until(&mut cut) => break,
            sent = timeout(SEND_MAX, send.send(message)) => sent,
        };
        if !matches!(sent, Ok(Ok(()))) {
            break;
        }
    }
    drop(permit);
}

fn events(
    subscription: Subscription,
    run: &Arc<str>,
    mut cut: watch::Receiver<bool>,
    permit: OwnedSemaphorePermit,
) -> Response {
    let run = Arc::clone(run);
    let events = stream::unfold((subscription, permit), move |(mut subscription, permit)| {
        let run = Arc::clone(&run);
        async move {
            let Delivery { seq, json } = subscription.recv().await?;
            let event = Event::default().data(String::from_utf8_lossy(&json));
            let event = match seq {
                Some(seq) => event.id(format!("{run}:{seq}")),
                None => event,
            };
            Some((Ok::<_, std::convert::Infallible>(event), (subscription, permit)))
        }
    });
    let ended = async move { until(&mut cut).await };
    Sse::new(events.take_until(Box::pin(ended))).keep_alive(KeepAlive::default()).into_response()
}

/// Returns once connections must end.
async fn until(cut: &mut watch::Receiver<bool>) {
    // An error means that the server is gone, which ends connections as well.
    let _ = cut.wait_for(|cut| *cut).await;
}
