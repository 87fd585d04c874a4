//! What an answer is held to, and how far it has come in it: which tokens may follow.
//!
//! Its neighbour is `answer`, which asks before each token and tells what was chosen. The one rule: what was
//! not allowed is never accepted.

use std::sync::Arc;

use models::llama::{ConstraintError, Grammar, Guide, LlamaModel, Token};

use super::backend::{BackendError, Constraint};
use super::check::CHOICES_MAX;

/// The constraint of one answer.
#[derive(Debug)]
pub(super) enum Hold {
    /// Anything goes.
    Free,
    /// One of some texts.
    Choice(Choices),
    /// GBNF, by llama.cpp.
    Grammar(Grammar),
    /// A JSON schema or a regular expression, by llguidance.
    Guide(Box<Guide>),
}

/// What may follow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed<'a> {
    /// One bit a token, lowest bit first; none: all.
    pub(super) tokens: Option<&'a [u32]>,
    /// Whether the answer may end here.
    pub(super) end: bool,
}

impl Hold {
    /// # Errors
    /// `BadRequest` with what is wrong with the constraint.
    pub(super) fn new(
        model: &Arc<LlamaModel>,
        constraint: Option<&Constraint>,
    ) -> Result<Self, BackendError> {
        let bad = |e: ConstraintError| BackendError::BadRequest { detail: e.to_string() };
        Ok(match constraint {
            None => Hold::Free,
            Some(Constraint::Choice(texts)) => {
                Hold::Choice(Choices::new(tokens_of_each(model, texts)?, model))
            }
            Some(Constraint::Grammar(gbnf)) => {
                Hold::Grammar(Grammar::new(Arc::clone(model), gbnf).map_err(bad)?)
            }
            Some(Constraint::Json(schema)) => {
                Hold::Guide(Box::new(Guide::json(model, schema).map_err(bad)?))
            }
            Some(Constraint::Regex(expression)) => {
                Hold::Guide(Box::new(Guide::regex(model, expression).map_err(bad)?))
            }
        })
    }

    /// # Errors
    /// `Failed` when the constraint has become too costly to follow.
    pub(super) fn allowed(&mut self) -> Result<Allowed<'_>, BackendError> {
        match self {
            Hold::Free => Ok(Allowed { tokens: None, end: true }),
            Hold::Choice(choices) => Ok(choices.allowed()),
            Hold::Grammar(grammar) => {
                let end = grammar.may_end();
                Ok(Allowed { tokens: Some(grammar.allowed()), end })
            }
            Hold::Guide(guide) => {
                let end = guide.may_end().map_err(failed)?;
                Ok(Allowed { tokens: Some(guide.allowed().map_err(failed)?), end })
            }
        }
    }

    /// Whether `token` may follow, where that is much cheaper to find out than all that may.
    pub(super) fn permits(&mut self, token: Token) -> bool {
        match self {
            Hold::Grammar(grammar) => grammar.permits(token),
            Hold::Free | Hold::Choice(_) | Hold::Guide(_) => false,
        }
    }

    /// Goes on with `token`; whether only the end may follow.
    ///
    /// # Errors
    /// As [`Hold::allowed`].
    pub(super) fn accept(&mut self, token: Token) -> Result<bool, BackendError> {
        match self {
            Hold::Free => Ok(false),
            Hold::Choice(choices) => Ok(choices.accept(token)),
            Hold::Grammar(grammar) => Ok(grammar.accept(token)),
            Hold::Guide(guide) => guide.accept(token).map_err(failed),
        }
    }
}

fn failed(error: ConstraintError) -> BackendError {
    BackendError::Failed { detail: error.to_string() }
}

/// Tokens of each text, control tokens as plain characters.
///
/// # Errors
/// `BadRequest` for no texts, too many, or an empty one.
pub(super) fn tokens_of_each(
    model: &LlamaModel,
    texts: &[String],
) -> Result<Vec<Vec<Token>>, BackendError> {
    let bad = |detail: String| BackendError::BadRequest { detail };
    if texts.is_empty() || texts.len() > CHOICES_MAX {
        return Err(bad(format!("{} texts, expected 1 to {CHOICES_MAX}", texts.len())));
    }
    let tokens = texts.iter().map(|text| {
        let tokens = model.tokenise(text, false).map_err(|e| bad(e.to_string()))?;
        if tokens.is_empty() { Err(bad("an empty text".into())) } else { Ok(tokens) }
    });
    tokens.collect()
}

/// The texts an answer may be, as tokens, and how far it has come.
#[derive(Clone, Debug)]
pub(super) struct Choices {
    left: Vec<Vec<Token>>,
    at: usize,
    ends: Vec<Token>,
    bits: Vec<u32>,
}

impl Choices {
    fn new(choices: Vec<Vec<Token>>, model: &LlamaModel) -> Self {
        Choices::of(choices, model.end_tokens().to_vec(), model.vocabulary())
    }

    fn of(choices: Vec<Vec<Token>>, ends: Vec<Token>, vocabulary: usize) -> Self {
        Choices { left: choices, at: 0, ends, bits: vec![0; vocabulary.div_ceil(32)] }
    }

    fn allowed(&mut self) -> Allowed<'_> {
        self.bits.fill(0);
        let end = self.left.iter().any(|c| c.len() == self.at);
        let next = self.left.iter().filter_map(|c| c.get(self.at));
        for &token in next.chain(self.ends.iter().filter(|_| end)) {
            let at = usize::try_from(token).unwrap_or(usize::MAX);
            if let Some(word) = self.bits.get_mut(at / 32) {
                *word |= 1 << (at % 32);
            }
        }
        Allowed { tokens: Some(&self.bits), end }
    }

    fn accept(&mut self, token: Token) -> bool {
        let at = self.at;
        self.left.retain(|c| c.get(at) == Some(&token));
        self.at += 1;
        self.left.iter().all(|c| c.len() <= self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_that_begins_another_can_end_or_go_on() {
        let mut choices = Choices::of(vec![vec![1, 2], vec![1, 2, 33], vec![4]], vec![0], 40);
        let bits = |choices: &mut Choices| {
            let allowed = choices.allowed();
            (allowed.tokens.unwrap().to_vec(), allowed.end)
        };
        assert_eq!(bits(&mut choices), (vec![0b10010, 0], false));
        assert!(!choices.accept(1));
        assert!(!choices.accept(2));
        assert_eq!(bits(&mut choices), (vec![1, 0b10], true));
        assert!(choices.accept(33));
    }
}
