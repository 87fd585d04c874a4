//! Labels, weights and mapping, read from `data/taxonomy.json` and checked.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Deserialize;
use thiserror::Error;

/// Labels, weights and mapping.
#[derive(Clone, Debug)]
pub struct Taxonomy {
    pub(super) labels: Vec<Arc<str>>,
    pub(super) labels_max: usize,
    pub(super) score_min: f64,
    pub(super) modalities: [f64; 3],
    pub(super) objects: Mapping,
    pub(super) scenes: Mapping,
    pub(super) words: Words,
    pub(super) screen: Source,
    pub(super) speech: Source,
    pub(super) categories: HashMap<String, usize>,
    pub(super) category_floor: f64,
    pub(super) sentiment: [f32; 2],
}

#[derive(Clone, Debug)]
pub(super) struct Mapping {
    pub(super) floor: f64,
    pub(super) labels: HashMap<String, Weights>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    /// Single words in lower case.
    pub(super) spaced: HashMap<String, Weights>,
    /// Words of scripts without spaces, found anywhere in a line.
    pub(super) unspaced: Vec<(String, Weights)>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Source {
    pub(super) weight: f64,
    pub(super) floor: f64,
}

impl Taxonomy {
    /// The one that comes with the program.
    ///
    /// # Errors
    /// None as long as the file in the source tree is sound, which a test holds it to.
    pub fn builtin() -> Result<Self, TaxonomyError> {
        Self::from_json(include_str!("../../data/taxonomy.json"))
    }

    /// From the text of a taxonomy file.
    ///
    /// # Errors
    /// Names the place of the first mistake.
    pub fn from_json(text: &str) -> Result<Self, TaxonomyError> {
        let file: File = serde_json::from_str(text)?;
        let labels: Vec<Arc<str>> = file.labels.iter().map(|l| Arc::from(l.as_str())).collect();
        let index = |place: &str, name: &str| {
            labels.iter().position(|l| &**l == name).ok_or_else(|| TaxonomyError::Label {
                place: place.to_owned(),
                found: name.to_owned(),
                known: file.labels.join(", "),
            })
        };
        let mapping = |place: &str, raw: &RawMapping| {
            let floor = floor(place, raw.floor)?;
            let mut known = HashMap::new();
            for (name, weights) in &raw.labels {
                let mut list = Weights::new();
                for (label, weight) in weights {
                    let place = format!("{place}.{name}.{label}");
                    list.push((index(&place, label)?, fraction(&place, *weight)?));
                }
                known.insert(name.to_lowercase(), list);
            }
            Ok::<_, TaxonomyError>(Mapping { floor, labels: known })
        };
        let source = |place: &str, raw: Source| {
            Ok::<_, TaxonomyError>(Source {
                weight: fraction(place, raw.weight)?,
                floor: floor(place, raw.floor)?,
            })
        };
        let mut words = Words::default();
        for (i, group) in file.words.iter().enumerate() {
            let place = format!("words[{i}]");
            let entry = (index(&place, &group.label)?, fraction(&place, group.weight)?);
            for word in group.words.iter().map(|w| w.to_lowercase()) {
                if word.is_ascii() {
                    words.spaced.entry(word).or_default().push(entry);
                } else if let Some((_, weights)) =
                    words.unspaced.iter_mut().find(|(have, _)| *have == word)
                {
                    weights.push(entry);
                } else {
                    words.unspaced.push((word, vec![entry]));
                }
            }
        }
        let mut categories = HashMap::new();
        for (name, label) in &file.understanding.categories {
            let label = index(&format!("understanding.categories.{name}"), label)?;
            categories.insert(name.to_lowercase(), label);
        }
        for (i, label) in labels.iter().enumerate() {
            categories.insert(label.to_string(), i);
        }
        let (m, s) = (&file.modalities, &file.sentiment);
        Ok(Taxonomy {
            labels_max: file.labels_max,
            score_min: fraction("score_min", file.score_min)?,
            modalities: [
                fraction("modalities.vision", m.vision)?,
                fraction("modalities.audio", m.audio)?,
                fraction("modalities.text", m.text)?,
            ],
            objects: mapping("objects", &file.objects)?,
            scenes: mapping("scenes", &file.scenes)?,
            words,
            screen: source("screen", file.screen)?,
            speech: source("speech", file.speech)?,
            categories,
            category_floor: floor("understanding", file.understanding.floor)?,
            sentiment: [
                fraction("sentiment.audio", s.audio)? as f32,
                fraction("sentiment.text", s.text)? as f32,
            ],
            labels,
        })
    }
}

impl Words {
    /// Calls `hit` for every known word of `text`; endings of the plural and of common verb forms are ignored.
    pub(super) fn each<'a>(&'a self, text: &str, mut hit: impl FnMut(&'a str, &'a Weights)) {
        let lower = text.to_lowercase();
        for token in lower.split(|c: char| !c.is_alphanumeric()).filter(|t| !t.is_empty()) {
            let forms = ["", "s", "es", "ed", "ing"];
            let known = forms
                .iter()
                .filter_map(|ending| token.strip_suffix(ending))
                .find_map(|stem| self.spaced.get_key_value(stem));
            if let Some((word, weights)) = known {
                hit(word, weights);
            }
        }
        if !lower.is_ascii() {
            for (word, weights) in self.unspaced.iter().filter(|(word, _)| lower.contains(word)) {
                hit(word, weights);
            }
        }
    }
}

/// Label positions and what each is worth.
pub(super) type Weights = Vec<(usize, f64)>;

/// A taxonomy file that can't be used.
#[derive(Debug, Error)]
pub enum TaxonomyError {
    /// Not the JSON that was expected.
    #[error("taxonomy: {0}")]
    Json(#[from] serde_json::Error),
    /// A weight or floor outside its range.
    #[error("taxonomy: {place} is {found}, expected 0 to 1 (a floor below 1)")]
    Weight {
        /// Where.
        place: String,
        /// What stands there.
        found: f64,
    },
    /// A label that `labels` doesn't have.
    #[error("taxonomy: {place} names label `{found}`, known: {known}")]
    Label {
        /// Where.
        place: String,
        /// What stands there.
        found: String,
        /// What exists.
        known: String,
    },
}

fn fraction(place: &str, found: f64) -> Result<f64, TaxonomyError> {
    if (0.0..=1.0).contains(&found) {
        Ok(found)
    } else {
        Err(TaxonomyError::Weight { place: place.to_owned(), found })
    }
}

fn floor(place: &str, found: f64) -> Result<f64, TaxonomyError> {
    if found < 1.0 { fraction(place, found) } else { fraction(place, f64::NAN) }
}

#[derive(Deserialize)]
struct File {
    labels_max: usize,
    score_min: f64,
    modalities: RawModalities,
    objects: RawMapping,
    scenes: RawMapping,
    screen: Source,
    speech: Source,
    understanding: RawCategories,
    sentiment: RawSentiment,
    labels: Vec<String>,
    words: Vec<RawWords>,
}

#[derive(Deserialize)]
struct RawModalities {
    vision: f64,
    audio: f64,
    text: f64,
}

#[derive(Deserialize)]
struct RawMapping {
    floor: f64,
    labels: BTreeMap<String, BTreeMap<String, f64>>,
}

#[derive(Deserialize)]
struct RawCategories {
    floor: f64,
    categories: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct RawSentiment {
    audio: f64,
    text: f64,
}

#[derive(Deserialize)]
struct RawWords {
    label: String,
    weight: f64,
    words: Vec<String>,
}
