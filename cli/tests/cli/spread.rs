//! What is sent from a shell is spread over the whole fleet, also when it is little.

use crate::support::{Redis, Running, everybody, free_udp_port, redis_is_there, run, stream_of};

const LINES: usize = 300;

fn lines() -> Vec<u8> {
    (0..LINES).flat_map(|n| format!("{n}\n").into_bytes()).collect()
}

fn each_has_a_third(servers: &[Redis]) {
    for server in servers {
        let length: usize = server.ask(&["XLEN", &stream_of("t")]).trim().parse().unwrap();
        assert!(length.abs_diff(LINES / servers.len()) <= 1, "{}: {length}", server.address());
    }
}

#[test]
fn over_a_fixed_fleet() {
    if !redis_is_there() {
        return;
    }
    let servers: Vec<Redis> = (0..3).map(|_| Redis::start()).collect();
    let addresses: Vec<String> = servers.iter().map(Redis::address).collect();
    let mut command = vec!["send", "t", "--json"];
    command.extend(addresses.iter().flat_map(|address| ["--broker", address]));
    run(&command, &lines()).succeeded();
    each_has_a_third(&servers);
}

#[test]
fn over_an_announced_fleet() {
    if !redis_is_there() {
        return;
    }
    let servers: Vec<Redis> = (0..3).map(|_| Redis::start()).collect();
    let port = free_udp_port();
    let to = everybody(port);
    let announcers: Vec<Running> = servers
        .iter()
        .map(|server| {
            let at = server.address();
            Running::start(&["announce", "--redis", &at, "--advertise", &at, "--to", &to])
        })
        .collect();
    run(&["send", "t", "--json", "--discover", &to], &lines()).succeeded();
    each_has_a_third(&servers);
    drop(announcers);
}
