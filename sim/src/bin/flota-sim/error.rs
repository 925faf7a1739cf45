//! How a command ends.

use std::fmt;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use crate::output::Style;

pub(crate) type Outcome = Result<End, Failure>;

/// A command that did what it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Everything held.
    Holds,
    /// Something did not hold.
    Fails,
    /// Interrupted before it was done.
    Interrupted,
}

/// What was tried, what came of it, and what to do next.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
    usage: bool,
    /// Nobody reads the output any more: that is no failure.
    unheard: bool,
}

impl Failure {
    /// What was asked for cannot be.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, usage: true, unheard: false }
    }

    /// Something with a file or standard output.
    pub(crate) fn io(what: impl fmt::Display, error: &io::Error) -> Self {
        let unheard = error.kind() == io::ErrorKind::BrokenPipe;
        Self { message: format!("{what}: {error}"), hint: None, usage: false, unheard }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn report(&self) -> ExitCode {
        if self.unheard {
            return ExitCode::SUCCESS;
        }
        let style = Style::for_stream(io::stderr().is_terminal());
        eprintln!("{} {}", style.bad("error:"), self.message);
        if let Some(hint) = &self.hint {
            eprintln!("{} {hint}", style.good("next:"));
        }
        ExitCode::from(if self.usage { 2 } else { 1 })
    }
}
