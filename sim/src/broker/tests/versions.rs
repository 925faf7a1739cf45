//! What the comparison with real servers found, one test each. The replies are those the servers gave.

use super::*;
use crate::wire::encode;

const OLD: fn() -> Profile = Profile::redis_6_2;
const SEVEN: fn() -> Profile = Profile::redis_7_0;
const VALKEY: fn() -> Profile = Profile::valkey_8_1;

/// A value as it is written in RESP2.
fn written(value: &Value) -> String {
    let mut bytes = Vec::new();
    encode(value, 2, &mut bytes);
    String::from_utf8_lossy(&bytes).replace("\r\n", "|")
}

/// Runs commands of connection 1 and returns what it is sent at the last one, as text.
fn last(profile: fn() -> Profile, commands: &[&str]) -> String {
    let mut bench = Bench::with(profile());
    let mut bytes = Vec::new();
    for command in commands {
        bench.out.clear();
        bench.send(1, command);
    }
    for out in &bench.out {
        if let Out::Reply(ClientId(1), value) = out {
            encode(value, bench.broker.resp(ClientId(1)), &mut bytes);
        }
    }
    String::from_utf8_lossy(&bytes).replace("\r\n", "|")
}

#[test]
fn a_score_has_17_digits_before_7_2_and_the_shortest_since() {
    for (score, older, newer) in [
        ("0.1", "$19|0.10000000000000001|", "$3|0.1|"),
        ("12345678901234567890", "$22|1.2345678901234567e+19|", "$20|12345678901234567000|"),
    ] {
        let add = format!("ZADD z {score} m");
        assert_eq!(last(OLD, &[&add, "ZSCORE z m"]), older);
        assert_eq!(last(SEVEN, &[&add, "ZSCORE z m"]), older);
        assert_eq!(last(VALKEY, &[&add, "ZSCORE z m"]), newer);
    }
}

#[test]
fn a_bracket_without_a_number_is_exclusive_zero() {
    for profile in [OLD, SEVEN, VALKEY] {
        let add = "ZADD z 0 zero 1 one";
        assert_eq!(last(profile, &[add, "ZRANGEBYSCORE z ( 5"]), "*1|$3|one|");
        assert!(last(profile, &[add, "ZRANGEBYSCORE z (x 5"]).starts_with("-ERR min or max is not a float"));
    }
}

#[test]
fn an_unknown_name_is_repeated_up_to_its_first_zero() {
    let text = "-ERR unknown command 'bogus', with args beginning with: 'a' |";
    assert_eq!(last(SEVEN, &["bogus a\0b"]), text);
}

#[test]
fn hello_refuses_a_name_first_or_the_password_first_by_version() {
    let command = "HELLO 3 AUTH nobody secret SETNAME \x01";
    assert!(last(SEVEN, &[command]).starts_with("-WRONGPASS"));
    assert!(last(OLD, &[command]).starts_with("-WRONGPASS"));
    assert!(last(VALKEY, &[command]).starts_with("-ERR Client names"));
}

#[test]
fn hello_tells_who_has_not_logged_in_how_to() {
    let say = |profile: Profile| {
        let mut bench = Bench::with(Profile { password: Some("secret".into()), ..profile });
        written(&bench.ask(1, "HELLO 3"))
    };
    assert!(say(OLD()).contains("otherwise the HELLO AUTH <user> <pass> option"));
    assert!(say(SEVEN()).contains("otherwise the HELLO AUTH <user> <pass> option"));
    assert!(say(VALKEY()).contains("otherwise the HELLO <proto> AUTH <user> <pass> option"));
}

#[test]
fn options_of_hello_take_effect_one_by_one_before_7_2() {
    let commands = ["HELLO 3 SETNAME before AUTH nobody secret", "CLIENT GETNAME"];
    assert_eq!(last(SEVEN, &commands), "$6|before|");
    assert_eq!(last(VALKEY, &commands), "$-1|");
}

#[test]
fn exec_of_a_subscriber_is_refused_without_the_code() {
    let text = "-EXECABORT Transaction discarded because of: Can't execute 'exec': only (P|S)SUBSCRIBE / \
                (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context|";
    assert_eq!(last(SEVEN, &["SUBSCRIBE c", "EXEC"]), text);
}

#[test]
fn a_subscriber_of_6_2_is_told_so_without_subcommands_and_shards() {
    let text = "-ERR Can't execute 'client': only (P)SUBSCRIBE / (P)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
                this context|";
    assert_eq!(last(OLD, &["SUBSCRIBE c", "CLIENT ID"]), text);
    assert!(last(SEVEN, &["SUBSCRIBE c", "CLIENT ID"]).starts_with("-ERR Can't execute 'client|id': only (P|S)"));
}

#[test]
fn client_info_shows_the_transaction_that_is_executed() {
    let text = last(SEVEN, &["MULTI", "PING", "CLIENT INFO", "EXEC"]);
    assert!(text.contains(" flags=x ") && text.contains(" multi=2 "), "{text}");
    let text = last(SEVEN, &["MULTI", "PING", "EXEC", "CLIENT INFO"]);
    assert!(text.contains(" flags=N ") && text.contains(" multi=-1 "), "{text}");
}

#[test]
fn client_info_shows_a_subscriber_and_a_touched_watch() {
    let text = last(SEVEN, &["HELLO 3", "SUBSCRIBE c", "WATCH k", "SET k v", "CLIENT INFO"]);
    assert!(text.contains(" flags=Pd "), "{text}");
    let text = last(SEVEN, &["WATCH k", "SET k v", "UNWATCH", "CLIENT INFO"]);
    assert!(text.contains(" flags=N "), "{text}");
}

#[test]
fn a_spoiled_transaction_keeps_no_commands() {
    let mut bench = Bench::new();
    for command in ["MULTI", "PING", "bogus", "PING"] {
        bench.send(1, command);
    }
    let Value::Verbatim(text) = bench.ask(2, "CLIENT LIST") else { panic!() };
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(
        text.lines().any(|line| line.starts_with("id=1 ") && line.contains(" flags=x ") && line.contains(" multi=1 "))
    );
}

#[test]
fn a_transaction_whose_keys_have_changed_keeps_no_commands_since_7_0() {
    for (profile, queued) in [(OLD(), " multi=1 "), (SEVEN(), " multi=0 "), (VALKEY(), " multi=0 ")] {
        let mut bench = Bench::with(profile);
        for (client, command) in [(1, "WATCH k"), (1, "MULTI"), (2, "SET k v"), (1, "PING")] {
            bench.send(client, command);
            bench.out.clear();
        }
        let Value::Verbatim(text) = bench.ask(2, "CLIENT LIST") else { panic!() };
        let text = String::from_utf8_lossy(&text).into_owned();
        let line = text.lines().find(|line| line.starts_with("id=1 ")).unwrap();
        assert!(line.contains(" flags=xd ") && line.contains(queued), "{line}");
    }
}

#[test]
fn xautoclaim_of_6_2_takes_any_count() {
    let commands = ["XGROUP CREATE s g 0 MKSTREAM", "XAUTOCLAIM s g c 0 0 COUNT 9223372036854775807"];
    assert_eq!(last(OLD, &commands), "*2|$3|0-0|*0|");
    assert_eq!(last(SEVEN, &commands), "-ERR COUNT must be > 0|");
}

#[test]
fn multi_and_watch_in_a_transaction_spoil_it_since_7_2() {
    for command in ["MULTI", "WATCH k"] {
        assert_eq!(last(VALKEY, &["MULTI", command]), "-ERR Command not allowed inside a transaction|");
        assert!(last(VALKEY, &["MULTI", command, "EXEC"]).starts_with("-EXECABORT"));
        assert_eq!(last(SEVEN, &["MULTI", command, "EXEC"]), "*0|");
    }
}

#[test]
fn who_publishes_to_itself_has_the_reply_first_since_7_2() {
    let message = ">3|$7|message|$1|c|$1|m|";
    assert_eq!(last(SEVEN, &["HELLO 3", "SUBSCRIBE c", "PUBLISH c m"]), format!("{message}:1|"));
    assert_eq!(last(VALKEY, &["HELLO 3", "SUBSCRIBE c", "PUBLISH c m"]), format!(":1|{message}"));
}

#[test]
fn client_kill_says_what_is_wrong_with_a_number_by_version() {
    let say = |profile, word: &str| last(profile, &[&format!("CLIENT KILL ID {word}")]);
    assert_eq!(say(OLD, "abc"), "-ERR value is not an integer or out of range|");
    assert_eq!(say(OLD, "0"), ":0|");
    assert_eq!(say(SEVEN, "abc"), "-ERR client-id should be greater than 0|");
    assert_eq!(say(VALKEY, "abc"), "-ERR syntax error|");
    assert_eq!(say(VALKEY, "0"), "-ERR client-id should be greater than 0|");
}

#[test]
fn an_expiry_out_of_range_is_refused_in_other_words_before_7_0() {
    assert_eq!(last(OLD, &["SET k v EX 0"]), "-ERR invalid expire time in set|");
    assert_eq!(last(SEVEN, &["SET k v EX 0"]), "-ERR invalid expire time in 'set' command|");
    assert_eq!(last(OLD, &["SET k v", "PEXPIRE k 9223372036854775807"]), "-ERR invalid expire time in pexpire|");
}

#[test]
fn seconds_wrap_round_in_6_2() {
    assert_eq!(last(OLD, &["SET k v", "EXPIRE k 9223372036854775807"]), ":1|");
    assert_eq!(last(OLD, &["SET k v", "EXPIRE k 9223372036854775807", "TTL k"]), ":-2|");
    assert!(last(SEVEN, &["SET k v", "EXPIRE k 9223372036854775807"]).starts_with("-ERR invalid expire time"));
}

#[test]
fn popping_nothing_is_no_array_whatever_the_key_in_6_2() {
    for before in ["PING", "RPUSH k v", "SET k v"] {
        assert_eq!(last(OLD, &[before, "LPOP k 0"]), "*-1|", "{before}");
    }
    assert_eq!(last(SEVEN, &["RPUSH k v", "LPOP k 0"]), "*0|");
}

#[test]
fn lrem_of_the_least_number_is_refused_since_7_2() {
    let command = "LREM k -9223372036854775808 v";
    assert_eq!(last(SEVEN, &[command]), ":0|");
    assert!(last(VALKEY, &[command]).starts_with("-ERR value is out of range, value must between"));
}

#[test]
fn scan_refuses_a_type_that_valkey_does_not_know() {
    assert_eq!(last(VALKEY, &["SCAN 0 TYPE bogus"]), "-ERR unknown type name 'bogus'|");
    assert_eq!(last(SEVEN, &["SCAN 0 TYPE bogus"]), "*2|$1|0|*0|");
    assert_eq!(last(VALKEY, &["SCAN 0 TYPE STRING"]), "*2|$1|0|*0|");
}

#[test]
fn valkey_says_who_it_is() {
    assert!(last(VALKEY, &["HELLO 2"]).contains("valkey|$7|version|$5|8.1.8|"));
    let text = last(VALKEY, &["INFO server"]);
    assert!(text.contains("server_mode:standalone|") && text.contains("valkey_version:8.1.8|"), "{text}");
    assert!(last(SEVEN, &["INFO server"]).contains("redis_mode:standalone|"));
}

#[test]
fn blocking_commands_on_lists_go_in_scripts_since_7_2() {
    let script = "EVAL return(redis.call('BLPOP',KEYS[1],0)) 1 k";
    assert_eq!(last(VALKEY, &[script]), "$-1|");
    assert!(last(SEVEN, &[script]).starts_with("-ERR This Redis command is not allowed from script"));
}

#[test]
fn a_status_of_a_script_ends_at_its_first_zero() {
    assert_eq!(last(SEVEN, &["EVAL return({ok=ARGV[1]}) 0 a\0b"]), "+a|");
}

#[test]
fn a_script_of_6_2_ends_with_end() {
    let say = |profile| last(profile, &["SCRIPT LOAD return(1)x"]);
    assert_eq!(say(OLD), "-ERR Error compiling script (new function): user_script:1: 'end' expected near 'x'|");
    assert_eq!(say(SEVEN), "-ERR Error compiling script (new function): user_script:1: '<eof>' expected near 'x'|");
}

#[test]
fn trimming_in_6_2_reads_differences_of_ids_as_32_bits() {
    let commands = ["XADD s 4-1 f v", "XADD s 1796010171476-0 f v", "XTRIM s MINID 1796010171476-0"];
    assert_eq!(last(OLD, &commands), ":2|");
    assert_eq!(last(SEVEN, &commands), ":1|");
}

/// What the last command is answered while the memory is full.
fn when_full(profile: fn() -> Profile, commands: &[&str]) -> String {
    let mut bench = Bench::with(profile());
    bench.send(2, "SET ballast x");
    bench.broker.set_memory_max(1);
    commands.iter().map(|command| written(&bench.ask(1, command))).last().unwrap_or_default()
}

#[test]
fn all_of_xgroup_is_refused_when_the_memory_of_6_2_is_full() {
    for command in ["XGROUP DESTROY s g", "XGROUP DELCONSUMER s g c", "XGROUP SETID s g 0"] {
        assert!(when_full(OLD, &[command]).starts_with("-OOM "), "{command}");
        assert!(when_full(SEVEN, &[command]).starts_with("-ERR The XGROUP subcommand requires"), "{command}");
    }
}

#[test]
fn a_transaction_is_refused_as_a_whole_when_the_memory_is_full_before_7_2() {
    assert!(when_full(SEVEN, &["MULTI", "GET k"]).starts_with("-OOM "));
    assert_eq!(when_full(VALKEY, &["MULTI", "GET k"]), "+QUEUED|");
    assert!(when_full(VALKEY, &["MULTI", "SET k v"]).starts_with("-OOM "));
}

#[test]
fn scripts_of_6_2_write_without_replicas() {
    let say = |profile: Profile| {
        let mut bench = Bench::with(profile);
        bench.broker.set_condition(Condition { no_replicas: true, ..Condition::default() });
        written(&bench.ask(1, "EVAL return(redis.call('SET',KEYS[1],'v')) 1 k"))
    };
    assert_eq!(say(OLD()), "+OK|");
    assert!(say(SEVEN()).starts_with("-NOREPLICAS "), "{}", say(SEVEN()));
}

#[test]
fn a_script_of_6_2_sees_the_refusal_with_its_place_its_sign_and_its_end() {
    let script = "EVAL return(redis.pcall('SET',KEYS[1],'v')) 1 k";
    let text = "OOM command not allowed when used memory > 'maxmemory'.|";
    assert_eq!(when_full(OLD, &[script]), format!("-@user_script: 1: -{text}"));
    assert_eq!(when_full(SEVEN, &[script]), format!("-{text}"));
    let script = "EVAL return(redis.pcall('SET',KEYS[1],'v').err) 1 k";
    assert_eq!(when_full(OLD, &[script]), format!("$75|@user_script: 1: -{text}|"));
    let script = "EVAL return(redis.call('SET',KEYS[1],'v')) 1 k";
    let called = when_full(OLD, &[script]);
    assert!(called.ends_with(&format!(": @user_script:1: @user_script: 1: -{text}")), "{called}");
}

#[test]
fn line_ends_of_what_a_script_returns() {
    for profile in [OLD, SEVEN, VALKEY] {
        assert_eq!(last(profile, &["EVAL return{err='a\\r\\nb\\r\\n'} 0"]), "-a  b|");
        assert_eq!(last(profile, &["EVAL return{err='a\\32'} 0"]), "-a |");
        assert_eq!(last(profile, &["EVAL return{ok='a\\r\\n'} 0"]), "+a  |");
    }
}

#[test]
fn an_unknown_checksum_comes_without_advice_in_valkey() {
    let command = "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0";
    assert_eq!(last(SEVEN, &[command]), "-NOSCRIPT No matching script. Please use EVAL.|");
    assert_eq!(last(VALKEY, &[command]), "-NOSCRIPT No matching script.|");
}

#[test]
fn an_error_of_a_script_is_cut_at_its_first_zero_but_names_its_place() {
    let command = "EVAL error('a'..ARGV[1]) 0 b\0c";
    assert_eq!(
        last(SEVEN, &[command]),
        "-ERR user_script:1: ab script: e0108afebcaaa741667ba97073a1cc322646cc87, on @user_script:1.|"
    );
}

#[test]
fn a_spoiled_transaction_of_valkey_is_refused_for_that_only() {
    let mut bench = Bench::with(VALKEY());
    for command in ["MULTI", "SET k v", "bogus"] {
        bench.send(1, command);
    }
    bench.broker.set_condition(Condition { no_replicas: true, ..Condition::default() });
    bench.out.clear();
    assert_eq!(written(&bench.ask(1, "EXEC")), "-EXECABORT Transaction discarded because of previous errors.|");
}

#[test]
fn who_is_killed_is_not_sent_what_the_same_transaction_gave_it() {
    let mut bench = Bench::new();
    for command in ["MULTI", "RPUSH k v", "CLIENT UNBLOCK 2", "CLIENT KILL ID 2"] {
        bench.send(1, command);
    }
    bench.send(2, "BLPOP other 0");
    bench.out.clear();
    bench.send(1, "EXEC");
    assert!(!bench.out.iter().any(|out| matches!(out, Out::Reply(ClientId(2), _))), "{:?}", bench.out);
    assert!(bench.out.contains(&Out::Close(ClientId(2))));
}

#[test]
fn reset_is_for_who_has_logged_in_in_6_2() {
    let say = |profile: Profile| {
        let mut bench = Bench::with(Profile { password: Some("secret".into()), ..profile });
        written(&bench.ask(1, "RESET"))
    };
    assert_eq!(say(OLD()), "-NOAUTH Authentication required.|");
    assert_eq!(say(SEVEN()), "+RESET|");
}

#[test]
fn an_odd_field_is_refused_in_other_words_before_7_0() {
    assert_eq!(last(OLD, &["XADD s * f v odd"]), "-ERR wrong number of arguments for XADD|");
    assert_eq!(last(SEVEN, &["XADD s * f v odd"]), "-ERR wrong number of arguments for 'xadd' command|");
}
