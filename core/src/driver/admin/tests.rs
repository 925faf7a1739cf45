#![allow(clippy::unwrap_used, reason = "a test")]

use alloc::vec;

use super::parse::{self, Group};
use super::*;
use crate::reply::ReplyBuilder;

fn reply(build: impl FnOnce(&mut ReplyBuilder) -> &mut ReplyBuilder) -> Reply {
    let mut builder = ReplyBuilder::new();
    build(&mut builder);
    builder.finish()
}

/// One group as a server of RESP2 or RESP3 describes it; `lag` writes what comes after its name.
fn described(resp3: bool, lag: impl FnOnce(&mut ReplyBuilder) -> &mut ReplyBuilder) -> Reply {
    reply(|build| {
        build.array(1);
        if resp3 {
            build.map(6)
        } else {
            build.array(12)
        };
        build.bulk(b"name").bulk(b"g").bulk(b"consumers").int(2).bulk(b"pending").int(7);
        build.bulk(b"last-delivered-id").bulk(b"5-1").bulk(b"entries-read").int(9).bulk(b"lag");
        lag(build)
    })
}

fn group(lag: Option<u64>) -> Vec<Group> {
    vec![Group { name: "g".into(), pending: 7, last: StreamId { ms: 5, seq: 1 }, lag }]
}

#[test]
fn groups_are_read_from_both_protocols() {
    for resp3 in [false, true] {
        assert_eq!(parse::groups(&described(resp3, |build| build.int(3))), Some(group(Some(3))));
        assert_eq!(parse::groups(&described(resp3, |build| build.nil())), Some(group(None)));
        assert_eq!(parse::groups(&described(resp3, |build| build.int(-2))), Some(group(Some(0))));
    }
    let old = reply(|build| {
        build.array(1).array(8).bulk(b"name").bulk(b"g").bulk(b"consumers").int(2);
        build.bulk(b"pending").int(7).bulk(b"last-delivered-id").bulk(b"5-1")
    });
    assert_eq!(parse::groups(&old), Some(group(None)), "before Redis 7.0");
    assert_eq!(parse::groups(&reply(|build| build.array(0))), Some(Vec::new()));
    assert_eq!(parse::groups(&Reply::Int(1)), None);
    let nameless = reply(|build| build.array(1).array(2).bulk(b"pending").int(7));
    assert_eq!(parse::groups(&nameless), None);
}

#[test]
fn the_oldest_pending_entry() {
    let some = reply(|build| build.array(4).int(1).bulk(b"5-1").bulk(b"6-0").array(0));
    assert_eq!(parse::oldest_pending(&some), Some(Some(StreamId { ms: 5, seq: 1 })));
    let none = reply(|build| build.array(4).int(0).nil().nil().nil());
    assert_eq!(parse::oldest_pending(&none), Some(None));
    assert_eq!(parse::oldest_pending(&Reply::Nil), None);
}

#[test]
fn scans_times_and_numbers() {
    let page = reply(|build| build.array(2).bulk(b"17").array(3).bulk(b"a").bulk(b"\xff").bulk(b"b"));
    assert_eq!(parse::scan(&page), Some(("17".into(), vec!["a".into(), "b".into()])));
    assert_eq!(parse::scan(&Reply::Nil), None);
    let time = reply(|build| build.array(2).bulk(b"1700000000").bulk(b"123456"));
    assert_eq!(parse::time(&time), Some(1_700_000_000_123));
    assert_eq!(parse::number(&Reply::Int(4)), Some(4));
    assert_eq!(parse::number(&Reply::Int(-4)), None);
    let answers = reply(|build| build.array(2).bulk(b"8-0").bulk(b"gone"));
    assert_eq!(parse::replayed(&answers), Some(vec!["8-0".into(), "gone".into()]));
}

#[test]
fn a_dead_letter_is_read_from_its_entry() {
    let page = reply(|build| {
        build.array(2).array(2).bulk(b"90-0").array(16);
        let fields: [(&[u8], &[u8]); 8] = [
            (b"payload", b"\x00body"),
            (b"id", b"0190"),
            (b"dead-group", b"g"),
            (b"dead-partition", b"3"),
            (b"dead-origin", b"70-2"),
            (b"dead-reason", b"no"),
            (b"dead-attempts", b"6"),
            (b"dead-deliveries", b"5"),
        ];
        for (name, value) in fields {
            build.bulk(name).bulk(value);
        }
        build.array(2).bulk(b"91-0").array(2).bulk(b"x").bulk(b"y")
    });
    let page = parse::range(&page).unwrap();
    let broker: Endpoint = "10.0.0.1:6379".parse().unwrap();
    let expected = DeadLetter {
        id: "0190".into(),
        entry: StreamId { ms: 90, seq: 0 },
        broker: broker.clone(),
        partition: 3,
        group: "g".into(),
        body: Bytes::from_static(b"\x00body"),
        reason: "no".into(),
        deliveries: 5,
        attempts: 6,
        first_ms: 70,
        dead_ms: 90,
    };
    assert_eq!(DeadLetter::read(&page, 0, &broker), expected);
    let bare = DeadLetter::read(&page, 1, &broker);
    assert_eq!((bare.id.as_str(), bare.first_ms, bare.deliveries), ("91-0", 91, 0));
    assert_eq!(parse::range(&reply(|build| build.array(0))).unwrap().len(), 0);
}
