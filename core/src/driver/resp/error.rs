//! What can be wrong with the bytes a server sends.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::fmt;

/// The bytes are not RESP, or more of it than allowed. There is no way to go on after it: the connection is closed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The first byte of a connection is not the start of a reply.
    NotResp {
        /// The first bytes, escaped.
        start: Box<str>,
    },
    /// A later value begins with a byte that starts no value.
    UnknownType {
        /// That byte.
        byte: u8,
    },
    /// A streamed string or aggregate of RESP3, which no server sends without being asked.
    Streamed {
        /// Its type byte.
        kind: u8,
    },
    /// A length that is not a number, or not one this type can have.
    BadLength {
        /// The type byte.
        kind: u8,
        /// What stands after it, escaped and shortened.
        line: Box<str>,
    },
    /// A number, boolean, double, big number or null that is not one.
    BadValue {
        /// The type byte.
        kind: u8,
        /// What stands after it, escaped and shortened.
        line: Box<str>,
    },
    /// A verbatim string that does not begin with a format of three characters and a colon.
    BadVerbatim,
    /// A carriage return or newline alone, where both end a line.
    BareNewline,
    /// The two bytes after a body are not CRLF: its length was wrong, or bytes were lost.
    BodyNotEnded {
        /// How long the body was said to be, in bytes.
        length: u32,
        /// The two bytes.
        found: [u8; 2],
    },
    /// A line of more than [`ProtocolError::LINE`] bytes.
    LineTooLong,
    /// A push inside of another value.
    NestedPush,
    /// Aggregates nested too deep.
    TooDeep {
        /// How deep they may be.
        limit: usize,
    },
    /// More values in one reply than allowed.
    TooManyElements {
        /// How many there may be.
        limit: u32,
    },
    /// More bytes in one reply than allowed.
    TooLarge {
        /// How many bytes the reply needs at least.
        bytes: u64,
        /// How many there may be.
        limit: u32,
    },
}

impl ProtocolError {
    /// The longest line: a status, a refusal, a number. In bytes, without its end.
    pub const LINE: usize = 64 * 1024;

    pub(super) fn not_resp(start: &[u8]) -> Self {
        Self::NotResp { start: escaped(start) }
    }

    pub(super) fn bad_length(kind: u8, line: &[u8]) -> Self {
        Self::BadLength { kind, line: escaped(line) }
    }

    pub(super) fn bad_value(kind: u8, line: &[u8]) -> Self {
        Self::BadValue { kind, line: escaped(line) }
    }
}

fn escaped(bytes: &[u8]) -> Box<str> {
    const SHOWN: usize = 40;
    match bytes.get(..SHOWN) {
        Some(start) if bytes.len() > SHOWN => {
            let mut text: String = start.escape_ascii().to_string();
            text.push('…');
            text.into()
        }
        _ => bytes.escape_ascii().to_string().into(),
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotResp { start } => {
                write!(f, "this is not a RESP server: it answered \"{start}\"; {}", hint(start))
            }
            Self::UnknownType { byte } => {
                write!(f, "a reply begins with '{}', which starts no RESP value; {SLIPPED}", byte.escape_ascii())
            }
            Self::Streamed { kind } => {
                write!(f, "a streamed RESP3 value ('{}'), which is not supported; ", kind.escape_ascii())?;
                f.write_str("no Redis or Valkey sends these: check what stands between")
            }
            Self::BadLength { kind, line } => {
                write!(f, "the length after '{}' is \"{line}\", which is none; {SLIPPED}", kind.escape_ascii())
            }
            Self::BadValue { kind, line } => {
                write!(f, "the value after '{}' is \"{line}\", which is none; {SLIPPED}", kind.escape_ascii())
            }
            Self::BadVerbatim => write!(f, "a verbatim string without a format in front of its text; {SLIPPED}"),
            Self::BareNewline => write!(f, "a line does not end with CRLF; {SLIPPED}"),
            Self::BodyNotEnded { length, found } => {
                write!(
                    f,
                    "after a body of {length} bytes stands \"{}\" instead of CRLF; {SLIPPED}",
                    found.escape_ascii()
                )
            }
            Self::LineTooLong => write!(f, "a line is longer than {} bytes; {SLIPPED}", Self::LINE),
            Self::NestedPush => write!(f, "a push inside of a reply; {SLIPPED}"),
            Self::TooDeep { limit } => {
                write!(f, "a reply is nested deeper than {limit}; raise the limit on depth if the server is trusted")
            }
            Self::TooManyElements { limit } => {
                write!(
                    f,
                    "a reply has more than {limit} values; ask for fewer at a time or raise the limit on elements"
                )
            }
            Self::TooLarge { bytes, limit } => {
                write!(f, "a reply needs at least {bytes} bytes, allowed are {limit}; ")?;
                f.write_str("ask for less at a time or raise the limit on bytes")
            }
        }
    }
}

/// What to do when the framing does not add up.
const SLIPPED: &str = "the connection cannot be used any further: dial again, and check what stands between";

fn hint(start: &str) -> &'static str {
    if start.starts_with("HTTP/") {
        "that is an HTTP server: check the port"
    } else if start.starts_with("SSH-") {
        "that is an SSH server: check the port"
    } else if start.starts_with("\\x15\\x03") {
        "that is a TLS alert: the server wants TLS, configure it"
    } else {
        "check address and port, and whether the server wants TLS"
    }
}

impl core::error::Error for ProtocolError {}
