//! One request inside the engine: what was asked, how far it is, and what it says next.

use media::Mono;
use models::llama::{LlamaModel, Token};
use std::sync::Arc;
use std::time::Duration;

use super::answer::{Generating, Said, check_tokens};
use super::backend::{
    BackendError, Finish, GenerateRequest, Part, Prompt, Score, ScoreRequest, Usage,
};
use super::hold::tokens_of_each;
use super::likelihood;
use super::rank::Turn;

/// Log-likelihood of what can't be.
const IMPOSSIBLE: f64 = -1e9;

/// A request on its way.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) id: u64,
    pub(super) turn: Turn,
    pub(super) until: Option<Mono>,
    pub(super) enqueued: Mono,
    pub(super) started: Option<Mono>,
    pub(super) first: Option<Mono>,
    /// The prompt and what was generated.
    pub(super) tokens: Vec<Token>,
    pub(super) prompt_len: usize,
    /// Leading tokens that are known to come again.
    pub(super) reuse: usize,
    /// Shares computed beginnings with its like only.
    pub(super) salt: Option<Arc<str>>,
    /// Most tokens it can come to.
    pub(super) reserve: usize,
    /// Where its tokens are, once it runs.
    pub(super) seq: u32,
    /// Tokens of it that are computed.
    pub(super) computed: usize,
    pub(super) cached: usize,
    /// Whether it was in a step.
    pub(super) stepped: bool,
    pub(super) kind: Kind,
}

/// What is wanted.
#[derive(Debug)]
pub(super) enum Kind {
    Generate(Box<Generating>),
    Score(Scoring),
}

/// The state of a score. The first token of every continuation comes from the prefix's own logits.
#[derive(Debug)]
pub(super) struct Scoring {
    pub(super) continuations: Vec<Vec<Token>>,
    pub(super) sums: Vec<f64>,
    /// Continuations before this one are done; none before the prefix is computed.
    pub(super) next: Option<usize>,
}

/// Limits a request is checked against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Prompt and answer together.
    pub(super) tokens_max: usize,
    /// One continuation of a score.
    pub(super) continuation_max: usize,
}

impl Task {
    pub(super) fn generate(
        model: &Arc<LlamaModel>,
        bounds: Bounds,
        id: u64,
        now: Mono,
        request: GenerateRequest,
    ) -> Result<Task, BackendError> {
        let (tokens, reuse) = tokens_of_prompt(model, &request.prompt)?;
        let generating = Generating::new(model, &request, &tokens)?;
        let mut task = Task::of(id, now, tokens, reuse, Kind::Generate(Box::new(generating)));
        let extra = request.tokens_max as usize;
        task.limit(bounds, extra, request.priority, request.time_limit_ms)?;
        task.salt = request.cache_salt.map(Arc::from);
        Ok(task)
    }

    pub(super) fn score(
        model: &Arc<LlamaModel>,
        bounds: Bounds,
        id: u64,
        now: Mono,
        request: &ScoreRequest,
    ) -> Result<Task, BackendError> {
        let continuations = tokens_of_each(model, &request.continuations)?;
        let longest = continuations.iter().map(Vec::len).max().unwrap_or(0);
        if longest > bounds.continuation_max {
            return Err(BackendError::TooLong {
                tokens: longest as u32,
                limit: bounds.continuation_max as u32,
            });
        }
        let sums = vec![0.0; continuations.len()];
        let tails: usize = continuations.iter().map(|c| c.len() - 1).sum();
        let kind = Kind::Score(Scoring { continuations, sums, next: None });
        let (tokens, reuse) = tokens_of_prompt(model, &request.prefix)?;
        let mut task = Task::of(id, now, tokens, reuse, kind);
        task.limit(
            bounds,
            tails.min(bounds.continuation_max),
            request.priority,
            request.time_limit_ms,
        )?;
        Ok(task)
    }

    /// A request of which nothing is computed.
    pub(super) fn of(id: u64, now: Mono, tokens: Vec<Token>, reuse: usize, kind: Kind) -> Task {
        Task {
            id,
            turn: Turn::new(0, now),
            until: None,
            enqueued: now,
            started: None,
            first: None,
            prompt_len: tokens.len(),
            reuse,
            salt: None,
            reserve: 0,
            tokens,
            seq: 0,
            computed: 0,
            cached: 0,
            stepped: false,
            kind,
        }
    }

    fn limit(
        &mut self,
        bounds: Bounds,
        extra: usize,
        priority: i32,
        time_limit_ms: Option<u64>,
    ) -> Result<(), BackendError> {
        self.reserve = self.prompt_len.saturating_add(extra);
        self.turn = Turn::new(priority, self.enqueued);
        self.until = time_limit_ms.map(|ms| self.enqueued + Duration::from_millis(ms));
        if self.reserve > bounds.tokens_max {
            return Err(BackendError::TooLong {
                tokens: u32::try_from(self.reserve).unwrap_or(u32::MAX),
                limit: bounds.tokens_max as u32,
            });
        }
        Ok(())
    }

    /// Tokens that are not computed yet.
    pub(super) fn behind(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// Whether its next step is one token of its answer.
    pub(super) fn generates(&self) -> bool {
        self.behind() == 1 && self.tokens.len() > self.prompt_len
    }

    /// Nothing of it is computed any more; what it said stays said.
    pub(super) fn start_over(&mut self) {
        self.computed = 0;
        if let Kind::Score(scoring) = &mut self.kind {
            scoring.next = None;
        }
    }

    /// What it cost so far.
    pub(super) fn usage(&self, now: Mono) -> Usage {
        let started = self.started.unwrap_or(now);
        let first = self.first.unwrap_or(now);
        let continuations = match &self.kind {
            Kind::Generate(_) => 0,
            Kind::Score(s) => s.continuations.iter().map(Vec::len).sum(),
        };
        Usage {
            prompt_tokens: (self.prompt_len + continuations) as u32,
            cached_tokens: self.cached as u32,
            completion_tokens: (self.tokens.len() - self.prompt_len) as u32,
            queue_ms: started.ms_since(self.enqueued),
            prefill_ms: first.ms_since(started),
            decode_ms: now.ms_since(first),
        }
    }

    /// Takes the logits after its last token.
    pub(super) fn advance(&mut self, model: &LlamaModel, logits: &[f32]) -> Said {
        match &mut self.kind {
            Kind::Score(scoring) => {
                scoring.begin(logits);
                Said::default()
            }
            Kind::Generate(generating) => {
                let said = generating.advance(model, logits, self.tokens.len() - self.prompt_len);
                self.tokens.extend(said.token);
                said
            }
        }
    }

    /// What is still held back when it ends early.
    pub(super) fn rest(&mut self) -> String {
        match &mut self.kind {
            Kind::Generate(generating) => generating.rest(Finish::TimeLimit),
            Kind::Score(_) => String::new(),
        }
    }
}

impl Scoring {
    fn begin(&mut self, logits: &[f32]) {
        let log_sum = likelihood::log_sum_exp(logits);
        for (continuation, sum) in self.continuations.iter().zip(&mut self.sums) {
            *sum = likelihood::log_likelihood(logits, log_sum, continuation[0]);
        }
        self.next = Some(self.skip(0));
    }

    /// A row inside a continuation decides how likely its next token is.
    pub(super) fn add(&mut self, continuation: usize, token: usize, logits: &[f32]) {
        let next = self.continuations.get(continuation).and_then(|c| c.get(token));
        if let (Some(&next), Some(sum)) = (next, self.sums.get_mut(continuation)) {
            *sum += likelihood::log_likelihood(logits, likelihood::log_sum_exp(logits), next);
        }
    }

    /// The first continuation from `from` on with more than one token.
    pub(super) fn skip(&self, from: usize) -> usize {
        let rest = self.continuations.get(from..).unwrap_or_default();
        from + rest.iter().take_while(|c| c.len() == 1).count()
    }

    /// Continuations of the next round: at most `count`, together at most `tokens` to compute.
    pub(super) fn round(&self, count: usize, tokens: usize) -> std::ops::Range<usize> {
        let Some(start) = self.next else { return 0..0 };
        let (mut end, mut used) = (start, 0);
        for (n, continuation) in self.continuations[start..].iter().enumerate() {
            used += continuation.len() - 1;
            if n == count || used > tokens {
                break;
            }
            end += 1;
        }
        start..end
    }

    pub(super) fn is_done(&self) -> bool {
        self.next.is_some_and(|n| n >= self.continuations.len())
    }

    pub(super) fn scores(&self) -> Vec<Score> {
        let each = self.continuations.iter().zip(&self.sums);
        // JSON has no infinity: an impossible text is very unlikely.
        let finite = |sum: f64| if sum.is_finite() { sum } else { IMPOSSIBLE };
        let score = |(c, &sum): (&Vec<Token>, &f64)| Score {
            log_likelihood: finite(sum),
            tokens: c.len() as u32,
        };
        each.map(score).collect()
    }
}

/// Tokens of a prompt, and how many of them come again in later requests.
fn tokens_of_prompt(
    model: &LlamaModel,
    prompt: &Prompt,
) -> Result<(Vec<Token>, usize), BackendError> {
    let tokens_of = |text: &str, special: bool| {
        let bad = |e: models::ModelError| BackendError::BadRequest { detail: e.to_string() };
        model.tokenise(text, special).map_err(bad)
    };
    let mut tokens: Vec<Token> = model.start_token().into_iter().collect();
    let mut reuse = 0;
    for (i, part) in prompt.parts.iter().enumerate() {
        match part {
            Part::Template(text) => tokens.extend(tokens_of(text, true)?),
            Part::Data(text) => tokens.extend(tokens_of(text, false)?),
            Part::Tokens(known) => {
                check_tokens(model, "prompt", known.iter())?;
                tokens.extend(known);
            }
        }
        if i < prompt.reuse {
            reuse = tokens.len();
        }
    }
    if tokens.is_empty() {
        return Err(BackendError::BadRequest { detail: "the prompt is empty".into() });
    }
    Ok((tokens, reuse))
}
