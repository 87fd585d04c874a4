//! Both programs against a small server that sends one message of each kind and closes.
#![expect(clippy::expect_used, reason = "a helper that fails is a failed test")]

use std::process::{Command, Output};

use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

/// Runs the program with the address of a server that sends `messages`.
async fn told(mut program: Command, messages: Vec<serde_json::Value>) -> Output {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has free ports");
    let port = listener.local_addr().expect("it is bound").port();
    let running = tokio::task::spawn_blocking(move || {
        program.arg(format!("ws://127.0.0.1:{port}/v1/results")).output().expect("it starts")
    });
    let (connection, _) = listener.accept().await.expect("the program connects");
    let mut socket = tokio_tungstenite::accept_async(connection).await.expect("and shakes hands");
    for message in messages {
        socket.send(Message::text(message.to_string())).await.expect("it listens");
    }
    let end = CloseFrame { code: CloseCode::Normal, reason: "".into() };
    socket.close(Some(end)).await.expect("and is told the end");
    // The close is answered while the other side still reads; then the connection goes.
    while let Some(Ok(_)) = socket.next().await {}
    drop(socket);
    running.await.expect("it ends")
}

fn messages() -> Vec<serde_json::Value> {
    let empty = json!({ "schema": "fused-result/1", "stream": "lobby", "status": "partial",
        "window": { "index": 6, "start_ms": 6000, "end_ms": 7000 },
        "vision": null, "audio": null, "text": null });
    let full = json!({ "schema": "fused-result/1", "stream": "lobby", "status": "complete",
        "window": { "index": 7, "start_ms": 7000, "end_ms": 8000 },
        "vision": { "objects": [{ "label": "person" }, { "label": "bus" }] },
        "audio": { "speech": [{ "text": "the train is late" }] },
        "text": { "category": "transport" } });
    vec![
        json!({ "schema": "stream/1", "stream": "lobby", "state": "running" }),
        empty,
        json!({ "schema": "gap/1", "from": 3, "to": 4 }),
        full,
    ]
}

#[track_caller]
fn expect_both_results(output: &Output) {
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 2, "one line per result:\n{printed}");
    assert!(lines[0].contains("6000 ms") && lines[0].contains("partial"), "{printed}");
    for word in ["lobby", "7000 ms", "complete", "person", "bus", "the train is late", "transport"]
    {
        assert!(lines[1].contains(word), "{word} in {printed}");
    }
}

#[tokio::test]
async fn the_rust_program_prints_one_line_per_result() {
    let program = Command::new(env!("CARGO_BIN_EXE_subscribe"));
    expect_both_results(&told(program, messages()).await);
}

#[tokio::test]
async fn the_python_program_prints_one_line_per_result() {
    // Debian's own Python: make test installs the package for it.
    let mut program = Command::new("/usr/bin/python3");
    program.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/subscribe.py"));
    expect_both_results(&told(program, messages()).await);
}

#[test]
fn the_python_program_is_as_short_as_the_readme_says() {
    let lines = include_str!("../subscribe.py").lines().filter(|l| !l.is_empty()).count();
    assert!(lines <= 15, "{lines} lines");
}
