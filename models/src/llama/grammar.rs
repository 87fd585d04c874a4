//! Answers held to a GBNF grammar: tokens that would break it can't be chosen.

#![expect(unsafe_code, reason = "llama.cpp's C API")]

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Arc;

use llama_cpp_sys_2 as ffi;

use super::model::{LlamaModel, Token};
use crate::model::ModelError;

/// A grammar and how far an answer has come in it.
#[derive(Debug)]
pub struct Grammar {
    raw: NonNull<ffi::llama_sampler>,
    candidates: Vec<ffi::llama_token_data>,
    model: Arc<LlamaModel>,
}

// SAFETY: the sampler is plain memory that only this value refers to.
unsafe impl Send for Grammar {}

impl Grammar {
    /// Compiles `gbnf`, whose start rule is `root`.
    ///
    /// # Errors
    /// `Run` when it does not parse.
    pub fn new(model: Arc<LlamaModel>, gbnf: &str) -> Result<Self, ModelError> {
        let text =
            CString::new(gbnf).map_err(|_| model.failed("the grammar holds a NUL byte".into()))?;
        // SAFETY: both strings are NUL-terminated and copied by the call, which answers null for what it
        // can't parse.
        let raw = unsafe {
            ffi::llama_sampler_init_grammar(model.raw_vocab(), text.as_ptr(), c"root".as_ptr())
        };
        let raw = NonNull::new(raw).ok_or_else(|| {
            model.failed("the grammar does not parse (expected GBNF with a rule `root`)".into())
        })?;
        Ok(Grammar { raw, candidates: Vec::new(), model })
    }

    /// The likeliest token of those that the grammar allows, given one row of logits; none when there is no
    /// such token.
    pub fn best(&mut self, logits: &[f32]) -> Option<Token> {
        self.candidates.clear();
        self.candidates.extend(
            logits.iter().enumerate().map(|(i, &logit)| ffi::llama_token_data {
                id: i as Token,
                logit,
                p: 0.0,
            }),
        );
        let mut array = ffi::llama_token_data_array {
            data: self.candidates.as_mut_ptr(),
            size: self.candidates.len(),
            selected: -1,
            sorted: false,
        };
        // SAFETY: the array describes `candidates`; the sampler lowers logits in place and may shrink `size`.
        unsafe { ffi::llama_sampler_apply(self.raw.as_ptr(), &raw mut array) };
        let left = array.size.min(self.candidates.len());
        self.candidates[..left]
            .iter()
            .filter(|c| c.logit > f32::NEG_INFINITY)
            .max_by(|a, b| a.logit.total_cmp(&b.logit).then(b.id.cmp(&a.id)))
            .map(|c| c.id)
    }

    /// Goes on with `token`, which must come from [`Grammar::best`] (others would end the process).
    pub fn accept(&mut self, token: Token) {
        if self.model.ends(token)
            || self.candidates.iter().any(|c| c.id == token && c.logit > f32::NEG_INFINITY)
        {
            // SAFETY: the grammar allows this token, as the last `best` found out.
            unsafe { ffi::llama_sampler_accept(self.raw.as_ptr(), token) };
        }
    }
}

impl Drop for Grammar {
    fn drop(&mut self) {
        // SAFETY: made in `new`, freed once.
        unsafe { ffi::llama_sampler_free(self.raw.as_ptr()) };
    }
}
