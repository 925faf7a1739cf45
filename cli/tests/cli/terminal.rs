//! What people see on a terminal.

use std::io::Read;
use std::process::Stdio;
use std::time::Instant;

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::{PATIENCE, Redis, flota, free_tcp_port, redis_is_there};

/// Runs a command on a terminal until it has shown all of this, and returns all that it showed.
fn shown(args: &[&str], variables: &[(&str, &str)], wanted: &[&str]) -> String {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let terminal = || open(&*name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let mut command = flota(args);
    command.env_remove("NO_COLOR").envs(variables.iter().copied());
    command.stdin(Stdio::null()).stdout(terminal()).stderr(terminal());
    let mut child = command.spawn().unwrap();
    drop(command);

    let mut screen = std::fs::File::from(controller);
    let begun = Instant::now();
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    while !wanted.iter().all(|wanted| text.contains(wanted)) {
        // Its end closes the terminal, which is an error here.
        let read = screen.read(&mut buffer).unwrap_or(0);
        assert!(read > 0 && begun.elapsed() < PATIENCE, "only this was shown: {text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    text
}

#[test]
fn watch_is_a_table_that_is_drawn_again() {
    if !redis_is_there() {
        return;
    }
    let redis = Redis::start();
    let (ready, closed) = (redis.address(), format!("127.0.0.1:{}", free_tcp_port()));
    let args = ["watch", "--broker", &ready, "--broker", &closed];
    let wanted = ["\u{1b}[32mready\u{1b}[0m", "\u{1b}[31munready\u{1b}[0m", "refused: ", "1 of 2 ready", "\u{1b}[4A"];
    let text = shown(&args, &[], &wanted);
    assert!(text.contains(&ready) && text.contains(&closed), "{text}");
    let plain = shown(&args, &[("NO_COLOR", "1")], &["1 of 2 ready", "unready"]);
    assert!(!plain.contains("\u{1b}[3"), "{plain}");
}

#[test]
fn errors_are_in_colour_and_in_lines() {
    let closed = format!("127.0.0.1:{}", free_tcp_port());
    let args = ["send", "t", "x", "--wait", "0.2", "--broker", &closed];
    shown(&args, &[], &["\u{1b}[31merror:\u{1b}[0m no broker", "\r\n  ", "\u{1b}[32mnext:\u{1b}[0m"]);
}
