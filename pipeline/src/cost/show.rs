//! A judgement as a table for people and as JSON for programs. Pure text.

use std::fmt::Write as _;

use actors::plan::GraphPlan;
use serde_json::{Value, json};

use super::assess::Assessment;
use super::figures::Costs;

/// Said where figures are not of this machine.
pub const BY_CATALOGUE: &str =
    "figures of the catalogue are of another machine; `pipeline bench models` measures this one";

/// For people: each stage's cost, the longest way, the load, and whose figures these are.
pub fn table(graph: &GraphPlan, found: &Assessment, costs: &Costs) -> String {
    let mut text = String::new();
    let mut line = |line: std::fmt::Arguments<'_>| {
        // Writing to a string has no way to fail.
        let _ = writeln!(text, "{}", line.to_string().trim_end());
    };
    let stage_wide = graph.stages.iter().map(|s| s.id.as_str().len()).max().unwrap_or(0).max(5);
    let model_wide = found.rows.iter().map(|r| r.model.len()).max().unwrap_or(0).max(5);
    line(format_args!(
        "{:<stage_wide$}  {:<model_wide$} {:>8} {:>8} {:>8} {:>9}  {}",
        "stage", "model", "asks/s", "ms p50", "lane %", "due p99", "figures"
    ));
    for (at, stage) in graph.stages.iter().enumerate() {
        let mut id = stage.id.as_str();
        let rows: Vec<_> = found.rows.iter().filter(|row| row.stage.0 == at).collect();
        if rows.is_empty() {
            line(format_args!("{id:<stage_wide$}  -"));
        }
        for row in rows {
            let Some(known) = &row.known else {
                line(format_args!(
                    "{id:<stage_wide$}  {:<model_wide$} {:>8.2} {:>8} {:>8} {:>9}  none",
                    row.model, row.work.rate_hz, "-", "-", "-"
                ));
                id = "";
                continue;
            };
            let due =
                row.work.due.as_ref().map_or("-".to_owned(), |_| format!("{:.1}", row.due_ms));
            line(format_args!(
                "{id:<stage_wide$}  {:<model_wide$} {:>8.2} {:>8.1} {:>8.1} {due:>9}  {}",
                row.model,
                row.work.rate_hz,
                row.ask_ms,
                row.lanes * 100.0,
                known.origin.name(),
            ));
            id = "";
        }
    }
    let way: Vec<String> = found
        .path
        .iter()
        .map(|step| {
            let id = graph.stages.get(step.stage.0).map_or("", |stage| stage.id.as_str());
            if step.ms > 0.0 { format!("{id} {:.0}", step.ms) } else { id.to_owned() }
        })
        .collect();
    line(format_args!(
        "longest way after a window's end: {} = {:.0} ms at p99 of {:.0}",
        way.join(" → "),
        found.path_ms(),
        found.path_limit_ms
    ));
    let long = match found.rules.lanes_for_long() {
        Some(limit) => format!(", {:.2} of {limit} in long pieces", found.lanes_long()),
        None => String::new(),
    };
    let who = match found.streams {
        0 => "one stream would take, if it had deadlines,".to_owned(),
        1 => "1 stream with deadlines takes".to_owned(),
        streams => format!("{streams} streams with deadlines take"),
    };
    line(format_args!("load: {who} {:.2} of {} lanes{long}", found.lanes(), found.rules.lanes));
    for name in found.unknown() {
        line(format_args!("{name}: nothing is known of its cost, so it counts nothing"));
    }
    if let Some(note) = &costs.note {
        line(format_args!("{note}"));
    }
    if found.is_by_catalogue() {
        line(format_args!("{BY_CATALOGUE}"));
    }
    text
}

/// For programs.
pub fn json(graph: &GraphPlan, found: &Assessment, costs: &Costs) -> Value {
    let id = |at: usize| graph.stages.get(at).map(|stage| stage.id.to_string());
    let rows: Vec<Value> = found
        .rows
        .iter()
        .map(|row| {
            json!({
                "stage": id(row.stage.0),
                "model": row.model,
                "class": row.work.class,
                "asks_per_s": row.work.rate_hz,
                "unit": row.unit(),
                "units": row.work.units,
                "ask_p50_ms": row.known.as_ref().map(|_| row.ask_ms),
                "lanes": row.known.as_ref().map(|_| row.lanes),
                "due_p99_ms": row.work.due.as_ref().map(|_| row.due_ms),
                "long": row.is_long,
                "figures": row.known.as_ref().map(|known| known.origin.name()),
            })
        })
        .collect();
    let path: Vec<Value> = found
        .path
        .iter()
        .map(|step| json!({ "stage": id(step.stage.0), "p99_ms": step.ms }))
        .collect();
    json!({
        "work": rows,
        "path": { "stages": path, "p99_ms": found.path_ms(), "limit_ms": found.path_limit_ms },
        "load": {
            "streams": found.streams,
            "lanes": found.lanes(),
            "lanes_max": found.rules.lanes,
            "long_lanes": found.lanes_long(),
            "long_lanes_max": found.rules.lanes_for_long(),
        },
        "unknown": found.unknown(),
        "note": costs.note,
    })
}
