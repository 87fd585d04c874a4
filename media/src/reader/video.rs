//! The video track: decodes everything, hands out what is wanted and undamaged.
//!
//! Its one rule: each picture that leaves the decoder is counted once, as sampled, skipped or withheld.

use ffmpeg_next as ff;

use super::cuts::CutFinder;
use super::damage::{DamageGate, Health};
use super::notes::{Note, Outbox};
use super::orientation::Orientation;
use super::picture::Converter;
use super::sampler::Sampler;
use super::timestamps::Timeline;
use super::track::{Base, Next, next};
use super::{TrackError, decoder_options, ffi};
use crate::frame::Frame;
use crate::source::{Sampling, TrackCounts, TrackKind, Unit};
use crate::time::Mono;

/// Pictures beyond this many pixels are refused (twice 8K): one of them already takes 100 MB.
pub(super) const PIXELS_MAX: u64 = 2 * 7_680 * 4_320;
/// A picture that claims to be shown for longer says nothing about where its track ends.
const PICTURE_US_MAX: i64 = 1_000_000;

/// An open video track.
pub(super) struct VideoTrack {
    pub(super) base: Base,
    pub(super) counts: TrackCounts,
    /// None when no picture is wanted: then only the packets' times are followed.
    decoder: Option<ff::decoder::Video>,
    frame: ff::frame::Video,
    sampler: Sampler,
    cuts: Option<CutFinder>,
    gate: DamageGate,
    converter: Converter,
    stored: Orientation,
    size: Option<(u32, u32)>,
    /// How long the newest picture is shown.
    picture_us: i64,
    ended: bool,
}

impl VideoTrack {
    pub(super) fn open(
        stream: &ff::Stream<'_>,
        sampling: &Sampling,
        counted: bool,
        out: &mut Outbox,
    ) -> Result<Self, TrackError> {
        let base = Base::new(TrackKind::Video, stream, counted);
        let sampler = Sampler::new(sampling.fps);
        let wanted = sampling.cuts || sampling.fps > 0.0;
        let decoder = if wanted { Some(open_decoder(stream, &base)?) } else { None };
        Ok(VideoTrack {
            base,
            counts: TrackCounts::default(),
            decoder,
            frame: ff::frame::Video::empty(),
            sampler,
            cuts: sampling.cuts.then(CutFinder::default),
            gate: DamageGate::default(),
            converter: Converter::new(sampling.side_max),
            stored: stored_orientation(stream, out),
            size: None,
            picture_us: 0,
            ended: false,
        })
    }

    /// Takes in a packet; true when it was the last one.
    pub(super) fn feed(
        &mut self,
        packet: &ff::Packet,
        arrival: Mono,
        timeline: &mut Timeline,
        out: &mut Outbox,
    ) -> Result<bool, TrackError> {
        let last = self.base.packet(packet, arrival);
        let order = self.base.order();
        let Some(decoder) = &mut self.decoder else {
            let dts_us = packet.dts().or(packet.pts()).map(|ticks| self.base.us(ticks));
            let duration_us = self.base.us(packet.duration());
            let pts = self.base.place(dts_us, duration_us, arrival, timeline, out);
            self.base.progress(pts, out);
            return Ok(last);
        };
        if std::mem::take(&mut self.ended) {
            // The container counted fewer packets than it holds.
            decoder.flush();
            self.gate.lost(order);
        }
        let refused = decoder.send_packet(packet).is_err();
        if refused {
            self.counts.bad_packets += 1;
            self.say_refused(out);
        }
        if packet.is_key() {
            self.gate.keyframe(order);
        }
        if refused {
            self.gate.lost(order);
        } else if packet.is_corrupt() {
            self.gate.lost_near(order);
        } else if packet.is_key() && ffi::is_unseen(packet) {
            self.gate.unseen_keyframe(order);
        }
        let decoded = self.counts.decoded;
        self.receive(arrival, timeline, out)?;
        if self.gate.is_closed() && self.counts.decoded == decoded {
            // Whatever comes is withheld up to a keyframe that is yet to be read.
            let dts = packet.dts().and_then(|ticks| timeline.map(self.base.us(ticks)));
            if let Some(pts) = dts {
                self.base.progress(pts, out);
            }
        }
        Ok(last)
    }

    /// Hands out what the decoder still holds.
    pub(super) fn drain(
        &mut self,
        arrival: Mono,
        timeline: &mut Timeline,
        out: &mut Outbox,
    ) -> Result<(), TrackError> {
        if let Some(decoder) = &mut self.decoder
            && !std::mem::replace(&mut self.ended, true)
            && decoder.send_eof().is_ok()
        {
            self.receive(arrival, timeline, out)?;
            self.base.ended(self.picture_us, out);
        }
        Ok(())
    }

    /// Size and rate, for people.
    pub(super) fn detail(&self, stream: &ff::Stream<'_>) -> String {
        let (w, h) = ffi::picture_size(stream);
        let rate = stream.avg_frame_rate();
        match rate.denominator() {
            0 => format!("{w}x{h}"),
            _ => format!("{w}x{h}, {:.5} fps", f64::from(rate)).replace(".00000", ""),
        }
    }

    fn receive(
        &mut self,
        arrival: Mono,
        timeline: &mut Timeline,
        out: &mut Outbox,
    ) -> Result<(), TrackError> {
        let mut errors = 0;
        while let Some(decoder) = &mut self.decoder {
            match next(decoder, &mut self.frame, &mut errors) {
                Next::Frame => self.picture(arrival, timeline, out)?,
                Next::Error => {
                    self.counts.bad_packets += 1;
                    self.gate.lost(self.base.order());
                    self.say_refused(out);
                }
                Next::Nothing => break,
            }
        }
        Ok(())
    }

    /// One picture has left the decoder into `self.frame`.
    fn picture(
        &mut self,
        arrival: Mono,
        timeline: &mut Timeline,
        out: &mut Outbox,
    ) -> Result<(), TrackError> {
        self.counts.decoded += 1;
        let frame = &self.frame;
        let raw_us = frame.pts().or(frame.timestamp()).map(|ticks| self.base.us(ticks));
        let duration_us = self.base.us(frame.packet().duration);
        self.picture_us = duration_us.clamp(0, PICTURE_US_MAX);
        let origin = self.base.origin(raw_us);
        let health = Health {
            key: frame.is_key(),
            damaged: frame.is_corrupt() || frame.has_decode_errors(),
            order: origin.map(|o| o.order),
            newest: self.base.order(),
        };
        let too_large = u64::from(frame.width()) * u64::from(frame.height()) > PIXELS_MAX;
        if !self.gate.admits(health) || too_large {
            self.counts.withheld += 1;
            self.say_withheld(out);
            // Damage may bring pictures out of order: their times must not move the track.
            let pts = match raw_us {
                Some(us) => timeline.map(us),
                None => Some(self.base.place(None, duration_us, arrival, timeline, out)),
            };
            if let Some(pts) = pts {
                self.base.progress(pts, out);
            }
            return Ok(());
        }
        let arrival = origin.map_or(arrival, |o| o.arrival);
        let pts = self.base.place(raw_us, duration_us, arrival, timeline, out);
        self.say_size(out);

        let due = self.sampler.take(pts);
        let cut = match &mut self.cuts {
            Some(cuts) => {
                let grey = self.converter.grey(&self.frame);
                grey.is_ok_and(|grey| cuts.is_cut(pts, grey))
            }
            None => false,
        };
        if !due && !cut {
            self.counts.skipped += 1;
            self.base.progress(pts, out);
            return Ok(());
        }
        let turned = self.frame.side_data(ff::frame::side_data::Type::DisplayMatrix);
        let turned = turned.and_then(|matrix| Orientation::from_matrix(matrix.data()));
        match self.converter.rgb(&self.frame, turned.unwrap_or(self.stored)) {
            Ok(picture) => {
                self.counts.sampled += 1;
                self.base.handed_out(pts);
                out.push(Unit::Frame(Frame {
                    pts,
                    arrival,
                    width: picture.width,
                    height: picture.height,
                    pixels: picture.pixels,
                    cut,
                }));
                Ok(())
            }
            Err(unconvertible) => {
                self.counts.withheld += 1;
                let supported = "what libswscale converts to rgb24".to_owned();
                Err(TrackError { track: TrackKind::Video, found: unconvertible.found, supported })
            }
        }
    }

    fn say_refused(&self, out: &mut Outbox) {
        if self.size.is_some() {
            let text = || "packets that the decoder refuses are skipped".to_owned();
            out.note(Note::BadPackets, TrackKind::Video, text);
        } else {
            self.say_withheld(out);
        }
    }

    fn say_withheld(&self, out: &mut Outbox) {
        let (note, text) = if self.size.is_none() {
            (Note::AwaitingKeyframe, "waiting for a keyframe: nothing is shown before it")
        } else {
            (Note::Damage, "damaged pictures are withheld up to the next keyframe")
        };
        out.note(note, TrackKind::Video, || text.to_owned());
    }

    fn say_size(&mut self, out: &mut Outbox) {
        let size = (self.frame.width(), self.frame.height());
        if let Some(before) = self.size.replace(size)
            && before != size
        {
            out.note(Note::FormatChange, TrackKind::Video, || {
                format!("size changed from {}x{} to {}x{}", before.0, before.1, size.0, size.1)
            });
        }
    }
}

fn open_decoder(stream: &ff::Stream<'_>, base: &Base) -> Result<ff::decoder::Video, TrackError> {
    let (w, h) = ffi::picture_size(stream);
    if u64::from(w) * u64::from(h) > PIXELS_MAX {
        let supported = format!("at most {PIXELS_MAX} pixels");
        return Err(TrackError {
            track: TrackKind::Video,
            found: format!("size {w}x{h}"),
            supported,
        });
    }
    let (codec, context) = base.decoder(stream)?;
    let mut decoder = context.decoder();
    decoder.set_packet_time_base(base.time_base());
    let mut options = decoder_options();
    // Damaged pictures come out too, marked: they are counted and withheld here.
    options.set("flags", "+output_corrupt");
    options.set("max_pixels", &PIXELS_MAX.to_string());
    let opened = decoder.open_as_with(codec, options).and_then(|opened| opened.video());
    let id = stream.parameters().id();
    opened.map_err(|e| base.unsupported(id, format!("its decoder does not open: {e}")))
}

fn stored_orientation(stream: &ff::Stream<'_>, out: &mut Outbox) -> Orientation {
    let mut side_data = stream.side_data();
    let kind = ff::codec::packet::side_data::Type::DisplayMatrix;
    let Some(matrix) = side_data.find(|data| data.kind() == kind) else {
        return Orientation::UPRIGHT;
    };
    Orientation::from_matrix(matrix.data()).unwrap_or_else(|| {
        out.note(Note::OddRotation, TrackKind::Video, || {
            "its rotation is no multiple of 90 degrees: pictures stay as stored".to_owned()
        });
        Orientation::UPRIGHT
    })
}
