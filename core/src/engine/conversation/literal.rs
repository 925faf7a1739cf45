//! Replies as a person writes them.
//!
//! `+PONG` a status, `-ERR text` a refusal (to the end of the line), `:5` a number, `_` nil, `"text"` or a bare word
//! bytes, `[a b]` an array, `{k v}` a map, `>[a b]` a push. And short forms for the long answers:
//! `info run=R role=master version=7.2.0 loading=0`; `entries p0 1-1=body 2-1=body p1 … r0 3-1@2=body` for a
//! read, where r0 is the retry stream of the group `billing` and @2 the attempt;
//! `claimed 1-1#3=body cursor=(1-1 dead=5-1 lost=6-1`; `consumers NAME:PENDING:IDLE_MS …`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::reply::{Reply, ReplyBuilder};

pub(super) fn reply(text: &str) -> Reply {
    let mut build = ReplyBuilder::new();
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    match word {
        "info" => {
            build.bulk(info(rest).as_bytes());
        }
        "entries" => entries(rest, &mut build),
        "claimed" => claimed(rest, &mut build),
        "consumers" => consumers(rest, &mut build),
        _ if text.starts_with('-') => {
            build.error(&text[1..]);
        }
        _ => {
            let tokens = tokens(text);
            let rest = value(&tokens, &mut build);
            assert!(rest.is_empty(), "after the end of {text:?}: {rest:?}");
        }
    }
    build.finish()
}

/// `INFO`'s text: what is not said is that of a healthy master.
fn info(text: &str) -> String {
    let mut facts = alloc::vec![("run", "run-0"), ("version", "7.2.0"), ("role", "master"), ("loading", "0")];
    facts.extend(text.split_whitespace().filter_map(|fact| fact.split_once('=')));
    let mut lines = String::from("# Server\r\n");
    for (name, value) in facts {
        let name = match name {
            "run" => "run_id",
            "version" => "redis_version",
            other => other,
        };
        lines += &format!("{name}:{value}\r\n");
    }
    lines
}

fn entries(text: &str, build: &mut ReplyBuilder) {
    let mut streams: Vec<(String, Vec<(&str, &str)>)> = Vec::new();
    for word in text.split_whitespace() {
        match (word.split_once('='), streams.last_mut()) {
            (Some(entry), Some((_, entries))) => entries.push(entry),
            _ => streams.push((stream(word), Vec::new())),
        }
    }
    build.map(streams.len() as u32);
    for (key, entries) in streams {
        build.bulk(key.as_bytes()).array(entries.len() as u32);
        for (id, body) in entries {
            let (id, attempt) = id.split_once('@').unwrap_or((id, ""));
            build.array(2).bulk(id.as_bytes());
            if attempt.is_empty() {
                fields(body, build);
            } else {
                build.array(4).bulk(b"payload").bulk(body.as_bytes()).bulk(b"attempt").bulk(attempt.as_bytes());
            }
        }
    }
}

fn stream(name: &str) -> String {
    match name.strip_prefix('r') {
        Some(partition) => format!("stream:topic:orders:p:{partition}:retry:billing"),
        None => format!("stream:topic:orders:p:{}", name.trim_start_matches('p')),
    }
}

fn fields(body: &str, build: &mut ReplyBuilder) {
    build.array(4).bulk(b"payload").bulk(body.as_bytes()).bulk(b"id").bulk(b"018bcfe5-6800-7000-8000-000000000000");
}

fn claimed(text: &str, build: &mut ReplyBuilder) {
    let (mut cursor, mut got, mut dead, mut lost) = ("", Vec::new(), Vec::new(), Vec::new());
    for word in text.split_whitespace() {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match name {
            "cursor" => cursor = value,
            "dead" => dead.push(value),
            "lost" => lost.push(value),
            entry => {
                let (id, deliveries) = entry.split_once('#').unwrap_or((entry, "1"));
                got.push((id, deliveries.parse::<i64>().expect("a count after #"), value));
            }
        }
    }
    build.array(4).bulk(cursor.as_bytes()).array(got.len() as u32);
    for (id, deliveries, body) in got {
        build.array(3).bulk(id.as_bytes()).int(deliveries);
        fields(body, build);
    }
    for ids in [dead, lost] {
        build.array(ids.len() as u32);
        for id in ids {
            build.bulk(id.as_bytes());
        }
    }
}

fn consumers(text: &str, build: &mut ReplyBuilder) {
    let all: Vec<&str> = text.split_whitespace().collect();
    build.array(all.len() as u32);
    for consumer in all {
        let mut parts = consumer.split(':');
        let name = parts.next().unwrap_or("");
        let mut number = || parts.next().and_then(|n| n.parse().ok()).expect("NAME:PENDING:IDLE_MS");
        let (pending, idle) = (number(), number());
        build.map(3).bulk(b"name").bulk(super::runner::real_name(name).as_bytes());
        build.bulk(b"pending").int(pending).bulk(b"idle").int(idle);
    }
}

fn tokens(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ' ' => {}
            '[' | ']' | '{' | '}' => all.push(c.to_string()),
            '>' if chars.peek() == Some(&'[') => {
                chars.next();
                all.push(">[".to_string());
            }
            '"' => all.push(format!("\"{}", chars.by_ref().take_while(|c| *c != '"').collect::<String>())),
            first => {
                let mut word = first.to_string();
                while let Some(c) = chars.next_if(|c| !" []{}".contains(*c)) {
                    word.push(c);
                }
                all.push(word);
            }
        }
    }
    all
}

/// Builds one value and returns what follows it.
fn value<'a>(tokens: &'a [String], build: &mut ReplyBuilder) -> &'a [String] {
    let (first, mut rest) = tokens.split_first().expect("a value");
    let close = match first.as_str() {
        "[" | ">[" => "]",
        "{" => "}",
        "_" => {
            build.nil();
            return rest;
        }
        word => {
            match word.split_at(1) {
                ("+", status) => build.status(status),
                (":", number) => build.int(number.parse().expect("a number after a colon")),
                ("-", error) => build.error(error),
                ("\"", text) => build.bulk(text.as_bytes()),
                _ => build.bulk(word.as_bytes()),
            };
            return rest;
        }
    };
    let count = count(rest, close);
    match first.as_str() {
        "[" => build.array(count),
        "{" => build.map(count / 2),
        _ => build.push(count),
    };
    while rest.first().is_some_and(|token| token != close) {
        rest = value(rest, build);
    }
    rest.get(1..).expect("a closing bracket")
}

/// Values up to the bracket that closes this level.
fn count(tokens: &[String], close: &str) -> u32 {
    let (mut depth, mut values) = (0, 0);
    for token in tokens {
        match token.as_str() {
            token if depth == 0 && token == close => break,
            "]" | "}" => depth -= 1,
            open => {
                values += u32::from(depth == 0);
                depth += i32::from(matches!(open, "[" | "{" | ">["));
            }
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_read_as_they_are_written() {
        assert_eq!(format!("{:?}", reply("[a [:1 _] {k :5}]").view()), "[\"a\", [1, nil], {\"k\": 5}]");
        assert!(matches!(reply("+OK"), Reply::Status(_)));
        assert!(matches!(reply("-ERR no such thing"), Reply::Error(e) if e.text() == "ERR no such thing"));
        assert!(matches!(reply("_"), Reply::Nil));
        assert!(matches!(reply(":-5"), Reply::Int(-5)));
        assert!(reply(">[a b]").is_push());
    }
}
