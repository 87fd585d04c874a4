//! Objects in frames: SSDLite-MobileNetV2 at 300x300 or NanoDet at 416x416, 80 COCO classes.
//!
//! The graphs hold normalisation and box decoding (see `convert`) and have one interface; here are the
//! threshold and the suppression of doubles.

use std::path::Path;
use std::sync::Arc;

use media::{Detection, Frame, Rect};

use super::coco;
use super::net::{Answer, Net};
use super::nms::{Candidate, suppress};
use super::picture::{Area, Colours, Normal, Scaler};
use crate::model::{Interrupt, Model, ModelError};
use crate::runtime::Runtime;

/// Files that a catalogue folder may hold, with the name they are catalogued under and their sides.
const FILES: [(&str, &str, u32); 2] =
    [("ssdlite-300.onnx", "ssdlite-300", 300), ("nanodet-416.onnx", "nanodet-416", 416)];
const IOU_MAX: f32 = 0.5;
/// Objects of one frame, best first.
const OBJECTS_MAX: usize = 100;
/// The network normalises for itself.
const NORMAL: Normal = Normal { colours: Colours::Rgb, mean: [0.0; 3], deviation: [1.0; 3] };

/// Finds objects. Frames may be of any size.
pub struct Detector {
    net: Net,
    scaler: Scaler,
    side: u32,
    /// Names for networks that number classes from 1 to 90 and for those that count 80.
    labels: [Vec<Option<Arc<str>>>; 2],
    score_min: f32,
}

impl Detector {
    /// Opens `ssdlite-300.onnx` or `nanodet-416.onnx` in `dir`, whichever is there. Detections below `score_min` are left out; when a
    /// [`super::Tracker`] follows, this is its `score_low`.
    ///
    /// # Errors
    /// `Absent` or `Load`, naming the file.
    pub fn open(runtime: &Runtime, dir: &Path, score_min: f32) -> Result<Self, ModelError> {
        let present = FILES.iter().find(|(file, ..)| dir.join(file).is_file());
        let (file, name, side) = *present.unwrap_or(&FILES[0]);
        Self::open_file(runtime, name, &dir.join(file), side, score_min)
    }

    /// Opens another file of the same interface: a square picture of `side` pixels, RGB 0..255; `scores`
    /// [n, anchors, 80 or 90]; `boxes` [n, anchors, 4] y0, x0, y1, x1 as fractions. Errors will call it `name`.
    ///
    /// # Errors
    /// `Absent` or `Load`, naming the file.
    pub fn open_file(
        runtime: &Runtime,
        name: &str,
        file: &Path,
        side: u32,
        score_min: f32,
    ) -> Result<Self, ModelError> {
        Ok(Detector {
            net: Net::open(runtime, name, file, 2)?,
            scaler: Scaler::new(),
            side,
            labels: [coco::by_number(), coco::in_order()],
            score_min,
        })
    }
}

impl Model for Detector {
    type Input = Frame;
    type Output = Vec<Detection>;

    /// One thread computes a batch no faster than its members one by one; two of the small network make a piece of 30 ms.
    fn batch_max(&self) -> usize {
        if self.side > 300 { 1 } else { 2 }
    }

    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        Some(self.net.interrupt())
    }

    fn run(&mut self, batch: &[Frame]) -> Result<Vec<Vec<Detection>>, ModelError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let side = self.side as usize;
        let mut input = Vec::with_capacity(batch.len() * 3 * side * side);
        for frame in batch {
            let rgb = self.scaler.scale(
                self.net.name(),
                frame,
                Area::whole(frame),
                self.side,
                self.side,
            )?;
            NORMAL.planes(&rgb, side, side, &mut input);
        }
        let (labels, score_min) = (&self.labels, self.score_min);
        self.net.run([batch.len(), 3, side, side], &input, |answers| {
            let [scores, boxes, ..] = answers else { return Ok(Vec::new()) };
            read(scores, boxes, batch.len(), labels, score_min)
        })
    }
}

/// Detections of each frame out of `scores` [n, anchors, classes] and `boxes` [n, anchors, 4].
/// `labels` are those of the numberings there are.
fn read(
    scores: &Answer,
    boxes: &Answer,
    frames: usize,
    labels: &[Vec<Option<Arc<str>>>],
    score_min: f32,
) -> Result<Vec<Vec<Detection>>, ModelError> {
    let anchors = scores.shape.get(1).copied().unwrap_or(0);
    let classes = scores.shape.get(2).copied().unwrap_or(0);
    let Some(labels) = labels.iter().find(|l| l.len() == classes) else {
        return Err(scores.wrong(format!("{classes} classes"), "80 or 90".into()));
    };
    scores.expect(&[frames, anchors, classes])?;
    boxes.expect(&[frames, anchors, 4])?;
    let mut all = Vec::with_capacity(frames);
    for frame in 0..frames {
        let scores = &scores.values[frame * anchors * classes..][..anchors * classes];
        let boxes = boxes.values[frame * anchors * 4..][..anchors * 4].as_chunks::<4>().0;
        let candidates = scores
            .chunks_exact(classes)
            .zip(boxes)
            .filter_map(|(scores, corners)| candidate(scores, *corners, labels, score_min))
            .collect();
        let kept = suppress(candidates, IOU_MAX, OBJECTS_MAX);
        let named = kept.into_iter().filter_map(|c| {
            let label = labels.get(c.class)?.clone()?;
            Some(Detection { label, score: c.score, rect: c.rect, track: None })
        });
        all.push(named.collect());
    }
    Ok(all)
}

/// An anchor's best class, if it is good enough, has a name and its box shows in the picture.
fn candidate(
    scores: &[f32],
    corners: [f32; 4],
    labels: &[Option<Arc<str>>],
    score_min: f32,
) -> Option<Candidate> {
    // Most anchors see nothing: leave before looking for which class it is.
    if scores.iter().all(|&s| s < score_min) {
        return None;
    }
    let named = scores.iter().zip(labels).enumerate().filter(|(_, (_, label))| label.is_some());
    let (class, score) = named.map(|(c, (&s, _))| (c, s)).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let [top, left, bottom, right] = corners.map(|v| v.clamp(0.0, 1.0));
    let rect = Rect(left, top, right - left, bottom - top);
    (score >= score_min && rect.2 > 0.0 && rect.3 > 0.0).then_some(Candidate {
        class,
        score: score.min(1.0),
        rect,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_cut_at_the_picture_and_nameless_classes_left_out() {
        let labels = coco::by_number();
        let mut scores = [0.0; 90];
        scores[11] = 0.99; // number 12 has no class
        assert_eq!(candidate(&scores, [0.0, 0.0, 1.0, 1.0], &labels, 0.4), None);
        scores[0] = 0.5;
        let person = candidate(&scores, [-0.5, 0.25, 0.5, 1.5], &labels, 0.4).unwrap();
        assert_eq!((person.class, person.rect), (0, Rect(0.25, 0.0, 0.75, 0.5)));
        assert_eq!(candidate(&scores, [1.2, 0.0, 1.5, 1.0], &labels, 0.4), None);
    }
}
