//! `detect`: objects with boxes, tracked over time

use engine::Class;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Kind, PortType, Settings, parse, schema_of};

pub(super) static KIND: Kind = Kind {
    name: "detect",
    about: "objects with boxes, tracked over time",
    inputs: &[PortType::Frames],
    many: false,
    output: PortType::Objects,
    class: Class::Vision,
    schema: schema_of::<DetectSettings>,
    parse: |value| parse(value, Settings::Detect),
};

/// Settings of `detect`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DetectSettings {
    /// Catalogue name, or path of an ONNX file of the same shape.
    pub model: String,
    /// At most this many frames per second of media time; all by default.
    #[schemars(range(min = 0.01, max = 120.0))]
    pub fps: Option<f64>,
    /// Detections below this score are left out.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub score_min: f32,
    /// Whether objects get a track id that stays the same over windows.
    pub track: bool,
}

impl Default for DetectSettings {
    fn default() -> Self {
        DetectSettings { model: "ssdlite-300".into(), fps: None, score_min: 0.4, track: true }
    }
}
