//! Answers held to a GBNF grammar, by llama.cpp: which tokens may follow.
//!
//! Its neighbour is `guide`, which does the same for JSON schemas and regular expressions. The one rule: only a
//! token that was found to be allowed is accepted, since any other would end the process.

#![expect(unsafe_code, reason = "llama.cpp's C API")]

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Arc;

use llama_cpp_sys_2 as ffi;

use super::guide::{ConstraintError, at_most};
use super::log::last_complaint;
use super::model::{LlamaModel, Token};

/// Longest grammar, as text.
const GRAMMAR_BYTES_MAX: usize = 64 << 10;
/// Most groups inside each other; the parser recurses.
const GRAMMAR_DEPTH_MAX: usize = 256;
/// Tokens that are looked at together.
const PART: usize = 1024;

/// A grammar and how far an answer has come in it.
#[derive(Debug)]
pub struct Grammar {
    raw: NonNull<ffi::llama_sampler>,
    candidates: Vec<ffi::llama_token_data>,
    /// Tokens that may follow, one bit each.
    mask: Vec<u32>,
    /// Whether `mask` is of this place.
    known: bool,
    model: Arc<LlamaModel>,
}

// SAFETY: the sampler is plain memory that only this value refers to.
unsafe impl Send for Grammar {}

impl Grammar {
    /// Compiles `gbnf`, whose start rule is `root`.
    ///
    /// # Errors
    /// When it is too large or does not parse, with what llama.cpp said.
    pub fn new(model: Arc<LlamaModel>, gbnf: &str) -> Result<Self, ConstraintError> {
        let invalid = |reason: String| ConstraintError::Invalid { what: "the grammar", reason };
        at_most("bytes of the grammar", gbnf.len(), GRAMMAR_BYTES_MAX)?;
        at_most("depth of the grammar", depth(gbnf), GRAMMAR_DEPTH_MAX)?;
        let text = CString::new(gbnf).map_err(|_| invalid("it holds a NUL byte".into()))?;
        drop(last_complaint(""));
        // SAFETY: both strings are NUL-terminated and copied by the call, which answers null for what it
        // can't parse.
        let raw = unsafe {
            ffi::llama_sampler_init_grammar(model.raw_vocab(), text.as_ptr(), c"root".as_ptr())
        };
        let raw = NonNull::new(raw).ok_or_else(|| {
            invalid(last_complaint("it does not parse (expected GBNF with a rule `root`)"))
        })?;
        let mask = vec![0; model.vocabulary().div_ceil(32)];
        Ok(Grammar { raw, candidates: Vec::new(), mask, known: false, model })
    }

    /// Tokens that may follow, one bit each, lowest bit first; the end tokens among them where the answer may
    /// end.
    pub fn allowed(&mut self) -> &[u32] {
        if !self.known {
            self.known = true;
            self.mask.fill(0);
            self.apply(0..self.model.vocabulary() as Token);
            for (i, candidate) in self.candidates.iter().enumerate() {
                if candidate.logit == 0.0 {
                    self.mask[i / 32] |= 1 << (i % 32);
                }
            }
        }
        &self.mask
    }

    /// Whether the answer may end here.
    pub fn may_end(&mut self) -> bool {
        let end = self.model.end_tokens().first().copied();
        end.is_some_and(|end| self.permits(end))
    }

    /// Whether `token` may follow; much cheaper than [`Grammar::allowed`].
    pub fn permits(&mut self, token: Token) -> bool {
        if usize::try_from(token).map_or(true, |t| t >= self.model.vocabulary()) {
            return false;
        }
        self.apply(token..token + 1);
        self.candidates.first().is_some_and(|c| c.logit == 0.0)
    }

    /// Goes on with `token` if it is allowed; whether nothing but the end may follow.
    pub fn accept(&mut self, token: Token) -> bool {
        if self.model.ends(token) || !self.permits(token) {
            return false;
        }
        // SAFETY: the grammar allows this token, as was found out above.
        unsafe { ffi::llama_sampler_accept(self.raw.as_ptr(), token) };
        self.known = false;
        self.may_end() && !self.goes_on()
    }

    /// Whether a token that is no end may follow; looks no further than the first part that holds one.
    fn goes_on(&mut self) -> bool {
        let tokens = self.model.vocabulary() as Token;
        (0..tokens).step_by(PART).any(|start| {
            self.apply(start..tokens.min(start + PART as Token));
            self.candidates.iter().any(|c| c.logit == 0.0 && !self.model.ends(c.id))
        })
    }

    /// Leaves the logit of each of `tokens` at 0 if it is allowed.
    fn apply(&mut self, tokens: std::ops::Range<Token>) {
        self.candidates.clear();
        self.candidates.extend(tokens.map(|id| ffi::llama_token_data { id, logit: 0.0, p: 0.0 }));
        let mut array = ffi::llama_token_data_array {
            data: self.candidates.as_mut_ptr(),
            size: self.candidates.len(),
            selected: -1,
            sorted: false,
        };
        // SAFETY: the array describes `candidates`, all of them in the vocabulary; the sampler lowers logits in
        // place.
        unsafe { ffi::llama_sampler_apply(self.raw.as_ptr(), &raw mut array) };
    }
}

impl Drop for Grammar {
    fn drop(&mut self) {
        // SAFETY: made in `new`, freed once.
        unsafe { ffi::llama_sampler_free(self.raw.as_ptr()) };
    }
}

/// Most groups inside each other, literals and character classes left out.
fn depth(gbnf: &str) -> usize {
    let (mut depth, mut deepest, mut until) = (0_usize, 0, None);
    let mut chars = gbnf.chars();
    while let Some(c) = chars.next() {
        match (until, c) {
            (Some(_), '\\') => drop(chars.next()),
            (Some(end), c) if c == end => until = None,
            (None, '"') => until = Some('"'),
            (None, '[') => until = Some(']'),
            (None, '#') => until = Some('\n'),
            (None, '(') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (None, ')') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_count_as_depth() {
        assert_eq!(depth(r#"root ::= ("a(((" [(\](] ( x ))* # (((("#), 2);
        assert_eq!(depth(&"(".repeat(300)), 300);
    }
}
