//! What the tracks of a source have in common: which ones are read, their times, their progress.

use std::collections::VecDeque;

use ff::format::context::Input;
use ff::format::stream::Disposition;
use ffmpeg_next as ff;

use super::notes::{Note, Outbox};
use super::timestamps::{Claim, Fix, Placed, Timeline, TrackClock};
use super::{TrackError, ffi};
use crate::source::{TrackKind, Unit};
use crate::time::{Mono, Pts};

/// Media time between two progress reports of a track.
const PROGRESS_APART_US: i64 = 100_000;
/// Frames without a time that are worth a note.
const UNTIMED_NOTED: u32 = 5;
/// Errors that a decoder may report for one packet.
const ERRORS_MAX: u32 = 32;
/// Packets that are remembered; decoders hold back at most 16 pictures.
const PACKETS_MAX: usize = 64;

/// Stream indexes of the tracks that were chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) video: Option<usize>,
    pub(super) audio: Option<usize>,
    pub(super) subtitle: Option<usize>,
    /// All kinds that were found, for messages.
    pub(super) found: Vec<&'static str>,
}

/// Picks the best track of each kind: decodable before not, marked as default before not, larger before smaller,
/// first before later. Cover pictures and bitmap subtitles are no candidates.
pub(super) fn choose(input: &Input) -> Chosen {
    let mut chosen = Chosen::default();
    let (mut video, mut audio, mut subtitle) = (None, None, None);
    for stream in input.streams() {
        let parameters = stream.parameters();
        let (medium, id) = (parameters.medium(), parameters.id());
        let disposition = stream.disposition();
        let is = |flag| disposition.contains(flag);
        let decodable = ff::decoder::find(id).is_some();
        let (slot, rank) = match medium {
            ff::media::Type::Video if is(Disposition::ATTACHED_PIC) => {
                chosen.found.push("cover picture");
                continue;
            }
            ff::media::Type::Video => {
                chosen.found.push("video");
                let (w, h) = ffi::picture_size(&stream);
                (&mut video, u64::from(w) * u64::from(h))
            }
            ff::media::Type::Audio => {
                chosen.found.push("audio");
                let narrated = is(Disposition::VISUAL_IMPAIRED) || is(Disposition::COMMENT);
                (&mut audio, u64::from(!narrated))
            }
            ff::media::Type::Subtitle if is_text(id) => {
                chosen.found.push("subtitle");
                (&mut subtitle, u64::from(!is(Disposition::FORCED)))
            }
            ff::media::Type::Subtitle => {
                chosen.found.push("bitmap subtitle");
                continue;
            }
            ff::media::Type::Attachment => {
                chosen.found.push("attachment");
                continue;
            }
            _ => {
                chosen.found.push("data");
                continue;
            }
        };
        let rank = (decodable, is(Disposition::DEFAULT), rank);
        if slot.is_none_or(|(best, _)| rank > best) {
            *slot = Some((rank, stream.index()));
        }
    }
    let index = |slot: Option<(_, usize)>| slot.map(|(_, index)| index);
    chosen.video = index(video);
    chosen.audio = index(audio);
    chosen.subtitle = index(subtitle);
    chosen
}

fn is_text(id: ff::codec::Id) -> bool {
    use ff::codec::Id;
    matches!(id, Id::MOV_TEXT | Id::SUBRIP | Id::SRT | Id::TEXT | Id::ASS | Id::SSA | Id::WEBVTT)
}

/// Ticks of a time base as microseconds.
pub(super) fn to_us(ticks: i64, base: ff::Rational) -> i64 {
    let (num, den) = (i128::from(base.numerator()), i128::from(base.denominator()).max(1));
    let us = i128::from(ticks) * 1_000_000 * num / den;
    us.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// Where a frame came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// Number of the packet in its track.
    pub(super) order: u64,
    /// When it was read.
    pub(super) arrival: Mono,
}

/// What a decoder does when it is asked for a frame.
pub(super) enum Next {
    Frame,
    Error,
    /// It wants another packet, or has complained too often about this one.
    Nothing,
}

/// Asks for a frame; `errors` counts those of one packet.
pub(super) fn next(
    decoder: &mut ff::decoder::Opened,
    frame: &mut ff::Frame,
    errors: &mut u32,
) -> Next {
    match decoder.receive_frame(frame) {
        Ok(()) => Next::Frame,
        Err(ff::Error::Eof | ff::Error::Other { errno: libc::EAGAIN }) => Next::Nothing,
        Err(_) if *errors >= ERRORS_MAX => Next::Nothing,
        Err(_) => {
            *errors += 1;
            Next::Error
        }
    }
}

/// The bookkeeping of one track.
pub(super) struct Base {
    pub(super) kind: TrackKind,
    pub(super) index: usize,
    time_base: ff::Rational,
    clock: TrackClock,
    last_arrival: Option<Mono>,
    /// Newest packets: time on the source's clock, arrival, number.
    packets: VecDeque<(i64, Origin)>,
    packet_count: u64,
    /// Frames without a time.
    untimed: u32,
    reported: Option<Pts>,
    /// Packets still to come, where the container counts them.
    remaining: Option<i64>,
}

impl Base {
    pub(super) fn new(kind: TrackKind, stream: &ff::Stream<'_>, counted: bool) -> Self {
        let rates = [stream.avg_frame_rate(), stream.rate()];
        let rate = rates.into_iter().find(|r| r.numerator() > 0 && r.denominator() > 0);
        let step_us = rate.map_or(0, |r| to_us(1, r.invert()));
        Base {
            kind,
            index: stream.index(),
            time_base: stream.time_base(),
            clock: TrackClock::new(step_us),
            last_arrival: None,
            packets: VecDeque::new(),
            packet_count: 0,
            untimed: 0,
            reported: None,
            remaining: (counted && stream.frames() > 0).then(|| stream.frames()),
        }
    }

    /// A decoder for the track, not open yet.
    pub(super) fn decoder(
        &self,
        stream: &ff::Stream<'_>,
    ) -> Result<(ff::Codec, ff::codec::Context), TrackError> {
        let id = stream.parameters().id();
        let codec = ff::decoder::find(id)
            .ok_or_else(|| self.unsupported(id, "no decoder in this build of ffmpeg".into()))?;
        let context = ff::codec::Context::from_parameters(stream.parameters())
            .map_err(|_| self.unsupported(id, "its parameters are broken".into()))?;
        Ok((codec, context))
    }

    pub(super) fn unsupported(&self, id: ff::codec::Id, why: String) -> TrackError {
        TrackError { track: self.kind, found: format!("codec {}", id.name()), supported: why }
    }

    pub(super) fn time_base(&self) -> ff::Rational {
        self.time_base
    }

    pub(super) fn us(&self, ticks: i64) -> i64 {
        to_us(ticks, self.time_base)
    }

    /// Presentation time of a packet on the source's own clock.
    pub(super) fn packet_us(&self, packet: &ff::Packet) -> Option<i64> {
        packet.pts().or(packet.dts()).map(|ticks| self.us(ticks))
    }

    /// Takes note of a packet; true when it is the last one that the container counts.
    pub(super) fn packet(&mut self, packet: &ff::Packet, arrival: Mono) -> bool {
        self.packet_count += 1;
        if let Some(us) = self.packet_us(packet) {
            if self.packets.len() == PACKETS_MAX {
                self.packets.pop_front();
            }
            self.packets.push_back((us, Origin { order: self.packet_count, arrival }));
        }
        let Some(remaining) = &mut self.remaining else {
            return false;
        };
        *remaining -= 1;
        *remaining == 0
    }

    /// Number of the newest packet.
    pub(super) fn order(&self) -> u64 {
        self.packet_count
    }

    /// The packet with this time; none for frames that can't be told apart. Each packet is found once: two
    /// recordings put end to end may hold the same time twice.
    pub(super) fn origin(&mut self, raw_us: Option<i64>) -> Option<Origin> {
        let us = raw_us?;
        let found = self.packets.iter().position(|(at, _)| *at == us)?;
        self.packets.remove(found).map(|(_, origin)| origin)
    }

    /// Gives a frame its media time and says what had to be repaired.
    pub(super) fn place(
        &mut self,
        raw_us: Option<i64>,
        duration_us: i64,
        arrival: Mono,
        timeline: &mut Timeline,
        out: &mut Outbox,
    ) -> Pts {
        let elapsed = self.last_arrival.map_or(0, |last| arrival.0.saturating_sub(last.0));
        self.last_arrival = Some(self.last_arrival.map_or(arrival, |last| last.max(arrival)));
        let elapsed_us = i64::try_from(elapsed).unwrap_or(i64::MAX);
        let claim = Claim { raw_us, duration_us, elapsed_us };
        let Placed { pts, fix } = timeline.place(&mut self.clock, claim);
        let (note, text) = match fix {
            None => return pts,
            Some(Fix::Missing) => {
                // A live source may lack them only until its first report.
                self.untimed += 1;
                if self.untimed < UNTIMED_NOTED {
                    return pts;
                }
                (Note::SyntheticTimes, "no times in the source: made from its rate".to_owned())
            }
            Some(Fix::Negative) => {
                (Note::NegativeTimes, "starts before the source's start: moved to it".to_owned())
            }
            Some(Fix::Backward) => {
                (Note::BackwardTimes, format!("times went back at {pts}: put in order"))
            }
            Some(Fix::Jump(us)) => {
                let jump = us as f64 / 1e6;
                (Note::ClockJump, format!("clock jumped by {jump:+.3} s at {pts}: times go on"))
            }
        };
        out.note(note, self.kind, || text);
        pts
    }

    /// The newest media time of the track.
    pub(super) fn last(&self) -> Option<Pts> {
        self.clock.last()
    }

    /// Something of this track was handed out up to `pts`.
    pub(super) fn handed_out(&mut self, pts: Pts) {
        self.reported = self.reported.max(Some(pts));
    }

    /// Reports that everything before `pts` has been delivered, when the last report is old enough.
    pub(super) fn progress(&mut self, pts: Pts, out: &mut Outbox) {
        let since = self.reported.unwrap_or(Pts::ZERO);
        if pts - since >= PROGRESS_APART_US {
            self.reported = Some(pts);
            out.push(Unit::Progress { track: self.kind, pts });
        }
    }

    /// Reports the end of the last unit, which is `length_us` long: a track reaches to there, sampled or not.
    pub(super) fn ended(&mut self, length_us: i64, out: &mut Outbox) {
        let Some(last) = self.last() else { return };
        let end = Pts(last.0.saturating_add(length_us));
        if Some(end) > self.reported {
            self.reported = Some(end);
            out.push(Unit::Progress { track: self.kind, pts: end });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_any_size_become_microseconds() {
        assert_eq!(to_us(90_000, ff::Rational::new(1, 90_000)), 1_000_000);
        assert_eq!(to_us(-1, ff::Rational::new(1, 25)), -40_000);
        assert_eq!(to_us(i64::MAX, ff::Rational::new(1, 1)), i64::MAX);
        assert_eq!(to_us(1, ff::Rational::new(1, 0)), 1_000_000);
    }
}
