//! The language engine with its real child process and real weights.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod language_support;

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use engine::language::{
    BackendError, Constraint, Delta, EmbeddedBackend, EmbeddedConfig, Finish, GenerateRequest,
    Health, LanguageBackend, Part, Prompt, Recycle, Sampling, ScoreRequest,
};
use futures_util::StreamExt;
use language_support::{config, start};

const RAILWAY: &str = "The history of the railway is a long one. In the early nineteenth century engineers \
     were trying to find ways to move heavy loads over long distances.";

/// Goes on without near ties, so that rounding can't change it.
const COUNTING: &str = "1, 2, 3, 4, 5, 6, 7,";

fn ask(text: &str, tokens_max: u32) -> GenerateRequest {
    GenerateRequest::new(Prompt::template(text), tokens_max)
}

async fn text(backend: &EmbeddedBackend, request: GenerateRequest) -> String {
    backend.generate(request).await.unwrap().collect().await.unwrap().text
}

#[tokio::test]
async fn streamed_pieces_are_the_collected_answer() {
    let backend = start().await;
    let request = ask("The capital of France is", 24);
    let whole = backend.generate(request.clone()).await.unwrap().collect().await.unwrap();
    assert!(whole.text.starts_with(" Paris"), "{whole:?}");
    assert_eq!(whole.usage.completion_tokens, 24);
    assert_eq!(whole.finish, Finish::Length);

    let mut stream = backend.generate(request).await.unwrap();
    let (mut pieces, mut ended) = (Vec::new(), false);
    while let Some(delta) = stream.next().await {
        match delta.unwrap() {
            Delta::Text(text) => pieces.push(text),
            Delta::Logprobs(_) => panic!("nobody asked for likelihoods"),
            Delta::End { .. } => ended = true,
        }
    }
    assert!(ended && pieces.len() > 10, "{pieces:?}");
    assert_eq!(pieces.concat(), whole.text);
}

#[tokio::test]
async fn a_stop_text_ends_the_answer_and_is_not_shown() {
    let backend = start().await;
    let whole = text(&backend, ask("The capital of France is", 32)).await;
    let stop = whole.split_whitespace().nth(3).unwrap().to_owned();
    let request =
        GenerateRequest { stop: vec![stop.clone()], ..ask("The capital of France is", 32) };
    let answer = backend.generate(request).await.unwrap().collect().await.unwrap();
    assert_eq!(answer.finish, Finish::Stop);
    assert_eq!(answer.text, whole[..whole.find(&stop).unwrap()]);
}

#[tokio::test]
async fn four_at_once_say_what_each_says_alone() {
    let backend = start().await;
    let prompts = ["The capital of France is", RAILWAY, "Water is made of", "Once upon a time"];
    let mut alone = Vec::new();
    for prompt in prompts {
        alone.push(text(&backend, ask(prompt, 24)).await);
    }
    let together = prompts.map(|p| text(&backend, ask(p, 24)));
    assert_eq!(futures_util::future::join_all(together).await, alone);
}

#[tokio::test]
async fn dropping_an_answer_frees_its_place() {
    let backend = start().await;
    let mut stream = backend.generate(ask(RAILWAY, 2000)).await.unwrap();
    stream.next().await.unwrap().unwrap();
    wait_until("it runs", || backend.stats().running == 1).await;
    assert!(backend.stats().cells_used > 2000);
    drop(stream);
    wait_until("its place is free", || {
        let stats = backend.stats();
        // What it had read stays for others to share.
        stats.running == 0 && stats.cells_used == stats.cells_cached && stats.cells_used < 300
    })
    .await;
}

#[tokio::test]
async fn likelier_texts_score_higher_and_long_ones_are_summed() {
    let backend = start().await;
    let request = ScoreRequest {
        prefix: Prompt::template("The capital of France is"),
        continuations: [" Paris", " Berlin", " a small green elephant", " the city of Paris"]
            .map(String::from)
            .to_vec(),
        priority: 0,
        time_limit_ms: None,
    };
    let scores = backend.score(request.clone()).await.unwrap();
    let of = |i: usize| scores[i].log_likelihood;
    assert!(of(0) > of(1) && of(1) > of(2) && of(3) > of(2), "{scores:?}");
    assert_eq!(scores.iter().map(|s| s.tokens).collect::<Vec<_>>(), [1, 1, 4, 4]);

    // A text scored token by token: the sum of its parts.
    let first = ScoreRequest { continuations: vec![" the".into()], ..request.clone() };
    let rest = ScoreRequest {
        prefix: Prompt::template("The capital of France is the"),
        continuations: vec![" city of Paris".into()],
        ..request.clone()
    };
    let sum = backend.score(first).await.unwrap()[0].log_likelihood
        + backend.score(rest).await.unwrap()[0].log_likelihood;
    assert!((sum - of(3)).abs() < 0.3, "{sum} against {}", of(3));

    // More than one round of branches.
    let many: Vec<String> = (0..40).map(|i| format!(" the city number {i} of it")).collect();
    let more = ScoreRequest { continuations: many, ..request };
    let scores = backend.score(more).await.unwrap();
    assert_eq!(scores.len(), 40);
    assert!(scores.iter().all(|s| s.log_likelihood.is_finite() && s.log_likelihood < 0.0));
}

#[tokio::test]
async fn a_killed_child_fails_its_requests_and_is_back() {
    let backend = start().await;
    let mut stream = backend.generate(ask(RAILWAY, 2000)).await.unwrap();
    stream.next().await.unwrap().unwrap();
    let pid = backend.pid().unwrap();
    kill(pid);
    let error = loop {
        match stream.next().await.unwrap() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, BackendError::Died { .. }), "{error}");
    assert!(error.to_string().contains("signal: 9"), "{error}");
    // Until it is back, requests fail at once.
    if let Err(error) = backend.generate(ask("Hello", 2)).await {
        assert!(matches!(error, BackendError::Unavailable { .. }), "{error}");
    }
    tokio::time::timeout(Duration::from_secs(30), backend.ready()).await.unwrap();
    assert_ne!(backend.pid().unwrap(), pid);
    assert!(text(&backend, ask("The capital of France is", 4)).await.starts_with(" Paris"));
    assert_eq!(backend.stats().restarts, 1);
}

fn kill(pid: u32) {
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(status.unwrap().success());
}

/// The child by hand, without the parent's care.
#[test]
fn garbage_on_its_input_is_answered_and_its_end_ends_the_child() {
    let config = config();
    let mut child = Command::new(&config.program)
        .args(config.child.to_args())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to = child.stdin.take().unwrap();
    let mut from = child.stdout.take().unwrap();
    let mut send = |body: &[u8]| {
        to.write_all(&(body.len() as u32).to_le_bytes()).unwrap();
        to.write_all(body).unwrap();
    };
    let mut hear = || {
        let mut head = [0; 4];
        from.read_exact(&mut head).unwrap();
        let mut body = vec![0; u32::from_le_bytes(head) as usize];
        from.read_exact(&mut body).unwrap();
        serde_json::from_slice::<serde_json::Value>(&body).unwrap()
    };
    assert_eq!(hear()["event"], "ready");
    send(b"{]}");
    let answer = hear();
    assert_eq!((&answer["event"], &answer["id"]), (&"error".into(), &serde_json::Value::Null));
    assert_eq!(answer["error"]["kind"], "bad_request");
    send(br#"{"op":"generate","id":3}"#);
    assert_eq!(hear()["id"], 3);
    send(br#"{"op":"tokenize","id":4,"text":"<|im_end|>","special":true}"#);
    assert_eq!(hear()["tokens"].as_array().unwrap().len(), 1);
    // An impossible length: the sides have lost step.
    to.write_all(&u32::MAX.to_le_bytes()).unwrap();
    assert!(hear()["error"]["detail"].as_str().unwrap().contains("at most"));
    assert_eq!(child.wait().unwrap().code(), Some(2));

    let mut child = Command::new(&config.program)
        .args(config.child.to_args())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_child_that_can_not_load_says_why() {
    let mut config = config();
    config.child.model = "/nonexistent/model.gguf".into();
    let backend = EmbeddedBackend::start(config);
    wait_until("it is down", || matches!(backend.health(), Health::Down { .. })).await;
    let Health::Down { detail } = backend.health() else { panic!("back without weights") };
    assert!(detail.contains("model.gguf") && detail.contains("No such file"), "{detail}");
    let error = backend.generate(ask("Hello", 2)).await.err().unwrap();
    assert!(matches!(error, BackendError::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn what_does_not_fit_is_refused_with_its_size() {
    let backend = start().await;
    let error = text_error(&backend, ask(&RAILWAY.repeat(300), 10)).await;
    let BackendError::TooLong { tokens, limit } = error else { panic!("{error}") };
    assert!(tokens > limit && limit == 8192, "{tokens} {limit}");
    for request in [
        ask("", 10),
        ask("Hello", 0),
        GenerateRequest {
            sampling: Sampling { temperature: f32::NAN, ..Sampling::default() },
            ..ask("Hello", 2)
        },
        GenerateRequest { constraint: Some(Constraint::Grammar("((".into())), ..ask("Hello", 2) },
        GenerateRequest { constraint: Some(Constraint::Choice(vec![])), ..ask("Hello", 2) },
        GenerateRequest::new(Prompt { parts: vec![Part::Tokens(vec![-4])], reuse: 0 }, 2),
    ] {
        let error = text_error(&backend, request.clone()).await;
        assert!(matches!(error, BackendError::BadRequest { .. }), "{request:?}: {error}");
    }
    assert!(text(&backend, ask("The capital of France is", 4)).await.starts_with(" Paris"));
}

async fn text_error(backend: &EmbeddedBackend, request: GenerateRequest) -> BackendError {
    match backend.generate(request).await {
        Ok(answer) => answer.collect().await.unwrap_err(),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_full_queue_says_when_to_come_back() {
    let mut config = config();
    config.child.slots = 2;
    config.child.slots_urgent = 1;
    config.child.queue = 2;
    let backend = EmbeddedBackend::start(config);
    backend.ready().await;
    let requests = (0..8).map(|_| backend.generate(ask(RAILWAY, 40)));
    let streams = futures_util::future::try_join_all(requests).await.unwrap();
    let ends = futures_util::future::join_all(streams.into_iter().map(|s| s.collect())).await;
    let busy = ends.iter().filter(
        |e| matches!(e, Err(BackendError::Busy { retry_after_ms, .. }) if *retry_after_ms > 0),
    );
    assert!((1..=6).contains(&busy.count()), "{ends:?}");
    assert!(ends.iter().filter(|e| e.is_ok()).count() >= 2, "{ends:?}");
}

#[tokio::test]
async fn an_urgent_request_takes_a_place_and_the_others_lose_no_text() {
    let mut config = config();
    config.child.slots = 2;
    config.child.slots_urgent = 0;
    let backend = EmbeddedBackend::start(config);
    backend.ready().await;
    let alone = text(&backend, ask(COUNTING, 60)).await;
    assert!(alone.contains("8, 9, 10, 11, 12"), "{alone}");
    let mut low = Vec::new();
    for _ in 0..2 {
        let mut stream = backend.generate(ask(COUNTING, 60)).await.unwrap();
        let Delta::Text(first) = stream.next().await.unwrap().unwrap() else { panic!("no text") };
        low.push((first, stream));
    }
    let urgent = GenerateRequest { priority: -10, ..ask("The capital of France is", 4) };
    assert!(text(&backend, urgent).await.starts_with(" Paris"));
    for (first, stream) in low {
        assert_eq!(first + &stream.collect().await.unwrap().text, alone);
    }
    wait_until("it was told", || backend.stats().preemptions > 0).await;
}

#[tokio::test]
async fn urgent_requests_interrupt_running_steps_and_nobody_is_left_behind() {
    let backend = start().await;
    let alone = text(&backend, ask(COUNTING, 40)).await;
    let long = tokio::spawn(backend.generate(ask(&RAILWAY.repeat(24), 1)).await.unwrap().collect());
    let counting = tokio::spawn(backend.generate(ask(COUNTING, 40)).await.unwrap().collect());
    wait_until("both run", || backend.stats().running == 2).await;
    for _ in 0..4 {
        let urgent = GenerateRequest { priority: -10, ..ask("The capital of France is", 2) };
        assert!(text(&backend, urgent).await.starts_with(" Paris"));
    }
    assert_eq!(counting.await.unwrap().unwrap().text, alone);
    assert!(long.await.unwrap().unwrap().usage.prompt_tokens > 600);
    wait_until("it was told", || backend.stats().aborts > 0).await;
}

#[tokio::test]
async fn a_time_limit_ends_an_answer_with_what_there_is() {
    let backend = start().await;
    let request = GenerateRequest { time_limit_ms: Some(800), ..ask(RAILWAY, 3000) };
    let answer = backend.generate(request).await.unwrap().collect().await.unwrap();
    assert_eq!(answer.finish, Finish::TimeLimit);
    let score = ScoreRequest {
        prefix: Prompt::template(RAILWAY.repeat(20)),
        continuations: vec![" x".into()],
        priority: 0,
        time_limit_ms: Some(1),
    };
    assert_eq!(backend.score(score).await, Err(BackendError::TimeLimit));
}

#[tokio::test]
async fn a_choice_and_a_grammar_hold_the_answer() {
    let backend = start().await;
    let choices = ["bananas", "the moon", "the moon and stars"].map(String::from).to_vec();
    let request = GenerateRequest {
        constraint: Some(Constraint::Choice(choices.clone())),
        ..ask("At night we saw ", 20)
    };
    let answer = backend.generate(request).await.unwrap().collect().await.unwrap();
    assert!(choices.contains(&answer.text), "{answer:?}");
    let digits = Constraint::Grammar("root ::= [0-9] [0-9] \".\"".into());
    let request = GenerateRequest { constraint: Some(digits), ..ask("Her age is ", 20) };
    let answer = backend.generate(request).await.unwrap().collect().await.unwrap();
    let bytes = answer.text.as_bytes();
    assert!(bytes.len() == 3 && bytes[..2].iter().all(u8::is_ascii_digit), "{answer:?}");
    assert_eq!(answer.finish, Finish::Stop);
}

/// Waits for a condition that health questions will make true.
async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..600 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not within 30 s: {what}");
}

#[tokio::test]
async fn a_paused_engine_says_nothing_and_goes_on_where_it_was() {
    let backend = start().await;
    let undisturbed = text(&backend, ask(RAILWAY, 40)).await;
    let mut answer = backend.generate(ask(RAILWAY, 40)).await.unwrap();
    let mut said = String::new();
    let mut take = |delta: Delta| match delta {
        Delta::Text(text) => said.push_str(&text),
        Delta::Logprobs(_) | Delta::End { .. } => {}
    };
    take(answer.next().await.unwrap().unwrap());
    backend.pause().await;
    // What was said before the pause may still be on its way.
    while let Ok(delta) = tokio::time::timeout(Duration::from_millis(300), answer.next()).await {
        take(delta.unwrap().unwrap());
    }
    // Counts are told twice a second.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let steps = backend.stats().steps;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(backend.stats().steps, steps, "no step while paused");
    let urgent = GenerateRequest { priority: -1, ..ask("Hello", 2) };
    let waits = tokio::time::timeout(Duration::from_millis(300), text(&backend, urgent)).await;
    assert!(waits.is_err(), "not even an urgent request");
    backend.resume();
    while let Some(delta) = answer.next().await {
        take(delta.unwrap());
    }
    assert_eq!(said, undisturbed);
}

#[tokio::test]
async fn a_pause_outlives_the_process_and_ends_with_it_for_who_waits() {
    let backend = start().await;
    backend.pause().await;
    let pid = backend.pid().unwrap();
    kill(pid);
    let mut health = backend.watch();
    health.wait_for(|h| *h != Health::Ready).await.unwrap();
    backend.pause().await;
    backend.ready().await;
    let waits = tokio::time::timeout(Duration::from_secs(1), text(&backend, ask("Hello", 2))).await;
    assert!(waits.is_err(), "the new process is paused as well");
    backend.resume();
    assert!(!text(&backend, ask("Hello", 2)).await.is_empty());
}

#[tokio::test]
async fn a_replaced_process_answers_what_it_took_and_the_fresh_one_the_rest() {
    let mut config = config();
    config.recycle = Recycle { age: Duration::from_secs(2), ..Recycle::default() };
    let backend = EmbeddedBackend::start(config);
    backend.ready().await;
    let first = backend.pid().unwrap();
    let (mut answers, mut pids) = (Vec::new(), vec![first]);
    for _ in 0..200 {
        if backend.stats().recycled >= 2 {
            break;
        }
        // Long enough to be under way when the process is replaced.
        let long = GenerateRequest { ignore_end: true, ..ask(RAILWAY, 60) };
        let long = backend.generate(long).await.unwrap();
        answers.push(long.collect().await.unwrap().usage.completion_tokens);
        pids.extend(backend.pid());
    }
    pids.dedup();
    assert!(pids.len() > 1 && backend.stats().recycled >= 2, "{pids:?}");
    assert!(answers.iter().all(|&tokens| tokens == 60), "{answers:?}");
    let is_gone = || !std::path::Path::new(&format!("/proc/{first}/exe")).exists();
    wait_until("the first process has ended", is_gone).await;
}

#[tokio::test]
async fn an_idle_engine_that_saves_power_forgets_what_it_kept() {
    for idle_max in [None, Some(Duration::from_secs(1))] {
        let backend = EmbeddedBackend::start(EmbeddedConfig { idle_max, ..config() });
        backend.ready().await;
        text(&backend, ask(&RAILWAY.repeat(2), 4)).await;
        wait_until("the beginning is kept", || backend.stats().cells_used > 0).await;
        if idle_max.is_some() {
            wait_until("it is forgotten", || backend.stats().cells_used == 0).await;
        } else {
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert!(backend.stats().cells_used > 0, "kept without being told to save");
        }
        assert!(!text(&backend, ask("Hello", 2)).await.is_empty());
    }
}
