//! `ocr`: text on the screen

use engine::Class;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Kind, PortType, Settings, parse, schema_of};

pub(super) static KIND: Kind = Kind {
    name: "ocr",
    about: "text on the screen",
    inputs: &[PortType::Frames],
    many: false,
    output: PortType::Screen,
    class: Class::TextInput,
    schema: schema_of::<OcrSettings>,
    parse: |value| parse(value, Settings::Ocr),
};

/// Settings of `ocr`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OcrSettings {
    /// Catalogue name.
    pub model: String,
    /// At most this many frames per second of media time.
    #[schemars(range(min = 0.01, max = 120.0))]
    pub fps: Option<f64>,
    /// Longest side the text detector sees, in pixels.
    #[schemars(range(min = 128, max = 1920))]
    pub side_max: u32,
    /// Lines below this mean character probability are left out.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub score_min: f32,
    /// At most this many lines of a frame, largest first.
    #[schemars(range(min = 1, max = 200))]
    pub lines_max: usize,
}

impl Default for OcrSettings {
    fn default() -> Self {
        OcrSettings {
            model: "ppocr-v5".into(),
            fps: Some(1.0),
            side_max: 480,
            score_min: 0.6,
            lines_max: 12,
        }
    }
}
