//! `flota watch` and `flota announce` with a real server.

use std::time::Duration;

use crate::support::{Redis, Running, everybody, free_tcp_port, free_udp_port, redis_is_there, shout, up};

fn announcer(redis: &Redis, port: u16) -> Running {
    let address = redis.address();
    let to = everybody(port);
    Running::start(&["announce", "--redis", &address, "--advertise", &address, "--interval", "0.2", "--to", &to])
}

#[test]
fn announced_ready_withdrawn_and_expired() {
    if !redis_is_there() {
        return;
    }
    let port = free_udp_port();
    let redis = Redis::start();
    let watch = Running::start(&["watch", "--json", "--discover", &everybody(port)]);
    let first = announcer(&redis, port);
    let announced = watch.until(|line| line["event"] == "announced");
    assert_eq!(announced["address"], redis.address());
    let run_id = redis.ask(&["INFO", "server"]);
    let run_id = run_id.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap();
    let guid = announced["guid"].as_str().unwrap();
    assert_eq!(guid.get(..8), run_id.get(..8), "made from the run id");
    watch.until(|line| line["event"] == "ready" && line["guid"] == guid);

    first.until_said("announcing");
    first.signal("TERM");
    first.ended().succeeded();
    watch.until(|line| line["event"] == "withdrawn" && line["guid"] == guid);

    // One announcement of a second, and then silence.
    let silent = Redis::start();
    shout(port, &up(silent.address, 1));
    let address = silent.address();
    watch.until(|line| line["event"] == "ready" && line["address"] == address);
    let expired = watch.until(|line| line["event"] == "expired" && line["address"] == address);
    let silence = expired["silent_ms"].as_u64().unwrap();
    assert!((6_001..7_000).contains(&silence), "{expired}");

    watch.signal("TERM");
    watch.ended().succeeded();
}

#[test]
fn a_server_that_dies_is_withdrawn_by_its_announcer_and_comes_back_as_another() {
    if !redis_is_there() {
        return;
    }
    let port = free_udp_port();
    let server_port = free_tcp_port();
    let redis = Redis::with(server_port, &[]);
    let watch = Running::start(&["watch", "--json", "--discover", &everybody(port)]);
    let announcer = announcer(&redis, port);
    let ready = watch.until(|line| line["event"] == "ready");
    drop(redis);
    announcer.until_said("not announcing");
    watch.until(|line| line["event"] == "withdrawn" && line["guid"] == ready["guid"]);
    let _redis = Redis::with(server_port, &[]);
    watch.until(|line| line["event"] == "ready" && line["guid"] != ready["guid"]);
    announcer.signal("INT");
    assert_eq!(announcer.ended().code(), 130);
}

#[test]
fn who_is_there_already_is_said_first() {
    if !redis_is_there() {
        return;
    }
    let redis = Redis::start();
    let watch = Running::start(&["watch", "--json", "--broker", &redis.address()]);
    let first = watch.until(|_| true);
    assert_eq!((&first["address"], &first["guid"]), (&redis.address().into(), &serde_json::Value::Null));
    watch.until(|line| line["event"] == "ready");
    drop(redis);
    watch.until(|line| line["event"] == "unready" && line["reason"].is_string());
    let lines = watch.lines();
    let announced = lines.iter().filter(|line| line.contains("\"announced\"")).count();
    assert!(announced <= 1, "{lines:?}");
    watch.signal("INT");
    assert_eq!(watch.ended().code(), 130);
}

#[test]
fn people_get_lines() {
    let port = free_udp_port();
    let watch = Running::start(&["watch", "--discover", &everybody(port)]);
    let closed = ([127, 0, 0, 1], free_tcp_port()).into();
    while watch.lines().len() < 2 {
        shout(port, &up(closed, 1));
        std::thread::sleep(Duration::from_millis(20));
    }
    let lines = watch.lines();
    assert_eq!(lines[0], format!("{closed} announced"));
    assert!(lines[1].starts_with(&format!("{closed} unready: refused")), "{lines:?}");
}
