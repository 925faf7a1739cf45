use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::command::ArgSink;
use crate::reply::{Kind, Reply, StreamId};

mod oracle;

fn whole(bytes: &[u8]) -> Result<Option<(Reply, usize)>, ProtocolError> {
    Scan::new(Limits::default()).poll(bytes)
}

/// One byte more at each poll, so that every cut is tried.
fn byte_by_byte(bytes: &[u8], limits: Limits) -> Result<Option<(Reply, usize)>, ProtocolError> {
    let mut scan = Scan::new(limits);
    for n in 0..=bytes.len() {
        if let Some(done) = scan.poll(&bytes[..n])? {
            return Ok(Some(done));
        }
    }
    Ok(None)
}

fn reply(bytes: &[u8]) -> Reply {
    let (reply, taken) = whole(bytes).unwrap().unwrap();
    assert_eq!(taken, bytes.len());
    assert_eq!(byte_by_byte(bytes, Limits::default()), Ok(Some((reply.clone(), taken))));
    for cut in 0..bytes.len() {
        assert_eq!(whole(&bytes[..cut]), Ok(None), "cut at {cut}");
    }
    reply
}

fn error(bytes: &[u8], limits: Limits) -> ProtocolError {
    let error = Scan::new(limits).poll(bytes).unwrap_err();
    let cut = byte_by_byte(bytes, limits).unwrap_err();
    assert_eq!(core::mem::discriminant(&error), core::mem::discriminant(&cut), "{error} and {cut}");
    error
}

#[test]
fn each_type_is_read() {
    for (bytes, shown) in [
        ("+OK\r\n", "OK"),
        ("+\r\n", ""),
        ("-ERR no\r\n", "!ERR no"),
        ("!6\r\nERR\r\nn\r\n", "!ERR\\r\\nn"),
        (":0\r\n", "0"),
        (":-9223372036854775808\r\n", "-9223372036854775808"),
        (":+5\r\n", "5"),
        ("$0\r\n\r\n", "\"\""),
        ("$2\r\n\r\n\r\n", "\"\\r\\n\""),
        ("$3\r\nabc\r\n", "\"abc\""),
        ("$-1\r\n", "nil"),
        ("*-1\r\n", "nil"),
        ("_\r\n", "nil"),
        ("=7\r\ntxt:abc\r\n", "\"abc\""),
        ("=4\r\ntxt:\r\n", "\"\""),
        ("#t\r\n", "true"),
        ("#f\r\n", "false"),
        (",1.25\r\n", "1.25"),
        (",-inf\r\n", "-inf"),
        (",nan\r\n", "nan"),
        (",1e-7\r\n", "1e-7"),
        ("(-3492890328409238509324850943850943825024385\r\n", "-3492890328409238509324850943850943825024385"),
        ("*0\r\n", "[]"),
        ("~0\r\n", "{}"),
        ("%0\r\n", "{}"),
        (">1\r\n+a\r\n", ">[a]"),
        ("*2\r\n*1\r\n:1\r\n*0\r\n", "[[1], []]"),
        ("%2\r\n+a\r\n:1\r\n+b\r\n%1\r\n_\r\n$-1\r\n", "{a: 1, b: {nil: nil}}"),
        ("~2\r\n$1\r\na\r\n#t\r\n", "{\"a\", true}"),
        ("*3\r\n$-1\r\n*-1\r\n_\r\n", "[nil, nil, nil]"),
        ("|1\r\n+ttl\r\n:3\r\n:7\r\n", "7"),
        ("|0\r\n:7\r\n", "7"),
        ("*2\r\n|1\r\n+ttl\r\n*1\r\n:3\r\n:7\r\n:8\r\n", "[7, 8]"),
        ("|1\r\n+a\r\n|1\r\n+b\r\n:1\r\n:2\r\n*1\r\n+x\r\n", "[x]"),
        ("$0000000000003\r\nabc\r\n", "\"abc\""),
    ] {
        assert_eq!(format!("{:?}", reply(bytes.as_bytes())), shown, "{bytes:?}");
    }
}

#[test]
fn small_scalars_are_flat_and_rare_ones_are_trees() {
    assert!(matches!(reply(b"+OK\r\n"), Reply::Status(_)));
    assert!(matches!(reply(b"$15\r\n1526919030474-0\r\n"), Reply::Bulk(_)));
    assert!(matches!(reply(b"|1\r\n+a\r\n+b\r\n:1\r\n"), Reply::Int(1)));
    assert!(matches!(reply(b"-ERR\r\n"), Reply::Error(_)));
    assert!(matches!(reply(b"#t\r\n"), Reply::Tree(_)));
    assert_eq!(reply(b"(12\r\n").view().kind(), Kind::BigNumber);
    assert!(reply(b">1\r\n+a\r\n").is_push());
}

#[test]
fn replies_follow_each_other() {
    let bytes = b"+OK\r\n*1\r\n$3\r\nabc\r\n:1\r\n$-1\r\n";
    let mut scan = Scan::new(Limits::default());
    let mut rest = &bytes[..];
    let mut all = Vec::new();
    while let Some((reply, taken)) = scan.poll(rest).unwrap() {
        all.push(format!("{reply:?}"));
        rest = &rest[taken..];
    }
    assert_eq!(all, ["OK", "[\"abc\"]", "1", "nil"]);
    assert!(rest.is_empty());
}

/// What one header left behind must not mislead the next, which may be shorter.
#[test]
fn replies_follow_each_other_in_every_cut() {
    let long = ["$1234\r\n", &"x".repeat(1234), "\r\n"].concat();
    let replies =
        ["$3\r\nabc\r\n", "$12\r\nabcdefghijkl\r\n", &long, "+\r\n", ":1\r\n", "*1\r\n+\r\n", "_\r\n", "$-1\r\n"];
    for first in replies {
        for second in replies {
            let bytes = [first.as_bytes(), second.as_bytes()].concat();
            for cut in 0..bytes.len() {
                let mut scan = Scan::new(Limits::default());
                let (mut front, mut found) = (0, 0);
                for end in [cut.saturating_sub(1), cut, bytes.len()] {
                    while let Some((_, taken)) = scan.poll(&bytes[front..end.max(front)]).unwrap() {
                        (front, found) = (front + taken, found + 1);
                    }
                }
                assert_eq!((front, found), (bytes.len(), 2), "{first:?} {second:?} cut at {cut}");
            }
        }
    }
}

#[test]
fn malformed_bytes_are_refused_by_name() {
    use ProtocolError as E;
    let length = |kind, line: &str| E::BadLength { kind, line: line.into() };
    let value = |kind, line: &str| E::BadValue { kind, line: line.into() };
    for (bytes, expected) in [
        ("$abc\r\n", length(b'$', "abc")),
        ("$\r\n", length(b'$', "")),
        ("$-2\r\n", length(b'$', "-2")),
        ("$+1\r\na\r\n", length(b'$', "+1")),
        ("$1 \r\n", length(b'$', "1 ")),
        ("$1x\r\n", length(b'$', "1x")),
        ("%-1\r\n", length(b'%', "-1")),
        ("~-1\r\n", length(b'~', "-1")),
        (">-1\r\n", length(b'>', "-1")),
        ("=-1\r\n", length(b'=', "-1")),
        ("!-1\r\n", length(b'!', "-1")),
        ("|-1\r\n", length(b'|', "-1")),
        ("*1.5\r\n", length(b'*', "1.5")),
        ("*1\r\n$x\r\n", length(b'$', "x")),
        (":\r\n", value(b':', "")),
        (":-\r\n", value(b':', "-")),
        (":+-1\r\n", value(b':', "+-1")),
        (":1.0\r\n", value(b':', "1.0")),
        (":9223372036854775808\r\n", value(b':', "9223372036854775808")),
        ("#x\r\n", value(b'#', "x")),
        ("#\r\n", value(b'#', "")),
        (",\r\n", value(b',', "")),
        (",.\r\n", value(b',', ".")),
        (",one\r\n", value(b',', "one")),
        ("(\r\n", value(b'(', "")),
        ("(1a\r\n", value(b'(', "1a")),
        ("_x\r\n", value(b'_', "x")),
        ("=3\r\nabc\r\n", E::BadVerbatim),
        ("=5\r\nabcde\r\n", E::BadVerbatim),
        ("+a\n", E::BareNewline),
        ("+a\rb\r\n", E::BareNewline),
        ("$3\nabc\r\n", E::BareNewline),
        ("$3\rabc\r\n", E::BareNewline),
        ("$2\r\nabcd", E::BodyNotEnded { length: 2, found: *b"cd" }),
        ("$3\r\nabc\n\r", E::BodyNotEnded { length: 3, found: *b"\n\r" }),
        ("*1\r\nx\r\n", E::UnknownType { byte: b'x' }),
        ("$?\r\n", E::Streamed { kind: b'$' }),
        ("*?\r\n", E::Streamed { kind: b'*' }),
        ("%?\r\n", E::Streamed { kind: b'%' }),
        ("~?\r\n", E::Streamed { kind: b'~' }),
        ("*1\r\n;4\r\n", E::Streamed { kind: b';' }),
        (".\r\n", E::Streamed { kind: b'.' }),
        ("*1\r\n>1\r\n+a\r\n", E::NestedPush),
    ] {
        assert_eq!(error(bytes.as_bytes(), Limits::default()), expected, "{bytes:?}");
    }
}

#[test]
fn an_error_stays() {
    let mut scan = Scan::new(Limits::default());
    let first = scan.poll(b"$x\r\n").unwrap_err();
    assert_eq!(scan.poll(b"+OK\r\n"), Err(first));
}

#[test]
fn who_is_not_a_server_is_told_apart_from_a_slipped_stream() {
    let message = |bytes: &[u8]| error(bytes, Limits::default()).to_string();
    let http = message(b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n");
    assert!(http.starts_with("this is not a RESP server: it answered \"HTTP/1.1 400 Bad Request\\r\\n"), "{http}");
    assert!(http.ends_with("that is an HTTP server: check the port"), "{http}");
    assert!(message(b"SSH-2.0-OpenSSH_9.6\r\n").contains("an SSH server"));
    assert!(message(b"\x15\x03\x03\0\x02\x02\x28").contains("wants TLS"));

    let mut scan = Scan::new(Limits::default());
    let (_, taken) = scan.poll(b"+OK\r\nHTTP").unwrap().unwrap();
    assert_eq!(scan.poll(&b"+OK\r\nHTTP"[taken..]), Err(ProtocolError::UnknownType { byte: b'H' }));
}

#[test]
fn every_message_says_what_to_do() {
    for bytes in ["$x\r\n", ":x\r\n", "$?\r\n", "+a\n", "$1\r\nabc", "=1\r\na\r\n", "*1\r\n>0\r\n", "*1\r\nx", "x"] {
        let text = error(bytes.as_bytes(), Limits::default()).to_string();
        assert!(text.contains("dial again") || text.contains("check"), "{text}");
    }
}

#[test]
fn limits_hold_at_the_header_and_not_one_before() {
    let limits = Limits { depth: 2, elements: 4, bytes: 64 };
    let fine = |bytes: &str| {
        let bytes = bytes.as_bytes();
        assert!(matches!(Scan::new(limits).poll(bytes), Ok(Some(_))), "{:?}", bytes.escape_ascii().to_string());
        assert!(matches!(byte_by_byte(bytes, limits), Ok(Some(_))));
    };
    fine("*1\r\n*1\r\n:1\r\n");
    assert_eq!(error(b"*1\r\n*1\r\n*0\r\n", limits), ProtocolError::TooDeep { limit: 2 });
    assert_eq!(error(b"*1\r\n|1\r\n|1\r\n", limits), ProtocolError::TooDeep { limit: 2 });
    fine("*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n");
    assert_eq!(error(b"*5\r\n", limits), ProtocolError::TooManyElements { limit: 4 });
    assert_eq!(error(b"*2\r\n*3\r\n", limits), ProtocolError::TooManyElements { limit: 4 });
    fine("%2\r\n:1\r\n:1\r\n:1\r\n:1\r\n");
    assert_eq!(error(b"%3\r\n", limits), ProtocolError::TooManyElements { limit: 4 });
    assert_eq!(error(b"|0\r\n|0\r\n|0\r\n|0\r\n|0\r\n", limits), ProtocolError::TooManyElements { limit: 4 });
    assert_eq!(error(b"*18446744073709551617\r\n", limits), ProtocolError::TooManyElements { limit: 4 });
    assert_eq!(error(b"%4294967297\r\n", limits), ProtocolError::TooManyElements { limit: 4 });

    fine(&format!("$57\r\n{}\r\n", "x".repeat(57)));
    assert_eq!(error(b"$58\r\n", limits), ProtocolError::TooLarge { bytes: 65, limit: 64 });
    // The same when all of it has arrived, at the top and below.
    let there = format!("$58\r\n{}\r\n", "x".repeat(58));
    assert_eq!(error(there.as_bytes(), limits), ProtocolError::TooLarge { bytes: 65, limit: 64 });
    let below = format!("*1\r\n$54\r\n{}\r\n", "x".repeat(54));
    assert_eq!(error(below.as_bytes(), limits), ProtocolError::TooLarge { bytes: 65, limit: 64 });
    assert!(matches!(error(b"$99999999999999999999999\r\n", limits), ProtocolError::TooLarge { .. }));
    fine(&format!("+{}\r\n", "x".repeat(61)));
    let line = format!("+{}\r\n", "x".repeat(62));
    assert_eq!(error(line.as_bytes(), limits), ProtocolError::TooLarge { bytes: 65, limit: 64 });
}

#[test]
fn lines_end_somewhere() {
    let most = format!("-{}\r\n", "x".repeat(ProtocolError::LINE));
    assert!(matches!(whole(most.as_bytes()), Ok(Some(_))));
    for end in ["", "\r\n", "xxx\r\n"] {
        let more = format!("-{}x{end}", "x".repeat(ProtocolError::LINE));
        assert_eq!(whole(more.as_bytes()), Err(ProtocolError::LineTooLong));
        assert_eq!(byte_by_byte(more.as_bytes(), Limits::default()), Err(ProtocolError::LineTooLong));
    }
}

#[test]
fn nesting_is_refused_and_never_recursed_into() {
    let deep = "*1\r\n".repeat(200_000);
    assert_eq!(whole(deep.as_bytes()), Err(ProtocolError::TooDeep { limit: 16 }));
    let mut fine = "*1\r\n".repeat(16);
    fine.push_str(":1\r\n");
    assert!(matches!(whole(fine.as_bytes()), Ok(Some(_))));
}

#[test]
fn the_scan_tells_how_much_room_a_body_needs() {
    let mut scan = Scan::new(Limits::default());
    assert_eq!(scan.poll(b"*1\r\n$1000\r\nabc"), Ok(None));
    assert_eq!(scan.needed(), 11 + 1000 + 2);
}

#[test]
fn a_stream_read_becomes_entries() {
    let resp2 =
        b"*1\r\n*2\r\n$2\r\ns0\r\n*2\r\n*2\r\n$3\r\n5-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n*2\r\n$3\r\n5-2\r\n*-1\r\n";
    let resp3 = b"%1\r\n$2\r\ns0\r\n*2\r\n*2\r\n$3\r\n5-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n*2\r\n$3\r\n5-2\r\n_\r\n";
    for bytes in [&resp2[..], &resp3[..]] {
        let entries = reply(bytes).entries().unwrap();
        assert_eq!((entries.len(), entries.stream_key(0)), (2, &b"s0"[..]));
        assert_eq!((entries.id(0), entries.field(0, b"f")), (StreamId { ms: 5, seq: 1 }, Some(&b"v"[..])));
        assert!(entries.is_deleted(1));
    }
    assert!(reply(b"*-1\r\n").entries().unwrap().is_empty());
}

#[test]
fn commands_are_arrays_of_bulk_strings() {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    writer.count(7);
    writer.word("XADD");
    writer.bytes(b"");
    writer.bytes(b"a\r\nb");
    writer.int(-1526919030474);
    writer.id(StreamId { ms: 1_526_919_030_474, seq: 7 });
    writer.uuid(&[0xab; 16]);
    writer.body(&bytes::Bytes::from(vec![b'x'; 120]));
    writer.finish();
    let expected = format!(
        "*7\r\n$4\r\nXADD\r\n$0\r\n\r\n$4\r\na\r\nb\r\n$14\r\n-1526919030474\r\n$15\r\n1526919030474-7\r\n\
         $36\r\nabababab-abab-abab-abab-abababababab\r\n$120\r\n{}\r\n",
        "x".repeat(120)
    );
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
#[should_panic(expected = "1 arguments early")]
fn a_command_without_all_its_arguments_is_not_sent() {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    writer.count(2);
    writer.word("GET");
    writer.finish();
}

#[test]
#[should_panic(expected = "more arguments than it announced")]
fn a_command_with_too_many_arguments_is_not_sent() {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    writer.count(1);
    writer.word("GET");
    writer.word("GET");
}
