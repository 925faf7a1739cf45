//! A deterministic simulator for Flota.

pub mod broker;
pub mod clock;
pub mod draw;
#[cfg(feature = "embedded")]
pub mod embedded;
pub mod invariants;
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
