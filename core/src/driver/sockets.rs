//! What every runtime does alike with the operating system: the announcement socket, TCP options, the clock.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::io;
use std::net::UdpSocket;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

pub use socket2::SockRef;

use super::client::SocketInfo;
use crate::config::Config;
use crate::time::{Mono, Now, Wall};

#[cfg(test)]
mod tests;

/// A thousand brokers that all speak at once fit several times over, and a process that is late by seconds loses none.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// A connection that carries nothing is tried after this long, then this often, this many times.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEPALIVE_TRIES: u32 = 3;

/// An announcement socket, and what the system says about it.
#[derive(Debug)]
pub struct Announcements {
    /// Bound, nonblocking, allowed to broadcast.
    pub socket: UdpSocket,
    /// To watch it.
    pub gauge: Gauge,
}

impl Announcements {
    /// Binds where the configuration listens; where it only announces, to any port. `None` if it does neither.
    ///
    /// Other processes may listen on the same address. Every one of them hears broadcasts; of datagrams to this host
    /// alone each goes to one of them.
    ///
    /// # Errors
    ///
    /// [`BindError`] with the address.
    pub fn bind(config: &Config) -> Result<Option<Self>, BindError> {
        let address = match (&config.discovery, &config.announce) {
            (Some(discovery), _) => discovery.listen,
            (None, Some(announce)) => any(announce.to.iter().any(SocketAddr::is_ipv6)),
            (None, None) => return Ok(None),
        };
        bind(address).map(Some).map_err(|error| BindError { address, error })
    }
}

fn any(v6: bool) -> SocketAddr {
    SocketAddr::new(if v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) }, 0)
}

fn bind(address: SocketAddr) -> io::Result<Announcements> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    #[cfg(all(unix, not(any(target_os = "solaris", target_os = "illumos"))))]
    socket.set_reuse_port(true)?;
    socket.set_broadcast(true)?;
    // A wish: what was granted is reported, and a small buffer works for a small fleet.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES);
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    let gauge = Gauge { receive_buffer_bytes: socket.recv_buffer_size()?, inode: inode(&socket) };
    Ok(Announcements { socket: socket.into(), gauge })
}

/// The announcement socket cannot be had.
#[derive(Debug)]
pub struct BindError {
    /// Where it was to listen.
    pub address: SocketAddr,
    /// What the system said.
    pub error: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = match self.error.kind() {
            io::ErrorKind::AddrInUse => {
                "another program listens there without sharing the port: stop it, or choose another port for the fleet"
            }
            io::ErrorKind::AddrNotAvailable => {
                "this machine has no such address: listen on 0.0.0.0 with the same port, or on one of its addresses"
            }
            io::ErrorKind::PermissionDenied => "ports below 1024 need privileges: choose a higher one",
            _ => "check the address to listen on",
        };
        write!(f, "cannot listen for announcements on udp {}: {}; {hint}", self.address, self.error)
    }
}

impl core::error::Error for BindError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Watches an announcement socket from outside.
#[derive(Clone, Debug)]
pub struct Gauge {
    receive_buffer_bytes: usize,
    inode: Option<u64>,
}

impl Gauge {
    /// What the system says now.
    #[must_use]
    pub fn read(&self) -> SocketInfo {
        SocketInfo { receive_buffer_bytes: self.receive_buffer_bytes, dropped: self.dropped() }
    }

    /// The socket's own counter would need `recvmsg` with control messages; the system's table says the same.
    fn dropped(&self) -> Option<u64> {
        let inode = self.inode?;
        ["/proc/self/net/udp", "/proc/self/net/udp6"]
            .iter()
            .filter_map(|table| std::fs::read_to_string(table).ok())
            .find_map(|table| drops_in(&table, inode))
    }
}

/// The last column of the row with this inode in the tenth.
fn drops_in(table: &str, inode: u64) -> Option<u64> {
    let row = table.lines().skip(1).find(|row| {
        let found: Option<u64> = row.split_ascii_whitespace().nth(9).and_then(|column| column.parse().ok());
        found == Some(inode)
    })?;
    row.split_ascii_whitespace().nth(12)?.parse().ok()
}

#[cfg(target_os = "linux")]
fn inode(socket: &Socket) -> Option<u64> {
    use std::os::fd::AsRawFd;

    let link = std::fs::read_link(alloc::format!("/proc/self/fd/{}", socket.as_raw_fd())).ok()?;
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(not(target_os = "linux"))]
fn inode(_: &Socket) -> Option<u64> {
    None
}

/// What every connection to a broker is set to: no waiting for fuller segments, and an end to silence. Give it the
/// runtime's own stream.
///
/// # Errors
///
/// When the system refuses to send small segments at once; what it refuses of the rest it does without.
pub fn configure_stream<'s>(stream: impl Into<SockRef<'s>>) -> io::Result<()> {
    let stream = stream.into();
    stream.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY);
    let _ = stream.set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_TRIES));
    // The same patience while something is unacknowledged: keepalive alone does not speak then.
    #[cfg(target_os = "linux")]
    let _ = stream.set_tcp_user_timeout(Some(KEEPALIVE_AFTER + KEEPALIVE_EVERY * KEEPALIVE_TRIES));
    Ok(())
}

/// Reads both clocks.
///
/// On Linux the monotonic one is `CLOCK_BOOTTIME`, which goes on while the machine sleeps: what was held across a
/// suspend must be seen as lapsed. Elsewhere it is the standard library's, which may stand still meanwhile; the brokers'
/// own clocks decide there, one renewal later.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    #[cfg(not(target_os = "linux"))]
    origin: std::time::Instant,
}

#[cfg(target_os = "linux")]
impl Clock {
    /// A clock.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "a clock is started, not defaulted")]
    pub fn new() -> Self {
        Self {}
    }

    /// What it shows.
    #[must_use]
    pub fn now(&self) -> Now {
        use rustix::time::{ClockId, clock_gettime};

        let micros = |id| {
            let time = clock_gettime(id);
            time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1_000)
        };
        Now {
            mono: Mono(u64::try_from(micros(ClockId::Boottime)).unwrap_or(0)),
            wall: Wall(micros(ClockId::Realtime) / 1_000),
        }
    }
}

#[cfg(not(target_os = "linux"))]
#[allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "this is where time comes in")]
impl Clock {
    /// A clock.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "a clock is started, not defaulted")]
    pub fn new() -> Self {
        Self { origin: std::time::Instant::now() }
    }

    /// What it shows.
    #[must_use]
    pub fn now(&self) -> Now {
        use std::time::{SystemTime, UNIX_EPOCH};

        let mono = u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX);
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX));
        Now { mono: Mono(mono), wall: Wall(wall) }
    }
}
