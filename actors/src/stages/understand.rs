//! `understand`: what it is about: category, summary, sentiment, flags, keywords

use engine::Class;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Kind, PortType, Settings, parse, schema_of};

pub(super) static KIND: Kind = Kind {
    name: "understand",
    about: "what it is about: category, summary, sentiment, flags, keywords",
    inputs: &[PortType::Speech, PortType::Screen, PortType::Subtitles],
    many: true,
    output: PortType::Understanding,
    class: Class::Text,
    schema: schema_of::<UnderstandSettings>,
    parse: |value| parse(value, Settings::Understand),
};

/// Settings of `understand`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UnderstandSettings {
    /// Name of an entry under `models:`, or a catalogue name.
    pub model: String,
    /// The categories to choose from.
    pub categories: Vec<String>,
    /// Flags to raise: name and what it means in words.
    pub flags: std::collections::BTreeMap<String, String>,
    /// How the category is found.
    pub category_by: CategoryScorer,
    /// Longest summary, in tokens. 0: no summary.
    #[schemars(range(min = 0, max = 256))]
    pub summary_tokens_max: u32,
}

/// How the category is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CategoryScorer {
    /// Calibrated likelihood under the language model.
    #[default]
    Likelihood,
    /// Sentence embedding of text and category.
    Embedding,
}

impl Default for UnderstandSettings {
    fn default() -> Self {
        UnderstandSettings {
            model: "text".into(),
            categories: [
                "news",
                "sports",
                "music",
                "transport",
                "cooking",
                "technology",
                "weather",
                "health",
            ]
            .map(String::from)
            .to_vec(),
            flags: Default::default(),
            category_by: CategoryScorer::default(),
            summary_tokens_max: 32,
        }
    }
}
