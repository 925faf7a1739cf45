//! The command line, as it is declared.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use flota_core::config::{Endpoint, Network};
use flota_core::topic::is_name;

use crate::demo;

/// Where announcements are listened for when nothing else is said.
const DISCOVER: &str = "0.0.0.0:63000";

/// A fleet of plain Redis or Valkey servers as one message layer.
#[derive(Debug, Parser)]
#[command(name = "flota", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) logs: LogArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How much is said on standard error.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logs")]
pub(crate) struct LogArgs {
    /// Say more on standard error; twice for details. RUST_LOG says it in detail
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,
    /// Say only errors on standard error
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

/// Every subcommand.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Announce one broker, for as long as it answers
    Announce(AnnounceArgs),
    /// Show the fleet as it changes
    Watch(WatchArgs),
    /// Say what announcement datagrams mean
    Decode(DecodeArgs),
    /// Send messages to a topic
    Send(SendArgs),
    /// Take messages of a topic, print them or run a command for each
    Consume(ConsumeArgs),
    /// Show topics: length, groups, what is pending and what lags
    Topics(TopicsArgs),
    /// Change a topic
    Topic(TopicArgs),
    /// Look at dead letters, send them again or drop them
    Dlq(DlqArgs),
    /// Show it: brokers, workers and faults as processes on this machine, and count what came of each message
    Demo(demo::DemoArgs),
    /// Run brokers inside of this program, announced on this machine: for development without Redis
    Dev(DevArgs),
    #[command(hide = true)]
    DemoBroker(demo::BrokerArgs),
    #[command(hide = true)]
    DemoWorker(demo::WorkerArgs),
    #[command(hide = true)]
    DemoGuard(demo::GuardArgs),
    /// Print a completion script for a shell
    Completion {
        /// Which shell
        shell: Shell,
    },
}

/// How the fleet is found.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Finding the fleet")]
pub(crate) struct FleetArgs {
    /// A broker of a fixed fleet, never expired; may be repeated [env: FLOTA_BROKERS]
    #[arg(long = "broker", value_name = "HOST:PORT")]
    pub(crate) brokers: Vec<Endpoint>,
    /// Listen for announcements: the default when no broker is given [env: FLOTA_DISCOVER]
    ///
    /// The next argument is taken as the address only if it looks like ADDR:PORT; without one it is 0.0.0.0:63000.
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, require_equals = true, default_missing_value = DISCOVER)]
    pub(crate) discover: Option<SocketAddr>,
    /// The announced name to accept, `*` for any; default imq-broker [env: REDIS_BROADCAST_NAME]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// A network that announced addresses may lie in; may be repeated [env: FLOTA_ALLOW]
    #[arg(long, value_name = "CIDR")]
    pub(crate) allow: Vec<Network>,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
    /// How long to wait for a broker, in seconds; default 30 [env: IMQ_SEND_INIT_TIMEOUT, in ms]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) wait: Option<Duration>,
}

/// Who one is to the brokers.
#[derive(Debug, Default, Args)]
pub(crate) struct CredentialArgs {
    /// The user name for every broker [env: FLOTA_USER]
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// A file that holds the password for every broker; a line end at its end is ignored [env: FLOTA_PASSWORD]
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The broker is announced only while it answers PING and has its data loaded. At SIGTERM `down` is said three times.
The GUID is made from the server's run id, so it changes exactly when the server restarts.
Also read: REDIS_BROADCAST_PORT (of the default destination), REDIS_BROADCAST_TLS (the marker).")]
pub(crate) struct AnnounceArgs {
    /// The broker
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6379")]
    pub(crate) redis: Endpoint,
    /// The address services shall dial; needed unless SELECTED_INTERFACES picks exactly one
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise: Option<Endpoint>,
    /// Seconds between two announcements; default 1 [env: REDIS_BROADCAST_INTERVAL]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) interval: Option<Duration>,
    /// Where to; may be repeated; default 255.255.255.255:63000
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) to: Vec<SocketAddr>,
    /// The fleet's name; default imq-broker [env: REDIS_BROADCAST_NAME]
    #[arg(long)]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
    /// Write errors as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Whoever listens for announcements on this machine finds the brokers, as services do by default; any Redis client can
talk to them by their address. They are models of a Redis server, not servers for production. Without --dir their data
ends with them; with it, what was answered is there again after a restart, at the same addresses, also when this
program was killed. When the machine dies, the last seconds may be lost.")]
pub(crate) struct DevArgs {
    /// How many; default 3, or as many as --dir has
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=50))]
    pub(crate) brokers: Option<u16>,
    /// Where they are announced; the default is heard on this machine only
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.255.255.255:63000")]
    pub(crate) to: SocketAddr,
    /// A folder that keeps their data and addresses
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// The fleet's name; default imq-broker [env: REDIS_BROADCAST_NAME]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Broadcast reaches every listener on this host. Announcements sent to this host alone (unicast) reach only one of
them: there, this command takes datagrams away from a service that listens on the same port, and the service may
drop brokers for it. Watch such a network from a host without services.")]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// Write one JSON object per change
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Datagrams are read from standard input, one a line; an empty line is an empty datagram. Escapes: \\t \\n \\r \\0 \\\\ and
\\xNN. One JSON object a line comes out.")]
pub(crate) struct DecodeArgs {
    /// The lines are hexadecimal
    #[arg(long)]
    pub(crate) hex: bool,
    /// Write errors as JSON; what is decoded always is
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// Where to
    #[arg(value_parser = name)]
    pub(crate) topic: String,
    /// The message; without it each line of standard input is one, `-` is all of standard input as one
    pub(crate) body: Option<OsString>,
    /// Messages of one key go to one partition of one broker
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// How many partitions the topic has on every broker; without it, as many as others have given it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) partitions: Option<u32>,
    /// Deliver it so many seconds later; until then it waits on its broker
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) delay: Option<Duration>,
    /// A header; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// Write a summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where a new group starts.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum From {
    /// With the oldest message still there
    Start,
    /// With messages sent from now on
    Now,
}

#[derive(Debug, Args)]
#[command(after_help = "\
--exec runs CMD by `sh -c` with the body on standard input and these in its environment: FLOTA_ID, FLOTA_ENTRY,
FLOTA_TOPIC, FLOTA_GROUP, FLOTA_BROKER, FLOTA_PARTITION, FLOTA_ATTEMPT, FLOTA_DELIVERIES, FLOTA_KEY and
FLOTA_HEADER_<NAME>. Exit status 0 means done; anything else is a retry, later. What it prints goes where this
command prints.")]
pub(crate) struct ConsumeArgs {
    /// Which topic
    #[arg(value_parser = name)]
    pub(crate) topic: String,
    /// The group: its consumers share the messages
    #[arg(short, long, value_parser = name)]
    pub(crate) group: String,
    /// Exclusive partitions, in order (not there yet)
    #[arg(long)]
    pub(crate) partitioned: bool,
    /// The most messages in hand at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) in_flight: u32,
    /// Where a new group starts; an existing one goes on where it is
    #[arg(long, value_enum, default_value_t = From::Start)]
    pub(crate) from: From,
    /// Take over what a silent consumer holds after this many seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = positive_seconds)]
    pub(crate) claim_after: Duration,
    /// Deliveries of one message before it becomes a dead letter
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_deliveries: u32,
    /// End after this many messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max: Option<u64>,
    /// End after this many seconds without a message
    #[arg(long, value_name = "SECONDS", value_parser = positive_seconds)]
    pub(crate) idle: Option<Duration>,
    /// Run this command for each message
    #[arg(long, value_name = "CMD")]
    pub(crate) exec: Option<OsString>,
    /// The most commands at once
    #[arg(long, value_name = "N", default_value_t = 1, requires = "exec", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) concurrency: u32,
    /// Kill a command, and what it started, after this many seconds; the message is tried again
    #[arg(long, value_name = "SECONDS", default_value = "25", requires = "exec", value_parser = positive_seconds)]
    pub(crate) handler_timeout: Duration,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// Write one JSON object per message
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TopicsArgs {
    /// Only this topic
    #[arg(value_parser = name)]
    pub(crate) topic: Option<String>,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// Write one JSON object per topic
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DlqArgs {
    #[command(subcommand)]
    pub(crate) command: DlqCommand,
}

/// What to do with dead letters.
#[derive(Debug, Args)]
pub(crate) struct TopicArgs {
    #[command(subcommand)]
    pub(crate) command: TopicCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TopicCommand {
    /// Give it more partitions; it never has fewer again
    ///
    /// Services notice within some ten seconds. Most keys have another partition from then on.
    Grow(GrowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct GrowArgs {
    /// Which topic
    #[arg(value_parser = name)]
    pub(crate) topic: String,
    /// How many partitions it shall have on every broker
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) partitions: u32,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DlqCommand {
    /// List them, a line each
    List(DlqTopicArgs),
    /// Show some of them whole
    Show(DlqIdArgs),
    /// Send them back to the groups that gave them up
    Replay(DlqIdArgs),
    /// Delete them
    Drop(DlqIdArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DlqTopicArgs {
    /// Which topic
    #[arg(value_parser = name)]
    pub(crate) topic: String,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DlqIdArgs {
    #[command(flatten)]
    pub(crate) of: DlqTopicArgs,
    /// Message ids
    #[arg(value_name = "ID", required_unless_present = "all")]
    pub(crate) ids: Vec<String>,
    /// All of them
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
}

impl Command {
    /// Whether errors are to be written as JSON.
    pub(crate) fn json(&self) -> bool {
        match self {
            Self::Announce(args) => args.json,
            Self::Watch(args) => args.json,
            Self::Decode(args) => args.json,
            Self::Send(args) => args.json,
            Self::Consume(args) => args.json,
            Self::Topics(args) => args.json,
            Self::Topic(TopicArgs { command: TopicCommand::Grow(args) }) => args.json,
            Self::Dlq(args) => match &args.command {
                DlqCommand::List(args) => args.json,
                DlqCommand::Show(args) | DlqCommand::Replay(args) | DlqCommand::Drop(args) => args.of.json,
            },
            Self::Demo(args) => args.json,
            Self::Dev(args) => args.json,
            Self::DemoBroker(_) | Self::DemoWorker(_) | Self::DemoGuard(_) | Self::Completion { .. } => false,
        }
    }
}

/// Ties an address to a `--discover` before it, so that an argument that is none stays the argument it is.
pub(crate) fn with_discover_joined(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut joined = Vec::new();
    let mut args = args.into_iter().peekable();
    while let Some(arg) = args.next() {
        let discover = arg == "--discover";
        let rest = arg == "--";
        joined.push(arg);
        if rest {
            break;
        }
        if discover
            && let Some(address) = args.next_if(|next| next.to_str().is_some_and(looks_like_an_address))
            && let Some(flag) = joined.last_mut()
        {
            flag.push("=");
            flag.push(address);
        }
    }
    joined.extend(args);
    joined
}

fn looks_like_an_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let host = host.strip_prefix('[').unwrap_or(host);
        !port.is_empty()
            && port.bytes().all(|b| b.is_ascii_digit())
            && !host.is_empty()
            && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b':' | b']'))
    })
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_string())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

fn positive_seconds(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        Duration::ZERO => Err("must be more than 0".to_string()),
        seconds => Ok(seconds),
    }
}

fn name(text: &str) -> Result<String, String> {
    if is_name(text) { Ok(text.to_string()) } else { Err("not a name: 1 to 100 of A-Z a-z 0-9 . _ -".to_string()) }
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_string(), value.to_string())),
        _ => Err("not NAME=VALUE".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(with_discover_joined(["flota"].iter().chain(args).map(Into::into)))
    }

    fn sent(args: &[&str]) -> SendArgs {
        match parse(args).unwrap().command {
            Command::Send(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_declaration_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn discover_takes_an_address_and_nothing_else() {
        for args in [
            &["send", "--discover", "127.0.0.1:7000", "orders", "hello"][..],
            &["send", "--discover=127.0.0.1:7000", "orders", "hello"],
            &["send", "orders", "--discover", "127.0.0.1:7000", "hello"],
        ] {
            let send = sent(args);
            assert_eq!(send.fleet.discover, Some("127.0.0.1:7000".parse().unwrap()), "{args:?}");
            assert_eq!((send.topic.as_str(), send.body.unwrap().to_str()), ("orders", Some("hello")), "{args:?}");
        }
        for args in [
            &["send", "--discover", "orders", "hello"][..],
            &["send", "orders", "--discover", "hello"],
            &["send", "orders", "hello", "--discover"],
        ] {
            let send = sent(args);
            assert_eq!(send.fleet.discover, Some(DISCOVER.parse().unwrap()), "{args:?}");
            assert_eq!((send.topic.as_str(), send.body.unwrap().to_str()), ("orders", Some("hello")), "{args:?}");
        }
        assert_eq!(sent(&["send", "--discover", "[::]:7000", "t"]).fleet.discover, Some("[::]:7000".parse().unwrap()));
        assert!(parse(&["send", "--discover", "localhost:7000", "t"]).is_err(), "a name is no address to listen on");
        let send = sent(&["send", "t", "--", "--discover"]);
        assert_eq!((send.fleet.discover, send.body.unwrap().to_str()), (None, Some("--discover")));
    }

    #[test]
    fn names_are_checked_before_anything_runs() {
        for bad in ["", "a:b", "a b"] {
            assert!(parse(&["send", bad, "x"]).is_err(), "{bad:?}");
            assert!(parse(&["consume", "t", "--group", bad]).is_err(), "{bad:?}");
        }
        assert!(parse(&["consume", "t"]).is_err(), "no group");
        assert!(parse(&["send", "t", "x", "--header", "=v"]).is_err());
    }

    #[test]
    fn ids_or_all_of_them_must_be_named() {
        assert!(parse(&["dlq", "drop", "t"]).is_err());
        assert!(parse(&["dlq", "drop", "t", "--all", "id"]).is_err());
        assert!(parse(&["dlq", "drop", "t", "--all"]).is_ok());
        assert!(parse(&["dlq", "replay", "t", "id"]).is_ok());
    }
}
