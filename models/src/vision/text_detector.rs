//! Where there is text in a frame: PP-OCRv5's DBNet (Liao et al. 2019) gives a probability per pixel, and
//! connected pixels become upright rectangles.
//!
//! The network is trained to mark the core of a line, so a rectangle is grown back ("unclipped").

use std::path::Path;
use std::sync::Arc;

use media::{Frame, Rect};
use ort::session::builder::GraphOptimizationLevel;

use super::net::Net;
use super::picture::{Area, Colours, Normal, Scaler};
use crate::model::{Interrupt, Model, ModelError};
use crate::runtime::Runtime;

/// Pixels above belong to text.
const PIXEL_MIN: f32 = 0.3;
/// Mean probability that a rectangle must have.
const SCORE_MIN: f32 = 0.6;
/// Grown by area * ratio / perimeter on each side.
const UNCLIP: f32 = 1.5;
/// Shorter side of the core in pixels of the map; less cannot be read.
const CORE_SIDE_MIN: usize = 3;
/// Areas of one frame, largest first.
const AREAS_MAX: usize = 200;
/// Sides are multiples of it.
const STEP: u32 = 32;
/// ImageNet's statistics, which PP-OCR applies to B, G, R in this order.
const NORMAL: Normal = Normal {
    colours: Colours::Bgr,
    mean: [0.485 * 255.0, 0.456 * 255.0, 0.406 * 255.0],
    deviation: [0.229 * 255.0, 0.224 * 255.0, 0.225 * 255.0],
};

/// Finds lines of text.
pub struct TextDetector {
    net: Net,
    scaler: Scaler,
    side_max: u32,
}

/// A place with text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TextArea {
    /// Fractions of the picture.
    pub rect: Rect,
    /// Mean probability of its pixels, 0..1.
    pub score: f32,
}

impl TextDetector {
    /// Opens `det.onnx` in `dir`. Frames are scaled down so that their longer side is at most `side_max`
    /// pixels; cost grows with its square.
    ///
    /// # Errors
    /// `Absent` or `Load`, naming the file.
    pub fn open(runtime: &Runtime, dir: &Path, side_max: u32) -> Result<Self, ModelError> {
        // In the blocked layout of the last level its wide, shallow convolutions take a quarter longer.
        let level = GraphOptimizationLevel::Level2;
        let net = Net::open_at(runtime, "ppocr-v5", &dir.join("det.onnx"), 1, level)?;
        Ok(TextDetector { net, scaler: Scaler::new(), side_max: side_max.max(STEP) })
    }

    /// Size at which a frame is looked at.
    fn size(&self, frame: &Frame) -> (u32, u32) {
        let longer = frame.width.max(frame.height).max(1);
        let scale = f64::from(self.side_max.min(longer)) / f64::from(longer);
        let side = |pixels: u32| {
            let steps = (f64::from(pixels) * scale / f64::from(STEP)).round() as u32;
            steps.clamp(1, self.side_max.div_ceil(STEP)) * STEP
        };
        (side(frame.width), side(frame.height))
    }

    /// Areas in frames that are looked at in one size.
    fn run_alike(
        &mut self,
        frames: &[Frame],
        (width, height): (u32, u32),
    ) -> Result<Vec<Vec<TextArea>>, ModelError> {
        let (columns, rows) = (width as usize, height as usize);
        let mut input = Vec::with_capacity(frames.len() * 3 * columns * rows);
        for frame in frames {
            let area = Area::whole(frame);
            let rgb = self.scaler.scale(self.net.name(), frame, area, width, height)?;
            NORMAL.planes(&rgb, columns, columns, &mut input);
        }
        self.net.run([frames.len(), 3, rows, columns], &input, |answers| {
            let [map, ..] = answers else { return Ok(Vec::new()) };
            map.expect(&[frames.len(), 1, rows, columns])?;
            Ok(map.values.chunks_exact(rows * columns).map(|map| areas(map, columns)).collect())
        })
    }
}

impl Model for TextDetector {
    type Input = Frame;
    /// In reading order: top to bottom, left to right within a line.
    type Output = Vec<TextArea>;

    /// One thread computes a batch no faster than its members one by one; one is a long piece already.
    fn batch_max(&self) -> usize {
        1
    }

    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        Some(self.net.interrupt())
    }

    fn run(&mut self, batch: &[Frame]) -> Result<Vec<Vec<TextArea>>, ModelError> {
        let mut all = Vec::with_capacity(batch.len());
        let mut rest = batch;
        while let Some(first) = rest.first() {
            let size = self.size(first);
            let alike = rest.iter().take_while(|f| self.size(f) == size).count();
            let (frames, after) = rest.split_at(alike);
            all.extend(self.run_alike(frames, size)?);
            rest = after;
        }
        Ok(all)
    }
}

/// Connected pixels of a map with rows of `columns`.
#[derive(Clone, Copy)]
struct Core {
    left: usize,
    top: usize,
    right: usize,
    bottom: usize,
    pixels: usize,
    sum: f32,
}

/// Text areas of a probability map with rows of `columns`, in reading order.
fn areas(map: &[f32], columns: usize) -> Vec<TextArea> {
    let rows = map.len() / columns.max(1);
    let mut found: Vec<TextArea> = cores(map, columns)
        .into_iter()
        .filter(|c| c.sum / c.pixels as f32 >= SCORE_MIN)
        .filter_map(|core| {
            let (width, height) = (core.right - core.left + 1, core.bottom - core.top + 1);
            if width.min(height) < CORE_SIDE_MIN {
                return None;
            }
            let (w, h) = (width as f32, height as f32);
            let grow = w * h * UNCLIP / (2.0 * (w + h));
            let clip = |v: f32, size: usize| (v / size as f32).clamp(0.0, 1.0);
            let left = clip(core.left as f32 - grow, columns);
            let right = clip(core.left as f32 + w + grow, columns);
            let top = clip(core.top as f32 - grow, rows);
            let bottom = clip(core.top as f32 + h + grow, rows);
            let rect = Rect(left, top, right - left, bottom - top);
            Some(TextArea { rect, score: (core.sum / core.pixels as f32).min(1.0) })
        })
        .collect();
    found.sort_by(|a, b| (b.rect.2 * b.rect.3).total_cmp(&(a.rect.2 * a.rect.3)));
    found.truncate(AREAS_MAX);
    reading_order(&mut found);
    found
}

/// Groups of neighbouring pixels (eight directions) above [`PIXEL_MIN`].
fn cores(map: &[f32], columns: usize) -> Vec<Core> {
    let mut open: Vec<bool> = map.iter().map(|&p| p > PIXEL_MIN).collect();
    let rows = map.len() / columns.max(1);
    let mut cores = Vec::new();
    let mut stack = Vec::new();
    for start in 0..rows * columns {
        if !open[start] {
            continue;
        }
        let (x, y) = (start % columns, start / columns);
        let mut core = Core { left: x, top: y, right: x, bottom: y, pixels: 0, sum: 0.0 };
        open[start] = false;
        stack.push(start);
        while let Some(at) = stack.pop() {
            let (x, y) = (at % columns, at / columns);
            core.left = core.left.min(x);
            core.right = core.right.max(x);
            core.top = core.top.min(y);
            core.bottom = core.bottom.max(y);
            core.pixels += 1;
            core.sum += map[at];
            for row in y.saturating_sub(1)..(y + 2).min(rows) {
                for column in x.saturating_sub(1)..(x + 2).min(columns) {
                    let next = row * columns + column;
                    if std::mem::take(&mut open[next]) {
                        stack.push(next);
                    }
                }
            }
        }
        cores.push(core);
    }
    cores
}

/// Lines top to bottom; areas whose middles lie within half a height of each other share a line.
fn reading_order(areas: &mut [TextArea]) {
    areas.sort_by(|a, b| middle(a).total_cmp(&middle(b)));
    let mut start = 0;
    while start < areas.len() {
        let first = areas[start];
        let reach = middle(&first) + first.rect.3 / 2.0;
        let count = areas[start..].iter().take_while(|a| middle(a) <= reach).count().max(1);
        areas[start..start + count].sort_by(|a, b| a.rect.0.total_cmp(&b.rect.0));
        start += count;
    }
}

fn middle(area: &TextArea) -> f32 {
    area.rect.1 + area.rect.3 / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A map of 40x20 with probability 0.9 in the given rectangles (x, y, w, h).
    fn map(rects: &[(usize, usize, usize, usize)]) -> Vec<f32> {
        let mut map = vec![0.01; 40 * 20];
        for &(x, y, w, h) in rects {
            for row in y..y + h {
                map[row * 40 + x..][..w].fill(0.9);
            }
        }
        map
    }

    #[test]
    fn a_core_is_grown_by_its_area_over_its_perimeter() {
        let found = areas(&map(&[(10, 8, 12, 4)]), 40);
        assert_eq!(found.len(), 1);
        let grow = 12.0 * 4.0 * 1.5 / 32.0;
        let Rect(x, y, w, h) = found[0].rect;
        assert!((x * 40.0 - (10.0 - grow)).abs() < 1e-3);
        assert!((y * 20.0 - (8.0 - grow)).abs() < 1e-3);
        assert!((w * 40.0 - (12.0 + 2.0 * grow)).abs() < 1e-3);
        assert!((h * 20.0 - (4.0 + 2.0 * grow)).abs() < 1e-3);
        assert!((found[0].score - 0.9).abs() < 1e-3);
    }

    #[test]
    fn lines_come_in_reading_order_and_specks_not_at_all() {
        let found = areas(&map(&[(24, 2, 8, 3), (2, 3, 8, 3), (5, 14, 20, 4), (35, 10, 2, 2)]), 40);
        let lefts: Vec<i32> = found.iter().map(|a| (a.rect.0 * 40.0).round() as i32).collect();
        assert_eq!(lefts, [0, 22, 3]);
    }

    #[test]
    fn an_area_at_the_edge_stays_inside_the_picture() {
        let found = areas(&map(&[(0, 0, 40, 20)]), 40);
        assert_eq!(found[0].rect, Rect(0.0, 0.0, 1.0, 1.0));
    }

    #[test]
    fn touching_corners_are_one_area() {
        assert_eq!(cores(&map(&[(2, 2, 4, 4), (6, 6, 4, 4)]), 40).len(), 1);
        assert_eq!(cores(&map(&[(2, 2, 4, 4), (7, 6, 4, 4)]), 40).len(), 2);
    }
}
