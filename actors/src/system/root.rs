//! The root of the supervision tree: admits streams, bounds how many files run at once, and knows when all
//! have ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use media::StreamId;
use media::result::StreamState;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use thiserror::Error;
use tokio::sync::watch;

use super::Deps;
use super::stream::{StreamActor, StreamCommand};
use crate::plan::{GraphPlan, StreamPlan};

/// Why a stream was not added.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AddError {
    /// Another one runs under this name.
    #[error("stream `{0}` is already there")]
    Duplicate(StreamId),
    /// Too many wait.
    #[error("{0} streams wait already; try again later")]
    Full(usize),
    /// The process is ending.
    #[error("shutting down")]
    ShuttingDown,
}

#[derive(Debug)]
pub(crate) enum RootMessage {
    Add(Box<StreamPlan>, RpcReplyPort<Result<(), AddError>>),
    Remove(StreamId, RpcReplyPort<bool>),
    Ended {
        stream: StreamId,
        failed: Option<String>,
    },
    /// Admit nothing more; stop what runs.
    Drain,
}

/// How far everything is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Streams that run.
    pub running: usize,
    /// Files that wait for their turn.
    pub waiting: usize,
    /// Ended well.
    pub ended: usize,
    /// Failed, and why.
    pub failed: Vec<(StreamId, String)>,
}

/// Files waiting for their turn at most.
const WAITING_MAX: usize = 1_000_000;

pub(crate) struct Root {
    pub(crate) graph: Arc<GraphPlan>,
    pub(crate) deps: Arc<Deps>,
    pub(crate) progress: watch::Sender<Progress>,
}

#[derive(Default)]
pub(crate) struct Streams {
    running: BTreeMap<StreamId, (ActorRef<StreamCommand>, bool)>,
    waiting: VecDeque<StreamPlan>,
    draining: bool,
}

impl Actor for Root {
    type Msg = RootMessage;
    type State = Streams;
    type Arguments = ();

    async fn pre_start(
        &self,
        _: ActorRef<RootMessage>,
        _: (),
    ) -> Result<Streams, ActorProcessingErr> {
        Ok(Streams::default())
    }

    async fn handle(
        &self,
        myself: ActorRef<RootMessage>,
        message: RootMessage,
        streams: &mut Streams,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            RootMessage::Add(plan, reply) => {
                let answer = streams.admit(*plan);
                // Before the reply: whoever added a stream and then asks whether all have ended must see it.
                self.count(streams);
                let _ = reply.send(answer);
            }
            RootMessage::Remove(id, reply) => {
                let waiting = streams.waiting.len();
                streams.waiting.retain(|plan| plan.id != id);
                let found = match streams.running.get(&id) {
                    Some((actor, _)) => actor.cast(StreamCommand::Stop).is_ok(),
                    None => streams.waiting.len() < waiting,
                };
                let _ = reply.send(found);
            }
            RootMessage::Ended { stream, failed } => {
                // Told once, whether the stream ended or fell.
                if streams.running.remove(&stream).is_some() {
                    self.progress.send_modify(|progress| match failed {
                        Some(reason) => progress.failed.push((stream, reason)),
                        None => progress.ended += 1,
                    });
                }
            }
            RootMessage::Drain => {
                streams.draining = true;
                streams.waiting.clear();
                for (actor, _) in streams.running.values() {
                    let _ = actor.cast(StreamCommand::Stop);
                }
            }
        }
        self.start_waiting(&myself, streams).await;
        self.count(streams);
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<RootMessage>,
        event: SupervisionEvent,
        streams: &mut Streams,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(cell, error) = event {
            let fallen = streams
                .running
                .iter()
                .find(|(_, (actor, _))| actor.get_id() == cell.get_id())
                .map(|(id, _)| id.clone());
            if let Some(stream) = fallen {
                let _ = myself.cast(RootMessage::Ended { stream, failed: Some(error.to_string()) });
            }
        }
        Ok(())
    }
}

impl Root {
    fn count(&self, streams: &Streams) {
        self.progress.send_modify(|progress| {
            progress.running = streams.running.len();
            progress.waiting = streams.waiting.len();
        });
    }

    async fn start_waiting(&self, myself: &ActorRef<RootMessage>, streams: &mut Streams) {
        while let Some(at) = streams.next_to_start(self.deps.files_at_once) {
            let Some(plan) = streams.waiting.remove(at) else { return };
            let id = plan.id.clone();
            let record = self.deps.board.add(&plan);
            let paced = plan.paced;
            let stream = StreamActor {
                plan,
                graph: self.graph.clone(),
                deps: self.deps.clone(),
                record: record.clone(),
                root: myself.clone(),
            };
            match Actor::spawn_linked(None, stream, (), myself.get_cell()).await {
                Ok((actor, _)) => {
                    streams.running.insert(id, (actor, paced));
                }
                Err(error) => {
                    tracing::error!(stream = %id, %error, "stream could not start");
                    record.update(|status| {
                        status.state = StreamState::Failed;
                        status.reason = Some(error.to_string());
                    });
                    self.progress.send_modify(|p| p.failed.push((id, error.to_string())));
                }
            }
        }
    }
}

impl Streams {
    fn admit(&mut self, plan: StreamPlan) -> Result<(), AddError> {
        if self.draining {
            return Err(AddError::ShuttingDown);
        }
        if self.running.contains_key(&plan.id)
            || (self.waiting.len() < 1_000 && self.waiting.iter().any(|p| p.id == plan.id))
        {
            return Err(AddError::Duplicate(plan.id));
        }
        if self.waiting.len() >= WAITING_MAX {
            return Err(AddError::Full(self.waiting.len()));
        }
        self.waiting.push_back(plan);
        Ok(())
    }

    /// Live streams start at once; files when there is a place.
    fn next_to_start(&self, files_at_once: usize) -> Option<usize> {
        let files = self.running.values().filter(|(_, paced)| !paced).count();
        if files < files_at_once {
            return (!self.waiting.is_empty()).then_some(0);
        }
        self.waiting.iter().position(|plan| plan.paced)
    }
}
