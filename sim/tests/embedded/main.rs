//! A broker behind a socket, as clients see it.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "sockets and their clocks are real")]

mod durable;
mod support;

use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use flota_sim::embedded::{Embedded, Options};
use support::{Client, Reply, request};

fn start() -> Embedded {
    Embedded::start(Options::default()).unwrap()
}

fn texts(items: &[&str]) -> Vec<Reply> {
    items.iter().map(|text| Reply::Text((*text).to_string())).collect()
}

#[test]
fn it_says_which_server_it_is_like_and_that_it_is_none() {
    let broker = start();
    let mut client = Client::connect(broker.address());
    assert_eq!(client.ask("PING"), Reply::Text("PONG".to_string()));
    let info = client.ask("INFO server").to_string();
    assert!(info.contains("redis_version:7.0.15\r\n") && info.contains("flota_embedded:1\r\n"), "{info}");
    broker.stop().unwrap();
    assert_eq!(client.reply(), Reply::Closed);
}

#[test]
fn a_hundred_commands_in_one_go_are_answered_in_order() {
    let broker = start();
    let mut client = Client::connect(broker.address());
    let all: Vec<u8> = (0..100).flat_map(|_| request(&["INCR", "n"])).collect();
    client.stream.write_all(&all).unwrap();
    (1..=100).for_each(|n| assert_eq!(client.reply(), Reply::Int(n)));
    // The same in pieces that no command ends with.
    for piece in all.chunks(7) {
        client.stream.write_all(piece).unwrap();
    }
    (101..=200).for_each(|n| assert_eq!(client.reply(), Reply::Int(n)));
}

#[test]
fn more_than_the_system_buffers_goes_through_in_both_directions() {
    let broker = start();
    let mut client = Client::connect(broker.address());
    let large = "x".repeat(300_000);
    let mut sender = client.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        for _ in 0..100 {
            sender.write_all(&request(&["ECHO", &large])).unwrap();
        }
    });
    for _ in 0..100 {
        assert!(matches!(client.reply(), Reply::Text(text) if text.len() == 300_000));
    }
    sending.join().unwrap();
}

#[test]
fn what_is_no_request_is_answered_and_ends_the_connection() {
    let broker = start();
    let mut client = Client::connect(broker.address());
    client.stream.write_all(b"*1\r\n$4\r\nPING\r\n*1\r\n+PING\r\n").unwrap();
    assert_eq!(client.reply().to_string(), "PONG");
    let said = client.reply().to_string();
    assert!(said.starts_with("-ERR Protocol error"), "{said}");
    assert_eq!(client.reply(), Reply::Closed);
}

#[test]
fn whoever_waits_for_a_list_is_served_and_what_is_behind_it_waits() {
    let broker = start();
    let (mut waiting, mut other) = (Client::connect(broker.address()), Client::connect(broker.address()));
    waiting.send("BLPOP list 0");
    waiting.send("INCR n");
    until_blocked(&mut other, 1);
    assert_eq!(other.ask("GET n"), Reply::Nil, "it is not looked at yet");
    assert_eq!(other.ask("RPUSH list a"), Reply::Int(1));
    assert_eq!(waiting.reply(), Reply::Items(texts(&["list", "a"])));
    assert_eq!(waiting.reply(), Reply::Int(1));
    assert_eq!(other.ask("EXISTS list"), Reply::Int(0));
}

#[test]
fn whoever_waits_in_vain_is_told_when_the_time_is_over() {
    let broker = start();
    let mut client = Client::connect(broker.address());
    client.ask("XGROUP CREATE s g $ MKSTREAM");
    for command in ["BLPOP list 0.1", "XREADGROUP GROUP g c BLOCK 100 STREAMS s >"] {
        let begun = Instant::now();
        assert_eq!(client.ask(command), Reply::Nil, "{command}");
        let took = begun.elapsed().as_millis();
        assert!((99..2_000).contains(&took), "{command}: {took} ms");
    }
}

#[test]
fn whoever_waits_for_a_stream_is_served() {
    let broker = start();
    let (mut waiting, mut other) = (Client::connect(broker.address()), Client::connect(broker.address()));
    other.ask("XGROUP CREATE s g $ MKSTREAM");
    waiting.send("XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    until_blocked(&mut other, 1);
    let id = other.ask("XADD s * f v").to_string();
    assert_eq!(waiting.reply().to_string(), format!("[[s [[{id} [f v]]]]]"));
}

#[test]
fn whoever_went_away_while_waiting_is_given_nothing() {
    let broker = start();
    let mut other = Client::connect(broker.address());
    let mut gone = Client::connect(broker.address());
    // More behind it than is read while it waits.
    gone.send("BLPOP list 0");
    gone.send("PING");
    until_blocked(&mut other, 1);
    drop(gone);
    until_blocked(&mut other, 0);
    assert_eq!(other.ask("RPUSH list a"), Reply::Int(1));
    assert_eq!(other.ask("LLEN list"), Reply::Int(1));
}

#[test]
fn a_connection_is_closed_when_it_is_killed() {
    let broker = start();
    let (mut victim, mut other) = (Client::connect(broker.address()), Client::connect(broker.address()));
    let id = victim.ask("CLIENT ID");
    victim.send("BLPOP list 0");
    until_blocked(&mut other, 1);
    assert_eq!(other.ask(&format!("CLIENT KILL ID {id}")), Reply::Int(1));
    assert_eq!(victim.reply(), Reply::Closed);
    let mut last = Client::connect(broker.address());
    last.send("QUIT");
    assert_eq!((last.reply().to_string(), last.reply()), ("OK".to_string(), Reply::Closed));
}

#[test]
fn what_is_published_reaches_subscribers_of_both_protocols() {
    let broker = start();
    let (mut two, mut three) = (Client::connect(broker.address()), Client::connect(broker.address()));
    let mut other = Client::connect(broker.address());
    assert!(matches!(three.ask("HELLO 3"), Reply::Map(_)));
    assert_eq!(two.ask("SUBSCRIBE news").to_string(), "[subscribe news 1]");
    assert!(matches!(three.ask("SUBSCRIBE news"), Reply::Push(_)));
    assert_eq!(other.ask("PUBLISH news hello"), Reply::Int(2));
    assert_eq!(two.reply(), Reply::Items(texts(&["message", "news", "hello"])));
    assert_eq!(three.reply(), Reply::Push(texts(&["message", "news", "hello"])));
    assert_eq!(three.ask("PING").to_string(), "PONG", "RESP3 may go on meanwhile");
}

#[test]
fn a_subscriber_that_does_not_read_is_closed() {
    let broker = Embedded::start(Options { output_max: 1 << 20, ..Options::default() }).unwrap();
    let (mut deaf, mut other) = (Client::connect(broker.address()), Client::connect(broker.address()));
    deaf.ask("SUBSCRIBE news");
    let publish = format!("PUBLISH news {}", "x".repeat(100_000));
    // What the systems of both ends buffer comes before the limit.
    let published = (0..2_000).take_while(|_| other.ask(&publish) == Reply::Int(1)).count();
    assert!((10..2_000).contains(&published), "{published}");
    // What had been sent is there to be read; then comes the end.
    let mut rest = Vec::new();
    let end = deaf.stream.read_to_end(&mut rest);
    assert!(end.is_ok() || end.is_err_and(|why| why.kind() == std::io::ErrorKind::ConnectionReset));
}

#[test]
fn transactions_and_scripts_work_through_the_socket() {
    let broker = start();
    let mut client = Client::connect(broker.address());
    client.ask("MULTI");
    client.ask("INCR n");
    client.ask("INCR n");
    assert_eq!(client.ask("EXEC"), Reply::Items(vec![Reply::Int(1), Reply::Int(2)]));
    client.stream.write_all(&request(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "n"])).unwrap();
    assert_eq!(client.reply().to_string(), "2");
}

#[test]
fn an_address_that_is_taken_is_an_error_that_names_it() {
    let broker = start();
    let why = Embedded::start(Options { address: broker.address(), ..Options::default() }).unwrap_err();
    assert_eq!(why.kind(), std::io::ErrorKind::AddrInUse);
    assert!(why.to_string().contains(&broker.address().to_string()), "{why}");
}

#[test]
fn a_stock_client_can_talk_to_it() {
    let broker = start();
    let port = broker.address().port().to_string();
    let cli = |words: &[&str]| Command::new("redis-cli").args(["-3", "-p", &port]).args(words).output();
    let Ok(first) = cli(&["SET", "k", "v"]) else {
        assert!(std::env::var_os("FLOTA_REQUIRE_REDIS").is_none(), "redis-cli is not installed");
        eprintln!("SKIPPED: redis-cli is not installed");
        return;
    };
    assert_eq!(String::from_utf8_lossy(&first.stdout), "OK\n");
    assert_eq!(String::from_utf8_lossy(&cli(&["GET", "k"]).unwrap().stdout), "v\n");
    let info = cli(&["INFO"]).unwrap();
    assert!(String::from_utf8_lossy(&info.stdout).contains("flota_embedded:1"), "{info:?}");
}

/// Asks until so many connections wait.
fn until_blocked(client: &mut Client, count: usize) {
    let wanted = format!("blocked_clients:{count}\r\n");
    let deadline = Instant::now() + Duration::from_secs(10);
    while !client.ask("INFO clients").to_string().contains(&wanted) {
        assert!(Instant::now() < deadline, "no {wanted:?} in {}", client.ask("INFO clients"));
    }
}
