//! From likelihoods and similarities to scores of categories and flags. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use media::Scored;

use super::backend::Score;

/// Which answers a model prefers when the text says nothing: taken off every answer. Made once for a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration(Vec<f64>);

impl Calibration {
    /// From the scores of the same continuations after texts that say nothing, one row each.
    pub fn new(rows: &[Vec<Score>]) -> Self {
        let width = rows.iter().map(Vec::len).min().unwrap_or(0);
        let mean = |i: usize| {
            rows.iter().map(|row| row[i].log_likelihood).sum::<f64>() / rows.len().max(1) as f64
        };
        Calibration((0..width).map(mean).collect())
    }

    /// How much likelier the text makes each continuation, natural log.
    pub fn gains(&self, scores: &[Score]) -> Vec<f64> {
        scores.iter().zip(&self.0).map(|(s, usual)| s.log_likelihood - usual).collect()
    }
}

/// Scores that sum to one: the softmax of `values` at `temperature`. Values that are no numbers score 0.
pub fn softmax(values: &[f64], temperature: f64) -> Vec<f32> {
    let max = values.iter().copied().filter(|v| v.is_finite()).fold(f64::NEG_INFINITY, f64::max);
    let weight = |v: &f64| if v.is_finite() { ((v - max) / temperature).exp() } else { 0.0 };
    let weights: Vec<f64> = values.iter().map(weight).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|w| if sum > 0.0 { (w / sum) as f32 } else { 0.0 }).collect()
}

/// Cosines of MiniLM between short texts and labels lie close together; this spreads them to probabilities.
const EMBEDDING_TEMPERATURE: f64 = 0.06;

/// Scores of categories by sentence embedding: of the text, and of each label as [`label_sentence`]. All vectors
/// have length one. Sums to one.
pub fn category_by_embedding(text: &[f32], labels: &[Vec<f32>]) -> Vec<f32> {
    let cosines: Vec<f64> = labels.iter().map(|l| cosine(text, l)).collect();
    softmax(&cosines, EMBEDDING_TEMPERATURE)
}

/// What is embedded for a label.
pub fn label_sentence(label: &str) -> String {
    format!("This is about {label}.")
}

/// What is embedded for a flag of the configuration.
pub fn flag_sentence(name: &str, meaning: &str) -> String {
    format!("{}: {meaning}", name.replace(['_', '-'], " "))
}

/// Cosine from which a flag is raised. Measured on 40 innocent and 20 flagged sentences and 5 flags: no innocent
/// one raises any flag, 9 of the 20 raise theirs, 2 raise a neighbouring one. Asking the small language model
/// for yes or no, calibrated, is no better than chance there.
const FLAG_SIMILARITY_MIN: f32 = 0.30;

/// Flags that a text raises, by sentence embedding: of the text, and of each flag as [`flag_sentence`]. Few false
/// alarms rather than few misses. The score is the cosine.
pub fn flags_by_embedding(text: &[f32], flags: &[(Arc<str>, Vec<f32>)]) -> Vec<Scored> {
    let score = |v: &[f32]| cosine(text, v) as f32;
    let mut raised: Vec<Scored> = flags
        .iter()
        .map(|(label, v)| Scored { label: Arc::clone(label), score: score(v) })
        .filter(|flag| flag.score >= FLAG_SIMILARITY_MIN)
        .collect();
    raised.sort_by(|a, b| b.score.total_cmp(&a.score));
    raised
}

/// The product of two opinions, normalised.
pub fn combined(a: &[f32], b: &[f32]) -> Vec<f32> {
    let log = |v: f32| f64::from(v.max(1e-6)).ln();
    let sums: Vec<f64> = a.iter().zip(b).map(|(&a, &b)| log(a) + log(b)).collect();
    softmax(&sums, 1.0)
}

/// The best category, unless no score stands out from chance.
pub fn decide(labels: &[Arc<str>], scores: &[f32]) -> (Option<Arc<str>>, BTreeMap<Arc<str>, f32>) {
    let best = labels.iter().zip(scores).max_by(|a, b| a.1.total_cmp(b.1));
    let chance = 1.0 / labels.len().max(1) as f32;
    let certain = |score: f32| labels.len() == 1 || score >= (chance * STANDS_OUT).min(0.5);
    let category = best.filter(|(_, score)| certain(**score)).map(|(label, _)| Arc::clone(label));
    (category, labels.iter().cloned().zip(scores.iter().copied()).collect())
}

/// A category's score against chance, below which the text supports none.
const STANDS_OUT: f32 = 1.5;

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    f64::from(models::words::similarity(a, b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[f64]) -> Vec<Score> {
        values.iter().map(|&log_likelihood| Score { log_likelihood, tokens: 1 }).collect()
    }

    #[test]
    fn what_a_model_always_says_counts_for_nothing() {
        let calibration = Calibration::new(&[row(&[-1.0, -9.0]), row(&[-3.0, -11.0])]);
        let gains = calibration.gains(&row(&[-2.0, -4.0]));
        assert_eq!(gains, [0.0, 6.0]);
        let scores = softmax(&gains, 1.0);
        assert!((scores.iter().sum::<f32>() - 1.0).abs() < 1e-6 && scores[1] > 0.99);
    }

    #[test]
    fn nothing_certain_is_no_category() {
        let labels: Vec<Arc<str>> = ["a", "b", "c", "d"].map(Arc::from).to_vec();
        assert_eq!(decide(&labels, &[0.26, 0.25, 0.25, 0.24]).0, None);
        assert_eq!(decide(&labels, &[0.1, 0.7, 0.1, 0.1]).0.as_deref(), Some("b"));
        assert_eq!(decide(&labels[..1], &[1.0]).0.as_deref(), Some("a"));
        assert_eq!(decide(&[], &[]), (None, BTreeMap::new()));
        assert_eq!(softmax(&[f64::NAN, f64::NEG_INFINITY], 1.0), [0.0, 0.0]);
        assert_eq!(softmax(&[f64::NAN, 1.0], 1.0), [0.0, 1.0]);
    }

    #[test]
    fn the_nearest_label_wins_and_opinions_combine() {
        let scores = category_by_embedding(&[1.0, 0.0], &[vec![0.6, 0.8], vec![0.8, 0.6]]);
        assert!(scores[1] > scores[0]);
        let both = combined(&[0.6, 0.4], &[0.1, 0.9]);
        assert!(both[1] > both[0]);
    }
}
