//! The compiler as a user meets it: a text, and what is said about it. Named after what people got wrong.

use std::path::Path;
use std::time::Duration;

use actors::plan::{Input, StageIndex};
use actors::stages::{Settings, WindowLength};
use engine::Class;
use proptest::prelude::*;

use super::*;
use crate::inputs::Clip;
use crate::plan::{BackendPlan, Lanes, Plan};

const CATALOGUE: &[&str] = &[
    "ssdlite-300",
    "efficientnet-lite0",
    "open-nsfw",
    "ppocr-v5",
    "moonshine-tiny",
    "vader",
    "smollm2-135m",
];

fn env(name: &str) -> Option<String> {
    match name {
        "CAM_USER" => Some("admin".into()),
        "CAM_PASSWORD" => Some("pa$$word".into()),
        "TOKEN" => Some("0123456789".into()),
        _ => None,
    }
}

fn alert(rule: &str) -> Result<(), String> {
    if rule.contains("((") { Err("not a rule".into()) } else { Ok(()) }
}

fn with_set(text: &str, set: &[&str]) -> Result<Plan, Problems> {
    let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
    let context = Context { catalogue: CATALOGUE, env: &env, alert: &alert };
    compile(text, Path::new("dir/p.yaml"), Overrides { set: &set, realtime: false }, &context)
}

fn said(text: &str) -> String {
    match with_set(text, &[]) {
        Ok(_) => String::new(),
        Err(problems) => problems.render(false),
    }
}

/// A graph of everything, one part replaced.
fn graph(replace: &str, by: &str) -> String {
    let text = "version: 1
streams:
  - { id: cam1, uri: m01_vfr.mp4 }
models:
  text: { backends: [ { kind: embedded, model: smollm2-135m } ] }
stages:
  frames: { kind: frames,     from: source.video, fps: 2 }
  stt:    { kind: transcribe, from: source.audio }
  vision: { kind: ocr,        from: frames }
  text:   { kind: understand, from: [vision, stt], model: text }
  fused:  { kind: fuse,       from: [vision, stt, text], window: 500ms }
";
    assert!(text.contains(replace), "{replace}");
    text.replacen(replace, by, 1)
}

#[test]
fn the_readme_example_compiles_to_a_plan() {
    let plan = with_set(
        r#"
version: 1
server: { listen: 127.0.0.1:8080, token: "${TOKEN}" }
streams:
  - { id: street, uri: demo.mp4, realtime: true, title: "Street interview" }
  - { id: cam, uri: "rtsp://${CAM_USER}:${CAM_PASSWORD}@cam/1", transport: udp, read_timeout: 3s }
  - { id: file, uri: file:///tmp/a.mp4, clip_budget: 380ms, language: en }
models:
  text: { backends: [ { kind: embedded, model: smollm2-135m } ] }
stages:
  fused:   { kind: fuse, from: [objects, scenes, screen, speech, tone, meaning], window: 1s, budget: 500ms,
             alerts: { crowd: "vision.objects.filter(o, o.label == 'person').size() > 6" } }
  frames:  { kind: frames,     from: source.video, fps: 5 }
  objects: { kind: detect,     from: frames, model: ssdlite-300, track: true }
  scenes:  { kind: scene,      from: frames, fps: 1 }
  screen:  { kind: ocr,        from: frames, fps: 1 }
  speech:  { kind: transcribe, from: source.audio, model: moonshine-tiny }
  tone:    { kind: sentiment,  from: speech }
  meaning: { kind: understand, from: [speech, screen, source.subtitles], model: text, categories: [news, sports] }
compute: { lanes: auto, shares: { vision: 0.25, audio: 0.15 } }
"#,
        &["stages.frames.fps=4", "compute.lanes=2"],
    )
    .unwrap();
    let names: Vec<&str> = plan.graph.stages.iter().map(|s| s.id.as_str()).collect();
    assert_eq!(
        names,
        ["frames", "objects", "scenes", "screen", "speech", "tone", "meaning", "fused"],
        "inputs first, `fuse` last, whatever the order in the file"
    );
    assert_eq!(
        plan.graph.stages[6].inputs,
        [Input::Stage(StageIndex(4)), Input::Stage(StageIndex(3)), Input::SourceSubtitles]
    );
    assert_eq!(plan.graph.stages[6].class, Class::Text);
    let Settings::Fuse(fuse) = &plan.graph.stages[7].settings else { panic!() };
    assert_eq!(fuse.window, WindowLength::Fixed(Duration::from_secs(1)));
    assert_eq!(fuse.alerts.len(), 1);

    let [street, cam, file] = plan.streams.as_slice() else { panic!() };
    assert!(street.paced && cam.paced && !file.paced);
    assert_eq!((street.priority, cam.priority, file.priority), (0, 0, 10));
    assert_eq!(street.source.uri, "dir/demo.mp4");
    assert_eq!(cam.source.uri, "rtsp://admin:pa$$word@cam/1");
    assert_eq!(cam.source.read_timeout, Duration::from_secs(3));
    assert_eq!(file.source.uri, "/tmp/a.mp4");
    assert_eq!(file.clip_budget, Some(Duration::from_millis(380)));
    let sampling = street.source.sampling;
    assert_eq!((sampling.fps, sampling.audio, sampling.subtitles), (4.0, true, true));

    assert_eq!(plan.compute.lanes, Lanes::Count(2));
    assert_eq!(
        plan.models["text"].backends,
        [BackendPlan::Embedded { model: "smollm2-135m".into() }]
    );
    assert!(!format!("{:?}", plan.server).contains("0123456789"));
}

#[test]
fn a_cycle_lists_its_stages() {
    let text = said(&graph("kind: ocr,        from: frames", "kind: ocr, from: [frames, fused]"));
    assert!(text.contains("error: stages.vision.from: "), "{text}");
    assert!(text.contains("a cycle of stages: `vision` → `fused` → `vision`"), "{text}");

    let text = said(&graph("from: source.audio", "from: [source.audio, stt]"));
    assert!(
        text.contains("p.yaml:8:52: error: stages.stt.from: stage `stt` reads its own output"),
        "{text}"
    );
}

#[test]
fn a_longer_cycle_is_told_once_and_in_the_direction_of_the_data() {
    let text = said(
        "version: 1
stages:
  a: { kind: understand, from: [c], model: smollm2-135m }
  b: { kind: understand, from: [a], model: smollm2-135m }
  c: { kind: understand, from: [b], model: smollm2-135m }
  f: { kind: fuse, from: [c] }
",
    );
    assert_eq!(text.matches("cycle").count(), 1, "{text}");
    assert!(text.contains("`a` → `b` → `c` → `a`"), "{text}");
    assert!(text.contains("1 problem\n"), "{text}");
}

#[test]
fn a_stage_that_leads_nowhere_is_named() {
    let text = said(&format!("{}  orphan: {{ kind: detect, from: [] }}\n", graph("500ms", "1s")));
    assert!(text.contains("stages.orphan: nothing of stage `orphan` reaches `fused`"), "{text}");
    assert!(text.contains("stages.orphan.from: an empty list, expected at least 1"), "{text}");
}

#[test]
fn an_unknown_kind_names_the_nearest_and_all_others() {
    let text = said(&graph("kind: ocr,", "kind: orc,"));
    assert!(text.contains("p.yaml:9:19: error: stages.vision.kind: unknown kind `orc`"), "{text}");
    assert!(text.contains("did you mean `ocr`? known: `frames`, `detect`, `scene`"), "{text}");
    assert!(text.contains("1 problem\n"), "what reads it is not to blame: {text}");
}

#[test]
fn an_unknown_input_names_the_nearest() {
    let text = said(&graph("from: frames", "from: framez"));
    assert!(
        text.contains("stages.vision.from: input `framez` is not a stage (did you mean `frames`?"),
        "{text}"
    );
    assert!(text.contains("`source.video`"), "{text}");
    assert!(text.contains("1 problem\n"), "{text}");
}

#[test]
fn a_wrong_port_names_both_types_and_what_would_fit() {
    let text = said(&graph("from: source.audio", "from: frames"));
    assert!(
        text.contains(
            "p.yaml:8:37: error: stages.stt.from: input `frames` gives frames, but kind `transcribe` reads audio \
             (fits: `source.audio`)"
        ),
        "{text}"
    );
    let text =
        said(&graph("kind: ocr,        from: frames", "kind: ocr, from: [frames, source.video]"));
    assert!(text.contains("reads one input, found 2"), "{text}");
    let text = said(&graph("[vision, stt], model", "[vision, stt, stt], model"));
    assert!(text.contains("input `stt` is given twice"), "{text}");
}

#[test]
fn misspelt_keys_are_errors_with_their_lines() {
    let text = graph("fps: 2", "fsp: 2").replace("window: 500ms", "windw: 500ms");
    let text = said(&text);
    assert!(
        text.contains(
            "p.yaml:7:51: error: stages.frames.fsp: unknown key `fsp` (did you mean `fps`?"
        ),
        "{text}"
    );
    assert!(text.contains("unknown key `windw` (did you mean `window`?"), "{text}");
    assert!(text.contains("2 problems\n"), "{text}");

    let text = said(&graph("version: 1", "version: 2\nserver: { lisen: x }\nstrems: []\nextra: 1"));
    for part in ["found the number 2, expected 1", "`listen`", "`streams`", "`extra`", "4 problems"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_tab_is_called_a_tab() {
    let text = said(&graph("  stt:", "\tstt:"));
    assert_eq!(
        text,
        "dir/p.yaml:8:1: error: a tab in the indentation; YAML is indented with spaces only\n1 problem\n"
    );
}

#[test]
fn nulls_and_wrong_types_are_all_listed() {
    let text = graph("fps: 2", "fps: null")
        .replace("stt:  ", "no:  ")
        .replace("500ms", "\"half a second\"");
    let text = said(&text);
    for part in [
        "stages.frames.fps: found nothing (null), expected a number from 0.01 to 120",
        "stages.no: nothing of stage `no` reaches `fused`",
        "stages.text.from: input `stt` is not a stage",
        "stages.fused.window: window `half a second`: expected `clip` or a length",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for (replace, by, part) in [
        (
            "fps: 2",
            "fps: '2'",
            "found text `2`, expected a number from 0.01 to 120 (without quotes)",
        ),
        ("fps: 2", "fps: ${TOKEN:-2}", "not YAML"),
        ("fps: 2", "cuts: no", "found text `no`, expected true or false"),
        ("fps: 2", "cuts: [true]", "found a list, expected true or false"),
        (
            "id: cam1",
            "id: 5",
            "found the number 5, expected text of 1 to 200 characters (put it in quotes)",
        ),
        (
            "window: 500ms",
            "budget: 500",
            "expected a duration such as `500ms`, `1s`, `2m` (with its unit)",
        ),
        ("[vision, stt], model", "{}, model", "found a map, expected text or a list"),
        ("kind: ocr,        ", "", "missing key `kind` (known: `frames`"),
        (
            "  text: { backends: [ { kind: embedded, model: smollm2-135m } ] }",
            "  - x",
            "found a list, expected a map",
        ),
        ("version: 1\n", "", "missing key `version`"),
    ] {
        let text = said(&graph(replace, by));
        assert!(text.contains(part), "{by}: {text}");
    }
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    for (number, part) in [
        (".nan", "found .nan, expected a number from 0.01 to 120"),
        (".inf", "found .inf"),
        ("-1", "found the number -1"),
        ("0", "found the number 0"),
        ("1e999", "found .inf"),
        ("99999999999999999999999999", "expected a number from 0.01 to 120"),
    ] {
        let text = said(&graph("fps: 2", &format!("fps: {number}")));
        assert!(text.contains(part), "{number}: {text}");
    }
    let text = said(&graph("500ms", "-1"));
    assert!(text.contains("stages.fused.window: found the number -1"), "{text}");
    let text = said(&graph("500ms", "10ms"));
    assert!(text.contains("a length of at least 100ms"), "{text}");
    let text = said(&graph("window: 500ms", "budget: 1ms"));
    assert!(text.contains("expected at least 20ms"), "{text}");
    let text = said(&graph("id: cam1,", "id: cam1, priority: 3000000000,"));
    assert!(text.contains("streams[0].priority: found the number 3000000000"), "{text}");
}

#[test]
fn an_empty_file_says_so() {
    assert!(said("# only a comment\n").contains("dir/p.yaml: error: empty"));
    assert!(said("[]").contains("found a list, expected a map"));
    assert!(said("version: 1").contains("missing key `stages`"));
    assert!(said("version: 1\nstages: {}").contains("expected at least one entry"));
}

#[test]
fn an_unset_variable_is_an_error_and_never_becomes_the_password() {
    let text =
        said(&graph("m01_vfr.mp4", "\"rtsp://admin:${CAM_PASSWORD_NOT_SET}@127.0.0.1:8555/cam\""));
    assert!(
        text.contains("streams[0].uri: environment variable `CAM_PASSWORD_NOT_SET` is not set"),
        "{text}"
    );
    assert!(!text.contains("admin"), "{text}");
}

#[test]
fn dollars_and_braces_in_text_stay_as_they_are() {
    let description = "price is $5, keep {braces} and ${UNSET_ON_PURPOSE:-fallback}";
    let plan =
        with_set(&graph("id: cam1,", &format!("id: cam1, description: \"{description}\",")), &[]);
    assert_eq!(
        plan.unwrap().streams[0].description.as_deref(),
        Some("price is $5, keep {braces} and fallback")
    );
}

#[test]
fn no_message_shows_a_secret() {
    for text in [
        graph("version: 1", "version: 1\nserver: { token: 1234567890 }"),
        graph("version: 1", "version: 1\nserver: { token: hunter2 }"),
        graph("version: 1", "version: 1\nserver: { listen: \"${CAM_PASSWORD}\" }"),
        graph("uri: m01_vfr.mp4", "uri: { a: 'rtsp://admin:hunter2@cam' }"),
        graph("fps: 2", "fps: 'rtsp://admin:hunter2@cam'"),
        graph("fps: 2", "fps: 'a ${CAM_PASSWORD}'"),
        graph("window: 500ms", "window: 'rtsp://admin:hunter2@cam'"),
        graph("window: 500ms", "window: '${CAM_PASSWORD}'"),
        graph("from: frames", "from: '${CAM_PASSWORD}'"),
        graph("kind: ocr", "kind: '${CAM_PASSWORD}'"),
        graph("model: text", "model: '${CAM_PASSWORD}'"),
        graph("model: smollm2-135m", "model: '${CAM_PASSWORD}'"),
        graph("uri: m01_vfr.mp4", "uri: a, 'rtsp://admin:hunter2@cam': b"),
        graph("model: text }", "model: text, category_by: '${CAM_PASSWORD}' }"),
        graph("model: text }", "model: text, categories: ['${CAM_PASSWORD}', '${CAM_PASSWORD}'] }"),
        graph("id: cam1", "language: '${CAM_PASSWORD}', id: cam1"),
    ] {
        let text = said(&text);
        assert!(text.contains("error"), "{text}");
        for secret in ["hunter2", "1234567890", "pa$$word"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}

#[test]
fn exactly_one_fuse() {
    let text = said(&graph(
        "  fused:  { kind: fuse,       from: [vision, stt, text], window: 500ms }\n",
        "",
    ));
    assert!(text.contains("no stage of kind `fuse`; expected exactly one"), "{text}");
    let text = said(&format!("{}  more: {{ kind: fuse, from: text }}\n", graph("500ms", "1s")));
    assert!(
        text.contains("stages.more: a second stage of kind `fuse`; `fused` is one already"),
        "{text}"
    );
}

#[test]
fn whole_clips_need_an_end() {
    let live = graph("m01_vfr.mp4", "rtsp://u:hunter2@cam/1").replace("500ms", "clip");
    let text = said(&live);
    assert!(text.contains("p.yaml:3:22: error: streams[0].uri: stream `cam1` is live"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");

    let plan = with_set(&graph("500ms", "clip"), &[]).unwrap();
    let clip = |uri: &str| Clip { id: "c".into(), uri: uri.into(), ..Clip::default() };
    let problems = stream_plans(&[clip("a.mp4"), clip("rtsp://u:p@cam")], &plan.graph, false);
    assert!(problems.unwrap_err().to_string().contains("--input: error: rtsp://***@cam: "));
    let plans = stream_plans(&[clip("a.mp4")], &plan.graph, true).unwrap();
    assert!(plans[0].paced && plans[0].source.sampling.audio);
}

#[test]
fn models_must_exist() {
    let text = said(&graph("kind: ocr,", "kind: ocr, model: ppocr-v4,"));
    assert!(
        text.contains(
            "stages.vision.model: model `ppocr-v4` is not known (did you mean `ppocr-v5`?"
        ),
        "{text}"
    );
    let text = said(&graph("model: smollm2-135m", "model: smollm2"));
    assert!(text.contains("models.text.backends[0].model: model `smollm2` is not known"), "{text}");
    let text = said(&graph("kind: embedded", "kind: embeded"));
    assert!(text.contains("models.text.backends[0].kind: "), "{text}");
    let text = said(&graph("model: text", "model: txt"));
    assert!(text.contains("did you mean `text`?"), "{text}");
    let text =
        said(&graph("  text: { backends", "  other: { backends").replace(", model: text", ""));
    assert!(text.contains("`model` is not given and its default `text` is not known"), "{text}");
    assert!(with_set(&graph("model: text", "model: smollm2-135m"), &[]).is_ok());
    assert!(with_set(&graph("model: text", "model: ./own.gguf"), &[]).is_ok());
    let plain = graph("500ms", "1s");
    assert!(
        with_set(&plain, &["models.text.backends=[]"])
            .unwrap_err()
            .to_string()
            .contains("--set models.text.backends: ")
    );
}

#[test]
fn the_rest_of_the_file_is_held_to_its_rules_too() {
    for (replace, by, part) in [
        ("version: 1", "version: 1\nserver: { listen: 0.0.0.0:80 }", "needs `server.token`"),
        ("version: 1", "version: 1\nserver: { listen: here }", "server.listen: no address"),
        (
            "version: 1",
            "version: 1\ncompute: { shares: { vision: 0.8, audio: 0.5 } }",
            "add up to 1.3",
        ),
        (
            "version: 1",
            "version: 1\ncompute: { lanes: 0 }",
            "expected `auto` or a whole number from 1 to 256",
        ),
        (
            "version: 1",
            "version: 1\ncompute: { lanes: many }",
            "expected `auto` or a whole number from 1 to 256",
        ),
        (
            "uri: m01_vfr.mp4 }",
            "uri: a }\n  - { id: cam1, uri: b }",
            "stream `cam1` is already given in line 3",
        ),
        ("id: cam1,", "id: cam1, transport: udp,", "applies to `rtsp://` sources only"),
        (
            "id: cam1,",
            "id: cam1, transport: upd,",
            "expected one of `tcp`, `udp` (did you mean `udp`?)",
        ),
        ("model: text", "model: text, categories: []", "expected at least one category"),
        ("model: text", "model: text, categories: [a, b, a]", "category `a` is given twice"),
        (
            "model: text",
            "model: text, category_by: guess",
            "one of `embedding`, `likelihood`, `routed`",
        ),
        ("window: 500ms", "alerts: { a: \"((\" }", "stages.fused.alerts.a: not a rule"),
        ("window: 500ms", "alerts: { a: 5 }", "found the number 5, expected text"),
        ("  vision:", "  vi sion:", "a stage's name starts with a letter"),
        ("  stt: ", "  source: ", "is not `source`"),
        ("  stt: ", "  frames: ", "key `frames` is already given in line 7"),
        ("fps: 2", "<<: { fps: 2 }", "merge keys"),
    ] {
        let text = said(&graph(replace, by));
        assert!(text.contains(part), "{by}: {text}");
    }
    let open =
        graph("version: 1", "version: 1\nserver: { listen: '0.0.0.0:80', token: '${TOKEN}' }");
    assert!(with_set(&open, &[]).is_ok());
}

proptest! {
    /// Whatever the text is, the answer is a plan or problems that have a message.
    #[test]
    fn no_text_is_too_odd(text in "\\PC{0,200}") {
        if let Err(problems) = with_set(&text, &[]) {
            prop_assert!(problems.iter().all(|p| !p.message.is_empty()));
        }
    }

    /// A good file with one slip: never a panic, and never a plan for a changed key.
    #[test]
    fn no_slip_is_too_odd(at in 0usize..400, with in "[\\[\\]{}:,'\"#&*!|>%@`\\-\t\n a-z0-9]{0,3}", cut in 0usize..4) {
        let mut text = graph("500ms", "1s");
        let start = (0..=at.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
        let end = (start + cut).min(text.len());
        text.replace_range(start..end, &with);
        if let Err(problems) = with_set(&text, &[]) {
            prop_assert!(problems.len() > 0);
        }
    }

    /// A random graph of `understand` stages compiles exactly when it has no cycle and nothing is left over, and
    /// then every stage comes after its inputs.
    #[test]
    fn plans_are_in_order(edges in prop::collection::vec((0usize..6, 0usize..6), 0..12)) {
        let mut inputs = vec![Vec::new(); 6];
        for (from, to) in &edges {
            let name = format!("s{from}");
            if !inputs[*to].contains(&name) {
                inputs[*to].push(name);
            }
        }
        // Every stage is fused, so that only cycles and types can be wrong.
        let mut text = String::from("version: 1\nstages:\n");
        for (i, list) in inputs.iter().enumerate() {
            let mut list = list.clone();
            list.push("source.subtitles".into());
            text.push_str(&format!(
                "  s{i}: {{ kind: understand, model: smollm2-135m, from: [{}] }}\n", list.join(", ")
            ));
        }
        text.push_str("  f: { kind: fuse, from: [s0, s1, s2, s3, s4, s5] }\n");
        match with_set(&text, &[]) {
            Ok(plan) => {
                prop_assert!(edges.is_empty(), "understand reads no understanding");
                for (i, stage) in plan.graph.stages.iter().enumerate() {
                    for input in &stage.inputs {
                        if let Input::Stage(from) = input {
                            prop_assert!(from.0 < i);
                        }
                    }
                }
            }
            Err(problems) => {
                prop_assert!(!edges.is_empty());
                // Each edge is named: as a cycle's, or for its type.
                let text = problems.to_string();
                prop_assert!(text.contains("cycle") || text.contains("own output") || text.contains("reads"));
            }
        }
    }
}

#[test]
fn the_schedulers_rules_are_read_and_have_its_own_defaults() {
    let plan = with_set(&graph("", ""), &[]).unwrap();
    let own = engine::scheduler::SchedulerConfig::for_lanes(2);
    let compute = &plan.compute;
    assert_eq!((&compute.order, &compute.shares), (&own.order, &own.shares));
    assert_eq!((compute.text_lane, compute.preempt), (own.text_lane, own.preempt));
    assert_eq!(
        (compute.wait_max, compute.foreign_piece_max),
        (own.wait_max, own.foreign_piece_max)
    );
    let set = [
        "compute.order=[textinput, text, audio, vision]",
        "compute.shares={ textinput: 0.1, vision: 0 }",
        "compute.preempt=false",
        "compute.power=save",
        "compute.text_lane=false",
        "compute.wait_max=2s",
        "compute.foreign_piece_max=10ms",
    ];
    let compute = with_set(&graph("", ""), &set).unwrap().compute;
    assert_eq!(compute.order, [Class::TextInput, Class::Text, Class::Audio, Class::Vision]);
    assert_eq!(compute.shares, [(Class::TextInput, 0.1), (Class::Audio, 0.15)].into());
    assert!(
        !compute.preempt && !compute.text_lane && compute.saves_power && !plan.compute.saves_power
    );
    assert_eq!(compute.wait_max, Duration::from_secs(2));
    assert_eq!(compute.foreign_piece_max, Duration::from_millis(10));
}

#[test]
fn rules_that_cannot_hold_are_named_where_they_stand() {
    for (set, message) in [
        (
            "compute.order=[text, vision, vision]",
            "found `textinput` 0 times, `vision` 2 times, `audio` 0 times, expected each of `text`, `textinput`, \
             `vision`, `audio` once",
        ),
        ("compute.order=[txt]", "found text `txt`"),
        ("compute.wait_max=50ms", "expected at least `100ms`"),
        ("compute.wait_max=5", "expected a duration"),
        ("compute.preempt=maybe", "expected true or false"),
        ("compute.shares={ textinput: 0.6 }", "the shares add up to 1"),
        ("compute.preemt=true", "did you mean `preempt`?"),
    ] {
        let said = with_set(&graph("", ""), &[set]).unwrap_err().render(false);
        assert!(said.contains(message) && said.contains("--set compute."), "{set}: {said}");
    }
}
