//! `clips.jsonl`: one JSON object per line with `uri` and, if known, `id`, `title`, `description`, `language`
//! and `priority`. Paths are relative to the list's folder.

use std::path::Path;

use serde_json::Value;

use super::{Clip, InputProblem, resolve};
use crate::config::alternatives;

const KEYS: [&str; 6] = ["uri", "id", "title", "description", "language", "priority"];
/// Longest line read.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Appends the clips of the list at `path`.
///
/// # Errors
/// One problem per line that can't be used.
pub(super) fn read(path: &Path, found: &mut Vec<Clip>) -> Result<(), Vec<InputProblem>> {
    let place = path.display().to_string();
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) => {
            return Err(vec![InputProblem { place, message: format!("can't be read: {error}") }]);
        }
    };
    parse(&text, &place, path.parent().unwrap_or(Path::new("")), found)
}

/// The pure part of [`read`].
pub(super) fn parse(
    text: &[u8],
    place: &str,
    folder: &Path,
    found: &mut Vec<Clip>,
) -> Result<(), Vec<InputProblem>> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut problems = Vec::new();
    let before = found.len();
    for (i, line) in text.split(|b| *b == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match clip(line, folder) {
            Ok(clip) => found.push(clip),
            Err(message) => {
                problems.push(InputProblem { place: format!("{place}:{}", i + 1), message });
            }
        }
    }
    if problems.is_empty() && found.len() == before {
        let message = "an empty list, expected one JSON object per line".into();
        problems.push(InputProblem { place: place.to_owned(), message });
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

fn clip(line: &[u8], folder: &Path) -> Result<Clip, String> {
    if line.len() > LINE_BYTES_MAX {
        return Err(format!("{} bytes long, expected at most {LINE_BYTES_MAX}", line.len()));
    }
    let object = match serde_json::from_slice::<Value>(line) {
        Ok(Value::Object(object)) => object,
        Ok(_) => return Err("expected a JSON object, such as {\"uri\":\"a.mp4\"}".into()),
        Err(error) => return Err(format!("not JSON: {error}")),
    };
    if let Some(key) = object.keys().find(|k| !KEYS.contains(&k.as_str())) {
        return Err(format!("unknown key `{key}` {}", alternatives(key, KEYS)));
    }
    let text = |key: &str| match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("`{key}` must be text")),
    };
    let uri = text("uri")?.filter(|u| !u.is_empty()).ok_or("missing `uri`")?;
    let id = text("id")?;
    if let Some(id) = &id
        && (id.is_empty() || id.chars().count() > 200 || id.contains(char::is_control))
    {
        return Err("`id` must be 1 to 200 characters without control characters".into());
    }
    let language = text("language")?;
    if let Some(language) = &language
        && !matches!(language.chars().count(), 2..=3)
    {
        return Err(format!("`language` is `{language}`, expected a code such as `en`"));
    }
    let priority = match object.get("priority") {
        None | Some(Value::Null) => None,
        Some(value) => {
            let number = value.as_i64().and_then(|n| i32::try_from(n).ok());
            Some(number.ok_or_else(|| format!("`priority` is {value}, expected a whole number"))?)
        }
    };
    Ok(Clip {
        id_given: id.is_some(),
        id: id.unwrap_or_default(),
        uri: resolve(&uri, folder),
        title: text("title")?,
        description: text("description")?,
        language,
        priority,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_gives_what_is_known_of_each_clip() {
        let text = "\u{feff}{\"uri\":\"a.mp4\",\"id\":\"first\",\"title\":\"T\",\"priority\":-3}\r\n\n{\"uri\":\"rtsp://x/y\",\"language\":\"en\",\"description\":null}";
        let mut found = Vec::new();
        parse(text.as_bytes(), "l.jsonl", Path::new("/clips"), &mut found).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].uri.as_str(), found[0].id.as_str()), ("/clips/a.mp4", "first"));
        assert_eq!((found[0].title.as_deref(), found[0].priority), (Some("T"), Some(-3)));
        assert_eq!(found[0].key(), "id:first");
        assert_eq!(found[1].key(), "uri:rtsp://x/y");
    }

    #[test]
    fn every_bad_line_is_named() {
        let text = b"{\"uri\":\"ok.mp4\"}\nnot json\n[1]\n{\"url\":\"a\"}\n{\"id\":\"x\"}\n{\"uri\":1}\n{\"uri\":\"a\",\"priority\":1.5}\n\xff\xfe\n{\"uri\":\"a\",\"language\":\"english\"}\n";
        let problems = parse(text, "l.jsonl", Path::new(""), &mut Vec::new()).unwrap_err();
        let places: Vec<&str> = problems.iter().map(|p| p.place.as_str()).collect();
        assert_eq!(
            places,
            (2..=9).map(|i| format!("l.jsonl:{i}")).collect::<Vec<_>>(),
            "{problems:?}"
        );
        assert!(problems[2].message.contains("did you mean `uri`?"), "{problems:?}");
        assert!(parse(b"\n", "l", Path::new(""), &mut Vec::new()).is_err());
    }
}
