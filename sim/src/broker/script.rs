//! Scripts: real Lua 5.1 with what the server gives to scripts, so that texts made for a server run unchanged.
//!
//! A broker stays plain data: the Lua states and the compiled scripts belong to the thread, and no script can leave
//! anything in them for the next one.
//!
//! Known to differ from a server: the tables of libraries are read-only in every version (6.2 lets scripts write to
//! them), `getfenv`, `setfenv` and `newproxy` are missing everywhere, the address in `tostring({})` is the process's.
//! `cmsgpack` and `struct` are missing: a script that uses one fails with the error for an unknown global.

mod bit;
mod machine;
mod values;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use bytes::Bytes;

use super::{Broker, ClientId, Profile, ServerTime, Value};

/// Runs a script; its commands go through [`Broker::call_from_script`]. What it wrote before an error stays.
pub(super) fn run(
    broker: &mut Broker,
    at: ServerTime,
    client: ClientId,
    body: &Bytes,
    keys: &[Bytes],
    argv: &[Bytes],
) -> Value {
    let era = Era::of(broker.profile());
    machine::run(era, &mut OnBroker { broker, at, client }, body, keys, argv)
}

/// Whether a script's text can be compiled: what `EVAL` and `SCRIPT LOAD` check before they keep it.
///
/// # Errors
///
/// The refusal.
pub(super) fn check(profile: &Profile, body: &Bytes) -> Result<(), String> {
    match machine::check(Era::of(profile), body) {
        Err(Value::Error(text)) => Err(text),
        _ => Ok(()),
    }
}

/// What executes the commands of a script.
trait Host {
    /// Executes one.
    fn call(&mut self, args: &[Bytes]) -> Value;
}

struct OnBroker<'a> {
    broker: &'a mut Broker,
    at: ServerTime,
    client: ClientId,
}

impl Host for OnBroker<'_> {
    fn call(&mut self, args: &[Bytes]) -> Value {
        self.broker.call_from_script(self.at, self.client, args)
    }
}

/// Servers whose scripting differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Era {
    /// Before 7.0: errors are strings with their position in front.
    Old,
    /// 7.0: errors are tables, globals are read-only.
    Seven,
    /// 7.2: numbers become words in their shortest form.
    SevenTwo,
    /// Valkey: as 7.2 in other words.
    Valkey,
}

impl Era {
    const ALL: [Self; 4] = [Self::Old, Self::Seven, Self::SevenTwo, Self::Valkey];

    fn of(profile: &Profile) -> Self {
        if profile.valkey {
            Self::Valkey
        } else if profile.at_least(7, 2) {
            Self::SevenTwo
        } else if profile.at_least(7, 0) {
            Self::Seven
        } else {
            Self::Old
        }
    }

    fn no_words(self) -> &'static str {
        match self {
            Self::Old => "Please specify at least one argument for redis.call()",
            Self::Seven | Self::SevenTwo => "Please specify at least one argument for this redis lib call",
            Self::Valkey => "Please specify at least one argument for this call",
        }
    }

    fn bad_word(self) -> &'static str {
        match self {
            Self::Old => "Lua redis() command arguments must be strings or integers",
            Self::Seven | Self::SevenTwo => "Lua redis lib command arguments must be strings or integers",
            Self::Valkey => "Command arguments must be strings or integers",
        }
    }

    /// How this server words what 7.0 says when it refuses a command before executing it; none for other errors.
    fn refusal(self, text: &str) -> Option<Cow<'static, str>> {
        // Until 7.0 these came as they are written to a client: with the sign and the end of an error.
        if self == Self::Old && ["OOM ", "READONLY ", "MISCONF "].iter().any(|code| text.starts_with(code)) {
            return Some(format!("-{text}\r\n").into());
        }
        let worded = match (text.strip_prefix("ERR ")?, self) {
            ("Unknown Redis command called from script", Self::Old) => "Unknown Redis command called from Lua script",
            ("Unknown Redis command called from script", Self::Valkey) => "Unknown command called from script",
            ("Wrong number of args calling Redis command from script", Self::Old) => {
                "Wrong number of args calling Redis command From Lua script"
            }
            ("Wrong number of args calling Redis command from script", Self::Valkey) => {
                "Wrong number of args calling command from script"
            }
            ("This Redis command is not allowed from script", Self::Old) => {
                "This Redis command is not allowed from scripts"
            }
            _ => return None,
        };
        Some(worded.into())
    }
}
