//! A WebSocket subscriber that keeps everything it received.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::Value;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, client_async, connect_async};

use crate::results::Received;

/// A connection to `/v1/results`.
pub struct Subscriber {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    received: Received,
    closed: Option<CloseCode>,
}

impl Subscriber {
    pub(crate) async fn try_connect(url: &str) -> Option<Subscriber> {
        let (socket, _) = connect_async(url).await.ok()?;
        Some(Subscriber { socket, received: Received::default(), closed: None })
    }

    /// One for which the system keeps next to nothing while it does not read.
    pub async fn with_small_buffer(address: &str, query: &str) -> Subscriber {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("a buffer of any size");
        let address = address.parse().expect("an address and a port");
        let stream = socket.connect(address).await.expect("the server listens");
        let url = format!("ws://{address}/v1/results?{query}");
        let (socket, _) =
            client_async(url, MaybeTlsStream::Plain(stream)).await.expect("it shakes hands");
        Subscriber { socket, received: Received::default(), closed: None }
    }

    /// Everything until the server says goodbye, which a run on finite inputs does at its end.
    pub async fn until_closed(mut self, limit: Duration) -> Received {
        let closed = timeout(limit, async { while self.next().await {} }).await;
        assert!(closed.is_ok(), "still open after {limit:?}, received {:#?}", self.received);
        let goodbye = matches!(self.closed, Some(CloseCode::Normal | CloseCode::Away));
        assert!(goodbye, "closed with {:?} after {:#?}", self.closed, self.received);
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
            Some(Ok(Message::Close(frame))) => {
                self.closed = frame.map(|frame| frame.code);
                false
            }
            Some(Err(_)) | None => false,
        }
    }
}
