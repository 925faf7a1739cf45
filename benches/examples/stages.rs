//! One stage of a message's way, run so many times: for `instructions.sh`, which counts what a processor executes.
//!
//! `stages STAGE TIMES`. Whatever comes before and after is the same for every number of times up to [`MOST`], so the
//! difference between two runs is the stage's alone.

use std::hint::black_box;

use flota_benches::announcements::{Listener, USUAL, jittered};
use flota_benches::world::{World, read_reply};
use flota_core::announce::parse;
use flota_core::command::{Ack, Command};
use flota_core::driver::resp::{Limits, Scan, Writer};
use flota_core::id::ConnId;
use flota_core::reply::{Reply, StreamId};
use flota_core::topic::TopicSpec;

/// Below the limit of unanswered commands on a connection.
const MOST: usize = 10_000;
const ENTRIES: usize = 100;
/// Sends that a turn takes in, or answers that it reads.
const BURST: usize = 50;
const STORED: &[u8] = b"$15\r\n1700000000000-0\r\n";

fn main() {
    let mut args = std::env::args().skip(1);
    let (stage, times) = (args.next().unwrap_or_default(), args.next().and_then(|times| times.parse().ok()));
    let times: usize = times.filter(|times| *times <= MOST).expect("usage: stages STAGE TIMES, at most 10000 times");
    match stage.as_str() {
        "parse" => (0..times).for_each(|_| {
            black_box(parse(black_box(USUAL)).is_ok());
        }),
        "hear" => hear(times),
        "submit" => submit(times),
        "scan_stored" => scan_stored(times),
        "stored" => stored(times),
        "scan_entry" => scan_entries(times),
        "deliver" => deliver(times),
        "ack" => ack(times),
        other => panic!("no stage {other:?}"),
    }
    // What was set up is not taken down: that would count.
    std::process::exit(0);
}

/// One announcement of one of a thousand members, and its reading.
fn hear(times: usize) {
    let mut listener = Listener::hearing(1_000);
    let order = jittered(1_000);
    let mut turns = order.iter().cycle();
    (0..times).for_each(|_| {
        let broker = turns.next().expect("an endless order");
        black_box(listener.hear(*broker as usize));
    });
    std::mem::forget(listener);
}

/// From the submit to the bytes of an `XADD`.
fn submit(times: usize) {
    let (mut world, _, mut out) = filled();
    (0..times / BURST).for_each(|_| {
        black_box(submit_burst(&mut world, &mut out));
    });
    std::mem::forget(world);
}

/// A burst as one turn of a driver takes it in and writes it out.
fn submit_burst(world: &mut World, out: &mut Vec<u8>) -> ConnId {
    (0..BURST).for_each(|_| world.submit());
    out.clear();
    let mut last = None;
    for _ in 0..BURST {
        let (conn, command) = world.command();
        encode(&command, out);
        last = Some(conn);
    }
    last.expect("a burst of some")
}

/// A world in which every list has had its largest size before, without a send on the way.
fn filled() -> (World, ConnId, Vec<u8>) {
    let mut world = World::new(1);
    let mut out = Vec::new();
    let mut conn = submit_burst(&mut world, &mut out);
    for _ in 1..MOST / BURST {
        conn = submit_burst(&mut world, &mut out);
    }
    assert_eq!(world.answer_burst(conn, MOST), MOST);
    (world, conn, out)
}

fn scan_stored(times: usize) {
    let wire = STORED.repeat(MOST);
    let mut scan = Scan::new(Limits::default());
    let mut rest = wire.as_slice();
    (0..times).for_each(|_| {
        let (reply, taken) = scan.poll(rest).expect("RESP").expect("a whole reply");
        rest = &rest[taken..];
        black_box(&reply);
    });
}

/// From a reply to the end of its send.
fn stored(times: usize) {
    let (mut world, conn, mut out) = filled();
    (0..MOST / BURST).for_each(|_| {
        black_box(submit_burst(&mut world, &mut out));
    });
    (0..times / BURST).for_each(|_| assert_eq!(world.answer_burst(conn, BURST), BURST));
    std::mem::forget(world);
}

fn scan_entries(times: usize) {
    let wire = read_reply(ENTRIES);
    let mut scan = Scan::new(Limits::default());
    (0..times / ENTRIES).for_each(|_| {
        black_box(scan.poll(&wire).expect("RESP").expect("a whole reply"));
    });
}

/// From a read's reply to its entries' deliveries, their verdicts and an acknowledgement.
fn deliver(times: usize) {
    let wire = read_reply(ENTRIES);
    let mut replies: Vec<Reply> = (0..MOST / ENTRIES)
        .map(|_| Scan::new(Limits::default()).poll(&wire).expect("RESP").expect("a whole reply").0)
        .collect();
    let mut world = World::subscribed(ENTRIES as u32);
    (0..times / ENTRIES).for_each(|_| {
        world.answer_read(replies.pop().expect("enough replies"));
        assert_eq!(world.settle_all(), ENTRIES);
    });
    std::mem::forget((world, replies));
}

/// An entry's id on its way into an `XACK`'s bytes.
fn ack(times: usize) {
    let topic = TopicSpec::new("orders", 1).expect("a name");
    let ids = (0..ENTRIES as u64).map(|seq| StreamId { ms: 1_700_000_000_000, seq }).collect();
    let key = topic.partitions()[0].clone();
    let command = Command::Ack(Ack { key, group: "billing".into(), ids });
    let mut out = Vec::with_capacity(1 << 16);
    (0..times / ENTRIES).for_each(|_| {
        out.clear();
        encode(&command, &mut out);
        black_box(&out);
    });
}

fn encode(command: &Command, out: &mut Vec<u8>) {
    let mut writer = Writer::new(out);
    command.args(&mut writer);
    writer.finish();
}
