//! A deterministic simulator for Flota.
//!
//! It tests Flota, and it tests what you build on Flota: [`Sim`] runs your handlers in a simulated fleet, kills what you
//! want to have killed, and checks what you say must hold. The same seed is the same run.
//!
//! ```
//! use flota_sim::{Job, Sim, Verdict};
//! use std::{collections::BTreeSet, time::Duration};
//!
//! // The state is what outlives processes: here, the orders that are paid.
//! let run = Sim::new(7, BTreeSet::new())
//!     .services(2, |service| {
//!         service.consume("orders", "billing", |paid: &mut BTreeSet<String>, job: &Job| {
//!             paid.insert(job.text().into_owned());
//!             Verdict::Done
//!         })
//!     })
//!     .send("orders", 100, |n| format!("order {n}"))
//!     .kill_service(0, Duration::from_secs(5), Duration::from_secs(2))
//!     .crash_broker(1, Duration::from_secs(9), Duration::from_secs(3))
//!     .run()
//!     .expect_ok();
//! assert_eq!(run.state.len(), 100);
//! ```
//!
//! [`sim::search`] looks for a seed that fails. [`World`] and [`Plan`] are what is underneath.

pub mod broker;
pub mod clock;
pub mod draw;
#[cfg(feature = "embedded")]
pub mod embedded;
pub mod fidelity;
pub mod invariants;
pub mod lease;
pub mod oracle;
pub mod plan;
pub mod report;
pub mod rng;
pub mod scenario;
pub mod seen;
pub mod shrink;
pub mod sim;
pub mod trial;
pub mod wire;
pub mod world;

pub use plan::Plan;
pub use report::Report;
pub use sim::{Job, Run, Sim, Verdict};
pub use trial::Trial;
pub use world::World;
