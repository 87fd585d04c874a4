//! Many clients that ask, wait, cancel and run out of time at random, on a pool that is too small for all of them:
//! nothing is left behind, and nobody's answer depends on the others.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod language_support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::language::{
    BackendError, Delta, EmbeddedBackend, EngineStats, GenerateRequest, LanguageBackend, Prompt,
    Score, ScoreRequest,
};
use futures_util::StreamExt;
use language_support::{config, start};
use tokio::time::Instant;

const CLIENTS: u64 = 12;
const TOKENS_MAX: u32 = 20;
const RAILWAY: &str = "The history of the railway is a long one. In the early nineteenth century engineers \
     were trying to find ways to move heavy loads over long distances.\n";
/// Go on without near ties, so that rounding can't change them.
const SERIES: [&str; 4] = [
    "1, 2, 3, 4, 5, 6, 7,",
    "10, 20, 30, 40, 50, 60,",
    "a, b, c, d, e, f, g,",
    "101, 102, 103, 104, 105, 106,",
];
const PRIORITIES: [i32; 8] = [-5, 0, 0, 1, 5, 5, 100, 1000];

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

fn prompt(beginnings: usize, series: usize) -> Prompt {
    Prompt::template(format!("{}{}", RAILWAY.repeat(beginnings), SERIES[series]))
}

fn question(beginnings: usize) -> ScoreRequest {
    ScoreRequest {
        prefix: Prompt::template(format!("{}The capital of France is", RAILWAY.repeat(beginnings))),
        continuations: [" Paris", " Berlin", " the city of Paris"].map(String::from).to_vec(),
        priority: 0,
        time_limit_ms: None,
    }
}

/// What each request says when it is alone.
#[derive(Default)]
struct Alone {
    texts: BTreeMap<(usize, usize), String>,
    scores: BTreeMap<usize, Vec<Score>>,
}

#[derive(Default)]
struct Counts {
    whole: AtomicU64,
    cut: AtomicU64,
    scored: AtomicU64,
    busy: AtomicU64,
    late: AtomicU64,
}

fn count(of: &AtomicU64) {
    of.fetch_add(1, Ordering::Relaxed);
}

struct Client {
    backend: EmbeddedBackend,
    alone: Arc<Alone>,
    counts: Arc<Counts>,
    random: Random,
}

impl Client {
    async fn run_until(mut self, end: Instant) {
        // On a busy machine longer, so that something has happened.
        let few = |of: &AtomicU64, n| of.load(Ordering::Relaxed) < n;
        while Instant::now() < end
            || few(&self.counts.whole, 20)
            || few(&self.counts.cut, 10)
            || self.backend.stats().preemptions == 0
        {
            match self.random.below(12) {
                0 => self.score().await,
                1 => self.too_long().await,
                2 if self.random.below(8) == 0 => self.backend.drop_caches(),
                _ => self.generate().await,
            }
        }
    }

    async fn generate(&mut self) {
        let random = &mut self.random;
        let (beginnings, series) = (random.below(3) as usize, random.below(4) as usize);
        let request = GenerateRequest {
            priority: random.of(&PRIORITIES),
            cache_salt: random.of(&[None, None, None, Some("other")]).map(String::from),
            time_limit_ms: random.of(&[None, None, None, Some(1), Some(400), Some(1500)]),
            ..GenerateRequest::new(
                prompt(beginnings, series),
                1 + random.below(u64::from(TOKENS_MAX)) as u32,
            )
        };
        let gives_up_after = random.of(&[None, None, Some(0), Some(1), Some(5)]);
        let mut stream = self.backend.generate(request.clone()).await.unwrap();
        let (mut text, mut deltas) = (String::new(), 0);
        let ended = loop {
            if gives_up_after.is_some_and(|n| deltas >= n) {
                break false;
            }
            match stream.next().await.unwrap() {
                Ok(Delta::Text(more)) => text += &more,
                Ok(Delta::End { .. }) => break true,
                Ok(Delta::Logprobs(_)) => panic!("nobody asked for likelihoods"),
                Err(BackendError::Busy { .. }) => {
                    count(&self.counts.busy);
                    // Back off as told, so that the queue is not only asked whether it is full.
                    return tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => panic!("{error}: {request:?}"),
            }
            deltas += 1;
        };
        count(if ended { &self.counts.whole } else { &self.counts.cut });
        let alone = &self.alone.texts[&(beginnings, series)];
        assert!(alone.starts_with(&text), "{text:?} against {alone:?} alone: {request:?}");
    }

    async fn score(&mut self) {
        let beginnings = self.random.below(3) as usize;
        let request = ScoreRequest {
            priority: self.random.of(&PRIORITIES),
            time_limit_ms: self.random.of(&[None, None, Some(300)]),
            ..question(beginnings)
        };
        match self.backend.score(request).await {
            Ok(scores) => {
                count(&self.counts.scored);
                for (a, b) in scores.iter().zip(&self.alone.scores[&beginnings]) {
                    let off = (a.log_likelihood - b.log_likelihood).abs();
                    assert!(off < 1.0, "{scores:?} {:?}", self.alone.scores[&beginnings]);
                }
            }
            Err(BackendError::Busy { .. }) => count(&self.counts.busy),
            Err(BackendError::TimeLimit) => count(&self.counts.late),
            Err(error) => panic!("{error}"),
        }
    }

    async fn too_long(&self) {
        let request = GenerateRequest::new(prompt(1, 0), 5_000);
        let answer = self.backend.generate(request).await.unwrap().collect().await;
        assert!(matches!(answer, Err(BackendError::TooLong { limit: 768, .. })), "{answer:?}");
    }
}

/// Asked one after the other, of an engine that has room for all.
async fn alone() -> Alone {
    let backend = start().await;
    let mut alone = Alone::default();
    for beginnings in 0..3 {
        for series in 0..SERIES.len() {
            let request = GenerateRequest::new(prompt(beginnings, series), TOKENS_MAX);
            let answer = backend.generate(request).await.unwrap().collect().await.unwrap();
            alone.texts.insert((beginnings, series), answer.text);
        }
        alone.scores.insert(beginnings, backend.score(question(beginnings)).await.unwrap());
    }
    alone
}

async fn wait_until(backend: &EmbeddedBackend, what: &str, is_so: impl Fn(EngineStats) -> bool) {
    for _ in 0..600 {
        if is_so(backend.stats()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("not within 60 s: {what}: {:?}", backend.stats());
}

async fn churn(length: Duration, seed: u64) {
    let mut config = config();
    config.child.slots = 6;
    config.child.slots_urgent = 1;
    config.child.queue = 4;
    config.child.context_tokens = 768;
    config.child.cache_tokens = 384;
    config.child.halving_ms = 200;
    config.child.batch_window_ms = 5;
    let alone = Arc::new(alone().await);
    let counts = Arc::new(Counts::default());
    let backend = EmbeddedBackend::start(config);
    tokio::time::timeout(Duration::from_secs(60), backend.ready()).await.unwrap();

    let began = Instant::now();
    let clients = (0..CLIENTS).map(|n| {
        let client = Client {
            backend: backend.clone(),
            alone: Arc::clone(&alone),
            counts: Arc::clone(&counts),
            random: Random(seed * 1_000 + n),
        };
        tokio::spawn(client.run_until(began + length))
    });
    let clients: Vec<_> = clients.collect();
    // Warm after a while: from then on memory does not grow.
    tokio::time::sleep(length / 3).await;
    let resident_mb = backend.stats().resident_mb;
    for client in clients {
        client.await.unwrap();
    }

    wait_until(&backend, "all is over", |s| s.running == 0 && s.waiting == 0).await;
    let stats = backend.stats();
    assert_eq!(stats.cells_used, stats.cells_cached, "only what is kept holds cells: {stats:?}");
    assert!(stats.cells_cached <= 384 && stats.restarts == 0, "{stats:?}");
    assert!(stats.resident_mb <= resident_mb + 32, "{resident_mb} MB before: {stats:?}");
    assert!(stats.preemptions > 0 && stats.prefix_tokens_hit > 0, "{stats:?}");
    backend.drop_caches();
    wait_until(&backend, "nothing is kept", |s| s.cells_used == 0 && s.prefixes == 0).await;
    let again = GenerateRequest::new(prompt(1, 0), TOKENS_MAX);
    let again = backend.generate(again).await.unwrap().collect().await.unwrap();
    assert_eq!((&again.text, again.usage.cached_tokens), (&alone.texts[&(1, 0)], 0));
    let Counts { whole, cut, scored, busy, late } = &*counts;
    let [whole, cut, scored, busy, late] =
        [whole, cut, scored, busy, late].map(|c| c.load(Ordering::Relaxed));
    eprintln!(
        "{whole} whole, {cut} given up, {scored} scored, {busy} busy, {late} late: {stats:?}"
    );
}

#[tokio::test]
async fn churn_for_20_seconds_leaves_nothing_behind() {
    churn(Duration::from_secs(20), 1).await;
}

/// In the slow tier: see .config/nextest.toml.
#[tokio::test]
async fn churn_for_ten_minutes_leaves_nothing_behind() {
    churn(Duration::from_secs(600), 2).await;
}
