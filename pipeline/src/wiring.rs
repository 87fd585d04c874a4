//! Where the command line meets the rooms below: the model catalogue, the language engine's process, the running
//! graph. Everything else in this crate is handed what it needs.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::cli::ModelsCommand;
use crate::config::Context;
use crate::launch::Launch;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// All well.
    Well,
    /// At least one stream failed.
    StreamsFailed,
}

/// Names of the model catalogue.
const CATALOGUE: &[&str] = &[
    "ssdlite-300",
    "nanodet-416",
    "efficientnet-lite0",
    "open-nsfw",
    "ppocr-v5",
    "moonshine-tiny",
    "silero-vad-v6",
    "minilm-l6-v2",
    "smollm2-135m",
    "vader",
];

/// What the configuration compiler must know of the world.
pub fn context() -> Context<'static> {
    Context { catalogue: CATALOGUE, env: &|name| std::env::var(name).ok(), alert: &|_| Ok(()) }
}

/// Runs the graph until its inputs end or a signal comes.
///
/// # Errors
/// One sentence.
pub async fn run(_launch: Launch) -> Result<RunEnd, String> {
    Err("the graph is not wired in".into())
}

/// `pipeline models …`
pub fn models(_command: &ModelsCommand) -> ExitCode {
    eprintln!("error: the catalogue is not wired in");
    ExitCode::from(2)
}

/// The language engine's own process.
pub fn language_engine(_args: Vec<OsString>) -> ExitCode {
    eprintln!("error: the language engine is not wired in");
    ExitCode::from(2)
}
