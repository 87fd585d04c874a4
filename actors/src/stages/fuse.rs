//! `fuse`: one answer per window over everything

use std::collections::BTreeMap;
use std::time::Duration;

use engine::Class;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Kind, PortType, Settings, parse, schema_of};

pub(super) static KIND: Kind = Kind {
    name: "fuse",
    about: "one answer per window over everything",
    inputs: &[
        PortType::Objects,
        PortType::Scenes,
        PortType::Screen,
        PortType::Safety,
        PortType::Speech,
        PortType::Tone,
        PortType::Understanding,
    ],
    many: true,
    output: PortType::Fused,
    class: Class::Vision,
    schema: schema_of::<FuseSettings>,
    parse: |value| parse(value, Settings::Fuse),
};

/// Settings of `fuse`. Durations are written `500ms`, `1s`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FuseSettings {
    /// `clip`, or the length of a window.
    #[schemars(with = "String")]
    pub window: WindowLength,
    /// Time from a window's seal to its answer.
    #[serde(with = "crate::duration")]
    #[schemars(with = "String", regex(pattern = "^[0-9]+(ms|s|m)$"))]
    pub budget: Duration,
    /// How long after its end a live window waits for late packets before it is sealed.
    #[serde(with = "crate::duration")]
    #[schemars(with = "String", regex(pattern = "^[0-9]+(ms|s|m)$"))]
    pub seal_grace: Duration,
    /// A track without a packet for this long no longer holds a window open.
    #[serde(with = "crate::duration")]
    #[schemars(with = "String", regex(pattern = "^[0-9]+(ms|s|m)$"))]
    pub track_idle: Duration,
    /// Longest clip taken as one window; longer files are cut.
    #[serde(with = "crate::duration")]
    #[schemars(with = "String", regex(pattern = "^[0-9]+(ms|s|m)$"))]
    pub clip_max: Duration,
    /// Whether a late answer brings a corrected result.
    pub revisions: bool,
    /// Rules: name and a CEL expression over the result.
    pub alerts: BTreeMap<String, String>,
}

/// Length of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowLength {
    /// A whole short video.
    Clip,
    /// A fixed span of media time.
    Fixed(Duration),
}

impl Default for FuseSettings {
    fn default() -> Self {
        FuseSettings {
            window: WindowLength::Fixed(Duration::from_secs(1)),
            budget: Duration::from_millis(500),
            seal_grace: Duration::from_millis(200),
            track_idle: Duration::from_secs(2),
            clip_max: Duration::from_secs(60),
            revisions: true,
            alerts: BTreeMap::new(),
        }
    }
}

impl Serialize for WindowLength {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            WindowLength::Clip => serializer.serialize_str("clip"),
            WindowLength::Fixed(d) => crate::duration::serialize(d, serializer),
        }
    }
}

impl<'de> Deserialize<'de> for WindowLength {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "clip" {
            return Ok(WindowLength::Clip);
        }
        crate::duration::parse(&text)
            .filter(|d| *d >= Duration::from_millis(100))
            .map(WindowLength::Fixed)
            .ok_or_else(|| {
                serde::de::Error::custom(format!(
                    "window `{text}`: expected `clip` or a length of at least 100ms, such as `1s`"
                ))
            })
    }
}
