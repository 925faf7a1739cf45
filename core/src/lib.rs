//! The sans-IO core of Flota: a fleet of plain Redis or Valkey servers as one message layer.
//!
//! [`Engine`] turns datagrams, replies, operations of the application and the passing of time into one queue of
//! outputs: commands to send, a deadline to wait for, events. It has no clock, socket, thread, environment or global,
//! and this crate without features is `no_std` with `alloc`. With the feature `std` it also has the `driver`: the
//! loop that carries outputs to sockets, RESP, and the client that applications hold. Most people want a runtime crate,
//! such as `flota-tokio`, instead of this one.
//!
//! # The contract
//!
//! 1. After any call that takes `now`, drain [`Engine::poll_output`] until it returns [`Output::Wait`].
//! 2. `Wait(Some(t))` means that there is nothing to do before `t` unless something happens.
//!    [`Engine::handle_timeout`] may be called early, late or twice without harm.
//! 3. The `Send`s of one connection are written in the order in which they come out; [`Engine::handle_sent`] counts
//!    those that the kernel has taken.
//! 4. An input that carries a dead [`ConnId`](id::ConnId) is ignored, because sockets report late by nature.
//! 5. Nothing that a peer or a socket does makes a method fail. What the application asks for is refused at once, with
//!    its argument given back, or answered later exactly once.
//! 6. Only [`Engine::handle_timeout`] lets time pass: it fires what is due at `now`. Every other call handles its input and
//!    leaves what is due to the next `handle_timeout`, which `Wait` asks for at once.
//! 7. Before a driver lets time pass it reads what has arrived, within its budget: announcements and replies. So a
//!    process that was suspended evicts no broker whose announcement lies in the socket, and gives up no connection whose
//!    reply does. It reports `handle_sent` before the `handle_closed` of a connection.
//!
//! # The loop
//!
//! ```
//! use flota_core::config::{Config, Endpoint};
//! use flota_core::engine::{Engine, Incarnation};
//! use flota_core::command::Command;
//! use flota_core::id::ConnId;
//! use flota_core::output::{Event, Output};
//! use flota_core::rng::Seed;
//! use flota_core::time::{Mono, Now, Wall};
//!
//! /// What an adapter does for an engine.
//! trait World {
//!     fn dial(&mut self, conn: ConnId, to: &Endpoint);
//!     fn send(&mut self, conn: ConnId, command: &Command);
//!     fn hang_up(&mut self, conn: ConnId);
//!     fn tell(&mut self, event: Event);
//! }
//!
//! /// Carries out everything the engine wants now; returns when it wants to be called again.
//! fn drain(engine: &mut Engine, world: &mut impl World) -> Option<Mono> {
//!     loop {
//!         match engine.poll_output() {
//!             Output::Dial { conn, to } => world.dial(conn, &to),
//!             Output::Send { conn, command } => world.send(conn, &command),
//!             Output::Hangup(conn) => world.hang_up(conn),
//!             Output::Datagram { .. } => {} // only announcers send any
//!             Output::Event(event) => world.tell(event),
//!             Output::Wait(until) => return until,
//!         }
//!     }
//! }
//!
//! struct Paper;
//! impl World for Paper {
//!     fn dial(&mut self, conn: ConnId, to: &Endpoint) {
//!         println!("{conn:?}: connect to {to}, then call handle_connected or handle_closed");
//!     }
//!     fn send(&mut self, conn: ConnId, command: &Command) {
//!         println!("{conn:?}: write {command:?}, then call handle_sent; its reply goes to handle_reply");
//!     }
//!     fn hang_up(&mut self, conn: ConnId) {
//!         println!("{conn:?}: close");
//!     }
//!     fn tell(&mut self, event: Event) {
//!         println!("{event:?}");
//!     }
//! }
//!
//! let now = Now { mono: Mono(0), wall: Wall(1_700_000_000_000) };
//! let config = Config::brokers(["10.0.0.5:6379"])?;
//! let mut engine = Engine::new(config, Incarnation(1), Seed::from_u64(7), now)?;
//! let until = drain(&mut engine, &mut Paper);
//! assert!(until.is_some(), "the dial has a deadline");
//! # Ok::<(), flota_core::config::ConfigError>(())
//! ```
#![no_std]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod announce;
mod announcer;
#[cfg(any(test, feature = "mutants"))]
mod audit;
pub mod command;
pub mod config;
mod conn;
mod departure;
#[cfg(feature = "std")]
pub mod driver;
mod effect;
pub mod engine;
mod fleet;
pub mod id;
pub mod key;
mod link;
#[doc(hidden)]
pub mod mutant;
pub mod op;
pub mod output;
mod placement;
pub mod reply;
pub mod rng;
pub mod router;
pub mod script;
pub mod stats;
#[cfg(feature = "std")]
mod sync;
pub mod time;
pub mod timers;
pub mod topic;

pub use engine::Engine;
pub use output::Output;
