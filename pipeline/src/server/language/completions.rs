//! The body of `/v1/completions` (and of `/generate`): prompts as text or as tokens.
//!
//! Its neighbour is `asked`, which reads the rest. Who calls has written the whole prompt, so control tokens in it
//! count, as in vLLM; text of strangers belongs into a chat message.

use engine::language::{Part, Prompt};
use serde_json::Value;

use super::asked::{self, Asked, GENERATIONS_MAX};
use super::error::ApiError;
use super::fields::{Fields, shown, tokens};

/// Length of an answer when nothing is said.
pub(super) const TOKENS_MAX_DEFAULT: u32 = 16;

/// A call and its prompts, at least one.
#[derive(Debug, PartialEq)]
pub(super) struct Completions {
    pub(super) asked: Asked,
    pub(super) prompts: Vec<Prompt>,
}

/// Reads a body.
///
/// # Errors
/// 400, naming the field.
pub(super) fn read(fields: &Fields<'_>) -> Result<Completions, ApiError> {
    let mut asked = asked::read(fields)?;
    asked.request.logprobs = asked::likeliest(fields, "logprobs")?;
    let found = fields.get("prompt");
    let expected = "a string, a list of strings, a list of token ids, or a list of such lists";
    let missing = || ApiError::field("prompt", format!("is missing, expected {expected}"));
    let value = found.ok_or_else(missing)?;
    let wrong =
        || ApiError::field("prompt", format!("found {}, expected {expected}", shown(value)));
    let prompts = prompts(value).ok_or_else(wrong)?;
    if prompts.iter().any(|p| p.tokens_estimate() == 0) {
        return Err(ApiError::field("prompt", "is empty"));
    }
    let count = prompts.len() * asked.answers;
    if count > GENERATIONS_MAX {
        let message = format!("{count} answers are asked for, expected at most {GENERATIONS_MAX}");
        return Err(ApiError::field("prompt", message));
    }
    Ok(Completions { asked, prompts })
}

fn prompts(value: &Value) -> Option<Vec<Prompt>> {
    let of_tokens = |tokens: Vec<i32>| Prompt { parts: vec![Part::Tokens(tokens)], reuse: 0 };
    match value {
        Value::String(text) => Some(vec![Prompt::template(text.as_str())]),
        Value::Array(list) => match list.first()? {
            Value::String(_) => {
                list.iter().map(|text| Some(Prompt::template(text.as_str()?))).collect()
            }
            Value::Array(_) => list.iter().map(|each| tokens(each).map(of_tokens)).collect(),
            _ => Some(vec![of_tokens(tokens(value)?)]),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(body: Value) -> Result<Completions, ApiError> {
        read(&Fields::new(body.as_object().unwrap()))
    }

    #[test]
    fn a_prompt_comes_in_four_ways() {
        let parts = |prompt: Value| -> Vec<Part> {
            let prompts = call(json!({ "prompt": prompt })).unwrap().prompts;
            prompts.into_iter().flat_map(|p| p.parts).collect()
        };
        let text = |t: &str| Part::Template(t.into());
        assert_eq!(parts(json!("a")), [text("a")]);
        assert_eq!(parts(json!(["a", "b"])), [text("a"), text("b")]);
        assert_eq!(parts(json!([1, 2])), [Part::Tokens(vec![1, 2])]);
        assert_eq!(parts(json!([[1], [2]])), [Part::Tokens(vec![1]), Part::Tokens(vec![2])]);
    }

    #[test]
    fn other_prompts_are_refused() {
        for (body, part) in [
            (json!({}), "is missing"),
            (json!({ "prompt": null }), "is missing"),
            (json!({ "prompt": "" }), "is empty"),
            (json!({ "prompt": [] }), "expected a string"),
            (json!({ "prompt": [[]] }), "is empty"),
            (json!({ "prompt": ["a", 1] }), "expected a string"),
            (json!({ "prompt": [1, "a"] }), "expected a string"),
            (json!({ "prompt": 7 }), "found 7"),
            (json!({ "prompt": { "a": 1 } }), "expected a string"),
            (json!({ "prompt": vec!["a"; 9], "n": 8 }), "72 answers"),
            (json!({ "prompt": "a", "logprobs": 21 }), "`logprobs`"),
        ] {
            let error = call(body.clone()).unwrap_err();
            assert!(error.message.contains(part), "{body}: {}", error.message);
            assert_eq!(error.status.as_u16(), 400);
        }
    }

    #[test]
    fn likelihoods_are_asked_for_by_number() {
        let asked = |logprobs| {
            call(json!({ "prompt": "a", "logprobs": logprobs })).unwrap().asked.request.logprobs
        };
        assert_eq!(asked(json!(3)), Some(3));
        assert_eq!(asked(json!(0)), Some(0));
        assert_eq!(asked(json!(null)), None);
    }
}
