//! Fused labels against each modality alone, over windows labelled by hand.
//!
//! The windows are never used to set the taxonomy's weights and words. They are written by hand, so the
//! figures compare modalities with each other and are no measure of accuracy on real videos.

use std::collections::BTreeMap;

use actors::fusion::{Evidence, Taxonomy, WindowContents};
use media::{Detection, Observation, Pts, Rect, Scored, ScreenLine, SpeechSegment, Understanding};
use serde::Deserialize;

#[derive(Deserialize)]
struct Fixtures {
    windows: Vec<Labelled>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Labelled {
    name: String,
    label: String,
    objects: Vec<(String, f32)>,
    scenes: Vec<(String, f32)>,
    screen: Vec<(String, f32)>,
    speech: Vec<(String, f32)>,
    scores: BTreeMap<String, f32>,
}

impl Labelled {
    /// As the stages would have said it.
    fn contents(&self) -> WindowContents {
        let pts = Pts::ZERO;
        let place = |i: usize| Rect(0.0, 0.1 * i as f32, 0.1, 0.05);
        let mut contents = WindowContents::default();
        let objects = self.objects.iter().enumerate().map(|(i, (label, score))| Detection {
            label: label.as_str().into(),
            score: *score,
            rect: place(i),
            track: Some(i as u64),
        });
        contents.add(Observation::Objects { pts, objects: objects.collect() });
        let scenes = self
            .scenes
            .iter()
            .map(|(label, score)| Scored { label: label.as_str().into(), score: *score });
        contents.add(Observation::Scenes { pts, scenes: scenes.collect() });
        let lines = self.screen.iter().enumerate().map(|(i, (text, score))| ScreenLine {
            text: text.clone(),
            score: *score,
            rect: place(i),
            pts_ms: 0,
        });
        contents.add(Observation::Screen { pts, lines: lines.collect() });
        for (i, (text, confidence)) in self.speech.iter().enumerate() {
            contents.add(Observation::Speech(SpeechSegment {
                utterance: i as u64,
                text: text.clone(),
                start_ms: 0,
                end_ms: 900,
                is_final: true,
                language: "en".into(),
                confidence: *confidence,
            }));
        }
        if !self.scores.is_empty() {
            let answer = Box::new(Understanding {
                category: None,
                scores: self.scores.iter().map(|(c, s)| (c.as_str().into(), *s)).collect(),
                summary: None,
                summary_from: None,
                summary_age_ms: 0,
                sentiment: None,
                flags: vec![],
                keywords: vec![],
                language: Some("en".into()),
                model: "m".into(),
                backend: "b".into(),
                age_ms: 0,
                truncated: false,
            });
            contents.add(Observation::Understanding { pts, answer });
        }
        contents
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures are what one runs this for")]
fn fusing_is_at_least_as_right_as_the_best_single_modality() {
    let fixtures: Fixtures = serde_json::from_str(include_str!("fixtures/windows.json")).unwrap();
    let taxonomy = Taxonomy::builtin().unwrap();
    let mut right: BTreeMap<&str, usize> = BTreeMap::new();
    println!(
        "{:42} {:11} {:11} {:11} {:11} {:11}",
        "", "truth", "vision", "audio", "text", "fused"
    );
    for window in &fixtures.windows {
        let contents = window.contents();
        let (vision, audio, text) = (contents.vision(), contents.audio(), contents.text());
        let all = Evidence { vision: Some(&vision), audio: Some(&audio), text: text.as_ref() };
        let ways = [
            ("vision", Evidence { audio: None, text: None, ..all }),
            ("audio", Evidence { vision: None, text: None, ..all }),
            ("text", Evidence { vision: None, audio: None, ..all }),
            ("fused", all),
        ];
        print!("{:42} {:11}", window.name, window.label);
        for (way, evidence) in ways {
            let best = taxonomy.pool(evidence).first().map(|l| l.label.to_string());
            let hit = best.as_deref() == Some(window.label.as_str());
            *right.entry(way).or_default() += usize::from(hit);
            let shown = format!("{}{}", best.as_deref().unwrap_or("-"), if hit { "" } else { "!" });
            print!(" {shown:11}");
        }
        println!();
    }
    let count = fixtures.windows.len();
    assert!(count >= 20);
    for (way, right) in &right {
        println!("{way}: {right} of {count} right ({:.0} %)", 100.0 * *right as f64 / count as f64);
    }
    let best_single = ["vision", "audio", "text"].into_iter().map(|way| right[way]).max().unwrap();
    assert!(right["fused"] >= best_single, "{right:?}");
}
