//! The fleet against a model that is small enough to check by reading, and against its own books.

use alloc::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

#[path = "../../../tests/support/fleet_model.rs"]
#[allow(unreachable_pub, missing_docs, reason = "it is shared with tests outside of this crate")]
mod fleet_model;

/// Something that happens to a fleet, after some time.
#[derive(Clone, Copy, Debug)]
enum Input {
    Up { guid: u8, address: usize, seconds: usize },
    Down { guid: u8, address: usize },
    Pass,
}

const ADDRESSES: [&str; 3] = [A, B, C];
const INTERVALS: [(&str, u64); 5] = [("0", 0), ("0.5", 500), ("1", 1_000), ("4", 4_000), ("86400", 86_400_000)];

fn inputs() -> impl Strategy<Value = Vec<(u64, Input)>> {
    let after_ms = prop_oneof![4 => 0..1_000_u64, 3 => 1_000..7_000_u64, 1 => 4_990..5_010_u64, 1 => 7_000..70_000_u64];
    let up = (1..=3_u8, 0..3_usize, 0..5_usize);
    let input = prop_oneof![
        6 => up.prop_map(|(guid, address, seconds)| Input::Up { guid, address, seconds }),
        2 => (1..=3_u8, 0..3_usize).prop_map(|(guid, address)| Input::Down { guid, address }),
        1 => Just(Input::Pass),
    ];
    prop::collection::vec((after_ms, input), 1..60)
}

impl World {
    fn feed(&mut self, input: Input) {
        match input {
            Input::Up { guid, address, seconds } => self.up_every(guid, ADDRESSES[address], INTERVALS[seconds].0),
            Input::Down { guid, address } => self.down(guid, ADDRESSES[address]),
            Input::Pass => self.fire(),
        }
    }

    /// Plays the other machines, without departures: every member is ready, with a process of its own, and a departed
    /// one is done with at once.
    fn answer(&mut self) {
        while let Some(effect) = self.effects.pop_front() {
            match effect {
                Effect::Joined(broker) => assert!(self.run(|f, cx| f.on_ready(broker, &format!("{broker:?}"), cx))),
                Effect::AskIdentity(broker) => self.run(|fleet, cx| fleet.on_identity(broker, true, cx)),
                Effect::Left(broker) => self.forget(broker),
                Effect::Moved(_) => {}
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    fn address_number(address: &Endpoint) -> u8 {
        let text = address.to_string();
        (0..).zip(ADDRESSES).find(|(_, known)| *known == text).expect("one of the three").0
    }

    fn numbered(&self) -> (BTreeMap<u8, u8>, BTreeMap<u8, u8>) {
        let (mut members, mut alternatives) = (BTreeMap::new(), BTreeMap::new());
        for (_, member) in self.fleet.iter() {
            let at = Self::address_number(member.address());
            let guid = (1..=3).find(|n| member.guid() == Some(guid_of(*n))).expect("one of the three");
            members.insert(at, guid);
            alternatives
                .extend(member.rest.alternatives.iter().map(|place| (Self::address_number(&place.address), at)));
        }
        (members, alternatives)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_fleet_is_the_model(inputs in inputs()) {
        let mut world = World::with(|config| config.limits.newcomers_burst = 1_000);
        let mut model = fleet_model::Model::default();
        let mut now_ms = 0;
        for (after_ms, input) in inputs {
            // The fleet hears of a late turn only with its next input, like the model.
            now_ms += after_ms;
            world.now = Mono(now_ms * 1_000);
            world.feed(input);
            world.answer();
            match input {
                Input::Up { guid, address, seconds } => model.up(now_ms, guid, address as u8, INTERVALS[seconds].1),
                Input::Down { guid, address } => model.down(now_ms, guid, address as u8),
                Input::Pass => model.at(now_ms),
            }
            prop_assert_eq!(world.numbered(), (model.members(), model.alternatives()), "after {:?} at {}", input, now_ms);
            check(&world);
        }
    }

    /// With everything the other machines may do, in any order: the books are right, and departures pair up.
    #[test]
    fn the_books_are_right_whatever_happens(inputs in inputs(), others in prop::collection::vec(0..100_u32, 60)) {
        let mut world = World::with(|config| {
            config.brokers = alloc::vec![A.parse().expect("an endpoint")];
            config.limits.newcomers_burst = 1_000;
            config.limits.alternatives = 1;
            config.limits.guids_per_address = 2;
        });
        let mut gone = BTreeSet::new();
        for ((after_ms, input), chance) in inputs.into_iter().zip(others) {
            world.pass_ms(after_ms);
            world.feed(input);
            carry_out(&mut world, &mut gone);
            disturb(&mut world, chance);
            carry_out(&mut world, &mut gone);
            let leaving: BTreeSet<_> = world.fleet.iter().filter(|(_, m)| m.is_leaving()).map(|(id, _)| id).collect();
            gone.retain(|broker| world.fleet.member(*broker).is_some());
            prop_assert_eq!(&leaving, &gone);
            prop_assert!(world.fleet.iter().any(|(_, member)| member.is_static() && !member.is_leaving()));
            check(&world);
        }
    }
}

fn carry_out(world: &mut World, gone: &mut BTreeSet<BrokerId>) {
    while let Some(effect) = world.effects.pop_front() {
        match effect {
            Effect::Forget(broker) => world.forget(broker),
            Effect::Joined(broker) => assert!(!world.fleet.is_leaving(broker)),
            Effect::Left(broker) => assert!(gone.insert(broker), "{broker:?} left twice"),
            Effect::Rejoined(broker) => assert!(gone.remove(&broker), "{broker:?} was there"),
            _ => {}
        }
    }
}

fn disturb(world: &mut World, chance: u32) {
    let brokers: Vec<BrokerId> = world.fleet.iter().map(|(broker, _)| broker).collect();
    let broker = brokers[chance as usize % brokers.len()];
    let run = ["run-1", "run-2", "run-3", ""][chance as usize % 4];
    let why = Unready { reason: UnreadyReason::Closed, detail: String::new() };
    match chance {
        0..40 => {
            let is_member = world.run(|fleet, cx| fleet.on_ready(broker, run, cx));
            let is_merged = world.effects.iter().any(|effect| matches!(effect, Effect::Forget(b) if *b == broker));
            assert_eq!(is_member, !is_merged);
        }
        40..60 => world.run(|fleet, cx| fleet.on_unready(broker, why, cx)),
        60..70 => world.run(|fleet, cx| fleet.on_identity(broker, chance.is_multiple_of(2), cx)),
        70..80 if world.fleet.is_leaving(broker) => world.forget(broker),
        _ => {}
    }
    world.fire();
}

/// Every index says what the members say, and every timer is armed for no later than its member needs.
pub(super) fn check(world: &World) {
    let fleet = &world.fleet;
    let (mut addresses, mut runs) = (0, 0);
    let mut guids: BTreeMap<Guid, (u64, BrokerId, u32)> = BTreeMap::new();
    for (broker, member) in fleet.iter() {
        assert!(!(member.is_leaving() && member.is_static()), "a configured broker is leaving");
        assert_eq!(member.place.is_alive(), !member.is_leaving());
        assert!(member.rest.alternatives.iter().all(Place::is_alive));
        for place in member.places() {
            addresses += 1;
            assert_eq!(fleet.index.by_address((&place.address).into(), &fleet.members), Some(broker));
            for heard in &place.guids {
                let entry = guids.entry(heard.guid).or_insert((u64::MAX, broker, 0));
                *entry = ((entry.0, entry.1).min((heard.first, broker)).0, entry.1, entry.2 + 1);
                if entry.0 == heard.first {
                    entry.1 = broker;
                }
            }
        }
        if let Some(run) = &member.rest.run {
            runs += 1;
            assert_eq!(fleet.index.by_run(run, &fleet.members), Some(broker));
        }
        let (armed, due) = (world.timers.deadline(member.timer), member.due(world.config.timing.alternative_after));
        assert_eq!((armed.is_some(), armed.unwrap_or(Mono::NEVER)), (due.is_some(), member.armed));
        assert!(armed <= due, "{armed:?} is after {due:?}");
        assert!(world.timers.deadline(member.timer).is_none_or(|due| due > world.now));
    }
    for (guid, (_, first, places)) in &guids {
        assert_eq!((fleet.index.by_guid(*guid), fleet.index.places_of(*guid)), (Some(*first), *places));
    }
    assert_eq!(fleet.index.lens(), (addresses, guids.len(), runs));
}
