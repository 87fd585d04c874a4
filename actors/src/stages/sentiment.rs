//! `sentiment`: sentiment of what is said

use engine::Class;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Kind, PortType, Settings, parse, schema_of};

pub(super) static KIND: Kind = Kind {
    name: "sentiment",
    about: "sentiment of what is said",
    inputs: &[PortType::Speech],
    many: false,
    output: PortType::Tone,
    class: Class::Audio,
    schema: schema_of::<SentimentSettings>,
    parse: |value| parse(value, Settings::Sentiment),
};

/// Settings of `sentiment`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SentimentSettings {
    /// Catalogue name.
    pub model: String,
}

impl Default for SentimentSettings {
    fn default() -> Self {
        SentimentSettings { model: "vader".into() }
    }
}
