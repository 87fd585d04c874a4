//! How answers are drawn and what they are held to, with the real engine and real weights.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod language_support;

use std::collections::BTreeSet;

use engine::language::{
    BackendError, Constraint, Delta, EmbeddedBackend, Finish, GenerateRequest, LanguageBackend,
    Prompt, Sampling, ScoreRequest, TokenLogprob, Usage,
};
use futures_util::StreamExt;
use futures_util::future::join_all;
use language_support::{config, start};
use serde_json::{Value, json};

const FRANCE: &str = "The capital of France is";
const STORY: &str = "Once upon a time there was a";

fn ask(text: &str, tokens_max: u32) -> GenerateRequest {
    GenerateRequest::new(Prompt::template(text), tokens_max)
}

fn drawn(text: &str, tokens_max: u32, sampling: Sampling) -> GenerateRequest {
    GenerateRequest { sampling, ..ask(text, tokens_max) }
}

fn hot(seed: u64) -> Sampling {
    Sampling { temperature: 1.0, seed: Some(seed), ..Sampling::default() }
}

fn held(constraint: Constraint, tokens_max: u32, sampling: Sampling) -> GenerateRequest {
    GenerateRequest { constraint: Some(constraint), ..drawn("Answer: ", tokens_max, sampling) }
}

#[derive(Debug)]
struct Whole {
    text: String,
    pieces: Vec<String>,
    tokens: Vec<TokenLogprob>,
    finish: Finish,
    usage: Usage,
}

async fn try_whole(
    backend: &EmbeddedBackend,
    request: GenerateRequest,
) -> Result<Whole, BackendError> {
    let mut stream = backend.generate(request).await?;
    let (mut pieces, mut tokens) = (Vec::new(), Vec::new());
    while let Some(delta) = stream.next().await {
        match delta? {
            Delta::Text(text) => pieces.push(text),
            Delta::Logprobs(more) => {
                tokens.extend(more);
                let said: usize = pieces.iter().map(String::len).sum();
                let known: usize = tokens.iter().map(|t: &TokenLogprob| t.bytes.len()).sum();
                assert!(known > said, "a token came after its text");
            }
            Delta::End { finish, usage } => {
                return Ok(Whole { text: pieces.concat(), pieces, tokens, finish, usage });
            }
        }
    }
    panic!("no end");
}

async fn whole(backend: &EmbeddedBackend, request: GenerateRequest) -> Whole {
    try_whole(backend, request).await.unwrap()
}

async fn text(backend: &EmbeddedBackend, request: GenerateRequest) -> String {
    whole(backend, request).await.text
}

async fn refused(backend: &EmbeddedBackend, request: GenerateRequest) -> String {
    match try_whole(backend, request.clone()).await {
        Err(BackendError::BadRequest { detail }) => detail,
        other => panic!("{request:?}: {other:?}"),
    }
}

#[tokio::test]
async fn one_seed_gives_one_answer_and_none_another_each_time() {
    let backend = start().await;
    let seeds = [Some(1), Some(1), Some(2), None, None];
    let asked = seeds.map(|seed| text(&backend, drawn(STORY, 20, Sampling { seed, ..hot(0) })));
    let said = join_all(asked).await;
    assert_eq!(said[0], said[1]);
    assert_ne!(said[0], said[2]);
    assert_ne!(said[3], said[4]);
    // Company in the batch changes nothing.
    assert_eq!(text(&backend, drawn(STORY, 20, hot(1))).await, said[0]);
}

#[tokio::test]
async fn limits_so_narrow_that_one_token_is_left_are_greedy() {
    let backend = start().await;
    let greedy = text(&backend, ask(STORY, 20)).await;
    let narrow = [
        Sampling { top_k: 1, ..hot(5) },
        Sampling { top_p: 1e-6, ..hot(5) },
        Sampling { min_p: 1.0, ..hot(5) },
        Sampling { temperature: 1e-6, ..hot(5) },
    ];
    for sampling in narrow {
        assert_eq!(
            text(&backend, drawn(STORY, 20, sampling.clone())).await,
            greedy,
            "{sampling:?}"
        );
    }
    assert_ne!(text(&backend, drawn(STORY, 20, hot(5))).await, greedy);
}

/// What is drawn at a first place over many seeds, with and without each limit.
#[tokio::test]
async fn each_limit_narrows_what_is_drawn() {
    let backend = start().await;
    let kinds = async |sampling: Sampling| {
        let one = |seed| Sampling { seed: Some(seed), temperature: 1.5, ..sampling.clone() };
        let asked = (0..24).map(|seed| text(&backend, drawn(STORY, 1, one(seed))));
        join_all(asked).await.into_iter().collect::<BTreeSet<String>>().len()
    };
    let free = kinds(Sampling::default()).await;
    assert!(free > 12, "{free} different at temperature 1.5");
    let limits = [
        Sampling { top_k: 4, ..Sampling::default() },
        Sampling { top_p: 0.1, ..Sampling::default() },
        Sampling { min_p: 0.5, ..Sampling::default() },
    ];
    for limit in limits {
        let found = kinds(limit.clone()).await;
        assert!(found <= free / 2, "{found} different of {limit:?}, {free} without");
    }
}

#[tokio::test]
async fn each_penalty_makes_an_answer_repeat_itself_less() {
    let backend = start().await;
    // Tokens that were there before, of 60.
    let repeated = async |sampling: Sampling| {
        let said = text(&backend, drawn(STORY, 60, sampling)).await;
        let tokens = backend.tokenize(said, false).await.unwrap();
        tokens.len() - tokens.iter().collect::<BTreeSet<_>>().len()
    };
    let d = Sampling::default();
    let free = repeated(d.clone()).await;
    let penalties = [
        Sampling { repetition_penalty: 1.5, ..d.clone() },
        Sampling { frequency_penalty: 1.5, ..d.clone() },
        Sampling { presence_penalty: 2.0, ..d },
    ];
    for penalty in penalties {
        let found = repeated(penalty.clone()).await;
        assert!(3 * found < 2 * free, "{found} repeated tokens with {penalty:?}, {free} without");
    }
}

#[tokio::test]
async fn a_bias_brings_tokens_in_and_keeps_them_out() {
    let backend = start().await;
    let paris = backend.tokenize(" Paris".into(), false).await.unwrap()[0];
    let green = backend.tokenize(" green".into(), false).await.unwrap()[0];
    let biased = |token, bias| {
        drawn(FRANCE, 3, Sampling { logit_bias: [(token, bias)].into(), ..Sampling::default() })
    };
    assert!(text(&backend, ask(FRANCE, 3)).await.starts_with(" Paris"));
    assert!(!text(&backend, biased(paris, -100.0)).await.contains("Paris"));
    assert_eq!(text(&backend, biased(green, 100.0)).await, " green green green");
    let unknown = refused(&backend, biased(1 << 30, 1.0)).await;
    assert!(unknown.contains("logit_bias: token 1073741824, expected 0 to 49151"), "{unknown}");
}

#[tokio::test]
async fn what_is_out_of_bounds_is_refused_by_name() {
    let backend = start().await;
    let with = |sampling| drawn(FRANCE, 3, sampling);
    let d = Sampling::default();
    let wrong = [
        (with(Sampling { temperature: f32::NAN, ..d.clone() }), "temperature is NaN"),
        (with(Sampling { top_p: 1.5, ..d.clone() }), "top_p is 1.5"),
        (with(Sampling { min_p: -1.0, ..d.clone() }), "min_p is -1"),
        (
            with(Sampling { presence_penalty: f32::INFINITY, ..d.clone() }),
            "presence_penalty is inf",
        ),
        (with(Sampling { frequency_penalty: 3.0, ..d.clone() }), "frequency_penalty is 3"),
        (with(Sampling { repetition_penalty: 0.0, ..d }), "repetition_penalty is 0"),
        (GenerateRequest { logprobs: Some(21), ..ask(FRANCE, 3) }, "logprobs is 21"),
        (GenerateRequest { tokens_min: 4, ..ask(FRANCE, 3) }, "tokens_min is 4"),
        (GenerateRequest { stop_tokens: vec![-1], ..ask(FRANCE, 3) }, "stop_tokens: token -1"),
    ];
    for (request, detail) in wrong {
        let found = refused(&backend, request).await;
        assert!(found.contains(detail) && found.contains("expected"), "{found}, not {detail}");
    }
    assert!(text(&backend, ask(FRANCE, 3)).await.starts_with(" Paris"));
}

#[tokio::test]
async fn an_answer_ends_where_it_may_and_not_before() {
    let backend = start().await;
    const CHAT: &str = "<|im_start|>user\nSay yes or no.<|im_end|>\n<|im_start|>assistant\n";
    let plain = whole(&backend, ask(CHAT, 60)).await;
    assert_eq!(plain.finish, Finish::Stop, "{plain:?}");
    let n = plain.usage.completion_tokens;
    let longer = GenerateRequest { tokens_min: n + 5, ..ask(CHAT, 60) };
    let longer = whole(&backend, longer).await;
    assert!(longer.usage.completion_tokens >= n + 5, "{longer:?}");
    assert!(longer.text.starts_with(&plain.text));
    let endless = GenerateRequest { ignore_end: true, ..ask(CHAT, n + 9) };
    let endless = whole(&backend, endless).await;
    assert_eq!((endless.finish, endless.usage.completion_tokens), (Finish::Length, n + 9));

    // A stop token ends the answer and is no part of it, but not before there are enough tokens.
    let six = ask("1, 2, 3, 4, 5,", 12);
    let said = text(&backend, six.clone()).await;
    assert!(said.starts_with(" 6, 7, 8"), "{said}");
    let seven = backend.tokenize("7".into(), false).await.unwrap();
    let stopped = GenerateRequest { stop_tokens: seven.clone(), ..six.clone() };
    let stopped = whole(&backend, stopped).await;
    assert_eq!((stopped.text.as_str(), stopped.finish), (" 6, ", Finish::Stop));
    let kept = GenerateRequest { stop_tokens: seven, tokens_min: 12, ..six.clone() };
    let kept = whole(&backend, kept).await;
    assert!(!kept.text.contains('7') && kept.usage.completion_tokens == 12, "{kept:?}");
    // A stop text within them ends nothing either.
    let passed = GenerateRequest { stop: vec!["7".into(), "8".into()], tokens_min: 5, ..six };
    assert_eq!(text(&backend, passed).await, " 6, 7, ");
}

#[tokio::test]
async fn likelihoods_of_an_answer_sum_to_its_score() {
    let backend = start().await;
    for sampling in [Sampling::default(), Sampling { temperature: 0.7, ..hot(3) }] {
        let request = GenerateRequest { logprobs: Some(4), ..drawn(FRANCE, 8, sampling.clone()) };
        let answer = whole(&backend, request.clone()).await;
        assert_eq!(answer.tokens.len(), 8);
        let bytes: Vec<u8> = answer.tokens.iter().flat_map(|t| t.bytes.clone()).collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), answer.text);
        for token in &answer.tokens {
            assert_eq!(token.top.len(), 4);
            assert!(token.top.is_sorted_by(|a, b| a.2 >= b.2), "{token:?}");
            if sampling.temperature == 0.0 {
                assert_eq!((token.token, token.logprob), (token.top[0].0, token.top[0].2));
            }
        }
        let sum: f64 = answer.tokens.iter().map(|t| f64::from(t.logprob)).sum();
        let prefix = Prompt::template(FRANCE);
        let tokens = backend.tokenize(answer.text.clone(), false).await.unwrap();
        assert_eq!(tokens, answer.tokens.iter().map(|t| t.token).collect::<Vec<_>>());
        let request = ScoreRequest {
            prefix,
            continuations: vec![answer.text],
            priority: 0,
            time_limit_ms: None,
        };
        let score = backend.score(request).await.unwrap()[0];
        assert!((score.log_likelihood - sum).abs() < 0.05, "{} {sum}", score.log_likelihood);
    }
    let none = GenerateRequest { logprobs: Some(0), ..ask(FRANCE, 2) };
    let answer = whole(&backend, none).await;
    assert!(answer.tokens.len() == 2 && answer.tokens.iter().all(|t| t.top.is_empty()));
    // The likelihoods are the model's own, whatever was penalised or held.
    let digits = Constraint::Regex("[0-9]{2}".into());
    let request = GenerateRequest { logprobs: Some(1), ..held(digits, 4, Sampling::default()) };
    let answer = whole(&backend, request).await;
    assert!(answer.tokens.iter().all(|t| t.logprob <= t.top[0].2), "{answer:?}");
}

fn person() -> Value {
    json!({
        "type": "object",
        "properties": {
            "mood": {"enum": ["happy", "sad", "tired"]},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "name": {"type": "string", "maxLength": 12},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 2}
        },
        "required": ["mood", "age", "name"],
        "additionalProperties": false
    })
}

#[tokio::test]
async fn a_json_schema_holds_the_answer_greedy_and_drawn() {
    let backend = start().await;
    let validator = jsonschema::validator_for(&person()).unwrap();
    let mut samplings = vec![Sampling::default()];
    samplings.extend((0..6).map(hot));
    samplings.push(Sampling { temperature: 2.0, repetition_penalty: 1.5, ..hot(7) });
    let asked =
        samplings.iter().map(|s| whole(&backend, held(Constraint::Json(person()), 200, s.clone())));
    let answers = join_all(asked).await;
    for answer in &answers {
        let value: Value = serde_json::from_str(&answer.text).unwrap();
        assert!(validator.is_valid(&value), "{}", answer.text);
        assert_eq!(answer.finish, Finish::Stop, "{}", answer.text);
    }
    let texts: BTreeSet<&str> = answers.iter().map(|a| a.text.as_str()).collect();
    assert!(texts.len() > 4, "{texts:?}");
    // The end needs no step of its own.
    let tokens_max = answers[0].usage.completion_tokens;
    let exact = held(Constraint::Json(person()), tokens_max, Sampling::default());
    assert_eq!(whole(&backend, exact).await.finish, Finish::Stop);
    // No schema to speak of is any JSON.
    let schemas = [json!({}), json!(true), json!({"type": ["number", "boolean", "null"]})];
    let asked = schemas.map(|s| whole(&backend, held(Constraint::Json(s), 60, hot(11))));
    for answer in join_all(asked).await {
        if answer.finish == Finish::Stop {
            serde_json::from_str::<Value>(&answer.text).unwrap();
        }
    }
}

#[tokio::test]
async fn an_expression_a_grammar_and_a_choice_hold_the_answer_greedy_and_drawn() {
    let backend = start().await;
    let number = |text: &str| {
        let bytes = text.as_bytes();
        let digit = |i: usize| bytes[i].is_ascii_digit();
        bytes.len() == 8 && bytes[3] == b'-' && (0..8).filter(|&i| i != 3).all(digit)
    };
    let kinds = [
        Constraint::Regex("[0-9]{3}-[0-9]{4}".into()),
        Constraint::Regex("^[0-9]{3}-[0-9]{4}$".into()),
        Constraint::Regex(r"\d{3}-(\d{4})".replace(r"\d", "[0-9]")),
        Constraint::Grammar("root ::= d d d \"-\" d d d d\nd ::= [0-9]".into()),
    ];
    for kind in kinds {
        let samplings = [Sampling::default(), hot(1), hot(2), Sampling { top_p: 0.9, ..hot(3) }];
        let asked = samplings.map(|s| whole(&backend, held(kind.clone(), 20, s)));
        let answers = join_all(asked).await;
        for answer in &answers {
            assert!(number(&answer.text), "{kind:?}: {answer:?}");
            assert_eq!(answer.finish, Finish::Stop);
        }
        let texts: BTreeSet<&str> = answers.iter().map(|a| a.text.as_str()).collect();
        assert!(texts.len() > 1, "{texts:?}");
        let tokens_max = answers[0].usage.completion_tokens;
        let exact = held(kind, tokens_max, Sampling::default());
        assert_eq!(whole(&backend, exact).await.finish, Finish::Stop);
    }
    let choices = ["red", "blue", "blueish", "yellow"].map(String::from);
    let choice = |seed| {
        let sampling = Sampling { temperature: 2.0, ..hot(seed) };
        held(Constraint::Choice(choices.to_vec()), 20, sampling)
    };
    let said = join_all((0..16).map(|seed| text(&backend, choice(seed)))).await;
    assert!(said.iter().all(|s| choices.contains(s)), "{said:?}");
    assert!(said.iter().collect::<BTreeSet<_>>().len() > 1, "{said:?}");
    // An open end: the model, or the longest answer, ends it.
    let open = held(Constraint::Regex("(ab)+".into()), 9, hot(3));
    assert!(text(&backend, open).await.starts_with("ab"));
}

#[tokio::test]
async fn a_bad_schema_or_expression_is_refused_with_its_reason_and_the_engine_goes_on() {
    let backend = start().await;
    let pid = backend.pid();
    let nested = (0..90).fold(json!({"type": "null"}), |inner, _| json!({"items": inner}));
    let looped = json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}});
    let mutual = json!({
        "$ref": "#/$defs/a",
        "$defs": {
            "a": {"allOf": [{"$ref": "#/$defs/b"}, {"type": "object"}]},
            "b": {"allOf": [{"$ref": "#/$defs/a"}, {"type": "object"}]}
        }
    });
    let wrong = [
        (Constraint::Json(json!({"type": "objekt"})), "objekt"),
        (Constraint::Json(json!([1])), "an array, expected an object"),
        (Constraint::Json(json!(false)), "allows nothing"),
        (Constraint::Json(json!({"type": "integer", "minimum": 5, "maximum": 4})), "minimum"),
        (Constraint::Json(json!({"$ref": "#/$defs/none"})), "none"),
        (Constraint::Json(json!({"$ref": "http://example.com/schema"})), "example.com"),
        (Constraint::Json(json!({"x-guidance": 1, "type": "objekt"})), "objekt"),
        (Constraint::Json(json!({"type": "string", "pattern": "("})), "unclosed"),
        (Constraint::Json(nested), "depth"),
        (Constraint::Json(json!({"title": "x".repeat(70_000)})), "bytes"),
        (Constraint::Json(looped), "no text fits"),
        (Constraint::Json(mutual), "circular"),
        (Constraint::Regex("[0-9".into()), "unclosed"),
        (Constraint::Regex("(".repeat(3000)), "the regular expression"),
        (Constraint::Regex("a".repeat(9000)), "bytes"),
        (Constraint::Regex("(?:(?:(?:.{1,999}x){1,999}){1,999}".into()), "the regular expression"),
        (Constraint::Grammar("root ::= (".into()), "the grammar"),
        (Constraint::Grammar("root ::= nothing".into()), "the grammar"),
        (
            Constraint::Grammar(format!("root ::= {}\"a\"{}", "(".repeat(300), ")".repeat(300))),
            "depth",
        ),
    ];
    for (constraint, reason) in wrong {
        let found = refused(&backend, held(constraint, 10, Sampling::default())).await;
        assert!(found.contains(reason), "{found}, not {reason}");
        assert!(found.len() < 800, "{found}");
    }
    let large = Constraint::Regex("((a{1,900}b){1,900}c){1,900}".into());
    assert!(text(&backend, held(large, 10, Sampling::default())).await.starts_with('a'));
    assert!(text(&backend, ask(FRANCE, 3)).await.starts_with(" Paris"));
    assert_eq!(backend.pid(), pid);
}

#[tokio::test]
async fn characters_of_many_bytes_are_never_broken() {
    let backend = start().await;
    let chinese = |n: u32| Constraint::Regex(format!("[\u{4e00}-\u{9fff}]{{{n}}}"));
    let is_chinese = |c: char| ('\u{4e00}'..='\u{9fff}').contains(&c);
    for seed in 0..3 {
        let sampling = hot(seed);
        let answer = whole(&backend, held(chinese(6), 60, sampling.clone())).await;
        assert!(answer.text.chars().count() == 6 && answer.text.chars().all(is_chinese));
        assert!(answer.pieces.iter().all(|p| p.chars().all(is_chinese)), "{answer:?}");
        // Cut off anywhere, what is said is whole, and the likelihoods still tell every byte.
        for tokens_max in 1..6 {
            let cut = held(chinese(6), tokens_max, sampling.clone());
            let cut = whole(&backend, GenerateRequest { logprobs: Some(0), ..cut }).await;
            assert!(answer.text.starts_with(&cut.text), "{cut:?} of {answer:?}");
            let bytes: Vec<u8> = cut.tokens.iter().flat_map(|t| t.bytes.clone()).collect();
            assert!(bytes.starts_with(cut.text.as_bytes()));
        }
    }
    let wild = Sampling { temperature: 2.0, ..hot(9) };
    let answer = whole(
        &backend,
        held(Constraint::Json(json!({"type": "string", "maxLength": 30})), 200, wild),
    )
    .await;
    assert!(serde_json::from_str::<String>(&answer.text).unwrap().chars().count() <= 30);
}

/// Runs `request`, which urgent ones push out of the only place twice.
async fn interrupted(backend: &EmbeddedBackend, request: GenerateRequest) -> String {
    let mut stream = backend.generate(request).await.unwrap();
    let (mut said, mut pieces) = (String::new(), 0);
    while let Some(delta) = stream.next().await {
        if let Delta::Text(more) = delta.unwrap() {
            said += &more;
            pieces += 1;
        }
        if pieces == 3 || pieces == 9 {
            pieces += 1;
            let urgent = GenerateRequest { priority: -10, ..ask(FRANCE, 2) };
            assert!(text(backend, urgent).await.starts_with(" Paris"));
        }
    }
    said
}

/// What its neighbours in the pool are moves logits a little, so that draws of two runs may differ here and
/// there; each state is asked for in a way that this does not touch.
#[tokio::test]
async fn who_gave_up_a_place_goes_on_with_its_penalties_its_constraint_and_its_luck() {
    let mut config = config();
    config.child.slots = 1;
    config.child.slots_urgent = 0;
    let backend = EmbeddedBackend::start(config);
    backend.ready().await;
    let mut letters = Vec::new();
    for letter in 'a'..='x' {
        letters.push(backend.tokenize(format!(" {letter}"), false).await.unwrap()[0]);
    }
    let only = |n: usize| letters.iter().take(n).map(|&t| (t, 100.0)).collect();

    let unique = Sampling { repetition_penalty: 2.0, logit_bias: only(24), ..hot(1) };
    let said = interrupted(&backend, drawn("Letters:", 24, unique)).await;
    let different: BTreeSet<&str> = said.split_whitespace().collect();
    assert_eq!(different.len(), 24, "no letter twice: {said}");

    let schema = json!({"type": "array", "items": {"type": "integer", "maximum": 999, "minimum": 100}, "minItems": 12, "maxItems": 12});
    let said = interrupted(&backend, held(Constraint::Json(schema), 120, hot(2))).await;
    let numbers: Vec<u32> = serde_json::from_str(&said).unwrap();
    assert!(numbers.len() == 12 && numbers.iter().all(|n| (100..1000).contains(n)), "{said}");

    let coin = Sampling { temperature: 2.0, top_k: 2, logit_bias: only(2), ..hot(3) };
    let alone = text(&backend, drawn("Letters:", 80, coin.clone())).await;
    let again = interrupted(&backend, drawn("Letters:", 80, coin)).await;
    assert!(alone.contains(" a") && alone.contains(" b"), "{alone}");
    let same = alone.chars().zip(again.chars()).filter(|(a, b)| a == b && a.is_alphabetic());
    let same = same.count();
    assert!(same >= 64, "{same} of 80 draws are the same:\n{alone}\n{again}");

    for _ in 0..100 {
        if backend.stats().preemptions >= 6 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("gave up a place {} times, expected 6", backend.stats().preemptions);
}
