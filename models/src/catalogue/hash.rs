//! Hashes files, and remembers for the life of the process which were right.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use crate::model::ModelError;

/// Size and time of change say whether a file is still the one that was hashed.
type Stamp = (u64, Option<SystemTime>);

/// One entry for each file of the catalogue at most.
static HASHED: LazyLock<Mutex<HashMap<PathBuf, (Stamp, String)>>> = LazyLock::new(Mutex::default);

/// Checks that `path` is there and hashes to `expected`.
pub(super) fn check(name: &str, path: &Path, size: u64, expected: &str) -> Result<(), ModelError> {
    let absent = || ModelError::Absent { name: name.into(), path: path.display().to_string() };
    let meta = fs::metadata(path).map_err(|_| absent())?;
    let found = if meta.len() == size {
        hashed(path, (meta.len(), meta.modified().ok())).map_err(|_| absent())?
    } else {
        format!("of another file ({} bytes instead of {size})", meta.len())
    };
    if found != expected {
        return Err(ModelError::Corrupt {
            name: name.into(),
            path: path.display().to_string(),
            found,
            expected: expected.into(),
        });
    }
    Ok(())
}

fn hashed(path: &Path, stamp: Stamp) -> io::Result<String> {
    let known = || HASHED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((before, hash)) = known().get(path)
        && *before == stamp
    {
        return Ok(hash.clone());
    }
    let hash = sha256_of(path)?;
    known().insert(path.to_owned(), (stamp, hash.clone()));
    Ok(hash)
}

/// The file's sha256 in lowercase hexadecimal.
pub(crate) fn sha256_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            n => hasher.update(&buffer[..n]),
        }
    }
    Ok(hasher.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changed_after_it_was_checked_is_found_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w");
        fs::write(&path, b"abc").unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(check("m", &path, 3, abc), Ok(()));
        fs::write(&path, b"abd").unwrap();
        let later = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(5);
        File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert!(matches!(check("m", &path, 3, abc), Err(ModelError::Corrupt { .. })));
        fs::write(&path, b"ab").unwrap();
        let error = check("m", &path, 3, abc).unwrap_err().to_string();
        assert!(error.contains("2 bytes instead of 3"), "{error}");
        fs::remove_file(&path).unwrap();
        assert!(matches!(check("m", &path, 3, abc), Err(ModelError::Absent { .. })));
    }
}
