//! Where the command line meets the rooms below: the model catalogue, the language engine's process, the running
//! graph. Everything else in this crate is handed what it needs.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::LazyLock;

use actors::fusion::Alerts;
use models::{Catalogue, PullEvent};

use crate::cli::ModelsCommand;
use crate::config::Context;
use crate::cost::Costs;

pub use crate::run::{RunEnd, run};

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(Catalogue::builtin);

/// Names that a configuration may use. `vader` is a lexicon inside the program.
static NAMES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let entries: &'static [models::catalogue::Entry] = CATALOGUE.entries();
    entries.iter().map(|entry| entry.name.as_str()).chain(["vader"]).collect()
});

/// What the configuration compiler must know of the world.
pub fn context() -> Context<'static> {
    Context {
        catalogue: &NAMES,
        env: &|name| std::env::var(name).ok(),
        alert: &|expression| {
            let rules = [("rule".to_owned(), expression.to_owned())].into();
            Alerts::compile(&rules).map(drop).map_err(|errors| {
                errors.iter().map(|e| e.message.clone()).collect::<Vec<_>>().join("; ")
            })
        },
    }
}

/// What models cost: this machine's own figures over the catalogue's, or the catalogue's alone.
pub fn costs(catalogue_only: bool) -> Costs {
    if catalogue_only { Costs::of_catalogue(&CATALOGUE) } else { Costs::here(&CATALOGUE) }
}

/// `pipeline models …`
pub fn models(command: &ModelsCommand) -> ExitCode {
    match command {
        ModelsCommand::List => list(),
        ModelsCommand::Pull { names } => pull(names),
        ModelsCommand::Verify { names } => verify(names),
    }
}

fn chosen(names: &[String]) -> Option<&[String]> {
    (!names.is_empty()).then_some(names)
}

#[expect(clippy::print_stdout, reason = "the list is what was asked for")]
fn list() -> ExitCode {
    let longest = CATALOGUE.entries().iter().map(|entry| entry.licence.chars().count()).max();
    let wide = longest.unwrap_or_default();
    println!("{:<20} {:>10}  {:<wide$} {:<9} FOR", "NAME", "SIZE", "LICENCE", "STATE");
    for entry in CATALOGUE.entries() {
        let size: u64 = entry.files.iter().map(|file| file.size).sum();
        let place = CATALOGUE.place(entry);
        let here = entry.files.iter().all(|file| place.join(&file.name).exists());
        let state = match (here, entry.default) {
            (true, _) => "here",
            (false, true) => "absent",
            (false, false) => "optional",
        };
        println!(
            "{:<20} {:>7.1} MB  {:<wide$} {state:<9} {}",
            entry.name,
            size as f64 / 1e6,
            entry.licence,
            entry.purpose
        );
    }
    ExitCode::SUCCESS
}

fn pull(names: &[String]) -> ExitCode {
    let mut tell = |event: PullEvent| match event {
        PullEvent::Waiting => eprintln!("waiting: another process is pulling"),
        PullEvent::Fetching { name, package, .. } => eprintln!("{name}: fetching {package}"),
        PullEvent::Making { name, file, .. } => eprintln!("{name}: making {file}"),
        PullEvent::Done { name } => eprintln!("{name}: done"),
        PullEvent::Present { .. } => {}
    };
    match CATALOGUE.pull(chosen(names), &mut tell) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "the verdicts are what was asked for")]
fn verify(names: &[String]) -> ExitCode {
    let verdicts = match CATALOGUE.verify(chosen(names)) {
        Ok(verdicts) => verdicts,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let (mut well, mut here) = (true, false);
    for (name, verdict) in verdicts {
        match verdict {
            Ok(_) => {
                here = true;
                println!("{name}: ok");
            }
            // What nobody pulled is no fault, unless it was asked for by name.
            Err(models::ModelError::Absent { .. }) if names.is_empty() => {}
            Err(error) => {
                (well, here) = (false, true);
                println!("{error}");
            }
        }
    }
    if !here {
        eprintln!("error: nothing is here yet; run `pipeline models pull`");
        well = false;
    }
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The language engine's own process.
pub fn language_engine(args: Vec<OsString>) -> ExitCode {
    engine::language::run_child(args)
}
