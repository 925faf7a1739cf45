//! Consumers that are stopped, killed, and driven mad.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::support::{Folder, Redis, Running, eventually, redis_is_there, run};

fn send_lines(redis: &Redis, topic: &str, count: usize) {
    let lines: String = (0..count).map(|n| format!("message {n}\n")).collect();
    run(&["send", topic, "--broker", &redis.address()], lines.as_bytes()).succeeded();
}

fn consumer(redis: &Redis, topic: &str, more: &[&str]) -> Running {
    Running::start(&[&["consume", topic, "-g", "g", "--broker", &redis.address()], more].concat())
}

#[test]
fn a_stopped_consumer_finishes_what_runs_and_leaves_nothing() {
    if !redis_is_there() {
        return;
    }
    let redis = Redis::start();
    for round in 0..5 {
        let topic = "stopped";
        let folder = Folder::new();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let exec = format!("echo $FLOTA_ID >> {}; sleep 1; echo $FLOTA_ID >> {}", at("begun"), at("ended"));
        let consumer = consumer(&redis, topic, &["--concurrency", "20", "--exec", &exec]);
        send_lines(&redis, topic, 20);
        let count = |name: &str| std::fs::read_to_string(at(name)).map_or(0, |text| text.lines().count());
        eventually(|| count("begun"), |begun| *begun == 20);
        consumer.signal("TERM");
        consumer.ended().succeeded();
        assert_eq!((count("begun"), count("ended")), (20, 20), "round {round}");
        assert_eq!(redis.pending(topic, "g"), 0, "round {round}");
        assert_eq!(redis.consumers(topic, "g"), "", "round {round}");
    }
}

#[test]
fn a_second_signal_ends_it_at_once_with_all_it_started() {
    if !redis_is_there() {
        return;
    }
    let redis = Redis::start();
    let folder = Folder::new();
    let pids = folder.path().join("pids");
    let exec = format!("sleep 600 & echo $! >> {0}; echo $$ >> {0}; wait", pids.display());
    let consumer = consumer(&redis, "t", &["--exec", &exec]);
    send_lines(&redis, "t", 1);
    let pids = || std::fs::read_to_string(&pids).unwrap_or_default();
    eventually(pids, |text| text.lines().count() == 2);
    consumer.signal("INT");
    consumer.signal("TERM");
    let begun = Instant::now();
    consumer.ended();
    assert!(begun.elapsed() < Duration::from_secs(10));
    eventually(|| pids().lines().filter(|pid| is_alive(pid)).count(), |alive| *alive == 0);
}

/// A zombie is not: nobody may be there to bury it.
fn is_alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn what_is_too_slow_is_killed_whole_and_tried_again() {
    if !redis_is_there() {
        return;
    }
    let redis = Redis::start();
    let folder = Folder::new();
    let pids = folder.path().join("pids");
    let exec = format!("[ $FLOTA_ATTEMPT -gt 1 ] && exit; sleep 600 & echo $! > {}; wait", pids.display());
    send_lines(&redis, "t", 1);
    let more = ["--exec", &exec, "--handler-timeout", "0.5", "--max", "2", "--json"];
    let said = consumer(&redis, "t", &more).ended().succeeded();
    let lines = said.json();
    assert_eq!([&lines[0]["attempt"], &lines[1]["attempt"], &lines[1]["exit"]], [1, 2, 0], "{said:?}");
    assert!(lines[0]["exit"].is_null());
    let pid = std::fs::read_to_string(&pids).unwrap();
    eventually(|| is_alive(pid.trim()), |alive| !alive);
    assert_eq!(redis.pending("t", "g"), 0);
}

const UNTIL_ITS_CONSUMER_IS_GONE: &str = "exec >/dev/null; while kill -0 $PPID; do sleep 0.1; done";

#[test]
fn what_a_killed_consumer_held_is_taken_over_when_it_is_due_and_not_before() {
    if !redis_is_there() {
        return;
    }
    let redis = Redis::start();
    let after = Duration::from_secs(3);
    send_lines(&redis, "t", 30);
    let first =
        consumer(&redis, "t", &["--in-flight", "12", "--claim-after", "3", "--exec", UNTIL_ITS_CONSUMER_IS_GONE]);
    let held = eventually(|| redis.pending("t", "g"), |pending| *pending >= 10);
    let second = consumer(&redis, "t", &["--claim-after", "3", "--json"]);
    let rest = 30 - held;
    eventually(|| second.lines().len() as u64, |lines| *lines == rest);
    // Its last renewal was before this.
    let killed = Instant::now();
    first.signal("KILL");
    assert_eq!(first.ended().status.code(), None);
    eventually(|| second.lines().len(), |lines| *lines as u64 > rest);
    // It may have been renewed up to a third of that time before.
    assert!(killed.elapsed() > after * 2 / 3 - Duration::from_millis(100), "{:?}", killed.elapsed());
    eventually(|| second.lines().len(), |lines| *lines == 30);
    let bodies: BTreeMap<String, u64> = second.lines().iter().fold(BTreeMap::new(), |mut bodies, line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        *bodies.entry(line["body"].as_str().unwrap().to_string()).or_default() += 1;
        bodies
    });
    assert_eq!(bodies.len(), 30);
    second.signal("TERM");
    second.ended().succeeded();
    assert_eq!(redis.pending("t", "g"), 0);
}

#[test]
fn what_kills_each_of_its_consumers_becomes_a_dead_letter_after_so_many() {
    if !redis_is_there() {
        return;
    }
    let redis = Redis::start();
    let folder = Folder::new();
    let deaths = folder.path().join("deaths");
    run(&["send", "t", "poison", "--broker", &redis.address()], b"").succeeded();
    let exec = format!("echo $FLOTA_DELIVERIES >> {}; kill -9 $PPID", deaths.display());
    let more = ["--max-deliveries", "3", "--claim-after", "0.5", "--exec", &exec];
    for round in 1..=3 {
        let said = consumer(&redis, "t", &more).ended();
        assert_eq!(said.status.code(), None, "round {round}: {said:?}");
    }
    // The fourth finds it and lets nobody handle it.
    let fourth = consumer(&redis, "t", &[&more[..], &["--max", "1"]].concat());
    eventually(|| redis.ask(&["XLEN", "stream:topic:t:dlq"]), |dead| dead == "1");
    fourth.signal("TERM");
    fourth.ended().succeeded();
    assert_eq!(std::fs::read_to_string(&deaths).unwrap(), "1\n2\n3\n");
    assert_eq!(redis.pending("t", "g"), 0);
}

#[test]
fn what_fails_is_tried_again_and_then_a_dead_letter_with_its_last_words() {
    if !redis_is_there() {
        return;
    }
    let redis = Redis::start();
    run(&["send", "t", "bad", "--broker", &redis.address()], b"").succeeded();
    let more = ["--max-deliveries", "2", "--exec", "echo hm; echo first >&2; echo no such order >&2; exit 7"];
    let consumer = consumer(&redis, "t", &more);
    eventually(|| redis.ask(&["XLEN", "stream:topic:t:dlq"]), |dead| dead == "1");
    consumer.signal("TERM");
    let said = consumer.ended().succeeded();
    assert_eq!(said.text(), "hm\nhm\n");
    assert_eq!(said.err.matches("\nno such order\n").count(), 2, "{said:?}");
    assert_eq!(said.err.matches("will be tried again: exit status 7").count(), 1, "{said:?}");
    assert_eq!(said.err.matches("is a dead letter after 2 deliveries").count(), 1, "{said:?}");
    let dead = redis.ask(&["XRANGE", "stream:topic:t:dlq", "-", "+"]);
    assert!(dead.contains("exit status 7: no such order"), "{dead}");
    assert_eq!(redis.pending("t", "g"), 0);
}

#[test]
fn a_closed_output_gives_back_what_was_not_printed() {
    if !redis_is_there() {
        return;
    }
    let redis = Redis::start();
    send_lines(&redis, "t", 100);
    let mut command = crate::support::flota(&["consume", "t", "-g", "g", "--broker", &redis.address()]);
    let mut child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{output:?}");
    let said = consumer(&redis, "t", &["--max", "100", "--idle", "10"]).ended().succeeded();
    assert_eq!(said.text().lines().count(), 100);
    assert_eq!(redis.pending("t", "g"), 0);
}
