//! What a model costs on one thread: measured figures as data, and the arithmetic between the sizes that were
//! measured.
//!
//! Its neighbours are the catalogue, which ships such figures, and whoever measures a machine's own. One rule: more
//! work never costs less by it, and no figure that was raised lowers a cost.

use serde::{Deserialize, Serialize};

/// Milliseconds that so many of all runs did not exceed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantiles {
    /// Half of them.
    pub p50: f64,
    /// Nine in ten.
    pub p90: f64,
    /// All but one in a hundred.
    pub p99: f64,
}

/// What a model's work is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkUnit {
    /// Pictures; several are one batch.
    Frame,
    /// Lines of text in a picture; several are one batch.
    Line,
    /// Texts of a sentence or two; several are one batch.
    Text,
    /// Calls over 128 ms of sound; several are one batch.
    #[serde(rename = "sound_128_ms")]
    Sound128Ms,
    /// Seconds of sound of one utterance.
    SoundS,
    /// Tokens read into a language model.
    PromptToken,
    /// Tokens written by a language model in one step, each of another answer.
    GeneratedToken,
}

impl WorkUnit {
    /// Whether several units are members of one batch, rather than one longer piece of work.
    pub const fn is_batched(self) -> bool {
        matches!(self, WorkUnit::Frame | WorkUnit::Line | WorkUnit::Text | WorkUnit::Sound128Ms)
    }

    /// One of it, in words.
    pub const fn one(self) -> &'static str {
        match self {
            WorkUnit::Frame => "frame",
            WorkUnit::Line => "line",
            WorkUnit::Text => "text",
            WorkUnit::Sound128Ms => "128 ms of sound",
            WorkUnit::SoundS => "second of sound",
            WorkUnit::PromptToken => "prompt token",
            WorkUnit::GeneratedToken => "generated token",
        }
    }
}

/// Work of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeCost {
    /// How many units at once.
    pub size: u32,
    /// What all of them together cost, in milliseconds.
    pub ms: Quantiles,
}

/// What a model costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelCost {
    /// What its work is counted in.
    pub unit: WorkUnit,
    /// Whether a run under way can be ended.
    pub interruptible: bool,
    /// The longest stretch that can't be ended once begun, in milliseconds: a whole run, or the time from being
    /// asked to end to having ended.
    pub piece_ms: Quantiles,
    /// Ascending by size, at least one.
    pub sizes: Vec<SizeCost>,
}

impl ModelCost {
    /// Whether the figures can be calculated with: sizes ascend, times are numbers and their quantiles too.
    pub fn is_sound(&self) -> bool {
        let good = |ms: &Quantiles| {
            [ms.p50, ms.p90, ms.p99].iter().all(|ms| ms.is_finite() && *ms >= 0.0)
                && ms.p50 <= ms.p90
                && ms.p90 <= ms.p99
        };
        let ascend = self.sizes.windows(2).all(|pair| pair[0].size < pair[1].size);
        let first = self.sizes.first().is_some_and(|first| first.size > 0);
        first && ascend && good(&self.piece_ms) && self.sizes.iter().all(|size| good(&size.ms))
    }

    /// Milliseconds of so many units at once: between the measured sizes on the line, below them as the smallest,
    /// above them in proportion to the largest.
    pub fn ms(&self, units: f64, of: fn(&Quantiles) -> f64) -> f64 {
        let mut below: Option<(f64, f64)> = None;
        for SizeCost { size, ms } in &self.sizes {
            let (size, ms) = (f64::from(*size), of(ms));
            if units <= size {
                return match below {
                    None => ms,
                    Some((smaller, less)) => {
                        less + (ms - less) * (units - smaller) / (size - smaller)
                    }
                };
            }
            below = Some((size, ms));
        }
        below.map_or(0.0, |(largest, ms)| ms * units / largest)
    }

    /// Milliseconds of one job as a scheduler sees it: a batch of one, or a piece of longer work.
    pub fn job_ms(&self) -> Quantiles {
        match self.sizes.first() {
            Some(first) if self.unit.is_batched() => first.ms,
            _ => self.piece_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(ms: f64) -> Quantiles {
        Quantiles { p50: ms, p90: ms, p99: ms }
    }

    fn cost(sizes: &[(u32, f64)]) -> ModelCost {
        ModelCost {
            unit: WorkUnit::SoundS,
            interruptible: false,
            piece_ms: flat(7.0),
            sizes: sizes.iter().map(|(size, ms)| SizeCost { size: *size, ms: flat(*ms) }).collect(),
        }
    }

    #[test]
    fn between_sizes_it_is_the_line_and_beyond_them_the_proportion() {
        let cost = cost(&[(1, 10.0), (4, 40.0), (8, 100.0)]);
        for (units, ms) in [(0.2, 10.0), (1.0, 10.0), (2.0, 20.0), (6.0, 70.0), (16.0, 200.0)] {
            assert_eq!(cost.ms(units, |q| q.p50), ms, "{units}");
        }
        assert_eq!(cost.job_ms(), flat(7.0), "an utterance is computed in pieces");
    }

    #[test]
    fn figures_that_nobody_can_calculate_with_are_not_sound() {
        assert!(cost(&[(1, 1.0), (2, 1.5)]).is_sound());
        for sizes in [&[][..], &[(0, 1.0)], &[(2, 1.0), (1, 2.0)], &[(1, f64::NAN)], &[(1, -1.0)]] {
            assert!(!cost(sizes).is_sound(), "{sizes:?}");
        }
        let mut falling = cost(&[(1, 1.0)]);
        falling.piece_ms.p99 = 1.0;
        assert!(!falling.is_sound());
    }
}
