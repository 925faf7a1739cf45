//! Every command and option that a run has to have tried, and how often each was.

use crate::runner::Tally;

/// How often each is to be run in [`FULL`] sequences.
const TIMES: u64 = 200;
/// How many sequences a full run has.
pub const FULL: u64 = 20_000;

const NAMES: &[&str] = &[
    "PING", "ECHO", "HELLO", "HELLO AUTH", "HELLO SETNAME", "AUTH", "SELECT", "RESET", "CLIENT ID", "CLIENT SETNAME",
    "CLIENT GETNAME", "CLIENT UNBLOCK", "CLIENT UNBLOCK ERROR", "CLIENT UNBLOCK TIMEOUT", "CLIENT KILL",
    "CLIENT KILL ID", "CLIENT INFO", "CLIENT LIST", "CLIENT LIST ID", "unknown command",
    "GET", "SET", "SET NX", "SET XX", "SET PX", "SET EX", "SET KEEPTTL", "SET GET", "DEL", "UNLINK", "EXISTS", "TYPE",
    "EXPIRE", "PEXPIRE", "TTL", "PTTL", "PERSIST", "INCR",
    "LPUSH", "RPUSH", "LPOP", "LPOP count", "RPOP", "RPOP count", "LLEN", "LRANGE", "LREM", "LINDEX", "LMOVE",
    "RPOPLPUSH", "BLPOP", "BRPOP", "BLMOVE", "BRPOPLPUSH",
    "HSET", "HGET", "HMGET", "HGETALL", "HDEL", "HINCRBY",
    "ZADD", "ZADD NX", "ZADD XX", "ZADD GT", "ZADD LT", "ZADD CH", "ZADD INCR", "ZRANGE", "ZRANGE BYSCORE",
    "ZRANGE REV", "ZRANGE LIMIT", "ZRANGE WITHSCORES", "ZRANGEBYSCORE", "ZRANGEBYSCORE WITHSCORES",
    "ZRANGEBYSCORE LIMIT", "ZREM", "ZREMRANGEBYSCORE", "ZCARD", "ZSCORE", "SADD", "SREM", "SMEMBERS",
    "XADD", "XADD NOMKSTREAM", "XADD MAXLEN", "XADD MINID", "XADD =", "XADD ~", "XADD LIMIT", "XADD *",
    "XADD explicit", "XADD partial", "XADD ms-*", "XLEN", "XRANGE", "XRANGE COUNT", "XREVRANGE", "XREVRANGE COUNT",
    "XREAD", "XREAD COUNT", "XREAD BLOCK", "XREAD $", "XREADGROUP", "XREADGROUP COUNT", "XREADGROUP BLOCK",
    "XREADGROUP NOACK", "XREADGROUP >", "XREADGROUP history", "XACK", "XPENDING", "XPENDING summary",
    "XPENDING extended", "XPENDING IDLE", "XPENDING consumer", "XCLAIM", "XCLAIM IDLE", "XCLAIM TIME",
    "XCLAIM RETRYCOUNT", "XCLAIM FORCE", "XCLAIM JUSTID", "XCLAIM LASTID", "XAUTOCLAIM", "XAUTOCLAIM COUNT",
    "XAUTOCLAIM JUSTID", "XDEL", "XTRIM", "XTRIM MAXLEN", "XTRIM MINID", "XTRIM =", "XTRIM ~", "XTRIM LIMIT",
    "XGROUP CREATE", "XGROUP CREATE MKSTREAM", "XGROUP DESTROY", "XGROUP SETID", "XGROUP CREATECONSUMER",
    "XGROUP DELCONSUMER", "XINFO STREAM", "XINFO STREAM FULL", "XINFO GROUPS", "XINFO CONSUMERS",
    "MULTI", "EXEC", "DISCARD", "WATCH", "EVAL", "EVALSHA", "SCRIPT LOAD", "SCRIPT EXISTS", "SCRIPT FLUSH",
    "script claim", "script dead", "script defer", "script ensure", "script leave",
    "script reap", "script rejoin", "script release", "script renew", "script replay",
    "script tail", "script trim",
    "TIME", "DBSIZE", "SCAN", "SCAN MATCH", "SCAN COUNT", "SCAN TYPE", "KEYS", "FLUSHALL", "INFO", "CONFIG GET",
    "PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE", "SET PX 1",
];

/// All counts, in columns.
pub fn table(tally: &Tally) -> String {
    let entries: Vec<_> = tally.names.iter().map(|(name, count)| format!("{name:<26} {count:>7}")).collect();
    let lines: Vec<_> = entries.chunks(4).map(|chunk| format!("  {}", chunk.join(" | "))).collect();
    lines.join("\n")
}

/// What was run too seldom for so many sequences.
pub fn too_rare(tally: &Tally) -> Vec<String> {
    let least = TIMES * tally.sequences / FULL;
    let count = |name: &str| tally.names.get(name).copied().unwrap_or_default();
    let rare = NAMES.iter().filter(|name| count(name) < least);
    rare.map(|name| format!("{name}: {} of {least}", count(name))).collect()
}
