//! What a text is about: category, summary, and everything else of an [`Understanding`], each part on its own so
//! that the caller can lease compute for it and send what is there in time.
//!
//! Its neighbours are `prompt` (how a model is asked) and `category` (what its likelihoods mean). The one rule:
//! the source's text is data. Whatever it says, an answer has the shape that is asked for and is checked.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use media::{Scored, SummaryFrom, Understanding};
use models::words;
use tokio::time::{Instant, timeout, timeout_at};

use super::backend::{
    BackendError, CostHint, Delta, Finish, GenerateRequest, LanguageBackend, ScoreRequest,
};
use super::category::{Calibration, decide, softmax};
use super::inputs::{
    SUMMARY_SOURCE_WORDS_MIN, TextInputs, category_text, shortened, shown, summary_source,
    summary_text,
};
use super::prompt::{PromptShape, shape_of};

/// Longest sentence of the source that stands for a summary.
const SUMMARY_SENTENCE_WORDS_MAX: usize = 40;
/// Keywords of an answer.
const KEYWORDS_MAX: usize = 8;
/// Category lists whose calibration is kept; more of them are calibrated anew.
const CALIBRATIONS_MAX: usize = 32;

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct UnderstandSpec {
    /// Categories to choose from.
    pub categories: Vec<String>,
    /// Flags: name and what it means in words.
    pub flags: BTreeMap<String, String>,
    /// Longest summary; 0: none.
    pub summary_tokens_max: u32,
    /// Of the requests to the backend: lower goes first, below 0 interrupts others.
    pub priority: i32,
}

/// A category with the scores of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CategoryAnswer {
    /// None when the text supports none.
    pub category: Option<Arc<str>>,
    /// 0..1, together 1.
    pub scores: BTreeMap<Arc<str>, f32>,
}

/// A summary and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryAnswer {
    /// One line.
    pub text: String,
    /// Whose words they are.
    pub from: SummaryFrom,
    /// Whether text was left out of the question, or the answer was cut.
    pub truncated: bool,
}

/// What has been answered so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    /// None when not asked, or not answered in time.
    pub category: Option<CategoryAnswer>,
    /// None when not asked, or not answered in time.
    pub summary: Option<SummaryAnswer>,
    /// Age of the text behind the summary, in media time.
    pub summary_age_ms: i64,
    /// Raised flags; see [`super::flags_by_embedding`].
    pub flags: Vec<Scored>,
    /// Age of the newest text behind it, in media time.
    pub age_ms: i64,
}

/// Asks a backend about texts.
pub struct Understander {
    backend: Arc<dyn LanguageBackend>,
    shape: PromptShape,
    calibrations: Mutex<HashMap<Vec<String>, Arc<Calibration>>>,
}

impl Understander {
    /// Asks `backend` in the shape that suits its model.
    pub fn new(backend: Arc<dyn LanguageBackend>) -> Self {
        let shape = shape_of(backend.model());
        Understander { backend, shape, calibrations: Mutex::default() }
    }

    /// The backend behind it.
    pub fn backend(&self) -> &Arc<dyn LanguageBackend> {
        &self.backend
    }

    /// Does what is done once for a specification, so that the first answer is as quick as the others.
    ///
    /// # Errors
    /// What the backend said.
    pub async fn prepare(&self, spec: &UnderstandSpec) -> Result<(), BackendError> {
        if !spec.categories.is_empty() {
            self.calibration(spec).await?;
        }
        if spec.summary_tokens_max > 0 {
            // Computes the worked examples, which are shared from then on.
            let prompt = self.shape.summary_prompt("");
            self.backend.generate(GenerateRequest::new(prompt, 1)).await?.collect().await?;
        }
        Ok(())
    }

    /// What [`Understander::category`] will cost, the calibration left out.
    pub fn category_cost(&self, inputs: &TextInputs) -> CostHint {
        let text = category_text(inputs);
        let prefill_tokens = self.shape.category_prompt(&text).tokens_estimate() as u32;
        CostHint { prefill_tokens, decode_tokens: 0 }
    }

    /// What [`Understander::summary`] will cost at most, the worked examples left out.
    pub fn summary_cost(&self, inputs: &TextInputs, spec: &UnderstandSpec) -> CostHint {
        let (text, _) = summary_text(&summary_source(inputs));
        CostHint {
            prefill_tokens: text.len().div_ceil(4) as u32 + 4,
            decode_tokens: spec.summary_tokens_max,
        }
    }

    /// The category, by how much likelier the text makes each (Zhao and others, 2021: contextual calibration).
    /// None of the categories when the text supports none.
    ///
    /// # Errors
    /// `TimeLimit` after `time_left`, or what the backend said.
    pub async fn category(
        &self,
        inputs: &TextInputs,
        spec: &UnderstandSpec,
        time_left: Option<Duration>,
    ) -> Result<CategoryAnswer, BackendError> {
        if spec.categories.is_empty() || inputs.is_empty() {
            return Ok(CategoryAnswer::default());
        }
        let asked = async {
            let calibration = self.calibration(spec).await?;
            let text = category_text(inputs);
            let mut request = self.category_request(&text, spec);
            request.time_limit_ms = time_left.map(|t| t.as_millis() as u64);
            let scores = self.backend.score(request).await?;
            if scores.len() != spec.categories.len() {
                let (found, expected) = (scores.len(), spec.categories.len());
                let detail = format!("{found} scores for {expected} categories");
                return Err(BackendError::Failed { detail });
            }
            let labels: Vec<Arc<str>> =
                spec.categories.iter().map(|c| Arc::from(c.as_str())).collect();
            let (category, scores) = decide(&labels, &softmax(&calibration.gains(&scores), 1.0));
            Ok(CategoryAnswer { category, scores })
        };
        match time_left {
            None => asked.await,
            Some(limit) => timeout(limit, asked).await.unwrap_or(Err(BackendError::TimeLimit)),
        }
    }

    fn category_request(&self, text: &str, spec: &UnderstandSpec) -> ScoreRequest {
        ScoreRequest {
            prefix: self.shape.category_prompt(text),
            continuations: spec.categories.iter().map(|c| format!(" {c}")).collect(),
            priority: spec.priority,
            time_limit_ms: None,
        }
    }

    async fn calibration(&self, spec: &UnderstandSpec) -> Result<Arc<Calibration>, BackendError> {
        if let Some(calibration) = self.known_calibration(&spec.categories) {
            return Ok(calibration);
        }
        let mut rows = Vec::new();
        for text in self.shape.empty {
            rows.push(self.backend.score(self.category_request(text, spec)).await?);
        }
        let calibration = Arc::new(Calibration::new(&rows));
        self.keep_calibration(spec.categories.clone(), Arc::clone(&calibration));
        Ok(calibration)
    }

    fn keep_calibration(&self, categories: Vec<String>, calibration: Arc<Calibration>) {
        let mut known = self.calibrations.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= CALIBRATIONS_MAX {
            known.clear();
        }
        known.insert(categories, calibration);
    }

    fn known_calibration(&self, categories: &[String]) -> Option<Arc<Calibration>> {
        let known = self.calibrations.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(categories).map(Arc::clone)
    }

    /// One sentence that says what the text says. The model's words if the text supports them, else the text's
    /// best sentence. When `time_left` passes, what there is by then. None when there is nothing to summarise.
    ///
    /// # Errors
    /// What the backend said.
    pub async fn summary(
        &self,
        inputs: &TextInputs,
        spec: &UnderstandSpec,
        time_left: Option<Duration>,
    ) -> Result<Option<SummaryAnswer>, BackendError> {
        let source = summary_source(inputs);
        if spec.summary_tokens_max == 0 || inputs.is_empty() {
            return Ok(None);
        }
        let (text, cut) = summary_text(&source);
        if text.split_whitespace().count() < SUMMARY_SOURCE_WORDS_MIN {
            return Ok(Some(from_source(&source, cut)));
        }
        let mut request =
            GenerateRequest::new(self.shape.summary_prompt(&text), spec.summary_tokens_max);
        request.stop = vec!["\n".into()];
        request.priority = spec.priority;
        request.time_limit_ms = time_left.map(|t| t.as_millis() as u64);
        let (said, whole) = self.listen(request, time_left).await?;
        let said = shown(&if whole { said } else { shortened(&said) });
        let truncated = cut || !whole;
        if said.split_whitespace().count() >= 2 && words::supported_by(&said, &source) {
            return Ok(Some(SummaryAnswer { text: said, from: SummaryFrom::Model, truncated }));
        }
        Ok(Some(from_source(&source, truncated)))
    }

    /// Text that comes within the time, and whether the model was through.
    async fn listen(
        &self,
        request: GenerateRequest,
        time_left: Option<Duration>,
    ) -> Result<(String, bool), BackendError> {
        let end = time_left.map(|limit| Instant::now() + limit);
        let mut said = String::new();
        let mut answer = self.backend.generate(request).await?;
        loop {
            let next = match end {
                None => answer.next().await,
                Some(end) => match timeout_at(end, answer.next()).await {
                    Ok(next) => next,
                    Err(_) => return Ok((said, false)),
                },
            };
            match next {
                Some(Ok(Delta::Text(text))) => said.push_str(&text),
                Some(Ok(Delta::Logprobs(_))) => {}
                Some(Ok(Delta::End { finish, .. })) => return Ok((said, finish == Finish::Stop)),
                Some(Err(BackendError::TimeLimit)) => return Ok((said, false)),
                Some(Err(error)) => return Err(error),
                None => {
                    let detail = "the answer stopped without an end".to_owned();
                    return Err(BackendError::Failed { detail });
                }
            }
        }
    }

    /// Puts the parts together with what the words alone tell. Always valid: see [`media::Understanding`].
    pub fn assemble(
        &self,
        inputs: &TextInputs,
        spec: &UnderstandSpec,
        parts: Parts,
    ) -> Understanding {
        let whole = inputs.whole();
        let truncated = parts.summary.as_ref().is_some_and(|s| s.truncated);
        let CategoryAnswer { category, scores } = parts.category.unwrap_or_default();
        let known = |label: &Arc<str>| spec.categories.iter().any(|c| c.as_str() == &**label);
        let language = inputs
            .language
            .clone()
            .or_else(|| words::language_of_text(&whole).map(|found| found.language.to_owned()));
        let flags = parts.flags.into_iter().filter(|f| spec.flags.contains_key(&*f.label));
        Understanding {
            category: category.filter(known),
            scores: scores
                .into_iter()
                .filter(|(l, _)| known(l))
                .map(|(l, s)| (l, unit(s)))
                .collect(),
            summary_from: parts.summary.as_ref().map(|s| s.from),
            summary: parts.summary.map(|s| s.text),
            summary_age_ms: parts.summary_age_ms.max(0),
            sentiment: words::sentiment(&whole),
            flags: flags.map(|f| Scored { score: unit(f.score), ..f }).collect(),
            keywords: words::keywords(&whole, KEYWORDS_MAX),
            language,
            model: self.backend.model().to_owned(),
            backend: self.backend.name().to_owned(),
            age_ms: parts.age_ms.max(0),
            truncated,
        }
    }
}

fn unit(score: f32) -> f32 {
    if score.is_finite() { score.clamp(0.0, 1.0) } else { 0.0 }
}

fn from_source(source: &str, truncated: bool) -> SummaryAnswer {
    let best = shown(words::best_sentence(source).unwrap_or(source));
    let all: Vec<&str> = best.split_whitespace().collect();
    let kept = all.len().min(SUMMARY_SENTENCE_WORDS_MAX);
    let mut text = all[..kept].join(" ");
    if kept < all.len() {
        text.push('…');
    }
    let truncated = truncated || kept < all.len();
    SummaryAnswer { text, from: SummaryFrom::Source, truncated }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_sentence_of_the_source_is_cut_and_says_so() {
        let source = "word ".repeat(60);
        let summary = from_source(&source, false);
        assert!(summary.truncated && summary.text.ends_with('…'));
        assert_eq!(summary.text.split_whitespace().count(), SUMMARY_SENTENCE_WORDS_MAX);
        assert_eq!(summary.from, SummaryFrom::Source);
    }
}
