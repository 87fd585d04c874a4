//! Pictures in, typed answers out: objects, scenes, safety, on-screen text, and tracks over time.
//!
//! Each model opens from a folder of the catalogue and implements [`crate::Model`]. One rule: what a network
//! answers is checked (shape, finite numbers) before anything is made of it.

mod coco;
mod detector;
mod kalman;
mod net;
mod nms;
mod picture;
mod safety;
mod scene;
mod text_detector;
mod text_recognizer;
mod tracker;

pub use detector::Detector;
pub use safety::Safety;
pub use scene::SceneClassifier;
pub use text_detector::{TextArea, TextDetector};
pub use text_recognizer::{ReadText, TextCrop, TextRecognizer};
pub use tracker::{Tracker, TrackerSettings};
