//! Starts the real engine on the real weights.

#![expect(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use std::path::PathBuf;
use std::time::Duration;

use engine::language::{ChildArgs, EmbeddedBackend, EmbeddedConfig};

/// A folder of the weights cache.
pub(crate) fn cache(folder: &str) -> PathBuf {
    let cache = std::env::var_os("PIPELINE_CACHE")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("XDG_CACHE_HOME").map(|d| PathBuf::from(d).join("pipeline")))
        .unwrap_or_else(|| {
            PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/pipeline")
        });
    cache.join("models").join(folder)
}

/// The child with one thread.
pub(crate) fn config() -> EmbeddedConfig {
    let model = cache("smollm2-135m").join("smollm2-135m-q8_0.gguf");
    assert!(model.exists(), "{} is not there: run make setup", model.display());
    let program = PathBuf::from(env!("CARGO_BIN_EXE_language-child"));
    EmbeddedConfig::new(program, Vec::new(), ChildArgs::new(model), "smollm2-135m".into())
}

/// A running engine that takes work.
pub(crate) async fn start() -> EmbeddedBackend {
    let backend = EmbeddedBackend::start(config());
    tokio::time::timeout(Duration::from_secs(60), backend.ready()).await.expect("it loads");
    backend
}
