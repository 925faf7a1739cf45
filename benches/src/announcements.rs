//! Announcements of a large fleet, and an engine that hears them.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use flota_core::config::Config;
use flota_core::engine::{Engine, Incarnation};
use flota_core::output::Output;
use flota_core::rng::Seed;
use flota_core::time::Mono;

use crate::world::START;

/// The announcement of one broker or another, always in the same buffer, as a socket would leave it there. A buffer for
/// each of many brokers would measure how far away memory is.
#[derive(Clone, Debug)]
pub struct Datagram {
    bytes: Vec<u8>,
}

/// The most usual announcement: 74 bytes.
pub const USUAL: &[u8; 74] = b"imq-broker\t2cc7c345-3569-44bb-b57a-b72d729d7012\tup\t10.0.14.12:6379\t1\tplain";

const PATTERN: &[u8; 78] = b"imq-broker\t00000000-3569-44bb-b57a-b72d729d7012\tup\t10.100.100.100:6379\t1\tplain";
const GUID_AT: usize = 11;
const OCTETS_AT: [usize; 3] = [54, 58, 62];
/// An octet of exactly three digits has this many values.
const OCTETS: usize = 100;

impl Default for Datagram {
    fn default() -> Self {
        Self { bytes: PATTERN.to_vec() }
    }
}

impl Datagram {
    /// The announcement of the broker with this number, below a million.
    pub fn of(&mut self, broker: usize) -> &[u8] {
        let digits = [broker / OCTETS / OCTETS, broker / OCTETS % OCTETS, broker % OCTETS];
        for (digits, (octet, guid)) in digits.iter().zip(OCTETS_AT.iter().zip(GUID_AT..)) {
            let [tens, ones] = [digits / 10, digits % 10].map(|digit| b'0' + digit as u8);
            self.bytes[octet + 1] = tens;
            self.bytes[octet + 2] = ones;
            self.bytes[guid] = tens;
            self.bytes[guid + 3] = ones;
        }
        &self.bytes
    }
}

/// Who sends every announcement here.
pub const SENDER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 40_000);

/// An engine that has heard this many brokers. None of them is ever connected.
#[derive(Debug)]
pub struct Listener {
    /// It.
    pub engine: Engine,
    /// When it is.
    pub now: flota_core::time::Now,
    datagram: Datagram,
}

impl Listener {
    /// All brokers are announced, one after the other within a second.
    ///
    /// # Panics
    ///
    /// If one of them is not admitted.
    #[must_use]
    pub fn hearing(brokers: usize) -> Self {
        let mut config = Config::discover();
        config.limits.brokers = brokers as u32;
        config.limits.newcomers_burst = brokers as u32;
        // Nobody answers the dials, and that is not what is measured.
        config.timing.connect = Duration::from_secs(1 << 30);
        let engine = Engine::new(config, Incarnation(1), Seed::from_u64(7), START).expect("a valid configuration");
        let mut listener = Self { engine, now: START, datagram: Datagram::default() };
        for broker in 0..brokers {
            listener.hear(broker);
        }
        assert_eq!(listener.engine.fleet().count(), brokers);
        listener
    }

    /// One announcement, and what the engine says to it.
    pub fn hear(&mut self, broker: usize) -> Option<Mono> {
        self.now.mono.0 += 1;
        self.engine.handle_datagram(self.now, SENDER, self.datagram.of(broker));
        drain(&mut self.engine)
    }

    /// Lets everybody expire who is not heard again. How many that were.
    pub fn expire(&mut self) -> usize {
        self.now.mono = self.now.mono + Duration::from_secs(10);
        self.engine.handle_timeout(self.now);
        drain(&mut self.engine);
        self.engine.fleet().filter(|broker| broker.leaving).count()
    }
}

/// Throws away what the engine says. Until when it waits.
pub fn drain(engine: &mut Engine) -> Option<Mono> {
    loop {
        if let Output::Wait(until) = engine.poll_output() {
            return until;
        }
    }
}

/// The order in which a fleet is heard, over and over: each broker once per interval, but every interval in another
/// order, as jitter spreads them.
#[must_use]
pub fn jittered(brokers: usize) -> Vec<u32> {
    const INTERVALS: usize = 4;
    let mut noise = Noise(7);
    let mut order = Vec::new();
    for _ in 0..INTERVALS {
        let mut interval: Vec<u32> = (0..brokers as u32).collect();
        for last in (1..brokers).rev() {
            interval.swap(last, noise.below(last as u64 + 1) as usize);
        }
        order.extend(interval);
    }
    order
}

/// Xorshift: cheap enough not to be what is measured, and the same on every run.
#[derive(Debug)]
pub struct Noise(pub u64);

impl Noise {
    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }
}
