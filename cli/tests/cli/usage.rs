//! Wrong usage, help, and the ends that are not errors.

use std::process::Stdio;

use crate::support::{flota, run};

#[test]
fn wrong_usage_is_2_and_says_what_is_wrong() {
    for (args, what) in [
        (&["send"][..], "<TOPIC>"),
        (&["send", "a:b", "x"], "not a name"),
        (&["send", "t", "x", "--broker", "nowhere"], "HOST:PORT"),
        (&["send", "t", "x", "--allow", "ten"], "10.0.0.0/8"),
        (&["send", "t", "x", "--wait", "soon"], "number of seconds"),
        (&["send", "t", "x", "--delay", "soon"], "number of seconds"),
        (&["consume", "t"], "--group"),
        (&["consume", "t", "--group", "g", "--partitioned"], "not there yet"),
        (&["dlq", "drop", "t"], "<ID>"),
        (&["announce", "--to", "127.255.255.255:1"], "--advertise"),
        (&["send", "t", "x", "--user", "me"], "--password-file"),
    ] {
        let said = run(args, b"");
        assert_eq!((said.code(), said.out.len()), (2, 0), "{args:?} {said:?}");
        assert!(said.err.contains(what), "{args:?} {said:?}");
        let json = run(&[args, &["--json"]].concat(), b"");
        assert_eq!(json.code(), 2, "{args:?} {json:?}");
        let object: serde_json::Value = serde_json::from_str(json.err.lines().last().unwrap()).unwrap();
        assert_eq!(object["error"]["code"], "usage", "{args:?} {json:?}");
    }
}

#[test]
fn the_environment_can_be_wrong_usage_as_well() {
    let output = flota(&["send", "t", "x"]).env("FLOTA_BROKERS", "nowhere").stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn help_and_completion_are_no_errors() {
    let watch = run(&["watch", "--help"], b"").succeeded().text();
    assert!(watch.contains("unicast") && watch.contains("takes datagrams away"), "{watch}");
    assert!(run(&["--version"], b"").succeeded().text().starts_with("flota "));
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(&["completion", shell], b"").succeeded().text().contains("consume"), "{shell}");
    }
}

#[test]
fn a_reader_that_leaves_ends_it_quietly() {
    let mut child =
        flota(&["decode"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{output:?}");
}
