//! The command line. Exit status: 0 all well, 1 a stream failed, 2 the call or the configuration is wrong.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::bench::{self, BenchArgs};
use crate::config::{self, Overrides, Problems};
use crate::cost;
use crate::graph::{self, GraphFormat};
use crate::launch::{self, LaunchError, RunArgs};
use crate::serve::{self, ServeArgs};
use crate::subscribe::{self, SubscribeArgs};
use crate::validate::{self, ValidateArgs};
use crate::wiring::{self, RunEnd};

/// The call or the configuration is wrong.
const WRONG: u8 = 2;

/// Says what is in a video while it is happening.
#[derive(Debug, Parser)]
#[command(name = "pipeline", version, about)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Process streams and files.
    Run(RunArgs),
    /// Serve language models to other programs, without streams.
    Serve(ServeArgs),
    /// Check a configuration and say everything that is wrong with it, and what it costs on this machine.
    Validate(ValidateArgs),
    /// Print a configuration's stage graph.
    Graph {
        /// The configuration.
        config: PathBuf,
        /// How to write it.
        #[arg(long, value_enum, default_value = "mermaid")]
        format: GraphFormat,
        /// One value of the configuration, such as `stages.frames.fps=2`. Repeatable.
        #[arg(long, value_name = "PATH=VALUE")]
        set: Vec<String>,
    },
    /// Print a JSON Schema.
    Schema {
        /// Of what.
        #[arg(value_enum)]
        of: SchemaOf,
    },
    /// Print the results of a running pipeline, one per line.
    Subscribe(SubscribeArgs),
    /// The weights that models need.
    Models {
        /// What to do.
        #[command(subcommand)]
        command: ModelsCommand,
    },
    /// Measure this machine, with the graph that `run` runs.
    Bench(BenchArgs),
    /// The language engine's own process; started by `run` and `serve`.
    #[command(hide = true)]
    LanguageEngine {
        /// Handed on as they are.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

/// What a schema is of.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum SchemaOf {
    /// A configuration.
    Config,
    /// What subscribers receive.
    Result,
}

/// `pipeline models …`
#[derive(Clone, Debug, Subcommand)]
pub enum ModelsCommand {
    /// What there is, and what of it is here.
    List,
    /// Fetch weights; all that are missing, or those named.
    Pull {
        /// Names of the catalogue.
        names: Vec<String>,
    },
    /// Hash what is here against the catalogue.
    Verify {
        /// Names of the catalogue.
        names: Vec<String>,
    },
}

/// Does what the command line says.
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(args) => run(&args),
        Command::Serve(args) => {
            log_to_stderr("info");
            in_runtime(async move {
                match serve::serve(&args).await {
                    Ok(()) => ExitCode::SUCCESS,
                    Err(error) => fail(&error, WRONG),
                }
            })
        }
        Command::Validate(args) => {
            match validate::validate(&args, &wiring::context(), &wiring::costs) {
                Ok(said) => {
                    if let Some(findings) = &said.warnings {
                        eprint!("{}", findings.render_warnings(is_coloured()));
                    }
                    let printed = print(&said.text);
                    said.refused.as_ref().map_or(printed, report)
                }
                Err(problems) => report(&problems),
            }
        }
        Command::Graph { config, format, set } => {
            with_plan(&config, &set, |plan| print(&graph::render(&plan.graph, format)))
        }
        Command::Schema { of } => print(&schema_text(&match of {
            SchemaOf::Config => config::config_schema(),
            SchemaOf::Result => config::result_schema(),
        })),
        Command::Subscribe(args) => {
            log_to_stderr("info");
            in_runtime(async move {
                match subscribe::subscribe(&args, io::stdout()).await {
                    Ok(()) => ExitCode::SUCCESS,
                    Err(error) => {
                        let status = if error.is_call() { WRONG } else { 1 };
                        fail(&error.to_string(), status)
                    }
                }
            })
        }
        Command::Models { command } => {
            log_to_stderr("info");
            wiring::models(&command)
        }
        Command::Bench(args) => {
            log_to_stderr("warn");
            in_runtime(async move {
                match bench::bench(&args).await {
                    Ok(text) => print(&text),
                    Err(error) => fail(&error, 1),
                }
            })
        }
        Command::LanguageEngine { args } => wiring::language_engine(args),
    }
}

/// A schema as it is published.
pub fn schema_text(schema: &serde_json::Value) -> String {
    format!("{schema:#}\n")
}

fn run(args: &RunArgs) -> ExitCode {
    log_to_stderr("info");
    let launch = match launch::prepare(args, &wiring::context()) {
        Ok(launch) => launch,
        Err(LaunchError::Config(problems)) => return report(&problems),
        Err(error) => return fail(&error.to_string(), WRONG),
    };
    for note in &launch.notes {
        tracing::info!("{note}");
    }
    let found = cost::assess_here(&launch.plan, &wiring::costs(false));
    for finding in &found.findings {
        tracing::warn!("{}: {}", finding.path, finding.message);
    }
    if !found.findings.is_empty() && found.is_by_catalogue() {
        tracing::warn!("{}", cost::BY_CATALOGUE);
    }
    in_runtime(async move {
        match wiring::run(launch).await {
            Ok(RunEnd::Well) => ExitCode::SUCCESS,
            Ok(RunEnd::StreamsFailed) => ExitCode::FAILURE,
            Err(error) => fail(&error, WRONG),
        }
    })
}

fn with_plan(
    file: &std::path::Path,
    set: &[String],
    then: impl FnOnce(&crate::plan::Plan) -> ExitCode,
) -> ExitCode {
    match config::load(file, Overrides { set, realtime: false }, &wiring::context()) {
        Ok(plan) => then(&plan),
        Err(problems) => report(&problems),
    }
}

fn report(problems: &Problems) -> ExitCode {
    eprint!("{}", problems.render(is_coloured()));
    ExitCode::from(WRONG)
}

fn is_coloured() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

fn fail(message: &str, status: u8) -> ExitCode {
    eprintln!("error: {message}");
    ExitCode::from(status)
}

/// Standard output may be a pipe that nobody reads any more; that is no fault.
fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            fail(&format!("standard output: {error}"), 1)
        }
        _ => ExitCode::SUCCESS,
    }
}

fn in_runtime(future: impl Future<Output = ExitCode>) -> ExitCode {
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(future);
            // Weights that are still being read when a signal comes are not waited for.
            runtime.shutdown_timeout(std::time::Duration::from_millis(500));
            code
        }
        Err(error) => fail(&format!("no threads to be had: {error}"), 1),
    }
}

/// Standard output belongs to results. `RUST_LOG` says what is logged, in place of `level`.
fn log_to_stderr(level: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    // Fails only when there is a logger already, which then is the one that is wanted.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(is_coloured())
        .try_init();
}
