//! When two replies are the same: exactly, or but for what depends on the clock, on hashing or on the process.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use flota_core::script::Script;

use crate::wire::Wire;

/// How far apart two times may be that should be equal, in milliseconds. Times in sequences differ by far more.
const TOLERANCE_MS: i64 = 5_000;
/// How long what the generator puts into buckets has to wait, and its members of leases are kept, in milliseconds. No
/// count in a reply is as large.
const LEFT_MS: std::ops::RangeInclusive<i64> = 900_000..=10_000_000;
/// The parts of a tick's long form, and which of them is a time that passes.
const TICK: usize = 10;
const TIME_LEFT: usize = 7;
/// Ids from here on were generated from a clock. Explicit ones are small, or in the very far future.
const GENERATED_MS: std::ops::Range<u64> = 1_500_000_000_000..5_000_000_000_000;

/// What a reply is compared by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// As it is. Generated ids may differ as long as they do so in the same way everywhere.
    Exact,
    /// Elements in any order.
    Sorted,
    /// Pairs in any order.
    SortedPairs,
    /// Everything in any order, on every level.
    Unordered,
    /// A number of milliseconds or seconds that passes.
    Near,
    /// Exact but for idle times and times of delivery, wherever they stand.
    Times,
    /// Two numbers that are the time.
    Time,
    /// Lines `name:value`; what the model tells must be what the server tells, numbers of the process aside.
    Info,
    /// `CLIENT LIST` and `CLIENT INFO`: the fields that matter.
    Clients,
    /// `HELLO`: as pairs, but for the connection's number.
    Hello,
    /// A connection's number.
    Number,
    /// A lease's tick: what is left of a time may differ, and what the member has comes in any order.
    Tick,
    /// `EXEC`: each by its own.
    Each(Vec<Rule>),
}

impl Rule {
    /// The rule for a command, when it is not queued.
    pub(crate) fn of(args: &[Bytes]) -> Self {
        let upper = |at: usize| args.get(at).map(|arg| arg.to_ascii_uppercase()).unwrap_or_default();
        match (upper(0).as_slice(), upper(1).as_slice()) {
            (b"KEYS" | b"SMEMBERS", _) => Self::Sorted,
            (b"HGETALL", _) | (b"CONFIG", _) => Self::SortedPairs,
            (b"HVALS", _) => Self::Sorted,
            (b"SCAN", _) => Self::Unordered,
            (b"TTL" | b"PTTL", _) => Self::Near,
            (b"XPENDING" | b"XINFO", _) => Self::Times,
            (b"TIME", _) => Self::Time,
            (b"INFO", _) => Self::Info,
            (b"CLIENT", b"LIST" | b"INFO") => Self::Clients,
            (b"CLIENT", b"ID") => Self::Number,
            (b"HELLO", _) => Self::Hello,
            (b"EVAL" | b"EVALSHA", _) => {
                let text = args.get(1).cloned().unwrap_or_default();
                let unordered = [Script::Ensure, Script::Trim];
                let is = |script: &Script| text == script.text() || text == script.sha1();
                match () {
                    () if is(&Script::Tick) => Self::Tick,
                    () if unordered.iter().any(is) => Self::Unordered,
                    () => Self::Exact,
                }
            }
            _ => Self::Exact,
        }
    }

    /// Whether the two are the same by it.
    pub(crate) fn same(&self, real: &Wire, model: &Wire, known: &mut Known) -> bool {
        match self {
            Self::Exact => known.same(real, model, false),
            Self::Times => known.same(real, model, true),
            Self::Sorted => known.same(&sorted(real, 1), &sorted(model, 1), false),
            Self::SortedPairs => known.same(&sorted(real, 2), &sorted(model, 2), false),
            Self::Unordered => known.same(&deep_sorted(real), &deep_sorted(model), false),
            Self::Near => near(real, model),
            Self::Tick => match (real.items(), model.items()) {
                (Some(a @ [.., mine]), Some(b @ [.., theirs])) if a.len() == TICK && b.len() == TICK => {
                    let same =
                        |at: usize| at == TIME_LEFT && near_text(&a[at], &b[at]) || known.same(&a[at], &b[at], false);
                    (0..TICK - 1).all(same) && known.same(&sorted(mine, 2), &sorted(theirs, 2), false)
                }
                _ => known.same(real, model, false),
            },
            Self::Time => match (real.items(), model.items()) {
                (Some(real), Some(model)) => real.len() == 2 && model.len() == 2,
                _ => real == model,
            },
            Self::Info => lines_agree(real, model),
            Self::Clients => clients(real, known, true) == clients(model, known, false),
            Self::Hello => hello(real, known, true) == hello(model, known, false),
            Self::Number => match (real, model) {
                (Wire::Int(real), Wire::Int(model)) => known.numbers.get(real) == Some(model),
                _ => real == model,
            },
            Self::Each(rules) => match (real.items(), model.items()) {
                (Some(real), Some(model)) if real.len() == rules.len() && model.len() == rules.len() => {
                    rules.iter().zip(real.iter().zip(model)).all(|(rule, (real, model))| rule.same(real, model, known))
                }
                _ => real == model,
            },
        }
    }

    /// What is compared where that is little of the whole, for people to read.
    pub(crate) fn essence(&self, real: &Wire, model: &Wire, known: &Known) -> String {
        match self {
            Self::Clients => {
                format!("\n  that is, {:?}\n  and      {:?}", clients(real, known, true), clients(model, known, false))
            }
            _ => String::new(),
        }
    }
}

/// What is known to stand for the same on both sides.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Numbers of connections: the server's, and the model's.
    pub(crate) numbers: BTreeMap<i64, i64>,
    /// Generated ids in the order in which they were seen: the server's and the model's.
    pub(crate) seen: Vec<(String, String)>,
    real: BTreeSet<(u64, u64)>,
    model: BTreeSet<(u64, u64)>,
    pairs: BTreeSet<((u64, u64), (u64, u64))>,
}

impl Known {
    fn same(&mut self, real: &Wire, model: &Wire, times: bool) -> bool {
        match (real, model) {
            (Wire::Array(a), Wire::Array(b)) | (Wire::Set(a), Wire::Set(b)) | (Wire::Push(a), Wire::Push(b)) => {
                self.same_items(a, b, times)
            }
            (Wire::Map(a), Wire::Map(b)) => self.same_items(a, b, times),
            (Wire::Double(a), Wire::Double(b)) => a == b || same_stamps(a.as_bytes(), b.as_bytes()),
            (Wire::Bulk(a), Wire::Bulk(b)) | (Wire::Status(a), Wire::Status(b)) => self.same_bytes(a, b),
            // What a bucket says of its next due time.
            (Wire::Int(a), Wire::Int(b)) if LEFT_MS.contains(a) && LEFT_MS.contains(b) => near(real, model),
            _ => real == model,
        }
    }

    fn same_items(&mut self, real: &[Wire], model: &[Wire], times: bool) -> bool {
        real.len() == model.len()
            && (0..real.len()).all(|at| {
                times && is_time(real, at) && near(&real[at], &model[at]) || self.same(&real[at], &model[at], times)
            })
    }

    fn same_bytes(&mut self, real: &Bytes, model: &Bytes) -> bool {
        let (Some(a), Some(b)) = (generated(real), generated(model)) else {
            return real == model || same_stamps(real, model) || self.same_parts(real, model);
        };
        real.first() == model.first() && (self.pairs.contains(&(a, b)) || self.learn(a, b))
    }

    /// Texts with generated ids or times in them, as scripts make items and packed messages of.
    fn same_parts(&mut self, real: &[u8], model: &[u8]) -> bool {
        let (real, model) = (parts(real), parts(model));
        real.len() == model.len()
            && real.iter().zip(&model).all(|pair| match pair {
                (Part::Id(a), Part::Id(b)) => self.pairs.contains(&(*a, *b)) || self.learn(*a, *b),
                (Part::Time(a), Part::Time(b)) => a.abs_diff(*b) <= TOLERANCE_MS.unsigned_abs(),
                (a, b) => a == b,
            })
    }

    /// Two ids that have not been seen together: they may stand for the same if at least one is new. Two streams that
    /// got an entry in the same millisecond on one side need not have on the other, where a script or a transaction took
    /// long enough for the clock to move; such ids are not used in further commands.
    fn learn(&mut self, a: (u64, u64), b: (u64, u64)) -> bool {
        let text = |id: (u64, u64)| format!("{}-{}", id.0, id.1);
        let new = (self.real.insert(a), self.model.insert(b));
        self.pairs.insert((a, b));
        match new {
            (true, true) => self.seen.push((text(a), text(b))),
            _ => self.seen.retain(|(real, model)| *real != text(a) && *model != text(b)),
        }
        (new.0 || new.1) && a.0.abs_diff(b.0) < TOLERANCE_MS.unsigned_abs()
    }
}

/// The times in the ids of a reply that were generated within these milliseconds.
pub(crate) fn times_in(real: &Wire, now_ms: std::ops::RangeInclusive<u64>) -> BTreeSet<u64> {
    if let Some(items) = real.items() {
        return items.iter().flat_map(|item| times_in(item, now_ms.clone())).collect();
    }
    let id = real.bytes().and_then(|text| generated(text));
    id.map(|(ms, _)| ms).filter(|ms| now_ms.contains(ms)).into_iter().collect()
}

/// Words of which some are times: milliseconds, or the microseconds of a token. What follows them is the same.
fn same_stamps(real: &[u8], model: &[u8]) -> bool {
    let (Ok(real), Ok(model)) = (std::str::from_utf8(real), std::str::from_utf8(model)) else { return false };
    let near = |(a, b): (&str, &str)| {
        let (Ok(real), Ok(model)) = (a.parse::<u64>(), b.parse::<u64>()) else { return a == b };
        let apart = |unit: u64| {
            GENERATED_MS.contains(&(real / unit)) && real.abs_diff(model) / unit < TOLERANCE_MS.unsigned_abs()
        };
        a == b || apart(1) || apart(1_000)
    };
    real.split(' ').count() == model.split(' ').count() && real.split(' ').zip(model.split(' ')).all(near)
}

/// A part of a text.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Byte(u8),
    Id((u64, u64)),
    Time(u64),
}

fn parts(mut text: &[u8]) -> Vec<Part> {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok());
    let mut parts = Vec::new();
    while let Some(first) = text.first() {
        let length = digits(text);
        let ms = number(&text[..length]).filter(|ms| length == 13 && GENERATED_MS.contains(ms));
        let rest = &text[length..];
        let after = rest.strip_prefix(b"-").map_or(0, digits);
        let seq = rest.get(1..1 + after).and_then(number);
        let used = match (ms, seq) {
            (Some(ms), Some(seq)) if after > 0 => {
                parts.push(Part::Id((ms, seq)));
                length + 1 + after
            }
            (Some(ms), _) => {
                parts.push(Part::Time(ms));
                length
            }
            (None, _) if length > 1 => {
                parts.extend(text[..length].iter().map(|byte| Part::Byte(*byte)));
                length
            }
            (None, _) => {
                parts.push(Part::Byte(*first));
                1
            }
        };
        text = &text[used..];
    }
    parts
}

/// An id with a time of about now, perhaps with a bracket in front.
fn generated(text: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(text).ok()?;
    let (ms, seq) = text.strip_prefix('(').unwrap_or(text).split_once('-')?;
    let id = (ms.parse().ok()?, seq.parse().ok()?);
    GENERATED_MS.contains(&id.0).then_some(id)
}

/// Whether an element is an idle time or a time of delivery: by its name, or by its place in a pending entry.
fn is_time(items: &[Wire], at: usize) -> bool {
    let named = at.checked_sub(1).and_then(|before| items[before].bytes());
    if named.is_some_and(|name| matches!(name.as_ref(), b"idle" | b"inactive" | b"seen-time" | b"active-time")) {
        return true;
    }
    let numbers = items.iter().rev().take_while(|item| matches!(item, Wire::Int(_))).count();
    matches!(items.len(), 3 | 4) && numbers == 2 && at == items.len() - 2
}

/// A number of milliseconds, as text.
fn near_text(real: &Wire, model: &Wire) -> bool {
    let number = |wire: &Wire| std::str::from_utf8(wire.bytes()?).ok()?.parse().ok().map(Wire::Int);
    matches!((number(real), number(model)), (Some(real), Some(model)) if near(&real, &model))
}

fn near(real: &Wire, model: &Wire) -> bool {
    match (real, model) {
        (Wire::Int(real), Wire::Int(model)) if *real >= 0 && *model >= 0 => (real - model).abs() <= TOLERANCE_MS,
        _ => real == model,
    }
}

fn sorted(wire: &Wire, size: usize) -> Wire {
    let Some(items) = wire.items() else { return wire.clone() };
    let mut chunks: Vec<_> = items.chunks(size).map(<[Wire]>::to_vec).collect();
    chunks.sort();
    rebuilt(wire, chunks.concat())
}

fn deep_sorted(wire: &Wire) -> Wire {
    let Some(items) = wire.items() else { return wire.clone() };
    let mut items: Vec<_> = items.iter().map(deep_sorted).collect();
    items.sort();
    rebuilt(wire, items)
}

fn rebuilt(like: &Wire, items: Vec<Wire>) -> Wire {
    match like {
        Wire::Map(_) => Wire::Map(items),
        Wire::Set(_) => Wire::Set(items),
        Wire::Push(_) => Wire::Push(items),
        _ => Wire::Array(items),
    }
}

/// Names in `INFO` whose values the commands decide, or the set-up that both sides have in common.
const MATTERS: &[&str] = &[
    "redis_version",
    "redis_mode",
    "server_name",
    "valkey_version",
    "role",
    "connected_slaves",
    "blocked_clients",
    "loading",
    "async_loading",
    "maxmemory",
    "maxmemory_policy",
    "aof_enabled",
    "db0",
];

fn lines_agree(real: &Wire, model: &Wire) -> bool {
    let kind = |wire: &Wire| matches!(wire, Wire::Verbatim(_));
    let (Some(text), Some(told)) = (real.bytes(), model.bytes()) else { return real == model };
    let (text, told) = (String::from_utf8_lossy(text), String::from_utf8_lossy(told));
    let fields = |text: &str| -> BTreeMap<String, String> {
        text.lines().filter_map(|line| line.split_once(':')).map(|(name, value)| (name.into(), value.into())).collect()
    };
    let server = fields(&text);
    let expires = |value: &str| value.split(",avg_ttl").next().unwrap_or_default().to_string();
    kind(real) == kind(model)
        && fields(&told).iter().all(|(name, value)| match server.get(name) {
            Some(_) if !MATTERS.contains(&name.as_str()) => true,
            Some(real) if name == "db0" => expires(real) == expires(value),
            Some(real) => real == value,
            None => false,
        })
}

/// What matters of each line of `CLIENT LIST`, with the model's numbers. Their order is nothing to rely on: the server
/// turns the list round while it looks after connections.
fn clients(wire: &Wire, known: &Known, is_real: bool) -> Result<BTreeSet<BTreeSet<String>>, Wire> {
    let Some(text) = wire.bytes() else { return Err(wire.clone()) };
    let number = |text: &str| -> Option<i64> {
        let number = text.parse().ok()?;
        let is_known = known.numbers.values().any(|known| *known == number);
        if is_real { known.numbers.get(&number).copied() } else { is_known.then_some(number) }
    };
    let text = String::from_utf8_lossy(text).into_owned();
    let id =
        |line: &str| line.strip_prefix("txt:").unwrap_or(line).strip_prefix("id=")?.split(' ').next().and_then(number);
    // Whoever looks on from outside of the sequence is not compared.
    Ok(text
        .lines()
        .filter(|line| id(line).is_some())
        .map(|line| {
            let fields = line.split(' ').filter_map(|field| field.split_once('='));
            let fields = fields.filter_map(|(name, value)| match name {
                "id" | "txt:id" => Some(format!("id={:?}", number(value))),
                // The unix socket of the real one is a flag, too.
                "flags" => Some(format!(
                    "flags={}",
                    match value.replace('U', "").as_str() {
                        "" => "N",
                        flags => flags,
                    }
                )),
                // Valkey says 0 once there was a transaction, and -1 before.
                "multi" => Some(format!("multi={}", if value == "0" { "-1" } else { value })),
                "name" | "db" | "sub" | "psub" | "user" => Some(format!("{name}={value}")),
                _ => None,
            });
            fields.collect()
        })
        .collect())
}

fn hello(wire: &Wire, known: &Known, is_real: bool) -> Result<(bool, Vec<Wire>), Wire> {
    let Some(items) = wire.items() else { return Err(wire.clone()) };
    let mut items = items.to_vec();
    for at in 1..items.len() {
        if is_real
            && items[at - 1].bytes().is_some_and(|name| name == "id")
            && let Wire::Int(number) = items[at]
        {
            items[at] = Wire::Int(known.numbers.get(&number).copied().unwrap_or(-1));
        }
    }
    Ok((matches!(wire, Wire::Map(_)), items))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Wire {
        Wire::Bulk(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn generated_ids_correspond_and_others_are_equal() {
        let mut known = Known::default();
        let mut same = |a: &str, b: &str| Rule::Exact.same(&bulk(a), &bulk(b), &mut known);
        assert!(same("1700000000000-0", "1700000000001-0"));
        assert!(same("1700000000000-0", "1700000000001-0"));
        assert!(same("1700000000000-1", "1700000000001-1"));
        assert!(!same("1700000000000-0", "1700000000001-1"));
        assert!(!same("1700000000000-1", "1700000000001-0"));
        assert!(!same("(1700000000000-1", "1700000000001-1"));
        assert!(!same("1700000000000-2", "1800000000001-2"));
        assert!(same("1-1", "1-1"));
        assert!(!same("1-1", "1-2"));
        assert!(!same("1700000000000-5", "5-5"));
    }

    #[test]
    fn times_are_near_and_what_stands_beside_them_is_equal() {
        let mut known = Known::default();
        let mut same = |a: &str, b: &str| Rule::Exact.same(&bulk(a), &bulk(b), &mut known);
        assert!(same("1700000000000", "1700000000001"));
        assert!(same("1700000000000123 m1", "1700000000900000 m1"));
        assert!(!same("1700000000000123 m1", "1700000000900000 m2"));
        assert!(!same("1700000000000", "1700000100000"));
        assert!(!same("7", "8"));
    }

    #[test]
    fn idle_times_may_differ_and_counts_may_not() {
        let entry = |idle, count| {
            Wire::Array(vec![Wire::Array(vec![bulk("1-1"), bulk("c"), Wire::Int(idle), Wire::Int(count)])])
        };
        let same = |a: &Wire, b: &Wire| Rule::Times.same(a, b, &mut Known::default());
        assert!(same(&entry(1, 1), &entry(900, 1)));
        assert!(!same(&entry(1, 1), &entry(1, 2)));
        assert!(!same(&entry(1, 1), &entry(200_000, 1)));
        assert!(!Rule::Exact.same(&entry(1, 1), &entry(2, 1), &mut Known::default()));
    }

    #[test]
    fn what_is_sorted_still_counts() {
        let list = |items: &[&str]| Wire::Array(items.iter().map(|item| bulk(item)).collect());
        let same = |rule: Rule, a: &[&str], b: &[&str]| rule.same(&list(a), &list(b), &mut Known::default());
        assert!(same(Rule::Sorted, &["a", "b"], &["b", "a"]));
        assert!(!same(Rule::Sorted, &["a", "b"], &["b", "b"]));
        assert!(same(Rule::SortedPairs, &["a", "1", "b", "2"], &["b", "2", "a", "1"]));
        assert!(!same(Rule::SortedPairs, &["a", "1", "b", "2"], &["b", "1", "a", "2"]));
        assert!(!same(Rule::Exact, &["a", "b"], &["b", "a"]));
    }
}
