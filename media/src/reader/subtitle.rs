//! The subtitle track: text entries with their time on the screen.

use std::time::Duration;

use ffmpeg_next as ff;

use super::notes::{Note, Outbox};
use super::timestamps::Timeline;
use super::track::Base;
use super::{TrackError, ffi, plain};
use crate::frame::Subtitle;
use crate::source::{TrackKind, Unit};
use crate::time::{Mono, Pts, Span};

/// An entry that does not say how long it is shown.
const SHOWN_DEFAULT: Duration = Duration::from_secs(3);

/// An open text subtitle track.
pub(super) struct SubtitleTrack {
    pub(super) base: Base,
    decoder: ff::decoder::Subtitle,
    last: Pts,
}

impl SubtitleTrack {
    pub(super) fn open(stream: &ff::Stream<'_>) -> Result<Self, TrackError> {
        let id = stream.parameters().id();
        let unsupported = |e: ff::Error| TrackError {
            track: TrackKind::Subtitle,
            found: format!("codec {}", id.name()),
            supported: format!("its decoder does not open: {e}"),
        };
        let base = Base::new(TrackKind::Subtitle, stream, false);
        let context = ff::codec::context::Context::from_parameters(stream.parameters());
        let mut decoder = context.map_err(unsupported)?.decoder();
        decoder.set_packet_time_base(base.time_base());
        let decoder = decoder.subtitle().map_err(unsupported)?;
        Ok(SubtitleTrack { base, decoder, last: Pts::ZERO })
    }

    /// Takes in a packet.
    pub(super) fn feed(
        &mut self,
        packet: &ff::Packet,
        arrival: Mono,
        timeline: &Timeline,
        out: &mut Outbox,
    ) {
        let Ok(lines) = ffi::subtitle_lines(&mut self.decoder, packet) else {
            out.note(Note::BadPackets, TrackKind::Subtitle, || {
                "entries that can't be read are skipped".to_owned()
            });
            return;
        };
        let lines: Vec<String> = lines.iter().map(|line| plain::from_ass(line)).collect();
        let text = lines.join("\n").trim().to_owned();
        let pts = self.base.packet_us(packet).and_then(|us| timeline.map(us));
        let (Some(pts), false) = (pts, text.is_empty()) else {
            return;
        };
        let start = pts.max(self.last);
        let shown_us = self.base.us(packet.duration());
        let shown = match u64::try_from(shown_us) {
            Ok(us) if us > 0 => Duration::from_micros(us),
            _ => SHOWN_DEFAULT,
        };
        self.last = start;
        self.base.handed_out(start);
        out.push(Unit::Subtitle(Subtitle {
            span: Span { start, end: pts.max(start) + shown },
            arrival,
            text,
        }));
    }

    /// The other tracks have come this far; containers keep text beside them.
    pub(super) fn passed(&mut self, pts: Pts, out: &mut Outbox) {
        self.base.progress(pts, out);
    }
}
