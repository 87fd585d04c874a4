//! What the two APIs have in common: a body's fields become an [`Asked`]. Names and meanings are vLLM's.
//!
//! Its neighbours `completions` and `chat` add the prompt. Pure: knows no model and no socket.

use std::collections::BTreeMap;

use engine::language::{Constraint, GenerateRequest, Prompt, Sampling};
use serde_json::{Value, json};

use super::error::ApiError;
use super::fields::{Fields, shown};

/// Answers to one prompt at most.
const ANSWERS_MAX: i64 = 8;
/// Generations of one call at most: prompts times answers.
pub(super) const GENERATIONS_MAX: usize = 64;
/// Likeliest tokens that can be asked for at each place.
const LOGPROBS_MAX: i64 = 20;
/// Longest name that a request may have.
const ID_BYTES_MAX: usize = 256;
/// How urgent a request of another program can be at most: the streams' own text has 0 to 5.
const PRIORITY_FIRST: i64 = 0;
/// What a request has that says nothing.
const PRIORITY_DEFAULT: i64 = 10;
const PRIORITY_LAST: i64 = 1_000;

/// A call, without its prompt.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Asked {
    /// None: the one that is there.
    pub(super) model: Option<String>,
    /// What the caller calls it.
    pub(super) id: Option<String>,
    pub(super) stream: bool,
    /// Whether a stream tells at its end what it cost.
    pub(super) include_usage: bool,
    /// Answers to each prompt.
    pub(super) answers: usize,
    /// None: what the API says, or what the context leaves.
    pub(super) tokens_max: Option<u32>,
    /// Everything else; prompt and `tokens_max` are filled in later.
    pub(super) request: GenerateRequest,
}

impl Asked {
    /// One request for each answer to each prompt: of prompt `p` the answers `p·n` to `p·n + n - 1`.
    pub(super) fn requests(&self, prompts: Vec<(Prompt, u32)>) -> Vec<GenerateRequest> {
        let mut requests = Vec::with_capacity(prompts.len() * self.answers);
        for (mut prompt, tokens_max) in prompts {
            if self.answers > 1 {
                prompt.reuse = prompt.parts.len();
            }
            for answer in 0..self.answers as u64 {
                let mut request =
                    GenerateRequest { prompt: prompt.clone(), tokens_max, ..self.request.clone() };
                // With one seed for all, all would be the same.
                request.sampling.seed = request.sampling.seed.map(|s| s.wrapping_add(answer));
                requests.push(request);
            }
        }
        requests
    }
}

/// Reads what is common.
///
/// # Errors
/// 400, naming the field.
pub(super) fn read(fields: &Fields<'_>) -> Result<Asked, ApiError> {
    refuse(fields)?;
    let tokens_max = match fields.integer("max_completion_tokens", 1, u32::MAX.into())? {
        Some(tokens) => Some(tokens),
        None => fields.integer("max_tokens", 1, u32::MAX.into())?,
    };
    let tokens_min = fields.integer("min_tokens", 0, u32::MAX.into())?.unwrap_or(0);
    if let Some(most) = tokens_max.filter(|&most| most < tokens_min) {
        let message = format!("{tokens_min}, expected at most `max_tokens`, which is {most}");
        return Err(ApiError::field("min_tokens", message));
    }
    let stop = fields.texts("stop")?;
    if stop.iter().any(String::is_empty) {
        return Err(ApiError::field("stop", "an empty string stops nothing"));
    }
    let options = fields.object("stream_options")?;
    let include_usage = match options {
        Some(options) => options.bool("include_usage")?.unwrap_or(false),
        None => false,
    };
    let mut request = GenerateRequest::new(Prompt::default(), 0);
    request.stop = stop;
    request.stop_tokens = fields.tokens("stop_token_ids")?.unwrap_or_default();
    request.ignore_end = fields.bool("ignore_eos")?.unwrap_or(false);
    request.tokens_min = tokens_min as u32;
    request.sampling = sampling(fields)?;
    request.cache_salt = named(fields, "cache_salt")?;
    request.priority = priority(fields.integer("priority", i64::MIN, i64::MAX)?);
    request.constraint = constraint(fields)?;
    Ok(Asked {
        model: fields.text("model")?.filter(|m| !m.is_empty()).map(str::to_owned),
        id: named(fields, "request_id")?,
        stream: fields.bool("stream")?.unwrap_or(false),
        include_usage,
        answers: fields.integer("n", 1, ANSWERS_MAX)?.unwrap_or(1) as usize,
        tokens_max: tokens_max.map(|n| n as u32),
        request,
    })
}

/// How many of the likeliest tokens are wanted at each place.
pub(super) fn likeliest(fields: &Fields<'_>, name: &str) -> Result<Option<u8>, ApiError> {
    Ok(fields.integer(name, 0, LOGPROBS_MAX)?.map(|n| n as u8))
}

/// Known fields that ask for something this program does not do. To ignore them would give another answer than
/// the one that was asked for.
fn refuse(fields: &Fields<'_>) -> Result<(), ApiError> {
    let off = json!(false);
    for (name, idle) in [
        ("echo", &off),
        ("suffix", &json!("")),
        ("use_beam_search", &off),
        ("prompt_logprobs", &off),
        ("prompt_embeds", &off),
        ("include_stop_str_in_output", &off),
        ("truncate_prompt_tokens", &off),
        ("logits_processors", &json!([])),
        ("bad_words", &json!([])),
        ("allowed_token_ids", &json!([])),
    ] {
        fields.refuse(name, std::slice::from_ref(idle))?;
    }
    // Older clients send it along with `n`.
    let n = fields.get("n").cloned().unwrap_or(json!(1));
    fields.refuse("best_of", &[json!(1), n])
}

fn sampling(fields: &Fields<'_>) -> Result<Sampling, ApiError> {
    let penalty = |name| fields.number(name, -2.0, 2.0);
    let positive = 1e-6;
    let seed = fields.integer("seed", i64::MIN, i64::MAX)?;
    let top_k = fields.integer("top_k", -1, u32::MAX.into())?;
    Ok(Sampling {
        temperature: fields.number("temperature", 0.0, 100.0)?.unwrap_or(1.0),
        top_p: fields.number("top_p", positive, 1.0)?.unwrap_or(1.0),
        // -1 is an older way to say all.
        top_k: top_k.map_or(0, |k| k.max(0) as u32),
        min_p: fields.number("min_p", 0.0, 1.0)?.unwrap_or(0.0),
        presence_penalty: penalty("presence_penalty")?.unwrap_or(0.0),
        frequency_penalty: penalty("frequency_penalty")?.unwrap_or(0.0),
        repetition_penalty: fields.number("repetition_penalty", positive, 100.0)?.unwrap_or(1.0),
        logit_bias: logit_bias(fields)?,
        seed: seed.filter(|&s| s != -1).map(i64::cast_unsigned),
    })
}

fn logit_bias(fields: &Fields<'_>) -> Result<BTreeMap<i32, f32>, ApiError> {
    let read = |value: &Value| {
        let entries = value.as_object()?.iter().map(|(token, bias)| {
            let bias = bias.as_f64()?.clamp(-100.0, 100.0);
            Some((token.parse().ok()?, bias as f32))
        });
        entries.collect::<Option<BTreeMap<i32, f32>>>()
    };
    let expected = "an object of token ids (as strings) and numbers";
    Ok(fields.typed("logit_bias", expected, read)?.unwrap_or_default())
}

/// vLLM's scale, lower first, onto the engine's: 0 becomes 10, and nothing gets before the streams' own text.
fn priority(asked: Option<i64>) -> i32 {
    let place = asked.unwrap_or(0).saturating_add(PRIORITY_DEFAULT);
    place.clamp(PRIORITY_FIRST, PRIORITY_LAST) as i32
}

fn named(fields: &Fields<'_>, name: &str) -> Result<Option<String>, ApiError> {
    let fits = |value: &Value| {
        let text = value.as_str()?;
        (1..=ID_BYTES_MAX).contains(&text.len()).then(|| text.to_owned())
    };
    fields.typed(name, "a string of 1 to 256 bytes", fits)
}

/// What the answer is held to, by whichever of the fields says so.
fn constraint(fields: &Fields<'_>) -> Result<Option<Constraint>, ApiError> {
    let mut found: Vec<(String, Constraint)> = Vec::new();
    if let Some(format) = fields.object("response_format")?
        && let Some(constraint) = response_format(&format)?
    {
        found.push(("response_format".into(), constraint));
    }
    if let Some(outputs) = fields.object("structured_outputs")? {
        structured(&outputs, "structured_outputs.", "", &mut found)?;
    }
    structured(fields, "", "guided_", &mut found)?;
    match found.as_slice() {
        [] => Ok(None),
        [(_, only)] => Ok(Some(only.clone())),
        [(first, _), (second, _), ..] => {
            let message = format!("also `{first}` is given, expected one of them");
            Err(ApiError::field(second, message))
        }
    }
}

fn response_format(format: &Fields<'_>) -> Result<Option<Constraint>, ApiError> {
    let wrong = |message: String| Err(ApiError::field("response_format", message));
    match format.text("type")? {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(Constraint::Json(json!({ "type": "object" })))),
        Some("json_schema") => {
            let within = format.object("json_schema")?;
            match within.as_ref().and_then(|s| s.get("schema")) {
                Some(schema @ (Value::Object(_) | Value::Bool(_))) => {
                    Ok(Some(Constraint::Json(schema.clone())))
                }
                Some(other) => wrong(format!("schema is {}, expected an object", shown(other))),
                None => wrong("expected `json_schema: {name, schema}`".into()),
            }
        }
        found => {
            let found = found.unwrap_or("nothing");
            wrong(format!("type is {found}, expected text, json_object or json_schema"))
        }
    }
}

/// `json`, `regex`, `choice`, `grammar` with the given beginning of their names.
fn structured(
    fields: &Fields<'_>,
    section: &str,
    prefix: &str,
    found: &mut Vec<(String, Constraint)>,
) -> Result<(), ApiError> {
    let name = |key: &str| format!("{prefix}{key}");
    let mut add = |key: &str, constraint: Constraint| {
        found.push((format!("{section}{}", name(key)), constraint));
    };
    if let Some(schema) = fields.typed(&name("json"), "a JSON Schema", schema)? {
        add("json", Constraint::Json(schema));
    }
    if fields.get(&name("json_object")) == Some(&json!(true)) {
        add("json_object", Constraint::Json(json!({ "type": "object" })));
    }
    if let Some(regex) = fields.text(&name("regex"))? {
        add("regex", Constraint::Regex(regex.to_owned()));
    }
    if fields.get(&name("choice")).is_some() {
        add("choice", Constraint::Choice(fields.texts(&name("choice"))?));
    }
    if let Some(grammar) = fields.text(&name("grammar"))? {
        add("grammar", Constraint::Grammar(grammar.to_owned()));
    }
    Ok(())
}

/// A schema, or one as text.
fn schema(value: &Value) -> Option<Value> {
    match value {
        Value::Object(_) | Value::Bool(_) => Some(value.clone()),
        Value::String(text) => serde_json::from_str(text).ok().filter(Value::is_object),
        _ => None,
    }
}
