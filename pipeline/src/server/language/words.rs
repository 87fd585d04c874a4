//! The smaller routes: text to tokens and back, and a prompt to a text with nothing around it.

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use engine::language::Part;

use super::error::ApiError;
use super::fields::Fields;
use super::{Room, calls, chat, completions};

/// `/generate`: a body as of `/v1/completions`, of which one prompt and one answer count.
pub(super) async fn generate(
    room: &Room,
    mut body: Map<String, Value>,
    arrived: Instant,
) -> Result<Response, ApiError> {
    // What makes no sense here; clients of other servers send them along.
    for name in ["stream", "n", "logprobs"] {
        body.remove(name);
    }
    let call = completions::read(&Fields::new(&body))?;
    if call.prompts.len() != 1 {
        let message = format!("{} prompts, expected one", call.prompts.len());
        return Err(ApiError::field("prompt", message));
    }
    let model = room.api.model(call.asked.model.as_deref())?;
    let prompts = model.prompts(call.prompts, call.asked.tokens_max).await?;
    let Some(request) = call.asked.requests(prompts).pop() else {
        return Err(ApiError::field("prompt", "is missing"));
    };
    let text = calls::text(room, model, request, arrived).await?;
    Ok(Json(json!({ "text": text })).into_response())
}

/// An address's query as a body: the prompt and other texts as they are, numbers and the like as JSON.
pub(super) fn from_query(query: Vec<(String, String)>) -> Map<String, Value> {
    let texts = ["prompt", "model", "stop", "request_id", "cache_salt"];
    let value = |(name, text): (String, String)| {
        let is_text = texts.contains(&name.as_str());
        let read = serde_json::from_str(&text).ok().filter(|_| !is_text);
        (name, read.unwrap_or(Value::String(text)))
    };
    query.into_iter().map(value).collect()
}

/// `/tokenize`, of a prompt or of messages.
pub(super) async fn tokenize(room: &Room, body: &Map<String, Value>) -> Result<Response, ApiError> {
    let fields = Fields::new(body);
    fields.refuse("return_token_strs", &[json!(false)])?;
    let special = fields.bool("add_special_tokens")?;
    let prompt = fields.text("prompt")?;
    let chat = match (prompt, fields.get("messages")) {
        (None, Some(_)) => Some(chat::chat(&fields)?),
        _ => None,
    };
    let model = room.api.model(fields.text("model")?)?;
    let info = model.info().await?;
    let tokens = match (chat, prompt) {
        (Some(chat), _) => {
            let (prompt, _) = model.counted(model.render(chat).await?).await?;
            let mut tokens: Vec<i32> = model.start().await?.into_iter().collect();
            for part in prompt.parts {
                if let Part::Tokens(more) = part {
                    tokens.extend(more);
                }
            }
            tokens
        }
        (None, Some(prompt)) => {
            let starts = special.unwrap_or(true) && !prompt.is_empty();
            let start = if starts { info.start_text.as_str() } else { "" };
            model.backend().tokenize(format!("{start}{prompt}"), true).await?
        }
        (None, None) => {
            let message = "is missing, expected `prompt` (a string) or `messages`";
            return Err(ApiError::field("prompt", message));
        }
    };
    Ok(Json(json!({
        "count": tokens.len(),
        "max_model_len": info.context_tokens_max,
        "tokens": tokens,
        "token_strs": null,
    }))
    .into_response())
}

/// `/detokenize`
pub(super) async fn detokenize(
    room: &Room,
    body: &Map<String, Value>,
) -> Result<Response, ApiError> {
    let fields = Fields::new(body);
    let missing = || ApiError::field("tokens", "is missing, expected a list of token ids");
    let tokens = fields.tokens("tokens")?.ok_or_else(missing)?;
    let model = room.api.model(fields.text("model")?)?;
    let text = model.backend().detokenize(tokens).await?;
    Ok(Json(json!({ "prompt": text })).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_a_body_whose_prompt_stays_text() {
        let query = [("prompt", "42"), ("max_tokens", "3"), ("ignore_eos", "true"), ("user", "me")];
        let query = query.map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec();
        let want = json!({ "prompt": "42", "max_tokens": 3, "ignore_eos": true, "user": "me" });
        assert_eq!(Value::Object(from_query(query)), want);
    }
}
