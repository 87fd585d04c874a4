//! From a row of logits to likelihoods. Pure; a row is read once or twice and nothing is allocated.
//!
//! Its neighbours are `sample` (which token comes next) and `task` (how likely given texts are).

use models::llama::Token;

/// Values that are computed side by side; a compiler turns loops over so many into vector instructions.
const LANES: usize = 16;
/// Values that are summed in single precision before they go into a sum of double precision.
pub(super) const BLOCK: usize = 256;
/// Below this the exponential is taken as 0; e^-87 is the smallest that a normal `f32` holds.
pub(super) const EXPONENT_MIN: f32 = -87.0;

/// A token that may come next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) logit: f32,
    pub(super) token: Token,
}

/// Likelier first; the lower number first among equals.
pub(super) fn likelier(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token))
}

/// The highest logit; minus infinity when there is none. NaN counts as minus infinity.
pub(super) fn highest(row: &[f32]) -> f32 {
    let higher = |a: f32, b: f32| if b > a { b } else { a };
    let (chunks, rest) = row.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            *lane = higher(*lane, logit);
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, higher)
}

/// The likeliest token, the lowest number among equals; none when no logit is above minus infinity.
pub(super) fn greedy(row: &[f32]) -> Option<Token> {
    let high = highest(row);
    if high == f32::NEG_INFINITY {
        return None;
    }
    row.iter().position(|&logit| logit == high).map(|at| at as Token)
}

/// e^x for x up to 0 with a relative error below 3e-7; 0 below [`EXPONENT_MIN`] and for NaN. Branch-free, so
/// that loops over it become vector code, about ten times as fast as the standard library's.
pub(super) fn exp(x: f32) -> f32 {
    // Adding and taking away 1.5 * 2^23 rounds to a whole number, which then stands in the low bits.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let inside = x > EXPONENT_MIN;
    let x = if inside { x } else { EXPONENT_MIN };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    let r = x - whole * LN_2_HIGH - whole * LN_2_LOW;
    // Taylor: |r| is at most ln(2) / 2.
    let tail = 1.0 / 6.0 + r * (1.0 / 24.0 + r * (1.0 / 120.0 + r * (1.0 / 720.0)));
    let part = 1.0 + r * (1.0 + r * (0.5 + r * tail));
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    if inside { part * power } else { 0.0 }
}

/// Sum of e^((logit - high) * scale) over at most [`BLOCK`] logits.
pub(super) fn mass(block: &[f32], high: f32, scale: f32) -> f32 {
    let (chunks, rest) = block.as_chunks::<LANES>();
    let mut lanes = [0.0_f32; LANES];
    for chunk in chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            *lane += exp((logit - high) * scale);
        }
    }
    let rest: f32 = rest.iter().map(|&logit| exp((logit - high) * scale)).sum();
    lanes.iter().sum::<f32>() + rest
}

/// Natural log of the sum of the exponentials: what turns a logit into a log-likelihood.
pub(super) fn log_sum_exp(row: &[f32]) -> f64 {
    let high = highest(row);
    if !high.is_finite() {
        return f64::from(high);
    }
    let sum: f64 = row.chunks(BLOCK).map(|block| f64::from(mass(block, high, 1.0))).sum();
    f64::from(high) + sum.ln()
}

/// Natural log-likelihood of `token`, given its row's [`log_sum_exp`].
pub(super) fn log_likelihood(row: &[f32], log_sum: f64, token: Token) -> f64 {
    let logit = usize::try_from(token).ok().and_then(|t| row.get(t));
    logit.map_or(f64::NEG_INFINITY, |&l| f64::from(l) - log_sum)
}

/// The `n` likeliest tokens with a logit of at least `floor`, in any order. One pass; memory for 2 n.
pub(super) fn likeliest(row: &[f32], n: usize, floor: f32, out: &mut Vec<Candidate>) {
    out.clear();
    if n == 0 {
        return;
    }
    let room = n.saturating_mul(2).max(64);
    let mut least = f32::NEG_INFINITY;
    for (i, &logit) in row.iter().enumerate() {
        if logit > least && logit >= floor {
            out.push(Candidate { logit, token: i as Token });
            if out.len() == room {
                out.select_nth_unstable_by(n - 1, likelier);
                out.truncate(n);
                least = out[n - 1].logit;
            }
        }
    }
    if out.len() > n {
        out.select_nth_unstable_by(n - 1, likelier);
        out.truncate(n);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn likelihoods_of_a_row_sum_to_one() {
        let row = [1.0, -2.0, 30.0, f32::NEG_INFINITY, 29.5];
        let sum = log_sum_exp(&row);
        let total: f64 = (0..5).map(|t| log_likelihood(&row, sum, t).exp()).sum();
        assert!((total - 1.0).abs() < 1e-6, "{total}");
        assert_eq!(log_likelihood(&row, sum, 9), f64::NEG_INFINITY);
        assert_eq!(log_sum_exp(&[f32::NEG_INFINITY; 3]), f64::NEG_INFINITY);
    }

    #[test]
    fn the_first_of_equals_is_greedy_and_what_is_no_number_is_never_chosen() {
        assert_eq!(greedy(&[f32::NAN, 1.0, f32::NAN, 3.0, 3.0]), Some(3));
        assert_eq!(greedy(&[f32::NEG_INFINITY, f32::NAN]), None);
        assert_eq!(greedy(&[]), None);
    }

    #[test]
    fn the_exponential_is_0_where_there_is_nothing() {
        assert_eq!([exp(f32::NEG_INFINITY), exp(-1e9), exp(f32::NAN)], [0.0; 3]);
        assert_eq!(exp(0.0), 1.0);
    }

    proptest! {
        #[test]
        fn the_exponential_is_right(x in -87.0f32..=0.0) {
            let want = f64::from(x).exp();
            let error = (f64::from(exp(x)) - want).abs() / want;
            prop_assert!(error < 3e-7, "{x}: {error}");
        }

        #[test]
        fn sums_and_maxima_equal_the_naive_ones(row in prop::collection::vec(-30.0f32..30.0, 1..700)) {
            let naive: f64 = row.iter().map(|&l| f64::from(l).exp()).sum::<f64>().ln();
            prop_assert!((log_sum_exp(&row) - naive).abs() < 1e-5);
            prop_assert_eq!(highest(&row), row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        }

        #[test]
        fn the_likeliest_are_those_of_a_full_sort(
            row in prop::collection::vec((0u8..40).prop_map(f32::from), 0..400),
            n in 0usize..50,
            floor in -1.0f32..40.0,
        ) {
            let mut all: Vec<Candidate> = (0..).zip(&row).map(|(token, &logit)| Candidate { logit, token }).collect();
            all.retain(|c| c.logit >= floor);
            all.sort_by(likelier);
            all.truncate(n);
            let mut found = Vec::new();
            likeliest(&row, n, floor, &mut found);
            found.sort_by(likelier);
            prop_assert_eq!(found, all);
        }
    }
}
