//! The binary as a shell meets it: what it prints, where, and its exit status.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn configs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs")
}

fn pipeline(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pipeline"))
        .args(args)
        .current_dir(configs())
        .env_remove("RUST_LOG")
        .output()
        .unwrap()
}

/// Exit status, standard output, standard error.
fn call(args: &[&str]) -> (i32, String, String) {
    let output = pipeline(args);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_good_configuration_is_called_good() {
    let (status, out, err) = call(&["validate", "minimal.yaml"]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(out.starts_with("minimal.yaml: good (3 stages, 0 streams)\nstage "), "{out}");
}

/// One stream of a file at its own pace, with the catalogue's figures.
fn validate(set: &[&str], more: &[&str]) -> (i32, String, String) {
    let mut args = vec!["validate", "demo.yaml", "--catalogue-costs"];
    args.extend(set.iter().flat_map(|set| ["--set", set]));
    args.extend(more);
    call(&args)
}

#[test]
fn a_graph_that_costs_too_much_is_status_2_and_says_what_to_change() {
    let fast = ["stages.frames.fps=120", "compute.lanes=1"];
    let (status, out, err) = validate(&fast, &[]);
    assert_eq!(status, 2, "{out}{err}");
    assert!(out.starts_with("demo.yaml: too costly (8 stages, 1 streams)\nstage "), "{out}");
    assert!(err.contains("error: stages.objects: ") && err.contains("there is 1: "), "{err}");
    assert!(
        err.contains("lower `stages.frames.fps` from 120 to ") && !err.contains('\u{1b}'),
        "{err}"
    );
    assert!(err.starts_with("demo.yaml:"), "placed in the file: {err}");

    let (status, out, err) = validate(&["stages.fused.budget=50ms"], &[]);
    assert_eq!(status, 2);
    assert!(out.contains("too costly"), "{out}");
    let place = "--set stages.fused.budget: error: stages.fused.budget: ";
    assert!(err.starts_with(place) && err.ends_with("1 problem\n"), "{err}");
}

#[test]
fn a_cost_that_is_ignored_is_a_warning_and_status_0() {
    let (status, out, err) = validate(&["stages.fused.budget=50ms"], &["--ignore-cost"]);
    assert_eq!(status, 0, "{err}");
    assert!(out.starts_with("demo.yaml: good"), "{out}");
    assert!(err.contains("warning: stages.fused.budget: ") && !err.contains("error"), "{err}");
}

#[test]
fn a_judgement_is_also_one_json_object() {
    let (status, out, _) = validate(&["stages.fused.budget=50ms"], &["--format", "json"]);
    assert_eq!((status, out.lines().count()), (2, 1));
    let object: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(object["good"], false);
    assert_eq!(object["findings"][0]["path"], "stages.fused.budget");
    assert_eq!(object["load"]["streams"], 1);
    assert!(object["work"].as_array().unwrap().iter().all(|row| row["figures"] == "catalogue"));
}

#[test]
fn every_ready_configuration_fits_two_lanes_with_the_catalogues_figures() {
    for entry in std::fs::read_dir(configs()).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let args =
            ["validate", &file, "--catalogue-costs", "--realtime", "--set", "compute.lanes=2"];
        let (status, out, err) = call(&args);
        assert_eq!((status, err.as_str()), (0, ""), "{file}: {out}");
    }
}

#[test]
fn a_bad_one_is_status_2_with_every_problem_and_no_colours_in_a_pipe() {
    let (status, out, err) = call(&[
        "validate",
        "minimal.yaml",
        "--set",
        "stages.frames.fps=-1",
        "--set",
        "stages.objects.form=x",
    ]);
    assert_eq!((status, out.as_str()), (2, ""));
    assert!(err.contains("--set stages.frames.fps: error: "), "{err}");
    assert!(err.contains("unknown key `form` (did you mean `from`?"), "{err}");
    assert!(err.ends_with("2 problems\n") && !err.contains('\u{1b}'), "{err}");
    let (status, _, err) = call(&["validate", "none.yaml"]);
    assert_eq!(status, 2);
    assert!(err.contains("none.yaml: error: can't be read"), "{err}");
}

#[test]
fn graphs_and_schemas_go_to_standard_output() {
    assert!(call(&["graph", "minimal.yaml"]).1.starts_with("flowchart LR\n"));
    assert!(call(&["graph", "minimal.yaml", "--format", "dot"]).1.starts_with("digraph"));
    for of in ["config", "result"] {
        let (status, out, _) = call(&["schema", of]);
        assert_eq!(status, 0);
        let published = configs().join(format!("../docs/{of}.schema.json"));
        assert_eq!(out, std::fs::read_to_string(published).unwrap());
    }
}

#[test]
fn a_call_that_makes_no_sense_is_status_2_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let clip = dir.path().join("a.mp4");
    std::fs::write(&clip, "x").unwrap();
    let clip = clip.to_str().unwrap();
    let state = dir.path().join("state");
    let state = state.to_str().unwrap();
    for (args, part) in [
        (vec![], "Usage"),
        (vec!["dance"], "unrecognized subcommand"),
        (vec!["run", "minimal.yaml"], "nothing to do"),
        (vec!["run", "minimal.yaml", "--input", "none.mp4"], "none.mp4: can't be opened"),
        (
            vec!["run", "minimal.yaml", "--input", "-", "--listen", "0.0.0.0:80"],
            "needs `server.token`",
        ),
        (vec!["run", "minimal.yaml", "--resume", state], "--resume goes with --input"),
        (vec!["run", "minimal.yaml", "--input", "-", "--resume", state], "can't be read again"),
        (
            vec!["run", "minimal.yaml", "--input", clip, "--resume", state, "--output", "-"],
            "can't be taken back",
        ),
        (vec!["run", "minimal.yaml", "--input", clip, "--output", "/nowhere/o"], "/nowhere/o: "),
        (
            vec!["run", "short-videos.yaml", "--input", "rtsp://u:hunter2@cam/1"],
            "--input: error: rtsp://***@cam/1: stream `1` is live",
        ),
        (vec!["subscribe", "wss://h"], "is not supported"),
    ] {
        let (status, out, err) = call(&args);
        assert_eq!((status, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains(part), "{args:?}: {err}");
        assert!(!err.contains("hunter2"), "{err}");
    }
}

#[test]
fn a_server_that_is_not_there_is_status_1() {
    let (status, _, err) = call(&["subscribe", "ws://127.0.0.1:1"]);
    assert_eq!(status, 1);
    assert!(err.contains("connection lost"), "{err}");
}
