//! Judges a result by the user's rules, CEL expressions compiled once. A rule that can't be evaluated over a
//! result doesn't raise; who runs it reports the fault.
//!
//! A rule sees what a subscriber sees: scores have the same digits, a missing part is null. Only `vision`,
//! `audio` and `text` are never null but empty, so that `text.category == 'news'` is false in a silent window.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cel::{Context, Env, ExecutionError, Program};
use media::result::{Alert, Audio, FusedResult, Vision};
use serde::Serialize;
use thiserror::Error;

use super::rules::{Mentions, Shape};

/// Rules of one configuration.
const RULES_MAX: usize = 64;
/// Characters of one rule.
const EXPRESSION_CHARS_MAX: usize = 1_000;

/// A rule that can't be compiled.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("alert `{rule}`: line {line}, column {column}: {message}")]
pub struct AlertError {
    /// Its name.
    pub rule: String,
    /// As written.
    pub expression: String,
    /// Inside the expression, from 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// What is wrong and what exists.
    pub message: String,
}

/// A rule that could not be evaluated over a result.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("alert `{rule}` could not be evaluated: {message}")]
pub struct RuleFault {
    /// Its name.
    pub rule: Arc<str>,
    /// What happened.
    pub message: String,
}

/// Compiled rules.
#[derive(Default)]
pub struct Alerts {
    env: Arc<Env>,
    rules: Vec<Rule>,
}

struct Rule {
    name: Arc<str>,
    program: Program,
    mentions: Mentions,
}

impl std::fmt::Debug for Alerts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.rules.iter().map(|rule| &rule.name)).finish()
    }
}

impl Alerts {
    /// Compiles rules: name and expression.
    ///
    /// # Errors
    /// All mistakes of all rules.
    pub fn compile(rules: &BTreeMap<String, String>) -> Result<Self, Vec<AlertError>> {
        let env = Arc::new(Env::stdlib());
        let shape = Shape::of_results();
        let (mut compiled, mut errors) = (Vec::new(), Vec::new());
        for (count, (name, expression)) in rules.iter().enumerate() {
            if count == RULES_MAX {
                let message = format!("{} rules, at most {RULES_MAX} are allowed", rules.len());
                errors.push(mistake(name, expression, (1, 1), message));
                break;
            }
            match Rule::compile(name, expression, &env, &shape) {
                Ok(rule) => compiled.push(rule),
                Err(wrong) => errors.extend(wrong),
            }
        }
        if errors.is_empty() { Ok(Alerts { env, rules: compiled }) } else { Err(errors) }
    }

    /// Whether there is nothing to judge.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Rules that hold for `result`, and those that could not be evaluated. Its own alerts are not looked at.
    pub fn judge(&self, result: &FusedResult) -> (Vec<Alert>, Vec<RuleFault>) {
        let (mut alerts, mut faults) = (Vec::new(), Vec::new());
        // Giving the interpreter a value costs more than most rules: once for all rules, and only what is used.
        let mut context = Context::with_env(self.env.clone());
        let used = self.rules.iter().flat_map(|rule| &rule.mentions.variables);
        for name in used.collect::<BTreeSet<_>>() {
            context.add_variable_from_value(*name, variable(name, result));
        }
        for rule in &self.rules {
            match rule.evaluate(&context) {
                Ok(true) => {
                    alerts.push(Alert { name: rule.name.clone(), pts_ms: rule.pts_ms(result) });
                }
                Ok(false) => {}
                Err(message) => faults.push(RuleFault { rule: rule.name.clone(), message }),
            }
        }
        (alerts, faults)
    }
}

impl Rule {
    fn compile(
        name: &str,
        expression: &str,
        env: &Arc<Env>,
        shape: &Shape,
    ) -> Result<Rule, Vec<AlertError>> {
        let wrong = |at, message| vec![mistake(name, expression, at, message)];
        let chars = expression.chars().count();
        if chars > EXPRESSION_CHARS_MAX {
            let message = format!("{chars} characters, at most {EXPRESSION_CHARS_MAX} are allowed");
            return Err(wrong((1, 1), message));
        }
        let program = match guarded(|| env.compile(expression)) {
            Ok(Ok(program)) => program,
            Ok(Err(parse)) => {
                let errors = parse.errors.into_iter();
                return Err(errors
                    .map(|e| mistake(name, expression, place(e.pos), e.msg))
                    .collect());
            }
            Err(panic) => return Err(wrong((1, 1), panic)),
        };
        let at = |node| {
            let offset = program.source_info().offset_for(node).map_or(0, |(start, _)| start);
            position(expression, offset as usize)
        };
        let mentions = shape
            .check(program.expression())
            .map_err(|found| wrong(at(found.node), found.message))?;
        if let Some((node, function)) = mentions.functions.iter().find(|(_, f)| !declared(env, f)) {
            return Err(wrong(at(*node), format!("there is no function `{function}`")));
        }
        let rule = Rule { name: name.into(), program, mentions };
        rule.try_sample(env, shape).map_err(|message| wrong((1, 1), message))?;
        Ok(rule)
    }

    /// Runs it once over a result in which everything is there: what fails on that is a mistake of type, not
    /// of data.
    fn try_sample(&self, env: &Arc<Env>, shape: &Shape) -> Result<(), String> {
        let mut context = Context::with_env(env.clone());
        for name in &self.mentions.variables {
            context.add_variable_from_value(*name, to_cel(shape.sample(name)));
        }
        match guarded(|| self.program.execute(&context))? {
            Ok(cel::Value::Bool(_)) => Ok(()),
            Ok(other) => Err(not_bool(&other)),
            // Keys of maps, positions in lists and arithmetic depend on the data.
            Err(
                ExecutionError::NoSuchKey(_)
                | ExecutionError::IndexOutOfBounds(_)
                | ExecutionError::DivisionByZero(_)
                | ExecutionError::RemainderByZero(_)
                | ExecutionError::Overflow(..)
                | ExecutionError::FunctionError { .. },
            ) => Ok(()),
            Err(error) => Err(short(error.to_string())),
        }
    }

    fn evaluate(&self, context: &Context<'_, '_>) -> Result<bool, String> {
        match guarded(|| self.program.execute(context))? {
            Ok(cel::Value::Bool(holds)) => Ok(holds),
            Ok(other) => Err(not_bool(&other)),
            Err(error) => Err(short(error.to_string())),
        }
    }

    /// Time of the evidence where it is clear, else the window's start.
    fn pts_ms(&self, result: &FusedResult) -> i64 {
        let safety = result.vision.as_ref().and_then(|vision| vision.safety.as_ref());
        match safety {
            Some(safety) if self.mentions.safety => safety.pts_ms,
            _ => result.window.start_ms,
        }
    }
}

/// The interpreter has no list to ask, but refuses to declare a name twice.
fn declared(env: &Arc<Env>, function: &str) -> bool {
    Context::with_env(env.clone()).add_function(function, || true).is_err()
}

/// The interpreter is third-party code that unwraps in places: a rule must not take the stream down with it.
fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    // Nothing that the closure touches is used after a panic but the immutable program and its inputs.
    catch_unwind(AssertUnwindSafe(run))
        .map_err(|_| "the expression breaks the interpreter".to_owned())
}

fn variable(name: &str, result: &FusedResult) -> cel::Value {
    match name {
        "vision" => match &result.vision {
            Some(vision) => seen(vision),
            None => seen(&Vision::default()),
        },
        "audio" => match &result.audio {
            Some(audio) => seen(audio),
            None => seen(&Audio::default()),
        },
        "text" => match &result.text {
            Some(text) => seen(text),
            None => to_cel(serde_json::json!({
                "category": null, "scores": {}, "summary": null, "summary_from": null,
                "summary_age_ms": 0, "sentiment": null, "flags": [], "keywords": [],
                "language": null, "model": "", "backend": "", "age_ms": 0, "truncated": false
            })),
        },
        "fusion" => seen(&result.fusion),
        "window" => seen(&result.window),
        "stream" => seen(&result.stream),
        "status" => seen(&result.status),
        "missing" => seen(&result.missing),
        _ => cel::Value::Null,
    }
}

/// By way of its JSON text: 0.9 stays 0.9 and doesn't become the nearest 32-bit fraction.
fn seen<T: Serialize>(part: &T) -> cel::Value {
    let text = serde_json::to_string(part).unwrap_or_default();
    to_cel(serde_json::from_str(&text).unwrap_or_default())
}

fn to_cel(value: serde_json::Value) -> cel::Value {
    match value {
        serde_json::Value::Null => cel::Value::Null,
        serde_json::Value::Bool(b) => cel::Value::Bool(b),
        serde_json::Value::Number(n) => match (n.as_i64(), n.as_u64(), n.as_f64()) {
            (Some(int), ..) => cel::Value::Int(int),
            (None, Some(uint), _) => cel::Value::UInt(uint),
            (None, None, float) => cel::Value::Float(float.unwrap_or_default()),
        },
        serde_json::Value::String(text) => cel::Value::String(Arc::new(text)),
        serde_json::Value::Array(items) => {
            cel::Value::List(Arc::new(items.into_iter().map(to_cel).collect()))
        }
        serde_json::Value::Object(fields) => {
            let fields: HashMap<String, cel::Value> =
                fields.into_iter().map(|(name, value)| (name, to_cel(value))).collect();
            cel::Value::from(fields)
        }
    }
}

fn not_bool(value: &cel::Value) -> String {
    format!("it yields {}, expected true or false", value.type_of())
}

/// Messages of the interpreter hold whole values.
fn short(mut message: String) -> String {
    if let Some((cut, _)) = message.char_indices().nth(200) {
        message.truncate(cut);
        message.push('…');
    }
    message
}

fn mistake(rule: &str, expression: &str, at: (usize, usize), message: String) -> AlertError {
    let (line, column) = at;
    AlertError { rule: rule.into(), expression: expression.into(), line, column, message }
}

fn place(pos: (isize, isize)) -> (usize, usize) {
    (usize::try_from(pos.0).unwrap_or(1).max(1), usize::try_from(pos.1).unwrap_or(1).max(1))
}

/// Line and column, both from 1, of a character offset.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before: Vec<char> = text.chars().take(offset).collect();
    let line_start = before.iter().rposition(|c| *c == '\n').map_or(0, |i| i + 1);
    (before.iter().filter(|c| **c == '\n').count() + 1, before.len() - line_start + 1)
}

#[cfg(test)]
#[path = "alerts_tests.rs"]
mod tests;
