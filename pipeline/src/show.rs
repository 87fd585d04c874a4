//! A result as one line for people, and the progress bar. Text from a video goes to a terminal here, so what
//! could steer one is taken out.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use media::result::{FusedResult, Status};

/// One line: when, how fast, what was seen, said and understood, what is missing.
pub fn line(result: &FusedResult) -> String {
    let second = result.window.start_ms as f64 / 1e3;
    let mut parts = vec![format!("{} {second:>7.1}s", plain(result.stream.as_str()))];
    let status = match result.status {
        Status::Complete => "",
        Status::Partial => " partial",
    };
    let revised = if result.revision > 0 { " revised" } else { "" };
    parts.push(format!("{:.0} ms{status}{revised}", result.latency_ms));
    if let Some(vision) = &result.vision {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for object in &vision.objects {
            *counts.entry(&object.label).or_default() += 1;
        }
        let seen: Vec<String> = counts.iter().map(|(label, n)| format!("{label}×{n}")).collect();
        parts.extend((!seen.is_empty()).then(|| seen.join(" ")));
        parts.extend(vision.scenes.first().map(|s| format!("{} {:.2}", s.label, s.score)));
        let text: Vec<String> = vision.text.iter().map(|t| plain(&t.text)).collect();
        parts.extend((!text.is_empty()).then(|| format!("[{}]", text.join(" / "))));
    }
    for speech in result.audio.iter().flat_map(|a| &a.speech) {
        let more = if speech.is_final { "" } else { "…" };
        parts.push(format!("“{}{more}”", plain(&speech.text)));
    }
    if let Some(text) = &result.text {
        parts.extend(text.category.as_ref().map(|c| format!("→ {c}")));
        parts.extend(text.summary.as_ref().map(|s| plain(s)));
    }
    parts.extend(result.fusion.alerts.iter().map(|a| format!("ALERT {}", plain(&a.name))));
    if !result.missing.is_empty() {
        let missing: Vec<String> = result
            .missing
            .iter()
            .map(|m| format!("{} ({})", m.stage, format!("{:?}", m.reason).to_lowercase()))
            .collect();
        parts.push(format!("missing: {}", missing.join(", ")));
    }
    parts.join("  ")
}

/// Without control characters, bidirectional overrides and the like, and not too long.
fn plain(text: &str) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut plain: String =
        text.chars().map(|c| if steers(c) { ' ' } else { c }).take(120).collect();
    if text.chars().nth(120).is_some() {
        plain.push('…');
    }
    plain
}

/// A bar on standard error, on a terminal only.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// `clips`: how many there are to do.
    pub fn new(clips: u64) -> Self {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(clips), target);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} clips  {elapsed}  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Progress { bar }
    }

    /// A result came.
    pub fn window(&self, windows: u64) {
        self.bar.set_message(format!("{windows} windows"));
    }

    /// A clip is finished.
    pub fn clip(&self) {
        self.bar.inc(1);
    }

    /// Runs `print` with the bar out of the way.
    pub fn suspend(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use media::result::{Alert, Audio, Missing, MissingReason, SeenObject, Vision};
    use media::{Rect, SpeechSegment, StageId};

    use super::*;

    #[test]
    fn a_line_says_it_all_and_steers_no_terminal() {
        let text = r#"{"schema":"fused-result/1","run":"r","seq":1,"stream_seq":1,"stream":"street",
            "window":{"index":7,"start_ms":7000,"end_ms":8000},"status":"partial","revision":0,"latency_ms":212.4,
            "age_ms":null,"processing_ms":null,"budget_ms":500,"vision":null,"audio":null,"text":null,
            "fusion":{"labels":[],"sentiment":null,"alerts":[]},"missing":[],"timings":[]}"#;
        let mut result: FusedResult = serde_json::from_str(text).unwrap();
        let object = |label: &str| SeenObject {
            label: Arc::from(label),
            score: 0.9,
            rect: Rect(0.0, 0.0, 1.0, 1.0),
            track: None,
            pts_ms: 0,
            first_ms: 0,
            last_ms: 0,
        };
        result.vision = Some(Vision {
            objects: vec![object("person"), object("car"), object("person")],
            ..Vision::default()
        });
        result.audio = Some(Audio {
            speech: vec![SpeechSegment {
                utterance: 1,
                text: "hello\u{1b}[2J there\u{202e}".into(),
                start_ms: 0,
                end_ms: 1,
                is_final: false,
                language: "en".into(),
                confidence: 1.0,
            }],
            sentiment: None,
        });
        result.fusion.alerts.push(Alert { name: "crowd".into(), pts_ms: 0 });
        result
            .missing
            .push(Missing { stage: StageId::from("meaning"), reason: MissingReason::Deadline });
        assert_eq!(
            line(&result),
            "street     7.0s  212 ms partial  car×1 person×2  “hello [2J there …”  ALERT crowd  missing: meaning (deadline)"
        );
    }
}
