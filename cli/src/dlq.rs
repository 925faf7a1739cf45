//! `flota dlq`: messages that no handler could handle.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::time::Duration;

use flota_core::driver::{DeadLetter, Error, Letters};
use serde::Serialize;

use crate::args::{DlqArgs, DlqCommand, DlqIdArgs, DlqTopicArgs};
use crate::error::{End, Failure, Outcome};
use crate::fleet::{CLOSE, Fleet, interruptible};
use crate::output::{self, Cell, Style, Table, ago, one_line, wall_ms};

pub(crate) async fn run(args: &DlqArgs) -> Outcome {
    interruptible(async {
        let topic = args.command.topic();
        let fleet = Fleet::connect(&topic.fleet).await?;
        fleet.settled().await?;
        let outcome = match &args.command {
            DlqCommand::List(args) => list(&fleet, args).await,
            DlqCommand::Show(args) => show(&fleet, args).await,
            DlqCommand::Replay(args) => replay(&fleet, args).await,
            DlqCommand::Drop(args) => drop_letters(&fleet, args).await,
        };
        fleet.client.close(CLOSE).await?;
        outcome.map(|()| End::Done)
    })
    .await
}

impl DlqCommand {
    fn topic(&self) -> &DlqTopicArgs {
        match self {
            Self::List(args) => args,
            Self::Show(args) | Self::Replay(args) | Self::Drop(args) => &args.of,
        }
    }
}

async fn letters(fleet: &Fleet, topic: &str) -> Result<Vec<DeadLetter>, Failure> {
    fleet.client.admin().dead_letters(topic).await.map_err(|why| failed("read", topic, &why))
}

fn failed(what: &str, topic: &str, why: &Error) -> Failure {
    Failure::new("dead_letters", format!("cannot {what} the dead letters of {topic}: {why}"))
        .hint("what was done before that stays done; it is safe to run this again")
}

async fn list(fleet: &Fleet, args: &DlqTopicArgs) -> Result<(), Failure> {
    let letters = letters(fleet, &args.topic).await?;
    if args.json {
        return letters.iter().try_for_each(|letter| output::json(&Letter::of(letter)));
    }
    if letters.is_empty() {
        return output::line(&format!("{} has no dead letters", args.topic));
    }
    let mut table = Table::new(&["ID", "GROUP", "BROKER", "PARTITION", "DELIVERIES", "DEAD FOR", "REASON"]);
    for letter in &letters {
        table.row(vec![
            Cell::text(&letter.id),
            Cell::text(&letter.group),
            Cell::text(&letter.broker),
            Cell::number(letter.partition),
            Cell::number(letter.deliveries),
            Cell::number(age(letter.dead_ms)),
            Cell::text(&letter.reason),
        ]);
    }
    output::write(table.render(Style::for_stream(io::stdout().is_terminal())).as_bytes())
}

async fn show(fleet: &Fleet, args: &DlqIdArgs) -> Result<(), Failure> {
    let letters = letters(fleet, &args.of.topic).await?;
    let wanted: BTreeSet<&str> = args.ids.iter().map(String::as_str).collect();
    let mut met = BTreeSet::new();
    for letter in letters.iter().filter(|letter| args.all || wanted.contains(letter.id.as_str())) {
        met.insert(letter.id.as_str());
        if args.of.json {
            output::json(&Letter::of(letter))?;
        } else {
            output::write(&whole(letter))?;
        }
    }
    all_known(args, wanted.difference(&met).map(ToString::to_string).collect())
}

/// Everything about one, its body last and as it is.
fn whole(letter: &DeadLetter) -> Vec<u8> {
    let style = Style::for_stream(io::stdout().is_terminal());
    let facts = [
        ("id", letter.id.clone()),
        ("entry", letter.entry.to_string()),
        ("broker", letter.broker.to_string()),
        ("partition", letter.partition.to_string()),
        ("group", letter.group.clone()),
        ("reason", letter.reason.clone()),
        ("deliveries", letter.deliveries.to_string()),
        ("attempts", letter.attempts.to_string()),
        ("sent", format!("{} ago", age(letter.first_ms))),
        ("dead for", age(letter.dead_ms)),
        ("body", format!("{} bytes", letter.body.len())),
    ];
    let facts =
        facts.iter().map(|(name, value)| format!("{} {}\n", style.dim(&format!("{name:<10}")), one_line(value)));
    let mut text: Vec<u8> = facts.collect::<String>().into_bytes();
    if io::stdout().is_terminal() {
        let lines = String::from_utf8_lossy(&letter.body);
        lines.lines().for_each(|line| text.extend_from_slice(format!("{}\n", one_line(line)).as_bytes()));
    } else {
        text.extend_from_slice(&letter.body);
        text.push(b'\n');
    }
    text.push(b'\n');
    text
}

async fn replay(fleet: &Fleet, args: &DlqIdArgs) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Summary<'a> {
        replayed: u64,
        gone: u64,
        unknown: &'a [String],
    }
    let topic = &args.of.topic;
    let done = fleet.client.admin().replay(topic, meant(args)).await.map_err(|why| failed("replay", topic, &why))?;
    if args.of.json {
        output::json(&Summary { replayed: done.replayed, gone: done.gone, unknown: &done.unknown })?;
    } else {
        output::line(&format!("{} sent back{}", done.replayed, taken(done.gone)))?;
    }
    all_known(args, done.unknown)
}

async fn drop_letters(fleet: &Fleet, args: &DlqIdArgs) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Summary<'a> {
        dropped: u64,
        gone: u64,
        unknown: &'a [String],
    }
    let topic = &args.of.topic;
    let done = fleet.client.admin().drop(topic, meant(args)).await.map_err(|why| failed("drop", topic, &why))?;
    if args.of.json {
        output::json(&Summary { dropped: done.dropped, gone: done.gone, unknown: &done.unknown })?;
    } else {
        output::line(&format!("{} deleted{}", done.dropped, taken(done.gone)))?;
    }
    all_known(args, done.unknown)
}

fn meant(args: &DlqIdArgs) -> Letters {
    if args.all { Letters::All } else { Letters::Ids(args.ids.clone()) }
}

fn taken(gone: u64) -> String {
    if gone == 0 { String::new() } else { format!(", {gone} taken by somebody else meanwhile") }
}

fn all_known(args: &DlqIdArgs, unknown: Vec<String>) -> Result<(), Failure> {
    if unknown.is_empty() {
        return Ok(());
    }
    let topic = &args.of.topic;
    let failure = Failure::new("not_found", format!("no dead letter of {topic} has the id {}", unknown.join(", ")));
    Err(failure.hint(format!("`flota dlq list {topic}` shows which there are on the brokers that are ready")))
}

fn age(ms: u64) -> String {
    ago(Duration::from_millis(wall_ms().saturating_sub(ms)))
}

#[derive(Serialize)]
struct Letter<'a> {
    id: &'a str,
    entry: String,
    broker: String,
    partition: u32,
    group: &'a str,
    body: output::Bytes<'a>,
    reason: &'a str,
    deliveries: u32,
    attempts: u32,
    first_ms: u64,
    dead_ms: u64,
}

impl<'a> Letter<'a> {
    fn of(letter: &'a DeadLetter) -> Self {
        let &DeadLetter { partition, deliveries, attempts, first_ms, dead_ms, .. } = letter;
        Self {
            id: &letter.id,
            entry: letter.entry.to_string(),
            broker: letter.broker.to_string(),
            partition,
            group: &letter.group,
            body: output::Bytes(&letter.body),
            reason: &letter.reason,
            deliveries,
            attempts,
            first_ms,
            dead_ms,
        }
    }
}
