#![allow(clippy::unwrap_used, reason = "a test")]

use alloc::vec;
use alloc::vec::Vec;
use core::task::{Context, Poll};
use std::io;

use bytes::Bytes;

use super::{Lane, Next, READ, WINDOW};
use crate::command::Command;
use crate::driver::fake::{Wakes, Wire, World};
use crate::driver::net::Net;
use crate::id::{ConnId, Id};
use crate::output::ClosedReason;
use crate::reply::Reply;

fn open() -> (Lane<World>, Wire) {
    let mut world = World::new();
    let dial = world.dial(&"10.0.0.1:6379".parse().unwrap());
    let mut lane = Lane::new(ConnId::from_parts(0, 0), dial);
    let (_, waker) = Wakes::new();
    assert_eq!(lane.poll_dial(&mut Context::from_waker(&waker)), Poll::Ready(Ok(())));
    (lane, world.wires().remove(0))
}

/// A command whose only argument is this long; on the wire it is a little longer.
fn command(length: usize) -> Command {
    Command::Raw(vec![Bytes::from(vec![b'x'; length])].into())
}

/// Writes; returns how many commands were accepted, one entry for each report.
fn write(lane: &mut Lane<World>) -> Vec<u64> {
    let (_, waker) = Wakes::new();
    let mut sent = Vec::new();
    lane.write(&mut Context::from_waker(&waker), |commands| sent.push(commands));
    sent
}

fn read(lane: &mut Lane<World>, spare: &mut Vec<u8>) -> (Vec<Reply>, Next) {
    let (_, waker) = Wakes::new();
    let mut replies = Vec::new();
    let next = lane.read(&mut Context::from_waker(&waker), spare, |reply| replies.push(reply));
    (replies, next)
}

fn replies(lane: &mut Lane<World>) -> (Vec<Reply>, Next) {
    read(lane, &mut Vec::new())
}

#[test]
fn a_command_counts_as_sent_when_its_last_byte_is_accepted() {
    let (mut lane, wire) = open();
    lane.send(&Command::Ping);
    lane.send(&Command::Ping);
    let one = "*1\r\n$4\r\nPING\r\n".len();
    wire.ends().takes.extend([one - 1, 1, 3]);
    wire.ends().stuck = true;
    assert_eq!(write(&mut lane), [1]);
    assert_eq!(write(&mut lane), [0_u64; 0]);
    wire.unstick();
    assert_eq!(write(&mut lane), [1]);
    assert!(!lane.has_output());
    assert_eq!(wire.ends().written.concat(), b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n");
}

#[test]
fn what_is_encoded_together_is_written_together() {
    let (mut lane, wire) = open();
    (0..100).for_each(|_| lane.send(&Command::Ping));
    assert_eq!(write(&mut lane), [100]);
    assert_eq!(wire.ends().written.len(), 1);
}

#[test]
fn the_window_closes_at_its_size_and_opens_when_a_quarter_is_answered() {
    let (mut lane, wire) = open();
    let size = encoded(&command(1_000));
    let fit = WINDOW / size;
    (0..2 * fit).for_each(|_| lane.send(&command(1_000)));
    assert_eq!(write(&mut lane), [fit as u64]);
    assert!(wire.ends().written.concat().len() <= WINDOW);
    assert!(!lane.has_output());

    let free = WINDOW - fit * size;
    let quarter = (WINDOW / 4 - free).div_ceil(size);
    wire.say("+OK\r\n".repeat(quarter - 1));
    assert_eq!(replies(&mut lane).0.len(), quarter - 1);
    assert!(!lane.has_output(), "less than a quarter is free");
    wire.say("+OK\r\n");
    assert_eq!(replies(&mut lane).0.len(), 1);
    assert!(lane.has_output());
    assert_eq!(write(&mut lane), [quarter as u64]);
}

#[test]
fn a_command_larger_than_the_window_goes_alone() {
    let (mut lane, wire) = open();
    lane.send(&Command::Ping);
    lane.send(&command(2 * WINDOW));
    lane.send(&Command::Ping);
    assert_eq!(write(&mut lane), [1]);
    wire.say("+OK\r\n");
    replies(&mut lane);
    assert_eq!(write(&mut lane), [1]);
    wire.say("+OK\r\n");
    replies(&mut lane);
    assert_eq!(write(&mut lane), [1]);
    assert_eq!(wire.commands().len(), 3);
}

#[test]
fn a_push_answers_nothing() {
    let (mut lane, wire) = open();
    lane.send(&Command::Ping);
    lane.send(&command(WINDOW));
    write(&mut lane);
    wire.say(">2\r\n+invalidate\r\n_\r\n");
    assert!(replies(&mut lane).0[0].is_push());
    assert!(!lane.has_output(), "the window opened for a push");
}

#[test]
fn a_reply_may_come_in_any_pieces() {
    let reply = "*2\r\n$3\r\nabc\r\n:-5\r\n";
    for cut in 1..reply.len() {
        let (mut lane, wire) = open();
        let mut spare = Vec::new();
        wire.say(&reply[..cut]);
        assert_eq!(read(&mut lane, &mut spare), (vec![], Next::Again), "{cut}");
        wire.say(&reply[cut..]);
        let (found, _) = read(&mut lane, &mut spare);
        assert_eq!(found.len(), 1, "{cut}");
        assert!(spare.capacity() >= READ, "the buffer is given back");
    }
}

#[test]
fn a_short_read_ends_the_round_and_the_next_arms_the_waker() {
    let (mut lane, wire) = open();
    wire.say("+OK\r\n");
    assert_eq!(replies(&mut lane).1, Next::Again);
    assert_eq!(wire.ends().reads, 1);
    assert_eq!(replies(&mut lane).1, Next::Wait);
}

#[test]
fn a_stream_of_replies_does_not_hold_the_round() {
    let (mut lane, wire) = open();
    let chunk = ":1\r\n".repeat(READ / 4);
    (0..100).for_each(|_| wire.say(&chunk));
    let (found, next) = replies(&mut lane);
    assert_eq!(next, Next::Again);
    assert!(found.len() < 100 * READ / 4);
}

#[test]
fn an_end_is_told_from_a_cut() {
    let closed = |said: &str| {
        let (mut lane, wire) = open();
        wire.say(said);
        wire.end();
        let mut spare = Vec::new();
        assert_eq!(read(&mut lane, &mut spare).1, Next::Again);
        match read(&mut lane, &mut spare).1 {
            Next::Closed(why) => (why.reason, why.detail),
            other => panic!("{other:?}"),
        }
    };
    let (reason, whole) = closed("+OK\r\n");
    assert_eq!(reason, ClosedReason::Eof);
    let (_, cut) = closed("$5\r\nab");
    assert_ne!(whole, cut);
}

#[test]
fn what_is_not_resp_closes_after_what_was() {
    let (mut lane, wire) = open();
    lane.send(&Command::Ping);
    write(&mut lane);
    wire.say("+OK\r\nHTTP/1.1 400\r\n");
    let (found, next) = replies(&mut lane);
    assert_eq!(found, [Reply::status("OK")]);
    assert!(matches!(next, Next::Closed(why) if why.reason == ClosedReason::Protocol));
}

#[test]
fn the_last_words_of_a_server_are_read_although_writing_failed() {
    let (mut lane, wire) = open();
    lane.send(&Command::Ping);
    wire.ends().write_error = Some(io::ErrorKind::BrokenPipe);
    wire.say("-ERR max number of clients reached\r\n");
    assert_eq!(write(&mut lane), [0_u64; 0]);
    assert!(lane.is_broken() && !lane.has_output());
    let mut spare = Vec::new();
    let (found, next) = read(&mut lane, &mut spare);
    assert_eq!((found.len(), next), (1, Next::Again));
    assert!(matches!(read(&mut lane, &mut spare).1, Next::Closed(why) if why.reason == ClosedReason::Io));
}

#[test]
fn a_failed_dial_says_of_which_kind() {
    let mut world = World::new();
    world.state().refuse = Some(io::ErrorKind::ConnectionRefused);
    let dial = world.dial(&"10.0.0.1:6379".parse().unwrap());
    let mut lane: Lane<World> = Lane::new(ConnId::from_parts(0, 0), dial);
    let (_, waker) = Wakes::new();
    match lane.poll_dial(&mut Context::from_waker(&waker)) {
        Poll::Ready(Err(why)) => assert_eq!(why.reason, ClosedReason::Refused),
        other => panic!("{other:?}"),
    }
}

fn encoded(command: &Command) -> usize {
    let (mut lane, wire) = open();
    lane.send(command);
    write(&mut lane);
    let written = wire.ends().written.concat();
    written.len()
}
