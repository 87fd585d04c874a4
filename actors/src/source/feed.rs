//! The reader's thread: opens a source, reads it to its end, paces it, and opens it again when it is lost.
//!
//! Everything that may block lives here; the source actor at the other end of the channel never does.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use media::{
    Cancel, Clock, MediaError, Mono, Opener, Pts, SourceInfo, StreamId, TrackCounts, Unit,
};
use tokio::sync::mpsc;

use super::backoff::Backoff;
use crate::plan::StreamPlan;
use crate::port::Doorbell;

/// What the thread says.
#[derive(Debug)]
pub(crate) enum FeedEvent {
    /// The source is open (again).
    Opened(SourceInfo),
    Unit(Unit),
    /// A live source is gone and will be tried again after this long.
    Lost {
        error: MediaError,
        retry_in: Duration,
    },
    /// Nothing follows.
    Ended(SourceEnd, Counts),
}

/// Why nothing follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SourceEnd {
    /// All of it was read.
    Whole,
    /// Somebody asked to stop.
    Stopped,
    /// It can't be read, and trying again can't help.
    Failed(MediaError),
}

/// Final counts of the tracks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) video: TrackCounts,
    pub(crate) audio: TrackCounts,
}

/// Starts the thread. The channel is bounded: a file's reader waits there, a live source's actor always drains it.
pub(crate) fn start(
    plan: &StreamPlan,
    opener: Arc<dyn Opener>,
    clock: Arc<dyn Clock>,
    cancel: Cancel,
    doorbell: Arc<Doorbell>,
) -> std::io::Result<(mpsc::Receiver<FeedEvent>, JoinHandle<()>)> {
    let (events, receiver) = mpsc::channel(64);
    let feed = Feed { plan: plan.clone(), opener, clock, cancel, doorbell, events };
    let thread =
        std::thread::Builder::new().name(thread_name(&plan.id)).spawn(move || feed.run())?;
    Ok((receiver, thread))
}

/// Linux shows 15 bytes of a thread's name.
fn thread_name(stream: &StreamId) -> String {
    let tail: String = stream.as_str().chars().filter(char::is_ascii_graphic).take(10).collect();
    format!("read-{tail}")
}

struct Feed {
    plan: StreamPlan,
    opener: Arc<dyn Opener>,
    clock: Arc<dyn Clock>,
    cancel: Cancel,
    doorbell: Arc<Doorbell>,
    events: mpsc::Sender<FeedEvent>,
}

/// The receiver is gone: nobody wants more.
struct Unwanted;

impl Feed {
    fn run(self) {
        let mut backoff = Backoff::new(self.plan.id.as_str());
        let mut counts = Counts::default();
        // Instant of media time 0 of a file played at its own pace, fixed at its first unit.
        let mut origin = None;
        loop {
            let end = self.run_once(&mut origin, &mut counts, &mut backoff);
            let end = match end {
                Ok(Ok(())) => SourceEnd::Whole,
                Ok(Err(MediaError::Cancelled { .. })) => SourceEnd::Stopped,
                Ok(Err(error)) if self.plan.source.is_live() && error.is_transient() => {
                    let retry_in = backoff.next(&error);
                    if self.say(FeedEvent::Lost { error, retry_in }).is_ok() && self.wait(retry_in)
                    {
                        continue;
                    }
                    SourceEnd::Stopped
                }
                Ok(Err(error)) => SourceEnd::Failed(error),
                Err(Unwanted) => return,
            };
            // The receiver may be gone by now; then nobody wants to know.
            let _ = self.say(FeedEvent::Ended(end, counts));
            return;
        }
    }

    fn run_once(
        &self,
        origin: &mut Option<Mono>,
        counts: &mut Counts,
        backoff: &mut Backoff,
    ) -> Result<Result<(), MediaError>, Unwanted> {
        let opened = self.opener.open(&self.plan.source, self.clock.clone(), self.cancel.clone());
        let mut reader = match opened {
            Ok(reader) => reader,
            Err(error) => return Ok(Err(error)),
        };
        self.say(FeedEvent::Opened(reader.info().clone()))?;
        let before = *counts;
        let end = loop {
            let mut unit = match reader.next() {
                Ok(Some(unit)) => unit,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            if let Some(pts) = unit_time(&unit) {
                backoff.reset();
                if self.plan.paced && !self.plan.source.is_live() {
                    let now = self.clock.now();
                    let origin = *origin.get_or_insert(back_from(now, pts));
                    let due = Mono((origin.0 as i64 + pts.0).max(0) as u64);
                    if !self.wait_until(due) {
                        let uri = media::mask_uri(&self.plan.source.uri);
                        break Err(MediaError::Cancelled { uri });
                    }
                    arrive(&mut unit, now.max(due));
                }
            }
            self.say(FeedEvent::Unit(unit))?;
        };
        counts.video = sum(before.video, reader.video_counts());
        counts.audio = sum(before.audio, reader.audio_counts());
        Ok(end)
    }

    fn say(&self, event: FeedEvent) -> Result<(), Unwanted> {
        self.events.blocking_send(event).map_err(|_| Unwanted)?;
        self.doorbell.ring();
        Ok(())
    }

    /// False when cancelled meanwhile.
    fn wait(&self, span: Duration) -> bool {
        self.wait_until(self.clock.now() + span)
    }

    fn wait_until(&self, due: Mono) -> bool {
        loop {
            if self.cancel.is_cancelled() || self.events.is_closed() {
                return false;
            }
            let left = due.since(self.clock.now());
            if left.is_zero() {
                return true;
            }
            // Short parks, so that a cancel is seen soon.
            std::thread::park_timeout(left.min(Duration::from_millis(100)));
        }
    }
}

/// The instant at which media time was zero, if `pts` is now.
fn back_from(now: Mono, pts: Pts) -> Mono {
    Mono((now.0 as i64 - pts.0).max(0) as u64)
}

fn unit_time(unit: &Unit) -> Option<Pts> {
    match unit {
        Unit::Frame(frame) => Some(frame.pts),
        // A chunk is complete at its end, so that is when a paced one may be heard.
        Unit::Samples(samples) => Some(samples.end()),
        Unit::Subtitle(subtitle) => Some(subtitle.span.start),
        Unit::Progress { pts, .. } => Some(*pts),
        Unit::TrackEnded(_) | Unit::Note(_) => None,
    }
}

fn arrive(unit: &mut Unit, at: Mono) {
    match unit {
        Unit::Frame(frame) => frame.arrival = at,
        Unit::Samples(samples) => samples.arrival = at,
        Unit::Subtitle(subtitle) => subtitle.arrival = at,
        Unit::Progress { .. } | Unit::TrackEnded(_) | Unit::Note(_) => {}
    }
}

fn sum(a: TrackCounts, b: TrackCounts) -> TrackCounts {
    TrackCounts {
        decoded: a.decoded + b.decoded,
        sampled: a.sampled + b.sampled,
        skipped: a.skipped + b.skipped,
        withheld: a.withheld + b.withheld,
        bad_packets: a.bad_packets + b.bad_packets,
    }
}
