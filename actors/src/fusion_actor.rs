//! Brings every stage's observations to the stream's fusion book, and what the book emits to the hub.
//!
//! Thin: which window is complete, late or due is the book's to say.

use std::sync::Arc;
use std::time::Duration;

use media::result::{FusedResult, MissingReason, Status, StreamMessage, StreamState};
use media::{Mono, SourceInfo};
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::fusion::{BookSettings, ExpectedStage, FusionBook, Outcome};
use crate::plan::{GraphPlan, Input, StageIndex, StreamPlan};
use crate::port::{Doorbell, Item, Packet, Payload};
use crate::source::SourceEnd;
use crate::stage::StageIo;
use crate::system::{Deps, Record};
use crate::windows::Seal;

/// What fusion is told besides what comes through its ports.
#[derive(Debug)]
pub(crate) enum FusionMessage {
    /// Something waits in a port.
    Wake,
    /// A window may be due.
    Tick,
    /// The source is open: per stage of the graph, whether it can say anything about it.
    Opened { applies: Vec<bool>, info: SourceInfo },
    /// A window takes no more media.
    Sealed(Seal),
    /// Windows up to this one that are not sealed never will be.
    Skipped { last: u64 },
    /// A stage fell and is being restarted.
    StageGone(StageIndex),
    /// It is back.
    StageBack(StageIndex),
    /// No window follows.
    SourceEnded(SourceEnd),
}

/// Fuses one stream.
pub(crate) struct FusionActor {
    pub(crate) io: StageIo,
    pub(crate) plan: StreamPlan,
    pub(crate) graph: Arc<GraphPlan>,
    pub(crate) deps: Arc<Deps>,
    pub(crate) record: Arc<Record>,
    /// Rung when windows went out: a file's source may have waited for that.
    pub(crate) source: Arc<Doorbell>,
}

pub(crate) struct Fusing {
    /// None until the source is open: then it is known which stages apply.
    book: Option<FusionBook>,
    /// Per input port, the stage behind it.
    stages: Vec<StageIndex>,
    admitted: Mono,
    inputs_ended: usize,
    source_ended: Option<SourceEnd>,
    tick_at: Option<Mono>,
}

impl FusionActor {
    /// The exit reason of a stream that was answered to its end.
    pub(crate) const ENDED: &'static str = "ended";
}

impl Actor for FusionActor {
    type Msg = FusionMessage;
    type State = Fusing;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<FusionMessage>,
        _: (),
    ) -> Result<Fusing, ActorProcessingErr> {
        let fuse = self.graph.fuse().ok_or("a graph without `fuse`")?;
        let stages: Vec<StageIndex> = self.graph.stages[fuse]
            .inputs
            .iter()
            .filter_map(|input| match input {
                Input::Stage(at) => Some(*at),
                _ => None,
            })
            .collect();
        self.io.seat.doorbell.attach(Arc::new(move || {
            let _ = myself.cast(FusionMessage::Wake);
        }));
        Ok(Fusing {
            book: None,
            stages,
            admitted: self.deps.clock.now(),
            inputs_ended: 0,
            source_ended: None,
            tick_at: None,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<FusionMessage>,
        message: FusionMessage,
        fusing: &mut Fusing,
    ) -> Result<(), ActorProcessingErr> {
        let now = self.deps.clock.now();
        match message {
            FusionMessage::Wake => {
                self.io.seat.doorbell.answer();
                self.drain(fusing);
            }
            FusionMessage::Tick => {
                fusing.tick_at = None;
                // What waits for its mark belongs into a window that is due without it.
                self.drain(fusing);
            }
            FusionMessage::Opened { applies, info } => {
                if fusing.book.is_none() {
                    fusing.book = Some(self.open_book(fusing, &applies)?);
                }
                self.record.update(|status| {
                    status.tracks = info
                        .tracks
                        .iter()
                        .map(|t| format!("{} {}", t.codec, t.detail).trim().to_owned())
                        .collect();
                });
                self.drain(fusing);
            }
            FusionMessage::Sealed(seal) => {
                if let Some(book) = &mut fusing.book {
                    book.sealed(now, seal);
                    self.record.set_open(book.ledger().windows.open);
                }
            }
            FusionMessage::Skipped { last } => {
                if let Some(book) = &mut fusing.book {
                    book.skipped(last);
                }
            }
            FusionMessage::StageGone(stage) => {
                if let Some(book) = &mut fusing.book {
                    book.stage_gone(stage, MissingReason::Unavailable);
                }
            }
            FusionMessage::StageBack(stage) => {
                if let Some(book) = &mut fusing.book {
                    book.stage_back(stage);
                }
            }
            FusionMessage::SourceEnded(end) => fusing.source_ended = Some(end),
        }
        let over = self.is_over(fusing);
        self.emit(fusing, over).await;
        if over {
            self.finish(&myself, fusing).await;
        } else {
            self.plan_tick(&myself, fusing);
        }
        Ok(())
    }
}

impl FusionActor {
    fn open_book(
        &self,
        fusing: &Fusing,
        applies: &[bool],
    ) -> Result<FusionBook, ActorProcessingErr> {
        let settings = self.graph.fuse_settings().ok_or("a graph without `fuse`")?;
        let stages = fusing
            .stages
            .iter()
            .map(|index| {
                let stage = &self.graph.stages[index.0];
                ExpectedStage {
                    index: *index,
                    id: stage.id.clone(),
                    output: stage.settings.kind().output,
                    applies: applies.get(index.0).copied().unwrap_or(true),
                }
            })
            .collect();
        let settings = BookSettings::new(
            self.plan.id.clone(),
            self.deps.hub.run().clone(),
            settings,
            self.plan.paced,
            fusing.admitted,
            stages,
        );
        Ok(FusionBook::new(settings, self.deps.taxonomy.clone(), self.deps.alerts.clone()))
    }

    fn drain(&self, fusing: &mut Fusing) {
        for (at, port) in self.io.seat.inputs.iter().enumerate() {
            let stage = fusing.stages[at];
            while let Some(item) = port.pop() {
                let now = self.deps.clock.now();
                match (item, &mut fusing.book) {
                    // Also those of a source that never opened, which has no book.
                    (Item::End, _) => fusing.inputs_ended += 1,
                    (Item::Packet(Packet { window, payload, .. }), Some(book)) => {
                        if let Payload::Observation(observation) = payload {
                            book.offer(now, window, stage, observation);
                        }
                    }
                    (Item::Mark(mark), Some(book)) => {
                        let outcome = match mark.outcome {
                            Ok(()) => Outcome::Ok,
                            Err(reason) => Outcome::Missing(reason),
                        };
                        book.answered(now, mark.window, stage, outcome, mark.timing);
                    }
                    // Nothing is said before the source is open.
                    (Item::Packet(_) | Item::Mark(_), None) => {}
                }
            }
        }
    }

    async fn emit(&self, fusing: &mut Fusing, over: bool) {
        let Some(book) = &mut fusing.book else { return };
        let now = self.deps.clock.now();
        let emits = if over { book.close(now) } else { book.poll(now) };
        if emits.is_empty() {
            return;
        }
        let ledger = book.ledger();
        self.record.set_open(ledger.windows.open);
        self.source.ring();
        self.record.update(|status| {
            status.windows = ledger.windows;
            status.observations = ledger.observations;
            status.revisions = ledger.revisions;
        });
        for emit in emits {
            for fault in emit.rule_faults {
                tracing::warn!(
                    stream = %self.plan.id, rule = %fault.rule, message = fault.message,
                    "alert rule could not be evaluated"
                );
            }
            match self.deps.hub.publish_result(emit.result) {
                Ok(published) => {
                    count(&published.message);
                    if let Some(sink) = &self.deps.sink {
                        sink.result(&published.message, published.json, self.plan.paced).await;
                    }
                }
                Err(error) => {
                    tracing::error!(stream = %self.plan.id, %error, "result can't be written");
                }
            }
        }
    }

    /// Everything that will come has come. Nothing is waited for any more.
    fn is_over(&self, fusing: &Fusing) -> bool {
        fusing.source_ended.is_some() && fusing.inputs_ended == self.io.seat.inputs.len()
    }

    async fn finish(&self, myself: &ActorRef<FusionMessage>, fusing: &mut Fusing) {
        let (state, reason) = match fusing.source_ended.take() {
            Some(SourceEnd::Failed(error)) => (StreamState::Failed, Some(error.to_string())),
            Some(SourceEnd::Stopped) => (StreamState::Ended, Some("stopped".to_owned())),
            Some(SourceEnd::Whole) | None => (StreamState::Ended, None),
        };
        let failed = reason.clone().filter(|_| state == StreamState::Failed);
        if let Some(reason) = &failed {
            tracing::error!(stream = %self.plan.id, reason, "stream failed");
        }
        let mut window_next = 0;
        self.record.update(|status| {
            status.state = state;
            status.reason.clone_from(&reason);
            window_next = status.window_next;
        });
        let message = StreamMessage {
            schema: "stream/1".into(),
            run: "".into(),
            seq: 0,
            stream: self.plan.id.clone(),
            state,
            reason,
            window_next,
        };
        // A state is a few plain fields: writing it can't fail.
        if let Ok(published) = self.deps.hub.publish_state(message)
            && let Some(sink) = &self.deps.sink
        {
            sink.ended(&published.message).await;
        }
        myself.stop(Some(failed.unwrap_or_else(|| Self::ENDED.to_owned())));
    }

    fn plan_tick(&self, myself: &ActorRef<FusionMessage>, fusing: &mut Fusing) {
        let now = self.deps.clock.now();
        let Some(at) = fusing.book.as_ref().and_then(|book| book.next_wakeup(now)) else { return };
        if fusing.tick_at.is_some_and(|planned| planned <= at) {
            return;
        }
        fusing.tick_at = Some(at);
        // A millisecond is the timer's grain.
        let wait = at.since(now).max(Duration::from_millis(1));
        myself.send_after(wait, || FusionMessage::Tick);
    }
}

fn count(result: &FusedResult) {
    let status = match (result.revision, result.status) {
        (0, Status::Complete) => "complete",
        (0, Status::Partial) => "partial",
        _ => "revision",
    };
    metrics::counter!("pipeline_windows_total", "status" => status).increment(1);
    if result.revision == 0 {
        metrics::histogram!("pipeline_window_latency_seconds").record(result.latency_ms / 1e3);
    }
    for missing in &result.missing {
        let reason = missing.reason.name();
        let stage = missing.stage.to_string();
        metrics::counter!("pipeline_missing_total", "stage" => stage, "reason" => reason)
            .increment(1);
    }
}
