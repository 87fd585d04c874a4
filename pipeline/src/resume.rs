//! `--resume STATE`: which clips a bulk run has finished, so that a killed one goes on without losing or doubling
//! any.
//!
//! STATE is only ever appended to, one JSON line per finished clip, written after the clip's results are safely on
//! the disk. A clip that has no line there did not happen: on resuming, whatever the output holds of it goes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::inputs::Clip;

/// First line of every state file.
const HEADER: &str = "{\"schema\":\"pipeline-resume/1\"}";

/// Why a run can't be resumed.
#[derive(Debug, Error)]
pub enum ResumeError {
    /// The file system said no.
    #[error("{file}: {error}")]
    Io {
        /// Which file.
        file: String,
        /// What it said.
        error: io::Error,
    },
    /// Another run holds it.
    #[error("{file}: in use by another run")]
    Busy {
        /// Which file.
        file: String,
    },
    /// Not a state file, or damaged in the middle.
    #[error("{file}:{line}: {found}, expected {expected}")]
    State {
        /// Which file.
        file: String,
        /// From 1.
        line: usize,
        /// What is there.
        found: String,
        /// What should be.
        expected: &'static str,
    },
    /// Results that were recorded as written are not there.
    #[error(
        "{output}: {found} of the {expected} results of stream `{stream}` are there; the file was changed since. \
         Put it back, or remove {state} to start anew"
    )]
    OutputChanged {
        /// Which file.
        output: String,
        /// The state file.
        state: String,
        /// Whose results.
        stream: String,
        /// Lines found.
        found: u64,
        /// Lines recorded.
        expected: u64,
    },
}

/// A finished clip.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Done {
    /// [`digest`] of the clip's key: a URI may hold a password.
    clip: String,
    /// The stream's name in the output.
    stream: String,
    /// How many results it has there.
    lines: u64,
}

/// The record of a bulk run, open for more.
#[derive(Debug)]
pub struct Resume {
    file: File,
    path: PathBuf,
    clips: HashSet<String>,
    streams: BTreeMap<String, u64>,
}

impl Resume {
    /// Opens or makes the record at `path` and takes everything out of `output` that is not of a finished clip.
    ///
    /// # Errors
    /// When it is damaged, in use, or the output lacks results of finished clips.
    pub fn open(path: &Path, output: Option<&Path>) -> Result<Self, ResumeError> {
        let failed = io_error(path);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(&failed)?;
        file.try_lock().map_err(|_| ResumeError::Busy { file: path.display().to_string() })?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(&failed)?;
        let Record { done, good_bytes } = read(&bytes, path)?;
        file.set_len(good_bytes).map_err(&failed)?;
        file.seek(SeekFrom::End(0)).map_err(&failed)?;
        if good_bytes == 0 {
            writeln!(file, "{HEADER}").map_err(&failed)?;
        }
        file.sync_data().map_err(&failed)?;
        sync_folder(path).map_err(&failed)?;
        let resume = Resume {
            file,
            path: path.to_owned(),
            clips: done.iter().map(|d| d.clip.clone()).collect(),
            streams: done.into_iter().map(|d| (d.stream, d.lines)).collect(),
        };
        if let Some(output) = output {
            resume.clean(output)?;
        }
        Ok(resume)
    }

    /// How many clips are finished.
    pub fn finished(&self) -> usize {
        self.clips.len()
    }

    /// The clips still to do. Their ids differ from those of finished ones.
    pub fn remaining(&self, clips: Vec<Clip>) -> Vec<Clip> {
        let mut clips: Vec<Clip> =
            clips.into_iter().filter(|c| !self.clips.contains(&digest(&c.key()))).collect();
        let mut taken: HashSet<String> = clips.iter().map(|c| c.id.clone()).collect();
        for clip in clips.iter_mut().filter(|c| self.streams.contains_key(&c.id)) {
            let stem = clip.id.clone();
            let mut number = 2;
            while self.streams.contains_key(&clip.id) || !taken.insert(clip.id.clone()) {
                clip.id = format!("{stem}-{number}");
                number += 1;
            }
        }
        clips
    }

    /// Records a finished clip, safely on the disk when this returns. Its results must be there before.
    ///
    /// # Errors
    /// What the file system says.
    pub fn record(&mut self, clip: &Clip, lines: u64) -> io::Result<()> {
        let done = Done { clip: digest(&clip.key()), stream: clip.id.clone(), lines };
        let mut line = serde_json::to_vec(&done)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_data()?;
        self.clips.insert(done.clip);
        self.streams.insert(done.stream, lines);
        Ok(())
    }

    /// Keeps the results of finished clips. Written beside and renamed, so that a kill in the middle costs nothing;
    /// doing it again changes nothing.
    fn clean(&self, output: &Path) -> Result<(), ResumeError> {
        let failed = io_error(output);
        let beside = output.with_file_name(format!(
            "{}.resuming",
            output.file_name().unwrap_or_default().to_string_lossy()
        ));
        let mut found: HashMap<String, u64> = HashMap::new();
        let mut dropped = false;
        match File::open(output) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
            Ok(old) => {
                let mut old = BufReader::new(old);
                let mut new = BufWriter::new(File::create(&beside).map_err(&failed)?);
                let mut line = Vec::new();
                while old.read_until(b'\n', &mut line).map_err(&failed)? > 0 {
                    match stream_of(&line).filter(|s| self.streams.contains_key(s)) {
                        Some(stream) => {
                            *found.entry(stream).or_default() += 1;
                            new.write_all(&line).map_err(&failed)?;
                        }
                        None => dropped = true,
                    }
                    line.clear();
                }
                let new = new.into_inner().map_err(|e| failed(e.into_error()))?;
                new.sync_all().map_err(&failed)?;
            }
        }
        let changed = self.streams.iter().find_map(|(stream, expected)| {
            let found = found.get(stream).copied().unwrap_or(0);
            (found != *expected).then(|| ResumeError::OutputChanged {
                output: output.display().to_string(),
                state: self.path.display().to_string(),
                stream: stream.clone(),
                found,
                expected: *expected,
            })
        });
        let outcome = match changed {
            Some(error) => Err(error),
            None if dropped => {
                std::fs::rename(&beside, output).and_then(|()| sync_folder(output)).map_err(&failed)
            }
            None => Ok(()),
        };
        match std::fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                outcome.and(Err(failed(error)))
            }
            _ => outcome,
        }
    }
}

struct Record {
    done: Vec<Done>,
    /// Length without a torn last line.
    good_bytes: u64,
}

/// The pure part: a state file's bytes. A last line without its end was being written when the run was killed.
fn read(bytes: &[u8], path: &Path) -> Result<Record, ResumeError> {
    let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
    let bad = |line: usize, found: &[u8], expected| ResumeError::State {
        file: path.display().to_string(),
        line,
        found: format!("`{}`", String::from_utf8_lossy(found).chars().take(60).collect::<String>()),
        expected,
    };
    let torn_header = whole == 0 && !HEADER.as_bytes().starts_with(bytes);
    if torn_header {
        return Err(bad(1, bytes, "a state file of `--resume`"));
    }
    let mut done = Vec::new();
    for (i, line) in bytes[..whole].split(|b| *b == b'\n').enumerate() {
        if i == 0 {
            if whole > 0 && line != HEADER.as_bytes() {
                return Err(bad(1, line, "a state file of `--resume`"));
            }
        } else if !line.is_empty() {
            let entry =
                serde_json::from_slice(line).map_err(|_| bad(i + 1, line, "a finished clip"))?;
            done.push(entry);
        }
    }
    Ok(Record { done, good_bytes: whole as u64 })
}

/// The stream of a line of output; none for a torn one.
fn stream_of(line: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Line {
        stream: String,
    }
    let line = line.strip_suffix(b"\n")?;
    serde_json::from_slice(line).ok().map(|line: Line| line.stream)
}

fn digest(key: &str) -> String {
    Sha256::digest(key.as_bytes())[..16].iter().map(|b| format!("{b:02x}")).collect()
}

fn io_error(file: &Path) -> impl Fn(io::Error) -> ResumeError {
    let file = file.display().to_string();
    move |error| ResumeError::Io { file: file.clone(), error }
}

/// Makes a new or renamed name in a folder last.
pub(crate) fn sync_folder(file: &Path) -> io::Result<()> {
    let folder = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clip(name: &str) -> Clip {
        Clip { id: name.into(), uri: format!("/v/{name}.mp4"), ..Clip::default() }
    }

    fn line(stream: &str, n: u32) -> String {
        format!("{{\"stream\":\"{stream}\",\"n\":{n}}}\n")
    }

    struct Bulk {
        dir: tempfile::TempDir,
    }

    impl Bulk {
        fn new() -> Self {
            Bulk { dir: tempfile::tempdir().unwrap() }
        }
        fn state(&self) -> PathBuf {
            self.dir.path().join("state")
        }
        fn output(&self) -> PathBuf {
            self.dir.path().join("out.jsonl")
        }
        fn open(&self) -> Result<Resume, ResumeError> {
            Resume::open(&self.state(), Some(&self.output()))
        }
        fn text(&self) -> String {
            std::fs::read_to_string(self.output()).unwrap()
        }
    }

    #[test]
    fn only_results_of_finished_clips_are_kept() {
        let bulk = Bulk::new();
        let mut resume = bulk.open().unwrap();
        assert_eq!(resume.remaining(vec![clip("a"), clip("b")]).len(), 2);
        // `b` was under way when `a` was finished; the last line is torn.
        let written =
            [line("b", 1), line("a", 1), line("b", 2), line("a", 2), "{\"stream\":\"b".into()];
        std::fs::write(bulk.output(), written.concat()).unwrap();
        resume.record(&clip("a"), 2).unwrap();
        drop(resume);

        let resume = bulk.open().unwrap();
        assert_eq!(bulk.text(), [line("a", 1), line("a", 2)].concat());
        assert_eq!(resume.finished(), 1);
        assert_eq!(resume.remaining(vec![clip("a"), clip("b")]), [clip("b")]);
        assert!(!std::fs::read_to_string(bulk.state()).unwrap().contains("/v/"), "no URI in it");
        drop(resume);
        bulk.open().unwrap();
        assert_eq!(bulk.text(), [line("a", 1), line("a", 2)].concat(), "again changes nothing");
    }

    #[test]
    fn a_torn_last_line_is_a_clip_that_did_not_happen() {
        let bulk = Bulk::new();
        let mut resume = bulk.open().unwrap();
        std::fs::write(bulk.output(), [line("a", 1), line("b", 1)].concat()).unwrap();
        resume.record(&clip("a"), 1).unwrap();
        resume.record(&clip("b"), 1).unwrap();
        drop(resume);
        let whole = std::fs::read(bulk.state()).unwrap();
        for cut in 0..=whole.len() {
            std::fs::write(bulk.state(), &whole[..cut]).unwrap();
            std::fs::write(bulk.output(), [line("a", 1), line("b", 1)].concat()).unwrap();
            let resume = bulk.open().unwrap_or_else(|e| panic!("cut at {cut}: {e}"));
            let lines = whole[..cut].iter().filter(|b| **b == b'\n').count();
            assert_eq!(resume.finished(), lines.saturating_sub(1), "cut at {cut}");
            assert_eq!(bulk.text().lines().count(), resume.finished());
        }
    }

    #[test]
    fn a_changed_output_and_a_foreign_state_are_refused() {
        let bulk = Bulk::new();
        let mut resume = bulk.open().unwrap();
        std::fs::write(bulk.output(), line("a", 1)).unwrap();
        resume.record(&clip("a"), 1).unwrap();
        let busy = bulk.open().unwrap_err().to_string();
        assert!(busy.contains("in use by another run"), "{busy}");
        drop(resume);

        std::fs::remove_file(bulk.output()).unwrap();
        let error = bulk.open().unwrap_err().to_string();
        assert!(error.contains("0 of the 1 results of stream `a`"), "{error}");
        std::fs::write(bulk.output(), [line("a", 1), line("x", 1), line("a", 2)].concat()).unwrap();
        bulk.open().unwrap_err();
        assert_eq!(bulk.text().lines().count(), 3, "left as it was");

        std::fs::write(bulk.state(), "a shopping list\n").unwrap();
        let error = bulk.open().unwrap_err().to_string();
        assert!(error.contains("state:1: `a shopping list`, expected a state file"), "{error}");
        std::fs::write(bulk.state(), format!("{HEADER}\n{{\"clip\":1}}\n")).unwrap();
        assert!(bulk.open().unwrap_err().to_string().contains(":2: "));
    }

    #[test]
    fn a_new_clip_does_not_take_the_name_of_a_finished_one() {
        let bulk = Bulk::new();
        let mut resume = bulk.open().unwrap();
        resume.record(&clip("a"), 0).unwrap();
        let other = Clip { uri: "/other/a.mp4".into(), ..clip("a") };
        let second = Clip { uri: "/v/a-2.mp4".into(), ..clip("a-2") };
        let ids: Vec<String> =
            resume.remaining(vec![other, second]).into_iter().map(|c| c.id).collect();
        assert_eq!(ids, ["a-3", "a-2"]);
    }
}
