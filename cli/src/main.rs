//! The `flota` command.

mod announce;
mod args;
mod consume;
mod decode;
mod demo;
mod dev;
mod dlq;
mod error;
mod exec;
mod fleet;
mod interfaces;
mod logs;
mod output;
mod send;
mod signal;
mod topic;
mod topics;
mod watch;

use std::future::Future;
use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::args::{Cli, Command};
use crate::error::{End, Failure, Outcome};

fn main() -> ExitCode {
    let given = args::with_discover_joined(std::env::args_os());
    let cli = match Cli::try_parse_from(&given) {
        Ok(cli) => cli,
        Err(error) => return not_understood(&error, given.iter().any(|arg| arg == "--json")),
    };
    let json = cli.command.json();
    match logs::start(&cli.logs).and_then(|()| run(&cli.command)) {
        Ok(end) => end.code(),
        Err(failure) => failure.report(json),
    }
}

/// Help and version are asked for; the rest is wrong usage.
fn not_understood(error: &clap::Error, json: bool) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand || !json {
        // Nobody is left to be told that this cannot be said.
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    let text = error.to_string();
    // What follows the first paragraph is how to call it.
    let message: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    Failure::usage(message.join(" ").trim_start_matches("error: "))
        .hint("`flota help` and `flota help COMMAND` say what there is")
        .report(true)
}

fn run(command: &Command) -> Outcome {
    match command {
        Command::Decode(args) => decode::run(args),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "flota", &mut script);
            output::write(&script)?;
            Ok(End::Done)
        }
        Command::Announce(args) => in_runtime(announce::run(args)),
        Command::Watch(args) => in_runtime(watch::run(args)),
        Command::Send(args) => in_runtime(send::run(args)),
        Command::Consume(args) => in_runtime(consume::run(args)),
        Command::Demo(args) => in_runtime(demo::run(args)),
        Command::Dev(args) => in_runtime(dev::run(args)),
        Command::DemoBroker(args) => in_runtime(demo::broker(args)),
        Command::DemoWorker(args) => in_runtime(demo::worker(args)),
        Command::DemoGuard(args) => demo::guard(args),
        Command::Topics(args) => in_runtime(topics::run(args)),
        Command::Topic(args) => in_runtime(topic::run(args)),
        Command::Dlq(args) => in_runtime(dlq::run(args)),
    }
}

/// The part that talks to brokers has a thread of its own: it must go on while this one waits for a slow terminal.
fn in_runtime(command: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error: io::Error| Failure::io("cannot start the runtime", &error))?;
    let outcome = runtime.block_on(command);
    // A thread may still wait for standard input: nobody waits for it.
    runtime.shutdown_background();
    outcome
}
