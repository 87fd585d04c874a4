//! The shell around every stage: an actor that is woken by its ports, and what a stage may do to the outside.
//!
//! A stage is restarted by its supervisor with fresh state; its seat (ports, doorbell, marks under way) stays.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::{JobEnd, Ticket};
use media::result::{MissingReason, Timing};
use media::{Clock, Mono, Observation, StageId, StreamId};
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::port::{Doorbell, Item, Mark, Packet, Payload, Port};

/// Wakes a stage: something waits in its ports.
#[derive(Debug)]
pub(crate) struct Wake;

/// What stays when a stage's actor is restarted.
pub(crate) struct Seat {
    pub(crate) stage: StageId,
    pub(crate) inputs: Vec<Port>,
    pub(crate) outputs: Vec<Port>,
    pub(crate) doorbell: Arc<Doorbell>,
    under_way: Mutex<UnderWay>,
}

#[derive(Default)]
struct UnderWay {
    /// Marks taken from the inputs and not yet answered.
    marks: VecDeque<Mark>,
    /// Inputs that have ended.
    ended: usize,
    /// Per input: marks seen and not yet matched by the others.
    seen: Vec<VecDeque<Mark>>,
    end_sent: bool,
}

impl Seat {
    pub(crate) fn new(
        stage: StageId,
        inputs: Vec<Port>,
        outputs: Vec<Port>,
        doorbell: Arc<Doorbell>,
    ) -> Self {
        let seen = vec![VecDeque::new(); inputs.len()];
        Seat {
            stage,
            inputs,
            outputs,
            doorbell,
            under_way: Mutex::new(UnderWay { seen, ..UnderWay::default() }),
        }
    }

    fn under_way(&self) -> std::sync::MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a stage sees of the outside.
#[derive(Clone)]
pub(crate) struct StageIo {
    pub(crate) stream: StreamId,
    pub(crate) priority: i32,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) seat: Arc<Seat>,
    /// Estimated cost of what follows this stage in a window, taken off its jobs' deadlines.
    pub(crate) tail: Duration,
    /// Deadlines bind, and freshness counts.
    pub(crate) paced: bool,
}

/// The next thing a stage must deal with.
pub(crate) enum Next {
    Packet(Packet),
    /// Every input has answered this window.
    Mark(Mark),
    End,
}

impl StageIo {
    /// The next item over all inputs, none when nothing waits. Marks come once, when all inputs have them.
    pub(crate) fn next(&self) -> Option<Next> {
        loop {
            let mut found = false;
            for (i, port) in self.seat.inputs.iter().enumerate() {
                let Some(item) = port.pop() else { continue };
                found = true;
                match item {
                    Item::Packet(packet) => return Some(Next::Packet(packet)),
                    Item::Mark(mark) => {
                        let mut under_way = self.seat.under_way();
                        under_way.seen[i].push_back(mark);
                        if under_way.seen.iter().all(|seen| !seen.is_empty()) {
                            let marks: Vec<Mark> =
                                under_way.seen.iter_mut().filter_map(VecDeque::pop_front).collect();
                            let Some(mark) = merge(marks) else { continue };
                            under_way.marks.push_back(mark.clone());
                            return Some(Next::Mark(mark));
                        }
                    }
                    Item::End => {
                        let mut under_way = self.seat.under_way();
                        under_way.ended += 1;
                        if under_way.ended == self.seat.inputs.len() {
                            return Some(Next::End);
                        }
                    }
                }
            }
            if !found {
                return None;
            }
        }
    }

    /// How many packets up to `window` were dropped before this stage could take them.
    pub(crate) fn take_dropped(&self, window: u64) -> u32 {
        self.seat.inputs.iter().map(|port| port.take_dropped(window)).sum()
    }

    /// Hands an observation to everyone who reads this stage.
    pub(crate) fn emit(&self, window: u64, deadline: Option<Mono>, observation: Observation) {
        self.forward(&Packet { window, deadline, payload: Payload::Observation(observation) });
    }

    /// Hands on a packet.
    pub(crate) fn forward(&self, packet: &Packet) {
        for port in &self.seat.outputs {
            port.push(Item::Packet(packet.clone()));
        }
    }

    /// Says that this stage has answered the window of `mark`, or why it has not.
    pub(crate) fn answer(
        &self,
        mark: &Mark,
        outcome: Result<(), MissingReason>,
        timing: Option<Timing>,
    ) {
        {
            let mut under_way = self.seat.under_way();
            under_way.marks.retain(|m| m.window != mark.window);
        }
        for port in &self.seat.outputs {
            port.push(Item::Mark(Mark { outcome, timing: timing.clone(), ..mark.clone() }));
        }
    }

    /// Says that nothing follows.
    pub(crate) fn end(&self) {
        if std::mem::replace(&mut self.seat.under_way().end_sent, true) {
            return;
        }
        for port in &self.seat.outputs {
            port.push(Item::End);
        }
    }

    /// Waits until everyone who reads this stage can take a packet.
    pub(crate) async fn room(&self) {
        for port in &self.seat.outputs {
            port.room().await;
        }
    }

    /// What the scheduler must know of a job of this stage.
    pub(crate) fn ticket(&self, deadline: Option<Mono>) -> Ticket {
        Ticket {
            stream: self.stream.clone(),
            priority: self.priority,
            deadline: deadline.map(|d| d - self.tail),
        }
    }

    /// Answers what a previous incarnation had taken and lost.
    fn make_good(&self) {
        let lost: Vec<Mark> = self.seat.under_way().marks.iter().cloned().collect();
        for mark in lost {
            self.answer(&mark, Err(MissingReason::Failed), None);
        }
    }

    fn all_ended(&self) -> bool {
        let under_way = self.seat.under_way();
        under_way.ended == self.seat.inputs.len() && !under_way.end_sent
    }
}

/// One mark of all inputs: missing upstream only when no input answered.
fn merge(marks: Vec<Mark>) -> Option<Mark> {
    let answered = marks.iter().any(|m| m.outcome.is_ok());
    let mut merged = marks.into_iter().next()?;
    merged.outcome = if answered { Ok(()) } else { Err(MissingReason::Upstream) };
    merged.timing = None;
    Some(merged)
}

/// The outcome of a stage that has nothing to add: whatever failed above it is missing here too.
pub(crate) fn upstream(mark: &Mark) -> Result<(), MissingReason> {
    mark.outcome.map_err(|_| MissingReason::Upstream)
}

/// What one kind of stage does. `run` works until its inputs are empty and nothing is under way.
pub(crate) trait StageLogic: Send + Sync + 'static {
    fn run(&mut self, io: &StageIo) -> impl Future<Output = ()> + Send;
}

/// A running stage.
pub(crate) struct StageActor<L> {
    pub(crate) io: StageIo,
    pub(crate) make: Arc<dyn Fn() -> L + Send + Sync>,
}

impl<L: StageLogic> Actor for StageActor<L> {
    type Msg = Wake;
    type State = L;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<Wake>,
        _: (),
    ) -> Result<Self::State, ActorProcessingErr> {
        self.io.make_good();
        self.io.seat.doorbell.attach(Arc::new(move || {
            // The actor may be gone; its successor looks at the ports when it attaches.
            let _ = myself.cast(Wake);
        }));
        Ok((self.make)())
    }

    async fn handle(
        &self,
        _: ActorRef<Wake>,
        _: Wake,
        logic: &mut L,
    ) -> Result<(), ActorProcessingErr> {
        self.io.seat.doorbell.answer();
        logic.run(&self.io).await;
        if self.io.all_ended() {
            self.io.end();
        }
        Ok(())
    }
}

/// Per window: how a stage's jobs ended and where its time went.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    done: u32,
    worst: Option<MissingReason>,
    incomplete: Option<MissingReason>,
    queue_ms: f64,
    compute_ms: f64,
    batch: u32,
}

impl Tally {
    /// Counts one job; its output when it was answered.
    pub(crate) fn take<T>(&mut self, end: JobEnd<T>) -> Option<T> {
        let reason = match end {
            JobEnd::Done { output, queue, compute, batch } => {
                self.done += 1;
                self.queue_ms = self.queue_ms.max(queue.as_secs_f64() * 1e3);
                self.compute_ms += compute.as_secs_f64() * 1e3 / f64::from(batch.max(1));
                self.batch = self.batch.max(batch);
                return Some(output);
            }
            JobEnd::Shed => MissingReason::Shed,
            JobEnd::Expired => MissingReason::Deadline,
            JobEnd::Cancelled => MissingReason::Unavailable,
            JobEnd::Failed(error) => {
                tracing::warn!(%error, "a model failed");
                MissingReason::Failed
            }
        };
        self.miss(reason);
        None
    }

    /// Counts something that got no answer.
    pub(crate) fn miss(&mut self, reason: MissingReason) {
        // `Failed` says more than `Shed`, which says more than the rest.
        if self.worst != Some(MissingReason::Failed) {
            self.worst = Some(reason);
        }
    }

    /// Counts a loss that no other answer makes good: a part of what was said.
    pub(crate) fn miss_always(&mut self, reason: MissingReason) {
        self.incomplete.get_or_insert(reason);
    }

    /// Whether the stage answered: one answered job is an answer, and so is nothing to ask.
    pub(crate) fn outcome(&self) -> Result<(), MissingReason> {
        if let Some(reason) = self.incomplete {
            return Err(reason);
        }
        match self.worst {
            Some(reason) if self.done == 0 => Err(reason),
            _ => Ok(()),
        }
    }

    pub(crate) fn timing(&self, stage: &StageId) -> Option<Timing> {
        let round = |ms: f64| (ms * 10.0).round() / 10.0;
        (self.done > 0).then(|| Timing {
            stage: stage.clone(),
            queue_ms: round(self.queue_ms),
            compute_ms: round(self.compute_ms),
            batch: self.batch,
        })
    }
}

/// Stands in for a stage that was given up: takes everything, answers nothing.
pub(crate) struct LeftOut;

impl StageLogic for LeftOut {
    async fn run(&mut self, io: &StageIo) {
        while let Some(next) = io.next() {
            if let Next::Mark(mark) = next {
                io.answer(&mark, Err(MissingReason::Unavailable), None);
            }
        }
    }
}
