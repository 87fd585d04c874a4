use media::result::{Fusion, RESULT_SCHEMA, SeenObject, Status, Window};
use media::{Rect, SafetyScore, Understanding};

use super::*;

fn rules(expressions: &[&str]) -> BTreeMap<String, String> {
    expressions.iter().enumerate().map(|(i, e)| (format!("r{i}"), (*e).to_owned())).collect()
}

fn person(score: f32, x: f32) -> SeenObject {
    SeenObject {
        label: "person".into(),
        score,
        rect: Rect(x, 0.2, 0.1, 0.3),
        track: Some(3),
        pts_ms: 7_240,
        first_ms: 7_000,
        last_ms: 7_960,
    }
}

fn result(people: usize) -> FusedResult {
    FusedResult {
        schema: RESULT_SCHEMA.into(),
        run: "run".into(),
        seq: 0,
        stream_seq: 0,
        stream: "lobby".into(),
        window: Window { index: 7, start_ms: 7_000, end_ms: 8_000 },
        status: Status::Partial,
        revision: 0,
        latency_ms: 1.0,
        age_ms: None,
        processing_ms: None,
        budget_ms: None,
        vision: Some(Vision {
            objects: (0..people).map(|i| person(0.9, 0.1 * i as f32)).collect(),
            safety: Some(SafetyScore { score: 0.9, pts_ms: 7_480 }),
            ..Vision::default()
        }),
        audio: None,
        text: None,
        fusion: Fusion::default(),
        missing: vec![],
        timings: vec![],
    }
}

fn holds(expression: &str, result: &FusedResult) -> bool {
    let alerts = Alerts::compile(&rules(&[expression])).expect(expression);
    let (raised, faults) = alerts.judge(result);
    assert_eq!(faults, [], "{expression}");
    !raised.is_empty()
}

#[test]
fn rules_see_what_a_subscriber_sees() {
    let crowd = "vision.objects.filter(o, o.label == 'person').size() > 6";
    assert!(holds(crowd, &result(7)));
    assert!(!holds(crowd, &result(6)));
    for rule in [
        "vision.objects.exists(o, o.box[0] > 0.55 && o.track == 3)",
        "size(vision.objects) == 7 && window.index == 7 && window.end_ms - window.start_ms == 1000",
        "stream == 'lobby' && status == 'partial' && missing.size() == 0",
        "vision.objects.all(o, o.score >= 0.9)",
        "vision.safety.score >= 0.9 && vision.safety.pts_ms < 7500",
        "text.category == null && audio.sentiment == null && !('news' in text.scores)",
        "vision.objects.exists(a, vision.objects.exists(b, a.box[0] < b.box[0]))",
        "vision.objects.map(o, o.label)[0].startsWith('per')",
    ] {
        assert!(holds(rule, &result(7)), "{rule}");
    }
    assert!(!holds("text.category == 'news' || audio.speech.exists(s, s.final)", &result(7)));
}

#[test]
fn an_alert_carries_the_time_of_its_evidence() {
    let alerts = Alerts::compile(&BTreeMap::from([
        ("crowd".to_owned(), "vision.objects.size() > 2".to_owned()),
        ("unsafe".to_owned(), "vision.safety.score > 0.8".to_owned()),
    ]))
    .expect("both are sound");
    let (raised, _) = alerts.judge(&result(3));
    let raised: Vec<_> = raised.iter().map(|a| (&*a.name, a.pts_ms)).collect();
    assert_eq!(raised, [("crowd", 7_000), ("unsafe", 7_480)]);
}

#[test]
fn a_rule_that_fails_on_the_data_raises_nothing_and_is_named() {
    let alerts = Alerts::compile(&rules(&["vision.safety.score > 0.8", "text.scores.news > 0.5"]))
        .expect("sound in shape");
    let mut dark = result(0);
    dark.vision = None;
    let (raised, faults) = alerts.judge(&dark);
    assert_eq!(raised, []);
    assert_eq!(faults.iter().map(|f| &*f.rule).collect::<Vec<_>>(), ["r0", "r1"]);
    assert!(faults[1].to_string().contains("news"), "{}", faults[1]);
}

#[test]
fn every_mistake_is_found_before_the_start_with_its_place() {
    let wrong = [
        ("visoin.objects.size() > 6", 1, "`visoin` is no variable (known: vision, audio"),
        ("vision.objcts.size() > 6", 7, "`vision` has no field `objcts` (known: "),
        ("vision.objects.exists(o, o.lable == 'x')", 0, "`o` has no field `lable` (known: "),
        ("vision.objects.label == 'person'", 0, "`vision.objects` has no field `label`"),
        ("vision.objects[0].scor > 1.0", 0, "has no field `scor`"),
        ("window['idx'] == 1", 0, "`window` has no field `idx`"),
        ("vision.objects.size(", 0, ""),
        ("vision.objects.size()", 1, "it yields int, expected true or false"),
        ("vision.objects > 6", 1, "no matching overload"),
        ("vision.objects.sized() > 6", 0, "there is no function `sized`"),
        ("status == 'partial' && nothing(1)", 0, "there is no function `nothing`"),
        (
            "vision.objects.all(a, vision.objects.all(b, vision.objects.all(c, a == c)))",
            0,
            "loops are nested more than 2 deep",
        ),
        ("", 0, ""),
    ];
    for (expression, column, message) in wrong {
        let errors = Alerts::compile(&rules(&[expression])).expect_err(expression);
        let error = &errors[0];
        assert!(error.message.contains(message), "{expression}: {error}");
        if column > 0 {
            assert_eq!((error.line, error.column), (1, column), "{expression}: {error}");
        }
        assert_eq!((error.rule.as_str(), error.expression.as_str()), ("r0", expression));
    }
    let all = Alerts::compile(&rules(&["a > 1", "vision.objects.size() > 1", "b > 1"]));
    assert_eq!(all.expect_err("two").len(), 2);
}

#[test]
fn rules_are_bounded_in_length_depth_and_number() {
    let long = format!("stream == '{}'", "x".repeat(EXPRESSION_CHARS_MAX));
    let deep = format!("{}true{}", "(".repeat(450), ")".repeat(450));
    for expression in [long.as_str(), deep.as_str()] {
        assert!(Alerts::compile(&rules(&[expression])).is_err());
    }
    let many: BTreeMap<_, _> = (0..100).map(|i| (format!("r{i}"), "true".to_owned())).collect();
    let errors = Alerts::compile(&many).expect_err("too many");
    assert!(errors[0].message.contains("100 rules, at most 64"), "{}", errors[0]);
}

#[test]
fn hostile_expressions_end_in_an_answer_not_in_a_crash() {
    let hostile = [
        format!("{}true", "!".repeat(995)),
        format!("{}1 == 1", "-".repeat(990)),
        format!("text.scores{} == 1", ".a".repeat(490)),
        format!("1{} == 1", "+1".repeat(480)),
        format!("{}true{}", "true ? ".repeat(100), " : true".repeat(40)),
        format!("{}1{} == 1", "[".repeat(480), "]".repeat(480)),
        format!("stream{} == ''", ".size()".repeat(130)),
        "9223372036854775807 + 1 > window.index".to_owned(),
        "stream == '\\uD800'".to_owned(),
        "\u{0}\u{1F600} ?? [[[ '".to_owned(),
        "vision.objects[9223372036854775807].label == ''".to_owned(),
        "1 / 0 == 1".to_owned(),
    ];
    for expression in hostile {
        if let Ok(alerts) = Alerts::compile(&rules(&[&expression])) {
            alerts.judge(&result(2));
        }
    }
}

#[test]
fn the_empty_text_has_every_field_of_a_real_one() {
    let fields = |value: serde_json::Value| {
        let object = value.as_object().expect("an object").clone();
        let mut names: Vec<String> = object.keys().cloned().collect();
        names.sort();
        names
    };
    let real = fields(Shape::of_results().sample("text"));
    for name in &real {
        assert!(
            !matches!(result(0).text, Some(Understanding { .. })),
            "the result under test has no text"
        );
        // `has` is true for a key that is there, null or not.
        assert!(holds(&format!("has(text.{name})"), &result(0)), "{name}");
    }
    assert_eq!(real.len(), 13);
}

#[test]
fn one_rule_set_serves_many_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Alerts>();
}
