//! The plan of a run: everything random about its shape, as data that can be printed, saved, edited and shrunk.
//!
//! A plan is drawn from a seed before anything moves. What remains random while it runs — delays, cuts, losses — comes
//! from generators seeded with [`Plan::seed`], so that a plan with one fault less meets nearly the same network.

use serde::{Deserialize, Serialize};

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The scenario it was drawn for.
    pub scenario: String,
    /// Seeds the network's and the hosts' own generators.
    pub seed: u64,
    /// How the engines are configured.
    pub knobs: Knobs,
    /// What the network does by itself.
    pub network: Network,
    /// Brokers; index is identity.
    pub brokers: Vec<BrokerPlan>,
    /// Services; index is identity.
    pub services: Vec<ServicePlan>,
    /// Messages to send, each with its fate.
    pub work: Vec<Work>,
    /// What goes wrong, and when.
    pub faults: Vec<Fault>,
    /// Faults begin after this, in milliseconds of true time: a failure before is the plainest kind.
    pub warm_up_ms: u64,
    /// Faults end here, and the time for everything to come right begins.
    pub heal_at_ms: u64,
    /// Equal-time events are put into a drawn order.
    pub shuffled: bool,
    /// How much of a service is real.
    #[serde(default, skip_serializing_if = "Fidelity::is_fast")]
    pub fidelity: Fidelity,
}

/// How much of a service is real.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fidelity {
    /// Its engine, called by the world.
    #[default]
    Fast,
    /// Its client and driver, too, on sockets of the world, with every byte.
    Full,
}

impl Fidelity {
    fn is_fast(&self) -> bool {
        *self == Self::Fast
    }
}

/// Durations and limits of the engines; milliseconds where the name says so. What is not here keeps its default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knobs {
    /// `Timing::block`.
    pub block_ms: u64,
    /// `Sub::claim_idle`.
    pub claim_idle_ms: u64,
    /// `Sub::claim_period`.
    pub claim_period_ms: u64,
    /// `Sub::max_deliveries`.
    pub max_deliveries: u32,
    /// `Sub::handler_timeout`.
    pub handler_timeout_ms: u64,
    /// `Sub::retry_base`.
    pub retry_base_ms: u64,
    /// `Sub::retry_cap`.
    pub retry_cap_ms: u64,
    /// `Timing::send_init`.
    pub send_init_ms: u64,
    /// `Timing::backoff_cap`.
    pub backoff_cap_ms: u64,
    /// `Timing::response`.
    pub response_ms: u64,
    /// `Limits::pipeline`.
    pub pipeline: u32,
    /// `Limits::brokers`.
    pub fleet_max: u32,
    /// `Limits::backlog_ops`.
    pub backlog_ops: u32,
    /// Networks that announced addresses may lie in.
    pub allow: Vec<String>,
    /// A planted fault of the core, by name: see `flota_core::mutant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutant: Option<String>,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            block_ms: 2_000,
            claim_idle_ms: 30_000,
            claim_period_ms: 5_000,
            max_deliveries: 5,
            handler_timeout_ms: 25_000,
            retry_base_ms: 1_000,
            retry_cap_ms: 300_000,
            send_init_ms: 30_000,
            backoff_cap_ms: 30_000,
            response_ms: 5_000,
            pipeline: 16_384,
            fleet_max: 10_000,
            backlog_ops: 65_536,
            allow: vec!["10.0.0.0/8".to_string()],
            mutant: None,
        }
    }
}

/// What the network does all the time. Chances are in parts per million.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// One way, always, in microseconds.
    pub latency_us: u64,
    /// On top of it, exponentially distributed around this.
    pub jitter_us: u64,
    /// A segment takes `spike_us` more.
    pub spike: u32,
    /// See `spike`.
    pub spike_us: u64,
    /// What is written arrives in two pieces, cut anywhere.
    pub cut: u32,
    /// The send buffer of each connection, in bytes: writes beyond it are short.
    pub send_buffer: u64,
    /// A datagram is lost.
    pub udp_loss: u32,
    /// … arrives twice.
    pub udp_twice: u32,
    /// … has one bit turned over, or its end cut off.
    pub udp_damage: u32,
    /// A service's turn takes in several inputs before it looks at what they led to.
    pub batch: u32,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            latency_us: 200,
            jitter_us: 100,
            spike: 0,
            spike_us: 0,
            cut: 0,
            send_buffer: 64 << 10,
            udp_loss: 0,
            udp_twice: 0,
            udp_damage: 0,
            batch: 100_000,
        }
    }
}

/// One broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerPlan {
    /// When it starts, in milliseconds.
    pub from_ms: u64,
    /// How often it is announced; 0 for a broker that services know by configuration.
    pub interval_ms: u64,
    /// Its wall clock's distance from true time.
    pub offset_ms: i64,
    /// Typical time of one command, in microseconds.
    pub service_us: u64,
    /// What a crash forgets.
    pub persistence: Persistence,
    /// `maxmemory` in bytes; 0 for none.
    #[serde(default)]
    pub memory_max: u64,
}

/// What a broker keeps when its process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Persistence {
    /// Everything it answered.
    Always,
    /// Everything but a last part of at most two seconds: `appendfsync everysec` on a machine that dies.
    EverySecond,
    /// Nothing.
    Never,
}

/// One service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePlan {
    /// When it starts, in milliseconds.
    pub from_ms: u64,
    /// How much faster than true time its monotonic clock runs, in parts per million.
    pub rate_ppm: i64,
    /// Its wall clock's distance from true time.
    pub offset_ms: i64,
    /// What it consumes.
    pub consumes: Vec<Consume>,
    /// When it subscribes, in milliseconds after its start, and ends: in a loop if it ends before the run does.
    #[serde(default)]
    pub subscribe_loop_ms: u64,
}

/// One subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consume {
    /// Of which topic, by number.
    pub topic: u8,
    /// In which group, by number.
    pub group: u8,
    /// `Sub::in_flight`.
    pub in_flight: u32,
    /// How long a handler typically takes, in microseconds.
    pub handler_us: u64,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// When it is sent, in milliseconds.
    pub at_ms: u64,
    /// By whom.
    pub service: u32,
    /// To which topic, by number.
    pub topic: u8,
    /// Its key, by number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<u8>,
    /// How long its body is, at least 12 bytes.
    pub bytes: u32,
    /// It may be stored at most once.
    #[serde(default)]
    pub at_most_once: bool,
    /// The sender takes it back after so many microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_after_us: Option<u64>,
    /// It is to be delivered so much later, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// What its handler does with it.
    #[serde(default)]
    pub fate: Fate,
}

/// What a handler does with a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// Handles it.
    #[default]
    Done,
    /// Asks for so many retries, then handles it.
    Retry(u8),
    /// Refuses it for good.
    Reject,
    /// Ends the process it runs in, the first so many times.
    Crash(u8),
    /// Does not end by itself.
    Hang,
    /// Takes so many times as long as usual.
    Slow(u8),
    /// Settles twice.
    Twice,
    /// Gives it back unhandled, once.
    Release,
    /// Asks for a retry whenever it is of that group, and handles it in others.
    Fails(u8),
}

/// Something that goes wrong for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// When it begins, in milliseconds.
    pub at_ms: u64,
    /// How long it lasts; what is over at once takes this long to come back.
    pub for_ms: u64,
    /// What.
    pub what: Trouble,
}

/// What can go wrong. `service` and `broker` are indices into the plan; what ends in `ms` is in milliseconds.
#[allow(missing_docs, reason = "the fields say what they are")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// A service's process is killed; started again when it is over.
    ServiceCrash { service: u32, machine: bool },
    /// A service stops in order; started again when it is over.
    ServiceStop { service: u32, grace_ms: u64 },
    /// A service's process stands still; its clock goes on.
    ServicePause { service: u32 },
    /// A service's wall clock is stepped.
    ServiceStep { service: u32, by_ms: i64 },
    /// A broker's process is killed, with its machine or alone; started again, with what it kept, when it is over.
    BrokerCrash { broker: u32, machine: bool },
    /// A broker stops in order, saying goodbye; started again when it is over.
    BrokerStop { broker: u32 },
    /// A broker stands still.
    BrokerPause { broker: u32 },
    /// A broker takes so many times as long for each command.
    BrokerSlow { broker: u32, times: u32 },
    /// A broker restarts and loads its data meanwhile.
    BrokerLoading { broker: u32 },
    /// A broker's memory is full.
    BrokerFull { broker: u32 },
    /// A broker has become a replica.
    BrokerReplica { broker: u32 },
    /// A broker refuses writes for a failing snapshot.
    BrokerMisconf { broker: u32 },
    /// A broker takes no further connections.
    BrokerCrowded { broker: u32 },
    /// A broker's clock is stepped.
    BrokerStep { broker: u32, by_ms: i64 },
    /// `SCRIPT FLUSH`.
    ScriptFlush { broker: u32 },
    /// `FLUSHALL`.
    FlushAll { broker: u32 },
    /// An operator trims every stream of messages to its newest entries, whoever has not handled the others.
    Trim { broker: u32, keep: u32 },
    /// `CLIENT KILL` of every connection.
    KillClients { broker: u32 },
    /// Nothing passes between them, in both directions or in one.
    Partition { services: Vec<u32>, brokers: Vec<u32>, way: Way },
    /// Connections between them are reset.
    Reset { service: u32, broker: u32 },
    /// One connection between them is reset: the `nth` of those that are open, counted round.
    ResetOne { service: u32, broker: u32, nth: u32 },
    /// The announcer falls silent; the broker lives.
    AnnouncerSilent { broker: u32 },
    /// The announcer says goodbye and comes back; the broker lives.
    AnnouncerDown { broker: u32 },
    /// The announcer is replaced by one with another GUID, both speak for a while.
    AnnouncerTwo { broker: u32 },
    /// The announcer promises another interval.
    AnnouncerInterval { broker: u32, interval_ms: u64 },
    /// A forged `down` for it.
    ForgedDown { broker: u32 },
    /// The broker is announced at a second address, by the same GUID.
    Readdressed { broker: u32 },
    /// Strangers send datagrams, so many a second.
    Flood { per_second: u32, kind: FloodKind },
    /// Datagrams are lost more often, in parts per million.
    UdpLoss { parts: u32 },
}

/// Which way is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// Both.
    Both,
    /// From services to brokers.
    ToBrokers,
    /// From brokers to services.
    ToServices,
}

/// What strangers send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FloodKind {
    /// Any bytes.
    Noise,
    /// Announcements that are nearly right.
    NearlyRight,
    /// Newcomers inside of the allowed networks, where nobody listens.
    Newcomers,
    /// Newcomers outside of them.
    Outside,
    /// `up`s for real addresses with GUIDs of their own.
    Aliases,
}

impl Fault {
    /// When it is over, in milliseconds.
    #[must_use]
    pub fn until_ms(&self) -> u64 {
        self.at_ms.saturating_add(self.for_ms)
    }
}

impl Trouble {
    /// The one broker it happens to, if it is one.
    pub fn broker_mut(&mut self) -> Option<&mut u32> {
        match self {
            Self::BrokerCrash { broker, .. }
            | Self::BrokerStop { broker }
            | Self::BrokerPause { broker }
            | Self::BrokerSlow { broker, .. }
            | Self::BrokerLoading { broker }
            | Self::BrokerFull { broker }
            | Self::BrokerReplica { broker }
            | Self::BrokerMisconf { broker }
            | Self::BrokerCrowded { broker }
            | Self::BrokerStep { broker, .. }
            | Self::ScriptFlush { broker }
            | Self::FlushAll { broker }
            | Self::Trim { broker, .. }
            | Self::KillClients { broker }
            | Self::Reset { broker, .. }
            | Self::ResetOne { broker, .. }
            | Self::AnnouncerSilent { broker }
            | Self::AnnouncerDown { broker }
            | Self::AnnouncerTwo { broker }
            | Self::AnnouncerInterval { broker, .. }
            | Self::ForgedDown { broker }
            | Self::Readdressed { broker } => Some(broker),
            _ => None,
        }
    }

    /// The one service it happens to, if it is one.
    pub fn service_mut(&mut self) -> Option<&mut u32> {
        match self {
            Self::ServiceCrash { service, .. }
            | Self::ServiceStop { service, .. }
            | Self::ServicePause { service }
            | Self::ServiceStep { service, .. }
            | Self::Reset { service, .. }
            | Self::ResetOne { service, .. } => Some(service),
            _ => None,
        }
    }
}

impl Plan {
    /// How many items its lists hold: what shrinking reduces.
    #[must_use]
    pub fn items(&self) -> usize {
        self.brokers.len() + self.services.len() + self.work.len() + self.faults.len()
    }

    /// The name of a topic.
    #[must_use]
    pub fn topic(number: u8) -> String {
        format!("t{number}")
    }

    /// The name of a group.
    #[must_use]
    pub fn group(number: u8) -> String {
        format!("g{number}")
    }

    /// How long, after everything is healed, everything may take to come right, in milliseconds: the longest of what can
    /// still be running then, one after the other.
    #[must_use]
    pub fn liveness_ms(&self) -> u64 {
        let knobs = &self.knobs;
        let deliveries = u64::from(knobs.max_deliveries);
        let retries: u64 = (0..deliveries).map(|n| (knobs.retry_base_ms << n.min(20)).min(knobs.retry_cap_ms)).sum();
        let eviction = 60_000 + 5_000;
        // With one message in hand at a time those that do not end, or end their process, come one after the other.
        let tedious = |work: &&Work| matches!(work.fate, Fate::Hang | Fate::Crash(_) | Fate::Slow(_));
        let tedious = self.work.iter().filter(tedious).count() as u64 + 1;
        let once = knobs.handler_timeout_ms + knobs.claim_idle_ms + knobs.claim_period_ms;
        let handlers = tedious * deliveries * once;
        // On a clock that was set back everything is that much younger than it is: idle times and delays start over.
        let back = |fault: &Fault| match fault.what {
            Trouble::BrokerStep { by_ms, .. } => by_ms.min(0).unsigned_abs(),
            _ => 0,
        };
        let back: u64 = self.faults.iter().map(back).sum();
        let backlog = self.work.len() as u64 * 20;
        eviction + 2 * knobs.backoff_cap_ms + knobs.send_init_ms + retries * 2 + handlers + backlog + back + 30_000
    }
}
