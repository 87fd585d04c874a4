//! Weights and vocabulary, shared by all contexts.

#![expect(unsafe_code, reason = "llama.cpp's C API")]

use std::ffi::{CStr, c_char};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use llama_cpp_sys_2 as ffi;

use super::guide::{ConstraintError, Guides};
use super::log::{last_complaint, start_backend};
use super::processor;
use super::quantise::{c_path, check_gguf, failed};
use crate::model::ModelError;

/// Index into the model's vocabulary.
pub type Token = i32;

/// Longest text that is tokenised in one call, in bytes; a context holds far fewer tokens.
const TEXT_BYTES_MAX: usize = 4 << 20;

/// A loaded GGUF model.
#[derive(Debug)]
pub struct LlamaModel {
    raw: NonNull<ffi::llama_model>,
    vocab: NonNull<ffi::llama_vocab>,
    tokens: usize,
    name: String,
    ends: Vec<Token>,
    /// Made for the first answer that is held to something.
    guides: OnceLock<Result<Guides, String>>,
}

// SAFETY: after loading, llama.cpp only reads the model and its vocabulary; its own server shares one model
// between threads. Freeing happens once, in Drop, when nobody refers to it any more.
unsafe impl Send for LlamaModel {}
// SAFETY: as above.
unsafe impl Sync for LlamaModel {}

impl LlamaModel {
    /// Loads `path` (memory-mapped, on the CPU).
    ///
    /// # Errors
    /// `Load`, with what llama.cpp said.
    pub fn load(path: &Path) -> Result<Arc<Self>, ModelError> {
        check_gguf(path)?;
        let file = c_path(path)?;
        processor::check(path)?;
        start_backend();
        // SAFETY: the parameters are the library's defaults; the path is NUL-terminated and outlives the call,
        // which answers null for what it can't load.
        let raw = unsafe {
            let mut params = ffi::llama_model_default_params();
            params.n_gpu_layers = 0;
            ffi::llama_model_load_from_file(file.as_ptr(), params)
        };
        let raw = NonNull::new(raw)
            .ok_or_else(|| failed(path, &last_complaint("llama.cpp could not load it")))?;
        // SAFETY: `raw` is a loaded model.
        let vocab = unsafe { ffi::llama_model_get_vocab(raw.as_ptr()) };
        let Some(vocab) = NonNull::new(vocab.cast_mut()) else {
            // SAFETY: `raw` came from the loader and is used nowhere else.
            unsafe { ffi::llama_model_free(raw.as_ptr()) };
            return Err(failed(path, "it holds no vocabulary"));
        };
        // SAFETY: the vocabulary belongs to the loaded model.
        let tokens = unsafe { ffi::llama_vocab_n_tokens(vocab.as_ptr()) };
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        // SAFETY: every token asked for is in the vocabulary.
        let is_end = |&t: &Token| unsafe { ffi::llama_vocab_is_eog(vocab.as_ptr(), t) };
        let ends = (0..tokens).filter(is_end).collect();
        let tokens = usize::try_from(tokens).unwrap_or(0);
        Ok(Arc::new(LlamaModel { raw, vocab, tokens, name, ends, guides: OnceLock::new() }))
    }

    /// File name without its ending.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Size of the vocabulary: the length of one row of logits.
    pub fn vocabulary(&self) -> usize {
        self.tokens
    }

    /// Longest context the model was trained for, in tokens.
    pub fn context_max(&self) -> u32 {
        // SAFETY: the model is loaded.
        u32::try_from(unsafe { ffi::llama_model_n_ctx_train(self.raw.as_ptr()) }).unwrap_or(0)
    }

    /// The chat template (Jinja) that the file carries.
    pub fn chat_template(&self) -> Option<String> {
        // SAFETY: the model is loaded; a null name asks for the default template.
        let text = unsafe { ffi::llama_model_chat_template(self.raw.as_ptr(), std::ptr::null()) };
        if text.is_null() {
            return None;
        }
        // SAFETY: a NUL-terminated string that lives as long as the model.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }

    /// Text to tokens. `special`: whether `<|im_end|>` and the like become control tokens; never for text that
    /// comes from outside.
    ///
    /// # Errors
    /// `Run` for text of more than 4 MiB.
    pub fn tokenise(&self, text: &str, special: bool) -> Result<Vec<Token>, ModelError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(self.failed(format!(
                "text of {} bytes, at most {TEXT_BYTES_MAX} are tokenised",
                text.len()
            )));
        }
        let mut tokens: Vec<Token> = vec![0; text.len() + 8];
        for _ in 0..2 {
            // SAFETY: the pointers and lengths describe `text` and `tokens`; at most `n_tokens_max` are written,
            // and a negative answer says how many would have been.
            let n = unsafe {
                ffi::llama_tokenize(
                    self.vocab.as_ptr(),
                    text.as_ptr().cast::<c_char>(),
                    text.len() as i32,
                    tokens.as_mut_ptr(),
                    tokens.len() as i32,
                    false,
                    special,
                )
            };
            match usize::try_from(n) {
                Ok(n) => {
                    tokens.truncate(n);
                    return Ok(tokens);
                }
                Err(_) => tokens.resize(n.unsigned_abs() as usize, 0),
            }
        }
        Err(self.failed("the text could not be tokenised".into()))
    }

    /// Bytes of one token, appended to `out`; a token may be part of a character. Control tokens have none.
    pub fn piece(&self, token: Token, out: &mut Vec<u8>) {
        self.append(token, false, out);
    }

    /// One token as text, control tokens by their names.
    pub fn detokenise_special(&self, token: Token) -> String {
        let mut bytes = Vec::new();
        self.append(token, true, &mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn append(&self, token: Token, special: bool, out: &mut Vec<u8>) {
        if usize::try_from(token).map_or(true, |t| t >= self.tokens) {
            return;
        }
        let mut room = 64_usize;
        for _ in 0..2 {
            let start = out.len();
            out.resize(start + room, 0);
            // SAFETY: `token` is in the vocabulary; `room` bytes from `start` on are ours to write.
            let n = unsafe {
                ffi::llama_token_to_piece(
                    self.vocab.as_ptr(),
                    token,
                    out.as_mut_ptr().add(start).cast::<c_char>(),
                    room as i32,
                    0,
                    special,
                )
            };
            match usize::try_from(n) {
                Ok(n) => {
                    out.truncate(start + n);
                    return;
                }
                Err(_) => {
                    out.truncate(start);
                    room = n.unsigned_abs() as usize;
                }
            }
        }
    }

    /// Tokens to text; broken characters become U+FFFD.
    pub fn detokenise(&self, tokens: &[Token]) -> String {
        let mut bytes = Vec::new();
        for &token in tokens {
            self.piece(token, &mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether `token` ends an answer.
    pub fn ends(&self, token: Token) -> bool {
        self.ends.contains(&token)
    }

    /// All tokens that end an answer, lowest first; a chat model often has several.
    pub fn end_tokens(&self) -> &[Token] {
        &self.ends
    }

    /// The token that ends an answer; none in some base models.
    pub fn end_token(&self) -> Option<Token> {
        // SAFETY: the vocabulary is valid.
        Some(unsafe { ffi::llama_vocab_eos(self.vocab.as_ptr()) }).filter(|&t| t >= 0)
    }

    /// The token every prompt starts with; none when the model wants none.
    pub fn start_token(&self) -> Option<Token> {
        // SAFETY: the vocabulary is valid.
        let (wanted, token) = unsafe {
            (
                ffi::llama_vocab_get_add_bos(self.vocab.as_ptr()),
                ffi::llama_vocab_bos(self.vocab.as_ptr()),
            )
        };
        (wanted && token >= 0).then_some(token)
    }

    /// What compiles JSON schemas and expressions for this vocabulary; takes a moment the first time.
    pub(super) fn guides(&self) -> Result<&Guides, ConstraintError> {
        let made = self.guides.get_or_init(|| {
            let word = |token| {
                let mut bytes = Vec::new();
                self.piece(token, &mut bytes);
                bytes
            };
            Guides::new(&(0..self.tokens as Token).map(word).collect::<Vec<_>>(), &self.ends)
        });
        made.as_ref().map_err(|reason| ConstraintError::Invalid {
            what: "the model's vocabulary",
            reason: reason.clone(),
        })
    }

    pub(super) fn raw(&self) -> *mut ffi::llama_model {
        self.raw.as_ptr()
    }

    pub(super) fn raw_vocab(&self) -> *const ffi::llama_vocab {
        self.vocab.as_ptr()
    }

    pub(super) fn failed(&self, detail: String) -> ModelError {
        ModelError::Run { name: self.name.clone(), detail }
    }
}

impl Drop for LlamaModel {
    fn drop(&mut self) {
        // SAFETY: contexts hold an `Arc` of the model, so this is its last user.
        unsafe { ffi::llama_model_free(self.raw.as_ptr()) };
    }
}
