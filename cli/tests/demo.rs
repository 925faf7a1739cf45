//! The whole demo, once: processes, faults and the account, and an outsider's opinion of it.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Whether there is a server to run. Without one the test says so, or fails where it must not be skipped.
fn server() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["redis-server", "valkey-server"];
    let found = std::env::split_paths(&path).any(|folder| names.iter().any(|name| folder.join(name).is_file()));
    let required = std::env::var("FLOTA_REQUIRE_REDIS").is_ok_and(|value| value == "1");
    assert!(found || !required, "FLOTA_REQUIRE_REDIS=1, and neither redis-server nor valkey-server is in PATH");
    if !found {
        eprintln!("SKIPPED: neither redis-server nor valkey-server is in PATH");
    }
    found
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flota-test-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What a failing test leaves is worth a look.
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

fn flota(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flota")).args(args).stdin(Stdio::null()).output().unwrap()
}

/// Counts with a server of its own choice, or with this one.
fn outsider(folder: &Path, server: Option<&str>) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outsider.py");
    let output = Command::new("python3").arg(script).arg(folder).args(server).output().expect("python3 counts again");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the outsider disagrees: {} {said}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The whole demo, and what an outsider says of it.
fn whole(name: &str, with: &[&str], server: Option<&str>) -> Value {
    // One after another: each of them keeps the machine busy, and what it measures is time.
    static STAGE: Mutex<()> = Mutex::new(());
    let _alone = STAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new(name);
    let output = flota(&[&["demo", "--json", "--keep", folder.0.to_str().unwrap()], with].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}\nleft in {}", output.status, folder.0.display());
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 1, "one object");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();

    let number = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name} in {report}"));
    assert_eq!((number("sent"), number("handled"), number("lost")), (10_000, 10_000, 0));
    assert_eq!(report["brokers"].to_string(), r#"{"added":1,"killed":1,"restarted":1,"started":4}"#);
    assert_eq!(report["workers"].to_string(), r#"{"killed":1,"started":4}"#);
    assert!(number("held") >= 10, "{report}");
    assert!(number("redelivered") <= 500, "{report}");
    assert!(number("joined_ms") <= 1_500, "{report}");
    // Not before the deadline of 6,001 ms: interval, grace and one.
    assert!((6_001..=6_600).contains(&number("evicted_ms")), "{report}");
    // Nobody may claim before two seconds.
    assert!((1_000..=15_000).contains(&number("recovered_ms")), "{report}");
    assert!(report["seconds"].as_f64().unwrap() >= 15.0, "{report}");

    let counted = outsider(&folder.0, server);
    for name in ["sent", "handled", "lost", "redelivered"] {
        assert_eq!(counted[name], report[name], "{name}: {counted} {report}");
    }
    assert_eq!((&counted["brokers"], &counted["workers"]), (&4.into(), &4.into()));
    report
}

#[test]
fn every_message_is_handled_whatever_dies_and_an_outsider_counts_the_same() {
    if server() {
        let report = whole("demo", &[], None);
        assert!(["redis-server", "valkey-server"].contains(&report["server"].as_str().unwrap()), "{report}");
    }
}

#[test]
fn the_same_with_embedded_brokers_whose_logs_and_restarts_agree() {
    let report = whole("embedded", &["--embedded"], Some(env!("CARGO_BIN_EXE_flota")));
    assert_eq!(report["server"], "embedded");
}

#[test]
fn where_no_server_is_installed_the_brokers_are_embedded() {
    let calm = ["demo", "--calm", "--json", "--messages", "100", "--brokers", "2", "--workers", "1"];
    let output = Command::new(env!("CARGO_BIN_EXE_flota")).args(calm).env("PATH", "/nowhere").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["server"], &report["handled"]), (&"embedded".into(), &100.into()));
}

#[test]
fn a_calm_demo_has_nothing_to_recover_from() {
    if !server() {
        return;
    }
    let output = flota(&["demo", "--calm", "--json", "--messages", "500", "--brokers", "2", "--workers", "1"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["sent"], &report["handled"], &report["lost"]), (&500.into(), &500.into(), &0.into()));
    assert_eq!(report["redelivered"], 0);
    assert_eq!(report["joined_ms"], Value::Null);
    assert_eq!(report["brokers"].to_string(), r#"{"added":0,"killed":0,"restarted":0,"started":2}"#);
}

#[test]
fn what_cannot_work_is_said_before_anything_starts() {
    let output = flota(&["demo", "--messages", "10"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--calm"));
    let folder = Folder::new("full");
    std::fs::write(folder.0.join("mine"), "precious").unwrap();
    let output = flota(&["demo", "--keep", folder.0.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(folder.0.join("mine")).unwrap(), "precious");
}

/// Starts a demo, ends it by a signal in the middle of its flow, and answers how it ended and which processes it had.
#[cfg(target_os = "linux")]
fn end_by(signal: &str) -> (u32, ExitStatus, Vec<u32>) {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_flota"))
        .args(["demo", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("sent ")), "messages flow");
    let children = children(&demo);
    assert!(children.len() >= 9, "three brokers, announcers and workers: {children:?}");
    let killed = Command::new("kill").args([signal, &demo.id().to_string()]).status().unwrap();
    assert!(killed.success());
    (demo.id(), demo.wait().unwrap(), children)
}

#[cfg(target_os = "linux")]
fn children(of: &Child) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    all.filter(|process| stat(*process).is_some_and(|(_, parent)| parent == of.id())).collect()
}

/// Gone, or dead and not yet asked after by whoever has inherited it.
#[cfg(target_os = "linux")]
fn is_dead(process: u32) -> bool {
    stat(process).is_none_or(|(state, _)| matches!(state, 'Z' | 'X'))
}

/// A process's state and parent, if there is such a process.
#[cfg(target_os = "linux")]
fn stat(process: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

#[cfg(target_os = "linux")]
#[test]
fn nothing_outlives_a_demo_that_is_interrupted() {
    if !server() {
        return;
    }
    for signal in ["-INT", "-TERM"] {
        let (id, status, children) = end_by(signal);
        assert_eq!(status.code(), Some(130), "{signal}");
        let left: Vec<_> = children.into_iter().filter(|child| !is_dead(*child)).collect();
        assert!(left.is_empty(), "{signal} has left {left:?}");
        assert!(!std::env::temp_dir().join(format!("flota-demo-{id}")).exists(), "{signal} has left its folder");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn nothing_outlives_a_demo_that_is_killed() {
    if !server() {
        return;
    }
    let (id, status, children) = end_by("-KILL");
    assert_eq!(status.code(), None);
    // The system ends them one after another; nobody says when it is through.
    let deadline = Instant::now() + Duration::from_secs(5);
    while !children.iter().all(|child| is_dead(*child)) {
        assert!(Instant::now() < deadline, "left: {children:?}");
        std::thread::yield_now();
    }
    std::fs::remove_dir_all(std::env::temp_dir().join(format!("flota-demo-{id}"))).unwrap();
}
