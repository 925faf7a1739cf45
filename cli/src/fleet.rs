//! Finding the fleet: the configuration, the connection, and what to say when nobody is there.

use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flota_core::announce::Reject;
use flota_core::config::{Config, Credentials};
use flota_core::id::BrokerId;
use flota_core::output::UnreadyReason;
use flota_core::stats::Stats;
use flota_tokio::{BrokerInfo, Client, Inspection};

use crate::args::{CredentialArgs, FleetArgs};
use crate::error::{End, Failure, Outcome};
use crate::output::one_line;
use crate::signal::Signals;

/// A command line has no use for more: a watcher of a larger fleet is a service.
const BROKERS_MAX: u32 = 1_024;

/// How long a command that asks every broker listens for more of them after the last one: announcers speak once a
/// second unless told otherwise.
const SETTLED_AFTER: Duration = Duration::from_millis(1_200);

/// How long `close` may take where nothing is under way.
pub(crate) const CLOSE: Duration = Duration::from_secs(1);

impl FleetArgs {
    /// Flags come before `FLOTA_*`, those before the older names.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        self.config_in(|name| env::var(name).ok())
    }

    fn config_in(&self, environment: impl Fn(&str) -> Option<String>) -> Result<Config, Failure> {
        let found_by_flag = !self.brokers.is_empty() || self.discover.is_some();
        let mut config = Config::from_lookup(|name| match name {
            "FLOTA_BROKERS" if found_by_flag => Some(joined(&self.brokers)),
            "FLOTA_DISCOVER" if found_by_flag => self.discover.map(|listen| listen.to_string()),
            "REDIS_BROADCAST_NAME" if self.name.is_some() => self.name.clone(),
            // Flags of their own type: read below.
            "FLOTA_ALLOW" if !self.allow.is_empty() => None,
            "FLOTA_USER" | "FLOTA_PASSWORD" => None,
            _ => environment(name),
        })?;
        if let Some(discovery) = &mut config.discovery
            && !self.allow.is_empty()
        {
            discovery.allow.clone_from(&self.allow);
        }
        config.credentials = self.credentials.read_in(&environment)?;
        if let Some(wait) = self.wait {
            config.timing.send_init = wait;
        }
        config.limits.brokers = BROKERS_MAX;
        Ok(config)
    }
}

fn joined<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

impl CredentialArgs {
    /// From the flags, or the environment.
    pub(crate) fn read(&self) -> Result<Option<Arc<Credentials>>, Failure> {
        self.read_in(&|name: &str| env::var(name).ok())
    }

    fn read_in(&self, environment: &impl Fn(&str) -> Option<String>) -> Result<Option<Arc<Credentials>>, Failure> {
        let given = |name| environment(name).filter(|value| !value.is_empty());
        let user = self.user.clone().or_else(|| given("FLOTA_USER"));
        let password = match &self.password_file {
            Some(file) => Some(password_in(file)?),
            None => given("FLOTA_PASSWORD"),
        };
        match (user, password) {
            (user, Some(password)) => Ok(Some(Arc::new(Credentials { user: user.unwrap_or_default(), password }))),
            (Some(user), None) => Err(Failure::usage(format!("user {user:?} has no password"))
                .hint("give it with --password-file FILE or in FLOTA_PASSWORD")),
            (None, None) => Ok(None),
        }
    }
}

fn password_in(file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::io(format!("cannot read the password from {}", file.display()), &error))?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_string())
}

/// A client of the fleet, and how to find out why it is not there.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) client: Client,
    config: Config,
}

impl Fleet {
    pub(crate) async fn connect(args: &FleetArgs) -> Result<Self, Failure> {
        let config = args.config()?;
        let client = flota_tokio::connect(config.clone()).await?;
        crate::logs::follow(client.events());
        Ok(Self { client, config })
    }

    /// Waits until the fleet is as complete as it gets: every member known, and ready or known not to be.
    ///
    /// Members that cannot be used are named on standard error; it fails when none can be.
    pub(crate) async fn settled(&self) -> Result<(), Failure> {
        let deadline = tokio::time::Instant::now() + self.wait();
        if !self.until(deadline, |fleet| fleet.iter().any(|broker| broker.ready)).await? {
            return Err(self.nobody().await?);
        }
        self.complete(deadline).await?;
        for broker in self.client.fleet().iter().filter(|broker| !broker.ready) {
            tracing::warn!("{} is not counted: {}", broker.address, why_unready(broker));
        }
        Ok(())
    }

    /// Waits a moment for the whole fleet, so that what follows is spread over all of it. Not for the first broker: who
    /// sends waits for that anyway.
    pub(crate) async fn gathered(&self) -> Result<(), Failure> {
        let deadline = tokio::time::Instant::now() + 2 * SETTLED_AFTER;
        if self.until(deadline, |fleet| fleet.iter().any(|broker| broker.ready)).await? {
            self.complete(deadline).await?;
        }
        Ok(())
    }

    /// Until no new member has been heard of for a while, and each is ready or known not to be.
    async fn complete(&self, deadline: tokio::time::Instant) -> Result<(), Failure> {
        let judged = |fleet: &[BrokerInfo]| fleet.iter().all(|broker| broker.ready || broker.unready.is_some());
        if self.config.discovery.is_some() {
            let mut known = self.client.fleet().len();
            let quiet = || tokio::time::Instant::now() + SETTLED_AFTER;
            while self.until(quiet().min(deadline), |fleet| fleet.len() > known).await? {
                known = self.client.fleet().len();
            }
        }
        self.until(deadline, judged).await?;
        Ok(())
    }

    /// False when the deadline came first.
    async fn until(
        &self,
        deadline: tokio::time::Instant,
        wanted: impl Fn(&[BrokerInfo]) -> bool,
    ) -> Result<bool, Failure> {
        match tokio::time::timeout_at(deadline, self.client.until(wanted)).await {
            Ok(result) => Ok(result.map(|()| true)?),
            Err(_) => Ok(false),
        }
    }

    /// Why no broker was ready in time: what was listened to, what was heard, who is there and why not.
    pub(crate) async fn nobody(&self) -> Result<Failure, Failure> {
        let inspection = self.client.inspect().await?;
        Ok(explain(&self.config, &inspection))
    }

    /// How long to wait for a broker.
    pub(crate) fn wait(&self) -> Duration {
        self.config.timing.send_init
    }
}

/// Runs what has an end of its own, unless a signal comes first.
pub(crate) async fn interruptible(work: impl Future<Output = Outcome>) -> Outcome {
    let mut signals = Signals::new()?;
    tokio::select! {
        outcome = work => outcome,
        _ = signals.next() => Ok(End::Interrupted),
    }
}

/// Addresses by broker, also of those that have left.
#[derive(Debug)]
pub(crate) struct Addresses {
    client: Client,
    known: BTreeMap<BrokerId, String>,
}

impl Addresses {
    pub(crate) fn of(client: &Client) -> Self {
        Self { client: client.clone(), known: BTreeMap::new() }
    }

    pub(crate) fn of_broker(&mut self, broker: BrokerId) -> String {
        if let Some(address) = self.known.get(&broker) {
            return address.clone();
        }
        let fleet = self.client.fleet();
        self.known.extend(fleet.iter().map(|broker| (broker.id, broker.address.to_string())));
        // It can only be gone if it was forgotten within the moment.
        self.known.get(&broker).cloned().unwrap_or_else(|| "a broker that is gone".to_string())
    }
}

fn explain(config: &Config, inspection: &Inspection) -> Failure {
    let waited = config.timing.send_init;
    let mut failure = Failure::new("no_broker", format!("no broker was ready within {} s", waited.as_secs_f64()));
    if let Some(discovery) = &config.discovery {
        let name = discovery.name.as_ref().map_or("any name".to_string(), |name| format!("the name {name:?}"));
        failure = failure.detail(format!("listened on udp {} for announcements with {name}", discovery.listen));
        failure = failure.detail(heard(&inspection.stats));
        if let Some(dropped) = inspection.socket.and_then(|socket| socket.dropped).filter(|dropped| *dropped > 0) {
            failure = failure.detail(format!("the system dropped {dropped} more: the receive buffer was full"));
        }
    }
    for broker in &inspection.fleet {
        failure = failure.detail(format!("{} is not ready: {}", broker.address, why_unready(broker)));
    }
    let hint = next_step(config, inspection);
    failure.hint(hint)
}

/// `heard 12 datagrams: 3 not announcements (2 BadGuid, 1 TooLong), 4 of another name`.
fn heard(stats: &Stats) -> String {
    let mut parts = Vec::new();
    let malformed: u64 = stats.malformed.iter().sum();
    if malformed > 0 {
        let reasons = Reject::ALL.iter().zip(&stats.malformed).filter(|(_, count)| **count > 0);
        let reasons: Vec<String> = reasons.map(|(reject, count)| format!("{count} {reject}")).collect();
        parts.push(format!("{malformed} malformed ({})", reasons.join(", ")));
    }
    for (count, what) in [
        (stats.other_name, "of another name"),
        (stats.not_allowed, "of an address that is not allowed"),
        (stats.fleet_full, "beyond the size of the fleet"),
        (stats.too_fast, "of newcomers too fast"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    let plural = if stats.datagrams == 1 { "" } else { "s" };
    let colon = if parts.is_empty() { "" } else { ": " };
    format!("heard {} datagram{plural}{colon}{}", stats.datagrams, parts.join(", "))
}

pub(crate) fn why_unready(broker: &BrokerInfo) -> String {
    match &broker.unready {
        Some(unready) if unready.detail.is_empty() => unready.reason.to_string(),
        Some(unready) => format!("{}: {}", unready.reason, one_line(&unready.detail)),
        None => "still connecting".to_string(),
    }
}

fn next_step(config: &Config, inspection: &Inspection) -> String {
    let stats = &inspection.stats;
    let Some(discovery) = config.discovery.as_ref().filter(|_| inspection.fleet.is_empty()) else {
        let wants_password =
            |broker: &BrokerInfo| broker.unready.as_ref().is_some_and(|why| why.reason == UnreadyReason::Auth);
        return if inspection.fleet.iter().any(wants_password) {
            "give credentials with --user and --password-file, or FLOTA_USER and FLOTA_PASSWORD".to_string()
        } else {
            "see to the brokers named above, or name others with --broker HOST:PORT".to_string()
        };
    };
    if stats.datagrams == 0 {
        return format!(
            "announce a broker (`flota announce --redis HOST:PORT --advertise HOST:PORT`), let udp port {} through the \
             firewall, listen where the announcers send (--discover ADDR:PORT), or name a broker: --broker HOST:PORT",
            discovery.listen.port()
        );
    }
    if stats.other_name > 0 {
        return "accept another fleet's name with --name NAME; `flota watch --name '*'` shows which there are"
            .to_string();
    }
    if stats.not_allowed > 0 {
        return "widen --allow (FLOTA_ALLOW), or leave it out; host names are never accepted".to_string();
    }
    "find out who sends to this port: `flota watch` shows an example of what was refused".to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(args: &FleetArgs, variables: &[(&str, &str)]) -> Config {
        let find =
            |name: &str| variables.iter().find(|(found, _)| *found == name).map(|(_, value)| (*value).to_string());
        args.config_in(find).unwrap()
    }

    #[test]
    fn flags_come_before_the_environment() {
        let everything = [
            ("FLOTA_BROKERS", "a:1"),
            ("FLOTA_DISCOVER", "127.0.0.1:1"),
            ("DISABLE_CLUSTER_MANAGER", "1"),
            ("REDIS_CLUSTER", "b:2"),
            ("REDIS_BROADCAST_NAME", "blue"),
            ("FLOTA_ALLOW", "10.0.0.0/8,11.0.0.0/8"),
            ("IMQ_SEND_INIT_TIMEOUT", "5000"),
        ];
        let flags = FleetArgs { brokers: vec!["c:3".parse().unwrap(), "d:4".parse().unwrap()], ..FleetArgs::default() };
        let fixed = config(&flags, &everything);
        assert_eq!(joined(&fixed.brokers), "c:3,d:4");
        assert!(fixed.discovery.is_none());
        assert_eq!(fixed.timing.send_init, Duration::from_secs(5));

        let flags = FleetArgs {
            discover: Some("127.0.0.1:9".parse().unwrap()),
            name: Some("*".to_string()),
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            wait: Some(Duration::from_millis(500)),
            ..FleetArgs::default()
        };
        let discovered = config(&flags, &everything);
        let discovery = discovered.discovery.unwrap();
        assert_eq!((discovery.listen.port(), discovery.name, discovery.allow.len()), (9, None, 1));
        assert!(discovered.brokers.is_empty());
        assert_eq!(discovered.timing.send_init, Duration::from_millis(500));

        let environment = config(&FleetArgs::default(), &everything);
        assert_eq!(joined(&environment.brokers), "a:1");
        assert_eq!(environment.discovery.unwrap().name.as_deref(), Some("blue"));
        assert_eq!(joined(&config(&FleetArgs::default(), &everything[2..]).brokers), "b:2");
    }

    #[test]
    fn a_user_by_flag_goes_with_a_password_from_the_environment() {
        let flags = FleetArgs {
            credentials: CredentialArgs { user: Some("me".to_string()), password_file: None },
            ..FleetArgs::default()
        };
        let variables = [("FLOTA_USER", "you"), ("FLOTA_PASSWORD", " secret ")];
        let credentials = config(&flags, &variables).credentials.unwrap();
        assert_eq!((credentials.user.as_str(), credentials.password.as_str()), ("me", " secret "));
        assert!(flags.config_in(|_| None).is_err(), "a user without a password");
    }

    #[test]
    fn what_was_heard_is_counted_by_reason() {
        let mut stats = Stats { datagrams: 5, other_name: 2, ..Stats::default() };
        stats.malformed[Reject::TooLong.index()] = 1;
        stats.malformed[Reject::BadGuid.index()] = 2;
        assert_eq!(heard(&stats), "heard 5 datagrams: 3 malformed (1 TooLong, 2 BadGuid), 2 of another name");
        assert_eq!(heard(&Stats::default()), "heard 0 datagrams");
    }
}
