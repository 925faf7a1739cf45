use std::borrow::Cow;

use flota_core::driver::resp::{Limits, Scan};
use proptest::prelude::*;

use super::*;
use crate::broker::{Value, convert};

/// Every command in the bytes, and how it ends.
fn read(pieces: &[&[u8]]) -> (Vec<Vec<Bytes>>, Option<String>) {
    let (mut requests, mut all) = (Requests::new(), Vec::new());
    for piece in pieces {
        requests.feed(piece);
        loop {
            match requests.next() {
                Ok(Some(words)) => all.push(words),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(requests.next(), Err(error.clone()), "an error stays");
                    return (all, Some(String::from(error)));
                }
            }
        }
    }
    (all, None)
}

fn commands(bytes: &[u8]) -> Vec<Vec<Bytes>> {
    let (all, error) = read(&[bytes]);
    assert_eq!(error, None);
    let pieces: Vec<_> = bytes.chunks(1).collect();
    assert_eq!(read(&pieces), (all.clone(), None), "byte by byte");
    all
}

#[test]
fn commands_come_as_arrays_or_as_lines() {
    for (bytes, expected) in [
        (b"*1\r\n$4\r\nPING\r\n".as_slice(), vec![vec!["PING"]]),
        (b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n*1\r\n$1\r\na\r\n", vec![vec!["GET", ""], vec!["a"]]),
        (b"*0\r\n*-1\r\n\r\n\nPING\r\n", vec![vec!["PING"]]),
        (b"SET a \"b c\\n\\x41\\\"\" 'd\\'e\\n'\n", vec![vec!["SET", "a", "b c\nA\"", "d'e\\n"]]),
        (b"  GET   x  \r\n*1\r\n$4\r\nPING\r\nECHO ''\r\n", vec![vec!["GET", "x"], vec!["PING"], vec!["ECHO", ""]]),
        (b"a foo\"bar\" b\x0Bc\r\n\x0B\x0Cb\n", vec![vec!["a", "foobar", "b\x0Bc"], vec!["b"]]),
        // A zero byte hides the end of its line: servers look for it as in a C string.
        (b"PING\r\nECHO b\0c\r\nPING\r\n", vec![vec!["PING"]]),
        (b"*1\r\n$3\r\n\r\n\r\n\r\n", vec![vec!["\r\n\r"]]),
    ] {
        assert_eq!(commands(bytes), expected, "{}", bytes.escape_ascii());
    }
}

/// Each was sent to 6.2.5, 7.0.15 and Valkey 8.1.8. They show the carriage return as a space, which the encoder does.
#[test]
fn what_is_no_command_is_refused_as_servers_do() {
    let long = vec![b'1'; LINE_MAX + 2];
    let with = |start: &[u8]| [start, &long].concat();
    for (bytes, error) in [
        (b"*1\r\nx\r\n".to_vec(), "expected '$', got 'x'"),
        (b"*1\r\n+4\r\n".to_vec(), "expected '$', got '+'"),
        (b"*1\r\n\r\n".to_vec(), "expected '$', got '\r'"),
        (b"*x\r\n".to_vec(), "invalid multibulk length"),
        (b"*01\r\n".to_vec(), "invalid multibulk length"),
        (b"*\r\n".to_vec(), "invalid multibulk length"),
        (b"*1\r\n$-1\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$x\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$536870913\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$9999999999999999999999\r\n".to_vec(), "invalid bulk length"),
        (b"GET \"a\r\n".to_vec(), "unbalanced quotes in request"),
        (b"GET 'a'b\r\n".to_vec(), "unbalanced quotes in request"),
        (with(b"x"), "too big inline request"),
        (with(b"*"), "too big mbulk count string"),
        (with(b"*1\r\n$"), "too big bulk count string"),
    ] {
        let error = Some(format!("ERR Protocol error: {error}"));
        assert_eq!(read(&[&bytes]), (vec![], error.clone()));
        let before = [b"PING\r\n".as_slice(), &bytes].concat();
        assert_eq!(read(&before.chunks(3).collect::<Vec<_>>()), (vec![vec![Bytes::from("PING")]], error));
    }
    assert_eq!(read(&[b"*1048577\r\n"]).1.as_deref(), Some("ERR Protocol error: invalid multibulk length"));
    assert_eq!(read(&[b"*1048576\r\n"]), (vec![], None));
}

fn any_value() -> impl Strategy<Value = Value> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from);
    let text = "[ -~\r\n]{0,40}";
    let flat = prop_oneof![
        Just(Value::Nil),
        Just(Value::NilArray),
        any::<i64>().prop_map(Value::Int),
        (-1000i64..1000).prop_map(Value::Int),
        text.prop_map(|text| Value::Status(Cow::Owned(text))),
        text.prop_map(Value::Error),
        bytes.clone().prop_map(Value::Bulk),
        any::<f64>().prop_filter("RESP has no text for it", |n| !n.is_nan()).prop_map(|n| Value::Double(n.to_string())),
        bytes.prop_map(Value::Verbatim),
    ];
    let tree = flat.prop_recursive(4, 40, 5, |inner| {
        let some = || proptest::collection::vec(inner.clone(), 0..5);
        prop_oneof![
            some().prop_map(Value::Array),
            some().prop_map(Value::Set),
            proptest::collection::vec((inner.clone(), inner.clone()), 0..4).prop_map(Value::Map),
        ]
    });
    // A push is never part of something else.
    prop_oneof![5 => tree.clone(), 1 => proptest::collection::vec(tree, 1..4).prop_map(Value::Push)]
}

proptest! {
    #[test]
    fn a_client_reads_what_was_meant_however_it_arrives(value in any_value(), resp in 2u8..=3, cut in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        encode(&value, resp, &mut bytes);
        prop_assert_eq!(bytes.len(), encoded_len(&value, resp));
        let meant = convert::reply(&value, resp);
        let mut scan = Scan::new(Limits::default());
        let part = bytes.get(..cut.index(bytes.len())).unwrap_or_default();
        prop_assert_eq!(scan.poll(part), Ok(None));
        prop_assert_eq!(scan.poll(&bytes), Ok(Some((meant, bytes.len()))));
    }

    #[test]
    fn commands_are_read_back_however_they_arrive(
        all in proptest::collection::vec(
            proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 1..6), 0..5),
        piece in 1usize..30,
    ) {
        let mut bytes = Vec::new();
        for words in &all {
            bytes.extend(format!("*{}\r\n", words.len()).bytes());
            for word in words {
                bytes.extend(format!("${}\r\n", word.len()).bytes());
                bytes.extend_from_slice(word);
                bytes.extend(b"\r\n");
            }
        }
        let (read, error) = read(&bytes.chunks(piece).collect::<Vec<_>>());
        prop_assert_eq!(error, None);
        prop_assert_eq!(read, all);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(0u8..24, 0..200), piece in 1usize..30) {
        let often = b"\r\n*$1\"'\\x -";
        let bytes: Vec<_> = bytes.into_iter().map(|n| often.get(usize::from(n)).copied().unwrap_or(n)).collect();
        let whole = read(&[&bytes]);
        prop_assert_eq!(read(&bytes.chunks(piece).collect::<Vec<_>>()), whole);
    }
}
