//! Judgements as a user reads them, over figures that are made up; and what holds for any graph.

use std::path::Path;
use std::time::Duration;

use actors::plan::GraphPlan;
use models::cost::{ModelCost, Quantiles, SizeCost, WorkUnit};
use proptest::prelude::*;

use super::*;
use crate::config::{Context, Overrides, compile};
use crate::plan::Plan;

const CATALOGUE: &[&str] = &["ssdlite-300", "ppocr-v5", "moonshine-tiny", "smollm2-135m"];

const RULES: Rules =
    Rules { lanes: 2, text_lane: true, foreign_piece_max: Duration::from_millis(30) };

fn plan(fps: f64, detect_fps: f64) -> Plan {
    let text = format!(
        "version: 1
models:
  text: {{ backends: [ {{ kind: embedded, model: smollm2-135m }} ] }}
stages:
  frames:  {{ kind: frames,     from: source.video, fps: {fps} }}
  objects: {{ kind: detect,     from: frames, model: ssdlite-300, fps: {detect_fps} }}
  screen:  {{ kind: ocr,        from: frames, fps: 1 }}
  speech:  {{ kind: transcribe, from: source.audio, model: moonshine-tiny, utterance_ms_max: 6000 }}
  meaning: {{ kind: understand, from: [speech, screen], model: text }}
  fused:   {{ kind: fuse,       from: [objects, speech, meaning], window: 1s, budget: 500ms }}
"
    );
    let context = Context { catalogue: CATALOGUE, env: &|_| None, alert: &|_| Ok(()) };
    compile(&text, Path::new("p.yaml"), Overrides::default(), &context).unwrap()
}

fn quantiles(ms: f64) -> Quantiles {
    Quantiles { p50: ms, p90: ms * 1.2, p99: ms * 1.5 }
}

/// Name, unit, milliseconds of one unit.
const COSTS: [(&str, WorkUnit, f64); 9] = [
    ("ssdlite-300", WorkUnit::Frame, 38.0),
    ("ppocr-v5/detect", WorkUnit::Frame, 40.0),
    ("ppocr-v5/recognise", WorkUnit::Line, 10.0),
    ("silero-vad-v6", WorkUnit::Sound128Ms, 1.0),
    ("moonshine-tiny/encode", WorkUnit::SoundS, 8.0),
    ("moonshine-tiny/decode", WorkUnit::SoundS, 22.0),
    ("minilm-l6-v2", WorkUnit::Text, 10.0),
    ("smollm2-135m/prefill", WorkUnit::PromptToken, 4.0),
    ("smollm2-135m/decode", WorkUnit::GeneratedToken, 20.0),
];

/// Everything as in `COSTS`, each times its factor.
fn costs(factors: &[f64]) -> Costs {
    let mut costs = Costs::default();
    for ((name, unit, ms), factor) in
        COSTS.iter().zip(factors.iter().chain(std::iter::repeat(&1.0)))
    {
        let size = |size: u32| SizeCost { size, ms: quantiles(ms * factor * f64::from(size)) };
        let cost = ModelCost {
            unit: *unit,
            interruptible: true,
            piece_ms: quantiles(ms * factor),
            sizes: vec![size(1), size(4)],
        };
        costs.insert(name, Known { cost, origin: Origin::Bench });
    }
    costs
}

fn judged(plan: &Plan, streams: usize, rules: Rules, costs: &Costs) -> Assessment {
    assess(&plan.graph, &plan.models, streams, rules, costs)
}

fn said(found: &Assessment) -> Vec<String> {
    found.findings.iter().map(|f| format!("{}: {}", f.path, f.message)).collect()
}

fn kinds(found: &Assessment) -> Vec<FindingKind> {
    found.findings.iter().map(|f| f.kind).collect()
}

#[test]
fn a_graph_that_fits_is_shown_with_every_cost_and_its_longest_way() {
    let plan = plan(5.0, 5.0);
    let costs = costs(&[]);
    let found = judged(&plan, 1, RULES, &costs);
    assert_eq!(said(&found), [""; 0]);
    assert_eq!(
        table(&plan.graph, &found, &costs),
        "\
stage    model                   asks/s   ms p50   lane %   due p99  figures
frames   -
objects  ssdlite-300               5.00     38.0     19.0      57.0  bench
screen   ppocr-v5/detect           1.00     40.0      4.0      60.0  bench
         ppocr-v5/recognise        1.00     10.0      1.0      60.0  bench
speech   silero-vad-v6             7.81      1.0      0.8       1.5  bench
         moonshine-tiny/encode     0.33     24.0      0.8      72.0  bench
         moonshine-tiny/encode     1.00     12.0      1.2         -  bench
         moonshine-tiny/decode     0.33     66.0      2.2     198.0  bench
         moonshine-tiny/decode     1.00     33.0      3.3         -  bench
meaning  minilm-l6-v2              1.00     10.0      1.0      15.0  bench
         smollm2-135m/prefill      0.25    336.0      8.4         -  bench
         smollm2-135m/decode       4.00     20.0      8.0         -  bench
fused    -
longest way after a window's end: speech 272 → meaning 15 → fused = 286 ms at p99 of 485
load: 1 stream with deadlines takes 0.50 of 2 lanes, 0.23 of 1 in long pieces
"
    );
    let json = json(&plan.graph, &found, &costs);
    assert_eq!(json["path"]["stages"][0]["stage"], "speech");
    assert_eq!(json["load"]["long_lanes_max"], 1);
    assert_eq!(json["work"].as_array().unwrap().len(), found.rows.len());
}

#[test]
fn a_budget_that_does_not_suffice_names_the_way_each_cost_and_what_to_change() {
    let plan = plan(5.0, 5.0);
    let found = judged(&plan, 1, RULES, &costs(&[1.0, 1.0, 1.0, 1.0, 2.0, 2.0]));
    assert_eq!(
        said(&found),
        [
            "stages.fused.budget: `speech → meaning → fused` takes 556 ms at p99 after a window's end, and the \
             budget of 500 ms leaves 485: `speech` 542 ms (128 ms of sound, encode 6 s of sound, decode 6 s of \
             sound), `meaning` 15 ms (1 text); lower `stages.speech.utterance_ms_max` from 6000 to 5100 or raise \
             `stages.fused.budget` from 500ms to 580ms"
        ]
    );
}

#[test]
fn streams_that_want_more_lanes_than_there_are_name_each_cost_and_what_to_change() {
    let plan = plan(15.0, 15.0);
    let mut rules = RULES;
    rules.text_lane = false;
    let found = judged(&plan, 3, rules, &costs(&[]));
    assert_eq!(
        said(&found),
        [
            "stages.objects: 2.63 lanes are wanted and there are 2: `objects` at 15 fps costs 38 ms a frame, 3 streams \
             take 171 % of a lane; `meaning` costs 174 ms a second, 3 streams take 52 % of a lane; `speech` costs 83 ms \
             a second, 3 streams take 25 % of a lane; `screen` costs 50 ms a second, 3 streams take 15 % of a lane; \
             lower `stages.objects.fps` from 15 to 9.4, use 2 streams at most or raise `compute.lanes` from 2 to 3 \
             where there are so many cores"
        ]
    );
}

#[test]
fn long_pieces_may_not_take_the_lane_that_is_kept_for_text() {
    let plan = plan(30.0, 10.0);
    let found = judged(&plan, 3, RULES, &costs(&[]));
    assert_eq!(kinds(&found), [FindingKind::Overload, FindingKind::LongOverload]);
    let [_, long] = &said(&found)[..] else { panic!() };
    assert_eq!(
        long,
        "stages.objects: pieces of more than 30 ms want 1.26 lanes and may have 1, since one is kept for text: \
         `objects` at 10 fps costs 38 ms a frame, 3 streams take 114 % of a lane; `screen` at 1 fps costs 40 ms a \
         frame, 3 streams take 12 % of a lane; lower `stages.objects.fps` from 10 to 7.7, use 2 streams at most or \
         raise `compute.lanes` from 2 to 3 where there are so many cores"
    );
    let short = Rules { foreign_piece_max: Duration::from_millis(50), ..RULES };
    assert_eq!(kinds(&judged(&plan, 2, RULES, &costs(&[]))), []);
    assert_eq!(kinds(&judged(&plan, 3, short, &costs(&[]))), [FindingKind::Overload]);
    let alone = Rules { lanes: 1, ..RULES };
    assert_eq!(kinds(&judged(&plan, 3, alone, &costs(&[]))), [FindingKind::Overload]);
}

#[test]
fn files_without_deadlines_are_held_to_nothing() {
    let found = judged(&plan(120.0, 120.0), 0, RULES, &costs(&[9.0; 9]));
    assert_eq!(said(&found), [""; 0]);
    assert!(found.lanes() > 2.0 && found.path_ms() > found.path_limit_ms);
}

#[test]
fn a_model_of_which_nothing_is_known_is_named_and_counts_nothing() {
    let plan = plan(5.0, 5.0);
    let mut known = Costs::default();
    for (name, cost) in costs(&[]).iter().filter(|(name, _)| !name.starts_with("smollm2")) {
        known.insert(name, cost.clone());
    }
    let found = judged(&plan, 1, RULES, &known);
    assert_eq!(found.unknown(), ["smollm2-135m/prefill", "smollm2-135m/decode"]);
    let text = table(&plan.graph, &found, &known);
    assert!(text.contains("smollm2-135m/decode: nothing is known of its cost"), "{text}");
}

#[test]
fn the_catalogues_figures_say_that_they_are_not_this_machines() {
    let plan = plan(5.0, 5.0);
    let costs = Costs::of_catalogue(&Catalogue::at("/nowhere".into()));
    let found = judged(&plan, 1, RULES, &costs);
    assert_eq!(found.unknown(), [""; 0], "the catalogue knows what every stage costs by default");
    assert!(
        table(&plan.graph, &found, &costs).contains("`pipeline bench models` measures this one")
    );
}

#[test]
fn a_text_detector_that_was_given_other_pictures_teaches_nothing() {
    use engine::compute::{ComputeStats, ModelStats};
    let model = |model: &str| ModelStats {
        model: model.into(),
        class: engine::Class::TextInput,
        counts: Default::default(),
        cost_p50_ms: None,
        cost_p90_ms: None,
        estimate_error_p50: None,
        estimate_error_p90: None,
        interruptible: true,
        pieces: 0,
        piece_p99_ms: None,
        piece_max_ms: None,
        learned: Vec::new(),
    };
    let models = vec![model("ppocr-v5/detect"), model("ppocr-v5/recognise")];
    let (lanes_stuck, classes) = (Vec::new(), Default::default());
    let stats = ComputeStats { lanes: 2, lanes_held: 0, lanes_stuck, classes, models };
    let mut graph = plan(5.0, 5.0).graph;
    assert_eq!(comparable(&graph, &stats), stats);
    for stage in &mut graph.stages {
        if let Settings::Ocr(ocr) = &mut stage.settings {
            ocr.side_max = 960;
        }
    }
    let left: Vec<String> =
        comparable(&graph, &stats).models.into_iter().map(|m| m.model).collect();
    assert_eq!(left, ["ppocr-v5/recognise"], "a line is a line");
}

fn graph(fps: f64, detect_fps: f64) -> (GraphPlan, Plan) {
    let plan = plan(fps, detect_fps);
    (plan.graph.clone(), plan)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whoever is refused is not let in for costing more.
    #[test]
    fn raising_a_cost_a_rate_or_the_number_of_streams_removes_no_finding(
        factors in prop::collection::vec(0.05_f64..6.0, 9),
        fps in (0.1_f64..60.0, 0.1_f64..60.0),
        streams in 1_usize..6,
        lanes in 1_usize..5,
        which in 0_usize..9,
        more in 1.0_f64..5.0,
    ) {
        let rules = Rules { lanes, ..RULES };
        let (graph_before, plan) = graph(fps.0, fps.1);
        let before = assess(&graph_before, &plan.models, streams, rules, &costs(&factors));
        let mut dearer = factors.clone();
        dearer[which] *= more;
        let faster = graph(fps.0 * more.min(2.0), fps.1 * more.min(2.0)).0;
        for after in [
            assess(&graph_before, &plan.models, streams, rules, &costs(&dearer)),
            assess(&faster, &plan.models, streams, rules, &costs(&factors)),
            assess(&graph_before, &plan.models, streams + 1, rules, &costs(&factors)),
        ] {
            for kind in kinds(&before) {
                prop_assert!(kinds(&after).contains(&kind), "{:?} went away", kind);
            }
            prop_assert!(after.lanes() >= before.lanes() - 1e-9);
            prop_assert!(after.path_ms() >= before.path_ms() - 1e-9);
        }
    }

    /// What is proposed helps: each setting, changed alone as told, leaves no such finding.
    #[test]
    fn a_lower_rate_that_is_proposed_suffices(fps in 12.0_f64..60.0, streams in 1_usize..5) {
        let rules = Rules { text_lane: false, ..RULES };
        let plan_before = plan(fps, 120.0);
        let found = assess(&plan_before.graph, &plan_before.models, streams, rules, &costs(&[]));
        for finding in &found.findings {
            let to = finding.message.split("`stages.frames.fps` from ").nth(1);
            let Some(to) = to.and_then(|rest| rest.split(" to ").nth(1)) else { continue };
            let number: String =
                to.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
            let slower = plan(number.trim_end_matches('.').parse().unwrap(), 120.0);
            let after = assess(&slower.graph, &slower.models, streams, rules, &costs(&[]));
            prop_assert_eq!(kinds(&after), []);
        }
    }
}
