//! The Lua states of a thread, and running a script in one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use bytes::Bytes;
use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value as Lv, Variadic, VmState};
use sha1::{Digest, Sha1};

use super::values::{from_lua, one_line, to_lua, up_to_zero, words};
use super::{Era, Host, Value};

/// Instructions after which a script is taken for an endless loop.
const INSTRUCTIONS_MAX: u32 = if cfg!(test) { 5_000_000 } else { 50_000_000 };

/// How often they are counted.
const INSTRUCTIONS_STEP: u32 = 1_000_000;

/// Compiled scripts kept. A simulation has a dozen texts, but each of its brokers has its own copies of them.
const SCRIPTS_MAX: usize = 8192;

/// The prelude's name: what stands in it is not the script's.
const PRELUDE: &str = "@prelude";

thread_local! {
    static MACHINES: [RefCell<Option<Machine>>; Era::ALL.len()] = const { [const { RefCell::new(None) }; Era::ALL.len()] };
}

/// Runs a script on this thread's state for that kind of server.
pub(super) fn run(era: Era, host: &mut dyn Host, body: &Bytes, keys: &[Bytes], argv: &[Bytes]) -> Value {
    with(era, |machine| machine.run(host, body, keys, argv))
}

/// Whether a text can be compiled.
pub(super) fn check(era: Era, body: &Bytes) -> Result<(), Value> {
    let mut outcome = Ok(());
    let refused = with(era, |machine| {
        outcome = machine.script(body).map(|_| ());
        Value::Nil
    });
    if refused == Value::Nil { outcome } else { Err(refused) }
}

fn with(era: Era, work: impl FnOnce(&mut Machine) -> Value) -> Value {
    MACHINES.with(|machines| {
        let Ok(mut slot) = machines[era as usize].try_borrow_mut() else {
            return Value::error("ERR a script may not run another");
        };
        if slot.is_none() {
            match Machine::new(era) {
                Ok(machine) => *slot = Some(machine),
                Err(error) => return Value::Error(format!("ERR no Lua state could be made: {error}")),
            }
        }
        slot.as_mut().map_or(Value::Nil, work)
    })
}

/// A Lua state and the scripts compiled in it.
struct Machine {
    era: Era,
    lua: Lua,
    /// The prelude's function that runs a script.
    runner: Function,
    /// The state of `math.random`.
    random: Rc<Cell<u64>>,
    /// Steps of instructions that the running script has used.
    steps: Rc<Cell<u32>>,
    by_sha1: BTreeMap<[u8; 20], Script>,
    /// Whose text lies there: the text is kept, so the place cannot become another text's. Saves the checksum.
    by_place: BTreeMap<(usize, usize), (Bytes, Script)>,
}

#[derive(Clone)]
struct Script {
    function: Function,
    sha1: Rc<str>,
}

impl Machine {
    fn new(era: Era) -> mlua::Result<Self> {
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::default())?;
        let random = Rc::new(Cell::new(0));
        let (redis, runner) = prelude(&lua, era, &random)?;
        let steps = Rc::new(Cell::new(0));
        install(&lua, era, &redis)?;
        limit(&lua, era, INSTRUCTIONS_STEP, &steps)?;
        Ok(Self { era, lua, runner, random, steps, by_sha1: BTreeMap::new(), by_place: BTreeMap::new() })
    }

    fn run(&mut self, host: &mut dyn Host, body: &Bytes, keys: &[Bytes], argv: &[Bytes]) -> Value {
        let script = match self.script(body) {
            Ok(script) => script,
            Err(refusal) => return refusal,
        };
        self.random.set(seeded(0));
        self.steps.set(0);
        let outcome = self.execute(host, &script, keys, argv);
        if self.steps.get() > 0 {
            // Also after the hook has become a trap, and so that the next script's count begins at zero.
            if let Err(error) = limit(&self.lua, self.era, INSTRUCTIONS_STEP, &self.steps) {
                return Value::Error(format!("ERR the limit of instructions cannot be set: {error}"));
            }
        }
        outcome.unwrap_or_else(|error| self.failure(&script.sha1, &cause(&error).to_string()))
    }

    fn execute(&self, host: &mut dyn Host, script: &Script, keys: &[Bytes], argv: &[Bytes]) -> mlua::Result<Value> {
        let (lua, era) = (&self.lua, self.era);
        let host = RefCell::new(host);
        lua.scope(|scope| {
            let call = scope.create_function(|lua, args: MultiValue| match perform(lua, era, &host, &args) {
                Ok(value) => to_lua(lua, &value),
                Err(text) => Err(mlua::Error::external(Raised(text))),
            })?;
            let pcall = scope.create_function(|lua, args: MultiValue| {
                to_lua(lua, &perform(lua, era, &host, &args).unwrap_or_else(Value::Error))
            })?;
            let keys = lua.create_sequence_from(strings(lua, keys)?)?;
            let argv = lua.create_sequence_from(strings(lua, argv)?)?;
            let (ok, value): (bool, Lv) = self.runner.call((&script.function, call, pcall, keys, argv))?;
            if ok {
                return from_lua(&value);
            }
            Ok(self.failure(&script.sha1, &text_of(&value)))
        })
    }

    /// The reply for an error that nothing caught. `shown` is what the handler made of it.
    fn failure(&self, sha1: &str, shown: &str) -> Value {
        if self.era == Era::Old {
            let shown = one_line(up_to_zero(shown).trim_end_matches(['\r', '\n']));
            return Value::Error(format!("ERR Error running script (call to f_{sha1}): {shown}"));
        }
        let shown = one_line(shown);
        Value::Error(match shown.rsplit_once('\u{1}') {
            Some((text, place)) => format!("{} script: {sha1}, on {place}.", up_to_zero(text)),
            None => format!("ERR {} script: {sha1}", shown.trim_start_matches("ERR ")),
        })
    }

    fn script(&mut self, body: &Bytes) -> Result<Script, Value> {
        let place = (body.as_ptr().addr(), body.len());
        if let Some((_, script)) = self.by_place.get(&place) {
            return Ok(script.clone());
        }
        let sha1: [u8; 20] = Sha1::digest(body).into();
        let script = match self.by_sha1.get(&sha1) {
            Some(script) => script.clone(),
            None => self.compile(body, sha1)?,
        };
        if self.by_place.len() >= SCRIPTS_MAX {
            self.by_place.clear();
        }
        self.by_place.insert(place, (body.clone(), script.clone()));
        Ok(script)
    }

    fn compile(&mut self, body: &Bytes, sha1: [u8; 20]) -> Result<Script, Value> {
        let old = self.era == Era::Old;
        let refuse = |text: &str| {
            // Before 7.0 the text was wrapped in a function, whose end was met first.
            let text = if old { text.replace("'<eof>' expected", "'end' expected") } else { text.to_string() };
            Err(Value::Error(format!("ERR Error compiling script (new function): {text}")))
        };
        let mut text: &[u8] = body;
        if self.era != Era::Old && text.starts_with(b"#!") {
            // Its line stays, as an empty one, so that positions are right.
            let end = text.iter().position(|b| *b == b'\n').unwrap_or(text.len());
            let (line, rest) = text.split_at(end);
            if line.trim_ascii_end() != b"#!lua" {
                return Err(Value::error("ERR a script with flags or in another language than lua is not modelled"));
            }
            text = rest;
        }
        let chunk = self.lua.load(text).set_name("@user_script").set_mode(mlua::ChunkMode::Text);
        let function = match chunk.into_function() {
            Ok(function) => function,
            Err(mlua::Error::SyntaxError { message, .. }) => return refuse(&one_line(&message)),
            Err(error) => return refuse(&one_line(&error.to_string())),
        };
        if self.by_sha1.len() >= SCRIPTS_MAX {
            self.by_sha1.clear();
        }
        let script = Script { function, sha1: hex(&sha1).into() };
        self.by_sha1.insert(sha1, script.clone());
        Ok(script)
    }
}

/// Executes the command of a `redis.call`: its reply or its error.
fn perform(lua: &Lua, era: Era, host: &RefCell<&mut dyn Host>, args: &MultiValue) -> Result<Value, String> {
    match words(era, args) {
        Ok(words) => match host.try_borrow_mut() {
            Ok(mut host) => match host.call(&words) {
                Value::Error(text) => match era.refusal(&text) {
                    Some(other) => Err(own_error(lua, era, &other)),
                    None => Err(text),
                },
                value => Ok(value),
            },
            Err(_) => Err("ERR a command may not run another".to_string()),
        },
        Err(text) => Err(own_error(lua, era, text)),
    }
}

/// A refusal by the scripting itself, not by a command: until 7.0 with the position of the call.
fn own_error(lua: &Lua, era: Era, text: &str) -> String {
    if era != Era::Old {
        return format!("ERR {text}");
    }
    let place = lua.inspect_stack(1, |frame| {
        let line = frame.current_line().map_or_else(|| "-1".to_string(), |line| line.to_string());
        format!("{}: {line}: ", frame.source().source.unwrap_or_default())
    });
    format!("{}{text}", place.unwrap_or_default())
}

/// An error of `redis.call`, on its way through Lua.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// What a script sees of an error: what the server would have raised.
fn plain(lua: &Lua, era: Era, value: Lv) -> mlua::Result<Lv> {
    let Lv::Error(error) = value else { return Ok(value) };
    match cause(&error).downcast_ref::<Raised>() {
        Some(Raised(text)) if era == Era::Old => Ok(Lv::String(lua.create_string(text)?)),
        Some(Raised(text)) => {
            let table = lua.create_table()?;
            table.raw_set("err", text.as_str())?;
            Ok(Lv::Table(table))
        }
        None => Ok(Lv::String(lua.create_string(cause(&error).to_string())?)),
    }
}

/// Without the tracebacks that functions of the host add.
fn cause(error: &mlua::Error) -> &mlua::Error {
    match error {
        mlua::Error::CallbackError { cause: inner, .. } => cause(inner),
        other => other,
    }
}

/// What becomes of an error that nothing caught, seen from where it was raised: its text and its place, divided by a
/// byte that `failure` looks for; until 7.0 one text.
fn handle(lua: &Lua, era: Era, error: Lv) -> mlua::Result<String> {
    let place = place(lua);
    let error = plain(lua, era, error)?;
    let text = match &error {
        Lv::Table(_) | Lv::Nil if era == Era::Old => {
            let kind = if error.is_nil() { "a nil value" } else { "a table value" };
            let text = format!("attempt to concatenate local 'err' ({kind})");
            return Ok(format!("@err_handler_def:8: err_handler_def:8: {text}"));
        }
        Lv::Table(table) => match table.raw_get::<Lv>("err")? {
            Lv::Nil => "ERR unknown error".to_string(),
            text => text_of(&text),
        },
        other if era == Era::Old => text_of(other),
        other => format!("ERR {}", text_of(other)),
    };
    Ok(match (era, place) {
        (Era::Old, Some(place)) => format!("{place}: {text}"),
        (Era::Old, None) => text,
        (_, place) => format!("{text}\u{1}{}", place.unwrap_or_else(|| "@user_script:1".to_string())),
    })
}

/// Where the script is: the first frame that is neither a function of the host nor of the prelude.
fn place(lua: &Lua) -> Option<String> {
    const LEVELS: usize = 100;
    for level in 1..LEVELS {
        let found = lua.inspect_stack(level, |frame| {
            let (source, line) = (frame.source(), frame.current_line());
            match (source.source, line) {
                (Some(name), Some(line)) if source.what != "C" && name != PRELUDE => Some(format!("{name}:{line}")),
                _ => None,
            }
        })?;
        if found.is_some() {
            return found;
        }
    }
    None
}

fn text_of(value: &Lv) -> String {
    value.to_string().unwrap_or_else(|_| value.type_name().to_string())
}

fn strings(lua: &Lua, all: &[Bytes]) -> mlua::Result<Vec<mlua::String>> {
    all.iter().map(|bytes| lua.create_string(bytes)).collect()
}

/// Builds the environment of scripts: the table behind `redis`, and the function that runs a script.
fn prelude(lua: &Lua, era: Era, random: &Rc<Cell<u64>>) -> mlua::Result<(Table, Function)> {
    let plain_of = lua.create_function(move |lua, value: Lv| plain(lua, era, value))?;
    let state = random.clone();
    let next = lua.create_function(move |_, ()| Ok(next_random(&state) as f64))?;
    let state = random.clone();
    let seed = lua.create_function(move |_, seed: f64| {
        state.set(seeded(super::super::number::truncated(seed)));
        Ok(())
    })?;
    let handler = lua.create_function(move |lua, error: Lv| handle(lua, era, error))?;
    // Only 6.2 shows this name; to later ones it is as good as written in C.
    let strict = lua.load(include_str!("strict.lua"));
    let strict = strict.set_name(if era == Era::Old { "@enable_strict_lua" } else { PRELUDE }).into_function()?;
    let cjson = lua.load(include_str!("cjson.lua")).set_name(PRELUDE).into_function()?;
    let raise = lua.load("error((...), 3)").set_name(PRELUDE).into_function()?;
    let cjson: Table = cjson.call((raise.clone(), Lv::NULL))?;
    let cmsgpack = lua.load(include_str!("cmsgpack.lua")).set_name(PRELUDE).into_function()?;
    let cmsgpack: Table = cmsgpack.call(raise)?;
    let bit = super::bit::library(lua)?;
    let prelude = lua.load(include_str!("prelude.lua")).set_name(PRELUDE).into_function()?;
    let (env, globals, redis, runner): (Table, Table, Table, Function) =
        prelude.call((era == Era::Old, plain_of, next, seed, handler, strict, cjson, cmsgpack, bit))?;
    if era == Era::Valkey {
        globals.raw_set("server", globals.raw_get::<Lv>("redis")?)?;
    }
    lua.set_globals(env)?;
    Ok((redis, runner))
}

/// What `redis` offers besides `call` and `pcall`, which each run brings along.
fn install(lua: &Lua, era: Era, redis: &Table) -> mlua::Result<()> {
    for (name, level) in [("LOG_DEBUG", 0), ("LOG_VERBOSE", 1), ("LOG_NOTICE", 2), ("LOG_WARNING", 3)] {
        redis.raw_set(name, level)?;
    }
    for (name, to) in [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", 3)] {
        redis.raw_set(name, to)?;
    }
    redis.raw_set("error_reply", lua.create_function(move |lua, args: Variadic<Lv>| error_reply(lua, era, &args))?)?;
    redis
        .raw_set("status_reply", lua.create_function(move |lua, args: Variadic<Lv>| status_reply(lua, era, &args))?)?;
    let sha1hex = lua.create_function(move |_, args: Variadic<Lv>| match args.as_slice() {
        [Lv::String(text)] => Ok(hex(&Sha1::digest(text.as_bytes()))),
        [other @ (Lv::Integer(_) | Lv::Number(_))] => Ok(hex(&Sha1::digest(text_of(other)))),
        [_] => Ok(hex(&Sha1::digest(""))),
        _ => Err(scripting(era, "wrong number of arguments")),
    })?;
    redis.raw_set("sha1hex", sha1hex)?;
    let log = lua.create_function(move |_, args: Variadic<Lv>| match args.as_slice() {
        [] | [_] => Err(scripting(era, "redis.log() requires two arguments or more.")),
        [level, ..] => match level.as_integer() {
            Some(0..=3) => Ok(()),
            Some(_) => Err(scripting(era, "Invalid debug level.")),
            None => Err(scripting(era, "First argument must be a number (log level).")),
        },
    })?;
    redis.raw_set("log", log)?;
    redis.raw_set("replicate_commands", lua.create_function(|_, ()| Ok(true))?)?;
    redis.raw_set("set_repl", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    let setresp = lua.create_function(move |_, version: Option<i64>| match version {
        Some(2) => Ok(()),
        _ => Err(scripting(era, "redis.setresp(3) is not modelled")),
    })?;
    redis.raw_set("setresp", setresp)
}

/// An error raised by a function of `redis` other than `call`.
fn scripting(era: Era, text: &str) -> mlua::Error {
    let code = if era == Era::Old { "" } else { "ERR " };
    mlua::Error::external(Raised(format!("{code}{text}")))
}

fn error_reply(lua: &Lua, era: Era, args: &[Lv]) -> mlua::Result<Table> {
    let text = match args {
        [Lv::String(text)] => text.to_string_lossy(),
        _ => return single(lua, "err", &own_error(lua, era, "wrong number or type of arguments")),
    };
    if era == Era::Old {
        return single(lua, "err", &text);
    }
    let text = text.trim_end_matches(['\r', '\n']);
    let text = text.strip_prefix('-').unwrap_or(text);
    let text = if text.contains(' ') { text.to_string() } else { format!("ERR {text}") };
    single(lua, "err", &text)
}

fn status_reply(lua: &Lua, era: Era, args: &[Lv]) -> mlua::Result<Table> {
    match args {
        [Lv::String(text)] => single(lua, "ok", &text.to_string_lossy()),
        _ => single(lua, "err", &own_error(lua, era, "wrong number or type of arguments")),
    }
}

fn single(lua: &Lua, field: &str, text: &str) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(field, text)?;
    Ok(table)
}

/// Counts instructions; at the limit every further one fails, so that no `pcall` goes on for ever.
fn limit(lua: &Lua, era: Era, step: u32, steps: &Rc<Cell<u32>>) -> mlua::Result<()> {
    let steps = steps.clone();
    lua.set_global_hook(HookTriggers::new().every_nth_instruction(step), move |lua, _| {
        steps.set(steps.get().saturating_add(1));
        if steps.get() < INSTRUCTIONS_MAX / INSTRUCTIONS_STEP {
            return Ok(VmState::Continue);
        }
        if step > 1 {
            limit(lua, era, 1, &steps)?;
        }
        Err(scripting(era, "the script has run for too many instructions: an endless loop?"))
    })
}

/// The server's own generator of 48 bits, so that the numbers are the same wherever a script runs.
fn next_random(state: &Cell<u64>) -> u64 {
    const MASK: u64 = (1 << 48) - 1;
    state.set(state.get().wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & MASK);
    state.get() >> 17
}

fn seeded(seed: i64) -> u64 {
    (seed.cast_unsigned() & 0xFFFF_FFFF) << 16 | 0x330E
}

pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|b| [b >> 4, b & 15]).map(|n| char::from(DIGITS[usize::from(n)])).collect()
}
