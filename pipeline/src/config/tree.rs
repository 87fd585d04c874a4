//! YAML text to a tree in which every value knows where it stands. Knows nothing of what the values mean.
//!
//! One rule: whatever the text is, the answer is a tree or a problem with its place.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use serde_saphyr::granit_parser::{self, Event, Marker, Parser, ScanError, Span};

use super::problem::{At, Problem};
use super::scalar::scalar;

/// Longest text read.
const BYTES_MAX: usize = 4 << 20;
/// Most values of one file, those repeated by aliases included.
const NODES_MAX: usize = 100_000;

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) at: At,
    pub(crate) value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// Within `i64::MIN..=u64::MAX`.
    Int(i128),
    /// May be NaN or infinite: refusing that is the checker's business.
    Float(f64),
    Text(Text),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Text {
    pub(crate) text: String,
    /// As it stands in the file, when variables were filled in: the only form that may be shown.
    pub(crate) written: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_at: At,
    pub(crate) node: Node,
}

impl Node {
    /// The entry of a map.
    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|e| e.key == key)
    }

    /// The value of a map's entry.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|e| &e.node)
    }

    /// All entries of a map; none of anything else.
    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// All items of a list; none of anything else.
    pub(crate) fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The text of a text.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(&text.text),
            _ => None,
        }
    }

    /// For serde. NaN and infinities, which JSON lacks, become null; the checker has refused them before.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(b) => Json::Bool(*b),
            Value::Int(i) => match (i64::try_from(*i), u64::try_from(*i)) {
                (Ok(i), _) => Json::from(i),
                (_, Ok(u)) => Json::from(u),
                _ => Json::Null,
            },
            Value::Float(f) => Json::from(*f),
            Value::Text(t) => Json::String(t.text.clone()),
            Value::List(items) => items.iter().map(Node::to_json).collect(),
            Value::Map(entries) => {
                entries.iter().map(|e| (e.key.clone(), e.node.to_json())).collect()
            }
        }
    }
}

/// Reads one YAML document; none when it can't be read as a whole, with the reason in `problems`.
pub(crate) fn parse(text: &str, origin: &str, problems: &mut Vec<Problem>) -> Option<Node> {
    let mut builder = Builder {
        origin: Arc::from(origin),
        text,
        anchors: HashMap::new(),
        nodes: 0,
        problems,
        parser: Parser::new_from_str_with_options(
            text.strip_prefix('\u{feff}').unwrap_or(text),
            granit_parser::options! { emit_comments: false },
        ),
    };
    if text.len() > BYTES_MAX {
        let found = text.len();
        builder.whole(format!("{found} bytes long, expected at most {BYTES_MAX}"));
        return None;
    }
    builder.document().ok()
}

/// Reads a file as UTF-8.
pub(crate) fn read(file: &Path) -> Result<String, Problem> {
    let fail = |message: String| Problem {
        at: At::whole(&file.display().to_string()),
        path: String::new(),
        message,
    };
    let bytes = std::fs::read(file).map_err(|e| fail(format!("can't be read: {e}")))?;
    String::from_utf8(bytes)
        .map_err(|e| fail(format!("not UTF-8 text (byte {})", e.utf8_error().valid_up_to())))
}

/// The document can't be used; why is among the problems.
struct Unusable;

struct Builder<'a> {
    origin: Arc<str>,
    text: &'a str,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    problems: &'a mut Vec<Problem>,
    parser: Parser<'a, granit_parser::StrInput<'a>>,
}

impl<'a> Builder<'a> {
    fn document(&mut self) -> Result<Node, Unusable> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentEnd => {}
                Event::StreamEnd => break,
                Event::DocumentStart(..) if root.is_some() => {
                    self.problem(span.start, "a second document; expected one per file".into());
                    return Err(Unusable);
                }
                Event::DocumentStart(..) => {}
                event => root = Some(self.node(event, span)?),
            }
        }
        match root {
            Some(Node { value: Value::Null, .. }) | None => {
                self.whole("empty: expected at least `version:` and `stages:`".into());
                Err(Unusable)
            }
            Some(node) => Ok(node),
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), Unusable> {
        match self.parser.next() {
            Some(Ok(pair)) => Ok(pair),
            Some(Err(error)) => {
                self.syntax(&error);
                Err(Unusable)
            }
            None => {
                self.whole("ends in the middle of a value".into());
                Err(Unusable)
            }
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span) -> Result<Node, Unusable> {
        let at = self.at(span.start);
        self.count(1, span.start)?;
        if let Some(tag) = event.tag() {
            self.problem(span.start, format!("tag `{}`: tags are not supported", tag.original()));
        }
        let (anchor, value) = match event {
            Event::Scalar(text, style, anchor, _) => (anchor, scalar(&text, style)),
            Event::SequenceStart(_, anchor, _) => (anchor, Value::List(self.list()?)),
            Event::MappingStart(_, anchor, _) => (anchor, Value::Map(self.map()?)),
            Event::Alias(id) => {
                let Some(target) = self.anchors.get(&id).cloned() else {
                    self.problem(span.start, "an alias inside the value that it names".into());
                    return Err(Unusable);
                };
                self.count(size(&target), span.start)?;
                return Ok(Node { at, value: target.value });
            }
            other => {
                self.problem(span.start, format!("unexpected {other:?}"));
                return Err(Unusable);
            }
        };
        let node = Node { at, value };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self) -> Result<Vec<Node>, Unusable> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, span) => items.push(self.node(event, span)?),
            }
        }
    }

    fn map(&mut self) -> Result<Vec<Entry>, Unusable> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut lines: HashMap<String, usize> = HashMap::new();
        loop {
            let (event, span) = self.next()?;
            let key = match event {
                Event::MappingEnd => return Ok(entries),
                Event::Scalar(text, ..) => Some(text.into_owned()),
                event => {
                    self.node(event, span)?;
                    self.problem(span.start, "a key must be a single word".into());
                    None
                }
            };
            let key_at = self.at(span.start);
            let (event, value_span) = self.next()?;
            let node = self.node(event, value_span)?;
            let Some(key) = key else { continue };
            if let Some(line) = lines.get(&key) {
                self.problem(
                    span.start,
                    format!("key `{}` is already given in line {line}", media::mask_uri(&key)),
                );
                continue;
            }
            lines.insert(key.clone(), key_at.line);
            entries.push(Entry { key, key_at, node });
        }
    }

    /// Keeps aliases of aliases from growing without bound.
    fn count(&mut self, nodes: usize, at: Marker) -> Result<(), Unusable> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes <= NODES_MAX {
            return Ok(());
        }
        self.problem(at, format!("more than {NODES_MAX} values"));
        Err(Unusable)
    }

    fn at(&self, mark: Marker) -> At {
        At { origin: Arc::clone(&self.origin), line: mark.line(), column: mark.col() + 1 }
    }

    fn problem(&mut self, mark: Marker, message: String) {
        let at = self.at(mark);
        self.problems.push(Problem { at, path: String::new(), message });
    }

    fn whole(&mut self, message: String) {
        let at = At { origin: Arc::clone(&self.origin), line: 0, column: 0 };
        self.problems.push(Problem { at, path: String::new(), message });
    }

    /// A parser trips over a tab only later, and speaks of something else.
    fn syntax(&mut self, error: &ScanError) {
        let seen = error.marker().line();
        let tab = self.text.lines().take(seen).enumerate().find_map(|(i, line)| {
            let indent = line.len() - line.trim_start().len();
            line[..indent].find('\t').map(|column| (i + 1, column + 1))
        });
        match tab {
            Some((line, column)) => {
                let at = At { origin: Arc::clone(&self.origin), line, column };
                let message = "a tab in the indentation; YAML is indented with spaces only".into();
                self.problems.push(Problem { at, path: String::new(), message });
            }
            None => self.problem(*error.marker(), format!("not YAML: {}", error.info())),
        }
    }
}

fn size(node: &Node) -> usize {
    1 + match &node.value {
        Value::List(items) => items.iter().map(size).sum(),
        Value::Map(entries) => entries.iter().map(|e| size(&e.node)).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_knows_its_line_and_column() {
        let mut problems = Vec::new();
        let node = parse("a: 1\nb: { c: [x, y] }\n", "f.yaml", &mut problems).unwrap();
        let y = &node.get("b").unwrap().get("c").unwrap().items()[1];
        assert_eq!(y.at.to_string(), "f.yaml:2:13");
        assert_eq!(node.entry("b").unwrap().key_at.to_string(), "f.yaml:2:1");
    }

    #[test]
    fn aliases_repeat_a_value_but_not_without_bound() {
        let mut problems = Vec::new();
        let node = parse("a: &x [1]\nb: *x\n", "t", &mut problems).unwrap();
        assert_eq!(node.get("b").unwrap().to_json(), serde_json::json!([1]));

        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for i in 1..9 {
            let before = vec![format!("*a{}", i - 1); 10].join(",");
            bomb.push_str(&format!("a{i}: &a{i} [{before}]\n"));
        }
        assert_eq!(parse(&bomb, "t", &mut problems), None);
        assert!(problems[0].message.contains("more than 100000 values"), "{problems:?}");
    }

    #[test]
    fn what_is_no_yaml_says_where() {
        for (text, line, message) in [
            ("a:\n\t- b\n", 2, "tab"),
            ("a: [1, 2\nb: 3\n", 2, "not YAML"),
            ("", 0, "empty"),
            ("# nothing\n", 0, "empty"),
            ("a: 1\n---\nb: 2\n", 2, "second document"),
            ("a: 1\na: 2\n", 2, "already given in line 1"),
            ("a: !!int 5\n", 1, "tag"),
            ("a: &x [*x]\n", 1, "alias inside"),
            ("[a]: 1\n", 1, "key must be"),
        ] {
            let mut problems = Vec::new();
            parse(text, "t", &mut problems);
            let first = problems.first().unwrap_or_else(|| panic!("{text:?} passed"));
            assert!(first.message.contains(message), "{text:?}: {first:?}");
            assert_eq!(first.at.line, line, "{text:?}: {first:?}");
        }
    }
}
