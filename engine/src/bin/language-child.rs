//! The language engine's process, for this crate's own tests; the program itself has it as a hidden subcommand.

use std::process::ExitCode;

fn main() -> ExitCode {
    engine::language::run_child(std::env::args_os().skip(1))
}
