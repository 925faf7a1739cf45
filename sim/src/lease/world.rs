//! A run: one queue of events, in true time.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use flota_core::command::{By, Command, Eval};
use flota_core::mutant::{Mutant, Patch};
use flota_core::reply::{Reply, View};
use flota_core::script::Script;
use flota_core::time::Mono;
use flota_core::topic::lease::{Change, Token, Want};

use super::member::{BLOCK, Execution, Input, Member};
use super::oracle::{Broken, Executed, Ledger};
use super::plan::{Family, Fault, MS, Moved, S, Schedule};
use super::server::Server;
use crate::broker::convert;
use crate::rng::Rng;

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The first thing that did not hold.
    pub broken: Option<Broken>,
    /// What else did not hold, where only one thing was asked for.
    pub others: BTreeSet<u8>,
    /// Ticks executed.
    pub ticks: u64,
    /// Partitions granted.
    pub grants: u64,
    /// Partitions that two believed in, when the server could not know better.
    pub excused: u64,
    /// Partitions that were lost by members that live.
    pub lost: u64,
    /// Ticks that came after a later one.
    pub stale: u64,
    /// Members that the server knows at the end, and those whose sequence numbers it keeps.
    pub known: (usize, usize),
    /// True time at the end, in microseconds.
    pub simulated_us: u64,
    /// What happened, a line each, if it was asked for.
    pub story: Vec<String>,
}

/// How a schedule is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask {
    /// With this fault.
    pub mutant: Option<Mutant>,
    /// Until this does not hold; otherwise until anything does not.
    pub only: Option<u8>,
    /// With its story.
    pub tell: bool,
}

/// Runs a schedule.
///
/// # Panics
///
/// When the machine says something that makes no sense to a consumer, or the model broker lacks a command.
#[must_use]
pub fn run(schedule: &Schedule, ask: Ask) -> Outcome {
    let mut world = World::new(schedule, ask);
    if let Err(broken) = world.drive() {
        world.outcome.broken = Some(broken);
    }
    assert!(world.server.gaps().is_empty(), "the model broker lacks {:?}", world.server.gaps());
    world.outcome.simulated_us = world.at;
    world.outcome.known = world.server.known(world.at);
    world.outcome
}

/// A process, by its slot and its number.
type Who = (usize, u64);

enum Event {
    Fault(usize),
    Next(Fault),
    To(Who, Input),
    Connect(Who),
    Exit(Who),
    Arrive(Box<Request>),
    Up { copy: bool, failover: bool },
}

/// A tick on its way.
struct Request {
    who: Who,
    member: String,
    conn: u64,
    process: u64,
    newest: u64,
    words: Vec<Bytes>,
    /// How long the answer takes; none if it is lost.
    back: Option<u64>,
}

struct World<'a> {
    schedule: &'a Schedule,
    ask: Ask,
    done: bool,
    at: u64,
    queue: BTreeMap<(u64, u64), Event>,
    counter: u64,
    server: Server,
    slots: Vec<Option<(u64, Member)>>,
    rng: Rng,
    ledger: Ledger,
    /// Who had which partition at the last check.
    shares: Option<BTreeMap<u32, (Who, Token)>>,
    judged: BTreeSet<(u32, Token, Token)>,
    outcome: Outcome,
}

impl<'a> World<'a> {
    fn new(schedule: &'a Schedule, ask: Ask) -> Self {
        let plain = Script::Tick.text();
        let patched = |patch: Patch| Bytes::from(plain.replacen(patch.from, patch.to, 1));
        let script = ask.mutant.and_then(Mutant::patch).map_or(Bytes::from_static(plain.as_bytes()), patched);
        let mut world = Self {
            schedule,
            ask,
            done: false,
            at: 0,
            queue: BTreeMap::new(),
            counter: 0,
            server: Server::new(schedule.server_ppm, schedule.log, schedule.partitions, script),
            slots: schedule.members.iter().map(|_| None).collect(),
            rng: Rng::new(schedule.seed, "lease network"),
            ledger: Ledger::default(),
            shares: None,
            judged: BTreeSet::new(),
            outcome: Outcome::default(),
        };
        for (index, (at, _)) in schedule.faults.iter().enumerate() {
            world.push(*at, Event::Fault(index));
        }
        world
    }

    fn drive(&mut self) -> Result<(), Broken> {
        while let Some(((at, _), event)) = self.queue.pop_first() {
            if at > self.schedule.end_us || self.done {
                break;
            }
            self.at = at;
            match event {
                Event::Fault(index) => self.fault(&self.schedule.faults[index].1)?,
                Event::Next(fault) => self.fault(&fault)?,
                Event::To(who, input) => self.input(who, input)?,
                Event::Connect(who) => self.connect(who)?,
                Event::Exit(who) => self.exit(who),
                Event::Arrive(request) => self.arrive(*request)?,
                Event::Up { copy, failover } => self.up(copy, failover),
            }
        }
        Ok(())
    }

    // ---- what goes wrong ----

    fn fault(&mut self, fault: &Fault) -> Result<(), Broken> {
        self.say(|| format!("{fault:?}"));
        let at = self.at;
        match *fault {
            Fault::Start(slot) => self.start(slot),
            Fault::Crash(slot) => self.slots[slot] = None,
            Fault::Stop(slot) => {
                if let Some(who) = self.who(slot)
                    && let Some(member) = self.member(who)
                    && !std::mem::replace(&mut member.stopping, true)
                {
                    let now = member.clock.now(at).mono;
                    // A process that is suspended stops when it runs again.
                    if member.suspended_until <= at {
                        member.lease.leave(now);
                    }
                    self.push(at + self.schedule.drain_us + 4 * S, Event::Exit(who));
                    return self.input(who, Input::Wake);
                }
            }
            Fault::Suspend(slot, until) => {
                if let Some(who) = self.who(slot)
                    && let Some(member) = self.member(who)
                {
                    member.suspended_until = member.suspended_until.max(until);
                    self.push(until, Event::To(who, Input::Wake));
                }
            }
            Fault::Deafen(slot, until) => {
                if let Some(member) = self.who(slot).and_then(|who| self.member(who)) {
                    member.deaf_until = member.deaf_until.max(until);
                }
            }
            Fault::Cut(slot) => {
                if let Some(who) = self.who(slot)
                    && let Some(member) = self.member(who)
                {
                    let conn = member.conn;
                    return self.input(who, Input::Closed { conn });
                }
            }
            Fault::Copy => self.server.copy(),
            Fault::Restart { copy, down_us, failover } => {
                self.server.stop();
                for slot in 0..self.slots.len() {
                    let Some(who) = self.who(slot) else { continue };
                    let delay = self.rng.below(50 * MS);
                    if let Some(conn) = self.member(who).map(|member| member.conn) {
                        self.push(at + delay, Event::To(who, Input::Closed { conn }));
                    }
                }
                self.push(at + down_us, Event::Up { copy, failover });
            }
            Fault::Flush => {
                self.server.flush(at);
                self.ledger.lost(at, true);
            }
            Fault::Delete(key) => {
                self.server.delete(at, key);
                // Neither the line nor the topic says who owns what.
                if key < 3 {
                    self.ledger.lost(at, true);
                }
            }
            Fault::Step(by_ms) => {
                self.server.step(by_ms);
                if by_ms > 0 {
                    self.ledger.leapt(at, by_ms.unsigned_abs() * MS);
                }
            }
            Fault::Grow(partitions) => self.server.set_partitions(at, partitions),
            Fault::Check(moved) => {
                if let Err(broken) = self.check(moved) {
                    return self.judge(broken);
                }
            }
            Fault::Settle(until) => match self.at_rest().and_then(|()| self.check(Moved::Any)) {
                Err(broken) if at >= until => return self.judge(broken),
                Err(_) => self.push((at + self.schedule.ttl_us() / 4).min(until), Event::Next(Fault::Settle(until))),
                // It stays so; to see that takes long.
                Ok(()) if self.schedule.seed.is_multiple_of(4) => {
                    let then = at + self.schedule.ttl_us();
                    self.push(then, Event::Next(Fault::Check(Moved::None)));
                }
                Ok(()) => self.done = true,
            },
        }
        Ok(())
    }

    fn start(&mut self, slot: usize) {
        if self.slots[slot].is_some() {
            return;
        }
        self.counter += 1;
        let id = self.counter;
        let member = Member::new(self.schedule, slot, self.at, self.ask.mutant, format!("m{slot}.{id}"));
        self.slots[slot] = Some((id, member));
        let delay = self.rng.below(20 * MS);
        self.push(self.at, Event::To((slot, id), Input::ReadEnds));
        self.push(self.at + delay, Event::Connect((slot, id)));
    }

    fn exit(&mut self, who: Who) {
        if self.member(who).is_some() {
            self.slots[who.0] = None;
        }
    }

    fn up(&mut self, copy: bool, failover: bool) {
        self.server.start(self.at, copy, failover);
        if copy {
            // A copy from before the first tick is as good as none.
            let whole = !self.server.has_state(self.at);
            self.ledger.lost(self.at, whole);
        }
    }

    // ---- connections ----

    fn connect(&mut self, who: Who) -> Result<(), Broken> {
        let at = self.at;
        let up = self.server.up;
        let contact = self.server.contact(at);
        self.counter += 1;
        let conn = self.counter;
        let Some(member) = self.member(who) else { return Ok(()) };
        if member.connected {
            return Ok(());
        }
        let suspended = member.suspended_until > at;
        if !up || suspended {
            let delay = if suspended { member.suspended_until - at } else { 0 };
            let delay = delay + self.rng.between(50 * MS, 500 * MS);
            self.push(at + delay, Event::Connect(who));
            return Ok(());
        }
        member.conn = conn;
        member.connected = true;
        let now = member.clock.now(at).mono;
        member.lease.on_contact(now, contact);
        let partitions = member.lease.sharing().0;
        self.server.ensure(at, partitions);
        self.say(|| format!("{who:?} is connected"));
        self.pump(who)
    }

    fn send(&mut self, who: Who, eval: Eval) {
        let at = self.at;
        let process = self.server.process;
        let Some(member) = self.member(who) else { return };
        let (conn, newest, name) = (member.conn, member.newest, member.name.clone());
        let mut words = convert::words(&Command::Eval(eval.into(), By::Sha1));
        // A planted fault may be in the script.
        words[1] = self.server.sha1.clone();
        self.say(|| {
            let args: Vec<_> = words.iter().skip(8).map(|word| String::from_utf8_lossy(word)).collect();
            format!("{who:?} sends {}", args.join(" "))
        });
        let rng = &mut self.rng;
        let soon = |rng: &mut Rng| rng.between(100, 5 * MS);
        let (there, back) = match rng.below(1_000) {
            _ if self.schedule.family == Family::Calm || at >= self.schedule.quiet_us => {
                (Some(soon(rng)), Some(soon(rng)))
            }
            0..50 => (Some(soon(rng)), None),
            50..80 => (None, None),
            80..120 => (Some(rng.below(14 * S).min(self.schedule.quiet_us - at)), Some(soon(rng))),
            120..180 => (Some(soon(rng)), Some(rng.below(3 * S))),
            180..250 => (Some(rng.below(300 * MS)), Some(rng.below(300 * MS))),
            _ => (Some(soon(rng)), Some(soon(rng))),
        };
        if (there.is_none() || back.is_none()) && self.rng.chance(500_000) {
            // Otherwise it dies without a sign.
            let delay = self.rng.below(500 * MS);
            self.push(at + delay, Event::To(who, Input::Closed { conn }));
        }
        if let Some(there) = there {
            let request = Request { who, member: name, conn, process, newest, words, back };
            self.push(at + there, Event::Arrive(request.into()));
        }
    }

    fn arrive(&mut self, request: Request) -> Result<(), Broken> {
        if request.process != self.server.process || !self.server.up {
            return Ok(());
        }
        let value = self.server.execute(self.at, &request.words);
        let reply = convert::reply(&value, 3);
        self.outcome.ticks += 1;
        self.say(|| format!("executed for {}: {:?}", request.member, reply.view()));
        let mine = mine(reply.view());
        self.outcome.stale += u64::from(first_word(reply.view()) == Some("stale"));
        let clock_us = self.server.clock_us(self.at);
        let tick = Executed { at: self.at, member: &request.member, newest: request.newest, clock_us, mine: &mine };
        match self.ledger.executed(&tick) {
            Ok(granted) => self.outcome.grants += granted,
            Err(broken) => self.judge(broken)?,
        }
        if let Some(back) = request.back {
            let execution = Execution { at: self.at };
            let input = Input::Reply { conn: request.conn, reply, execution };
            self.push(self.at + back, Event::To(request.who, input));
        }
        Ok(())
    }

    // ---- processes ----

    fn input(&mut self, who: Who, input: Input) -> Result<(), Broken> {
        let at = self.at;
        let Some(member) = self.member(who) else { return Ok(()) };
        if member.suspended_until > at {
            if !matches!(input, Input::Wake) {
                member.inbox.push(input);
            }
            return Ok(());
        }
        // Before time passes, what has come in meanwhile is read.
        let mut inputs = std::mem::take(&mut member.inbox);
        inputs.push(input);
        for input in inputs {
            self.handle(who, input)?;
        }
        self.pump(who)
    }

    fn handle(&mut self, who: Who, input: Input) -> Result<(), Broken> {
        let at = self.at;
        let Some(member) = self.member(who) else { return Ok(()) };
        let now = member.clock.now(at).mono;
        match input {
            Input::Reply { conn, reply, execution } => {
                if conn != member.conn || !member.connected {
                    return Ok(());
                }
                let before = member.lease.belief_ends();
                if let Err(error) = member.lease.on_reply(now, &reply) {
                    panic!("{error}: {:?}", reply.view());
                }
                member.learn(&reply);
                let after = member.lease.belief_ends();
                if after != before {
                    member.rests.push(execution.at);
                }
                let until = after.filter(|_| after != before).map(|until| member.clock.when(until));
                self.take_changes(who)?;
                self.inside_truth(who, execution, until)?;
                self.exclusive(who)?;
            }
            Input::Closed { conn } => {
                if conn == member.conn && member.connected {
                    member.connected = false;
                    member.lease.on_contact_lost(now);
                    self.reconnect(who);
                }
            }
            Input::Drained { partition, token } => {
                // It may be over by now.
                member.lease.on_time(now);
                self.take_changes(who)?;
                let Some(member) = self.member(who) else { return Ok(()) };
                let has = member.hands.get(&partition) == Some(&token);
                if has && member.lease.surplus().contains(&partition) {
                    member.hands.remove(&partition);
                    member.lease.released(now, partition);
                    self.say(|| format!("{who:?} releases {partition}"));
                }
            }
            Input::ReadEnds => {
                // A read that names nothing is not sent; that of a connection which is new counts, too.
                if member.deaf_until <= at && member.connected {
                    member.lease.on_read(now);
                }
                self.push(at + BLOCK, Event::To(who, Input::ReadEnds));
            }
            Input::Wake => {
                if member.stopping {
                    member.lease.leave(now);
                }
                member.lease.on_time(now);
            }
        }
        Ok(())
    }

    /// Everything that the machine wants now.
    fn pump(&mut self, who: Who) -> Result<(), Broken> {
        let at = self.at;
        self.take_changes(who)?;
        loop {
            let Some(member) = self.member(who) else { return Ok(()) };
            let now = member.clock.now(at).mono;
            if member.stopping && member.lease.held() == 0 {
                member.lease.end(now);
            }
            match member.lease.poll(now) {
                Some(Want::Tick(eval)) => {
                    self.take_changes(who)?;
                    self.send(who, eval);
                }
                Some(Want::HangUp) => {
                    member.connected = false;
                    self.say(|| format!("{who:?} hangs up"));
                    self.reconnect(who);
                }
                None => break,
            }
        }
        self.take_changes(who)?;
        let Some(member) = self.member(who) else { return Ok(()) };
        member.gone |= member.lease.is_over();
        let now = member.clock.now(at).mono;
        let next = member.lease.next_at();
        assert!(next.is_none_or(|next| next > now), "{next:?} is due at {now:?} and nothing happens");
        if let Some(wake) = next.map(|next| member.clock.when(next))
            && member.waking.is_none_or(|waking| waking <= at || waking > wake)
        {
            member.waking = Some(wake);
            self.push(wake, Event::To(who, Input::Wake));
        }
        Ok(())
    }

    /// What a consumer does about what has become of its partitions.
    fn take_changes(&mut self, who: Who) -> Result<(), Broken> {
        let at = self.at;
        let planted = self.ask.mutant.is_some();
        let Some(member) = self.member(who) else { return Ok(()) };
        let changes = member.lease.take_changes();
        let mut drains = Vec::new();
        let mut lost = 0;
        for change in &changes {
            match *change {
                Change::Acquired(partition, token) => {
                    let before = member.hands.insert(partition, token);
                    assert!(planted || before.is_none(), "acquired what is in hand");
                }
                Change::Lost(partition, token) => {
                    lost += 1;
                    let had = member.hands.remove(&partition);
                    assert!(planted || had == Some(token), "lost what is not in hand");
                }
                Change::Drain(partition) => {
                    drains.extend(member.hands.get(&partition).map(|token| (partition, *token)));
                }
                Change::Resume(_) => {}
            }
        }
        let member_holds = &member.lease;
        let gone =
            member.hands.iter().find(|(partition, token)| member_holds.believed(Mono(0), **partition) != Some(**token));
        if let Some((partition, _)) = gone {
            let (partition, text) =
                (*partition, format!("{who:?} gave up partition {partition} with messages in hand"));
            member.hands.remove(&partition);
            self.judge(Broken { invariant: 51, at, text })?;
        }
        self.outcome.lost += lost;
        if !changes.is_empty() {
            self.say(|| format!("{who:?}: {changes:?}"));
        }
        for (partition, token) in drains {
            // Some handlers never end.
            let never = self.schedule.family == Family::Storm && self.rng.chance(100_000);
            let after = self.rng.below(self.schedule.drain_us * 98 / 100);
            if !never {
                self.push(at + after, Event::To(who, Input::Drained { partition, token }));
            }
        }
        Ok(())
    }

    fn reconnect(&mut self, who: Who) {
        let delay = self.rng.between(50 * MS, 500 * MS);
        self.push(self.at + delay, Event::Connect(who));
    }

    // ---- what must hold ----

    /// The server believes for longer.
    fn inside_truth(&mut self, who: Who, execution: Execution, until: Option<u64>) -> Result<(), Broken> {
        let limit = execution.at + self.server.true_us(self.schedule.ttl_us()).saturating_sub(MS);
        match until.filter(|until| *until > limit) {
            Some(until) => {
                let text = format!("{who:?} believes until {until} us, the server until {limit} us");
                self.judge(Broken { invariant: 24, at: self.at, text })
            }
            None => Ok(()),
        }
    }

    /// Nobody else believes in what this one believes in.
    fn exclusive(&mut self, who: Who) -> Result<(), Broken> {
        match self.two_believers(who) {
            Some(broken) => self.judge(broken),
            None => Ok(()),
        }
    }

    fn two_believers(&mut self, who: Who) -> Option<Broken> {
        let at = self.at;
        let (_, this) = self.slots[who.0].as_ref()?;
        for partition in this.hands.keys().copied() {
            let Some(token) = this.believes(at, partition) else { continue };
            for (slot, other) in self.slots.iter().enumerate().filter(|(slot, _)| *slot != who.0) {
                let Some((_, other)) = other else { continue };
                let Some(others) = other.believes(at, partition) else { continue };
                let (ours, theirs) = (self.ledger.granted(partition, token), self.ledger.granted(partition, others));
                let (former, granted) = if ours < theirs { (this, theirs) } else { (other, ours) };
                // What the former's belief rested on when the later grant was made; what prolonged it since should have
                // ended it, unless that grant was forgotten.
                let place = former.rests.partition_point(|rests| *rests <= granted);
                let rests = place.checked_sub(1).and_then(|place| former.rests.get(place)).copied().unwrap_or(0);
                let since = former.rests.get(place).copied();
                let told = since.is_some_and(|tick| !self.ledger.forgot(granted, tick));
                let key = (partition, token.min(others), token.max(others));
                if told || !self.ledger.excuses(rests, granted, self.schedule.ttl_us()) {
                    let text = format!("both {who:?} and that of slot {slot} believe in partition {partition}");
                    return Some(Broken { invariant: 23, at, text });
                }
                self.outcome.excused += u64::from(self.judged.insert(key));
            }
        }
        None
    }

    /// The server grants, and everybody has what it was told that it should have.
    fn at_rest(&mut self) -> Result<(), Broken> {
        let at = self.at;
        let in_line = self.slots.iter().flatten().map(|(_, member)| member).filter(|member| member.is_in_line(at));
        let rests = |member: &Member| member.lease.sharing().1 as usize == member.lease.held();
        let (there, restless) =
            in_line.fold((0, 0), |(there, restless), member| (there + 1, restless + usize::from(!rests(member))));
        // Where nobody ticks, a grace that is over stands there for ever.
        if there == 0 || restless == 0 && !self.server.is_in_grace(at) {
            return Ok(());
        }
        Err(Broken {
            invariant: 49,
            at,
            text: format!("{restless} members have not what they should have, or a grace"),
        })
    }

    /// Every partition has one member that believes in it and reads it, in equal shares, and only what had to has moved.
    fn check(&mut self, moved: Moved) -> Result<(), Broken> {
        let at = self.at;
        let partitions = self.server.partitions(at);
        let mut shares: BTreeMap<Who, u32> = BTreeMap::new();
        let mut owners: BTreeMap<u32, (Who, Token)> = BTreeMap::new();
        let broken = |invariant, text| Err(Broken { invariant, at, text });
        for (slot, member) in self.slots.iter().enumerate() {
            let Some((id, member)) = member.as_ref().filter(|(_, member)| member.is_in_line(at)) else { continue };
            let who = (slot, *id);
            let now = member.clock.now(at).mono;
            shares.insert(who, 0);
            for (partition, token) in member.lease.readable(now) {
                *shares.entry(who).or_default() += 1;
                if owners.insert(partition, (who, token)).is_some() {
                    return broken(23, format!("partition {partition} has two members"));
                }
            }
        }
        if shares.is_empty() {
            self.shares = None;
            return Ok(());
        }
        if let Some(free) = (0..partitions).find(|partition| !owners.contains_key(partition)) {
            return broken(49, format!("nobody has partition {free} of {partitions}; {shares:?}"));
        }
        let (least, most) = (shares.values().min().copied(), shares.values().max().copied());
        if most.unwrap_or(0) > least.unwrap_or(0) + 1 || owners.len() as u32 != partitions {
            return broken(49, format!("shares of {partitions} partitions: {shares:?}"));
        }
        if let Some(before) = &self.shares {
            for (partition, (who, token)) in before {
                let now = owners.get(partition);
                let stays = now == Some(&(*who, *token));
                let may = match moved {
                    Moved::Any => true,
                    Moved::To(slot) => now.is_some_and(|((to, _), _)| *to == slot),
                    Moved::From(slot) => who.0 == slot,
                    Moved::None => false,
                };
                if !stays && !may {
                    return broken(
                        50,
                        format!("partition {partition}: {who:?} under {token}, then {now:?}; {moved:?}"),
                    );
                }
            }
        }
        self.shares = Some(owners);
        Ok(())
    }

    /// It ends the run, unless something else was asked for.
    fn judge(&mut self, broken: Broken) -> Result<(), Broken> {
        if self.ask.only.is_none_or(|only| only == broken.invariant) {
            return Err(broken);
        }
        self.outcome.others.insert(broken.invariant);
        Ok(())
    }

    // ---- inside ----

    fn push(&mut self, at: u64, event: Event) {
        self.counter += 1;
        self.queue.insert((at, self.counter), event);
    }

    fn who(&self, slot: usize) -> Option<Who> {
        self.slots[slot].as_ref().map(|(id, _)| (slot, *id))
    }

    fn member(&mut self, (slot, id): Who) -> Option<&mut Member> {
        self.slots[slot].as_mut().filter(|(other, member)| *other == id && !member.gone).map(|(_, member)| member)
    }

    fn say(&mut self, line: impl FnOnce() -> String) {
        if self.ask.tell {
            let at = self.at;
            self.outcome.story.push(format!("{:>4}.{:06} {}", at / S, at % S, line()));
        }
    }
}

fn first_word(view: View<'_>) -> Option<&str> {
    view.items()?.next()?.as_str()
}

/// What a full answer lists as the member's.
fn mine(view: View<'_>) -> Vec<(u32, Token)> {
    let list = view.items().and_then(|mut items| items.nth(9)).and_then(View::pairs);
    let number = |view: View<'_>| view.as_int().and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
    list.into_iter().flatten().map(|(partition, token)| (number(partition) as u32, Token(number(token)))).collect()
}

impl Member {
    /// Remembers the newest token it has been told.
    fn learn(&mut self, reply: &Reply) {
        let fence = reply.view().items().filter(|items| items.len() > 3).and_then(|mut items| items.nth(3));
        let fence = fence.and_then(View::as_int).and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        let listed = mine(reply.view()).into_iter().map(|(_, token)| token.0).max().unwrap_or(0);
        self.newest = self.newest.max(fence).max(listed);
    }
}
