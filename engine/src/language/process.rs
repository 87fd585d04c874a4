//! The engine in a child process, seen from the parent: started, watched, restarted, and spoken to.
//!
//! Its neighbour is `child`, the other end of the pipe. The one rule: every request ends, with an answer or a
//! typed error, whatever happens to the child.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::FutureExt;
use futures_util::stream::{Stream, StreamExt};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;

use super::backend::{
    BackendError, Delta, EngineStats, GenerateRequest, Generation, Health, ModelInfo, Score,
    ScoreRequest,
};
use super::check::check;
use super::embedded::EmbeddedConfig;
use super::supervise::supervise;
use super::wire::{FromChild, ToChild};

/// Requests on their way to the child's pipe; full: `Busy`.
const OUTBOX_MAX: usize = 256;
/// Longest answer that is accepted from a request, in tokens; bounds the queue of its pieces.
const TOKENS_MAX: u32 = 1 << 16;

/// One supervised child. Cheap to clone; the child ends with the last clone and answer.
#[derive(Clone)]
pub(super) struct EngineProcess {
    shared: Arc<Shared>,
    _supervisor: Arc<Supervisor>,
}

struct Supervisor {
    task: JoinHandle<()>,
    shared: Arc<Shared>,
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // The task owns the child with `kill_on_drop`.
        self.task.abort();
        self.shared.closed(&self.shared.gone(), self.shared.config.backoff.1);
    }
}

/// What supervisor and callers share.
pub(super) struct Shared {
    pub(super) config: EmbeddedConfig,
    state: Mutex<State>,
    health: watch::Sender<Health>,
    /// Rings when something waits to be told before anything else.
    pub(super) ahead: Notify,
}

struct State {
    pending: HashMap<u64, Pending>,
    /// Told to the child before anything else; at most one for each request that was pending, and the last word
    /// about pausing.
    ahead: Vec<ToChild>,
    is_paused: bool,
    next_id: u64,
    outbox: Option<mpsc::Sender<ToChild>>,
    /// Becomes `outbox` when the child is ready.
    loading: Option<mpsc::Sender<ToChild>>,
    stats: EngineStats,
    info: Option<Arc<ModelInfo>>,
    restarts: u32,
    retry_after: Duration,
    pid: Option<u32>,
}

enum Pending {
    Stream(mpsc::Sender<Result<Delta, BackendError>>),
    Scores(oneshot::Sender<Result<Vec<Score>, BackendError>>),
    Tokens(oneshot::Sender<Result<Vec<i32>, BackendError>>),
    Whole(oneshot::Sender<Result<String, BackendError>>),
    Pause(oneshot::Sender<()>),
}

impl Pending {
    fn fail(self, error: BackendError) {
        // A receiver that is gone wants no error.
        match self {
            Pending::Stream(to) => drop(to.try_send(Err(error))),
            Pending::Scores(to) => drop(to.send(Err(error))),
            Pending::Tokens(to) => drop(to.send(Err(error))),
            Pending::Whole(to) => drop(to.send(Err(error))),
            // A child that is gone computes nothing.
            Pending::Pause(to) => _ = to.send(()),
        }
    }
}

impl EngineProcess {
    /// Starts the child and its supervisor on the current tokio runtime. Returns before the weights are loaded.
    pub(super) fn start(config: EmbeddedConfig) -> Self {
        let (health, _) = watch::channel(Health::Loading);
        let state = State {
            pending: HashMap::new(),
            ahead: Vec::new(),
            is_paused: false,
            next_id: 1,
            outbox: None,
            loading: None,
            stats: EngineStats::default(),
            info: None,
            restarts: 0,
            retry_after: config.backoff.0,
            pid: None,
        };
        let shared =
            Arc::new(Shared { config, state: Mutex::new(state), health, ahead: Notify::new() });
        let task = tokio::spawn(supervise(Arc::clone(&shared)));
        let supervisor = Arc::new(Supervisor { task, shared: Arc::clone(&shared) });
        EngineProcess { shared, _supervisor: supervisor }
    }

    /// Waits until it takes work.
    pub(super) async fn ready(&self) {
        let mut health = self.shared.health.subscribe();
        // The sender lives in `self.shared`, so the wait can't fail.
        let _ = health.wait_for(|h| *h == Health::Ready).await;
    }

    /// Health as it changes, for whoever shows it.
    pub(super) fn watch(&self) -> watch::Receiver<Health> {
        self.shared.health.subscribe()
    }

    /// Process id of the running child.
    pub(super) fn pid(&self) -> Option<u32> {
        self.shared.lock().pid
    }

    fn submit(
        &self,
        pending: Pending,
        message: impl FnOnce(u64) -> ToChild,
    ) -> Result<CancelOnDrop, BackendError> {
        let mut state = self.shared.lock();
        let waiting = state.pending.len() as u32;
        let retry_after_ms = state.retry_after.as_millis() as u64;
        let id = state.next_id;
        let Some(outbox) = &state.outbox else {
            let detail = match &*self.shared.health.borrow() {
                Health::Down { detail } => detail.clone(),
                Health::Loading | Health::Ready => "loading".to_owned(),
            };
            return Err(BackendError::Unavailable { detail, retry_after_ms });
        };
        match outbox.try_send(message(id)) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                return Err(BackendError::Busy { waiting, retry_after_ms });
            }
            Err(mpsc::error::TrySendError::Closed(_)) => {
                let detail = "being restarted".to_owned();
                return Err(BackendError::Unavailable { detail, retry_after_ms });
            }
        }
        state.next_id += 1;
        state.pending.insert(id, pending);
        Ok(CancelOnDrop { id, process: self.clone() })
    }
}

impl EngineProcess {
    pub(super) fn generate(&self, request: GenerateRequest) -> Result<Generation, BackendError> {
        check(&request)?;
        if request.tokens_max > TOKENS_MAX {
            return Err(BackendError::TooLong { tokens: request.tokens_max, limit: TOKENS_MAX });
        }
        // A piece and its likelihoods a token, the rest of a held-back text, and the end: never full.
        let (to, from) = mpsc::channel(2 * request.tokens_max as usize + 2);
        let guard = self.submit(Pending::Stream(to), |id| ToChild::Generate { id, request })?;
        Ok(Generation::new(Guarded { stream: ReceiverStream::new(from), _guard: guard }))
    }

    pub(super) async fn score(&self, request: ScoreRequest) -> Result<Vec<Score>, BackendError> {
        self.ask(Pending::Scores, |id| ToChild::Score { id, request }).await
    }

    pub(super) async fn tokenize(
        &self,
        text: String,
        special: bool,
    ) -> Result<Vec<i32>, BackendError> {
        self.ask(Pending::Tokens, |id| ToChild::Tokenize { id, text, special }).await
    }

    pub(super) async fn detokenize(&self, tokens: Vec<i32>) -> Result<String, BackendError> {
        self.ask(Pending::Whole, |id| ToChild::Detokenize { id, tokens }).await
    }

    async fn ask<T>(
        &self,
        pending: fn(oneshot::Sender<Result<T, BackendError>>) -> Pending,
        message: impl FnOnce(u64) -> ToChild,
    ) -> Result<T, BackendError> {
        let (to, from) = oneshot::channel();
        let guard = self.submit(pending(to), message)?;
        let answer = from.await;
        answer.unwrap_or_else(|_| Err(guard.process.shared.gone()))
    }

    pub(super) fn health(&self) -> Health {
        self.shared.health.borrow().clone()
    }

    pub(super) fn stats(&self) -> EngineStats {
        let state = self.shared.lock();
        EngineStats { restarts: state.restarts, ..state.stats }
    }

    pub(super) fn info(&self) -> Option<Arc<ModelInfo>> {
        self.shared.lock().info.clone()
    }

    /// Takes effect at once; the future ends with the running step.
    pub(super) fn pause(&self) -> impl Future<Output = ()> + Send + use<> {
        let (to, from) = oneshot::channel();
        {
            let mut state = self.shared.lock();
            state.is_paused = true;
            if state.outbox.is_some() {
                let id = state.next_id;
                state.next_id += 1;
                state.pending.insert(id, Pending::Pause(to));
                state.ahead.push(ToChild::Pause { id });
            }
        }
        self.shared.ahead.notify_one();
        // Without a child the sender is gone, and nothing is to wait for.
        from.map(|_| ())
    }

    pub(super) fn resume(&self) {
        let mut state = self.shared.lock();
        if std::mem::take(&mut state.is_paused) && state.outbox.is_some() {
            state.ahead.push(ToChild::Resume);
            drop(state);
            self.shared.ahead.notify_one();
        }
    }

    pub(super) fn drop_caches(&self) {
        let mut state = self.shared.lock();
        if state.outbox.is_some() {
            state.ahead.push(ToChild::DropCaches { id: 0 });
            drop(state);
            self.shared.ahead.notify_one();
        }
    }

    pub(super) fn downgrade(&self) -> WeakProcess {
        WeakProcess {
            shared: Arc::downgrade(&self.shared),
            supervisor: Arc::downgrade(&self._supervisor),
        }
    }
}

/// A process that nobody is kept alive by.
pub(super) struct WeakProcess {
    shared: Weak<Shared>,
    supervisor: Weak<Supervisor>,
}

impl WeakProcess {
    pub(super) fn is_alive(&self) -> bool {
        self.supervisor.strong_count() > 0
    }

    pub(super) fn upgrade(&self) -> Option<EngineProcess> {
        let (shared, _supervisor) = (self.shared.upgrade()?, self.supervisor.upgrade()?);
        Some(EngineProcess { shared, _supervisor })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gone(&self) -> BackendError {
        BackendError::Died { detail: "its supervisor was stopped".into() }
    }

    /// A child was started; gives the requests for it. Callers are told to wait until it says `Ready`.
    pub(super) fn opened(&self, pid: Option<u32>) -> mpsc::Receiver<ToChild> {
        let (to, from) = mpsc::channel(OUTBOX_MAX);
        let mut state = self.lock();
        state.pid = pid;
        state.loading = Some(to);
        drop(state);
        self.health.send_replace(Health::Loading);
        from
    }

    /// The child is gone: pending requests fail with `error`, new ones are told to wait.
    pub(super) fn closed(&self, error: &BackendError, retry_after: Duration) {
        let mut state = self.lock();
        state.outbox = None;
        state.loading = None;
        state.pid = None;
        state.ahead.clear();
        state.retry_after = retry_after;
        state.restarts = state.restarts.saturating_add(1);
        state.stats = EngineStats { cells: state.stats.cells, ..EngineStats::default() };
        let pending = std::mem::take(&mut state.pending);
        drop(state);
        self.health.send_replace(Health::Down { detail: error.to_string() });
        for (_, request) in pending {
            request.fail(error.clone());
        }
    }

    /// Whether somebody still waits for this message's answer.
    pub(super) fn is_wanted(&self, message: &ToChild) -> bool {
        match message {
            ToChild::Generate { id, .. }
            | ToChild::Score { id, .. }
            | ToChild::Tokenize { id, .. }
            | ToChild::Detokenize { id, .. } => self.lock().pending.contains_key(id),
            ToChild::Cancel { .. }
            | ToChild::Pause { .. }
            | ToChild::Resume
            | ToChild::DropCaches { .. }
            | ToChild::Health { .. } => true,
        }
    }

    /// What goes before anything else, since the last call.
    pub(super) fn take_ahead(&self) -> Vec<ToChild> {
        std::mem::take(&mut self.lock().ahead)
    }

    /// Age of the running step, as last heard.
    pub(super) fn step_age(&self) -> Duration {
        Duration::from_millis(self.lock().stats.step_age_ms)
    }

    /// Asks how it is; false when not even that can be sent.
    pub(super) fn ask_health(&self) -> bool {
        let state = self.lock();
        let outbox = state.outbox.as_ref();
        outbox.is_some_and(|to| to.try_send(ToChild::Health { id: 0 }).is_ok())
    }

    /// Brings an answer to whoever waits for it; whether it was a sign of health.
    pub(super) fn dispatch(&self, message: FromChild) -> bool {
        let mut state = self.lock();
        match message {
            FromChild::Ready { model, info } => {
                let context_tokens_max = info.context_tokens_max;
                tracing::debug!(model, context_tokens_max, "language engine is ready");
                state.info = Some(Arc::new(info));
                state.outbox = state.loading.take();
                if state.is_paused {
                    // Nobody waits for the answer: whoever paused the one before has gone on.
                    state.ahead.push(ToChild::Pause { id: 0 });
                    self.ahead.notify_one();
                }
                drop(state);
                self.health.send_replace(Health::Ready);
                return true;
            }
            FromChild::Health { stats, .. } => {
                state.stats = stats;
                return true;
            }
            FromChild::Text { id, text } => {
                if let Some(Pending::Stream(to)) = state.pending.get(&id) {
                    // Room for every piece was made with the request.
                    drop(to.try_send(Ok(Delta::Text(text))));
                }
            }
            FromChild::Paused { id } => {
                if let Some(Pending::Pause(to)) = state.pending.remove(&id) {
                    let _ = to.send(());
                }
            }
            FromChild::Logprobs { id, tokens } => {
                if let Some(Pending::Stream(to)) = state.pending.get(&id) {
                    drop(to.try_send(Ok(Delta::Logprobs(tokens))));
                }
            }
            FromChild::Whole { id, text } => {
                if let Some(Pending::Whole(to)) = state.pending.remove(&id) {
                    drop(to.send(Ok(text)));
                }
            }
            FromChild::End { id, finish, usage } => {
                if let Some(Pending::Stream(to)) = state.pending.remove(&id) {
                    drop(to.try_send(Ok(Delta::End { finish, usage })));
                }
            }
            FromChild::Scores { id, scores, .. } => {
                if let Some(Pending::Scores(to)) = state.pending.remove(&id) {
                    drop(to.send(Ok(scores)));
                }
            }
            FromChild::Tokens { id, tokens } => {
                if let Some(Pending::Tokens(to)) = state.pending.remove(&id) {
                    drop(to.send(Ok(tokens)));
                }
            }
            FromChild::Error { id: Some(id), error } => {
                if let Some(request) = state.pending.remove(&id) {
                    request.fail(error);
                }
            }
            FromChild::Error { id: None, error } => {
                tracing::warn!(%error, "language engine could not read a request");
            }
        }
        false
    }
}

/// Tells the child that nobody waits any more, unless the answer has come.
struct CancelOnDrop {
    id: u64,
    /// A child that was replaced lives on until its last answer.
    process: EngineProcess,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let shared = &self.process.shared;
        let mut state = shared.lock();
        if state.pending.remove(&self.id).is_some() && state.outbox.is_some() {
            state.ahead.push(ToChild::Cancel { id: self.id });
            drop(state);
            shared.ahead.notify_one();
        }
    }
}

/// A stream and what ends with it.
struct Guarded<S> {
    stream: S,
    _guard: CancelOnDrop,
}

impl<S: Stream + Unpin> Stream for Guarded<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.stream.poll_next_unpin(cx)
    }
}
