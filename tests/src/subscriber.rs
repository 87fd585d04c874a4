//! A WebSocket subscriber that keeps everything it received.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::results::Received;

/// A connection to `/v1/results`.
pub struct Subscriber {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    received: Received,
}

impl Subscriber {
    pub(crate) async fn try_connect(url: &str) -> Option<Subscriber> {
        let (socket, _) = connect_async(url).await.ok()?;
        Some(Subscriber { socket, received: Received::default() })
    }

    /// Everything until the server closes, which a run on finite inputs does at its end.
    pub async fn until_closed(mut self, limit: Duration) -> Received {
        let closed = timeout(limit, async { while self.next().await {} }).await;
        assert!(closed.is_ok(), "still open after {limit:?}, received {:#?}", self.received);
        self.received
    }

    /// Everything until `enough` says so.
    pub async fn until(
        &mut self,
        limit: Duration,
        enough: impl Fn(&Received) -> bool,
    ) -> &Received {
        let waited = timeout(limit, async {
            while !enough(&self.received) {
                assert!(self.next().await, "closed too early: {:#?}", self.received);
            }
        })
        .await;
        assert!(waited.is_ok(), "not enough after {limit:?}: {:#?}", self.received);
        &self.received
    }

    /// Takes one message; false at the end.
    async fn next(&mut self) -> bool {
        match self.socket.next().await {
            Some(Ok(Message::Text(text))) => {
                let value: Value = serde_json::from_str(&text)
                    .unwrap_or_else(|e| panic!("a message that is not JSON ({e}): {text}"));
                self.received.push(value);
                true
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => true,
            Some(Ok(other @ (Message::Binary(_) | Message::Frame(_)))) => {
                panic!("expected text messages only, got {other:?}")
            }
            Some(Ok(Message::Close(_)) | Err(_)) | None => false,
        }
    }
}
