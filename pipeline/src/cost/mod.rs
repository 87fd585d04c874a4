//! What a graph costs on a machine, held against its budget and its lanes before anything runs.
//!
//! `profile` is the file of a machine's own figures, `figures` puts them over the catalogue's, `assess` is the pure
//! judgement, `finding` its words and `show` its tables. One rule: a judgement says whose figures it stands on.

mod assess;
mod figures;
mod finding;
mod profile;
mod show;

#[cfg(test)]
mod tests;

use actors::plan::{GraphPlan, StagePlan, StreamPlan};
use actors::stages::{OCR_SIDE_MEASURED, Settings};
use engine::compute::{Compute, ComputeStats};
use models::Catalogue;

pub use assess::{Assessment, PathStep, Row, Rules, assess};
pub use figures::{Costs, Known, Origin};
pub use finding::{Finding, FindingKind};
pub use profile::{By, MachineId, Measured, Profile};
pub use show::{BY_CATALOGUE, json, table};

pub(crate) use profile::{path as profile_path, rounded, today};

use crate::plan::Plan;

/// Judges a plan by what is known of this machine.
pub fn assess_here(plan: &Plan, costs: &Costs) -> Assessment {
    let paced = plan.streams.iter().filter(|stream: &&StreamPlan| stream.paced).count();
    let rules = Rules {
        lanes: plan.compute.lanes_here(),
        text_lane: plan.compute.text_lane,
        foreign_piece_max: plan.compute.foreign_piece_max,
    };
    assess(&plan.graph, &plan.models, paced, rules, costs)
}

/// Has the scheduler begin with what was measured on this machine. The catalogue's figures are left out: they are of
/// another one.
pub fn prime(compute: &Compute, costs: &Costs) {
    let ms = |ms: f64| std::time::Duration::from_secs_f64(ms / 1e3);
    for (name, known) in costs.iter().filter(|(_, known)| known.origin != Origin::Catalogue) {
        let cost = &known.cost;
        if cost.unit.is_batched() {
            for size in &cost.sizes {
                compute.prime(name, size.size as usize, ms(size.ms.p50), ms(size.ms.p90));
            }
        } else {
            let job = cost.job_ms();
            compute.prime(name, 1, ms(job.p50), ms(job.p90));
        }
    }
}

/// Keeps what a run of `graph` has learned for the next one.
///
/// # Errors
/// One sentence: the file, and what the system said.
pub fn keep(catalogue: &Catalogue, graph: &GraphPlan, stats: &ComputeStats) -> Result<(), String> {
    let path = profile::path(catalogue);
    let (mut own, _) = Profile::read(&path, &MachineId::here());
    own.keep_known(catalogue);
    let comparable = comparable(graph, stats);
    if own.learn(catalogue, &comparable, &profile::today(&path)?) {
        own.write(&path)
    } else {
        Ok(())
    }
}

/// Without models that ran on other inputs than those that figures are kept of: a text detector that was given
/// larger or smaller pictures.
fn comparable(graph: &GraphPlan, stats: &ComputeStats) -> ComputeStats {
    let resized = |stage: &StagePlan| match &stage.settings {
        Settings::Ocr(s) if s.side_max != OCR_SIDE_MEASURED => Some(format!("{}/detect", s.model)),
        _ => None,
    };
    let resized: Vec<String> = graph.stages.iter().filter_map(resized).collect();
    let mut stats = stats.clone();
    stats.models.retain(|model| !resized.contains(&model.model));
    stats
}
