//! What a server answered: flat, in the order of the wire, read with shape-checked access.
//!
//! A reply is either a small scalar held in place or a [`Tree`]: one buffer and one list of [`Node`]s that point into
//! it. Nothing is allocated per element, and nothing is looked at before somebody asks.

mod build;
mod entries;
mod error;
mod id;
mod short;
mod tape;
mod view;

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::sync::Arc;
use bytes::Bytes;

pub use self::build::ReplyBuilder;
pub use self::entries::{Entries, EntriesBuilder, Fields};
pub use self::error::{ErrorClass, ErrorReply};
pub use self::id::StreamId;
pub use self::short::Short;
#[cfg(feature = "std")]
pub(crate) use self::tape::parse_int;
pub(crate) use self::tape::{Tape, Value};
pub use self::view::{Items, Pairs, UnexpectedShape, View};

/// One reply of a server, or one push.
#[derive(Clone)]
pub enum Reply {
    /// No value: RESP2 `$-1` and `*-1`, RESP3 `_`.
    Nil,
    /// A number.
    Int(i64),
    /// A short text of the server itself, as `OK`.
    Status(Short),
    /// A refusal.
    Error(ErrorReply),
    /// Bytes.
    Bulk(Short),
    /// Anything with children, and the scalars that are rare at the top: booleans, doubles, big numbers.
    Tree(Tree),
}

/// What a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// No value.
    Nil,
    /// A 64-bit number.
    Int,
    /// A short text of the server itself.
    Status,
    /// A refusal.
    Error,
    /// Bytes, also those of a verbatim string, without its format.
    Bulk,
    /// True or false.
    Bool,
    /// A double, kept as its text.
    Double,
    /// A number of any length, kept as its text.
    BigNumber,
    /// Values in order.
    Array,
    /// Values without an order.
    Set,
    /// Keys and values in turn.
    Map,
    /// A message outside of the order of replies.
    Push,
}

impl Kind {
    /// Whether it has children.
    #[must_use]
    pub fn is_aggregate(self) -> bool {
        matches!(self, Self::Array | Self::Set | Self::Map | Self::Push)
    }

    /// Whether its node is a range of bytes.
    fn is_text(self) -> bool {
        matches!(self, Self::Status | Self::Error | Self::Bulk | Self::Double | Self::BigNumber)
    }
}

/// One value of a [`Tree`], 12 bytes. Values stand in the order of the wire, parents before children.
///
/// | kind | `a` | `b` |
/// | --- | --- | --- |
/// | texts | start in the buffer | end in the buffer |
/// | `Int` | upper half | lower half |
/// | `Bool` | 1 or 0 | 0 |
/// | aggregates | number of children; a map has two per pair | index of the node after the last descendant |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    pub(crate) kind: Kind,
    pub(crate) a: u32,
    pub(crate) b: u32,
}

impl Node {
    pub(crate) fn int(n: i64) -> Self {
        let bits = n.cast_unsigned();
        Self { kind: Kind::Int, a: (bits >> 32) as u32, b: (bits & u64::from(u32::MAX)) as u32 }
    }

    pub(crate) fn as_int(self) -> i64 {
        (u64::from(self.a) << 32 | u64::from(self.b)).cast_signed()
    }
}

/// A reply with children: one buffer, one list of nodes. Cloning it counts a reference.
#[derive(Clone)]
pub struct Tree(Arc<Parts>);

struct Parts {
    bytes: Bytes,
    nodes: Box<[Node]>,
}

impl Tree {
    /// The caller answers for it that ranges lie within the bytes and that counts and nodes agree.
    pub(crate) fn new(bytes: Bytes, nodes: Box<[Node]>) -> Self {
        Self(Arc::new(Parts { bytes, nodes }))
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.0.bytes
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        &self.0.nodes
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A cursor on its root.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View::of_tree(self, 0)
    }
}

impl Reply {
    /// A cursor on the value, or on the root of the tree.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        match self {
            Self::Tree(tree) => tree.view(),
            flat => View::of_flat(flat),
        }
    }

    /// Whether it is a push, which answers no command.
    #[must_use]
    pub fn is_push(&self) -> bool {
        matches!(self, Self::Tree(_)) && self.view().kind() == Kind::Push
    }

    /// The refusal, if it is one.
    #[must_use]
    pub fn error(&self) -> Option<&ErrorReply> {
        match self {
            Self::Error(error) => Some(error),
            _ => None,
        }
    }

    /// The entries of a stream read (`XREAD`, `XREADGROUP`), from RESP2 and RESP3 alike. Nil is a read without entries.
    ///
    /// # Errors
    ///
    /// If the reply is not streams with lists of entries.
    pub fn entries(&self) -> Result<Entries, UnexpectedShape> {
        let mut builder = EntriesBuilder::new();
        builder.read(self.view())?;
        Ok(builder.finish())
    }

    /// A status, as `OK`.
    #[must_use]
    pub fn status(text: &str) -> Self {
        Self::Status(Short::new(text.as_bytes()))
    }

    /// Bytes.
    #[must_use]
    pub fn bulk(bytes: &[u8]) -> Self {
        Self::Bulk(Short::new(bytes))
    }
}

/// The same value: attributes, framing and the place in the buffer do not count.
impl PartialEq for Reply {
    fn eq(&self, other: &Self) -> bool {
        self.view() == other.view()
    }
}

impl Eq for Reply {}

impl core::fmt::Debug for Reply {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.view().fmt(f)
    }
}

impl core::fmt::Debug for Tree {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.view().fmt(f)
    }
}
