//! What a text is about: category, flags, sentiment, keywords and a summary, typed and checked.
//!
//! Its neighbours are `prompt` (how the model is asked) and `category` (what its answers mean). The one rule:
//! what comes back is one of the configured values, or words that the source supports; never free text as it came.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use media::{Scored, SummaryFrom, Tone};
use models::words::{self, Embedder};
use thiserror::Error;

use super::backend::{BackendError, Finish, GenerateRequest, LanguageBackend, Prompt, ScoreRequest};
use super::category::{
    Calibration, category_by_embedding, cosine, decide, label_sentence, softmax,
};
use super::prompt::{PromptShape, quoted, shape_of};
use crate::compute::ModelHandle;
use crate::{JobEnd, Ticket};

/// Words of a text whose category is asked: the newest.
const CATEGORY_WORDS_MAX: usize = 48;
/// Words of a text that is summarised: the newest.
const SUMMARY_WORDS_MAX: usize = 160;
/// Sharpness of likelihood gains: one nat of label likelihood is not one nat of evidence.
const LIKELIHOOD_TEMPERATURE: f64 = 1.5;
/// Cosine between a text and a flag's meaning from which the flag is raised.
const FLAG_SIMILARITY_MIN: f64 = 0.45;
/// More urgent than a summary.
const MEANING_PRIORITY: i32 = -1;

/// Text to understand. All of it is data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextInputs {
    /// Given with the source.
    pub title: Option<String>,
    /// Given with the source.
    pub description: Option<String>,
    /// What was said.
    pub transcript: String,
    /// Lines on the screen.
    pub screen: Vec<String>,
    /// Of a subtitle track.
    pub subtitles: String,
    /// ISO 639-1, where it is known.
    pub language: Option<String>,
}

impl TextInputs {
    /// Everything as one text, what was said last.
    fn joined(&self) -> String {
        let screen = self.screen.join(". ");
        let said = [self.subtitles.as_str(), self.transcript.as_str()];
        [self.title.as_deref().unwrap_or_default(), self.description.as_deref().unwrap_or_default()]
            .into_iter()
            .chain([screen.as_str()])
            .chain(said)
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(". ")
    }
}

/// What is asked about a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnderstandSpec {
    /// The categories to choose from.
    pub categories: Vec<Arc<str>>,
    /// Flags: name and meaning.
    pub flags: BTreeMap<String, String>,
    /// Whether the category comes from sentence embeddings instead of the language model.
    pub by_embedding: bool,
    /// Longest summary. 0: none.
    pub summary_tokens_max: u32,
}

/// Everything that is due in the window.
#[derive(Clone, Debug, PartialEq)]
pub struct Meaning {
    /// Best category; none when the text supports none.
    pub category: Option<Arc<str>>,
    /// Score of every category; they sum to one.
    pub scores: BTreeMap<Arc<str>, f32>,
    /// Of the words.
    pub sentiment: Option<Tone>,
    /// Raised flags.
    pub flags: Vec<Scored>,
    /// Most telling words and phrases.
    pub keywords: Vec<String>,
    /// ISO 639-1.
    pub language: Option<String>,
    /// Whether the text was cut.
    pub truncated: bool,
}

/// One sentence.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The sentence.
    pub text: String,
    /// Whose words.
    pub from: SummaryFrom,
    /// Whether the text or the answer was cut.
    pub truncated: bool,
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum UnderstandError {
    /// Time ran out.
    #[error("no answer in time")]
    Late,
    /// The language model.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The sentence embedder.
    #[error("sentence embedding: {0}")]
    Embedding(String),
}

/// Asks a language model about texts.
pub struct Understander {
    backend: Arc<dyn LanguageBackend>,
    embedder: Option<ModelHandle<Embedder>>,
    shape: PromptShape,
    /// By category list: made once.
    calibrations: Mutex<HashMap<Vec<Arc<str>>, Arc<Calibration>>>,
    /// By sentence: labels and flags are embedded once.
    vectors: Mutex<HashMap<String, Arc<[f32]>>>,
}

impl Understander {
    /// Over a backend, and an embedder where categories or flags are scored with one.
    pub fn new(
        backend: Arc<dyn LanguageBackend>,
        embedder: Option<ModelHandle<Embedder>>,
    ) -> Self {
        let shape = shape_of(backend.model());
        Understander {
            backend,
            embedder,
            shape,
            calibrations: Mutex::default(),
            vectors: Mutex::default(),
        }
    }

    /// Name of the model.
    pub fn model(&self) -> &str {
        self.backend.model()
    }

    /// Kind of backend.
    pub fn backend(&self) -> &str {
        self.backend.name()
    }

    /// Predicted time on a lane of [`Understander::meaning`]; nothing when no language model is asked.
    pub fn meaning_cost(&self, inputs: &TextInputs, spec: &UnderstandSpec) -> Duration {
        if spec.by_embedding || spec.categories.is_empty() {
            return Duration::ZERO;
        }
        let text = quoted(&inputs.joined(), CATEGORY_WORDS_MAX);
        let labels: usize = spec.categories.iter().map(|label| label.len().div_ceil(4)).sum();
        self.cost(self.shape.category_prompt(&text).tokens_estimate() + labels, 0)
    }

    /// Predicted time on a lane of [`Understander::summary`].
    pub fn summary_cost(&self, inputs: &TextInputs, spec: &UnderstandSpec) -> Duration {
        let text = quoted(&inputs.joined(), SUMMARY_WORDS_MAX);
        self.cost(text.len().div_ceil(4) + 8, spec.summary_tokens_max as usize / 2)
    }

    fn cost(&self, prompt_tokens: usize, new_tokens: usize) -> Duration {
        let stats = self.backend.stats();
        let rate = |measured: f64, usual: f64| if measured > 0.0 { measured } else { usual };
        let seconds = prompt_tokens as f64 / rate(stats.prefill_tokens_per_s, 200.0)
            + new_tokens as f64 / rate(stats.decode_tokens_per_s, 40.0);
        Duration::from_secs_f64(seconds)
    }

    /// Learns what the model prefers anyway and embeds labels and flags, so that the first answer is not slower
    /// than the others.
    ///
    /// # Errors
    /// [`UnderstandError`]
    pub async fn prepare(&self, spec: &UnderstandSpec) -> Result<(), UnderstandError> {
        if !spec.by_embedding && !spec.categories.is_empty() {
            self.calibration(&spec.categories, None).await?;
        }
        if self.embedder.is_some() {
            self.vectors(spec.flags.values().cloned().collect(), &any_time()).await?;
            if spec.by_embedding {
                let labels = spec.categories.iter().map(|label| label_sentence(label));
                self.vectors(labels.collect(), &any_time()).await?;
            }
        }
        Ok(())
    }

    /// Category, flags, sentiment and keywords of `inputs`, within `limit`. `ticket` is for the embedder, which
    /// computes on this machine's lanes.
    ///
    /// # Errors
    /// [`UnderstandError`]
    pub async fn meaning(
        &self,
        inputs: &TextInputs,
        spec: &UnderstandSpec,
        ticket: &Ticket,
        limit: Option<Duration>,
    ) -> Result<Meaning, UnderstandError> {
        let all = inputs.joined();
        let text = quoted(&all, CATEGORY_WORDS_MAX);
        let scores = if spec.categories.is_empty() || text.is_empty() {
            Vec::new()
        } else if spec.by_embedding {
            self.by_embedding(&text, spec, ticket).await?
        } else {
            self.by_likelihood(&text, spec, limit).await?
        };
        let (category, scores) = decide(&spec.categories, &scores);
        let flags = if spec.flags.is_empty() || self.embedder.is_none() || text.is_empty() {
            Vec::new()
        } else {
            self.flags(&text, spec, ticket).await?
        };
        Ok(Meaning {
            category,
            scores,
            sentiment: words::sentiment(&all),
            flags,
            keywords: words::keywords(&all, 6),
            language: inputs.language.clone(),
            truncated: all.split_whitespace().count() > CATEGORY_WORDS_MAX,
        })
    }

    /// One sentence about `inputs`, within `limit`: the model's when the source supports its words, else the
    /// best of the source.
    ///
    /// # Errors
    /// [`UnderstandError`]; a text without words is `Late` of nothing and never asked.
    pub async fn summary(
        &self,
        inputs: &TextInputs,
        spec: &UnderstandSpec,
        limit: Option<Duration>,
    ) -> Result<Summary, UnderstandError> {
        let all = inputs.joined();
        let cut = all.split_whitespace().count() > SUMMARY_WORDS_MAX;
        let text = quoted(&all, SUMMARY_WORDS_MAX);
        let prompt = self.shape.summary_prompt(&text);
        let request = GenerateRequest {
            stop: vec!["\n".into()],
            time_limit_ms: limit.map(|l| l.as_millis() as u64),
            ..GenerateRequest::new(prompt, spec.summary_tokens_max)
        };
        let answer = self.backend.generate(request).await.map_err(late)?.collect().await.map_err(late)?;
        let written = words::sentences(&answer.text).first().map(|s| s.trim().to_owned());
        let ended = answer.finish == Finish::Stop;
        let own = written.filter(|s| !s.is_empty() && ended && words::supported_by(s, &text));
        Ok(match own {
            Some(text) => Summary { text, from: SummaryFrom::Model, truncated: cut },
            None => Summary {
                text: words::best_sentence(&all).unwrap_or(&text).trim().to_owned(),
                from: SummaryFrom::Source,
                truncated: cut,
            },
        })
    }

    async fn by_likelihood(
        &self,
        text: &str,
        spec: &UnderstandSpec,
        limit: Option<Duration>,
    ) -> Result<Vec<f32>, UnderstandError> {
        let calibration = self.calibration(&spec.categories, limit).await?;
        let prompt = self.shape.category_prompt(text);
        let scores = self.score(prompt, &spec.categories, limit).await?;
        Ok(softmax(&calibration.gains(&scores), LIKELIHOOD_TEMPERATURE))
    }

    async fn score(
        &self,
        prefix: Prompt,
        labels: &[Arc<str>],
        limit: Option<Duration>,
    ) -> Result<Vec<super::backend::Score>, UnderstandError> {
        let request = ScoreRequest {
            prefix,
            continuations: labels.iter().map(|label| format!(" {label}")).collect(),
            priority: MEANING_PRIORITY,
            time_limit_ms: limit.map(|l| l.as_millis() as u64),
        };
        let scores = self.backend.score(request).await.map_err(late)?;
        if scores.len() != labels.len() {
            let detail = format!("{} scores for {} labels", scores.len(), labels.len());
            return Err(BackendError::Failed { detail }.into());
        }
        Ok(scores)
    }

    async fn calibration(
        &self,
        labels: &[Arc<str>],
        limit: Option<Duration>,
    ) -> Result<Arc<Calibration>, UnderstandError> {
        let known = {
            let calibrations = self.calibrations.lock().unwrap_or_else(PoisonError::into_inner);
            calibrations.get(labels).cloned()
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let mut rows = Vec::new();
        for empty in self.shape.empty {
            rows.push(self.score(self.shape.category_prompt(empty), labels, limit).await?);
        }
        let made = Arc::new(Calibration::new(&rows));
        let mut calibrations = self.calibrations.lock().unwrap_or_else(PoisonError::into_inner);
        calibrations.insert(labels.to_vec(), made.clone());
        Ok(made)
    }

    async fn by_embedding(
        &self,
        text: &str,
        spec: &UnderstandSpec,
        ticket: &Ticket,
    ) -> Result<Vec<f32>, UnderstandError> {
        let labels = spec.categories.iter().map(|label| label_sentence(label)).collect();
        let labels = self.vectors(labels, &any_time()).await?;
        let labels: Vec<Vec<f32>> = labels.iter().map(|v| v.to_vec()).collect();
        let text = self.embed(text.to_owned(), ticket).await?;
        Ok(category_by_embedding(&text, &labels))
    }

    async fn flags(
        &self,
        text: &str,
        spec: &UnderstandSpec,
        ticket: &Ticket,
    ) -> Result<Vec<Scored>, UnderstandError> {
        let meanings = self.vectors(spec.flags.values().cloned().collect(), &any_time()).await?;
        let text = self.embed(text.to_owned(), ticket).await?;
        let scored = spec.flags.keys().zip(meanings).filter_map(|(name, meaning)| {
            let score = cosine(&text, &meaning);
            (score >= FLAG_SIMILARITY_MIN)
                .then(|| Scored { label: Arc::from(name.as_str()), score: score as f32 })
        });
        Ok(scored.collect())
    }

    async fn vectors(
        &self,
        sentences: Vec<String>,
        ticket: &Ticket,
    ) -> Result<Vec<Arc<[f32]>>, UnderstandError> {
        let mut vectors = Vec::with_capacity(sentences.len());
        for sentence in sentences {
            let known = {
                let known = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
                known.get(&sentence).cloned()
            };
            let vector = match known {
                Some(vector) => vector,
                None => {
                    let vector: Arc<[f32]> = self.embed(sentence.clone(), ticket).await?.into();
                    let mut known = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
                    known.insert(sentence, vector.clone());
                    vector
                }
            };
            vectors.push(vector);
        }
        Ok(vectors)
    }

    async fn embed(&self, text: String, ticket: &Ticket) -> Result<Vec<f32>, UnderstandError> {
        let Some(embedder) = &self.embedder else {
            return Err(UnderstandError::Embedding("no embedder was loaded".into()));
        };
        match embedder.run(ticket.clone(), text).await {
            JobEnd::Done { output, .. } => Ok(output),
            JobEnd::Shed | JobEnd::Expired => Err(UnderstandError::Late),
            JobEnd::Cancelled => Err(UnderstandError::Embedding("shutting down".into())),
            JobEnd::Failed(error) => Err(UnderstandError::Embedding(error.to_string())),
        }
    }
}

fn any_time() -> Ticket {
    Ticket { stream: "".into(), priority: 0, deadline: None }
}

fn late(error: BackendError) -> UnderstandError {
    match error {
        BackendError::TimeLimit => UnderstandError::Late,
        other => UnderstandError::Backend(other),
    }
}
