//! Random values over any cut of their bytes, with an independent decoder as second opinion.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use proptest::collection::vec as vec_of;
use proptest::prelude::*;
use redis_protocol::{resp2, resp3};

use super::super::{Limits, ProtocolError, Scan, Writer};
use crate::command::ArgSink;
use crate::reply::{Kind, Reply, StreamId, View};

/// What the bytes mean. Maps keep the order of the wire here; the other decoder's do not.
#[derive(Clone, PartialEq, Debug)]
enum Model {
    Nil,
    Int(i64),
    Status(String),
    Error(String),
    Bulk(Vec<u8>),
    Verbatim(Vec<u8>),
    Bool(bool),
    Double(String),
    Big(String),
    Array(Vec<Model>),
    Set(Vec<Model>),
    Map(Vec<(Model, Model)>),
    Push(Vec<Model>),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Resp {
    Two,
    Three,
}

fn encode(value: &Model, resp: Resp, out: &mut Vec<u8>) {
    let put = |out: &mut Vec<u8>, parts: &[&[u8]]| parts.iter().for_each(|part| out.extend_from_slice(part));
    let line = |out: &mut Vec<u8>, kind: &[u8], text: &str| put(out, &[kind, text.as_bytes(), b"\r\n"]);
    let body = |out: &mut Vec<u8>, kind: &[u8], bytes: &[u8]| {
        put(out, &[kind, bytes.len().to_string().as_bytes(), b"\r\n", bytes, b"\r\n"]);
    };
    let list = |out: &mut Vec<u8>, kind: &[u8], items: &[Model]| {
        line(out, kind, &items.len().to_string());
        items.iter().for_each(|item| encode(item, resp, out));
    };
    match value {
        Model::Nil if resp == Resp::Two => line(out, b"$", "-1"),
        Model::Nil => line(out, b"_", ""),
        Model::Int(n) => line(out, b":", &n.to_string()),
        Model::Status(text) => line(out, b"+", text),
        // The longer form as soon as the text allows no other.
        Model::Error(text) if text.contains(['\r', '\n']) => body(out, b"!", text.as_bytes()),
        Model::Error(text) => line(out, b"-", text),
        Model::Bulk(bytes) => body(out, b"$", bytes),
        Model::Verbatim(bytes) => body(out, b"=", &[b"txt:", &bytes[..]].concat()),
        Model::Bool(yes) => line(out, b"#", if *yes { "t" } else { "f" }),
        Model::Double(text) => line(out, b",", text),
        Model::Big(text) => line(out, b"(", text),
        Model::Array(items) => list(out, b"*", items),
        Model::Set(items) => list(out, b"~", items),
        Model::Push(items) => list(out, b">", items),
        Model::Map(pairs) => {
            line(out, b"%", &pairs.len().to_string());
            for (key, value) in pairs {
                encode(key, resp, out);
                encode(value, resp, out);
            }
        }
    }
}

/// Whether the scan understood what was meant, order included.
fn agrees(value: &Model, view: View<'_>) -> bool {
    let text = |kind, is: &[u8]| view.kind() == kind && view.as_bytes() == Some(is);
    let list = |kind, items: &[Model]| {
        view.kind() == kind
            && view.items().is_some_and(|found| {
                found.len() == items.len() && items.iter().zip(found).all(|(item, view)| agrees(item, view))
            })
    };
    match value {
        Model::Nil => view.is_nil(),
        Model::Int(n) => view.kind() == Kind::Int && view.as_int() == Some(*n),
        Model::Status(is) => text(Kind::Status, is.as_bytes()),
        Model::Error(is) => view.error() == Some(is),
        Model::Bulk(is) | Model::Verbatim(is) => text(Kind::Bulk, is),
        Model::Bool(is) => view.as_bool() == Some(*is),
        Model::Double(is) => text(Kind::Double, is.as_bytes()),
        Model::Big(is) => text(Kind::BigNumber, is.as_bytes()),
        Model::Array(items) => list(Kind::Array, items),
        Model::Set(items) => list(Kind::Set, items),
        Model::Push(items) => list(Kind::Push, items),
        Model::Map(pairs) => {
            view.kind() == Kind::Map
                && view.pairs().is_some_and(|found| {
                    found.len() == pairs.len()
                        && pairs.iter().zip(found).all(|((k, v), (a, b))| agrees(k, a) && agrees(v, b))
                })
        }
    }
}

/// Whether the other decoder did. Its maps and sets have no order and lose equal members.
fn seconded(value: &Model, frame: &resp3::types::OwnedFrame) -> bool {
    use resp3::types::OwnedFrame as F;
    let list = |items: &[Model], data: &[F]| {
        items.len() == data.len() && items.iter().zip(data).all(|(item, frame)| seconded(item, frame))
    };
    match (value, frame) {
        (Model::Nil, F::Null) => true,
        (Model::Int(n), F::Number { data, .. }) => n == data,
        (Model::Status(is), F::SimpleString { data, .. }) | (Model::Big(is), F::BigNumber { data, .. }) => {
            is.as_bytes() == data
        }
        (Model::Error(is), F::SimpleError { data, .. }) => is == data,
        (Model::Error(is), F::BlobError { data, .. }) => is.as_bytes() == data,
        (Model::Bulk(is), F::BlobString { data, .. }) | (Model::Verbatim(is), F::VerbatimString { data, .. }) => {
            is == data
        }
        (Model::Bool(is), F::Boolean { data, .. }) => is == data,
        (Model::Double(is), F::Double { data, .. }) => {
            // Compared as it would print, so that not-a-number is itself.
            is.parse::<f64>().is_ok_and(|is| is.to_string() == data.to_string())
        }
        (Model::Array(items), F::Array { data, .. }) | (Model::Push(items), F::Push { data, .. }) => list(items, data),
        (Model::Set(items), F::Set { data, .. }) => {
            items.iter().all(|item| data.iter().any(|frame| seconded(item, frame)))
                && data.iter().all(|frame| items.iter().any(|item| seconded(item, frame)))
        }
        (Model::Map(pairs), F::Map { data, .. }) => {
            let known = |k: &F, v: &F| pairs.iter().any(|(key, value)| seconded(key, k) && seconded(value, v));
            pairs.iter().all(|(key, _)| data.iter().any(|(k, _)| seconded(key, k)))
                && data.iter().all(|(k, v)| known(k, v))
        }
        _ => false,
    }
}

fn seconded_resp2(value: &Model, frame: &resp2::types::OwnedFrame) -> bool {
    use resp2::types::OwnedFrame as F;
    match (value, frame) {
        (Model::Nil, F::Null) => true,
        (Model::Int(n), F::Integer(data)) => n == data,
        (Model::Status(is), F::SimpleString(data)) => is.as_bytes() == data,
        (Model::Error(is), F::Error(data)) => is == data,
        (Model::Bulk(is), F::BulkString(data)) => is == data,
        (Model::Array(items), F::Array(data)) => {
            items.len() == data.len() && items.iter().zip(data).all(|(item, frame)| seconded_resp2(item, frame))
        }
        _ => false,
    }
}

fn line() -> impl Strategy<Value = String> {
    "[ -~äß€]{0,40}"
}

fn scalar(resp: Resp) -> BoxedStrategy<Model> {
    let both = prop_oneof![
        Just(Model::Nil),
        any::<i64>().prop_map(Model::Int),
        (-100i64..100).prop_map(Model::Int),
        line().prop_map(Model::Status),
        line().prop_map(|text| Model::Error(["ERR ", &text].concat())),
        vec_of(any::<u8>(), 0..80).prop_map(Model::Bulk),
        "[\r\n$*:+-]{0,12}".prop_map(|text| Model::Bulk(text.into_bytes())),
    ];
    if resp == Resp::Two {
        return both.boxed();
    }
    let double = prop_oneof![
        (any::<i32>(), 0u32..1000).prop_map(|(a, b)| [a.to_string(), b.to_string()].join(".")),
        prop::sample::select(vec!["inf", "-inf", "0", "-7", "1e-7", "3.5E20"]).prop_map(String::from),
    ];
    prop_oneof![
        4 => both,
        1 => any::<bool>().prop_map(Model::Bool),
        1 => double.prop_map(Model::Double),
        1 => "-?[1-9][0-9]{18,60}".prop_map(Model::Big),
        1 => "[a-z\r\n]{0,30}".prop_map(|text| Model::Verbatim(text.into_bytes())),
        1 => "ERR [a-z]{0,9}\r\n[a-z]{0,9}".prop_map(Model::Error),
    ]
    .boxed()
}

fn value(resp: Resp) -> BoxedStrategy<Model> {
    let nested = scalar(resp).prop_recursive(5, 60, 8, move |inner| {
        let array = vec_of(inner.clone(), 0..8).prop_map(Model::Array);
        if resp == Resp::Two {
            return array.boxed();
        }
        // The other decoder cannot use every value as a key or member.
        let key = prop_oneof![
            vec_of(any::<u8>(), 0..9).prop_map(Model::Bulk),
            any::<i64>().prop_map(Model::Int),
            line().prop_map(Model::Status),
        ];
        prop_oneof![
            2 => array,
            1 => vec_of(key.clone(), 0..8).prop_map(Model::Set),
            1 => vec_of((key, inner), 0..5).prop_map(Model::Map),
        ]
        .boxed()
    });
    if resp == Resp::Two {
        return nested.boxed();
    }
    let push = vec_of(nested.clone(), 0..4).prop_map(|mut rest| {
        rest.insert(0, Model::Bulk(b"message".to_vec()));
        Model::Push(rest)
    });
    prop_oneof![9 => nested, 1 => push].boxed()
}

/// What a lane does: bytes come in pieces, replies leave from the front.
fn read_in_pieces(bytes: &[u8], cuts: &[usize], limits: Limits) -> (Vec<(Reply, usize)>, Option<ProtocolError>) {
    let mut scan = Scan::new(limits);
    let (mut front, mut replies) = (0, Vec::new());
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    ends.push(bytes.len());
    ends.sort_unstable();
    for end in ends {
        loop {
            match scan.poll(&bytes[front.min(end)..end]) {
                Ok(Some((reply, taken))) => {
                    front += taken;
                    replies.push((reply, taken));
                }
                Ok(None) => break,
                Err(error) => return (replies, Some(error)),
            }
        }
    }
    (replies, None)
}

/// The same values in one piece, in the given pieces and byte by byte.
fn understood(values: &[Model], resp: Resp, cuts: &[usize]) -> Result<Vec<Vec<u8>>, TestCaseError> {
    let each: Vec<Vec<u8>> = values
        .iter()
        .map(|value| {
            let mut bytes = Vec::new();
            encode(value, resp, &mut bytes);
            bytes
        })
        .collect();
    let bytes = each.concat();
    let (replies, error) = read_in_pieces(&bytes, cuts, Limits::default());
    prop_assert_eq!(error, None);
    prop_assert_eq!(replies.len(), values.len());
    for ((value, encoded), (reply, taken)) in values.iter().zip(&each).zip(&replies) {
        prop_assert_eq!(encoded.len(), *taken);
        prop_assert!(agrees(value, reply.view()), "{:?} read as {:?}", value, reply);
    }
    let every: Vec<usize> = (0..bytes.len()).collect();
    prop_assert_eq!(&read_in_pieces(&bytes, &every, Limits::default()).0, &replies);
    Ok(each)
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    vec_of(any::<usize>(), 0..12)
}

/// Bytes that look like RESP more often than chance would have it.
fn almost_resp() -> impl Strategy<Value = Vec<u8>> {
    let valid = value(Resp::Three).prop_map(|value| {
        let mut bytes = Vec::new();
        encode(&value, Resp::Three, &mut bytes);
        bytes
    });
    let pieces = prop::sample::select(vec![
        "*",
        "$",
        "%",
        "~",
        ">",
        "|",
        ":",
        "+",
        "-",
        "_",
        "#",
        ",",
        "(",
        "=",
        "!",
        "?",
        ";",
        ".",
        "\r\n",
        "\r",
        "\n",
        "0",
        "1",
        "2",
        "-1",
        "9999999999",
        "4294967295",
        "a",
        "t",
        "txt:",
        "*1\r\n",
        "$1\r\na\r\n",
        "|1\r\n",
        "%1\r\n",
    ]);
    prop_oneof![
        vec_of(any::<u8>(), 0..60),
        vec_of(pieces, 0..24).prop_map(|pieces| pieces.concat().into_bytes()),
        (valid, any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut bytes, at, byte)| {
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn resp3_is_read_as_meant_in_any_pieces(values in vec_of(value(Resp::Three), 1..4), cuts in cuts()) {
        for (value, bytes) in values.iter().zip(understood(&values, Resp::Three, &cuts)?) {
            let (frame, taken) = resp3::decode::complete::decode(&bytes)
                .map_err(|error| TestCaseError::fail(error.to_string()))?
                .ok_or_else(|| TestCaseError::fail("the other decoder wants more"))?;
            prop_assert_eq!(taken, bytes.len());
            prop_assert!(seconded(value, &frame), "{:?} read by the other as {:?}", value, frame);
        }
    }

    #[test]
    fn resp2_is_read_as_meant_in_any_pieces(values in vec_of(value(Resp::Two), 1..4), cuts in cuts()) {
        for (value, bytes) in values.iter().zip(understood(&values, Resp::Two, &cuts)?) {
            let (frame, taken) = resp2::decode::decode(&bytes)
                .map_err(|error| TestCaseError::fail(error.to_string()))?
                .ok_or_else(|| TestCaseError::fail("the other decoder wants more"))?;
            prop_assert_eq!(taken, bytes.len());
            prop_assert!(seconded_resp2(value, &frame), "{:?} read by the other as {:?}", value, frame);
        }
    }

    #[test]
    fn any_bytes_in_any_pieces_come_to_the_same(bytes in almost_resp(), cuts in cuts()) {
        let limits = Limits { depth: 3, elements: 6, bytes: 200 };
        let (replies, error) = read_in_pieces(&bytes, &[], limits);
        let every: Vec<usize> = (0..bytes.len()).collect();
        for cuts in [&cuts, &every] {
            let (others, other) = read_in_pieces(&bytes, cuts, limits);
            prop_assert_eq!(&replies, &others);
            // How much of a foreign greeting is shown depends on how much of it was there.
            prop_assert_eq!(error.as_ref().map(core::mem::discriminant), other.as_ref().map(core::mem::discriminant));
        }
        for (reply, _) in &replies {
            // Looking at it is harmless too, whatever it is.
            let _ = (reply.entries(), alloc::format!("{reply:?}"), reply.view().as_int(), reply.view().error());
        }
    }

    #[test]
    fn written_arguments_are_read_by_another_decoder(
        args in vec_of(vec_of(any::<u8>(), 0..130), 1..12), n in any::<i64>(), ms in any::<u64>(), seq in any::<u64>(),
        uuid in any::<[u8; 16]>(),
    ) {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.count(args.len() + 3);
        args.iter().for_each(|arg| writer.bytes(arg));
        writer.int(n);
        writer.id(StreamId { ms, seq });
        writer.uuid(&uuid);
        writer.finish();

        let mut expected = args;
        expected.push(n.to_string().into_bytes());
        expected.push([ms.to_string(), seq.to_string()].join("-").into_bytes());
        expected.push(uuid::Uuid::from_bytes(uuid).to_string().into_bytes());
        let (frame, taken) = resp2::decode::decode(&out).unwrap().unwrap();
        prop_assert_eq!(taken, out.len());
        let frames = expected.into_iter().map(resp2::types::OwnedFrame::BulkString).collect();
        prop_assert_eq!(frame, resp2::types::OwnedFrame::Array(frames));
    }

    #[test]
    fn stream_ids_survive_print_and_parse(ms in any::<u64>(), seq in any::<u64>()) {
        let id = StreamId { ms, seq };
        prop_assert_eq!(StreamId::parse(id.to_string().as_bytes()), Some(id));
    }
}

/// Around each power of ten the number of digits changes.
#[test]
fn numbers_next_to_powers_of_ten_are_written_exactly() {
    let powers = (0..19).map(|n| 10i64.pow(n)).chain([i64::MAX, i64::MIN]);
    for n in powers.flat_map(|p| [p.saturating_sub(1), p, p.saturating_add(1), p.saturating_neg()]) {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.count(1);
        writer.int(n);
        writer.finish();
        let text = n.to_string();
        assert_eq!(out, ["*1\r\n$", &text.len().to_string(), "\r\n", &text, "\r\n"].concat().as_bytes());
    }
}
