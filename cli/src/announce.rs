//! `flota announce`: the announcer of one broker.

use std::env;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flota_core::announce::Transport;
use flota_core::config::{Announce, Config, Credentials, Endpoint};
use flota_core::output::{BrokerChange, BrokerEvent};
use flota_tokio::{Client, FleetEvent};

use crate::args::AnnounceArgs;
use crate::error::{Failure, Outcome};
use crate::interfaces;
use crate::output::{self, one_line};
use crate::signal::Signals;

/// Where announcements go when nothing is said: everybody on the segment.
const EVERYBODY: [u8; 4] = [255, 255, 255, 255];
const PORT: u16 = 63000;
/// The last datagrams leave at once; more time is for a slow network stack.
pub(crate) const CLOSE: Duration = Duration::from_secs(2);

pub(crate) async fn run(args: &AnnounceArgs) -> Outcome {
    let what = what(args)?;
    let mut signals = Signals::new()?;
    let client = start(args.redis.clone(), args.credentials.read()?, what.clone()).await?;
    let mut events = client.events();
    let end = loop {
        tokio::select! {
            end = signals.next() => break end,
            event = events.next() => match event {
                Some(FleetEvent::Broker(event)) => tell(&args.redis, &what, &event),
                Some(FleetEvent::Warning(warning)) => crate::logs::warn(&warning),
                Some(FleetEvent::Skipped(_)) => {}
                None => return Err(flota_tokio::Stopped.into()),
            },
        }
    };
    client.close(CLOSE).await?;
    Ok(end)
}

/// Starts the announcer of one broker. Closing the client says `down`.
pub(crate) async fn start(
    redis: Endpoint,
    credentials: Option<Arc<Credentials>>,
    what: Announce,
) -> Result<Client, Failure> {
    let mut config = Config { brokers: vec![redis], credentials, ..Config::default() };
    // It has one server to look at, on its own machine: a restarted one is to be announced within an interval.
    config.timing.backoff_cap = what.interval.max(config.timing.backoff_base);
    config.announce = Some(what);
    Ok(flota_tokio::connect(config).await?)
}

/// People watch this in a terminal or a journal: it says when it begins, when it ends, and why.
fn tell(redis: &Endpoint, what: &Announce, event: &Arc<BrokerEvent>) {
    match &event.change {
        BrokerChange::Ready | BrokerChange::Restarted => {
            let to: Vec<String> = what.to.iter().map(SocketAddr::to_string).collect();
            let every = what.interval.as_secs_f64();
            say(&format!("announcing {} as {:?} to {} every {every} s", what.advertise, what.name, to.join(", ")));
        }
        BrokerChange::Unready(why) => {
            let detail = if why.detail.is_empty() { String::new() } else { format!(" ({})", one_line(&why.detail)) };
            say(&format!("not announcing: {redis} cannot be used: {}{detail}", why.reason));
        }
        BrokerChange::Announced | BrokerChange::Withdrawn | BrokerChange::Expired { .. } | BrokerChange::Forgotten => {}
    }
}

fn say(line: &str) {
    if tracing::enabled!(tracing::Level::WARN) {
        output::show(format_args!("{line}\n"));
    }
}

fn what(args: &AnnounceArgs) -> Result<Announce, Failure> {
    let name = fleet_name(args.name.as_deref());
    let advertise = match &args.advertise {
        Some(advertise) => advertise.clone(),
        None => advertise(&args.redis, variable("SELECTED_INTERFACES").as_deref())?,
    };
    let interval = args.interval.unwrap_or_else(|| interval(variable("REDIS_BROADCAST_INTERVAL").as_deref()));
    let to = if args.to.is_empty() {
        vec![SocketAddr::from((EVERYBODY, port(variable("REDIS_BROADCAST_PORT").as_deref())))]
    } else {
        args.to.clone()
    };
    let transport = transport(variable("REDIS_BROADCAST_TLS").as_deref());
    Ok(Announce { name, advertise, interval, to, transport })
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The fleet's name: as given, else from the environment, else the one that everybody uses.
pub(crate) fn fleet_name(given: Option<&str>) -> String {
    given.map(str::to_string).or_else(|| variable("REDIS_BROADCAST_NAME")).unwrap_or("imq-broker".to_string())
}

/// The server's port on the one address of this host that was selected.
fn advertise(redis: &Endpoint, selected: Option<&str>) -> Result<Endpoint, Failure> {
    let missing = |what: &str| Failure::usage(format!("which address shall services dial? {what}"));
    let hint = "say it with --advertise HOST:PORT, or let SELECTED_INTERFACES pick one address by its beginning";
    let Some(selected) = selected else {
        return Err(missing("neither --advertise nor SELECTED_INTERFACES is given").hint(hint));
    };
    let local = interfaces::local_v4()?;
    let port = match redis {
        Endpoint::Ip(address) => address.port(),
        Endpoint::Name(_, port) => *port,
    };
    let picked = interfaces::selected(&local, selected);
    match picked[..] {
        [one] => Ok(SocketAddr::from((one, port)).into()),
        [] => Err(missing(&format!("SELECTED_INTERFACES={selected:?} matches none of {}", listed(&local))).hint(hint)),
        _ => Err(missing(&format!("SELECTED_INTERFACES={selected:?} matches {}", listed(&picked))).hint(hint)),
    }
}

fn listed(addresses: &[std::net::Ipv4Addr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// As announcers in the field read it: whole seconds from 1, or 1.
fn interval(text: Option<&str>) -> Duration {
    Duration::from_secs(text.and_then(whole).filter(|seconds| *seconds >= 1).unwrap_or(1))
}

fn port(text: Option<&str>) -> u16 {
    text.and_then(whole).and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0).unwrap_or(PORT)
}

/// White space and a plus sign before the digits are what `strtol` takes.
fn whole(text: &str) -> Option<u64> {
    let digits = text.trim_start();
    let digits = digits.strip_prefix('+').unwrap_or(digits);
    if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
}

fn transport(text: Option<&str>) -> Transport {
    match text.map(str::to_ascii_lowercase).as_deref() {
        Some("1" | "yes" | "true" | "on") => Transport::Tls,
        None | Some("0" | "no" | "false" | "off") => Transport::Plain,
        Some(other) => {
            tracing::warn!("REDIS_BROADCAST_TLS={other:?} is neither yes nor no: taken as no");
            Transport::Plain
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_whole_seconds_or_one() {
        let seconds = |text| interval(Some(text)).as_secs();
        for one in ["0", "-4", "1.5", "abc", "", "1e3", "99999999999999999999", " + 1"] {
            assert_eq!(seconds(one), 1, "{one:?}");
        }
        assert_eq!((seconds("3"), seconds(" +2"), interval(None).as_secs()), (3, 2, 1));
    }

    #[test]
    fn ports_are_ports_or_the_usual_one() {
        for usual in ["0", "65536", "-1", "x", "1.5"] {
            assert_eq!(port(Some(usual)), 63000, "{usual:?}");
        }
        assert_eq!((port(Some("6300")), port(None)), (6300, 63000));
    }

    #[test]
    fn the_marker_says_what_the_variable_says() {
        for yes in ["1", "YES", "true", "On"] {
            assert_eq!(transport(Some(yes)), Transport::Tls);
        }
        for no in ["0", "no", "FALSE", "off", "maybe"] {
            assert_eq!(transport(Some(no)), Transport::Plain);
        }
        assert_eq!(transport(None), Transport::Plain);
    }

    #[test]
    fn the_address_must_be_said() {
        let redis: Endpoint = "127.0.0.1:7777".parse().unwrap();
        assert!(advertise(&redis, None).is_err());
        assert!(advertise(&redis, Some("300.")).is_err());
        assert_eq!(advertise(&redis, Some("127.0.0.1")).unwrap().to_string(), "127.0.0.1:7777");
    }
}
