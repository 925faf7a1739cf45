//! Real servers on the loopback network, each in a folder of its own.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(dead_code, unused_imports, reason = "not every file of tests uses all of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, fs};

use flota_tokio::config::{Config, Discovery};
use flota_tokio::{Client, connect};

mod proxy;

pub(crate) use proxy::Proxy;

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

/// Longer than anything here takes: what hangs fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it takes too long")
}

/// Waits until the state of something that tells nobody of its changes is as wanted, and fails with the last one seen.
pub(crate) async fn eventually<T: fmt::Debug>(look: impl Fn() -> T, wanted: impl Fn(&T) -> bool) -> T {
    let begun = Instant::now();
    loop {
        let state = look();
        if wanted(&state) {
            return state;
        }
        assert!(begun.elapsed() < PATIENCE, "it stays {state:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A server, without persistence unless its options say otherwise. It ends with this value.
pub(crate) struct Redis {
    pub(crate) address: SocketAddr,
    process: Child,
    folder: PathBuf,
    options: Vec<String>,
}

impl Redis {
    /// Starts one and waits until it says that it is ready.
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// The same with more options.
    pub(crate) fn with(options: &[&str]) -> Self {
        Self::several(1, options).remove(0)
    }

    /// Starts several at once.
    pub(crate) fn several(count: usize, options: &[&str]) -> Vec<Self> {
        let starting: Vec<_> = (0..count).map(|_| Self::spawn(options)).collect();
        starting.into_iter().map(Self::come_up).collect()
    }

    fn spawn(options: &[&str]) -> Self {
        let port = free_tcp_port();
        let folder = std::env::temp_dir().join(format!("flota-redis-{}-{port}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let options: Vec<_> = options.iter().map(|option| (*option).to_string()).collect();
        let process = command(port, &folder, &options).spawn().unwrap();
        Self { address: (Ipv4Addr::LOCALHOST, port).into(), process, folder, options }
    }

    fn come_up(mut self) -> Self {
        self.await_ready();
        self
    }

    fn await_ready(&mut self) {
        let mut lines = BufReader::new(self.process.stdout.take().unwrap()).lines();
        assert!(
            lines.by_ref().map_while(Result::ok).any(|line| line.contains("Ready to accept connections")),
            "the server at {} did not come up",
            self.address
        );
        // What it says later must go somewhere, or it would block.
        std::thread::spawn(move || lines.for_each(drop));
    }

    /// Ends the process without a warning, as a crash does. Its folder stays.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// After [`kill`](Self::kill): another process at the same address, with the same folder.
    pub(crate) fn start_again(&mut self) {
        self.process = command(self.address.port(), &self.folder, &self.options).spawn().unwrap();
        self.await_ready();
    }

    /// A connection of the test's own.
    pub(crate) fn wire(&self) -> Wire {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Wire(BufReader::new(stream))
    }

    /// One command on a connection of its own; see [`Wire::ask`].
    pub(crate) fn ask(&self, words: &[&str]) -> Vec<String> {
        self.wire().ask(words)
    }

    /// The same, for an answer that is a number.
    pub(crate) fn count(&self, words: &[&str]) -> u64 {
        self.ask(words)[0].parse().unwrap()
    }

    /// A field of `INFO`.
    pub(crate) fn info(&self, section: &str, field: &str) -> u64 {
        self.wire().info(section, field)
    }

    /// How many commands it has refused or failed since it started.
    pub(crate) fn failures(&self) -> u64 {
        let text = self.ask(&["INFO", "commandstats"]).remove(0);
        let fields = text.split([',', ':', '\r', '\n']).filter_map(|field| field.split_once('='));
        fields
            .filter(|(name, _)| matches!(*name, "failed_calls" | "rejected_calls"))
            .map(|(_, n)| n.parse::<u64>().unwrap())
            .sum()
    }
}

fn command(port: u16, folder: &Path, options: &[String]) -> Command {
    let mut command = Command::new(program());
    command
        .current_dir(folder)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A connection that asks and waits.
pub(crate) struct Wire(BufReader<TcpStream>);

impl Wire {
    /// The words of the answer, one after the other, however it nests.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Vec<String> {
        let mut text = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| text += &format!("${}\r\n{word}\r\n", word.len()));
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
        let mut answer = Vec::new();
        self.read(&mut answer);
        answer
    }

    pub(crate) fn info(&mut self, section: &str, field: &str) -> u64 {
        let text = self.ask(&["INFO", section]).remove(0);
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
        value.trim().parse().unwrap()
    }

    fn read(&mut self, into: &mut Vec<String>) {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let (kind, rest) = line.trim_end().split_at(1);
        match (kind, rest.parse::<usize>()) {
            ("$", Ok(bytes)) => {
                let mut text = vec![0; bytes + 2];
                self.0.read_exact(&mut text).unwrap();
                into.push(String::from_utf8_lossy(&text[..bytes]).into_owned());
            }
            ("*", Ok(items)) => (0..items).for_each(|_| self.read(into)),
            ("$" | "*", Err(_)) => into.push(String::new()),
            _ => into.push(rest.to_string()),
        }
    }
}

/// The stream of a topic's partition.
pub(crate) fn stream(topic: &str, partition: u32) -> String {
    format!("stream:topic:{topic}:p:{partition}")
}

/// Listens for announcements on this port.
pub(crate) fn discovery(port: u16) -> Config {
    let listen = (Ipv4Addr::UNSPECIFIED, port).into();
    Config { discovery: Some(Discovery { listen, ..Discovery::default() }), ..Config::default() }
}

/// A client of these servers, when all of them can be used.
pub(crate) async fn client_of(servers: &[Redis]) -> Client {
    let addresses = servers.iter().map(|server| server.address.to_string());
    client_with(Config::brokers(addresses).unwrap()).await
}

/// A client whose configured brokers can all be used.
pub(crate) async fn client_with(config: Config) -> Client {
    let brokers = config.brokers.len();
    let client = connect(config).await.unwrap();
    within(client.until(|fleet| fleet.iter().filter(|broker| broker.ready).count() == brokers)).await.unwrap();
    client
}

/// Speaks for a server once in each interval until it is dropped, as the announcer of a broker does.
pub(crate) struct Announcer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    shout: Shout,
    goodbye: String,
}

impl Announcer {
    pub(crate) fn start(server: SocketAddr, port: u16, guid: u32, interval: Duration) -> Self {
        let shout = Shout::to(port);
        let name = format!("imq-broker\t{guid:08x}-0000-4000-8000-000000000000");
        let up = format!("{name}\tup\t{server}\t{}\tplain", interval.as_secs_f32());
        let (stop, stopped) = channel();
        let thread = std::thread::spawn({
            let shout = shout.clone();
            move || {
                loop {
                    shout.say(up.as_bytes());
                    if stopped.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
                        return;
                    }
                }
            }
        });
        Self { stop: Some(stop), thread: Some(thread), shout, goodbye: format!("{name}\tdown\t{server}") }
    }

    /// Says goodbye and nothing more.
    pub(crate) fn down(mut self) {
        self.end();
        self.shout.say(self.goodbye.as_bytes());
    }

    fn end(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reaches everybody who listens on one port of the loopback network.
#[derive(Clone)]
pub(crate) struct Shout(Arc<UdpSocket>, u16);

impl Shout {
    pub(crate) fn to(port: u16) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_broadcast(true).unwrap();
        Self(Arc::new(socket), port)
    }

    pub(crate) fn say(&self, datagram: &[u8]) {
        self.0.send_to(datagram, (Ipv4Addr::new(127, 255, 255, 255), self.1)).unwrap();
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
    let guid = format!("{:08x}-0000-4000-8000-000000000000", server.port());
    Shout::to(port).say(format!("imq-broker\t{guid}\tup\t{server}\t60\tplain").as_bytes());
}
