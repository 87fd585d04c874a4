//! A graph, its streams, its lanes and what models cost: what is wanted of the lanes, and how long the longest way
//! from a window's end to its answer takes. Pure.
//!
//! What it leaves out: waiting for a lane (the second judgement is there so that it stays short), decoding, which has
//! threads of its own, and everything that is no model's work. Work of one window is counted one after the other, as
//! on a single lane.

use std::collections::BTreeMap;
use std::time::Duration;

use actors::fusion::EMIT_MARGIN;
use actors::plan::{GraphPlan, Input, StageIndex};
use actors::stages::{Work, WorkModel};
use engine::Class;
use models::cost::{Quantiles, WorkUnit};

use super::figures::{Costs, Known, Origin};
use super::finding::{self, Finding};
use crate::plan::{BackendPlan, ModelPlan};
use crate::run::EMBEDDER;

/// What of the scheduler's rules bears on the judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Lanes there are.
    pub lanes: usize,
    /// Whether one lane's worth is kept free of long pieces.
    pub text_lane: bool,
    /// Longest piece that may run there nevertheless.
    pub foreign_piece_max: Duration,
}

impl Rules {
    /// Lanes that long pieces of other classes than text may hold.
    pub(super) fn lanes_for_long(&self) -> Option<usize> {
        (self.text_lane && self.lanes > 1).then(|| self.lanes - 1)
    }
}

/// What a stage asks of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Whose work.
    pub stage: StageIndex,
    /// The model's name in a ledger.
    pub model: String,
    /// The work itself.
    pub work: Work,
    /// What is known of the model's cost; none when nothing is.
    pub known: Option<Known>,
    /// One ask, at the median, in milliseconds.
    pub ask_ms: f64,
    /// Lanes that all streams keep busy with it.
    pub lanes: f64,
    /// What is left of it at a window's end, at p99, in milliseconds.
    pub due_ms: f64,
    /// Whether its pieces are too long for the lane that is kept for text.
    pub is_long: bool,
}

impl Row {
    fn new(
        stage: StageIndex,
        model: String,
        work: Work,
        streams: f64,
        rules: Rules,
        costs: &Costs,
    ) -> Self {
        let known = costs.get(&model).cloned();
        let mut row =
            Row { stage, model, work, known, ask_ms: 0.0, lanes: 0.0, due_ms: 0.0, is_long: false };
        let Some(Known { cost, .. }) = &row.known else { return row };
        row.ask_ms = cost.ms(row.work.units, |q: &Quantiles| q.p50) * row.work.scale;
        row.lanes = row.ask_ms * row.work.rate_hz * streams / 1e3;
        row.due_ms = row.due_at(1.0);
        let longest_ms = rules.foreign_piece_max.as_secs_f64() * 1e3;
        let job_ms = cost.job_ms().p90 * row.work.scale;
        row.is_long = row.work.class != Class::Text && job_ms > longest_ms;
        row
    }

    /// What would be left at a window's end if its lever were set to this fraction.
    pub(super) fn due_at(&self, fraction: f64) -> f64 {
        let (Some(Known { cost, .. }), Some(due)) = (&self.known, &self.work.due) else {
            return 0.0;
        };
        let (asks, units) = match due.asks > 1.0 {
            true => (due.asks * fraction, due.units),
            false => (due.asks, due.units * fraction),
        };
        cost.ms(units, |q: &Quantiles| q.p99) * self.work.scale * asks
    }

    /// What its model's work is counted in.
    pub fn unit(&self) -> Option<WorkUnit> {
        self.known.as_ref().map(|known| known.cost.unit)
    }
}

/// A stage on the longest way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathStep {
    /// Which.
    pub stage: StageIndex,
    /// Its work after a window's end, at p99.
    pub ms: f64,
}

/// The judgement.
#[derive(Clone, Debug, PartialEq)]
pub struct Assessment {
    /// The rules it was made by.
    pub rules: Rules,
    /// Streams with deadlines.
    pub streams: usize,
    /// Per stage and model, in the graph's order. For one stream when none has deadlines.
    pub rows: Vec<Row>,
    /// The longest way from a window's end to fusion.
    pub path: Vec<PathStep>,
    /// What it may take: the budget less the time for fusing and sending.
    pub path_limit_ms: f64,
    /// What is wrong. Empty when no stream has deadlines.
    pub findings: Vec<Finding>,
}

impl Assessment {
    /// Lanes that all of it keeps busy.
    pub fn lanes(&self) -> f64 {
        self.rows.iter().fold(0.0, |all, row| all + row.lanes)
    }

    /// Lanes that long pieces of other classes than text keep busy.
    pub fn lanes_long(&self) -> f64 {
        self.rows.iter().filter(|row| row.is_long).fold(0.0, |all, row| all + row.lanes)
    }

    /// Length of the longest way.
    pub fn path_ms(&self) -> f64 {
        self.path.iter().map(|step| step.ms).sum()
    }

    /// Models that nothing is known of, and that so count nothing.
    pub fn unknown(&self) -> Vec<&str> {
        let unknown = self.rows.iter().filter(|row| row.known.is_none());
        let mut names: Vec<&str> = unknown.map(|row| row.model.as_str()).collect();
        names.dedup();
        names
    }

    /// Whether some figure is the catalogue's, not this machine's.
    pub fn is_by_catalogue(&self) -> bool {
        let mut known = self.rows.iter().filter_map(|row| row.known.as_ref());
        known.any(|known| known.origin == Origin::Catalogue)
    }
}

/// Judges `graph` with `streams` streams that have deadlines.
pub fn assess(
    graph: &GraphPlan,
    models: &BTreeMap<String, ModelPlan>,
    streams: usize,
    rules: Rules,
    costs: &Costs,
) -> Assessment {
    let stages = (0..graph.stages.len()).map(StageIndex);
    let rows = stages.flat_map(|stage| {
        graph
            .work(stage, true)
            .into_iter()
            .map(move |work| (stage, name(&work.model, models), work))
    });
    let rows = rows.map(|(stage, model, work)| {
        Row::new(stage, model, work, streams.max(1) as f64, rules, costs)
    });
    let rows: Vec<Row> = rows.collect();
    let budget = graph.fuse_settings().map(|fuse| fuse.budget).unwrap_or_default();
    let mut assessment = Assessment {
        rules,
        streams,
        path: longest(graph, &rows),
        rows,
        path_limit_ms: budget.saturating_sub(EMIT_MARGIN).as_secs_f64() * 1e3,
        findings: Vec::new(),
    };
    if streams > 0 {
        assessment.findings = finding::of(graph, &assessment);
    }
    assessment
}

/// A model's name in a ledger.
fn name(model: &WorkModel, models: &BTreeMap<String, ModelPlan>) -> String {
    let weights = |name: &String| match models.get(name).and_then(|plan| plan.backends.first()) {
        Some(BackendPlan::Embedded { model }) => model.clone(),
        None => name.clone(),
    };
    match model {
        WorkModel::Catalogue(name) => name.clone(),
        WorkModel::Embedder => EMBEDDER.to_owned(),
        WorkModel::Prefill(name) => format!("{}/prefill", weights(name)),
        WorkModel::Decode(name) => format!("{}/decode", weights(name)),
    }
}

/// The longest way through the graph to `fuse`, by what is left at a window's end.
fn longest(graph: &GraphPlan, rows: &[Row]) -> Vec<PathStep> {
    let mut ways: Vec<(f64, Option<usize>)> = Vec::with_capacity(graph.stages.len());
    let own =
        |at: usize| rows.iter().filter(|row| row.stage.0 == at).map(|row| row.due_ms).sum::<f64>();
    for (at, stage) in graph.stages.iter().enumerate() {
        let before = stage.inputs.iter().filter_map(|input| match input {
            Input::Stage(from) => ways.get(from.0).map(|way| (way.0, from.0)),
            _ => None,
        });
        let before = before.max_by(|a, b| a.0.total_cmp(&b.0));
        ways.push((own(at) + before.map_or(0.0, |way| way.0), before.map(|way| way.1)));
    }
    let mut path = Vec::new();
    let mut next = graph.fuse();
    while let Some(at) = next {
        path.push(PathStep { stage: StageIndex(at), ms: own(at) });
        next = ways.get(at).and_then(|way| way.1);
    }
    path.reverse();
    path
}
