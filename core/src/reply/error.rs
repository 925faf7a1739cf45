//! Refusals of a server, and what sort each is.

use alloc::boxed::Box;
use alloc::string::String;

/// The text of a refusal: a code, a space, an explanation.
#[derive(Clone, PartialEq, Eq)]
pub struct ErrorReply(Box<str>);

/// What a refusal means for whoever sent the command. The code a server puts in front decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ErrorClass {
    /// `OOM`: memory is full; what takes memory is refused, the rest goes on.
    Oom,
    /// `MISCONF`: the server cannot save and refuses writes.
    Misconf,
    /// `NOREPLICAS`: too few replicas, writes are refused.
    NoReplicas,
    /// `READONLY`: a replica, perhaps a demoted master.
    ReadOnly,
    /// `LOADING`: still reading its data set.
    Loading,
    /// `BUSY`: a script runs for too long.
    Busy,
    /// `MASTERDOWN`: a replica without its master.
    MasterDown,
    /// `NOAUTH`: it wants a password.
    NoAuth,
    /// `WRONGPASS`: it wants another one.
    WrongPass,
    /// `NOPERM`: the user may not do this.
    NoPerm,
    /// `NOSCRIPT`: it does not know the script.
    NoScript,
    /// `NOGROUP`: no such stream or no such group.
    NoGroup,
    /// `WRONGTYPE`: the key holds something else.
    WrongType,
    /// `BUSYGROUP`: the group is there already.
    BusyGroup,
    /// `UNBLOCKED`: a blocked command was woken with an error.
    Unblocked,
    /// `EXECABORT`: a transaction was refused as a whole.
    ExecAbort,
    /// `NOPROTO`: it does not speak this version of RESP.
    NoProto,
    /// `ERR unknown command` or subcommand: an older server, or a renamed command.
    UnknownCommand,
    /// Anything else.
    Other,
}

impl ErrorReply {
    /// From what the server sent. What is not UTF-8 is replaced.
    #[must_use]
    pub fn new(text: &[u8]) -> Self {
        Self(String::from_utf8_lossy(text).into())
    }

    /// The text as it came.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// What sort of refusal it is.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        ErrorClass::of(&self.0)
    }
}

impl ErrorClass {
    /// The class of a refusal, from its text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let text = unwrapped(text);
        match text.split(' ').next().unwrap_or(text) {
            "OOM" => Self::Oom,
            "MISCONF" => Self::Misconf,
            "NOREPLICAS" => Self::NoReplicas,
            "READONLY" => Self::ReadOnly,
            "LOADING" => Self::Loading,
            "BUSY" => Self::Busy,
            "MASTERDOWN" => Self::MasterDown,
            "NOAUTH" => Self::NoAuth,
            "WRONGPASS" => Self::WrongPass,
            "NOPERM" => Self::NoPerm,
            "NOSCRIPT" => Self::NoScript,
            "NOGROUP" => Self::NoGroup,
            "WRONGTYPE" => Self::WrongType,
            "BUSYGROUP" => Self::BusyGroup,
            "UNBLOCKED" => Self::Unblocked,
            "EXECABORT" => Self::ExecAbort,
            "NOPROTO" => Self::NoProto,
            "ERR" if is_unknown_command(text) => Self::UnknownCommand,
            _ => Self::Other,
        }
    }
}

fn is_unknown_command(text: &str) -> bool {
    // Servers before 7 begin this sentence with a capital in some places.
    let says = |start: &str| text.get(4..4 + start.len()).is_some_and(|is| is.eq_ignore_ascii_case(start));
    says("unknown command") || says("unknown subcommand") || says("unknown redis command")
}

/// Redis 6.2 wraps an error inside a script into `ERR Error running script (call to f_…): @user_script:1: NOGROUP …`,
/// where a command refused before it ran has a dash in front of its code. From 7.0 on the code stands in front.
fn unwrapped(text: &str) -> &str {
    if !text.starts_with("ERR Error running script") {
        return text;
    }
    let inner = text.rmatch_indices("@user_script").find_map(|(at, mark)| after_line_number(&text[at + mark.len()..]));
    inner.map_or(text, |inner| inner.strip_prefix('-').unwrap_or(inner))
}

/// What follows `:1: ` or `: 1: `.
fn after_line_number(text: &str) -> Option<&str> {
    let text = text.strip_prefix(':')?;
    let text = text.strip_prefix(' ').unwrap_or(text);
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.len() == text.len() { None } else { rest.strip_prefix(": ") }
}

impl core::fmt::Display for ErrorReply {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::fmt::Debug for ErrorReply {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}
