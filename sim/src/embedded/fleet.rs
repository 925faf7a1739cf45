//! A client on embedded brokers, for tests.

use std::fmt;
use std::io;
use std::ops::Deref;

use flota_tokio::{Client, Config, ConnectError, Stopped};

use super::{Embedded, Options};

/// Embedded brokers, for as long as this exists: keep it beside its clients.
#[derive(Debug)]
pub struct Fleet {
    brokers: Vec<Embedded>,
}

/// A client and the broker it talks to. What is made from it (topics, groups, clones of the client) works as long as this
/// exists.
#[derive(Debug)]
pub struct OwnedClient {
    client: Client,
    fleet: Fleet,
}

/// One broker in memory and a client that is ready to use it: what a unit test needs.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let flota = flota_sim::embedded::client().await?;
/// let orders = flota.topic("orders");
/// orders.send("4 apples").await?;
///
/// let mut billing = orders.group("billing").subscribe().await?;
/// let job = billing.next().await.expect("the group reads from the start");
/// assert_eq!(job.body(), b"4 apples");
/// job.done().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// No address on loopback can be had, or the system has no randomness.
///
/// # Panics
///
/// Outside of a tokio runtime, or in one whose I/O or time is not enabled.
pub async fn client() -> Result<OwnedClient, StartError> {
    let fleet = Fleet::start(1)?;
    let client = fleet.client().await?;
    Ok(OwnedClient { client, fleet })
}

impl Fleet {
    /// Starts brokers in memory, at free ports on loopback.
    ///
    /// # Errors
    ///
    /// No address on loopback can be had.
    pub fn start(brokers: usize) -> io::Result<Self> {
        let brokers = (0..brokers).map(|_| Embedded::start(Options::default())).collect::<io::Result<_>>()?;
        Ok(Self { brokers })
    }

    /// Its brokers.
    #[must_use]
    pub fn brokers(&self) -> &[Embedded] {
        &self.brokers
    }

    /// A configuration with exactly these brokers, to add to and [connect](flota_tokio::connect) with.
    #[must_use]
    pub fn config(&self) -> Config {
        Config { brokers: self.brokers.iter().map(|broker| broker.address().into()).collect(), ..Config::default() }
    }

    /// A client that is ready to use every broker that runs.
    ///
    /// # Errors
    ///
    /// There is no broker, or the system has no randomness.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, or in one whose I/O or time is not enabled.
    pub async fn client(&self) -> Result<Client, StartError> {
        let client = flota_tokio::connect(self.config()).await?;
        client.until(|fleet| fleet.iter().all(|broker| broker.ready || broker.unready.is_some())).await?;
        Ok(client)
    }
}

impl OwnedClient {
    /// Its broker.
    #[must_use]
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }
}

impl Deref for OwnedClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Why there is no client.
#[derive(Debug)]
pub enum StartError {
    /// A broker did not start.
    Broker(io::Error),
    /// The client did not.
    Connect(ConnectError),
    /// The client has stopped at once.
    Stopped(Stopped),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broker(why) => why.fmt(f),
            Self::Connect(why) => why.fmt(f),
            Self::Stopped(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Broker(why) => Some(why),
            Self::Connect(why) => Some(why),
            Self::Stopped(why) => Some(why),
        }
    }
}

impl From<io::Error> for StartError {
    fn from(why: io::Error) -> Self {
        Self::Broker(why)
    }
}

impl From<ConnectError> for StartError {
    fn from(why: ConnectError) -> Self {
        Self::Connect(why)
    }
}

impl From<Stopped> for StartError {
    fn from(why: Stopped) -> Self {
        Self::Stopped(why)
    }
}
