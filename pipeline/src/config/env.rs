//! `${NAME}` and `${NAME:-default}` in text values, the same everywhere. Anything else with `$` or braces
//! stays as it is; keys and other kinds of value are never touched, and what was filled in is not read again.

use super::problem::Problem;
use super::tree::{Node, Text, Value};

/// Fills in every text below `node`; a variable that is not set and has no default is a problem.
pub(crate) fn fill(
    node: &mut Node,
    env: &dyn Fn(&str) -> Option<String>,
    path: &str,
    problems: &mut Vec<Problem>,
) {
    match &mut node.value {
        Value::List(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                fill(item, env, &format!("{path}[{i}]"), problems);
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                let dot = if path.is_empty() { "" } else { "." };
                fill(&mut entry.node, env, &format!("{path}{dot}{}", entry.key), problems);
            }
        }
        Value::Text(text) => {
            let (filled, unset) = filled(&text.text, env);
            problems.extend(unset.into_iter().map(|name| Problem {
                at: node.at.clone(),
                path: path.to_owned(),
                message: format!(
                    "environment variable `{name}` is not set (set it, or give a default: `${{{name}:-…}}`)"
                ),
            }));
            if let Some(filled) = filled {
                let written = std::mem::replace(&mut text.text, filled);
                *text = Text { text: std::mem::take(&mut text.text), written: Some(written) };
            }
        }
        _ => {}
    }
}

/// The text with its variables filled in, when it has any, and the names that are not set.
fn filled(text: &str, env: &dyn Fn(&str) -> Option<String>) -> (Option<String>, Vec<String>) {
    let mut out = String::with_capacity(text.len());
    let mut unset = Vec::new();
    let mut found = false;
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, from) = rest.split_at(start);
        out.push_str(before);
        match variable(&from[2..]) {
            None => {
                out.push_str("${");
                rest = &from[2..];
            }
            Some((name, default, after)) => {
                found = true;
                match (env(name), default) {
                    (Some(value), None) => out.push_str(&value),
                    (Some(value), Some(_)) if !value.is_empty() => out.push_str(&value),
                    (_, Some(default)) => out.push_str(default),
                    (None, None) => unset.push(name.to_owned()),
                }
                rest = after;
            }
        }
    }
    out.push_str(rest);
    (found.then_some(out), unset)
}

/// `NAME}` or `NAME:-default}`: name, default, what comes after.
fn variable(text: &str) -> Option<(&str, Option<&str>, &str)> {
    let (inside, after) = text.split_once('}')?;
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let valid = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    valid.then_some((name, default, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_documented_form_is_filled_in() {
        let env = |name: &str| match name {
            "USER" => Some("ann".to_owned()),
            "PASS" => Some("p${USER}$1".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        for (text, want) in [
            ("rtsp://${USER}:${PASS}@cam", Some("rtsp://ann:p${USER}$1@cam")),
            (
                "price is $5, keep {braces} and ${NOT_SET:-fallback}",
                Some("price is $5, keep {braces} and fallback"),
            ),
            ("${EMPTY}", Some("")),
            ("${EMPTY:-x}", Some("x")),
            ("${USER:-x}", Some("ann")),
            ("$USER ${} ${1A} ${a b} $$ ${USER", None),
        ] {
            let (filled, unset) = filled(text, &env);
            assert_eq!(filled.as_deref(), want, "{text}");
            assert_eq!(unset, Vec::<String>::new());
        }
        assert_eq!(filled("${A}-${B}", &env).1, ["A", "B"]);
    }
}
