//! Streams as a connection sees them, and what the journal says. The figures were read off real servers.

use bytes::Bytes;
use flota_core::reply::StreamId;

use crate::broker::{Broker, Change, ClientId, Out, Profile, ServerTime, Value, Why};

struct Bench {
    broker: Broker,
    at: ServerTime,
    out: Vec<Out>,
}

impl Bench {
    fn new(profile: Profile) -> Self {
        let mut broker = Broker::new(profile, "0123456789012345678901234567890123456789");
        let at = ServerTime(1_700_000_000_000_000);
        broker.watch_changes();
        broker.keep_log(true);
        for client in 1..=3 {
            broker.connect(at, ClientId(client), "127.0.0.1:5000");
        }
        Self { broker, at, out: Vec::new() }
    }

    fn send(&mut self, client: u64, command: &str) {
        let args: Vec<Bytes> = command.split(' ').map(|word| Bytes::from(word.to_string())).collect();
        self.broker.execute(self.at, ClientId(client), &args, &mut self.out);
    }

    /// What the first connection is answered, in short.
    fn ask(&mut self, command: &str) -> String {
        self.send(1, command);
        self.read(1)
    }

    fn read(&mut self, client: u64) -> String {
        let place = self.out.iter().position(|out| matches!(out, Out::Reply(to, _) if to.0 == client));
        match place.map(|place| self.out.remove(place)) {
            Some(Out::Reply(_, value)) => show(&value),
            _ => "(waits)".to_string(),
        }
    }

    fn add(&mut self, key: &str, count: u64) {
        for seq in 0..count {
            self.send(1, &format!("XADD {key} 1-{} a b", 10 * seq + 1));
        }
        self.out.clear();
    }

    fn changes(&mut self) -> Vec<Change> {
        self.broker.take_changes()
    }
}

fn show(value: &Value) -> String {
    let all = |values: &[Value]| values.iter().map(show).collect::<Vec<_>>().join(" ");
    match value {
        Value::Nil | Value::NilArray => "nil".to_string(),
        Value::Int(number) => number.to_string(),
        Value::Status(text) => (*text).to_string(),
        Value::Error(text) => text.clone(),
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Array(values) => format!("[{}]", all(values)),
        Value::Map(pairs) => {
            let pairs: Vec<_> = pairs.iter().map(|(name, value)| format!("{}={}", show(name), show(value))).collect();
            format!("{{{}}}", pairs.join(" "))
        }
        other => format!("{other:?}"),
    }
}

fn id(ms: u64, seq: u64) -> StreamId {
    StreamId { ms, seq }
}

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn pending(seq: u64, consumer: &'static str, from: Option<&'static str>, idle_ms: i64, deliveries: u64) -> Change {
    let (key, group) = (bytes("s"), bytes("g"));
    let (consumer, from) = (bytes(consumer), from.map(bytes));
    Change::Pending { key, group, id: id(1, seq), consumer, from, idle_ms, deliveries }
}

/// A stream of three entries, all delivered to `c`.
fn delivered(profile: Profile) -> Bench {
    let mut bench = Bench::new(profile);
    bench.add("s", 3);
    bench.ask("XGROUP CREATE s g 0");
    assert_eq!(bench.ask("XREADGROUP GROUP g c STREAMS s >"), "[[s [[1-1 [a b]] [1-11 [a b]] [1-21 [a b]]]]]");
    bench.changes();
    bench
}

#[test]
fn approximate_trimming_leaves_whole_nodes() {
    for profile in [Profile::redis_6_2(), Profile::redis_7_0(), Profile::valkey_8_1()] {
        let mut bench = Bench::new(profile);
        bench.add("s", 250);
        assert_eq!(bench.ask("XTRIM s MAXLEN ~ 10"), "200");
        assert_eq!(bench.ask("XLEN s"), "50");
        let trimmed = |change: &&Change| matches!(change, Change::Removed { why: Why::Trimmed, .. });
        assert_eq!(bench.changes().iter().filter(trimmed).count(), 200);
        bench.add("t", 500);
        assert_eq!(bench.ask("XTRIM t MAXLEN ~ 1 LIMIT 150"), "100");
        assert_eq!(bench.ask("XTRIM t MAXLEN ~ 1 LIMIT 99"), "0");
        assert_eq!(bench.ask("XTRIM t MAXLEN ~ 1 LIMIT 0"), "300");
        assert_eq!(bench.ask("XTRIM t MAXLEN 7"), "93");
    }
}

#[test]
fn removed_entries_keep_their_room_in_a_node() {
    let mut bench = Bench::new(Profile::redis_7_0());
    bench.add("s", 100);
    bench.ask("XDEL s 1-11 1-21");
    bench.ask("XADD s 2-0 a b");
    assert_eq!(bench.ask("XTRIM s MAXLEN ~ 1"), "98");
}

#[test]
fn a_node_is_full_by_bytes_as_each_version_counts_them() {
    for (profile, left) in [(Profile::redis_6_2(), 53), (Profile::redis_7_0(), 52), (Profile::valkey_8_1(), 52)] {
        let mut bench = Bench::new(profile);
        let long = "b".repeat(67);
        for seq in 0..95 {
            bench.ask(&format!("XADD s 2-{seq} a {long}"));
        }
        assert_eq!(bench.ask("XTRIM s MAXLEN ~ 1"), left.to_string());
    }
}

#[test]
fn the_lag_is_unknown_only_while_it_cannot_be_reckoned() {
    let mut bench = Bench::new(Profile::redis_7_0());
    for seq in 0..10 {
        bench.ask(&format!("XADD s 2-{seq} a b"));
    }
    for (name, at) in [("g", "0"), ("h", "2-5"), ("i", "2-5 ENTRIESREAD 6"), ("k", "$"), ("l", "9-9")] {
        bench.ask(&format!("XGROUP CREATE s {name} {at}"));
    }
    let lags = |bench: &mut Bench| {
        let text = bench.ask("XINFO GROUPS s");
        let lags = text.split("lag=").skip(1).map(|rest| rest.split(['}', ' ']).next().unwrap_or_default().to_string());
        lags.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(lags(&mut bench), "10 nil 4 0 nil");
    bench.ask("XTRIM s MAXLEN 5");
    assert_eq!(lags(&mut bench), "5 4 4 0 nil");
    bench.ask("XDEL s 2-7");
    assert_eq!(lags(&mut bench), "nil nil nil 0 nil");
}

#[test]
fn claims_drop_what_is_not_in_the_stream_from_7_0_on() {
    let mut bench = delivered(Profile::redis_7_0());
    bench.ask("XDEL s 1-1 1-21");
    bench.changes();
    assert_eq!(bench.ask("XCLAIM s g d 0 1-1"), "[]");
    let dropped = |seq| Change::Dropped { key: bytes("s"), group: bytes("g"), id: id(1, seq), consumer: bytes("c") };
    assert_eq!(bench.changes(), [dropped(1)]);
    assert_eq!(bench.ask("XAUTOCLAIM s g d 0 0"), "[0-0 [[1-11 [a b]]] [1-21]]");
    assert_eq!(bench.changes(), [pending(11, "d", Some("c"), 0, 2), dropped(21)]);

    let mut bench = delivered(Profile::redis_6_2());
    bench.ask("XDEL s 1-1");
    assert_eq!(bench.ask("XCLAIM s g d 0 1-1"), "[nil]");
    assert_eq!(bench.ask("XAUTOCLAIM s g e 0 0 COUNT 2"), "[1-21 [nil [1-11 [a b]]]]");
}

#[test]
fn a_claim_takes_only_what_is_idle_for_long_enough() {
    let mut bench = delivered(Profile::redis_7_0());
    bench.at.0 += 500_000;
    assert_eq!(bench.ask("XCLAIM s g d 501 1-1"), "[]");
    assert_eq!(bench.ask("XCLAIM s g d 500 1-1 JUSTID"), "[1-1]");
    assert_eq!(bench.ask("XCLAIM s g e 500 1-1"), "[]", "the first claim made it fresh");
    assert_eq!(bench.ask("XCLAIM s g e 500 1-11 RETRYCOUNT 7"), "[[1-11 [a b]]]");
    assert_eq!(bench.changes(), [pending(1, "d", Some("c"), 500, 1), pending(11, "e", Some("c"), 500, 7)]);
    bench.ask("XACK s g 1-1");
    let acked = Change::Acked { key: bytes("s"), group: bytes("g"), id: id(1, 1), consumer: bytes("d") };
    assert_eq!(bench.changes(), [acked]);
    assert_eq!(bench.ask("XCLAIM s g d 0 1-1 FORCE"), "[[1-1 [a b]]]");
    assert_eq!(bench.changes(), [pending(1, "d", None, 0, 2)]);
}

#[test]
fn reading_the_history_counts_as_a_delivery_but_is_not_logged() {
    let mut bench = delivered(Profile::redis_7_0());
    bench.ask("XDEL s 1-11");
    bench.changes();
    bench.broker.take_log();
    bench.at.0 += 40_000;
    assert_eq!(bench.ask("XREADGROUP GROUP g c STREAMS s 0"), "[[s [[1-1 [a b]] [1-11 nil] [1-21 [a b]]]]]");
    assert_eq!(bench.changes(), [pending(1, "c", Some("c"), 40, 2), pending(21, "c", Some("c"), 40, 2)]);
    assert_eq!(bench.ask("XPENDING s g - + 9"), "[[1-1 c 0 2] [1-11 c 40 1] [1-21 c 0 2]]");
    assert!(bench.broker.take_log().is_empty());
}

#[test]
fn a_consumer_that_is_removed_takes_its_pending_entries_along() {
    let mut bench = delivered(Profile::redis_7_0());
    assert_eq!(bench.ask("XGROUP DELCONSUMER s g c"), "3");
    let consumer = bytes("c");
    let gone = Change::ConsumerGone { key: bytes("s"), group: bytes("g"), consumer, pending: 3 };
    assert_eq!(bench.changes(), [gone]);
    assert_eq!(bench.ask("XPENDING s g"), "[0 nil nil nil]");
    assert_eq!(bench.ask("XGROUP DELCONSUMER s g c"), "0");
    assert!(bench.changes().is_empty());
}

#[test]
fn waiting_readers_are_served_in_order_and_before_7_2_with_one_stream_only() {
    for (profile, first) in [
        (Profile::redis_7_0(), "[[t [[5-1 [a t]] [5-2 [a t]]]]]"),
        (Profile::valkey_8_1(), "[[s [[5-1 [a s]]]] [t [[5-1 [a t]] [5-2 [a t]]]]]"),
    ] {
        let mut bench = Bench::new(profile);
        for key in ["s", "t"] {
            bench.ask(&format!("XGROUP CREATE {key} g $ MKSTREAM"));
        }
        bench.send(2, "XREADGROUP GROUP g c BLOCK 0 STREAMS s t > >");
        bench.send(3, "XREADGROUP GROUP g d BLOCK 0 STREAMS t >");
        for command in ["MULTI", "XADD t 5-1 a t", "XADD s 5-1 a s", "XADD t 5-2 a t", "EXEC"] {
            bench.ask(command);
        }
        assert_eq!(bench.read(2), first);
        assert_eq!(bench.read(3), "(waits)");
    }
}

#[test]
fn readers_of_a_group_learn_that_it_is_gone() {
    let gone = "NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option";
    let cases = [
        (Profile::redis_6_2(), "(waits)", "NOGROUP the consumer group this client was blocked on no longer exists"),
        (
            Profile::redis_7_0(),
            "UNBLOCKED the stream key no longer exists",
            "NOGROUP the consumer group this client was blocked on no longer exists",
        ),
        (Profile::valkey_8_1(), gone, gone),
    ];
    for (profile, deleted, destroyed) in cases {
        for (command, told) in [("DEL s", deleted), ("XGROUP DESTROY s g", destroyed)] {
            let mut bench = Bench::new(profile.clone());
            bench.ask("XGROUP CREATE s g $ MKSTREAM");
            bench.send(2, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
            bench.send(3, "XREAD BLOCK 0 STREAMS s $");
            assert_eq!(bench.ask(command), "1");
            assert_eq!(bench.read(2), told);
            assert_eq!(bench.read(3), "(waits)");
        }
    }
}

#[test]
fn the_log_gives_the_same_stream_again() {
    for profile in [Profile::redis_6_2(), Profile::redis_7_0(), Profile::valkey_8_1()] {
        let mut bench = delivered(profile.clone());
        bench.send(2, "XREADGROUP GROUP g d COUNT 1 BLOCK 0 STREAMS s >");
        for command in ["XADD s * a b", "XCLAIM s g d 0 1-1 1-99", "XDEL s 1-11", "XAUTOCLAIM s g e 0 0 COUNT 2"] {
            bench.at.0 += 5_000;
            bench.ask(command);
        }
        let mut again = Bench::new(profile);
        again.at = bench.at;
        for logged in bench.broker.take_log() {
            again.broker.apply(&logged);
        }
        for command in ["XINFO STREAM s FULL", "XPENDING s g - + 9"] {
            assert_eq!(again.ask(command), bench.ask(command));
        }
    }
}
