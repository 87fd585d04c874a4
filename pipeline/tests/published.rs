//! What the repository publishes is what the program does: schemas, ready configurations, their graphs.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use media::result::{
    FusedResult, Fusion, Gap, GapReason, Missing, MissingReason, RESULT_SCHEMA, Status,
    StreamMessage, StreamState, Vision, Window,
};
use media::{Rect, ScreenLine, StageId, StreamId};
use pipeline::cli::schema_text;
use pipeline::config::{Context, Overrides, compile, config_schema, load, result_schema};
use pipeline::graph::{GraphFormat, render, to_json};
use pipeline::plan::Plan;
use serde_json::Value;

const CATALOGUE: &[&str] = &[
    "ssdlite-300",
    "efficientnet-lite0",
    "open-nsfw",
    "ppocr-v5",
    "moonshine-tiny",
    "vader",
    "smollm2-135m",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn context() -> Context<'static> {
    Context { catalogue: CATALOGUE, env: &|_| None, alert: &|_| Ok(()) }
}

fn configs() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(root().join("configs")).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "yaml"));
    files.sort();
    files
}

fn plan(name: &str) -> Plan {
    load(&root().join("configs").join(name), Overrides::default(), &context()).unwrap()
}

/// `UPDATE_PUBLISHED=1` writes the files anew.
fn published(name: &str, now: &Value) {
    let file = root().join("docs").join(name);
    let now = schema_text(now);
    if std::env::var_os("UPDATE_PUBLISHED").is_some() {
        std::fs::write(&file, &now).unwrap();
    }
    let there = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(there == now, "docs/{name} is out of date: run this test with UPDATE_PUBLISHED=1");
}

#[test]
fn the_published_schemas_are_the_programs_own() {
    published("config.schema.json", &config_schema());
    published("result.schema.json", &result_schema());
}

#[test]
fn every_ready_configuration_compiles() {
    let names: Vec<String> =
        configs().iter().map(|f| f.file_name().unwrap().to_string_lossy().into_owned()).collect();
    for wanted in ["audio-only", "demo", "live-camera", "minimal", "short-videos"] {
        assert!(names.contains(&format!("{wanted}.yaml")), "{names:?}");
    }
    for file in configs() {
        load(&file, Overrides::default(), &context())
            .unwrap_or_else(|problems| panic!("{problems}"));
    }
    assert!(plan("live-camera.yaml").streams[0].paced);
    assert!(!plan("audio-only.yaml").graph.stages.iter().any(|s| s.id.as_str() == "frames"));
}

/// An independent validator agrees with our own checker on good and on bad files.
#[test]
fn the_schema_judges_as_the_program_does() {
    let validator = jsonschema::validator_for(&config_schema()).unwrap();
    let as_json = |text: &str| -> Value { serde_saphyr::from_str(text).unwrap() };
    for file in configs() {
        let text = std::fs::read_to_string(&file).unwrap();
        let errors: Vec<String> =
            validator.iter_errors(&as_json(&text)).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", file.display());
    }
    let good = std::fs::read_to_string(root().join("configs/demo.yaml")).unwrap();
    for (replace, by) in [
        ("fps: 5", "fsp: 5"),
        ("fps: 5", "fps: null"),
        ("fps: 5", "fps: 0"),
        ("fps: 5", "fps: five"),
        ("kind: detect", "kind: detcet"),
        ("version: 1", "version: 2"),
        ("track: true", "track: 1"),
        ("from: [speech, screen]", "from: []"),
        ("budget: 500ms", "budget: 500"),
        ("budget: 500ms", "budget: soon"),
        ("kind: embedded", "kind: remote"),
        ("lanes: auto", "lanes: 0"),
        ("vision: 0.25", "vision: 2"),
        ("id: street", "name: street"),
    ] {
        let bad = good.replacen(replace, by, 1);
        assert_ne!(bad, good, "{replace}");
        assert!(!validator.is_valid(&as_json(&bad)), "the schema allows `{by}`");
        let ours = compile(&bad, Path::new("demo.yaml"), Overrides::default(), &context());
        assert!(ours.is_err(), "the program allows `{by}`");
    }
}

#[test]
fn messages_are_valid_by_the_published_schema() {
    let validator = jsonschema::validator_for(&result_schema()).unwrap();
    let result = FusedResult {
        schema: RESULT_SCHEMA.into(),
        run: "r".into(),
        seq: 1,
        stream_seq: 1,
        stream: StreamId::from("a"),
        window: Window { index: 0, start_ms: 0, end_ms: 1000 },
        status: Status::Partial,
        revision: 0,
        latency_ms: 1.5,
        age_ms: None,
        processing_ms: Some(2.0),
        budget_ms: Some(500),
        vision: Some(Vision {
            text: vec![ScreenLine {
                text: "GATE 7".into(),
                score: 0.9,
                rect: Rect(0.0, 0.0, 0.5, 0.5),
                pts_ms: 3,
            }],
            ..Vision::default()
        }),
        audio: None,
        text: None,
        fusion: Fusion::default(),
        missing: vec![Missing {
            stage: StageId::from("meaning"),
            reason: MissingReason::UnsupportedLanguage,
        }],
        timings: Vec::new(),
    };
    let gap = Gap {
        schema: "gap/1".into(),
        run: "r".into(),
        from: 1,
        to: 2,
        count: 2,
        reason: GapReason::Lag,
    };
    let state = StreamMessage {
        schema: "stream/1".into(),
        run: "r".into(),
        seq: 2,
        stream: StreamId::from("a"),
        state: StreamState::Reconnecting,
        reason: None,
        window_next: 4,
    };
    let messages = [
        serde_json::to_value(&result).unwrap(),
        serde_json::to_value(&gap).unwrap(),
        serde_json::to_value(&state).unwrap(),
    ];
    for message in &messages {
        let errors: Vec<String> = validator.iter_errors(message).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{message}: {errors:?}");
        for key in ["schema", "run"] {
            let mut without = message.clone();
            without.as_object_mut().unwrap().remove(key);
            assert!(!validator.is_valid(&without), "`{key}` is missing: {without}");
        }
    }
}

#[test]
fn a_graph_for_markdown() {
    assert_eq!(
        render(&plan("audio-only.yaml").graph, GraphFormat::Mermaid),
        r#"flowchart LR
  n_source_audio([source.audio])
  n_speech["speech<br>transcribe"]
  n_tone["tone<br>sentiment"]
  n_meaning["meaning<br>understand"]
  n_fused["fused<br>fuse"]
  n_source_audio -->|audio| n_speech
  n_speech -->|speech| n_tone
  n_speech -->|speech| n_meaning
  n_speech -->|speech| n_fused
  n_tone -->|sentiment| n_fused
  n_meaning -->|understanding| n_fused
"#
    );
}

#[test]
fn a_graph_for_graphviz() {
    assert_eq!(
        render(&plan("minimal.yaml").graph, GraphFormat::Dot),
        r#"digraph pipeline {
  rankdir=LR;
  node [shape=box];
  "source.video" [shape=ellipse];
  "frames" [label="frames\nframes"];
  "objects" [label="objects\ndetect"];
  "fused" [label="fused\nfuse"];
  "source.video" -> "frames" [label="video"];
  "frames" -> "objects" [label="frames"];
  "objects" -> "fused" [label="objects"];
}
"#
    );
}

#[test]
fn a_graph_for_programs() {
    let json = to_json(&plan("minimal.yaml").graph);
    assert_eq!(json["stages"][1]["from"], serde_json::json!(["frames"]));
    assert_eq!(json["stages"][1]["class"], "vision");
    assert_eq!(json["stages"][0]["from"], serde_json::json!(["source.video"]));
}
