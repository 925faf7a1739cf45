use bytes::Bytes;

use super::super::consumer::tests::{STREAM, consuming, entry, fields};
use super::super::testing::Bench;
use super::*;

const BUCKET: &[u8] = b"streaming:mq:delay:t0:0:body";

/// Message 1 is to wait for two seconds, and has been accepted.
fn bench() -> Bench {
    let mut plan = consuming();
    plan.work[1].delay_ms = Some(2_000);
    let mut bench = Bench::new(plan, |plan| Box::new(Scheduling::new(plan)));
    bench.begin();
    bench.service(What::Submitted { item: Item(1), accepted: Ok(()) });
    bench
}

fn message() -> Vec<Bytes> {
    let mut all = fields(1);
    all.extend([Bytes::from("id"), Bytes::from("one")]);
    all
}

fn packed(texts: &[Bytes]) -> Bytes {
    let mut packed = vec![0x90 + texts.len() as u8];
    for text in texts {
        packed.push(0xa0 + text.len() as u8);
        packed.extend(text);
    }
    packed.into()
}

fn change(bench: &mut Bench, value: Option<Bytes>) {
    bench.change(Change::Field { key: Bytes::from_static(BUCKET), field: Bytes::from("one"), value });
}

fn scheduled() -> Bench {
    let mut bench = bench();
    bench.execute(Word::Add(Some(Item(1))));
    change(&mut bench, Some(packed(&message())));
    bench
}

fn add(bench: &mut Bench) {
    bench.change(Change::Added { key: Bytes::from_static(STREAM), id: entry(50), fields: message() });
}

#[test]
fn a_scheduled_message_comes_when_it_is_due_and_not_before() {
    for (after_ms, expected) in [(1_900, vec![53]), (2_000, vec![])] {
        let mut bench = scheduled();
        bench.at += after_ms * 1_000;
        bench.execute(Word::Script(Script::Move));
        add(&mut bench);
        change(&mut bench, None);
        assert_eq!(bench.violated(), expected, "{after_ms}");
    }
}

#[test]
fn it_is_not_stored_at_once_nor_moved_twice_nor_dropped() {
    let mut at_once = bench();
    at_once.execute(Word::Add(Some(Item(1))));
    add(&mut at_once);
    assert_eq!(at_once.violated(), [53]);

    let mut twice = scheduled();
    twice.at += 3_000_000;
    twice.execute(Word::Script(Script::Move));
    add(&mut twice);
    assert_eq!(twice.violated(), []);
    add(&mut twice);
    assert_eq!(twice.violated(), [53]);

    let mut dropped = scheduled();
    dropped.at += 3_000_000;
    dropped.execute(Word::Script(Script::Move));
    change(&mut dropped, None);
    assert_eq!(dropped.violated(), [53]);
}
