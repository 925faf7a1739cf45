use bytes::Bytes;

use super::*;

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
        self.answer(client).unwrap_or(Value::Status("(none)"))
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
