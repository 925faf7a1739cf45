//! The commands: what each is called, how many words it takes, when it may run, and who does it.

mod clients;
mod connection;
mod hashes;
mod keys;
mod lists;
mod pubsub;
mod scripting;
mod server;
mod sets;
mod stream;
mod strings;
mod transactions;
mod zsets;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bytes::Bytes;

use super::call::{Call, Reaction};
#[cfg(test)]
pub(super) use keys::matches_glob;

use super::{Broker, ClientId, Profile, ServerTime};

/// A command. One with subcommands has a row for itself, [`Command::container`], and one for each, named `XGROUP|CREATE`.
#[derive(Debug)]
pub(super) struct Command {
    /// In capitals.
    pub(super) name: &'static str,
    /// How many words it takes, the name (and the subcommand's) counted; negative: at least that many.
    pub(super) arity: i32,
    /// See [`flag`].
    pub(super) flags: u32,
    /// The first version that has it.
    since: (u32, u32),
    pub(super) run: Run,
}

/// Who does it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Run {
    /// Works on the data alone.
    Data(fn(&mut Call<'_>) -> Reaction),
    /// Works on connections or the server itself.
    Server(fn(&mut Broker, &Ask<'_>) -> Reaction),
    /// Has subcommands.
    Container,
}

/// What a command that is not about data alone is given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) at: ServerTime,
    pub(super) client: ClientId,
    pub(super) args: &'a [Bytes],
}

/// What a command is.
pub(super) mod flag {
    /// May change data: refused by replicas.
    pub(in super::super) const WRITE: u32 = 1;
    /// May grow the data: refused when the memory is full.
    pub(in super::super) const DENY_OOM: u32 = 1 << 1;
    /// Not in scripts.
    pub(in super::super) const NO_SCRIPT: u32 = 1 << 2;
    /// Also while the server loads its data.
    pub(in super::super) const LOADING: u32 = 1 << 3;
    /// Also before `AUTH`.
    pub(in super::super) const NO_AUTH: u32 = 1 << 4;
    /// Also while subscribed in RESP2.
    pub(in super::super) const SUBSCRIBED: u32 = 1 << 5;
    /// Acts at once inside `MULTI`.
    pub(in super::super) const NOT_QUEUED: u32 = 1 << 6;
    /// Runs other commands, which are logged in its stead.
    pub(in super::super) const COMPOUND: u32 = 1 << 7;
}

impl Command {
    /// A command that works on data alone.
    pub(super) const fn data(name: &'static str, arity: i32, flags: u32, run: fn(&mut Call<'_>) -> Reaction) -> Self {
        Self { name, arity, flags, since: (0, 0), run: Run::Data(run) }
    }

    /// A command about connections or the server.
    pub(super) const fn server(
        name: &'static str,
        arity: i32,
        flags: u32,
        run: fn(&mut Broker, &Ask<'_>) -> Reaction,
    ) -> Self {
        Self { name, arity, flags, since: (0, 0), run: Run::Server(run) }
    }

    /// A command that has subcommands.
    pub(super) const fn container(name: &'static str) -> Self {
        Self { name, arity: -2, flags: 0, since: (0, 0), run: Run::Container }
    }

    /// Only from this version on.
    pub(super) const fn since(self, major: u32, minor: u32) -> Self {
        Self { since: (major, minor), ..self }
    }

    pub(super) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    fn takes(&self, words: usize) -> bool {
        let least = usize::try_from(self.arity.unsigned_abs()).unwrap_or(usize::MAX);
        if self.arity < 0 { words >= least } else { words == least }
    }
}

/// Every row, from the files that do the work.
const TABLES: &[&[Command]] = &[
    clients::TABLE,
    connection::TABLE,
    hashes::TABLE,
    keys::TABLE,
    lists::TABLE,
    pubsub::TABLE,
    scripting::TABLE,
    server::TABLE,
    sets::TABLE,
    stream::TABLE,
    strings::TABLE,
    transactions::TABLE,
    zsets::TABLE,
];

static BY_NAME: LazyLock<BTreeMap<&'static [u8], &'static Command>> = LazyLock::new(|| {
    TABLES.iter().flat_map(|table| table.iter()).map(|command| (command.name.as_bytes(), command)).collect()
});

/// Why words are no command.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) text: String,
    /// The name is not known, as opposed to the number of words.
    pub(super) unknown: bool,
}

/// The longest name, with its subcommand.
const NAME_MAX: usize = 32;

/// Finds the command that these words name.
///
/// # Errors
///
/// What a server answers when there is none or when it takes another number of words.
pub(super) fn lookup(args: &[Bytes], profile: &Profile) -> Result<&'static Command, Refusal> {
    let Some(name) = args.first() else { return Err(unknown(args, profile)) };
    let known = |command: &&Command| profile.at_least(command.since.0, command.since.1);
    let Some(command) = by_name(name, None).filter(known) else { return Err(unknown(args, profile)) };
    let command = match (command.run, args.get(1)) {
        (Run::Container, Some(subcommand)) => match by_name(name, Some(subcommand)).filter(known) {
            Some(command) => command,
            None => return Err(unknown_subcommand(command, subcommand, profile, true)),
        },
        _ => command,
    };
    if command.takes(args.len()) {
        return Ok(command);
    }
    match command.name.split_once('|') {
        Some(_) if !profile.at_least(7, 0) => {
            let subcommand = args.get(1).map(|word| &word[..]).unwrap_or_default();
            Err(unknown_subcommand(command, subcommand, profile, false))
        }
        _ => {
            let name = command.name.to_ascii_lowercase();
            Err(Refusal { text: format!("ERR wrong number of arguments for '{name}' command"), unknown: false })
        }
    }
}

fn by_name(name: &[u8], subcommand: Option<&[u8]>) -> Option<&'static Command> {
    let mut buffer = [0; NAME_MAX];
    let mut length = 0;
    let separated = subcommand.map(|subcommand| [b"|", subcommand]);
    for part in std::iter::once(name).chain(separated.into_iter().flatten()) {
        buffer.get_mut(length..length + part.len())?.copy_from_slice(part);
        length += part.len();
    }
    let buffer = buffer.get_mut(..length)?;
    buffer.make_ascii_uppercase();
    BY_NAME.get(&*buffer).copied()
}

fn unknown(args: &[Bytes], profile: &Profile) -> Refusal {
    let (open, close) = if profile.at_least(7, 0) { ("'", "' ") } else { ("`", "`, ") };
    let mut rest = String::new();
    for word in args.iter().skip(1) {
        if rest.len() >= 128 {
            break;
        }
        rest.push_str(open);
        rest.push_str(&text(word, 128 - rest.len() + open.len()));
        rest.push_str(close);
    }
    let name = args.first().map(|name| text(name, 128)).unwrap_or_default();
    let named = format!("{open}{name}{}", close.trim_end_matches([' ', ',']));
    Refusal { text: format!("ERR unknown command {named}, with args beginning with: {rest}"), unknown: true }
}

fn unknown_subcommand(command: &Command, subcommand: &[u8], profile: &Profile, unknown: bool) -> Refusal {
    let container = command.name.split('|').next().unwrap_or_default();
    let name = text(subcommand, 128);
    let text = if profile.at_least(7, 0) {
        format!("ERR unknown subcommand '{name}'. Try {container} HELP.")
    } else {
        format!("ERR Unknown subcommand or wrong number of arguments for '{name}'. Try {container} HELP.")
    };
    Refusal { text, unknown }
}

/// At most so many bytes of a peer's words, fit for an error: on one line, and up to the first zero as C prints them.
fn text(bytes: &[u8], length_max: usize) -> String {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes.get(..length_max).unwrap_or(bytes)).replace(['\r', '\n'], " ")
}

/// Whether a word is this option, in any case.
pub(super) fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}
