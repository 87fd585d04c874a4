//! `pipeline validate`: a configuration is compiled, and what it costs is held against its budget and the lanes.
//! Nothing is opened and nothing runs.

use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::json;

use crate::config::{self, Context, Overrides, Problem, Problems};
use crate::cost::{self, Costs};

/// What `pipeline validate` was called with.
#[derive(Clone, Debug, clap::Args)]
pub struct ValidateArgs {
    /// The configuration.
    pub config: PathBuf,
    /// One value of the configuration, such as `stages.frames.fps=2`. Repeatable.
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Take every stream as played at its own pace, with deadlines.
    #[arg(long)]
    pub realtime: bool,
    /// Only warn of a budget or lanes that do not suffice.
    #[arg(long)]
    pub ignore_cost: bool,
    /// Reckon with the catalogue's figures, whatever was measured on this machine.
    #[arg(long)]
    pub catalogue_costs: bool,
    /// A table for people, or one JSON object.
    #[arg(long, value_enum, default_value = "table")]
    pub format: ValidateFormat,
}

/// How a judgement is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ValidateFormat {
    /// For people.
    Table,
    /// `{"config", "good", "stages", "streams", "work", "path", "load", "findings", …}`
    Json,
}

/// A judgement, ready to be printed.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// For standard output.
    pub text: String,
    /// What its cost is refused for.
    pub refused: Option<Problems>,
    /// What it would be refused for, were it not for `--ignore-cost`.
    pub warnings: Option<Problems>,
}

/// Compiles and judges. `costs` is told whether it is to give the catalogue's figures alone.
///
/// # Errors
/// What is wrong with the configuration, before any cost.
pub fn validate(
    args: &ValidateArgs,
    context: &Context<'_>,
    costs: &dyn Fn(bool) -> Costs,
) -> Result<Said, Problems> {
    let overrides = Overrides { set: &args.set, realtime: args.realtime };
    let plan = config::load(&args.config, overrides, context)?;
    let costs = costs(args.catalogue_costs);
    let found = cost::assess_here(&plan, &costs);
    let problem = |finding: &cost::Finding| Problem {
        at: config::place(&args.config, &args.set, &finding.path),
        path: finding.path.clone(),
        message: finding.message.clone(),
    };
    let problems: Vec<Problem> = found.findings.iter().map(problem).collect();
    let is_good = problems.is_empty() || args.ignore_cost;
    let (file, stages, streams) =
        (args.config.display(), plan.graph.stages.len(), plan.streams.len());
    let text = match args.format {
        ValidateFormat::Table => {
            let verdict = if is_good { "good" } else { "too costly" };
            let table = cost::table(&plan.graph, &found, &costs);
            format!("{file}: {verdict} ({stages} stages, {streams} streams)\n{table}")
        }
        ValidateFormat::Json => {
            let mut object = cost::json(&plan.graph, &found, &costs);
            object["config"] = json!(file.to_string());
            object["good"] = json!(is_good);
            object["stages"] = json!(stages);
            object["streams"] = json!(streams);
            let line = |p: &Problem| json!({ "at": p.at.to_string(), "path": p.path, "message": p.message });
            object["findings"] = problems.iter().map(line).collect();
            format!("{object}\n")
        }
    };
    let problems = Problems::of(problems);
    let (refused, warnings) = if args.ignore_cost { (None, problems) } else { (problems, None) };
    Ok(Said { text, refused, warnings })
}
