//! The entries of streams, out of whatever reply they came in: ranges into one buffer, ids as numbers.

use alloc::vec::Vec;
use bytes::Bytes;

use super::{Items, Kind, Node, StreamId, Tree, UnexpectedShape, View};

/// Entries in the order of the reply. They share one buffer, which lives until the last slice of it is dropped.
#[derive(Clone, Default)]
pub struct Entries {
    bytes: Bytes,
    streams: Vec<Range>,
    entries: Vec<Entry>,
    /// Names and values in turn.
    texts: Vec<Range>,
}

#[derive(Clone, Copy, Default)]
struct Range {
    start: u32,
    end: u32,
}

#[derive(Clone, Copy)]
struct Entry {
    id: StreamId,
    /// Where its names and values begin, and how many texts they are; [`Entry::DELETED`] if it has none any more.
    first: u32,
    texts: u32,
    stream: u32,
    deliveries: u32,
}

impl Entry {
    /// No count of texts can be odd.
    const DELETED: u32 = u32::MAX;

    fn texts(&self) -> core::ops::Range<usize> {
        let n = if self.texts == Self::DELETED { 0 } else { self.texts };
        self.first as usize..(self.first + n) as usize
    }
}

/// Methods that take an index panic when it is not below [`len`](Self::len) or [`streams`](Self::streams).
impl Entries {
    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many streams the reply named. A stream may have no entries.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// The key of a stream; empty where the reply does not name it.
    #[must_use]
    pub fn stream_key(&self, stream: usize) -> &[u8] {
        self.text(self.streams[stream])
    }

    /// The id of an entry.
    #[must_use]
    pub fn id(&self, entry: usize) -> StreamId {
        self.entries[entry].id
    }

    /// Which of the reply's streams an entry stands in.
    #[must_use]
    pub fn stream(&self, entry: usize) -> usize {
        self.entries[entry].stream as usize
    }

    /// How often it has been delivered, where the reply says so; 0 elsewhere.
    #[must_use]
    pub fn deliveries(&self, entry: usize) -> u32 {
        self.entries[entry].deliveries
    }

    /// Whether the server answered nil instead of fields: the entry is pending, its content is deleted.
    #[must_use]
    pub fn is_deleted(&self, entry: usize) -> bool {
        self.entries[entry].texts == Entry::DELETED
    }

    /// The bytes that its names and values take in the reply.
    #[must_use]
    pub fn size(&self, entry: usize) -> u32 {
        let texts = &self.texts[self.entries[entry].texts()];
        let ends = texts.first().zip(texts.last());
        ends.map_or(0, |(first, last)| last.end.saturating_sub(first.start))
    }

    /// Names and values of an entry, in order.
    #[must_use]
    pub fn fields(&self, entry: usize) -> Fields<'_> {
        Fields { of: self, texts: self.entries[entry].texts() }
    }

    /// The value of the first field of that name.
    #[must_use]
    pub fn field(&self, entry: usize, name: &[u8]) -> Option<&[u8]> {
        self.find(entry, name).map(|at| self.text(at))
    }

    /// The same as a slice that keeps the whole buffer alive.
    #[must_use]
    pub fn field_slice(&self, entry: usize, name: &[u8]) -> Option<Bytes> {
        self.find(entry, name).map(|at| self.slice(at))
    }

    /// The value of the `nth` field as a slice that keeps the whole buffer alive.
    #[must_use]
    pub fn value_slice(&self, entry: usize, nth: usize) -> Option<Bytes> {
        let texts = self.texts.get(self.entries[entry].texts())?;
        texts.get(nth.checked_mul(2)?.checked_add(1)?).map(|at| self.slice(*at))
    }

    /// One entry with a buffer of its own: what to keep when the others may go.
    #[must_use]
    pub fn single(&self, entry: usize) -> Self {
        let Entry { id, texts, stream, deliveries, .. } = self.entries[entry];
        let mut copy = Texts::default();
        let key = copy.take(self, self.streams[stream as usize]);
        let ranges = self.texts[self.entries[entry].texts()].iter().map(|at| copy.take(self, *at)).collect();
        let entry = Entry { id, first: 0, texts, stream: 0, deliveries };
        Self { bytes: copy.bytes.into(), streams: alloc::vec![key], entries: alloc::vec![entry], texts: ranges }
    }

    fn find(&self, entry: usize, name: &[u8]) -> Option<Range> {
        let texts = &self.texts[self.entries[entry].texts()];
        texts.chunks_exact(2).find(|pair| self.text(pair[0]) == name).map(|pair| pair[1])
    }

    fn text(&self, at: Range) -> &[u8] {
        &self.bytes[at.start as usize..at.end as usize]
    }

    fn slice(&self, at: Range) -> Bytes {
        self.bytes.slice(at.start as usize..at.end as usize)
    }
}

/// Texts on their way to another buffer, no larger than the one they come from.
#[derive(Default)]
struct Texts {
    bytes: Vec<u8>,
}

impl Texts {
    fn take(&mut self, from: &Entries, at: Range) -> Range {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(from.text(at));
        Range { start, end: self.bytes.len() as u32 }
    }
}

impl core::fmt::Debug for Entries {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries((0..self.len()).map(|i| (self.stream(i), self.id(i)))).finish()
    }
}

/// Names and values of one entry.
#[derive(Clone)]
pub struct Fields<'a> {
    of: &'a Entries,
    texts: core::ops::Range<usize>,
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = (self.texts.next()?, self.texts.next()?);
        Some((self.of.text(self.of.texts[name]), self.of.text(self.of.texts[value])))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.texts.len() / 2, Some(self.texts.len() / 2))
    }
}

impl ExactSizeIterator for Fields<'_> {}

/// Collects entries from the values of one reply, whatever stands around them.
#[derive(Default)]
pub struct EntriesBuilder<'a> {
    tree: Option<&'a Tree>,
    built: Entries,
}

impl<'a> EntriesBuilder<'a> {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A whole stream read: a map of keys to lists (RESP3), an array of `[key, list]` (RESP2), or nil.
    ///
    /// # Errors
    ///
    /// If it is something else.
    pub fn read(&mut self, reply: View<'a>) -> Result<(), UnexpectedShape> {
        const STREAMS: UnexpectedShape = UnexpectedShape { expected: "streams, each a key and a list of entries" };
        if reply.is_nil() {
            return Ok(());
        }
        if reply.kind() == Kind::Map {
            for (key, list) in reply.pairs().ok_or(STREAMS)? {
                self.stream(key)?;
                self.range(list)?;
            }
            return Ok(());
        }
        for stream in array(reply).ok_or(STREAMS)? {
            let [key, list] = exactly(stream).ok_or(STREAMS)?;
            self.stream(key)?;
            self.range(list)?;
        }
        Ok(())
    }

    /// The entries that follow stand in the stream of this key.
    ///
    /// # Errors
    ///
    /// If it is not a text.
    pub fn stream(&mut self, key: View<'a>) -> Result<(), UnexpectedShape> {
        const KEY: UnexpectedShape = UnexpectedShape { expected: "the key of a stream as bytes" };
        self.belongs(key)?;
        let key = key.nodes().first().and_then(|node| text(*node)).ok_or(KEY)?;
        self.built.streams.push(key);
        Ok(())
    }

    /// A list as `XRANGE` answers: `[[id, fields], …]`, where nil fields mean a deleted entry.
    ///
    /// # Errors
    ///
    /// If it is something else.
    pub fn range(&mut self, list: View<'a>) -> Result<(), UnexpectedShape> {
        const LIST: UnexpectedShape = UnexpectedShape { expected: "a list of entries, each an id and its fields" };
        self.belongs(list)?;
        self.reserve(list);
        for entry in array(list).ok_or(LIST)? {
            let [id, fields] = exactly(entry).ok_or(LIST)?;
            self.add(id, 0, fields)?;
        }
        Ok(())
    }

    /// A list as the claim script answers: `[[id, deliveries, fields], …]`.
    ///
    /// # Errors
    ///
    /// If it is something else.
    pub fn claimed(&mut self, list: View<'a>) -> Result<(), UnexpectedShape> {
        const LIST: UnexpectedShape =
            UnexpectedShape { expected: "claimed entries, each an id, a count and its fields" };
        self.belongs(list)?;
        self.reserve(list);
        for entry in array(list).ok_or(LIST)? {
            let [id, deliveries, fields] = exactly(entry).ok_or(LIST)?;
            let deliveries = deliveries.as_int().and_then(|n| u32::try_from(n).ok()).ok_or(LIST)?;
            self.add(id, deliveries, fields)?;
        }
        Ok(())
    }

    /// One entry. Nil fields mean that its content is deleted; `deliveries` 0 that nobody said how many there were.
    ///
    /// # Errors
    ///
    /// If the id is not one, or the fields are not texts in pairs, or they come from another reply than those before.
    pub fn entry(&mut self, id: View<'a>, deliveries: u32, fields: View<'a>) -> Result<(), UnexpectedShape> {
        self.belongs(id)?;
        self.belongs(fields)?;
        self.add(id, deliveries, fields)
    }

    /// One entry of a reply that is known already.
    fn add(&mut self, id: View<'a>, deliveries: u32, fields: View<'a>) -> Result<(), UnexpectedShape> {
        const ID: UnexpectedShape = UnexpectedShape { expected: "the id of an entry as two numbers and a dash" };
        const FIELDS: UnexpectedShape =
            UnexpectedShape { expected: "the fields of an entry, names and values in turn" };
        let id = id.as_bytes().and_then(StreamId::parse).ok_or(ID)?;
        let first = self.built.texts.len() as u32;
        let mut texts = Entry::DELETED;
        if !fields.is_nil() {
            for node in fields.flat_pairs().ok_or(FIELDS)? {
                self.built.texts.push(text(*node).ok_or(FIELDS)?);
            }
            texts = self.built.texts.len() as u32 - first;
        }
        if self.built.streams.is_empty() {
            self.built.streams.push(Range::default());
        }
        let stream = self.built.streams.len() as u32 - 1;
        self.built.entries.push(Entry { id, first, texts, stream, deliveries });
        Ok(())
    }

    /// The entries.
    #[must_use]
    pub fn finish(self) -> Entries {
        self.built
    }

    /// Ranges mean nothing in another reply's buffer.
    fn belongs(&mut self, view: View<'a>) -> Result<(), UnexpectedShape> {
        const TREE: UnexpectedShape = UnexpectedShape { expected: "entries, found a value without any" };
        let tree = view.tree().ok_or(TREE)?;
        match self.tree {
            Some(known) if known.same(tree) => Ok(()),
            Some(_) => Err(UnexpectedShape { expected: "values of one and the same reply" }),
            None => {
                self.tree = Some(tree);
                self.built.bytes = tree.bytes().clone();
                Ok(())
            }
        }
    }

    /// An entry is three nodes (itself, its id, its fields) and one for each text.
    fn reserve(&mut self, list: View<'a>) {
        let entries = array(list).map_or(0, |items| items.len());
        self.built.entries.reserve(entries);
        self.built.texts.reserve(list.nodes().len().saturating_sub(3 * entries));
    }
}

fn text(node: Node) -> Option<Range> {
    (node.kind.is_text() && node.kind != Kind::Error).then_some(Range { start: node.a, end: node.b })
}

fn array(view: View<'_>) -> Option<Items<'_>> {
    if view.kind() == Kind::Array { view.items() } else { None }
}

/// The children, if there are exactly that many.
fn exactly<const N: usize>(view: View<'_>) -> Option<[View<'_>; N]> {
    let mut items = array(view)?;
    if items.len() != N {
        return None;
    }
    let first = items.next()?;
    let mut all = [first; N];
    for (place, item) in all.iter_mut().skip(1).zip(items) {
        *place = item;
    }
    Some(all)
}
