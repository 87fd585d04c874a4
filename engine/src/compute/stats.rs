//! Figures at one instant, for metrics pages, `top` and the run's summary.

use std::collections::BTreeMap;
use std::time::Duration;

use media::Mono;
use serde::Serialize;

use crate::Class;
use crate::scheduler::{Counts, LearnedCost, Scheduler};

/// One device's figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComputeStats {
    /// Lanes there are.
    pub lanes: usize,
    /// Lanes held now, stuck ones included.
    pub lanes_held: usize,
    /// Lanes quarantined now.
    pub lanes_stuck: Vec<usize>,
    /// By class.
    pub classes: BTreeMap<Class, ClassStats>,
    /// In order of registration.
    pub models: Vec<ModelStats>,
}

/// One class's figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClassStats {
    /// Guaranteed fraction of lane time.
    pub share: f64,
    /// Lane time held since the start.
    pub lane_time_ms: f64,
    /// Its models' jobs together.
    pub counts: Counts,
}

/// One model's figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelStats {
    /// Its name.
    pub model: String,
    /// Its rank.
    pub class: Class,
    /// Its jobs; `queued` is its queue depth.
    pub counts: Counts,
    /// Median cost of a single job.
    pub cost_p50_ms: Option<f64>,
    /// p90 of the cost of a single job.
    pub cost_p90_ms: Option<f64>,
    /// Median relative error of its estimates.
    pub estimate_error_p50: Option<f64>,
    /// p90 of the relative error of its estimates.
    pub estimate_error_p90: Option<f64>,
    /// Whether its batches can be ended half-way.
    pub interruptible: bool,
    /// How many stretches could not be ended once begun.
    pub pieces: u64,
    /// p99 of their lengths.
    pub piece_p99_ms: Option<f64>,
    /// The longest of them.
    pub piece_max_ms: Option<f64>,
    /// What batches of each size cost, all runs since the start.
    pub learned: Vec<LearnedStats>,
}

/// What batches of one size cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LearnedStats {
    /// Members.
    pub batch: usize,
    /// How many ran.
    pub runs: u64,
    /// Median.
    pub p50_ms: f64,
    /// Nine in ten took no longer.
    pub p90_ms: f64,
    /// All but one in a hundred took no longer.
    pub p99_ms: f64,
}

fn learned(cost: &LearnedCost) -> LearnedStats {
    let LearnedCost { batch, runs, p50, p90, p99 } = *cost;
    LearnedStats { batch, runs, p50_ms: ms(p50), p90_ms: ms(p90), p99_ms: ms(p99) }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

pub(super) fn of(scheduler: &Scheduler, now: Mono) -> ComputeStats {
    let config = scheduler.config();
    let class_of = |(class, held): (Class, Duration)| {
        let share = config.shares.get(&class).copied().unwrap_or_default();
        (class, ClassStats { share, lane_time_ms: ms(held), counts: Counts::default() })
    };
    let mut classes: BTreeMap<Class, ClassStats> =
        scheduler.lane_time().into_iter().map(class_of).collect();
    let figures = scheduler.figures(now);
    for figure in &figures {
        classes.entry(figure.class).or_default().counts.add(&figure.counts);
    }
    let model_of = |figure: crate::scheduler::ModelFigures| ModelStats {
        model: figure.name.to_string(),
        class: figure.class,
        counts: figure.counts,
        cost_p50_ms: figure.cost_p50.map(ms),
        cost_p90_ms: figure.cost_p90.map(ms),
        estimate_error_p50: figure.estimate_error.map(|(p50, _)| p50),
        estimate_error_p90: figure.estimate_error.map(|(_, p90)| p90),
        interruptible: figure.interruptible,
        pieces: figure.pieces,
        piece_p99_ms: figure.piece_p99.map(ms),
        piece_max_ms: figure.piece_max.map(ms),
        learned: figure.learned.iter().map(learned).collect(),
    };
    ComputeStats {
        lanes: config.lanes,
        lanes_held: scheduler.lanes_held(),
        lanes_stuck: scheduler.lanes_stuck(),
        classes,
        models: figures.into_iter().map(model_of).collect(),
    }
}
