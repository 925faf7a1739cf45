#![allow(clippy::unwrap_used, reason = "a test")]

use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

use crate::config::Config;
use crate::engine::{Engine, Incarnation};
use crate::id::ConnId;
use crate::output::{Closed, ClosedReason, Output};
use crate::rng::Seed;
use crate::time::{Mono, Now, Wall};

const UP: &str = "imq-broker\t01020304-0506-8708-890a-0b0c0d0e0f10\tup\t10.0.0.1:6379\t1";
const OTHER_UP: &str = "imq-broker\t11020304-0506-8708-890a-0b0c0d0e0f10\tup\t10.0.0.1:6379\t1";

struct Bench {
    engine: Engine,
    now: Now,
}

impl Bench {
    fn new() -> Self {
        let now = Now { mono: Mono(0), wall: Wall(0) };
        let engine = Engine::new(Config::discover(), Incarnation(1), Seed::from_u64(1), now).unwrap();
        Self { engine, now }
    }

    fn hear(&mut self, datagram: &str) -> Vec<ConnId> {
        self.engine.handle_datagram(self.now, "10.0.0.1:5000".parse().unwrap(), datagram.as_bytes());
        self.dials()
    }

    /// Dials fail, and time passes.
    fn fail_for(&mut self, mut dials: Vec<ConnId>, span: Duration) -> usize {
        let until = self.now.mono + span;
        let mut count = 0;
        while self.now.mono < until {
            for conn in core::mem::take(&mut dials) {
                let why = Closed { reason: ClosedReason::Refused, detail: "connection refused".to_string() };
                self.engine.handle_closed(self.now, conn, why);
            }
            self.now.mono = (self.now.mono + Duration::from_millis(10)).min(until);
            self.engine.handle_timeout(self.now);
            dials = self.dials();
            count += dials.len();
        }
        for conn in dials {
            let why = Closed { reason: ClosedReason::Refused, detail: "connection refused".to_string() };
            self.engine.handle_closed(self.now, conn, why);
        }
        self.dials();
        count
    }

    fn dials(&mut self) -> Vec<ConnId> {
        let mut dials = Vec::new();
        loop {
            match self.engine.poll_output() {
                Output::Dial { conn, .. } => dials.push(conn),
                Output::Wait(_) => return dials,
                _ => {}
            }
        }
    }
}

/// Its announcements have begun again: whoever sends them has asked it. Waiting out a backoff that grew while it was
/// away would keep it out of use for up to half a minute.
#[test]
fn a_broker_that_is_announced_again_is_dialled_at_once() {
    let mut bench = Bench::new();
    let dials = bench.hear(UP);
    bench.fail_for(dials, Duration::from_millis(6_100));
    assert!(bench.engine.fleet().all(|broker| broker.leaving), "it has expired");
    assert_eq!(bench.hear(UP).len(), 1, "it is back");

    let mut bench = Bench::new();
    let dials = bench.hear(UP);
    bench.fail_for(dials, Duration::from_secs(5));
    assert_eq!(bench.hear(UP).len(), 0, "the announcer it had goes on: no news");
    assert_eq!(bench.hear(OTHER_UP).len(), 1, "another one: its server has been started again");
}

#[test]
fn a_stream_of_new_announcers_does_not_undo_the_backoff() {
    let mut bench = Bench::new();
    let dials = bench.hear(UP);
    bench.fail_for(dials, Duration::from_secs(5));
    let dials = bench.hear(OTHER_UP);
    let after = bench.fail_for(dials, Duration::from_secs(3));
    assert!(after <= 1, "{after} more dials within three seconds");
}
