use bytes::Bytes;
use flota_core::reply::StreamId;

use super::super::testing::{Bench, plan};
use super::*;
use crate::broker::Why;
use crate::plan::Consume;
use crate::seen::Line;

pub(in crate::oracle) const STREAM: &[u8] = b"stream:topic:t0:p:0";
pub(in crate::oracle) const DEAD: &[u8] = b"stream:topic:t0:dlq";
/// The consumers of services 0 and 1.
pub(in crate::oracle) const ONE: &[u8] = b"s0.0000000000000001.1";
pub(in crate::oracle) const OTHER: &[u8] = b"s1.0000000100000001.1";

pub(in crate::oracle) fn entry(n: u64) -> StreamId {
    StreamId { ms: n, seq: 0 }
}

/// Two services that consume the same topic in the same group, at most two messages each.
pub(in crate::oracle) fn consuming() -> crate::plan::Plan {
    let mut plan = plan(2, 1, 4);
    for service in &mut plan.services {
        service.consumes = vec![Consume { topic: 0, group: 0, in_flight: 2, handler_us: 1_000 }];
    }
    plan
}

pub(in crate::oracle) fn fields(item: u32) -> Vec<Bytes> {
    vec![Bytes::from_static(b"payload"), format!("m{item:010}.").into()]
}

impl Bench {
    /// Both services run and subscribe.
    pub(in crate::oracle) fn begin(&mut self) {
        for service in 0..2 {
            self.see(Host::Service(service), What::Born(1));
            self.see(Host::Service(service), What::Subscribed(0));
        }
        let (key, group) = (Bytes::from_static(STREAM), Bytes::from_static(b"g0"));
        self.change(Change::Group { key, group, at: Some(StreamId::MIN) });
    }

    pub(in crate::oracle) fn execute(&mut self, command: Word) {
        self.broker(What::Executed { line: Line(0), command, refused: None });
    }

    pub(in crate::oracle) fn added(&mut self, n: u64) {
        self.execute(Word::Add(Some(Item(n as u32))));
        self.change(Change::Added { key: Bytes::from_static(STREAM), id: entry(n), fields: fields(n as u32) });
    }

    pub(in crate::oracle) fn pending(&mut self, n: u64, to: &'static [u8], from: Option<&'static [u8]>, idle_ms: i64) {
        self.pending_at(n, to, from, idle_ms, 1);
    }

    pub(in crate::oracle) fn pending_at(
        &mut self,
        n: u64,
        to: &'static [u8],
        from: Option<&'static [u8]>,
        idle_ms: i64,
        deliveries: u64,
    ) {
        self.change(Change::Pending {
            key: Bytes::from_static(STREAM),
            group: Bytes::from_static(b"g0"),
            id: entry(n),
            consumer: Bytes::from_static(to),
            from: from.map(Bytes::from_static),
            idle_ms,
            deliveries,
        });
    }

    /// Added, and read by service 0, which delivers it.
    pub(in crate::oracle) fn received(&mut self, n: u64) {
        self.added(n);
        self.execute(Word::ReadGroup);
        self.pending(n, ONE, None, 0);
        self.delivered(0, n, n, 1);
    }

    pub(in crate::oracle) fn delivered(&mut self, service: u32, number: u64, n: u64, deliveries: u32) {
        let hand = Hand { life: 1, number };
        let item = Some(Item(n as u32));
        let delivered = Delivered {
            hand,
            sub: 0,
            item,
            intact: true,
            broker: Some(0),
            partition: 0,
            retry: false,
            entry: entry(n),
            deliveries,
            attempt: deliveries,
        };
        self.see(Host::Service(service), What::Delivered(Box::new(delivered)));
        self.see(Host::Service(service), What::Started(hand));
    }

    pub(in crate::oracle) fn settled(&mut self, service: u32, number: u64, verdict: Given) {
        self.see(Host::Service(service), What::Settled { hand: Hand { life: 1, number }, verdict, live: true });
    }

    pub(in crate::oracle) fn acked(&mut self, n: u64) {
        let (key, group) = (Bytes::from_static(STREAM), Bytes::from_static(b"g0"));
        self.change(Change::Acked { key, group, id: entry(n), consumer: Bytes::from_static(ONE) });
    }
}

fn bench() -> Bench {
    let mut bench = Bench::new(consuming(), |_| Box::new(Consuming::default()));
    bench.begin();
    bench
}

#[test]
fn a_message_that_is_done_is_acknowledged_once_and_for_all() {
    let mut bench = bench();
    bench.received(1);
    bench.settled(0, 1, Given::Done);
    bench.execute(Word::Ack(1));
    bench.acked(1);
    bench.see(Host::Service(0), What::Answered { hand: Hand { life: 1, number: 1 }, result: Settled::Ok });
    bench.end();
    assert_eq!(bench.violated(), []);
}

#[test]
fn an_entry_that_nobody_was_given_is_noticed_at_the_end() {
    let mut bench = bench();
    bench.added(1);
    bench.end();
    assert_eq!(bench.violated(), [19]);
}

#[test]
fn what_is_acknowledged_does_not_come_again_unless_the_group_is_set_back() {
    let again = |set_back: bool| {
        let mut bench = bench();
        bench.received(1);
        bench.settled(0, 1, Given::Done);
        bench.execute(Word::Ack(1));
        bench.acked(1);
        bench.at += 1_000;
        if set_back {
            let (key, group) = (Bytes::from_static(STREAM), Bytes::from_static(b"g0"));
            bench.change(Change::Group { key, group, at: Some(StreamId::MIN) });
        }
        bench.execute(Word::ReadGroup);
        bench.pending(1, OTHER, None, 0);
        bench.delivered(1, 1, 1, 1);
        bench.violated()
    };
    assert_eq!(again(false), [20]);
    assert_eq!(again(true), []);
}

#[test]
fn a_delivery_that_was_on_its_way_when_another_was_acknowledged_is_no_second_one() {
    let mut bench = bench();
    bench.received(1);
    bench.execute(Word::Script(Script::Claim));
    bench.pending_at(1, OTHER, Some(ONE), 30_000, 2);
    bench.at += 1_000;
    bench.settled(0, 1, Given::Done);
    bench.execute(Word::Ack(1));
    bench.acked(1);
    bench.at += 1_000;
    bench.delivered(1, 1, 1, 2);
    assert_eq!(bench.violated(), []);
    assert_eq!(bench.hits("delivery claimed while its handler still runs"), 1);
}

#[test]
fn an_acknowledgement_that_was_told_must_have_happened() {
    let mut bench = bench();
    bench.received(1);
    bench.settled(0, 1, Given::Done);
    bench.see(Host::Service(0), What::Answered { hand: Hand { life: 1, number: 1 }, result: Settled::Ok });
    assert_eq!(bench.violated(), [20]);
}

#[test]
fn what_is_in_hand_is_not_claimed_back_from_ones_own_name() {
    let own_after = |hung_up: bool, settled: Option<Given>| {
        let mut bench = bench();
        bench.received(1);
        if hung_up {
            // What was written on it before reaches the broker late, and nobody hears of it.
            bench.service(What::HungUp(Line(0)));
        }
        if let Some(given) = settled {
            bench.settled(0, 1, given);
        }
        bench.at += 1_000;
        bench.execute(Word::Script(Script::Claim));
        bench.pending(1, ONE, Some(ONE), 1);
        bench.violated()
    };
    let own = |settled| own_after(false, settled);
    assert_eq!(own_after(true, None), []);
    assert_eq!(own_after(true, Some(Given::Done)), []);
    assert_eq!(own(None), [20]);
    assert_eq!(own(Some(Given::Done)), [20]);
    assert_eq!(own(Some(Given::Release)), []);
}

#[test]
fn a_renewal_is_no_claim() {
    let mut bench = bench();
    bench.received(1);
    bench.execute(Word::Script(Script::Renew));
    bench.pending(1, ONE, Some(ONE), 5_000);
    assert_eq!(bench.violated(), []);
}

#[test]
fn an_acknowledgement_needs_a_verdict() {
    let acknowledge = |given: Option<Given>, command: Word, copy: bool| {
        let mut bench = bench();
        bench.received(1);
        if let Some(given) = given {
            bench.settled(0, 1, given);
        }
        bench.execute(command);
        if copy {
            bench.change(Change::Added { key: Bytes::from_static(DEAD), id: entry(9), fields: fields(1) });
        }
        bench.acked(1);
        bench.violated()
    };
    let dead = Word::Script(Script::Dead);
    assert_eq!(acknowledge(Some(Given::Done), Word::Ack(1), false), []);
    assert_eq!(acknowledge(None, Word::Ack(1), false), [21]);
    assert_eq!(acknowledge(Some(Given::Release), Word::Ack(1), false), [21]);
    assert_eq!(acknowledge(Some(Given::Reject), dead, true), []);
    assert_eq!(acknowledge(Some(Given::Reject), dead, false), [21]);
    assert_eq!(acknowledge(Some(Given::Retry), dead, true), [21], "the first of five deliveries");
    assert_eq!(acknowledge(Some(Given::Reject), Word::Script(Script::Renew), true), [21]);
}

#[test]
fn a_pending_entry_without_a_body_may_go() {
    let mut bench = bench();
    bench.received(1);
    bench.change(Change::Removed { key: Bytes::from_static(STREAM), id: entry(1), why: Why::Trimmed });
    bench.execute(Word::Script(Script::Claim));
    bench.acked(1);
    assert_eq!(bench.violated(), []);
    assert_eq!(bench.hits("body trimmed while it was pending"), 1);
    assert_eq!(bench.hits("pending entry without a body acknowledged"), 1);
}

#[test]
fn an_entry_of_a_consumer_that_shows_life_is_left_alone() {
    let claim = |from: &'static [u8], idle_ms| {
        let mut bench = bench();
        bench.received(1);
        bench.execute(Word::Script(Script::Claim));
        bench.pending_at(1, OTHER, Some(from), idle_ms, 2);
        bench.violated()
    };
    assert_eq!(claim(ONE, 29_999), [26]);
    assert_eq!(claim(ONE, 30_000), []);
    assert_eq!(claim(b"@free", 0), []);
}

#[test]
fn nobody_holds_more_than_it_may() {
    let mut bench = bench();
    bench.received(1);
    bench.received(2);
    assert_eq!(bench.violated(), []);
    bench.settled(0, 1, Given::Done);
    bench.received(3);
    assert_eq!(bench.violated(), []);
    bench.received(4);
    assert_eq!(bench.violated(), [29]);
}
