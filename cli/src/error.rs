//! Why a command failed, said to people or to programs.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use flota_core::config::ConfigError;
use flota_tokio::{ConnectError, Stopped};
use serde::Serialize;

use crate::output::{self, Style};

/// The result of a command.
pub(crate) type Outcome = Result<End, Failure>;

/// How a command ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// What was asked for is done, or a command that runs until it is stopped was asked to end.
    Done,
    /// Interrupted before it was done, or from the keyboard.
    Interrupted,
}

impl End {
    pub(crate) fn code(self) -> ExitCode {
        match self {
            Self::Done => ExitCode::SUCCESS,
            Self::Interrupted => ExitCode::from(130),
        }
    }
}

/// What was tried and what came of it, details, and what to do next.
#[derive(Debug)]
pub(crate) struct Failure {
    /// For programs: it does not change with the wording.
    code: &'static str,
    message: String,
    details: Vec<String>,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Vec::new(), hint: None }
    }

    /// The command line or the environment says something that cannot work.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new("usage", message)
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.details.push(detail.into());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What was tried and what came of it.
    pub(crate) fn in_one_line(&self) -> String {
        self.details.iter().fold(self.message.clone(), |line, detail| format!("{line}; {detail}"))
    }

    /// Something with standard input, output or a file.
    pub(crate) fn io(what: impl fmt::Display, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(BROKEN_PIPE, "nobody reads the output any more");
        }
        Self::new("io", format!("{what}: {error}"))
    }

    /// Says it on standard error, and the exit code with it. Whoever closed our output wants to hear no more.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        if self.code == BROKEN_PIPE {
            return ExitCode::SUCCESS;
        }
        let text = if json { self.json() } else { self.human(io::stderr().is_terminal()) };
        // Nobody is left to be told that this cannot be said.
        let _ = io::stderr().write_all(text.as_bytes());
        ExitCode::from(if self.code == "usage" { 2 } else { 1 })
    }

    fn json(&self) -> String {
        #[derive(Serialize)]
        struct Object<'a> {
            error: Error<'a>,
        }
        #[derive(Serialize)]
        struct Error<'a> {
            code: &'a str,
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            hint: Option<&'a str>,
        }
        let message = self.in_one_line();
        let object = Object { error: Error { code: self.code, message: &message, hint: self.hint.as_deref() } };
        output::to_json(&object)
    }

    fn human(&self, terminal: bool) -> String {
        let style = Style::for_stream(terminal);
        let mut text = format!("{} {}\n", style.bad("error:"), self.message);
        for detail in &self.details {
            text.push_str(&format!("  {detail}\n"));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("{} {hint}\n", style.good("next:")));
        }
        text
    }
}

const BROKEN_PIPE: &str = "broken_pipe";

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Config(error) => error.into(),
            ConnectError::Bind(error) => Self::new("bind", error.to_string()),
            error @ ConnectError::Random(_) => Self::new("random", error.to_string()),
        }
    }
}

impl From<Stopped> for Failure {
    fn from(_: Stopped) -> Self {
        Self::new("internal", "the part that talks to brokers stopped unexpectedly")
            .hint("this is a fault of this program: please report it with what is printed above")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_get_lines_and_programs_get_one_object() {
        let failure = Failure::new("no_broker", "nobody").detail("a").detail("b \"c\"").hint("look");
        assert_eq!(failure.human(false), "error: nobody\n  a\n  b \"c\"\nnext: look\n");
        let json = r#"{"error":{"code":"no_broker","message":"nobody; a; b \"c\"","hint":"look"}}"#;
        assert_eq!(failure.json(), format!("{json}\n"));
        assert_eq!(Failure::usage("x").json(), "{\"error\":{\"code\":\"usage\",\"message\":\"x\"}}\n");
    }
}
