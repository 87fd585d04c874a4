//! Prints fused answers as they come, one line per window.
//!
//!     cargo run --release -p examples --bin subscribe -- ws://127.0.0.1:8080/v1/results

use std::error::Error;

use futures_util::StreamExt;
use serde_json::Value;

#[tokio::main]
#[expect(clippy::print_stdout, reason = "printing is all this program does")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or("ws://127.0.0.1:8080/v1/results".into());
    let (mut socket, _) = tokio_tungstenite::connect_async(&url).await?;
    while let Some(message) = socket.next().await {
        let message = message?;
        if message.is_close() {
            break;
        }
        let Ok(text) = message.to_text() else { continue };
        // Besides results there are gap and stream messages, and pings without text.
        let Ok(answer) = serde_json::from_str::<Value>(text) else { continue };
        if answer["schema"] == "fused-result/1" {
            println!("{}", line(&answer));
        }
    }
    Ok(())
}

/// `lobby    7000 ms  complete  seen: person person  said: the train is late  about: transport`
fn line(answer: &Value) -> String {
    let category = answer["text"]["category"].as_str().unwrap_or("-");
    format!(
        "{} {:>7} ms  {}  seen: {}  said: {}  about: {category}",
        answer["stream"].as_str().unwrap_or_default(),
        answer["window"]["start_ms"],
        answer["status"].as_str().unwrap_or_default(),
        joined(&answer["vision"]["objects"], "label"),
        joined(&answer["audio"]["speech"], "text"),
    )
}

fn joined(items: &Value, field: &str) -> String {
    let words = items.as_array().into_iter().flatten().filter_map(|item| item[field].as_str());
    words.collect::<Vec<_>>().join(" ")
}
