//! The language API over real sockets, in front of a language model that does as it is told.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actors::hub::Hub;
use engine::language::{
    BackendError, Delta, EngineStats, Finish, GenerateRequest, Generation, Health, LanguageBackend,
    ModelInfo, Part, Score, ScoreRequest, Usage,
};
use futures_util::future::{BoxFuture, FutureExt, ready};
use futures_util::stream::{self, StreamExt};
use pipeline::plan::ServerPlan;
use pipeline::server::language::{LanguageApi, Served};
use pipeline::server::{Server, ServerState, StreamList, StreamView};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What the model does with the next request.
enum Act {
    Say(Vec<Result<Delta, BackendError>>),
    /// Says one thing, and then nothing until it is dropped.
    SayAndHang(&'static str),
    Refuse(BackendError),
}

#[derive(Default)]
struct Puppet {
    acts: Mutex<VecDeque<Act>>,
    asked: Mutex<Vec<GenerateRequest>>,
    dropped: Arc<AtomicUsize>,
    down: Mutex<Option<String>>,
    chat_template: Option<String>,
}

struct CountDrop(Arc<AtomicUsize>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl LanguageBackend for Puppet {
    fn name(&self) -> &str {
        "puppet"
    }

    fn model(&self) -> &str {
        "puppet-1"
    }

    fn generate(
        &self,
        request: GenerateRequest,
    ) -> BoxFuture<'_, Result<Generation, BackendError>> {
        self.asked.lock().unwrap().push(request);
        let act = self.acts.lock().unwrap().pop_front();
        let answer = match act {
            Some(Act::Say(items)) => Ok(Generation::new(stream::iter(items))),
            Some(Act::SayAndHang(text)) => {
                let counted = CountDrop(self.dropped.clone());
                let said = stream::iter([Ok(Delta::Text(text.into()))]);
                Ok(Generation::new(said.chain(stream::pending()).map(move |item| {
                    let _ = &counted;
                    item
                })))
            }
            Some(Act::Refuse(error)) => Err(error),
            None => Err(BackendError::Failed { detail: "nobody said what to do".into() }),
        };
        ready(answer).boxed()
    }

    fn score(&self, _: ScoreRequest) -> BoxFuture<'_, Result<Vec<Score>, BackendError>> {
        ready(Ok(Vec::new())).boxed()
    }

    fn health(&self) -> Health {
        match self.down.lock().unwrap().clone() {
            Some(detail) => Health::Down { detail },
            None => Health::Ready,
        }
    }

    fn stats(&self) -> EngineStats {
        EngineStats { running: 3, cells: 10, cells_used: 5, ..EngineStats::default() }
    }

    fn info(&self) -> Option<Arc<ModelInfo>> {
        Some(Arc::new(ModelInfo {
            context_tokens_max: 100,
            chat_template: self.chat_template.clone(),
            start_text: "<s>".into(),
            ..ModelInfo::default()
        }))
    }

    fn tokenize(&self, text: String, _: bool) -> BoxFuture<'_, Result<Vec<i32>, BackendError>> {
        // The start is one token, every other byte is one.
        let tokens = match text.strip_prefix("<s>") {
            Some(rest) => [1].into_iter().chain(rest.bytes().map(i32::from)).collect(),
            None => text.bytes().map(i32::from).collect(),
        };
        ready(Ok(tokens)).boxed()
    }

    fn detokenize(&self, tokens: Vec<i32>) -> BoxFuture<'_, Result<String, BackendError>> {
        let text = tokens.iter().filter_map(|&t| u8::try_from(t).ok()).map(char::from).collect();
        ready(Ok(text)).boxed()
    }
}

struct NoStreams;

impl StreamList for NoStreams {
    fn list(&self) -> Vec<StreamView> {
        Vec::new()
    }
}

struct Rig {
    puppet: Arc<Puppet>,
    server: Server,
}

impl Rig {
    async fn new() -> Self {
        Rig::with(Puppet::default(), None).await
    }

    async fn with(puppet: Puppet, token: Option<&str>) -> Self {
        let (server, api) = serve(token).await;
        let puppet = Arc::new(puppet);
        api.open(vec![Served { name: "m".into(), backend: puppet.clone() }]);
        Rig { puppet, server }
    }

    fn will(&self, acts: impl IntoIterator<Item = Act>) {
        self.puppet.acts.lock().unwrap().extend(acts);
    }

    async fn post(&self, path: &str, body: Value) -> (u16, String, String) {
        ask(&self.server, "POST", path, "", &body.to_string()).await
    }

    fn asked(&self) -> Vec<GenerateRequest> {
        std::mem::take(&mut *self.puppet.asked.lock().unwrap())
    }
}

async fn serve(token: Option<&str>) -> (Server, LanguageApi) {
    let api = LanguageApi::default();
    let state = ServerState {
        hub: Hub::new("r".into()),
        streams: Arc::new(NoStreams),
        graph: Arc::new(Value::Null),
        metrics: Arc::new(String::new),
        ready: Arc::new(|| Ok(())),
        language: Some(api.clone()),
    };
    let plan = ServerPlan {
        listen: "127.0.0.1:0".parse().unwrap(),
        token: token.map(|t| t.to_owned().into()),
        language: true,
    };
    (Server::start(&plan, state).await.unwrap(), api)
}

/// Status, head and body of one request.
async fn ask(
    server: &Server,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> (u16, String, String) {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        server.address(),
        body.len()
    );
    stream.write_all((head + body).as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_owned(), body.to_owned())
}

fn text(text: &str) -> Result<Delta, BackendError> {
    Ok(Delta::Text(text.into()))
}

fn end(finish: Finish) -> Result<Delta, BackendError> {
    let usage = Usage { prompt_tokens: 5, completion_tokens: 2, ..Usage::default() };
    Ok(Delta::End { finish, usage })
}

fn say(words: &str) -> Act {
    Act::Say(vec![text(words), end(Finish::Stop)])
}

fn events(body: &str) -> Vec<&str> {
    body.lines().filter_map(|line| line.strip_prefix("data: ")).collect()
}

fn hello() -> Value {
    json!([{ "role": "user", "content": "hello" }])
}

#[tokio::test]
async fn before_a_model_is_loaded_callers_are_told_to_wait() {
    let (server, _api) = serve(None).await;
    for (method, path) in [
        ("GET", "/health"),
        ("GET", "/v1/models"),
        ("GET", "/generate?prompt=a"),
        ("POST", "/v1/completions"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/tokenize"),
        ("POST", "/detokenize"),
    ] {
        let body = json!({ "prompt": "a", "messages": hello(), "tokens": [1] }).to_string();
        let (status, head, body) = ask(&server, method, path, "", &body).await;
        assert_eq!(status, 503, "{path}: {body}");
        assert!(head.to_lowercase().contains("retry-after: 1"), "{path}: {head}");
        assert!(body.contains("ServiceUnavailableError"), "{path}: {body}");
    }
    assert_eq!(ask(&server, "GET", "/version", "", "").await.0, 200);
    assert_eq!(ask(&server, "GET", "/metrics", "", "").await.0, 200);
}

#[tokio::test]
async fn an_engine_that_is_down_is_not_healthy() {
    let rig = Rig::new().await;
    assert_eq!(ask(&rig.server, "GET", "/health", "", "").await.0, 200);
    *rig.puppet.down.lock().unwrap() = Some("its process ended".into());
    let (status, _, body) = ask(&rig.server, "GET", "/health", "", "").await;
    assert_eq!(status, 503);
    assert!(body.contains("its process ended"), "{body}");
}

#[tokio::test]
async fn refusals_of_the_engine_have_their_status_streamed_or_not() {
    let rig = Rig::new().await;
    let busy = BackendError::Busy { waiting: 9, retry_after_ms: 2_500 };
    let away = BackendError::Unavailable { detail: "restarting".into(), retry_after_ms: 10 };
    let long = BackendError::TooLong { tokens: 200, limit: 100 };
    let failed = BackendError::Failed { detail: "no".into() };
    for (error, status, after) in
        [(busy, 429, Some("3")), (away, 503, Some("1")), (long, 400, None), (failed, 500, None)]
    {
        for stream in [false, true] {
            for act in [Act::Refuse(error.clone()), Act::Say(vec![Err(error.clone())])] {
                rig.will([act]);
                let body = json!({ "prompt": "a", "stream": stream });
                let (got, head, body) = rig.post("/v1/completions", body).await;
                assert_eq!(got, status, "{body}");
                let found = head.lines().find_map(|l| l.strip_prefix("retry-after: "));
                assert_eq!(found, after, "{head}");
                let body: Value = serde_json::from_str(&body).unwrap();
                assert_eq!(body["error"]["code"], status);
            }
        }
    }
}

#[tokio::test]
async fn a_failure_in_the_middle_of_a_stream_is_told_and_ends_it() {
    let rig = Rig::new().await;
    let died = BackendError::Died { detail: "signal 9".into() };
    rig.will([Act::Say(vec![text("half"), Err(died)])]);
    let (status, _, body) =
        rig.post("/v1/completions", json!({ "prompt": "a", "stream": true })).await;
    let events = events(&body);
    assert_eq!((status, events.len()), (200, 3), "{body}");
    assert!(events[0].contains("half") && events[1].contains("signal 9"), "{body}");
    assert_eq!(events[2], "[DONE]");
}

#[tokio::test]
async fn several_answers_are_several_requests() {
    let rig = Rig::new().await;
    rig.will([say("a"), say("b"), say("c"), say("d")]);
    let body = json!({ "prompt": ["x", "y"], "n": 2, "seed": 3, "priority": -20 });
    let (status, _, body) = rig.post("/v1/completions", body).await;
    assert_eq!(status, 200, "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    let texts: Vec<&str> =
        body["choices"].as_array().unwrap().iter().map(|c| c["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["a", "b", "c", "d"]);
    // Two prompts of 5 tokens, four answers of 2.
    assert_eq!(body["usage"]["prompt_tokens"], 10);
    assert_eq!(body["usage"]["completion_tokens"], 8);
    let asked = rig.asked();
    assert_eq!(asked.len(), 4);
    let seeds: Vec<_> = asked.iter().map(|r| r.sampling.seed).collect();
    assert_eq!(seeds, [Some(3), Some(4), Some(3), Some(4)]);
    assert!(asked.iter().all(|r| r.priority == 0 && r.tokens_max == 16));

    rig.will([say("a"), say("b")]);
    let options = json!({ "include_usage": true });
    let body = json!({ "messages": hello(), "n": 2, "stream": true, "stream_options": options, "max_tokens": 5 });
    let (_, _, body) = rig.post("/v1/chat/completions", body).await;
    let events: Vec<Value> =
        events(&body).iter().filter_map(|e| serde_json::from_str(e).ok()).collect();
    let of = |index: u64| {
        let pieces = events.iter().filter(|e| e["choices"][0]["index"] == index);
        pieces.filter_map(|e| e["choices"][0]["delta"]["content"].as_str()).collect::<String>()
    };
    assert_eq!((of(0), of(1)), ("a".into(), "b".into()), "{body}");
    assert_eq!(events.last().unwrap()["usage"]["prompt_tokens"], 5);
}

#[tokio::test]
async fn one_refusal_among_several_drops_the_others() {
    let rig = Rig::new().await;
    let busy = BackendError::Busy { waiting: 9, retry_after_ms: 100 };
    rig.will([Act::SayAndHang("a"), Act::Refuse(busy)]);
    let (status, _, _) = rig.post("/v1/completions", json!({ "prompt": "a", "n": 2 })).await;
    assert_eq!(status, 429);
    assert_eq!(rig.puppet.dropped.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_client_that_hangs_up_drops_its_generation() {
    let rig = Rig::new().await;
    for (round, stream) in [false, true].into_iter().enumerate() {
        rig.will([Act::SayAndHang("a")]);
        let mut connection = TcpStream::connect(rig.server.address()).await.unwrap();
        let body = json!({ "prompt": "a", "stream": stream }).to_string();
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n",
            rig.server.address(),
            body.len()
        );
        connection.write_all((head + &body).as_bytes()).await.unwrap();
        if stream {
            let mut first = [0; 64];
            assert!(connection.read(&mut first).await.unwrap() > 0);
        }
        while rig.asked().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(rig.puppet.dropped.load(Ordering::Relaxed), round);
        drop(connection);
        while rig.puppet.dropped.load(Ordering::Relaxed) == round {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn more_calls_than_are_answered_at_once_are_told_to_wait() {
    let rig = Rig::new().await;
    let mut held = Vec::new();
    for _ in 0..256 {
        rig.will([Act::SayAndHang("a")]);
        let mut connection = TcpStream::connect(rig.server.address()).await.unwrap();
        let body = json!({ "prompt": "a", "stream": true }).to_string();
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n",
            rig.server.address(),
            body.len()
        );
        connection.write_all((head + &body).as_bytes()).await.unwrap();
        let mut first = [0; 16];
        connection.read_exact(&mut first).await.unwrap();
        held.push(connection);
    }
    let (status, head, _) = rig.post("/v1/completions", json!({ "prompt": "a" })).await;
    assert_eq!(status, 429);
    assert!(head.contains("retry-after"), "{head}");
    assert_eq!(
        ask(&rig.server, "GET", "/v1/models", "", "").await.0,
        200,
        "others are not held up"
    );
    drop(held);
    while rig.puppet.dropped.load(Ordering::Relaxed) < 256 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    rig.will([say("b")]);
    assert_eq!(rig.post("/v1/completions", json!({ "prompt": "a" })).await.0, 200);
}

#[tokio::test]
async fn a_chat_may_take_what_the_context_leaves() {
    let template = "{{ bos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}";
    let puppet = Puppet { chat_template: Some(template.into()), ..Puppet::default() };
    let rig = Rig::with(puppet, None).await;
    rig.will([say("hi"), say("hi")]);
    let body = json!({ "messages": hello() });
    assert_eq!(rig.post("/v1/chat/completions", body).await.0, 200);
    let asked = rig.asked().remove(0);
    // One token of the start, and a byte each of `[hello]`.
    assert_eq!(asked.tokens_max, 100 - 8);
    let tokens: usize = asked
        .prompt
        .parts
        .iter()
        .map(|part| match part {
            Part::Tokens(tokens) => tokens.len(),
            other => panic!("counted once, and not again: {other:?}"),
        })
        .sum();
    assert_eq!(tokens, 7, "the engine adds the start itself");

    let body = json!({ "messages": hello(), "max_tokens": 9 });
    assert_eq!(rig.post("/v1/chat/completions", body).await.0, 200);
    let asked = rig.asked().remove(0);
    assert_eq!(asked.tokens_max, 9);
    let template = |text: &str| Part::Template(text.into());
    let parts = [template("["), Part::Data("hello".into()), template("]")];
    assert_eq!(asked.prompt.parts, parts);

    let long = json!({ "messages": [{ "role": "user", "content": "x".repeat(100) }] });
    let (status, _, body) = rig.post("/v1/chat/completions", long).await;
    assert_eq!(status, 400);
    assert!(body.contains("the context holds 100"), "{body}");
    assert!(rig.asked().is_empty(), "nothing was asked");
}

#[tokio::test]
async fn a_prompt_in_tokens_is_not_started_twice() {
    let rig = Rig::new().await;
    rig.will([say("a"), say("a")]);
    for prompt in [json!([1, 50, 51]), json!([50, 51])] {
        rig.post("/v1/completions", json!({ "prompt": prompt })).await;
    }
    for asked in rig.asked() {
        assert_eq!(asked.prompt.parts, [Part::Tokens(vec![50, 51])]);
    }
    let count = async |body: Value| {
        let (_, _, answer) = rig.post("/tokenize", body).await;
        serde_json::from_str::<Value>(&answer).unwrap()["count"].clone()
    };
    assert_eq!(count(json!({ "prompt": "ab" })).await, 3);
    assert_eq!(count(json!({ "prompt": "ab", "add_special_tokens": false })).await, 2);
}

#[tokio::test]
async fn with_a_token_the_api_refuses_in_its_own_words() {
    let rig = Rig::with(Puppet::default(), Some("opensesame")).await;
    let (status, _, body) = rig.post("/v1/completions", json!({ "prompt": "a" })).await;
    assert_eq!(status, 401);
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["error"]["type"], "AuthenticationError");
    assert_eq!(ask(&rig.server, "GET", "/health", "", "").await.0, 200, "probes have none");
    rig.will([say("a")]);
    let token = "Authorization: Bearer opensesame\r\n";
    let answer = ask(&rig.server, "POST", "/v1/completions", token, "{\"prompt\":\"a\"}").await;
    assert_eq!(answer.0, 200);
}

#[tokio::test]
async fn an_id_comes_from_the_body_or_the_head() {
    let rig = Rig::new().await;
    rig.will([say("a"), say("a")]);
    let header = "X-Request-Id: from-head\r\n";
    let (_, _, body) =
        ask(&rig.server, "POST", "/v1/completions", header, "{\"prompt\":\"a\"}").await;
    assert!(body.contains("\"cmpl-from-head\""), "{body}");
    let body = "{\"prompt\":\"a\",\"request_id\":\"from-body\"}";
    let (_, _, body) = ask(&rig.server, "POST", "/v1/completions", header, body).await;
    assert!(body.contains("\"cmpl-from-body\""), "{body}");
}

#[tokio::test]
async fn the_end_of_the_server_ends_a_stream() {
    let rig = Rig::new().await;
    rig.will([Act::SayAndHang("a")]);
    let address = rig.server.address();
    let mut connection = TcpStream::connect(address).await.unwrap();
    let body = json!({ "prompt": "a", "stream": true }).to_string();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all((head + &body).as_bytes()).await.unwrap();
    let mut first = [0; 16];
    connection.read_exact(&mut first).await.unwrap();
    rig.server.shutdown(Duration::from_millis(50)).await;
    let mut rest = Vec::new();
    let _ = connection.read_to_end(&mut rest).await;
    assert_eq!(rig.puppet.dropped.load(Ordering::Relaxed), 1);
}
