//! `flota dev`: a fleet without a server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::support::{Folder, PATIENCE, Running, everybody, free_udp_port, run};

/// Starts it, and answers where its brokers listen.
fn dev(port: u16, more: &[&str]) -> (Running, Vec<String>) {
    let dev = Running::start(&[&["dev", "--json", "--to", &everybody(port)], more].concat());
    dev.until(|line| line["event"] == "announced");
    let lines = dev.lines().into_iter().map(|line| serde_json::from_str::<serde_json::Value>(&line).unwrap());
    let listening = lines.filter(|line| line["event"] == "listening");
    let addresses = listening.map(|line| line["address"].as_str().unwrap().to_string()).collect();
    (dev, addresses)
}

fn ended_by(dev: Running, signal: &str) -> i32 {
    dev.signal(signal);
    dev.ended().code()
}

#[test]
fn three_brokers_are_found_used_and_withdrawn() {
    let port = free_udp_port();
    let watch = Running::start(&["watch", "--json", "--discover", &everybody(port)]);
    let (dev, addresses) = dev(port, &[]);
    assert_eq!(addresses.len(), 3);
    for address in &addresses {
        watch.until(|line| line["event"] == "ready" && line["address"] == **address);
    }
    let discover = format!("--discover={}", everybody(port));
    run(&["send", "orders", &discover], b"1\n2\n3\n4\n5\n6\n").succeeded();
    let said = run(&["consume", "orders", "--group", "g", "--max", "6", &discover], b"").succeeded();
    let mut bodies: Vec<_> = said.text().lines().map(String::from).collect();
    bodies.sort();
    assert_eq!(bodies, ["1", "2", "3", "4", "5", "6"]);
    assert_eq!(ended_by(dev, "TERM"), 0);
    for address in &addresses {
        let gone = watch
            .until(|line| line["address"] == **address && line["event"] != "announced" && line["event"] != "ready");
        assert_eq!(gone["event"], "withdrawn", "goodbye comes first");
    }
}

#[test]
fn with_a_folder_data_and_addresses_stay_whether_it_ends_or_is_killed() {
    let (port, folder) = (free_udp_port(), Folder::new());
    let dir = folder.path().join("fleet").display().to_string();
    let (first, addresses) = dev(port, &["--brokers", "2", "--dir", &dir]);
    let brokers = [["--broker", &addresses[0]], ["--broker", &addresses[1]]].concat();
    run(&[&["send", "orders"], &brokers[..]].concat(), b"a\nb\nc\nd\n").succeeded();
    assert_eq!(ended_by(first, "KILL"), -1);

    let (second, again) = dev(port, &["--dir", &dir]);
    assert_eq!(again, addresses, "as many, where they were");
    let consume = ["consume", "orders", "--group", "g", "--max", "4"];
    let mut lines: Vec<_> =
        run(&[&consume, &brokers[..]].concat(), b"").succeeded().text().lines().map(String::from).collect();
    lines.sort();
    assert_eq!(lines, ["a", "b", "c", "d"]);
    assert_eq!(ended_by(second, "INT"), 130);

    let (third, again) = dev(port, &["--dir", &dir, "--brokers", "3"]);
    assert_eq!((&again[..2], again.len()), (&addresses[..], 3), "one more");
    let consume = ["consume", "orders", "--group", "g", "--idle", "1"];
    assert_eq!(run(&[&consume, &brokers[..]].concat(), b"").succeeded().text(), "", "what was handled stays so");
    let said = run(&["dev", "--json", "--to", &everybody(port), "--dir", &dir], b"");
    assert_eq!(said.code(), 1, "{said:?}");
    assert!(said.err.contains("already"), "{said:?}");
    assert_eq!(ended_by(third, "TERM"), 0);
    let said = run(&["dev", "--dir", &dir, "--brokers", "1"], b"");
    assert_eq!(said.code(), 2, "{said:?}");
}

#[test]
fn any_client_can_talk_to_them() {
    let (dev, addresses) = dev(free_udp_port(), &["--brokers", "1"]);
    let mut stream = TcpStream::connect(addresses[0].parse::<SocketAddr>().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"SET k v\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\nQUIT\r\n").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert_eq!(said, "+OK\r\n$1\r\nv\r\n+OK\r\n");
    assert_eq!(ended_by(dev, "TERM"), 0);
}
