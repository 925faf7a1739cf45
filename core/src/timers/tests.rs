use super::*;
use alloc::collections::BTreeSet;
use proptest::prelude::*;

const STEP: u64 = 10;

fn drain(timers: &mut Timers<u32>, now: u64) -> Vec<u32> {
    core::iter::from_fn(|| timers.pop_due(Mono(now))).map(|(_, what)| what).collect()
}

#[test]
fn due_timers_come_earliest_first_and_equal_ones_in_arming_order() {
    let mut timers = Timers::new();
    let slots: Vec<_> = (0..6).map(|what| timers.register(what)).collect();
    for (slot, at) in [(3, 20), (1, 10), (0, 20), (2, 10), (4, 5), (5, 21)] {
        assert!(timers.arm(slots[slot], Mono(at)));
    }
    // Moved to where it was: armed last now.
    timers.arm(slots[1], Mono(10));
    assert_eq!((timers.next(), timers.next_what(), timers.len()), (Some(Mono(5)), Some(4), 6));
    assert_eq!(timers.pop_due(Mono(4)), None);
    assert_eq!(drain(&mut timers, 20), [4, 2, 1, 3, 0]);
    assert_eq!((timers.next(), timers.len()), (Some(Mono(21)), 1));
}

#[test]
fn arm_no_later_only_moves_a_deadline_forward() {
    let mut timers = Timers::new();
    let slot = timers.register(0);
    for (at, expected) in [(20, 20), (30, 20), (10, 10)] {
        assert!(timers.arm_no_later(slot, Mono(at)));
        assert_eq!(timers.deadline(slot), Some(Mono(expected)));
    }
    // A deadline that stands keeps its place among equal ones.
    let other = timers.register(1);
    timers.arm(other, Mono(10));
    timers.arm_no_later(slot, Mono(10));
    assert_eq!(drain(&mut timers, 10), [0, 1]);
}

#[test]
fn a_removed_slot_is_refused_also_when_its_place_is_used_again() {
    let mut timers = Timers::new();
    let stale = timers.register(1);
    timers.arm(stale, Mono(5));
    assert_eq!(timers.remove(stale), Some(1));
    assert!(timers.is_empty());
    let slot = timers.register(2);
    assert_eq!(slot.index, stale.index);
    timers.arm(slot, Mono(7));

    assert!(!timers.arm(stale, Mono(1)));
    assert!(!timers.arm_no_later(stale, Mono(1)));
    assert!(!timers.disarm(stale));
    assert_eq!(timers.remove(stale), None);
    assert_eq!(timers.deadline(stale), None);
    assert_eq!((timers.next(), timers.deadline(slot)), (Some(Mono(7)), Some(Mono(7))));
}

#[test]
fn a_slot_of_other_timers_is_refused() {
    let mut many = Timers::new();
    let foreign = (0..3).map(|what| many.register(what)).last().unwrap();
    let mut timers: Timers<u32> = Timers::new();
    assert!(!timers.arm(foreign, Mono(1)));
    assert_eq!(timers.remove(foreign), None);
}

#[test]
fn a_slot_whose_generations_are_used_up_is_retired() {
    let mut timers = Timers::new();
    let index = timers.register(1).index;
    timers.slots[0].generation = u32::MAX;
    let last = TimerSlot { generation: u32::MAX, index };
    assert_eq!(timers.remove(last), Some(1));
    assert_eq!(timers.remove(last), None);
    assert!(!timers.arm(last, Mono(1)));
    assert_ne!(timers.register(2).index, index);
}

#[test]
fn deadlines_far_ahead_do_not_keep_the_usual_ones_in_the_heap() {
    let mut timers = Timers::new();
    for what in 0..40u32 {
        let far = timers.register(what);
        // Descending, so that they occupy every run.
        timers.arm(far, Mono(1_000_000 - u64::from(what)));
    }
    let usual: Vec<_> = (40..140).map(|what| timers.register(what)).collect();
    for now in 0..1_000 {
        timers.arm(usual[now % usual.len()], Mono(now as u64 + 100));
    }
    assert!(usual.iter().all(|slot| matches!(timers.slots[slot.index as usize].held, Held::Run(_))));
}

#[derive(Clone, Debug)]
enum Act {
    Register,
    Arm(prop::sample::Index, u64),
    ArmNoLater(prop::sample::Index, u64),
    Disarm(prop::sample::Index),
    Remove(prop::sample::Index),
    /// Time passes, and the timer is armed for the usual delay.
    Refresh(prop::sample::Index, u64),
    Pop(u64),
}

fn act() -> impl Strategy<Value = Act> {
    // A small range makes deadlines collide.
    let at = || 0..40u64;
    prop_oneof![
        3 => Just(Act::Register),
        4 => (any::<prop::sample::Index>(), at()).prop_map(|(timer, at)| Act::Arm(timer, at)),
        2 => (any::<prop::sample::Index>(), at()).prop_map(|(timer, at)| Act::ArmNoLater(timer, at)),
        2 => any::<prop::sample::Index>().prop_map(Act::Disarm),
        1 => any::<prop::sample::Index>().prop_map(Act::Remove),
        6 => (any::<prop::sample::Index>(), 0..4u64).prop_map(|(timer, delay)| Act::Refresh(timer, delay * STEP)),
        2 => (0..3u64).prop_map(Act::Pop),
    ]
}

/// The same by the obvious means. A timer's number is the order of its registration and never used again.
#[derive(Default)]
struct Model {
    armed: BTreeSet<(Mono, u64, u32)>,
    keys: Vec<Option<(Mono, u64)>>,
    registered: Vec<bool>,
    sequence: u64,
}

impl Model {
    fn disarm(&mut self, timer: usize) -> bool {
        let Some((at, sequence)) = self.keys[timer].take() else { return false };
        assert!(self.armed.remove(&(at, sequence, timer as u32)));
        true
    }

    fn arm(&mut self, timer: usize, at: Mono) -> bool {
        if !self.registered[timer] {
            return false;
        }
        self.disarm(timer);
        self.sequence += 1;
        self.keys[timer] = Some((at, self.sequence));
        self.armed.insert((at, self.sequence, timer as u32))
    }

    fn pop_due(&mut self, now: Mono) -> Option<u32> {
        let (at, _, timer) = *self.armed.first()?;
        (at <= now).then(|| {
            self.disarm(timer as usize);
            timer
        })
    }
}

#[derive(Default)]
struct Pair {
    timers: Timers<u32>,
    model: Model,
    /// Every slot ever handed out, stale ones too.
    slots: Vec<TimerSlot>,
    now: u64,
}

impl Pair {
    fn apply(&mut self, act: Act) {
        let Self { timers, model, slots, now } = self;
        let any = |which: prop::sample::Index| which.index(slots.len());
        match act {
            Act::Register => {
                let slot = timers.register(slots.len() as u32);
                assert!(!slots.contains(&slot));
                slots.push(slot);
                model.keys.push(None);
                model.registered.push(true);
            }
            Act::Pop(passes) => {
                *now += passes;
                let popped = timers.pop_due(Mono(*now));
                assert_eq!(popped.map(|(_, what)| what), model.pop_due(Mono(*now)));
                assert!(popped.is_none_or(|(slot, what)| slots[what as usize] == slot));
            }
            _ if slots.is_empty() => {}
            Act::Arm(timer, at) => {
                let (timer, at) = (any(timer), Mono(*now + at));
                assert_eq!(timers.arm(slots[timer], at), model.arm(timer, at));
            }
            Act::Refresh(timer, delay) => {
                *now += 1;
                let (timer, at) = (any(timer), Mono(*now + delay));
                assert_eq!(timers.arm(slots[timer], at), model.arm(timer, at));
            }
            Act::ArmNoLater(timer, at) => {
                let (timer, at) = (any(timer), Mono(*now + at));
                let stands = model.keys[timer].is_some_and(|(armed, _)| armed <= at);
                assert_eq!(timers.arm_no_later(slots[timer], at), stands || model.arm(timer, at));
            }
            Act::Disarm(timer) => assert_eq!(timers.disarm(slots[any(timer)]), model.disarm(any(timer))),
            Act::Remove(timer) => {
                let timer = any(timer);
                let was = core::mem::replace(&mut model.registered[timer], false);
                model.disarm(timer);
                assert_eq!(timers.remove(slots[timer]), was.then_some(timer as u32));
            }
        }
    }

    fn assert_agree(&self) {
        let first = self.model.armed.first();
        assert_eq!(self.timers.next(), first.map(|(at, ..)| *at));
        assert_eq!(self.timers.next_what(), first.map(|(.., timer)| *timer));
        assert_eq!(self.timers.len(), self.model.armed.len());
        for (slot, key) in self.slots.iter().zip(&self.model.keys) {
            assert_eq!(self.timers.deadline(*slot), key.map(|(at, _)| at));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_an_ordered_set(acts in prop::collection::vec(act(), 0..300)) {
        let mut pair = Pair::default();
        for act in acts {
            pair.apply(act);
            pair.assert_agree();
        }
        let rest: Vec<_> = pair.model.armed.iter().map(|(.., timer)| *timer).collect();
        prop_assert_eq!(drain(&mut pair.timers, u64::MAX), rest);
    }

    /// Deep enough that what fills a gap comes from another branch, where it may belong above the gap.
    #[test]
    fn the_heap_stays_ordered_when_timers_move_in_it_and_leave_its_middle(
        ats in prop::collection::vec(0..1_000u64, 30..120),
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop::option::of(0..1_000u64)), 0..60),
    ) {
        let mut heap = Heap::default();
        heap.make_room(ats.len());
        let mut held = Vec::new();
        for (index, at) in (0u32..).zip(ats) {
            heap.insert(index, Key { at: Mono(at), sequence: u64::from(index) });
            held.push(Some(at));
        }
        for (which, to) in changes {
            let index = which.index(held.len());
            match (held[index], to) {
                (None, _) => continue,
                (Some(_), None) => heap.remove(index as u32),
                (Some(_), Some(at)) => heap.change(index as u32, Key { at: Mono(at), sequence: index as u64 }),
            }
            held[index] = to;
        }
        let ordered: BTreeSet<_> = (0u32..).zip(held).filter_map(|(index, at)| Some((at?, index))).collect();
        for (at, index) in ordered {
            prop_assert_eq!(heap.first().map(|(key, index)| (key.at.0, index)), Some((at, index)));
            heap.remove(index);
        }
        prop_assert!(heap.first().is_none());
    }
}
