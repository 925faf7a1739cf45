use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::*;

#[test]
fn sizes() {
    assert_eq!(size_of::<Node>(), 12);
    assert_eq!(size_of::<Short>(), 32);
    assert!(size_of::<Reply>() <= 40, "{}", size_of::<Reply>());
    assert_eq!(size_of::<StreamId>(), 16);
}

#[test]
fn short_keeps_thirty_bytes_in_place_and_more_beside() {
    for n in [0, 1, 29, 30, 31, 1000] {
        let bytes = vec![b'x'; n];
        let short = Short::new(&bytes);
        assert_eq!(short.as_bytes(), bytes);
        assert_eq!(short.to_bytes(), bytes);
        assert_eq!(short.as_str().map(str::len), Some(n));
    }
    assert_eq!(Short::new(b"\xff").as_str(), None);
    let long = Short::new(&[b'x'; 31]);
    assert_eq!(long.to_bytes().as_ptr(), long.as_bytes().as_ptr(), "a long one is shared, not copied");
}

#[test]
fn stream_ids_are_read_strictly_and_print_as_they_were_read() {
    for (text, ms, seq) in [
        ("0-0", 0, 0),
        ("1526919030474-55", 1_526_919_030_474, 55),
        ("18446744073709551615-18446744073709551615", u64::MAX, u64::MAX),
        ("9999999999999999999-10000000000000000000", 9_999_999_999_999_999_999, 10_000_000_000_000_000_000),
    ] {
        let id = StreamId::parse(text.as_bytes()).unwrap();
        assert_eq!((id.ms, id.seq), (ms, seq));
        assert_eq!(id.to_string(), text);
    }
    for text in [
        "",
        "-",
        "1",
        "1-",
        "-1",
        "1-2-3",
        "1-2 ",
        " 1-2",
        "+1-2",
        "1-+2",
        "01-2",
        "1-02",
        "1--2",
        "0x1-2",
        "18446744073709551616-0",
        "0-99999999999999999999",
        "0-100000000000000000000",
        "1-2\n",
    ] {
        assert_eq!(StreamId::parse(text.as_bytes()), None, "{text:?}");
    }
    assert!(StreamId { ms: 1, seq: 9 } < StreamId { ms: 2, seq: 0 });
}

#[test]
fn int_access_is_exact() {
    for n in [0, 1, -1, 999_999_999_999_999, i64::MAX, i64::MIN, 1 << 32, -(1 << 32)] {
        let mut build = ReplyBuilder::new();
        build.array(3).int(n).bulk(n.to_string().as_bytes()).status(&n.to_string());
        assert!(build.finish().view().items().unwrap().all(|v| v.as_int() == Some(n)));
        assert_eq!(Reply::Int(n).view().as_int(), Some(n));
    }
    for text in ["", "-", "+1", "1 ", "1.0", "9223372036854775808", "-9223372036854775809", "--1"] {
        assert_eq!(Reply::bulk(text.as_bytes()).view().as_int(), None, "{text:?}");
    }
    assert_eq!(Reply::bulk(b"-9223372036854775808").view().as_int(), Some(i64::MIN));
    assert_eq!(Reply::Error(ErrorReply::new(b"1")).view().as_int(), None);
}

fn every_kind() -> Reply {
    let mut build = ReplyBuilder::new();
    build.array(10).nil().int(-7).status("OK").error("ERR no").bulk(b"a\0b").bool(true).double("1.5");
    build.set(1).int(1).map(1).bulk(b"k").array(1).bulk(b"v").array(0);
    build.finish()
}

#[test]
fn access_answers_only_to_its_shape() {
    let reply = every_kind();
    let items: Vec<_> = reply.view().items().unwrap().collect();
    let kinds: Vec<_> = items.iter().map(|v| v.kind()).collect();
    use Kind::*;
    assert_eq!(kinds, [Nil, Int, Status, Error, Bulk, Bool, Double, Set, Map, Array]);
    let which =
        |has: &dyn Fn(&View<'_>) -> bool| -> Vec<Kind> { items.iter().filter(|v| has(v)).map(|v| v.kind()).collect() };
    assert_eq!(which(&|v| v.is_nil()), [Nil]);
    assert_eq!(which(&|v| v.as_int().is_some()), [Int]);
    assert_eq!(which(&|v| v.as_bytes().is_some()), [Status, Bulk, Double]);
    assert_eq!(which(&|v| v.slice().is_some()), [Status, Bulk, Double]);
    assert_eq!(which(&|v| v.as_bool().is_some()), [Bool]);
    assert_eq!(which(&|v| v.error().is_some()), [Error]);
    assert_eq!(which(&|v| v.items().is_some()), [Set, Map, Array]);
    assert_eq!(which(&|v| v.pairs().is_some()), [Map, Array]);
    assert_eq!(items[3].error(), Some("ERR no"));
    assert_eq!(items[4].as_bytes(), Some(&b"a\0b"[..]));
    assert_eq!(format!("{reply:?}"), r#"[nil, -7, OK, !ERR no, "a\x00b", true, 1.5, {1}, {"k": ["v"]}, []]"#);
    assert!(!reply.is_push());
}

#[test]
fn a_slice_shares_the_bytes_of_the_reply() {
    let mut build = ReplyBuilder::new();
    build.array(1).bulk(b"payload");
    let reply = build.finish();
    let view = reply.view().items().unwrap().next().unwrap();
    assert_eq!(view.slice().unwrap().as_ptr(), view.as_bytes().unwrap().as_ptr());
}

#[test]
fn pairs_come_from_a_map_or_from_a_flat_array() {
    let mut map = ReplyBuilder::new();
    map.map(2).bulk(b"proto").int(3).bulk(b"role").bulk(b"master");
    let mut flat = ReplyBuilder::new();
    flat.array(4).bulk(b"proto").int(3).bulk(b"role").bulk(b"master");
    for reply in [map.finish(), flat.finish()] {
        assert_eq!(reply.view().pairs().unwrap().len(), 2);
        assert_eq!(reply.view().value_of(b"proto").unwrap().as_int(), Some(3));
        assert_eq!(reply.view().value_of(b"role").unwrap().as_str(), Some("master"));
        assert!(reply.view().value_of(b"3").is_none(), "a value is no key");
    }
    let mut odd = ReplyBuilder::new();
    odd.array(1).bulk(b"proto");
    assert!(odd.finish().view().pairs().is_none());
    let mut set = ReplyBuilder::new();
    set.set(2).int(1).int(2);
    assert!(set.finish().view().pairs().is_none());
}

#[test]
fn replies_are_equal_by_value() {
    assert_eq!(every_kind(), every_kind());
    assert_ne!(Reply::Nil, Reply::Int(0));
    assert_ne!(Reply::Int(1), Reply::bulk(b"1"));
    assert_ne!(Reply::status("OK"), Reply::bulk(b"OK"));
    let nested = |outer: u32, inner: u32| {
        let mut build = ReplyBuilder::new();
        build.array(outer).array(inner);
        for _ in 0..outer + inner - 1 {
            build.int(1);
        }
        build.finish()
    };
    assert_eq!(nested(2, 3), nested(2, 3));
    assert_ne!(nested(2, 3), nested(3, 2));
}

#[test]
fn pushes_are_told_apart() {
    let mut build = ReplyBuilder::new();
    build.push(1).bulk(b"invalidate");
    assert!(build.finish().is_push());
    let mut build = ReplyBuilder::new();
    build.bool(false);
    assert!(!build.finish().is_push());
}

#[test]
fn errors_have_the_class_of_their_code() {
    use ErrorClass::*;
    for (text, class) in [
        ("OOM command not allowed when used memory > 'maxmemory'.", Oom),
        ("MISCONF Redis is configured to save RDB snapshots", Misconf),
        ("NOREPLICAS Not enough good replicas to write.", NoReplicas),
        ("READONLY You can't write against a read only replica.", ReadOnly),
        ("LOADING Redis is loading the dataset in memory", Loading),
        ("BUSY Redis is busy running a script.", Busy),
        ("BUSYGROUP Consumer Group name already exists", BusyGroup),
        ("MASTERDOWN Link with MASTER is down", MasterDown),
        ("NOAUTH Authentication required.", NoAuth),
        ("WRONGPASS invalid username-password pair or user is disabled.", WrongPass),
        ("NOPERM this user has no permissions to run the 'xadd' command", NoPerm),
        ("NOSCRIPT No matching script. Please use EVAL.", NoScript),
        ("NOGROUP No such key 'a' or consumer group 'g' in XREADGROUP", NoGroup),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", WrongType),
        ("UNBLOCKED client unblocked via CLIENT UNBLOCK", Unblocked),
        ("EXECABORT Transaction discarded because of previous errors.", ExecAbort),
        ("NOPROTO unsupported protocol version", NoProto),
        ("ERR unknown command 'HELLO', with args beginning with: '3' ", UnknownCommand),
        ("ERR Unknown subcommand or wrong number of arguments for 'CREATECONSUMER'", UnknownCommand),
        ("ERR syntax error", Other),
        ("ERR", Other),
        ("", Other),
        ("OOMPH", Other),
        ("ERR the text OOM command not allowed", Other),
    ] {
        assert_eq!(ErrorReply::new(text.as_bytes()).class(), class, "{text:?}");
    }
}

#[test]
fn errors_of_scripts_are_unwrapped_where_the_server_wraps_them() {
    use ErrorClass::*;
    for (text, class) in [
        (
            "ERR Error running script (call to f_6b1b): @user_script:1: NOGROUP No such key 'a' or consumer group 'g'",
            NoGroup,
        ),
        ("ERR Error running script (call to f_6b1b): @user_script:12: -OOM command not allowed when used memory", Oom),
        ("ERR Error running script (call to f_6b1b): @user_script: 1: -READONLY You can't write", ReadOnly),
        ("ERR Error running script (call to f_6b1b): @user_script:3: @user_script: 3: -MISCONF Redis is", Misconf),
        ("ERR Error running script (call to f_6b1b): @user_script:1: attempt to index a nil value", Other),
        ("ERR Error running script (call to f_6b1b): @user_script:1", Other),
        ("ERR Error running script (call to f_6b1b): @user_script:x: OOM", Other),
        ("ERR @user_script:1: OOM", Other),
        ("NOGROUP No such key 'a' script: 5a1b, on @user_script:1.", NoGroup),
        ("OOM command not allowed script: 5a1b, on @user_script: 1: LOADING", Oom),
    ] {
        let error = ErrorReply::new(text.as_bytes());
        assert_eq!(error.class(), class, "{text:?}");
        assert_eq!(error.text(), text);
    }
}

/// `[[key, [[id, fields], …]], …]` as RESP2 has it, or the map of RESP3.
fn stream_read(map: bool) -> Reply {
    let mut build = ReplyBuilder::new();
    if map {
        build.map(2)
    } else {
        build.array(2)
    };
    if !map {
        build.array(2);
    }
    build.bulk(b"orders:0").array(2);
    build.array(2).bulk(b"5-1").array(4).bulk(b"payload").bulk(b"one").bulk(b"id").bulk(b"A");
    build.array(2).bulk(b"5-2").nil();
    if !map {
        build.array(2);
    }
    build.bulk(b"orders:1").array(1).array(2).bulk(b"7-0").array(2).bulk(b"payload").bulk(b"");
    build.finish()
}

#[test]
fn entries_come_from_both_protocols_alike() {
    for reply in [stream_read(false), stream_read(true)] {
        let entries = reply.entries().unwrap();
        assert_eq!((entries.len(), entries.streams()), (3, 2));
        assert_eq!((entries.stream_key(0), entries.stream_key(1)), (&b"orders:0"[..], &b"orders:1"[..]));
        let ids: Vec<_> = (0..3).map(|i| (entries.stream(i), entries.id(i).ms, entries.id(i).seq)).collect();
        assert_eq!(ids, [(0, 5, 1), (0, 5, 2), (1, 7, 0)]);
        let fields: Vec<_> = entries.fields(0).collect();
        assert_eq!(fields, [(&b"payload"[..], &b"one"[..]), (b"id", b"A")]);
        assert_eq!(entries.field(0, b"id"), Some(&b"A"[..]));
        assert_eq!(entries.field(0, b"one"), None, "a value is no name");
        assert_eq!(entries.field_slice(0, b"payload").unwrap(), "one");
        assert_eq!(entries.value_slice(0, 1).unwrap(), "A");
        assert_eq!(entries.value_slice(0, 2), None);
        assert_eq!(entries.value_slice(0, usize::MAX), None);
        assert_eq!((entries.is_deleted(0), entries.is_deleted(1)), (false, true));
        assert_eq!((entries.fields(1).count(), entries.field(1, b"payload")), (0, None));
        assert_eq!(entries.field(2, b"payload"), Some(&b""[..]));
        assert_eq!(entries.deliveries(0), 0);
    }
    assert!(Reply::Nil.entries().unwrap().is_empty());
}

#[test]
fn entries_of_another_shape_are_refused() {
    let mut cases = vec![Reply::Int(1), Reply::status("OK"), Reply::bulk(b"x")];
    let mut case = |write: &dyn Fn(&mut ReplyBuilder)| {
        let mut build = ReplyBuilder::new();
        write(&mut build);
        cases.push(build.finish());
    };
    case(&|b| _ = b.array(1).int(1));
    case(&|b| _ = b.set(1).array(2).bulk(b"k").array(0));
    case(&|b| _ = b.array(1).array(1).bulk(b"k"));
    case(&|b| _ = b.array(1).array(3).bulk(b"k").array(0).nil());
    case(&|b| _ = b.array(1).array(2).int(1).array(0));
    case(&|b| _ = b.array(1).array(2).bulk(b"k").nil());
    case(&|b| _ = b.array(1).array(2).error("ERR k").array(0));
    case(&|b| _ = b.map(1).bulk(b"k").bulk(b"v"));
    let entry = |b: &mut ReplyBuilder, id: &[u8]| _ = b.map(1).bulk(b"k").array(1).array(2).bulk(id);
    case(&|b| {
        entry(b, b"5");
        b.array(0);
    });
    case(&|b| {
        entry(b, b"5-1");
        b.array(1).bulk(b"f");
    });
    case(&|b| {
        entry(b, b"5-1");
        b.array(2).bulk(b"f").int(1);
    });
    case(&|b| {
        entry(b, b"5-1");
        b.array(2).bulk(b"f").array(1).bulk(b"v");
    });
    case(&|b| {
        entry(b, b"5-1");
        b.bulk(b"f");
    });
    case(&|b| {
        entry(b, b"5-1");
        b.set(2).bulk(b"f").bulk(b"v");
    });
    for reply in cases {
        assert!(reply.entries().is_err(), "{reply:?}");
    }
}

#[test]
fn entries_of_ranges_and_claims() {
    let mut build = ReplyBuilder::new();
    build.array(2).array(1).array(2).bulk(b"1-0").array(2).bulk(b"f").bulk(b"v");
    build.array(1).array(3).bulk(b"2-0").int(3).array(2).bulk(b"f").bulk(b"w");
    let reply = build.finish();
    let mut items = reply.view().items().unwrap();
    let (range, claim) = (items.next().unwrap(), items.next().unwrap());
    let mut builder = EntriesBuilder::new();
    builder.range(range).unwrap();
    builder.claimed(claim).unwrap();
    assert!(EntriesBuilder::new().range(claim).is_err());
    assert!(EntriesBuilder::new().claimed(range).is_err());
    let entries = builder.finish();
    assert_eq!((entries.len(), entries.streams(), entries.stream_key(0)), (2, 1, &b""[..]));
    assert_eq!((entries.deliveries(0), entries.deliveries(1)), (0, 3));
    assert_eq!(entries.field(1, b"f"), Some(&b"w"[..]));
}

#[test]
fn values_of_two_replies_do_not_mix() {
    let (one, two) = (stream_read(true), stream_read(true));
    let mut builder = EntriesBuilder::new();
    builder.read(one.view()).unwrap();
    assert!(builder.read(two.view()).is_err());
    assert!(builder.read(one.view()).is_ok());
}

#[test]
#[should_panic(expected = "before its last value")]
fn an_unfinished_reply_is_not_built() {
    let mut build = ReplyBuilder::new();
    build.array(2).int(1);
    drop(build.finish());
}
