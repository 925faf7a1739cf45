//! `flota dlq` and `flota topics`.

use serde_json::Value;

use crate::support::{Redis, Running, Said, eventually, flota, redis_is_there, run, stream_of};

fn at<'a>(redis: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    [args, &["--broker", redis]].concat()
}

/// This many dead letters of one group, and nothing else.
fn bury(redis: &Redis, bodies: &[u8], count: usize) {
    let address = redis.address();
    run(&at(&address, &["send", "t"]), bodies).succeeded();
    let consume = ["consume", "t", "-g", "g", "--max-deliveries", "1", "--exec", "echo too bad >&2; exit 4"];
    let consumer = Running::start(&at(&address, &consume));
    eventually(|| redis.ask(&["XLEN", "stream:topic:t:dlq"]), |dead| *dead == count.to_string());
    consumer.signal("TERM");
    consumer.ended().succeeded();
}

fn list(redis: &Redis) -> Vec<Value> {
    run(&at(&redis.address(), &["dlq", "list", "t", "--json"]), b"").succeeded().json()
}

#[test]
fn they_are_listed_shown_replayed_and_dropped_by_id() {
    if !redis_is_there() {
        return;
    }
    let redis = Redis::start();
    let address = redis.address();
    bury(&redis, b"one\ntwo\n\xff\n", 3);

    let letters = list(&redis);
    assert_eq!(letters.len(), 3);
    let [one, two, three] = &letters[..] else { unreachable!() };
    assert_eq!((&one["body"], &three["body"]), (&"one".into(), &serde_json::json!({"base64": "/w=="})));
    assert_eq!(
        (&one["group"], &one["broker"], &one["reason"]),
        (&"g".into(), &address.clone().into(), &"exit status 4: too bad".into())
    );
    assert_eq!([&one["partition"], &one["deliveries"], &one["attempts"]], [0, 1, 1]);
    assert!(one["first_ms"].as_u64().unwrap() <= one["dead_ms"].as_u64().unwrap(), "{one}");
    let id = |letter: &Value| letter["id"].as_str().unwrap().to_string();

    let said = run(&at(&address, &["dlq", "show", "t", &id(two)]), b"").succeeded().text();
    assert!(said.contains("exit status 4: too bad") && said.contains("\ntwo\n") && !said.contains("\none\n"), "{said}");
    assert!(run(&at(&address, &["dlq", "list", "t"]), b"").succeeded().text().contains(&id(one)));

    let said = run(&at(&address, &["dlq", "replay", "t", &id(one), "--json"]), b"").succeeded();
    assert_eq!(said.json()[0], serde_json::json!({"replayed": 1, "gone": 0, "unknown": []}));
    let said = run(&at(&address, &["consume", "t", "-g", "g", "--max", "1", "--json"]), b"").succeeded();
    assert_eq!((&said.json()[0]["body"], &said.json()[0]["id"]), (&one["body"], &one["id"]));

    let said = run(&at(&address, &["dlq", "drop", "t", &id(two), &id(one), "--json"]), b"");
    assert_eq!(said.json()[0], serde_json::json!({"dropped": 1, "gone": 0, "unknown": [id(one)]}));
    assert!(said.code() == 1 && said.err.contains("not_found"), "{said:?}");
    run(&at(&address, &["dlq", "drop", "t", "--all"]), b"").succeeded();
    assert_eq!(list(&redis), [Value::Null; 0]);
}

#[test]
fn two_replays_at_once_bring_one_copy() {
    if !redis_is_there() {
        return;
    }
    let redis = Redis::start();
    let address = redis.address();
    let lines: String = (0..500).map(|n| format!("{n}\n")).collect();
    bury(&redis, lines.as_bytes(), 500);
    let again = format!("{}:retry:g", stream_of("t"));
    let before: u64 = redis.ask(&["XLEN", &again]).parse().unwrap();
    let replay = || {
        let mut command = flota(&at(&address, &["dlq", "replay", "t", "--all", "--json"]));
        command.stdout(std::process::Stdio::piped()).spawn().unwrap()
    };
    let (first, second) = (replay(), replay());
    let replayed: u64 = [first, second]
        .map(|child| {
            let output = child.wait_with_output().unwrap();
            let said = Said { status: output.status, out: output.stdout, err: String::new() }.succeeded();
            said.json()[0]["replayed"].as_u64().unwrap()
        })
        .iter()
        .sum();
    assert_eq!(replayed, 500);
    assert_eq!(redis.ask(&["XLEN", "stream:topic:t:dlq"]), "0");
    let after: u64 = redis.ask(&["XLEN", &again]).parse().unwrap();
    assert_eq!(after - before, 500);
    let said = run(&at(&address, &["send", "t", "later", "--delay", "3600"]), b"").succeeded();
    assert!(said.text().contains("sent 1 message"), "{said:?}");
    let said = run(&at(&address, &["topics", "t", "--json"]), b"").succeeded();
    assert_eq!(said.json()[0]["scheduled"], 1);
}

#[test]
fn topics_are_counted_per_broker_and_in_total() {
    if !redis_is_there() {
        return;
    }
    let servers = [Redis::start(), Redis::start()];
    let addresses: Vec<String> = servers.iter().map(Redis::address).collect();
    let both = ["--broker", &addresses[0], "--broker", &addresses[1]];
    let topics = |more: &[&str]| run(&[&["topics"], more, &both[..]].concat(), b"").succeeded();
    assert_eq!(topics(&["--json"]).text(), "");

    for address in &addresses {
        run(&at(address, &["send", "t", "--partitions", "2"]), "x\n".repeat(20).as_bytes()).succeeded();
        run(&at(address, &["consume", "t", "-g", "g", "--max", "5"]), b"").succeeded();
    }
    run(&at(&addresses[0], &["send", "other", "x"]), b"").succeeded();
    let all = topics(&["--json"]).json();
    assert_eq!(all.iter().map(|topic| topic["topic"].as_str().unwrap()).collect::<Vec<_>>(), ["other", "t"]);
    let one = &topics(&["t", "--json"]).json()[0];
    assert_eq!((&one["length"], &one["pending"]), (&all[1]["length"], &all[1]["pending"]));
    assert_eq!([&one["length"], &one["dead"], &one["scheduled"]], [40, 0, 0]);
    // What was read and given back is pending until somebody takes it.
    assert_eq!(one["pending"].as_u64().unwrap() + one["lag"].as_u64().unwrap(), 30, "{one}");
    let brokers = one["brokers"].as_array().unwrap();
    assert_eq!(brokers.len(), 2);
    let partitions: Vec<&Value> = brokers.iter().flat_map(|broker| broker["partitions"].as_array().unwrap()).collect();
    assert_eq!(partitions.len(), 4);
    assert_eq!(partitions.iter().map(|partition| partition["length"].as_u64().unwrap()).sum::<u64>(), 40);
    let groups: Vec<&Value> = partitions.iter().flat_map(|partition| partition["groups"].as_array().unwrap()).collect();
    for what in ["lag", "pending"] {
        assert_eq!(groups.iter().map(|group| group[what].as_u64().unwrap()).sum::<u64>(), one[what], "{one}");
    }
    assert!(groups.iter().all(|group| group["group"] == "g" && group["oldest_ms"].is_u64()), "{one}");

    let text = topics(&["t"]).text();
    assert!(text.starts_with("TOPIC") && text.contains(&addresses[0]) && text.contains(&addresses[1]), "{text}");
}

#[test]
fn a_broker_that_cannot_be_asked_is_named() {
    if !redis_is_there() {
        return;
    }
    let redis = Redis::start();
    let closed = format!("127.0.0.1:{}", crate::support::free_tcp_port());
    let said = run(&at(&redis.address(), &["topics", "--broker", &closed]), b"").succeeded();
    assert!(said.err.contains(&format!("{closed} is not counted: refused")), "{said:?}");
    let said = run(&["topics", "--broker", &closed, "--wait", "0.5", "--json"], b"");
    assert!(said.code() == 1 && said.err.contains("no_broker"), "{said:?}");
}

#[test]
fn announced_brokers_are_waited_for() {
    if !redis_is_there() {
        return;
    }
    let port = crate::support::free_udp_port();
    let servers = [Redis::start(), Redis::start(), Redis::start()];
    let _announcers = servers.each_ref().map(|redis| {
        let (address, to) = (redis.address(), crate::support::everybody(port));
        run(&at(&address, &["send", "t", "x"]), b"").succeeded();
        Running::start(&["announce", "--redis", &address, "--advertise", &address, "--to", &to])
    });
    let said = run(&["topics", "t", "--json", "--discover", &crate::support::everybody(port)], b"").succeeded();
    assert_eq!((&said.json()[0]["length"], said.json()[0]["brokers"].as_array().unwrap().len()), (&3.into(), 3));
}
