use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::command::Arg;
use crate::reply::ReplyBuilder;

const TTL: Duration = Duration::from_secs(15);
/// 98 % of the time to live, less half a second.
const BELIEF: Duration = Duration::from_millis(14_200);
const DRAIN: Duration = Duration::from_secs(30);
/// Longer than most tests take: they do not read.
const DEAF: Duration = Duration::from_secs(3_600);

fn terms(store: &str, member: &str) -> Terms {
    Terms {
        scope: Arc::new(Scope { store: store.into(), topic: "t".into(), group: "g".into() }),
        member: member.into(),
        partitions: 8,
        ttl: TTL,
        drain: DRAIN,
        deaf: DEAF,
        #[cfg(feature = "mutants")]
        mutant: None,
    }
}

fn contact(run: &str) -> Contact {
    Contact { run: run.into(), started_ms: 5_000, log_lost_ms: Some(3_000) }
}

/// A time in milliseconds.
const fn at(ms: u64) -> Mono {
    Mono(1_000_000_000 + ms * 1_000)
}

/// What a tick says, by the names of its arguments.
#[derive(Debug, PartialEq)]
struct Said {
    mode: &'static str,
    known: i64,
    newest: i64,
    sequence: i64,
    held: Vec<(i64, i64)>,
}

fn said(eval: &Eval) -> Said {
    let int = |at: usize| match &eval.args[at] {
        Arg::Int(n) => *n,
        other => panic!("argument {at} is {other:?}"),
    };
    let Arg::Word(mode) = eval.args[3] else { panic!("no mode") };
    let held = usize::try_from(int(12)).unwrap();
    assert_eq!(eval.args.len(), 13 + 2 * held);
    let held = (0..held).map(|n| (int(13 + 2 * n), int(14 + 2 * n))).collect();
    Said { mode, known: int(4), newest: int(6), sequence: int(11), held }
}

fn tick(lease: &mut Lease, now: Mono) -> Said {
    match lease.poll(now) {
        Some(Want::Tick(eval)) => said(&eval),
        other => panic!("{other:?} instead of a tick"),
    }
}

/// The numbers of a full answer.
struct Shape {
    generation: i64,
    share: i64,
    more: i64,
    partitions: i64,
}

const PLAIN: Shape = Shape { generation: 7, share: 8, more: 0, partitions: 8 };

fn full(reply: &Shape, mine: &[(u32, u64)]) -> Reply {
    let mut build = ReplyBuilder::new();
    let fence = mine.iter().map(|(_, token)| *token).max().unwrap_or(1);
    build.array(10).bulk(b"full").bulk(b"1700000000000");
    build.bulk(reply.generation.to_string().as_bytes()).bulk(fence.to_string().as_bytes());
    build.int(reply.partitions).int(reply.share).int(2).bulk(b"0").int(reply.more);
    build.array(u32::try_from(2 * mine.len()).unwrap());
    for (partition, token) in mine {
        build.bulk(partition.to_string().as_bytes()).bulk(token.to_string().as_bytes());
    }
    build.finish()
}

fn same(generation: u64) -> Reply {
    let mut build = ReplyBuilder::new();
    build.array(3).bulk(b"same").bulk(b"1700000000000").bulk(generation.to_string().as_bytes());
    build.finish()
}

fn stale() -> Reply {
    let mut build = ReplyBuilder::new();
    build.array(1).bulk(b"stale");
    build.finish()
}

/// A member that has joined, and asked for its share 200 ms later, at `at(200)`.
fn joined() -> Lease {
    let mut lease = Lease::new(terms("s", "m"));
    assert!(lease.poll(at(0)).is_none(), "there is no connection");
    lease.on_contact(at(0), contact("r"));
    assert_eq!(tick(&mut lease, at(0)).mode, "join");
    lease.on_reply(at(0), &full(&Shape { generation: 0, ..PLAIN }, &[])).unwrap();
    assert_eq!(lease.next_at(), Some(at(200)));
    lease
}

/// … and has got these, with the emission at `at(200)` and the answer at `at(210)`.
fn holding(mine: &[(u32, u64)]) -> Lease {
    let mut lease = joined();
    let said = tick(&mut lease, at(200));
    assert_eq!((said.mode, said.known, said.held), ("run", 0, vec![]));
    let share = i64::try_from(mine.len()).unwrap();
    lease.on_reply(at(210), &full(&Shape { share, ..PLAIN }, mine)).unwrap();
    let acquired: Vec<_> = mine.iter().map(|(partition, token)| Change::Acquired(*partition, Token(*token))).collect();
    assert_eq!(lease.take_changes(), acquired);
    lease
}

/// When the next tick is due, for one that is not below its share.
fn due(lease: &Lease) -> Mono {
    lease.due
}

#[test]
fn a_tick_says_everything_in_its_place() {
    let mut lease = holding(&[(3, 100), (5, 101)]);
    let now = due(&lease);
    let Some(Want::Tick(eval)) = lease.poll(now) else { panic!("no tick") };
    let keys: Vec<_> = eval.keys.iter().map(Key::as_str).collect();
    assert_eq!(
        keys,
        [
            "streaming:mq:lease:t:g",
            "streaming:mq:lease:t:g:own",
            "streaming:mq:lease:t:g:members",
            "streaming:mq:lease:t:g:rank",
            "streaming:mq:topic:t:meta"
        ]
    );
    let args: Vec<String> = eval.args.iter().map(|arg| format!("{arg:?}")).collect();
    let (place, sequence) = (lease.place.to_string(), now.0.to_string());
    let expected = [
        "m", &place, "15000", "run", "7", "r", "101", "8", "100", "5000", "3000", &sequence, "2", "3", "100", "5",
        "101",
    ];
    assert_eq!(args, expected);
    assert!(lease.place < 1 << 52);
}

#[test]
fn one_tick_is_in_flight_and_an_answer_that_is_overdue_costs_the_connection() {
    let mut lease = holding(&[(0, 9)]);
    let now = due(&lease);
    let first = tick(&mut lease, now);
    assert!(lease.poll(now).is_none());
    assert!(lease.poll(now + Duration::from_millis(1_999)).is_none());
    assert_eq!(lease.next_at(), Some(now + Duration::from_secs(2)));
    let late = now + Duration::from_secs(2);
    assert!(matches!(lease.poll(late), Some(Want::HangUp)));
    assert!(lease.poll(late).is_none());
    // An answer that comes now is nobody's.
    lease.on_reply(late, &same(7)).unwrap();
    assert_eq!(lease.believed(at(200) + BELIEF, 0), None);
    lease.on_contact(late, contact("r"));
    let second = tick(&mut lease, late);
    assert!(second.sequence > first.sequence);
    assert_eq!((first.known, second.known), (7, 0));
    assert_eq!(second.held, [(0, 9)]);
}

#[test]
fn belief_lasts_from_the_emission_and_ends_before_the_server_s() {
    let lease = holding(&[(0, 9)]);
    let end = at(200) + BELIEF;
    assert_eq!(lease.belief_ends(), Some(end));
    assert_eq!(lease.believed(end - Duration::from_micros(1), 0), Some(Token(9)));
    assert_eq!(lease.believed(end, 0), None);
    assert_eq!(lease.believed(at(300), 1), None);
    assert_eq!(lease.fence(end, 0), None);
    assert_eq!(lease.readable(end).count(), 0);
}

#[test]
fn what_lapses_is_lost_at_once_and_told_as_soon_as_may_be() {
    let mut lease = holding(&[(0, 9), (1, 10)]);
    lease.on_contact_lost(at(300));
    let end = at(200) + BELIEF;
    assert_eq!(lease.next_at(), Some(end));
    lease.on_time(end);
    assert_eq!(lease.take_changes(), [Change::Lost(0, Token(9)), Change::Lost(1, Token(10))]);
    assert_eq!((lease.held(), lease.next_at()), (0, None));
    lease.on_contact(end, contact("r"));
    let said = tick(&mut lease, end);
    assert_eq!((said.known, said.newest, said.held), (0, 10, vec![]));
}

#[test]
fn same_prolongs_what_was_presented() {
    let mut lease = holding(&[(0, 9)]);
    let emitted = due(&lease);
    assert_eq!(tick(&mut lease, emitted).known, 7);
    lease.on_reply(emitted + Duration::from_millis(300), &same(7)).unwrap();
    assert_eq!(lease.belief_ends(), Some(emitted + BELIEF));
    assert_eq!(lease.take_changes(), []);
}

#[test]
fn after_a_lapse_same_proves_no_agreement() {
    let mut lease = holding(&[(0, 9)]);
    // Emitted before the lapse, answered after it.
    let emitted = at(200) + BELIEF - Duration::from_millis(10);
    tick(&mut lease, emitted);
    let answered = emitted + Duration::from_millis(20);
    lease.on_reply(answered, &same(7)).unwrap();
    assert_eq!(lease.take_changes(), [Change::Lost(0, Token(9))]);
    let said = tick(&mut lease, answered);
    assert_eq!((said.known, said.held), (0, vec![]));
    // The server takes it for given up, and grants it anew.
    lease.on_reply(answered, &full(&Shape { share: 1, ..PLAIN }, &[(0, 20)])).unwrap();
    assert_eq!(lease.take_changes(), [Change::Acquired(0, Token(20))]);
}

#[test]
fn what_was_lost_is_not_had_again_under_its_old_token() {
    let mut lease = holding(&[(0, 9)]);
    let emitted = at(200) + BELIEF - Duration::from_millis(10);
    tick(&mut lease, emitted);
    let answered = emitted + Duration::from_millis(20);
    lease.on_reply(answered, &full(&Shape { share: 2, ..PLAIN }, &[(0, 9), (1, 30)])).unwrap();
    assert_eq!(lease.take_changes(), [Change::Lost(0, Token(9)), Change::Acquired(1, Token(30))]);
    assert_eq!(lease.belief_ends(), Some(emitted + BELIEF));
    let said = tick(&mut lease, answered);
    assert_eq!((said.known, said.held), (0, vec![(1, 30)]));
}

#[test]
fn an_answer_that_comes_after_the_belief_it_would_give_gives_none() {
    let mut lease = joined();
    tick(&mut lease, at(200));
    let late = at(200) + BELIEF;
    lease.on_reply(late, &full(&PLAIN, &[(0, 9)])).unwrap();
    assert_eq!((lease.take_changes(), lease.held()), (vec![], 0));
    assert_eq!(lease.next_at(), Some(late + AFTER_MORE));
    let said = tick(&mut lease, late + AFTER_MORE);
    assert_eq!((said.known, said.newest, said.held), (0, 9, vec![]));
}

#[test]
fn a_full_answer_is_the_whole_truth() {
    let mut lease = holding(&[(0, 9), (1, 10), (2, 11)]);
    let emitted = due(&lease);
    tick(&mut lease, emitted);
    lease.on_reply(emitted, &full(&Shape { generation: 8, share: 3, ..PLAIN }, &[(0, 9), (1, 20), (5, 21)])).unwrap();
    assert_eq!(
        lease.take_changes(),
        [
            Change::Lost(1, Token(10)),
            Change::Lost(2, Token(11)),
            Change::Acquired(1, Token(20)),
            Change::Acquired(5, Token(21))
        ]
    );
    assert_eq!(lease.believed(emitted, 0), Some(Token(9)));
    assert_eq!(lease.belief_ends(), Some(emitted + BELIEF));
    let now = due(&lease);
    let said = tick(&mut lease, now);
    assert_eq!((said.known, said.newest), (8, 21));
}

#[test]
fn stale_and_refused_ticks_are_repeated_in_full_after_a_moment() {
    for reply in [stale(), Reply::Error(crate::reply::ErrorReply::new(b"OOM no memory"))] {
        let mut lease = holding(&[(0, 9)]);
        let now = due(&lease);
        tick(&mut lease, now);
        lease.on_reply(now, &reply).unwrap();
        assert_eq!(lease.belief_ends(), Some(at(200) + BELIEF));
        assert!(lease.poll(now + Duration::from_millis(699)).is_none());
        assert_eq!(tick(&mut lease, now + AFTER_REFUSAL).known, 0);
    }
}

#[test]
fn a_tick_that_was_not_sent_is_repeated() {
    let mut lease = holding(&[(0, 9)]);
    let now = due(&lease);
    tick(&mut lease, now);
    lease.on_orphan(now);
    lease.on_orphan(now);
    assert_eq!(tick(&mut lease, now + AFTER_REFUSAL).known, 0);
}

#[test]
fn another_generation_than_asked_for_is_no_agreement() {
    let mut lease = holding(&[(0, 9)]);
    let now = due(&lease);
    tick(&mut lease, now);
    lease.on_reply(now, &same(8)).unwrap();
    assert_eq!(tick(&mut lease, now + AFTER_REFUSAL).known, 0);
}

#[test]
fn misshapen_answers_are_errors_and_nothing_of_them_is_used() {
    let scalar = |build: &mut ReplyBuilder| _ = build.bulk(b"full");
    let short = |build: &mut ReplyBuilder| _ = build.array(2).bulk(b"same").bulk(b"1");
    let word = |build: &mut ReplyBuilder| _ = build.array(1).bulk(b"other");
    let number = |build: &mut ReplyBuilder| _ = build.array(1).int(1);
    let empty = |build: &mut ReplyBuilder| _ = build.array(0);
    let negative = |build: &mut ReplyBuilder| _ = build.array(3).bulk(b"same").int(1).int(-1);
    let list = |build: &mut ReplyBuilder, list: &[&[u8]]| {
        build.array(10).bulk(b"full").int(1).int(1).int(1).int(8).int(8).int(1).int(0).int(0);
        build.array(u32::try_from(list.len()).unwrap());
        list.iter().for_each(|item| _ = build.bulk(item));
    };
    let odd = |build: &mut ReplyBuilder| list(build, &[b"0"]);
    let text = |build: &mut ReplyBuilder| list(build, &[b"x", b"1"]);
    let far = |build: &mut ReplyBuilder| list(build, &[b"1000", b"1"]);
    let zero = |build: &mut ReplyBuilder| list(build, &[b"0", b"0"]);
    let huge = |build: &mut ReplyBuilder| list(build, &[b"0", b"9223372036854775807"]);
    let twice = |build: &mut ReplyBuilder| list(build, &[b"0", b"1", b"0", b"2"]);
    let wide = |build: &mut ReplyBuilder| {
        build.array(10).bulk(b"full").int(1).int(1).int(1).int(1_001).int(8).int(1).int(0).int(0).array(0);
    };
    type Make<'a> = &'a dyn Fn(&mut ReplyBuilder);
    let all: [(&str, Make<'_>); 13] = [
        ("scalar", &scalar),
        ("short", &short),
        ("word", &word),
        ("number", &number),
        ("empty", &empty),
        ("negative", &negative),
        ("odd", &odd),
        ("text", &text),
        ("far", &far),
        ("zero", &zero),
        ("huge", &huge),
        ("twice", &twice),
        ("wide", &wide),
    ];
    for (name, make) in all {
        let mut lease = holding(&[(0, 9)]);
        let now = due(&lease);
        tick(&mut lease, now);
        let mut build = ReplyBuilder::new();
        make(&mut build);
        assert!(lease.on_reply(now, &build.finish()).is_err(), "{name}");
        assert_eq!((lease.take_changes(), lease.held()), (vec![], 1), "{name}");
        assert_eq!(lease.belief_ends(), Some(at(200) + BELIEF), "{name}");
        assert_eq!(tick(&mut lease, now + AFTER_REFUSAL).known, 0, "{name}");
    }
    let mut lease = holding(&[(0, 9)]);
    let now = due(&lease);
    tick(&mut lease, now);
    assert!(lease.on_reply(now, &Reply::Nil).is_err());
    assert!(lease.on_reply(now, &Reply::Nil).is_ok(), "no tick is in flight");
}

#[test]
fn the_last_acquired_go_first_and_come_back_last() {
    let mut lease = holding(&[(0, 9), (1, 10)]);
    let now = due(&lease);
    tick(&mut lease, now);
    let mine = [(0, 9), (1, 10), (7, 20), (4, 21)];
    lease.on_reply(now, &full(&Shape { share: 4, ..PLAIN }, &mine)).unwrap();
    lease.take_changes();
    let now = due(&lease);
    tick(&mut lease, now);
    lease.on_reply(now, &full(&Shape { share: 1, ..PLAIN }, &mine)).unwrap();
    // Granted in one answer, 4 and 7 came in the order of their numbers.
    assert_eq!(lease.take_changes(), [Change::Drain(7), Change::Drain(4), Change::Drain(1)]);
    assert_eq!(lease.surplus(), [7, 4, 1]);
    assert_eq!(lease.readable(now).collect::<Vec<_>>(), [(0, Token(9))]);
    assert_eq!(lease.believed(now, 7), Some(Token(20)), "what is in hand may still be settled");
    let now = due(&lease);
    assert_eq!(tick(&mut lease, now).held.len(), 4, "what drains is still presented");
    lease.on_reply(now, &full(&Shape { share: 3, ..PLAIN }, &mine)).unwrap();
    assert_eq!(lease.take_changes(), [Change::Resume(1), Change::Resume(4)]);
    assert_eq!(lease.surplus(), [7]);
}

#[test]
fn what_is_released_is_not_believed_and_told_at_once_in_a_tick_of_its_own() {
    let mut lease = holding(&[(0, 9), (1, 10)]);
    lease.released(at(400), 1);
    assert_eq!(lease.held(), 2, "only what has to go can be released");
    let now = due(&lease);
    tick(&mut lease, now);
    lease.on_reply(now, &full(&Shape { share: 1, ..PLAIN }, &[(0, 9), (1, 10)])).unwrap();
    assert_eq!(lease.take_changes(), [Change::Drain(1)]);
    let then = now + Duration::from_millis(40);
    lease.released(then, 1);
    assert_eq!((lease.believed(then, 1), lease.held()), (None, 1));
    assert_eq!(lease.next_at(), Some(then));
    let said = tick(&mut lease, then);
    assert_eq!((said.known, said.held), (0, vec![(0, 9)]));
    assert_eq!(lease.take_changes(), []);
}

#[test]
fn an_answer_from_before_a_release_does_not_bring_it_back() {
    let mut lease = holding(&[(0, 9), (1, 10)]);
    lease.leave(at(300));
    assert_eq!(lease.take_changes(), [Change::Drain(1), Change::Drain(0)]);
    assert_eq!(tick(&mut lease, at(300)).mode, "leave");
    lease.released(at(310), 1);
    lease.on_reply(at(320), &full(&Shape { generation: 0, share: 0, ..PLAIN }, &[(0, 9), (1, 10)])).unwrap();
    assert_eq!((lease.take_changes(), lease.held()), (vec![], 1));
    assert_eq!(tick(&mut lease, at(320)).held, [(0, 9)]);
}

#[test]
fn what_does_not_drain_in_time_is_given_up() {
    let mut lease = holding(&[(0, 9)]);
    lease.leave(at(300));
    lease.take_changes();
    let mut now = at(300);
    // Heartbeats go on meanwhile.
    while now < at(300) + DRAIN {
        if matches!(lease.poll(now), Some(Want::Tick(_))) {
            lease.on_reply(now, &full(&Shape { generation: 0, share: 0, ..PLAIN }, &[(0, 9)])).unwrap();
        }
        now = lease.next_at().unwrap();
    }
    assert_eq!(now, at(300) + DRAIN);
    assert_eq!(lease.held(), 1);
    lease.on_time(now);
    assert_eq!(lease.take_changes(), [Change::Lost(0, Token(9))]);
    assert_eq!(tick(&mut lease, now).held, []);
}

#[test]
fn ticks_come_at_their_times() {
    let mut lease = joined();
    assert!(lease.poll(at(199)).is_none());
    tick(&mut lease, at(200));
    // More than one tick may grant.
    lease.on_reply(at(205), &full(&Shape { generation: 0, more: 1, ..PLAIN }, &[(0, 9)])).unwrap();
    assert_eq!(lease.next_at(), Some(at(255)));
    tick(&mut lease, at(255));
    // Less than its share.
    lease.on_reply(at(260), &full(&PLAIN, &[(0, 9)])).unwrap();
    assert_eq!(lease.next_at(), Some(at(960)));
    tick(&mut lease, at(960));
    lease.on_reply(at(965), &same(7)).unwrap();
    assert_eq!(lease.next_at(), Some(at(1_665)), "nothing has changed, so it still has less than its share");
    // All of it.
    let mut now = at(1_665);
    let mut seen = alloc::collections::BTreeSet::new();
    for _ in 0..200 {
        tick(&mut lease, now);
        lease.on_reply(now, &full(&Shape { share: 1, ..PLAIN }, &[(0, 9)])).unwrap();
        lease.on_read(now);
        let next = lease.next_at().unwrap();
        let gap = next.since(now).as_millis();
        assert!((2_700..=3_300).contains(&gap), "{gap} ms");
        seen.insert(gap / 100);
        now = next;
    }
    assert!(seen.len() >= 6, "jittered: {seen:?}");
}

#[test]
fn a_lost_connection_ends_no_belief_and_what_is_held_is_presented_to_the_next_process() {
    let mut lease = holding(&[(0, 9)]);
    lease.on_contact_lost(at(1_000));
    assert_eq!(lease.believed(at(5_000), 0), Some(Token(9)));
    assert!(lease.poll(at(5_000)).is_none());
    lease.on_contact(at(5_000), contact("other"));
    let said = tick(&mut lease, at(5_000));
    assert_eq!((said.mode, said.known, said.held), ("run", 0, vec![(0, 9)]));
    lease.on_reply(at(5_010), &full(&Shape { share: 1, ..PLAIN }, &[(0, 9)])).unwrap();
    assert_eq!(lease.take_changes(), []);
}

#[test]
fn a_registration_that_was_not_answered_is_repeated() {
    let mut lease = Lease::new(terms("s", "m"));
    lease.on_contact(at(0), contact("r"));
    assert_eq!(tick(&mut lease, at(0)).mode, "join");
    lease.on_contact(at(500), contact("r"));
    assert_eq!(tick(&mut lease, at(500)).mode, "join");
}

#[test]
fn a_member_none_of_whose_reads_ends_leaves_the_line() {
    let mut lease = holding(&[(0, 9)]);
    lease.terms.deaf = Duration::from_secs(6);
    let quiet = at(210) + lease.terms.deaf;
    let mut now = at(210);
    while now < quiet {
        if let Some(Want::Tick(_)) = lease.poll(now) {
            lease.on_reply(now, &full(&Shape { share: 1, ..PLAIN }, &[(0, 9)])).unwrap();
        }
        now = lease.next_at().unwrap();
    }
    assert_eq!((now, lease.take_changes()), (quiet, vec![]));
    let said = tick(&mut lease, quiet);
    assert_eq!((said.mode, said.known), ("leave", 0));
    assert_eq!(lease.take_changes(), [Change::Drain(0)]);
    lease.on_reply(quiet, &full(&Shape { generation: 0, share: 0, ..PLAIN }, &[(0, 9)])).unwrap();
    // A new connection, say.
    lease.on_read(quiet);
    assert_eq!(tick(&mut lease, quiet).mode, "run");
    lease.on_reply(quiet, &full(&Shape { share: 1, ..PLAIN }, &[(0, 9)])).unwrap();
    assert_eq!(lease.take_changes(), [Change::Resume(0)]);
}

#[test]
fn whoever_has_nothing_to_read_is_not_deaf() {
    let mut lease = holding(&[(0, 9)]);
    lease.terms.deaf = Duration::from_secs(6);
    let mut now = at(210);
    let mut share = 0;
    while now < at(20_000) {
        if let Some(Want::Tick(eval)) = lease.poll(now) {
            assert_eq!(said(&eval).mode, "run");
            lease.on_reply(now, &full(&Shape { share, ..PLAIN }, &[(0, 9)])).unwrap();
        }
        now = lease.next_at().unwrap();
    }
    // It drained all the time, and now it is to be read again.
    share = 1;
    tick(&mut lease, now);
    lease.on_reply(now, &full(&Shape { share, ..PLAIN }, &[(0, 9)])).unwrap();
    lease.on_time(now + Duration::from_secs(5));
    assert_eq!(lease.take_changes(), [Change::Drain(0), Change::Resume(0)]);
}

#[test]
fn whoever_leaves_drains_and_says_a_last_word() {
    let mut lease = holding(&[(0, 9), (1, 10)]);
    lease.leave(at(300));
    assert_eq!(tick(&mut lease, at(300)).mode, "leave");
    lease.on_reply(at(310), &full(&Shape { generation: 0, share: 0, ..PLAIN }, &[(0, 9), (1, 10)])).unwrap();
    lease.released(at(320), 0);
    assert_eq!(tick(&mut lease, at(320)).held, [(1, 10)]);
    lease.on_reply(at(330), &full(&Shape { generation: 0, share: 0, ..PLAIN }, &[(1, 10)])).unwrap();
    lease.take_changes();
    lease.end(at(340));
    assert_eq!(lease.take_changes(), [Change::Lost(1, Token(10))]);
    let said = tick(&mut lease, at(340));
    assert_eq!((said.mode, said.held), ("gone", vec![]));
    assert!(!lease.is_over());
    // A grant that was under way is not taken.
    lease.on_reply(at(350), &full(&Shape { generation: 0, share: 0, ..PLAIN }, &[(1, 10)])).unwrap();
    assert!(lease.is_over());
    assert_eq!((lease.next_at(), lease.held()), (None, 0));
    assert!(lease.poll(at(99_999)).is_none());
}

#[test]
fn a_grant_that_was_under_way_to_whoever_leaves_is_not_taken() {
    let mut lease = joined();
    tick(&mut lease, at(200));
    lease.leave(at(205));
    lease.on_reply(at(210), &full(&PLAIN, &[(0, 9)])).unwrap();
    assert_eq!((lease.take_changes(), lease.held()), (vec![], 0));
    let said = tick(&mut lease, at(210));
    assert_eq!((said.mode, said.known, said.held), ("leave", 0, vec![]));
}

#[test]
fn whoever_changes_its_mind_keeps_what_has_not_gone() {
    let mut lease = holding(&[(0, 9), (1, 10)]);
    lease.leave(at(300));
    lease.released(at(310), 1);
    lease.rejoin(at(320));
    lease.take_changes();
    let said = tick(&mut lease, at(320));
    assert_eq!((said.mode, said.known, said.held), ("run", 0, vec![(0, 9)]));
    lease.on_reply(at(330), &full(&Shape { share: 2, ..PLAIN }, &[(0, 9), (1, 20)])).unwrap();
    assert_eq!(lease.take_changes(), [Change::Acquired(1, Token(20)), Change::Resume(0)]);
}

#[test]
fn the_number_of_partitions_is_remembered_for_a_broker_that_forgets_it() {
    let mut lease = joined();
    tick(&mut lease, at(200));
    lease.on_reply(at(210), &full(&Shape { partitions: 12, share: 6, ..PLAIN }, &[])).unwrap();
    assert_eq!(lease.sharing(), (12, 6, 2));
    let Some(Want::Tick(eval)) = lease.poll(at(910)) else { panic!("no tick") };
    assert!(eval.args[7] == Arg::Int(12));
}

#[test]
fn fences_compare_within_one_scope_and_partition() {
    let lease = holding(&[(0, 9), (1, 10)]);
    let (zero, one) = (lease.fence(at(300), 0).unwrap(), lease.fence(at(300), 1).unwrap());
    let later = Fence { token: Token(11), ..zero.clone() };
    assert!(zero < later);
    assert_eq!(zero.partial_cmp(&one), None);
    let scope = Arc::new(Scope { store: "other".into(), ..(*zero.scope).clone() });
    assert_eq!(zero.partial_cmp(&Fence { scope, ..later }), None);
}

#[test]
fn members_stand_in_another_order_on_each_broker() {
    let order = |store: &str| {
        let mut members: Vec<_> = (0..6).map(|n| format!("service.0123456789abcdef.{n}")).collect();
        members.sort_by_key(|member| Lease::new(terms(store, member)).place);
        members
    };
    let orders: alloc::collections::BTreeSet<_> = (0..20).map(|n| order(&format!("store-{n}"))).collect();
    assert!(orders.len() >= 18, "{} of 20", orders.len());
}

#[test]
fn any_time_to_live_that_is_allowed_leaves_some_belief() {
    let mut lease = Lease::new(Terms { ttl: Duration::from_secs(3), ..terms("s", "m") });
    lease.on_contact(at(0), contact("r"));
    tick(&mut lease, at(0));
    assert_eq!(lease.next_at(), Some(at(600)), "the patience is a period at most");
    lease.on_reply(at(1), &full(&Shape { generation: 0, ..PLAIN }, &[])).unwrap();
    tick(&mut lease, at(201));
    lease.on_reply(at(202), &full(&PLAIN, &[(0, 9)])).unwrap();
    assert_eq!(lease.belief_ends(), Some(at(201 + 2_440)));
    assert_eq!(lease.next_at(), Some(at(802)));
}
