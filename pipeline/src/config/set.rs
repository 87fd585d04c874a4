//! `--set PATH=VALUE`: one value of the configuration, from the command line. The path is that of error
//! messages (`stages.frames.fps`, `streams[0].realtime`); the value is YAML.

use super::problem::{At, Problem};
use super::tree::{Entry, Node, Value, parse};

/// Puts `text` (`PATH=VALUE`) into the tree, making maps on the way.
pub(crate) fn apply(root: &mut Node, text: &str, problems: &mut Vec<Problem>) {
    // The value may be a secret: messages name the path alone.
    let (path, value) = match text.split_once('=') {
        Some((path, value)) if !path.trim().is_empty() => (path.trim(), value),
        _ => {
            problems.push(Problem {
                at: At::whole("--set"),
                path: String::new(),
                message: "expected PATH=VALUE, such as `stages.frames.fps=2`".into(),
            });
            return;
        }
    };
    let origin = format!("--set {path}");
    let mut say = |message: String| {
        problems.push(Problem { at: At::whole(&origin), path: path.to_owned(), message });
    };
    let Some(steps) = steps(path) else {
        return say(
            "not a path; expected such as `stages.frames.fps` or `streams[0].realtime`".into()
        );
    };
    let mut trouble = Vec::new();
    let text = if value.trim().is_empty() { "''" } else { value };
    // A document needs a key here, or a lone word is read as one; the value is taken out again.
    let Some(mut node) = parse(&format!("value: {text}"), &origin, &mut trouble)
        .and_then(|n| n.get("value").cloned())
        .filter(|_| trouble.is_empty())
    else {
        return say("the value is not YAML (quote text that has `: `, `#`, or brackets)".into());
    };
    place(&mut node, &At::whole(&origin));
    let mut at = root;
    for step in &steps {
        let next = match step {
            Step::Key(key) => child(at, key, &origin),
            Step::Index(index) => match &mut at.value {
                Value::List(items) => items.get_mut(*index),
                _ => None,
            },
        };
        match next {
            Some(next) => at = next,
            None => {
                let step = match step {
                    Step::Key(key) => format!("`{key}`"),
                    Step::Index(index) => format!("`[{index}]`"),
                };
                return say(format!("there is nothing that could have {step}"));
            }
        }
    }
    *at = node;
}

enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

fn steps(path: &str) -> Option<Vec<Step<'_>>> {
    let mut steps = Vec::new();
    for part in path.split('.') {
        let (key, mut rest) = part.split_at(part.find('[').unwrap_or(part.len()));
        if key.is_empty() {
            return None;
        }
        steps.push(Step::Key(key));
        while !rest.is_empty() {
            let (index, after) = rest.strip_prefix('[')?.split_once(']')?;
            steps.push(Step::Index(index.parse().ok()?));
            rest = after;
        }
    }
    Some(steps)
}

fn child<'a>(node: &'a mut Node, key: &str, origin: &str) -> Option<&'a mut Node> {
    if node.value == Value::Null {
        node.value = Value::Map(Vec::new());
    }
    let Value::Map(entries) = &mut node.value else { return None };
    let index = match entries.iter().position(|e| e.key == key) {
        Some(index) => index,
        None => {
            let at = At::whole(origin);
            let node = Node { at: at.clone(), value: Value::Null };
            entries.push(Entry { key: key.to_owned(), key_at: at, node });
            entries.len() - 1
        }
    };
    entries.get_mut(index).map(|e| &mut e.node)
}

/// A line and column inside an option mean nothing to anyone.
fn place(node: &mut Node, at: &At) {
    node.at = at.clone();
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|n| place(n, at)),
        Value::Map(entries) => {
            for entry in entries {
                entry.key_at = at.clone();
                place(&mut entry.node, at);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(options: &[&str]) -> (serde_json::Value, Vec<String>) {
        let mut problems = Vec::new();
        let mut root = parse("a: { b: 1 }\nl: [{ x: 1 }]\n", "f", &mut problems).unwrap();
        for option in options {
            apply(&mut root, option, &mut problems);
        }
        let said = problems.iter().map(|p| format!("{}: {}", p.at, p.message)).collect();
        (root.to_json(), said)
    }

    #[test]
    fn values_are_replaced_and_added() {
        let (json, said) =
            set(&["a.b=2.5", "a.c=[x, y]", "n.m=true", "l[0].x='7'", "a.u=rtsp://h:1/x?a=b"]);
        assert_eq!(said, Vec::<String>::new());
        assert_eq!(
            json,
            serde_json::json!({
                "a": { "b": 2.5, "c": ["x", "y"], "u": "rtsp://h:1/x?a=b" },
                "l": [{ "x": "7" }],
                "n": { "m": true },
            })
        );
    }

    #[test]
    fn what_can_not_be_set_is_said_without_the_value() {
        let (json, said) =
            set(&["secret", "l[3].x=secret", "a.b.c=secret", "a..b=secret", "a.b=[secret"]);
        assert_eq!(json["a"]["b"], 1);
        assert_eq!(said.len(), 5, "{said:?}");
        assert!(said.iter().all(|s| !s.contains("secret")), "{said:?}");
        assert!(said[1].starts_with("--set l[3].x: "));
    }
}
