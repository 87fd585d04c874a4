//! Where an utterance begins and ends.
//!
//! Stands between [`VoiceActivity`](super::VoiceActivity) and [`Transcriber`](super::Transcriber). Pure: is fed
//! chunks with their probabilities, knows only media time. One rule: a chunk belongs to at most one utterance,
//! and a chunk with speech to exactly one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use media::Pts;

use super::chunks::{CHUNK_SAMPLES, CHUNK_US, Chunk};

/// Speech begins at this probability …
const OPEN: f32 = 0.5;
/// … and lasts until it falls below this one.
const CLOSE: f32 = 0.35;
/// Chunks before the first speech that go with it: soft beginnings are missed by voice activity.
const PRE_ROLL_CHUNKS: usize = 6;
/// Quiet chunks kept at the end, for the same reason.
const TAIL_CHUNKS: usize = 3;
/// A pause that is enough once the utterance is long: 128 ms, a breath.
const BREATH_CHUNKS: usize = 4;
/// A forced cut looks this far back for the quietest point: one second.
const LOOK_BACK_CHUNKS: usize = 31;
/// Chunks further than this from where they are expected are no continuation.
const GAP_US: i64 = 100_000;

/// Lengths that decide where utterances end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmenterSettings {
    /// An utterance is cut at the next pause after this long, and at one and a half times it without one.
    /// At least 1,000.
    pub utterance_ms_max: u64,
    /// Silence that ends an utterance. At least 100.
    pub pause_ms: u64,
}

impl Default for SegmenterSettings {
    fn default() -> Self {
        SegmenterSettings { utterance_ms_max: 7_000, pause_ms: 400 }
    }
}

/// A finished utterance.
#[derive(Clone, Debug, PartialEq)]
pub struct Utterance {
    /// Counts from 0 in the stream.
    pub number: u64,
    /// Time of the first sample.
    pub start: Pts,
    /// Time just after the last sample.
    pub end: Pts,
    /// 16 kHz mono, pre-roll and tail included.
    pub pcm: Arc<[f32]>,
    /// What ended it.
    pub ended_by: UtteranceEnd,
}

/// What ended an utterance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UtteranceEnd {
    /// Silence of `pause_ms`.
    Pause,
    /// It was long, and there was a breath.
    Breath,
    /// It was too long, and there was no pause: cut at the quietest point of its last second.
    Length,
    /// Media time jumped.
    Gap,
    /// The track ended.
    End,
}

/// What a chunk brought about.
#[derive(Clone, Debug, PartialEq)]
pub enum SpeechEvent {
    /// An utterance opened.
    Started {
        /// Its number.
        number: u64,
        /// Time of its first sample.
        start: Pts,
    },
    /// An utterance is complete.
    Closed(Utterance),
}

/// The open utterance so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Running<'a> {
    /// Its number; the same when it is closed.
    pub number: u64,
    /// Time of its first sample.
    pub start: Pts,
    /// How far it was heard.
    pub end: Pts,
    /// 16 kHz mono so far.
    pub pcm: &'a [f32],
}

/// Opens and closes utterances of one stream.
#[derive(Clone, Debug)]
pub struct Segmenter {
    chunks_max: usize,
    pause_chunks: usize,
    /// Of the open utterance, or of the next one.
    number: u64,
    clock: ChunkClock,
    voiced: bool,
    /// Newest chunks that are in no utterance; at most the pre-roll.
    idle: VecDeque<(Pts, Box<Chunk>)>,
    open: Option<Open>,
}

#[derive(Clone, Debug)]
struct Open {
    start: Pts,
    pcm: Vec<f32>,
    /// Per chunk of `pcm`.
    voiced: Vec<bool>,
}

impl Segmenter {
    /// For one stream. Settings below their minimum count as the minimum.
    pub fn new(settings: SegmenterSettings) -> Self {
        let chunks = |ms: u64| (ms.saturating_mul(1_000) / CHUNK_US as u64) as usize;
        Segmenter {
            // An hour is more than any setting allows; it keeps the arithmetic from overflowing.
            chunks_max: chunks(settings.utterance_ms_max.clamp(1_000, 3_600_000)),
            pause_chunks: chunks(settings.pause_ms.clamp(100, 3_600_000)).max(BREATH_CHUNKS),
            number: 0,
            clock: ChunkClock::default(),
            voiced: false,
            idle: VecDeque::with_capacity(PRE_ROLL_CHUNKS + 1),
            open: None,
        }
    }

    /// Takes the next chunk, which starts at `pts` and holds speech with this probability. A probability that is
    /// no number counts as 0. Gives what happened, in order.
    pub fn push(&mut self, pts: Pts, chunk: &Chunk, probability: f32) -> Vec<SpeechEvent> {
        let mut events = Vec::new();
        if self.clock.is_gap(pts) {
            events.extend(self.end_by(UtteranceEnd::Gap));
        }
        let start = self.clock.tick(pts, self.open.is_some());
        self.voiced = probability >= if self.voiced { CLOSE } else { OPEN };

        let Some(open) = &mut self.open else {
            self.idle.push_back((start, Box::new(*chunk)));
            if self.voiced {
                events.push(self.start());
            } else {
                trim(&mut self.idle);
            }
            return events;
        };
        open.push(chunk, self.voiced);
        let quiet = open.quiet_chunks();
        if quiet >= self.pause_chunks {
            events.extend(self.close_at_pause(UtteranceEnd::Pause));
        } else if open.chunks() >= self.chunks_max && quiet >= BREATH_CHUNKS {
            events.extend(self.close_at_pause(UtteranceEnd::Breath));
        } else if open.chunks() >= self.chunks_max + self.chunks_max / 2 {
            self.cut(&mut events);
        }
        events
    }

    /// The open utterance so far.
    pub fn running(&self) -> Option<Running<'_>> {
        self.open.as_ref().map(|open| Running {
            number: self.number,
            start: open.start,
            end: open.end(),
            pcm: &open.pcm,
        })
    }

    /// Closes what is open; the track has ended. More chunks may follow, as after a gap.
    pub fn end(&mut self) -> Option<SpeechEvent> {
        self.end_by(UtteranceEnd::End)
    }

    /// Samples in memory: never more than one and a half times the longest utterance, or the pre-roll.
    pub fn samples_held(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.pcm.len()) + self.idle.len() * CHUNK_SAMPLES
    }

    fn start(&mut self) -> SpeechEvent {
        let start = self.idle.front().map_or(Pts::ZERO, |(pts, _)| *pts);
        let mut open = Open { start, pcm: Vec::new(), voiced: Vec::new() };
        let quiet = self.idle.len().saturating_sub(1);
        for (i, (_, chunk)) in self.idle.drain(..).enumerate() {
            open.push(&chunk, i >= quiet);
        }
        self.open = Some(open);
        SpeechEvent::Started { number: self.number, start }
    }

    /// Keeps a short tail of the silence; the rest may be the next utterance's pre-roll.
    fn close_at_pause(&mut self, ended_by: UtteranceEnd) -> Option<SpeechEvent> {
        let mut open = self.open.take()?;
        let keep = open.chunks() - open.quiet_chunks().saturating_sub(TAIL_CHUNKS);
        let rest = open.split_off(keep);
        self.rest_to_idle(&rest);
        Some(self.closed(open, ended_by))
    }

    /// No pause came: cuts where it is quietest, so that no word is cut in two, and goes on with what follows.
    fn cut(&mut self, events: &mut Vec<SpeechEvent>) {
        let Some(mut open) = self.open.take() else { return };
        let rest = open.split_off(open.quietest_boundary());
        events.push(self.closed(open, UtteranceEnd::Length));
        if rest.voiced.contains(&true) {
            events.push(SpeechEvent::Started { number: self.number, start: rest.start });
            self.open = Some(rest);
        } else {
            self.rest_to_idle(&rest);
        }
    }

    fn end_by(&mut self, ended_by: UtteranceEnd) -> Option<SpeechEvent> {
        self.idle.clear();
        self.voiced = false;
        self.clock.restart();
        let mut open = self.open.take()?;
        let keep = open.chunks() - open.quiet_chunks().saturating_sub(TAIL_CHUNKS);
        open.split_off(keep);
        Some(self.closed(open, ended_by))
    }

    fn rest_to_idle(&mut self, rest: &Open) {
        let (chunks, _) = rest.pcm.as_chunks::<CHUNK_SAMPLES>();
        for (i, chunk) in chunks.iter().enumerate() {
            self.idle.push_back((rest.start + span(i), Box::new(*chunk)));
        }
        trim(&mut self.idle);
    }

    fn closed(&mut self, open: Open, ended_by: UtteranceEnd) -> SpeechEvent {
        let number = self.number;
        self.number += 1;
        SpeechEvent::Closed(Utterance {
            number,
            start: open.start,
            end: open.end(),
            pcm: open.pcm.into(),
            ended_by,
        })
    }
}

impl Open {
    fn push(&mut self, chunk: &Chunk, voiced: bool) {
        self.pcm.extend_from_slice(chunk);
        self.voiced.push(voiced);
    }

    fn chunks(&self) -> usize {
        self.voiced.len()
    }

    fn quiet_chunks(&self) -> usize {
        self.voiced.iter().rev().take_while(|v| !**v).count()
    }

    fn end(&self) -> Pts {
        self.start + span(self.chunks())
    }

    fn split_off(&mut self, at: usize) -> Open {
        Open {
            start: self.start + span(at),
            pcm: self.pcm.split_off(at * CHUNK_SAMPLES),
            voiced: self.voiced.split_off(at),
        }
    }

    /// The boundary between chunks of the last second around which 32 ms hold the least energy.
    fn quietest_boundary(&self) -> usize {
        let last = self.chunks().saturating_sub(1).max(1);
        let first = last.saturating_sub(LOOK_BACK_CHUNKS).max(1);
        let energy = |boundary: usize| -> f32 {
            let middle = boundary * CHUNK_SAMPLES;
            let around = middle - CHUNK_SAMPLES / 2..middle + CHUNK_SAMPLES / 2;
            self.pcm.get(around).unwrap_or_default().iter().map(|s| s * s).sum()
        };
        (first..=last).min_by(|a, b| energy(*a).total_cmp(&energy(*b))).unwrap_or(last)
    }
}

/// Media time of chunks: follows their pts, but never goes back, and is even inside an utterance.
#[derive(Clone, Debug, Default)]
struct ChunkClock {
    /// Where the next chunk is expected; none at the start and after a gap.
    expected: Option<Pts>,
    /// End of the newest chunk, as reported.
    reported: Pts,
    started: bool,
    /// Added to pts since they went back.
    shift_us: i64,
}

impl ChunkClock {
    fn is_gap(&self, pts: Pts) -> bool {
        self.expected.is_some_and(|expected| (pts - expected).abs() > GAP_US)
    }

    fn restart(&mut self) {
        self.expected = None;
    }

    /// Start of the chunk at `pts`, as it is reported.
    fn tick(&mut self, pts: Pts, in_utterance: bool) -> Pts {
        let chunk = span(1);
        let expected = match self.expected {
            Some(expected) if in_utterance => expected,
            _ => pts,
        };
        if self.expected.is_none() {
            let behind = if self.started { self.reported - pts } else { 0 };
            self.shift_us = behind.max(0);
        }
        let shifted = Pts(expected.0.saturating_add(self.shift_us));
        let start = if self.started { shifted.max(self.reported) } else { shifted };
        self.started = true;
        self.expected = Some(expected + chunk);
        self.reported = start + chunk;
        start
    }
}

fn span(chunks: usize) -> Duration {
    Duration::from_micros(chunks as u64 * CHUNK_US as u64)
}

/// Drops the oldest chunks that are more than the pre-roll.
fn trim(idle: &mut VecDeque<(Pts, Box<Chunk>)>) {
    while idle.len() > PRE_ROLL_CHUNKS {
        idle.pop_front();
    }
}

#[cfg(test)]
mod tests;
