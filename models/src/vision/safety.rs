//! How unsafe a frame is to show: Yahoo's open_nsfw, a ResNet-50 of thin layers.
//!
//! Frames are not sent through JPEG first, as the original's input was: scores differ by a few hundredths.

use std::path::Path;
use std::sync::Arc;

use media::Frame;

use super::net::Net;
use super::picture::{Area, Colours, Normal, Scaler};
use crate::model::{Interrupt, Model, ModelError};
use crate::runtime::Runtime;

const SIDE: u32 = 224;
/// The whole picture at 256x256, of which the network sees the middle.
const CENTRE: f64 = 224.0 / 256.0;
const NORMAL: Normal =
    Normal { colours: Colours::Bgr, mean: [104.0, 117.0, 123.0], deviation: [1.0; 3] };

/// Gives frames a probability of being unsafe; below 0.2 is safe, above 0.8 unsafe, by the authors' advice.
pub struct Safety {
    net: Net,
    scaler: Scaler,
}

impl Safety {
    /// Opens `open_nsfw.onnx` in `dir`.
    ///
    /// # Errors
    /// `Absent` or `Load`, naming the file.
    pub fn open(runtime: &Runtime, dir: &Path) -> Result<Self, ModelError> {
        Self::open_file(runtime, "open-nsfw", &dir.join("open_nsfw.onnx"))
    }

    /// Opens another file of the same input and output; errors will call it `name`.
    ///
    /// # Errors
    /// `Absent` or `Load`, naming the file.
    pub fn open_file(runtime: &Runtime, name: &str, file: &Path) -> Result<Self, ModelError> {
        Ok(Safety { net: Net::open(runtime, name, file, 1)?, scaler: Scaler::new() })
    }
}

impl Model for Safety {
    type Input = Frame;
    type Output = f32;

    /// One thread computes a batch no faster than its members one by one; two would be too long a piece.
    fn batch_max(&self) -> usize {
        1
    }

    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        Some(self.net.interrupt())
    }

    fn run(&mut self, batch: &[Frame]) -> Result<Vec<f32>, ModelError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let side = SIDE as usize;
        let mut input = Vec::with_capacity(batch.len() * 3 * side * side);
        for frame in batch {
            let (width, height) = (f64::from(frame.width), f64::from(frame.height));
            let area = Area {
                left: width * (1.0 - CENTRE) / 2.0,
                top: height * (1.0 - CENTRE) / 2.0,
                width: width * CENTRE,
                height: height * CENTRE,
            };
            let rgb = self.scaler.scale(self.net.name(), frame, area, SIDE, SIDE)?;
            NORMAL.interleaved(&rgb, &mut input);
        }
        self.net.run([batch.len(), side, side, 3], &input, |answers| {
            let [probabilities, ..] = answers else { return Ok(Vec::new()) };
            probabilities.expect(&[batch.len(), 2])?;
            let pairs = probabilities.values.as_chunks::<2>().0;
            Ok(pairs.iter().map(|[_safe, unsafe_]| unsafe_.clamp(0.0, 1.0)).collect())
        })
    }
}
