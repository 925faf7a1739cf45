//! Commands as RESP: arrays of bulk strings, appended to a buffer that is reused.

use alloc::vec::Vec;

use crate::command::ArgSink;
use crate::reply::StreamId;

/// Appends commands to a buffer.
///
/// # Panics
///
/// If a command has not as many arguments as it announced: what followed would be read as something else.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// Arguments announced and not yet written.
    left: usize,
}

impl<'a> Writer<'a> {
    /// Appends to `out`.
    #[must_use]
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, left: 0 }
    }

    /// The command is written.
    pub fn finish(self) {
        assert!(self.left == 0, "a command ends {} arguments early", self.left);
    }

    fn argument(&mut self, bytes: &[u8]) {
        assert!(self.left > 0, "a command has more arguments than it announced");
        self.left -= 1;
        // One growth instead of up to three.
        self.out.reserve(bytes.len() + HEADER_ROOM);
        self.header(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    fn header(&mut self, kind: u8, n: usize) {
        match n {
            0..10 => self.out.extend_from_slice(&[kind, b'0' + n as u8, b'\r', b'\n']),
            10..100 => {
                let [tens, ones] = PAIRS[n];
                self.out.extend_from_slice(&[kind, tens, ones, b'\r', b'\n']);
            }
            _ => {
                let mut room = Digits::default();
                self.out.push(kind);
                self.out.extend_from_slice(room.decimal(n as u64));
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }
}

/// A type byte, twenty digits, twice CRLF.
const HEADER_ROOM: usize = 25;

impl ArgSink for Writer<'_> {
    fn count(&mut self, n: usize) {
        assert!(self.left == 0, "a command ends {} arguments early", self.left);
        self.left = n;
        self.header(b'*', n);
    }

    fn word(&mut self, word: &'static str) {
        self.argument(word.as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.argument(bytes);
    }

    fn int(&mut self, n: i64) {
        let mut room = Digits::default();
        room.push_decimal(n.unsigned_abs());
        if n < 0 {
            room.push(b'-');
        }
        self.argument(room.text());
    }

    fn id(&mut self, id: StreamId) {
        let mut room = Digits::default();
        room.push_decimal(id.seq);
        room.push(b'-');
        room.push_decimal(id.ms);
        self.argument(room.text());
    }

    fn uuid(&mut self, uuid: &[u8; 16]) {
        let mut text = uuid::Uuid::encode_buffer();
        let text = uuid::Uuid::from_bytes(*uuid).hyphenated().encode_lower(&mut text);
        self.argument(text.as_bytes());
    }
}

/// Decimal text, written from its end. Room for two numbers of 64 bits and a dash.
struct Digits {
    text: [u8; 41],
    start: usize,
}

impl Default for Digits {
    fn default() -> Self {
        Self { text: [0; 41], start: 41 }
    }
}

impl Digits {
    fn text(&self) -> &[u8] {
        &self.text[self.start..]
    }

    fn decimal(&mut self, n: u64) -> &[u8] {
        self.push_decimal(n);
        self.text()
    }

    fn push(&mut self, byte: u8) {
        self.start -= 1;
        self.text[self.start] = byte;
    }

    /// Two digits per division: one by one, the digits of a timestamp were a third of the whole command.
    fn push_decimal(&mut self, mut n: u64) {
        while n >= 100 {
            let [tens, ones] = PAIRS[(n % 100) as usize];
            n /= 100;
            self.push(ones);
            self.push(tens);
        }
        let [tens, ones] = PAIRS[n as usize];
        self.push(ones);
        if n >= 10 {
            self.push(tens);
        }
    }
}

/// 00 to 99.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut n = 0;
    while n < 100 {
        pairs[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    pairs
};
