//! Brokers: a server each, stock or this program's own, and the announcer that speaks for it.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::processes::{Process, this_program};
use super::{Failure, fail};

/// How long a server may take to answer after its start; with data it reads its log first.
const START: Duration = Duration::from_secs(10);
/// How often a starting server is asked.
const ASK_EVERY: Duration = Duration::from_millis(10);
/// A port that was free may be taken before the server has it.
const TRIES: u32 = 5;

/// What serves a broker.
#[derive(Clone, Debug)]
pub(crate) enum Server {
    /// A stock server.
    Installed(PathBuf),
    /// A model of one, inside of this program.
    Embedded,
}

impl Server {
    /// A stock server if one is in PATH, unless it is not wanted.
    pub(crate) fn pick(embedded: bool) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let installed = ["redis-server", "valkey-server"]
            .iter()
            .flat_map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name)))
            .find(|file| is_program(file));
        match installed {
            Some(program) if !embedded => Self::Installed(program),
            _ => Self::Embedded,
        }
    }

    /// What people call it.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Installed(program) => program.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            Self::Embedded => "embedded".to_string(),
        }
    }

    /// The program that listens on `address` with the data in `data`, each change on the disk before it is answered.
    fn command(&self, address: SocketAddr, data: &Path) -> Result<(PathBuf, Vec<String>), Failure> {
        let (address, ip, port) = (address.to_string(), address.ip().to_string(), address.port().to_string());
        let data = data.display().to_string();
        let (program, args): (_, &[&str]) = match self {
            Self::Installed(program) => (
                program.clone(),
                &[
                    "--bind",
                    &ip,
                    "--port",
                    &port,
                    "--dir",
                    &data,
                    "--appendonly",
                    "yes",
                    "--appendfsync",
                    "always",
                    "--save",
                    "",
                    "--daemonize",
                    "no",
                ],
            ),
            Self::Embedded => (this_program()?, &["demo-broker", "--listen", &address, "--dir", &data]),
        };
        Ok((program, args.iter().map(|word| (*word).to_string()).collect()))
    }
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;

    fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Where the fleet of this demo is announced: the loopback network's broadcast address, heard by every listener on this
/// machine and by nobody else.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Where announcers send.
    pub(crate) to: SocketAddr,
    /// Where processes listen.
    pub(crate) listen: SocketAddr,
    /// The fleet's name: two demos that chose one port at the same moment do not hear each other.
    pub(crate) name: String,
}

impl Segment {
    /// Picks a free port.
    pub(crate) fn pick(ports: &mut Ports) -> Result<Self, Failure> {
        let port = ports.next()?;
        let to = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 255, 255, 255)), port);
        // On Linux a socket bound to the broadcast address hears broadcasts only: nothing from other machines gets in.
        let listen =
            if cfg!(target_os = "linux") { to } else { SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port) };
        Ok(Self { to, listen, name: format!("flota-demo-{}", std::process::id()) })
    }
}

/// Free ports below those that the system gives to outgoing connections.
#[derive(Debug)]
pub(crate) struct Ports {
    next: u16,
}

impl Ports {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;

    /// Starts at a place of this process's own, so that two demos rarely try the same one.
    pub(crate) fn new() -> Self {
        let offset = std::process::id().wrapping_mul(97) % u32::from(Self::COUNT);
        Self { next: Self::FIRST + u16::try_from(offset).unwrap_or(0) }
    }

    pub(crate) fn next(&mut self) -> Result<u16, Failure> {
        for _ in 0..Self::COUNT {
            let port = self.next;
            self.next = if port + 1 == Self::FIRST + Self::COUNT { Self::FIRST } else { port + 1 };
            let at = (Ipv4Addr::LOCALHOST, port);
            if TcpListener::bind(at).is_ok() && UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
                return Ok(port);
            }
        }
        Err(fail(format!(
            "no free port from {} to {} on 127.0.0.1: is something else using them all?",
            Self::FIRST,
            Self::FIRST + Self::COUNT - 1
        )))
    }
}

/// One broker: its data, its address, and the processes that run at the moment.
pub(crate) struct Broker {
    /// From 1.
    pub(crate) number: usize,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    folder: PathBuf,
    kind: Server,
    segment: Segment,
    server: Option<Process>,
    announcer: Option<Process>,
}

impl Broker {
    /// Starts a server without data and waits until it answers. Nobody knows of it before [`announce`](Self::announce).
    pub(crate) async fn start(
        number: usize,
        kind: &Server,
        folder: &Path,
        segment: &Segment,
        ports: &mut Ports,
    ) -> Result<Self, Failure> {
        let data = folder.join(data_folder(number));
        fs::create_dir(&data).map_err(|why| fail(format!("cannot make {}: {why}", data.display())))?;
        let mut tries = 0;
        loop {
            let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), ports.next()?);
            let mut broker = Self {
                number,
                address,
                folder: folder.to_path_buf(),
                kind: kind.clone(),
                segment: segment.clone(),
                server: None,
                announcer: None,
            };
            tries += 1;
            match broker.serve().await {
                Ok(()) => return Ok(broker),
                Err(_) if tries < TRIES => {}
                Err(why) => return Err(why),
            }
        }
    }

    /// Starts the server on its address, with the data it has, and waits until it answers.
    pub(crate) async fn serve(&mut self) -> Result<(), Failure> {
        let data = self.folder.join(data_folder(self.number));
        let log = self.folder.join(format!("broker-{}.log", self.number));
        let (program, args) = self.kind.command(self.address, &data)?;
        let mut server = Process::start(&self.to_string(), &program, &args, &[], &log)?;
        let deadline = Instant::now() + START;
        loop {
            if let Some(status) = server.ended() {
                return Err(fail(format!(
                    "{self} ended at its start ({status}); {} says: {}",
                    log.display(),
                    tail(&log)
                )));
            }
            if answers(self.address).await {
                self.server = Some(server);
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(fail(format!("{self} has not answered within {START:?}; see {}", log.display())));
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// Starts its announcer.
    pub(crate) fn announce(&mut self) -> Result<(), Failure> {
        let address = self.address.to_string();
        let args = ["announce", "--redis", &address, "--advertise", &address, "--to", &self.segment.to.to_string()]
            .map(String::from);
        let log = self.folder.join(format!("announcer-{}.log", self.number));
        let set = [("REDIS_BROADCAST_NAME", self.segment.name.as_str())];
        let what = format!("the announcer of {self}");
        self.announcer = Some(Process::start(&what, &this_program()?, &args, &set, &log)?);
        Ok(())
    }

    /// Both processes at once by SIGKILL, as when the machine dies: nobody says goodbye.
    pub(crate) fn die(&mut self) -> Result<(), Failure> {
        // The announcer first: it would see the server go and say `down`.
        for mut process in [self.announcer.take(), self.server.take()].into_iter().flatten() {
            process.kill()?;
        }
        Ok(())
    }

    /// The end of the demo: the announcer says goodbye, the server writes what it has.
    pub(crate) async fn stop(&mut self, deadline: Instant) {
        for mut process in [self.announcer.take(), self.server.take()].into_iter().flatten() {
            if process.terminate().is_ok() {
                process.end_by(deadline).await;
            }
        }
    }
}

impl fmt::Display for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broker {} at {}", self.number, self.address)
    }
}

/// The name of a broker's data folder.
pub(crate) fn data_folder(number: usize) -> String {
    format!("broker-{number}")
}

/// Whether a server there answers and has read its data.
async fn answers(address: SocketAddr) -> bool {
    const PATIENCE: Duration = Duration::from_secs(1);
    let ask = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        stream.write_all(b"*1\r\n$4\r\nPING\r\n").await.ok()?;
        let mut answer = [0; 7];
        stream.read_exact(&mut answer).await.ok()?;
        (&answer == b"+PONG\r\n").then_some(())
    };
    matches!(tokio::time::timeout(PATIENCE, ask).await, Ok(Some(())))
}

/// The last line of a log.
fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing").to_string()
}
