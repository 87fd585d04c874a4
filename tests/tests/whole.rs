//! A file in, fused answers out over the WebSocket: the main job with real models.
#![expect(clippy::expect_used, reason = "a helper that fails is a failed test")]

use std::path::Path;
use std::time::Duration;

use system_tests::results::Received;
use system_tests::words::{JFK, glyphs, word_errors};
use system_tests::{Machine, Run, clips, configs};

const LIMIT: Duration = Duration::from_secs(180);

/// Runs a clip to its end and hands out what a subscriber received; there must be one stream.
async fn answers_to(config: &str, clip: &Path) -> (Received, String) {
    let machine = Machine::take();
    let input = clip.to_str().expect("test folders have plain names");
    let mut run = Run::start(&machine, config, &["--input", input]);
    let received = run.subscribe("after=0").await.until_closed(LIMIT).await;
    run.finish(LIMIT).await.expect_code(0);
    let stream = only_stream(&received);
    (received, stream)
}

/// Of one short sentence three words may be wrong; `words_heard` holds the rate over many.
#[track_caller]
fn expect_jfk(heard: &str) {
    let (wrong, of) = word_errors(JFK, heard);
    assert!(wrong <= 3, "{wrong} of {of} words are wrong: {heard}");
}

fn only_stream(received: &Received) -> String {
    let names = received.stream_names();
    assert_eq!(names.len(), 1, "one input, one stream: {names:?}");
    names[0].clone()
}

#[tokio::test]
async fn a_file_is_seen_heard_read_and_understood() {
    let clip = clips::street();
    let (received, stream) = answers_to(configs::EVERYTHING, &clip).await;

    received.expect_valid();
    received.expect_sequence(&stream);
    received.expect_coverage(&stream, clips::length_ms(&clip));
    assert!(received.gaps.is_empty(), "{:?}", received.gaps);

    // A file is processed whole: nothing is shed, nothing is missing.
    let windows = received.first_of(&stream);
    for result in &windows {
        assert!(result.missing.is_empty(), "{:?} of {:?}", result.missing, result.window);
    }

    expect_jfk(&received.transcript_of(&stream));

    let with_person = received.windows_with("person");
    assert!(with_person * 10 >= windows.len() * 9, "{with_person} of {} windows", windows.len());

    for sign in [clips::SIGN, clips::TICKER, clips::SIGN_CHINESE] {
        let read = received.screen_lines().any(|line| glyphs(line) == glyphs(sign));
        assert!(read, "{sign} among {:?}", received.screen_lines().collect::<Vec<_>>());
    }

    let scenes = windows.iter().filter_map(|r| r.vision.as_ref()).filter(|v| !v.scenes.is_empty());
    assert!(scenes.count() > 0, "a scene group is named");
    let safety: Vec<_> =
        windows.iter().filter_map(|r| r.vision.as_ref()?.safety.as_ref()).collect();
    assert!(
        !safety.is_empty() && safety.iter().all(|s| s.score < 0.5),
        "a street is safe: {safety:?}"
    );

    let meaning: Vec<_> = windows.iter().filter_map(|r| r.text.as_ref()).collect();
    assert!(meaning.iter().any(|m| m.category.is_some()), "{meaning:?}");
    assert!(
        meaning.iter().any(|m| m.summary.as_ref().is_some_and(|s| !s.is_empty())),
        "{meaning:?}"
    );
}

#[tokio::test]
async fn times_lie_inside_the_clip_and_utterances_in_order() {
    let clip = clips::street();
    let length_ms = clips::length_ms(&clip);
    let (received, stream) = answers_to(configs::EVERYTHING, &clip).await;

    for result in received.first_of(&stream) {
        let window = result.window;
        for object in result.vision.iter().flat_map(|v| &v.objects) {
            assert!(object.first_ms <= object.pts_ms && object.pts_ms <= object.last_ms);
            assert!(window.start_ms <= object.first_ms && object.last_ms < window.end_ms);
            let (x, y, w, h) = (object.rect.0, object.rect.1, object.rect.2, object.rect.3);
            assert!(x >= 0.0 && y >= 0.0 && x + w <= 1.001 && y + h <= 1.001, "{:?}", object.rect);
        }
    }
    let finals = received.finals_of(&stream);
    assert!(!finals.is_empty());
    for segment in &finals {
        assert!(0 <= segment.start_ms && segment.start_ms < segment.end_ms, "{segment:?}");
        assert!(segment.end_ms <= length_ms + 100, "{segment:?}");
    }
    assert!(finals.windows(2).all(|w| w[0].end_ms <= w[1].start_ms), "{finals:?}");
}

#[tokio::test]
async fn video_without_audio_is_a_normal_input() {
    let clip = clips::silent();
    let (received, stream) = answers_to(configs::EVERYTHING, &clip).await;
    received.expect_valid();
    received.expect_coverage(&stream, clips::length_ms(&clip));
    for result in received.first_of(&stream) {
        assert!(result.missing.is_empty(), "what can't apply is not missing: {:?}", result.missing);
    }
    assert!(received.windows_with("person") > 0);
    assert_eq!(received.transcript_of(&stream), "");
}

#[tokio::test]
async fn audio_without_video_is_a_normal_input() {
    let clip = clips::sound();
    let (received, stream) = answers_to(configs::EVERYTHING, &clip).await;
    received.expect_valid();
    received.expect_coverage(&stream, clips::length_ms(&clip));
    for result in received.first_of(&stream) {
        assert!(result.missing.is_empty(), "what can't apply is not missing: {:?}", result.missing);
    }
    expect_jfk(&received.transcript_of(&stream));
}

#[tokio::test]
async fn media_is_read_from_standard_input() {
    let machine = Machine::take();
    let clip = clips::matroska();
    let args = ["--input", "-", "--output", "-"];
    let run = Run::start_fed(&machine, configs::LIVE_ON_FILES, &args, &clip);
    let finished = run.finish(LIMIT).await.expect_code(0);
    let received = Received::from_lines(&finished.stdout);
    received.expect_valid();
    let stream = only_stream(&received);
    received.expect_coverage(&stream, clips::length_ms(&clip));
    assert!(received.windows_with("person") > 0);
}

#[tokio::test]
async fn a_file_at_its_own_pace_answers_with_ages() {
    let machine = Machine::take();
    let clip = clips::street();
    let input = clip.to_str().expect("test folders have plain names");
    let mut run = Run::start(&machine, configs::LIVE_ON_FILES, &["--input", input, "--realtime"]);
    let received = run.subscribe("after=0").await.until_closed(LIMIT).await;
    run.finish(LIMIT).await.expect_code(0);
    received.expect_valid();
    let stream = only_stream(&received);
    received.expect_coverage(&stream, clips::length_ms(&clip));
    for result in received.first_of(&stream) {
        assert!(result.age_ms.is_some() && result.budget_ms.is_some(), "{:?}", result.window);
    }
}
