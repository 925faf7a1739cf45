//! The `flota-sim` command: runs seeds, reproduces and shrinks what fails, draws a run.

mod args;
mod commit;
mod error;
mod mutants;
mod output;
mod plans;
mod pool;
mod progress;
mod run;
mod shrink;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::error::{End, Outcome};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody is left to be told that this cannot be said.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    flota_sim::trial::keep_panics_quiet();
    match run(&cli.command) {
        Ok(End::Holds) => ExitCode::SUCCESS,
        Ok(End::Fails) => ExitCode::from(1),
        Ok(End::Interrupted) => ExitCode::from(130),
        Err(failure) => failure.report(),
    }
}

fn run(command: &Command) -> Outcome {
    match command {
        Command::Run(args) => run::run(args),
        Command::Plan(args) => plans::print(args),
        Command::Shrink(args) => shrink::run(args),
        Command::Mutants(args) => mutants::run(args),
        Command::Scenarios => plans::scenarios(),
    }
}
