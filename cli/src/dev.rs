//! `flota dev`: brokers inside of this program, announced on this machine, for development without a server.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flota_core::announce::Transport;
use flota_core::config::Announce;
use flota_sim::embedded::{Embedded, Options};
use flota_tokio::Client;
use serde::Serialize;

use crate::announce;
use crate::args::DevArgs;
use crate::demo::Ports;
use crate::error::{End, Failure, Outcome};
use crate::output;
use crate::signal::Signals;

/// How many brokers when nothing is said and none are there.
const BROKERS: u16 = 3;
/// As announcers have it.
const INTERVAL: Duration = Duration::from_secs(1);
/// A port that was free may be taken before the broker has it.
const TRIES: u32 = 5;
/// How often to look whether a broker has ended by itself, for want of disk.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// In a broker's folder: where it listened.
const ADDRESS: &str = "address";

/// A line of `--json`.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    Listening {
        address: SocketAddr,
        #[serde(skip_serializing_if = "Option::is_none")]
        dir: Option<&'a Path>,
        /// Changes that were read from its log.
        #[serde(skip_serializing_if = "Option::is_none")]
        replayed: Option<u64>,
    },
    Announced {
        to: SocketAddr,
        name: &'a str,
    },
}

/// A broker and who speaks for it.
struct Member {
    broker: Embedded,
    announcer: Client,
}

pub(crate) async fn run(args: &DevArgs) -> Outcome {
    let mut signals = Signals::new()?;
    let mut members = Vec::new();
    let end = tokio::select! {
        // Nothing may be left half done when a signal comes: members are stopped below.
        result = serve(args, &mut members) => result.map(|never| match never {}),
        end = signals.next() => Ok(end),
    };
    // All `down`s before the first broker goes: nobody is sent to one that is about to go, too.
    let goodbye = |member: &Member| tokio::spawn(member.announcer.clone().close(announce::CLOSE));
    for said in members.iter().map(goodbye).collect::<Vec<_>>() {
        // It is over in any case: a broker whose goodbye is lost expires.
        let _ = said.await;
    }
    let stopped = members.into_iter().map(|member| member.broker.stop()).collect::<Vec<_>>();
    let end = end?;
    for result in stopped {
        result.map_err(|why| failed(&why))?;
    }
    Ok(end)
}

/// Starts the brokers; after that it only ends when one of them does.
async fn serve(args: &DevArgs, members: &mut Vec<Member>) -> Result<std::convert::Infallible, Failure> {
    let name = announce::fleet_name(args.name.as_deref());
    let mut ports = Ports::new();
    for number in 1..=count(args)? {
        let folder = args.dir.as_deref().map(|dir| dir.join(format!("broker-{number}")));
        let broker = match &folder {
            Some(folder) => kept(folder, &mut ports).await?,
            None => fresh(None, &mut ports).await?,
        };
        tell(args, &broker, folder.as_deref())?;
        let what = Announce {
            name: name.clone(),
            advertise: broker.address().into(),
            interval: INTERVAL,
            to: vec![args.to],
            transport: Transport::Plain,
        };
        let announcer = announce::start(broker.address().into(), None, what).await?;
        crate::logs::follow(announcer.events());
        members.push(Member { broker, announcer });
    }
    if args.json {
        output::json(&Event::Announced { to: args.to, name: &name })?;
    } else {
        output::line(&format!("announced to {} as {name:?}; `flota watch` shows them, Ctrl-C ends them", args.to))?;
    }
    loop {
        if let Some(index) = members.iter().position(|member| !member.broker.is_running()) {
            let member = members.remove(index);
            // There is nobody to speak for any more, and the failure says more than this could.
            let _ = member.announcer.close(announce::CLOSE).await;
            let address = member.broker.address();
            let why = member.broker.stop().err();
            let why = why.map_or_else(|| failed(&io::Error::other("it has ended")), |why| failed(&why));
            return Err(why.detail(format!("the broker at {address}")));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// How many brokers to start.
fn count(args: &DevArgs) -> Result<u16, Failure> {
    let there = match &args.dir {
        Some(dir) => (1..=u16::MAX).take_while(|number| dir.join(format!("broker-{number}")).is_dir()).last(),
        None => None,
    };
    match (args.brokers, there) {
        (Some(wanted), Some(there)) if wanted < there => {
            let dir = args.dir.as_deref().unwrap_or(Path::new("")).display();
            Err(Failure::usage(format!("{dir} has {there} brokers with data, and --brokers {wanted} would hide some"))
                .hint("leave --brokers out, or name another folder"))
        }
        (wanted, there) => Ok(wanted.or(there).unwrap_or(BROKERS)),
    }
}

/// A broker with a folder, at the address that it had before.
async fn kept(folder: &Path, ports: &mut Ports) -> Result<Embedded, Failure> {
    let file = folder.join(ADDRESS);
    match fs::read_to_string(&file) {
        Ok(text) => {
            let address = text.trim().parse().map_err(|_| {
                Failure::new("dev", format!("{} does not hold an address: {text:?}", file.display()))
                    .hint("write ADDR:PORT there, or remove the file for a new address")
            })?;
            let hint = format!(
                "is `flota dev` running on this folder already? To let the broker have another address, remove {}",
                file.display()
            );
            let options = Options { address, dir: Some(folder.to_path_buf()), ..Options::default() };
            start(options).await.map_err(|why| match why.kind() {
                io::ErrorKind::AddrInUse => failed(&why).hint(hint),
                _ => failed(&why),
            })
        }
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            let broker = fresh(Some(folder.to_path_buf()), ports).await?;
            fs::write(&file, format!("{}\n", broker.address()))
                .map_err(|why| Failure::io(format!("cannot write {}", file.display()), &why))?;
            Ok(broker)
        }
        Err(why) => Err(Failure::io(format!("cannot read {}", file.display()), &why)),
    }
}

/// A broker at a new address.
async fn fresh(dir: Option<PathBuf>, ports: &mut Ports) -> Result<Embedded, Failure> {
    let mut tries = 0;
    loop {
        tries += 1;
        let address = SocketAddr::from(([127, 0, 0, 1], ports.next()?));
        match start(Options { address, dir: dir.clone(), ..Options::default() }).await {
            Err(why) if why.kind() == io::ErrorKind::AddrInUse && tries < TRIES => {}
            result => return result.map_err(|why| failed(&why)),
        }
    }
}

/// Reading a long log takes a while.
async fn start(options: Options) -> io::Result<Embedded> {
    tokio::task::spawn_blocking(|| Embedded::start(options)).await.map_err(io::Error::other)?
}

fn tell(args: &DevArgs, broker: &Embedded, dir: Option<&Path>) -> Result<(), Failure> {
    let (address, replayed) = (broker.address(), broker.replayed());
    if broker.torn() > 0 {
        tracing::warn!(
            "{address}: an unfinished change at the end of its log was cut off ({} bytes); it was never answered",
            broker.torn()
        );
    }
    if args.json {
        return output::json(&Event::Listening { address, dir, replayed: dir.map(|_| replayed) });
    }
    let data = match dir {
        Some(dir) => format!(", data in {} ({replayed} changes read)", dir.display()),
        None => String::new(),
    };
    output::line(&format!("listening on {address}{data}"))
}

fn failed(why: &io::Error) -> Failure {
    Failure::new("dev", why.to_string())
}

/// A broker of `flota demo`: for the demo only. It runs until it is told to stop.
pub(crate) async fn one(options: Options) -> Outcome {
    let mut signals = Signals::new()?;
    let broker = start(options).await.map_err(|why| failed(&why))?;
    if broker.torn() > 0 {
        tracing::warn!("an unfinished change at the end of the log was cut off ({} bytes)", broker.torn());
    }
    let ended = async {
        while broker.is_running() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        _ = signals.next() => {}
        () = ended => {}
    }
    broker.stop().map_err(|why| failed(&why))?;
    Ok(End::Done)
}
