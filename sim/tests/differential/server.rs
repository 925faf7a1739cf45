//! Real servers: where they are, how one is started, and a connection to it.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;

use crate::wire::{self, Wire};

/// How long a server may take to answer at all.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one waits for a reply before one asks whether it will come: see [`Connection::settle`].
const GLANCE: Duration = Duration::from_millis(50);

/// A kind of server that the model has a profile for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Redis62,
    Redis70,
    Valkey81,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Redis62, Self::Redis70, Self::Valkey81];

    /// As people call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Redis62 => "Redis 6.2",
            Self::Redis70 => "Redis 7.0",
            Self::Valkey81 => "Valkey 8.1",
        }
    }

    /// How `--version` begins.
    fn version(self) -> &'static str {
        match self {
            Self::Redis62 => "Redis server v=6.2.",
            Self::Redis70 => "Redis server v=7.0.",
            Self::Valkey81 => "Valkey server v=8.1.",
        }
    }

    /// The executable: the first in `FLOTA_SERVERS`, one folder per server, or on the path that is of this version.
    pub(crate) fn find(self) -> Option<PathBuf> {
        let names = ["redis-server", "valkey-server"];
        let folders = env::var_os("FLOTA_SERVERS").and_then(|root| fs::read_dir(root).ok()).into_iter().flatten();
        let mut folders: Vec<PathBuf> = folders.filter_map(|entry| Some(entry.ok()?.path())).collect();
        folders.sort();
        folders.extend(env::var_os("PATH").iter().flat_map(env::split_paths));
        let files = folders.iter().flat_map(|folder| names.map(|name| folder.join(name)));
        files.into_iter().find(|file| version_of(file).is_some_and(|text| text.starts_with(self.version())))
    }
}

fn version_of(file: &Path) -> Option<String> {
    let output = if file.is_file() { Command::new(file).arg("--version").output().ok()? } else { return None };
    String::from_utf8(output.stdout).ok()
}

/// A server that runs until this is dropped. It listens on a socket in a folder of its own and keeps nothing on disk.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    folder: PathBuf,
}

impl Server {
    /// Starts one and waits until it says that it accepts connections.
    pub(crate) fn start(executable: &Path, label: &str) -> Self {
        let folder = env::temp_dir().join(format!("flota-diff-{}-{label}", std::process::id()));
        fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("creating {}: {error}", folder.display()));
        let mut child = Command::new(executable)
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--hz", "100", "--loglevel", "notice"])
            .arg("--unixsocket")
            .arg(folder.join("socket"))
            .arg("--dir")
            .arg(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("starting {}: {error}", executable.display()));
        let output = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
        let mut lines = output.lines();
        let ready =
            lines.any(|line| line.is_ok_and(|line| line.to_lowercase().contains("ready to accept connections")));
        assert!(ready, "{} ended before it was ready", executable.display());
        let server = Self { child, folder };
        // Nobody reads its output from here on.
        server.connect().ask(&["CONFIG", "SET", "loglevel", "warning"]);
        server
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Connection {
        let socket = self.folder.join("socket");
        let stream = UnixStream::connect(&socket).unwrap_or_else(|error| panic!("connecting to {socket:?}: {error}"));
        stream.set_read_timeout(Some(GLANCE)).expect("a timeout above zero");
        Connection { stream, buffer: Vec::new(), asynchronous: false }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Why no reply came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoReply {
    /// The server closed the connection.
    Closed,
    /// It said nothing.
    Silent,
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    buffer: Vec<u8>,
    asynchronous: bool,
}

impl Connection {
    /// Sends a command. A connection that the server has closed says so at the next read.
    pub(crate) fn send(&mut self, args: &[Bytes]) {
        self.set_asynchronous(false);
        let _ = self.stream.write_all(&wire::command(args));
    }

    /// The next reply; waits for a moment.
    pub(crate) fn read_soon(&mut self) -> Result<Wire, NoReply> {
        self.set_asynchronous(false);
        self.next()
    }

    /// The next reply; waits for it.
    pub(crate) fn read(&mut self) -> Result<Wire, NoReply> {
        let attempts = PATIENCE.as_millis() / GLANCE.as_millis();
        let replies = (0..attempts).map(|_| self.read_soon());
        replies.into_iter().find(|reply| *reply != Err(NoReply::Silent)).unwrap_or(Err(NoReply::Silent))
    }

    /// The next reply that is already here.
    pub(crate) fn read_now(&mut self) -> Result<Wire, NoReply> {
        self.set_asynchronous(true);
        self.next()
    }

    /// Sends a command and waits for the reply.
    pub(crate) fn ask(&mut self, args: &[&str]) -> Wire {
        let args: Vec<Bytes> = args.iter().map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect();
        self.send(&args);
        self.read().unwrap_or_else(|error| panic!("{args:?} was answered with: {error:?}"))
    }

    /// Returns when the server has done all it had to do: what another connection sent before has been read, executed
    /// and answered. The server may write replies of one round in any order, so it takes two rounds.
    pub(crate) fn settle(&mut self) {
        for _ in 0..2 {
            self.ask(&["PING"]);
        }
    }

    fn next(&mut self) -> Result<Wire, NoReply> {
        loop {
            if let Some((wire, length)) = wire::parse(&self.buffer).expect("a server speaks RESP") {
                self.buffer.drain(..length);
                return Ok(wire);
            }
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(NoReply::Closed),
                Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(NoReply::Silent);
                }
                Err(_) => return Err(NoReply::Closed),
            }
        }
    }

    fn set_asynchronous(&mut self, yes: bool) {
        if self.asynchronous != yes {
            self.stream.set_nonblocking(yes).expect("a socket takes the option");
            self.asynchronous = yes;
        }
    }
}
