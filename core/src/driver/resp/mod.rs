//! RESP2 and RESP3: arguments out, replies in.
//!
//! The [`Writer`] appends commands to a lane's buffer. The [`Scan`] finds the next whole reply in what has arrived,
//! looks at each byte of framing once however the bytes come in pieces, and enforces its [`Limits`] before it waits
//! for what a header promises.

mod error;
mod scan;
mod writer;

#[cfg(test)]
mod tests;

pub use self::error::ProtocolError;
pub use self::scan::{Limits, Scan};
pub use self::writer::Writer;
