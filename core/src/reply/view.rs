//! Looking into a reply: every access names the shape it expects and answers `None` for another one.

use bytes::Bytes;
use core::fmt;

use super::tape::parse_int;
use super::{Kind, Node, Reply, Tree};

/// A cursor on one value of a reply. Copying it costs nothing; nothing here allocates.
#[derive(Clone, Copy)]
pub struct View<'a>(At<'a>);

#[derive(Clone, Copy)]
enum At<'a> {
    /// A scalar at the top.
    Flat(&'a Reply),
    /// A node of a tree.
    Node { tree: &'a Tree, index: u32, node: Node },
}

/// A reply was not built the way the command's answer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnexpectedShape {
    /// What was looked for.
    pub expected: &'static str,
}

impl<'a> View<'a> {
    pub(super) fn of_flat(reply: &'a Reply) -> Self {
        Self(At::Flat(reply))
    }

    pub(super) fn of_tree(tree: &'a Tree, index: u32) -> Self {
        // A tree has at least a root, and indexes come from its own nodes.
        Self(At::Node { tree, index, node: tree.nodes()[index as usize] })
    }

    /// What the value is.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self.0 {
            At::Node { node, .. } => node.kind,
            At::Flat(Reply::Int(_)) => Kind::Int,
            At::Flat(Reply::Status(_)) => Kind::Status,
            At::Flat(Reply::Error(_)) => Kind::Error,
            At::Flat(Reply::Bulk(_)) => Kind::Bulk,
            At::Flat(_) => Kind::Nil,
        }
    }

    /// Whether there is no value.
    #[must_use]
    pub fn is_nil(self) -> bool {
        self.kind() == Kind::Nil
    }

    /// A number: one by type, or a text that is exactly a decimal number of 64 bits.
    #[must_use]
    pub fn as_int(self) -> Option<i64> {
        match (self.kind(), self.0) {
            (Kind::Int, At::Node { node, .. }) => Some(node.as_int()),
            (Kind::Int, At::Flat(&Reply::Int(n))) => Some(n),
            (Kind::Bulk | Kind::Status, _) => parse_int(self.text()?),
            _ => None,
        }
    }

    /// True or false.
    #[must_use]
    pub fn as_bool(self) -> Option<bool> {
        match self.0 {
            At::Node { node, .. } if node.kind == Kind::Bool => Some(node.a == 1),
            _ => None,
        }
    }

    /// The bytes of a bulk or status, or the digits of a double or big number. Never those of a refusal.
    #[must_use]
    pub fn as_bytes(self) -> Option<&'a [u8]> {
        if self.kind() == Kind::Error { None } else { self.text() }
    }

    /// The same as text, if it is UTF-8.
    #[must_use]
    pub fn as_str(self) -> Option<&'a str> {
        core::str::from_utf8(self.as_bytes()?).ok()
    }

    /// The same as a buffer that can be kept: inside a tree a reference to the whole reply, at the top usually a copy.
    #[must_use]
    pub fn slice(self) -> Option<Bytes> {
        match self.0 {
            At::Flat(Reply::Status(text) | Reply::Bulk(text)) => Some(text.to_bytes()),
            At::Flat(_) => None,
            At::Node { tree, .. } => self.as_bytes().map(|bytes| tree.bytes().slice_ref(bytes)),
        }
    }

    /// The text of a refusal, as far as it is UTF-8.
    #[must_use]
    pub fn error(self) -> Option<&'a str> {
        match self.0 {
            At::Flat(Reply::Error(error)) => Some(error.text()),
            At::Node { node, .. } if node.kind == Kind::Error => {
                Some(self.text()?.utf8_chunks().next().map_or("", |chunk| chunk.valid()))
            }
            _ => None,
        }
    }

    /// The children of an array, set or push; keys and values of a map in turn.
    #[must_use]
    pub fn items(self) -> Option<Items<'a>> {
        match self.0 {
            At::Node { tree, index, node } if node.kind.is_aggregate() => {
                Some(Items { tree, next: index + 1, left: node.a })
            }
            _ => None,
        }
    }

    /// The pairs of a map, or of what RESP2 sends for one: an array of even length, keys and values in turn.
    #[must_use]
    pub fn pairs(self) -> Option<Pairs<'a>> {
        let items = self.items()?;
        let paired = matches!(self.kind(), Kind::Map | Kind::Array) && items.left.is_multiple_of(2);
        paired.then_some(Pairs(items))
    }

    /// The value that stands under a key in a map, or in what RESP2 sends for one. The first, if there are several.
    #[must_use]
    pub fn value_of(self, key: &[u8]) -> Option<Self> {
        self.pairs()?.find(|(is, _)| is.as_bytes() == Some(key)).map(|(_, value)| value)
    }

    /// The bytes of any kind that has text, refusals included.
    fn text(self) -> Option<&'a [u8]> {
        match self.0 {
            At::Flat(Reply::Status(text) | Reply::Bulk(text)) => Some(text.as_bytes()),
            At::Flat(Reply::Error(error)) => Some(error.text().as_bytes()),
            At::Flat(_) => None,
            At::Node { tree, .. } => self.range().and_then(|(a, b)| tree.bytes().get(a as usize..b as usize)),
        }
    }

    /// The tree it belongs to.
    pub(super) fn tree(self) -> Option<&'a Tree> {
        match self.0 {
            At::Node { tree, .. } => Some(tree),
            At::Flat(_) => None,
        }
    }

    /// Where its text lies within the tree's bytes.
    pub(super) fn range(self) -> Option<(u32, u32)> {
        match self.0 {
            At::Node { node: Node { kind, a, b }, .. } => {
                matches!(kind, Kind::Bulk | Kind::Status | Kind::Error | Kind::Double | Kind::BigNumber)
                    .then_some((a, b))
            }
            At::Flat(_) => None,
        }
    }

    /// The values of a map or of an array of even length, if none of them has children itself.
    pub(super) fn flat_pairs(self) -> Option<&'a [Node]> {
        let count = self.pairs()?.0.left as usize;
        let below = self.nodes().get(1..)?;
        (below.len() == count).then_some(below)
    }

    /// It and all that is below it, parents first.
    pub(super) fn nodes(self) -> &'a [Node] {
        match self.0 {
            At::Node { tree, index, node } => {
                let end = if node.kind.is_aggregate() { node.b } else { index + 1 };
                &tree.nodes()[index as usize..end as usize]
            }
            At::Flat(_) => &[],
        }
    }
}

/// The children of a value.
#[derive(Clone)]
pub struct Items<'a> {
    tree: &'a Tree,
    next: u32,
    left: u32,
}

impl<'a> Iterator for Items<'a> {
    type Item = View<'a>;

    fn next(&mut self) -> Option<View<'a>> {
        self.left = self.left.checked_sub(1)?;
        let index = self.next;
        let node = self.tree.nodes()[index as usize];
        self.next = if node.kind.is_aggregate() { node.b } else { index + 1 };
        Some(View(At::Node { tree: self.tree, index, node }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Items<'_> {}

/// Keys and values.
#[derive(Clone)]
pub struct Pairs<'a>(Items<'a>);

impl<'a> Iterator for Pairs<'a> {
    type Item = (View<'a>, View<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.next()?, self.0.next()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.0.left as usize / 2;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Pairs<'_> {}

impl PartialEq for View<'_> {
    fn eq(&self, other: &Self) -> bool {
        let (mine, theirs) = (self.nodes(), other.nodes());
        if mine.len() <= 1 && theirs.len() <= 1 {
            return same_value(*self, *other);
        }
        // Kinds and counts in the order of the wire decide the whole structure.
        let (Some(a), Some(b)) = (self.tree(), other.tree()) else { return false };
        let at = |tree, node: &Node, index| View(At::Node { tree, index, node: *node });
        mine.len() == theirs.len() && mine.iter().zip(theirs).all(|(m, t)| same_value(at(a, m, 0), at(b, t, 0)))
    }
}

/// Equal by themselves, children aside.
fn same_value(a: View<'_>, b: View<'_>) -> bool {
    let count = |v: View<'_>| v.items().map(|items| items.left);
    a.kind() == b.kind() && a.as_bool() == b.as_bool() && count(a) == count(b) && a.text() == b.text() && {
        a.kind() != Kind::Int || a.as_int() == b.as_int()
    }
}

impl Eq for View<'_> {}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            Kind::Nil => f.write_str("nil"),
            Kind::Int => write!(f, "{}", self.as_int().unwrap_or_default()),
            Kind::Bool => write!(f, "{}", self.as_bool().unwrap_or_default()),
            Kind::Bulk => write!(f, "\"{}\"", self.text().unwrap_or_default().escape_ascii()),
            Kind::Error => write!(f, "!{}", self.text().unwrap_or_default().escape_ascii()),
            Kind::Status | Kind::Double | Kind::BigNumber => {
                write!(f, "{}", self.text().unwrap_or_default().escape_ascii())
            }
            Kind::Map => f.debug_map().entries(self.pairs().into_iter().flatten()).finish(),
            Kind::Set => f.debug_set().entries(self.items().into_iter().flatten()).finish(),
            Kind::Array => f.debug_list().entries(self.items().into_iter().flatten()).finish(),
            Kind::Push => {
                f.write_str(">")?;
                f.debug_list().entries(self.items().into_iter().flatten()).finish()
            }
        }
    }
}

impl fmt::Display for UnexpectedShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the reply has another shape than the command's: expected {}", self.expected)
    }
}

impl core::error::Error for UnexpectedShape {}
