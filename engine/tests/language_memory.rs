//! What requests share, and who gives way to whom, with the real child process and real weights.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod language_support;

use std::time::Duration;

use engine::language::{
    Answer, Delta, EmbeddedBackend, EmbeddedConfig, EngineStats, GenerateRequest, Generation,
    LanguageBackend, Prompt, ScoreRequest,
};
use futures_util::StreamExt;
use language_support::{config, start};

const RAILWAY: &str = "The history of the railway is a long one. In the early nineteenth century engineers \
     were trying to find ways to move heavy loads over long distances. ";

/// Goes on without near ties, so that rounding can't change it.
const COUNTING: &str = "1, 2, 3, 4, 5, 6, 7,";

fn ask(text: &str, tokens_max: u32) -> GenerateRequest {
    GenerateRequest::new(Prompt::template(text), tokens_max)
}

async fn answer(backend: &EmbeddedBackend, request: GenerateRequest) -> Answer {
    backend.generate(request).await.unwrap().collect().await.unwrap()
}

async fn start_with(config: EmbeddedConfig) -> EmbeddedBackend {
    let backend = EmbeddedBackend::start(config);
    tokio::time::timeout(Duration::from_secs(60), backend.ready()).await.unwrap();
    backend
}

/// One place for requests that are not urgent, and none for others.
fn one_place() -> EmbeddedConfig {
    let mut config = config();
    config.child.slots = 1;
    config.child.slots_urgent = 0;
    config
}

/// Starts an answer and waits for its first text.
async fn begin(backend: &EmbeddedBackend, request: GenerateRequest) -> (String, Generation) {
    let mut stream = backend.generate(request).await.unwrap();
    match stream.next().await.unwrap().unwrap() {
        Delta::Text(first) => (first, stream),
        other => panic!("no text first: {other:?}"),
    }
}

/// Waits until the counts, which come with health questions, are so.
async fn wait_until(backend: &EmbeddedBackend, what: &str, is_so: impl Fn(EngineStats) -> bool) {
    for _ in 0..600 {
        if is_so(backend.stats()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not within 30 s: {what}: {:?}", backend.stats());
}

#[tokio::test]
async fn a_beginning_that_comes_again_is_shared_though_nobody_said_so() {
    let backend = start().await;
    let prefix = RAILWAY.repeat(11);
    let other = answer(&backend, ask(&format!("{prefix}The second"), 8)).await;
    assert!(other.usage.prompt_tokens > 300 && other.usage.cached_tokens == 0, "{other:?}");
    let shared = answer(&backend, ask(&format!("{prefix}1, 2, 3, 4, 5, 6, 7,"), 12)).await;
    let computed = shared.usage.prompt_tokens - shared.usage.cached_tokens;
    assert!(computed < 30, "all but the end was shared to the token: {shared:?}");

    // Alone, computed from the start, it says the same.
    backend.drop_caches();
    wait_until(&backend, "nothing is kept", |s| s.running == 0 && s.cells_used == 0).await;
    let alone = answer(&backend, ask(&format!("{prefix}1, 2, 3, 4, 5, 6, 7,"), 12)).await;
    assert_eq!((alone.usage.cached_tokens, &alone.text), (0, &shared.text));

    wait_until(&backend, "hits are counted", |s| s.prefix_tokens_hit >= 300 && s.running == 0)
        .await;
    let stats = backend.stats();
    assert_eq!(stats.prefix_queries, 3);
    assert!(stats.cells_used == stats.cells_cached && stats.prefixes >= 1, "{stats:?}");
}

#[tokio::test]
async fn likelihoods_are_the_same_with_a_shared_beginning_within_rounding() {
    let backend = start().await;
    let request = |end: &str| ScoreRequest {
        prefix: Prompt::template(format!("{}{end}", RAILWAY.repeat(4))),
        continuations: [" Paris", " Berlin", " a green elephant"].map(String::from).to_vec(),
        priority: 0,
        time_limit_ms: None,
    };
    let alone = backend.score(request("The capital of France is")).await.unwrap();
    backend.drop_caches();
    backend.score(request("The largest city of Germany is")).await.unwrap();
    let shared = backend.score(request("The capital of France is")).await.unwrap();
    for (a, b) in alone.iter().zip(&shared) {
        assert!((a.log_likelihood - b.log_likelihood).abs() < 0.5, "{alone:?} {shared:?}");
    }
    wait_until(&backend, "it was shared", |s| s.prefix_tokens_hit > 100).await;
}

#[tokio::test]
async fn requests_with_different_salts_share_nothing() {
    let backend = start().await;
    let salted = |salt: Option<&str>| GenerateRequest {
        cache_salt: salt.map(String::from),
        ..ask(&RAILWAY.repeat(3), 2)
    };
    let mut cached = Vec::new();
    for salt in [None, Some("a"), Some("b"), Some("a"), None] {
        cached.push(answer(&backend, salted(salt)).await.usage.cached_tokens > 0);
    }
    assert_eq!(cached, [false, false, false, true, true]);
}

#[tokio::test]
async fn a_lower_class_gives_its_place_to_a_higher_one_and_goes_on_as_if_nothing_had_happened() {
    let backend = start_with(one_place()).await;
    let low = || GenerateRequest { priority: 5, ..ask(COUNTING, 60) };
    let alone = answer(&backend, low()).await;
    backend.drop_caches();
    let (first, stream) = begin(&backend, low()).await;
    let high = answer(&backend, ask("The capital of France is", 4)).await;
    assert!(high.text.starts_with(" Paris"), "{high:?}");
    assert_eq!(first + &stream.collect().await.unwrap().text, alone.text);
    wait_until(&backend, "it was told", |s| s.preemptions == 1).await;

    // Never by arrival: one of the same class waits for the end.
    let (_, stream) = begin(&backend, low()).await;
    let second = tokio::spawn(backend.generate(low()).await.unwrap().collect());
    assert_eq!(stream.collect().await.unwrap().usage.completion_tokens, 60);
    assert_eq!(second.await.unwrap().unwrap().text, alone.text);
    wait_until(&backend, "it has ended", |s| s.running == 0).await;
    assert_eq!(backend.stats().preemptions, 1);
}

#[tokio::test]
async fn a_request_that_gave_up_its_cells_gets_them_back_bit_by_bit() {
    let mut config = one_place();
    config.child.slots = 2;
    config.child.context_tokens = 512;
    config.child.cache_tokens = 512;
    let backend = start_with(config).await;
    let low = || GenerateRequest { priority: 5, ..ask(COUNTING, 80) };
    let alone = answer(&backend, low()).await;
    backend.drop_caches();
    let (first, stream) = begin(&backend, low()).await;
    // Needs every cell of the pool.
    let prompt = RAILWAY.repeat(4);
    let tokens = backend.tokenize(prompt.clone(), true).await.unwrap().len() as u32;
    let all = GenerateRequest { ignore_end: true, ..ask(&prompt, 512 - tokens - 2) };
    let (_, big) = begin(&backend, all).await;
    wait_until(&backend, "all cells are taken", |s| s.cells_used == 512).await;
    assert_eq!(backend.stats().running, 1, "there is a place, but no cells");
    drop(big);
    assert_eq!(first + &stream.collect().await.unwrap().text, alone.text);
    wait_until(&backend, "it was told", |s| s.preemptions == 1 && s.running == 0).await;
}

#[tokio::test]
async fn a_request_that_has_waited_goes_before_a_newer_one_of_a_higher_class() {
    for (halving_ms, old_is_first) in [(1, true), (0, false)] {
        let mut config = one_place();
        config.child.halving_ms = halving_ms;
        let backend = start_with(config).await;
        let (_, running) = begin(&backend, ask(COUNTING, 60)).await;
        let old = GenerateRequest { priority: 1000, ..ask(&RAILWAY.repeat(2), 2) };
        let old = tokio::spawn(backend.generate(old).await.unwrap().collect());
        wait_until(&backend, "it waits", |s| s.waiting == 1).await;
        let new = GenerateRequest { priority: 5, ..ask(&RAILWAY.repeat(2), 2) };
        let new = tokio::spawn(backend.generate(new).await.unwrap().collect());
        assert_eq!(running.collect().await.unwrap().usage.completion_tokens, 60);
        // Whoever comes second shares what the first has read.
        let (old, new) = (old.await.unwrap().unwrap(), new.await.unwrap().unwrap());
        assert!((old.usage.cached_tokens == 0) == old_is_first, "{halving_ms}: {old:?} {new:?}");
        assert!((new.usage.cached_tokens == 0) != old_is_first, "{halving_ms}: {old:?} {new:?}");
    }
}

#[tokio::test]
async fn an_idle_engine_gathers_requests_and_measures_its_steps() {
    let mut config = config();
    config.child.batch_window_ms = 50;
    let backend = start_with(config).await;
    let together = (0..4).map(|_| answer(&backend, ask(COUNTING, 8)));
    let answers = futures_util::future::join_all(together).await;
    assert!(answers.iter().all(|a| a.text == answers[0].text), "{answers:?}");
    let urgent = GenerateRequest { priority: -1, ..ask(COUNTING, 8) };
    assert_eq!(answer(&backend, urgent).await.text, answers[0].text);
    let counted = |s: EngineStats| s.steps > 0 && s.running == 0 && s.urgent_wait_ms_p99 > 0.0;
    wait_until(&backend, "steps are counted", counted).await;
    let stats = backend.stats();
    assert!(stats.step_ms_p99 > 0.0 && stats.step_ms_p99 <= stats.step_ms_max, "{stats:?}");
    assert!((8..=128).contains(&stats.chunk_tokens), "{stats:?}");
}
