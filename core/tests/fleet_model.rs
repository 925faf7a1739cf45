//! The reference model of membership against histories with a known outcome.

#[path = "support/fleet_model.rs"]
#[allow(unreachable_pub, reason = "the unit tests of the fleet include the same file")]
mod fleet_model;

use std::collections::BTreeMap;

use fleet_model::Model;

const A: u8 = 0xA;
const B: u8 = 0xB;
const C: u8 = 0xC;
const SECOND: u64 = 1_000;

/// What arrives, half a second after what came before it.
#[derive(Debug, Clone, Copy)]
enum Heard {
    Up(u8, u8),
    Down(u8, u8),
    /// A datagram that is rejected or not admitted, so the model never sees it.
    Nothing,
}
use Heard::{Down, Nothing, Up};

/// Members after each datagram, and the alternatives at the end.
type History = (&'static str, &'static [Heard], &'static [&'static [(u8, u8)]], &'static [(u8, u8)]);

const HISTORIES: &[History] = &[
    ("down for an unknown broker", &[Down(A, 1)], &[&[]], &[]),
    ("up, down", &[Up(A, 1), Down(A, 1)], &[&[(A, 1)], &[]], &[]),
    ("down of another address", &[Up(A, 1), Down(B, 1)], &[&[(A, 1)], &[(A, 1)]], &[]),
    ("down of another address and GUID", &[Up(A, 1), Down(B, 2)], &[&[(A, 1)], &[(A, 1)]], &[]),
    ("down with port 0, or of another fleet", &[Up(A, 1), Nothing], &[&[(A, 1)], &[(A, 1)]], &[]),
    ("same GUID, new address", &[Up(A, 1), Up(B, 1)], &[&[(A, 1)], &[(A, 1)]], &[(B, A)]),
    ("same address, new GUID", &[Up(A, 1), Up(A, 2)], &[&[(A, 1)], &[(A, 2)]], &[]),
    (
        "down of one member with the GUID of another",
        &[Up(A, 1), Up(B, 2), Down(B, 1), Up(B, 2)],
        &[&[(A, 1)], &[(A, 1), (B, 2)], &[(A, 1), (B, 2)], &[(A, 1), (B, 2)]],
        &[],
    ),
    (
        "an older GUID cannot take its successor down",
        &[Up(A, 1), Up(A, 2), Down(A, 1)],
        &[&[(A, 1)], &[(A, 2)], &[(A, 2)]],
        &[],
    ),
    ("two announcers do not take turns", &[Up(A, 1), Up(A, 2), Up(A, 1)], &[&[(A, 1)], &[(A, 2)], &[(A, 2)]], &[]),
    ("down takes the alternatives along", &[Up(A, 1), Up(B, 1), Down(A, 1)], &[&[(A, 1)], &[(A, 1)], &[]], &[]),
    ("down of an alternative", &[Up(A, 1), Up(B, 1), Down(B, 1)], &[&[(A, 1)], &[(A, 1)], &[(A, 1)]], &[]),
    (
        "a member that learns a known GUID stays a member",
        &[Up(A, 1), Up(B, 2), Up(B, 1)],
        &[&[(A, 1)], &[(A, 1), (B, 2)], &[(A, 1), (B, 1)]],
        &[],
    ),
    (
        "a GUID of two members belongs to the one that heard it first",
        &[Up(B, 2), Up(A, 1), Up(B, 1), Up(C, 1)],
        &[&[(B, 2)], &[(A, 1), (B, 2)], &[(A, 1), (B, 1)], &[(A, 1), (B, 1)]],
        &[(C, A)],
    ),
];

#[test]
fn histories_have_the_known_outcome() {
    for (what, heard, outcomes, alternatives) in HISTORIES {
        assert_eq!(heard.len(), outcomes.len(), "{what}: one outcome per datagram");
        let mut model = Model::default();
        for (step, (datagram, outcome)) in heard.iter().zip(*outcomes).enumerate() {
            let now_ms = step as u64 * 500;
            match *datagram {
                Up(addr, guid) => model.up(now_ms, guid, addr, SECOND),
                Down(addr, guid) => model.down(now_ms, guid, addr),
                Nothing => model.at(now_ms),
            }
            assert_eq!(model.members(), map(outcome), "{what}, step {step}");
        }
        assert_eq!(model.alternatives(), map(alternatives), "{what}: alternatives");
    }
}

#[test]
fn a_member_expires_strictly_after_interval_and_five_seconds() {
    for (interval_ms, last_moment_ms) in [(0, 5_000), (SECOND, 6_000), (60_000, 65_000), (u64::MAX, 65_000)] {
        let mut model = Model::default();
        model.up(100, 1, A, interval_ms);
        model.at(100 + last_moment_ms);
        assert_eq!(model.members(), map(&[(A, 1)]), "interval {interval_ms}");
        model.at(100 + last_moment_ms + 1);
        assert_eq!(model.members(), map(&[]), "interval {interval_ms}");
    }
}

#[test]
fn the_latest_interval_counts_even_when_it_is_shorter() {
    let mut model = Model::default();
    model.up(0, 1, A, 60_000);
    model.up(1, 1, A, 0);
    model.at(5_001);
    assert_eq!(model.members(), map(&[(A, 1)]));
    model.at(5_002);
    assert_eq!(model.members(), map(&[]));
}

#[test]
fn an_announcement_at_the_deadline_comes_before_it() {
    let mut model = Model::default();
    model.up(0, 1, A, SECOND);
    model.up(0, 1, B, 60_000);
    model.up(6_001, 1, A, SECOND);
    assert_eq!(model.members(), map(&[(A, 1)]), "an expiry would have moved the member to B");
}

#[test]
fn the_last_guid_keeps_an_address() {
    let mut model = Model::default();
    model.up(0, 1, A, SECOND);
    model.up(500, 2, A, SECOND);
    model.at(6_001);
    assert_eq!(model.members(), map(&[(A, 2)]), "the timer of the old GUID evicts nobody");
    model.up(6_001, 3, A, 0);
    model.up(6_001, 2, A, 60_000);
    model.at(11_002);
    assert_eq!(model.members(), map(&[(A, 2)]), "the newest that is left is shown");
}

#[test]
fn a_fifth_guid_pushes_out_the_earliest_deadline() {
    let mut model = Model::default();
    for (guid, interval_ms) in [(1, 4_000), (2, 1_000), (3, 3_000), (4, 2_000), (5, 0)] {
        model.up(0, guid, A, interval_ms);
    }
    model.up(0, 2, B, 60_000);
    assert_eq!(model.members(), map(&[(A, 5), (B, 2)]), "2 is no longer known at A, so B is a newcomer");
    model.up(0, 1, C, 0);
    assert_eq!(model.alternatives(), map(&[(C, A)]), "the other four are");
}

#[test]
fn a_member_goes_on_at_the_alternative_heard_latest() {
    let mut model = Model::default();
    model.up(0, 1, A, 0);
    model.up(1, 1, B, SECOND);
    model.up(2, 1, C, SECOND);
    model.up(3, 1, B, SECOND);
    model.at(5_001);
    assert_eq!(model.members(), map(&[(B, 1)]));
    assert_eq!(model.alternatives(), map(&[(C, B)]));
    model.up(5_002, 1, A, 0);
    assert_eq!(model.alternatives(), map(&[(A, B), (C, B)]), "the former address is an alternative when it comes back");
    model.at(7_000);
    assert_eq!(model.members(), map(&[(A, 1)]));
    model.at(10_003);
    assert_eq!(model.members(), map(&[]));
}

fn map(pairs: &[(u8, u8)]) -> BTreeMap<u8, u8> {
    pairs.iter().copied().collect()
}
