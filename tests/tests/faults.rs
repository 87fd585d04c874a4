//! What breaks costs what it must and nothing else: a dead camera, a subscriber that sleeps, a killed engine.

use std::time::Duration;

use media::StageId;
use media::result::{GapReason, StreamState};
use system_tests::results::Received;
use system_tests::{Machine, Run, Subscriber, clips, configs, free_port};

const LIMIT: Duration = Duration::from_secs(120);

fn state(received: &Received, stream: &str, state: StreamState) -> bool {
    received.streams.iter().any(|m| m.stream.as_str() == stream && m.state == state)
}

#[tokio::test]
async fn a_dead_camera_is_tried_again_and_spares_the_file_beside_it() {
    let machine = Machine::take();
    let (clip, port) = (clips::street(), free_port());
    let streams = format!(
        "[ {{ id: dead, uri: \"rtsp://viewer:opensesame@127.0.0.1:{port}/live\" }}, {{ id: file, uri: \"{}\" }} ]",
        clip.display()
    );
    let none: [&str; 0] = [];
    let mut run = Run::start(&machine, &configs::LIVE.replace("{streams}", &streams), &none);
    let mut subscriber = run.subscribe("after=0").await;
    let received = subscriber
        .until(LIMIT, |r| {
            state(r, "file", StreamState::Ended) && state(r, "dead", StreamState::Reconnecting)
        })
        .await;
    received.expect_valid();
    received.expect_coverage("file", clips::length_ms(&clip));
    assert!(received.windows_with("person") > 0, "the file was answered");
    assert_eq!(received.first_of("dead").len(), 0, "nothing was seen through a dead camera");
    let told = format!("{:?}", received.raw);
    assert!(!told.contains("opensesame"), "{told}");

    run.signal("TERM");
    let finished = run.finish(Duration::from_secs(20)).await.expect_code(0);
    assert!(!finished.stderr.contains("opensesame"), "{}", finished.stderr);
}

#[tokio::test]
async fn a_subscriber_that_sleeps_gets_a_gap_and_holds_up_nobody() {
    let machine = Machine::take();
    let clip = clips::silence(90);
    let input = clip.to_str().expect("test folders have plain names");
    let mut run = Run::start(&machine, configs::MANY_ANSWERS, &["--input", input]);
    let mut awake = run.subscribe("after=0").await;
    let mut asleep = Subscriber::with_small_buffer(&run.address(), "after=0").await;
    // More than the system's buffers and the journal hold together.
    let received = awake.until(LIMIT, |r| r.results.len() >= 25_000).await;
    assert!(received.gaps.is_empty(), "whoever reads misses nothing: {:?}", received.gaps);

    let late = asleep.until(LIMIT, |r| !r.gaps.is_empty()).await;
    let gap = &late.gaps[0];
    assert_eq!(gap.reason, GapReason::Lag);
    assert!(gap.count > 0 && gap.from <= gap.to, "{gap:?}");
    let last = late.results.last().map_or(0, |r| r.seq);
    assert!(last < gap.from, "what came before the gap came whole: {last}, {gap:?}");
    let to = gap.to;
    let late = asleep.until(LIMIT, |r| r.results.last().is_some_and(|r| r.seq > to)).await;
    assert_eq!(late.gaps.len(), 1, "it goes on with the newest: {:?}", late.gaps);

    run.signal("TERM");
    run.finish(Duration::from_secs(20)).await.expect_code(0);
}

#[tokio::test]
async fn a_killed_language_engine_costs_text_and_no_window() {
    let machine = Machine::take();
    let clip = clips::demo();
    let input = clip.to_str().expect("test folders have plain names");
    let mut run = Run::start(&machine, configs::TALK, &["--input", input, "--realtime"]);
    let mut subscriber = run.subscribe("after=0").await;
    // Whenever it is back, as long as these windows last, which is longer than any utterance.
    let mut kills = 0;
    for window in 10..20 {
        subscriber.until(LIMIT, |r| r.results.iter().any(|r| r.window.index >= window)).await;
        kills += u32::from(run.kill_language_engine());
    }
    assert!(kills >= 2, "it comes back after the first: {kills}");
    let received = subscriber.until_closed(LIMIT).await;
    run.finish(LIMIT).await.expect_code(0);

    received.expect_valid();
    let name = &received.stream_names()[0];
    received.expect_coverage(name, clips::length_ms(&clip));
    let windows = received.first_of(name);
    for result in &windows {
        // Far below what a wait for the engine would take.
        let budget_ms = result.budget_ms.map_or(0.0, |ms| ms as f64);
        assert!(result.latency_ms < 2.0 * budget_ms, "{result:?}");
    }
    let meaning = StageId::from("meaning");
    let killed = windows.iter().filter(|r| (10..21).contains(&r.window.index));
    let named = killed.flat_map(|r| &r.missing).filter(|m| m.stage == meaning).count();
    assert!(named > 0, "what it could not answer is named");
    let back = windows.iter().filter(|r| r.window.index >= 24 && r.missing.is_empty());
    let answered = back.filter(|r| r.text.as_ref().is_some_and(|t| t.category.is_some())).count();
    assert!(answered > 0, "text is back");
}
