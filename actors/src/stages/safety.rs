//! `safety`: how unsafe a picture is to show

use engine::Class;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Kind, PortType, Settings, parse, schema_of};

pub(super) static KIND: Kind = Kind {
    name: "safety",
    about: "how unsafe a picture is to show",
    inputs: &[PortType::Frames],
    many: false,
    output: PortType::Safety,
    class: Class::Vision,
    schema: schema_of::<SafetySettings>,
    parse: |value| parse(value, Settings::Safety),
};

/// Settings of `safety`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SafetySettings {
    /// Catalogue name.
    pub model: String,
    /// At most this many frames per second of media time.
    #[schemars(range(min = 0.01, max = 120.0))]
    pub fps: Option<f64>,
}

impl Default for SafetySettings {
    fn default() -> Self {
        SafetySettings { model: "open-nsfw".into(), fps: Some(1.0) }
    }
}
