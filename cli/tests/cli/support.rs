//! Processes: servers and `flota` itself, each ended by its id, and waiting for what they say.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longer than anything here takes: what hangs fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

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

/// A folder that goes with this value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let name = format!("flota-cli-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server without persistence. It ends with this value.
pub(crate) struct Redis {
    pub(crate) address: SocketAddr,
    process: Child,
    _folder: Folder,
}

impl Redis {
    pub(crate) fn start() -> Self {
        Self::with(free_tcp_port(), &[])
    }

    /// Starts one with more options and waits until it says that it is ready.
    pub(crate) fn with(port: u16, options: &[&str]) -> Self {
        let folder = Folder::new();
        let mut process = Command::new(program())
            .current_dir(folder.path())
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        assert!(
            lines.by_ref().map_while(Result::ok).any(|line| line.contains("Ready to accept connections")),
            "the server on port {port} did not come up"
        );
        // What it says later must go somewhere, or it would block.
        thread::spawn(move || lines.for_each(drop));
        Self { address: (Ipv4Addr::LOCALHOST, port).into(), process, _folder: folder }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Asks it something; an array's items are joined by spaces, nested ones as well.
    pub(crate) fn ask(&self, words: &[&str]) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| command.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        stream.write_all(command.as_bytes()).unwrap();
        reply(&mut BufReader::new(stream))
    }

    /// How many entries of a topic's first partition the group has not finished.
    pub(crate) fn pending(&self, topic: &str, group: &str) -> u64 {
        let summary = self.ask(&["XPENDING", &stream_of(topic), group]);
        // An unknown stream or group has nothing pending.
        summary.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// The names and counters of a group's consumers.
    pub(crate) fn consumers(&self, topic: &str, group: &str) -> String {
        self.ask(&["XINFO", "CONSUMERS", &stream_of(topic), group])
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn stream_of(topic: &str) -> String {
    format!("stream:topic:{topic}:p:0")
}

fn reply(input: &mut impl BufRead) -> String {
    let mut line = String::new();
    input.read_line(&mut line).unwrap();
    let (kind, rest) = line.trim_end().split_at(1);
    match kind {
        "$" => match rest.parse::<usize>() {
            Ok(bytes) => {
                let mut text = vec![0; bytes + 2];
                input.read_exact(&mut text).unwrap();
                String::from_utf8_lossy(&text[..bytes]).into_owned()
            }
            Err(_) => String::new(),
        },
        "*" => {
            let items = rest.parse::<usize>().unwrap_or(0);
            (0..items).map(|_| reply(input)).collect::<Vec<_>>().join(" ")
        }
        _ => rest.to_string(),
    }
}

/// Below the range that the system hands out by itself.
fn ports() -> impl Iterator<Item = u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 12_000).unwrap();
    std::iter::repeat_with(move || 20_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000)
}

pub(crate) fn free_tcp_port() -> u16 {
    ports().take(12_000).find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).unwrap()
}

pub(crate) fn free_udp_port() -> u16 {
    ports().take(12_000).find(|port| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok()).unwrap()
}

/// Where everybody on the loopback network hears it.
pub(crate) fn everybody(port: u16) -> String {
    format!("127.255.255.255:{port}")
}

/// Sends one datagram to everybody who listens on this port.
pub(crate) fn shout(port: u16, datagram: &str) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_broadcast(true).unwrap();
    socket.send_to(datagram.as_bytes(), everybody(port)).unwrap();
}

/// An announcement of this server that counts for `seconds` and a grace of five.
pub(crate) fn up(server: SocketAddr, seconds: u64) -> String {
    format!("imq-broker\t{:08x}-0000-4000-8000-000000000000\tup\t{server}\t{seconds}\tplain", server.port())
}

/// A command with nothing of ours in its environment.
pub(crate) fn flota(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flota"));
    for (name, _) in std::env::vars() {
        if ["FLOTA_", "REDIS_", "IMQ_", "SELECTED_", "DISABLE_"].iter().any(|ours| name.starts_with(ours)) {
            command.env_remove(name);
        }
    }
    command.env_remove("RUST_LOG").args(args);
    command
}

/// What a command said, and how it ended.
pub(crate) struct Said {
    pub(crate) status: ExitStatus,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.out.clone()).unwrap()
    }

    pub(crate) fn json(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn succeeded(self) -> Self {
        assert_eq!(self.code(), 0, "{self:?}");
        self
    }
}

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let out = String::from_utf8_lossy(&self.out);
        write!(f, "{}\n--- out\n{}\n--- err\n{}", self.status, &out[..out.len().min(4_000)], self.err)
    }
}

/// Runs a command to its end.
pub(crate) fn run(args: &[&str], input: &[u8]) -> Said {
    let mut child = flota(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = thread::spawn(move || {
        // It need not read what it is given.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Said { status: output.status, out: output.stdout, err: String::from_utf8_lossy(&output.stderr).into_owned() }
}

/// A command that is running. It is killed with this value.
pub(crate) struct Running {
    child: Child,
    out: Lines,
    err: Lines,
}

impl Running {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::of(flota(args))
    }

    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (Lines::of(child.stdout.take().unwrap()), Lines::of(child.stderr.take().unwrap()));
        Self { child, out, err }
    }

    /// The first JSON object on its standard output that is as wanted.
    pub(crate) fn until(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let object = |line: &str| serde_json::from_str(line).ok().filter(|value| wanted(value));
        self.out.until(&self.err, object)
    }

    /// The first line on its standard error that contains this.
    pub(crate) fn until_said(&self, what: &str) -> String {
        self.err.until(&self.out, |line| line.contains(what).then(|| line.to_string()))
    }

    /// Everything on its standard output so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.out.shared.0.lock().unwrap().lines.clone()
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Waits for its end and all it had to say.
    pub(crate) fn ended(mut self) -> Said {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end: {:?} {:?}", self.out, self.err);
            thread::sleep(Duration::from_millis(5));
        };
        let (out, err) = (self.out.all(), self.err.all());
        Said { status, out: out.into_bytes(), err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lines as a process says them.
struct Lines {
    shared: Arc<(Mutex<Read_>, Condvar)>,
}

#[derive(Default)]
struct Read_ {
    lines: Vec<String>,
    ended: bool,
}

impl Lines {
    fn of(stream: impl Read + Send + 'static) -> Self {
        let shared = Arc::new((Mutex::new(Read_::default()), Condvar::new()));
        let writer = Arc::clone(&shared);
        thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                writer.0.lock().unwrap().lines.push(String::from_utf8_lossy(&line).into_owned());
                writer.1.notify_all();
            }
            writer.0.lock().unwrap().ended = true;
            writer.1.notify_all();
        });
        Self { shared }
    }

    fn until<T>(&self, other: &Self, wanted: impl Fn(&str) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = 0;
        let mut read = self.shared.0.lock().unwrap();
        loop {
            while let Some(line) = read.lines.get(seen) {
                seen += 1;
                if let Some(found) = wanted(line) {
                    return found;
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero() && !read.ended, "never said among {:?}; elsewhere {other:?}", read.lines);
            read = self.shared.1.wait_timeout(read, left).unwrap().0;
        }
    }

    /// Once its process has ended, and with it whoever inherited the stream.
    fn all(&self) -> String {
        let ended = self.shared.1.wait_timeout_while(self.shared.0.lock().unwrap(), PATIENCE, |read| !read.ended);
        let (read, late) = ended.unwrap();
        assert!(!late.timed_out(), "somebody holds the stream open: {:?}", read.lines);
        read.lines.iter().fold(String::new(), |all, line| all + line + "\n")
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.shared.0.lock().unwrap().lines).finish()
    }
}

/// Waits until a state is as wanted, and fails with the last one seen.
pub(crate) fn eventually<T: fmt::Debug>(look: impl Fn() -> T, wanted: impl Fn(&T) -> bool) -> T {
    let begun = Instant::now();
    loop {
        let state = look();
        if wanted(&state) {
            return state;
        }
        assert!(begun.elapsed() < PATIENCE, "it stays {state:?}");
        thread::sleep(Duration::from_millis(10));
    }
}
