//! The running system: one root, one supervision tree per stream, and the handle that the outside holds.

mod board;
mod root;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::compute::Compute;
use futures_util::future::BoxFuture;
use media::result::{FusedResult, StreamMessage};
use media::{Clock, Opener, StreamId};
use ractor::{Actor, ActorRef, SpawnErr};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) use board::Record;
pub use board::{Board, EdgeStatus, StreamStatus};
pub use root::{AddError, Progress};
pub(crate) use stream::Spawner;

use crate::fusion::{Alerts, Taxonomy};
use crate::hub::Hub;
use crate::models::ModelSet;
use crate::plan::{GraphPlan, StreamPlan};
use root::{Root, RootMessage};

/// Takes every result without loss, besides subscribers, who may lag.
pub trait ResultSink: Send + Sync + 'static {
    /// A result as it was published. A file's stream waits for it; for a paced one it must not wait long.
    fn result<'a>(&'a self, result: &'a FusedResult, json: Bytes, paced: bool)
    -> BoxFuture<'a, ()>;

    /// A stream was answered to its end, or failed.
    fn ended<'a>(&'a self, message: &'a StreamMessage) -> BoxFuture<'a, ()>;
}

/// The outside world of the actors, in one place.
pub struct Deps {
    /// Where time is read.
    pub clock: Arc<dyn Clock>,
    /// Opens sources.
    pub opener: Arc<dyn Opener>,
    /// Leases compute.
    pub compute: Compute,
    /// Answers questions.
    pub models: ModelSet,
    /// Takes results to subscribers.
    pub hub: Hub,
    /// Takes results to a file or a summary.
    pub sink: Option<Arc<dyn ResultSink>>,
    /// What is known of every stream.
    pub board: Arc<Board>,
    /// Labels of all modalities and how they are pooled.
    pub taxonomy: Arc<Taxonomy>,
    /// Compiled rules of the `fuse` stage.
    pub alerts: Arc<Alerts>,
    /// Files processed at the same time; more wait.
    pub files_at_once: usize,
}

/// Handle of the running actors.
pub struct System {
    root: ActorRef<RootMessage>,
    joined: JoinHandle<()>,
    progress: watch::Receiver<Progress>,
    deps: Arc<Deps>,
}

impl System {
    /// Starts the root; streams are added afterwards.
    ///
    /// # Errors
    /// When the root can't be spawned.
    pub async fn start(graph: GraphPlan, deps: Deps) -> Result<System, SpawnErr> {
        let deps = Arc::new(deps);
        let (sender, progress) = watch::channel(Progress::default());
        let root = Root { graph: Arc::new(graph), deps: deps.clone(), progress: sender };
        let (root, joined) = Actor::spawn(None, root, ()).await?;
        Ok(System { root, joined, progress, deps })
    }

    /// Adds a stream; it starts at once when live, in its turn when a file.
    ///
    /// # Errors
    /// [`AddError`]
    pub async fn add(&self, plan: StreamPlan) -> Result<(), AddError> {
        ractor::call!(self.root, |reply| RootMessage::Add(Box::new(plan), reply))
            .unwrap_or(Err(AddError::ShuttingDown))
    }

    /// Ends a stream: reads no further and answers what was read. False when there is none of this name.
    pub async fn remove(&self, id: &StreamId) -> bool {
        ractor::call!(self.root, RootMessage::Remove, id.clone()).unwrap_or(false)
    }

    /// How far everything is, now and whenever it changes.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Every stream that is known.
    pub fn board(&self) -> Arc<Board> {
        self.deps.board.clone()
    }

    /// Waits until every stream added so far has ended.
    pub async fn all_ended(&self) -> Progress {
        let mut progress = self.progress.clone();
        let ended = progress.wait_for(|p| p.running == 0 && p.waiting == 0).await;
        ended.map(|p| p.clone()).unwrap_or_default()
    }

    /// Admits nothing more, stops reading, answers what was read, within `limit`; then stops everything.
    pub async fn drain(self, limit: Duration) -> Progress {
        let _ = self.root.cast(RootMessage::Drain);
        // What is not answered by then is cut off; the ledger still shows it as open.
        let _ = tokio::time::timeout(limit, self.all_ended()).await;
        self.root.stop(None);
        let _ = tokio::time::timeout(Duration::from_secs(1), self.joined).await;
        self.progress.borrow().clone()
    }
}
