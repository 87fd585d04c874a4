//! The binary `pipeline`.

use std::process::ExitCode;

fn main() -> ExitCode {
    pipeline::cli::main()
}
