//! Connections, published messages, and the server itself.

use super::{Draft, Gen, Word};

/// A command about connections.
pub(super) fn draft(g: &mut Gen, clients: usize) -> Draft {
    let names = [
        (8, "PING"),
        (6, "ECHO"),
        (8, "HELLO"),
        (6, "AUTH"),
        (5, "SELECT"),
        (3, "RESET"),
        (6, "CLIENT ID"),
        (6, "CLIENT SETNAME"),
        (6, "CLIENT GETNAME"),
        (10, "CLIENT UNBLOCK"),
        (5, "CLIENT KILL"),
        (5, "CLIENT INFO"),
        (6, "CLIENT LIST"),
        (10, "PUBLISH"),
        (7, "SUBSCRIBE"),
        (3, "UNSUBSCRIBE"),
        (2, "MULTI"),
        (2, "EXEC"),
        (1, "DISCARD"),
        (2, "WATCH"),
        (1, "UNWATCH"),
        (2, "bogus"),
    ];
    let name = g.rng.weighted(&names);
    let draft = Draft::new(name);
    let other = Word::Client(g.rng.below(clients));
    match name {
        "PING" => {
            if g.rng.chance(40) {
                draft.text(g.value())
            } else {
                draft
            }
        }
        "ECHO" => draft.text(g.value()),
        "HELLO" => hello(g, draft),
        "AUTH" => auth(g, draft),
        "SELECT" => draft.text(g.rng.pick(&["0", "0", "0", "16", "-1", "abc"])),
        "CLIENT SETNAME" => draft.text(g.rng.pick(&["alice", "bob", "", "a b", "x\ny"])),
        "CLIENT UNBLOCK" => {
            let draft = draft.word(other);
            match g.rng.below(10) {
                0..3 => draft.option("ERROR"),
                3..5 => draft.option("TIMEOUT"),
                5 if g.rng.chance(30) => draft.text("bogus"),
                _ => draft,
            }
        }
        "CLIENT KILL" => kill(g, draft, other),
        "CLIENT LIST" => {
            if g.rng.chance(40) {
                draft.option("ID").word(other)
            } else {
                draft
            }
        }
        "PUBLISH" => draft.text(channel(g)).text(g.value()),
        "SUBSCRIBE" => (0..1 + g.rng.below(2)).fold(draft, |draft, _| draft.text(channel(g))),
        // Without channels it leaves all of them, in an order that is hashed.
        "UNSUBSCRIBE" => draft.text(channel(g)),
        "WATCH" => draft.text(g.any_key()),
        "bogus" => {
            let mut draft = draft;
            draft.names[0] = "unknown command".into();
            (0..g.rng.below(3)).fold(draft, |draft, _| draft.text(g.value()))
        }
        _ => draft,
    }
}

fn channel(g: &mut Gen) -> &'static str {
    g.rng.pick(&["news", "news", "other"])
}

fn hello(g: &mut Gen, mut draft: Draft) -> Draft {
    if g.rng.chance(15) {
        return draft;
    }
    draft = draft.text(if g.rng.chance(5) { g.rng.pick(&["1", "4", "abc"]) } else { g.rng.pick(&["2", "3"]) });
    if g.rng.chance(25) {
        draft = draft.option("AUTH").text(if g.rng.chance(80) { "default" } else { "nobody" }).text("secret");
    }
    if g.rng.chance(25) {
        draft = draft.option("SETNAME").text(g.rng.pick(&["alice", "bob", "a b"]));
    }
    draft
}

fn auth(g: &mut Gen, draft: Draft) -> Draft {
    let draft = if g.rng.chance(50) { draft.text(g.rng.pick(&["default", "default", "nobody"])) } else { draft };
    draft.text("secret")
}

fn kill(g: &mut Gen, draft: Draft, other: Word) -> Draft {
    match g.rng.below(10) {
        0 => draft.option("ID").text("999999999"),
        1 => draft.text("10.0.0.1:1"),
        2 => draft.option("ID").text("abc"),
        _ => draft.option("ID").word(other),
    }
}

/// A command about the server.
pub(super) fn server(g: &mut Gen, _: usize) -> Draft {
    let names = [(4, "TIME"), (3, "DBSIZE"), (2, "FLUSHALL"), (4, "INFO"), (5, "CONFIG GET"), (1, "PING")];
    let name = g.rng.weighted(&names);
    let draft = Draft::new(name);
    match name {
        "FLUSHALL" => {
            if g.rng.chance(30) {
                draft.text(g.rng.pick(&["SYNC", "ASYNC", "bogus"]))
            } else {
                draft
            }
        }
        "INFO" => {
            let section =
                g.rng.pick(&["", "server", "clients", "memory", "persistence", "replication", "keyspace", "bogus"]);
            if section.is_empty() { draft } else { draft.text(section) }
        }
        "CONFIG GET" => draft.text(g.rng.pick(&[
            "maxmemory",
            "maxmemory-policy",
            "appendonly",
            "appendfsync",
            "maxclients",
            "bogus",
        ])),
        _ => draft,
    }
}
