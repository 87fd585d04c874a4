//! Brings a source's media into the graph: assigns windows, seals them, and tells everyone.
//!
//! The reader's thread is in `feed`; deciding when a window is sealed is the `Sealer`'s. This actor is thin
//! around both, and never blocks: a file's reader waits in the channel while a port is full.

mod backoff;
mod feed;

use std::sync::Arc;
use std::time::Duration;

use media::result::{StreamMessage, StreamState};
use media::{Cancel, Mono, Pts, Span, TrackKind, Unit};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;

use crate::fusion_actor::FusionMessage;
use crate::plan::{GraphPlan, StreamPlan};
use crate::port::{Doorbell, Item, Mark, Packet, Payload, Port};
use crate::system::{Deps, Record};
use crate::windows::{Seal, Sealer, SealerEvent, SealerSettings};
pub(crate) use feed::SourceEnd;
use feed::{Counts, FeedEvent};

/// Windows of a file sealed and not yet answered, from which its reader waits.
const OPEN_WINDOWS_MAX: u64 = 64;

/// What a source is told.
#[derive(Debug)]
pub(crate) enum SourceMessage {
    /// The reader has something, or a port has room again.
    Wake,
    /// A window may be due.
    Tick,
    /// Read no further; what was read is answered.
    Stop,
}

/// Where the source's media goes.
#[derive(Clone, Default)]
pub(crate) struct SourcePorts {
    pub(crate) video: Vec<Port>,
    pub(crate) audio: Vec<Port>,
    pub(crate) subtitles: Vec<Port>,
}

impl SourcePorts {
    fn all(&self) -> impl Iterator<Item = &Port> {
        self.video.iter().chain(&self.audio).chain(&self.subtitles)
    }
}

/// Reads one source.
pub(crate) struct SourceActor {
    pub(crate) plan: StreamPlan,
    pub(crate) graph: Arc<GraphPlan>,
    pub(crate) deps: Arc<Deps>,
    pub(crate) ports: SourcePorts,
    pub(crate) doorbell: Arc<Doorbell>,
    pub(crate) fusion: ActorRef<FusionMessage>,
    pub(crate) record: Arc<Record>,
}

pub(crate) struct Reading {
    events: mpsc::Receiver<FeedEvent>,
    cancel: Cancel,
    sealer: Sealer,
    /// Added to the reader's pts: after an outage media time has gone on.
    shift: i64,
    connected_before: bool,
    tick_at: Option<Mono>,
    over: bool,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Actor for SourceActor {
    type Msg = SourceMessage;
    type State = Reading;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<SourceMessage>,
        _: (),
    ) -> Result<Reading, ActorProcessingErr> {
        let fuse = self.graph.fuse_settings().ok_or("a graph without `fuse`")?;
        let now = self.deps.clock.now();
        let cancel = Cancel::new();
        let mut plan = self.plan.clone();
        plan.source.sampling = self.graph.sampling();
        self.say(StreamState::Opening, None, 0);
        let (events, _) = feed::start(
            &plan,
            self.deps.opener.clone(),
            self.deps.clock.clone(),
            cancel.clone(),
            self.doorbell.clone(),
        )?;
        self.doorbell.attach(Arc::new(move || {
            let _ = myself.cast(SourceMessage::Wake);
        }));
        Ok(Reading {
            events,
            cancel,
            sealer: Sealer::new(SealerSettings::new(fuse, &self.plan), now),
            shift: 0,
            connected_before: false,
            tick_at: None,
            over: false,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<SourceMessage>,
        message: SourceMessage,
        reading: &mut Reading,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SourceMessage::Wake => {
                self.doorbell.answer();
                self.read(reading).await?;
            }
            SourceMessage::Tick => {
                reading.tick_at = None;
                reading.sealer.tick(self.deps.clock.now());
                self.seal(reading);
            }
            SourceMessage::Stop => reading.cancel.cancel(),
        }
        self.plan_tick(&myself, reading);
        Ok(())
    }
}

impl SourceActor {
    async fn read(&self, reading: &mut Reading) -> Result<(), ActorProcessingErr> {
        // Bounded, so that ticks get their turn while a file is read as fast as it goes.
        for _ in 0..64 {
            if reading.over {
                return Ok(());
            }
            if !self.plan.paced && self.record.open() >= OPEN_WINDOWS_MAX {
                // Fusion rings when windows have gone out.
                return Ok(());
            }
            for port in self.ports.all() {
                // Paced ports always have room; waiting for a file's stage also holds its reader.
                port.room().await;
            }
            match reading.events.try_recv() {
                Ok(event) => self.take(reading, event)?,
                Err(mpsc::error::TryRecvError::Empty) => return Ok(()),
                Err(mpsc::error::TryRecvError::Disconnected) => {
                    return Err("the reader's thread ended without a word".into());
                }
            }
        }
        self.doorbell.ring();
        Ok(())
    }

    fn take(&self, reading: &mut Reading, event: FeedEvent) -> Result<(), ActorProcessingErr> {
        let now = self.deps.clock.now();
        match event {
            FeedEvent::Opened(info) => {
                if std::mem::replace(&mut reading.connected_before, true) {
                    reading.shift = reading.sealer.reconnected(now).0;
                    self.seal(reading);
                }
                for track in &info.tracks {
                    reading.sealer.track_started(track.kind, now);
                }
                let titled = self.plan.title.is_some()
                    || self.plan.description.is_some()
                    || info.title.is_some();
                let applies = self.graph.applies(&info, titled);
                self.fusion.cast(FusionMessage::Opened { applies, info })?;
                self.say(StreamState::Running, None, reading.sealer.window_next());
            }
            FeedEvent::Unit(unit) => self.route(reading, unit, now),
            FeedEvent::Lost { error, retry_in } => {
                reading.sealer.disconnected(now);
                let reason = format!("{error}; trying again in {:.1} s", retry_in.as_secs_f64());
                self.say(StreamState::Reconnecting, Some(reason), reading.sealer.window_next());
            }
            FeedEvent::Ended(end, counts) => self.finish(reading, counts, end)?,
        }
        self.seal(reading);
        Ok(())
    }

    fn route(&self, reading: &mut Reading, unit: Unit, now: Mono) {
        let shift = reading.shift;
        match unit {
            Unit::Frame(mut frame) => {
                frame.pts.0 += shift;
                reading.sealer.delivered(TrackKind::Video, frame.pts, frame.arrival, now);
                self.push(reading, &self.ports.video, frame.pts, Payload::Frame(frame));
            }
            Unit::Samples(mut samples) => {
                samples.pts.0 += shift;
                let (pts, end) = (samples.pts, samples.end());
                reading.sealer.delivered(TrackKind::Audio, pts, samples.arrival, now);
                reading.sealer.progressed(TrackKind::Audio, end, now);
                self.push(reading, &self.ports.audio, pts, Payload::Samples(samples));
            }
            Unit::Subtitle(mut subtitle) => {
                subtitle.span.start.0 += shift;
                subtitle.span.end.0 += shift;
                let pts = subtitle.span.start;
                self.push(reading, &self.ports.subtitles, pts, Payload::Subtitle(subtitle));
            }
            Unit::Progress { track, pts } => {
                reading.sealer.progressed(track, Pts(pts.0 + shift), now);
            }
            Unit::TrackEnded(track) => reading.sealer.track_ended(track, now),
            Unit::Note(note) => {
                tracing::info!(stream = %self.plan.id, note, "source");
                self.record.update(|status| {
                    if status.notes.len() < 32 && !status.notes.contains(&note) {
                        status.notes.push(note);
                    }
                });
            }
        }
    }

    fn push(&self, reading: &Reading, ports: &[Port], pts: Pts, payload: Payload) {
        let window = reading.sealer.index_of(pts);
        let deadline = reading.sealer.deadline_hint(window);
        for port in ports {
            port.push(Item::Packet(Packet { window, deadline, payload: payload.clone() }));
        }
    }

    fn seal(&self, reading: &mut Reading) {
        while let Some(event) = reading.sealer.next_event() {
            match event {
                SealerEvent::Sealed(seal) => {
                    let last = reading.over && reading.sealer.is_drained();
                    // Fusion first: the window must be known before a stage answers it.
                    let _ = self.fusion.cast(FusionMessage::Sealed(seal));
                    let mark = mark(&seal, last);
                    for port in self.ports.all() {
                        port.push(Item::Mark(mark.clone()));
                    }
                    self.record.update(|status| status.window_next = seal.window.index + 1);
                }
                SealerEvent::Skipped { from, to } => {
                    let reason = Some(format!("windows {from} to {to} had no media"));
                    let _ = self.fusion.cast(FusionMessage::Skipped { last: to });
                    self.say(StreamState::Running, reason, to + 1);
                }
            }
        }
    }

    fn finish(
        &self,
        reading: &mut Reading,
        counts: Counts,
        end: SourceEnd,
    ) -> Result<(), ActorProcessingErr> {
        reading.over = true;
        reading.sealer.ended(self.deps.clock.now());
        self.seal(reading);
        self.record.update(|status| {
            status.video = counts.video;
            status.audio = counts.audio;
        });
        for port in self.ports.all() {
            port.push(Item::End);
        }
        self.fusion.cast(FusionMessage::SourceEnded(end))?;
        Ok(())
    }

    fn say(&self, state: StreamState, reason: Option<String>, window_next: u64) {
        if let Some(reason) = &reason {
            tracing::warn!(stream = %self.plan.id, ?state, reason, "source");
        }
        self.record.update(|status| {
            status.state = state;
            status.reason.clone_from(&reason);
            status.window_next = window_next;
        });
        // A state is a few plain fields: writing it can't fail.
        let _ = self.deps.hub.publish_state(StreamMessage {
            schema: "stream/1".into(),
            run: "".into(),
            seq: 0,
            stream: self.plan.id.clone(),
            state,
            reason,
            window_next,
        });
    }

    fn plan_tick(&self, myself: &ActorRef<SourceMessage>, reading: &mut Reading) {
        let Some(at) = reading.sealer.next_wakeup().filter(|_| !reading.over) else { return };
        if reading.tick_at.is_some_and(|planned| planned <= at) {
            return;
        }
        reading.tick_at = Some(at);
        let wait = at.since(self.deps.clock.now()).max(Duration::from_millis(1));
        myself.send_after(wait, || SourceMessage::Tick);
    }
}

fn mark(seal: &Seal, last: bool) -> Mark {
    Mark {
        window: seal.window.index,
        span: Span {
            start: Pts::from_ms(seal.window.start_ms),
            end: Pts::from_ms(seal.window.end_ms),
        },
        deadline: seal.deadline,
        last,
        outcome: Ok(()),
        timing: None,
    }
}
