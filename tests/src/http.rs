//! Plain HTTP by hand: every byte that is sent is the test's own.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(120);

/// Asks one server; each question has a connection of its own.
#[derive(Clone, Debug)]
pub struct Http {
    address: String,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    head: String,
    /// As it came; the lengths between the pieces of a stream are still in it.
    pub body: String,
}

impl Http {
    /// For `127.0.0.1:PORT`.
    pub fn new(address: &str) -> Http {
        Http { address: address.to_owned() }
    }

    /// `GET`; none when nobody listens yet.
    pub async fn try_get(&self, path: &str) -> Option<Answer> {
        let mut stream = TcpStream::connect(&self.address).await.ok()?;
        stream.write_all(self.head("GET", path, 0).as_bytes()).await.ok()?;
        Some(read(&mut stream).await)
    }

    /// `GET`
    pub async fn get(&self, path: &str) -> Answer {
        self.try_get(path).await.expect("the server listens")
    }

    /// `POST` of a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_text(path, &body.to_string()).await
    }

    /// `POST` of whatever it is.
    pub async fn post_text(&self, path: &str, body: &str) -> Answer {
        let mut stream = self.open(path, body).await;
        read(&mut stream).await
    }

    /// `POST` whose answer is left to the caller.
    pub async fn open(&self, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).await.expect("the server listens");
        let request = self.head("POST", path, body.len()) + body;
        // A server that has seen enough may close before all is sent, and its answer still be read.
        let _ = stream.write_all(request.as_bytes()).await;
        stream
    }

    fn head(&self, method: &str, path: &str, length: usize) -> String {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n",
            self.address
        )
    }
}

async fn read(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    let ended = timeout(LIMIT, stream.read_to_end(&mut bytes)).await;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(ended.is_ok(), "no end of the answer in {LIMIT:?}: {text}");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Answer {
        status: status.unwrap_or_else(|| panic!("no status in {text:?}")),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

impl Answer {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The body, once its status is what it should be.
    #[track_caller]
    pub fn json(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    /// The data of a stream of events, which must end with `[DONE]`.
    #[track_caller]
    pub fn events(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.body);
        assert_eq!(self.header("content-type"), Some("text/event-stream"));
        let mut data: Vec<&str> =
            self.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(data.pop(), Some("[DONE]"), "{}", self.body);
        let read = |text: &&str| {
            serde_json::from_str(text).unwrap_or_else(|e| panic!("an event ({e}): {text}"))
        };
        data.iter().map(read).collect()
    }
}
