//! Building a reply by hand: for whoever plays the server without a wire between.

use alloc::vec::Vec;

use super::{Kind, Node, Reply, Tape, Value};

/// Builds one reply, values in order. An aggregate takes the next `n` values as its children.
///
/// ```
/// use flota_core::reply::ReplyBuilder;
///
/// let mut build = ReplyBuilder::new();
/// build.array(2).bulk(b"a").int(1);
/// assert_eq!(build.finish().view().items().map(Iterator::count), Some(2));
/// ```
///
/// # Panics
///
/// Its methods panic when a value follows the last one, [`finish`](Self::finish) when values are missing.
#[derive(Default)]
pub struct ReplyBuilder {
    bytes: Vec<u8>,
    tape: Tape,
    whole: bool,
}

impl ReplyBuilder {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// No value.
    pub fn nil(&mut self) -> &mut Self {
        self.put(|tape| tape.scalar(Node { kind: Kind::Nil, a: 0, b: 0 }))
    }

    /// A number.
    pub fn int(&mut self, n: i64) -> &mut Self {
        self.put(|tape| tape.scalar(Node::int(n)))
    }

    /// True or false.
    pub fn bool(&mut self, yes: bool) -> &mut Self {
        self.put(|tape| tape.scalar(Node { kind: Kind::Bool, a: yes.into(), b: 0 }))
    }

    /// A status, as `OK`.
    pub fn status(&mut self, text: &str) -> &mut Self {
        self.text(Kind::Status, text.as_bytes())
    }

    /// A refusal: the code, a space, the text.
    pub fn error(&mut self, text: &str) -> &mut Self {
        self.text(Kind::Error, text.as_bytes())
    }

    /// Bytes.
    pub fn bulk(&mut self, bytes: &[u8]) -> &mut Self {
        self.text(Kind::Bulk, bytes)
    }

    /// A double, as its text.
    pub fn double(&mut self, text: &str) -> &mut Self {
        self.text(Kind::Double, text.as_bytes())
    }

    /// An array of the next `n` values.
    pub fn array(&mut self, n: u32) -> &mut Self {
        self.put(|tape| tape.aggregate(Kind::Array, n))
    }

    /// A set of the next `n` values.
    pub fn set(&mut self, n: u32) -> &mut Self {
        self.put(|tape| tape.aggregate(Kind::Set, n))
    }

    /// A map of the next `pairs` keys and values, in turn.
    pub fn map(&mut self, pairs: u32) -> &mut Self {
        self.put(|tape| tape.aggregate(Kind::Map, pairs * 2))
    }

    /// A push of the next `n` values.
    pub fn push(&mut self, n: u32) -> &mut Self {
        self.put(|tape| tape.aggregate(Kind::Push, n))
    }

    /// The reply.
    #[must_use]
    pub fn finish(mut self) -> Reply {
        assert!(self.whole, "a reply is finished before its last value is there");
        self.tape.take(&self.bytes)
    }

    fn text(&mut self, kind: Kind, text: &[u8]) -> &mut Self {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(text);
        let end = self.bytes.len() as u32;
        self.put(|tape| tape.text(kind, start, end))
    }

    fn put(&mut self, write: impl FnOnce(&mut Tape) -> Value) -> &mut Self {
        assert!(!self.whole, "a value follows the last one of its reply");
        self.whole = write(&mut self.tape) == Value::Last;
        self
    }
}
