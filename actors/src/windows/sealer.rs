//! Decides when a stream's window is sealed, exactly once and in order. Never sleeps, never reads a clock.
//!
//! A window is sealed at the earliest of: every active track has delivered past its end; the stream ended;
//! for paced sources, its end was on air `seal_grace` ago. Whoever drives it passes every delivery, calls
//! [`Sealer::tick`] at [`Sealer::next_wakeup`], and takes the events after each call.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use media::result::Window;
use media::{Mono, Pts, TrackKind};

use super::seal::{Seal, SealerEvent, SealerSettings};
use crate::stages::WindowLength;

/// Windows in a row without any media that are still answered one by one; a longer hole in media time is
/// reported as skipped, so that one wild timestamp can't ask for millions of results.
const EMPTY_WINDOWS_MAX: u64 = 600;

/// The anchor forgets arrivals older than one to two of these: a camera's clock that runs 100 ppm slow would
/// otherwise be 8 s off after a day.
const ANCHOR_EPOCH: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
struct TrackState {
    /// Everything before this was delivered.
    reached: Pts,
    heard_at: Mono,
    ended: bool,
}

/// Smallest (arrival − pts) in microseconds, and the same since the epoch began.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    offset: i64,
    candidate: i64,
    epoch_at: Mono,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Connected,
    Away,
    Ended,
}

/// The windows of one stream.
#[derive(Debug)]
pub struct Sealer {
    settings: SealerSettings,
    length_ms: i64,
    admitted: Mono,
    tracks: BTreeMap<TrackKind, TrackState>,
    anchor: Option<Anchor>,
    re_anchor: bool,
    link: Link,
    /// Just after the last delivered media.
    media_end: Pts,
    /// The window that is sealed or skipped next.
    next: u64,
    /// Ahead of `next`: first and one past the last window of holes in media time.
    holes: VecDeque<(u64, u64)>,
    /// Latest `now` that was looked at.
    seen: Mono,
    events: VecDeque<SealerEvent>,
}

impl Sealer {
    /// A stream without media yet. `admitted` is when its source was taken in.
    pub fn new(settings: SealerSettings, admitted: Mono) -> Self {
        let length = match settings.length {
            WindowLength::Clip => settings.clip_max,
            WindowLength::Fixed(length) => length,
        };
        Sealer {
            length_ms: i64::try_from(length.as_millis()).unwrap_or(i64::MAX / 2_000).max(1),
            settings,
            admitted,
            tracks: BTreeMap::new(),
            anchor: None,
            re_anchor: false,
            link: Link::Connected,
            media_end: Pts::ZERO,
            next: 0,
            holes: VecDeque::new(),
            seen: admitted,
            events: VecDeque::new(),
        }
    }

    /// A track that will be read. Until `track_idle` has passed it is waited for as if it had delivered.
    pub fn track_started(&mut self, kind: TrackKind, now: Mono) {
        self.settle(now);
        let track = self.tracks.entry(kind).or_insert(TrackState {
            reached: Pts::ZERO,
            heard_at: now,
            ended: false,
        });
        (track.heard_at, track.ended) = (track.heard_at.max(now), false);
        self.settle(now);
    }

    /// Media at `pts` came in; its packet was read at `arrival`. A chunk of sound is told by its start here
    /// and by its end to [`Sealer::progressed`].
    pub fn delivered(&mut self, kind: TrackKind, pts: Pts, arrival: Mono, now: Mono) {
        self.settle(now);
        self.take_anchor(pts, arrival, now);
        self.reach(kind, pts, Pts(pts.0.saturating_add(1)), now);
        self.settle(now);
    }

    /// A track has delivered everything before `pts`.
    pub fn progressed(&mut self, kind: TrackKind, pts: Pts, now: Mono) {
        self.settle(now);
        self.reach(kind, pts, pts, now);
        self.settle(now);
    }

    /// A track ended before the others and holds nothing open any more.
    pub fn track_ended(&mut self, kind: TrackKind, now: Mono) {
        self.settle(now);
        if let Some(track) = self.tracks.get_mut(&kind) {
            track.ended = true;
        }
        self.settle(now);
    }

    /// The stream is over: every window with media is sealed, the last one where its media ends.
    pub fn ended(&mut self, now: Mono) {
        self.settle(now);
        while self.link != Link::Ended && self.has_media(self.next) {
            self.step(now, true);
        }
        self.link = Link::Ended;
    }

    /// The source is gone for now: no window opens; one that has media is still sealed, by grace.
    pub fn disconnected(&mut self, now: Mono) {
        self.settle(now);
        if self.link == Link::Connected {
            self.link = Link::Away;
        }
    }

    /// The source is back. Windows that nothing can be added to are sealed or skipped. Returns the media time
    /// at which the new connection's pts start.
    pub fn reconnected(&mut self, now: Mono) -> Pts {
        self.settle(now);
        let elapsed = self.anchor.map_or(0, |a| now.0 as i64 - a.offset);
        let resumed = Pts(elapsed.max(self.media_end.0).max(0));
        if self.link == Link::Away {
            self.link = Link::Connected;
            self.re_anchor = self.anchor.is_some();
            let resume = self.index_of(resumed);
            while self.next < resume && self.has_media(self.next) {
                self.step(now, false);
            }
            self.skip_to(resume);
            for track in self.tracks.values_mut() {
                track.ended = false;
                track.heard_at = now;
            }
        }
        resumed
    }

    /// Time passed.
    pub fn tick(&mut self, now: Mono) {
        self.settle(now);
    }

    /// The next event, in window order. Take all of them after each call.
    pub fn next_event(&mut self) -> Option<SealerEvent> {
        self.events.pop_front()
    }

    /// When a window will be sealed if nothing else happens.
    pub fn next_wakeup(&self) -> Option<Mono> {
        self.due(self.next).map(|due| due.max(self.seen))
    }

    /// The window that `pts` lies in.
    pub fn index_of(&self, pts: Pts) -> u64 {
        (pts.0.max(0) / self.length_us()) as u64
    }

    /// When the answer to window `index` will be due at the latest; none without a budget, or before media came.
    pub fn deadline_hint(&self, index: u64) -> Option<Mono> {
        if !self.settings.paced {
            return self.settings.clip_budget.map(|budget| self.admitted + budget);
        }
        let end = self.start_us(index.saturating_add(1));
        Some(self.paced_deadline(self.grace_due(end)?, self.on_air(end)))
    }

    /// Whether the stream is over and every event was taken: the last window was the last.
    pub fn is_drained(&self) -> bool {
        self.link == Link::Ended && self.events.is_empty()
    }

    /// Index of the window that is sealed or skipped next.
    pub fn window_next(&self) -> u64 {
        self.next
    }

    fn length_us(&self) -> i64 {
        self.length_ms.saturating_mul(1_000)
    }

    fn start_us(&self, index: u64) -> i64 {
        i64::try_from(index).unwrap_or(i64::MAX).saturating_mul(self.length_us())
    }

    fn has_media(&self, index: u64) -> bool {
        self.start_us(index) < self.media_end.0
    }

    fn take_anchor(&mut self, pts: Pts, arrival: Mono, now: Mono) {
        let offset = (arrival.0 as i64).saturating_sub(pts.0);
        let fresh = Anchor { offset, candidate: offset, epoch_at: now };
        self.anchor = Some(match self.anchor {
            Some(anchor) if !self.re_anchor => {
                let candidate = anchor.candidate.min(offset);
                if now.since(anchor.epoch_at) >= ANCHOR_EPOCH {
                    Anchor { offset: candidate, ..fresh }
                } else {
                    Anchor { offset: anchor.offset.min(offset), candidate, ..anchor }
                }
            }
            _ => fresh,
        });
        self.re_anchor = false;
    }

    /// `kind` delivered media up to `end` (exclusive), the last of it at `pts`.
    fn reach(&mut self, kind: TrackKind, pts: Pts, end: Pts, now: Mono) {
        if self.link == Link::Ended {
            return;
        }
        let track = self.tracks.entry(kind).or_insert(TrackState {
            reached: Pts::ZERO,
            heard_at: now,
            ended: false,
        });
        track.reached = track.reached.max(pts);
        track.heard_at = track.heard_at.max(now);
        if end > self.media_end {
            let from = self.index_of(self.media_end).saturating_add(1).max(self.next);
            self.leave_hole(from, self.index_of(pts));
            self.media_end = end;
        }
    }

    /// When the window is sealed if nothing else happens; in the past when it should be sealed already.
    fn due(&self, index: u64) -> Option<Mono> {
        if self.link == Link::Ended || self.holes.front().is_some_and(|&(from, _)| from == index) {
            return None;
        }
        let end = self.start_us(index.saturating_add(1));
        match (self.settings.paced, self.link) {
            (true, Link::Away) if !self.has_media(index) => None,
            (true, Link::Away) => self.grace_due(end),
            (true, _) => {
                let (grace, delivered) = (self.grace_due(end), self.delivered_due(end));
                grace.into_iter().chain(delivered).min()
            }
            (false, _) => self.delivered_due(end),
        }
    }

    fn grace_due(&self, end: i64) -> Option<Mono> {
        Some(self.on_air(end)? + self.settings.seal_grace)
    }

    fn on_air(&self, media_us: i64) -> Option<Mono> {
        let anchor = self.anchor?;
        Some(Mono(u64::try_from(anchor.offset.saturating_add(media_us)).unwrap_or(0)))
    }

    /// The budget counts from the seal and from the end on air, but half of it is left after the seal.
    fn paced_deadline(&self, sealed_at: Mono, air_end: Option<Mono>) -> Mono {
        let (budget, delay) = (self.settings.budget, self.settings.decode_delay);
        let by_age = air_end.map_or(sealed_at, |air_end| air_end + delay) + budget;
        by_age.clamp(sealed_at + budget / 2, sealed_at + budget)
    }

    /// When every track that counts is past `end`.
    fn delivered_due(&self, end: i64) -> Option<Mono> {
        let front = self.tracks.values().map(|t| t.reached.0).max()?;
        if front < end {
            return None;
        }
        let behind = self.tracks.iter().filter(|(kind, t)| {
            // Timed text comes when there is some: it says nothing about how far the source is.
            **kind != TrackKind::Subtitle && !t.ended && t.reached.0 < end
        });
        let mut due = Mono(0);
        for (_, track) in behind {
            if self.settings.paced {
                due = due.max(track.heard_at + self.settings.track_idle);
            } else if Duration::from_micros((front - track.reached.0).unsigned_abs())
                <= self.settings.skew_max
            {
                return None;
            }
        }
        Some(due)
    }

    /// Seals what is due by `now`. Rules that time made true count from that instant, rules that the last
    /// input made true from the input.
    fn settle(&mut self, now: Mono) {
        if self.settings.paced && self.link == Link::Connected && self.anchor.is_some() {
            let late = self.settings.seal_grace.as_micros() as i64;
            let anchor = self.anchor.map_or(0, |a| a.offset);
            let air = Pts((now.0 as i64).saturating_sub(anchor).saturating_sub(late));
            let from = self.index_of(self.media_end).saturating_add(1).max(self.next);
            self.leave_hole(from, self.index_of(air));
        }
        loop {
            if let Some(&(from, to)) = self.holes.front()
                && from <= self.next
            {
                self.holes.pop_front();
                self.skip_to(to);
                continue;
            }
            match self.due(self.next) {
                Some(due) if due <= now => self.seal(due.max(self.seen), false),
                _ => break,
            }
        }
        self.seen = self.seen.max(now);
    }

    /// Windows `from..to` get no media: skipped when there are too many to answer one by one.
    fn leave_hole(&mut self, from: u64, to: u64) {
        if to.saturating_sub(from) <= EMPTY_WINDOWS_MAX {
            return;
        }
        let many = self.holes.len() >= 8;
        match self.holes.back_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            // More than a few holes ahead of the first unsealed window: one big hole.
            Some(last) if many => last.1 = to,
            _ => self.holes.push_back((from, to)),
        }
    }

    /// Seals or skips one step ahead.
    fn step(&mut self, now: Mono, stream_over: bool) {
        match self.holes.front() {
            Some(&(from, to)) if from <= self.next => {
                self.holes.pop_front();
                self.skip_to(to);
            }
            _ => self.seal(now, stream_over),
        }
    }

    fn skip_to(&mut self, to: u64) {
        if self.next < to {
            self.events.push_back(SealerEvent::Skipped { from: self.next, to: to - 1 });
            self.next = to;
        }
    }

    fn seal(&mut self, sealed_at: Mono, stream_over: bool) {
        let index = self.next;
        let start_ms = self.start_us(index) / 1_000;
        let nominal_ms = self.start_us(index.saturating_add(1)) / 1_000;
        // Only the end of the stream seals a window whose span is not over.
        let media_ms = self.media_end.ms() + i64::from(self.media_end.0.rem_euclid(1_000) != 0);
        let end_ms = if stream_over { nominal_ms.min(media_ms) } else { nominal_ms };
        let air_end =
            self.settings.paced.then(|| self.on_air(end_ms.saturating_mul(1_000))).flatten();
        let deadline = if self.settings.paced {
            Some(self.paced_deadline(sealed_at, air_end))
        } else {
            self.settings.clip_budget.map(|budget| self.admitted + budget)
        };
        self.events.push_back(SealerEvent::Sealed(Seal {
            window: Window { index, start_ms, end_ms },
            sealed_at,
            air_end,
            deadline,
        }));
        self.next = index.saturating_add(1);
    }
}
