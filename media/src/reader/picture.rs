//! From a decoded frame to packed RGB24: scaled, upright, in its own colour matrix and range.
//!
//! Pixels are taken as square (a sample aspect ratio is not applied), interlaced pictures stay woven, and HDR
//! transfer curves are not tone-mapped.

use bytes::Bytes;
use ff::format::Pixel;
use ff::software::scaling::{Context, Flags};
use ffmpeg_next as ff;

use super::cuts::GREY_SIZE;
use super::ffi;
use super::orientation::{Orientation, Padded};
use super::pool::PixelPool;

/// An upright RGB24 picture.
pub(super) struct Picture {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) pixels: Bytes,
}

/// A pixel format that can't be converted.
#[derive(Debug)]
pub(super) struct Unconvertible {
    /// Format and size.
    pub(super) found: String,
}

/// Converts pictures; rebuilds its scalers when size, format or colours change.
pub(super) struct Converter {
    side_max: u32,
    rgb: Option<Scaler>,
    grey: Option<Scaler>,
    grey_pixels: Vec<u8>,
    pool: PixelPool,
}

impl Converter {
    pub(super) fn new(side_max: u32) -> Self {
        let pool = PixelPool::default();
        Converter { side_max: side_max.max(1), rgb: None, grey: None, grey_pixels: vec![], pool }
    }

    /// The picture as models see it.
    pub(super) fn rgb(
        &mut self,
        frame: &ff::frame::Video,
        orientation: Orientation,
    ) -> Result<Picture, Unconvertible> {
        let target = Target {
            format: Pixel::RGB24,
            size: fit(frame.width(), frame.height(), self.side_max),
            flags: Flags::BILINEAR,
        };
        let scaled = scale(&mut self.rgb, frame, target)?;
        let (width, height) = orientation.size(scaled.width, scaled.height);
        let len = width as usize * height as usize * 3;
        let pixels = self.pool.fill(len, |out| orientation.copy(scaled, out));
        Ok(Picture { width, height, pixels })
    }

    /// A small grey picture for finding cuts, packed rows of `GREY_SIZE`.
    pub(super) fn grey(&mut self, frame: &ff::frame::Video) -> Result<&[u8], Unconvertible> {
        // Point sampling reads only the pixels that it needs.
        let target = Target { format: Pixel::GRAY8, size: GREY_SIZE, flags: Flags::POINT };
        let scaled = scale(&mut self.grey, frame, target)?;
        self.grey_pixels.clear();
        for row in scaled.data.chunks(scaled.stride).take(scaled.height as usize) {
            self.grey_pixels.extend_from_slice(&row[..scaled.width as usize]);
        }
        Ok(&self.grey_pixels)
    }
}

/// Largest size with this shape whose longest side is at most `side_max`.
fn fit(width: u32, height: u32, side_max: u32) -> (u32, u32) {
    let longest = width.max(height);
    if longest <= side_max {
        return (width, height);
    }
    let scaled = |side: u32| {
        let exact =
            (u64::from(side) * u64::from(side_max) + u64::from(longest) / 2) / u64::from(longest);
        (exact as u32).clamp(1, side_max)
    };
    (scaled(width), scaled(height))
}

#[derive(Clone, Copy)]
struct Target {
    format: Pixel,
    size: (u32, u32),
    flags: Flags,
}

struct Scaler {
    context: Context,
    source: Source,
    size: (u32, u32),
    /// libswscale wants aligned rows, so it writes here and rows are packed from here.
    out: ff::frame::Video,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Source {
    format: Pixel,
    width: u32,
    height: u32,
    colours: (i32, bool),
}

fn scale<'a>(
    slot: &'a mut Option<Scaler>,
    frame: &ff::frame::Video,
    target: Target,
) -> Result<Padded<'a>, Unconvertible> {
    let (width, height) = (frame.width(), frame.height());
    let unconvertible = || Unconvertible {
        found: format!("pixel format {:?}, {width}x{height}", frame.format()).to_lowercase(),
    };
    let source = Source { format: frame.format(), width, height, colours: ffi::colours(frame) };
    if width == 0 || height == 0 || source.format == Pixel::None || frame.planes() == 0 {
        return Err(unconvertible());
    }
    if slot.as_ref().is_none_or(|s| s.source != source || s.size != target.size) {
        *slot = None;
        let (w, h) = target.size;
        let (from, to) = (source.format, target.format);
        let context = Context::get(from, width, height, to, w, h, target.flags);
        let mut context = context.map_err(|_| unconvertible())?;
        ffi::set_colours(&mut context, source.colours.0, source.colours.1);
        let out = ff::frame::Video::empty();
        *slot = Some(Scaler { context, source, size: target.size, out });
    }
    let scaler = slot.as_mut().ok_or_else(unconvertible)?;
    scaler.context.run(frame, &mut scaler.out).map_err(|_| unconvertible())?;
    if scaler.out.planes() == 0 {
        return Err(unconvertible());
    }
    let (width, height) = scaler.size;
    Ok(Padded { data: scaler.out.data(0), stride: scaler.out.stride(0), width, height })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_side_is_bounded_and_small_pictures_are_kept() {
        for (size, side_max, want) in [
            ((1920, 1080), 960, (960, 540)),
            ((1080, 1920), 960, (540, 960)),
            ((320, 180), 960, (320, 180)),
            ((7680, 4320), 640, (640, 360)),
            ((10_000, 1), 100, (100, 1)),
            ((u32::MAX, u32::MAX), 100, (100, 100)),
        ] {
            assert_eq!(fit(size.0, size.1, side_max), want);
        }
    }
}
