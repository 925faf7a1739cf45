//! What is in the log is there again.

use std::fs;
use std::io::Write;

use flota_sim::embedded::{Embedded, FILE, Fsync, Options};

use crate::support::{Client, Folder, Reply, request};

fn options(folder: &Folder) -> Options {
    Options { dir: Some(folder.path().to_path_buf()), ..Options::default() }
}

/// Everything there is, as text.
fn dump(client: &mut Client) -> Vec<String> {
    let Reply::Items(mut keys) = client.ask("KEYS *") else { panic!("no keys") };
    keys.sort_by_key(ToString::to_string);
    let of = |client: &mut Client, key: &str| match client.ask(&format!("TYPE {key}")).to_string().as_str() {
        "string" => client.ask(&format!("GET {key}")).to_string(),
        "list" => client.ask(&format!("LRANGE {key} 0 -1")).to_string(),
        "hash" => client.ask(&format!("HGETALL {key}")).to_string(),
        "zset" => client.ask(&format!("ZRANGE {key} 0 -1 WITHSCORES")).to_string(),
        "set" => client.ask(&format!("SMEMBERS {key}")).to_string(),
        "stream" => {
            let entries = client.ask(&format!("XRANGE {key} - +"));
            let groups = client.ask(&format!("XINFO GROUPS {key}"));
            let pending = client.ask(&format!("XPENDING {key} g"));
            format!("{entries} {groups} {pending}")
        }
        other => panic!("a {other}"),
    };
    keys.iter().map(|key| format!("{key}: {}", of(client, &key.to_string()))).collect()
}

/// Some of everything, also what the time or a wait decides.
fn fill(broker: &Embedded) -> Vec<String> {
    let mut client = Client::connect(broker.address());
    for command in [
        "SET text hello",
        "RPUSH list a b c",
        "LPOP list",
        "HSET hash f 1 g 2",
        "HINCRBY hash f 4",
        "ZADD zset 1.5 m 2 n",
        "SADD set x y",
        "XGROUP CREATE stream g 0 MKSTREAM",
        "XADD stream * f first",
        "XADD stream * f second",
        "XADD stream * f third",
        "XREADGROUP GROUP g c COUNT 2 STREAMS stream >",
        "XAUTOCLAIM stream g d 0 0 COUNT 1",
        "SET gone soon PX 1",
        "SET late still-there EX 1000",
    ] {
        let reply = client.ask(command);
        assert!(!matches!(reply, Reply::Error(_)), "{command}: {reply}");
    }
    let script = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('INCR', KEYS[2]) return 1";
    client.stream.write_all(&request(&["EVAL", script, "2", "by-script", "n", "value"])).unwrap();
    assert_eq!(client.reply(), Reply::Int(1));
    client.ask("MULTI");
    client.ask("INCR n");
    client.ask("INCR n");
    client.ask("EXEC");
    let mut waiting = Client::connect(broker.address());
    waiting.send("BLPOP later 0");
    crate::until_blocked(&mut client, 1);
    client.ask("RPUSH later now and-then");
    assert_eq!(waiting.reply().to_string(), "[later now]");
    while client.ask("EXISTS gone") != Reply::Int(0) {}
    dump(&mut client)
}

#[test]
fn a_broker_that_was_killed_has_its_data_at_its_address() {
    for fsync in [Fsync::No, Fsync::Always] {
        let folder = Folder::new();
        let broker = Embedded::start(Options { fsync, ..options(&folder) }).unwrap();
        assert_eq!(broker.replayed(), 0);
        let address = broker.address();
        let before = fill(&broker);
        let mut client = Client::connect(address);
        let id = client.ask("INFO server");
        broker.kill();
        assert_eq!(client.reply(), Reply::Closed);

        let broker = Embedded::start(Options { address, ..options(&folder) }).unwrap();
        assert!(broker.replayed() > 10 && broker.torn() == 0);
        let mut client = Client::connect(address);
        assert_eq!(dump(&mut client), before);
        let line =
            |info: &Reply| info.to_string().lines().find(|line| line.starts_with("run_id:")).unwrap().to_string();
        assert_ne!(line(&client.ask("INFO server")), line(&id), "it is another process");
        // It goes on from there, and what it adds is there the next time.
        client.ask("INCR n");
        broker.stop().unwrap();
        let broker = Embedded::start(options(&folder)).unwrap();
        assert_eq!(Client::connect(broker.address()).ask("GET n").to_string(), "4");
    }
}

#[test]
fn what_was_answered_is_in_the_log_when_the_answer_is_there() {
    let folder = Folder::new();
    let broker = Embedded::start(options(&folder)).unwrap();
    let mut client = Client::connect(broker.address());
    let mut length = 0;
    for n in 0..50 {
        client.ask(&format!("SET k {n}"));
        let longer = fs::metadata(folder.path().join(FILE)).unwrap().len();
        assert!(longer > length, "at {n}");
        length = longer;
    }
    client.ask("GET k");
    client.ask("DEL nothing");
    assert_eq!(fs::metadata(folder.path().join(FILE)).unwrap().len(), length, "what changes nothing is not logged");
}

#[test]
fn an_unfinished_record_at_the_end_is_cut_off_and_a_damaged_one_before_it_is_an_error() {
    let folder = Folder::new();
    let broker = Embedded::start(options(&folder)).unwrap();
    let mut client = Client::connect(broker.address());
    (0..3).for_each(|n| drop(client.ask(&format!("RPUSH list {n}"))));
    broker.kill();
    let file = folder.path().join(FILE);
    let whole = fs::read(&file).unwrap();

    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    let broker = Embedded::start(options(&folder)).unwrap();
    assert!(broker.torn() > 0 && broker.replayed() == 2);
    let mut client = Client::connect(broker.address());
    assert_eq!(client.ask("LRANGE list 0 -1").to_string(), "[0 1]");
    client.ask("RPUSH list again");
    broker.kill();
    let broker = Embedded::start(options(&folder)).unwrap();
    assert_eq!(Client::connect(broker.address()).ask("LRANGE list 0 -1").to_string(), "[0 1 again]");
    drop(broker);

    let mut damaged = whole.clone();
    let middle = whole.len() / 2;
    damaged[middle] ^= 1;
    fs::write(&file, &damaged).unwrap();
    let why = Embedded::start(options(&folder)).unwrap_err().to_string();
    assert!(why.contains("damaged at byte") && why.contains("truncate"), "{why}");
    assert_eq!(fs::read(&file).unwrap(), damaged, "nothing was changed");
}

#[test]
fn a_folder_belongs_to_one_broker() {
    let folder = Folder::new();
    let broker = Embedded::start(options(&folder)).unwrap();
    let why = Embedded::start(options(&folder)).unwrap_err().to_string();
    assert!(why.contains("another broker"), "{why}");
    drop(broker);
    Embedded::start(options(&folder)).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_log_that_cannot_be_written_is_an_error_that_names_it() {
    let folder = Folder::new();
    std::os::unix::fs::symlink("/dev/full", folder.path().join(FILE)).unwrap();
    let why = Embedded::start(options(&folder)).unwrap_err().to_string();
    assert!(why.contains("cannot write") && why.contains(FILE), "{why}");
}
