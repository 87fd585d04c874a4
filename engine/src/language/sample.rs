//! From a row of logits to the next token. Pure: the same settings, seed and rows give the same tokens, whatever
//! else is in the batch.
//!
//! Its neighbour is `answer`, which says what may follow. The order is vLLM's: what is not allowed, logit bias,
//! repetition, frequency and presence penalty, temperature, min-p, top-k, top-p, draw.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use models::llama::Token;

use super::backend::Sampling;
use super::likelihood::{
    BLOCK, Candidate, EXPONENT_MIN, exp, greedy, highest, likelier, likeliest, mass,
};

/// Below this a temperature is 0, as in vLLM.
const TEMPERATURE_EPSILON: f32 = 1e-5;
/// Lower temperatures above 0 are raised to this, as in vLLM.
const TEMPERATURE_MIN: f32 = 0.01;
/// First guess of how far below the highest logit the nucleus reaches, in temperatures.
const NUCLEUS_SPAN: f32 = 4.0;
/// Penalised logits stay within this, so that differences of them are numbers.
const LOGIT_MAX: f32 = 1e30;

/// What may not follow, for whatever reason.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits<'a> {
    /// One bit a token, lowest bit first; none: all are allowed.
    pub(super) allowed: Option<&'a [u32]>,
    /// These are not, allowed or not.
    pub(super) banned: &'a [Token],
}

/// Draws the tokens of one answer.
#[derive(Debug)]
pub(super) struct Sampler {
    settings: Sampling,
    /// 0: greedy.
    temperature: f32,
    random: Random,
    /// How often the answer has each token that prompt or answer have. Empty without penalties.
    seen: HashMap<Token, u32>,
    /// A row with limits, bias and penalties in it.
    edited: Vec<f32>,
    /// What is left of it after min-p, top-k and top-p.
    kept: Vec<Candidate>,
    /// Weights of its blocks, when everything is left.
    blocks: Vec<f32>,
}

impl Sampler {
    /// `settings` must be within their bounds; without a seed it takes a random one.
    pub(super) fn new(settings: Sampling, prompt: &[Token]) -> Self {
        let mut seen = HashMap::new();
        if settings.repetition_penalty != 1.0 {
            seen.extend(prompt.iter().map(|&token| (token, 0)));
        }
        let temperature = match settings.temperature {
            t if t < TEMPERATURE_EPSILON => 0.0,
            t => t.max(TEMPERATURE_MIN),
        };
        // The standard library's hasher is seeded from the system's randomness.
        let seed = settings.seed.unwrap_or_else(|| RandomState::new().hash_one(0));
        Sampler {
            settings,
            temperature,
            random: Random(seed),
            seen,
            edited: Vec::new(),
            kept: Vec::new(),
            blocks: Vec::new(),
        }
    }

    /// The next token; none when nothing is allowed.
    pub(super) fn choose(&mut self, logits: &[f32], limits: Limits<'_>) -> Option<Token> {
        let plain = limits.allowed.is_none() && limits.banned.is_empty() && !self.edits();
        if plain && self.temperature == 0.0 {
            return greedy(logits);
        }
        let mut edited = std::mem::take(&mut self.edited);
        let row = if plain {
            logits
        } else {
            self.edit(logits, limits, &mut edited);
            &edited
        };
        let token = if self.temperature == 0.0 { greedy(row) } else { self.draw(row) };
        self.edited = edited;
        token
    }

    /// Whether the likeliest token is always the next one.
    pub(super) fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// The answer goes on with `token`.
    pub(super) fn accept(&mut self, token: Token) {
        if self.penalises() {
            *self.seen.entry(token).or_default() += 1;
        }
    }

    fn penalises(&self) -> bool {
        let s = &self.settings;
        s.repetition_penalty != 1.0 || s.frequency_penalty != 0.0 || s.presence_penalty != 0.0
    }

    fn edits(&self) -> bool {
        !self.seen.is_empty() || !self.settings.logit_bias.is_empty()
    }

    fn edit(&self, logits: &[f32], limits: Limits<'_>, row: &mut Vec<f32>) {
        match limits.allowed {
            None => logits.clone_into(row),
            Some(allowed) => mask(logits, allowed, row),
        }
        for &token in limits.banned {
            change(row, token, |_| f32::NEG_INFINITY);
        }
        let s = &self.settings;
        for (&token, &bias) in &s.logit_bias {
            change(row, token, |logit| logit + bias);
        }
        for (&token, &count) in &self.seen {
            let repeated = |logit: f32| {
                if logit > 0.0 {
                    logit / s.repetition_penalty
                } else {
                    logit * s.repetition_penalty
                }
            };
            let presence = if count > 0 { s.presence_penalty } else { 0.0 };
            let penalty = s.frequency_penalty * count as f32 + presence;
            change(row, token, |logit| repeated(logit).clamp(-LOGIT_MAX, LOGIT_MAX) - penalty);
        }
    }

    fn draw(&mut self, row: &[f32]) -> Option<Token> {
        let high = highest(row);
        if !high.is_finite() {
            return greedy(row);
        }
        let Sampling { top_k, top_p, min_p, .. } = self.settings;
        let k = Some(top_k as usize).filter(|&k| k > 0 && k < row.len());
        let scale = 1.0 / self.temperature;
        let weight = |c: &Candidate| f64::from(exp((c.logit - high) * scale));
        let floor = if min_p > 0.0 { high + self.temperature * min_p.ln() } else { f32::MIN };
        let everything = row.len();
        match k {
            Some(k) => likeliest(row, k, floor, &mut self.kept),
            None if min_p > 0.0 => likeliest(row, everything, floor, &mut self.kept),
            None if top_p < 1.0 => self.nucleus(row, high),
            None => return Some(self.draw_of_all(row, high)),
        }
        if top_p < 1.0 && (k.is_some() || min_p > 0.0) {
            let goal = f64::from(top_p) * self.kept.iter().map(weight).sum::<f64>();
            cut(&mut self.kept, goal, weight);
        }
        let mut left = self.random.unit() * self.kept.iter().map(weight).sum::<f64>();
        let drawn = self.kept.iter().find(|c| {
            left -= weight(c);
            left < 0.0
        });
        drawn.or_else(|| self.kept.iter().min_by(|a, b| likelier(a, b))).map(|c| c.token)
    }

    /// Keeps the likeliest tokens that together have the probability `top_p`, without sorting the others.
    fn nucleus(&mut self, row: &[f32], high: f32) {
        let scale = 1.0 / self.temperature;
        let weight = |c: &Candidate| f64::from(exp((c.logit - high) * scale));
        let total: f64 = row.chunks(BLOCK).map(|b| f64::from(mass(b, high, scale))).sum();
        let goal = f64::from(self.settings.top_p) * total;
        let mut span = NUCLEUS_SPAN;
        loop {
            likeliest(row, row.len(), high - span * self.temperature, &mut self.kept);
            let found: f64 = self.kept.iter().map(weight).sum();
            if found >= goal || span > -EXPONENT_MIN {
                break;
            }
            span *= 2.0;
        }
        cut(&mut self.kept, goal, weight);
    }

    /// Draws from the whole row: the weights of its blocks say in which one to look.
    fn draw_of_all(&mut self, row: &[f32], high: f32) -> Token {
        let scale = 1.0 / self.temperature;
        self.kept.clear();
        self.blocks.clear();
        self.blocks.extend(row.chunks(BLOCK).map(|block| mass(block, high, scale)));
        let total: f64 = self.blocks.iter().map(|&m| f64::from(m)).sum();
        let mut left = self.random.unit() * total;
        let mut likely = None;
        for (at, &block_mass) in self.blocks.iter().enumerate() {
            if left >= f64::from(block_mass) {
                left -= f64::from(block_mass);
                continue;
            }
            for (i, &logit) in row.iter().enumerate().skip(at * BLOCK).take(BLOCK) {
                let weight = f64::from(exp((logit - high) * scale));
                if weight > 0.0 {
                    likely = Some(i as Token);
                    left -= weight;
                    if left < 0.0 {
                        return i as Token;
                    }
                }
            }
            // Rounding: the sum of the block was a little more than its members.
            if let Some(token) = likely {
                return token;
            }
        }
        greedy(row).unwrap_or_default()
    }
}

fn change(row: &mut [f32], token: Token, new: impl Fn(f32) -> f32) {
    if let Some(logit) = usize::try_from(token).ok().and_then(|t| row.get_mut(t)) {
        *logit = new(*logit);
    }
}

/// Copies `logits` with minus infinity where the bit is not set.
fn mask(logits: &[f32], allowed: &[u32], row: &mut Vec<f32>) {
    row.clear();
    row.resize(logits.len(), f32::NEG_INFINITY);
    let chunks = row.chunks_mut(32).zip(logits.chunks(32));
    for ((to, from), &bits) in chunks.zip(allowed) {
        match bits {
            0 => {}
            u32::MAX => to.copy_from_slice(from),
            _ => {
                for (i, (to, &from)) in to.iter_mut().zip(from).enumerate() {
                    if bits >> i & 1 == 1 {
                        *to = from;
                    }
                }
            }
        }
    }
}

/// Keeps the likeliest until their weights come to `goal`; at least one.
fn cut(kept: &mut Vec<Candidate>, goal: f64, weight: impl Fn(&Candidate) -> f64) {
    kept.sort_unstable_by(likelier);
    let mut sum = 0.0;
    let enough = kept.iter().position(|c| {
        sum += weight(c);
        sum >= goal
    });
    if let Some(last) = enough {
        kept.truncate(last + 1);
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Copy, Debug)]
struct Random(u64);

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

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn hot(seed: u64) -> Sampling {
        Sampling { temperature: 1.0, seed: Some(seed), ..Sampling::default() }
    }

    /// Straight from the definitions, one after the other, in double precision: what each token's probability is.
    fn naive(
        s: &Sampling,
        logits: &[f32],
        prompt: &[Token],
        answer: &[Token],
        limits: Limits<'_>,
    ) -> BTreeMap<Token, f64> {
        let allowed = |t: usize| {
            limits.allowed.is_none_or(|bits| bits[t / 32] >> (t % 32) & 1 == 1)
                && !limits.banned.contains(&(t as Token))
        };
        let mut left: Vec<(Token, f64)> = Vec::new();
        for (t, &logit) in logits.iter().enumerate().filter(|&(t, _)| allowed(t)) {
            let token = t as Token;
            let mut logit =
                f64::from(logit) + f64::from(s.logit_bias.get(&token).copied().unwrap_or(0.0));
            if prompt.contains(&token) || answer.contains(&token) {
                let r = f64::from(s.repetition_penalty);
                logit = if logit > 0.0 { logit / r } else { logit * r };
            }
            let count = answer.iter().filter(|&&a| a == token).count() as f64;
            logit -= f64::from(s.frequency_penalty) * count;
            logit -= f64::from(s.presence_penalty) * count.min(1.0);
            left.push((token, logit));
        }
        left.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        if s.temperature == 0.0 {
            left.truncate(1);
        }
        let t = if s.temperature == 0.0 { 1.0 } else { f64::from(s.temperature) };
        let high = left.first().map_or(0.0, |l| l.1);
        let mut weights: Vec<(Token, f64)> =
            left.iter().map(|&(token, l)| (token, ((l - high) / t).exp())).collect();
        weights.retain(|w| w.1 >= f64::from(s.min_p));
        if s.top_k > 0 {
            weights.truncate(s.top_k as usize);
        }
        let total: f64 = weights.iter().map(|w| w.1).sum();
        let mut before = 0.0;
        weights.retain(|w| {
            let keep = s.top_p == 1.0 || before < f64::from(s.top_p) * total;
            before += w.1;
            keep
        });
        let total: f64 = weights.iter().map(|w| w.1).sum();
        weights.into_iter().map(|(token, w)| (token, w / total)).collect()
    }

    fn settings() -> impl Strategy<Value = Sampling> {
        let penalty = prop_oneof![Just(0.0f32), -2.0f32..2.0];
        (
            prop_oneof![Just(0.0f32), 0.1f32..2.0],
            prop_oneof![Just(1.0f32), 0.05f32..1.0],
            prop_oneof![Just(0u32), 1u32..40],
            prop_oneof![Just(0.0f32), 0.001f32..0.9],
            (penalty.clone(), penalty, prop_oneof![Just(1.0f32), 0.5f32..2.0]),
            prop::collection::btree_map(0i32..300, -20.0f32..20.0, 0..4),
            any::<u64>(),
        )
            .prop_map(
                |(
                    temperature,
                    top_p,
                    top_k,
                    min_p,
                    (presence, frequency, repetition),
                    logit_bias,
                    seed,
                )| {
                    Sampling {
                        temperature,
                        top_p,
                        top_k,
                        min_p,
                        presence_penalty: presence,
                        frequency_penalty: frequency,
                        repetition_penalty: repetition,
                        logit_bias,
                        seed: Some(seed),
                    }
                },
            )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn what_is_kept_is_what_the_definitions_keep(
            s in settings(),
            logits in prop::collection::vec(-12.0f32..12.0, 1..600),
            prompt in prop::collection::vec(0i32..300, 0..20),
            answer in prop::collection::vec(0i32..300, 0..20),
            bits in prop::option::of(prop::collection::vec(any::<u32>(), 19)),
            banned in prop::collection::vec(0i32..300, 0..3),
        ) {
            let limits = Limits { allowed: bits.as_deref(), banned: &banned };
            // Single precision may fall to the other side of a limit, so it lies between a stricter and a looser one.
            let with = |by: f32| {
                let top_p = if s.top_p < 1.0 { (s.top_p * (1.0 + by)).min(1.0) } else { 1.0 };
                let nearly = Sampling { top_p, min_p: s.min_p * (1.0 - by), ..s.clone() };
                naive(&nearly, &logits, &prompt, &answer, limits)
            };
            let (strict, loose) = (with(-1e-4), with(1e-4));
            let mut sampler = Sampler::new(s.clone(), &prompt);
            answer.iter().for_each(|&t| sampler.accept(t));
            let found = sampler.choose(&logits, limits);
            match found {
                None => prop_assert!(loose.is_empty()),
                Some(token) => prop_assert!(loose.contains_key(&token), "{token} of {loose:?}"),
            }
            if s.temperature > 0.0 && !sampler.kept.is_empty() {
                let kept: BTreeSet<Token> = sampler.kept.iter().map(|c| c.token).collect();
                prop_assert!(strict.keys().all(|t| kept.contains(t)), "{kept:?}, expected {strict:?}");
                prop_assert!(kept.iter().all(|t| loose.contains_key(t)), "{kept:?}, expected {loose:?}");
            }
        }
    }

    /// 20,000 draws against the naive probabilities; the seed is fixed, so it is the same each time.
    fn drawn_as_the_naive_say(s: Sampling, logits: &[f32]) {
        let want = naive(&s, logits, &[], &[], Limits::default());
        let mut counts = BTreeMap::<Token, f64>::new();
        let mut sampler = Sampler::new(s, &[]);
        let n = 20_000.0;
        for _ in 0..20_000 {
            let token = sampler.choose(logits, Limits::default()).unwrap();
            *counts.entry(token).or_default() += 1.0 / n;
        }
        assert!(counts.keys().all(|t| want.contains_key(t)), "{counts:?}");
        for (token, p) in want {
            let found = counts.get(&token).copied().unwrap_or(0.0);
            let sigma = (p * (1.0 - p) / n).sqrt();
            assert!((found - p).abs() < 5.0 * sigma + 1e-4, "{token}: {found}, expected {p}");
        }
    }

    #[test]
    fn tokens_are_drawn_as_often_as_they_are_likely() {
        let row: Vec<f32> = (0..700).map(|i| ((i * 7919) % 101) as f32 / 12.0).collect();
        drawn_as_the_naive_say(hot(1), &row);
        drawn_as_the_naive_say(Sampling { temperature: 0.5, ..hot(2) }, &row);
        drawn_as_the_naive_say(Sampling { top_k: 9, ..hot(3) }, &row);
        drawn_as_the_naive_say(Sampling { top_p: 0.4, ..hot(4) }, &row);
        drawn_as_the_naive_say(Sampling { min_p: 0.3, top_p: 0.8, ..hot(5) }, &row);
    }

    #[test]
    fn one_seed_one_answer_and_none_another_each_time() {
        let row = [0.0; 1000];
        let answer = |seed| {
            let mut sampler = Sampler::new(Sampling { seed, ..hot(0) }, &[]);
            (0..8).map(|_| sampler.choose(&row, Limits::default())).collect::<Vec<_>>()
        };
        assert_eq!(answer(Some(3)), answer(Some(3)));
        assert_ne!(answer(Some(3)), answer(Some(4)));
        assert_ne!(answer(None), answer(None));
    }

    #[test]
    fn a_flat_row_has_a_nucleus_of_its_share() {
        let mut sampler = Sampler::new(Sampling { top_p: 0.5, ..hot(1) }, &[]);
        sampler.choose(&[0.0; 1000], Limits::default()).unwrap();
        assert_eq!(sampler.kept.len(), 500);
    }

    #[test]
    fn infinities_and_what_is_no_number_are_survived() {
        let rows: [&[f32]; 4] = [
            &[f32::NAN, 1.0, f32::NEG_INFINITY],
            &[f32::INFINITY, 1.0],
            &[f32::NAN],
            &[f32::NEG_INFINITY, f32::NEG_INFINITY],
        ];
        let mut all = Vec::new();
        for s in [hot(1), Sampling { top_p: 0.9, ..hot(1) }, Sampling { top_k: 1, ..hot(1) }] {
            for row in rows {
                all.push(Sampler::new(s.clone(), &[]).choose(row, Limits::default()));
            }
        }
        assert_eq!(all, [Some(1), Some(0), None, None].repeat(3));
        let tiny = Sampling { repetition_penalty: f32::MIN_POSITIVE, ..hot(1) };
        let token = Sampler::new(tiny, &[0, 1]).choose(&[9.0, -9.0, 0.5], Limits::default());
        assert_eq!(token, Some(0));
    }

    #[test]
    fn nothing_is_chosen_when_nothing_is_allowed() {
        let mut sampler = Sampler::new(hot(1), &[]);
        let limits = Limits { allowed: Some(&[0b110]), banned: &[2] };
        assert_eq!(sampler.choose(&[9.0, 1.0, 3.0], limits), Some(1));
        let limits = Limits { allowed: Some(&[0b100]), banned: &[2] };
        assert_eq!(sampler.choose(&[9.0, 1.0, 3.0], limits), None);
    }
}
