use std::sync::Arc;

use flota_core::command::{Ack, Add, By, Eval, Extra, Hello, Read, ReadGroup};
use flota_core::config::Credentials;
use flota_core::driver::resp::Writer;
use flota_core::key;
use flota_core::script::Script;

use super::*;
use crate::wire::Requests;

fn commands() -> Vec<Command> {
    let key = key::partition("t", 0);
    let (id, large) = (StreamId { ms: 1, seq: 20 }, StreamId { ms: 1_700_000_000_000, seq: u64::MAX });
    let credentials = Arc::new(Credentials { user: "u".into(), password: "p".into() });
    let extra = Extra { key: Some("k".into()), headers: vec![("h:a".into(), "1".into())] };
    let add = Add {
        key: key.clone(),
        body: vec![b'x'; 1000].into(),
        id: *b"0123456789\xab\xcd\xef\x01\x02\xff",
        extra: None,
    };
    let eval = Arc::new(Eval {
        script: Script::Renew,
        keys: vec![key.clone()],
        args: vec![id.into(), large.into(), (-5i64).into(), 7i64.into(), i64::MIN.into(), "word".into()],
    });
    vec![
        Command::Hello(Box::new(Hello { credentials: Some(credentials), name: "n".into() })),
        Command::Ping,
        Command::NameStore(Box::new([1; 16])),
        Command::Unblock(123_456),
        Command::Kill(-1),
        Command::Add(Add { extra: Some(Arc::new(extra)), ..add.clone() }),
        Command::Add(add),
        Command::Ack(Ack { key: key.clone(), group: "g".into(), ids: vec![id, large, StreamId::MIN, StreamId::MAX] }),
        Command::ReadGroup(Box::new(ReadGroup {
            group: "g".into(),
            consumer: "c".into(),
            count: 30,
            block_ms: Some(1000),
            keys: vec![key.clone(); 12],
        })),
        Command::Read(Box::new(Read { block_ms: 5, from: vec![(key, id)] })),
        Command::Eval(eval.clone(), By::Sha1),
        Command::Eval(eval, By::Text),
        Command::Raw(vec![Bytes::from("DBSIZE"), Bytes::new()].into()),
    ]
}

#[test]
fn words_and_lengths_are_those_of_the_wire() {
    for command in commands() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        command.args(&mut writer);
        writer.finish();
        assert_eq!(encoded_len(&command), bytes.len(), "{command:?}");
        let mut requests = Requests::new();
        requests.feed(&bytes);
        assert_eq!(requests.next(), Ok(Some(words(&command))), "{command:?}");
        assert_eq!(requests.next(), Ok(None));
    }
}

#[test]
fn a_body_is_shared() {
    let body = Bytes::from(vec![b'x'; 1000]);
    let add = Add { key: key::partition("t", 0), body: body.clone(), id: [0; 16], extra: None };
    let words = words(&Command::Add(add));
    assert!(words.iter().any(|word| word.as_ptr() == body.as_ptr()));
}
