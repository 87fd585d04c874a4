//! `pipeline subscribe URL`: a WebSocket client that prints one message per line.

use std::io::{self, Write};

use futures_util::{SinkExt, StreamExt};
use thiserror::Error;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, header};
use tokio_tungstenite::tungstenite::{self, Message};

/// Environment variable that holds the server's token: a command line is seen by everyone on the machine.
const TOKEN: &str = "PIPELINE_TOKEN";

/// What `pipeline subscribe` was called with.
#[derive(Clone, Debug, clap::Args)]
pub struct SubscribeArgs {
    /// Such as `ws://127.0.0.1:8080`. A token is taken from PIPELINE_TOKEN.
    pub url: String,
    /// Only results of this stream.
    #[arg(long, value_name = "ID")]
    pub stream: Option<String>,
    /// Also what came after this `seq`, as far as the server still has it.
    #[arg(long, value_name = "SEQ")]
    pub after: Option<u64>,
}

/// Why nothing more comes.
#[derive(Debug, Error)]
pub enum SubscribeError {
    /// The URL makes no sense.
    #[error("{0}")]
    Url(String),
    /// The server said no.
    #[error("the server refused: {status}{}", if .reason.is_empty() { String::new() } else { format!(" ({reason})") })]
    Refused {
        /// HTTP status.
        status: u16,
        /// What it said.
        reason: String,
    },
    /// No connection, or lost.
    #[error("connection lost: {0}")]
    Lost(String),
    /// Standard output.
    #[error("standard output: {0}")]
    Output(io::Error),
}

impl SubscribeError {
    /// Whether the call itself is wrong.
    pub fn is_call(&self) -> bool {
        matches!(self, SubscribeError::Url(_))
    }
}

/// Prints messages to `out` until the server ends or `out` takes no more.
///
/// # Errors
/// When the connection fails or is lost.
pub async fn subscribe(args: &SubscribeArgs, mut out: impl Write) -> Result<(), SubscribeError> {
    let url = address(args)?;
    let bad = |detail: String| SubscribeError::Url(format!("{}: {detail}", media::mask_uri(&url)));
    let mut request = url.as_str().into_client_request().map_err(|e| bad(e.to_string()))?;
    if let Ok(token) = std::env::var(TOKEN) {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| bad(format!("{TOKEN} holds characters that no header can")))?;
        value.set_sensitive(true);
        request.headers_mut().insert(header::AUTHORIZATION, value);
    }
    let (mut socket, _) = tokio_tungstenite::connect_async(request).await.map_err(|e| match e {
        tungstenite::Error::Http(response) => SubscribeError::Refused {
            status: response.status().as_u16(),
            reason: response.body().as_deref().map(reason).unwrap_or_default(),
        },
        other => SubscribeError::Lost(other.to_string()),
    })?;
    while let Some(message) = socket.next().await {
        let text = match message {
            Ok(Message::Text(text)) => text,
            Ok(Message::Close(_)) => break,
            Ok(_) => continue,
            Err(error) => return Err(SubscribeError::Lost(error.to_string())),
        };
        let line = out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n"));
        match line.and_then(|()| out.flush()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                let _ = socket.close(None).await;
                break;
            }
            Err(error) => return Err(SubscribeError::Output(error)),
        }
    }
    let _ = socket.flush().await;
    Ok(())
}

/// The server's own words, when they are short and plain.
fn reason(body: &[u8]) -> String {
    let json: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let text = json["error"].as_str().unwrap_or_default();
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// The WebSocket address, from what people write.
fn address(args: &SubscribeArgs) -> Result<String, SubscribeError> {
    let rest = match args.url.split_once("://") {
        Some(("ws" | "http", rest)) => rest,
        Some((scheme, _)) => {
            let message = format!("`{scheme}://` is not supported, expected `ws://` or `http://`");
            return Err(SubscribeError::Url(message));
        }
        None => args.url.as_str(),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (host, path) = match rest.trim_end_matches('/').split_once('/') {
        Some((host, path)) => (host, path),
        None => (rest.trim_end_matches('/'), "v1/results"),
    };
    if host.is_empty() {
        return Err(SubscribeError::Url("no host; expected such as `ws://127.0.0.1:8080`".into()));
    }
    let mut parts: Vec<String> = Vec::new();
    parts.extend((!query.is_empty()).then(|| query.to_owned()));
    parts.extend(args.stream.as_ref().map(|id| format!("stream={}", encoded(id))));
    parts.extend(args.after.map(|seq| format!("after={seq}")));
    let query = if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) };
    Ok(format!("ws://{host}/{path}{query}"))
}

fn encoded(text: &str) -> String {
    text.bytes()
        .map(|b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(b).to_string()
            }
            _ => format!("%{b:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_becomes_an_address() {
        for (url, stream, after, want) in [
            ("ws://h:1", None, None, "ws://h:1/v1/results"),
            ("http://h:1/", Some("a b&c"), Some(7), "ws://h:1/v1/results?stream=a%20b%26c&after=7"),
            ("h:1", None, Some(0), "ws://h:1/v1/results?after=0"),
            ("ws://h:1/x/y?status=partial", None, Some(1), "ws://h:1/x/y?status=partial&after=1"),
            ("ws://h?alerts=true", None, None, "ws://h/v1/results?alerts=true"),
        ] {
            let args = SubscribeArgs { url: url.into(), stream: stream.map(Into::into), after };
            assert_eq!(address(&args).unwrap(), want);
        }
        for url in ["wss://h", "", "ws://"] {
            let args = SubscribeArgs { url: url.into(), stream: None, after: None };
            assert!(address(&args).unwrap_err().is_call(), "{url}");
        }
    }
}
