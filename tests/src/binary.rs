//! Finds the `pipeline` binary that cargo built, and refuses one that is older than its sources.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The workspace's root folder.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace")
}

/// Folder of this profile's results: the test itself lies in its `deps`.
pub(crate) fn profile_dir() -> PathBuf {
    let test = std::env::current_exe().expect("a running program has a path");
    test.ancestors()
        .find(|a| a.file_name().is_some_and(|n| n == "deps"))
        .and_then(Path::parent)
        .unwrap_or_else(|| panic!("{} does not lie in cargo's `deps` folder", test.display()))
        .to_owned()
}

/// The binary: `PIPELINE_BIN`, or the one beside this test.
pub fn binary() -> PathBuf {
    if let Some(given) = std::env::var_os("PIPELINE_BIN") {
        return given.into();
    }
    let path = profile_dir().join("pipeline");
    let built = modified(&path).unwrap_or_else(|| {
        panic!("{} is not built: cargo build --release -p pipeline", path.display())
    });
    // Cargo lists every source that went into the binary; testing yesterday's build proves nothing.
    let sources = std::fs::read_to_string(path.with_extension("d")).unwrap_or_default();
    let newer = sources.split_whitespace().skip(1).find(|s| modified(Path::new(s)) > Some(built));
    if let Some(source) = newer {
        panic!("pipeline is older than {source}: cargo build --release -p pipeline");
    }
    path
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}
