//! Which weights and media there are, where they come from and what they hash to.
//!
//! `pull` fills the cache with them. One rule: nothing is opened whose hash was not checked in this process.

mod entry;
mod hash;

use std::path::{Path, PathBuf};

pub use entry::{Arch, Entry, EntryKind, ProducedFile, Registry, Source, SourceFile, Step};
pub(crate) use hash::sha256_of;

use crate::model::ModelError;
use crate::pull::{self, PullError, PullEvent};

/// The catalogue and the cache folder it speaks of.
#[derive(Clone, Debug)]
pub struct Catalogue {
    entries: Vec<Entry>,
    cache: PathBuf,
}

impl Catalogue {
    /// The catalogue compiled in, over the user's cache folder (`$PIPELINE_CACHE`, else
    /// `$XDG_CACHE_HOME/pipeline`, else `~/.cache/pipeline`).
    pub fn builtin() -> Self {
        Self::at(cache_folder())
    }

    /// The catalogue compiled in, over the cache folder `cache`.
    #[expect(clippy::expect_used, reason = "compiled in, and parsed by a test")]
    pub fn at(cache: PathBuf) -> Self {
        Self::parse(include_str!("../../catalogue.json"), cache).expect("the catalogue is valid")
    }

    /// A catalogue out of JSON of the same form as `catalogue.json`. Entries for other processors are left out.
    ///
    /// # Errors
    /// Where the JSON is not of that form.
    pub fn parse(json: &str, cache: PathBuf) -> Result<Self, serde_json::Error> {
        let mut entries: Vec<Entry> = serde_json::from_str(json)?;
        entries.retain(|e| e.arch.is_none_or(Arch::is_here));
        Ok(Catalogue { entries, cache })
    }

    /// Everything that can be had on this machine.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The cache folder.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// The entry called `name`.
    ///
    /// # Errors
    /// `Unknown`, naming what there is.
    pub fn entry(&self, name: &str) -> Result<&Entry, ModelError> {
        self.entries.iter().find(|e| e.name == name).ok_or_else(|| ModelError::Unknown {
            name: name.to_owned(),
            known: self.entries.iter().map(|e| e.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    /// The entry of which `part` is the whole or a part (`ppocr-v5`, `ppocr-v5/detect`).
    pub fn entry_of(&self, part: &str) -> Option<&Entry> {
        let name = part.split_once('/').map_or(part, |(name, _)| name);
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// The folder that holds the files of `name`, all present and of the right hash. A file is hashed once
    /// per process unless it changes.
    ///
    /// # Errors
    /// `Unknown`, `Absent` or `Corrupt`, naming the file.
    pub fn dir(&self, name: &str) -> Result<PathBuf, ModelError> {
        let entry = self.entry(name)?;
        let dir = self.place(entry);
        for file in &entry.files {
            hash::check(&entry.name, &dir.join(&file.name), file.size, &file.sha256)?;
        }
        Ok(dir)
    }

    /// Where the files of `entry` belong, present or not.
    pub fn place(&self, entry: &Entry) -> PathBuf {
        self.cache.join(entry.kind.folder()).join(&entry.name)
    }

    /// The state of each entry named, or of all.
    ///
    /// # Errors
    /// `Unknown` for a name that is not in the catalogue; what is wrong with an entry stands in the list.
    pub fn verify(&self, names: Option<&[String]>) -> Result<Vec<Verified>, ModelError> {
        let entries: Vec<&Entry> = match names {
            Some(names) => names.iter().map(|n| self.entry(n)).collect::<Result<_, _>>()?,
            None => self.entries.iter().collect(),
        };
        Ok(entries.into_iter().map(|e| (e.name.clone(), self.dir(&e.name))).collect())
    }

    /// Brings the entries named, or all default ones, into the cache; what is already there is left alone.
    /// Only one pull works on a cache at a time, others wait.
    ///
    /// # Errors
    /// [`PullError`]: one sentence saying what happened and what to do.
    pub fn pull(
        &self,
        names: Option<&[String]>,
        progress: &mut dyn FnMut(PullEvent),
    ) -> Result<(), PullError> {
        let entries: Vec<&Entry> = match names {
            Some(names) => names.iter().map(|n| self.entry(n)).collect::<Result<_, _>>()?,
            None => self.entries.iter().filter(|e| e.default).collect(),
        };
        pull::pull(self, &entries, &pull::Clients::from_path(), progress)
    }
}

/// An entry's name, and its folder or what is wrong with it.
pub type Verified = (String, Result<PathBuf, ModelError>);

/// `$PIPELINE_CACHE`, else `$XDG_CACHE_HOME/pipeline`, else `~/.cache/pipeline`.
fn cache_folder() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("PIPELINE_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("pipeline")))
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache/pipeline")))
        .unwrap_or_else(|| std::env::temp_dir().join("pipeline"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_builtin_catalogue_has_one_entry_a_name_and_whole_hashes() {
        let catalogue = Catalogue::at("/nowhere".into());
        let mut names: Vec<&str> = catalogue.entries().iter().map(|e| e.name.as_str()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for entry in catalogue.entries() {
            assert!(!entry.files.is_empty(), "{}", entry.name);
            for (part, cost) in &entry.costs {
                assert!(cost.is_sound(), "{part}: {cost:?}");
                assert_eq!(catalogue.entry_of(part).map(|e| &e.name), Some(&entry.name));
            }
            for file in &entry.files {
                assert_eq!(file.sha256.len(), 64, "{}/{}", entry.name, file.name);
                let parts = entry.sources.iter().flat_map(|s| &s.files);
                let found = parts.filter(|p| p.part() == file.input).count();
                assert_eq!(found, 1, "{}/{} from {}", entry.name, file.name, file.input);
            }
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = Catalogue::at("/nowhere".into()).dir("yolo").unwrap_err().to_string();
        assert!(error.contains("`yolo`") && error.contains("ssdlite-300"), "{error}");
    }

    #[test]
    fn absent_weights_name_the_command_that_brings_them() {
        let error = Catalogue::at("/nowhere".into()).dir("ssdlite-300").unwrap_err().to_string();
        assert!(error.contains("pipeline models pull ssdlite-300"), "{error}");
    }
}
