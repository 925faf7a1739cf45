//! Finding the next whole reply in a growing buffer, and writing its nodes on the way.

use core::cmp::min;

use super::ProtocolError;
use crate::reply::{Kind, Node, Reply, Tape, Value, parse_int};

/// What one reply may need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// How deep aggregates may be nested.
    pub depth: usize,
    /// How many values a reply may have, those of attributes included.
    pub elements: u32,
    /// How many bytes a reply may have, framing included.
    pub bytes: u32,
}

/// 16 levels, 2²⁰ values, 512 MiB: more than any answer to the commands that are sent, and what a server itself allows
/// for one string.
impl Default for Limits {
    fn default() -> Self {
        Self { depth: 16, elements: 1 << 20, bytes: 512 << 20 }
    }
}

/// Reads replies one after the other, without recursion, each byte of framing once.
pub struct Scan {
    limits: Limits,
    /// Up to here everything is understood: the next header begins here, or `body` does.
    at: usize,
    /// From `at` up to here there is no end of line.
    searched: usize,
    /// A bulk whose header has been read.
    body: Option<Body>,
    /// Values promised so far.
    elements: u32,
    tape: Tape,
    /// Whether an earlier reply of this connection was whole.
    spoke_resp: bool,
    failed: Option<ProtocolError>,
}

#[derive(Clone, Copy)]
struct Body {
    kind: u8,
    /// In bytes, within the limit.
    length: u32,
}

/// What one step came to.
enum Step {
    /// The bytes that decide have not arrived.
    Wait,
    /// A header or body is understood.
    Done(Value),
}

impl Scan {
    /// For a new connection.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            at: 0,
            searched: 0,
            body: None,
            elements: 0,
            tape: Tape::default(),
            spoke_resp: false,
            failed: None,
        }
    }

    /// The next reply and how many bytes it took, or `None` until more has arrived. `buffered` begins with the first
    /// byte that no reply has taken and never loses bytes in between; after a reply the caller drops what it took.
    ///
    /// # Errors
    ///
    /// When the bytes are not RESP or exceed the limits; from then on the same error for ever.
    pub fn poll(&mut self, buffered: &[u8]) -> Result<Option<(Reply, usize)>, ProtocolError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.at == 0
            && let Some((header, end)) = plain_bulk(buffered)
            && end + 2 <= self.limits.bytes as usize
            && let Some(body) = buffered.get(header..end)
        {
            // What a send is answered with: read in place, without the tape.
            self.start_over();
            return Ok(Some((Reply::bulk(body), end + 2)));
        }
        match self.run(buffered) {
            Ok(false) => Ok(None),
            Ok(true) => {
                let taken = self.at;
                let reply = self.tape.take(buffered.get(..taken).unwrap_or(buffered));
                self.start_over();
                Ok(Some((reply, taken)))
            }
            Err(error) => {
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }

    /// How many bytes the reply under way has at least, from its first one: so much room the buffer will need.
    #[must_use]
    pub fn needed(&self) -> usize {
        self.at + self.body.map_or(1, |body| body.length as usize + 2)
    }

    /// A reply was whole; the next one begins at the front.
    fn start_over(&mut self) {
        (self.at, self.searched, self.elements, self.spoke_resp) = (0, 0, 0, true);
    }

    /// Goes on until the reply is whole (true) or bytes are missing.
    fn run(&mut self, buffered: &[u8]) -> Result<bool, ProtocolError> {
        let allowed = buffered.get(..self.limits.bytes as usize).unwrap_or(buffered);
        loop {
            let step = match self.body {
                Some(body) => self.end_body(buffered, body)?,
                None => match self.plain_bulk(allowed) {
                    Some(value) => Step::Done(value),
                    None => self.header(buffered)?,
                },
            };
            match step {
                Step::Wait => return Ok(false),
                Step::Done(Value::More) => {}
                Step::Done(Value::Last) => return Ok(true),
            }
        }
    }

    /// A bulk within an aggregate that is there as a whole. `None` decides nothing.
    #[inline]
    fn plain_bulk(&mut self, allowed: &[u8]) -> Option<Value> {
        let (header, end) = plain_bulk(allowed.get(self.at..)?)?;
        let start = self.at;
        self.at += end + 2;
        Some(self.tape.text(Kind::Bulk, (start + header) as u32, (start + end) as u32))
    }

    fn header(&mut self, buffered: &[u8]) -> Result<Step, ProtocolError> {
        let Some(&kind) = buffered.get(self.at) else { return Ok(Step::Wait) };
        match kind {
            b'$' | b'=' | b'!' => self.bulk(buffered, kind),
            b'*' | b'%' | b'~' | b'>' | b'|' => self.aggregate(buffered, kind),
            b':' | b'+' | b'-' | b'_' | b'#' | b',' | b'(' => self.line_value(buffered, kind),
            b';' | b'.' => Err(ProtocolError::Streamed { kind }),
            _ if self.at == 0 && !self.spoke_resp => Err(ProtocolError::not_resp(buffered)),
            byte => Err(ProtocolError::UnknownType { byte }),
        }
    }

    fn bulk(&mut self, buffered: &[u8], kind: u8) -> Result<Step, ProtocolError> {
        let Some((length, next)) = self.length(buffered, kind)? else { return Ok(Step::Wait) };
        let Some(length) = length else {
            self.advance(next)?;
            return Ok(Step::Done(self.tape.scalar(NIL)));
        };
        self.fits((next as u64).saturating_add(length).saturating_add(2))?;
        self.advance(next)?;
        let body = Body { kind, length: length as u32 };
        self.body = Some(body);
        self.end_body(buffered, body)
    }

    /// The body begins at `at`. Nothing in it is looked at.
    fn end_body(&mut self, buffered: &[u8], body: Body) -> Result<Step, ProtocolError> {
        let end = self.at + body.length as usize;
        let Some(&[cr, lf]) = buffered.get(end..end + 2) else { return Ok(Step::Wait) };
        if [cr, lf] != *b"\r\n" {
            return Err(ProtocolError::BodyNotEnded { length: body.length, found: [cr, lf] });
        }
        let (mut start, mut kind) = (self.at, Kind::Bulk);
        match body.kind {
            b'!' => kind = Kind::Error,
            b'=' if body.length < 4 || buffered.get(start + 3) != Some(&b':') => {
                return Err(ProtocolError::BadVerbatim);
            }
            b'=' => start += 4,
            _ => {}
        }
        self.body = None;
        self.at = end + 2;
        Ok(Step::Done(self.tape.text(kind, start as u32, end as u32)))
    }

    fn aggregate(&mut self, buffered: &[u8], kind: u8) -> Result<Step, ProtocolError> {
        let Some((length, next)) = self.length(buffered, kind)? else { return Ok(Step::Wait) };
        let Some(length) = length else {
            self.advance(next)?;
            return Ok(Step::Done(self.tape.scalar(NIL)));
        };
        if kind == b'>' && self.tape.depth() > 0 {
            return Err(ProtocolError::NestedPush);
        }
        if self.tape.depth() >= self.limits.depth {
            return Err(ProtocolError::TooDeep { limit: self.limits.depth });
        }
        let children = if matches!(kind, b'%' | b'|') { length.saturating_mul(2) } else { length };
        // Attributes count themselves: nobody promised them, and empty ones could follow each other for ever.
        let promised = children.saturating_add(u64::from(kind == b'|')).saturating_add(u64::from(self.elements));
        match u32::try_from(promised) {
            Ok(promised) if promised <= self.limits.elements => self.elements = promised,
            _ => return Err(ProtocolError::TooManyElements { limit: self.limits.elements }),
        }
        self.advance(next)?;
        let children = children as u32;
        Ok(Step::Done(match kind {
            b'|' => self.tape.attributes(children),
            b'%' => self.tape.aggregate(Kind::Map, children),
            b'~' => self.tape.aggregate(Kind::Set, children),
            b'>' => self.tape.aggregate(Kind::Push, children),
            _ => self.tape.aggregate(Kind::Array, children),
        }))
    }

    fn line_value(&mut self, buffered: &[u8], kind: u8) -> Result<Step, ProtocolError> {
        let Some((line, next)) = self.line(buffered)? else { return Ok(Step::Wait) };
        let (start, end) = ((self.at + 1) as u32, (next - 2) as u32);
        let text = |kind| Some(Node { kind, a: start, b: end });
        let node = match kind {
            b'+' => text(Kind::Status),
            b'-' => text(Kind::Error),
            b':' => parse_int(line.strip_prefix(b"+").filter(|rest| rest.first() != Some(&b'-')).unwrap_or(line))
                .map(Node::int),
            b'#' => match line {
                b"t" => Some(Node { kind: Kind::Bool, a: 1, b: 0 }),
                b"f" => Some(Node { kind: Kind::Bool, a: 0, b: 0 }),
                _ => None,
            },
            b',' if is_double(line) => text(Kind::Double),
            b'(' if is_integer(line) => text(Kind::BigNumber),
            b'_' if line.is_empty() => Some(NIL),
            _ => None,
        };
        let node = node.ok_or_else(|| ProtocolError::bad_value(kind, line))?;
        self.advance(next)?;
        Ok(Step::Done(self.tape.scalar(node)))
    }

    /// The number after the type byte, `None` within for null, and where the next header or the body begins.
    #[inline]
    fn length(&mut self, buffered: &[u8], kind: u8) -> Result<Option<(Option<u64>, usize)>, ProtocolError> {
        let rest = buffered.get(self.at + 1..).unwrap_or_default();
        if let &[digit @ b'0'..=b'9', b'\r', b'\n', ..] = rest {
            return Ok(Some((Some(u64::from(digit - b'0')), self.at + 4)));
        }
        let mut n = 0;
        for (i, byte) in rest.iter().take(11).enumerate() {
            let digit = byte.wrapping_sub(b'0');
            if digit <= 9 {
                n = n * 10 + u64::from(digit);
            } else if i > 0 && rest.get(i..i + 2) == Some(b"\r\n") {
                return Ok(Some((Some(n), self.at + 1 + i + 2)));
            } else {
                break;
            }
        }
        self.rare_length(buffered, kind)
    }

    #[cold]
    fn rare_length(&mut self, buffered: &[u8], kind: u8) -> Result<Option<(Option<u64>, usize)>, ProtocolError> {
        let Some((line, next)) = self.line(buffered)? else { return Ok(None) };
        match line {
            b"-1" if matches!(kind, b'$' | b'*') => Ok(Some((None, next))),
            b"?" => Err(ProtocolError::Streamed { kind }),
            // More digits than any limit has: a number nevertheless, and refused as one.
            [b'0'..=b'9', ..] if line.iter().all(u8::is_ascii_digit) => {
                let n = line.iter().fold(0u64, |n, b| n.saturating_mul(10).saturating_add(u64::from(b - b'0')));
                Ok(Some((Some(n), next)))
            }
            _ => Err(ProtocolError::bad_length(kind, line)),
        }
    }

    /// What stands between the type byte and CRLF, and where the next header begins.
    fn line<'b>(&mut self, buffered: &'b [u8]) -> Result<Option<(&'b [u8], usize)>, ProtocolError> {
        let start = self.at + 1;
        let from = self.searched.max(start);
        let until = min(buffered.len(), start + ProtocolError::LINE + 1);
        let unseen = buffered.get(from..until).unwrap_or_default();
        let Some(end) = unseen.iter().position(|b| matches!(b, b'\r' | b'\n')).map(|i| from + i) else {
            self.searched = from + unseen.len();
            return if until > start + ProtocolError::LINE { Err(ProtocolError::LineTooLong) } else { Ok(None) };
        };
        self.searched = end;
        match buffered.get(end..).unwrap_or_default() {
            [b'\r', b'\n', ..] => Ok(buffered.get(start..end).map(|line| (line, end + 2))),
            [b'\r'] => Ok(None),
            _ => Err(ProtocolError::BareNewline),
        }
    }

    fn advance(&mut self, to: usize) -> Result<(), ProtocolError> {
        self.fits(to as u64)?;
        self.at = to;
        Ok(())
    }

    fn fits(&self, bytes: u64) -> Result<(), ProtocolError> {
        let limit = self.limits.bytes;
        if bytes > u64::from(limit) { Err(ProtocolError::TooLarge { bytes, limit }) } else { Ok(()) }
    }
}

/// A bulk of less than 1,000 bytes that is there as a whole, which most values are: where its body begins and ends.
#[inline]
fn plain_bulk(bytes: &[u8]) -> Option<(usize, usize)> {
    let digit = |b: u8| usize::from(b.wrapping_sub(b'0'));
    let (length, header) = match *bytes {
        [b'$', ones @ b'0'..=b'9', b'\r', b'\n', ..] => (digit(ones), 4),
        [b'$', tens @ b'0'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', ..] => (digit(tens) * 10 + digit(ones), 5),
        [b'$', h @ b'0'..=b'9', t @ b'0'..=b'9', o @ b'0'..=b'9', b'\r', b'\n', ..] => {
            (digit(h) * 100 + digit(t) * 10 + digit(o), 6)
        }
        _ => return None,
    };
    let end = header + length;
    (bytes.get(end..end + 2)? == b"\r\n").then_some((header, end))
}

const NIL: Node = Node { kind: Kind::Nil, a: 0, b: 0 };

/// Kept as text, since nothing here calculates with it: only what is plainly none is refused.
fn is_double(line: &[u8]) -> bool {
    let unsigned = line.strip_prefix(b"-").or_else(|| line.strip_prefix(b"+")).unwrap_or(line);
    match unsigned {
        b"inf" | b"nan" => true,
        [b'0'..=b'9' | b'.', ..] => {
            unsigned.iter().all(|b| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'))
                && unsigned.iter().any(u8::is_ascii_digit)
        }
        _ => false,
    }
}

fn is_integer(line: &[u8]) -> bool {
    let digits = line.strip_prefix(b"-").or_else(|| line.strip_prefix(b"+")).unwrap_or(line);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

impl core::fmt::Debug for Scan {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Scan").field("at", &self.at).field("depth", &self.tape.depth()).finish_non_exhaustive()
    }
}
