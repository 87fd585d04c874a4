//! One answer on its way: which token comes next, what it says, and whether the answer ends with it.
//!
//! Its neighbours are `task` (the request around it) and `serve` (which brings the logits). The one rule: it is
//! told the logits of each place once, so it goes on as if nothing had happened when its request gave up its
//! place meanwhile.

use std::sync::Arc;

use models::llama::{LlamaModel, Token, Utf8Stream};

use super::backend::{BackendError, Finish, GenerateRequest, TokenLogprob};
use super::check;
use super::hold::Hold;
use super::likelihood::{self, Candidate};
use super::sample::{Limits, Sampler};
use super::stop::StopScanner;

/// Log-likelihood of a token that can't be; JSON has no infinity. The number is vLLM's.
const LOGPROB_MIN: f64 = -9999.0;

/// The state of an answer.
#[derive(Debug)]
pub(super) struct Generating {
    tokens_max: usize,
    tokens_min: usize,
    ignore_end: bool,
    sampler: Sampler,
    hold: Hold,
    stop: StopScanner,
    stop_tokens: Vec<Token>,
    /// May not be chosen before there are `tokens_min`.
    early: Vec<Token>,
    logprobs: Option<usize>,
    likeliest: Vec<Candidate>,
    text: Utf8Stream,
    bytes: Vec<u8>,
}

/// What one more token says.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Goes on with this token; none at the end of the model's wish.
    pub(super) token: Option<Token>,
    /// Of the token, if asked for; comes before the text.
    pub(super) logprobs: Option<TokenLogprob>,
    /// To show.
    pub(super) text: String,
    /// How the answer ends, if it ends here.
    pub(super) end: Option<Result<Finish, BackendError>>,
}

impl Generating {
    /// # Errors
    /// `BadRequest` with what was found and what was expected.
    pub(super) fn new(
        model: &Arc<LlamaModel>,
        request: &GenerateRequest,
        prompt: &[Token],
    ) -> Result<Self, BackendError> {
        check::check(request)?;
        check_tokens(model, "stop_tokens", request.stop_tokens.iter())?;
        check_tokens(model, "logit_bias", request.sampling.logit_bias.keys())?;
        let mut early = model.end_tokens().to_vec();
        early.extend(&request.stop_tokens);
        Ok(Generating {
            tokens_max: request.tokens_max as usize,
            tokens_min: request.tokens_min as usize,
            ignore_end: request.ignore_end,
            sampler: Sampler::new(request.sampling.clone(), prompt),
            hold: Hold::new(model, request.constraint.as_ref())?,
            stop: StopScanner::new(request.stop.clone()),
            stop_tokens: request.stop_tokens.clone(),
            early,
            logprobs: request.logprobs.map(usize::from),
            likeliest: Vec::new(),
            text: Utf8Stream::new(),
            bytes: Vec::new(),
        })
    }

    /// Takes the logits after the last token; `generated` tokens came before.
    pub(super) fn advance(&mut self, model: &LlamaModel, logits: &[f32], generated: usize) -> Said {
        let ended = |end| Said { end: Some(end), ..Said::default() };
        let token = match self.choose(model, logits, generated) {
            Ok(token) => token.filter(|&t| !model.ends(t) && !self.stop_tokens.contains(&t)),
            Err(error) => return ended(Err(error)),
        };
        let Some(token) = token else {
            return Said { text: self.rest(Finish::Stop), ..ended(Ok(Finish::Stop)) };
        };
        let logprobs = self.logprobs.map(|n| self.logprob(model, logits, token, n));
        self.sampler.accept(token);
        let complete = match self.hold.accept(token) {
            Ok(complete) => complete,
            Err(error) => return ended(Err(error)),
        };
        let said = self.say(model, token, generated + 1, complete);
        Said { token: Some(token), logprobs, ..said }
    }

    /// None when only the end is left.
    fn choose(
        &mut self,
        model: &LlamaModel,
        logits: &[f32],
        generated: usize,
    ) -> Result<Option<Token>, BackendError> {
        let banned = match generated < self.tokens_min {
            true => self.early.as_slice(),
            false if self.ignore_end => model.end_tokens(),
            false => &[],
        };
        if self.sampler.is_greedy() && matches!(self.hold, Hold::Grammar(_)) {
            // The likeliest of all is the likeliest of those that are allowed, if it is allowed.
            let likeliest = self.sampler.choose(logits, Limits { allowed: None, banned });
            if likeliest.is_some_and(|t| self.hold.permits(t)) {
                return Ok(likeliest);
            }
        }
        let allowed = self.hold.allowed()?;
        match self.sampler.choose(logits, Limits { allowed: allowed.tokens, banned }) {
            Some(token) => Ok(Some(token)),
            None if allowed.end && allowed.tokens.is_some() => Ok(None),
            None => Err(BackendError::Failed {
                detail: "no token of the vocabulary may follow here".into(),
            }),
        }
    }

    fn logprob(
        &mut self,
        model: &LlamaModel,
        logits: &[f32],
        token: Token,
        n: usize,
    ) -> TokenLogprob {
        let log_sum = likelihood::log_sum_exp(logits);
        let bytes = |token| {
            let mut bytes = Vec::new();
            model.piece(token, &mut bytes);
            bytes
        };
        let logprob = |t| likelihood::log_likelihood(logits, log_sum, t).max(LOGPROB_MIN) as f32;
        likelihood::likeliest(logits, n, f32::MIN, &mut self.likeliest);
        self.likeliest.sort_unstable_by(likelihood::likelier);
        let top = self.likeliest.iter().map(|c| (c.token, bytes(c.token), logprob(c.token)));
        TokenLogprob { token, bytes: bytes(token), logprob: logprob(token), top: top.collect() }
    }

    fn say(&mut self, model: &LlamaModel, token: Token, generated: usize, complete: bool) -> Said {
        self.bytes.clear();
        model.piece(token, &mut self.bytes);
        let more = self.text.push(&self.bytes);
        let (mut text, stopped) = if generated <= self.tokens_min {
            (self.stop.pass(&more), false)
        } else {
            self.stop.push(&more)
        };
        let finish = match (stopped || complete, generated >= self.tokens_max) {
            (true, _) => Some(Finish::Stop),
            (false, true) => Some(Finish::Length),
            (false, false) => None,
        };
        if let Some(finish) = finish.filter(|_| !stopped) {
            text += &self.rest(finish);
        }
        Said { text, end: finish.map(Ok), ..Said::default() }
    }

    /// What is still held back. A character whose other bytes were cut off with the answer is left out.
    pub(super) fn rest(&mut self, finish: Finish) -> String {
        let unfinished = self.text.finish();
        let unfinished = if finish == Finish::Stop { unfinished } else { String::new() };
        let (mut text, stopped) = self.stop.push(&unfinished);
        if !stopped {
            text += &self.stop.finish();
        }
        text
    }
}

/// # Errors
/// `BadRequest` for a token that is not in the vocabulary.
pub(super) fn check_tokens<'a>(
    model: &LlamaModel,
    field: &str,
    mut tokens: impl Iterator<Item = &'a Token>,
) -> Result<(), BackendError> {
    let known = |&t: &Token| usize::try_from(t).is_ok_and(|t| t < model.vocabulary());
    match tokens.find(|t| !known(t)) {
        None => Ok(()),
        Some(token) => Err(BackendError::BadRequest {
            detail: format!("{field}: token {token}, expected 0 to {}", model.vocabulary() - 1),
        }),
    }
}
