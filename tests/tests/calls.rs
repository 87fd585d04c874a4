//! Wrong calls: exit status and one message that helps.

use std::time::Duration;

use system_tests::{Finished, Machine, Run, clips, configs};

const LIMIT: Duration = Duration::from_secs(60);

const TWO_MISTAKES: &str = "version: 1
stages:
  frames:  { kind: frames, from: source.video, fsp: 5 }
  objects: { kind: detect, from: framse }
  fused:   { kind: fuse, from: objects }
";

#[track_caller]
fn expect_mistakes(told: &str) {
    for part in ["fsp", "fps", "framse", "frames", ":3:", ":4:"] {
        assert!(told.contains(part), "names {part}:\n{told}");
    }
}

#[tokio::test]
async fn a_wrong_configuration_ends_with_2_and_all_its_mistakes() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("config.yaml");
    std::fs::write(&path, TWO_MISTAKES).expect("the temporary folder takes a file");
    let path = path.to_str().expect("plain");
    for call in [vec!["validate", path], vec!["run", path, "--input", "clip.mp4"]] {
        let finished = Finished::of(&call).expect_code(2);
        expect_mistakes(&finished.stderr);
        assert_eq!(finished.stdout, "", "standard output belongs to results");
    }
}

#[tokio::test]
async fn a_file_that_is_not_there_ends_with_2_and_its_name() {
    let machine = Machine::take();
    let args = ["--input", "no-such-clip.mp4", "--output", "-"];
    let run = Run::start(&machine, configs::CLIPS, &args);
    let finished = run.finish(LIMIT).await.expect_code(2);
    assert!(finished.stderr.contains("no-such-clip.mp4"), "{}", finished.stderr);
    assert_eq!(finished.stdout, "");
}

#[tokio::test]
async fn a_file_that_is_no_media_fails_its_stream_with_1_and_spares_the_others() {
    let machine = Machine::take();
    let dir = tempfile::tempdir().expect("a temporary folder");
    let letter = dir.path().join("letter.mp4");
    std::fs::write(&letter, "Dear Sir or Madam").expect("the temporary folder takes a file");
    let clip = clips::short(1).remove(0);
    let args = [
        "--input",
        letter.to_str().expect("plain"),
        "--input",
        clip.to_str().expect("plain"),
        "--output",
        "-",
    ];
    let run = Run::start(&machine, configs::CLIPS, &args);
    let finished = run.finish(LIMIT).await.expect_code(1);
    assert!(finished.stderr.contains("letter"), "{}", finished.stderr);
    let received = system_tests::results::Received::from_lines(&finished.stdout);
    assert_eq!(received.results.len(), 1, "the other clip was answered");
}

#[tokio::test]
async fn a_wrong_call_ends_with_2_and_says_what_exists() {
    let finished = Finished::of(&["rum", "config.yaml"]).expect_code(2);
    assert!(finished.stderr.contains("run"), "{}", finished.stderr);
    let finished = Finished::of(&["run", "no-such-config.yaml"]).expect_code(2);
    assert!(finished.stderr.contains("no-such-config.yaml"), "{}", finished.stderr);
}
