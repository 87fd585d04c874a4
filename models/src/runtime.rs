//! ONNX Runtime, loaded at run time, and the sessions made with it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ort::environment::Environment;
use ort::session::Session;
use ort::session::builder::GraphOptimizationLevel;

use crate::arena;
use crate::model::ModelError;

/// Where a session runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provider {
    /// One thread of the calling lane.
    #[default]
    Cpu,
}

/// The loaded library. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    environment: Arc<Environment>,
}

/// The library allows one environment in a process's life: it stays, and whoever opens it again shares it.
static IN_USE: Mutex<Option<(PathBuf, Arc<Environment>)>> = Mutex::new(None);

impl Runtime {
    /// Loads libonnxruntime from `library`, once per process.
    ///
    /// # Errors
    /// `Load` when the file is absent or is no ONNX Runtime of a known version, or when the process uses another one.
    pub fn open(library: &Path) -> Result<Self, ModelError> {
        let failed = |detail: String| ModelError::Load {
            name: "onnxruntime".into(),
            detail: format!("{}: {detail}", library.display()),
        };
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((from, environment)) = &*in_use {
            if from != library {
                return Err(failed(format!("this process uses {} already", from.display())));
            }
            return Ok(Runtime { environment: environment.clone() });
        }
        let environment = ort::init_from(library)
            .map_err(|e| failed(e.to_string()))?
            .with_name("pipeline")
            .with_telemetry(false)
            .build()
            .map_err(|e| failed(e.to_string()))?;
        arena::share(&environment).map_err(|e| failed(e.to_string()))?;
        let environment = Arc::new(environment);
        *in_use = Some((library.to_owned(), environment.clone()));
        Ok(Runtime { environment })
    }

    /// A session on one thread: lanes are the only parallelism, so that the scheduler knows who computes.
    ///
    /// # Errors
    /// `Load`, naming the model and what the runtime said.
    pub fn session(
        &self,
        name: &str,
        file: &Path,
        provider: Provider,
    ) -> Result<Session, ModelError> {
        self.session_at(name, file, provider, GraphOptimizationLevel::All)
    }

    /// The same with the graph optimised only so far: a few networks are slower in the layout that the last
    /// level chooses.
    pub(crate) fn session_at(
        &self,
        name: &str,
        file: &Path,
        provider: Provider,
        level: GraphOptimizationLevel,
    ) -> Result<Session, ModelError> {
        let failed = |e: String| ModelError::Load { name: name.to_owned(), detail: e };
        match provider {
            Provider::Cpu => {}
        }
        Session::builder(&self.environment)
            .and_then(|b| Ok(b.with_optimization_level(level)?))
            .and_then(|b| Ok(b.with_intra_threads(1)?))
            .and_then(|b| Ok(b.with_inter_threads(1)?))
            .and_then(|b| Ok(b.with_env_allocators()?))
            .and_then(|mut b| b.commit_from_file(file))
            .map_err(|e| failed(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalogue;

    #[test]
    fn opened_again_it_is_shared_and_another_library_is_refused() {
        let library = Catalogue::builtin().dir("onnxruntime").unwrap().join("libonnxruntime.so");
        let first = Runtime::open(&library).unwrap();
        let again = Runtime::open(&library).unwrap();
        assert!(Arc::ptr_eq(&first.environment, &again.environment));
        let other = Runtime::open(Path::new("/elsewhere/libonnxruntime.so")).err().unwrap();
        assert!(other.to_string().contains("already"), "{other}");
        drop((first, again));
        Runtime::open(&library).unwrap();
    }
}
