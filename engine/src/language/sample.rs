//! From logits to tokens and likelihoods. Pure; greedy choice is the same whatever else is in the batch.

use models::llama::Token;

/// The likeliest token; the lowest number among equals.
pub(super) fn greedy(logits: &[f32]) -> Token {
    let mut best = (0, f32::NEG_INFINITY);
    for (i, &logit) in logits.iter().enumerate() {
        if logit > best.1 {
            best = (i, logit);
        }
    }
    best.0 as Token
}

/// The likeliest of `allowed`; none when none is in the vocabulary.
pub(super) fn greedy_among(logits: &[f32], allowed: &[Token]) -> Option<Token> {
    let logit = |t: Token| usize::try_from(t).ok().and_then(|t| logits.get(t)).copied();
    allowed
        .iter()
        .filter_map(|&t| logit(t).map(|l| (t, l)))
        .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))
        .map(|(t, _)| t)
}

/// Draws from the softmax at `temperature` (> 0).
pub(super) fn draw(logits: &[f32], temperature: f32, random: &mut Random) -> Token {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |l: f32| f64::from((l - max) / temperature).exp();
    let mut left = random.unit() * logits.iter().map(|&l| weight(l)).sum::<f64>();
    for (i, &logit) in logits.iter().enumerate() {
        left -= weight(logit);
        if left <= 0.0 {
            return i as Token;
        }
    }
    greedy(logits)
}

/// Natural log of the sum of the exponentials: what turns a logit into a log-likelihood.
pub(super) fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if !max.is_finite() {
        return f64::from(max);
    }
    let sum: f64 = logits.iter().map(|&l| f64::from(l - max).exp()).sum();
    f64::from(max) + sum.ln()
}

/// Natural log-likelihood of `token`, given its row's [`log_sum_exp`].
pub(super) fn log_likelihood(logits: &[f32], log_sum: f64, token: Token) -> f64 {
    let logit = usize::try_from(token).ok().and_then(|t| logits.get(t));
    logit.map_or(f64::NEG_INFINITY, |&l| f64::from(l) - log_sum)
}

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Copy, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    /// Uniform in 0..1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The texts an answer may be, as tokens, and how far it has come.
#[derive(Clone, Debug)]
pub(super) struct Choices {
    left: Vec<Vec<Token>>,
    at: usize,
}

impl Choices {
    pub(super) fn new(choices: Vec<Vec<Token>>) -> Self {
        Choices { left: choices.into_iter().filter(|c| !c.is_empty()).collect(), at: 0 }
    }

    /// Tokens that may follow, with `end` among them when a choice is complete.
    pub(super) fn allowed(&self, end: Option<Token>) -> Vec<Token> {
        let mut next: Vec<Token> =
            self.left.iter().filter_map(|c| c.get(self.at)).copied().collect();
        if self.left.iter().any(|c| c.len() == self.at) {
            next.extend(end);
        }
        next
    }

    /// Goes on with `token`; whether the answer is complete.
    pub(super) fn accept(&mut self, token: Token) -> bool {
        let at = self.at;
        self.left.retain(|c| c.get(at) == Some(&token));
        self.at += 1;
        self.left.iter().all(|c| c.len() <= self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likelihoods_of_a_row_sum_to_one() {
        let row = [1.0, -2.0, 30.0, f32::NEG_INFINITY, 29.5];
        let sum = log_sum_exp(&row);
        let total: f64 = (0..5).map(|t| log_likelihood(&row, sum, t).exp()).sum();
        assert!((total - 1.0).abs() < 1e-6, "{total}");
        assert_eq!(log_likelihood(&row, sum, 9), f64::NEG_INFINITY);
        assert_eq!(greedy(&row), 2);
        assert_eq!(greedy_among(&row, &[0, 4, 77, -1]), Some(4));
    }

    #[test]
    fn drawing_follows_the_likelihoods_and_the_seed() {
        let row = [0.0, (3.0_f32).ln()];
        let mut random = Random(7);
        let ones = (0..4000).filter(|_| draw(&row, 1.0, &mut random) == 1).count();
        assert!((2850..3150).contains(&ones), "{ones}");
        let twice = |seed| draw(&[0.0; 1000], 1.0, &mut Random(seed));
        assert_eq!(twice(3), twice(3));
    }

    #[test]
    fn a_choice_that_begins_another_can_end_or_go_on() {
        let mut choices = Choices::new(vec![vec![1, 2], vec![1, 2, 3], vec![4]]);
        assert_eq!(choices.allowed(Some(0)), [1, 1, 4]);
        assert!(!choices.accept(1));
        assert!(!choices.accept(2));
        assert_eq!(choices.allowed(Some(0)), [3, 0]);
        assert!(choices.accept(3));
    }
}
