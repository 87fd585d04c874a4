//! `understand`: what it is about: category, summary, sentiment, flags, keywords

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ::models::words;
use engine::Class;
use engine::language::{Parts, SummaryAnswer, TextInputs, UnderstandSpec};
use media::result::{MissingReason, Timing};
use media::{Observation, Pts, Understanding};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use crate::plan::StreamPlan;
use crate::port::{Mark, Packet, Payload};
use crate::stage::{Next, StageIo, StageLogic, upstream};
use crate::text::{AskedText, Meaning, TextSpec};

use super::{Kind, PortType, Settings, parse, schema_of};

pub(super) static KIND: Kind = Kind {
    name: "understand",
    about: "what it is about: category, summary, sentiment, flags, keywords",
    inputs: &[PortType::Speech, PortType::Screen, PortType::Subtitles],
    many: true,
    output: PortType::Understanding,
    class: Class::Text,
    schema: schema_of::<UnderstandSettings>,
    parse: |value| parse(value, Settings::Understand),
};

/// Settings of `understand`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UnderstandSettings {
    /// Name of an entry under `models:`, or a catalogue name.
    pub model: String,
    /// The categories to choose from.
    pub categories: Vec<String>,
    /// Flags to raise: name and what it means in words.
    pub flags: std::collections::BTreeMap<String, String>,
    /// How the category is found.
    pub category_by: CategoryScorer,
    /// How hard a text is, from 0 to 1, from which `category_by: routed` asks the language model.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub hard_from: f64,
    /// Longest summary, in tokens. 0: no summary.
    #[schemars(range(min = 0, max = 256))]
    pub summary_tokens_max: u32,
}

impl UnderstandSettings {
    /// Whether it needs the sentence embedder.
    pub fn wants_embedder(&self) -> bool {
        self.category_by != CategoryScorer::Likelihood || !self.flags.is_empty()
    }

    /// What is asked about each text.
    pub fn spec(&self) -> TextSpec {
        TextSpec {
            asked: UnderstandSpec {
                categories: self.categories.clone(),
                flags: self.flags.clone(),
                summary_tokens_max: self.summary_tokens_max,
                // Due in its window: interrupts a summary that runs.
                priority: -1,
            },
            category_by: self.category_by,
            hard_from: self.hard_from,
        }
    }
}

/// How the category is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CategoryScorer {
    /// Sentence embedding of text and category: as often right, and ten times as quick as asking a small language
    /// model.
    #[default]
    Embedding,
    /// Calibrated likelihood under the language model.
    Likelihood,
    /// By embedding, and by likelihood for texts that are hard: very short, long, or speech and signs at once.
    Routed,
}

impl Default for UnderstandSettings {
    fn default() -> Self {
        UnderstandSettings {
            model: "text".into(),
            categories: [
                "news",
                "sports",
                "music",
                "transport",
                "cooking",
                "technology",
                "weather",
                "health",
            ]
            .map(String::from)
            .to_vec(),
            flags: Default::default(),
            category_by: CategoryScorer::default(),
            hard_from: 0.2,
            summary_tokens_max: 32,
        }
    }
}

/// Text that comes with the source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    title: Option<String>,
    description: Option<String>,
}

impl Given {
    pub(crate) fn new(stream: &StreamPlan) -> Self {
        Given { title: stream.title.clone(), description: stream.description.clone() }
    }
}

/// What became of a summary.
type Asked = Result<Option<SummaryAnswer>, MissingReason>;

/// Words of what was said before that go with new text, so that a short utterance is understood in context.
const CONTEXT_WORDS_MAX: usize = 60;
/// Words a summary of a file is made from at most: all of a short clip.
pub(super) const SUMMARY_WORDS_MAX: usize = 160;
/// Words a summary of a live stream is made from at most: each costs prefill time on a lane that others want.
pub(super) const SUMMARY_WORDS_LIVE_MAX: usize = 60;
/// Media time between two summaries of a live stream.
pub(super) const SUMMARY_EVERY_US: i64 = 4_000_000;
/// A line that was on the screen this many windows ago is no new text when it comes back.
const SHOWN_WINDOWS: u64 = 30;
/// New pieces that wait for an answer at most; the oldest go.
const FRESH_MAX: usize = 256;

#[derive(Clone, Debug)]
struct Piece {
    window: u64,
    pts: Pts,
    text: String,
    from: From,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Speech,
    Screen,
    Subtitle,
    Given,
}

/// Understanding: reads what is new and answers it in its window; carries the answer while nothing is new.
pub(crate) struct UnderstandLogic {
    model: AskedText,
    spec: Arc<TextSpec>,
    given: Given,
    given_read: bool,
    fresh: Vec<Piece>,
    said: VecDeque<(Pts, String)>,
    screen: Vec<String>,
    shown: BTreeMap<String, u64>,
    answer: Option<(Pts, Understanding)>,
    summary: Option<(Pts, SummaryAnswer)>,
    summarising: Option<JoinHandle<(Pts, Asked)>>,
    summary_due: Option<Pts>,
}

impl UnderstandLogic {
    pub(crate) fn new(settings: &UnderstandSettings, given: Given, model: AskedText) -> Self {
        UnderstandLogic {
            model,
            spec: Arc::new(settings.spec()),
            given,
            given_read: false,
            fresh: Vec::new(),
            said: VecDeque::new(),
            screen: Vec::new(),
            shown: BTreeMap::new(),
            answer: None,
            summary: None,
            summarising: None,
            summary_due: None,
        }
    }

    /// Keeps what is new: finalised utterances, lines that were not on the screen lately, subtitles.
    fn take(&mut self, packet: Packet) {
        let window = packet.window;
        let piece = |pts, text, from| Piece { window, pts, text, from };
        match packet.payload {
            Payload::Observation(Observation::Speech(said)) if said.is_final => {
                self.fresh.push(piece(Pts::from_ms(said.end_ms), said.text, From::Speech));
            }
            Payload::Observation(Observation::Screen { pts, lines }) => {
                self.shown.retain(|_, last| *last + SHOWN_WINDOWS >= window);
                for line in lines {
                    let known = self.shown.insert(line.folded(), window).is_some();
                    if !known && line.text.chars().filter(|c| c.is_alphabetic()).count() >= 3 {
                        self.fresh.push(piece(pts, line.text, From::Screen));
                    }
                }
            }
            Payload::Subtitle(subtitle) => {
                self.fresh.push(piece(subtitle.span.start, subtitle.text, From::Subtitle));
            }
            _ => {}
        }
        if self.fresh.len() > FRESH_MAX {
            let over = self.fresh.len() - FRESH_MAX;
            self.fresh.drain(..over);
        }
    }

    async fn mark(&mut self, io: &StageIo, mark: Mark) {
        if !std::mem::replace(&mut self.given_read, true) {
            let given = [&self.given.title, &self.given.description];
            for text in given.into_iter().flatten() {
                let (window, pts) = (mark.window, mark.span.start);
                self.fresh.push(Piece { window, pts, text: text.clone(), from: From::Given });
            }
        }
        let (now, later): (Vec<Piece>, Vec<Piece>) =
            std::mem::take(&mut self.fresh).into_iter().partition(|p| p.window <= mark.window);
        self.fresh = later;
        self.collect_summary().await;
        self.summarise(io).await;
        let mut timing = None;
        let outcome = if now.is_empty() {
            upstream(&mark)
        } else {
            self.answer_new(io, &mark, now, &mut timing).await
        };
        if outcome.is_ok() {
            self.say(io, &mark);
        }
        io.answer(&mark, outcome, timing);
    }

    /// Answers text that is new in this window. What could not be answered stays new.
    async fn answer_new(
        &mut self,
        io: &StageIo,
        mark: &Mark,
        pieces: Vec<Piece>,
        timing: &mut Option<Timing>,
    ) -> Result<(), MissingReason> {
        let inputs = self.inputs(&pieces, CONTEXT_WORDS_MAX);
        let language = inputs.language.clone();
        if let Some(language) = language.filter(|language| !self.model.knows(language)) {
            tracing::debug!(stream = %io.stream, language, "text in a language the model does not know");
            return Err(MissingReason::UnsupportedLanguage);
        }
        let newest = pieces.iter().map(|piece| piece.pts).max().unwrap_or(mark.span.start);
        let started = io.clock.now();
        let ticket = io.ticket(mark.deadline);
        let queue;
        let answer = self.model.meaning(ticket, inputs.clone(), self.spec.clone()).await;
        match answer {
            Ok(Meaning { category, flags, queue: waited }) => {
                queue = waited;
                let parts = Parts { category, flags, ..Parts::default() };
                self.answer = Some((newest, self.model.assemble(&inputs, &self.spec, parts)));
            }
            Err(reason) => {
                let room = FRESH_MAX.saturating_sub(self.fresh.len());
                let kept = pieces.into_iter().rev().take(room);
                self.fresh.splice(0..0, kept.collect::<Vec<_>>().into_iter().rev());
                return Err(reason);
            }
        }
        self.remember(pieces);
        if self.spec.asked.summary_tokens_max > 0 {
            self.summary_due = Some(newest);
            self.summarise(io).await;
        }
        // With the summary, where it was waited for.
        *timing = Some(Timing {
            stage: io.seat.stage.clone(),
            queue_ms: rounded(queue),
            compute_ms: rounded(io.clock.now().since(started).saturating_sub(queue)),
            batch: 1,
        });
        Ok(())
    }

    fn remember(&mut self, pieces: Vec<Piece>) {
        for piece in pieces {
            match piece.from {
                From::Speech | From::Subtitle => self.said.push_back((piece.pts, piece.text)),
                From::Screen => {
                    self.screen.push(piece.text);
                    if self.screen.len() > 6 {
                        self.screen.remove(0);
                    }
                }
                From::Given => {}
            }
        }
        let mut words: usize = self.said.iter().map(|(_, text)| count_words(text)).sum();
        while words > SUMMARY_WORDS_MAX && self.said.len() > 1 {
            if let Some((_, text)) = self.said.pop_front() {
                words -= count_words(&text);
            }
        }
    }

    /// What the model reads: the new pieces, and as much of what was said before as fits.
    fn inputs(&self, new: &[Piece], words_max: usize) -> TextInputs {
        let of = |from: From| {
            new.iter().filter(move |piece| piece.from == from).map(|piece| piece.text.as_str())
        };
        let mut said: VecDeque<&str> = of(From::Speech).collect();
        let mut words: usize = said.iter().map(|text| count_words(text)).sum();
        for (_, text) in self.said.iter().rev() {
            words += count_words(text);
            if words > words_max {
                break;
            }
            said.push_front(text);
        }
        let transcript = said.into_iter().collect::<Vec<_>>().join(" ");
        let screen: Vec<String> = of(From::Screen).map(str::to_owned).collect();
        let subtitles: Vec<&str> = of(From::Subtitle).collect();
        let all = format!("{transcript} {} {}", screen.join(" "), subtitles.join(" "));
        TextInputs {
            title: self.given.title.clone(),
            description: self.given.description.clone(),
            language: words::language_of_text(&all).map(|found| found.language.to_owned()),
            transcript,
            screen: screen.join(". "),
            subtitles: subtitles.join(" "),
        }
    }

    /// Starts a summary of everything remembered; a file waits for it, a live stream takes it when it comes.
    async fn summarise(&mut self, io: &StageIo) {
        if self.summarising.is_some() {
            return;
        }
        let Some(newest) = self.summary_due else { return };
        let last = self.summary.as_ref().map(|(of, _)| *of);
        if io.paced && last.is_some_and(|last| newest - last < SUMMARY_EVERY_US) {
            return;
        }
        self.summary_due = None;
        let words_max = if io.paced { SUMMARY_WORDS_LIVE_MAX } else { SUMMARY_WORDS_MAX };
        let mut inputs = self.inputs(&[], words_max);
        inputs.screen = self.screen.join(". ");
        let asked = self.model.summary(io.ticket(None), inputs, self.spec.clone());
        if io.paced {
            self.summarising = Some(tokio::spawn(async move { (newest, asked.await) }));
        } else if let Ok(Some(summary)) = asked.await {
            self.summary = Some((newest, summary));
        }
    }

    async fn collect_summary(&mut self) {
        let Some(task) = self.summarising.take_if(|task| task.is_finished()) else { return };
        if let Ok((newest, Ok(Some(summary)))) = task.await {
            self.summary = Some((newest, summary));
        }
    }

    /// The answer as of this window, carried or new; nothing when there was no text yet.
    fn say(&self, io: &StageIo, mark: &Mark) {
        let Some((newest, answer)) = &self.answer else { return };
        // 0 for text of this window, else how long before the window's end it was new.
        let age = |of: Pts| if mark.span.start <= of { 0 } else { (mark.span.end - of) / 1_000 };
        let mut answer = answer.clone();
        answer.age_ms = age(*newest);
        if let Some((of, summary)) = &self.summary {
            answer.summary = Some(summary.text.clone());
            answer.summary_from = Some(summary.from);
            answer.summary_age_ms = age(*of);
            answer.truncated |= summary.truncated;
        }
        let observation = Observation::Understanding { pts: *newest, answer: Box::new(answer) };
        io.emit(mark.window, mark.deadline, observation);
    }
}

impl Drop for UnderstandLogic {
    fn drop(&mut self) {
        if let Some(task) = &self.summarising {
            task.abort();
        }
    }
}

impl StageLogic for UnderstandLogic {
    async fn run(&mut self, io: &StageIo) {
        loop {
            io.room().await;
            match io.next() {
                Some(Next::Packet(packet)) => self.take(packet),
                Some(Next::Mark(mark)) => self.mark(io, mark).await,
                Some(Next::End) => {}
                None => return,
            }
        }
    }
}

fn count_words(text: &str) -> usize {
    text.split_whitespace().count()
}

fn rounded(span: Duration) -> f64 {
    (span.as_secs_f64() * 1e4).round() / 10.0
}
