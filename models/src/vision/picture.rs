//! From frames to the inputs of networks: crop, resize, channel order, normalisation.

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use media::{Frame, Rect};

use crate::model::ModelError;

/// Order of colours that a network was trained with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Colours {
    Rgb,
    Bgr,
}

/// value = (byte - mean) / deviation, per colour in the network's own order.
pub(super) struct Normal {
    pub(super) colours: Colours,
    pub(super) mean: [f32; 3],
    pub(super) deviation: [f32; 3],
}

/// Part of a frame in its pixels, not necessarily whole ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Area {
    pub(super) fn whole(frame: &Frame) -> Area {
        Area { left: 0.0, top: 0.0, width: f64::from(frame.width), height: f64::from(frame.height) }
    }

    /// The part of `rect` that lies inside the frame; none when less than a pixel is left.
    pub(super) fn of_rect(frame: &Frame, rect: Rect) -> Option<Area> {
        let Rect(x, y, w, h) = rect;
        let (width, height) = (f64::from(frame.width), f64::from(frame.height));
        let clip = |v: f32, size: f64| (f64::from(v) * size).clamp(0.0, size);
        let (left, right) = (clip(x, width), clip(x + w, width));
        let (top, bottom) = (clip(y, height), clip(y + h, height));
        let area = Area { left, top, width: right - left, height: bottom - top };
        // A comparison that is false for NaN too.
        (area.width >= 1.0 && area.height >= 1.0).then_some(area)
    }

    /// The largest centred square, shrunk to `share` of its side.
    pub(super) fn centre_square(frame: &Frame, share: f64) -> Area {
        let whole = Area::whole(frame);
        let side = whole.width.min(whole.height) * share;
        Area {
            left: (whole.width - side) / 2.0,
            top: (whole.height - side) / 2.0,
            width: side,
            height: side,
        }
    }
}

/// Resizes with antialiasing; keeps its buffers between frames.
pub(super) struct Scaler {
    resizer: Resizer,
    options: ResizeOptions,
}

impl Scaler {
    pub(super) fn new() -> Self {
        let bilinear = ResizeAlg::Convolution(FilterType::Bilinear);
        let options = ResizeOptions::new().resize_alg(bilinear).use_alpha(false);
        Scaler { resizer: Resizer::new(), options }
    }

    /// `area` of `frame` as `width` x `height` RGB bytes.
    pub(super) fn scale(
        &mut self,
        model: &str,
        frame: &Frame,
        area: Area,
        width: u32,
        height: u32,
    ) -> Result<Vec<u8>, ModelError> {
        let failed = |detail: String| ModelError::Run { name: model.to_owned(), detail };
        let source = ImageRef::new(frame.width, frame.height, &frame.pixels, PixelType::U8x3)
            .map_err(|e| {
                failed(format!(
                    "frame of {} bytes for {}x{}: {e}",
                    frame.pixels.len(),
                    frame.width,
                    frame.height
                ))
            })?;
        let mut scaled = Image::new(width, height, PixelType::U8x3);
        let options = self.options.crop(area.left, area.top, area.width, area.height);
        self.resizer
            .resize(&source, &mut scaled, &options)
            .map_err(|e| failed(format!("{area:?} of {}x{}: {e}", frame.width, frame.height)))?;
        Ok(scaled.into_vec())
    }
}

impl Normal {
    /// Appends RGB bytes as three planes of `row_max` columns, those beyond `width` zero.
    pub(super) fn planes(&self, rgb: &[u8], width: usize, row_max: usize, out: &mut Vec<f32>) {
        for plane in 0..3 {
            let (channel, table) = self.channel(plane);
            for row in rgb.chunks_exact(width * 3) {
                out.extend(row.as_chunks::<3>().0.iter().map(|p| table[usize::from(p[channel])]));
                out.extend(std::iter::repeat_n(0.0, row_max - width));
            }
        }
    }

    /// Appends RGB bytes pixel by pixel.
    pub(super) fn interleaved(&self, rgb: &[u8], out: &mut Vec<f32>) {
        let channels = [self.channel(0), self.channel(1), self.channel(2)];
        for pixel in rgb.as_chunks::<3>().0 {
            out.extend(channels.iter().map(|(c, table)| table[usize::from(pixel[*c])]));
        }
    }

    /// Which byte of a pixel goes to plane `plane`, and the value of each byte there.
    fn channel(&self, plane: usize) -> (usize, [f32; 256]) {
        let channel = if self.colours == Colours::Bgr { 2 - plane } else { plane };
        let value = |byte| (byte as f32 - self.mean[plane]) / self.deviation[plane];
        (channel, std::array::from_fn(value))
    }
}

#[cfg(test)]
mod tests {
    use media::{Mono, Pts};

    use super::*;

    fn frame(width: u32, height: u32, pixels: Vec<u8>) -> Frame {
        let (pts, arrival) = (Pts::ZERO, Mono::default());
        Frame { pts, arrival, width, height, pixels: pixels.into(), cut: false }
    }

    #[test]
    fn planes_follow_the_networks_colour_order_and_are_padded_on_the_right() {
        let normal = Normal { colours: Colours::Bgr, mean: [1.0; 3], deviation: [2.0; 3] };
        let mut out = Vec::new();
        normal.planes(&[3, 5, 7, 9, 11, 13], 1, 2, &mut out);
        assert_eq!(out, [3.0, 0.0, 6.0, 0.0, 2.0, 0.0, 5.0, 0.0, 1.0, 0.0, 4.0, 0.0]);
    }

    #[test]
    fn a_frame_with_too_few_bytes_is_an_error() {
        let short = frame(4, 4, vec![0; 47]);
        let error = Scaler::new().scale("m", &short, Area::whole(&short), 2, 2).unwrap_err();
        assert!(error.to_string().contains("47 bytes for 4x4"), "{error}");
    }

    #[test]
    fn rects_outside_the_frame_have_no_area() {
        let frame = frame(10, 10, vec![0; 300]);
        assert!(Area::of_rect(&frame, Rect(1.2, 0.0, 1.0, 1.0)).is_none());
        assert!(Area::of_rect(&frame, Rect(f32::NAN, 0.0, 1.0, 1.0)).is_none());
        assert!(Area::of_rect(&frame, Rect(0.0, 0.0, 0.05, 1.0)).is_none());
        let half = Area::of_rect(&frame, Rect(-0.5, 0.5, 1.0, 2.0)).unwrap();
        assert_eq!((half.left, half.top, half.width, half.height), (0.0, 5.0, 5.0, 5.0));
    }
}
