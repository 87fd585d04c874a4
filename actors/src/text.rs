//! How the text stage asks its language model: the understander behind its lane, and the sentence embedder beside it.
//!
//! The language engine is a process of its own; what it computes on this machine's lanes is leased by its
//! [`TextLane`].

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ::models::words::Embedder;
use engine::compute::{ModelHandle, NoLane};
use engine::language::{
    BackendError, CategoryAnswer, CostHint, OnLane, Parts, SummaryAnswer, TextInputs, TextLane,
    UnderstandSpec, Understander, category_by_embedding, decide, flag_sentence, flags_by_embedding,
    label_sentence, of_category,
};
use engine::{JobEnd, Ticket};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use media::result::MissingReason;
use media::{Clock, Scored, Understanding};

use crate::stages::CategoryScorer;

/// What is asked about each text.
#[derive(Clone, Debug, PartialEq)]
pub struct TextSpec {
    /// Categories, flags and lengths.
    pub asked: UnderstandSpec,
    /// How the category is found.
    pub category_by: CategoryScorer,
    /// How hard a text is (0 to 1) from which a routed category is the language model's to find.
    pub hard_from: f64,
}

impl TextSpec {
    /// Whether sentence embeddings tell the category of `inputs`; else the language model is asked.
    pub fn is_embedded(&self, inputs: &TextInputs) -> bool {
        match self.category_by {
            CategoryScorer::Embedding => true,
            CategoryScorer::Likelihood => false,
            CategoryScorer::Routed => {
                of_category(inputs, self.asked.categories.len()) < self.hard_from
            }
        }
    }
}

/// What is due in the window of a new text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meaning {
    /// None when no category is configured or the text has no words.
    pub category: Option<CategoryAnswer>,
    /// Raised flags.
    pub flags: Vec<Scored>,
    /// Wait for compute.
    pub queue: Duration,
}

/// Something that understands text.
pub trait AskText: Send + Sync + 'static {
    /// Category and flags, due by the ticket's deadline.
    fn meaning(
        &self,
        ticket: Ticket,
        inputs: TextInputs,
        spec: Arc<TextSpec>,
    ) -> BoxFuture<'static, Result<Meaning, MissingReason>>;

    /// One sentence; may take longer than a window. None when there is nothing to summarise.
    fn summary(
        &self,
        ticket: Ticket,
        inputs: TextInputs,
        spec: Arc<TextSpec>,
    ) -> BoxFuture<'static, Result<Option<SummaryAnswer>, MissingReason>>;

    /// Makes what the first answer would otherwise wait for.
    fn prepare(&self, spec: Arc<TextSpec>) -> BoxFuture<'static, ()>;

    /// The typed answer: `parts` and what the words alone tell.
    fn assemble(&self, inputs: &TextInputs, spec: &TextSpec, parts: Parts) -> Understanding;

    /// Whether it knows a language (ISO 639-1).
    fn knows(&self, language: &str) -> bool;
}

/// A shared text model.
pub type AskedText = Arc<dyn AskText>;

/// A language model on this machine's lanes, or elsewhere.
pub struct TextModel {
    inner: Arc<Inner>,
}

struct Inner {
    understander: Understander,
    lane: Option<TextLane>,
    embedder: Option<ModelHandle<Embedder>>,
    /// Labels and flags are embedded once.
    vectors: std::sync::Mutex<HashMap<String, Vec<f32>>>,
    clock: Arc<dyn Clock>,
    languages: Vec<String>,
}

/// A token of the prompt before anything was measured: what a small model takes on one core.
const TOKEN: Duration = Duration::from_millis(6);
/// Priority of a summary: anything that is due in its window goes before it.
const SUMMARY_PRIORITY: i32 = 5;

impl TextModel {
    /// `lane` is given when the model computes on this machine's lanes, `embedder` when categories or flags
    /// are scored with one. `languages` are ISO 639-1.
    pub fn new(
        understander: Understander,
        lane: Option<TextLane>,
        embedder: Option<ModelHandle<Embedder>>,
        clock: Arc<dyn Clock>,
        languages: Vec<String>,
    ) -> Self {
        let vectors = std::sync::Mutex::default();
        let inner = Inner { understander, lane, embedder, vectors, clock, languages };
        TextModel { inner: Arc::new(inner) }
    }
}

impl Inner {
    async fn lease(
        &self,
        ticket: &Ticket,
        cost: CostHint,
    ) -> Result<Option<OnLane>, MissingReason> {
        let Some(lane) = &self.lane else { return Ok(None) };
        let predicted = cost.duration_or(&self.understander.backend().stats(), TOKEN);
        lane.enter(ticket.clone(), predicted).await.map(Some).map_err(no_lane)
    }

    fn time_left(&self, ticket: &Ticket) -> Option<Duration> {
        ticket.deadline.map(|deadline| deadline.since(self.clock.now()))
    }

    async fn meaning(
        &self,
        ticket: Ticket,
        inputs: TextInputs,
        spec: &TextSpec,
    ) -> Result<Meaning, MissingReason> {
        let mut meaning = Meaning::default();
        let by_embedding = spec.is_embedded(&inputs);
        let wants_vector = by_embedding || !spec.asked.flags.is_empty();
        if wants_vector && self.embedder.is_some() && !inputs.is_empty() {
            let (text, queue) = self.embed(inputs.whole(), &ticket).await?;
            meaning.queue = queue;
            let (names, sentences): (Vec<_>, Vec<_>) = spec
                .asked
                .flags
                .iter()
                .map(|(name, meaning)| (Arc::from(name.as_str()), flag_sentence(name, meaning)))
                .unzip();
            let vectors = self.known(sentences, &ticket).await?;
            let flags: Vec<_> = names.into_iter().zip(vectors).collect();
            meaning.flags = flags_by_embedding(&text, &flags);
            if by_embedding {
                let sentences = spec.asked.categories.iter().map(|c| label_sentence(c)).collect();
                let vectors = self.known(sentences, &ticket).await?;
                let labels: Vec<Arc<str>> =
                    spec.asked.categories.iter().map(|c| Arc::from(c.as_str())).collect();
                let (category, scores) = decide(&labels, &category_by_embedding(&text, &vectors));
                meaning.category = Some(CategoryAnswer { category, scores });
            }
        }
        if !by_embedding && !spec.asked.categories.is_empty() {
            let asked = self.clock.now();
            let _lane = self.lease(&ticket, self.understander.category_cost(&inputs)).await?;
            meaning.queue += self.clock.now().since(asked);
            let left = self.time_left(&ticket);
            let answer = self.understander.category(&inputs, &spec.asked, left).await;
            meaning.category = Some(answer.map_err(failed)?);
        }
        Ok(meaning)
    }

    async fn summary(
        &self,
        ticket: Ticket,
        inputs: TextInputs,
        spec: &TextSpec,
    ) -> Result<Option<SummaryAnswer>, MissingReason> {
        let cost = self.understander.summary_cost(&inputs, &spec.asked);
        let _lane = self.lease(&ticket, cost).await?;
        let asked = UnderstandSpec { priority: SUMMARY_PRIORITY, ..spec.asked.clone() };
        let left = self.time_left(&ticket);
        self.understander.summary(&inputs, &asked, left).await.map_err(failed)
    }

    async fn prepare(&self, spec: &TextSpec) -> Result<(), String> {
        self.understander.prepare(&spec.asked).await.map_err(|e| e.to_string())?;
        if self.embedder.is_some() {
            let ticket = Ticket { stream: "".into(), priority: 0, deadline: None };
            let flags = spec.asked.flags.iter().map(|(name, meaning)| flag_sentence(name, meaning));
            let labels = spec.asked.categories.iter().map(|label| label_sentence(label));
            let sentences = flags
                .chain(labels.filter(|_| spec.category_by != CategoryScorer::Likelihood))
                .collect();
            self.known(sentences, &ticket).await.map_err(|reason| format!("{reason:?}"))?;
        }
        Ok(())
    }

    async fn known(
        &self,
        sentences: Vec<String>,
        ticket: &Ticket,
    ) -> Result<Vec<Vec<f32>>, MissingReason> {
        let mut vectors = Vec::with_capacity(sentences.len());
        for sentence in sentences {
            let known = {
                let known = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
                known.get(&sentence).cloned()
            };
            let vector = match known {
                Some(vector) => vector,
                None => {
                    let (vector, _) = self.embed(sentence.clone(), ticket).await?;
                    let mut known = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
                    known.insert(sentence, vector.clone());
                    vector
                }
            };
            vectors.push(vector);
        }
        Ok(vectors)
    }

    /// The text's vector, and how long it waited for compute.
    async fn embed(
        &self,
        text: String,
        ticket: &Ticket,
    ) -> Result<(Vec<f32>, Duration), MissingReason> {
        let Some(embedder) = &self.embedder else { return Err(MissingReason::Unavailable) };
        match embedder.run(ticket.clone(), text).await {
            JobEnd::Done { output, queue, .. } => Ok((output, queue)),
            JobEnd::Shed => Err(MissingReason::Shed),
            JobEnd::Expired => Err(MissingReason::Deadline),
            JobEnd::Cancelled => Err(MissingReason::Unavailable),
            JobEnd::Failed(error) => {
                tracing::warn!(%error, "the sentence embedder failed");
                Err(MissingReason::Failed)
            }
        }
    }
}

fn no_lane(no: NoLane) -> MissingReason {
    match no {
        NoLane::Shed | NoLane::Full => MissingReason::Shed,
        NoLane::Expired => MissingReason::Deadline,
        NoLane::Closing => MissingReason::Unavailable,
    }
}

fn failed(error: BackendError) -> MissingReason {
    match error {
        BackendError::TimeLimit => MissingReason::Deadline,
        BackendError::Busy { .. } => MissingReason::Shed,
        BackendError::Unavailable { .. } => MissingReason::Unavailable,
        error => {
            tracing::warn!(%error, "the language model gave no answer");
            MissingReason::Failed
        }
    }
}

impl AskText for TextModel {
    fn meaning(
        &self,
        ticket: Ticket,
        inputs: TextInputs,
        spec: Arc<TextSpec>,
    ) -> BoxFuture<'static, Result<Meaning, MissingReason>> {
        let inner = self.inner.clone();
        async move { inner.meaning(ticket, inputs, &spec).await }.boxed()
    }

    fn summary(
        &self,
        ticket: Ticket,
        inputs: TextInputs,
        spec: Arc<TextSpec>,
    ) -> BoxFuture<'static, Result<Option<SummaryAnswer>, MissingReason>> {
        let inner = self.inner.clone();
        async move { inner.summary(ticket, inputs, &spec).await }.boxed()
    }

    fn prepare(&self, spec: Arc<TextSpec>) -> BoxFuture<'static, ()> {
        let inner = self.inner.clone();
        async move {
            if let Err(error) = inner.prepare(&spec).await {
                // The first answers will try again.
                tracing::warn!(error, "the text model could not be prepared");
            }
        }
        .boxed()
    }

    fn assemble(&self, inputs: &TextInputs, spec: &TextSpec, parts: Parts) -> Understanding {
        self.inner.understander.assemble(inputs, &spec.asked, parts)
    }

    fn knows(&self, language: &str) -> bool {
        self.inner.languages.iter().any(|known| known == language)
    }
}

#[cfg(test)]
mod tests {
    use crate::stages::UnderstandSettings;

    use super::*;

    #[test]
    fn a_routed_category_is_the_language_models_when_the_text_is_hard() {
        let spec = |category_by| {
            UnderstandSettings { category_by, ..UnderstandSettings::default() }.spec()
        };
        let said = |text: &str| TextInputs { transcript: text.into(), ..TextInputs::default() };
        let plain = said("The train to Berlin is twenty minutes late because of snow");
        let signs = TextInputs { screen: "GATE 7".into(), ..plain.clone() };
        let hard = [said("Snow again"), signs, said(&"and then ".repeat(60))];
        let routed = spec(CategoryScorer::Routed);
        assert!(routed.is_embedded(&plain));
        for inputs in &hard {
            assert!(!routed.is_embedded(inputs), "{inputs:?}");
            assert!(spec(CategoryScorer::Embedding).is_embedded(inputs));
        }
        assert!(!spec(CategoryScorer::Likelihood).is_embedded(&plain));
    }
}
