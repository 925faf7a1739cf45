//! Hashes, sets and sorted sets.

use super::{Draft, Gen};

const HASHES: &[&str] = &["h1", "h2"];
const SETS: &[&str] = &["t1", "t2"];
const ZSETS: &[&str] = &["z1", "z1", "z2"];
const FIELDS: &[&str] = &["f1", "f2", "f3", "partitions"];
const MEMBERS: &[&str] = &["m1", "m2", "m3", "m4", "10", ""];
const SCORES: &[&str] = &[
    "0",
    "1",
    "1",
    "2",
    "3",
    "-1",
    "1.5",
    "2.25",
    "0.1",
    "1e3",
    "inf",
    "-inf",
    "3",
    "100",
    "1234567.5",
    "12345678901234567890",
];

/// A command on one of them.
pub(super) fn draft(g: &mut Gen, _: usize) -> Draft {
    match g.rng.below(100) {
        0..30 => hash(g),
        30..45 => set(g),
        _ => zset(g),
    }
}

fn hash(g: &mut Gen) -> Draft {
    let names = [
        (10, "HSET"),
        (5, "HGET"),
        (5, "HMGET"),
        (5, "HGETALL"),
        (5, "HDEL"),
        (5, "HINCRBY"),
        (3, "HLEN"),
        (3, "HVALS"),
    ];
    let name = g.rng.weighted(&names);
    // Values that are times have no order that could be compared, and `h1` may have some of two kinds.
    let key = if name == "HVALS" { "h2" } else { g.key_of(HASHES) };
    let draft = Draft::new(name).text(key);
    match name {
        "HGETALL" | "HLEN" | "HVALS" => draft,
        "HSET" => {
            let draft = (0..1 + g.rng.below(3)).fold(draft, |draft, _| draft.text(g.rng.pick(FIELDS)).text(g.value()));
            if g.rng.chance(3) { draft.text("odd") } else { draft }
        }
        "HGET" => draft.text(g.rng.pick(FIELDS)),
        "HINCRBY" => draft.text(g.rng.pick(FIELDS)).text(g.number()),
        _ => (0..1 + g.rng.below(3)).fold(draft, |draft, _| draft.text(g.rng.pick(FIELDS))),
    }
}

fn set(g: &mut Gen) -> Draft {
    let name = g.rng.pick(&["SADD", "SADD", "SREM", "SMEMBERS"]);
    let draft = Draft::new(name).text(g.key_of(SETS));
    if name == "SMEMBERS" {
        return draft;
    }
    (0..1 + g.rng.below(3)).fold(draft, |draft, _| draft.text(g.rng.pick(MEMBERS)))
}

fn zset(g: &mut Gen) -> Draft {
    let names = [
        (30, "ZADD"),
        (18, "ZRANGE"),
        (8, "ZRANGEBYSCORE"),
        (5, "ZREM"),
        (4, "ZREMRANGEBYSCORE"),
        (4, "ZCARD"),
        (5, "ZSCORE"),
        (5, "ZRANK"),
    ];
    let name = g.rng.weighted(&names);
    let draft = Draft::new(name).text(g.key_of(ZSETS));
    match name {
        "ZADD" => zadd(g, draft),
        "ZRANGE" => zrange(g, draft),
        "ZRANGEBYSCORE" => {
            let draft = draft.text(bound(g)).text(bound(g));
            let draft = if g.rng.chance(40) { draft.option("WITHSCORES") } else { draft };
            limit(g, draft)
        }
        "ZREM" => (0..1 + g.rng.below(2)).fold(draft, |draft, _| draft.text(g.rng.pick(MEMBERS))),
        "ZREMRANGEBYSCORE" => draft.text(bound(g)).text(bound(g)),
        "ZCARD" => draft,
        _ => draft.text(g.rng.pick(MEMBERS)),
    }
}

fn zadd(g: &mut Gen, mut draft: Draft) -> Draft {
    if g.rng.chance(40) {
        draft = draft.option(g.rng.pick(&["NX", "XX"]));
    }
    if g.rng.chance(40) {
        draft = draft.option(g.rng.pick(&["GT", "LT"]));
    }
    if g.rng.chance(25) {
        draft = draft.option("CH");
    }
    let pairs = if g.rng.chance(20) {
        draft = draft.option("INCR");
        if g.rng.chance(90) { 1 } else { 2 }
    } else {
        1 + g.rng.below(3)
    };
    (0..pairs).fold(draft, |draft, _| draft.text(score(g)).text(g.rng.pick(MEMBERS)))
}

fn score(g: &mut Gen) -> &'static str {
    if g.rng.chance(3) { g.rng.pick(&["abc", "nan", "", "1.5x"]) } else { g.rng.pick(SCORES) }
}

fn zrange(g: &mut Gen, draft: Draft) -> Draft {
    let mut draft = draft;
    if g.rng.chance(50) {
        draft = draft.text(bound(g)).text(bound(g)).option("BYSCORE");
        if g.rng.chance(35) {
            draft = draft.option("REV");
        }
        draft = limit(g, draft);
    } else {
        draft = draft.text(g.number()).text(g.number());
        if g.rng.chance(35) {
            draft = draft.option("REV");
        }
    }
    if g.rng.chance(40) { draft.option("WITHSCORES") } else { draft }
}

fn bound(g: &mut Gen) -> &'static str {
    if g.rng.chance(3) {
        return g.rng.pick(&["abc", "(", "(x"]);
    }
    g.rng.pick(&[
        "-inf", "-inf", "+inf", "inf", "+inf", "0", "1", "(1", "2", "(2", "3", "(3", "-1", "1.5", "(100", "1e3",
    ])
}

fn limit(g: &mut Gen, draft: Draft) -> Draft {
    if g.rng.chance(35) { draft.option("LIMIT").text(g.number()).text(g.number()) } else { draft }
}
