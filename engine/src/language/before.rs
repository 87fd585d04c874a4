//! Backends that stand before another one and change how it is asked, not what it is.
//!
//! Its one rule: whatever is not about asking goes to the backend behind, or to all of them where it stops and starts
//! computing.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt, join_all};

use super::backend::{
    BackendError, EngineStats, GenerateRequest, Generation, Health, LanguageBackend, ModelInfo,
    Score, ScoreRequest,
};

/// What such a backend says of itself; the rest of [`LanguageBackend`] follows.
pub trait Before: Send + Sync + 'static {
    /// The backend that it passes for.
    fn behind(&self) -> &Arc<dyn LanguageBackend>;

    /// Those that compute for it besides.
    fn beside(&self) -> Option<&Arc<dyn LanguageBackend>> {
        None
    }

    /// As [`LanguageBackend::generate`].
    fn answer(&self, request: GenerateRequest) -> BoxFuture<'_, Result<Generation, BackendError>>;

    /// As [`LanguageBackend::score`].
    fn weigh(&self, request: ScoreRequest) -> BoxFuture<'_, Result<Vec<Score>, BackendError>>;
}

impl<T: Before> LanguageBackend for T {
    fn name(&self) -> &str {
        self.behind().name()
    }

    fn model(&self) -> &str {
        self.behind().model()
    }

    fn generate(
        &self,
        request: GenerateRequest,
    ) -> BoxFuture<'_, Result<Generation, BackendError>> {
        self.answer(request)
    }

    fn score(&self, request: ScoreRequest) -> BoxFuture<'_, Result<Vec<Score>, BackendError>> {
        self.weigh(request)
    }

    fn health(&self) -> Health {
        self.behind().health()
    }

    fn stats(&self) -> EngineStats {
        self.behind().stats()
    }

    fn pause(&self) -> BoxFuture<'_, ()> {
        let all = [Some(self.behind()), self.beside()].into_iter().flatten();
        // Asked at once, then awaited: none computes on while another comes to its step's end.
        let pauses: Vec<_> = all.map(|backend| backend.pause()).collect();
        join_all(pauses).map(|_| ()).boxed()
    }

    fn resume(&self) {
        [Some(self.behind()), self.beside()].into_iter().flatten().for_each(|b| b.resume());
    }

    fn open(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        self.behind().open()
    }

    fn info(&self) -> Option<Arc<ModelInfo>> {
        self.behind().info()
    }

    fn tokenize(
        &self,
        text: String,
        special: bool,
    ) -> BoxFuture<'_, Result<Vec<i32>, BackendError>> {
        self.behind().tokenize(text, special)
    }

    fn detokenize(&self, tokens: Vec<i32>) -> BoxFuture<'_, Result<String, BackendError>> {
        self.behind().detokenize(tokens)
    }
}
