use std::net::SocketAddr;

use bytes::Bytes;
use flota_core::id::{ConnId, Id};
use flota_core::time::Now;

use super::*;
use crate::oracle::testing::{Bench, plan};
use crate::seen::Item;
use crate::world::service_address;

const SECOND: u64 = 1_000_000;
/// Interval of one second, and what silence is forgiven.
const PATIENCE_US: u64 = 6_001_000;

/// Guid number `n` says `up` or `down` of a broker's first address, or of its second.
struct Say(u8, u32, bool, &'static str);

fn bench(fleet_max: u32) -> Bench {
    let mut plan = plan(1, 3, 1);
    plan.knobs.fleet_max = fleet_max;
    let mut bench = Bench::new(plan, |plan| Box::new(Fleet::new(plan)));
    bench.service(What::Born(1));
    bench
}

fn address(broker: u32, moved: bool) -> Endpoint {
    Endpoint::Ip(broker_address(broker, moved))
}

fn hear(bench: &mut Bench, say: &Say) {
    let Say(guid, broker, moved, status) = say;
    let guid = format!("00000000-0000-4000-8000-0000000000{guid:02x}");
    hear_text(bench, *broker, &format!("imq-broker\t{guid}\t{status}\t{}\t1", broker_address(*broker, *moved)));
}

fn hear_text(bench: &mut Bench, broker: u32, text: &str) {
    let from: SocketAddr = broker_address(broker, false);
    bench.service(What::Heard { from, datagram: Bytes::copy_from_slice(text.as_bytes()) });
}

fn tell(bench: &mut Bench, id: u32, broker: u32, change: BrokerChange) {
    let address = address(broker, false);
    bench.service(What::Fleet { id: BrokerId::from_parts(id, 0), address, change });
}

fn dial(bench: &mut Bench, line: u32, to: Endpoint) {
    bench.service(What::Dialled { conn: ConnId::from_parts(line, 0), line: Line(line), to });
}

fn turn(bench: &mut Bench, time_passed: bool) {
    bench.service(What::Turn { now: Now::default(), inputs: 1, time_passed, outputs: 0, wait: None });
}

/// Broker 0 joins as member 0 and is dialled on line 0.
fn joined(fleet_max: u32) -> Bench {
    let mut bench = bench(fleet_max);
    hear(&mut bench, &Say(1, 0, false, "up"));
    tell(&mut bench, 0, 0, BrokerChange::Announced);
    dial(&mut bench, 0, address(0, false));
    turn(&mut bench, false);
    assert_eq!(bench.violated(), []);
    bench
}

fn expired() -> BrokerChange {
    BrokerChange::Expired { silent_ms: 6_001 }
}

#[test]
fn silence_ends_a_member_at_its_time() {
    let mut bench = joined(10);
    bench.at += PATIENCE_US;
    tell(&mut bench, 0, 0, expired());
    turn(&mut bench, true);
    bench.service(What::HungUp(Line(0)));
    tell(&mut bench, 0, 0, BrokerChange::Forgotten);
    turn(&mut bench, true);
    assert_eq!(bench.violated(), []);
}

#[test]
fn a_member_that_expires_a_microsecond_early_is_noticed() {
    let mut bench = joined(10);
    bench.at += SECOND;
    hear(&mut bench, &Say(1, 0, false, "up"));
    bench.at += PATIENCE_US - 1;
    tell(&mut bench, 0, 0, expired());
    assert_eq!(bench.violated(), [9]);
}

#[test]
fn a_member_that_outlives_its_time_is_noticed() {
    let mut woken = joined(10);
    woken.at += PATIENCE_US;
    turn(&mut woken, true);
    assert_eq!(woken.violated(), [10]);

    let mut asleep = joined(10);
    asleep.at += PATIENCE_US + TURN_US;
    turn(&mut asleep, false);
    assert_eq!(asleep.violated(), []);
    asleep.at += 1;
    turn(&mut asleep, false);
    assert_eq!(asleep.violated(), [10]);
}

#[test]
fn who_said_goodbye_gets_nothing_until_it_is_back() {
    let send = |bench: &mut Bench| {
        bench.service(What::Wrote { line: Line(0), command: Word::Add(Some(Item(0))), bytes: 100 });
    };
    let mut bench = joined(10);
    hear(&mut bench, &Say(1, 0, false, "down"));
    tell(&mut bench, 0, 0, BrokerChange::Withdrawn);
    turn(&mut bench, false);
    hear(&mut bench, &Say(1, 0, false, "up"));
    tell(&mut bench, 0, 0, BrokerChange::Announced);
    send(&mut bench);
    turn(&mut bench, false);
    assert_eq!(bench.violated(), []);
    assert_eq!(bench.hits("a broker said goodbye and was back within a second"), 1);
    hear(&mut bench, &Say(1, 0, false, "down"));
    tell(&mut bench, 0, 0, BrokerChange::Withdrawn);
    send(&mut bench);
    assert_eq!(bench.violated(), [11]);
}

#[test]
fn a_goodbye_of_an_older_announcer_changes_nothing() {
    let mut bench = joined(10);
    hear(&mut bench, &Say(2, 0, false, "up"));
    hear(&mut bench, &Say(1, 0, false, "down"));
    turn(&mut bench, false);
    assert_eq!(bench.violated(), []);
    assert_eq!(bench.hits("another GUID spoke for a known address"), 1);
    tell(&mut bench, 0, 0, BrokerChange::Withdrawn);
    assert_eq!(bench.violated(), [12]);
}

#[test]
fn what_was_heard_must_be_told() {
    let mut newcomer = bench(10);
    hear(&mut newcomer, &Say(1, 0, false, "up"));
    turn(&mut newcomer, false);
    assert_eq!(newcomer.violated(), [12]);

    let mut goodbye = joined(10);
    hear(&mut goodbye, &Say(1, 0, false, "down"));
    turn(&mut goodbye, false);
    assert_eq!(goodbye.violated(), [12]);
}

#[test]
fn a_member_lives_as_long_as_any_of_its_addresses() {
    let mut bench = joined(10);
    bench.at += SECOND;
    hear(&mut bench, &Say(1, 0, true, "up"));
    turn(&mut bench, false);
    bench.at += PATIENCE_US - SECOND;
    bench.service(What::HungUp(Line(0)));
    dial(&mut bench, 1, address(0, true));
    turn(&mut bench, true);
    assert_eq!(bench.violated(), []);

    let mut forgetful = joined(10);
    forgetful.at += SECOND;
    hear(&mut forgetful, &Say(1, 0, true, "up"));
    turn(&mut forgetful, false);
    forgetful.at += PATIENCE_US - SECOND;
    tell(&mut forgetful, 0, 0, expired());
    assert_eq!(forgetful.violated(), [12]);
}

#[test]
fn two_members_may_turn_out_to_be_one_server_and_no_others() {
    for (second, right) in [(address(0, true), true), (address(1, false), false)] {
        let mut bench = joined(10);
        let text = format!("imq-broker\t00000000-0000-4000-8000-000000000009\tup\t{second}\t1");
        hear_text(&mut bench, 0, &text);
        let id = BrokerId::from_parts(1, 0);
        bench.service(What::Fleet { id, address: second.clone(), change: BrokerChange::Announced });
        turn(&mut bench, false);
        bench.service(What::Fleet { id, address: second, change: BrokerChange::Forgotten });
        assert_eq!(bench.violated().is_empty(), right);
    }
}

/// A member that has departed comes back as the server at its second address, and is used there.
fn moved() -> Bench {
    let mut bench = joined(10);
    bench.at += PATIENCE_US;
    tell(&mut bench, 0, 0, expired());
    turn(&mut bench, true);
    let second = address(0, true);
    let told = |bench: &mut Bench, change| {
        let (id, address) = (BrokerId::from_parts(1, 0), address(0, true));
        bench.service(What::Fleet { id, address, change });
    };
    hear(&mut bench, &Say(2, 0, true, "up"));
    told(&mut bench, BrokerChange::Announced);
    dial(&mut bench, 1, second.clone());
    turn(&mut bench, false);
    tell(&mut bench, 0, 0, BrokerChange::Announced);
    bench.service(What::HungUp(Line(0)));
    bench.service(What::HungUp(Line(1)));
    dial(&mut bench, 2, second);
    told(&mut bench, BrokerChange::Forgotten);
    turn(&mut bench, false);
    assert_eq!(bench.violated(), []);
    bench
}

#[test]
fn an_address_that_a_departed_member_has_left_is_nobodys() {
    // What is announced there next is a newcomer …
    let mut newcomer = moved();
    hear(&mut newcomer, &Say(3, 0, false, "up"));
    tell(&mut newcomer, 2, 0, BrokerChange::Announced);
    turn(&mut newcomer, false);
    assert_eq!(newcomer.violated(), []);
    // … which has to be told of …
    let mut silent = moved();
    hear(&mut silent, &Say(3, 0, false, "up"));
    turn(&mut silent, false);
    assert_eq!(silent.violated(), [12]);
    // … and until then nobody dials it.
    let mut dialled = moved();
    dial(&mut dialled, 3, address(0, false));
    assert_eq!(dialled.violated(), [12]);
}

#[test]
fn an_address_that_a_departed_member_has_moved_away_from_is_nobodys() {
    let mut bench = joined(10);
    let second = address(0, true);
    let of = |bench: &mut Bench, id: u32, address: &Endpoint, change: BrokerChange| {
        bench.service(What::Fleet { id: BrokerId::from_parts(id, 0), address: address.clone(), change });
    };
    hear(&mut bench, &Say(1, 0, false, "down"));
    of(&mut bench, 0, &address(0, false), BrokerChange::Withdrawn);
    turn(&mut bench, false);
    // Announced elsewhere, it turns out to be the one that had left.
    hear(&mut bench, &Say(9, 0, true, "up"));
    of(&mut bench, 1, &second, BrokerChange::Announced);
    dial(&mut bench, 1, second.clone());
    turn(&mut bench, false);
    of(&mut bench, 0, &address(0, false), BrokerChange::Announced);
    dial(&mut bench, 2, second.clone());
    of(&mut bench, 1, &second, BrokerChange::Forgotten);
    [0, 1].into_iter().for_each(|line| bench.service(What::HungUp(Line(line))));
    turn(&mut bench, false);
    bench.at += 6_001_000;
    of(&mut bench, 0, &second, expired());
    turn(&mut bench, true);
    // At its first address it is a newcomer, until it turns out to be the same again.
    hear(&mut bench, &Say(1, 0, false, "up"));
    of(&mut bench, 2, &address(0, false), BrokerChange::Announced);
    dial(&mut bench, 3, address(0, false));
    turn(&mut bench, false);
    of(&mut bench, 0, &second, BrokerChange::Announced);
    of(&mut bench, 2, &address(0, false), BrokerChange::Forgotten);
    bench.service(What::HungUp(Line(3)));
    turn(&mut bench, false);
    assert_eq!(bench.violated(), []);
}

#[test]
fn what_is_refused_changes_nothing() {
    let text = "imq-broker\t00000000-0000-4000-8000-000000000001\tup\t10.1.0.1:6379\tsoon";
    let mut told = bench(10);
    hear_text(&mut told, 1, text);
    turn(&mut told, false);
    assert_eq!(told.violated(), []);
    hear_text(&mut told, 1, text);
    tell(&mut told, 0, 1, BrokerChange::Announced);
    assert_eq!(told.violated(), [13]);

    let mut looked = bench(10);
    hear_text(&mut looked, 1, text);
    looked.service(What::Looked { before: 1, after: 1 });
    assert_eq!(looked.violated(), []);
    looked.service(What::Looked { before: 1, after: 2 });
    assert_eq!(looked.violated(), [13]);

    let mut prolonged = joined(10);
    prolonged.at += SECOND;
    hear_text(&mut prolonged, 1, text);
    prolonged.at += PATIENCE_US - SECOND;
    turn(&mut prolonged, true);
    assert_eq!(prolonged.violated(), [10, 13]);
}

#[test]
fn nobody_outside_of_the_allowed_networks_is_dialled() {
    let name = Endpoint::Name("redis".into(), 6379);
    for to in [Endpoint::Ip("192.0.2.1:6379".parse().unwrap()), name] {
        let mut bench = joined(10);
        dial(&mut bench, 1, to);
        assert!(bench.violated().contains(&14));
    }
    let mut unknown = joined(10);
    dial(&mut unknown, 1, Endpoint::Ip(service_address(0)));
    assert_eq!(unknown.violated(), [12]);
}

#[test]
fn credentials_go_nowhere_outside() {
    let mut bench = joined(10);
    dial(&mut bench, 1, Endpoint::Ip("192.0.2.1:6379".parse().unwrap()));
    let before = bench.violated().len();
    bench.service(What::Wrote { line: Line(0), command: Word::Auth, bytes: 10 });
    assert_eq!(bench.violated().len(), before);
}

#[test]
fn a_full_fleet_takes_nobody_in() {
    let mut refused = joined(1);
    hear(&mut refused, &Say(2, 1, false, "up"));
    turn(&mut refused, false);
    assert_eq!(refused.violated(), []);
    assert_eq!(refused.hits("a full fleet refused a newcomer"), 1);

    let mut taken = joined(1);
    for broker in 1..=3 {
        hear(&mut taken, &Say(10 + broker, u32::from(broker), false, "up"));
        tell(&mut taken, u32::from(broker), u32::from(broker), BrokerChange::Announced);
    }
    assert_eq!(taken.violated(), [13, 15]);
}

#[test]
fn connections_are_bounded_by_brokers_and_subscriptions() {
    let mut bench = joined(10);
    bench.service(What::Subscribed(0));
    dial(&mut bench, 1, address(0, false));
    turn(&mut bench, false);
    assert_eq!(bench.violated(), []);
    dial(&mut bench, 2, address(0, false));
    turn(&mut bench, false);
    assert_eq!(bench.violated(), [15]);
}
