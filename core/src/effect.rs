//! How machines talk: each gets a [`Cx`] and leaves [`Effect`]s; the engine routes them until there are none.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::command::Command;
use crate::config::Config;
use crate::id::{BrokerId, ConnId, OpId, SubId};
use crate::mutant::Mutant;
use crate::output::{Event, Output, Unready};
use crate::reply::Reply;
use crate::stats::Stats;
use crate::time::Now;
use crate::timers::Timers;
use crate::topic::consumer::Answer;

/// What a machine may touch besides itself.
pub(crate) struct Cx<'a> {
    pub(crate) now: Now,
    pub(crate) config: &'a Config,
    pub(crate) timers: &'a mut Timers<Timer>,
    pub(crate) out: &'a mut VecDeque<Output>,
    pub(crate) effects: &'a mut VecDeque<Effect>,
    pub(crate) stats: &'a mut Stats,
}

impl Cx<'_> {
    pub(crate) fn event(&mut self, event: Event) {
        self.out.push_back(Output::Event(event));
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// Whether this fault is planted.
    #[inline(always)]
    pub(crate) fn mutant(&self, mutant: Mutant) -> bool {
        self.config.is_mutant(mutant)
    }
}

/// What one machine wants from another.
#[derive(Debug)]
pub(crate) enum Effect {
    /// The fleet has a member: connect to it.
    Joined(BrokerId),
    /// A departed member is announced again.
    Rejoined(BrokerId),
    /// A member that cannot be used is announced by somebody who was not heard before: try it now.
    Hurry(BrokerId),
    /// A member left: no sends there; what it holds is still read.
    Left(BrokerId),
    /// A member's address has an announcer that was not there before: is it still the same process?
    AskIdentity(BrokerId),
    /// The answer: the same process, or not known to be.
    Identity(BrokerId, bool),
    /// A member moved to another of its addresses: dial that.
    Moved(BrokerId),
    /// A departed member is done with.
    Forget(BrokerId),
    /// Another process answers at a member's address.
    Restarted(BrokerId),
    /// A broker can be used; whether its data set is the one it had before.
    Ready(BrokerId),
    /// A broker cannot be used.
    Unready(BrokerId, Unready),
    /// A broker's command lane has room again, or none.
    Room(BrokerId, bool),
    /// A connection for blocking reads is open.
    ReaderReady { sub: SubId, broker: BrokerId },
    /// A connection for blocking reads is gone; the server's name for it, to make sure of it.
    ReaderLost { sub: SubId, broker: BrokerId, client: Option<Client> },
    /// Open a connection for blocking reads.
    OpenReader { sub: SubId, broker: BrokerId },
    /// Close it.
    CloseReader { sub: SubId, broker: BrokerId },
    /// Send on a broker's command lane.
    Command { broker: BrokerId, command: Command, route: Route },
    /// Send on a subscription's own connection to a broker.
    ReaderCommand { sub: SubId, broker: BrokerId, command: Command, route: Route },
    /// Wake a blocked read.
    Unblock { sub: SubId, broker: BrokerId },
    /// An answer arrived for a route.
    Answer { broker: BrokerId, route: Route, reply: Reply },
    /// No answer will come; whether the command had been written.
    Orphan { broker: BrokerId, route: Route, sent: bool },
    /// A send was refused for lack of memory; or went through again.
    Memory(BrokerId, bool),
    /// A subscription has ended.
    Ended(SubId),
}

/// A server's name for one of our connections. Every server process counts from 1: under another run id the same number
/// is somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) run: Box<str>,
    pub(crate) id: i64,
}

/// Whose answer a reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Nobody's any more.
    Discard,
    /// The connection's own: a step of the handshake, a sign of life.
    Own(Own),
    /// The announcer's sign of life.
    Announcer,
    /// An operation's.
    Op(OpId),
    /// The registration of a topic by the producer; by its index.
    Register(u32),
    /// A consumer's.
    Consumer(SubId, Answer),
}

/// Commands a connection sends for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    Hello,
    Auth,
    SetName,
    ClientId,
    Info,
    Ping,
    Time,
    NameStore,
    Store,
    Identity,
    Poll,
}

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// A member's earliest GUID or alternative lapses.
    Liveness(BrokerId),
    /// Not-admitted datagrams are reported.
    AdmissionReport,
    /// A connection's handshake, reply, or silence.
    Conn(ConnId),
    /// A broker's next dial, gentle poll, or alternative address.
    Link(BrokerId),
    /// A reader's next dial.
    ReaderDial(BrokerId, SubId),
    /// A departed broker is looked at.
    Departure(BrokerId),
    /// A full broker is tried.
    Memory(BrokerId),
    /// The oldest waiting operation gives up.
    Backlog,
    /// A subscription renews what it holds.
    Renew(SubId),
    /// It looks for dead consumers.
    Claim(SubId),
    /// Its oldest running handler is overdue.
    Handler(SubId),
    /// It does something at a time of its own.
    Agenda(SubId),
    /// Its stop is enforced.
    Stop(SubId),
    /// The next announcement.
    Announce,
    /// The end of the shutdown's grace.
    Shutdown,
}
