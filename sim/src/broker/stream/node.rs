//! How real servers pack entries into nodes: up to 100 of them, or 4096 bytes.

use bytes::Bytes;
use flota_core::reply::StreamId;

use crate::broker::Profile;
use crate::broker::call::parse_int;

/// `stream-node-max-entries`.
const ENTRIES_MAX: u32 = 100;
/// `stream-node-max-bytes`.
const BYTES_MAX: usize = 4096;
/// Header and end of an empty pack.
const PACK: usize = 7;

/// A pack of entries.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// The id of the first entry there ever was in it; the others are stored as differences.
    pub(super) first: StreamId,
    /// The id of the last entry there ever was in it.
    pub(super) last: StreamId,
    /// Entries that are there.
    pub(super) live: u32,
    /// Entries that were removed one by one: they keep their room.
    dead: u32,
    /// What it takes on a real server.
    bytes: usize,
    /// The names of the first entry: an entry with the same names does not repeat them.
    names: Vec<Bytes>,
}

impl Node {
    /// A node without entries, for a first one of this id and these fields.
    pub(super) fn new(first: StreamId, fields: &[Bytes]) -> Self {
        let names: Vec<Bytes> = names(fields).cloned().collect();
        // The counts of entries and of removed ones, the number of names, the names, and a zero.
        let head = 3 * int_size(0) + int_size(names.len() as i64) + names.iter().map(text_size).sum::<usize>();
        Self { first, last: first, live: 0, dead: 0, bytes: PACK + head, names }
    }

    /// Whether an entry with these fields goes to another node. Before 7.0 a node was full only after it had grown too
    /// large; since then an entry that would make it too large is left out.
    pub(super) fn is_full_for(&self, fields: &[Bytes], profile: &Profile) -> bool {
        let more = if profile.at_least(7, 0) { fields.iter().map(Bytes::len).sum() } else { 0 };
        self.bytes + more >= BYTES_MAX || self.live + self.dead >= ENTRIES_MAX
    }

    /// Counts one more entry.
    pub(super) fn append(&mut self, id: StreamId, fields: &[Bytes]) {
        let pairs = fields.len() / 2;
        let same = pairs == self.names.len() && names(fields).eq(self.names.iter());
        let (body, elements) = if same {
            (fields.iter().skip(1).step_by(2).map(text_size).sum(), pairs + 3)
        } else {
            (int_size(pairs as i64) + fields.iter().map(text_size).sum::<usize>(), 2 * pairs + 4)
        };
        let difference = int_size(id.ms.wrapping_sub(self.first.ms).cast_signed())
            + int_size(id.seq.wrapping_sub(self.first.seq).cast_signed());
        self.bytes += int_size(0) + difference + body + int_size(elements as i64);
        self.last = id;
        self.live += 1;
    }

    /// Counts entries as removed.
    pub(super) fn bury(&mut self, entries: u32) {
        self.live = self.live.saturating_sub(entries);
        self.dead = self.dead.saturating_add(entries);
    }
}

fn names(fields: &[Bytes]) -> impl Iterator<Item = &Bytes> {
    fields.iter().step_by(2)
}

/// What a text takes in a pack: less if it is a number.
fn text_size(text: &Bytes) -> usize {
    if let Some(number) = parse_int(text) {
        return int_size(number);
    }
    let len = match text.len() {
        len @ 0..64 => 1 + len,
        len @ 64..4096 => 2 + len,
        len => 5 + len,
    };
    len + back_size(len)
}

/// What a number takes in a pack.
fn int_size(number: i64) -> usize {
    let len = match number {
        0..=127 => 1,
        -4096..=4095 => 2,
        -0x8000..=0x7fff => 3,
        -0x80_0000..=0x7f_ffff => 4,
        -0x8000_0000..=0x7fff_ffff => 5,
        _ => 9,
    };
    len + back_size(len)
}

/// What the length of an element takes behind it, so that it can be read backwards.
fn back_size(len: usize) -> usize {
    match len {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

/// How many nodes a radix tree of these ids has: `XINFO STREAM` tells. The ids are in order.
pub(super) fn tree_nodes(ids: impl Iterator<Item = StreamId>) -> u64 {
    let keys: Vec<u128> = ids.map(|id| u128::from(id.ms) << 64 | u128::from(id.seq)).collect();
    if keys.is_empty() { 1 } else { below(&keys, 0) }
}

/// Nodes for keys whose first `depth` bytes are the same.
fn below(keys: &[u128], depth: u32) -> u64 {
    let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return 0 };
    let shared = (first ^ last).leading_zeros() / 8;
    let chain = u64::from(shared > depth);
    if shared >= 16 {
        // One key is left: a chain of its remaining bytes, and a leaf.
        return chain + 1;
    }
    let byte = |key: &u128| (key >> (8 * (15 - shared))) & 0xff;
    let branches = keys.chunk_by(|a, b| byte(a) == byte(b));
    chain + 1 + branches.map(|keys| below(keys, shared + 1)).sum::<u64>()
}
