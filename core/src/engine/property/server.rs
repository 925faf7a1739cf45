//! A server that answers what it is asked, and says in each answer what it answers.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::command::{Arg, Command, Eval, ReadGroup};
use crate::config::Endpoint;
use crate::reply::{Reply, ReplyBuilder, StreamId};
use crate::script::Script;

/// The roll that means: healthy, and nothing new.
pub(super) const CALM: u32 = u32::MAX;

pub(super) struct Server {
    pub(super) address: Endpoint,
    run: u64,
    store: u64,
    index: usize,
}

/// Everything that servers have given out.
#[derive(Default)]
pub(super) struct Served {
    last: u64,
    clients: i64,
    /// Which message each stored entry is.
    pub(super) stored: BTreeMap<StreamId, [u8; 16]>,
    /// Partition and body of each entry that was read.
    pub(super) entries: BTreeMap<StreamId, (u32, String)>,
}

impl Served {
    fn next(&mut self) -> StreamId {
        self.last += 1;
        StreamId { ms: self.last, seq: 1 }
    }

    fn entry(&mut self, partition: u32) -> (StreamId, String) {
        let id = self.next();
        let body = format!("body-{partition}-{id}");
        self.entries.insert(id, (partition, body.clone()));
        (id, body)
    }
}

/// What no command can be answered with, mostly; a push.
pub(super) fn wrong(roll: u32) -> Reply {
    let mut build = ReplyBuilder::new();
    match roll % 6 {
        0 => build.int(-1),
        1 => build.status("WHAT"),
        2 => build.array(0),
        3 => build.push(1).bulk(b"news"),
        4 => build.nil(),
        _ => build.map(1).bulk(b"a").array(1).nil(),
    };
    build.finish()
}

const REFUSALS: [&str; 12] = [
    "OOM command not allowed when used memory > 'maxmemory'.",
    "MISCONF Redis is configured to save RDB snapshots",
    "NOREPLICAS Not enough good replicas to write.",
    "READONLY You can't write against a read only replica.",
    "LOADING Redis is loading the dataset in memory",
    "BUSY Redis is busy running a script.",
    "NOAUTH Authentication required.",
    "NOPERM this user has no permissions",
    "NOSCRIPT No matching script. Please use EVAL.",
    "NOGROUP No such key 'stream:topic:orders:p:0' or consumer group 'billing'",
    "WRONGTYPE Operation against a key holding the wrong kind of value",
    "UNBLOCKED the stream key no longer exists",
];

impl Server {
    pub(super) fn new(index: usize) -> Self {
        let address = format!("10.0.0.{}:6379", index + 1).parse().expect("an address");
        Self { address, run: 0, store: 0, index }
    }

    pub(super) fn restart(&mut self, same_data: bool) {
        self.run += 1;
        self.store += u64::from(!same_data);
    }

    pub(super) fn answer(&mut self, command: &Command, roll: u32, served: &mut Served) -> Reply {
        let mut build = ReplyBuilder::new();
        // One in sixteen is refused.
        if roll != CALM && roll.is_multiple_of(16) {
            build.error(REFUSALS[(roll / 16) as usize % REFUSALS.len()]);
            return build.finish();
        }
        let roll = if roll == CALM { 0 } else { roll / 256 };
        match command {
            Command::Hello(_) => {
                build.map(1).bulk(b"proto").int(3);
            }
            Command::Auth(_) | Command::SetName(_) | Command::NameStore(_) => {
                build.status("OK");
            }
            Command::Ping => {
                build.status("PONG");
            }
            Command::ClientId => {
                served.clients += 1;
                build.int(served.clients);
            }
            Command::Info => {
                let run = format!("run-{}-{}", self.index, self.run);
                build.bulk(format!("run_id:{run}\r\nredis_version:7.2.0\r\nrole:master\r\nloading:0\r\n").as_bytes());
            }
            Command::ReadStore => {
                build.bulk(format!("store-{}-{}", self.index, self.store).as_bytes());
            }
            Command::Time => {
                build.array(2).bulk(b"1700000000").bulk(b"0");
            }
            Command::Unblock(_) | Command::Kill(_) => {
                build.int(i64::from(roll % 2));
            }
            Command::Add(add) => {
                let id = served.next();
                served.stored.insert(id, add.id);
                build.bulk(format!("{id}").as_bytes());
            }
            Command::Ack(ack) => {
                build.int(ack.ids.len() as i64 - i64::from(roll % 8 == 1));
            }
            Command::ReadGroup(read) => entries(read, roll, served, &mut build),
            Command::Read(read) => {
                match read.from.first().filter(|_| roll % 2 == 1) {
                    Some((key, _)) => {
                        let id = served.next();
                        build.map(1).bulk(key.as_str().as_bytes()).array(1);
                        entry(&format!("{id}"), "peeked", &mut build);
                    }
                    None => {
                        build.nil();
                    }
                };
            }
            Command::Consumers(..) => consumers(roll, &mut build),
            Command::Eval(eval, _) => script(eval, roll, served, &mut build),
            Command::Raw(words) if words.first().is_some_and(|word| word == "TYPE") => {
                build.status(if roll % 8 == 3 { "string" } else { "stream" });
            }
            Command::Raw(words) => {
                build.bulk(words.get(1).map_or(b"", |word| word.as_ref()));
            }
        }
        build.finish()
    }
}

fn partition_of(key: &str) -> u32 {
    let key = key.split_once(":retry:").map_or(key, |(partition, _)| partition);
    key.rsplit(':').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn entry(id: &str, body: &str, build: &mut ReplyBuilder) {
    build.array(2).bulk(id.as_bytes()).array(2).bulk(b"payload").bulk(body.as_bytes());
}

fn entries(read: &ReadGroup, roll: u32, served: &mut Served, build: &mut ReplyBuilder) {
    let counts: Vec<u32> =
        (0..read.keys.len() as u32).map(|n| (roll >> (2 * n.min(10))) % (read.count.min(5) + 1)).collect();
    let streams = counts.iter().filter(|count| **count > 0).count();
    if roll == 0 || streams == 0 {
        build.nil();
        return;
    }
    build.map(streams as u32);
    for (key, count) in read.keys.iter().zip(counts).filter(|(_, count)| *count > 0) {
        build.bulk(key.as_str().as_bytes()).array(count);
        for _ in 0..count {
            let (id, body) = served.entry(partition_of(key.as_str()));
            entry(&format!("{id}"), &body, build);
        }
    }
}

fn consumers(roll: u32, build: &mut ReplyBuilder) {
    let names = ["dead.1", "@free", "dead.2", "alive.1"];
    let all: Vec<&str> =
        names.into_iter().enumerate().filter(|(n, _)| roll >> n & 1 == 1).map(|(_, name)| name).collect();
    build.array(all.len() as u32);
    for name in all {
        build.map(3).bulk(b"name").bulk(name.as_bytes());
        build.bulk(b"pending").int(3).bulk(b"idle").int(if name == "alive.1" { 10 } else { 100_000 });
    }
}

fn script(eval: &Eval, roll: u32, served: &mut Served, build: &mut ReplyBuilder) {
    let ids = eval.args.iter().filter(|arg| matches!(arg, Arg::Id(_))).count() as u32;
    match eval.script {
        Script::Claim => claimed(eval, roll, served, build),
        Script::Dead if roll % 4 == 1 => {
            build.array(1).bulk(b"oom");
        }
        Script::Dead => {
            build.array(ids);
            for n in 0..ids {
                build.bulk(if (roll + n) % 4 == 3 { b"gone" } else { b"9-9" });
            }
        }
        Script::Retry if roll % 4 == 1 => {
            build.array(1).bulk(b"oom");
        }
        Script::Retry => {
            build.array(ids);
            for n in 0..ids {
                build.bulk([b"1700000000000".as_slice(), b"1700000000001", b"gone", b"lost"][(roll + n) as usize % 4]);
            }
        }
        Script::Due => due(eval, roll, build),
        Script::Move => {
            let next = [-1, -1, 0, 30][roll as usize % 4];
            build.array(4).int(i64::from(roll / 4 % 2)).int(next).int(0).int(i64::from(next >= 0));
        }
        Script::Ensure => {
            build.array(4).int(i64::from(1 + roll % 3)).int(0);
            build.array(0).int(i64::from(1 + roll % 2));
        }
        // No engine sends it so far.
        Script::Renew | Script::Replay | Script::Tick => {
            build.array(0);
        }
        Script::Tail => {
            build.array(eval.keys.len() as u32);
            for _ in &eval.keys {
                build.bulk(b"5-5");
            }
        }
        Script::Trim if roll % 4 == 1 => {
            build.array(2).bulk(b"missing").array(1).bulk(b"other");
        }
        Script::Trim => {
            build.array(2).bulk(b"ok").int(if roll % 16 == 2 { 10_000 } else { i64::from(roll % 3) });
        }
        Script::Schedule if roll % 4 == 1 => {
            build.array(1).bulk(b"oom");
        }
        Script::Schedule => {
            build.array(2).bulk(if roll % 4 == 2 { b"known" } else { b"ok" }).bulk(b"1700000060000");
        }
        Script::Cancel | Script::Leave | Script::Reap | Script::Rejoin => {
            build.int(i64::from(roll % 2));
        }
        Script::Release => {
            build.int(i64::from(ids));
        }
    }
}

fn due(eval: &Eval, roll: u32, build: &mut ReplyBuilder) {
    build.array(3);
    for kind in 0..2 {
        let waits = (roll >> kind) % 4;
        build.array(2).int([-1, -1, 0, 700][waits as usize]).array(u32::from(waits == 2));
        if waits == 2 {
            build.bulk(b"0");
        }
    }
    let there: Vec<i64> = (0..eval.keys.len() as i64 - 2).filter(|place| roll >> (4 + place % 8) & 1 == 1).collect();
    build.array(there.len() as u32);
    for place in there {
        build.int(place);
    }
}

fn claimed(eval: &Eval, roll: u32, served: &mut Served, build: &mut ReplyBuilder) {
    let page = match eval.args.get(7) {
        Some(Arg::Int(page)) => u32::try_from(*page).unwrap_or(0),
        _ => 0,
    };
    let suspects_allowed = matches!(eval.args.get(10), Some(Arg::Int(allowed)) if *allowed > 0);
    let count = roll % (page.min(4) + 1);
    build.array(4).bulk(if roll % 8 == 5 { b"(1-1" } else { b"" }).array(count);
    for n in 0..count {
        let partition = eval.keys.first().map_or(0, |key| partition_of(key.as_str()));
        let (id, body) = served.entry(partition);
        let deliveries = if n == 0 && suspects_allowed { 3 } else { 1 };
        build.array(3).bulk(format!("{id}").as_bytes()).int(deliveries);
        build.array(2).bulk(b"payload").bulk(body.as_bytes());
    }
    build.array(u32::from(roll % 16 == 7));
    if roll % 16 == 7 {
        build.bulk(b"1-1");
    }
    build.array(0);
}
