//! Pools the labels of all modalities into one taxonomy by noisy-or of weighted evidence. More evidence never
//! lowers a score, and a modality that is missing is no evidence against a label. Weights and mapping are data,
//! read by `taxonomy`; this file holds only the arithmetic.

use std::collections::BTreeMap;
use std::sync::Arc;

use media::result::{Audio, Modality, PooledLabel, Vision};
use media::{Tone, Understanding};

use super::taxonomy::{Source, Taxonomy, Weights};
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

impl Taxonomy {
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
        (score >= self.score_min && score > 0.0).then_some(PooledLabel {
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

#[cfg(test)]
#[path = "pooling_tests.rs"]
mod tests;
