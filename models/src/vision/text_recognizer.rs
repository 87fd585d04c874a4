//! What a line of text says: PP-OCRv5's recogniser with CTC decoding (Graves et al. 2006), Latin and Chinese.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use media::{Frame, Rect};

use super::net::{Answer, Net};
use super::picture::{Area, Colours, Normal, Scaler};
use crate::model::{Interrupt, Model, ModelError};
use crate::runtime::Runtime;

const NAME: &str = "ppocr-v5";
const HEIGHT: u32 = 48;
/// Narrower lines are padded; padding to the 320 that the network was trained on changes no reading.
const WIDTH_MIN: u32 = 96;
/// Wider lines are squeezed, which bounds the cost of a line; about sixty letters stay legible.
const WIDTH_MAX: u32 = 960;
/// Widths are multiples of it, so that sessions see few shapes.
const WIDTH_STEP: u32 = 32;
/// A line so many times as high as wide runs downwards.
const DOWN_MIN: f64 = 1.5;
const NORMAL: Normal = Normal { colours: Colours::Bgr, mean: [127.5; 3], deviation: [127.5; 3] };

/// Reads lines found by [`super::TextDetector`].
pub struct TextRecognizer {
    net: Net,
    scaler: Scaler,
    /// By class; class 0 is CTC's blank.
    keys: Vec<Box<str>>,
}

/// A line to be read.
#[derive(Clone, Debug)]
pub struct TextCrop {
    /// Picture it is in; sharing its pixels costs nothing.
    pub frame: Frame,
    /// Where.
    pub rect: Rect,
}

/// A line that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadText {
    /// Empty when there is nothing legible.
    pub text: String,
    /// Mean probability of its characters, 0..1; 0 without text.
    pub score: f32,
}

impl TextRecognizer {
    /// Opens `rec.onnx` and its characters `keys.txt` in `dir`.
    ///
    /// # Errors
    /// `Absent` or `Load`, naming the file.
    pub fn open(runtime: &Runtime, dir: &Path) -> Result<Self, ModelError> {
        let net = Net::open(runtime, NAME, &dir.join("rec.onnx"), 1)?;
        let path = dir.join("keys.txt");
        let keys = fs::read_to_string(&path).map_err(|e| ModelError::Load {
            name: NAME.into(),
            detail: format!("{}: {e}", path.display()),
        })?;
        // The last line is the space: only the newline after it may go.
        let keys = keys.strip_suffix('\n').unwrap_or(&keys);
        let keys = keys.split('\n').map(|k| k.trim_end_matches('\r').into()).collect();
        Ok(TextRecognizer { net, scaler: Scaler::new(), keys })
    }
}

impl TextRecognizer {
    /// RGB bytes of a line, `width` x [`HEIGHT`], lying.
    fn line(&mut self, frame: &Frame, area: Area, width: u32) -> Result<Vec<u8>, ModelError> {
        if !runs_down(area) {
            return self.scaler.scale(NAME, frame, area, width, HEIGHT);
        }
        let rgb = self.scaler.scale(NAME, frame, area, HEIGHT, width)?;
        let detail = format!("{} bytes for {HEIGHT}x{width}", rgb.len());
        let standing = image::RgbImage::from_raw(HEIGHT, width, rgb)
            .ok_or(ModelError::Run { name: NAME.into(), detail })?;
        Ok(image::imageops::rotate270(&standing).into_raw())
    }
}

/// Whether a line is to be turned a quarter to the left before it is read, as those the network was trained on.
fn runs_down(area: Area) -> bool {
    area.height >= DOWN_MIN * area.width
}

impl Model for TextRecognizer {
    type Input = TextCrop;
    type Output = ReadText;

    /// One thread computes a batch no faster than its members one by one; lines of one width gain nothing, others pay for padding.
    fn batch_max(&self) -> usize {
        1
    }

    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        Some(self.net.interrupt())
    }

    fn run(&mut self, batch: &[TextCrop]) -> Result<Vec<ReadText>, ModelError> {
        let lines: Vec<Option<(Area, u32)>> = batch
            .iter()
            .map(|crop| {
                let area = Area::of_rect(&crop.frame, crop.rect)?;
                let ratio = if runs_down(area) {
                    area.height / area.width
                } else {
                    area.width / area.height
                };
                let width = (f64::from(HEIGHT) * ratio).ceil();
                Some((area, (width as u32).clamp(1, WIDTH_MAX)))
            })
            .collect();
        let legible = lines.iter().flatten().count();
        let Some(widest) = lines.iter().flatten().map(|(_, width)| *width).max() else {
            return Ok(batch
                .iter()
                .map(|_| ReadText { text: String::new(), score: 0.0 })
                .collect());
        };
        let padded = widest.max(WIDTH_MIN).next_multiple_of(WIDTH_STEP) as usize;
        let mut input = Vec::with_capacity(legible * 3 * HEIGHT as usize * padded);
        for (crop, line) in batch.iter().zip(&lines) {
            if let Some((area, width)) = line {
                let rgb = self.line(&crop.frame, *area, *width)?;
                NORMAL.planes(&rgb, *width as usize, padded, &mut input);
            }
        }
        let keys = &self.keys;
        let shape = [legible, 3, HEIGHT as usize, padded];
        let mut read = self.net.run(shape, &input, |answers| {
            let [steps, ..] = answers else { return Ok(Vec::new()) };
            decode_all(steps, legible, keys)
        })?;
        // Back among the lines that were too small to look at.
        read.reverse();
        let nothing = || ReadText { text: String::new(), score: 0.0 };
        Ok(lines.iter().map(|line| line.and_then(|_| read.pop()).unwrap_or_else(nothing)).collect())
    }
}

/// Texts out of class probabilities [lines, steps, classes].
fn decode_all(
    answer: &Answer,
    lines: usize,
    keys: &[Box<str>],
) -> Result<Vec<ReadText>, ModelError> {
    let steps = answer.shape.get(1).copied().unwrap_or(0);
    answer.expect(&[lines, steps, keys.len()])?;
    if steps == 0 {
        return Err(answer.wrong("no steps".into(), "at least one".into()));
    }
    let line = steps * keys.len();
    Ok(answer.values.chunks_exact(line).map(|values| decode(values, keys)).collect())
}

/// The best class of each step, repetitions and blanks removed.
fn decode(values: &[f32], keys: &[Box<str>]) -> ReadText {
    let (mut text, mut sum, mut count, mut last) = (String::new(), 0.0, 0_u32, 0);
    for step in values.chunks_exact(keys.len()) {
        let (mut class, mut best) = (0, f32::MIN);
        for (c, &p) in step.iter().enumerate() {
            if p > best {
                (class, best) = (c, p);
            }
        }
        if class != 0 && class != last {
            text.push_str(&keys[class]);
            sum += best;
            count += 1;
        }
        last = class;
    }
    let score = if count == 0 { 0.0 } else { (sum / count as f32).clamp(0.0, 1.0) };
    ReadText { text: text.trim().to_owned(), score }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_one_letter_unless_a_blank_parts_them() {
        let keys: Vec<Box<str>> = ["blank", "l", "o"].map(Into::into).into();
        let path = [2, 0, 1, 1, 0, 1, 2, 2];
        let mut values = vec![0.05; path.len() * 3];
        for (step, class) in path.iter().enumerate() {
            values[step * 3 + class] = 0.9;
        }
        let read = decode(&values, &keys);
        assert_eq!(read.text, "ollo");
        assert!((read.score - 0.9).abs() < 1e-6);
        assert_eq!(decode(&[0.9, 0.0, 0.1], &keys), ReadText { text: String::new(), score: 0.0 });
    }
}
