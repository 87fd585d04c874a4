//! Answers held to a JSON schema or a regular expression: which tokens may follow, by llguidance.
//!
//! Its neighbour is `grammar`, which does the same for GBNF. The one rule: what comes from outside is bounded, in
//! size before it is compiled and in work while it is compiled and followed.

use std::sync::Arc;

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{
    ApproximateTokEnv, INVALID_TOKEN, SimpleVob, TokEnv, TokRxInfo, TokTrie,
};
use llguidance::{JsonCompileOptions, Matcher, ParserFactory};
use serde_json::{Map, Value};
use thiserror::Error;

use super::model::{LlamaModel, Token};

/// Longest JSON schema, as text.
const SCHEMA_BYTES_MAX: usize = 64 << 10;
/// Longest regular expression.
const REGEX_BYTES_MAX: usize = 8 << 10;
/// Deepest nesting of a schema; its compiler recurses.
const SCHEMA_DEPTH_MAX: usize = 64;
/// Longest token that can be chosen under a constraint; the trie of all tokens holds twice that.
const TOKEN_BYTES_MAX: usize = 512;
/// Longest reason that is passed on.
const REASON_BYTES_MAX: usize = 600;

/// Why a constraint can't be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConstraintError {
    /// Larger than is compiled.
    #[error("{what} is {found}, expected at most {expected}")]
    TooLarge {
        /// Which measure of which kind of constraint.
        what: &'static str,
        /// Its size.
        found: usize,
        /// What is accepted.
        expected: usize,
    },
    /// It can't be understood, or is not supported.
    #[error("{what} can't be used: {reason}")]
    Invalid {
        /// Which kind of constraint.
        what: &'static str,
        /// What the compiler said.
        reason: String,
    },
    /// Following it has become too costly, or ended in a contradiction.
    #[error("the constraint can't be followed further: {reason}")]
    Lost {
        /// What the matcher said.
        reason: String,
    },
}

/// Compiles constraints for one vocabulary; made once for each model.
pub(super) struct Guides(ParserFactory);

/// A constraint and how far an answer has come in it.
pub struct Guide {
    matcher: Matcher,
    mask: Option<SimpleVob>,
    /// The mask once only the end may follow.
    none: Vec<u32>,
}

impl Guides {
    /// From the bytes of all tokens, by number. Control tokens must have none: no text can call for them.
    pub(super) fn new(words: &[Vec<u8>], ends: &[Token]) -> Result<Self, String> {
        let words: Vec<Vec<u8>> = words
            .iter()
            .map(|w| if w.len() > TOKEN_BYTES_MAX { Vec::new() } else { w.clone() })
            .collect();
        let ends: Vec<u32> = ends.iter().filter_map(|&t| u32::try_from(t).ok()).collect();
        let end = ends.first().copied().unwrap_or(INVALID_TOKEN);
        let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, end), &words);
        let trie = if ends.is_empty() { trie } else { trie.with_eos_tokens(&ends) };
        // Any cutting of a text into tokens is allowed; the model's likelihoods choose one.
        let vocabulary: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&vocabulary).map_err(|e| format!("{e:#}"))?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits {
            // About 10 ms of compiling, and 15 ms for one mask, in the worst case.
            initial_lexer_fuel: 500_000,
            step_lexer_fuel: 200_000,
            step_max_items: 50_000,
            max_items_in_row: 2_000,
            max_grammar_size: 100_000,
            // At most 2 KB each.
            max_lexer_states: 50_000,
            precompute_large_lexemes: false,
            verbose_errors: false,
        };
        Ok(Guides(factory))
    }

    fn compile(
        &self,
        what: &'static str,
        grammar: TopLevelGrammar,
    ) -> Result<Guide, ConstraintError> {
        let invalid = |e: String| ConstraintError::Invalid { what, reason: brief(&e) };
        let parser = self.0.create_parser(grammar).map_err(|e| invalid(format!("{e:#}")))?;
        let matcher = Matcher::new(Ok(parser));
        if let Some(error) = matcher.get_error() {
            return Err(invalid(error));
        }
        let words = self.0.tok_env().tok_trie().vocab_size().div_ceil(32);
        let mut guide = Guide { matcher, mask: None, none: vec![0; words] };
        // A constraint that no text can meet shows at the first place.
        guide.allowed().map_err(|e| invalid(format!("no text fits it ({e})")))?;
        Ok(guide)
    }
}

impl std::fmt::Debug for Guides {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guides").finish_non_exhaustive()
    }
}

impl Guide {
    /// Any JSON text on one line that `schema` (JSON Schema 2020-12) allows, with a blank after each colon and
    /// comma and none elsewhere: a small model could otherwise go on with white space for ever.
    ///
    /// # Errors
    /// With what is wrong with the schema, or which part of it is not supported.
    pub fn json(model: &LlamaModel, schema: &Value) -> Result<Self, ConstraintError> {
        let what = "the JSON schema";
        let invalid = |reason: String| ConstraintError::Invalid { what, reason };
        let mut schema = match schema {
            Value::Object(fields) => fields.clone(),
            Value::Bool(true) => Map::new(),
            other => return Err(invalid(format!("it is {}, expected an object", kind(other)))),
        };
        let depth = schema.values().map(depth).max().unwrap_or(0);
        at_most("depth of the JSON schema", depth, SCHEMA_DEPTH_MAX)?;
        let options = JsonCompileOptions {
            item_separator: ", ".into(),
            key_separator: ": ".into(),
            whitespace_flexible: false,
            ..JsonCompileOptions::default()
        };
        let options = serde_json::to_value(options).map_err(|e| invalid(e.to_string()))?;
        let bytes = serde_json::to_string(&schema).map_or(usize::MAX, |text| text.len());
        at_most("bytes of the JSON schema", bytes, SCHEMA_BYTES_MAX)?;
        schema.insert("x-guidance".into(), options);
        model.guides()?.compile(what, TopLevelGrammar::from_json_schema(schema.into()))
    }

    /// A text that `expression` matches whole. Syntax of the `regex` crate, without look-around and word
    /// boundaries; anchors around the whole are taken as said.
    ///
    /// # Errors
    /// With what is wrong with the expression.
    pub fn regex(model: &LlamaModel, expression: &str) -> Result<Self, ConstraintError> {
        at_most("bytes of the regular expression", expression.len(), REGEX_BYTES_MAX)?;
        model.guides()?.compile("the regular expression", TopLevelGrammar::from_regex(expression))
    }

    /// Tokens that may follow, one bit each, lowest bit first; the end tokens among them where the answer may
    /// end.
    ///
    /// # Errors
    /// `Lost` when nothing may follow, or finding out would take too long.
    pub fn allowed(&mut self) -> Result<&[u32], ConstraintError> {
        if self.matcher.is_stopped() && !self.matcher.is_error() {
            return Ok(&self.none);
        }
        let mask = match self.mask.take() {
            Some(mask) => mask,
            None => self.matcher.compute_mask().map_err(lost)?,
        };
        Ok(self.mask.insert(mask).as_slice())
    }

    /// Whether the answer may end here.
    ///
    /// # Errors
    /// `Lost`, as above.
    pub fn may_end(&mut self) -> Result<bool, ConstraintError> {
        if self.matcher.is_stopped() && !self.matcher.is_error() {
            return Ok(true);
        }
        self.matcher.is_accepting().map_err(lost)
    }

    /// Goes on with `token`; whether nothing but the end may follow.
    ///
    /// # Errors
    /// `Lost` for a token that was not allowed.
    pub fn accept(&mut self, token: Token) -> Result<bool, ConstraintError> {
        self.mask = None;
        let token = u32::try_from(token).unwrap_or(INVALID_TOKEN);
        self.matcher.consume_token(token).map_err(lost)?;
        Ok(self.matcher.is_stopped())
    }
}

impl std::fmt::Debug for Guide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guide").field("stopped", &self.matcher.is_stopped()).finish_non_exhaustive()
    }
}

pub(super) fn at_most(
    what: &'static str,
    found: usize,
    expected: usize,
) -> Result<(), ConstraintError> {
    if found > expected {
        return Err(ConstraintError::TooLarge { what, found, expected });
    }
    Ok(())
}

fn lost(error: impl std::fmt::Display) -> ConstraintError {
    ConstraintError::Lost { reason: brief(&error.to_string()) }
}

/// Without the state, the backtrace and the whole expression that the libraries add, and not too long.
fn brief(reason: &str) -> String {
    let ends = ["\n<backtrace>", "\n<state>", "\n<non-verbose/>"];
    let end = ends.iter().filter_map(|mark| reason.find(mark)).min().unwrap_or(reason.len());
    let reason = &reason[..end];
    let start = reason.rfind("\nerror: ").map_or(0, |at| at + 1);
    // The excerpt below the first line is there or not by how the libraries were built.
    let reason = reason[start..].lines().next().unwrap_or_default();
    reason[..reason.floor_char_boundary(REASON_BYTES_MAX)].trim().to_owned()
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "`false`, which allows nothing",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reason_is_told_without_what_surrounds_it() {
        let said = "at 1(8): invalid regex \"[0\": regex parse error:\n    [0\n    ^\nerror: unclosed class\n<backtrace>\n0: x";
        assert_eq!(brief(said), "error: unclosed class");
        assert_eq!(brief("error: unclosed class\n  1 | start: /[0/\n"), "error: unclosed class");
        assert_eq!(brief(&"é".repeat(900)).len(), REASON_BYTES_MAX);
    }

    #[test]
    fn depth_counts_what_is_inside_each_other() {
        assert_eq!(depth(&json!({"a": [1, {"b": {}}], "c": 1})), 4);
        assert_eq!(depth(&json!(true)), 0);
    }
}
