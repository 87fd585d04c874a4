//! The embedded engine: a child process, replaced by a fresh one when it has grown or lived long.
//!
//! Its neighbour is `process`, one child with its supervisor. The one rule: a replacement costs no request; those under way
//! are answered by the child that took them, which ends after the last.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join_all};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::backend::{
    BackendError, EngineStats, GenerateRequest, Generation, Health, LanguageBackend, ModelInfo,
    Score, ScoreRequest,
};
use super::child::ChildArgs;
use super::process::{EngineProcess, WeakProcess};

/// Time between two looks at a child's age and size.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Waits after a replacement that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(60);

/// How the child is started and watched.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddedConfig {
    /// The binary.
    pub program: PathBuf,
    /// What goes before the engine's own arguments, such as the subcommand.
    pub program_args: Vec<OsString>,
    /// The engine's own arguments.
    pub child: ChildArgs,
    /// Name of the model in answers.
    pub model: String,
    /// Waits before a restart: doubled from the first to the last while the child keeps ending early.
    pub backoff: (Duration, Duration),
    /// A child that answers no health question, or computes one step, for longer than this is killed.
    pub hang: Duration,
    /// A child that has not loaded its weights after this is killed.
    pub load: Duration,
    /// When a child is replaced by a fresh one.
    pub recycle: Recycle,
    /// Idle time after which computed beginnings are forgotten; none: they stay.
    pub idle_max: Option<Duration>,
}

/// When a child is replaced though nothing is wrong with it. The fresh one is loaded beside it; requests under way end
/// where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recycle {
    /// It has lived so long.
    pub age: Duration,
    /// It has grown by so much resident memory since it was loaded, pool and buffers included.
    pub growth_mb: u32,
}

impl Default for Recycle {
    fn default() -> Self {
        Recycle { age: Duration::from_secs(24 * 3600), growth_mb: 1024 }
    }
}

impl EmbeddedConfig {
    /// Restarts after 50 ms to 5 s; hung after 20 s; loads within 60 s; replaced after a day.
    pub fn new(
        program: PathBuf,
        program_args: Vec<OsString>,
        child: ChildArgs,
        model: String,
    ) -> Self {
        EmbeddedConfig {
            program,
            program_args,
            child,
            model,
            backoff: (Duration::from_millis(50), Duration::from_secs(5)),
            hang: Duration::from_secs(20),
            load: Duration::from_secs(60),
            recycle: Recycle::default(),
            idle_max: None,
        }
    }
}

/// The embedded engine. Cheap to clone; its children end with the last clone and answer.
#[derive(Clone)]
pub struct EmbeddedBackend {
    shared: Arc<Shared>,
    _watcher: Arc<Watcher>,
}

struct Shared {
    config: EmbeddedConfig,
    children: Mutex<Children>,
    health: watch::Sender<Health>,
    recycled: AtomicU32,
}

struct Children {
    current: EngineProcess,
    /// Replaced ones that may still answer.
    leaving: Vec<WeakProcess>,
    is_paused: bool,
}

struct Watcher(JoinHandle<()>);

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl EmbeddedBackend {
    /// Starts the child and its supervisor on the current tokio runtime. Returns before the weights are loaded.
    pub fn start(config: EmbeddedConfig) -> Self {
        let current = EngineProcess::start(config.clone());
        let children = Children { current, leaving: Vec::new(), is_paused: false };
        let shared = Arc::new(Shared {
            config,
            children: Mutex::new(children),
            health: watch::channel(Health::Loading).0,
            recycled: AtomicU32::new(0),
        });
        let watcher = tokio::spawn(watch_over(shared.clone()));
        EmbeddedBackend { shared, _watcher: Arc::new(Watcher(watcher)) }
    }

    /// Waits until it takes work.
    pub async fn ready(&self) {
        let current = self.current();
        current.ready().await;
    }

    /// Health as it changes, for whoever shows it.
    pub fn watch(&self) -> watch::Receiver<Health> {
        self.shared.health.subscribe()
    }

    /// Process id of the child that takes new requests, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.current().pid()
    }

    /// Lets the child forget computed beginnings that no request needs. Nothing happens when there is no child that
    /// takes work.
    pub fn drop_caches(&self) {
        self.current().drop_caches();
    }

    fn current(&self) -> EngineProcess {
        self.shared.lock().current.clone()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Children> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads a fresh child beside the current one and lets it take over. False when it can't be loaded.
    async fn replace(&self) -> bool {
        let fresh = EngineProcess::start(self.config.clone());
        if timeout(self.config.load, fresh.ready()).await.is_err() {
            return false;
        }
        let mut children = self.lock();
        if children.is_paused {
            // The call takes effect at once; its answer says when the last step has ended, and there is none yet.
            drop(fresh.pause());
        }
        let old = std::mem::replace(&mut children.current, fresh);
        children.leaving.retain(WeakProcess::is_alive);
        children.leaving.push(old.downgrade());
        self.recycled.fetch_add(1, Ordering::Relaxed);
        true
    }
}

/// Tells of the current child's health, and replaces it when it is due.
async fn watch_over(shared: Arc<Shared>) {
    let Recycle { age, growth_mb } = shared.config.recycle;
    loop {
        let mut heard = shared.lock().current.watch();
        let (mut since, mut loaded_mb) = (Instant::now(), None);
        let (mut not_before, mut idle_since) = (Instant::now(), Instant::now());
        let reason = loop {
            let health = heard.borrow_and_update().clone();
            if health != Health::Ready {
                // A child that was restarted is a fresh one.
                (since, loaded_mb) = (Instant::now(), None);
            }
            shared.health.send_if_modified(|told| {
                let is_news = *told != health;
                *told = health;
                is_news
            });
            tokio::select! {
                changed = heard.changed() => if changed.is_err() { return },
                () = sleep(LOOK_EVERY) => {}
            }
            let stats = shared.lock().current.stats();
            if (stats.running, stats.waiting) != (0, 0) || stats.cells_used == 0 {
                idle_since = Instant::now();
            } else if shared.config.idle_max.is_some_and(|max| idle_since.elapsed() >= max) {
                shared.lock().current.drop_caches();
            }
            let resident_mb = stats.resident_mb;
            let first_mb = *loaded_mb.get_or_insert(resident_mb);
            if first_mb == 0 {
                loaded_mb = None;
                continue;
            }
            let grown_mb = resident_mb.saturating_sub(first_mb);
            if Instant::now() < not_before {
                continue;
            }
            let due = match (grown_mb >= growth_mb, since.elapsed() >= age) {
                (true, _) => format!("grown by {grown_mb} MB"),
                (false, true) => format!("{} s old", since.elapsed().as_secs()),
                (false, false) => continue,
            };
            if shared.replace().await {
                break due;
            }
            tracing::warn!(due, "language engine could not be replaced; the old one goes on");
            not_before = Instant::now() + AFTER_FAILURE;
        };
        metrics::counter!(crate::events::RECYCLED).increment(1);
        tracing::info!(reason, "language engine was replaced by a fresh one");
    }
}

impl LanguageBackend for EmbeddedBackend {
    fn name(&self) -> &str {
        "embedded"
    }

    fn model(&self) -> &str {
        &self.shared.config.model
    }

    fn generate(
        &self,
        request: GenerateRequest,
    ) -> BoxFuture<'_, Result<Generation, BackendError>> {
        std::future::ready(self.current().generate(request)).boxed()
    }

    fn score(&self, request: ScoreRequest) -> BoxFuture<'_, Result<Vec<Score>, BackendError>> {
        let current = self.current();
        async move { current.score(request).await }.boxed()
    }

    fn health(&self) -> Health {
        self.current().health()
    }

    fn stats(&self) -> EngineStats {
        let stats = self.current().stats();
        EngineStats { recycled: self.shared.recycled.load(Ordering::Relaxed), ..stats }
    }

    fn pause(&self) -> BoxFuture<'_, ()> {
        let mut children = self.shared.lock();
        children.is_paused = true;
        let leaving = children.leaving.iter().filter_map(WeakProcess::upgrade);
        let all: Vec<_> = leaving.chain([children.current.clone()]).collect();
        let pauses = all.iter().map(EngineProcess::pause).collect::<Vec<_>>();
        join_all(pauses).map(|_| ()).boxed()
    }

    fn resume(&self) {
        let mut children = self.shared.lock();
        children.is_paused = false;
        let leaving = children.leaving.iter().filter_map(WeakProcess::upgrade);
        leaving.chain([children.current.clone()]).for_each(|child| child.resume());
    }

    fn info(&self) -> Option<Arc<ModelInfo>> {
        self.current().info()
    }

    fn tokenize(
        &self,
        text: String,
        special: bool,
    ) -> BoxFuture<'_, Result<Vec<i32>, BackendError>> {
        let current = self.current();
        async move { current.tokenize(text, special).await }.boxed()
    }

    fn detokenize(&self, tokens: Vec<i32>) -> BoxFuture<'_, Result<String, BackendError>> {
        let current = self.current();
        async move { current.detokenize(tokens).await }.boxed()
    }
}
