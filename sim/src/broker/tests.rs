use bytes::Bytes;

use super::*;

mod replay;
mod versions;

/// A broker, its time, and what it answered.
struct Bench {
    broker: Broker,
    at: ServerTime,
    out: Vec<Out>,
}

impl Bench {
    fn new() -> Self {
        Self::with(Profile::redis_7_0())
    }

    fn with(profile: Profile) -> Self {
        let mut broker = Broker::new(profile, "0123456789012345678901234567890123456789");
        let at = ServerTime(1_700_000_000_000_000);
        broker.keep_log(true);
        for client in 1..=4 {
            broker.connect(at, ClientId(client), &format!("127.0.0.1:{}", 50_000 + client));
        }
        Self { broker, at, out: Vec::new() }
    }

    fn send(&mut self, client: u64, command: &str) {
        let args = words(command);
        self.broker.execute(self.at, ClientId(client), &args, &mut self.out);
    }

    /// Sends a command and returns what the same connection is answered; anything else stays in `out`.
    fn ask(&mut self, client: u64, command: &str) -> Value {
        self.send(client, command);
        self.answer(client).unwrap_or(Value::status("(none)"))
    }

    fn answer(&mut self, client: u64) -> Option<Value> {
        let place = self.out.iter().position(|out| matches!(out, Out::Reply(to, _) if to.0 == client))?;
        match self.out.remove(place) {
            Out::Reply(_, value) => Some(value),
            Out::Close(_) => None,
        }
    }

    fn pass_ms(&mut self, ms: u64) {
        self.at.0 += ms * 1_000;
    }
}

fn words(command: &str) -> Vec<Bytes> {
    command.split(' ').map(|word| Bytes::from(word.to_string())).collect()
}

fn bulk(text: &str) -> Value {
    Value::bulk(text.to_string())
}

fn error(text: &str) -> Value {
    Value::error(text)
}

#[test]
fn a_string_is_kept_until_its_time_is_over() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask(1, "SET k v NX PX 100"), Value::OK);
    assert_eq!(bench.ask(1, "SET k w NX PX 100"), Value::Nil);
    bench.pass_ms(99);
    assert_eq!(bench.ask(2, "get k"), bulk("v"));
    assert_eq!(bench.ask(2, "DBSIZE"), Value::Int(1));
    bench.pass_ms(1);
    assert_eq!(bench.ask(2, "DBSIZE"), Value::Int(0));
    assert_eq!(bench.ask(2, "GET k"), Value::Nil);
    assert_eq!(bench.ask(2, "TTL k"), Value::Int(-2));
}

#[test]
fn unknown_commands_are_refused_in_the_servers_words_and_noted() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask(1, "FOO a b"), error("ERR unknown command 'FOO', with args beginning with: 'a' 'b' "));
    assert_eq!(bench.ask(1, "client foo"), error("ERR unknown subcommand 'foo'. Try CLIENT HELP."));
    assert_eq!(bench.ask(1, "get"), error("ERR wrong number of arguments for 'get' command"));
    assert_eq!(bench.ask(1, "client id x"), error("ERR wrong number of arguments for 'client|id' command"));
    assert_eq!(bench.broker.gaps(), ["FOO a", "client foo"]);
}

fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) | Value::Verbatim(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    }
}

fn pair(key: &str, value: &str) -> Value {
    Value::Array(vec![bulk(key), bulk(value)])
}

#[test]
fn waiting_connections_are_served_first_come_first_served() {
    let mut bench = Bench::new();
    bench.send(1, "BLPOP k 0");
    bench.send(2, "BLPOP k 0");
    assert!(bench.broker.is_blocked(ClientId(1)) && bench.broker.is_blocked(ClientId(2)));
    // The push sees its value in the list; nothing of it is left afterwards.
    assert_eq!(bench.ask(3, "RPUSH k a"), Value::Int(1));
    assert_eq!(bench.answer(1), Some(pair("k", "a")));
    assert_eq!(bench.ask(3, "EXPIRE k 10"), Value::Int(0));
    assert!(bench.broker.is_blocked(ClientId(2)));
    assert_eq!(bench.ask(3, "RPUSH k b c"), Value::Int(2));
    assert_eq!(bench.answer(2), Some(pair("k", "b")));
    assert_eq!(bench.ask(3, "LRANGE k 0 -1"), Value::Array(vec![bulk("c")]));
}

#[test]
fn inside_a_transaction_who_waits_is_served_afterwards_in_the_order_keys_became_ready() {
    let mut bench = Bench::new();
    bench.send(1, "BLPOP k1 k2 0");
    bench.send(2, "BLPOP k1 k2 0");
    for command in ["MULTI", "RPUSH k2 b", "RPUSH k1 a", "EXPIRE k1 9", "EXEC"] {
        bench.send(3, command);
    }
    let served = [Out::Reply(ClientId(1), pair("k2", "b")), Out::Reply(ClientId(2), pair("k1", "a"))];
    assert_eq!(bench.out[bench.out.len() - 2..], served);
    let exec = Value::Array(vec![Value::Int(1), Value::Int(1), Value::Int(1)]);
    assert!(bench.out.contains(&Out::Reply(ClientId(3), exec)));
}

#[test]
fn from_7_2_the_whole_command_runs_again_when_one_key_is_ready() {
    let mut bench = Bench::with(Profile::valkey_8_1());
    bench.send(1, "BLPOP k1 k2 0");
    for command in ["MULTI", "RPUSH k2 b", "RPUSH k1 a", "EXEC"] {
        bench.send(3, command);
    }
    assert_eq!(bench.answer(1), Some(pair("k1", "a")));
}

#[test]
fn a_key_that_becomes_something_else_leaves_its_waiters_waiting() {
    let mut bench = Bench::new();
    bench.send(1, "BLPOP k 0");
    assert_eq!(bench.ask(2, "SET k v"), Value::OK);
    assert!(bench.broker.is_blocked(ClientId(1)));
    bench.send(2, "DEL k");
    bench.send(2, "RPUSH k a");
    assert_eq!(bench.answer(1), Some(pair("k", "a")));
}

#[test]
fn a_move_that_is_served_makes_its_target_ready() {
    let mut bench = Bench::new();
    bench.send(1, "BLMOVE a b LEFT RIGHT 0");
    bench.send(2, "BLPOP b 0");
    bench.send(3, "RPUSH a x");
    assert_eq!(bench.answer(1), Some(bulk("x")));
    assert_eq!(bench.answer(2), Some(pair("b", "x")));
    assert_eq!(bench.answer(3), Some(Value::Int(1)));
    assert_eq!(bench.ask(3, "DBSIZE"), Value::Int(0));
}

#[test]
fn a_wait_ends_when_the_server_looks_not_when_its_time_is_up() {
    let mut bench = Bench::new();
    bench.at.0 += 1;
    bench.send(1, "BLPOP k 0.25");
    bench.send(2, "BLMOVE k l LEFT LEFT 0.1");
    let first = bench.broker.next_tick().unwrap();
    assert_eq!(first.0, bench.at.0 - 1 + 200_000);
    bench.broker.tick(ServerTime(first.0 - 1), &mut bench.out);
    assert_eq!(bench.answer(2), None);
    bench.broker.tick(first, &mut bench.out);
    assert_eq!(bench.answer(2), Some(Value::NilArray));
    assert_eq!(bench.broker.next_tick(), Some(ServerTime(first.0 + 100_000)));
    bench.broker.tick(ServerTime(first.0 + 100_000), &mut bench.out);
    assert_eq!(bench.answer(1), Some(Value::NilArray));
    assert_eq!(bench.broker.next_tick(), None);
}

#[test]
fn others_can_end_a_wait() {
    let mut bench = Bench::new();
    bench.send(1, "BLPOP k 0");
    bench.send(2, "BLPOP k 0");
    bench.send(4, "BLPOP k 0");
    let number = bench.broker.clients[&ClientId(1)].number;
    assert_eq!(bench.ask(3, &format!("CLIENT UNBLOCK {number} ERROR")), Value::Int(1));
    assert_eq!(bench.answer(1), Some(error("UNBLOCKED client unblocked via CLIENT UNBLOCK")));
    assert_eq!(bench.ask(3, &format!("CLIENT UNBLOCK {number}")), Value::Int(0));
    assert_eq!(bench.ask(3, "CLIENT KILL 127.0.0.1:50002"), Value::OK);
    assert!(bench.out.contains(&Out::Close(ClientId(2))));
    bench.send(3, "RPUSH k a");
    assert_eq!(bench.answer(4), Some(pair("k", "a")));
    assert_eq!(bench.answer(2), None);
}

#[test]
fn a_transaction_is_all_or_nothing() {
    let mut bench = Bench::new();
    bench.send(1, "MULTI");
    assert_eq!(bench.ask(1, "MULTI"), Value::OK);
    assert_eq!(bench.answer(1), Some(error("ERR MULTI calls can not be nested")));
    assert_eq!(bench.ask(1, "SET k v"), Value::status("QUEUED"));
    assert_eq!(bench.ask(1, "BLPOP l 0"), Value::status("QUEUED"));
    assert_eq!(bench.ask(1, "LPUSH k x"), Value::status("QUEUED"));
    let wrong = error("WRONGTYPE Operation against a key holding the wrong kind of value");
    assert_eq!(bench.ask(1, "EXEC"), Value::Array(vec![Value::OK, Value::NilArray, wrong]));
    bench.send(1, "MULTI");
    bench.send(1, "SET k w");
    bench.send(1, "GET");
    bench.out.clear();
    assert_eq!(bench.ask(1, "EXEC"), error("EXECABORT Transaction discarded because of previous errors."));
    assert_eq!(bench.ask(1, "GET k"), bulk("v"));
    assert_eq!(bench.ask(1, "EXEC"), error("ERR EXEC without MULTI"));
}

#[test]
fn what_is_watched_and_changed_or_expired_stops_the_transaction() {
    let mut bench = Bench::new();
    let run = |bench: &mut Bench, between: &str| {
        bench.send(1, "SET k v PX 50");
        bench.send(1, "WATCH k other");
        bench.send(2, between);
        bench.send(1, "MULTI");
        bench.send(1, "ECHO hello");
        bench.out.clear();
        bench.ask(1, "EXEC")
    };
    assert_eq!(run(&mut bench, "GET k"), Value::Array(vec![bulk("hello")]));
    assert_eq!(run(&mut bench, "SET k v"), Value::NilArray);
    assert_eq!(run(&mut bench, "SADD other x"), Value::NilArray);
    assert_eq!(run(&mut bench, "FLUSHALL"), Value::NilArray);
    bench.send(1, "SET k v PX 50");
    bench.send(1, "WATCH k");
    bench.pass_ms(60);
    bench.send(1, "MULTI");
    bench.out.clear();
    assert_eq!(bench.ask(1, "EXEC"), Value::NilArray);
    assert!(bench.broker.db.watched.is_empty());
}

#[test]
fn conditions_refuse_what_a_real_server_refuses() {
    let mut bench = Bench::new();
    bench.broker.set_condition(Condition { loading: true, ..Condition::default() });
    let loading = error("LOADING Redis is loading the dataset in memory");
    assert_eq!(bench.ask(1, "PING"), loading);
    assert_eq!(bench.ask(1, "GET k"), loading);
    assert_eq!(bench.ask(1, "CLIENT ID"), Value::Int(1));
    assert!(text(&bench.ask(1, "INFO")).contains("\r\nloading:1\r\n"));
    bench.broker.set_condition(Condition { read_only: true, ..Condition::default() });
    assert_eq!(bench.ask(1, "SET k v"), error("READONLY You can't write against a read only replica."));
    assert_eq!(bench.ask(1, "PING"), Value::status("PONG"));
    assert!(text(&bench.ask(1, "INFO replication")).contains("role:slave"));
    bench.broker.set_condition(Condition { misconf: true, ..Condition::default() });
    assert!(text(&bench.ask(1, "PING")).contains("MISCONF"));
    assert_eq!(bench.ask(1, "GET k"), Value::Nil);
    bench.broker.set_condition(Condition::default());
    assert_eq!(bench.ask(1, "SET k v"), Value::OK);
    bench.broker.set_memory_max(1);
    let oom = error("OOM command not allowed when used memory > 'maxmemory'.");
    assert_eq!(bench.ask(1, "SET k w"), oom);
    bench.send(1, "MULTI");
    bench.out.clear();
    assert_eq!(bench.ask(1, "GET k"), oom);
    assert_eq!(bench.ask(1, "EXEC"), error("EXECABORT Transaction discarded because of previous errors."));
    assert_eq!(bench.ask(1, "DEL k"), Value::Int(1));
    assert_eq!(bench.ask(1, "SET k w"), Value::OK);
}

#[test]
fn who_has_not_said_the_password_may_do_nothing_else() {
    let profile = Profile { password: Some("secret".into()), clients_max: 4, ..Profile::redis_7_0() };
    let mut bench = Bench::with(profile);
    assert_eq!(bench.ask(1, "PING"), error("NOAUTH Authentication required."));
    assert!(text(&bench.ask(1, "HELLO 3")).contains("NOAUTH HELLO must be called"));
    assert_eq!(
        bench.ask(1, "HELLO 3 AUTH default wrong"),
        error("WRONGPASS invalid username-password pair or user is disabled.")
    );
    assert!(matches!(bench.ask(1, "HELLO 3 AUTH default secret SETNAME me"), Value::Map(_)));
    assert_eq!(bench.broker.resp(ClientId(1)), 3);
    assert_eq!(bench.ask(1, "CLIENT GETNAME"), bulk("me"));
    assert_eq!(bench.ask(2, "AUTH secret"), Value::OK);
    let refused = bench.broker.connect(bench.at, ClientId(9), "127.0.0.1:1");
    assert_eq!(refused, Some(error("ERR max number of clients reached")));
    bench.broker.disconnect(bench.at, ClientId(2));
    assert_eq!(bench.broker.connect(bench.at, ClientId(9), "127.0.0.1:1"), None);
}

#[test]
fn published_messages_reach_subscribers() {
    let mut bench = Bench::new();
    bench.send(1, "SUBSCRIBE a b");
    assert_eq!(bench.out.len(), 2);
    bench.send(2, "PSUBSCRIBE a*");
    bench.out.clear();
    assert_eq!(bench.ask(3, "PUBLISH a hello"), Value::Int(2));
    assert_eq!(bench.answer(1), Some(Value::Push(vec![bulk("message"), bulk("a"), bulk("hello")])));
    assert_eq!(bench.answer(2), Some(Value::Push(vec![bulk("pmessage"), bulk("a*"), bulk("a"), bulk("hello")])));
    assert!(text(&bench.ask(1, "GET k")).contains("ERR Can't execute 'get'"));
    assert_eq!(bench.ask(1, "PING"), Value::Array(vec![bulk("pong"), bulk("")]));
    bench.send(1, "UNSUBSCRIBE");
    bench.out.clear();
    assert_eq!(bench.ask(1, "GET k"), Value::Nil);
    bench.broker.disconnect(bench.at, ClientId(2));
    assert_eq!(bench.ask(3, "PUBLISH a hello"), Value::Int(0));
}

#[test]
fn a_restart_keeps_the_data_and_nothing_else() {
    let mut bench = Bench::new();
    bench.send(1, "SET k v");
    bench.send(1, "WATCH k");
    bench.send(2, "BLPOP l 0");
    bench.send(3, "SCRIPT LOAD x");
    bench.broker.restart("ffff");
    assert!(!bench.broker.is_blocked(ClientId(2)));
    bench.out.clear();
    bench.send(1, "GET k");
    assert_eq!(bench.out, []);
    bench.broker.connect(bench.at, ClientId(7), "127.0.0.1:7");
    assert_eq!(bench.ask(7, "GET k"), bulk("v"));
    assert_eq!(bench.ask(7, "CLIENT ID"), Value::Int(1));
    assert!(text(&bench.ask(7, "INFO server")).contains("run_id:ffff\r\n"));
    let digest = "11f6ad8ec52a2984abaafd7c3b516503785c2072";
    assert_eq!(bench.ask(7, &format!("SCRIPT EXISTS {digest}")), Value::Array(vec![Value::Int(0)]));
}

#[test]
fn an_iteration_meets_every_key_that_is_there_throughout() {
    let mut bench = Bench::new();
    for number in 0..40 {
        bench.send(1, &format!("SET key{number} v"));
    }
    bench.out.clear();
    let (mut cursor, mut met) = ("0".to_string(), Vec::new());
    for turn in 0.. {
        let Value::Array(parts) = bench.ask(1, &format!("SCAN {cursor} COUNT 3 MATCH key*")) else { panic!() };
        let Value::Array(keys) = &parts[1] else { panic!() };
        met.extend(keys.iter().map(text));
        cursor = text(&parts[0]);
        if cursor == "0" {
            break;
        }
        bench.send(2, &format!("DEL key{turn}"));
        bench.send(2, &format!("SET new{turn} v"));
    }
    for number in 20..40 {
        assert_eq!(met.iter().filter(|key| **key == format!("key{number}")).count(), 1);
    }
}

#[test]
fn patterns_match_as_in_a_real_server() {
    use super::commands::matches_glob;
    for (pattern, text, expected) in [
        ("*", "", true),
        ("a*c", "abbc", true),
        ("a*c", "abbd", false),
        ("a?c", "abc", true),
        ("[a-c]x", "bx", true),
        ("[^a-c]x", "bx", false),
        ("\\*", "*", true),
        ("\\*", "a", false),
        ("h*llo*", "heeello there", true),
        ("[a", "a", true),
    ] {
        assert_eq!(matches_glob(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
    }
}

#[test]
fn a_server_that_becomes_a_replica_ends_all_waits() {
    let mut bench = Bench::new();
    bench.send(1, "BLPOP k 0");
    bench.broker.set_condition(Condition { read_only: true, ..Condition::default() });
    assert!(bench.broker.next_tick().is_some_and(|due| due <= bench.at));
    bench.broker.tick(bench.at, &mut bench.out);
    assert!(text(&bench.answer(1).unwrap()).contains("UNBLOCKED"));
    assert_eq!(bench.out, [Out::Close(ClientId(1))]);
    assert_eq!(bench.broker.next_tick(), None);
}

#[test]
fn an_evicted_key_is_gone_for_the_log_too() {
    let mut bench = Bench::new();
    bench.send(1, "SET k v");
    bench.send(1, "WATCH k");
    assert!(bench.broker.evict(bench.at, &Bytes::from_static(b"k"), &mut bench.out));
    bench.send(1, "MULTI");
    bench.out.clear();
    assert_eq!(bench.ask(1, "EXEC"), Value::NilArray);
    let log: Vec<Vec<Bytes>> = bench.broker.take_log().into_iter().map(|logged| logged.args).collect();
    assert_eq!(log, [words("SET k v"), words("DEL k")]);
}
