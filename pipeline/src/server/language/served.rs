//! A language model as other programs see it: its name, its prompts in tokens, its template.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use engine::language::{BackendError, Health, LanguageBackend, ModelInfo, Part, Prompt};
use serde_json::{Value, json};

use super::chat::Chat;
use super::completions::TOKENS_MAX_DEFAULT;
use super::error::ApiError;
use super::template::ChatTemplate;
use super::{loading, meter};

/// A model that is offered.
#[derive(Clone)]
pub struct Served {
    /// What callers call it; the backend's own name for it works too.
    pub name: String,
    /// Who answers.
    pub backend: Arc<dyn LanguageBackend>,
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The same with what is remembered of it.
#[derive(Debug)]
pub(super) struct Model {
    served: Served,
    /// Compiled once for what the model says of itself, which is the same after a restart.
    template: Mutex<Option<(Arc<ModelInfo>, Arc<ChatTemplate>)>>,
    preemptions: Mutex<u64>,
}

impl Model {
    pub(super) fn new(served: Served) -> Self {
        Model { served, template: Mutex::default(), preemptions: Mutex::default() }
    }

    pub(super) fn name(&self) -> &str {
        &self.served.name
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        name == self.served.name || name == self.backend().model()
    }

    pub(super) fn backend(&self) -> &dyn LanguageBackend {
        self.served.backend.as_ref()
    }

    pub(super) fn health(&self) -> Health {
        self.backend().health()
    }

    pub(super) fn publish(&self) {
        meter::show(self.name(), &self.backend().stats(), &self.preemptions);
    }

    /// As `/v1/models` lists it.
    pub(super) fn json(&self) -> Value {
        json!({
            "id": self.name(),
            "object": "model",
            "created": 0,
            "owned_by": "pipeline",
            "root": self.backend().model(),
            "parent": null,
            "max_model_len": self.backend().info().map(|info| info.context_tokens_max),
        })
    }

    /// What the model says of itself, once it is loaded.
    pub(super) async fn info(&self) -> Result<Arc<ModelInfo>, ApiError> {
        self.backend().open().await?;
        self.backend().info().ok_or_else(|| match self.health() {
            Health::Down { detail } => loading(&detail),
            Health::Loading | Health::Ready => loading("the model is loading"),
        })
    }

    /// Prompts of the completions API with the longest answer to each.
    pub(super) async fn prompts(
        &self,
        prompts: Vec<Prompt>,
        tokens_max: Option<u32>,
    ) -> Result<Vec<(Prompt, u32)>, ApiError> {
        let start = self.start().await?;
        let tokens_max = tokens_max.unwrap_or(TOKENS_MAX_DEFAULT);
        let without_start = |mut prompt: Prompt| {
            // The engine begins every prompt with it; a caller who counts in tokens has written it already.
            if let ([Part::Tokens(tokens)], Some(start)) = (prompt.parts.as_mut_slice(), start)
                && tokens.len() > 1
                && tokens.first() == Some(&start)
            {
                tokens.remove(0);
            }
            (prompt, tokens_max)
        };
        Ok(prompts.into_iter().map(without_start).collect())
    }

    /// The prompt of a conversation, and the longest answer: what was asked for, or what the context leaves.
    pub(super) async fn chat_prompt(
        &self,
        chat: Chat,
        tokens_max: Option<u32>,
    ) -> Result<(Prompt, u32), ApiError> {
        let prompt = self.render(chat).await?;
        if let Some(tokens_max) = tokens_max {
            return Ok((prompt, tokens_max));
        }
        let limit = self.info().await?.context_tokens_max;
        let (prompt, tokens) = self.counted(prompt).await?;
        match limit.checked_sub(tokens) {
            Some(left @ 1..) => Ok((prompt, left)),
            _ => Err(BackendError::TooLong { tokens: tokens.saturating_add(1), limit }.into()),
        }
    }

    /// A conversation as the model's template writes it.
    pub(super) async fn render(&self, chat: Chat) -> Result<Prompt, ApiError> {
        let template = self.template(self.info().await?);
        let now = unix_s();
        let render = move || template.prompt(&chat, now);
        // A template is a program from a file: its time is not the server's.
        let rendered = tokio::task::spawn_blocking(render).await;
        let failed = |e: tokio::task::JoinError| {
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the chat template: {e}"))
        };
        rendered.map_err(failed)?.map_err(|e| ApiError::field("messages", e))
    }

    /// The same prompt in tokens, and how many there are, with the one that starts every prompt.
    pub(super) async fn counted(&self, prompt: Prompt) -> Result<(Prompt, u32), ApiError> {
        let mut total = usize::from(self.start().await?.is_some());
        let mut parts = Vec::with_capacity(prompt.parts.len());
        for part in prompt.parts {
            let tokens = match part {
                Part::Template(text) => self.backend().tokenize(text, true).await?,
                Part::Data(text) => self.backend().tokenize(text, false).await?,
                Part::Tokens(tokens) => tokens,
            };
            total += tokens.len();
            parts.push(Part::Tokens(tokens));
        }
        let total = u32::try_from(total).unwrap_or(u32::MAX);
        Ok((Prompt { parts, reuse: prompt.reuse }, total))
    }

    /// The token that starts every prompt, if there is one.
    pub(super) async fn start(&self) -> Result<Option<i32>, ApiError> {
        let text = self.info().await?.start_text.clone();
        if text.is_empty() {
            return Ok(None);
        }
        Ok(self.backend().tokenize(text, true).await?.first().copied())
    }

    fn template(&self, info: Arc<ModelInfo>) -> Arc<ChatTemplate> {
        let mut known = self.template.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, template)) = known.as_ref()
            && *of == info
        {
            return template.clone();
        }
        let template = Arc::new(ChatTemplate::new(&info));
        if let Some(fault) = template.fault() {
            let model = self.name();
            tracing::warn!(model, fault, "chat messages are given as plain lines");
        }
        *known = Some((info, template.clone()));
        template
    }
}

/// Seconds since 1970, which answers carry and templates may name.
#[expect(clippy::disallowed_methods, reason = "a date for people; nothing is decided by it")]
pub(super) fn unix_s() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |time| time.as_secs() as i64)
}
