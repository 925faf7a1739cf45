//! Streams and consumer groups.

use bytes::Bytes;

use super::{Draft, Gen, Word};

pub(super) const STREAMS: &[&str] = &["s1", "s1", "s1", "s2", "s2", "s3"];
pub(super) const GROUPS: &[&str] = &["g1", "g1", "g1", "g2"];
pub(super) const CONSUMERS: &[&str] = &["c1", "c1", "c2", "c2", "c3", "@free"];

/// A command on streams.
pub(super) fn draft(g: &mut Gen, _: usize) -> Draft {
    let names = [
        (26, "XADD"),
        (3, "XLEN"),
        (5, "XRANGE"),
        (4, "XREVRANGE"),
        (9, "XREAD"),
        (20, "XREADGROUP"),
        (7, "XACK"),
        (9, "XPENDING"),
        (9, "XCLAIM"),
        (6, "XAUTOCLAIM"),
        (5, "XDEL"),
        (5, "XTRIM"),
        (14, "XGROUP"),
        (7, "XINFO"),
        (1, "DEL"),
    ];
    let name = g.rng.weighted(&names);
    let draft = Draft::new(name);
    match name {
        "XADD" => xadd(g, draft),
        "XLEN" => draft.text(stream(g)),
        "XRANGE" | "XREVRANGE" => {
            let draft = draft.text(stream(g)).word(bound(g)).word(bound(g));
            if g.rng.chance(35) { draft.option("COUNT").text(g.count()) } else { draft }
        }
        "XREAD" => xread(g, draft),
        "XREADGROUP" => xreadgroup(g, draft),
        "XACK" => {
            let draft = draft.text(stream(g)).text(g.rng.pick(GROUPS));
            some_ids(g, draft)
        }
        "XPENDING" => xpending(g, draft),
        "XCLAIM" => xclaim(g, draft),
        "XAUTOCLAIM" => xautoclaim(g, draft),
        "XDEL" => {
            let draft = draft.text(stream(g));
            some_ids(g, draft)
        }
        "XTRIM" => {
            let draft = draft.text(stream(g));
            limit(g, draft)
        }
        "XGROUP" => xgroup(g),
        "XINFO" => xinfo(g),
        _ => draft.text(g.rng.pick(STREAMS)),
    }
}

fn stream(g: &mut Gen) -> &'static str {
    g.key_of(STREAMS)
}

fn text(text: &'static str) -> Word {
    Word::Text(Bytes::from_static(text.as_bytes()))
}

fn generated(g: &mut Gen, before: &'static str) -> Word {
    Word::Id { nth: g.rng.below(64), before, otherwise: "1-1" }
}

const IDS: &[&str] = &["1-1", "1-2", "1-3", "2-1", "2-2", "3-0", "3-1", "4-1", "5-5", "7-1"];

/// A complete id, for what takes no other.
pub(super) fn whole_id(g: &mut Gen) -> Word {
    match g.rng.below(100) {
        0..55 => text(g.rng.pick(IDS)),
        55..98 => generated(g, ""),
        _ => text("0-0"),
    }
}

/// A complete id or, rarely, a partial or a wrong one.
fn id(g: &mut Gen) -> Word {
    match g.rng.below(100) {
        0..92 => whole_id(g),
        92..97 => text(g.rng.pick(&["1", "3", "0", "9"])),
        _ => text(g.rng.pick(&["abc", "1-", "-", "+", "$", "", "-1", "1-x", "18446744073709551616"])),
    }
}

/// An end of a range.
fn bound(g: &mut Gen) -> Word {
    match g.rng.below(100) {
        0..40 => text("-"),
        40..75 => text("+"),
        75..82 => text(g.rng.pick(IDS)),
        82..86 => text(g.rng.pick(&["1", "2", "3", "(1", "(3"])),
        86..90 => text(g.rng.pick(&["(1-1", "(2-1", "(3-0", "(0-0", "(18446744073709551615-18446744073709551615"])),
        90..94 => generated(g, ""),
        94..98 => generated(g, "("),
        _ => text(g.rng.pick(&["abc", "(", "(-", "(+", "$", "1-1-1"])),
    }
}

fn some_ids(g: &mut Gen, draft: Draft) -> Draft {
    (0..1 + g.rng.below(4)).fold(draft, |draft, _| draft.word(id(g)))
}

fn xadd(g: &mut Gen, draft: Draft) -> Draft {
    let mut draft = draft.text(stream(g));
    if g.rng.chance(15) {
        draft = draft.option("NOMKSTREAM");
    }
    if g.rng.chance(25) {
        draft = limit(g, draft);
    }
    draft = match g.rng.below(100) {
        0..40 => draft.named("*").text("*"),
        40..85 => draft.named("explicit").text(g.rng.pick(IDS)),
        85..90 => draft.named("partial").text(g.rng.pick(&["1", "3", "5", "8"])),
        90..95 => draft.named("ms-*").text(g.rng.pick(&["1-*", "2-*", "3-*", "7-*"])),
        95..97 => draft.word(generated(g, "")),
        _ => {
            draft.text(g.rng.pick(&["0-0", "abc", "-", "+", "1-", "*-1", "99999999999999-1", "9-18446744073709551615"]))
        }
    };
    let pairs = 1 + g.rng.below(2);
    draft = (0..pairs).fold(draft, |draft, _| {
        let name = g.rng.pick(&["f", "g", "origin", "dead-group", "dead-partition", "attempt"]);
        draft.text(name).text(g.rng.pick(&["x", "y", "1", "0", "g1", ""]))
    });
    if g.rng.chance(2) { draft.text("odd") } else { draft }
}

/// A limit to trim to, as `XADD` and `XTRIM` take it.
fn limit(g: &mut Gen, draft: Draft) -> Draft {
    let by_length = g.rng.chance(50);
    let mut draft = draft.option(if by_length { "MAXLEN" } else { "MINID" });
    let sign = g.rng.pick(&["", "=", "~"]);
    if !sign.is_empty() {
        draft = draft.option(sign);
    }
    draft = match by_length {
        true => draft.text(if g.rng.chance(4) { g.number() } else { g.rng.pick(&["0", "1", "2", "3", "5", "100"]) }),
        false => draft.word(id(g)),
    };
    // Only a limit that is approximate may say how much work it is.
    if g.rng.chance(if sign == "~" { 40 } else { 2 }) {
        draft = draft.option("LIMIT").text(g.rng.pick(&["0", "1", "10", "1000", "-1"]));
    }
    draft
}

fn xread(g: &mut Gen, draft: Draft) -> Draft {
    let mut draft = draft;
    let blocks = g.rng.chance(45);
    if g.rng.chance(30) {
        draft = draft.option("COUNT").text(g.count());
    }
    if blocks {
        draft = block(g, draft);
    }
    draft = draft.text("STREAMS");
    let streams = 1 + g.rng.below(2);
    draft = (0..streams).fold(draft, |draft, _| draft.text(stream(g)));
    (0..streams).fold(draft, |draft, _| match g.rng.below(100) {
        0..40 if blocks => draft.option("$"),
        0..15 => draft.option("$"),
        15..60 => draft.text(g.rng.pick(&["0", "0-0", "1-1", "2"])),
        60..65 => draft.text(g.rng.pick(&[">", "abc", "+x", "-"])),
        _ => draft.word(whole_id(g)),
    })
}

fn block(g: &mut Gen, draft: Draft) -> Draft {
    let draft = draft.option("BLOCK");
    match g.rng.below(100) {
        0 | 1 => draft.text("10").ends_soon(),
        2 | 3 => draft.text(g.rng.pick(&["-1", "abc", "1.5"])),
        4 | 5 => draft.text("1000000"),
        _ => draft.text("0"),
    }
}

fn xreadgroup(g: &mut Gen, draft: Draft) -> Draft {
    let mut draft = draft.text("GROUP").text(g.rng.pick(GROUPS)).text(g.rng.pick(CONSUMERS));
    if g.rng.chance(40) {
        draft = draft.option("COUNT").text(g.count());
    }
    if g.rng.chance(40) {
        draft = block(g, draft);
    }
    if g.rng.chance(10) {
        draft = draft.option("NOACK");
    }
    draft = draft.text("STREAMS");
    let streams = if g.rng.chance(75) { 1 } else { 2 };
    draft = (0..streams).fold(draft, |draft, _| draft.text(stream(g)));
    let draft = (0..streams).fold(draft, |draft, _| match g.rng.below(100) {
        0..75 => draft.option(">"),
        75..90 => draft.named("history").text(g.rng.pick(&["0", "0", "1-1", "2-1"])),
        90..96 => draft.named("history").word(generated(g, "")),
        _ => draft.text(g.rng.pick(&["$", "abc", "*", "+"])),
    });
    if g.rng.chance(2) { draft.text("0") } else { draft }
}

fn xpending(g: &mut Gen, draft: Draft) -> Draft {
    let mut draft = draft.text(stream(g)).text(g.rng.pick(GROUPS));
    if g.rng.chance(30) {
        return draft.named("summary");
    }
    draft = draft.named("extended");
    if g.rng.chance(35) {
        draft = draft.option("IDLE").text(g.rng.pick(&["0", "0", "100000", "abc"]));
    }
    draft = draft.word(bound(g)).word(bound(g)).text(g.count());
    if g.rng.chance(35) { draft.named("consumer").text(g.rng.pick(CONSUMERS)) } else { draft }
}

/// An idle time to claim from: none, or longer than any run. Only `IDLE` and `TIME` make entries that old.
fn min_idle(g: &mut Gen) -> &'static str {
    if g.rng.chance(2) {
        return g.rng.pick(&["-1", "abc"]);
    }
    g.rng.pick(&["0", "0", "0", "0", "100000", "3000000"])
}

fn xclaim(g: &mut Gen, draft: Draft) -> Draft {
    let draft = draft.text(stream(g)).text(g.rng.pick(GROUPS)).text(g.rng.pick(CONSUMERS)).text(min_idle(g));
    let mut draft = (0..1 + g.rng.below(3)).fold(draft, |draft, _| draft.word(id(g)));
    if g.rng.chance(25) {
        draft = draft.option("IDLE").text(g.rng.pick(&["0", "200000", "3600000", "-1", "abc"]));
    }
    if g.rng.chance(15) {
        draft = draft.option("TIME").text(g.rng.pick(&["0", "1000", "99999999999999", "abc"]));
    }
    if g.rng.chance(25) {
        draft = draft.option("RETRYCOUNT").text(g.rng.pick(&["0", "1", "5", "1000", "-1", "abc"]));
    }
    if g.rng.chance(25) {
        draft = draft.option("FORCE");
    }
    if g.rng.chance(25) {
        draft = draft.option("JUSTID");
    }
    if g.rng.chance(12) {
        draft = draft.option("LASTID").word(id(g));
    }
    if g.rng.chance(2) { draft.text("bogus") } else { draft }
}

fn xautoclaim(g: &mut Gen, draft: Draft) -> Draft {
    let draft = draft.text(stream(g)).text(g.rng.pick(GROUPS)).text(g.rng.pick(CONSUMERS)).text(min_idle(g));
    let mut draft = match g.rng.below(100) {
        0..60 => draft.text("0"),
        60..70 => draft.text("-"),
        70..75 => draft.text("(1-1"),
        _ => draft.word(id(g)),
    };
    if g.rng.chance(40) {
        draft = draft.option("COUNT").text(g.count());
    }
    if g.rng.chance(30) { draft.option("JUSTID") } else { draft }
}

fn xgroup(g: &mut Gen) -> Draft {
    let names = [
        (12, "XGROUP CREATE"),
        (3, "XGROUP DESTROY"),
        (4, "XGROUP SETID"),
        (4, "XGROUP CREATECONSUMER"),
        (4, "XGROUP DELCONSUMER"),
    ];
    let name = g.rng.weighted(&names);
    let draft = Draft::new(name).text(stream(g)).text(g.rng.pick(GROUPS));
    match name {
        "XGROUP CREATE" => {
            let draft = position(g, draft);
            if g.rng.chance(60) { draft.option("MKSTREAM") } else { draft }
        }
        "XGROUP SETID" => position(g, draft),
        "XGROUP DESTROY" => draft,
        _ => draft.text(g.rng.pick(CONSUMERS)),
    }
}

fn position(g: &mut Gen, draft: Draft) -> Draft {
    match g.rng.below(100) {
        0..50 => draft.text("0"),
        50..75 => draft.text("$"),
        75..95 => draft.word(whole_id(g)),
        _ => draft.text(g.rng.pick(&["abc", "-", "+", ">", "5"])),
    }
}

fn xinfo(g: &mut Gen) -> Draft {
    match g.rng.below(10) {
        0..3 => Draft::new("XINFO STREAM").text(stream(g)),
        3..6 => {
            let draft = Draft::new("XINFO STREAM").text(stream(g)).option("FULL");
            if g.rng.chance(40) { draft.text("COUNT").text(g.count()) } else { draft }
        }
        6..8 => Draft::new("XINFO GROUPS").text(stream(g)),
        _ => Draft::new("XINFO CONSUMERS").text(stream(g)).text(g.rng.pick(GROUPS)),
    }
}
