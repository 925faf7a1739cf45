//! How many partitions a topic has: who may say so, and how it grows.

use crate::support::{Redis, Running, redis_is_there, run};

fn at<'a>(servers: &'a [String], args: &[&'a str]) -> Vec<&'a str> {
    args.iter().copied().chain(servers.iter().flat_map(|server| ["--broker", server])).collect()
}

fn lengths(server: &Redis, partitions: u32) -> Vec<String> {
    (0..partitions).map(|i| server.ask(&["XLEN", &format!("stream:topic:t:p:{i}")])).collect()
}

#[test]
fn the_first_number_holds_and_another_is_refused_with_both() {
    if !redis_is_there() {
        return;
    }
    let servers = [Redis::start(), Redis::start()];
    let addresses: Vec<String> = servers.iter().map(Redis::address).collect();
    run(&at(&addresses, &["send", "t", "--partitions", "4"]), b"1\n2\n3\n4\n5\n6\n7\n8\n").succeeded();
    for server in &servers {
        assert_eq!(lengths(server, 4), ["1"; 4]);
    }
    // Who says nothing follows.
    run(&at(&addresses, &["send", "t"]), b"1\n2\n3\n4\n5\n6\n7\n8\n").succeeded();
    for server in &servers {
        assert_eq!(lengths(server, 4), ["2"; 4]);
    }
    for number in ["8", "2"] {
        let said = run(&at(&addresses, &["send", "t", "hello", "--partitions", number]), b"");
        assert_eq!(said.code(), 1, "{said:?}");
        let both =
            ["has 4 partitions", &format!("this service says {number}")].iter().all(|what| said.err.contains(what));
        assert!(both, "{said:?}");
    }
    for server in &servers {
        assert_eq!(lengths(server, 8), ["2", "2", "2", "2", "0", "0", "0", "0"], "nothing was stored");
    }
}

#[test]
fn it_grows_while_it_is_used_and_never_shrinks() {
    if !redis_is_there() {
        return;
    }
    let servers = [Redis::start(), Redis::start()];
    let addresses: Vec<String> = servers.iter().map(Redis::address).collect();
    run(&at(&addresses, &["send", "t", "--partitions", "2"]), b"1\n2\n3\n4\n").succeeded();
    let consumer = Running::start(&at(&addresses, &["consume", "t", "-g", "g", "--json"]));
    for body in ["1", "2", "3", "4"] {
        consumer.until(|message| message["body"] == body);
    }

    let grown = run(&at(&addresses, &["topic", "grow", "t", "6", "--json"]), b"").succeeded().json();
    assert_eq!((&grown[0]["from"], &grown[0]["to"]), (&2.into(), &6.into()), "{grown:?}");
    assert_eq!(grown[0]["brokers"].as_array().map(Vec::len), Some(2), "{grown:?}");
    for server in &servers {
        assert_eq!(server.ask(&["HMGET", "streaming:mq:topic:t:meta", "partitions", "version"]), "6 2");
    }
    // The group has its place in the new streams before anybody reads them.
    let groups = servers[0].ask(&["XINFO", "GROUPS", "stream:topic:t:p:5"]);
    assert!(groups.contains("name g"), "{groups}");

    let bodies: Vec<String> = (10..22).map(|n| n.to_string()).collect();
    run(&at(&addresses, &["send", "t"]), format!("{}\n", bodies.join("\n")).as_bytes()).succeeded();
    for server in &servers {
        assert_eq!(lengths(server, 6)[2..], ["1"; 4]);
    }
    for body in &bodies {
        consumer.until(|message| message["body"] == body.as_str());
    }
    // One that has not heard of it goes on.
    run(&at(&addresses, &["send", "t", "late", "--partitions", "2"]), b"").succeeded();

    let said = run(&at(&addresses, &["topic", "grow", "t", "4"]), b"");
    assert_eq!(said.code(), 1, "{said:?}");
    assert!(said.err.contains("has 6 partitions") && said.err.contains("does not shrink to 4"), "{said:?}");
}
