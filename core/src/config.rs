//! Configuration: what the application decides, checked once, before anything runs.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::str::FromStr;
use core::time::Duration;

use crate::announce::EncodeError;
use crate::mutant::Mutant;

/// Where a server listens: an IP literal, or a host name that the adapter resolves at every dial.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// An address to dial as it is.
    Ip(SocketAddr),
    /// A host name and a port.
    Name(Arc<str>, u16),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Name(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl FromStr for Endpoint {
    type Err = ConfigError;

    /// `10.0.0.5:6379`, `[2001:db8::7]:6379` or `redis-1.internal:6379`.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return if address.port() == 0 { Err(bad_broker(text)) } else { Ok(Self::Ip(address)) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(|| bad_broker(text))?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(|| bad_broker(text))?;
        let name = !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
        let literal = host.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()));
        if name && !literal { Ok(Self::Name(host.into(), port)) } else { Err(bad_broker(text)) }
    }
}

fn bad_broker(text: &str) -> ConfigError {
    ConfigError::new("brokers", text, "not HOST:PORT with a port from 1 to 65535")
}

/// A network in CIDR notation: which announced addresses may be dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Whether the address lies in this network. An IPv4-mapped IPv6 address counts as its IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                u32::from(ours) & mask == u32::from(theirs) & mask
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                u128::from(ours) & mask == u128::from(theirs) & mask
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = ConfigError;

    /// `10.0.0.0/8`, `fd00::/8`, or a single address.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let bad = || ConfigError::new("allow", text, "not a network like 10.0.0.0/8 or fd00::/8");
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let widest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(widest), str::parse).map_err(|_| bad())?;
        if prefix > widest { Err(bad()) } else { Ok(Self { address, prefix }) }
    }
}

/// Which announcements to listen for, and which to believe. Announcements carry no signature: everything here is
/// about what a stranger on the segment can make this process do.
#[derive(Clone, Debug)]
pub struct Discovery {
    /// The UDP address to listen on. Default `0.0.0.0:63000`.
    pub listen: SocketAddr,
    /// The fleet's name; `None` accepts any, which merges every fleet on the segment. Default `imq-broker`.
    pub name: Option<String>,
    /// Networks an announced address may lie in; empty allows all.
    pub allow: Vec<Network>,
    /// Accept host names besides IP literals. A host name is resolved, so it can lead outside `allow`. Default no.
    pub host_names: bool,
    /// Require the sender's address to be the announced one. Breaks announcers behind NAT. Default no.
    pub same_sender: bool,
}

impl Default for Discovery {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 63000),
            name: Some("imq-broker".to_string()),
            allow: Vec::new(),
            host_names: false,
            same_sender: false,
        }
    }
}

/// What to announce, when this process speaks for a broker.
#[derive(Clone, Debug)]
pub struct Announce {
    /// The fleet's name, without TAB.
    pub name: String,
    /// The address services should dial.
    pub advertise: Endpoint,
    /// Time between two announcements, also the deadline scale that listeners apply: they drop the broker
    /// `interval + 5 s` after the last one.
    pub interval: Duration,
    /// Where the datagrams go.
    pub to: Vec<SocketAddr>,
    /// The transport marker, informational: no listener decides by it.
    pub transport: crate::announce::Transport,
}

/// User name and password for every broker of the fleet.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The ACL user; empty for `requirepass` alone.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials {{ user: {:?}, password: .. }}", self.user)
    }
}

/// Everything an engine needs to know before it starts.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Listen for announcements; `None` uses `brokers` alone.
    pub discovery: Option<Discovery>,
    /// Brokers that are always members and never expire.
    pub brokers: Vec<Endpoint>,
    /// Sent in the handshake with every broker.
    pub credentials: Option<Arc<Credentials>>,
    /// Announce a broker: the announcer's role. Needs exactly one entry in `brokers`.
    pub announce: Option<Announce>,
    /// Names this service in connection and consumer names. `[A-Za-z0-9._-]{1,40}`; default `flota`.
    pub service: Option<String>,
    /// Durations.
    pub timing: Timing,
    /// Sizes.
    pub limits: Limits,
    /// A planted fault. None, except where a test shows that a fault is noticed.
    #[cfg(feature = "mutants")]
    #[doc(hidden)]
    pub mutant: Option<Mutant>,
}

impl Config {
    /// Whether this fault is planted; without the feature `mutants` that is `false` when it is compiled.
    #[inline(always)]
    pub(crate) fn is_mutant(&self, mutant: Mutant) -> bool {
        #[cfg(feature = "mutants")]
        return self.mutant == Some(mutant);
        #[cfg(not(feature = "mutants"))]
        {
            let _ = mutant;
            false
        }
    }

    /// A fleet found by its announcements on the usual port.
    #[must_use]
    pub fn discover() -> Self {
        Self { discovery: Some(Discovery::default()), ..Self::default() }
    }

    /// A fixed fleet: members that never expire.
    ///
    /// # Errors
    ///
    /// When an address is not `HOST:PORT`.
    pub fn brokers<T: AsRef<str>>(addresses: impl IntoIterator<Item = T>) -> Result<Self, ConfigError> {
        let brokers = addresses.into_iter().map(|a| a.as_ref().parse()).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { brokers, ..Self::default() })
    }

    /// Refuses what cannot work, naming the field.
    ///
    /// # Errors
    ///
    /// The first field that is wrong, with its value and what it must be.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.discovery.is_none() && self.brokers.is_empty() {
            return Err(ConfigError::new("brokers", "", "no broker is configured and discovery is off"));
        }
        if let Some(service) = &self.service
            && !(service.len() <= 40 && crate::topic::is_name(service))
        {
            return Err(ConfigError::new("service", service, "must be 1 to 40 of A-Z a-z 0-9 . _ -"));
        }
        if let Some(announce) = &self.announce {
            if self.brokers.len() != 1 || self.discovery.is_some() {
                return Err(ConfigError::new(
                    "announce",
                    "",
                    "an announcer speaks for one configured broker and listens to none",
                ));
            }
            if announce.interval < Duration::from_millis(1) || announce.interval > Duration::from_secs(60) {
                return Err(ConfigError::new("announce.interval", "", "must lie between 1 ms and 60 s"));
            }
            crate::announcer::check(announce).map_err(|why| match why {
                EncodeError::EmptyName => ConfigError::new("announce.name", &announce.name, "must not be empty"),
                EncodeError::TabInName => ConfigError::new("announce.name", &announce.name, "must not hold a TAB"),
                EncodeError::TooLong { .. } => {
                    ConfigError::new("announce.name", &announce.name, "name and address do not fit into 255 bytes")
                }
                EncodeError::BadHost => {
                    let advertise = announce.advertise.to_string();
                    ConfigError::new("announce.advertise", &advertise, "not an address that listeners accept")
                }
            })?;
        }
        self.timing.validate()?;
        self.limits.validate()
    }
}

/// Every duration of the core, with the reason for its default.
#[derive(Clone, Debug)]
pub struct Timing {
    /// From the dial to a finished handshake. Default 2 s: a broker on the same network answers in milliseconds.
    pub connect: Duration,
    /// The longest a blocking read waits on the server. Default 2 s, so that a dead connection shows within three.
    pub block: Duration,
    /// How much later than `block` a reply may come. Default 1 s: servers round timeouts up to their next tick.
    pub block_margin: Duration,
    /// The longest the oldest unanswered command may wait. Default 5 s: a script may run that long before a server
    /// answers `BUSY` for it.
    pub response: Duration,
    /// A silent command connection is asked for a sign of life this often. Default 15 s: it finds half-open
    /// connections that nothing else uses, and costs an idle fleet almost nothing.
    pub idle_ping: Duration,
    /// First and longest reconnect delay, and how long a connection must have been ready before the delay starts
    /// over. Defaults 100 ms, 30 s, 10 s.
    pub backoff_base: Duration,
    /// See `backoff_base`.
    pub backoff_cap: Duration,
    /// See `backoff_base`.
    pub stable_after: Duration,
    /// Added to an announcer's interval before its silence counts. Default 5 s: what every other listener of these
    /// announcements applies.
    pub grace: Duration,
    /// Announced intervals are clamped to at most this. Default 60 s: a stranger must not make a member immortal.
    pub interval_cap: Duration,
    /// How long an operation waits for a broker before it fails as not sent. Default 30 s.
    pub send_init: Duration,
    /// A departed broker is read until it has been empty this long. Default 60 s.
    pub drain: Duration,
    /// A departed broker that closed while it still held messages is redialled for this long. Default 10 min.
    pub forget: Duration,
    /// How long a member's own address may be unready before an alternative address is tried. Default 3 s.
    pub alternative_after: Duration,
    /// The answer to "is this still the same server process?" after a new GUID on a known address, and to whatever a
    /// command connection asked before a fresh connection was answered. Default 1 s: the server is known to be well.
    pub identity: Duration,
    /// While memory is full, one send is let through this often to see whether it still is. Default 250 ms.
    pub oom_probe: Duration,
    /// How long a broker keeps the partitions of a consumer that it does not hear of. Default 15 s, so that it is heard of
    /// five times and a lost answer or two cost nothing; at least 3 s, at most 10 min. All consumers of a group should
    /// have the same.
    pub lease_ttl: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            block: Duration::from_secs(2),
            block_margin: Duration::from_secs(1),
            response: Duration::from_secs(5),
            idle_ping: Duration::from_secs(15),
            backoff_base: Duration::from_millis(100),
            backoff_cap: Duration::from_secs(30),
            stable_after: Duration::from_secs(10),
            grace: Duration::from_secs(5),
            interval_cap: Duration::from_secs(60),
            send_init: Duration::from_secs(30),
            drain: Duration::from_secs(60),
            forget: Duration::from_secs(600),
            alternative_after: Duration::from_secs(3),
            identity: Duration::from_secs(1),
            oom_probe: Duration::from_millis(250),
            lease_ttl: Duration::from_secs(15),
        }
    }
}

impl Timing {
    fn validate(&self) -> Result<(), ConfigError> {
        let positive = [
            ("timing.connect", self.connect),
            ("timing.block", self.block),
            ("timing.response", self.response),
            ("timing.idle_ping", self.idle_ping),
            ("timing.backoff_base", self.backoff_base),
        ];
        for (field, value) in positive {
            if value < Duration::from_millis(1) {
                return Err(ConfigError::new(field, "", "must be at least 1 ms"));
            }
        }
        if self.backoff_cap < self.backoff_base {
            return Err(ConfigError::new("timing.backoff_cap", "", "must not be below timing.backoff_base"));
        }
        if self.lease_ttl < Duration::from_secs(3) || self.lease_ttl > Duration::from_secs(600) {
            return Err(ConfigError::new("timing.lease_ttl", "", "must lie between 3 s and 10 min"));
        }
        Ok(())
    }
}

/// Every bound of the core. Beyond one of them there is a refusal by name, or an event; never unbounded growth.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Members, departed ones included. Default 10,000. A full table refuses newcomers and keeps the living.
    pub brokers: u32,
    /// GUIDs remembered per address. Default 4: module and sidecar, before and after a restart.
    pub guids_per_address: u32,
    /// Addresses remembered per member besides its own. Default 4.
    pub alternatives: u32,
    /// Newcomers accepted per sending address and second. Default 100. Re-arming a member is never limited.
    pub newcomers_per_second: u32,
    /// Newcomers one sender may introduce at once. Default 1,024.
    pub newcomers_burst: u32,
    /// Operations that may wait for a broker. Default 65,536.
    pub backlog_ops: u32,
    /// Bytes of bodies that may wait for a broker. Default 64 MiB.
    pub backlog_bytes: u64,
    /// Unanswered commands per connection, beyond which a broker counts as having no room. Default 16,384.
    pub pipeline: u32,
    /// A message body. Default 16 MiB, refused at the send.
    pub body_bytes: u32,
    /// Headers of one message. Default 100.
    pub headers: u32,
    /// Subscriptions at once. Default 1,024.
    pub subscriptions: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            brokers: 10_000,
            guids_per_address: 4,
            alternatives: 4,
            newcomers_per_second: 100,
            newcomers_burst: 1_024,
            backlog_ops: 65_536,
            backlog_bytes: 64 << 20,
            pipeline: 16_384,
            body_bytes: 16 << 20,
            headers: 100,
            subscriptions: 1_024,
        }
    }
}

impl Limits {
    fn validate(&self) -> Result<(), ConfigError> {
        let positive = [
            ("limits.brokers", self.brokers),
            ("limits.guids_per_address", self.guids_per_address),
            ("limits.newcomers_per_second", self.newcomers_per_second),
            ("limits.newcomers_burst", self.newcomers_burst),
            ("limits.pipeline", self.pipeline),
        ];
        for (field, value) in positive {
            if value == 0 {
                return Err(ConfigError::new(field, "0", "must be at least 1"));
            }
        }
        Ok(())
    }
}

/// A configuration that cannot work: which field, its value, and what it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The field as it is written in [`Config`].
    pub field: &'static str,
    /// What it was set to; empty when that says nothing.
    pub value: String,
    /// What it must be.
    pub must: &'static str,
}

impl ConfigError {
    /// For adapters that check fields of their own.
    #[must_use]
    pub fn new(field: &'static str, value: &str, must: &'static str) -> Self {
        Self { field, value: value.to_string(), must }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_empty() {
            write!(f, "configuration: {}: {}", self.field, self.must)
        } else {
            write!(f, "configuration: {} = {:?}: {}", self.field, self.value, self.must)
        }
    }
}

impl core::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_literals_or_host_names() {
        for good in ["10.0.0.5:6379", "[2001:db8::7]:6379", "redis-1.internal:6379"] {
            assert_eq!(good.parse::<Endpoint>().unwrap().to_string(), good);
        }
        for bad in ["10.0.0.5", "10.0.0.5:0", "10.0.0.5:65536", "999.1.1.1:6379", ":6379", "a b:1", "2001:db8::7:6379"]
        {
            assert_eq!(bad.parse::<Endpoint>().unwrap_err().field, "brokers", "{bad}");
        }
    }

    #[test]
    fn networks_contain_by_prefix_and_see_through_mapped_addresses() {
        let ten: Network = "10.0.0.0/8".parse().unwrap();
        assert!(ten.contains("10.255.0.1".parse().unwrap()));
        assert!(ten.contains("::ffff:10.0.0.1".parse().unwrap()));
        assert!(!ten.contains("11.0.0.1".parse().unwrap()));
        assert!("0.0.0.0/0".parse::<Network>().unwrap().contains("8.8.8.8".parse().unwrap()));
        assert!("fd00::/8".parse::<Network>().unwrap().contains("fd12::1".parse().unwrap()));
        assert!("10.0.0.0/33".parse::<Network>().is_err());
        assert!("ten/8".parse::<Network>().is_err());
    }

    #[test]
    fn an_unusable_configuration_names_its_field() {
        assert_eq!(Config::default().validate().unwrap_err().field, "brokers");
        assert_eq!(Config::discover().validate(), Ok(()));
        let config = Config { service: Some("a:b".to_string()), ..Config::discover() };
        assert_eq!(config.validate().unwrap_err().field, "service");
        let announce = |name: &str, advertise: &str| Announce {
            name: name.to_string(),
            advertise: advertise.parse().unwrap(),
            interval: Duration::from_secs(1),
            to: Vec::new(),
            transport: crate::announce::Transport::Plain,
        };
        let refused = |announce| {
            let config = Config { announce: Some(announce), ..Config::brokers(["10.0.0.5:6379"]).unwrap() };
            config.validate().err().map(|why| why.field)
        };
        assert_eq!(refused(announce("imq-broker", "10.0.0.5:6379")), None);
        assert_eq!(refused(announce("", "10.0.0.5:6379")), Some("announce.name"));
        assert_eq!(refused(announce("a\tb", "10.0.0.5:6379")), Some("announce.name"));
        assert_eq!(refused(announce(&"n".repeat(250), "10.0.0.5:6379")), Some("announce.name"));
        assert_eq!(refused(announce("imq-broker", "a..b:6379")), Some("announce.advertise"));
        let mut config = Config::discover();
        config.timing.backoff_cap = Duration::ZERO;
        assert_eq!(config.validate().unwrap_err().field, "timing.backoff_cap");
        for (ttl_ms, field) in [(2_999, Some("timing.lease_ttl")), (3_000, None), (600_001, Some("timing.lease_ttl"))] {
            let mut config = Config::discover();
            config.timing.lease_ttl = Duration::from_millis(ttl_ms);
            assert_eq!(config.validate().err().map(|why| why.field), field, "{ttl_ms} ms");
        }
    }
}
