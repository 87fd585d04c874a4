//! What `--input` names: files, folders, patterns, URLs, standard input and lists become clips, each with an id
//! that no other has. Opens no media.
//!
//! One rule: everything named is either a clip, a note, or a problem; nothing is left out without a word.

mod list;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

use media::mask_uri;

/// Endings taken for media when a folder is named.
const MEDIA: &[&str] = &[
    "mp4", "m4v", "mov", "mkv", "webm", "avi", "ts", "m2ts", "mts", "mpg", "mpeg", "flv", "wmv",
    "3gp", "ogv", "h264", "wav", "mp3", "m4a", "aac", "flac", "ogg", "opus",
];

/// One source named on the command line or in a list. Printed, it holds no password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Clip {
    /// Unique; from the list, or from the file's name.
    pub id: String,
    /// Whether the id was given, and so stays the same whatever else is named beside it.
    pub id_given: bool,
    /// Path, URL, or `-`.
    pub uri: String,
    /// Data for the text model.
    pub title: Option<String>,
    /// Ditto.
    pub description: Option<String>,
    /// ISO 639-1.
    pub language: Option<String>,
    /// Lower goes first.
    pub priority: Option<i32>,
}

impl Clip {
    /// What stays the same when the same inputs are named again: how a resumed run knows its clips. As secret as
    /// the URI: only its digest is written down.
    pub fn key(&self) -> String {
        if self.id_given { format!("id:{}", self.id) } else { format!("uri:{}", self.uri) }
    }
}

impl fmt::Debug for Clip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Clip { id, uri, title, .. } = self;
        let uri = mask_uri(uri);
        f.debug_struct("Clip")
            .field("id", id)
            .field("uri", &uri)
            .field("title", title)
            .finish_non_exhaustive()
    }
}

/// Everything that was named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// In the order named, folders and patterns sorted.
    pub clips: Vec<Clip>,
    /// What a user should know, such as files named twice.
    pub notes: Vec<String>,
}

/// Why an input can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputProblem {
    /// As named, passwords masked; with the line for lists.
    pub place: String,
    /// What was found and expected.
    pub message: String,
}

impl fmt::Display for InputProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Turns the values of `--input` into clips.
///
/// # Errors
/// Everything that can't be used, at once.
pub fn expand(named: &[String]) -> Result<Inputs, Vec<InputProblem>> {
    let mut found = Vec::new();
    let mut problems = Vec::new();
    for name in named {
        if let Err(mut found) = one(name, &mut found) {
            problems.append(&mut found);
        }
    }
    let mut notes = Vec::new();
    let clips = unique(found, &mut notes, &mut problems);
    if problems.is_empty() { Ok(Inputs { clips, notes }) } else { Err(problems) }
}

/// `uri` as seen from `folder`: paths are relative to it, everything else stays.
pub fn resolve(uri: &str, folder: &Path) -> String {
    if is_url(uri) || uri == "-" {
        return uri.to_owned();
    }
    let path = uri.strip_prefix("file://").or_else(|| uri.strip_prefix("file:")).unwrap_or(uri);
    folder.join(path).to_string_lossy().into_owned()
}

fn is_url(uri: &str) -> bool {
    !uri.starts_with("file:")
        && uri.split_once("://").is_some_and(|(scheme, _)| {
            !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+')
        })
}

fn one(name: &str, found: &mut Vec<Clip>) -> Result<(), Vec<InputProblem>> {
    let fail = |message: String| Err(vec![InputProblem { place: media::mask_uri(name), message }]);
    if is_url(name) || name == "-" {
        found.push(Clip { uri: name.to_owned(), ..Clip::default() });
        return Ok(());
    }
    let path = resolve(name, Path::new(""));
    let path = Path::new(&path);
    // A file may have any name: brackets and stars are a pattern only when no such file exists.
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => match folder(path) {
            Ok(files) if files.is_empty() => {
                fail(format!("no media files in this folder (looked for {})", MEDIA.join(", ")))
            }
            Ok(files) => files.into_iter().try_for_each(|file| push(&file, found)),
            Err(error) => fail(format!("can't be listed: {error}")),
        },
        Ok(_) if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("jsonl")) => {
            list::read(path, found)
        }
        Ok(_) => push(path, found),
        Err(_) if name.contains(['*', '?', '[']) => pattern(&path.to_string_lossy(), found),
        Err(error) => fail(format!("can't be opened: {error}")),
    }
}

fn push(file: &Path, found: &mut Vec<Clip>) -> Result<(), Vec<InputProblem>> {
    let Some(uri) = file.to_str() else {
        let place = file.to_string_lossy().into_owned();
        return Err(vec![InputProblem { place, message: "the name is not UTF-8".into() }]);
    };
    found.push(Clip { uri: uri.to_owned(), ..Clip::default() });
    Ok(())
}

fn folder(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let file = entry?.path();
        let ending = file.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
        if file.is_file() && ending.is_some_and(|e| MEDIA.contains(&e.as_str())) {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

fn pattern(pattern: &str, found: &mut Vec<Clip>) -> Result<(), Vec<InputProblem>> {
    let fail = |message: String| Err(vec![InputProblem { place: pattern.to_owned(), message }]);
    let paths = match glob::glob(pattern) {
        Ok(paths) => paths,
        Err(error) => return fail(format!("not a pattern: {error}")),
    };
    let mut files = Vec::new();
    for path in paths {
        match path {
            Ok(path) if path.is_file() => files.push(path),
            Ok(_) => {}
            Err(error) => return fail(format!("can't be listed: {error}")),
        }
    }
    if files.is_empty() {
        return fail("no file matches".into());
    }
    files.sort();
    files.into_iter().try_for_each(|file| push(&file, found))
}

/// Ids for those without one, from their file's name; a name that several have is numbered.
fn unique(
    found: Vec<Clip>,
    notes: &mut Vec<String>,
    problems: &mut Vec<InputProblem>,
) -> Vec<Clip> {
    let mut taken: HashSet<String> = HashSet::new();
    for clip in found.iter().filter(|c| c.id_given) {
        if !taken.insert(clip.id.clone()) {
            problems.push(InputProblem {
                place: media::mask_uri(&clip.uri),
                message: format!("id `{}` is given twice", clip.id),
            });
        }
    }
    let mut seen: HashSet<String> = HashSet::new();
    let mut clips = Vec::with_capacity(found.len());
    let mut next_number: HashMap<String, usize> = HashMap::new();
    for mut clip in found {
        if !clip.id_given {
            let shown = media::mask_uri(&clip.uri);
            if !seen.insert(clip.uri.clone()) {
                notes.push(format!("{shown}: named twice, taken once"));
                continue;
            }
            let stem = stem(&shown);
            let number = next_number.entry(stem.clone()).or_insert(1);
            clip.id = stem.clone();
            while !taken.insert(clip.id.clone()) {
                *number += 1;
                clip.id = format!("{stem}-{number}");
            }
        }
        clips.push(clip);
    }
    clips
}

/// The last part of a path or URL, without its ending.
fn stem(uri: &str) -> String {
    if uri == "-" {
        return "stdin".into();
    }
    let path =
        uri.split_once("://").map_or(uri, |(_, rest)| rest.split('?').next().unwrap_or(rest));
    let path = path.trim_end_matches('/');
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = Path::new(name).file_stem().and_then(|s| s.to_str()).unwrap_or(name);
    let stem: String = stem.chars().filter(|c| !c.is_control()).take(100).collect();
    if stem.is_empty() { "clip".into() } else { stem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(named: &[&str]) -> Vec<String> {
        let named: Vec<String> = named.iter().map(|s| (*s).to_owned()).collect();
        expand(&named).unwrap().clips.into_iter().map(|c| c.id).collect()
    }

    #[test]
    fn urls_and_standard_input_are_taken_as_they_are() {
        assert_eq!(
            ids(&[
                "rtsp://u:secret@cam-1.lan/live/main?x=1",
                "-",
                "rtsp://cam-2.lan",
                "http://a/b.mp4"
            ]),
            ["main", "stdin", "cam-2", "b"]
        );
    }

    #[test]
    fn a_printed_clip_or_source_holds_no_password() {
        let named = ["rtsp://user:opensesame@cam/live?token=hush".to_owned()];
        let clips = expand(&named).unwrap();
        let spec = media::SourceSpec {
            uri: clips.clips[0].uri.clone(),
            transport: media::Transport::Tcp,
            open_timeout: std::time::Duration::ZERO,
            read_timeout: std::time::Duration::ZERO,
            sampling: media::Sampling::NONE,
        };
        for printed in [format!("{clips:?}"), format!("{spec:?}")] {
            assert!(printed.contains("cam/live"), "{printed}");
            assert!(!printed.contains("opensesame") && !printed.contains("hush"), "{printed}");
        }
    }

    #[test]
    fn files_folders_and_patterns() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        let odd = [
            "two words ünïc 视频.mp4",
            "100%d done %03d.mp4",
            "-i.mp4",
            "a:b?c#d&e.mp4",
            "b[1].mp4",
        ];
        for name in odd.iter().chain(&["notes.txt", "sub/-i.mp4"]) {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        let folder = ids(&[&at("")]);
        assert_eq!(folder, ["-i", "100%d done %03d", "a:b?c#d&e", "b[1]", "two words ünïc 视频"]);
        assert_eq!(ids(&[&at("b[1].mp4")]), ["b[1]"], "an existing file is no pattern");
        assert_eq!(ids(&[&at("**/-*.mp4")]), ["-i", "-i-2"], "ids are unique");
        assert_eq!(ids(&[&format!("file:{}", at("-i.mp4"))]), ["-i"]);

        let twice = expand(&[at("-i.mp4"), at("-?.mp4")]).unwrap();
        assert_eq!((twice.clips.len(), twice.notes.len()), (1, 1));

        let problems = expand(&[at("none.mp4"), at("*.xyz"), at("sub"), at("a[")]).unwrap_err();
        let said: Vec<&str> = problems.iter().map(|p| p.message.as_str()).collect();
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].contains("can't be opened") && said[1].contains("no file matches"));
        assert!(said[2].contains("not a pattern"));
    }

    #[test]
    fn paths_are_relative_to_the_file_that_names_them() {
        let folder = Path::new("configs");
        for (uri, want) in [
            ("a b.mp4", "configs/a b.mp4"),
            ("file:a.mp4", "configs/a.mp4"),
            ("/abs.mp4", "/abs.mp4"),
            ("file:///abs.mp4", "/abs.mp4"),
            ("rtsp://x/y", "rtsp://x/y"),
            ("-", "-"),
        ] {
            assert_eq!(resolve(uri, folder), want);
        }
        assert_eq!(resolve("a.mp4", Path::new("")), "a.mp4");
    }
}
