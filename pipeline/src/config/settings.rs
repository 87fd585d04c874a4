//! One stage's settings: read by its kind, then held to what no schema can say.

use std::collections::BTreeSet;

use actors::stages::Settings;
use engine::Class;
use serde_json::{Map, Value as Json};

use super::Context;
use super::check::join;
use super::graph::Draft;
use super::problem::{Problem, alternatives};
use super::tree::{Entry, Node};

/// The kind's own reading of its settings. What the schema can't say is found by trying each key alone.
pub(super) fn read(
    draft: &Draft<'_>,
    faulty: &BTreeSet<String>,
    problems: &mut Vec<Problem>,
) -> Option<Settings> {
    let kind = draft.kind?;
    let path = join("stages", draft.name);
    let inside = format!("{path}.");
    let own: Vec<_> = draft
        .node
        .entries()
        .iter()
        .filter(|e| !matches!(e.key.as_str(), "kind" | "from"))
        .filter(|e| {
            let key_path = join(&path, &e.key);
            !faulty.iter().any(|f| f == &key_path || f.starts_with(&format!("{key_path}.")))
        })
        .collect();
    let object = |keys: &[&Entry]| -> Json {
        keys.iter().map(|e| (e.key.clone(), e.node.to_json())).collect::<Map<_, _>>().into()
    };
    let whole = match (kind.parse)(object(&own)) {
        Ok(settings) => return Some(settings),
        Err(error) => error.to_string(),
    };
    let before = problems.len();
    for entry in &own {
        if let Err(error) = (kind.parse)(object(&[entry])) {
            problems.push(Problem {
                at: entry.node.at.clone(),
                path: format!("{inside}{}", entry.key),
                message: error.to_string(),
            });
        }
    }
    if problems.len() == before {
        problems.push(Problem { at: draft.node.at.clone(), path, message: whole });
    }
    None
}

/// Whether the stage's model exists, given or by default.
pub(super) fn check_model(
    draft: &Draft<'_>,
    models: &[&str],
    context: &Context<'_>,
    problems: &mut Vec<Problem>,
) {
    let Some(kind) = draft.kind else { return };
    let mut generator = schemars::SchemaGenerator::default();
    let schema = (kind.schema)(&mut generator);
    let Some(property) = schema.get("properties").and_then(|p| p.get("model")) else { return };
    let given = draft.node.get("model");
    let name = match given {
        Some(node) => node.text(),
        None => property.get("default").and_then(Json::as_str),
    };
    let Some(name) = name else { return };
    let own = if kind.class == Class::Text { models } else { &[] };
    if is_path(name) || own.contains(&name) || context.catalogue.contains(&name) {
        return;
    }
    let known = alternatives(name, own.iter().chain(context.catalogue).copied());
    let message = match given {
        Some(_) => format!("model `{name}` is not known {known}"),
        None => format!("`model` is not given and its default `{name}` is not known {known}"),
    };
    let path = join(&join("stages", draft.name), "model");
    problems.push(Problem { at: given.map_or(draft.name_at, |n| &n.at).clone(), path, message });
}

/// Whether a model is named by its file.
pub(super) fn is_path(model: &str) -> bool {
    model.contains('/') || [".onnx", ".gguf"].iter().any(|ending| model.ends_with(ending))
}

/// What single settings must fulfil beyond their schema.
pub(super) fn check_values(
    draft: &Draft<'_>,
    settings: &Settings,
    context: &Context<'_>,
    problems: &mut Vec<Problem>,
) {
    let path = join("stages", draft.name);
    let mut say = |at: &Node, key: &str, message: String| {
        problems.push(Problem { at: at.at.clone(), path: join(&path, key), message });
    };
    match settings {
        Settings::Fuse(fuse) => {
            let alerts = draft.node.get("alerts").map(Node::entries).unwrap_or_default();
            for entry in alerts {
                let Some(rule) = entry.node.text() else { continue };
                if let Err(error) = (context.alert)(rule) {
                    say(&entry.node, &join("alerts", &entry.key), error);
                }
            }
            if let Some(node) = draft.node.get("budget")
                && fuse.budget.as_millis() < 20
            {
                let found = fuse.budget.as_millis();
                say(node, "budget", format!("found {found}ms, expected at least 20ms"));
            }
        }
        Settings::Understand(understand) => {
            let Some(node) = draft.node.get("categories") else { return };
            if understand.categories.is_empty() {
                say(node, "categories", "an empty list, expected at least one category".into());
            }
            for (i, item) in node.items().iter().enumerate() {
                let name = item.text().unwrap_or_default();
                if name.trim().is_empty() {
                    say(item, "categories", "empty text, expected a category".into());
                } else if understand.categories[..i].iter().any(|c| c == name) {
                    say(item, "categories", format!("category `{name}` is given twice"));
                }
            }
        }
        _ => {}
    }
}
