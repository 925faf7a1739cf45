//! Lists, and waiting for them.

use super::{Draft, Gen};

const LISTS: &[&str] = &["l1", "l1", "l2", "l3"];

/// A command on lists.
pub(super) fn draft(g: &mut Gen, _: usize) -> Draft {
    let names = [
        (12, "LPUSH"),
        (16, "RPUSH"),
        (7, "LPOP"),
        (7, "RPOP"),
        (4, "LLEN"),
        (8, "LRANGE"),
        (4, "LREM"),
        (4, "LINDEX"),
        (6, "LMOVE"),
        (5, "RPOPLPUSH"),
        (9, "BLPOP"),
        (8, "BRPOP"),
        (6, "BLMOVE"),
        (5, "BRPOPLPUSH"),
    ];
    let name = g.rng.weighted(&names);
    let draft = Draft::new(name);
    match name {
        "LPUSH" | "RPUSH" => (0..1 + g.rng.below(3)).fold(draft.text(list(g)), |draft, _| draft.text(g.value())),
        "LPOP" | "RPOP" => pop(g, draft),
        "LLEN" => draft.text(list(g)),
        "LRANGE" => draft.text(list(g)).text(g.number()).text(g.number()),
        "LREM" => draft.text(list(g)).text(g.number()).text(g.value()),
        "LINDEX" => draft.text(list(g)).text(g.number()),
        "LMOVE" => {
            let draft = draft.text(list(g)).text(list(g));
            draft.text(end(g)).text(end(g))
        }
        "RPOPLPUSH" => draft.text(list(g)).text(list(g)),
        "BLPOP" | "BRPOP" => {
            let draft = (0..1 + g.rng.below(3)).fold(draft, |draft, _| draft.text(list(g)));
            timeout(g, draft)
        }
        "BLMOVE" => {
            let draft = draft.text(list(g)).text(list(g)).text(end(g)).text(end(g));
            timeout(g, draft)
        }
        _ => {
            let draft = draft.text(list(g)).text(list(g));
            timeout(g, draft)
        }
    }
}

fn list(g: &mut Gen) -> &'static str {
    g.key_of(LISTS)
}

fn end(g: &mut Gen) -> &'static str {
    if g.rng.chance(2) { "middle" } else { g.rng.pick(&["LEFT", "RIGHT", "left"]) }
}

fn pop(g: &mut Gen, draft: Draft) -> Draft {
    let draft = draft.text(list(g));
    if g.rng.chance(45) { draft.named("count").text(g.count()) } else { draft }
}

/// For ever as a rule: what waits is ended by others. A few wait for a moment, and a few say something wrong.
fn timeout(g: &mut Gen, draft: Draft) -> Draft {
    match g.rng.below(100) {
        0 | 1 => draft.text("0.01").ends_soon(),
        2 | 3 => draft.text(g.rng.pick(&["-1", "abc", "-0.5", ""])),
        4 | 5 => draft.text("1000"),
        _ => draft.text("0"),
    }
}
