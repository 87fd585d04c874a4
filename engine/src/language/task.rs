//! One request inside the engine: what was asked, how far it is, and what it says next.

use media::Mono;
use models::llama::{Grammar, LlamaModel, Token, Utf8Stream};
use std::sync::Arc;
use std::time::Duration;

use super::backend::{
    BackendError, Constraint, Finish, GenerateRequest, Part, Prompt, Score, ScoreRequest, Usage,
};
use super::rank::Turn;
use super::sample::{self, Choices, Random};
use super::stop::StopScanner;

/// Most continuations of a score, and most texts of a choice.
const CHOICES_MAX: usize = 256;
/// Log-likelihood of what can't be.
const IMPOSSIBLE: f64 = -1e9;
/// Most stop texts of a request.
const STOPS_MAX: usize = 16;

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

/// The state of an answer.
#[derive(Debug)]
pub(super) struct Generating {
    tokens_max: usize,
    temperature: f32,
    random: Random,
    text: Utf8Stream,
    stop: StopScanner,
    hold: Hold,
    bytes: Vec<u8>,
}

#[derive(Debug)]
enum Hold {
    Free,
    Choice(Choices),
    Grammar(Grammar),
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

/// Text to show and whether the answer ends with it.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) text: String,
    pub(super) finish: Option<Finish>,
}

impl Task {
    pub(super) fn generate(
        model: &Arc<LlamaModel>,
        bounds: Bounds,
        id: u64,
        now: Mono,
        request: GenerateRequest,
    ) -> Result<Task, BackendError> {
        let GenerateRequest { prompt, tokens_max, stop, sampling, .. } = &request;
        let temperature = &sampling.temperature;
        let bad = |detail: String| Err(BackendError::BadRequest { detail });
        if *tokens_max == 0 {
            return bad("tokens_max is 0, expected at least 1".into());
        }
        if stop.len() > STOPS_MAX {
            return bad(format!("{} stop texts, expected at most {STOPS_MAX}", stop.len()));
        }
        if !temperature.is_finite() || *temperature < 0.0 {
            return bad(format!("temperature is {temperature}, expected 0 or more"));
        }
        let hold = match &request.constraint {
            None => Hold::Free,
            Some(_) if *temperature > 0.0 => {
                return bad("a constraint goes with temperature 0 only".into());
            }
            Some(Constraint::Choice(texts)) => {
                let choices = tokens_of_each(model, texts)?;
                Hold::Choice(Choices::new(choices))
            }
            Some(Constraint::Grammar(gbnf)) => Hold::Grammar(
                Grammar::new(Arc::clone(model), gbnf)
                    .map_err(|e| BackendError::BadRequest { detail: e.to_string() })?,
            ),
            Some(Constraint::Json(_) | Constraint::Regex(_)) => {
                return bad("JSON schemas and regular expressions are not known".into());
            }
        };
        let generating = Generating {
            tokens_max: *tokens_max as usize,
            temperature: *temperature,
            random: Random(sampling.seed.unwrap_or(0)),
            text: Utf8Stream::new(),
            stop: StopScanner::new(stop.clone()),
            hold,
            bytes: Vec::new(),
        };
        let extra = generating.tokens_max;
        let kind = Kind::Generate(Box::new(generating));
        let mut task = Task::new(model, id, now, prompt, kind)?;
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
        let mut task = Task::new(model, id, now, &request.prefix, kind)?;
        task.limit(
            bounds,
            tails.min(bounds.continuation_max),
            request.priority,
            request.time_limit_ms,
        )?;
        Ok(task)
    }

    fn new(
        model: &LlamaModel,
        id: u64,
        now: Mono,
        prompt: &Prompt,
        kind: Kind,
    ) -> Result<Task, BackendError> {
        let mut tokens: Vec<Token> = model.start_token().into_iter().collect();
        let mut reuse = 0;
        for (i, part) in prompt.parts.iter().enumerate() {
            match part {
                Part::Template(text) => tokens.extend(tokens_of(model, text, true)?),
                Part::Data(text) => tokens.extend(tokens_of(model, text, false)?),
                Part::Tokens(known) => tokens.extend(checked(model, known)?),
            }
            if i < prompt.reuse {
                reuse = tokens.len();
            }
        }
        if tokens.is_empty() {
            return Err(BackendError::BadRequest { detail: "the prompt is empty".into() });
        }
        Ok(Task::of(id, now, tokens, reuse, kind))
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
                let Some(token) = generating.choose(model, logits).filter(|&t| !model.ends(t))
                else {
                    return Said { text: generating.rest(), finish: Some(Finish::Stop) };
                };
                self.tokens.push(token);
                generating.say(model, token, self.tokens.len() - self.prompt_len)
            }
        }
    }

    /// What is still held back when it ends early.
    pub(super) fn rest(&mut self) -> String {
        match &mut self.kind {
            Kind::Generate(generating) => generating.rest(),
            Kind::Score(_) => String::new(),
        }
    }
}

impl Generating {
    fn choose(&mut self, model: &LlamaModel, logits: &[f32]) -> Option<Token> {
        match &mut self.hold {
            Hold::Free if self.temperature > 0.0 => {
                Some(sample::draw(logits, self.temperature, &mut self.random))
            }
            Hold::Free => Some(sample::greedy(logits)),
            Hold::Choice(choices) => {
                sample::greedy_among(logits, &choices.allowed(model.end_token()))
            }
            Hold::Grammar(grammar) => grammar.best(logits),
        }
    }

    fn say(&mut self, model: &LlamaModel, token: Token, generated: usize) -> Said {
        let complete = match &mut self.hold {
            Hold::Free => false,
            Hold::Choice(choices) => choices.accept(token),
            Hold::Grammar(grammar) => {
                grammar.accept(token);
                false
            }
        };
        self.bytes.clear();
        model.piece(token, &mut self.bytes);
        let (mut text, stopped) = self.stop.push(&self.text.push(&self.bytes));
        let finish = match (stopped || complete, generated >= self.tokens_max) {
            (true, _) => Some(Finish::Stop),
            (false, true) => Some(Finish::Length),
            (false, false) => None,
        };
        if finish.is_some() && !stopped {
            text += &self.rest();
        }
        Said { text, finish }
    }

    fn rest(&mut self) -> String {
        let unfinished = self.text.finish();
        let (mut text, stopped) = self.stop.push(&unfinished);
        if !stopped {
            text += &self.stop.finish();
        }
        text
    }
}

impl Scoring {
    fn begin(&mut self, logits: &[f32]) {
        let log_sum = sample::log_sum_exp(logits);
        for (continuation, sum) in self.continuations.iter().zip(&mut self.sums) {
            *sum = sample::log_likelihood(logits, log_sum, continuation[0]);
        }
        self.next = Some(self.skip(0));
    }

    /// A row inside a continuation decides how likely its next token is.
    pub(super) fn add(&mut self, continuation: usize, token: usize, logits: &[f32]) {
        let next = self.continuations.get(continuation).and_then(|c| c.get(token));
        if let (Some(&next), Some(sum)) = (next, self.sums.get_mut(continuation)) {
            *sum += sample::log_likelihood(logits, sample::log_sum_exp(logits), next);
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

fn tokens_of(model: &LlamaModel, text: &str, special: bool) -> Result<Vec<Token>, BackendError> {
    let bad = |e: models::ModelError| BackendError::BadRequest { detail: e.to_string() };
    model.tokenise(text, special).map_err(bad)
}

fn tokens_of_each(model: &LlamaModel, texts: &[String]) -> Result<Vec<Vec<Token>>, BackendError> {
    let bad = |detail: String| BackendError::BadRequest { detail };
    if texts.is_empty() || texts.len() > CHOICES_MAX {
        return Err(bad(format!("{} texts, expected 1 to {CHOICES_MAX}", texts.len())));
    }
    let tokens = texts.iter().map(|text| {
        let tokens = tokens_of(model, text, false)?;
        if tokens.is_empty() { Err(bad("an empty text".into())) } else { Ok(tokens) }
    });
    tokens.collect()
}

fn checked<'a>(model: &LlamaModel, tokens: &'a [Token]) -> Result<&'a [Token], BackendError> {
    let known = |&t: &Token| usize::try_from(t).is_ok_and(|t| t < model.vocabulary());
    match tokens.iter().find(|t| !known(t)) {
        None => Ok(tokens),
        Some(token) => Err(BackendError::BadRequest {
            detail: format!("token {token}, expected 0 to {}", model.vocabulary() - 1),
        }),
    }
}
