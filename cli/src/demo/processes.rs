//! Child processes that do not outlive the demo, and the two that are this same program: the guard every child starts
//! through, and the worker.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flota_core::driver::Job;
use flota_tokio::config::{Config, Discovery};
use flota_tokio::connect;
use flota_tokio::op::Retention;
use rustix::process::{Pid, Signal, kill_process};

use super::{Failure, GROUP, TOPIC, fail};

/// A child process. However the demo ends, it ends: dropped, it is killed by its id and waited for; when the demo itself
/// is killed, the system does it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    what: String,
    ended: bool,
}

impl Process {
    /// Starts `program` through this program's own guard. What it writes goes to `log`.
    pub(crate) fn start(
        what: &str,
        program: &Path,
        args: &[String],
        set: &[(&str, &str)],
        log: &Path,
    ) -> Result<Self, Failure> {
        let failed = |why: io::Error| fail(format!("cannot start {what} ({}): {why}", program.display()));
        let output = File::options().create(true).append(true).open(log).map_err(failed)?;
        let errors = output.try_clone().map_err(failed)?;
        let mut command = Command::new(this_program()?);
        command.args(["demo-guard", &std::process::id().to_string(), "--"]).arg(program).args(args);
        // What is set for other programs on this machine must not lead children away from this demo.
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if ["FLOTA_", "REDIS_", "IMQ_"].iter().any(|prefix| name.starts_with(prefix))
                || ["SELECTED_INTERFACES", "DISABLE_CLUSTER_MANAGER"].contains(&name.as_ref())
            {
                command.env_remove(name.as_ref());
            }
        }
        command.envs(set.iter().copied());
        // A pipe nobody writes to: its end tells the child that the demo is gone or wants it to stop.
        command.stdin(Stdio::piped()).stdout(output).stderr(errors);
        // Ctrl-C on the terminal is for the demo alone.
        command.process_group(0);
        let child = command.spawn().map_err(failed)?;
        Ok(Self { child, what: what.to_string(), ended: false })
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten();
        self.ended |= status.is_some();
        status
    }

    /// kill -9, without waiting for its end.
    pub(crate) fn kill(&mut self) -> Result<(), Failure> {
        self.signal(Signal::KILL)
    }

    /// Holds it where it is, until `resume` or `kill`.
    pub(crate) fn freeze(&mut self) -> Result<(), Failure> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on.
    pub(crate) fn resume(&mut self) -> Result<(), Failure> {
        self.signal(Signal::CONT)
    }

    /// Asks it to end.
    pub(crate) fn terminate(&mut self) -> Result<(), Failure> {
        self.signal(Signal::TERM)
    }

    /// Tells a worker to stop: its standard input ends.
    pub(crate) fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits for its end, at most until `deadline`; afterwards it is killed. True when it ended by itself.
    pub(crate) async fn end_by(&mut self, deadline: Instant) -> bool {
        const LOOK_EVERY: Duration = Duration::from_millis(10);
        while self.ended().is_none() {
            if Instant::now() >= deadline {
                self.end();
                return false;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        true
    }

    fn signal(&mut self, signal: Signal) -> Result<(), Failure> {
        // A child that was waited for has no id any more: somebody else may have it.
        if self.ended().is_some() {
            return Err(fail(format!("{} has ended by itself: its log says why", self.what)));
        }
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let id = id.ok_or_else(|| fail(format!("{} has no process id", self.what)))?;
        kill_process(id, signal).map_err(|why| fail(format!("cannot signal {} (process {id:?}): {why}", self.what)))
    }

    fn end(&mut self) {
        if !self.ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
            self.ended = true;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Where this program lies.
pub(crate) fn this_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|why| fail(format!("cannot find this program's own file to start it again: {why}")))
}

/// The guard: from here on the system kills this process when `parent` dies. Then it becomes the program.
///
/// Starting a child that way needs no code between fork and exec, and it works for programs that are not ours.
pub(crate) fn guard(parent: u32, words: &[String]) -> Result<Infallible, Failure> {
    let (program, args) = words.split_first().ok_or_else(|| fail("demo-guard: no program is named"))?;
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getppid, set_parent_process_death_signal};

        set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(|why| fail(format!("cannot tie {program} to the demo that starts it: {why}")))?;
        let now = getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        if i32::try_from(parent) != Ok(now) {
            return Err(fail(format!("the demo (process {parent}) ended before {program} was started")));
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = parent;
    Err(fail(format!("cannot start {program}: {}", Command::new(program).args(args).exec())))
}

/// What a worker is told.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    /// Names its consumers.
    pub(crate) name: String,
    /// Where it listens for announcements.
    pub(crate) listen: SocketAddr,
    /// The fleet's name.
    pub(crate) fleet: String,
    /// Where it writes the id of each message it has handled.
    pub(crate) log: PathBuf,
    /// Messages in hand at most.
    pub(crate) in_flight: u32,
    /// Messages at once.
    pub(crate) concurrency: u32,
    /// What a message costs.
    pub(crate) work: Duration,
    /// Messages of a consumer that has been silent this long are claimed.
    pub(crate) claim_after: Duration,
}

/// How often a worker looks for consumers that have fallen silent.
const CLAIM_PERIOD: Duration = Duration::from_millis(500);

/// A worker: handles messages until its standard input ends.
///
/// Each id is in the log before the message is acknowledged: whoever dies between the two has handled it, and somebody
/// else will again.
pub(crate) async fn work(work: Work) -> Result<(), Failure> {
    let log = File::options().create(true).append(true).open(&work.log);
    let log = Arc::new(log.map_err(|why| fail(format!("cannot write {}: {why}", work.log.display())))?);
    let client = connect(config(work.listen, &work.fleet, &work.name)).await?;
    let group = client
        .topic(TOPIC)
        .group(GROUP)
        .in_flight(work.in_flight)
        .concurrency(work.concurrency)
        .claim_after(work.claim_after)
        .claim_period(CLAIM_PERIOD)
        // So that an outsider can count the streams.
        .retention(Retention::Forever);
    let cost = work.work;
    let run = group.run(move |job: Job| {
        let log = Arc::clone(&log);
        async move {
            tokio::time::sleep(cost).await;
            // One line in one write: a kill leaves no half of it.
            (&*log).write_all(format!("{}\n", job.id()).as_bytes())
        }
    });
    let stopper = run.stopper();
    std::thread::spawn(move || {
        let mut end = [0; 64];
        while io::stdin().read(&mut end).is_ok_and(|n| n > 0) {}
        stopper.stop();
    });
    run.await.map_err(|why| fail(format!("the worker has stopped: {why}")))?;
    // Nothing is in hand any more; what is left is to close connections.
    let _ = client.close(Duration::from_secs(1)).await;
    Ok(())
}

/// A client of the demo's fleet: found by announcements on loopback, and nothing else.
pub(crate) fn config(listen: SocketAddr, fleet: &str, service: &str) -> Config {
    let discovery = Discovery {
        listen,
        name: Some(fleet.to_string()),
        allow: "127.0.0.0/8".parse().into_iter().collect(),
        ..Discovery::default()
    };
    Config { discovery: Some(discovery), service: Some(service.to_string()), ..Config::default() }
}
