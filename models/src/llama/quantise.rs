//! Weights as packaged become weights that are fast here: Q8_0 prefills about twice as fast as Q4_1 on AVX2.

#![expect(unsafe_code, reason = "llama.cpp's C API")]

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use llama_cpp_sys_2 as ffi;

use super::log::{last_complaint, start_backend};
use super::processor;
use crate::model::ModelError;

/// Writes the GGUF file `src` as Q8_0 to `dst`. `dst` appears whole or not at all.
///
/// # Errors
/// `Load`, naming the file and what was found: `src` is no GGUF file, or `dst` can't be written.
pub fn requantise(src: &Path, dst: &Path) -> Result<(), ModelError> {
    check_gguf(src)?;
    let failed = |detail: String| failed(dst, &detail);
    let folder = dst.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(|e| failed(e.to_string()))?;
    let part = Part(folder.join(format!(
        ".{}.{}.part",
        dst.file_name().unwrap_or_default().to_string_lossy(),
        std::process::id()
    )));
    let (from, to) = (c_path(src)?, c_path(&part.0)?);

    processor::check(src)?;
    start_backend();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    // SAFETY: the parameters come from the library's own defaults, and both paths are NUL-terminated strings
    // that outlive the call; the function catches its own exceptions and answers non-zero.
    let status = unsafe {
        let mut params = ffi::llama_model_quantize_default_params();
        params.ftype = ffi::LLAMA_FTYPE_MOSTLY_Q8_0;
        params.allow_requantize = true;
        params.nthread = i32::try_from(threads).unwrap_or(1);
        ffi::llama_model_quantize(from.as_ptr(), to.as_ptr(), &params)
    };
    if status != 0 {
        return Err(failed(last_complaint(&format!("requantising ended with status {status}"))));
    }
    File::open(&part.0)
        .and_then(|f| f.sync_all())
        .and_then(|()| std::fs::rename(&part.0, dst))
        .map_err(|e| failed(e.to_string()))
}

/// Refuses what is no GGUF file before the C side sees it.
pub(super) fn check_gguf(path: &Path) -> Result<(), ModelError> {
    let mut magic = [0_u8; 4];
    File::open(path)
        .and_then(|mut f| f.read_exact(&mut magic))
        .map_err(|e| failed(path, &e.to_string()))?;
    if &magic == b"GGUF" {
        return Ok(());
    }
    Err(failed(path, &format!("starts with {magic:02x?}, expected a GGUF file")))
}

pub(super) fn c_path(path: &Path) -> Result<CString, ModelError> {
    CString::new(path.as_os_str().as_encoded_bytes())
        .map_err(|_| failed(path, "the path holds a NUL byte"))
}

pub(super) fn failed(path: &Path, detail: &str) -> ModelError {
    ModelError::Load {
        name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        detail: format!("{}: {detail}", path.display()),
    }
}

/// A file that goes away unless it was renamed.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        // Gone already after the rename; nothing to say about a failure.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_gguf_is_named_and_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let (src, dst) = (dir.path().join("a.gguf"), dir.path().join("b.gguf"));
        std::fs::write(&src, b"<html>not found</html>").unwrap();
        let error = requantise(&src, &dst).unwrap_err().to_string();
        assert!(error.contains("a.gguf") && error.contains("expected a GGUF file"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_broken_gguf_file_is_an_error_and_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let (src, dst) = (dir.path().join("a.gguf"), dir.path().join("b.gguf"));
        std::fs::write(&src, b"GGUF\x03\0\0\0garbage").unwrap();
        requantise(&src, &dst).unwrap_err();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
