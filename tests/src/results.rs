//! What was received, and the questions that tests ask of it.

use std::collections::BTreeMap;

use media::SpeechSegment;
use media::result::{FusedResult, Gap, RESULT_SCHEMA, StreamMessage};
use serde_json::Value;

use crate::Finished;

/// Two packets of sound, or a picture.
const ROUNDING_MS: i64 = 50;

/// Messages in the order they came.
#[derive(Debug, Default)]
pub struct Received {
    /// As sent.
    pub raw: Vec<Value>,
    /// The results among them.
    pub results: Vec<FusedResult>,
    /// The gaps among them.
    pub gaps: Vec<Gap>,
    /// The stream messages among them.
    pub streams: Vec<StreamMessage>,
}

impl Received {
    /// From lines of `--output`.
    pub fn from_lines(text: &str) -> Received {
        let mut received = Received::default();
        for line in text.lines() {
            let value = serde_json::from_str(line)
                .unwrap_or_else(|e| panic!("a line that is not JSON ({e}): {line}"));
            received.push(value);
        }
        received
    }

    pub(crate) fn push(&mut self, value: Value) {
        let typed = |e: serde_json::Error| -> ! { panic!("{e}: {value}") };
        match value["schema"].as_str() {
            Some(RESULT_SCHEMA) => self
                .results
                .push(serde_json::from_value(value.clone()).unwrap_or_else(|e| typed(e))),
            Some("gap/1") => {
                self.gaps.push(serde_json::from_value(value.clone()).unwrap_or_else(|e| typed(e)))
            }
            Some("stream/1") => self
                .streams
                .push(serde_json::from_value(value.clone()).unwrap_or_else(|e| typed(e))),
            other => panic!("expected a message of a known schema, got {other:?}: {value}"),
        }
        self.raw.push(value);
    }

    /// First results of a stream (revision 0), in the order they came.
    pub fn first_of(&self, stream: &str) -> Vec<&FusedResult> {
        self.results.iter().filter(|r| r.revision == 0 && r.stream.as_str() == stream).collect()
    }

    /// The last word on each window of a stream: its revision where there is one.
    pub fn last_of(&self, stream: &str) -> Vec<&FusedResult> {
        let mut last = BTreeMap::new();
        for result in self.results.iter().filter(|r| r.stream.as_str() == stream) {
            last.insert(result.window.index, result);
        }
        last.into_values().collect()
    }

    /// Names of the streams that sent results.
    pub fn stream_names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.results.iter().map(|r| r.stream.as_str().to_owned()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Final utterances of a stream in order. Fails when one is final twice.
    #[track_caller]
    pub fn finals_of(&self, stream: &str) -> Vec<&SpeechSegment> {
        let mut finals: BTreeMap<u64, &SpeechSegment> = BTreeMap::new();
        for result in self.last_of(stream) {
            for segment in result.audio.iter().flat_map(|a| &a.speech).filter(|s| s.is_final) {
                let before = finals.insert(segment.utterance, segment);
                assert!(before.is_none(), "final twice: {before:?} and {segment:?}");
            }
        }
        finals.into_values().collect()
    }

    /// The transcript: finals joined in order.
    #[track_caller]
    pub fn transcript_of(&self, stream: &str) -> String {
        let finals = self.finals_of(stream);
        finals.iter().map(|s| s.text.as_str()).collect::<Vec<_>>().join(" ")
    }

    /// Every line read on the screen.
    pub fn screen_lines(&self) -> impl Iterator<Item = &str> {
        let vision = self.results.iter().filter_map(|r| r.vision.as_ref());
        vision.flat_map(|v| &v.text).map(|line| line.text.as_str())
    }

    /// How many results saw an object of this label.
    pub fn windows_with(&self, label: &str) -> usize {
        let saw = |r: &&FusedResult| {
            r.vision.iter().flat_map(|v| &v.objects).any(|o| o.label.as_ref() == label)
        };
        self.results.iter().filter(saw).count()
    }

    /// Fails unless every message validates against the published schema.
    #[track_caller]
    pub fn expect_valid(&self) {
        let schema = Finished::of(&["schema", "result"]).expect_code(0).stdout;
        let schema: Value = serde_json::from_str(&schema).expect("a JSON Schema is JSON");
        let validator = jsonschema::validator_for(&schema).expect("a valid JSON Schema");
        for message in &self.raw {
            let errors: Vec<String> = validator
                .iter_errors(message)
                .map(|e| format!("{}: {e}", e.instance_path()))
                .collect();
            assert!(errors.is_empty(), "{errors:#?} in {message:#}");
        }
    }

    /// Fails unless `seq` grows with every message, and `stream_seq` by one within the stream.
    #[track_caller]
    pub fn expect_sequence(&self, stream: &str) {
        let all: Vec<u64> = self.raw.iter().filter_map(|m| m["seq"].as_u64()).collect();
        assert!(all.windows(2).all(|w| w[0] < w[1]), "seq grows: {all:?}");
        let own = self.results.iter().filter(|r| r.stream.as_str() == stream);
        let own: Vec<u64> = own.map(|r| r.stream_seq).collect();
        assert!(own.windows(2).all(|w| w[0] + 1 == w[1]), "stream_seq grows by one: {own:?}");
    }

    /// Fails unless the windows of a stream lie side by side from 0 to `length_ms`, give or take what containers
    /// round and encoders pad.
    #[track_caller]
    pub fn expect_coverage(&self, stream: &str, length_ms: i64) {
        let windows: Vec<_> = self.first_of(stream).iter().map(|r| r.window).collect();
        let (Some(first), Some(last)) = (windows.first(), windows.last()) else {
            panic!("stream {stream} has no windows; streams: {:?}", self.stream_names());
        };
        assert_eq!((first.index, first.start_ms), (0, 0), "{windows:?}");
        let joined = |w: &[media::result::Window]| {
            w[0].end_ms == w[1].start_ms && w[0].index + 1 == w[1].index
        };
        assert!(windows.windows(2).all(joined), "windows lie side by side: {windows:?}");
        let end = length_ms - ROUNDING_MS..length_ms + ROUNDING_MS;
        assert!(end.contains(&last.end_ms), "{length_ms} ms are covered: {windows:?}");
    }
}
