//! The log does again what was done.

use super::*;

/// Words that stand for others: `L` a list's key, `K` any key, `V` a value, `C` a consumer. Reading one's own history is
/// not among them: that it counts as a delivery is not logged, as in real servers.
const VOCABULARY: &[&str] = &[
    "SET T V",
    "SET T V PX 30",
    "SET T V XX KEEPTTL",
    "INCR T",
    "DEL K K",
    "EXPIRE K 1",
    "PEXPIRE K 20 GT",
    "PEXPIRE K 7",
    "PERSIST K",
    "LPUSH L V V",
    "RPUSH L V",
    "LPOP L",
    "RPOP L 2",
    "LREM L 0 V",
    "LMOVE L L LEFT RIGHT",
    "BLPOP L L 0",
    "BRPOP L L L 0.05",
    "BLMOVE L L RIGHT LEFT 0",
    "BRPOPLPUSH L L 0.02",
    "HSET H V V",
    "HDEL H V",
    "HINCRBY H V 3",
    "ZADD Z 1 V 2 V",
    "ZADD Z INCR 2 V",
    "ZREMRANGEBYSCORE Z 0 3",
    "ZREM Z V",
    "SADD M V",
    "SREM M V",
    "MULTI",
    "EXEC",
    "EXEC",
    "DISCARD",
    "WATCH K",
    "GET T",
    "SCAN 0",
    "FLUSHALL",
    "XADD S * f V",
    "XADD S * f V",
    "XADD S NOMKSTREAM MAXLEN ~ 3 * f V",
    "XADD S MAXLEN 4 * f V",
    "XGROUP CREATE S g 0 MKSTREAM",
    "XGROUP CREATE S g $",
    "XREADGROUP GROUP g C COUNT 2 STREAMS S >",
    "XREADGROUP GROUP g C BLOCK 40 STREAMS S S > >",
    "XREADGROUP GROUP g C NOACK BLOCK 0 STREAMS S >",
    "XREADGROUP GROUP g C BLOCK 0 STREAMS S S > >",
    "XAUTOCLAIM S g C 3 0",
    "XREAD BLOCK 30 STREAMS S $",
    "XGROUP DELCONSUMER S g C",
    "XGROUP DESTROY S g",
    "XTRIM S MAXLEN 2",
    "XGROUP SETID S g 0",
];

/// Everything that is alive, in a form that can be compared.
fn dump(broker: &Broker, at: ServerTime) -> Vec<String> {
    broker.db().live(at).map(|(key, item)| without_visits(&format!("{key:?} {item:?}"))).collect()
}

/// Without when consumers asked in vain: that is not logged.
fn without_visits(text: &str) -> String {
    let mut parts = text.split("seen_ms: ");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |whole, part| whole + part.trim_start_matches(|c: char| c.is_ascii_digit()))
}

fn waiting(broker: &Broker) -> usize {
    broker.clients.values().filter(|client| client.blocked.is_some()).count()
}

struct Draws(u64);

impl Draws {
    fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 20).unwrap() % below
    }

    fn command(&mut self) -> Vec<Bytes> {
        let template = VOCABULARY[self.below(VOCABULARY.len())];
        if template == "FLUSHALL" && self.below(6) > 0 {
            return words("PING");
        }
        let kinds = ["T", "L", "H", "Z", "M", "S"];
        let fill = |word: &str| match word {
            "V" => self.below(3).to_string(),
            "C" => format!("c{}", self.below(2)),
            "K" => format!("{}{}", kinds[self.below(kinds.len())], self.below(2)),
            // Now and then another type's key.
            kind if kinds.contains(&kind) && self.below(12) == 0 => kinds[self.below(kinds.len())].to_string() + "0",
            kind if kinds.contains(&kind) => format!("{kind}{}", self.below(2)),
            other => other.to_string(),
        };
        template.split(' ').map(fill).map(Bytes::from).collect()
    }
}

#[test]
fn the_log_gives_the_same_data_whatever_was_done() {
    let mut served = 0;
    for profile in [Profile::redis_6_2(), Profile::redis_7_0(), Profile::valkey_8_1()] {
        for seed in 0..150_u64 {
            let mut draws = Draws(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            let mut bench = Bench::with(profile.clone());
            for _ in 0..200 {
                let client = ClientId(1 + draws.below(4) as u64);
                // Several keys become ready at once: who waits for both is given the first of them, not its own first.
                let turn = match draws.below(8) {
                    0 => ["MULTI", "RPUSH L1 1", "RPUSH L0 0", "EXEC"].map(words).into(),
                    1 => vec![words("BLPOP L0 L1 0")],
                    _ => vec![draws.command()],
                };
                let blocked = waiting(&bench.broker);
                for args in turn {
                    if !bench.broker.is_blocked(client) {
                        bench.broker.execute(bench.at, client, &args, &mut bench.out);
                    }
                }
                served += u64::from(waiting(&bench.broker) < blocked);
                bench.at.0 += draws.below(4) as u64 * 1_700;
                bench.broker.tick(bench.at, &mut bench.out);
            }
            let log = bench.broker.take_log();
            let mut other = Broker::new(profile.clone(), "other");
            log.iter().for_each(|logged| other.apply(logged));
            let (did, again) = (dump(&bench.broker, bench.at), dump(&other, bench.at));
            for (did, again) in did.iter().zip(&again) {
                assert_eq!(did, again, "seed {seed} of {:?}", profile.version);
            }
            assert_eq!(did.len(), again.len());
            assert_eq!(bench.broker.gaps(), [] as [String; 0]);
        }
    }
    assert!(served > 100, "only {served} waits were served");
}

#[test]
fn what_a_transaction_did_is_applied_as_a_whole() {
    let mut bench = Bench::new();
    for command in ["MULTI", "SET a 1", "SET b 2", "EXEC"] {
        bench.send(1, command);
    }
    let log = bench.broker.take_log();
    assert_eq!(log.len(), 4);
    for cut in 0..4 {
        let mut other = Broker::new(Profile::redis_7_0(), "other");
        for logged in &log[..cut] {
            other.apply(logged);
        }
        assert_eq!(dump(&other, bench.at), [] as [String; 0]);
    }
}
