//! Holds a tree against a schema and reports everything at once, in words for people: what was found, what was
//! expected, what exists. Knows the keywords that our own schema uses (a test sees to that), and no others.

use serde_json::Value as Json;

use super::problem::{Problem, alternatives, nearest, quoted};
use super::raw::DURATION_PATTERN;
use super::tree::{Node, Value};

/// Holds a tree against a schema.
pub(crate) struct Checker<'a> {
    pub(crate) root: &'a Json,
    pub(crate) problems: Vec<Problem>,
}

impl<'a> Checker<'a> {
    /// Reports everything in `node` that `schema` does not allow.
    pub(crate) fn check(&mut self, node: &Node, schema: &'a Json, path: &str) {
        let schema = self.resolved(schema);
        if node.value == Value::Null {
            let expected = self.expected(schema);
            let hint = "leave the key out for its default";
            return self.report(
                node,
                path,
                format!("found nothing (null), expected {expected}; {hint}"),
            );
        }
        if let Some(options) = schema.get("oneOf").or(schema.get("anyOf")).and_then(Json::as_array)
        {
            return self.one_of(node, schema, options, path);
        }
        if !self.value_fits(node, schema, path) {
            return;
        }
        match &node.value {
            Value::Map(_) => self.map(node, schema, path),
            Value::List(items) => {
                let items_min = schema.get("minItems").and_then(Json::as_u64).unwrap_or(0);
                if (items.len() as u64) < items_min {
                    self.report(
                        node,
                        path,
                        format!("an empty list, expected at least {items_min}"),
                    );
                }
                if let Some(schema) = schema.get("items") {
                    for (i, item) in items.iter().enumerate() {
                        self.check(item, schema, &format!("{path}[{i}]"));
                    }
                }
            }
            _ => {}
        }
    }

    fn map(&mut self, node: &Node, schema: &'a Json, path: &str) {
        let properties = schema.get("properties").and_then(Json::as_object);
        let other = schema.get("additionalProperties").filter(|s| s.is_object());
        for entry in node.entries() {
            let path = join(path, &entry.key);
            if let Some(property) = properties.and_then(|p| p.get(&entry.key)).or(other) {
                self.check(&entry.node, property, &path);
                continue;
            }
            let known = properties.into_iter().flatten().map(|(name, _)| name.as_str());
            let message = match entry.key.as_str() {
                "<<" => "merge keys (`<<`) are not supported".into(),
                key => {
                    format!("unknown key `{}` {}", media::mask_uri(key), alternatives(key, known))
                }
            };
            self.problems.push(Problem { at: entry.key_at.clone(), path, message });
        }
        let required = schema.get("required").and_then(Json::as_array);
        for name in required.into_iter().flatten().filter_map(Json::as_str) {
            if node.get(name).is_none() {
                self.report(node, path, format!("missing key `{name}`"));
            }
        }
        if schema.get("minProperties").is_some() && node.entries().is_empty() {
            self.report(node, path, "empty, expected at least one entry".into());
        }
    }

    /// Several shapes: chosen by `kind` where every shape has one, else by trying.
    fn one_of(&mut self, node: &Node, schema: &'a Json, options: &'a [Json], path: &str) {
        let kinds: Vec<&str> = options.iter().filter_map(|o| kind_of(self.resolved(o))).collect();
        if kinds.len() == options.len() {
            if !matches!(node.value, Value::Map(_)) {
                let found = found(node, schema);
                return self.report(
                    node,
                    path,
                    format!("found {found}, expected a map with a `kind`"),
                );
            }
            let Some(kind) = node.get("kind") else {
                let known = quoted(kinds);
                return self.report(node, path, format!("missing key `kind` (known: {known})"));
            };
            let kind_path = join(path, "kind");
            let Some(name) = kind.text() else {
                let (found, known) = (found(kind, schema), quoted(kinds));
                let message = format!("found {found}, expected one of {known}");
                return self.report(kind, &kind_path, message);
            };
            let option = options.iter().find(|o| kind_of(self.resolved(o)) == Some(name));
            return match option {
                Some(option) => self.check(node, option, path),
                None => {
                    let message =
                        format!("unknown kind `{}` {}", shown(kind), alternatives(name, kinds));
                    self.report(kind, &kind_path, message);
                }
            };
        }
        let mut inside: Option<Vec<Problem>> = None;
        for option in options {
            let mut trial = Checker { root: self.root, problems: Vec::new() };
            trial.check(node, option, path);
            if trial.problems.is_empty() {
                return;
            }
            if same_type(node, self.resolved(option)) {
                inside.get_or_insert(trial.problems);
            }
        }
        match inside {
            // What is wrong inside says more than that something is.
            Some(problems) if matches!(node.value, Value::Map(_) | Value::List(_)) => {
                self.problems.extend(problems);
            }
            _ => {
                let (found, expected) = (found(node, schema), self.expected(schema));
                let names = options.iter().flat_map(|o| words(self.resolved(o)));
                let near = node.text().and_then(|text| nearest(text, names));
                let near =
                    near.map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default();
                self.report(node, path, format!("found {found}, expected {expected}{near}"));
            }
        }
    }

    /// Type, allowed values and range of one value.
    fn value_fits(&mut self, node: &Node, schema: &'a Json, path: &str) -> bool {
        let constant = schema.get("const").map(std::slice::from_ref);
        let allowed = constant.or(schema.get("enum").and_then(Json::as_array).map(Vec::as_slice));
        let fits = match (&node.value, allowed) {
            (_, Some(allowed)) => allowed.contains(&node.to_json()),
            (value, None) => same_type(node, schema) && in_range(value, schema),
        };
        if !fits {
            let (found, expected) = (found(node, schema), self.expected(schema));
            let names = allowed.into_iter().flatten().filter_map(Json::as_str);
            let near = node.text().and_then(|text| nearest(text, names));
            let hint = match near {
                Some(name) => format!(" (did you mean `{name}`?)"),
                None => hint(node, schema).to_owned(),
            };
            self.report(node, path, format!("found {found}, expected {expected}{hint}"));
        }
        fits
    }

    fn resolved(&self, schema: &'a Json) -> &'a Json {
        let mut schema = schema;
        for _ in 0..16 {
            let target = schema.get("$ref").and_then(Json::as_str);
            match target.and_then(|t| self.root.pointer(t.trim_start_matches('#'))) {
                Some(next) => schema = next,
                None => break,
            }
        }
        schema
    }

    /// What a schema allows, in words.
    fn expected(&self, schema: &'a Json) -> String {
        let schema = self.resolved(schema);
        let number = |key: &str| schema.get(key).and_then(Json::as_f64);
        if let Some(options) = schema.get("oneOf").or(schema.get("anyOf")).and_then(Json::as_array)
        {
            let all = options.iter().map(|o| words(self.resolved(o)));
            if all.clone().all(|words| !words.is_empty()) {
                return format!("one of {}", quoted(all.flatten()));
            }
            let each: Vec<String> = options.iter().map(|o| self.expected(o)).collect();
            return each.join(" or ");
        }
        if let Some(value) = schema.get("const") {
            return value.as_str().map_or_else(|| value.to_string(), |s| format!("`{s}`"));
        }
        if let Some(allowed) = schema.get("enum").and_then(Json::as_array) {
            return format!("one of {}", quoted(allowed.iter().filter_map(Json::as_str)));
        }
        match schema.get("type").and_then(Json::as_str) {
            Some("string") if schema.get("pattern").is_some() => {
                "a duration such as `500ms`, `1s`, `2m`".into()
            }
            Some("string") => match (number("minLength"), number("maxLength")) {
                (Some(min), Some(max)) => format!("text of {min} to {max} characters"),
                (Some(min), None) => format!("text of at least {min} characters"),
                _ => "text".into(),
            },
            Some(kind @ ("number" | "integer")) => {
                let word = if kind == "integer" { "a whole number" } else { "a number" };
                match (number("minimum"), number("maximum").or(format_max(schema))) {
                    (Some(min), Some(max)) => format!("{word} from {min} to {max}"),
                    (Some(min), None) => format!("{word} of at least {min}"),
                    _ => word.into(),
                }
            }
            Some("boolean") => "true or false".into(),
            Some("array") => "a list".into(),
            _ => "a map".into(),
        }
    }

    fn report(&mut self, node: &Node, path: &str, message: String) {
        self.problems.push(Problem { at: node.at.clone(), path: path.to_owned(), message });
    }
}

/// `a.b`
pub(crate) fn join(path: &str, key: &str) -> String {
    let key = media::mask_uri(key);
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

/// The words that a schema allows; none when it allows other things.
fn words(schema: &Json) -> Vec<&str> {
    let listed = schema.get("enum").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    schema.get("const").into_iter().chain(listed).filter_map(Json::as_str).collect()
}

fn kind_of(schema: &Json) -> Option<&str> {
    schema.get("properties")?.get("kind")?.get("const")?.as_str()
}

fn same_type(node: &Node, schema: &Json) -> bool {
    let Some(expected) = schema.get("type").and_then(Json::as_str) else {
        return schema.get("const").or(schema.get("enum")).is_none()
            || matches!(node.value, Value::Text(_));
    };
    match &node.value {
        Value::Null => false,
        Value::Bool(_) => expected == "boolean",
        Value::Int(_) => matches!(expected, "integer" | "number"),
        Value::Float(_) => expected == "number",
        Value::Text(_) => expected == "string",
        Value::List(_) => expected == "array",
        Value::Map(_) => expected == "object",
    }
}

fn in_range(value: &Value, schema: &Json) -> bool {
    let limit = |key: &str| schema.get(key).and_then(Json::as_f64);
    let number = match value {
        Value::Int(i) => *i as f64,
        Value::Float(f) => *f,
        Value::Text(text) => {
            let length = text.text.chars().count() as f64;
            let duration = schema.get("pattern").is_some_and(|p| p == DURATION_PATTERN);
            return limit("minLength").is_none_or(|min| length >= min)
                && limit("maxLength").is_none_or(|max| length <= max)
                && (!duration || actors::duration::parse(&text.text).is_some());
        }
        _ => return true,
    };
    number.is_finite()
        && limit("minimum").is_none_or(|min| number >= min)
        && limit("maximum").or(format_max(schema)).is_none_or(|max| number <= max)
}

/// The width of the integer that takes the value.
fn format_max(schema: &Json) -> Option<f64> {
    match schema.get("format")?.as_str()? {
        "uint8" => Some(f64::from(u8::MAX)),
        "uint16" => Some(f64::from(u16::MAX)),
        "uint32" => Some(f64::from(u32::MAX)),
        "int32" => Some(f64::from(i32::MAX)),
        _ => None,
    }
}

/// A value in words, without what must stay secret.
fn found(node: &Node, schema: &Json) -> String {
    let secret = schema.get("writeOnly").is_some();
    match &node.value {
        Value::Null => "nothing (null)".into(),
        Value::Text(text) if text.text.is_empty() => "empty text".into(),
        Value::Text(_) if secret => "text".into(),
        Value::Int(_) | Value::Float(_) if secret => "a number".into(),
        Value::Bool(b) => b.to_string(),
        Value::Int(i) => format!("the number {i}"),
        Value::Float(f) if f.is_nan() => ".nan".into(),
        Value::Float(f) if f.is_infinite() => if *f > 0.0 { ".inf" } else { "-.inf" }.into(),
        Value::Float(f) => format!("the number {f}"),
        Value::Text(_) => format!("text `{}`", shown(node)),
        Value::List(_) => "a list".into(),
        Value::Map(_) => "a map".into(),
    }
}

/// A text as it may be shown: variables not filled in, passwords in URIs masked, not too long.
pub(crate) fn shown(node: &Node) -> String {
    let Value::Text(text) = &node.value else { return String::new() };
    let text = media::mask_uri(text.written.as_ref().unwrap_or(&text.text));
    match text.char_indices().nth(60) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

fn hint(node: &Node, schema: &Json) -> &'static str {
    let expected = schema.get("type").and_then(Json::as_str).unwrap_or_default();
    match (&node.value, expected) {
        (Value::Int(_) | Value::Float(_) | Value::Bool(_), "string") => {
            if schema.get("pattern").is_some() { " (with its unit)" } else { " (put it in quotes)" }
        }
        (Value::Text(text), "number" | "integer") if text.written.is_some() => {
            " (variables fill in text only; use --set)"
        }
        (Value::Text(text), "number" | "integer") if text.text.parse::<f64>().is_ok() => {
            " (without quotes)"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::super::schema::config_schema;
    use super::*;

    /// Keywords that hold no rule.
    const NO_RULE: &[&str] =
        &["$schema", "$defs", "$ref", "title", "description", "default", "format", "writeOnly"];
    const CHECKED: &[&str] = &[
        "type",
        "properties",
        "additionalProperties",
        "required",
        "minProperties",
        "items",
        "minItems",
        "enum",
        "const",
        "oneOf",
        "anyOf",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "pattern",
    ];

    fn keywords(schema: &Json, out: &mut Vec<(String, Json)>) {
        let Json::Object(object) = schema else { return };
        for (key, value) in object {
            out.push((key.clone(), value.clone()));
            match key.as_str() {
                "properties" | "$defs" => {
                    value.as_object().unwrap().values().for_each(|v| keywords(v, out));
                }
                "oneOf" | "anyOf" => {
                    value.as_array().unwrap().iter().for_each(|v| keywords(v, out));
                }
                "items" | "additionalProperties" => keywords(value, out),
                _ => {}
            }
        }
    }

    #[test]
    fn the_checker_knows_every_rule_that_the_schema_states() {
        let mut all = Vec::new();
        keywords(&config_schema(), &mut all);
        assert!(all.len() > 200);
        for (key, value) in all {
            assert!(
                NO_RULE.contains(&key.as_str()) || CHECKED.contains(&key.as_str()),
                "keyword {key}: {value}"
            );
            if key == "pattern" {
                assert_eq!(value, DURATION_PATTERN);
            }
            if key == "format" {
                let known = ["uint", "uint32", "uint64", "int32", "float", "double"];
                assert!(known.contains(&value.as_str().unwrap()), "format {value}");
            }
        }
    }
}
