//! The HTTP port as clients meet it: real sockets on loopback.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;
use std::time::Duration;

use actors::hub::Hub;
use futures_util::{SinkExt, StreamExt};
use media::StreamId;
use media::result::{FusedResult, StreamState};
use pipeline::plan::ServerPlan;
use pipeline::server::{Server, ServerError, ServerState, StreamList, StreamView};
use pipeline::subscribe::{SubscribeArgs, SubscribeError, subscribe};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

struct Streams;

impl StreamList for Streams {
    fn list(&self) -> Vec<StreamView> {
        vec![StreamView {
            id: StreamId::from("cam 1"),
            uri: "rtsp://***@cam/1".into(),
            title: None,
            paced: true,
            state: StreamState::Running,
            reason: None,
            window_next: 3,
        }]
    }
}

struct Rig {
    hub: Hub,
    server: Server,
}

impl Rig {
    async fn new(token: Option<&str>) -> Self {
        let hub = Hub::new("run-1".into());
        let state = ServerState {
            hub: hub.clone(),
            streams: Arc::new(Streams),
            graph: Arc::new(json!({ "stages": [] })),
            metrics: Arc::new(|| "windows_total 3\n".into()),
            ready: Arc::new(|| Err("models are loading".into())),
            language: None,
        };
        let plan = ServerPlan {
            listen: "127.0.0.1:0".parse().unwrap(),
            token: token.map(|t| t.to_owned().into()),
            language: false,
        };
        Rig { hub, server: Server::start(&plan, state).await.unwrap() }
    }

    async fn socket(&self, query: &str) -> WebSocketStream<MaybeTlsStream<TcpStream>> {
        let url = format!("ws://{}/v1/results{query}", self.server.address());
        let before = self.hub.subscribers();
        let socket = connect_async(url).await.unwrap().0;
        while self.hub.subscribers() == before {
            tokio::task::yield_now().await;
        }
        socket
    }

    fn publish(&self, stream: &str, status: &str) -> u64 {
        let result: FusedResult = serde_json::from_value(json!({
            "schema": "fused-result/1", "run": "", "seq": 0, "stream_seq": 0, "stream": stream,
            "window": { "index": 0, "start_ms": 0, "end_ms": 1000 }, "status": status, "revision": 0,
            "latency_ms": 1.0, "age_ms": null, "processing_ms": null, "budget_ms": null, "vision": null,
            "audio": null, "text": null, "fusion": { "labels": [], "sentiment": null, "alerts": [] },
            "missing": [], "timings": [],
        }))
        .unwrap();
        self.hub.publish_result(result).unwrap().message.seq
    }

    /// Status and body of one plain request.
    async fn get(&self, path: &str, headers: &str) -> (u16, String) {
        let host = format!("Host: {}\r\n", self.server.address());
        let host = if headers.contains("Host:") { "" } else { &host };
        self.raw(&format!("GET {path} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n")).await
    }

    async fn raw(&self, request: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.server.address()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        (status, answer.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
    }
}

async fn next(socket: &mut WebSocketStream<MaybeTlsStream<TcpStream>>) -> Option<Value> {
    while let Some(message) = socket.next().await {
        match message {
            Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).unwrap()),
            Ok(Message::Close(_)) | Err(_) => return None,
            Ok(_) => {}
        }
    }
    None
}

#[tokio::test]
async fn subscribers_get_what_they_asked_for() {
    let rig = Rig::new(None).await;
    let mut all = rig.socket("").await;
    let mut partial = rig.socket("?status=partial&stream=b").await;
    rig.publish("a", "complete");
    rig.publish("b", "complete");
    rig.publish("b", "partial");
    for seq in 1..=3 {
        assert_eq!(next(&mut all).await.unwrap()["seq"], seq);
    }
    assert_eq!(next(&mut partial).await.unwrap()["seq"], 3);

    let mut late = rig.socket("?after=1&run=run-1").await;
    assert_eq!(next(&mut late).await.unwrap()["seq"], 2);
    let mut other_run = rig.socket("?after=1&run=run-0").await;
    assert_eq!(next(&mut other_run).await.unwrap()["reason"], "restart");
    assert_eq!(next(&mut other_run).await.unwrap()["seq"], 1);
}

#[tokio::test]
async fn server_sent_events_carry_the_same_and_go_on_where_they_were() {
    let rig = Rig::new(None).await;
    for _ in 0..3 {
        rig.publish("a", "complete");
    }
    let read = async |path: &str, headers: &str, until: &str| {
        let mut stream = TcpStream::connect(rig.server.address()).await.unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\n{headers}\r\n",
            rig.server.address()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        let mut chunk = [0u8; 4096];
        while !text.contains(until) {
            let n = stream.read(&mut chunk).await.unwrap();
            assert!(n > 0, "{text}");
            text.push_str(&String::from_utf8_lossy(&chunk[..n]));
        }
        text
    };
    let text = read("/v1/results?after=0", "", "run-1:3").await;
    assert!(text.contains("text/event-stream") && text.contains("\"seq\":1"), "{text}");
    let text = read("/v1/results?after=0", "Last-Event-ID: run-1:2\r\n", "run-1:3").await;
    assert!(!text.contains("\"seq\":2"), "{text}");
}

#[tokio::test]
async fn a_client_that_talks_nonsense_costs_itself_alone() {
    let rig = Rig::new(None).await;
    let mut good = rig.socket("").await;

    let mut talker = rig.socket("").await;
    talker.send(Message::text("what is this")).await.unwrap();
    talker.send(Message::binary(vec![0u8; 100])).await.unwrap();
    let mut shouter = rig.socket("").await;
    let _ = shouter.send(Message::binary(vec![0u8; 1 << 20])).await;
    assert_eq!(next(&mut shouter).await, None, "too long a frame ends it");

    let mut torn = TcpStream::connect(rig.server.address()).await.unwrap();
    let upgrade = format!(
        "GET /v1/results HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
        rig.server.address()
    );
    torn.write_all(upgrade.as_bytes()).await.unwrap();
    torn.write_all(&[0xff; 64]).await.unwrap();
    let mut answer = Vec::new();
    let _ = torn.read_to_end(&mut answer).await;
    assert!(String::from_utf8_lossy(&answer).contains("101"), "it was let in, then out");

    rig.raw("\u{0}\u{1} nonsense\r\n\r\n").await;
    rig.publish("a", "complete");
    assert_eq!(next(&mut good).await.unwrap()["seq"], 1);
    assert_eq!(next(&mut talker).await.unwrap()["seq"], 1, "idle talk is not punished");
    drop((good, talker));
    while rig.hub.subscribers() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_subscriber_that_does_not_read_slows_nobody() {
    let rig = Rig::new(None).await;
    let _asleep = rig.socket("").await;
    let mut awake = rig.socket("").await;
    for seq in 1..=20_000u64 {
        assert_eq!(rig.publish("a", "complete"), seq);
        assert_eq!(next(&mut awake).await.unwrap()["seq"], seq);
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_said() {
    let rig = Rig::new(None).await;
    for (path, status, part) in [
        ("/v1/results", 426, "expected a WebSocket"),
        ("/v1/results?status=finished", 400, "complete|partial"),
        ("/v1/results?strem=a", 400, "strem"),
        ("/v1/results?after=-1", 400, "after"),
        ("/v1/streams", 200, "\"window_next\":3"),
        ("/v1/streams/cam%201", 200, "rtsp://***@cam/1"),
        ("/v1/streams/cam2", 404, "no stream `cam2`"),
        ("/v1/graph", 200, "stages"),
        ("/metrics", 200, "windows_total 3"),
        ("/healthz", 200, "ok"),
        ("/readyz", 503, "models are loading"),
        ("/v2", 404, "/v1/results"),
    ] {
        let (got, body) = rig.get(path, "").await;
        assert_eq!(got, status, "{path}: {body}");
        assert!(body.contains(part), "{path}: {body}");
    }
    let foreign = rig.get("/v1/streams", "Origin: https://evil.example\r\n").await;
    assert_eq!(foreign.0, 403);
    let rebound = rig.get("/v1/streams", "Host: evil.example\r\n").await;
    assert_eq!(rebound.0, 403);
}

#[tokio::test]
async fn with_a_token_nothing_is_told_without_it() {
    let rig = Rig::new(Some("opensesame")).await;
    for path in ["/v1/results", "/v1/streams", "/v1/graph", "/metrics", "/nowhere"] {
        assert_eq!(rig.get(path, "").await.0, 401, "{path}");
    }
    assert_eq!(rig.get("/healthz", "").await.0, 200);
    assert_eq!(rig.get("/v1/streams", "Authorization: Bearer opensesame\r\n").await.0, 200);
    let args =
        SubscribeArgs { url: format!("ws://{}", rig.server.address()), stream: None, after: None };
    let error = subscribe(&args, Vec::new()).await.unwrap_err();
    assert!(matches!(error, SubscribeError::Refused { status: 401, .. }), "{error}");
}

#[tokio::test]
async fn an_address_for_everyone_needs_a_token() {
    let hub = Hub::new("r".into());
    let state = ServerState {
        hub,
        streams: Arc::new(Streams),
        graph: Arc::new(Value::Null),
        metrics: Arc::new(String::new),
        ready: Arc::new(|| Ok(())),
        language: None,
    };
    let plan = ServerPlan { listen: "0.0.0.0:0".parse().unwrap(), token: None, language: false };
    match Server::start(&plan, state).await {
        Err(ServerError::Refused(reason)) => assert!(reason.contains("server.token"), "{reason}"),
        _ => panic!("it listens to everyone"),
    }
}

#[tokio::test]
async fn at_shutdown_subscribers_get_what_is_there_and_a_goodbye() {
    let rig = Rig::new(None).await;
    let args = SubscribeArgs {
        url: format!("ws://{}", rig.server.address()),
        stream: None,
        after: Some(0),
    };
    let lines = tokio::spawn(async move {
        let mut out = Vec::new();
        subscribe(&args, &mut out).await.map(|()| String::from_utf8(out).unwrap())
    });
    while rig.hub.subscribers() == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..50 {
        rig.publish("a", "complete");
    }
    let address = rig.server.address();
    rig.server.shutdown(Duration::from_secs(20)).await;
    assert_eq!(lines.await.unwrap().unwrap().lines().count(), 50);
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn shutdown_does_not_wait_for_a_subscriber_that_does_not_read() {
    let rig = Rig::new(None).await;
    let _asleep = rig.socket("").await;
    for _ in 0..10_000 {
        rig.publish("a", "complete");
    }
    rig.server.shutdown(Duration::from_millis(50)).await;
}
