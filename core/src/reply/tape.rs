//! Writing the nodes of one reply, in order: who is whose child, and when the reply is whole.

use alloc::vec::Vec;
use bytes::Bytes;

use super::{ErrorReply, Kind, Node, Reply, Short, Tree};

/// Room kept from one reply to the next, in nodes. A rare giant gives its memory back.
const KEEP_NODES: usize = 1 << 14;

/// What became of the reply with the value just written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Value {
    /// More values are to come.
    More,
    /// That was the last one.
    Last,
}

#[derive(Default)]
pub(crate) struct Tape {
    nodes: Vec<Node>,
    open: Vec<Open>,
}

/// An aggregate that still waits for children.
struct Open {
    left: u32,
    /// Its node; for attributes, where their nodes begin.
    node: u32,
    attributes: bool,
}

impl Tape {
    #[cfg(feature = "std")]
    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }

    #[inline]
    pub(crate) fn scalar(&mut self, node: Node) -> Value {
        self.nodes.push(node);
        self.close()
    }

    #[inline]
    pub(crate) fn text(&mut self, kind: Kind, start: u32, end: u32) -> Value {
        self.scalar(Node { kind, a: start, b: end })
    }

    pub(crate) fn aggregate(&mut self, kind: Kind, children: u32) -> Value {
        let node = self.nodes.len() as u32;
        self.nodes.push(Node { kind, a: children, b: node + 1 });
        if children == 0 {
            return self.close();
        }
        self.open.push(Open { left: children, node, attributes: false });
        Value::More
    }

    /// What follows describes the value after it: it is walked and then forgotten.
    #[cfg(feature = "std")]
    pub(crate) fn attributes(&mut self, children: u32) -> Value {
        if children > 0 {
            self.open.push(Open { left: children, node: self.nodes.len() as u32, attributes: true });
        }
        Value::More
    }

    #[inline]
    fn close(&mut self) -> Value {
        match self.open.last_mut() {
            Some(parent) if parent.left > 1 => {
                parent.left -= 1;
                Value::More
            }
            _ => self.close_parents(),
        }
    }

    /// A value has ended, and with it every parent whose last child it was.
    fn close_parents(&mut self) -> Value {
        while let Some(parent) = self.open.last_mut() {
            parent.left -= 1;
            if parent.left > 0 {
                return Value::More;
            }
            let (node, attributes) = (parent.node as usize, parent.attributes);
            self.open.pop();
            if attributes {
                self.nodes.truncate(node);
                return Value::More;
            }
            self.nodes[node].b = self.nodes.len() as u32;
        }
        Value::Last
    }

    /// Takes the reply whose ranges point into `bytes`, and is empty again.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Reply {
        assert!(self.open.is_empty() && !self.nodes.is_empty(), "a reply is taken when its last value is there");
        let root = self.nodes[0];
        let reply = match root.kind {
            Kind::Nil => Reply::Nil,
            Kind::Int => Reply::Int(root.as_int()),
            Kind::Status => Reply::Status(Short::new(range(bytes, root))),
            Kind::Bulk => Reply::Bulk(Short::new(range(bytes, root))),
            Kind::Error => Reply::Error(ErrorReply::new(range(bytes, root))),
            _ => Reply::Tree(Tree::new(Bytes::copy_from_slice(bytes), self.nodes.as_slice().into())),
        };
        self.nodes.clear();
        if self.nodes.capacity() > KEEP_NODES {
            self.nodes.shrink_to(KEEP_NODES);
        }
        reply
    }
}

fn range(bytes: &[u8], node: Node) -> &[u8] {
    &bytes[node.a as usize..node.b as usize]
}

/// A decimal number with at most a minus in front, and nothing else.
pub(crate) fn parse_int(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    if digits.is_empty() {
        return None;
    }
    // Downwards, because there is one more negative number than positive ones.
    let below = digits.iter().try_fold(0i64, |n, b| {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 { None } else { n.checked_mul(10)?.checked_sub(i64::from(digit)) }
    })?;
    if negative { Some(below) } else { below.checked_neg() }
}
