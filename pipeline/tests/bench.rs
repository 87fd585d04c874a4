//! `pipeline bench` as a script meets it: one JSON object on standard output, of a form that is promised. What the
//! figures are is no test's business.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::process::Command;

use serde_json::Value;

fn bench(args: &[&str]) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_pipeline"))
        .arg("bench")
        .args(args)
        // It must not need the checkout it was built in.
        .current_dir(folder.path())
        .output()
        .unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn freshness_prints_one_object_with_figures_aims_and_where_they_are_from() {
    let (status, out) = bench(&["freshness", "--format", "json", "--seconds", "2"]);
    assert_eq!(status, 0);
    assert_eq!(out.lines().count(), 1, "{out}");
    let object: Value = serde_json::from_str(&out).unwrap();
    let keys: Vec<_> = object.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["name", "figures", "aims", "command", "machine", "version"]);
    assert_eq!(object["name"], "freshness");
    assert_eq!(object["command"], "pipeline bench freshness --format json --seconds 2");
    let figure = |name: &str| object["figures"][name].as_f64().unwrap();
    // A stage of 60 ms: no answer can be younger, and most of 30 frames a second find it busy.
    assert!(figure("age_p50_ms") >= 60.0 && figure("age_p99_ms") >= figure("age_p50_ms"), "{out}");
    assert!(figure("delivered") > 0.0 && figure("dropped") > 0.0, "{out}");
    assert!(figure("delivered") + figure("dropped") <= figure("offered") + 4.0, "{out}");
    for (name, limit) in [("age_p50_ms", 80.0), ("age_p99_ms", 100.0)] {
        assert_eq!(object["aims"][name]["at_most"], limit);
        assert_eq!(object["aims"][name]["met"], figure(name) <= limit);
    }
    assert!(object["machine"]["cores"].as_u64().unwrap() > 0);
}

#[test]
fn overhead_counts_every_window_and_its_subscriber_misses_none() {
    let (status, out) = bench(&["overhead", "--format", "json", "--seconds", "1"]);
    assert_eq!(status, 0);
    let object: Value = serde_json::from_str(&out).unwrap();
    let figure = |name: &str| object["figures"][name].as_f64().unwrap();
    assert!(figure("cpu_us_per_frame_stage") > 0.0 && figure("windows") > 0.0, "{out}");
    if figure("gaps_of_subscriber") == 0.0 {
        assert!(figure("delivered_to_subscriber") >= figure("windows"), "{out}");
    }
}

#[test]
fn a_bench_that_does_not_exist_is_told_apart_from_those_that_do() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_pipeline")).args(["bench", "speed"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    for name in ["latency", "clips", "freshness", "overhead", "priority", "memory", "models"] {
        assert!(said.contains(name), "{said}");
    }
}
