//! A list of clips, and a run that is killed half-way.
#![expect(clippy::expect_used, reason = "a helper that fails is a failed test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use system_tests::results::Received;
use system_tests::{Machine, Run, clips, configs};

const LIMIT: Duration = Duration::from_secs(180);
const CLIPS: usize = 16;

/// Writes a list of `CLIPS` clips with ids and titles.
fn list(into: &Path) -> Vec<String> {
    let clips = clips::short(CLIPS);
    let mut lines = String::new();
    let mut ids = Vec::new();
    for (i, clip) in clips.iter().enumerate() {
        let id = format!("clip-{i:02}");
        let line = serde_json::json!({ "uri": clip, "id": id, "title": format!("Walk {i}") });
        lines.push_str(&format!("{line}\n"));
        ids.push(id);
    }
    std::fs::write(into, lines).expect("the temporary folder takes a file");
    ids
}

#[tokio::test]
async fn every_clip_of_a_list_gets_one_answer() {
    let machine = Machine::take();
    let dir = tempfile::tempdir().expect("a temporary folder");
    let clips = dir.path().join("clips.jsonl");
    let ids = list(&clips);
    let args = ["--input", clips.to_str().expect("plain"), "--output", "-"];
    let run = Run::start(&machine, configs::CLIPS, &args);
    let finished = run.finish(LIMIT).await.expect_code(0);
    let received = Received::from_lines(&finished.stdout);
    received.expect_valid();
    assert_eq!(received.stream_names(), ids);
    for id in &ids {
        let results = received.first_of(id);
        assert_eq!(results.len(), 1, "{id}: one clip, one window");
        assert!(results[0].processing_ms.is_some(), "{id}");
        assert!(results[0].missing.is_empty(), "{id}: {:?}", results[0].missing);
        received.expect_coverage(id, 2000);
    }
}

#[tokio::test]
async fn title_and_description_of_a_list_are_read_as_text() {
    let machine = Machine::take();
    let dir = tempfile::tempdir().expect("a temporary folder");
    let about = [
        ("sports", "Cup final", "The home team scored three goals and won the football match."),
        ("transport", "Delays", "The train to Berlin is late and passengers wait on the platform."),
        ("cooking", "Dinner", "Chop the onions, fry them in butter, add rice and stir the pot."),
    ];
    let mut lines = String::new();
    for ((id, title, description), clip) in about.iter().zip(clips::short(about.len())) {
        let line = serde_json::json!({
            "uri": clip, "id": id, "title": title, "description": description, "language": "en",
        });
        lines.push_str(&format!("{line}\n"));
    }
    let list = dir.path().join("clips.jsonl");
    std::fs::write(&list, lines).expect("the temporary folder takes a file");
    let args = ["--input", list.to_str().expect("plain"), "--output", "-"];
    let run = Run::start(&machine, configs::MEANING, &args);
    let finished = run.finish(LIMIT).await.expect_code(0);
    let received = Received::from_lines(&finished.stdout);
    received.expect_valid();
    for (id, _, _) in about {
        let results = received.last_of(id);
        assert_eq!(results.len(), 1, "{id}: one clip, one window");
        assert!(results[0].missing.is_empty(), "{id}: {:?}", results[0].missing);
        let text = results[0].text.as_ref().expect("it has something to read");
        assert_eq!(text.category.as_deref(), Some(id), "{text:?}");
    }
}

#[tokio::test]
async fn a_killed_bulk_run_loses_and_doubles_no_clip() {
    let machine = Machine::take();
    let dir = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| dir.path().join(name).to_str().expect("plain").to_owned();
    let clips = dir.path().join("clips.jsonl");
    let ids = list(&clips);
    let (input, output, state) = (at("clips.jsonl"), at("out.jsonl"), at("state"));
    let args = ["--input", &input, "--output", &output, "--resume", &state];

    let run = Run::start(&machine, configs::CLIPS, &args);
    let killed_after = tokio::time::timeout(LIMIT, async {
        loop {
            let lines = std::fs::read_to_string(&output).unwrap_or_default().lines().count();
            if lines >= CLIPS / 4 {
                return lines;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("results are written as they come");
    let killed = run.kill().await;
    assert_eq!(killed.code, None, "killed, not finished");
    assert!(killed_after < CLIPS, "killed half-way, not at the end");

    let run = Run::start(&machine, configs::CLIPS, &args);
    run.finish(LIMIT).await.expect_code(0);

    let text = std::fs::read_to_string(&output).expect("the output is text");
    let received = Received::from_lines(&text);
    received.expect_valid();
    let mut count: BTreeMap<&str, usize> = ids.iter().map(|id| (id.as_str(), 0)).collect();
    for result in received.results.iter().filter(|r| r.revision == 0) {
        *count.get_mut(result.stream.as_str()).expect("only listed clips") += 1;
    }
    assert!(count.values().all(|n| *n == 1), "each clip exactly once: {count:?}");

    // A third run finds nothing left to do.
    let run = Run::start(&machine, configs::CLIPS, &args);
    run.finish(LIMIT).await.expect_code(0);
    assert_eq!(std::fs::read_to_string(&output).expect("still there"), text);
}
