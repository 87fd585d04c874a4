//! Figures at one instant, for metrics pages, `top` and the run's summary.

use std::collections::BTreeMap;
use std::time::Duration;

use media::Mono;
use serde::Serialize;

use crate::Class;
use crate::scheduler::{Counts, Scheduler};

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
}

pub(super) fn of(scheduler: &Scheduler, now: Mono) -> ComputeStats {
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
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
    };
    ComputeStats {
        lanes: config.lanes,
        lanes_held: scheduler.lanes_held(),
        lanes_stuck: scheduler.lanes_stuck(),
        classes,
        models: figures.into_iter().map(model_of).collect(),
    }
}
