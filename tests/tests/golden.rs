//! The demo clip's answers as a golden file: what a user would see, window by window. Left out is what depends on
//! time or on the machine's arithmetic: times, boxes, track numbers, weak evidence, the summary's wording.
//!
//! After a wanted change: `INSTA_UPDATE=always cargo nextest run --release -p system-tests --test golden`, and read
//! what changed.

use std::collections::BTreeMap;
use std::time::Duration;

use media::result::FusedResult;
use serde::Serialize;
use system_tests::words::glyphs;
use system_tests::{Machine, Run, clips, configs};

const LIMIT: Duration = Duration::from_secs(300);
/// Detections below it come and go with the last bit of a float.
const SURE: f32 = 0.6;
/// So do lines below it.
const READABLE: f32 = 0.75;
/// Pooled labels below it say nothing.
const WEAK: f32 = 0.3;

#[derive(Serialize)]
struct Answer<'a> {
    from_ms: i64,
    status: &'a media::result::Status,
    seen: BTreeMap<&'a str, &'static str>,
    scene: Option<&'a str>,
    safe: bool,
    screen: Vec<String>,
    said: Vec<&'a str>,
    tone: Option<&'a media::Polarity>,
    category: Option<&'a str>,
    summarised: bool,
    labels: Vec<Label<'a>>,
    alerts: Vec<&'a str>,
    missing: Vec<String>,
}

#[derive(Serialize)]
struct Label<'a> {
    label: &'a str,
    score: f32,
}

fn answer(result: &FusedResult) -> Answer<'_> {
    let vision = result.vision.as_ref();
    let audio = result.audio.as_ref();
    let text = result.text.as_ref();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for object in vision.iter().flat_map(|v| &v.objects).filter(|o| o.score >= SURE) {
        *counts.entry(&object.label).or_default() += 1;
    }
    let rounded = |n: usize| match n {
        1 => "one",
        2 => "two",
        _ => "several",
    };
    let scene = vision.and_then(|v| v.scenes.first());
    Answer {
        from_ms: result.window.start_ms,
        status: &result.status,
        seen: counts.into_iter().map(|(label, n)| (label, rounded(n))).collect(),
        scene: scene.filter(|s| s.score >= WEAK).map(|s| &*s.label),
        safe: vision.and_then(|v| v.safety.as_ref()).is_some_and(|s| s.score < 0.1),
        screen: vision
            .iter()
            .flat_map(|v| &v.text)
            .filter(|line| line.score >= READABLE)
            .map(|line| glyphs(&line.text))
            .collect(),
        said: audio
            .iter()
            .flat_map(|a| &a.speech)
            .filter(|s| s.is_final)
            .map(|s| &*s.text)
            .collect(),
        tone: audio.and_then(|a| a.sentiment.as_ref()).map(|tone| &tone.label),
        category: text.and_then(|t| t.category.as_deref()),
        summarised: text.is_some_and(|t| t.summary.as_ref().is_some_and(|s| !s.is_empty())),
        labels: result
            .fusion
            .labels
            .iter()
            .filter(|l| l.score >= WEAK)
            .map(|l| Label { label: &l.label, score: l.score })
            .collect(),
        alerts: result.fusion.alerts.iter().map(|a| &*a.name).collect(),
        missing: result.missing.iter().map(|m| format!("{}: {:?}", m.stage, m.reason)).collect(),
    }
}

#[tokio::test]
async fn the_demo_clip_is_answered_as_it_was() {
    let machine = Machine::take();
    let clip = clips::demo();
    let input = clip.to_str().expect("test folders have plain names");
    let mut run = Run::start(&machine, configs::EVERYTHING, &["--input", input]);
    let received = run.subscribe("after=0").await.until_closed(LIMIT).await;
    run.finish(LIMIT).await.expect_code(0);
    received.expect_valid();
    let windows = received.last_of(&received.stream_names()[0]);
    let answers: Vec<_> = windows.into_iter().map(answer).collect();
    insta::assert_json_snapshot!(answers, { "[].labels[].score" => insta::rounded_redaction(1) });
}
