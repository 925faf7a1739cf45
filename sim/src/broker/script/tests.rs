use std::collections::BTreeMap;

use flota_core::script::Script;
use sha1::Digest;

use super::*;

/// A server with strings and one list.
#[derive(Default)]
struct Paper {
    strings: BTreeMap<Bytes, Bytes>,
    calls: Vec<Vec<Bytes>>,
}

impl Host for Paper {
    fn call(&mut self, args: &[Bytes]) -> Value {
        self.calls.push(args.to_vec());
        let words: Vec<_> = args.iter().map(|word| word.as_ref()).collect();
        match words.as_slice() {
            [b"get", b"list"] => Value::error("WRONGTYPE Operation against a key holding the wrong kind of value"),
            [b"get", _] => self.strings.get(&args[1]).map_or(Value::Nil, |text| Value::Bulk(text.clone())),
            [b"set", _, _] => {
                self.strings.insert(args[1].clone(), args[2].clone());
                Value::OK
            }
            [b"ping"] => Value::status("PONG"),
            [b"shapes"] => Value::Array(vec![
                Value::Int(7),
                Value::NilArray,
                Value::Double("0.5".into()),
                Value::Map(vec![(Value::bulk("k"), Value::Array(vec![Value::OK]))]),
            ]),
            _ => Value::error("ERR Unknown Redis command called from script"),
        }
    }
}

fn on(era: Era, host: &mut Paper, text: &str) -> Value {
    let keys = [Bytes::from_static(b"k1"), Bytes::from_static(b"k2")];
    let argv = [Bytes::from_static(b"a1"), Bytes::from_static(b"a2")];
    machine::run(era, host, &Bytes::copy_from_slice(text.as_bytes()), &keys, &argv)
}

fn run(era: Era, text: &str) -> Value {
    on(era, &mut Paper::default(), text)
}

/// A reply in one line; a checksum as `SHA`.
fn shown(value: &Value) -> String {
    match value {
        Value::Nil => "nil".into(),
        Value::Int(n) => n.to_string(),
        Value::Status(text) => format!("+{text}"),
        Value::Bulk(text) => format!("'{}'", text.escape_ascii()),
        Value::Array(all) => format!("[{}]", all.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Value::Error(text) => {
            let word = |word: &str| {
                let sha = word.trim_start_matches("f_").trim_end_matches([')', ':', ',']);
                if sha.len() == 40 { word.replace(sha, "SHA") } else { word.to_string() }
            };
            format!("-{}", text.split(' ').map(word).collect::<Vec<_>>().join(" "))
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn what_scripts_return_is_converted_as_servers_do() {
    for (text, reply) in [
        ("return 3.99", "3"),
        ("return -3.99", "-3"),
        ("return 1e300", "-9223372036854775808"),
        ("return 0/0", "-9223372036854775808"),
        ("return true", "1"),
        ("return false", "nil"),
        ("return", "nil"),
        ("return function() end", "nil"),
        ("return {3.99,-3.99,true,false,'s',{1,{2}}}", "[3 -3 1 nil 's' [1 [2]]]"),
        ("return {1,2,nil,4}", "[1 2]"),
        ("return {1,{},'x',{nil}}", "[1 [] 'x' []]"),
        ("return {err=5}", "[]"),
        ("return {ok='a', 1, 2}", "+a"),
        ("return {err='bla x\\r\\ny'}", "-bla x  y"),
        ("return redis.status_reply('fi\\r\\nne')", "+fi  ne"),
        ("return \"a\\0b\"", "'a\\x00b'"),
        ("return KEYS[1]..ARGV[2]", "'k1a2'"),
        ("return redis.call('ping')", "+PONG"),
        ("return redis.call('ping').ok", "'PONG'"),
        ("return redis.call('shapes')", "[7 nil '0.5' ['k' [+OK]]]"),
        ("return tostring(redis.call('get','no'))", "'false'"),
        ("return redis.pcall('get','list')", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("local t = {} t[1] = t return #t", "1"),
    ] {
        for era in Era::ALL {
            assert_eq!(shown(&run(era, text)), reply, "{era:?}: {text}");
        }
    }
}

/// Each line was asked of 6.2.5 and 7.0.15; `@` stands for what follows the text in the latter.
#[test]
fn errors_read_as_on_a_server() {
    for (text, old, seven) in [
        (
            "return redis.call('get','list')",
            "@user_script:1: WRONGTYPE Operation against a key holding the wrong kind of value",
            "WRONGTYPE Operation against a key holding the wrong kind of value@1",
        ),
        (
            "\nredis.call('get','list')",
            "@user_script:2: WRONGTYPE Operation against a key holding the wrong kind of value",
            "WRONGTYPE Operation against a key holding the wrong kind of value@2",
        ),
        (
            "return redis.call()",
            "@user_script:1: @user_script: 1: Please specify at least one argument for redis.call()",
            "ERR Please specify at least one argument for this redis lib call@1",
        ),
        (
            "return redis.call('set','a',nil)",
            "@user_script:1: @user_script: 1: Lua redis() command arguments must be strings or integers",
            "ERR Lua redis lib command arguments must be strings or integers@1",
        ),
        (
            "return redis.call('nosuch')",
            "@user_script:1: @user_script: 1: Unknown Redis command called from Lua script",
            "ERR Unknown Redis command called from script@1",
        ),
        ("error('boom')", "@user_script:1: user_script:1: boom", "ERR user_script:1: boom@1"),
        ("\n\nerror('boom')", "@user_script:3: user_script:3: boom", "ERR user_script:3: boom@3"),
        ("error('boom\\nline')", "@user_script:1: user_script:1: boom line", "ERR user_script:1: boom line@1"),
        ("error('boom',0)", "@user_script:1: boom", "ERR boom@1"),
        (
            "error({err='MY code'})",
            "@err_handler_def:8: err_handler_def:8: attempt to concatenate local 'err' (a table value)",
            "MY code@1",
        ),
        (
            "x=1",
            "@enable_strict_lua:8: user_script:1: Script attempted to create global variable 'x'",
            "ERR user_script:1: Attempt to modify a readonly table@1",
        ),
        (
            "return x",
            "@enable_strict_lua:15: user_script:1: Script attempted to access nonexistent global variable 'x'",
            "ERR user_script:1: Script attempted to access nonexistent global variable 'x'@1",
        ),
        (
            "local ok,e = pcall(redis.call,'get','list') error(e)",
            "@user_script:1: user_script:1: WRONGTYPE Operation against a key holding the wrong kind of value",
            "ERR user_script:1: WRONGTYPE Operation against a key holding the wrong kind of value@1",
        ),
        (
            "local e = redis.pcall('get','list') error(e)",
            "@err_handler_def:8: err_handler_def:8: attempt to concatenate local 'err' (a table value)",
            "WRONGTYPE Operation against a key holding the wrong kind of value@1",
        ),
        ("return redis.sha1hex()", "@user_script:1: wrong number of arguments", "ERR wrong number of arguments@1"),
        (
            "local x = nil; return x.y",
            "@user_script:1: user_script:1: attempt to index local 'x' (a nil value)",
            "ERR user_script:1: attempt to index local 'x' (a nil value)@1",
        ),
    ] {
        let old = format!("-ERR Error running script (call to f_SHA): {old}");
        assert_eq!(shown(&run(Era::Old, text)), old, "{text}");
        let (seven, line) = seven.rsplit_once('@').unwrap();
        let seven = format!("-{seven} script: SHA, on @user_script:{line}.");
        assert_eq!(shown(&run(Era::Seven, text)), seven, "{text}");
    }
}

#[test]
fn errors_that_are_caught_look_as_on_a_server() {
    for (text, old, seven) in [
        ("local ok,e = pcall(redis.call,'get','list') return type(e)", "'string'", "'string'"),
        (
            "local ok,e = pcall(redis.call) return e",
            "'=[C]: -1: Please specify at least one argument for redis.call()'",
            "'ERR Please specify at least one argument for this redis lib call'",
        ),
        (
            "local e = redis.pcall('get','list') return type(e) .. e.err",
            "'tableWRONGTYPE Operation against a key holding the wrong kind of value'",
            "'tableWRONGTYPE Operation against a key holding the wrong kind of value'",
        ),
        ("local ok,e = pcall(function() error({err='in'}) end) return e", "-in", "'in'"),
        ("local ok,e = pcall(function() error() end) return tostring(e)", "'nil'", "'nil'"),
        (
            "return {xpcall(function() error('a') end, function(e) return {x=1,e} end)}",
            "[nil ['user_script:1: a']]",
            "[nil ['user_script:1: a']]",
        ),
        ("return redis.error_reply('oops')", "-oops", "-ERR oops"),
        ("return redis.error_reply('MY ERR')", "-MY ERR", "-MY ERR"),
        ("return redis.error_reply('-oops b')", "--oops b", "-oops b"),
        ("return redis.error_reply('-ERR b\\r\\nc')", "--ERR b  c", "-ERR b  c"),
        ("return redis.error_reply('')", "-", "-ERR "),
        (
            "return redis.error_reply(1)",
            "-@user_script: 1: wrong number or type of arguments",
            "-ERR wrong number or type of arguments",
        ),
        (
            "return redis.pcall()",
            "-@user_script: 1: Please specify at least one argument for redis.call()",
            "-ERR Please specify at least one argument for this redis lib call",
        ),
    ] {
        assert_eq!(shown(&run(Era::Old, text)), old, "{text}");
        assert_eq!(shown(&run(Era::Seven, text)), seven, "{text}");
    }
}

#[test]
fn the_environment_is_closed_and_forgets() {
    for name in ["os", "io", "require", "dofile", "loadfile", "print", "debug", "module", "package", "struct"] {
        for era in Era::ALL {
            let reply = shown(&run(era, &format!("return {name}")));
            assert!(reply.contains("nonexistent global variable"), "{name}: {reply}");
        }
    }
    for text in [
        "redis.foo = 1",
        "string.foo = 1",
        "rawset(_G, 'x', 1)",
        "rawset(string, 'x', 1)",
        "setmetatable(_G, {})",
        "setmetatable(redis, {})",
        "getmetatable('').__index = 1",
        "math.random = nil",
        "_G.x = 1",
    ] {
        for era in Era::ALL {
            assert!(matches!(run(era, text), Value::Error(_)), "{text}");
        }
        let reply = shown(&run(Era::Seven, text));
        assert!(reply.contains("Attempt to modify a readonly table"), "{text}: {reply}");
    }
    // 6.2 lets a script replace a global that exists; the next script must not see it.
    assert_eq!(run(Era::Old, "KEYS = {} tostring = 5 return #KEYS + tostring"), Value::Int(5));
    assert_eq!(shown(&run(Era::Old, "return tostring(#KEYS)")), "'2'");
    assert!(matches!(run(Era::Seven, "KEYS = {}"), Value::Error(_)));
    for (text, reply) in [
        ("return loadstring('return 1')()", "1"),
        ("return table.getn({1,2,3})", "3"),
        ("return {unpack({1,2})}", "[1 2]"),
        ("return ('x'):rep(3)", "'xxx'"),
        ("return _VERSION", "'Lua 5.1'"),
        ("return collectgarbage('count') > 0", "1"),
        ("return redis.replicate_commands()", "1"),
        ("return redis.log(redis.LOG_WARNING, 'x')", "nil"),
        ("return redis.sha1hex('')", "'da39a3ee5e6b4b0d3255bfef95601890afd80709'"),
        ("return redis.sha1hex(1)", "'356a192b7913b04c54574d18c28d46e6395428ab'"),
        ("local co = coroutine.wrap(function(a) return redis.call('ping') end) return co()", "+PONG"),
    ] {
        for era in Era::ALL {
            assert_eq!(shown(&run(era, text)), reply, "{era:?}: {text}");
        }
    }
}

#[test]
fn what_was_written_before_an_error_stays() {
    for era in Era::ALL {
        let mut host = Paper::default();
        let reply = on(era, &mut host, "redis.call('set', KEYS[1], 'x') error('boom')");
        assert!(matches!(reply, Value::Error(_)));
        assert_eq!(host.strings.get(b"k1".as_slice()), Some(&Bytes::from_static(b"x")));
    }
}

#[test]
fn numbers_become_words_as_on_a_server() {
    for (number, old, new) in [
        ("3.99", "3.9900000000000002", "3.99"),
        ("5", "5", "5"),
        ("-0", "-0", "0"),
        ("1e17", "1e+17", "100000000000000000"),
        ("123456789012345678", "1.2345678901234568e+17", "123456789012345680"),
        ("9007199254740993", "9007199254740992", "9007199254740992"),
    ] {
        for era in Era::ALL {
            let mut host = Paper::default();
            on(era, &mut host, &format!("redis.call('set', 'n', {number})"));
            let word = if era >= Era::SevenTwo { new } else { old };
            assert_eq!(host.calls[0][2], word.as_bytes(), "{era:?}");
        }
    }
}

/// 6.2.5 gives these numbers in every run.
#[test]
fn random_numbers_are_the_same_in_every_run() {
    let text = "return {math.random(1,1000),math.random(1,1000),math.random(1,1000),tostring(math.random())}";
    for _ in 0..2 {
        assert_eq!(shown(&run(Era::Old, text)), "[171 750 97 '0.87046522734243']");
    }
    assert_eq!(shown(&run(Era::Seven, &format!("math.randomseed(5) {text}"))), "[525 273 789 '0.19806924238711']");
}

#[test]
fn the_order_of_pairs_depends_on_nothing_but_the_table() {
    let text = "local r='' for k in pairs({a=1,b=2,ccc=3,d=4,ee=5,zz=1,stream=1}) do r=r..k..' ' end return r";
    let first = run(Era::Old, text);
    assert_eq!(shown(&first), "'a ee b ccc d stream zz '");
    run(Era::Old, "local t = {} for i = 1, 1000 do t['k' .. i] = i end");
    for era in Era::ALL {
        let other = std::thread::spawn(move || run(era, text)).join().unwrap();
        assert_eq!((run(era, text), other), (first.clone(), first.clone()));
    }
}

#[test]
fn an_endless_loop_ends() {
    for text in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local function f() return pcall(f) or f() end f()",
        "coroutine.wrap(function() while true do end end)()",
    ] {
        let reply = shown(&run(Era::Seven, text));
        assert!(reply.starts_with('-'), "{text}: {reply}");
        assert_eq!(run(Era::Seven, "local n = 0 for i = 1, 1500000 do n = n + 1 end return n"), Value::Int(1_500_000));
    }
}

#[test]
fn compiling_reports_and_checks() {
    let body = Bytes::from_static(b"return syntax error here");
    let refused = shown(&machine::check(Era::Valkey, &body).unwrap_err());
    assert!(refused.starts_with("-ERR Error compiling script (new function): user_script:1:"), "{refused}");
    assert_eq!(run(Era::Seven, "#!lua\nreturn 1"), Value::Int(1));
    assert!(shown(&run(Era::Seven, "#!lua\nreturn x")).contains("user_script:2:"));
    assert!(matches!(run(Era::Old, "#!lua\nreturn 1"), Value::Error(_)));
    for script in Script::ALL {
        for era in Era::ALL {
            assert_eq!(machine::check(era, &Bytes::from_static(script.text().as_bytes())), Ok(()), "{script:?}");
        }
    }
}

#[test]
fn json_goes_there_and_back() {
    for (text, reply) in [
        ("return cjson.encode({b={1,2,3}})", "'{\"b\":[1,2,3]}'"),
        ("return cjson.encode({})", "'{}'"),
        (
            "return cjson.encode({1,2.5,'a\"b\\n/\\\\\\1',true,false,1e20,0.1,123456789012345678,cjson.null})",
            r#"'[1,2.5,\"a\\\"b\\n\\/\\\\\\u0001\",true,false,1e+20,0.1,1.2345678901235e+17,null]'"#,
        ),
        ("return cjson.encode({[3]=1})", "'[null,null,1]'"),
        ("return cjson.encode({[1.5]=1})", "'{\"1.5\":1}'"),
        ("return cjson.decode('[1,2,3.5,\"x\\\\u00e9\\\\n\", true]')", "[1 2 3 'x\\xc3\\xa9\\n' 1]"),
        ("return cjson.decode('{\"a\":1,\"b\":[1,2,{\"c\":null}]}').b[3].c == cjson.null", "1"),
    ] {
        assert_eq!(shown(&run(Era::Seven, text)).replace("'{\\\"", "'{\"").replace("\\\":", "\":"), reply, "{text}");
    }
    for (text, error) in [
        ("local s = cjson.encode({[1]=1,[20]=2})", "Cannot serialise table: excessively sparse array"),
        ("local s = cjson.encode(1/0)", "Cannot serialise number: must not be NaN or Inf"),
        ("local s = cjson.decode('{\"a\":')", "Expected value but found T_END at character 6"),
        ("local s = cjson.decode('[1] x')", "Expected the end but found invalid token at character 5"),
        ("local s = cjson.decode('')", "Expected value but found T_END at character 1"),
    ] {
        let reply = shown(&run(Era::Seven, text));
        assert!(reply.contains(error), "{text}: {reply}");
    }
}

#[test]
fn packed_messages_are_those_of_the_server() {
    for (text, reply) in [
        ("return cmsgpack.pack({'payload','a','id',''})", r"'\x94\xa7payload\xa1a\xa2id\xa0'"),
        ("return string.sub(cmsgpack.pack({string.rep('x', 40)}), 1, 4)", r"'\x91\xd9(x'"),
        ("return string.sub(cmsgpack.pack({string.rep('x', 300)}), 1, 4)", r"'\x91\xda\x01,'"),
        ("return #cmsgpack.unpack(cmsgpack.pack({string.rep('x', 70000), 'y'}))[1]", "70000"),
        ("local t = {}; for i = 1, 20 do t[i] = 'a' end; return #cmsgpack.unpack(cmsgpack.pack(t))", "20"),
        ("return cmsgpack.unpack('')", "nil"),
    ] {
        assert_eq!(shown(&run(Era::Seven, text)), reply, "{text}");
    }
    let cut = shown(&run(Era::Seven, "local t = cmsgpack.unpack('\\146\\161a')"));
    assert!(cut.contains("Missing bytes in input."), "{cut}");
}

#[test]
fn bits_are_those_of_32() {
    let text = "return {bit.band(7,3),bit.bor(4,1),bit.bxor(7,2),bit.lshift(1,4),bit.rshift(-1,4),bit.arshift(-16,2),\
        bit.bnot(0),bit.tohex(255),bit.tobit(4294967295),bit.rol(1,33),bit.ror(1,1),bit.bswap(1)}";
    assert_eq!(shown(&run(Era::Seven, text)), "[3 5 5 16 268435455 -4 -1 '000000ff' -1 2 -2147483648 16777216]");
}

fn ask(broker: &mut Broker, words: &[&str]) -> Value {
    let args: Vec<_> = words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
    let mut out = Vec::new();
    broker.execute(ServerTime(1_700_000_000_000_000), ClientId(1), &args, &mut out);
    match out.as_slice() {
        [super::super::Out::Reply(_, value)] => value.clone(),
        other => panic!("{words:?}: {other:?}"),
    }
}

#[test]
fn a_broker_runs_scripts_and_keeps_those_that_compile() {
    for profile in [Profile::redis_6_2(), Profile::redis_7_0(), Profile::valkey_8_1()] {
        let mut broker = Broker::new(profile, "0123456789012345678901234567890123456789");
        broker.connect(ServerTime(1_700_000_000_000_000), ClientId(1), "127.0.0.1:50000");
        let text =
            "redis.call('SET', KEYS[1], ARGV[1]) return {redis.call('GET', KEYS[1]), redis.call('INCR', KEYS[2])}";
        assert_eq!(shown(&ask(&mut broker, &["EVAL", text, "2", "a", "n", "x"])), "['x' 1]");
        let sha1 = machine::hex(&sha1::Sha1::digest(text.as_bytes()));
        assert_eq!(shown(&ask(&mut broker, &["EVALSHA", &sha1, "2", "a", "n", "y"])), "['y' 2]");
        assert_eq!(shown(&ask(&mut broker, &["GET", "a"])), "'y'");
        assert!(
            shown(&ask(&mut broker, &["EVAL", "redis.call('SET', 'w', 1) redis.call('INCR', 'a')", "0"]))
                .contains("value is not an integer")
        );
        assert_eq!(shown(&ask(&mut broker, &["GET", "w"])), "'1'");
        let broken = "return return";
        assert!(shown(&ask(&mut broker, &["EVAL", broken, "0"])).starts_with("-ERR Error compiling script"));
        let sha1 = machine::hex(&sha1::Sha1::digest(broken.as_bytes()));
        assert!(shown(&ask(&mut broker, &["EVALSHA", &sha1, "0"])).starts_with("-NOSCRIPT"));
        for script in Script::ALL {
            assert_eq!(shown(&ask(&mut broker, &["SCRIPT", "LOAD", script.text()])), format!("'{}'", script.sha1()));
        }
        assert!(broker.gaps().is_empty());
    }
}

/// Not a promise: `cargo test --release -p flota-sim -- --ignored --nocapture cost` shows the cost of a small script.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "measures real time")]
fn cost_of_one_small_script() {
    struct Quiet;
    impl Host for Quiet {
        fn call(&mut self, _: &[Bytes]) -> Value {
            Value::Int(1)
        }
    }
    let keys = [Bytes::from_static(b"stream:topic:t:p:0")];
    let argv = [Bytes::from_static(b"group"), Bytes::from_static(b"1-1")];
    for text in ["return 1", "return redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])"] {
        let body = Bytes::from_static(text.as_bytes());
        machine::run(Era::Seven, &mut Quiet, &body, &keys, &argv);
        let began = std::time::Instant::now();
        for _ in 0..200_000 {
            machine::run(Era::Seven, &mut Quiet, &body, &keys, &argv);
        }
        println!("{text}: {:?}", began.elapsed() / 200_000);
    }
}
