//! What is announced and cannot be used: `watch` names the reason.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use crate::support::{Redis, Running, everybody, flota, free_tcp_port, free_udp_port, redis_is_there, shout, up};

/// The reason that `watch --json` gives for a server, announced until it does, as it is to those who watch.
fn reason(server: SocketAddr, variables: &[(&str, &str)]) -> (String, String) {
    let port = free_udp_port();
    let mut command = flota(&["watch", "--json", "--discover", &everybody(port)]);
    command.envs(variables.iter().copied());
    let watch = Running::of(command);
    let found = thread::scope(|scope| {
        let found = scope.spawn(|| watch.until(|line| line["event"] == "unready"));
        while !found.is_finished() {
            shout(port, &up(server, 1));
            thread::sleep(std::time::Duration::from_millis(50));
        }
        found.join().unwrap()
    });
    assert_eq!(found["address"], server.to_string());
    assert!(found["at_ms"].is_u64() && found["guid"].is_string());
    assert!(watch.lines().first().unwrap().contains("\"announced\""), "{:?}", watch.lines());
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_string();
    (text("reason"), text("detail"))
}

/// A server that does this with each connection.
fn fake(serve: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, free_tcp_port())).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    address
}

#[test]
fn a_closed_port() {
    let closed = (Ipv4Addr::LOCALHOST, free_tcp_port()).into();
    assert_eq!(reason(closed, &[]).0, "refused");
}

#[test]
fn a_black_hole() {
    let hole = fake(|mut stream| while stream.read(&mut [0; 1024]).is_ok_and(|read| read > 0) {});
    assert_eq!(reason(hole, &[]).0, "timeout");
}

#[test]
fn one_that_closes_at_once() {
    assert_eq!(reason(fake(drop), &[]).0, "closed");
}

#[test]
fn a_web_server() {
    let web = fake(|mut stream| {
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    });
    assert_eq!(reason(web, &[]).0, "not_redis");
}

#[test]
fn one_that_is_loading() {
    let loading = fake(|stream| {
        let mut input = BufReader::new(stream.try_clone().unwrap());
        let mut output = stream;
        while let Some(words) = command(&mut input) {
            let answer = match words[0].as_str() {
                "HELLO" => "%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$4\r\nrole\r\n$6\r\nmaster\r\n".to_string(),
                "CLIENT" => ":1\r\n".to_string(),
                "INFO" => {
                    let info = format!("run_id:{}\r\nrole:master\r\nloading:1\r\n", "a".repeat(40));
                    format!("${}\r\n{info}\r\n", info.len())
                }
                _ => "-LOADING Redis is loading the dataset in memory\r\n".to_string(),
            };
            if output.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    assert_eq!(reason(loading, &[]).0, "loading");
}

fn command(input: &mut impl BufRead) -> Option<Vec<String>> {
    let mut line = String::new();
    let mut number = |input: &mut dyn BufRead| {
        line.clear();
        input.read_line(&mut line).ok().filter(|read| *read > 0)?;
        line.trim_end().get(1..)?.parse::<usize>().ok()
    };
    let words = number(input)?;
    (0..words)
        .map(|_| {
            let bytes = number(input)?;
            let mut word = vec![0; bytes + 2];
            input.read_exact(&mut word).ok()?;
            Some(String::from_utf8_lossy(&word[..bytes]).to_uppercase())
        })
        .collect()
}

#[test]
fn a_replica() {
    if !redis_is_there() {
        return;
    }
    let master = Redis::start();
    let replica = Redis::with(free_tcp_port(), &["--replicaof", &format!("127.0.0.1 {}", master.address.port())]);
    assert_eq!(reason(replica.address, &[]).0, "replica");
}

#[test]
fn a_wrong_password() {
    if !redis_is_there() {
        return;
    }
    let redis = Redis::with(free_tcp_port(), &["--requirepass", "right"]);
    assert_eq!(reason(redis.address, &[]).0, "auth");
    let (reason, detail) = reason(redis.address, &[("FLOTA_PASSWORD", "wrong")]);
    assert_eq!(reason, "auth");
    assert!(detail.contains("WRONGPASS") && !detail.contains("wrong\""), "{detail}");
}
