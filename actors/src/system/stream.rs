//! One stream's supervision tree: builds its ports and stages, sink first, and restarts what falls.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use media::{Mono, StageId};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};

use super::Deps;
use super::board::{Edge, Record};
use super::root::RootMessage;
use crate::fusion_actor::{FusionActor, FusionMessage};
use crate::plan::{GraphPlan, Input, StageIndex, StreamPlan};
use crate::port::{Doorbell, Policy, Port, Wakes};
use crate::source::{SourceActor, SourceMessage, SourcePorts};
use crate::stage::{Seat, StageIo};
use crate::stages;

/// Commands of a stream.
#[derive(Debug)]
pub(crate) enum StreamCommand {
    /// Start a stage that fell and whose delay has passed.
    Restart(usize),
    /// Read no further, answer what was read, end.
    Stop,
}

/// Starts one child, linked to its supervisor.
pub(crate) type Spawner =
    Arc<dyn Fn(ActorCell) -> BoxFuture<'static, Result<ActorCell, SpawnErr>> + Send + Sync>;

/// Restarts allowed in [`RESTART_SPAN`]; one more and the stage is given up.
const RESTARTS_MAX: usize = 5;
const RESTART_SPAN: Duration = Duration::from_secs(60);

struct Child {
    index: StageIndex,
    stage: StageId,
    io: StageIo,
    spawn: Spawner,
    cell: Option<ActorCell>,
    fell: VecDeque<Mono>,
    given_up: bool,
}

/// Supervises one stream.
pub(crate) struct StreamActor {
    pub(crate) plan: StreamPlan,
    pub(crate) graph: Arc<GraphPlan>,
    pub(crate) deps: Arc<Deps>,
    pub(crate) record: Arc<Record>,
    pub(crate) root: ActorRef<RootMessage>,
}

pub(crate) struct StreamTree {
    children: Vec<Child>,
    fusion: ActorRef<FusionMessage>,
    source: ActorRef<SourceMessage>,
    failed: Option<String>,
}

impl Actor for StreamActor {
    type Msg = StreamCommand;
    type State = StreamTree;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<StreamCommand>,
        _: (),
    ) -> Result<StreamTree, ActorProcessingErr> {
        let wiring = Wiring::new(&self.plan, &self.graph, &self.deps);
        self.record.set_edges(wiring.edges());
        let supervisor = myself.get_cell();
        let fuse = self.graph.fuse().ok_or("a graph without `fuse`")?;
        let (fusion, _) = Actor::spawn_linked(
            None,
            FusionActor {
                io: wiring.ios[fuse].clone(),
                plan: self.plan.clone(),
                graph: self.graph.clone(),
                deps: self.deps.clone(),
                record: self.record.clone(),
                source: wiring.source_bell.clone(),
            },
            (),
            supervisor.clone(),
        )
        .await?;
        let mut children = Vec::new();
        for (at, (stage, io)) in self.graph.stages.iter().zip(&wiring.ios).enumerate().rev() {
            let Some(spawn) = stages::spawner(&stage.settings, io, &self.plan, &self.deps)? else {
                continue;
            };
            let cell = Some(spawn(supervisor.clone()).await?);
            children.push(Child {
                index: StageIndex(at),
                stage: stage.id.clone(),
                io: io.clone(),
                spawn,
                cell,
                fell: VecDeque::new(),
                given_up: false,
            });
        }
        let (source, _) = Actor::spawn_linked(
            None,
            SourceActor {
                plan: self.plan.clone(),
                graph: self.graph.clone(),
                deps: self.deps.clone(),
                ports: wiring.source,
                doorbell: wiring.source_bell,
                fusion: fusion.clone(),
                record: self.record.clone(),
            },
            (),
            supervisor,
        )
        .await?;
        Ok(StreamTree { children, fusion, source, failed: None })
    }

    async fn handle(
        &self,
        myself: ActorRef<StreamCommand>,
        command: StreamCommand,
        tree: &mut StreamTree,
    ) -> Result<(), ActorProcessingErr> {
        match command {
            StreamCommand::Restart(at) => {
                let child = &mut tree.children[at];
                child.cell = Some((child.spawn)(myself.get_cell()).await?);
                tree.fusion.cast(FusionMessage::StageBack(child.index))?;
            }
            StreamCommand::Stop => tree.source.cast(SourceMessage::Stop)?,
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<StreamCommand>,
        event: SupervisionEvent,
        tree: &mut StreamTree,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(cell, error) => {
                let id = cell.get_id();
                if let Some(at) = tree
                    .children
                    .iter()
                    .position(|c| c.cell.as_ref().is_some_and(|c| c.get_id() == id))
                {
                    self.stage_fell(&myself, tree, at, &error).await?;
                } else {
                    // Source and fusion hold what the windows hang on: without them the stream is over.
                    tracing::error!(stream = %self.plan.id, %error, "stream failed");
                    tree.failed = Some(error.to_string());
                    self.finish(&myself, tree).await;
                }
            }
            SupervisionEvent::ActorTerminated(cell, _, reason)
                if cell.get_id() == tree.fusion.get_id() =>
            {
                // Fusion ends last: everything was answered.
                if let Some(reason) = reason.filter(|r| r != FusionActor::ENDED) {
                    tree.failed = Some(reason);
                }
                self.finish(&myself, tree).await;
            }
            _ => {}
        }
        Ok(())
    }
}

impl StreamActor {
    async fn stage_fell(
        &self,
        myself: &ActorRef<StreamCommand>,
        tree: &mut StreamTree,
        at: usize,
        error: &ActorProcessingErr,
    ) -> Result<(), ActorProcessingErr> {
        let now = self.deps.clock.now();
        let child = &mut tree.children[at];
        child.cell = None;
        if self.plan.paced {
            // Nothing waits for it meanwhile; a file has the time.
            tree.fusion.cast(FusionMessage::StageGone(child.index))?;
        }
        child.fell.retain(|fell| now.since(*fell) < RESTART_SPAN);
        child.fell.push_back(now);
        let count = child.fell.len();
        metrics::counter!("pipeline_stage_restarts_total", "stage" => child.stage.to_string())
            .increment(1);
        if count <= RESTARTS_MAX {
            let delay = Duration::from_millis(50 << (count - 1).min(6));
            tracing::warn!(stream = %self.plan.id, stage = %child.stage, %error, ?delay, "stage fell; restarting");
            myself.send_after(delay, move || StreamCommand::Restart(at));
            return Ok(());
        }
        if child.given_up {
            return Err(format!("stage `{}` can't even be left out: {error}", child.stage).into());
        }
        child.given_up = true;
        tracing::error!(
            stream = %self.plan.id, stage = %child.stage, %error, restarts = RESTARTS_MAX,
            "stage given up; its answers are missing from now on"
        );
        child.spawn = stages::left_out(&child.io);
        child.cell = Some((child.spawn)(myself.get_cell()).await?);
        Ok(())
    }

    async fn finish(&self, myself: &ActorRef<StreamCommand>, tree: &mut StreamTree) {
        for child in &tree.children {
            if let Some(cell) = &child.cell {
                cell.stop(None);
            }
        }
        tree.source.stop(None);
        tree.fusion.stop(None);
        let failed = tree.failed.take();
        // The root may already be stopping; then nobody counts any more.
        let _ = self.root.cast(RootMessage::Ended { stream: self.plan.id.clone(), failed });
        myself.stop(None);
    }
}

/// Ports, seats and what the source feeds.
struct Wiring {
    ios: Vec<StageIo>,
    source: SourcePorts,
    source_bell: Arc<Doorbell>,
    names: Vec<(StageId, StageId, Port)>,
}

impl Wiring {
    fn new(plan: &StreamPlan, graph: &GraphPlan, deps: &Deps) -> Self {
        let count = graph.stages.len();
        let bells: Vec<Arc<Doorbell>> = (0..count).map(|_| Arc::default()).collect();
        let mut inputs: Vec<Vec<Port>> = vec![Vec::new(); count];
        let mut outputs: Vec<Vec<Port>> = vec![Vec::new(); count];
        let mut source = SourcePorts::default();
        let mut names = Vec::new();
        for (at, stage) in graph.stages.iter().enumerate() {
            for input in &stage.inputs {
                let port = Port::new(
                    capacity(graph, *input, plan.paced),
                    if plan.paced { Policy::DropOldest } else { Policy::Block },
                    if graph.fuse() == Some(at) { Wakes::AtMarks } else { Wakes::Always },
                    bells[at].clone(),
                );
                inputs[at].push(port.clone());
                let from = match input {
                    Input::SourceVideo => {
                        source.video.push(port.clone());
                        StageId::from("source.video")
                    }
                    Input::SourceAudio => {
                        source.audio.push(port.clone());
                        StageId::from("source.audio")
                    }
                    Input::SourceSubtitles => {
                        source.subtitles.push(port.clone());
                        StageId::from("source.subtitles")
                    }
                    Input::Stage(from) => {
                        outputs[from.0].push(port.clone());
                        graph.stages[from.0].id.clone()
                    }
                };
                names.push((from, stage.id.clone(), port));
            }
        }
        let tails = graph.tails();
        let ios = inputs
            .into_iter()
            .zip(outputs)
            .enumerate()
            .map(|(at, (inputs, outputs))| StageIo {
                stream: plan.id.clone(),
                priority: plan.priority,
                clock: deps.clock.clone(),
                seat: Arc::new(Seat::new(
                    graph.stages[at].id.clone(),
                    inputs,
                    outputs,
                    bells[at].clone(),
                )),
                tail: tails[at],
                paced: plan.paced,
            })
            .collect();
        Wiring { ios, source, source_bell: Arc::default(), names }
    }

    fn edges(&self) -> Vec<Edge> {
        self.names
            .iter()
            .map(|(from, to, port)| Edge { from: from.clone(), to: to.clone(), port: port.clone() })
            .collect()
    }
}

/// Live frames: one, the newest, so that a slow stage is never more than one frame behind. Sound must not have
/// holes, so it gets ten seconds. Observations are small.
fn capacity(graph: &GraphPlan, input: Input, paced: bool) -> usize {
    let from_frames = match input {
        Input::Stage(from) => matches!(graph.stages[from.0].settings, stages::Settings::Frames(_)),
        _ => false,
    };
    match input {
        Input::SourceVideo => 4,
        Input::SourceAudio => 320,
        _ if from_frames && paced => 1,
        _ if from_frames => 8,
        _ => 1_024,
    }
}
