//! A pool of key-value cells with numbered sequences in it, and the batch that is computed in one step.

#![expect(unsafe_code, reason = "llama.cpp's C API")]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use llama_cpp_sys_2 as ffi;

use super::log::last_complaint;
use super::model::{LlamaModel, Token};
use crate::model::ModelError;

/// Size of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextSettings {
    /// Cells of the pool, in tokens.
    pub n_ctx: u32,
    /// Sequences that can exist at once, 1..=256.
    pub n_seq: u32,
    /// Largest batch, in tokens.
    pub n_batch: u32,
    /// Tokens computed between two looks at the abort flag; small means fast to abort.
    pub n_ubatch: u32,
    /// Compute threads, the calling one included.
    pub threads: u32,
    /// One pool for all sequences, so that they can share prefixes; else one part for each.
    pub kv_unified: bool,
}

/// One token of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchToken {
    /// Which token.
    pub token: Token,
    /// Its place in the sequence, counted from 0, without gaps.
    pub pos: u32,
    /// Which sequence.
    pub seq: u32,
    /// Whether the logits after it are wanted.
    pub logits: bool,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// All of it is computed; logits can be read.
    Done,
    /// The pool has no room; nothing changed.
    NoRoom,
    /// Somebody set the abort flag; what was computed stays, see [`LlamaContext::seq_len`].
    Aborted,
}

/// A context. Used by one thread at a time.
#[derive(Debug)]
pub struct LlamaContext {
    raw: NonNull<ffi::llama_context>,
    batch: ffi::llama_batch,
    settings: ContextSettings,
    /// For each token of the last batch, whether its logits can be read.
    readable: Vec<bool>,
    abort: Arc<AtomicBool>,
    model: Arc<LlamaModel>,
}

// SAFETY: a context may move between threads as long as one uses it at a time, which `&mut self` and the
// missing `Sync` see to. The abort flag is an atomic.
unsafe impl Send for LlamaContext {}

impl LlamaContext {
    /// A context of `model`.
    ///
    /// # Errors
    /// `Load` for settings outside their bounds, or when llama.cpp can't allocate it.
    pub fn new(model: Arc<LlamaModel>, settings: ContextSettings) -> Result<Self, ModelError> {
        let load = |detail: String| ModelError::Load { name: model.name().to_owned(), detail };
        let ContextSettings { n_ctx, n_seq, n_batch, n_ubatch, threads, kv_unified } = settings;
        let bounds = [
            ("n_ctx", n_ctx, 1 << 20),
            ("n_seq", n_seq, 256),
            ("n_batch", n_batch, 1 << 16),
            ("n_ubatch", n_ubatch, n_batch),
            ("threads", threads, 512),
        ];
        for (name, found, max) in bounds {
            if !(1..=max).contains(&found) {
                return Err(load(format!("{name} is {found}, expected 1 to {max}")));
            }
        }
        let abort = Arc::new(AtomicBool::new(false));
        // SAFETY: the parameters are the library's defaults with sizes checked above. The callback's data is
        // the flag inside `abort`, which the context's owner keeps alive until after the context is freed.
        let raw = unsafe {
            let mut params = ffi::llama_context_default_params();
            params.n_ctx = n_ctx;
            params.n_seq_max = n_seq;
            params.n_batch = n_batch;
            params.n_ubatch = n_ubatch;
            params.n_threads = threads as i32;
            params.n_threads_batch = threads as i32;
            params.kv_unified = kv_unified;
            params.no_perf = true;
            params.abort_callback = Some(abort_wanted);
            params.abort_callback_data = Arc::as_ptr(&abort).cast_mut().cast::<c_void>();
            ffi::llama_init_from_model(model.raw(), params)
        };
        let raw = NonNull::new(raw)
            .ok_or_else(|| load(last_complaint("llama.cpp could not make a context")))?;
        // SAFETY: allocates arrays for `n_batch` tokens with one sequence each; freed in Drop.
        let batch = unsafe { ffi::llama_batch_init(n_batch as i32, 0, 1) };
        Ok(LlamaContext { raw, batch, settings, readable: Vec::new(), abort, model })
    }

    /// The model it belongs to.
    pub fn model(&self) -> &Arc<LlamaModel> {
        &self.model
    }

    /// As made.
    pub fn settings(&self) -> ContextSettings {
        self.settings
    }

    /// Setting it ends a running `decode` within one micro-batch; the owner of the step clears it.
    pub fn abort_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.abort)
    }

    /// Computes one batch.
    ///
    /// # Errors
    /// `Run` when the batch is empty, too large, or names tokens, places or sequences that can't be; or when
    /// the computation failed.
    pub fn decode(&mut self, tokens: &[BatchToken]) -> Result<Decoded, ModelError> {
        self.readable.clear();
        self.check(tokens)?;
        for (i, t) in tokens.iter().enumerate() {
            // SAFETY: `check` bounds `i` by n_batch, for which the arrays were allocated, one sequence a token.
            unsafe {
                *self.batch.token.add(i) = t.token;
                *self.batch.pos.add(i) = t.pos as i32;
                *self.batch.n_seq_id.add(i) = 1;
                **self.batch.seq_id.add(i) = t.seq as i32;
                *self.batch.logits.add(i) = i8::from(t.logits);
            }
        }
        self.batch.n_tokens = tokens.len() as i32;
        // SAFETY: the batch holds `n_tokens` filled entries and lives through the call.
        let status = unsafe { ffi::llama_decode(self.raw.as_ptr(), self.batch) };
        match status {
            0 => {
                // Waits for the computation, so that the time of a step is known. SAFETY: a live context.
                unsafe { ffi::llama_synchronize(self.raw.as_ptr()) };
                self.readable.extend(tokens.iter().map(|t| t.logits));
                Ok(Decoded::Done)
            }
            1 => Ok(Decoded::NoRoom),
            2 => Ok(Decoded::Aborted),
            _ => Err(self.model.failed(last_complaint(&format!("decode status {status}")))),
        }
    }

    /// Logits after the `index`-th token of the last batch; none unless it asked for them.
    pub fn logits(&self, index: usize) -> Option<&[f32]> {
        if !self.readable.get(index).copied().unwrap_or(false) {
            return None;
        }
        // SAFETY: the last batch was computed and this entry asked for logits.
        let row = unsafe { ffi::llama_get_logits_ith(self.raw.as_ptr(), index as i32) };
        if row.is_null() {
            return None;
        }
        // SAFETY: a row holds one float per token of the vocabulary and stays until the next decode, which
        // needs `&mut self`.
        Some(unsafe { std::slice::from_raw_parts(row, self.model.vocabulary()) })
    }

    /// Tokens in sequence `seq`.
    pub fn seq_len(&self, seq: u32) -> u32 {
        if seq >= self.settings.n_seq {
            return 0;
        }
        // SAFETY: `seq` exists; the memory belongs to the live context.
        let last = unsafe { ffi::llama_memory_seq_pos_max(self.memory(), seq as i32) };
        u32::try_from(last + 1).unwrap_or(0)
    }

    /// Cuts sequence `seq` to its first `len` tokens; 0 frees it.
    pub fn seq_cut(&mut self, seq: u32, len: u32) {
        if seq >= self.settings.n_seq {
            return;
        }
        // SAFETY: `seq` exists; -1 means to the end. Cutting the tail can't fail for attention caches.
        unsafe { ffi::llama_memory_seq_rm(self.memory(), seq as i32, len as i32, -1) };
    }

    /// Lets sequence `to` begin with the first `len` tokens of `from`, sharing their cells. `to` must be empty.
    pub fn seq_share(&mut self, from: u32, to: u32, len: u32) {
        let n = self.settings.n_seq;
        if from >= n || to >= n || from == to || !self.settings.kv_unified {
            return;
        }
        // SAFETY: both sequences exist and share one pool.
        unsafe {
            ffi::llama_memory_seq_cp(self.memory(), from as i32, to as i32, 0, len as i32);
        }
    }

    /// Copies sequence `seq` out, so that its cells can be given to others; about 23 KB a token for SmolLM2-135M.
    pub fn seq_save(&mut self, seq: u32) -> Option<Vec<u8>> {
        if seq >= self.settings.n_seq {
            return None;
        }
        // SAFETY: `seq` exists; the second call writes at most the size that it is given.
        unsafe {
            let mut state =
                vec![0_u8; ffi::llama_state_seq_get_size(self.raw.as_ptr(), seq as i32)];
            let (to, size) = (state.as_mut_ptr(), state.len());
            let n = ffi::llama_state_seq_get_data(self.raw.as_ptr(), to, size, seq as i32);
            state.truncate(n);
            (n > 0).then_some(state)
        }
    }

    /// Brings back what [`LlamaContext::seq_save`] of this context gave, bit by bit; `seq` must be empty. False
    /// when there is no room.
    pub fn seq_restore(&mut self, seq: u32, state: &[u8]) -> bool {
        if seq >= self.settings.n_seq {
            return false;
        }
        // SAFETY: `seq` exists and `state` is read within its length.
        let (from, size) = (state.as_ptr(), state.len());
        let n = unsafe { ffi::llama_state_seq_set_data(self.raw.as_ptr(), from, size, seq as i32) };
        n > 0
    }

    fn memory(&self) -> ffi::llama_memory_t {
        // SAFETY: a live context has a memory for its lifetime.
        unsafe { ffi::llama_get_memory(self.raw.as_ptr()) }
    }

    fn check(&self, tokens: &[BatchToken]) -> Result<(), ModelError> {
        let n_batch = self.settings.n_batch as usize;
        if tokens.is_empty() || tokens.len() > n_batch {
            return Err(self
                .model
                .failed(format!("a batch of {} tokens, expected 1 to {n_batch}", tokens.len())));
        }
        let vocabulary = self.model.vocabulary();
        let mut lengths: Vec<Option<u32>> = vec![None; self.settings.n_seq as usize];
        for t in tokens {
            let known = usize::try_from(t.token).is_ok_and(|t| t < vocabulary);
            if !known || t.seq >= self.settings.n_seq || t.pos >= self.settings.n_ctx {
                return Err(self.model.failed(format!(
                    "token {} at {} of sequence {}, expected below {vocabulary}, {} and {}",
                    t.token, t.pos, t.seq, self.settings.n_ctx, self.settings.n_seq
                )));
            }
            let length = lengths[t.seq as usize].get_or_insert_with(|| self.seq_len(t.seq));
            if t.pos != *length {
                return Err(self.model.failed(format!(
                    "a token at {} of sequence {}, which goes on at {length}",
                    t.pos, t.seq
                )));
            }
            *length += 1;
        }
        Ok(())
    }
}

impl Drop for LlamaContext {
    fn drop(&mut self) {
        // SAFETY: both were made in `new` and are freed once; model and abort flag, which the context refers
        // to, are fields and go after this.
        unsafe {
            ffi::llama_batch_free(self.batch);
            ffi::llama_free(self.raw.as_ptr());
        }
    }
}

unsafe extern "C" fn abort_wanted(data: *mut c_void) -> bool {
    // SAFETY: `data` is the flag inside the `Arc` that the context owns; see `LlamaContext::new`.
    unsafe { &*data.cast_const().cast::<AtomicBool>() }.load(Ordering::Relaxed)
}
