//! Word error rate, computed from what a WebSocket subscriber received.
#![expect(clippy::expect_used, reason = "a helper that fails is a failed test")]

use std::time::Duration;

use system_tests::words::{JFK, word_errors};
use system_tests::{Machine, Run, clips, configs};

const LIMIT: Duration = Duration::from_secs(120);
/// Six recordings, 71 words: one slip in twenty is what the model is known for.
const ERROR_RATE_MAX: f64 = 0.05;

/// Recordings and what is said in them.
fn truth() -> Vec<(String, String)> {
    let mut truth = vec![("jfk/jfk.wav".to_owned(), JFK.to_owned())];
    let listed = std::fs::read_to_string(clips::media("librivox/transcription"))
        .expect("the transcription is text");
    for line in listed.lines() {
        // `<s> words </s> (file)`
        let (said, file) = line.split_once("</s>").expect("a line ends with </s> (file)");
        let file = file.trim().trim_matches(['(', ')']);
        truth.push((
            format!("librivox/{file}.wav"),
            said.trim_start_matches("<s>").trim().to_owned(),
        ));
    }
    truth
}

#[tokio::test]
async fn read_speech_is_heard_word_for_word() {
    let machine = Machine::take();
    let (mut errors, mut total) = (0, 0);
    let mut report = String::new();
    for (file, said) in truth() {
        let clip = clips::spoken(&file);
        let input = clip.to_str().expect("test folders have plain names");
        let mut run = Run::start(&machine, configs::EARS, &["--input", input]);
        let received = run.subscribe("after=0").await.until_closed(LIMIT).await;
        run.finish(LIMIT).await.expect_code(0);
        let names = received.stream_names();
        let heard = received.transcript_of(&names[0]);
        let (wrong, of) = word_errors(&said, &heard);
        report.push_str(&format!("{wrong}/{of} {file}\n  said  {said}\n  heard {heard}\n"));
        (errors, total) = (errors + wrong, total + of);
    }
    let rate = errors as f64 / total as f64;
    assert!(rate <= ERROR_RATE_MAX, "word error rate {rate:.3}:\n{report}");
}
