//! A streamed answer: what the engine says becomes the pieces that a client reads.
//!
//! Its neighbour is `answer`, which knows their shapes. Pure: is told what was said, and by which of a call's answers.

use engine::language::{BackendError, Delta, TokenLogprob};
use serde_json::Value;

use super::answer::{Head, Spent, characters};
use super::error::ApiError;

/// State of a streamed call.
#[derive(Debug)]
pub(super) struct Events {
    head: Head,
    answers: Vec<Answer>,
    /// Answers to each prompt.
    per_prompt: usize,
    include_usage: bool,
    spent: Spent,
}

#[derive(Clone, Debug)]
struct Answer {
    /// None when likelihoods were not asked for; else those whose text has not come yet.
    logprobs: Option<Vec<TokenLogprob>>,
    /// Where the next token begins, in characters.
    offset: usize,
}

impl Events {
    /// For `answers` answers in all, `per_prompt` of them to each prompt.
    pub(super) fn new(
        head: Head,
        answers: usize,
        per_prompt: usize,
        wants_logprobs: bool,
        include_usage: bool,
    ) -> Self {
        let answer = Answer { logprobs: wants_logprobs.then(Vec::new), offset: 0 };
        let answers = vec![answer; answers];
        Events { head, answers, per_prompt, include_usage, spent: Spent::default() }
    }

    /// What comes before anything was said.
    pub(super) fn opening(&self) -> Vec<Value> {
        (0..self.answers.len()).filter_map(|index| self.head.opening(index)).collect()
    }

    /// What an answer said. None: nothing to show yet.
    pub(super) fn said(&mut self, index: usize, delta: Delta) -> Option<Value> {
        let answer = self.answers.get_mut(index)?;
        let (text, finish) = match delta {
            Delta::Logprobs(tokens) => {
                if let Some(waiting) = &mut answer.logprobs {
                    waiting.extend(tokens);
                }
                return None;
            }
            Delta::Text(text) => (text, None),
            Delta::End { finish, usage } => {
                self.spent.add(&usage, index.is_multiple_of(self.per_prompt));
                (String::new(), Some(finish))
            }
        };
        let tokens = answer.logprobs.as_mut().map(std::mem::take);
        let offset = answer.offset;
        answer.offset += tokens.as_deref().map_or(0, characters);
        Some(self.head.piece(index, &text, tokens.as_deref(), offset, finish))
    }

    /// What comes after all answers have ended.
    pub(super) fn closing(&self) -> Option<Value> {
        self.include_usage.then(|| self.head.usage(self.spent))
    }
}

/// An error in the middle of a stream, whose status was sent long ago.
pub(super) fn failed(error: BackendError) -> Value {
    ApiError::from(error).body()
}

#[cfg(test)]
mod tests {
    use engine::language::{Finish, Usage};
    use serde_json::json;

    use super::super::answer::Api;
    use super::*;

    fn events(api: Api, answers: usize, wants_logprobs: bool, include_usage: bool) -> Events {
        let head = Head { api, id: "x".into(), created: 0, model: "m".into() };
        Events::new(head, answers, answers, wants_logprobs, include_usage)
    }

    fn end() -> Delta {
        let usage = Usage { prompt_tokens: 4, completion_tokens: 2, ..Usage::default() };
        Delta::End { finish: Finish::Stop, usage }
    }

    fn likely(text: &str) -> Delta {
        let bytes = text.as_bytes().to_vec();
        Delta::Logprobs(vec![TokenLogprob { token: 1, bytes, logprob: -1.0, top: vec![] }])
    }

    #[test]
    fn a_chat_of_two_answers_is_opened_twice_and_paid_once() {
        let mut events = events(Api::Chat, 2, false, true);
        let roles: Vec<_> =
            events.opening().iter().map(|e| e["choices"][0]["index"].as_u64().unwrap()).collect();
        assert_eq!(roles, [0, 1]);
        let piece = events.said(1, Delta::Text("hi".into())).unwrap();
        assert_eq!(piece["choices"][0]["index"], 1);
        assert_eq!(piece["choices"][0]["delta"]["content"], "hi");
        for index in 0..2 {
            let last = events.said(index, end()).unwrap();
            assert_eq!(last["choices"][0]["finish_reason"], "stop");
        }
        let usage = events.closing().unwrap();
        assert_eq!(usage["choices"], json!([]));
        assert_eq!(usage["usage"]["prompt_tokens"], 4);
        assert_eq!(usage["usage"]["completion_tokens"], 4);
    }

    #[test]
    fn usage_comes_only_to_whom_asked() {
        assert_eq!(events(Api::Completions, 1, false, false).closing(), None);
    }

    #[test]
    fn likelihoods_wait_for_their_text_and_none_is_lost() {
        let mut events = events(Api::Completions, 1, true, false);
        assert_eq!(events.said(0, likely("a")), None);
        assert_eq!(events.said(0, likely("b")), None);
        let first = events.said(0, Delta::Text("ab".into())).unwrap();
        assert_eq!(first["choices"][0]["logprobs"]["tokens"], json!(["a", "b"]));
        assert_eq!(events.said(0, likely("c")), None);
        let last = events.said(0, end()).unwrap();
        assert_eq!(last["choices"][0]["logprobs"]["tokens"], json!(["c"]));
        assert_eq!(last["choices"][0]["logprobs"]["text_offset"], json!([2]));
    }

    #[test]
    fn what_nobody_asked_for_is_not_shown() {
        let mut events = events(Api::Chat, 1, false, false);
        assert_eq!(events.said(0, likely("a")), None);
        let piece = events.said(0, Delta::Text("a".into())).unwrap();
        assert_eq!(piece["choices"][0]["logprobs"], json!(null));
    }
}
