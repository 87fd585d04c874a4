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

#[tokio::test]
async fn all_weights_that_are_missing_are_named_at_once_after_the_port() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("config.yaml");
    std::fs::write(&path, configs::LIVE_ON_FILES).expect("the temporary folder takes a file");
    let path = path.to_str().expect("plain");
    let clip = clips::short(1).remove(0);
    let clip = clip.to_str().expect("plain");
    let empty = dir.path().join("cache");
    let variables = [("PIPELINE_CACHE", empty.as_os_str())];
    let finished =
        Finished::with(&variables, &["run", path, "--input", clip, "--listen", "127.0.0.1:0"]);
    let finished = finished.expect_code(2);
    for part in ["ssdlite-300", "moonshine-tiny", "onnxruntime", "pipeline models pull"] {
        assert!(finished.stderr.contains(part), "names {part}:\n{}", finished.stderr);
    }

    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("it is bound").to_string();
    let finished =
        Finished::with(&variables, &["run", path, "--input", clip, "--listen", &address]);
    let finished = finished.expect_code(2);
    assert!(finished.stderr.contains(&address), "{}", finished.stderr);
    assert!(
        !finished.stderr.contains("weights"),
        "told before anything else:\n{}",
        finished.stderr
    );
}

#[tokio::test]
async fn while_models_load_it_is_alive_not_ready_and_ends_when_asked() {
    let machine = Machine::take();
    let clip = clips::short(1).remove(0);
    let args = ["--input", clip.to_str().expect("plain"), "--output", "-"];
    let run = Run::start(&machine, configs::CLIPS, &args);
    let ready = loop {
        if let Some(answer) = ask(&run.address(), "/readyz").await {
            break answer;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("loading"), "{ready}");
    run.signal("TERM");
    let finished = run.finish(LIMIT).await.expect_code(0);
    assert_eq!(finished.stdout, "", "nothing was answered yet");
}

async fn ask(address: &str, path: &str) -> Option<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut socket = tokio::net::TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}
