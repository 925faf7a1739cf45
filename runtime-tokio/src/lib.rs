//! Flota on tokio.
//!
//! [`connect`] starts a driver on the runtime it is called in and returns the [`Client`]. What is here is sockets and
//! timers; everything else is the same in every runtime and comes from `flota_core`.

mod net;

use std::fmt;

use flota_core::config::ConfigError;
use flota_core::driver::sockets::{Announcements, BindError};
use flota_core::driver::{Driver, Setup};
use flota_core::engine::Incarnation;
use flota_core::rng::Seed;

pub use flota_core::config::Config;
pub use flota_core::driver::{
    Admin, Batch, Batches, BrokerInfo, Client, CloseReport, DeadLetter, Dropped, Each, Error, FleetEvent, FleetEvents,
    Group, GroupReport, Inspection, IntoVerdict, Job, Letters, PartitionReport, Receipt, Reject, Replayed, Run,
    SocketInfo, Spawned, Stopped, Stopper, Subscription, Topic, TopicOnBroker, TopicReport,
};
pub use flota_core::topic::Message;
pub use flota_core::{config, op, output, reply, topic};

pub use net::Tokio;

/// Checks the configuration, binds the announcement socket and starts the driver as a task of the current runtime.
///
/// Returns before any broker is there: [`Client::ready`] waits for the first, and sends wait by themselves.
///
/// # Errors
///
/// [`ConnectError`], which says what was attempted, what came of it, and what to do.
///
/// # Panics
///
/// Outside of a tokio runtime, or in one whose I/O or time is not enabled.
pub async fn connect(config: Config) -> Result<Client, ConnectError> {
    config.validate().map_err(ConnectError::Config)?;
    let announcements = Announcements::bind(&config).map_err(ConnectError::Bind)?;
    let (socket, gauge) = match announcements {
        Some(Announcements { socket, gauge }) => {
            let address = socket.local_addr();
            let socket = tokio::net::UdpSocket::from_std(socket).map_err(|error| {
                let address = address.unwrap_or_else(|_| ([0, 0, 0, 0], 0).into());
                ConnectError::Bind(BindError { address, error })
            })?;
            (Some(socket), Some(gauge))
        }
        None => (None, None),
    };
    let setup = Setup {
        net: Tokio::new(),
        socket: socket.map(net::Udp),
        gauge,
        alarm: net::Alarm::new(),
        incarnation: Incarnation(u64::from_le_bytes(random()?)),
        seed: Seed(random()?),
        config,
    };
    let (driver, client) = Driver::new(setup).map_err(ConnectError::Config)?;
    // Its client is told when it ends, also by a panic. It bounds its turns by itself; the runtime's own budget would
    // tell it that sockets are empty which are not, and let it forget who has just announced itself.
    drop(tokio::spawn(tokio::task::unconstrained(driver)));
    Ok(client)
}

fn random<const N: usize>() -> Result<[u8; N], ConnectError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| ConnectError::Random(error.to_string()))?;
    Ok(bytes)
}

/// Why there is no client.
#[derive(Debug)]
pub enum ConnectError {
    /// The configuration cannot work.
    Config(ConfigError),
    /// The announcement socket cannot be had.
    Bind(BindError),
    /// The operating system has no randomness; its words.
    Random(String),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Bind(error) => error.fmt(f),
            Self::Random(error) => {
                write!(f, "cannot draw a seed from the operating system: {error}; is /dev/urandom there?")
            }
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config(error) => Some(error),
            Self::Bind(error) => Some(error),
            Self::Random(_) => None,
        }
    }
}

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
