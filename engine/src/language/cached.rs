//! A backend that answers a request it has answered before from memory.
//!
//! Its neighbour is `cache`, which decides what is kept. Metrics say how often that helped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream;
use media::Clock;
use metrics::counter;

use super::backend::{
    BackendError, Delta, Finish, GenerateRequest, Generation, LanguageBackend, Score, ScoreRequest,
    Usage,
};
use super::before::Before;
use super::cache::{Cache, CacheLimits, Key, key_of_generate, key_of_score};

/// An answer as it came, pieces and all.
#[derive(Clone)]
enum Kept {
    Answer(Arc<[Delta]>),
    Scores(Arc<[Score]>),
}

/// A backend behind a cache. Cheap to clone.
#[derive(Clone)]
pub struct CachedBackend {
    backend: Arc<dyn LanguageBackend>,
    cache: Arc<Mutex<Cache<Kept>>>,
    clock: Arc<dyn Clock>,
}

impl CachedBackend {
    /// Remembers answers of `backend`.
    pub fn new(
        backend: Arc<dyn LanguageBackend>,
        limits: CacheLimits,
        clock: Arc<dyn Clock>,
    ) -> Self {
        CachedBackend { backend, cache: Arc::new(Mutex::new(Cache::new(limits))), clock }
    }

    fn lock(&self) -> MutexGuard<'_, Cache<Kept>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, key: Option<&Key>) -> Option<Kept> {
        let known = self.lock().get(self.clock.now(), key?);
        let result = if known.is_some() { "hit" } else { "miss" };
        let model = self.backend.model().to_owned();
        counter!(crate::events::ANSWER_CACHE, "model" => model, "result" => result).increment(1);
        known
    }

    fn keep(&self, key: Key, kept: Kept) {
        let bytes = match &kept {
            Kept::Answer(deltas) => deltas.iter().map(size_of_delta).sum(),
            Kept::Scores(scores) => size_of_val(&**scores),
        };
        self.lock().put(self.clock.now(), key, kept, bytes);
    }

    /// Hands the answer on and keeps it if it ends by itself.
    fn listen(&self, key: Key, answer: Generation) -> Generation {
        let (cache, mut pieces) = (self.clone(), Some(Vec::new()));
        Generation::new(answer.inspect(move |delta| {
            let Some(heard) = &mut pieces else { return };
            match delta {
                Ok(Delta::End { finish: Finish::TimeLimit, .. }) | Err(_) => pieces = None,
                Ok(end @ Delta::End { .. }) => {
                    heard.push(end.clone());
                    let whole = std::mem::take(heard);
                    cache.keep(key, Kept::Answer(whole.into()));
                    pieces = None;
                }
                Ok(piece) => heard.push(piece.clone()),
            }
        }))
    }
}

fn size_of_delta(delta: &Delta) -> usize {
    let held = match delta {
        Delta::Text(text) => text.len(),
        Delta::Logprobs(tokens) => tokens
            .iter()
            .map(|t| {
                let top: usize = t.top.iter().map(|(_, bytes, _)| bytes.len() + 48).sum();
                t.bytes.len() + top + 64
            })
            .sum(),
        Delta::End { .. } => 0,
    };
    held + size_of::<Delta>()
}

/// The end of an answer that took no time.
fn again(delta: Delta) -> Delta {
    match delta {
        Delta::End { finish, usage } => {
            let Usage { prompt_tokens, completion_tokens, .. } = usage;
            let cached_tokens = prompt_tokens;
            let usage =
                Usage { prompt_tokens, completion_tokens, cached_tokens, ..Usage::default() };
            Delta::End { finish, usage }
        }
        piece => piece,
    }
}

impl Before for CachedBackend {
    fn behind(&self) -> &Arc<dyn LanguageBackend> {
        &self.backend
    }

    fn answer(&self, request: GenerateRequest) -> BoxFuture<'_, Result<Generation, BackendError>> {
        async move {
            let key = key_of_generate(self.backend.model(), &request);
            if let Some(Kept::Answer(deltas)) = self.known(key.as_ref()) {
                let deltas: Vec<Delta> = deltas.iter().cloned().map(again).collect();
                return Ok(Generation::new(stream::iter(deltas.into_iter().map(Ok))));
            }
            let answer = self.backend.generate(request).await?;
            Ok(match key {
                Some(key) => self.listen(key, answer),
                None => answer,
            })
        }
        .boxed()
    }

    fn weigh(&self, request: ScoreRequest) -> BoxFuture<'_, Result<Vec<Score>, BackendError>> {
        async move {
            let key = key_of_score(self.backend.model(), &request);
            if let Some(Kept::Scores(scores)) = self.known(key.as_ref()) {
                return Ok(scores.to_vec());
            }
            let scores = self.backend.score(request).await?;
            if let Some(key) = key {
                self.keep(key, Kept::Scores(scores.clone().into()));
            }
            Ok(scores)
        }
        .boxed()
    }
}
