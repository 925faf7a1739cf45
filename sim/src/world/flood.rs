//! Strangers on the segment: what they send, and how much of it.

use bytes::Bytes;

use super::World;
use super::faults::strange_guid;
use super::kernel::Event;
use super::net::broker_address;
use crate::plan::{FloodKind, Trouble};

/// Datagrams that strangers send at once.
const BURST: u64 = 20;

impl World {
    pub(super) fn flood(&mut self, index: u32) {
        let Some(fault) = self.k.plan.faults.get(index as usize) else { return };
        let Trouble::Flood { per_second, kind } = fault.what else { return };
        let until = fault.until_ms().min(self.k.plan.heal_at_ms) * 1000;
        if self.k.at >= until || per_second == 0 {
            return;
        }
        for _ in 0..BURST {
            let payload = self.hostile(kind);
            let from = std::net::SocketAddr::from(([10, 9, 9, self.k.network.below(4) as u8], 5_353));
            for service in 0..self.services.len() as u32 {
                let us = self.k.latency();
                self.k.after(us, Event::Datagram { service, from, payload: payload.clone() });
            }
        }
        self.k.after(BURST * 1_000_000 / u64::from(per_second), Event::Flood(index));
    }

    fn hostile(&mut self, kind: FloodKind) -> Bytes {
        let rng = &mut self.k.network;
        let guid = strange_guid(rng.below(5_000));
        let broker = rng.below(self.brokers.len().max(1) as u64) as u32;
        let real = broker_address(broker, false);
        let text = match kind {
            FloodKind::Noise => {
                let length = rng.below(1_200) as usize;
                return (0..length).map(|_| rng.next() as u8).collect::<Vec<u8>>().into();
            }
            FloodKind::NearlyRight => match rng.below(8) {
                0 => format!("imq-broker\t{guid}\tup\t{real}\t1e9"),
                1 => format!("imq-broker\t{guid}\tup\t{real}:1\t1"),
                2 => format!("imq-broker\tnot-a-guid\tup\t{real}\t1"),
                3 => format!("other\t{guid}\tup\t{real}\t1"),
                4 => format!("imq-broker\t{guid}\tdown\t{real}"),
                5 => format!("imq-broker\t{guid}\tsideways\t{real}\t1"),
                6 => format!("imq-broker\t{guid}\tup\tlocalhost:6379\t1"),
                _ => format!("\t{guid}\tup\t{real}\t1"),
            },
            FloodKind::Newcomers => {
                format!("imq-broker\t{guid}\tup\t10.7.{}.{}:6379\t1", rng.below(256), rng.below(256))
            }
            FloodKind::Outside => {
                format!("imq-broker\t{guid}\tup\t192.0.2.{}:6379\t1", rng.below(256))
            }
            FloodKind::Aliases => format!("imq-broker\t{guid}\tup\t{real}\t{}", rng.below(90)),
        };
        text.into()
    }
}
