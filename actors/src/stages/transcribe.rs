//! `transcribe`: what is said

use engine::Class;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Kind, PortType, Settings, parse, schema_of};

pub(super) static KIND: Kind = Kind {
    name: "transcribe",
    about: "what is said",
    inputs: &[PortType::Audio],
    many: false,
    output: PortType::Speech,
    class: Class::TextInput,
    schema: schema_of::<TranscribeSettings>,
    parse: |value| parse(value, Settings::Transcribe),
};

/// Settings of `transcribe`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TranscribeSettings {
    /// Catalogue name.
    pub model: String,
    /// An utterance is cut at the next pause after this long, and at one and a half times it without one.
    #[schemars(range(min = 1_000, max = 20_000))]
    pub utterance_ms_max: u64,
    /// Silence that ends an utterance.
    #[schemars(range(min = 100, max = 3_000))]
    pub pause_ms: u64,
    /// Whether a running utterance is reported at each window's end with `final: false`.
    pub partials: bool,
}

impl Default for TranscribeSettings {
    fn default() -> Self {
        TranscribeSettings {
            model: "moonshine-tiny".into(),
            utterance_ms_max: 7_000,
            pause_ms: 400,
            partials: true,
        }
    }
}
