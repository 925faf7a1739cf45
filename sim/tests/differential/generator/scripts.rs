//! Scripts: small ones that try how values convert and how calls fail, and all that Flota runs on brokers.

use flota_core::script::Script;
use sha1::{Digest, Sha1};

use super::streams::{self, CONSUMERS, GROUPS, STREAMS};
use super::{Draft, Gen};

/// Small scripts. Each takes the keys `KEYS[1]` and `KEYS[2]` and the arguments `ARGV[1]` and `ARGV[2]`, or less.
const SMALL: &[&str] = &[
    "return 1",
    "return {1, 2, 'x', 3.99, {4, 'y'}, nil, 5}",
    "return redis.call('GET', KEYS[1])",
    "return redis.call('SET', KEYS[1], ARGV[1])",
    "return {ok = ARGV[1]}",
    "return {err = 'MINE ' .. ARGV[1]}",
    "return redis.error_reply('MINE ' .. ARGV[1])",
    "return redis.status_reply(ARGV[1])",
    "return false",
    "return true",
    "return nil",
    "redis.call('RPUSH', KEYS[2], ARGV[1]); redis.call('RPUSH', KEYS[1], ARGV[2]); return redis.call('LLEN', KEYS[1])",
    "redis.call('LPUSH', KEYS[1], 'a', 'b'); redis.call('DEL', KEYS[1]); return redis.call('EXISTS', KEYS[1])",
    "local r = redis.pcall('INCR', KEYS[1]); if type(r) == 'table' then return r.err end; return r",
    "return redis.call('INCR', KEYS[1])",
    "return redis.pcall('LPUSH', KEYS[1], ARGV[1])",
    "redis.call('SET', KEYS[1], ARGV[1]); return redis.call('LPUSH', KEYS[1], 'x')",
    "return redis.call('BOGUS', KEYS[1])",
    "return redis.call('GET')",
    "return redis.call()",
    "return redis.call('BLPOP', KEYS[1], 0)",
    "return redis.call('BLMOVE', KEYS[1], KEYS[2], 'LEFT', 'RIGHT', 0)",
    "return redis.call('XREAD', 'BLOCK', 0, 'STREAMS', KEYS[1], '$')",
    "return redis.call('SUBSCRIBE', 'news')",
    "return redis.call('PUBLISH', 'news', ARGV[1])",
    "return redis.call('MULTI')",
    "error('oops ' .. ARGV[1])",
    "error({err = 'MINE oops'})",
    "x = 1",
    "return y",
    "return bad syntax",
    "return redis.sha1hex(ARGV[1])",
    "return {#KEYS, #ARGV, KEYS[1], ARGV[1], KEYS[3]}",
    "return redis.call('XADD', KEYS[1], '*', 'f', ARGV[1])",
    "redis.call('XADD', KEYS[1], '*', 'f', ARGV[1]); return redis.call('XADD', KEYS[1], '*', 'g', ARGV[2])",
    "return redis.call('XRANGE', KEYS[1], '-', '+')",
    "return redis.call('XINFO', 'GROUPS', KEYS[1])[1][2]",
    "return redis.call('ZADD', KEYS[1], 1.5, ARGV[1])",
    "return redis.call('ZSCORE', KEYS[1], ARGV[1])",
    "return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')",
    "return {redis.call('HSET', KEYS[1], 'f1', ARGV[1]), redis.call('HGET', KEYS[1], 'f1'), redis.call('HGET', KEYS[1], 'f9')}",
    "return redis.call('TYPE', KEYS[1])",
    "return redis.call('TYPE', KEYS[1])['ok']",
    "return {redis.call('PING'), redis.call('ECHO', ARGV[1])}",
    "return tostring(tonumber(ARGV[1]))",
    "return string.format('%.0f %d %s', 1e15, 3, ARGV[1])",
    "return {2^53, -3.7, 1e3, 0}",
    "return redis.call('EXPIRE', KEYS[1], 1000)",
    "return redis.call('DEL', KEYS[1], KEYS[2])",
    "return redis.call('LRANGE', KEYS[1], 0, -1)",
    "return redis.call('LPOP', KEYS[1])",
    "redis.call('XGROUP', 'CREATE', KEYS[1], 'g1', '0', 'MKSTREAM'); return 'made'",
    "return redis.call('XREADGROUP', 'GROUP', 'g1', 'c1', 'COUNT', 1, 'STREAMS', KEYS[1], '>')",
    "return cjson.encode({1, 2, ARGV[1]})",
    "return cjson.decode('[1,2,\"x\",null,true]')",
    "return {tostring(1.5), tostring(10), tostring(1e20), 0.1 + 0.2 .. ''}",
    "return {string.match('12 live 5-1', '^(%d+) (%a+) (%S+)$')}",
];

/// How many of them are run by checksum.
const KNOWN: usize = 6;

/// A command about scripts.
pub(super) fn draft(g: &mut Gen, _: usize) -> Draft {
    let names =
        [(20, "EVAL"), (8, "EVALSHA"), (5, "SCRIPT LOAD"), (4, "SCRIPT EXISTS"), (2, "SCRIPT FLUSH"), (60, "flota")];
    let name = g.rng.weighted(&names);
    match name {
        "EVAL" => small(g, Draft::new("EVAL")),
        "EVALSHA" => small(g, Draft::new("EVALSHA")),
        "SCRIPT LOAD" => {
            let text = match g.rng.below(10) {
                0..6 => g.rng.pick(&SMALL[..KNOWN]),
                6..8 => g.rng.pick(SMALL),
                _ => g.rng.pick(&Script::ALL).text(),
            };
            Draft::new(name).text(text)
        }
        "SCRIPT EXISTS" => {
            (0..1 + g.rng.below(3)).fold(Draft::new(name), |draft, _| draft.text(g.rng.pick(&Script::ALL).sha1()))
        }
        "SCRIPT FLUSH" => {
            let draft = Draft::new(name);
            if g.rng.chance(30) { draft.text(g.rng.pick(&["SYNC", "ASYNC", "bogus"])) } else { draft }
        }
        _ => flota(g),
    }
}

fn small(g: &mut Gen, draft: Draft) -> Draft {
    let by_text = draft.names[0] == "EVAL";
    // Few are asked for by their checksum, so that they are often known.
    let text = if by_text { g.rng.pick(SMALL) } else { g.rng.pick(&SMALL[..KNOWN]) };
    let draft = if by_text { draft.text(text) } else { draft.text(checksum(g, text)) };
    if g.rng.chance(3) {
        return draft.text(g.rng.pick(&["abc", "-1", "9"])).text(g.any_key());
    }
    let draft = draft.text("2").text(g.any_key()).text(g.any_key());
    draft.text(g.value()).text(g.value())
}

fn checksum(g: &mut Gen, text: &str) -> String {
    if g.rng.chance(5) {
        return "ffffffffffffffffffffffffffffffffffffffff".into();
    }
    // Only what a sequence has run before is known by its checksum.
    Sha1::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One of Flota's own, with arguments as Flota gives them.
fn flota(g: &mut Gen) -> Draft {
    let script = g.rng.pick(&Script::ALL);
    let name = format!("{script:?}").to_lowercase();
    let by_checksum = g.rng.chance(15);
    let draft = Draft::new(if by_checksum { "EVALSHA" } else { "EVAL" });
    let mut draft = draft.text(if by_checksum { script.sha1() } else { script.text() });
    draft.names.push(format!("script {name}"));
    match script {
        Script::Cancel => {
            let draft = draft.text("3").text("z4").text("h4").text("z2").text("0");
            (0..1 + g.rng.below(2)).fold(draft, |draft, _| draft.text(g.rng.pick(SCHEDULED)))
        }
        Script::Claim => claim(g, draft),
        Script::Dead => dead(g, draft),
        Script::Due => {
            let draft = draft.text("4").text("z1").text("z2").text(stream(g)).text(stream(g));
            draft.text(group(g)).text(g.rng.pick(&["1", "100"]))
        }
        Script::Ensure => ensure(g, draft),
        Script::Leave => draft.text("2").text(stream(g)).text(stream(g)).text(group(g)).text(consumer(g)),
        Script::Move => moves(g, draft),
        Script::Reap => {
            let draft = draft.text("1").text(stream(g)).text(group(g));
            let draft = draft.text(g.rng.pick(&["0", "10000000"])).text(g.rng.pick(&["1", "10"]));
            if g.rng.chance(50) { draft.text(consumer(g)) } else { draft }
        }
        Script::Rejoin => {
            let draft = draft.text("1").text(stream(g)).text(group(g));
            draft.word(streams::whole_id(g)).word(streams::whole_id(g))
        }
        Script::Release => release(g, draft),
        Script::Renew => {
            let draft = draft.text("1").text(stream(g));
            held(g, draft, |_, draft| draft)
        }
        Script::Replay => {
            let draft = draft.text("2").text(stream(g)).text(stream(g));
            let draft = draft.text(g.rng.pick(&["", "g1", "g2"])).text(g.rng.pick(&["", "0", "1"]));
            (0..1 + g.rng.below(3)).fold(draft, |draft, _| draft.word(streams::whole_id(g)))
        }
        Script::Retry => retry(g, draft),
        Script::Schedule => {
            let draft = draft.text("3").text("z4").text("h4").text("z2").text("0").text(g.rng.pick(SCHEDULED));
            let draft = draft.text(g.rng.pick(&["-10000000", "10000000", "@1"]));
            draft.text("payload").text(g.value()).text("id").text("m1")
        }
        Script::Tail => draft.text("3").text(stream(g)).text(stream(g)).text("s9"),
        Script::Tick => tick(g, draft),
        Script::Trim => trim(g, draft),
    }
}

/// Ids of messages that wait.
const SCHEDULED: &[&str] = &["m1", "m2", "m3"];

fn stream(g: &mut Gen) -> &'static str {
    if g.rng.chance(3) { g.any_key() } else { g.rng.pick(STREAMS) }
}

fn group(g: &mut Gen) -> &'static str {
    g.rng.pick(GROUPS)
}

fn consumer(g: &mut Gen) -> &'static str {
    g.rng.pick(CONSUMERS)
}

/// Group, consumer, then entries, each with more if need be.
fn held(g: &mut Gen, draft: Draft, more: fn(&mut Gen, Draft) -> Draft) -> Draft {
    let draft = draft.text(group(g)).text(consumer(g));
    (0..1 + g.rng.below(3)).fold(draft, |draft, _| {
        let draft = draft.word(streams::whole_id(g));
        more(g, draft)
    })
}

fn claim(g: &mut Gen, draft: Draft) -> Draft {
    let draft = draft.text("3").text(stream(g)).text("s3").text("h1");
    let fence = g.rng.pick(&["", "", "", "7"]);
    let draft = draft.text(group(g)).text(consumer(g)).text("0").text(fence);
    let from = g.rng.pick(&["", "@free", "c1", "c2"]);
    let idle = g.rng.pick(&["0", "0", "3600000"]);
    let draft = draft.text(from).text(idle).text("-").text(g.rng.pick(&["1", "2", "100"]));
    let dead = g.rng.pick(&["2", "5", "1000000000"]);
    let alone = g.rng.pick(&["1", "2", "1000000"]);
    let draft = draft.text(dead).text(alone).text(g.rng.pick(&["0", "1"])).text(g.rng.pick(&["0", "1"]));
    if g.rng.chance(30) { draft.word(streams::whole_id(g)) } else { draft }
}

fn dead(g: &mut Gen, draft: Draft) -> Draft {
    let draft = draft.text("3").text(stream(g)).text("s3").text("h1");
    let fence = g.rng.pick(&["", "", "", "7"]);
    let entries = 1 + g.rng.below(2);
    let draft = draft.text(group(g)).text(consumer(g)).text("0").text(fence).text(entries.to_string());
    (0..entries).fold(draft, |draft, _| {
        let draft = draft.word(streams::whole_id(g)).text("why").text("3").text("2");
        if g.rng.chance(50) { draft.text("2").text("body").text("kept") } else { draft.text("0") }
    })
}

fn retry(g: &mut Gen, draft: Draft) -> Draft {
    let draft = draft.text("5").text(stream(g)).text("z3").text("h3").text("z1").text("h1");
    let fence = g.rng.pick(&["", "", "", "7"]);
    let entries = 1 + g.rng.below(2);
    let draft = draft.text(group(g)).text(consumer(g)).text("0").text(fence).text(entries.to_string());
    (0..entries).fold(draft, |draft, _| {
        // Due at once or not within the sequence: what is between depends on how fast a server is.
        let draft = draft.word(streams::whole_id(g)).text(g.rng.pick(&["-10000000", "10000000"]));
        let draft = draft.text(g.rng.pick(&["2", "3"])).text(g.rng.pick(&["0", "1"]));
        if g.rng.chance(50) { draft.text("2").text("body").text("kept") } else { draft.text("0") }
    })
}

fn moves(g: &mut Gen, draft: Draft) -> Draft {
    let (items, bodies, index) = g.rng.pick(&[("z3", "h3", "z1"), ("z4", "h4", "z2")]);
    let draft = draft.text("5").text(items).text(bodies).text(stream(g)).text(index).text("h1");
    let draft = draft.text(g.rng.pick(&["", "g1", "g2"])).text(consumer(g)).text("0");
    let fence = g.rng.pick(&["", "", "", "7"]);
    draft.text(fence).text(g.rng.pick(&["1", "100"])).text(g.rng.pick(&["10", "1048576"]))
}

fn ensure(g: &mut Gen, draft: Draft) -> Draft {
    let draft = draft.text("4").text("h1").text("h2").text(stream(g)).text(stream(g));
    let draft = draft.text(g.rng.pick(&["0", "1", "2", "4"])).text(g.rng.pick(&["0", "1", "2", "3"]));
    (0..g.rng.below(3)).fold(draft, |draft, _| {
        let state = g.rng.pick(&["1 live 0", "1 live $", "2 live 0", "1 gone 0", "3 gone $"]);
        draft.text(group(g)).text(state)
    })
}

fn release(g: &mut Gen, draft: Draft) -> Draft {
    let draft = draft.text("2").text(stream(g)).text("h1");
    let draft = draft.text(group(g)).text(consumer(g)).text("0").text(g.rng.pick(&["", "", "7"]));
    (0..1 + g.rng.below(3)).fold(draft, |draft, _| draft.word(streams::whole_id(g)).text(g.rng.pick(&["0", "1"])))
}

/// Of members whose deadlines lie far apart, so that their order is that of the arguments and not of two clocks.
fn tick(g: &mut Gen, draft: Draft) -> Draft {
    let keys = [("h1", "h9"), ("h2", "h9"), ("z1", "z9"), ("z2", "z9")];
    let draft = keys
        .iter()
        .fold(draft.text("5"), |draft, (usual, rare)| draft.text(if g.rng.chance(4) { rare } else { usual }));
    let draft = draft.text(if g.rng.chance(20) { "h9" } else { "h2" });
    let (member, place, ttl) = g.rng.pick(&[("m1", "7", "1000000"), ("m2", "3", "2000000"), ("m3", "3", "3000000")]);
    let late = g.rng.chance(10);
    let draft = draft.text(member).text(place).text(if late { "-1000000" } else { ttl });
    let draft = draft.text(g.rng.pick(&["join", "run", "run", "run", "leave", "gone"]));
    // No generation that a server has given is known here.
    let draft = draft.text("0").text(g.rng.pick(&["run-1", "run-1", "run-1", "run-2", ""]));
    let draft = draft.text(g.rng.pick(&["0", "0", "7", "9000000000000000"])).text(g.rng.pick(&["0", "1", "4"]));
    let draft = draft.text(g.rng.pick(&["0", "1", "100"])).text(g.rng.pick(&["0", "1000"]));
    let draft =
        draft.text(g.rng.pick(&["-1", "3000"])).text(g.rng.pick(&["1", "2", "3", "4", "5", "6", "7", "8", "9"]));
    let held = g.rng.below(3);
    (0..held).fold(draft.text(held.to_string()), |draft, nth| {
        draft.text(nth.to_string()).text(g.rng.pick(&["7", "8", "8999999999999999"]))
    })
}

fn trim(g: &mut Gen, draft: Draft) -> Draft {
    let draft = draft.text("2").text(stream(g)).text(g.rng.pick(&["h2", "h2", "h9"]));
    let draft = draft.text(g.rng.pick(&["0", "1"])).text(g.rng.pick(&["-1", "0", "2", "100"]));
    draft.text(g.rng.pick(&["-1", "1000000000"])).text(g.rng.pick(&["0", "1000"])).text(g.rng.pick(&["0", "1000000"]))
}
