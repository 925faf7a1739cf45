//! Bodies arrive byte for byte.

use crate::support::{Folder, Redis, redis_is_there, run};

fn bodies() -> Vec<Vec<u8>> {
    let every = (0..=255).collect::<Vec<u8>>();
    vec![
        Vec::new(),
        vec![b'x'],
        every.repeat(4_096),
        every,
        b"a\nb\n\nc\n".to_vec(),
        b"\n".to_vec(),
        b"\r\n\0".to_vec(),
    ]
}

#[test]
fn through_send_and_exec() {
    if !redis_is_there() {
        return;
    }
    let redis = Redis::start();
    let folder = Folder::new();
    let file = folder.path().join("body");
    let exec = format!("cat > {}", file.display());
    for (n, body) in bodies().into_iter().enumerate() {
        run(&["send", "t", "-", "--broker", &redis.address()], &body).succeeded();
        let consume =
            ["consume", "t", "-g", "g", "--broker", &redis.address(), "--max", "1", "--idle", "20", "--exec", &exec];
        run(&consume, b"").succeeded();
        assert!(std::fs::read(&file).unwrap() == body, "body {n} of {} bytes", body.len());
        assert_eq!(redis.pending("t", "g"), 0);
    }
}

#[test]
fn lines_are_messages_without_their_newline() {
    if !redis_is_there() {
        return;
    }
    let redis = Redis::start();
    let at = ["--broker", &redis.address()];
    let send = [&["send", "t", "--json"], &at[..]].concat();
    let said = run(&send, b"one\n\nthree\r\nfour").succeeded();
    assert_eq!(said.json()[0]["sent"], 4);
    assert_eq!(said.json()[0]["failed"], 0);
    assert_eq!(said.json()[0]["by_broker"][&redis.address()], 4);
    assert_eq!(run(&send, b"").succeeded().json()[0]["sent"], 0);

    let consume = [&["consume", "t", "-g", "g", "--max", "4", "--idle", "20"], &at[..]].concat();
    assert_eq!(run(&consume, b"").succeeded().text(), "one\n\nthree\r\nfour\n");
    assert_eq!(redis.pending("t", "g"), 0);
}

#[test]
fn everything_about_a_message_is_told() {
    if !redis_is_there() {
        return;
    }
    let redis = Redis::start();
    let at = ["--broker", &redis.address()];
    let send = ["send", "t", "-", "--key", "customer 42", "--header", "content-type=text/plain", "--header", "n=a=b"];
    run(&[&send, &at[..]].concat(), b"\xff").succeeded();
    let consume = [&["consume", "t", "-g", "one", "--max", "1", "--json"], &at[..]].concat();
    let line = run(&consume, b"").succeeded().json().remove(0);
    assert_eq!(line["body"], serde_json::json!({"base64": "/w=="}));
    assert_eq!((&line["topic"], &line["group"]), (&"t".into(), &"one".into()));
    assert_eq!(line["broker"], redis.address());
    assert_eq!(line["key"], "customer 42");
    assert_eq!(line["headers"], serde_json::json!({"content-type": "text/plain", "n": "a=b"}));
    assert_eq!([&line["partition"], &line["attempt"], &line["deliveries"]], [0, 1, 1]);
    assert_eq!(line["id"].as_str().unwrap().len(), 36);
    assert!(line["entry"].as_str().unwrap().contains('-'));

    let exec = "env | grep ^FLOTA_ | sort";
    let mut command = crate::support::flota(&["consume", "t", "-g", "two", "--max", "1", "--exec", exec]);
    command
        .env("FLOTA_BROKERS", redis.address())
        .env("FLOTA_PASSWORD", "")
        .env("FLOTA_HEADER_OLD", "x")
        .env("FLOTA_FENCE", "x");
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let variables: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once('=')).collect();
    let names: Vec<&str> = variables.iter().map(|(name, _)| *name).collect();
    let expected = [
        "FLOTA_ATTEMPT",
        "FLOTA_BROKER",
        "FLOTA_BROKERS",
        "FLOTA_DELIVERIES",
        "FLOTA_ENTRY",
        "FLOTA_GROUP",
        "FLOTA_HEADER_CONTENT_TYPE",
        "FLOTA_HEADER_N",
        "FLOTA_ID",
        "FLOTA_KEY",
        "FLOTA_PARTITION",
        "FLOTA_TOPIC",
    ];
    assert_eq!(names, expected, "{text}");
    let value = |name| variables.iter().find(|(found, _)| *found == name).unwrap().1;
    assert_eq!((value("FLOTA_KEY"), value("FLOTA_GROUP")), ("customer 42", "two"));
    assert_eq!(value("FLOTA_HEADER_CONTENT_TYPE"), "text/plain");
    assert_eq!(value("FLOTA_ID"), line["id"]);
    assert_eq!(value("FLOTA_ENTRY"), line["entry"]);
}

#[test]
fn credentials_open_the_broker_and_do_not_reach_commands() {
    if !redis_is_there() {
        return;
    }
    let redis = Redis::with(crate::support::free_tcp_port(), &["--requirepass", "open sesame"]);
    let folder = Folder::new();
    let file = folder.path().join("password");
    std::fs::write(&file, "open sesame\n").unwrap();
    let file = file.display().to_string();
    let address = redis.address();
    run(&["send", "t", "x", "--broker", &address, "--password-file", &file], b"").succeeded();
    let exec = "env | grep -c -e sesame -e FLOTA_PASSWORD -e FLOTA_USER";
    let mut command = crate::support::flota(&["consume", "t", "-g", "g", "--max", "1", "--exec", exec]);
    command.env("FLOTA_BROKERS", &address).env("FLOTA_PASSWORD", "open sesame").env("FLOTA_USER", "default");
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"0\n"[..]), "{output:?}");
}
