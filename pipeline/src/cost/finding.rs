//! What is wrong with a graph's cost, in words: what each stage costs, what there is, and which settings would mend
//! it. Pure.

use actors::plan::{GraphPlan, StageIndex};
use actors::stages::{Lever, LeverTo};
use models::cost::WorkUnit;

use super::assess::{Assessment, Row};

/// Stages named in one finding at most, the most expensive first.
const NAMED_MAX: usize = 4;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// The longest way from a window's end to its answer takes longer than the budget.
    Late,
    /// More lanes are wanted than there are.
    Overload,
    /// Long pieces want more lanes than they may have beside text.
    LongOverload,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub kind: FindingKind,
    /// The setting it is about, such as `stages.fused.budget`.
    pub path: String,
    /// What was found, and what to change.
    pub message: String,
}

/// Everything that is wrong.
pub(super) fn of(graph: &GraphPlan, found: &Assessment) -> Vec<Finding> {
    let rules = found.rules;
    let mut findings = Vec::new();
    findings.extend(late(graph, found));
    let (all, long) = (found.lanes(), found.lanes_long());
    if all > rules.lanes as f64 {
        let what = format!("{} are wanted and there {}", lanes(all), are(rules.lanes));
        let over = Over { what, excess: all - rules.lanes as f64, needed: all.ceil() as usize };
        findings.push(overload(graph, found, FindingKind::Overload, &over));
    }
    if let Some(limit) = rules.lanes_for_long().filter(|limit| long > *limit as f64) {
        let what = format!(
            "pieces of more than {} ms want {} and may have {limit}, since one is kept for text",
            rules.foreign_piece_max.as_millis(),
            lanes(long),
        );
        let over = Over { what, excess: long - limit as f64, needed: long.ceil() as usize + 1 };
        findings.push(overload(graph, found, FindingKind::LongOverload, &over));
    }
    findings
}

fn late(graph: &GraphPlan, found: &Assessment) -> Option<Finding> {
    let (ms, limit) = (found.path_ms(), found.path_limit_ms);
    if ms <= limit {
        return None;
    }
    let mut steps: Vec<_> = found.path.iter().filter(|step| step.ms > 0.0).collect();
    steps.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    let named = |step: &&super::PathStep| {
        let rows = found.rows.iter().filter(|row| row.stage == step.stage && row.due_ms > 0.0);
        let parts: Vec<String> = rows.map(due_of).collect();
        format!("`{}` {:.0} ms ({})", id(graph, step.stage), step.ms, parts.join(", "))
    };
    let costs: Vec<String> = steps.iter().take(NAMED_MAX).map(named).collect();
    let on_path = |row: &&Row| found.path.iter().any(|step| step.stage == row.stage);
    let rows: Vec<&Row> = found.rows.iter().filter(on_path).collect();
    let lever_of = |row: &&Row| row.work.due.as_ref().and_then(|due| due.lever.clone());
    let mut changes: Vec<String> = Vec::new();
    for lever in levers(&rows, lever_of) {
        let LeverTo::Less { now, min, whole } = lever.to else { continue };
        let of_lever: Vec<&&Row> =
            rows.iter().filter(|r| lever_of(r).as_ref() == Some(&lever)).collect();
        let at = |fraction: f64| of_lever.iter().map(|row| row.due_at(fraction)).sum::<f64>();
        // In twentieths: nobody tunes finer than that.
        let fraction = (1..20)
            .rev()
            .map(|n| f64::from(n) / 20.0)
            .find(|fraction| ms - at(1.0) + at(*fraction) <= limit && now * fraction >= min);
        let to = fraction.map(|fraction| rounded(now * fraction, whole)).filter(|to| *to >= min);
        changes.extend(to.map(|to| lower(graph, &lever, now, to)));
    }
    let fuse = id(graph, StageIndex(graph.fuse()?));
    let budget = graph.fuse_settings()?.budget.as_millis();
    let wanted = ((ms + (budget as f64 - limit)) / 10.0).ceil() * 10.0;
    changes.push(format!("raise `stages.{fuse}.budget` from {budget}ms to {wanted:.0}ms"));
    let way: Vec<&str> = found.path.iter().map(|step| id(graph, step.stage)).collect();
    let message = format!(
        "`{}` takes {ms:.0} ms at p99 after a window's end, and the budget of {budget} ms leaves {limit:.0}: {}; {}",
        way.join(" → "),
        costs.join(", "),
        or(&changes),
    );
    Some(Finding { kind: FindingKind::Late, path: format!("stages.{fuse}.budget"), message })
}

/// How much too much there is.
struct Over {
    what: String,
    excess: f64,
    needed: usize,
}

fn overload(graph: &GraphPlan, found: &Assessment, kind: FindingKind, over: &Over) -> Finding {
    let counts = |row: &&Row| kind == FindingKind::Overload || row.is_long;
    let rows: Vec<&Row> = found.rows.iter().filter(counts).collect();
    let mut stages: Vec<(StageIndex, f64)> = Vec::new();
    for row in &rows {
        match stages.iter_mut().find(|(stage, _)| *stage == row.stage) {
            Some((_, lanes)) => *lanes += row.lanes,
            None => stages.push((row.stage, row.lanes)),
        }
    }
    stages.sort_by(|a, b| b.1.total_cmp(&a.1));
    let who = if found.streams == 1 {
        "1 stream takes"
    } else {
        &format!("{} streams take", found.streams)
    };
    let named = |(stage, lanes): &(StageIndex, f64)| {
        let own: Vec<&&Row> = rows.iter().filter(|row| row.stage == *stage).collect();
        let each = match own[..] {
            [row] if row.unit() == Some(WorkUnit::Frame) => {
                format!("at {} fps costs {:.0} ms a frame", short(row.work.rate_hz), row.ask_ms)
            }
            _ => format!("costs {:.0} ms a second", 1e3 * lanes / found.streams.max(1) as f64),
        };
        format!("`{}` {each}, {who} {:.0} % of a lane", id(graph, *stage), lanes * 100.0)
    };
    let costs: Vec<String> = stages.iter().take(NAMED_MAX).map(named).collect();
    let mut changes: Vec<String> = Vec::new();
    for lever in levers(&rows, |row| row.work.lever.clone()) {
        let own = rows.iter().filter(|row| row.work.lever.as_ref() == Some(&lever));
        let load: f64 = own.map(|row| row.lanes).sum();
        let left = load - over.excess;
        match lever.to {
            LeverTo::Less { now, min, whole } if left > 0.0 => {
                let to = rounded(now * left / load, whole);
                changes.extend((to >= min).then(|| lower(graph, &lever, now, to)));
            }
            LeverTo::Without(value) if left >= 0.0 => {
                let (stage, key) = (id(graph, lever.stage), lever.key);
                changes.push(format!("set `stages.{stage}.{key}` to {value}"));
            }
            _ => {}
        }
    }
    changes.truncate(NAMED_MAX);
    let all: f64 = rows.iter().map(|row| row.lanes).sum();
    let each = all / found.streams.max(1) as f64;
    let fit = ((all - over.excess) / each).floor();
    if found.streams > 1 && fit >= 1.0 {
        let plural = if fit > 1.0 { "s" } else { "" };
        changes.push(format!("use {fit:.0} stream{plural} at most"));
    }
    changes.push(format!(
        "raise `compute.lanes` from {} to {} where there are so many cores",
        found.rules.lanes, over.needed
    ));
    let heaviest = stages.first().map_or("", |(stage, _)| id(graph, *stage));
    let message = format!("{}: {}; {}", over.what, costs.join("; "), or(&changes));
    Finding { kind, path: format!("stages.{heaviest}"), message }
}

/// Distinct levers, the one that moves most first.
fn levers(rows: &[&Row], of: impl Fn(&&Row) -> Option<Lever>) -> Vec<Lever> {
    let mut found: Vec<(Lever, f64)> = Vec::new();
    for row in rows {
        let Some(lever) = of(row) else { continue };
        match found.iter_mut().find(|(other, _)| *other == lever) {
            Some((_, weight)) => *weight += row.lanes.max(row.due_ms),
            None => found.push((lever, row.lanes.max(row.due_ms))),
        }
    }
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    found.into_iter().map(|(lever, _)| lever).collect()
}

fn lower(graph: &GraphPlan, lever: &Lever, now: f64, to: f64) -> String {
    let (stage, key) = (id(graph, lever.stage), lever.key);
    format!("lower `stages.{stage}.{key}` from {} to {}", short(now), short(to))
}

fn id(graph: &GraphPlan, stage: StageIndex) -> &str {
    graph.stages.get(stage.0).map_or("", |stage| stage.id.as_str())
}

/// What is due of a row: `7 seconds of sound`.
fn due_of(row: &Row) -> String {
    let Some((unit, due)) = row.unit().zip(row.work.due.as_ref()) else { return String::new() };
    let count = due.asks * due.units;
    let part = row.model.split_once('/').map(|(_, part)| format!("{part} ")).unwrap_or_default();
    let (count, one) = (short(count), unit.one());
    match unit {
        WorkUnit::Sound128Ms => format!("{part}{one}"),
        WorkUnit::SoundS => format!("{part}{count} s of sound"),
        _ if count == "1" => format!("{part}1 {one}"),
        _ => format!("{part}{count} {one}s"),
    }
}

/// At most two figures, downwards.
fn rounded(value: f64, whole: bool) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let step = 10_f64.powi(value.log10().floor() as i32 - 1);
    let step = if whole { step.max(1.0) } else { step };
    // A hair more, so that 3.0 that came out as 2.9999999 stays 3.
    (value / step + 1e-9).floor() * step
}

/// A number without needless digits.
fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn lanes(count: f64) -> String {
    format!("{count:.2} lanes")
}

fn are(lanes: usize) -> String {
    if lanes == 1 { "is 1".into() } else { format!("are {lanes}") }
}

/// `a, b or c`
fn or(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
