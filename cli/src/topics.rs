//! `flota topics`: how much lies where, and who lags.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::time::Duration;

use flota_core::driver::{GroupReport, PartitionReport, TopicOnBroker, TopicReport};
use serde::Serialize;

use crate::args::TopicsArgs;
use crate::error::{End, Failure, Outcome};
use crate::fleet::{CLOSE, Fleet, interruptible};
use crate::output::{self, Cell, Style, Table, ago};

pub(crate) async fn run(args: &TopicsArgs) -> Outcome {
    interruptible(async {
        let fleet = Fleet::connect(&args.fleet).await?;
        fleet.settled().await?;
        let asked = fleet.client.admin().topics(args.topic.as_deref()).await;
        let topics = asked.map_err(|why| Failure::new("topics", format!("cannot look at the topics: {why}")))?;
        fleet.client.close(CLOSE).await?;
        if args.json {
            topics.iter().try_for_each(|topic| output::json(&Topic::of(topic)))?;
        } else {
            output::write(human(args, &topics).as_bytes())?;
        }
        Ok(End::Done)
    })
    .await
}

#[derive(Serialize)]
struct Topic<'a> {
    topic: &'a str,
    length: u64,
    pending: u64,
    lag: u64,
    dead: u64,
    scheduled: u64,
    brokers: Vec<Broker<'a>>,
}

#[derive(Serialize)]
struct Broker<'a> {
    address: String,
    partitions: Vec<Partition<'a>>,
}

#[derive(Serialize)]
struct Partition<'a> {
    partition: u32,
    length: u64,
    groups: Vec<Group<'a>>,
}

#[derive(Serialize)]
struct Group<'a> {
    group: &'a str,
    pending: u64,
    lag: u64,
    retrying: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
    oldest_ms: Option<u64>,
}

impl<'a> Topic<'a> {
    fn of(report: &'a TopicReport) -> Self {
        let &TopicReport { length, pending, lag, dead, scheduled, .. } = report;
        let brokers = report.brokers.iter().map(Broker::of).collect();
        Self { topic: &report.topic, length, pending, lag, dead, scheduled, brokers }
    }
}

impl<'a> Broker<'a> {
    fn of(report: &'a TopicOnBroker) -> Self {
        Self { address: report.address.to_string(), partitions: report.partitions.iter().map(Partition::of).collect() }
    }
}

impl<'a> Partition<'a> {
    fn of(report: &'a PartitionReport) -> Self {
        let groups = report.groups.iter().map(Group::of).collect();
        Self { partition: report.partition, length: report.length, groups }
    }
}

impl<'a> Group<'a> {
    fn of(report: &'a GroupReport) -> Self {
        let &GroupReport { pending, lag, retrying, oldest_ms, .. } = report;
        Self { group: &report.group, pending, lag, retrying, owner: report.owner.as_deref(), oldest_ms }
    }
}

fn human(args: &TopicsArgs, topics: &[TopicReport]) -> String {
    let style = Style::for_stream(io::stdout().is_terminal());
    match (&args.topic, topics) {
        (Some(topic), []) => format!("no broker knows a topic {topic}\n"),
        (None, []) => "no broker knows a topic\n".to_string(),
        (Some(_), _) => format!("{}\n{}", totals(topics).render(style), parts(topics).render(style)),
        (None, _) => totals(topics).render(style),
    }
}

fn totals(topics: &[TopicReport]) -> Table {
    let mut table =
        Table::new(&["TOPIC", "BROKERS", "GROUPS", "LENGTH", "PENDING", "LAG", "OLDEST", "SCHEDULED", "DEAD"]);
    for topic in topics {
        let partitions = || topic.brokers.iter().flat_map(|broker| &broker.partitions);
        let groups = || partitions().flat_map(|partition| &partition.groups);
        let names: BTreeSet<&str> = groups().map(|group| group.group.as_str()).collect();
        table.row(vec![
            Cell::text(&topic.topic),
            Cell::number(topic.brokers.len()),
            Cell::number(names.len()),
            Cell::number(topic.length),
            Cell::number(topic.pending),
            Cell::number(topic.lag),
            age(groups().filter_map(|group| group.oldest_ms).max()),
            Cell::number(topic.scheduled),
            Cell::number(topic.dead),
        ]);
    }
    table
}

fn parts(topics: &[TopicReport]) -> Table {
    let mut table = Table::new(&["BROKER", "PARTITION", "LENGTH", "GROUP", "PENDING", "LAG", "RETRYING", "OLDEST"]);
    for broker in topics.iter().flat_map(|topic| &topic.brokers) {
        for partition in &broker.partitions {
            let here =
                || [Cell::text(&broker.address), Cell::number(partition.partition), Cell::number(partition.length)];
            if partition.groups.is_empty() {
                let none = ["-"; 5].map(Cell::text);
                table.row(here().into_iter().chain(none).collect());
            }
            for group in &partition.groups {
                let counts = [group.pending, group.lag, group.retrying].map(Cell::number);
                let numbers = counts.into_iter().chain([age(group.oldest_ms)]);
                table.row(here().into_iter().chain([Cell::text(&group.group)]).chain(numbers).collect());
            }
        }
    }
    table
}

fn age(ms: Option<u64>) -> Cell {
    Cell::number(ms.map_or("-".to_string(), |ms| ago(Duration::from_millis(ms))))
}
