//! Pools the labels of all modalities into one taxonomy by noisy-or of weighted evidence. More evidence never
//! lowers a score, and a modality that is missing is no evidence against a label. Weights and mapping are data
//! (`data/taxonomy.json`); this file holds only the arithmetic.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use media::result::{Audio, Modality, PooledLabel, Vision};
use media::{Tone, Understanding};
use serde::Deserialize;
use thiserror::Error;

use super::window::ToneSum;

const MODALITIES: [Modality; 3] = [Modality::Vision, Modality::Audio, Modality::Text];

/// What a window offers to be pooled; a modality that is missing is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence<'a> {
    /// What was seen.
    pub vision: Option<&'a Vision>,
    /// What was heard.
    pub audio: Option<&'a Audio>,
    /// What it is about.
    pub text: Option<&'a Understanding>,
}

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

type Weights = Vec<(usize, f64)>;

/// Labels, weights and mapping.
#[derive(Clone, Debug)]
pub struct Taxonomy {
    labels: Vec<Arc<str>>,
    labels_max: usize,
    score_min: f64,
    modalities: [f64; 3],
    objects: Mapping,
    scenes: Mapping,
    words: Words,
    screen: Source,
    speech: Source,
    categories: HashMap<String, usize>,
    category_floor: f64,
    sentiment: [f32; 2],
}

#[derive(Clone, Debug)]
struct Mapping {
    floor: f64,
    labels: HashMap<String, Weights>,
}

#[derive(Clone, Debug, Default)]
struct Words {
    /// Single words in lower case.
    spaced: HashMap<String, Weights>,
    /// Words of scripts without spaces, found anywhere in a line.
    unspaced: Vec<(String, Weights)>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Source {
    weight: f64,
    floor: f64,
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

    /// Labels with their scores, best first; at most `labels_max`.
    pub fn pool(&self, evidence: Evidence<'_>) -> Vec<PooledLabel> {
        let mut pool = Pool::new(self.labels.len());
        if let Some(vision) = evidence.vision {
            self.pool_vision(vision, &mut pool);
        }
        if let Some(audio) = evidence.audio {
            self.pool_speech(audio, &mut pool);
        }
        if let Some(text) = evidence.text {
            self.pool_understanding(text, &mut pool);
        }
        let known = self.labels.iter().zip(pool.known).map(|(label, doubt)| (label.clone(), doubt));
        let mut pooled: Vec<PooledLabel> = known
            .chain(pool.custom)
            .filter_map(|(label, doubt)| self.label(label, doubt))
            .collect();
        pooled.sort_by(|a, b| b.score.total_cmp(&a.score));
        pooled.truncate(self.labels_max);
        pooled
    }

    /// Sentiment of voice and words together.
    pub fn sentiment(&self, evidence: Evidence<'_>) -> Option<Tone> {
        let [audio, text] = self.sentiment;
        let mut sum = ToneSum::default();
        if let Some(tone) = evidence.audio.and_then(|a| a.sentiment) {
            sum.add_weighted(tone, audio);
        }
        if let Some(tone) = evidence.text.and_then(|t| t.sentiment) {
            sum.add_weighted(tone, text);
        }
        sum.mean()
    }

    fn label(&self, label: Arc<str>, doubt: [f64; 3]) -> Option<PooledLabel> {
        let mut left = 1.0;
        let mut evidence = BTreeMap::new();
        for ((modality, weight), doubt) in MODALITIES.into_iter().zip(self.modalities).zip(doubt) {
            let belief = 1.0 - doubt;
            if belief > 0.0 {
                evidence.insert(modality, belief as f32);
                left *= 1.0 - weight * belief;
            }
        }
        let score = 1.0 - left;
        (score >= self.score_min && score > 0.0).then(|| PooledLabel {
            label,
            score: score as f32,
            evidence,
        })
    }

    fn pool_vision(&self, vision: &Vision, pool: &mut Pool) {
        // Ten cars are no ten proofs: what counts is the surest of a kind.
        let objects = best(vision.objects.iter().map(|o| (&*o.label, o.score)));
        let scenes = best(vision.scenes.iter().map(|s| (&*s.label, s.score)));
        for (mapping, found) in [(&self.objects, objects), (&self.scenes, scenes)] {
            for (name, score) in found {
                let Some(weights) = mapping.labels.get(&name.to_lowercase()) else { continue };
                pool.add(Modality::Vision, weights, above(score, mapping.floor));
            }
        }
        let lines = vision.text.iter().map(|line| (line.text.as_str(), line.score));
        self.pool_words(lines, self.screen, Modality::Vision, pool);
    }

    fn pool_speech(&self, audio: &Audio, pool: &mut Pool) {
        let said = audio.speech.iter().map(|s| (s.text.as_str(), s.confidence));
        self.pool_words(said, self.speech, Modality::Audio, pool);
    }

    fn pool_words<'a>(
        &self,
        texts: impl Iterator<Item = (&'a str, f32)>,
        source: Source,
        modality: Modality,
        pool: &mut Pool,
    ) {
        let mut found: BTreeMap<&str, (&Weights, f64)> = BTreeMap::new();
        for (text, score) in texts {
            let strength = source.weight * above(score, source.floor);
            if strength <= 0.0 {
                continue;
            }
            self.words.each(text, |word, weights| {
                let best = found.entry(word).or_insert((weights, 0.0));
                best.1 = best.1.max(strength);
            });
        }
        for (weights, strength) in found.into_values() {
            pool.add(modality, weights, strength);
        }
    }

    fn pool_understanding(&self, text: &Understanding, pool: &mut Pool) {
        // Two configured categories may mean one label: the surer one counts.
        let mut found: BTreeMap<usize, f64> = BTreeMap::new();
        for (category, score) in &text.scores {
            let belief = above(*score, self.category_floor);
            match self.categories.get(&category.to_lowercase()) {
                Some(label) => {
                    let best = found.entry(*label).or_insert(0.0);
                    *best = best.max(belief);
                }
                None => pool.add_custom(category, belief),
            }
        }
        for (label, belief) in found {
            pool.add(Modality::Text, &[(label, 1.0)], belief);
        }
    }
}

impl Words {
    /// Calls `hit` for every known word of `text`; endings of the plural and of common verb forms are ignored.
    fn each<'a>(&'a self, text: &str, mut hit: impl FnMut(&'a str, &'a Weights)) {
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

/// Product of (1 − evidence) per label and modality.
struct Pool {
    known: Vec<[f64; 3]>,
    custom: BTreeMap<Arc<str>, [f64; 3]>,
}

impl Pool {
    fn new(labels: usize) -> Self {
        Pool { known: vec![[1.0; 3]; labels], custom: BTreeMap::new() }
    }

    fn add(&mut self, modality: Modality, weights: &[(usize, f64)], belief: f64) {
        for (label, weight) in weights {
            if let Some(doubt) = self.known.get_mut(*label) {
                doubt[modality as usize] *= 1.0 - weight * belief;
            }
        }
    }

    /// A configured category that the taxonomy doesn't know stands for itself.
    fn add_custom(&mut self, category: &Arc<str>, belief: f64) {
        let doubt = self.custom.entry(category.clone()).or_insert([1.0; 3]);
        doubt[Modality::Text as usize] *= 1.0 - belief;
    }
}

fn best<'a>(found: impl Iterator<Item = (&'a str, f32)>) -> BTreeMap<&'a str, f32> {
    let mut best = BTreeMap::new();
    for (name, score) in found.filter(|(_, score)| score.is_finite()) {
        let have = best.entry(name).or_insert(score);
        *have = have.max(score);
    }
    best
}

/// How far a score stands out above its floor, 0..1; nothing for what is no number.
fn above(score: f32, floor: f64) -> f64 {
    if score.is_finite() {
        ((f64::from(score) - floor) / (1.0 - floor)).clamp(0.0, 1.0)
    } else {
        0.0
    }
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

#[cfg(test)]
#[path = "pooling_tests.rs"]
mod tests;
