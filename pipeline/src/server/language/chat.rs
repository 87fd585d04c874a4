//! The body of `/v1/chat/completions`: messages.
//!
//! Its neighbours are `asked`, which reads the rest, and `template`, which makes messages a prompt. One rule: what a
//! client says goes into a message's content; nothing else of it reaches the template as text.

use serde_json::{Map, Value, json};

use super::asked::{self, Asked};
use super::error::ApiError;
use super::fields::{Fields, shown};

/// Messages of a conversation at most.
const MESSAGES_MAX: usize = 1_024;
/// Text parts of all messages at most.
const PARTS_MAX: usize = 4_096;
/// Longest role; longer ones are no role of any template.
const ROLE_BYTES_MAX: usize = 32;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Lowercase letters and `_`: it stands in the prompt as it is.
    pub(super) role: String,
    /// Its text parts; a plain content is one.
    pub(super) content: Vec<String>,
}

/// What a template is given.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Chat {
    /// At least one.
    pub(super) messages: Vec<Message>,
    /// Whether the prompt ends where the answer begins.
    pub(super) add_generation_prompt: bool,
    /// Switches of the template, such as `enable_thinking`; no texts.
    pub(super) switches: Map<String, Value>,
}

/// Reads a body.
///
/// # Errors
/// 400, naming the field.
pub(super) fn read(fields: &Fields<'_>) -> Result<(Asked, Chat), ApiError> {
    let mut asked = asked::read(fields)?;
    let top = asked::likeliest(fields, "top_logprobs")?;
    asked.request.logprobs = match (fields.bool("logprobs")?.unwrap_or(false), top) {
        (true, top) => Some(top.unwrap_or(0)),
        (false, None | Some(0)) => None,
        (false, Some(_)) => {
            return Err(ApiError::field("top_logprobs", "goes with `logprobs: true`"));
        }
    };
    if fields.text("tool_choice").ok().flatten() != Some("none") {
        fields.refuse("tools", &[json!([])])?;
    }
    Ok((asked, chat(fields)?))
}

/// Reads the messages and how they are to be put together.
pub(super) fn chat(fields: &Fields<'_>) -> Result<Chat, ApiError> {
    for name in ["continue_final_message", "chat_template", "documents", "functions"] {
        fields.refuse(name, &[json!(false), json!([])])?;
    }
    let missing = || ApiError::field("messages", "is missing, expected a list of messages");
    let list = fields.list("messages")?.filter(|m| !m.is_empty()).ok_or_else(missing)?;
    if list.len() > MESSAGES_MAX {
        let message = format!("{} messages, expected at most {MESSAGES_MAX}", list.len());
        return Err(ApiError::field("messages", message));
    }
    let messages = list.iter().enumerate().map(|(i, value)| message(i, value));
    let messages = messages.collect::<Result<Vec<_>, _>>()?;
    let parts: usize = messages.iter().map(|m| m.content.len()).sum();
    if parts > PARTS_MAX {
        let message = format!("{parts} parts, expected at most {PARTS_MAX}");
        return Err(ApiError::field("messages", message));
    }
    Ok(Chat {
        messages,
        add_generation_prompt: fields.bool("add_generation_prompt")?.unwrap_or(true),
        switches: switches(fields)?,
    })
}

fn switches(fields: &Fields<'_>) -> Result<Map<String, Value>, ApiError> {
    let simple = |value: &Value| {
        let all = value.as_object()?;
        let fits = all.values().all(|v| v.is_boolean() || v.is_number() || v.is_null());
        fits.then(|| all.clone())
    };
    let expected = "an object of numbers, true and false";
    Ok(fields.typed("chat_template_kwargs", expected, simple)?.unwrap_or_default())
}

fn message(index: usize, value: &Value) -> Result<Message, ApiError> {
    let at = |name: &str| format!("messages[{index}]{name}");
    let wrong = |name: &str, found: &Value, expected: &str| {
        ApiError::field(&at(name), format!("found {}, expected {expected}", shown(found)))
    };
    let fields = value.as_object().ok_or_else(|| wrong("", value, "an object"))?;
    let null = Value::Null;
    let role = fields.get("role").unwrap_or(&null);
    let is_name = |role: &str| {
        let named = role.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        named && (1..=ROLE_BYTES_MAX).contains(&role.len())
    };
    let expected = "a role such as system, user or assistant";
    let named = role.as_str().filter(|role| is_name(role));
    let named = named.ok_or_else(|| wrong(".role", role, expected))?;
    let content = match fields.get("content").unwrap_or(&null) {
        // An answer that was a call of a tool has none.
        Value::Null => vec![String::new()],
        Value::String(text) => vec![text.clone()],
        Value::Array(parts) => {
            let text = |part: &Value| {
                let of_type = |kind| part.get("type").and_then(Value::as_str) == Some(kind);
                let text = part.get("text").and_then(Value::as_str);
                text.filter(|_| of_type("text") || of_type("input_text")).map(str::to_owned)
            };
            let texts = parts.iter().map(|part| {
                text(part).ok_or_else(|| wrong(".content", part, "a part {type: text, text}"))
            });
            texts.collect::<Result<Vec<_>, _>>()?
        }
        other => return Err(wrong(".content", other, "a string or a list of text parts")),
    };
    Ok(Message { role: named.to_owned(), content })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(body: Value) -> Result<(Asked, Chat), ApiError> {
        read(&Fields::new(body.as_object().unwrap()))
    }

    fn hello() -> Value {
        json!([{ "role": "user", "content": "hello" }])
    }

    #[test]
    fn contents_are_texts_or_lists_of_texts() {
        let (asked, chat) = call(json!({ "messages": [
            { "role": "system", "content": "be brief" },
            { "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] },
            { "role": "assistant", "content": null, "name": "x" },
        ] }))
        .unwrap();
        let contents: Vec<_> = chat.messages.iter().map(|m| m.content.as_slice()).collect();
        assert_eq!(
            contents,
            [&["be brief".to_owned()][..], &["a".into(), "b".into()], &["".into()]]
        );
        assert!(chat.add_generation_prompt);
        assert_eq!(asked.request.logprobs, None);
    }

    #[test]
    fn what_is_no_conversation_is_refused_at_its_place() {
        for (messages, param) in [
            (json!(null), "messages"),
            (json!([]), "messages"),
            (json!("hi"), "messages"),
            (json!(["hi"]), "messages[0]"),
            (json!([{ "content": "hi" }]), "messages[0].role"),
            (json!([{ "role": "user<|im_end|>", "content": "hi" }]), "messages[0].role"),
            (json!([{ "role": "", "content": "hi" }]), "messages[0].role"),
            (json!([{ "role": "user", "content": 7 }]), "messages[0].content"),
            (
                json!([{ "role": "user", "content": [{ "type": "image_url" }] }]),
                "messages[0].content",
            ),
            (json!(vec![json!({ "role": "user", "content": "" }); 1_025]), "messages"),
        ] {
            let error = call(json!({ "messages": messages })).unwrap_err();
            assert_eq!((error.status.as_u16(), error.param.as_deref()), (400, Some(param)));
        }
    }

    #[test]
    fn likelihoods_are_asked_for_in_two_fields() {
        let asked = |logprobs: Value, top: Value| {
            let body = json!({ "messages": hello(), "logprobs": logprobs, "top_logprobs": top });
            call(body).map(|(asked, _)| asked.request.logprobs)
        };
        assert_eq!(asked(json!(true), json!(3)), Ok(Some(3)));
        assert_eq!(asked(json!(true), json!(null)), Ok(Some(0)));
        assert_eq!(asked(json!(false), json!(0)), Ok(None));
        assert!(asked(json!(false), json!(3)).is_err());
        assert!(asked(json!(2), json!(null)).is_err());
        assert!(asked(json!(true), json!(21)).is_err());
    }

    #[test]
    fn a_template_gets_switches_but_no_texts() {
        let given = |kwargs: Value| {
            call(json!({ "messages": hello(), "chat_template_kwargs": kwargs }))
                .map(|c| c.1.switches)
        };
        assert!(
            given(json!({ "enable_thinking": false })).unwrap().contains_key("enable_thinking")
        );
        assert!(given(json!({ "system": "<|im_end|>" })).is_err());
    }

    #[test]
    fn tools_are_refused_unless_they_are_not_to_be_used() {
        let tools = json!([{ "type": "function" }]);
        let with = |choice: Value| {
            call(json!({ "messages": hello(), "tools": tools, "tool_choice": choice })).is_ok()
        };
        assert!(with(json!("none")));
        assert!(!with(json!("auto")) && !with(json!(null)) && !with(json!({})));
    }
}
