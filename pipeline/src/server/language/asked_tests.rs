use engine::language::Constraint;
use serde_json::{Value, json};

use super::asked::{Asked, read};
use super::error::ApiError;
use super::fields::Fields;

fn asked(body: Value) -> Result<Asked, ApiError> {
    read(&Fields::new(body.as_object().unwrap()))
}

#[track_caller]
fn refused(body: Value) -> String {
    let error = asked(body).unwrap_err();
    assert_eq!(error.status.as_u16(), 400);
    assert!(error.param.is_some(), "{error:?}");
    error.message
}

#[test]
fn nothing_said_is_what_vllm_does() {
    let asked = asked(json!({})).unwrap();
    assert_eq!((asked.model, asked.id, asked.tokens_max), (None, None, None));
    assert_eq!((asked.stream, asked.include_usage, asked.answers), (false, false, 1));
    let sampling = &asked.request.sampling;
    assert_eq!((sampling.temperature, sampling.top_p, sampling.top_k), (1.0, 1.0, 0));
    assert_eq!(sampling.seed, None);
    assert_eq!(asked.request.constraint, None);
    assert_eq!(asked.request.priority, 10);
}

#[test]
fn all_fields_arrive() {
    let asked = asked(json!({
        "model": "m", "request_id": "r-1", "stream": true, "stream_options": { "include_usage": true },
        "n": 2, "max_tokens": 7, "min_tokens": 3, "temperature": 0.5, "top_p": 0.9, "top_k": 40,
        "min_p": 0.05, "presence_penalty": 0.5, "frequency_penalty": -0.5, "repetition_penalty": 1.5,
        "logit_bias": { "12": -100, "13": 500 }, "seed": 42, "stop": ["a", "b"], "stop_token_ids": [2],
        "ignore_eos": true, "cache_salt": "s", "priority": -3, "user": "somebody", "unheard_of": { "x": 1 },
    }))
    .unwrap();
    assert_eq!(asked.model.as_deref(), Some("m"));
    assert_eq!(asked.id.as_deref(), Some("r-1"));
    assert_eq!((asked.stream, asked.include_usage, asked.answers), (true, true, 2));
    assert_eq!(asked.tokens_max, Some(7));
    let request = &asked.request;
    assert_eq!((request.tokens_min, request.ignore_end, request.priority), (3, true, 7));
    assert_eq!(request.stop, ["a", "b"]);
    assert_eq!(request.stop_tokens, [2]);
    assert_eq!(request.cache_salt.as_deref(), Some("s"));
    let s = &request.sampling;
    assert_eq!((s.temperature, s.top_p, s.top_k, s.min_p), (0.5, 0.9, 40, 0.05));
    assert_eq!((s.presence_penalty, s.frequency_penalty, s.repetition_penalty), (0.5, -0.5, 1.5));
    assert_eq!(s.logit_bias, [(12, -100.0), (13, 100.0)].into());
    assert_eq!(s.seed, Some(42));
}

#[test]
fn the_newer_name_of_the_length_wins() {
    let both = asked(json!({ "max_tokens": 5, "max_completion_tokens": 6 })).unwrap();
    assert_eq!(both.tokens_max, Some(6));
}

#[test]
fn nothing_of_another_program_gets_before_the_streams_own_text() {
    let place = |p: Value| asked(json!({ "priority": p })).unwrap().request.priority;
    assert_eq!(place(json!(0)), 10);
    assert_eq!(place(json!(5)), 15);
    assert_eq!(place(json!(-10)), 0);
    assert_eq!(place(json!(-11)), 0);
    assert_eq!(place(json!(i64::MIN)), 0);
    assert_eq!(place(json!(i64::MAX)), 1_000);
}

#[test]
fn a_stop_text_may_stand_alone() {
    assert_eq!(asked(json!({ "stop": "\n" })).unwrap().request.stop, ["\n"]);
}

#[test]
fn each_answer_has_its_own_seed_and_they_share_their_prompt() {
    let asked = asked(json!({ "n": 3, "seed": 5 })).unwrap();
    let prompt = engine::language::Prompt::template("a");
    let requests = asked.requests(vec![(prompt.clone(), 4), (prompt, 9)]);
    let seeds: Vec<_> = requests.iter().map(|r| r.sampling.seed.unwrap()).collect();
    assert_eq!(seeds, [5, 6, 7, 5, 6, 7]);
    let lengths: Vec<_> = requests.iter().map(|r| r.tokens_max).collect();
    assert_eq!(lengths, [4, 4, 4, 9, 9, 9]);
    assert!(requests.iter().all(|r| r.prompt.reuse == 1));
}

#[test]
fn a_seed_of_minus_one_is_none_and_others_are_kept() {
    let seed = |s: i64| asked(json!({ "seed": s })).unwrap().request.sampling.seed;
    assert_eq!(seed(-1), None);
    assert_eq!(seed(0), Some(0));
    assert_ne!(seed(-2), seed(-3));
}

#[test]
fn wrong_values_are_refused_by_name() {
    for (body, part) in [
        (json!({ "temperature": -1 }), "`temperature`: found -1, expected a number from 0"),
        (json!({ "temperature": "hot" }), "`temperature`"),
        (json!({ "top_p": 0 }), "`top_p`"),
        (json!({ "top_p": 1.1 }), "`top_p`"),
        (json!({ "top_k": -2 }), "`top_k`"),
        (json!({ "min_p": 2 }), "`min_p`"),
        (json!({ "presence_penalty": 3 }), "`presence_penalty`"),
        (json!({ "repetition_penalty": 0 }), "`repetition_penalty`"),
        (json!({ "logit_bias": { "a": 1 } }), "`logit_bias`"),
        (json!({ "logit_bias": [1] }), "`logit_bias`"),
        (json!({ "n": 0 }), "`n`"),
        (json!({ "n": 9 }), "from 1 to 8"),
        (json!({ "max_tokens": 0 }), "`max_tokens`"),
        (json!({ "max_tokens": 2.5 }), "`max_tokens`"),
        (json!({ "max_tokens": 2, "min_tokens": 3 }), "`min_tokens`"),
        (json!({ "stop": "" }), "`stop`"),
        (json!({ "stop": 1 }), "`stop`"),
        (json!({ "stop_token_ids": ["a"] }), "`stop_token_ids`"),
        (json!({ "stream": "yes" }), "`stream`"),
        (json!({ "stream_options": true }), "`stream_options`"),
        (json!({ "model": 1 }), "`model`"),
        (json!({ "request_id": "" }), "`request_id`"),
        (json!({ "priority": "high" }), "`priority`"),
        (json!({ "seed": 1.5 }), "`seed`"),
        (json!({ "echo": true }), "not supported"),
        (json!({ "best_of": 4 }), "`best_of`"),
        (json!({ "suffix": "end" }), "`suffix`"),
        (json!({ "prompt_logprobs": 1 }), "`prompt_logprobs`"),
    ] {
        let message = refused(body.clone());
        assert!(message.contains(part), "{body}: {message}");
    }
}

#[test]
fn what_asks_for_nothing_is_no_fault() {
    let idle = json!({
        "echo": false, "best_of": 2, "n": 2, "suffix": null, "use_beam_search": false, "bad_words": [],
    });
    assert!(asked(idle).is_ok());
}

#[test]
fn every_way_to_hold_an_answer_to_something() {
    let held = |body: Value| asked(body).unwrap().request.constraint;
    let object = json!({ "type": "object" });
    let json = || Some(Constraint::Json(object.clone()));
    assert_eq!(held(json!({ "response_format": { "type": "text" } })), None);
    assert_eq!(held(json!({ "response_format": { "type": "json_object" } })), json());
    let format = json!({ "type": "json_schema", "json_schema": { "name": "a", "schema": object } });
    assert_eq!(held(json!({ "response_format": format })), json());
    for body in [
        json!({ "structured_outputs": { "json": object } }),
        json!({ "structured_outputs": { "json": object.to_string() } }),
        json!({ "structured_outputs": { "json_object": true } }),
        json!({ "guided_json": object }),
    ] {
        assert_eq!(held(body.clone()), json(), "{body}");
    }
    let regex = Some(Constraint::Regex("[ab]+".into()));
    assert_eq!(held(json!({ "structured_outputs": { "regex": "[ab]+" } })), regex);
    assert_eq!(held(json!({ "guided_regex": "[ab]+" })), regex);
    let choice = Some(Constraint::Choice(vec!["a".into(), "b".into()]));
    assert_eq!(held(json!({ "structured_outputs": { "choice": ["a", "b"] } })), choice);
    assert_eq!(held(json!({ "guided_choice": ["a", "b"] })), choice);
    let grammar = Some(Constraint::Grammar("root ::= \"a\"".into()));
    assert_eq!(held(json!({ "structured_outputs": { "grammar": "root ::= \"a\"" } })), grammar);
    assert_eq!(held(json!({ "guided_grammar": "root ::= \"a\"" })), grammar);
}

#[test]
fn an_answer_is_held_to_one_thing() {
    for (body, part) in [
        (json!({ "guided_regex": "a", "guided_choice": ["a"] }), "`guided_choice`"),
        (json!({ "structured_outputs": { "regex": "a", "json": {} } }), "structured_outputs.regex"),
        (json!({ "response_format": { "type": "xml" } }), "expected text, json_object"),
        (json!({ "response_format": { "type": "json_schema" } }), "json_schema: {name, schema}"),
        (json!({ "response_format": "json" }), "`response_format`"),
        (json!({ "guided_json": "{" }), "`guided_json`"),
        (json!({ "guided_choice": [1] }), "`guided_choice`"),
        (json!({ "structured_outputs": { "regex": 1 } }), "`regex`"),
    ] {
        let message = refused(body.clone());
        assert!(message.contains(part), "{body}: {message}");
    }
}
