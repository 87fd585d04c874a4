//! Several language models, of which as many are in memory as may be: loaded when asked for, and ahead of that when what
//! was asked before tells what comes next.
//!
//! Its neighbours are `resident`, which decides, and `embedded`, one model in memory. The one rule: who waits for a model
//! waits no longer than its load time after there is room.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use metrics::{counter, gauge};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::backend::{
    BackendError, EngineStats, GenerateRequest, Generation, Health, LanguageBackend, ModelInfo,
    Score, ScoreRequest,
};
use super::embedded::{EmbeddedBackend, EmbeddedConfig};
use super::resident::{Index, Plan, Residents};

/// Most models that a pool knows.
pub const MODELS_MAX: usize = 32;
/// When to come again for a model that could not be loaded.
const RETRY_AFTER_MS: u64 = 1000;

/// A model that the pool knows.
#[derive(Clone, Debug)]
pub struct PoolModel {
    /// How it is started.
    pub config: EmbeddedConfig,
    /// What it takes in memory: weights, cells, buffers.
    pub mb: u64,
}

/// Known models behind one limit of memory. Cheap to clone.
#[derive(Clone)]
pub struct ModelPool(Arc<Shared>);

struct Shared {
    models: Vec<PoolModel>,
    loads_ahead: bool,
    state: Mutex<State>,
    /// Rings when somebody has left a model.
    left: Notify,
}

struct State {
    residents: Residents,
    engines: Vec<Option<EmbeddedBackend>>,
    /// As last told by each.
    infos: Vec<Option<Arc<ModelInfo>>>,
}

/// How often the pool guessed what comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Guesses that a request has come after.
    pub predictions: u64,
    /// Of these, those that were right.
    pub predictions_right: u64,
    /// Memory of the models that are loaded.
    pub resident_mb: u64,
}

/// Keeps a model in memory while it is used.
struct InUse {
    shared: Arc<Shared>,
    index: Index,
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.shared.lock().residents.leave(self.index);
        self.shared.left.notify_waiters();
    }
}

impl ModelPool {
    /// Models that may take `mb_max` together; `loads_ahead`: whether the next one is guessed.
    ///
    /// # Errors
    /// More models than [`MODELS_MAX`], or none.
    pub fn new(models: Vec<PoolModel>, mb_max: u64, loads_ahead: bool) -> Result<Self, String> {
        let count = models.len();
        if !(1..=MODELS_MAX).contains(&count) {
            return Err(format!("{count} language models, expected 1 to {MODELS_MAX}"));
        }
        let sizes: Vec<u64> = models.iter().map(|m| m.mb).collect();
        let state = State {
            residents: Residents::new(&sizes, mb_max),
            engines: vec![None; count],
            infos: vec![None; count],
        };
        let (state, left) = (Mutex::new(state), Notify::new());
        Ok(ModelPool(Arc::new(Shared { models, loads_ahead, state, left })))
    }

    /// Each known model as a backend.
    pub fn backends(&self) -> Vec<PooledBackend> {
        let backend = |index| PooledBackend { shared: self.0.clone(), index };
        (0..self.0.models.len()).map(backend).collect()
    }

    /// Figures at this instant.
    pub fn stats(&self) -> PoolStats {
        let state = self.0.lock();
        let Residents { predictions, predictions_right, .. } = state.residents;
        PoolStats { predictions, predictions_right, resident_mb: state.residents.mb() }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A loaded model, and what keeps it there.
    async fn enter(
        self: &Arc<Self>,
        index: Index,
    ) -> Result<(EmbeddedBackend, InUse), BackendError> {
        self.lock().residents.asked(index);
        loop {
            let left = self.left.notified();
            tokio::pin!(left);
            left.as_mut().enable();
            if let Some((engine, in_use)) = self.start(index)? {
                let limit = self.models.get(index).map_or_else(Default::default, |m| m.config.load);
                if timeout(limit, engine.ready()).await.is_err() {
                    return Err(self.unavailable(index, "its weights were not loaded in time"));
                }
                self.lock().infos[index] = engine.info();
                self.load_ahead();
                return Ok((engine, in_use));
            }
            left.await;
        }
    }

    /// The model, loading if it is not there; none while there is no room.
    fn start(
        self: &Arc<Self>,
        index: Index,
    ) -> Result<Option<(EmbeddedBackend, InUse)>, BackendError> {
        let mut state = self.lock();
        match state.residents.plan(index) {
            Plan::Use => {}
            Plan::Load(gone) => self.load(&mut state, index, gone),
            Plan::Wait => return Ok(None),
            Plan::TooLarge => {
                drop(state);
                return Err(self.unavailable(index, "it is larger than the memory for models"));
            }
        }
        let Some(engine) = state.engines.get(index).cloned().flatten() else {
            drop(state);
            return Err(self.unavailable(index, "no such model"));
        };
        state.residents.enter(index);
        Ok(Some((engine, InUse { shared: self.clone(), index })))
    }

    fn load(&self, state: &mut State, index: Index, gone: Vec<Index>) {
        let Some(model) = self.models.get(index) else { return };
        for old in gone {
            // Its process ends here: nobody uses it.
            state.engines[old] = None;
            state.residents.let_go(old);
            counter!(crate::events::MODELS_LET_GO).increment(1);
        }
        state.engines[index] = Some(EmbeddedBackend::start(model.config.clone()));
        state.residents.loaded(index);
        counter!(crate::events::MODELS_LOADED).increment(1);
        gauge!(crate::events::MODELS_MB).set(state.residents.mb() as f64);
    }

    /// Loads the model that probably comes next, where that costs nobody who is in use.
    fn load_ahead(&self) {
        if !self.loads_ahead {
            return;
        }
        let mut state = self.lock();
        if let Some((next, gone)) = state.residents.ahead() {
            self.load(&mut state, next, gone);
        }
    }

    fn unavailable(&self, index: Index, detail: &str) -> BackendError {
        let name = self.models.get(index).map_or("?", |m| m.config.model.as_str());
        let detail = format!("model `{name}`: {detail}");
        BackendError::Unavailable { detail, retry_after_ms: RETRY_AFTER_MS }
    }
}

/// One model of a pool; asking it loads it.
#[derive(Clone)]
pub struct PooledBackend {
    shared: Arc<Shared>,
    index: Index,
}

impl PooledBackend {
    /// Whether it is in memory, or on its way there.
    pub fn is_loaded(&self) -> bool {
        self.loaded().is_some()
    }

    fn loaded(&self) -> Option<EmbeddedBackend> {
        self.shared.lock().engines.get(self.index).cloned().flatten()
    }
}

impl LanguageBackend for PooledBackend {
    fn name(&self) -> &str {
        "embedded"
    }

    fn model(&self) -> &str {
        self.shared.models.get(self.index).map_or("", |m| m.config.model.as_str())
    }

    fn generate(
        &self,
        request: GenerateRequest,
    ) -> BoxFuture<'_, Result<Generation, BackendError>> {
        async move {
            let (engine, in_use) = self.shared.enter(self.index).await?;
            let answer = engine.generate(request).await?;
            Ok(Generation::new(answer.map(move |delta| {
                let _ = &in_use;
                delta
            })))
        }
        .boxed()
    }

    fn score(&self, request: ScoreRequest) -> BoxFuture<'_, Result<Vec<Score>, BackendError>> {
        async move {
            let (engine, _in_use) = self.shared.enter(self.index).await?;
            engine.score(request).await
        }
        .boxed()
    }

    /// Ready also while it is not in memory, since asking loads it.
    fn health(&self) -> Health {
        self.loaded().map_or(Health::Ready, |engine| engine.health())
    }

    fn stats(&self) -> EngineStats {
        self.loaded().map_or_else(EngineStats::default, |engine| engine.stats())
    }

    fn pause(&self) -> BoxFuture<'_, ()> {
        match self.loaded() {
            Some(engine) => async move { engine.pause().await }.boxed(),
            None => std::future::ready(()).boxed(),
        }
    }

    fn resume(&self) {
        if let Some(engine) = self.loaded() {
            engine.resume();
        }
    }

    fn open(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        async move {
            if self.info().is_none() {
                self.shared.enter(self.index).await?;
            }
            Ok(())
        }
        .boxed()
    }

    fn info(&self) -> Option<Arc<ModelInfo>> {
        self.shared.lock().infos.get(self.index).cloned().flatten()
    }

    fn tokenize(
        &self,
        text: String,
        special: bool,
    ) -> BoxFuture<'_, Result<Vec<i32>, BackendError>> {
        async move {
            let (engine, _in_use) = self.shared.enter(self.index).await?;
            engine.tokenize(text, special).await
        }
        .boxed()
    }

    fn detokenize(&self, tokens: Vec<i32>) -> BoxFuture<'_, Result<String, BackendError>> {
        async move {
            let (engine, _in_use) = self.shared.enter(self.index).await?;
            engine.detokenize(tokens).await
        }
        .boxed()
    }
}
