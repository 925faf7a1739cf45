//! Real servers on the loopback network, each in a folder of its own.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(dead_code, reason = "not every file of tests uses all of it")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

/// Whether there is a server to test with. Without one the test says so and passes, unless `FLOTA_REQUIRE_REDIS` is set.
pub(crate) fn redis_is_there() -> bool {
    let there = Command::new(program()).arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success());
    if !there {
        assert!(std::env::var_os("FLOTA_REQUIRE_REDIS").is_none(), "{} is not installed", program());
        eprintln!("SKIPPED: {} is not installed", program());
    }
    there
}

fn program() -> String {
    std::env::var("FLOTA_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into())
}

/// A server without persistence. It ends with this value.
pub(crate) struct Redis {
    pub(crate) address: SocketAddr,
    process: Child,
    folder: PathBuf,
}

impl Redis {
    /// Starts one and waits until it says that it is ready.
    pub(crate) fn start() -> Self {
        let port = free_tcp_port();
        let folder = std::env::temp_dir().join(format!("flota-redis-{}-{port}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut process = Command::new(program())
            .current_dir(&folder)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        assert!(
            lines.by_ref().map_while(Result::ok).any(|line| line.contains("Ready to accept connections")),
            "the server on port {port} did not come up"
        );
        // What it says later must go somewhere, or it would block.
        std::thread::spawn(move || lines.for_each(drop));
        Self { address: (Ipv4Addr::LOCALHOST, port).into(), process, folder }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Below the range that the system hands out by itself.
fn ports() -> impl Iterator<Item = u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 10_000) as u16;
    std::iter::repeat_with(move || 20_000 + (first - 20_000 + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000)
}

pub(crate) fn free_tcp_port() -> u16 {
    ports().take(12_000).find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).unwrap()
}

pub(crate) fn free_udp_port() -> u16 {
    ports().take(12_000).find(|port| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok()).unwrap()
}

/// Announces a server once to everybody who listens on this port of the loopback network; it counts for a minute.
pub(crate) fn announce(server: SocketAddr, port: u16) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_broadcast(true).unwrap();
    let guid = format!("{:08x}-0000-4000-8000-000000000000", server.port());
    let datagram = format!("imq-broker\t{guid}\tup\t{server}\t60\tplain");
    socket.send_to(datagram.as_bytes(), (Ipv4Addr::new(127, 255, 255, 255), port)).unwrap();
}
