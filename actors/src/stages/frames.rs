//! `frames`: frames of the source's video, sampled by time

use engine::Class;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Kind, PortType, Settings, parse, schema_of};

pub(super) static KIND: Kind = Kind {
    name: "frames",
    about: "frames of the source's video, sampled by time",
    inputs: &[PortType::Video],
    many: false,
    output: PortType::Frames,
    class: Class::Vision,
    schema: schema_of::<FramesSettings>,
    parse: |value| parse(value, Settings::Frames),
};

/// Settings of `frames`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FramesSettings {
    /// Frames per second of media time.
    #[schemars(range(min = 0.01, max = 120.0))]
    pub fps: f64,
    /// Also the first frame after each scene cut.
    pub cuts: bool,
    /// Longest side handed to models, in pixels; larger pictures are scaled down.
    #[schemars(range(min = 32, max = 4096))]
    pub side_max: u32,
}

impl Default for FramesSettings {
    fn default() -> Self {
        FramesSettings { fps: 5.0, cuts: false, side_max: 960 }
    }
}
