//! What is wrong with a configuration, where, and what would be right. Nothing here ever holds a secret:
//! values filled in from the environment are shown as they were written.

use std::fmt;
use std::sync::Arc;

/// A place in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// File name, or the command line option that brought the value.
    pub origin: Arc<str>,
    /// From 1; 0 when the whole origin is meant.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
}

impl At {
    /// The whole of `origin`.
    pub fn whole(origin: &str) -> Self {
        At { origin: Arc::from(origin), line: 0, column: 0 }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.origin),
            line => write!(f, "{}:{line}:{}", self.origin, self.column),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub at: At,
    /// Which value, such as `stages.frames.fps`; empty for the whole file.
    pub path: String,
    /// What was found, what was expected, what exists.
    pub message: String,
}

/// Everything that is wrong, in reading order. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// None when there is nothing wrong. Sorts by place and says the same thing once.
    pub fn of(mut problems: Vec<Problem>) -> Option<Self> {
        problems.sort_by(|a, b| a.at.cmp(&b.at));
        let mut said: Vec<Problem> = Vec::with_capacity(problems.len());
        for problem in problems {
            if !said.contains(&problem) {
                said.push(problem);
            }
        }
        if said.is_empty() { None } else { Some(Problems(said)) }
    }

    /// A single one.
    pub fn one(problem: Problem) -> Self {
        Problems(vec![problem])
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// How many.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// For a terminal, with colours, or for a file, without.
    pub fn render(&self, colour: bool) -> String {
        let mut text = self.lines(colour, "error");
        let plural = if self.0.len() == 1 { "" } else { "s" };
        text.push_str(&format!("{} problem{plural}\n", self.0.len()));
        text
    }

    /// As [`Problems::render`], of things that are no reason to stop.
    pub fn render_warnings(&self, colour: bool) -> String {
        self.lines(colour, "warning")
    }

    fn lines(&self, colour: bool, word: &str) -> String {
        let (bold, red, off) =
            if colour { ("\x1b[1m", "\x1b[1;31m", "\x1b[0m") } else { ("", "", "") };
        let mut text = String::new();
        for Problem { at, path, message } in &self.0 {
            let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
            text.push_str(&format!("{bold}{at}{off}: {red}{word}{off}: {path}{message}\n"));
        }
        text
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(false).trim_end())
    }
}

impl std::error::Error for Problems {}

/// The nearest of `known`, when it is near enough to be what was meant.
pub(crate) fn nearest<'a>(
    found: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let length = found.chars().count();
    known
        .into_iter()
        .map(|name| (distance(found, name), name))
        .filter(|(distance, name)| {
            *distance <= (length.max(name.chars().count()) / 3).max(1) && *distance < length
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// `(did you mean …? known: …)`
pub(crate) fn alternatives<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    if known.is_empty() {
        return "(there are none)".into();
    }
    let list = quoted(known.iter().copied());
    match nearest(found, known) {
        Some(name) => format!("(did you mean `{name}`? known: {list})"),
        None => format!("(known: {list})"),
    }
}

/// `` `a`, `b` ``
pub(crate) fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
}

/// Edits (insert, delete, replace, swap of neighbours) from `a` to `b`.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_finds_its_word_and_another_word_does_not() {
        let known = ["frames", "vision", "speech"];
        assert_eq!(nearest("visoin", known), Some("vision"));
        assert_eq!(nearest("framez", known), Some("frames"));
        assert_eq!(nearest("fsp", ["fps", "model"]), Some("fps"));
        assert_eq!(nearest("stt", ["no", "vision"]), None);
        assert_eq!(nearest("x", ["y"]), None);
    }

    #[test]
    fn the_same_thing_is_said_once_and_in_reading_order() {
        let at = |line| At { origin: "a.yaml".into(), line, column: 1 };
        let problem = |line, message: &str| Problem {
            at: at(line),
            path: String::new(),
            message: message.into(),
        };
        let all = Problems::of(vec![problem(3, "c"), problem(1, "a"), problem(3, "c")]).unwrap();
        assert_eq!(all.render(false), "a.yaml:1:1: error: a\na.yaml:3:1: error: c\n2 problems\n");
        assert!(all.render(true).contains("\x1b[1;31merror"));
        assert_eq!(Problems::of(Vec::new()), None);
    }
}
