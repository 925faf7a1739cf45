//! Audits that fail: each clause, by a planted fault.

use alloc::string::String;
use core::time::Duration;

use super::{Act, World};
use crate::config::Config;
use crate::mutant::Mutant;
use crate::output::ClosedReason;

/// A world whose engine has this fault, and whose audits may complain.
fn planted(mutant: Mutant) -> World {
    with_config(Config { mutant: Some(mutant), ..Config::discover() })
}

fn with_config(config: Config) -> World {
    let mut world = World::with_config(1, config);
    world.watched.planted = true;
    world
}

impl World {
    /// One broker, ready.
    fn up(mut self) -> Self {
        self.announce(0, 0, true);
        self.settle_down();
        self
    }

    fn send(&mut self) {
        self.act(Act::Send { key: None, once: true, wait_ms: None, partitions: 1 });
    }

    fn subscribe(mut self) -> Self {
        self.act(Act::Subscribe { in_flight: 8, partitions: 1 });
        self.settle_down();
        self
    }

    /// Answers the read that waits: `what` over 256 is what it brings.
    fn answer_read(&mut self, what: u32) {
        let waiting = self.waiting().next();
        self.answer(waiting.expect("a read that waits"), what);
    }

    /// The command lane dies.
    fn cut(&mut self) {
        let reads = self.waiting().next();
        let command = self.watched.wires.keys().copied().find(|conn| Some(*conn) != reads);
        self.close(command.expect("a command lane"), ClosedReason::Eof);
    }

    fn assert_complains(&self, start: &str, end: &str) {
        let complaint: &String = self.watched.complaint.as_ref().expect("a complaint");
        assert!(complaint.starts_with(start) && complaint.ends_with(end), "{complaint}");
    }
}

#[test]
fn bytes_that_are_not_given_back() {
    let mut world = planted(Mutant::BacklogBytesLeaked);
    world.send();
    world.act(Act::Cancel(0));
    world.assert_complains("backlog: waiting bytes: ", "they differ by 4");
}

#[test]
fn a_deadline_of_what_does_not_wait() {
    let mut world = planted(Mutant::DeadlineSurvivesPlacement);
    world.send();
    world.up().assert_complains("backlog: o0.0 has a deadline", "does not wait until then");
}

#[test]
fn a_watermark_beyond_what_was_sent() {
    let mut world = planted(Mutant::CancelRemovesSlot).up();
    // The first one makes its topic known.
    world.send();
    world.settle_down();
    world.send();
    world.act(Act::Sent(0, 100));
    world.act(Act::Cancel(0));
    world.assert_complains("connections: ", "more than the limit of 9");
}

#[test]
fn two_readers_where_one_was_asked_for() {
    let mut world = planted(Mutant::ReaderDoubled).up().subscribe();
    world.cut();
    world.pass(Duration::from_secs(1));
    world.settle_down();
    world.assert_complains("connections: ", "");
}

#[test]
fn credit_that_an_answer_does_not_give_back() {
    let mut world = planted(Mutant::CreditLeaked).up().subscribe();
    world.answer_read(1);
    world.assert_complains("credit: s0.0 reserved: ", "");
}

#[test]
fn credit_that_is_given_back_twice() {
    let mut world = planted(Mutant::CreditFreedTwice).up().subscribe();
    world.answer_read(3 * 256 + 1);
    world.act(Act::Settle(0, 7, false));
    world.assert_complains("credit: s0.0 in hand: ", "they differ by 1");
}

#[test]
fn more_members_than_there_may_be() {
    let mut config = Config { mutant: Some(Mutant::FullTableGrows), ..Config::discover() };
    config.limits.brokers = 1;
    let mut world = with_config(config).up();
    world.announce(1, 0, true);
    world.assert_complains("fleet: members: 2 is 1 more", "the limit of 1");
}

#[test]
fn a_timer_of_nobody() {
    let mut world = planted(Mutant::ConnTimerLeaked).up();
    world.cut();
    world.assert_complains("timers: ", "which is gone or has another");
}

#[test]
fn the_footprint_is_what_is_held() {
    let mut world = World::new(1);
    world.send();
    let waiting = world.watched.engine.footprint();
    assert_eq!((waiting.ops, waiting.backlog_ops, waiting.backlog_bytes), (1, 1, 4));
    world = world.up().subscribe();
    world.answer_read(3 * 256 + 1);
    let full = world.watched.engine.footprint();
    assert_eq!((full.brokers, full.connections, full.deliveries), (1, 2, 3));
    assert_eq!((full.ops, full.backlog_ops, full.backlog_bytes), (0, 0, 0));
    world.end();
    let ended = world.watched.engine.footprint();
    assert_eq!((ended.ops, ended.connections, ended.deliveries), (0, 0, 0));
    assert!(ended.timers < full.timers);
}
