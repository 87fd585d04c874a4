//! What answers look like: the JSON of both APIs, whole and in pieces, as OpenAI's clients read it and vLLM writes
//! it. Pure.

use engine::language::{Finish, TokenLogprob, Usage};
use serde_json::{Map, Value, json};

/// Likelihood of what can't be; JSON has no infinity.
const LOGPROB_MIN: f32 = -9_999.0;

/// Which API is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    Completions,
    Chat,
}

/// What all pieces of an answer have in common.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) api: Api,
    /// With the API's own beginning.
    pub(super) id: String,
    /// Seconds since 1970.
    pub(super) created: i64,
    pub(super) model: String,
}

/// One finished answer of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) text: String,
    /// None when they were not asked for.
    pub(super) logprobs: Option<Vec<TokenLogprob>>,
    pub(super) finish: Finish,
}

/// Tokens of a whole call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spent {
    prompt: u64,
    cached: u64,
    completion: u64,
}

impl Spent {
    /// Adds an answer; a prompt counts once, however many answers it has.
    pub(super) fn add(&mut self, usage: &Usage, is_first_of_prompt: bool) {
        self.completion += u64::from(usage.completion_tokens);
        if is_first_of_prompt {
            self.prompt += u64::from(usage.prompt_tokens);
            self.cached += u64::from(usage.cached_tokens);
        }
    }

    fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": { "cached_tokens": self.cached },
        })
    }
}

impl Head {
    /// The answer to a call that is not streamed.
    pub(super) fn whole(&self, choices: &[Choice], spent: Spent) -> Value {
        let choices = choices.iter().enumerate().map(|(index, choice)| {
            let logprobs = self.logprobs(choice.logprobs.as_deref(), 0);
            let content = match self.api {
                Api::Completions => ("text", json!(choice.text)),
                Api::Chat => ("message", json!({ "role": "assistant", "content": choice.text })),
            };
            self.choice(index, content, logprobs, Some(choice.finish))
        });
        let object = match self.api {
            Api::Completions => "text_completion",
            Api::Chat => "chat.completion",
        };
        self.object(object, choices.collect(), Some(spent))
    }

    /// The first piece of a streamed answer, in APIs that have one.
    pub(super) fn opening(&self, index: usize) -> Option<Value> {
        match self.api {
            Api::Completions => None,
            Api::Chat => {
                let delta = json!({ "role": "assistant", "content": "" });
                Some(self.chunk(self.choice(index, ("delta", delta), Value::Null, None)))
            }
        }
    }

    /// More of an answer, or its end. `offset`: where its tokens begin, in characters of the answer.
    pub(super) fn piece(
        &self,
        index: usize,
        text: &str,
        logprobs: Option<&[TokenLogprob]>,
        offset: usize,
        finish: Option<Finish>,
    ) -> Value {
        let content = match self.api {
            Api::Completions => ("text", json!(text)),
            Api::Chat => ("delta", json!({ "content": text })),
        };
        self.chunk(self.choice(index, content, self.logprobs(logprobs, offset), finish))
    }

    /// The last piece of a stream that was to tell what it cost.
    pub(super) fn usage(&self, spent: Spent) -> Value {
        self.object(self.chunk_object(), Vec::new(), Some(spent))
    }

    fn chunk(&self, choice: Value) -> Value {
        self.object(self.chunk_object(), vec![choice], None)
    }

    fn chunk_object(&self) -> &'static str {
        match self.api {
            Api::Completions => "text_completion",
            Api::Chat => "chat.completion.chunk",
        }
    }

    fn object(&self, object: &str, choices: Vec<Value>, spent: Option<Spent>) -> Value {
        let mut body = json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        });
        if let (Some(spent), Some(body)) = (spent, body.as_object_mut()) {
            body.insert("usage".into(), spent.json());
        }
        body
    }

    fn choice(
        &self,
        index: usize,
        (name, content): (&str, Value),
        logprobs: Value,
        finish: Option<Finish>,
    ) -> Value {
        let mut choice = Map::new();
        choice.insert("index".into(), index.into());
        choice.insert(name.into(), content);
        choice.insert("logprobs".into(), logprobs);
        choice.insert("finish_reason".into(), finish.map_or(Value::Null, |f| reason(f).into()));
        choice.into()
    }

    fn logprobs(&self, tokens: Option<&[TokenLogprob]>, offset: usize) -> Value {
        let Some(tokens) = tokens else { return Value::Null };
        match self.api {
            Api::Completions => of_completions(tokens, offset),
            Api::Chat => {
                let token = |t: &TokenLogprob| {
                    let mut token = of_chat(&t.bytes, t.logprob);
                    let top: Vec<Value> = t
                        .top
                        .iter()
                        .map(|(_, bytes, logprob)| of_chat(bytes, *logprob).into())
                        .collect();
                    token.insert("top_logprobs".into(), top.into());
                    token
                };
                json!({ "content": tokens.iter().map(token).collect::<Vec<_>>() })
            }
        }
    }
}

/// Why it ended; an answer that ran out of time was cut short.
pub(super) fn reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length | Finish::TimeLimit => "length",
    }
}

/// Characters that tokens have in an answer, as `text_offset` counts them.
pub(super) fn characters(tokens: &[TokenLogprob]) -> usize {
    tokens.iter().map(|t| name(&t.bytes).chars().count()).sum()
}

fn of_completions(tokens: &[TokenLogprob], mut offset: usize) -> Value {
    let mut offsets = Vec::with_capacity(tokens.len());
    for token in tokens {
        offsets.push(offset);
        offset += name(&token.bytes).chars().count();
    }
    let top = |token: &TokenLogprob| {
        let all = token.top.iter().map(|(_, bytes, logprob)| (bytes, *logprob));
        // The token itself is among them, however unlikely it was.
        let own = std::iter::once((&token.bytes, token.logprob));
        let all = all.chain(own).map(|(bytes, logprob)| (name(bytes), finite(logprob).into()));
        Value::Object(all.collect())
    };
    json!({
        "text_offset": offsets,
        "tokens": tokens.iter().map(|t| name(&t.bytes)).collect::<Vec<_>>(),
        "token_logprobs": tokens.iter().map(|t| finite(t.logprob)).collect::<Vec<_>>(),
        "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
    })
}

fn of_chat(bytes: &[u8], logprob: f32) -> Map<String, Value> {
    let mut token = Map::new();
    token.insert("token".into(), name(bytes).into());
    token.insert("logprob".into(), finite(logprob).into());
    token.insert("bytes".into(), bytes.to_vec().into());
    token
}

/// A token as text; parts of a character become U+FFFD.
fn name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob.max(LOGPROB_MIN) } else { LOGPROB_MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(api: Api) -> Head {
        Head { api, id: "x-1".into(), created: 7, model: "m".into() }
    }

    fn token(text: &str, logprob: f32, top: &[(&str, f32)]) -> TokenLogprob {
        let top = top.iter().map(|(t, l)| (0, t.as_bytes().to_vec(), *l)).collect();
        TokenLogprob { token: 1, bytes: text.as_bytes().to_vec(), logprob, top }
    }

    fn spent() -> Spent {
        let usage =
            Usage { prompt_tokens: 5, cached_tokens: 3, completion_tokens: 2, ..Usage::default() };
        let mut spent = Spent::default();
        spent.add(&usage, true);
        spent.add(&usage, false);
        spent
    }

    fn usage_json() -> Value {
        json!({ "prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9,
            "prompt_tokens_details": { "cached_tokens": 3 } })
    }

    #[test]
    fn a_whole_answer_of_both_apis() {
        let choice = Choice { text: "hi".into(), logprobs: None, finish: Finish::Stop };
        let cut = Choice { finish: Finish::TimeLimit, ..choice.clone() };
        assert_eq!(
            head(Api::Completions).whole(&[choice.clone(), cut], spent()),
            json!({ "id": "x-1", "object": "text_completion", "created": 7, "model": "m", "choices": [
                { "index": 0, "text": "hi", "logprobs": null, "finish_reason": "stop" },
                { "index": 1, "text": "hi", "logprobs": null, "finish_reason": "length" },
            ], "usage": usage_json() })
        );
        assert_eq!(
            head(Api::Chat).whole(&[choice], spent()),
            json!({ "id": "x-1", "object": "chat.completion", "created": 7, "model": "m", "choices": [
                { "index": 0, "message": { "role": "assistant", "content": "hi" }, "logprobs": null,
                  "finish_reason": "stop" },
            ], "usage": usage_json() })
        );
    }

    #[test]
    fn pieces_of_both_apis() {
        let (text, chat) = (head(Api::Completions), head(Api::Chat));
        assert_eq!(text.opening(0), None);
        assert_eq!(
            chat.opening(1).unwrap(),
            json!({ "id": "x-1", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [
                { "index": 1, "delta": { "role": "assistant", "content": "" }, "logprobs": null,
                  "finish_reason": null },
            ] })
        );
        let piece = chat.piece(0, "hi", None, 0, None);
        assert_eq!(piece["choices"][0]["delta"], json!({ "content": "hi" }));
        let end = text.piece(0, "", None, 0, Some(Finish::Length));
        assert_eq!(
            end["choices"][0],
            json!({ "index": 0, "text": "", "logprobs": null, "finish_reason": "length" })
        );
        let usage = chat.usage(spent());
        assert_eq!((&usage["choices"], &usage["usage"]), (&json!([]), &usage_json()));
        assert_eq!(usage["object"], "chat.completion.chunk");
    }

    #[test]
    fn likelihoods_in_the_shapes_of_both_apis() {
        let tokens =
            [token("né", -0.5, &[("né", -0.5), ("x", -1.5)]), token("e", f32::NEG_INFINITY, &[])];
        assert_eq!(
            head(Api::Completions).piece(0, "née", Some(&tokens), 10, None)["choices"][0]["logprobs"],
            json!({
                "text_offset": [10, 12], "tokens": ["né", "e"], "token_logprobs": [-0.5, -9999.0],
                "top_logprobs": [{ "né": -0.5, "x": -1.5 }, { "e": -9999.0 }],
            })
        );
        assert_eq!(
            head(Api::Chat).piece(0, "née", Some(&tokens), 0, None)["choices"][0]["logprobs"],
            json!({ "content": [
                { "token": "né", "logprob": -0.5, "bytes": [110, 195, 169], "top_logprobs": [
                    { "token": "né", "logprob": -0.5, "bytes": [110, 195, 169] },
                    { "token": "x", "logprob": -1.5, "bytes": [120] },
                ] },
                { "token": "e", "logprob": -9999.0, "bytes": [101], "top_logprobs": [] },
            ] })
        );
        assert_eq!(characters(&tokens), 3);
        let half = TokenLogprob { bytes: vec![0xc3], ..token("", -1.0, &[]) };
        let shown = head(Api::Chat).piece(0, "", Some(&[half]), 0, None);
        let shown = &shown["choices"][0]["logprobs"]["content"][0];
        assert_eq!((&shown["token"], &shown["bytes"]), (&json!("\u{fffd}"), &json!([195])));
    }
}
