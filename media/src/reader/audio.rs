//! The audio track: decodes, resamples to 16 kHz mono, hands out chunks of 32 ms.

use ff::ChannelLayout;
use ff::format::{Sample, sample};
use ff::software::resampling::Context;
use ffmpeg_next as ff;

use super::chunks::{Chunker, Fitted};
use super::notes::{Note, Outbox};
use super::timestamps::Timeline;
use super::track::{Base, Next, next};
use super::{TrackError, decoder_options, ffi};
use crate::frame::{SAMPLE_RATE_HZ, Samples};
use crate::source::{TrackCounts, TrackKind, Unit};
use crate::time::{Mono, Pts};

/// An open audio track.
pub(super) struct AudioTrack {
    pub(super) base: Base,
    pub(super) counts: TrackCounts,
    /// None when no sound is wanted: then only the packets' times are followed.
    decoder: Option<ff::decoder::Audio>,
    frame: ff::frame::Audio,
    resampler: Option<Context>,
    chunker: Chunker,
    pcm: Vec<f32>,
    ready: Vec<Samples>,
    ended: bool,
}

impl AudioTrack {
    pub(super) fn open(
        stream: &ff::Stream<'_>,
        wanted: bool,
        live: bool,
        counted: bool,
    ) -> Result<Self, TrackError> {
        let base = Base::new(TrackKind::Audio, stream, counted);
        let decoder = if wanted { Some(open_decoder(stream, &base, live)?) } else { None };
        Ok(AudioTrack {
            base,
            counts: TrackCounts::default(),
            decoder,
            frame: ff::frame::Audio::empty(),
            resampler: None,
            chunker: Chunker::default(),
            pcm: Vec::new(),
            ready: Vec::new(),
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
        let Some(decoder) = &mut self.decoder else {
            let raw_us = self.base.packet_us(packet);
            let duration_us = self.base.us(packet.duration());
            let pts = self.base.place(raw_us, duration_us, arrival, timeline, out);
            self.base.progress(pts, out);
            return Ok(last);
        };
        if std::mem::take(&mut self.ended) {
            // The container counted fewer packets than it holds.
            decoder.flush();
        }
        if decoder.send_packet(packet).is_err() {
            self.refused(packet, timeline, out);
        }
        self.receive(arrival, timeline, out)?;
        Ok(last)
    }

    /// Hands out what decoder, resampler and the last chunk still hold.
    pub(super) fn drain(
        &mut self,
        arrival: Mono,
        timeline: &mut Timeline,
        out: &mut Outbox,
    ) -> Result<(), TrackError> {
        if let Some(decoder) = &mut self.decoder
            && !std::mem::replace(&mut self.ended, true)
        {
            if decoder.send_eof().is_ok() {
                self.receive(arrival, timeline, out)?;
            }
            self.empty_resampler(arrival);
            self.chunker.finish(arrival, &mut self.ready);
            self.hand_out(out);
        }
        Ok(())
    }

    /// Channels and rate, for people.
    pub(super) fn detail(&self) -> String {
        match &self.decoder {
            Some(decoder) => {
                let (channels, rate) = (decoder.channels(), decoder.rate());
                let plural = if channels == 1 { "" } else { "s" };
                format!("{channels} channel{plural}, {rate} Hz")
            }
            None => "not decoded".to_owned(),
        }
    }

    fn refused(&mut self, packet: &ff::Packet, timeline: &Timeline, out: &mut Outbox) {
        self.counts.bad_packets += 1;
        out.note(Note::BadPackets, TrackKind::Audio, || {
            "packets that the decoder refuses are skipped".to_owned()
        });
        let pts = self.base.packet_us(packet).and_then(|us| timeline.map(us));
        if let Some(pts) = pts {
            self.base.progress(pts, out);
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
                Next::Frame => self.sound(arrival, timeline, out)?,
                Next::Error => self.counts.bad_packets += 1,
                Next::Nothing => break,
            }
        }
        Ok(())
    }

    /// One frame has left the decoder into `self.frame`.
    fn sound(
        &mut self,
        arrival: Mono,
        timeline: &mut Timeline,
        out: &mut Outbox,
    ) -> Result<(), TrackError> {
        self.counts.decoded += 1;
        if self.frame.channels() == 0 || self.frame.rate() == 0 || self.frame.samples() == 0 {
            self.counts.withheld += 1;
            return Ok(());
        }
        if self.frame.channel_layout().channels() != i32::from(self.frame.channels()) {
            let layout = ChannelLayout::default(i32::from(self.frame.channels()));
            self.frame.set_channel_layout(layout);
        }
        self.prepare_resampler(arrival, out)?;

        let frame = &self.frame;
        let raw_us = frame.pts().or(frame.timestamp()).map(|ticks| self.base.us(ticks));
        let duration_us = frame.samples() as i64 * 1_000_000 / i64::from(frame.rate());
        let pts = self.base.place(raw_us, duration_us, arrival, timeline, out);
        let fitted = self.chunker.fit(pts, duration_us, arrival, &mut self.ready);
        say_fitted(fitted, pts, out);

        self.pcm.clear();
        let resampled = match &mut self.resampler {
            Some(resampler) => ffi::resample(resampler, Some(&self.frame), &mut self.pcm),
            None => Err(ff::Error::InputChanged),
        };
        if resampled.is_ok() {
            self.counts.sampled += 1;
        } else {
            self.counts.withheld += 1;
        }
        self.chunker.push(&self.pcm, arrival, &mut self.ready);
        self.hand_out(out);
        Ok(())
    }

    /// Makes the resampler fit `self.frame`; what the old one holds belongs to the old format.
    fn prepare_resampler(&mut self, arrival: Mono, out: &mut Outbox) -> Result<(), TrackError> {
        let frame = &self.frame;
        let (format, layout, rate) = (frame.format(), frame.channel_layout(), frame.rate());
        if let Some(resampler) = &self.resampler {
            let before = *resampler.input();
            if (before.format, before.channel_layout, before.rate) == (format, layout, rate) {
                return Ok(());
            }
            self.empty_resampler(arrival);
            out.note(Note::FormatChange, TrackKind::Audio, || {
                let (was, is) = (before.channel_layout.channels(), layout.channels());
                format!("{was} channels at {} Hz became {is} at {rate} Hz", before.rate)
            });
        }
        let to = (Sample::F32(sample::Type::Packed), ChannelLayout::MONO, SAMPLE_RATE_HZ);
        let made = Context::get(format, layout, rate, to.0, to.1, to.2);
        let made = made.map_err(|e| TrackError {
            track: TrackKind::Audio,
            found: format!("{format:?}, {} channels at {rate} Hz", layout.channels()),
            supported: format!("what libswresample converts: {e}"),
        })?;
        self.resampler = Some(made);
        Ok(())
    }

    fn empty_resampler(&mut self, arrival: Mono) {
        let Some(mut resampler) = self.resampler.take() else {
            return;
        };
        self.pcm.clear();
        // Two rounds: the first may leave what its own padding produced.
        for _ in 0..2 {
            if ffi::resample(&mut resampler, None, &mut self.pcm).is_err() {
                break;
            }
        }
        self.chunker.push(&self.pcm, arrival, &mut self.ready);
    }

    fn hand_out(&mut self, out: &mut Outbox) {
        for samples in self.ready.drain(..) {
            self.base.handed_out(samples.end());
            out.push(Unit::Samples(samples));
        }
    }
}

fn say_fitted(fitted: Fitted, pts: Pts, out: &mut Outbox) {
    let (us, what) = match fitted {
        Fitted::Seamless => return,
        Fitted::Silence(us) => (us, "filled with silence"),
        Fitted::Restarted(us) => (us, "left empty"),
    };
    out.note(Note::SoundGap, TrackKind::Audio, || {
        format!("a gap of {:.3} s before {pts} is {what}", us as f64 / 1e6)
    });
}

fn open_decoder(
    stream: &ff::Stream<'_>,
    base: &Base,
    live: bool,
) -> Result<ff::decoder::Audio, TrackError> {
    let (codec, mut context) = base.decoder(stream)?;
    let id = stream.parameters().id();
    // RFC 3551 fixes the rate of G.711 over RTP; cameras that leave it out are taken for 44.1 kHz otherwise.
    if live && matches!(id, ff::codec::Id::PCM_ALAW | ff::codec::Id::PCM_MULAW) {
        ffi::set_rate(&mut context, 8_000);
    }
    let mut decoder = context.decoder();
    decoder.set_packet_time_base(base.time_base());
    let opened = decoder.open_as_with(codec, decoder_options()).and_then(|opened| opened.audio());
    opened.map_err(|e| base.unsupported(id, format!("its decoder does not open: {e}")))
}
