//! A command for one message: what it is told, how it ends, and that nothing of it stays.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use flota_core::driver::Job;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};
use tokio::time::timeout;

use crate::output::one_line;

/// Taken away from commands: what they print or start shall not carry them on.
const SECRETS: [&str; 3] = ["FLOTA_USER", "FLOTA_PASSWORD", "REDISCLI_AUTH"];
/// Only set where a message has them: those of whoever started this process are not theirs.
const OPTIONAL: [&str; 2] = ["FLOTA_KEY", "FLOTA_FENCE"];
const HEADER: &str = "FLOTA_HEADER_";
/// Something that outlives a command may hold its standard error open: what it has said by then is enough.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// The last line becomes the reason of a retry, which is kept beside the message.
const REASON_BYTES: usize = 500;

/// What to run, and for how long at most.
#[derive(Debug)]
pub(crate) struct Exec {
    command: OsString,
    timeout: Duration,
    /// Standard output is for this process alone.
    quiet: bool,
    /// Variables of ours that no command may see.
    unset: Vec<OsString>,
}

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// With status 0.
    Done,
    /// In any other way.
    Failed {
        /// Its status, if it had one.
        code: Option<i32>,
        /// For the retry.
        reason: String,
    },
}

impl Exit {
    pub(crate) fn code(&self) -> Option<i32> {
        match self {
            Self::Done => Some(0),
            Self::Failed { code, .. } => *code,
        }
    }
}

impl Exec {
    /// `quiet` sends what commands print to standard error.
    pub(crate) fn new(command: &OsStr, timeout: Duration, quiet: bool) -> Self {
        let inherited = std::env::vars_os().map(|(name, _)| name);
        let headers = inherited.filter(|name| name.as_bytes().starts_with(HEADER.as_bytes()));
        let unset = SECRETS.iter().chain(&OPTIONAL).map(Into::into).chain(headers).collect();
        Self { command: command.to_os_string(), timeout, quiet, unset }
    }

    /// Runs it for one message. Dropped before it has ended, it kills it and all that it started.
    pub(crate) async fn run(&self, job: &Job, broker: &str) -> Exit {
        let mut child = match self.command(job, broker).spawn() {
            Ok(child) => child,
            Err(error) => return failed(None, format!("cannot start sh: {error}")),
        };
        let mut group = ProcessGroup::of(&child);
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let mut last_line = Vec::new();
        let status = timeout(self.timeout, async {
            let ended = async {
                let status = child.wait().await;
                // Its id may be somebody else's from now on.
                group.forget();
                status
            };
            let talk = async {
                tokio::join!(feed(stdin, job.body()), listen(stderr, &mut last_line));
            };
            tokio::pin!(ended, talk);
            let mut talking = true;
            let status = loop {
                tokio::select! {
                    status = &mut ended => break status,
                    () = &mut talk, if talking => talking = false,
                }
            };
            if talking {
                let _ = timeout(LAST_WORDS, talk).await;
            }
            status
        });
        match status.await {
            Ok(Ok(status)) => exit(status, &last_line),
            Ok(Err(error)) => failed(None, format!("cannot wait for sh: {error}")),
            Err(_) => {
                group.kill();
                let _ = child.wait().await;
                group.forget();
                failed(None, format!("killed after {} s", self.timeout.as_secs_f64()))
            }
        }
    }

    fn command(&self, job: &Job, broker: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(&self.command);
        for name in &self.unset {
            command.env_remove(name);
        }
        let numbers = [
            ("FLOTA_ENTRY", job.entry().to_string()),
            ("FLOTA_PARTITION", job.partition().to_string()),
            ("FLOTA_ATTEMPT", job.attempt().to_string()),
            ("FLOTA_DELIVERIES", job.deliveries().to_string()),
        ];
        command.envs(numbers);
        for (name, value) in [("FLOTA_ID", job.id()), ("FLOTA_TOPIC", job.topic()), ("FLOTA_GROUP", job.group())] {
            command.env(name, value);
        }
        command.env("FLOTA_BROKER", broker);
        if let Some(key) = job.key() {
            set(&mut command, "FLOTA_KEY", key);
        }
        for (name, value) in job.headers() {
            set(&mut command, &variable_of(name), value);
        }
        let stdout = if self.quiet { io::stderr().into() } else { Stdio::inherit() };
        command.stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::piped());
        // A group of its own: it does not end with Ctrl-C, and it can be killed whole.
        command.process_group(0);
        command
    }
}

/// No variable can hold a zero byte: what cannot be said is not said.
fn set(command: &mut Command, name: &str, value: &[u8]) {
    if !value.contains(&0) {
        command.env(name, OsStr::from_bytes(value));
    }
}

/// `content-type` is told as `FLOTA_HEADER_CONTENT_TYPE`.
fn variable_of(header: &str) -> String {
    let upper = header.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
    HEADER.chars().chain(upper).collect()
}

/// A command need not read what it is given.
async fn feed(stdin: Option<ChildStdin>, body: &[u8]) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(body).await;
        let _ = stdin.shutdown().await;
    }
}

/// Passes on what a command says, and keeps the last line that is not blank.
async fn listen(stderr: Option<ChildStderr>, last_line: &mut Vec<u8>) {
    let Some(stderr) = stderr else { return };
    let mut lines = BufReader::new(stderr);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
        // Whoever closed our standard error does not read it.
        let _ = io::Write::write_all(&mut io::stderr(), &line);
        if !line.trim_ascii().is_empty() {
            std::mem::swap(last_line, &mut line);
        }
        line.clear();
    }
}

fn exit(status: ExitStatus, last_line: &[u8]) -> Exit {
    if status.success() {
        return Exit::Done;
    }
    let mut reason = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended without a status".to_string(),
    };
    let line = String::from_utf8_lossy(last_line);
    let line = one_line(line.trim());
    if !line.is_empty() {
        let cut = (0..=REASON_BYTES.min(line.len())).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
        reason.push_str(": ");
        reason.push_str(line.get(..cut).unwrap_or_default());
    }
    failed(status.code(), reason)
}

fn failed(code: Option<i32>, reason: String) -> Exit {
    Exit::Failed { code, reason }
}

/// A command and whatever it started, as long as it has not ended.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    fn kill(&self) {
        if let Some(leader) = self.0 {
            // It has ended by itself: nothing is left to kill.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }

    fn forget(&mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_names_become_variables() {
        assert_eq!(variable_of("content-type"), "FLOTA_HEADER_CONTENT_TYPE");
        assert_eq!(variable_of("größe.2"), "FLOTA_HEADER_GR__E_2");
    }

    #[test]
    fn the_reason_is_the_status_and_the_last_words() {
        let reason = |raw, line: &[u8]| match exit(ExitStatus::from_raw(raw), line) {
            Exit::Failed { reason, .. } => reason,
            Exit::Done => "done".to_string(),
        };
        assert_eq!(reason(0, b"noise\n"), "done");
        assert_eq!(reason(3 << 8, b"no such order\n"), "exit status 3: no such order");
        assert_eq!(reason(3 << 8, b""), "exit status 3");
        assert_eq!(reason(9, b""), "killed by signal 9");
        assert_eq!(reason(1 << 8, "ü".repeat(400).as_bytes()).len(), "exit status 1: ".len() + 500);
    }
}
