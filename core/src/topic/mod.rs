//! Work queues on streams: names, messages, and the machines that send and consume them.

pub(crate) mod consumer;
// Not part of what this crate promises: public for the simulator, which tests the machine by itself.
#[doc(hidden)]
pub mod lease;
pub(crate) mod partitions;
pub(crate) mod producer;
mod registry;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use bytes::Bytes;

use crate::key::{self, Key};
use crate::time::Wall;

/// Whether a topic, group or service name is `[A-Za-z0-9._-]{1,100}`.
///
/// No `:`, because key names are joined with it, and no leading `@`, which is reserved for consumers that nobody is.
#[must_use]
pub fn is_name(name: &str) -> bool {
    (1..=100).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// A name that is not `[A-Za-z0-9._-]{1,100}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadName(pub String);

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a name: 1 to 100 of A-Z a-z 0-9 . _ -", self.0)
    }
}

impl core::error::Error for BadName {}

/// The most partitions a topic may have. A read names every partition of a broker in one command.
pub const MAX_PARTITIONS: u32 = 1_000;

/// A topic as an application names it: made once, shared by every operation on it.
#[derive(Debug)]
pub struct TopicSpec {
    name: Arc<str>,
    partitions: Vec<Key>,
    stated: bool,
}

impl TopicSpec {
    /// A topic with this many partitions on every broker; at least 1, at most [`MAX_PARTITIONS`] are used. Where brokers
    /// know another number, messages are refused with
    /// [`OpError::Partitions`](crate::op::OpError::Partitions), but for a topic that has grown meanwhile.
    ///
    /// # Errors
    ///
    /// When the name is not [a name](is_name).
    pub fn new(name: &str, partitions: u32) -> Result<Arc<Self>, BadName> {
        Self::make(name, partitions, true)
    }

    /// A topic with as many partitions as others have given it; one, if nobody has said anything.
    ///
    /// # Errors
    ///
    /// When the name is not [a name](is_name).
    pub fn following(name: &str) -> Result<Arc<Self>, BadName> {
        Self::make(name, 1, false)
    }

    fn make(name: &str, partitions: u32, stated: bool) -> Result<Arc<Self>, BadName> {
        if !is_name(name) {
            return Err(BadName(name.into()));
        }
        let partitions = (0..partitions.clamp(1, MAX_PARTITIONS)).map(|i| key::partition(name, i)).collect();
        Ok(Arc::new(Self { name: name.into(), partitions, stated }))
    }

    /// The topic's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of partitions it was made with; none if it follows others.
    #[must_use]
    pub fn stated(&self) -> Option<u32> {
        self.stated.then(|| u32::try_from(self.partitions.len()).unwrap_or(MAX_PARTITIONS))
    }

    /// Its partition streams, in order, as far as it says.
    #[must_use]
    pub fn partitions(&self) -> &[Key] {
        &self.partitions
    }
}

/// Identifies a message everywhere, on whichever broker it lies: a UUIDv7, so it holds the time it was made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub [u8; 16]);

impl MessageId {
    /// A new id from a wall clock and ten random bytes (RFC 9562 §5.7).
    #[must_use]
    pub fn new(wall: Wall, random: [u8; 10]) -> Self {
        let ms = u64::try_from(wall.0.max(0)).unwrap_or(0);
        Self(*uuid::Builder::from_unix_timestamp_millis(ms, &random).as_uuid().as_bytes())
    }

    /// Reads the 36-character form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() == 36 { uuid::Uuid::try_parse(text).ok().map(|id| Self(*id.as_bytes())) } else { None }
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        uuid::Uuid::from_bytes(self.0).as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What is sent: a body, and what goes with it.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// Any bytes.
    pub body: Bytes,
    /// Chosen by the sender, or made at the send.
    pub id: Option<MessageId>,
    /// Messages of one key go to one partition of one broker, in order while the fleet is steady.
    pub key: Option<Bytes>,
    /// Names and values, kept in order.
    pub headers: Vec<(String, Bytes)>,
    /// When it is delivered.
    pub when: When,
}

/// When a message is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// As soon as somebody takes it.
    #[default]
    Now,
    /// So long after it was sent, by the broker's clock.
    After(Duration),
    /// At this time of the broker's clock; at once if it is over.
    At(Wall),
}

impl Message {
    /// A message with this body.
    #[must_use]
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..Self::default() }
    }

    /// Sets the key.
    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Delivers it so long after it was sent. Until then it waits on its broker, and can be cancelled by its id. Sent
    /// twice with one id and one key, it waits once.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.when = When::After(delay);
        self
    }

    /// Delivers it at this time of its broker's clock.
    #[must_use]
    pub fn at(mut self, time: impl Into<Wall>) -> Self {
        self.when = When::At(time.into());
        self
    }

    /// Sets the id; sending the same id twice stores two messages that a consumer can recognise as one.
    #[must_use]
    pub fn id(mut self, id: MessageId) -> Self {
        self.id = Some(id);
        self
    }

    /// The bytes it occupies while it waits.
    #[must_use]
    pub fn len(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.body.len() + self.key.as_ref().map_or(0, Bytes::len) + headers
    }

    /// Whether body, key and headers are all empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A message with that body and nothing else.
impl<T: Into<Bytes>> From<T> for Message {
    fn from(body: T) -> Self {
        Self::new(body)
    }
}

/// FNV-1a, 64 bits: which partition a key belongs to, the same in every language.
#[must_use]
pub fn fnv1a(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn names_cannot_collide_in_key_names() {
        for good in ["orders", "a", "A.b_c-9", &"x".repeat(100)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "a:b", "@free", "a b", "größe", &"x".repeat(101), "a\n"] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn message_ids_hold_their_time_and_read_back() {
        let id = MessageId::new(Wall(0x0190_0000_0000), [0xff; 10]);
        let text = id.to_string();
        assert!(text.starts_with("01900000-0000-7fff-bfff"), "{text}");
        assert_eq!(MessageId::parse(&text), Some(id));
        assert_eq!(MessageId::parse("0190000000007fffbfffffffffffffff"), None);
    }

    #[test]
    fn fnv1a_matches_the_published_vectors() {
        // http://www.isthe.com/chongo/tech/comp/fnv/ : the 64-bit FNV-1a test vectors.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
