//! Several models in one memory, answers that were given before, and the light route, with real processes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod language_support;

use std::sync::Arc;

use engine::language::{
    BackendError, CacheLimits, CachedBackend, EmbeddedConfig, GenerateRequest, LanguageBackend,
    ModelPool, PoolModel, Prompt, RoutedBackend, Sampling, ScoreRequest,
};
use language_support::{config, start};
use media::SystemClock;

const MODEL_MB: u64 = 100;

fn ask(text: &str, tokens: u32) -> GenerateRequest {
    GenerateRequest::new(Prompt::template(text), tokens)
}

/// Models of the same weights under different names.
fn pool(count: usize, fit: u64, loads_ahead: bool) -> ModelPool {
    let model = |n| PoolModel {
        config: EmbeddedConfig { model: format!("model-{n}"), ..config() },
        mb: MODEL_MB,
    };
    ModelPool::new((0..count).map(model).collect(), fit * MODEL_MB, loads_ahead).unwrap()
}

async fn text(backend: &dyn LanguageBackend, request: GenerateRequest) -> String {
    backend.generate(request).await.unwrap().collect().await.unwrap().text
}

#[tokio::test]
async fn models_are_loaded_when_asked_for_and_the_least_recently_used_goes() {
    let pool = pool(3, 2, false);
    let models = pool.backends();
    let mut answers = Vec::new();
    for model in &models {
        assert!(model.info().is_none(), "not loaded yet");
        answers.push(text(model, ask("The capital of France is", 4)).await);
        assert!(pool.stats().resident_mb <= 2 * MODEL_MB);
    }
    assert!(answers.iter().all(|a| *a == answers[0]), "{answers:?}");
    // The first was let go for the third; what it told of itself is remembered, and it answers again.
    assert!(!models[0].is_loaded());
    assert!(models[0].info().is_some());
    assert_eq!(text(&models[0], ask("The capital of France is", 4)).await, answers[0]);
}

#[tokio::test]
async fn a_model_in_use_is_not_let_go_and_who_finds_no_room_waits_for_it() {
    let pool = pool(2, 1, false);
    let models = pool.backends();
    let long = models[0].generate(ask("Once upon a time", 64)).await.unwrap();
    let other = models[1].clone();
    let waits = tokio::spawn(async move { text(&other, ask("Hello", 2)).await });
    let told = long.collect().await.unwrap();
    assert_eq!(told.usage.completion_tokens, 64, "it was not cut short");
    assert!(!waits.await.unwrap().is_empty());
}

#[tokio::test]
async fn what_follows_as_a_rule_is_loaded_ahead() {
    let pool = pool(4, 2, true);
    let models = pool.backends();
    for n in 0..12 {
        let was_loaded = models[n % 4].is_loaded();
        assert!(n <= 4 || was_loaded, "request {n} found its model not even loading");
        text(&models[n % 4], ask("Hello", 1)).await;
    }
    let stats = pool.stats();
    assert!(stats.predictions >= 7, "{stats:?}");
    assert_eq!(stats.predictions, stats.predictions_right);
}

#[tokio::test]
async fn a_model_larger_than_the_memory_is_refused() {
    let pool = ModelPool::new(vec![PoolModel { config: config(), mb: 200 }], 100, false).unwrap();
    let error = pool.backends()[0].generate(ask("Hello", 1)).await.err().unwrap();
    assert!(
        matches!(&error, BackendError::Unavailable { detail, .. } if detail.contains("larger"))
    );
    assert!(ModelPool::new(Vec::new(), 100, false).is_err());
}

#[tokio::test]
async fn the_same_request_is_answered_from_memory() {
    let backend: Arc<dyn LanguageBackend> = Arc::new(start().await);
    let cached = CachedBackend::new(backend, CacheLimits::default(), Arc::new(SystemClock::new()));
    let first = cached.generate(ask("The capital of France is", 12)).await.unwrap();
    let first = first.collect().await.unwrap();
    let again = cached.generate(ask("The capital of France is", 12)).await.unwrap();
    let again = again.collect().await.unwrap();
    assert_eq!((&again.text, again.finish), (&first.text, first.finish));
    assert_eq!(again.usage.completion_tokens, first.usage.completion_tokens);
    assert_eq!((again.usage.prefill_ms, again.usage.decode_ms), (0.0, 0.0), "nothing computed");

    let scores = ScoreRequest {
        prefix: Prompt::template("The sky is"),
        continuations: vec![" blue".into(), " fish".into()],
        priority: 0,
        time_limit_ms: None,
    };
    let one = cached.score(scores.clone()).await.unwrap();
    assert_eq!(cached.score(ScoreRequest { priority: 5, ..scores }).await.unwrap(), one);

    // Drawn by chance: asked anew each time.
    let drawn = GenerateRequest {
        sampling: Sampling { temperature: 1.0, ..Sampling::default() },
        ..ask("The capital of France is", 12)
    };
    let usage = |answer: engine::language::Answer| answer.usage.decode_ms;
    for _ in 0..2 {
        let answer = cached.generate(drawn.clone()).await.unwrap().collect().await.unwrap();
        assert!(usage(answer) > 0.0);
    }
    // Cut off by its time: not kept.
    let hurried = GenerateRequest { time_limit_ms: Some(1), ..ask("A long story about", 40) };
    let cut = cached.generate(hurried).await.unwrap().collect().await.unwrap();
    let whole = cached.generate(ask("A long story about", 40)).await.unwrap();
    assert!(whole.collect().await.unwrap().text.len() > cut.text.len());
}

#[tokio::test]
async fn simple_requests_take_the_light_route() {
    let pool = pool(2, 2, false);
    let [heavy, light] = &pool.backends()[..] else { panic!("two models") };
    let routed = RoutedBackend::new(Arc::new(heavy.clone()), Arc::new(light.clone()), 0.3);
    text(&routed, ask("Hello", 4)).await;
    assert!(light.is_loaded() && !heavy.is_loaded());
    text(&routed, ask(&"word ".repeat(400), 2)).await;
    assert!(heavy.is_loaded());
}
