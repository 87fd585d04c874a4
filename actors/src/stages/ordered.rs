//! Stages that ask one question per frame: several under way at once, answers settled in frame order.

use std::collections::BTreeMap;
use std::future::ready;

use engine::{JobEnd, Ticket};
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::FuturesOrdered;
use media::result::MissingReason;
use media::{Frame, Mono, Observation, Pts};

use crate::port::{Mark, Packet, Payload};
use crate::stage::{Next, StageIo, StageLogic, Tally, upstream};

/// Questions of one stage under way at once. A file's stage fills batches; a live one asks about the newest frame
/// when it has the answer about the one before.
fn under_way_max(io: &StageIo) -> usize {
    if io.paced { 1 } else { 4 }
}

/// A stage that looks at single frames.
pub(crate) trait FrameStage: Send + Sync + 'static {
    type Answer: Send + 'static;

    /// Whether this frame is to be looked at.
    fn wants(&mut self, frame: &Frame) -> bool;

    fn ask(&mut self, ticket: Ticket, frame: Frame) -> BoxFuture<'static, JobEnd<Self::Answer>>;

    /// Called in frame order.
    fn settle(&mut self, pts: Pts, answer: Self::Answer) -> Observation;
}

/// Runs a [`FrameStage`].
pub(crate) struct Ordered<S> {
    stage: S,
    tallies: BTreeMap<u64, Tally>,
}

impl<S: FrameStage> Ordered<S> {
    pub(crate) fn new(stage: S) -> Self {
        Ordered { stage, tallies: BTreeMap::new() }
    }

    fn settle(&mut self, io: &StageIo, slot: Slot<S::Answer>) {
        match slot {
            Slot::Answer { window, deadline, pts, end } => {
                if let Some(answer) = self.tallies.entry(window).or_default().take(end) {
                    let observation = self.stage.settle(pts, answer);
                    io.emit(window, deadline, observation);
                }
            }
            Slot::Mark(mark) => {
                let mut tally = self.tallies.remove(&mark.window).unwrap_or_default();
                if io.take_dropped(mark.window) > 0 {
                    tally.miss(MissingReason::Dropped);
                }
                let outcome = upstream(&mark).and(tally.outcome());
                let timing = tally.timing(&io.seat.stage);
                io.answer(&mark, outcome, timing);
                // A frame that comes after its window's mark leaves a tally nobody asks for.
                self.tallies = self.tallies.split_off(&mark.window);
            }
        }
    }

    /// The job of a packet, when it is a frame that is wanted.
    fn start(
        &mut self,
        io: &StageIo,
        packet: Packet,
    ) -> Option<BoxFuture<'static, Slot<S::Answer>>> {
        let Packet { window, deadline, payload: Payload::Frame(frame) } = packet else {
            return None;
        };
        if !self.stage.wants(&frame) {
            return None;
        }
        let pts = frame.pts;
        let job = self.stage.ask(io.ticket(deadline), frame);
        Some(job.map(move |end| Slot::Answer { window, deadline, pts, end }).boxed())
    }
}

enum Slot<A> {
    Answer { window: u64, deadline: Option<Mono>, pts: Pts, end: JobEnd<A> },
    Mark(Mark),
}

impl<S: FrameStage> StageLogic for Ordered<S> {
    async fn run(&mut self, io: &StageIo) {
        let mut under_way = FuturesOrdered::new();
        let under_way_max = under_way_max(io);
        loop {
            io.room().await;
            let mut idle = false;
            while under_way.len() < under_way_max && !idle {
                match io.next() {
                    Some(Next::Packet(packet)) => {
                        if let Some(job) = self.start(io, packet) {
                            under_way.push_back(job);
                        }
                    }
                    Some(Next::Mark(mark)) => {
                        under_way.push_back(ready(Slot::Mark(mark)).boxed());
                    }
                    Some(Next::End) => {}
                    None => idle = true,
                }
            }
            tokio::select! {
                biased;
                slot = under_way.next() => match slot {
                    Some(slot) => self.settle(io, slot),
                    None => return,
                },
                () = io.seat.doorbell.rung(), if under_way.len() < under_way_max => {}
            }
        }
    }
}
