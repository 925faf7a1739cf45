//! A handler with a mistake, the seed that shows it, and the handler without it.
//!
//! Messages are delivered at least once, so the handler remembers which orders it has charged. It remembers them in its
//! process: when that dies between the charge and the acknowledgement, or a sender in doubt stores the order twice, the
//! customer pays twice.
//!
//! ```sh
//! cargo run -p flota-sim --example planted_bug
//! ```

use std::collections::{BTreeMap, BTreeSet};

use flota_sim::sim::{Found, Sim, search};
use flota_sim::{Job, Verdict};

/// The payment provider: it outlives our processes. How often each order was charged.
#[derive(Debug, Default)]
pub(crate) struct Bank {
    charges: BTreeMap<String, u32>,
}

impl Bank {
    fn charge(&mut self, order: &str) {
        *self.charges.entry(order.to_string()).or_default() += 1;
    }

    /// Charges an order unless it was charged: the order is the key of the request.
    fn charge_once(&mut self, order: &str) {
        self.charges.entry(order.to_string()).or_insert(1);
    }

    /// No order is charged twice.
    fn is_fair(&self) -> Result<(), String> {
        let twice = self.charges.iter().find(|(_, times)| **times > 1);
        twice.map_or(Ok(()), |(order, times)| Err(format!("{order} was charged {times} times")))
    }
}

/// Remembers what it has charged in its process.
pub(crate) fn forgetful() -> impl FnMut(&mut Bank, &Job) -> Verdict + Clone {
    let mut charged = BTreeSet::new();
    move |bank, job| {
        let order = job.text().into_owned();
        if charged.insert(order.clone()) {
            bank.charge(&order);
        }
        Verdict::Done
    }
}

/// Leaves it to the bank to remember.
pub(crate) fn careful() -> impl FnMut(&mut Bank, &Job) -> Verdict + Clone {
    |bank, job| {
        bank.charge_once(&job.text());
        Verdict::Done
    }
}

/// Two billing processes, 100 orders, half a minute of faults.
pub(crate) fn fleet<H>(seed: u64, handler: H) -> Sim<Bank>
where
    H: FnMut(&mut Bank, &Job) -> Verdict + Clone + 'static,
{
    Sim::new(seed, Bank::default())
        .services(2, |service| service.consume("orders", "billing", handler))
        .send("orders", 100, |n| format!("order {n}"))
        .chaos()
        .always(Bank::is_fair)
        .check(|bank, messages| {
            let unpaid = messages.iter().find(|m| m.is_stored() && !bank.charges.contains_key(&*m.text()));
            unpaid.map_or(Ok(()), |message| Err(format!("{} was never charged", message.text())))
        })
}

/// The first seed below `seeds` with which the forgetful handler charges twice.
pub(crate) fn hunt(seeds: u64) -> Option<Found<Bank>> {
    search(0..seeds, |seed| fleet(seed, forgetful()))
}

fn main() {
    let found = hunt(SEEDS).expect("a seed that shows the mistake");
    println!("{found}\n");
    let last = found.run.report.seed;
    match search(0..=last, |seed| fleet(seed, careful())) {
        None => println!("without the mistake the same seeds, 0 to {last}, hold"),
        Some(found) => println!("without the mistake: {found}"),
    }
}

/// Enough to find it many times over.
const SEEDS: u64 = 20;
