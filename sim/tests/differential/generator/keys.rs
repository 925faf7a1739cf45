//! Strings, and what goes for keys of every type.

use super::{Draft, Gen};

const STRINGS: &[&str] = &["a1", "a2"];
const SECONDS: &[&str] = &["100", "1000", "5000"];
const MILLISECONDS: &[&str] = &["100000", "1000000", "5000000"];

/// A command on strings.
pub(super) fn strings(g: &mut Gen, _: usize) -> Draft {
    match g.rng.weighted(&[(20, "GET"), (60, "SET"), (20, "INCR")]) {
        "GET" => Draft::new("GET").text(g.key_of(STRINGS)),
        "INCR" => Draft::new("INCR").text(g.key_of(STRINGS)),
        _ => set(g),
    }
}

fn set(g: &mut Gen) -> Draft {
    let mut draft = Draft::new("SET").text(g.key_of(STRINGS));
    draft = draft.text(g.value());
    if g.rng.chance(35) {
        draft = draft.option(g.rng.pick(&["NX", "XX"]));
    }
    if g.rng.chance(45) {
        draft = match g.rng.below(3) {
            // It has expired when the next command comes.
            0 if g.rng.chance(10) => return draft.option("PX").text("1").named("PX 1"),
            0 => draft.option("PX").text(g.ttl(MILLISECONDS)),
            1 => draft.option("EX").text(g.ttl(SECONDS)),
            _ => draft.option("KEEPTTL"),
        };
    }
    if g.rng.chance(30) {
        draft = draft.option("GET");
    }
    if g.rng.chance(2) {
        draft = draft.text(g.rng.pick(&["NX", "XX", "EX", "bogus", "KEEPTTL"]));
    }
    draft
}

/// A command on keys of any type.
pub(super) fn generic(g: &mut Gen, _: usize) -> Draft {
    let names = [
        (14, "DEL"),
        (6, "UNLINK"),
        (8, "EXISTS"),
        (8, "TYPE"),
        (10, "EXPIRE"),
        (10, "PEXPIRE"),
        (8, "TTL"),
        (8, "PTTL"),
        (8, "PERSIST"),
        (5, "DBSIZE"),
        (8, "SCAN"),
        (6, "KEYS"),
    ];
    let name = g.rng.weighted(&names);
    let draft = Draft::new(name);
    match name {
        "DBSIZE" => draft,
        "SCAN" => scan(g, draft),
        "KEYS" => draft.text(pattern(g)),
        "DEL" | "UNLINK" | "EXISTS" => (0..1 + g.rng.below(3)).fold(draft, |draft, _| draft.text(g.any_key())),
        "EXPIRE" => draft.text(g.any_key()).text(g.ttl(SECONDS)),
        "PEXPIRE" => {
            let (key, mut ttl) = (g.any_key(), g.ttl(MILLISECONDS));
            let gone = g.rng.chance(4);
            if gone {
                ttl = "1";
            }
            let draft = draft.text(key).text(ttl);
            if gone { draft.named("PEXPIRE 1") } else { draft }
        }
        _ => draft.text(g.any_key()),
    }
}

fn scan(g: &mut Gen, draft: Draft) -> Draft {
    // One page holds everything: the order of a scan over several is not modelled.
    let mut draft = draft.text(if g.rng.chance(3) { "abc" } else { "0" });
    draft = draft.option("COUNT").text(if g.rng.chance(3) { "0" } else { "1000" });
    if g.rng.chance(40) {
        draft = draft.option("MATCH").text(pattern(g));
    }
    if g.rng.chance(40) {
        draft = draft.option("TYPE").text(g.rng.pick(&["string", "list", "hash", "set", "zset", "stream", "bogus"]));
    }
    draft
}

fn pattern(g: &mut Gen) -> &'static str {
    g.rng.pick(&["*", "*", "s*", "?1", "[ls]*", "l[^1]", "a1", "nothing", "[a-l]?", "\\s1", "*1"])
}
