//! What goes to standard error besides errors.

use std::io::IsTerminal;

use flota_core::output::{BrokerChange, Warning};
use flota_tokio::{FleetEvent, FleetEvents};
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::args::LogArgs;
use crate::error::Failure;
use crate::output::{Style, one_line};

/// Warnings unless the flags or `RUST_LOG` say otherwise; flags come first.
pub(crate) fn start(args: &LogArgs) -> Result<(), Failure> {
    let level = match (args.quiet, args.verbose) {
        (true, _) => Some(LevelFilter::ERROR),
        (false, 0) => None,
        (false, 1) => Some(LevelFilter::INFO),
        (false, 2) => Some(LevelFilter::DEBUG),
        (false, _) => Some(LevelFilter::TRACE),
    };
    let filter = match (level, std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty())) {
        (Some(level), _) => Targets::new().with_default(level),
        (None, None) => Targets::new().with_default(LevelFilter::WARN),
        (None, Some(text)) => text.parse().map_err(|error| {
            Failure::usage(format!("RUST_LOG={text:?}: {error}")).hint("write it like `info` or `flota=debug`")
        })?,
    };
    let style = Style::for_stream(std::io::stderr().is_terminal());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(style.colours())
        .with_target(false)
        .without_time();
    tracing_subscriber::registry().with(filter).with(lines).init();
    Ok(())
}

/// Logs what happens to the fleet, for as long as there is one.
pub(crate) fn follow(mut events: FleetEvents) {
    drop(tokio::spawn(async move {
        while let Some(event) = events.next().await {
            log(&event);
        }
    }));
}

fn log(event: &FleetEvent) {
    match event {
        FleetEvent::Broker(event) => {
            let address = &event.address;
            match &event.change {
                BrokerChange::Unready(why) => {
                    tracing::info!("{address}: unready: {}: {}", why.reason, one_line(&why.detail));
                }
                BrokerChange::Expired { silent_ms } => tracing::info!("{address}: expired, silent for {silent_ms} ms"),
                change => tracing::info!("{address}: {change:?}"),
            }
        }
        FleetEvent::Warning(warning) => {
            if tracing::enabled!(Level::WARN) {
                warn(warning);
            }
        }
        FleetEvent::Skipped(count) => tracing::info!("{count} events were skipped"),
    }
}

/// One line for an operator.
pub(crate) fn warn(warning: &Warning) {
    match warning {
        // Anybody can send these: they are shown by `watch` and counted in errors.
        Warning::NotAdmitted { why, count, example } => {
            tracing::info!("{count} datagrams were not admitted: {why}, such as {}", one_line(example));
        }
        Warning::Risky { broker, what } => tracing::warn!("{broker}: {}", one_line(what)),
        Warning::Partitions(differ) => tracing::warn!("{differ}"),
        Warning::Grown { topic, broker, from, to } => {
            tracing::warn!("topic {topic} has grown from {from} to {to} partitions on {broker}: most keys move");
        }
        Warning::Refused { broker, what, error } => tracing::warn!("{broker} refused {what}: {}", one_line(error)),
        Warning::Dead { topic, group, count } => tracing::warn!(
            "{count} messages of {topic} became dead letters of group {group}: see `flota dlq list {topic}`"
        ),
        Warning::BodiesLost { topic, group, count } => tracing::warn!(
            "{count} messages of {topic} that group {group} had not finished are gone: they were trimmed away"
        ),
        Warning::SharedGuid { guid, addresses: [one, other] } => tracing::warn!(
            "{one} and {other} announce the same GUID {guid} but are different servers: give each its own announcer"
        ),
    }
}
