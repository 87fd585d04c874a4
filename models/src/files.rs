//! Files of a model's folder in the weights cache.

use std::path::{Path, PathBuf};

use crate::model::ModelError;

/// What a model is called in messages: its folder's name.
pub(crate) fn name_of(dir: &Path) -> String {
    dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy().into_owned()
}

/// `dir/file`.
///
/// # Errors
/// `Absent` when there is no such file.
pub(crate) fn present(name: &str, dir: &Path, file: &str) -> Result<PathBuf, ModelError> {
    let path = dir.join(file);
    if path.is_file() {
        Ok(path)
    } else {
        Err(ModelError::Absent { name: name.to_owned(), path: path.display().to_string() })
    }
}
