//! Decoded media: pictures, sound and subtitles, each with its pts and the instant it arrived.

use bytes::Bytes;

use crate::time::{Mono, Pts, Span};

/// Rate of all audio inside the program.
pub const SAMPLE_RATE_HZ: u32 = 16_000;

/// A decoded picture, upright, RGB24, rows packed (no padding).
#[derive(Clone, Debug)]
pub struct Frame {
    /// When it is shown.
    pub pts: Pts,
    /// When its packet was read.
    pub arrival: Mono,
    /// Width in pixels of `pixels`; at most the sampling's `side_max`.
    pub width: u32,
    /// Height in pixels of `pixels`.
    pub height: u32,
    /// `width * height * 3` bytes, row by row, R G B.
    pub pixels: Bytes,
    /// Whether a scene cut was seen at this frame.
    pub cut: bool,
}

/// 16 kHz mono audio.
#[derive(Clone, Debug)]
pub struct Samples {
    /// Time of the first sample.
    pub pts: Pts,
    /// When the packet that completed this chunk was read.
    pub arrival: Mono,
    /// Amplitudes in -1..1.
    pub pcm: Vec<f32>,
}

impl Samples {
    /// Time just after the last sample.
    pub fn end(&self) -> Pts {
        Pts(self.pts.0 + self.pcm.len() as i64 * 1_000_000 / i64::from(SAMPLE_RATE_HZ))
    }
}

/// One entry of a subtitle track, markup removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subtitle {
    /// When it is shown.
    pub span: Span,
    /// When its packet was read.
    pub arrival: Mono,
    /// Plain text.
    pub text: String,
}
