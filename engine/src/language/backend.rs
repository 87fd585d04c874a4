//! The seam between whoever wants text and whatever runs a language model: an embedded engine, or a server
//! that speaks the OpenAI protocol.
//!
//! Its neighbours are `embedded` (one implementation) and `understand` (the user). The one rule: dropping a
//! [`Generation`] or a pending call cancels the work behind it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{BoxStream, Stream, StreamExt};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Runs a language model.
pub trait LanguageBackend: Send + Sync + 'static {
    /// Kind of backend, such as `embedded`.
    fn name(&self) -> &str;

    /// Name of the model it runs.
    fn model(&self) -> &str;

    /// Starts an answer. The future ends when the request is taken; the text comes from the [`Generation`].
    fn generate(&self, request: GenerateRequest)
    -> BoxFuture<'_, Result<Generation, BackendError>>;

    /// How likely each continuation is after the prefix, in the order given.
    fn score(&self, request: ScoreRequest) -> BoxFuture<'_, Result<Vec<Score>, BackendError>>;

    /// Whether it can take work now.
    fn health(&self) -> Health;

    /// Counts and measured rates, as last heard.
    fn stats(&self) -> EngineStats;

    /// Stops computing between two steps until [`LanguageBackend::resume`]; returns when it has. For those that compute
    /// on this machine's lanes; others go on.
    fn pause(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }

    /// Goes on computing.
    fn resume(&self) {}

    /// Makes sure that the model is loaded, where that happens on demand.
    fn open(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        std::future::ready(Ok(())).boxed()
    }

    /// What is known of the model once it is loaded; none before.
    fn info(&self) -> Option<Arc<ModelInfo>>;

    /// Tokens of `text`; `special`: whether control tokens in it count.
    fn tokenize(
        &self,
        text: String,
        special: bool,
    ) -> BoxFuture<'_, Result<Vec<i32>, BackendError>>;

    /// Text of `tokens`; broken characters become U+FFFD, control tokens nothing.
    fn detokenize(&self, tokens: Vec<i32>) -> BoxFuture<'_, Result<String, BackendError>>;
}

/// What a loaded model says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// Longest prompt and answer together, in tokens.
    pub context_tokens_max: u32,
    /// Size of the vocabulary.
    pub vocabulary: u32,
    /// Jinja source that turns chat messages into a prompt; none in base models.
    pub chat_template: Option<String>,
    /// The token every prompt starts with, as text; empty when the model wants none.
    pub start_text: String,
    /// The token that ends an answer, as text.
    pub end_text: String,
}

/// A piece of a prompt. Where a piece comes from decides how it is read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Written by this program: control tokens in it count.
    Template(String),
    /// From outside: `<|im_end|>` and the like in it are nothing but characters.
    Data(String),
    /// Tokens of this model.
    Tokens(Vec<i32>),
}

/// A prompt in pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Prompt {
    /// In order.
    pub parts: Vec<Part>,
    /// How many leading parts are known to come again. Beginnings are shared without it; with it they are kept
    /// longer than those that came once.
    #[serde(default)]
    pub reuse: usize,
}

impl Prompt {
    /// A prompt of one piece, written by this program.
    pub fn template(text: impl Into<String>) -> Self {
        Prompt { parts: vec![Part::Template(text.into())], reuse: 0 }
    }

    /// Rough length in tokens, for cost estimates before tokenising: four bytes a token.
    pub fn tokens_estimate(&self) -> usize {
        let estimate = |part: &Part| match part {
            Part::Template(text) | Part::Data(text) => text.len().div_ceil(4),
            Part::Tokens(tokens) => tokens.len(),
        };
        self.parts.iter().map(estimate).sum()
    }
}

/// What an answer is held to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Constraint {
    /// One of these texts.
    Choice(Vec<String>),
    /// A GBNF grammar with a rule `root`.
    Grammar(String),
    /// A JSON text on one line that this JSON Schema allows; `{}` allows any.
    Json(serde_json::Value),
    /// A text that this regular expression matches whole.
    Regex(String),
}

/// How the next token is drawn from the model's likelihoods; names and meanings as in vLLM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampling {
    /// 0: always the likeliest token.
    pub temperature: f32,
    /// Only the likeliest tokens that together have this probability; 1: all.
    pub top_p: f32,
    /// Only so many of the likeliest; 0: all.
    pub top_k: u32,
    /// Only tokens at least this fraction as likely as the likeliest; 0: all.
    pub min_p: f32,
    /// Taken from the logit of every token that the answer already has; -2 to 2.
    pub presence_penalty: f32,
    /// Taken once for each time the answer has the token; -2 to 2.
    pub frequency_penalty: f32,
    /// Divides positive and multiplies negative logits of tokens that prompt or answer have; 1: none.
    pub repetition_penalty: f32,
    /// Added to the logits of these tokens; -100 to 100.
    #[serde(deserialize_with = "super::wire::bias_by_token")]
    pub logit_bias: BTreeMap<i32, f32>,
    /// The same seed gives the same answer; none: another one each time.
    pub seed: Option<u64>,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            logit_bias: BTreeMap::new(),
            seed: None,
        }
    }
}

/// How likely a token of an answer was, before penalties, limits and temperature.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    /// Which token.
    pub token: i32,
    /// Its bytes; may be part of a character.
    pub bytes: Vec<u8>,
    /// Natural log-likelihood.
    pub logprob: f32,
    /// The likeliest tokens at its place, likeliest first, as many as were asked for.
    pub top: Vec<(i32, Vec<u8>, f32)>,
}

/// A wish for an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerateRequest {
    /// What to go on from.
    pub prompt: Prompt,
    /// Longest answer, in tokens.
    pub tokens_max: u32,
    /// Texts that end the answer; not part of it.
    #[serde(default)]
    pub stop: Vec<String>,
    /// Tokens that end the answer; not part of it.
    #[serde(default)]
    pub stop_tokens: Vec<i32>,
    /// Goes on although the model would end the answer, up to `tokens_max`.
    #[serde(default)]
    pub ignore_end: bool,
    /// The answer does not end before it has so many tokens.
    #[serde(default)]
    pub tokens_min: u32,
    /// How tokens are drawn.
    #[serde(default)]
    pub sampling: Sampling,
    /// Log-likelihoods of the answer's tokens are wanted, with this many of the likeliest at each place (0 to 20).
    #[serde(default)]
    pub logprobs: Option<u8>,
    /// Requests with different salts share no computed prefix.
    #[serde(default)]
    pub cache_salt: Option<String>,
    /// Lower goes first; below 0 is urgent and interrupts a running step of the others.
    #[serde(default)]
    pub priority: i32,
    /// The answer ends at this age, with what there is.
    #[serde(default)]
    pub time_limit_ms: Option<u64>,
    /// What the answer is held to.
    #[serde(default)]
    pub constraint: Option<Constraint>,
}

impl GenerateRequest {
    /// Greedy, normal priority, no stop texts, no limit on time.
    pub fn new(prompt: Prompt, tokens_max: u32) -> Self {
        GenerateRequest {
            prompt,
            tokens_max,
            stop: Vec::new(),
            stop_tokens: Vec::new(),
            ignore_end: false,
            tokens_min: 0,
            sampling: Sampling::default(),
            logprobs: None,
            cache_salt: None,
            priority: 0,
            time_limit_ms: None,
            constraint: None,
        }
    }
}

/// A question how likely some texts are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoreRequest {
    /// What they would follow.
    pub prefix: Prompt,
    /// The texts, each usually with its leading blank.
    pub continuations: Vec<String>,
    /// Lower goes first; below 0 is urgent.
    #[serde(default)]
    pub priority: i32,
    /// Refused when it can't be answered by this age.
    #[serde(default)]
    pub time_limit_ms: Option<u64>,
}

/// How likely a text is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Sum of its tokens' natural log-likelihoods.
    pub log_likelihood: f64,
    /// How many tokens it has.
    pub tokens: u32,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model ended it, or a stop text came, or the constraint is met.
    Stop,
    /// `tokens_max` was reached.
    Length,
    /// `time_limit_ms` passed.
    TimeLimit,
}

/// What a request cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt (and of the continuations of a score).
    pub prompt_tokens: u32,
    /// How many of them were already computed.
    pub cached_tokens: u32,
    /// Tokens generated.
    pub completion_tokens: u32,
    /// Wait for a place.
    pub queue_ms: f64,
    /// Place to the first logits.
    pub prefill_ms: f64,
    /// First logits to the end.
    pub decode_ms: f64,
}

/// Counts and rates of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineStats {
    /// Requests in the batch.
    pub running: u32,
    /// Requests that wait for a place.
    pub waiting: u32,
    /// Measured over recent steps that only read prompts; 0 before the first.
    pub prefill_tokens_per_s: f64,
    /// Measured over recent steps of one sequence that only generated; 0 before the first.
    pub decode_tokens_per_s: f64,
    /// Cells in use or promised, in blocks of 16; those that are kept of ended requests included.
    pub cells_used: u32,
    /// Those of them that no running request holds: computed beginnings, kept until others need the room.
    pub cells_cached: u32,
    /// Cells of the pool.
    pub cells: u32,
    /// Sequences that are kept to share beginnings of, or for requests that gave up their place.
    pub prefixes: u32,
    /// Requests that looked for a computed beginning, each once.
    pub prefix_queries: u64,
    /// Prompt tokens that were not computed again.
    pub prefix_tokens_hit: u64,
    /// Steps that an urgent arrival interrupted.
    pub aborts: u64,
    /// Tokens that these had computed and lost, or not begun: the work that comes again.
    pub abort_tokens: u64,
    /// Requests that gave up their place to a more urgent one and came back.
    pub preemptions: u64,
    /// Steps so far.
    pub steps: u64,
    /// Time of the longest but one in a hundred of the last 256 steps; 0 before the first.
    pub step_ms_p99: f64,
    /// The longest of them.
    pub step_ms_max: f64,
    /// Prompt tokens that the last step could read.
    pub chunk_tokens: u32,
    /// Arrival of an urgent request to the start of its first step, median of the last 256; 0 before the first.
    pub urgent_wait_ms_p50: f64,
    /// The longest but one in a hundred of them.
    pub urgent_wait_ms_p99: f64,
    /// Age of the running step; 0 between steps.
    pub step_age_ms: u64,
    /// Resident memory of the engine's process.
    pub resident_mb: u32,
    /// Starts of the process after the first.
    pub restarts: u32,
    /// Replacements of a process by a fresh one.
    pub recycled: u32,
}

/// Whether a backend can take work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Loading weights.
    Loading,
    /// Takes work.
    Ready,
    /// Does not; tries again.
    Down {
        /// What happened.
        detail: String,
    },
}

/// Why a backend gave no answer.
#[derive(Clone, Debug, Error, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BackendError {
    /// Its queue is full.
    #[error("language engine is busy: {waiting} requests wait, try again in {retry_after_ms} ms")]
    Busy {
        /// How many wait.
        waiting: u32,
        /// When a place may be free.
        retry_after_ms: u64,
    },
    /// It is loading or being restarted.
    #[error("language engine is not available ({detail}), try again in {retry_after_ms} ms")]
    Unavailable {
        /// What happened.
        detail: String,
        /// When it may be back.
        retry_after_ms: u64,
    },
    /// It ended while it worked on this request.
    #[error("language engine ended while answering: {detail}")]
    Died {
        /// How, with its last words.
        detail: String,
    },
    /// The request does not fit the context.
    #[error("the prompt and its answer take {tokens} tokens, the context holds {limit}")]
    TooLong {
        /// Prompt and longest answer.
        tokens: u32,
        /// What fits.
        limit: u32,
    },
    /// The request can't be understood.
    #[error("bad request: {detail}")]
    BadRequest {
        /// What was found and what was expected.
        detail: String,
    },
    /// The time limit passed before there was an answer.
    #[error("no answer within the time limit")]
    TimeLimit,
    /// The model failed.
    #[error("language model failed: {detail}")]
    Failed {
        /// What it said.
        detail: String,
    },
}

impl BackendError {
    /// Whether the same request can succeed later or elsewhere.
    pub fn is_transient(&self) -> bool {
        !matches!(self, BackendError::TooLong { .. } | BackendError::BadRequest { .. })
    }
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// More text, whole characters.
    Text(String),
    /// The tokens behind the text that follows, when log-likelihoods were asked for. Text may come later than
    /// its tokens, since it is held back until it can't become a stop text or half a character.
    Logprobs(Vec<TokenLogprob>),
    /// The last item.
    End {
        /// Why.
        finish: Finish,
        /// What it cost.
        usage: Usage,
    },
}

/// An answer on its way. Dropping it cancels the request.
pub struct Generation(BoxStream<'static, Result<Delta, BackendError>>);

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// All of it.
    pub text: String,
    /// Why it ended.
    pub finish: Finish,
    /// What it cost.
    pub usage: Usage,
}

impl Generation {
    /// From a stream that ends with `End` or an error, and cancels when dropped.
    pub fn new(stream: impl Stream<Item = Result<Delta, BackendError>> + Send + 'static) -> Self {
        Generation(stream.boxed())
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// What the backend said.
    pub async fn collect(mut self) -> Result<Answer, BackendError> {
        let mut text = String::new();
        while let Some(delta) = self.0.next().await {
            match delta? {
                Delta::Text(more) => text.push_str(&more),
                Delta::Logprobs(_) => {}
                Delta::End { finish, usage } => return Ok(Answer { text, finish, usage }),
            }
        }
        Err(BackendError::Failed { detail: "the answer stopped without an end".into() })
    }
}

impl Stream for Generation {
    type Item = Result<Delta, BackendError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

/// What a call will cost, for whoever leases compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostHint {
    /// Tokens to read that are not shared already, as far as is known.
    pub prefill_tokens: u32,
    /// Tokens to write at most.
    pub decode_tokens: u32,
}

impl CostHint {
    /// Expected time at the engine's measured rates; before anything was measured, at `token` a prompt token and three
    /// times that a generated one.
    pub fn duration_or(self, stats: &EngineStats, token: Duration) -> Duration {
        let tokens = self.prefill_tokens.saturating_add(self.decode_tokens.saturating_mul(3));
        self.duration(stats).unwrap_or_else(|| token.saturating_mul(tokens))
    }

    /// Expected time at the engine's measured rates; none before anything was measured.
    pub fn duration(self, stats: &EngineStats) -> Option<Duration> {
        let time = |tokens: u32, rate: f64| match (tokens, rate) {
            (0, _) => Some(0.0),
            (n, r) if r > 0.0 => Some(f64::from(n) / r),
            _ => None,
        };
        let seconds = time(self.prefill_tokens, stats.prefill_tokens_per_s)?
            + time(self.decode_tokens, stats.decode_tokens_per_s)?;
        Duration::try_from_secs_f64(seconds).ok()
    }
}
