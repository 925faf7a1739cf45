//! The server's side of RESP: requests in, replies out.
//!
//! Limits and refusals are those of the servers, so that what a peer does wrong ends as it would there.

mod encode;
mod inline;

#[cfg(test)]
mod tests;

use std::fmt;

use bytes::{Bytes, BytesMut};

pub(crate) use encode::decimal_len;
pub use encode::{encode, encoded_len};

/// The most words of a command. Since 7.0 servers take more from who has logged in; nobody sends as many.
const WORDS_MAX: i64 = 1024 * 1024;

/// The most bytes of a word: `proto-max-bulk-len`.
const WORD_MAX: i64 = 512 * 1024 * 1024;

/// The most bytes of a line.
const LINE_MAX: usize = 64 * 1024;

/// Words for which room is made before they have arrived.
const WORDS_EXPECTED: usize = 64;

/// Reads commands from a connection, in whatever pieces their bytes arrive.
#[derive(Debug, Default)]
pub struct Requests {
    buffer: BytesMut,
    /// Up to here the buffer holds no end of a line.
    searched: usize,
    /// Words of the command under way that are still to come; zero between commands.
    missing: usize,
    /// The length of the word under way, once it is known.
    word: Option<usize>,
    words: Vec<Bytes>,
    failed: Option<ProtocolError>,
}

/// Why a connection is closed: its bytes are not a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolError(String);

impl ProtocolError {
    fn new(what: &str) -> Self {
        Self(format!("Protocol error: {what}"))
    }
}

/// What the server answers before it closes the connection.
impl From<ProtocolError> for String {
    fn from(error: ProtocolError) -> Self {
        format!("ERR {}", error.0)
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ProtocolError {}

impl Requests {
    /// For a new connection.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what has arrived.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole command, never empty; none until more has arrived.
    ///
    /// # Errors
    ///
    /// When the bytes are not a command. The connection is of no use after that: the error is the same for ever.
    #[expect(clippy::should_implement_trait, reason = "it is a stream that goes on after none")]
    pub fn next(&mut self) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let outcome = self.advance();
        if let Err(error) = &outcome {
            self.failed = Some(error.clone());
        }
        outcome
    }

    fn advance(&mut self) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        loop {
            if self.missing > 0 {
                if !self.words()? {
                    return Ok(None);
                }
                return Ok(Some(std::mem::take(&mut self.words)));
            }
            match self.buffer.first() {
                None => return Ok(None),
                Some(b'*') => {
                    if !self.count()? {
                        return Ok(None);
                    }
                }
                Some(_) => match self.inline()? {
                    None => return Ok(None),
                    // An empty line asks for nothing.
                    Some(words) if words.is_empty() => {}
                    Some(words) => return Ok(Some(words)),
                },
            }
        }
    }

    /// Reads the words that are missing; false while bytes are.
    fn words(&mut self) -> Result<bool, ProtocolError> {
        while self.missing > 0 {
            let length = match self.word {
                Some(length) => length,
                None => match self.word_length()? {
                    Some(length) => *self.word.insert(length),
                    None => return Ok(false),
                },
            };
            // What follows the word is taken for CRLF, as servers do.
            if self.buffer.len() < length + 2 {
                return Ok(false);
            }
            let mut word = self.buffer.split_to(length + 2).freeze();
            word.truncate(length);
            self.words.push(word);
            self.word = None;
            self.missing -= 1;
        }
        Ok(true)
    }

    fn word_length(&mut self) -> Result<Option<usize>, ProtocolError> {
        let Some(end) = self.header("too big bulk count string")? else { return Ok(None) };
        let line = self.buffer.get(..end).unwrap_or_default();
        let length = match line.split_first() {
            Some((b'$', digits)) => number(digits).filter(|n| (0..=WORD_MAX).contains(n)),
            Some((other, _)) => {
                let other = char::from(*other);
                return Err(ProtocolError::new(&format!("expected '$', got '{other}'")));
            }
            None => return Err(ProtocolError::new("expected '$', got '\r'")),
        };
        let length = length.and_then(|n| usize::try_from(n).ok());
        self.take_line(end);
        length.map(Some).ok_or_else(|| ProtocolError::new("invalid bulk length"))
    }

    /// Reads how many words a command has; false while bytes are missing. None or fewer is no command.
    fn count(&mut self) -> Result<bool, ProtocolError> {
        let Some(end) = self.header("too big mbulk count string")? else { return Ok(false) };
        let count = number(self.buffer.get(1..end).unwrap_or_default()).filter(|n| *n <= WORDS_MAX);
        self.take_line(end);
        let count = count.ok_or_else(|| ProtocolError::new("invalid multibulk length"))?;
        self.missing = usize::try_from(count).unwrap_or(0);
        self.words = Vec::with_capacity(self.missing.min(WORDS_EXPECTED));
        Ok(true)
    }

    /// Where the line at the front ends, once its CRLF is there.
    fn header(&mut self, too_big: &str) -> Result<Option<usize>, ProtocolError> {
        match self.find(b'\r') {
            Some(end) if end + 2 <= self.buffer.len() => Ok(Some(end)),
            None if self.buffer.len() > LINE_MAX => Err(ProtocolError::new(too_big)),
            _ => Ok(None),
        }
    }

    fn take_line(&mut self, end: usize) {
        let _ = self.buffer.split_to(end + 2);
        self.searched = 0;
    }

    /// A command as people type it: words and quotes on one line.
    fn inline(&mut self) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        let end = self.find(b'\n');
        // A zero byte hides the end of the line: servers look for it as in a C string.
        let visible = |end: &usize| !self.buffer.get(..*end).unwrap_or_default().contains(&0);
        let Some(end) = end.filter(visible) else {
            if self.buffer.len() > LINE_MAX {
                return Err(ProtocolError::new("too big inline request"));
            }
            return Ok(None);
        };
        let line = self.buffer.split_to(end + 1);
        self.searched = 0;
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        inline::split(line).map(Some).ok_or_else(|| ProtocolError::new("unbalanced quotes in request"))
    }

    /// The first such byte; each byte is looked at once.
    fn find(&mut self, byte: u8) -> Option<usize> {
        let rest = self.buffer.get(self.searched..).unwrap_or_default();
        match rest.iter().position(|b| *b == byte) {
            Some(at) => {
                self.searched += at;
                Some(self.searched)
            }
            None => {
                self.searched = self.buffer.len();
                None
            }
        }
    }
}

/// A whole number in the only form servers take: no plus, no zeros in front.
fn number(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'0'] if digits.len() == text.len() => Some(0),
        [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}
