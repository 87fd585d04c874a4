//! Keeps secrets out of messages. Whatever part of the compiler, or of a kind's own reading, quotes a value:
//! one that variables were filled into, or a URI with a password, is put back to the form that may be shown.

use super::check::shown;
use super::problem::Problem;
use super::tree::{Node, Value};

/// Masks every quotation of a secret of `root`.
pub(super) fn mask(root: &Node, problems: &mut [Problem]) {
    let mut secrets = Vec::new();
    collect(root, &mut secrets);
    // Longest first: one secret may be part of another.
    secrets.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
    for problem in problems {
        for (secret, shown) in &secrets {
            for quote in ['`', '"'] {
                let quoted = format!("{quote}{secret}{quote}");
                if problem.message.contains(&quoted) {
                    problem.message =
                        problem.message.replace(&quoted, &format!("{quote}{shown}{quote}"));
                }
            }
        }
    }
}

fn collect(node: &Node, secrets: &mut Vec<(String, String)>) {
    match &node.value {
        Value::Text(text) if !text.text.is_empty() => {
            let shown = shown(node);
            // A long text is only shortened by `shown`: that makes it no secret, but does no harm either.
            if shown != text.text {
                secrets.push((text.text.clone(), shown));
            }
        }
        Value::List(items) => items.iter().for_each(|item| collect(item, secrets)),
        Value::Map(entries) => entries.iter().for_each(|entry| collect(&entry.node, secrets)),
        _ => {}
    }
}
