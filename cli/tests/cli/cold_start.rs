//! A send before there is a broker.

use std::net::SocketAddr;

use crate::support::{Redis, everybody, free_udp_port, redis_is_there, run, shout, stream_of, up};

#[test]
fn without_a_broker_it_says_what_it_listened_to_and_heard() {
    let port = free_udp_port();
    let listen = format!("0.0.0.0:{port}");
    let said = run(&["send", "t", "x", "--discover", &listen, "--wait", "1"], b"");
    assert_eq!(said.code(), 1, "{said:?}");
    for what in ["no broker was ready within 1 s", &listen, "imq-broker", "heard 0 datagrams", "flota announce"] {
        assert!(said.err.contains(what), "{what}: {said:?}");
    }
    let said = run(&["send", "t", "x", "--discover", &listen, "--wait", "1", "--json"], b"");
    assert_eq!(said.json()[0], serde_json::json!({"sent": 0, "failed": 1, "by_broker": {}}));
    let error: serde_json::Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!(error["error"]["code"], "no_broker");
    assert!(error["error"]["hint"].is_string(), "{said:?}");
}

#[test]
fn what_was_heard_and_not_believed_is_counted() {
    let port = free_udp_port();
    let listen = format!("0.0.0.0:{port}");
    let watch = crate::support::Running::start(&["watch", "--json", "--discover", &listen]);
    let send = ["send", "t", "x", "--discover", &listen, "--wait", "2", "-v", "--allow", "10.0.0.0/8"];
    let send = crate::support::Running::start(&send);
    // Until both are known to listen: the first by what it says of it, the second as it logs it.
    let other = "blue\t2cc7c345-3569-44bb-b57a-b72d729d7012\tup\t10.0.0.1:6379\t1\tplain";
    let elsewhere: SocketAddr = ([127, 0, 0, 1], 1).into();
    let begun = std::time::Instant::now();
    while begun.elapsed().as_millis() < 1_500 {
        [other, "nonsense", &up(elsewhere, 1)].iter().for_each(|datagram| shout(port, datagram));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let refused = watch.until(|line| line["event"] == "refused" && line["reason"] == "OtherName");
    assert!(refused["count"].as_u64() >= Some(1) && refused["example"].as_str().unwrap().contains("blue"), "{refused}");
    watch.until(|line| line["event"] == "refused" && line["reason"] == "MissingField");
    let said = send.ended();
    assert_eq!(said.code(), 1, "{said:?}");
    for what in ["MissingField", "of another name", "of an address that is not allowed", "--name"] {
        assert!(said.err.contains(what), "{what}: {said:?}");
    }
}

#[test]
fn members_that_cannot_be_used_are_named() {
    let port = free_udp_port();
    let listen = everybody(port);
    let closed: SocketAddr = ([127, 0, 0, 1], crate::support::free_tcp_port()).into();
    let announcer = std::thread::spawn(move || {
        for _ in 0..15 {
            shout(port, &up(closed, 1));
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    });
    let said = run(&["send", "t", "x", "--discover", &listen, "--wait", "1.5"], b"");
    announcer.join().unwrap();
    assert_eq!(said.code(), 1, "{said:?}");
    assert!(said.err.contains(&format!("{closed} is not ready: refused")), "{said:?}");
}

#[test]
fn with_a_late_broker_it_arrives_once() {
    if !redis_is_there() {
        return;
    }
    let port = free_udp_port();
    let send = crate::support::Running::start(&["send", "t", "x", "--discover", &everybody(port), "--wait", "30"]);
    let redis = Redis::start();
    let _announcer = crate::support::Running::start(&[
        "announce",
        "--redis",
        &redis.address(),
        "--advertise",
        &redis.address(),
        "--interval",
        "0.2",
        "--to",
        &everybody(port),
    ]);
    let said = send.ended().succeeded();
    assert_eq!(said.text(), format!("sent 1 message: 1 to {}\n", redis.address()));
    assert_eq!(redis.ask(&["XLEN", &stream_of("t")]), "1");
}
