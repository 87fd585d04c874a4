//! The demo clip at its own pace through `configs/demo.yaml`: how long after a window's end its answer comes, and
//! how much of it is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use media::result::{FusedResult, Status};
use serde_json::{Map, Value, json};

use super::BenchArgs;
use super::report::{Aim, Report};
use super::stand::{self, Kept, Stand, answered};
use super::stats::{Times, share};
use crate::run::Rooms;

const CONFIG: &str = include_str!("../../../configs/demo.yaml");
/// The clip's length.
const CLIP_S: f64 = 40.5;
/// A line that was shown this many windows ago is no new text; the text stage sees it so, too.
const SHOWN_WINDOWS: u64 = 30;

pub(super) async fn bench(_: &BenchArgs) -> Result<Report, String> {
    let plan = stand::plan("demo.yaml", CONFIG)?;
    let clip = models::Catalogue::builtin().cache().join("media/demo/demo.mp4");
    if !clip.is_file() {
        return Err(format!("{} is not there; run `make demo` once", clip.display()));
    }
    let rooms = Rooms::open(&plan).await?;
    let results = Arc::new(Kept::default());
    let stand = Stand::up(&plan.graph, rooms, results.clone()).await?;
    let mut stream = stand::stream("demo", &clip.display().to_string(), true, &plan.graph);
    stream.title = Some("Street interview".into());
    stand.add(stream).await?;
    stand.all_ended().await?;
    let stats = stand.down().await;

    let results = results.take();
    let first: Vec<&FusedResult> = results.iter().filter(|r| r.revision == 0).collect();
    let mut report = Report::new("latency");
    let latency: Times = first.iter().map(|r| r.latency_ms).collect();
    let age: Times = first.iter().filter_map(|r| r.age_ms).collect();
    report.hold("latency_p50_ms", latency.at(0.5), Aim::AtMost(300.0));
    report.hold("latency_p99_ms", latency.at(0.99), Aim::AtMost(500.0));
    report.hold("age_p50_ms", age.at(0.5), Aim::AtMost(300.0));
    report.hold("age_p99_ms", age.at(0.99), Aim::AtMost(500.0));
    let on_time = first.iter().filter(|r| is_on_time(r)).count();
    report.hold("on_time_share", share(on_time, first.len()), Aim::AtLeast(0.99));
    let complete = first.iter().filter(|r| r.status == Status::Complete).count();
    report.tell("complete_share", share(complete, first.len()));
    let new = new_text(&results);
    let answered_new = new.iter().filter(|(_, answered)| **answered).count();
    report.hold("new_text_answered_share", share(answered_new, new.len()), Aim::AtLeast(0.95));
    report.tell("windows_with_new_text", new.len());
    let summaries: Times = first
        .iter()
        .filter_map(|r| r.text.as_ref())
        .filter(|text| text.summary.is_some())
        .map(|text| text.summary_age_ms as f64)
        .collect();
    report.tell("summary_age_p50_ms", summaries.at(0.5));
    report.tell("summary_age_max_ms", summaries.max());
    report.tell("windows", first.len());
    report.tell("revisions", results.len() - first.len());
    report.tell("missing", missing(&first));
    // The load that the figures were found under.
    let per_second = |model: &str| answered(&stats, model) as f64 / CLIP_S;
    report.hold("detections_per_s", Some(per_second("ssdlite-300")), Aim::AtLeast(4.9));
    report.hold("scenes_per_s", Some(per_second("efficientnet-lite0")), Aim::AtLeast(0.98));
    report.hold("screens_per_s", Some(per_second("ppocr-v5/detect")), Aim::AtLeast(0.98));
    let spoken = first.iter().filter(|r| r.audio.as_ref().is_some_and(|a| !a.speech.is_empty()));
    report.hold("speech_share", share(spoken.count(), first.len()), Aim::AtLeast(0.6));
    report.tell("stages", stages(&first));
    Ok(report)
}

/// Both times that are promised are within the budget.
fn is_on_time(result: &FusedResult) -> bool {
    let budget = result.budget_ms.unwrap_or_default() as f64;
    result.latency_ms <= budget && result.age_ms.is_none_or(|age| age <= budget)
}

/// Windows with new text, and whether their first result holds the answer to it: one that knows text as new as that,
/// which may have ended before the window began, since an utterance is final after a pause. What was new is taken
/// from the revision too: text that came too late for the first result was in the window all the same.
fn new_text(results: &[FusedResult]) -> BTreeMap<u64, bool> {
    let mut shown: BTreeMap<String, u64> = BTreeMap::new();
    let mut windows: BTreeMap<u64, (Option<i64>, Option<i64>)> = BTreeMap::new();
    let mut in_order: Vec<&FusedResult> = results.iter().collect();
    in_order.sort_by_key(|r| (r.window.index, r.revision));
    for result in in_order {
        let index = result.window.index;
        let (newest, known) = windows.entry(index).or_default();
        let speech = result.audio.iter().flat_map(|audio| &audio.speech);
        let finals = speech.filter(|segment| segment.is_final).map(|segment| segment.end_ms);
        *newest = finals.chain(*newest).max();
        for line in result.vision.iter().flat_map(|vision| &vision.text) {
            let last = shown.insert(line.folded(), index);
            if last.is_none_or(|last| last + SHOWN_WINDOWS < index) {
                *newest = Some(line.pts_ms).max(*newest);
            }
        }
        if result.revision == 0 {
            *known = result.text.as_ref().map(|text| match text.age_ms {
                0 => result.window.end_ms,
                age => result.window.end_ms - age,
            });
        }
    }
    let answered = |(index, (newest, known)): (u64, (Option<i64>, Option<i64>))| {
        newest.map(|newest| (index, known.is_some_and(|known| known >= newest)))
    };
    windows.into_iter().filter_map(answered).collect()
}

fn missing(results: &[&FusedResult]) -> Map<String, Value> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for missing in results.iter().flat_map(|r| &r.missing) {
        let reason = serde_json::to_value(missing.reason).unwrap_or_default();
        let reason = reason.as_str().unwrap_or_default().to_owned();
        *counts.entry(format!("{} {reason}", missing.stage)).or_default() += 1;
    }
    counts.into_iter().map(|(key, count)| (key, count.into())).collect()
}

fn stages(results: &[&FusedResult]) -> Map<String, Value> {
    let mut stages: BTreeMap<String, (Times, Times)> = BTreeMap::new();
    for timing in results.iter().flat_map(|r| &r.timings) {
        let (queue, compute) = stages.entry(timing.stage.to_string()).or_default();
        queue.add(timing.queue_ms);
        compute.add(timing.compute_ms);
    }
    let figures = |(queue, compute): (Times, Times)| {
        json!({
            "compute_p50_ms": compute.at(0.5),
            "compute_p99_ms": compute.at(0.99),
            "queue_p99_ms": queue.at(0.99),
            "total_ms": compute.sum(),
        })
    };
    stages.into_iter().map(|(stage, times)| (stage, figures(times))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(index: u64, revision: u32, line: &str, age_ms: Option<i64>) -> FusedResult {
        let text = age_ms.map(|age_ms| {
            json!({
                "category": null, "scores": {}, "summary": null, "summary_from": null,
                "summary_age_ms": 0, "sentiment": null, "flags": [], "keywords": [],
                "language": null, "model": "", "backend": "", "age_ms": age_ms, "truncated": false
            })
        });
        let line = json!({"text": line, "score": 1.0, "box": [0.0, 0.0, 0.1, 0.1], "pts_ms": 0});
        serde_json::from_value(json!({
            "schema": "fused-result/1", "run": "", "seq": 1, "stream_seq": 1, "stream": "a",
            "window": {"index": index, "start_ms": 0, "end_ms": 1000},
            "status": "complete", "revision": revision, "latency_ms": 100.0, "age_ms": 499.0,
            "processing_ms": null, "budget_ms": 500,
            "vision": {"objects": [], "scenes": [], "text": [line], "safety": null},
            "audio": null, "text": text, "fusion": {"labels": [], "sentiment": null, "alerts": []},
            "missing": [], "timings": []
        }))
        .unwrap()
    }

    #[test]
    fn a_line_is_new_once_and_a_late_answer_is_no_answer() {
        let results = [
            result(0, 0, "Gate 7", Some(0)),
            result(1, 0, "GATE 7", Some(1_000)),
            result(2, 0, "Gate 8", Some(2_000)),
            result(2, 1, "Gate 8", Some(0)),
            // From before the window, and no older than what is new in it.
            result(3, 0, "Gate 9", Some(400)),
            result(40, 0, "Gate 7", None),
        ];
        let want = [(0, true), (2, false), (3, true), (40, false)].into();
        assert_eq!(new_text(&results), want);
    }

    #[test]
    fn both_latency_and_age_must_be_in_the_budget() {
        let mut late = result(0, 0, "", None);
        assert!(is_on_time(&late));
        late.age_ms = Some(501.0);
        assert!(!is_on_time(&late));
    }
}
