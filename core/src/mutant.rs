//! Planted faults: one mistake each, of the kind a programmer makes, so that the simulator's oracles can be seen to fail.
//!
//! An oracle that nobody has ever seen fail is no evidence. Each fault here changes one decision where the right one is
//! made, and none of them crashes by itself. They exist only with the feature `mutants`, and even then an engine has one
//! only if its configuration names it; without the feature every question after one is `false` at compile time.

use core::fmt;
use core::str::FromStr;

use crate::script::Script;

macro_rules! mutants {
    ($($variant:ident, $name:literal, [$($invariant:literal),+], $what:literal;)*) => {
        /// A planted fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mutant {
            $(#[doc = $what] $variant,)*
        }

        impl Mutant {
            /// Every one, in the order of the invariants they prove.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its name on a command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The invariants it is meant to break. The first is the one it proves; the others may be noticed before it.
            #[must_use]
            pub const fn invariants(self) -> &'static [u8] {
                match self {
                    $(Self::$variant => &[$($invariant),+],)*
                }
            }

            /// The mistake, in one line.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self {
                    $(Self::$variant => $what,)*
                }
            }
        }
    };
}

mutants! {
    // ---- sending ----
    LostIsStored, "lost-is-stored", [1], "a send whose connection died unanswered is reported as stored";
    DeadLetterSkipped, "dead-letter-skipped", [1, 27], "what is to become a dead letter is acknowledged without the copy";
    StartNow, "start-now", [1, 19], "a new group that is to start with the oldest message starts now";
    GiveUpForgetsDoubt, "give-up-forgets-doubt", [2], "a send that may be stored and finds no broker again is reported as not sent";
    CancelNotSent, "cancel-not-sent", [2], "a cancelled send is reported as not sent although it was";
    LostIsRefused, "lost-is-refused", [3], "a send whose connection died unanswered is reported as refused";
    RefusalHidesDoubt, "refusal-hides-doubt", [3], "a send that may be stored and was refused elsewhere later is reported as refused";
    CancelKeepsOp, "cancel-keeps-op", [4], "a cancelled operation is answered and kept: its answer answers it again";
    OrphanUnresolved, "orphan-unresolved", [4], "an operation of a connection that closes is forgotten without an answer";
    DeadlineSurvivesPlacement, "deadline-survives-placement", [4, 2, 41], "a placed operation still gives up when it would have waited for long enough";
    BodyShort, "body-short", [5], "the last byte of a body is cut off";
    OnceAgain, "once-again", [6], "a send at most once is placed again after a connection died unanswered";
    SentShort, "sent-short", [6, 2], "each report of sent commands counts one too few";
    OrphansUnsent, "orphans-unsent", [6, 2], "whatever is unanswered at a close counts as never sent";
    DeadlineUnarmed, "deadline-unarmed", [7], "no timer waits for the end of a waiting operation";
    DeadlineEarly, "deadline-early", [7], "a waiting operation gives up a second early";
    CancelRemovesSlot, "cancel-removes-slot", [8, 1, 41], "cancelling removes the place of the answer, so that answers shift";
    ErrorKeepsSlot, "error-keeps-slot", [8, 1], "an error leaves its place in the line of answers, so that answers shift";
    // ---- the fleet ----
    GraceSkipped, "grace-skipped", [9, 12], "a silent broker expires after its interval, without the grace";
    HeardNotProlonged, "heard-not-prolonged", [9, 12], "an announcement of a known broker does not prolong it";
    LivenessNotRearmed, "liveness-not-rearmed", [10, 12], "the expiry timer that fired early is not armed again";
    ExpiryLate, "expiry-late", [10, 12], "a silent broker has the grace twice";
    DownKeepsRotation, "down-keeps-rotation", [11, 17], "a broker that said goodbye stays in the rotation";
    DownIgnored, "down-ignored", [12, 11], "a goodbye is ignored";
    DownOfAnyone, "down-of-anyone", [12, 11], "a goodbye counts whoever of an address says it";
    RejoinIgnored, "rejoin-ignored", [12], "a departed broker that is announced again stays departed";
    SecondAddressIgnored, "second-address-ignored", [12], "a known GUID at a new address is ignored";
    OtherFleetHeard, "other-fleet-heard", [13, 12], "announcements of another fleet's name are believed";
    MalformedProlongs, "malformed-prolongs", [13, 12, 10], "a malformed datagram prolongs every broker by a minute";
    NetworkUnchecked, "network-unchecked", [14, 13, 12], "announced addresses outside the allowed networks are dialled";
    HostNameDialled, "host-name-dialled", [14, 13, 12], "announced host names are dialled although they are not allowed";
    FullTableGrows, "full-table-grows", [15, 13, 12, 41], "a full fleet accepts newcomers";
    // ---- choosing a broker ----
    RotationRestarts, "rotation-restarts", [16], "the rotation starts at its first broker with every burst";
    UnkeyedByHash, "unkeyed-by-hash", [16], "messages without a key are placed as if all had the same";
    RefusingKept, "refusing-kept", [17], "a connected broker that refuses everything stays in the rotation";
    OnePerFlush, "one-per-flush", [18, 38], "each burst places one operation";
    RoomForgotten, "room-forgotten", [18, 16], "a lane that has room again is not put back into the rotation";
    // ---- consuming ----
    ClaimNever, "claim-never", [19], "what other consumers left pending is never claimed";
    ReaderNotRedialled, "reader-not-redialled", [19], "a lost reader connection is not opened again";
    GroupPerProcess, "group-per-process", [20, 19], "each process reads under a group of its own";
    ClaimOwnInHand, "claim-own-in-hand", [20, 29], "recovery after a lost read claims back what is in hand or acknowledged already";
    LostAckIsTold, "lost-ack-is-told", [20, 45], "an acknowledgement whose answer was lost counts as done";
    AckAtDelivery, "ack-at-delivery", [21, 1], "a message is acknowledged when it is delivered";
    BatchIndex, "batch-index", [21, 1, 20], "a delivery shows the next entry of its batch";
    ReleaseAcks, "release-acks", [21, 1], "a message that is given back is acknowledged";
    ClaimAlive, "claim-alive", [26], "entries of consumers that are alive are claimed";
    LimitOffByOne, "limit-off-by-one", [27], "a message is delivered once more than the limit";
    BackoffHalved, "backoff-halved", [28], "a retry comes after half its delay";
    RetryNotDue, "retry-not-due", [28], "retries are due at once";
    RetryNever, "retry-never", [28, 19], "retries that are due are never moved";
    RetryStreamUnread, "retry-stream-unread", [19, 28, 48], "retry streams are never read";
    AttemptForgotten, "attempt-forgotten", [27, 28], "a retry does not say which attempt it is";
    ScheduledAtOnce, "scheduled-at-once", [53], "a message that is to wait is stored at once";
    ScheduledUnmoved, "scheduled-unmoved", [53, 19], "scheduled messages that are due are never moved";
    RetryForAll, "retry-for-all", [52], "retries that are due are moved to the partition, where every group gets them";
    RetryAsRelease, "retry-as-release", [28, 27], "a retry is given back at once and does not count";
    CreditNotReserved, "credit-not-reserved", [29], "a read reserves no credit for what it brings";
    CreditLeaked, "credit-leaked", [29, 41, 19], "an answered read keeps its credit";
    CreditFreedTwice, "credit-freed-twice", [29, 41], "a verdict frees the credit of two messages";
    OrphansForgotten, "orphans-forgotten", [45, 19], "what a lost read took is forgotten, and no survey explains it";
    ReadLossForgotten, "read-loss-forgotten", [45], "what a lost read took is left to the surveys";
    RetryOrphanDropped, "retry-orphan-dropped", [45], "a retry whose answer was lost is not put away again";
    // ---- leases: the member ----
    BeliefTooLong, "belief-too-long", [24, 23], "a lease is believed for its whole time from the answer on";
    BeliefByTimer, "belief-by-timer", [23, 24], "a lease is believed until a timer ends it, however late that fires";
    NewestUntold, "newest-untold", [23], "a member does not tell the newest token it has seen";
    ReleaseBelieved, "release-believed", [23], "a partition that is released is believed until the answer";
    SameAfterLapse, "same-after-lapse", [49], "after a lapse a member still agrees with the server's generation";
    SequenceRestarts, "sequence-restarts", [49], "a member counts its ticks anew on each connection";
    SurplusKept, "surplus-kept", [49], "a member keeps what is more than its share";
    DeafStays, "deaf-stays", [49], "a member that reads nothing stays in line";
    HoldingsForgotten, "holdings-forgotten", [50], "a member that loses its connection gives up what it holds";
    ReleaseBeforeDrain, "release-before-drain", [51], "a partition is released while its messages are in hand";
    // ---- leases: the script ----
    SequenceUnchecked, "sequence-unchecked", [23], "the script executes a tick that comes after a later one";
    GraceIgnored, "grace-ignored", [23], "the script grants at once what it may have granted before a restart";
    LossUnnoticed, "loss-unnoticed", [23], "the script does not notice that one of its keys is gone";
    ShareUnasked, "share-unasked", [23], "the script grants what somebody else owns";
    StepUnnoticed, "step-unnoticed", [49], "the script does not notice that the server's clock went back";
    ShareRoundedUp, "share-rounded-up", [49], "the script rounds each share up";
    LateKept, "late-kept", [49], "the script forgets nobody";
    TokenCounts, "token-counts", [46], "a token is one more than the last that the server remembers";
    TokenByClock, "token-by-clock", [46], "a token is the server's time";
    PlaceByTime, "place-by-time", [50], "the place in line is given by the time of the last full tick";
    OomStopsReads, "oom-stops-reads", [48, 19], "a broker whose memory is full is not read any more";
    // ---- hygiene ----
    BackoffSkipped, "backoff-skipped", [37, 40], "a lost connection is dialled again at once";
    ReaderDoubled, "reader-doubled", [37, 41], "a reader connection is opened although there is one";
    FiresEarly, "fires-early", [38], "a timer fires up to 200 ms early if somebody asks";
    OneTimerPerTimeout, "one-timer-per-timeout", [39], "one timer fires at a time, however many are due";
    RenewSpins, "renew-spins", [40], "the renewal timer is due again a millisecond later";
    BacklogBytesLeaked, "backlog-bytes-leaked", [41], "an operation that gives up or is cancelled keeps its bytes of the backlog";
    ConnTimerLeaked, "conn-timer-leaked", [41], "a connection that ends leaves its timer behind";
    StopNever, "stop-never", [42], "a shutdown has no end of its own and waits for answers that do not come";
    StopsAtOnce, "stops-at-once", [42], "a shutdown does not wait for its grace";
    WaitAfterStop, "wait-after-stop", [42], "a stopped engine still names the time of its next timer";
    GlobalCounter, "global-counter", [43], "a counter of the whole process decides how long a dial may take";
    // ---- the driver ----
    DriverDropsDelivery, "driver-drops-delivery", [44, 19], "of the deliveries of one burst the driver hands out the last";
    DriverSentUnreported, "driver-sent-unreported", [6, 2, 44], "the driver does not report what it has written";
}

/// What a mistake changes in a script: the text that stands there once, and what stands there instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The script.
    pub script: Script,
    /// What is replaced.
    pub from: &'static str,
    /// By what.
    pub to: &'static str,
}

impl Mutant {
    /// Whether it is in the lease machine or its script, which are run by themselves.
    #[must_use]
    pub const fn is_in_lease(self) -> bool {
        (self as u8) >= (Self::BeliefTooLong as u8) && (self as u8) <= (Self::PlaceByTime as u8)
    }

    /// What it changes in a script, for those that are there and not in the engine: whoever plays the server applies it.
    #[must_use]
    pub const fn patch(self) -> Option<Patch> {
        let (from, to) = match self {
            Self::SequenceUnchecked => ("if n(ARGV[12]) <= n(h[9]) then return { 'stale' } end", ""),
            Self::GraceIgnored => ("if upto > now then grace = math.max(grace, upto) end", ""),
            Self::LossUnnoticed => ("n(ARGV[7]) > fence or bare", "false"),
            Self::ShareUnasked => ("if not own[p] then", "if not own[p] or own[p][2] ~= me then"),
            Self::StepUnnoticed => ("local back = clock - now > 1000", "local back = false"),
            Self::ShareRoundedUp => ("(r < P % M and 1 or 0)", "(P % M > 0 and 1 or 0)"),
            Self::LateKept => ("if m ~= me then", "if false then"),
            Self::TokenCounts => ("fence = math.max(fence + 1, us); put", "fence = fence + 1; put"),
            Self::TokenByClock => ("fence = math.max(fence + 1, us); put", "fence = us; put"),
            Self::PlaceByTime => {
                ("redis.call('ZADD', KEYS[4], ARGV[2], me)", "redis.call('ZADD', KEYS[4], s(now), me)")
            }
            _ => return None,
        };
        Some(Patch { script: Script::Tick, from, to })
    }

    /// Whether it is in the driver, so that an engine that is driven by something else never shows it.
    #[must_use]
    pub const fn is_in_driver(self) -> bool {
        matches!(self, Self::DriverDropsDelivery | Self::DriverSentUnreported)
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no planted fault's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchMutant;

impl fmt::Display for NoSuchMutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no planted fault has this name")
    }
}

impl core::error::Error for NoSuchMutant {}

impl FromStr for Mutant {
    type Err = NoSuchMutant;

    fn from_str(name: &str) -> Result<Self, NoSuchMutant> {
        Self::ALL.iter().copied().find(|mutant| mutant.name() == name).ok_or(NoSuchMutant)
    }
}

/// A number that no two calls in a process get: what an engine must never depend on.
#[cfg(feature = "mutants")]
pub(crate) fn global_count() -> u64 {
    use core::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    COUNT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(not(feature = "mutants"))]
pub(crate) const fn global_count() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn names_are_kebab_case_unique_and_read_back() {
        let names: BTreeSet<&str> = Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
        assert_eq!(names.len(), Mutant::ALL.len());
        for mutant in Mutant::ALL {
            assert_eq!(mutant.name().parse(), Ok(*mutant));
            let debug: alloc::string::String = alloc::format!("{mutant:?}");
            assert_eq!(mutant.name().replace('-', ""), debug.to_lowercase());
        }
        assert_eq!("".parse::<Mutant>(), Err(NoSuchMutant));
    }

    #[test]
    fn what_a_fault_changes_in_a_script_stands_there_once() {
        for patch in Mutant::ALL.iter().filter_map(|mutant| mutant.patch()) {
            assert_eq!(patch.script.text().matches(patch.from).count(), 1, "{}", patch.from);
        }
    }

    #[test]
    fn every_invariant_of_the_core_has_a_fault_that_proves_it() {
        let proved: BTreeSet<u8> = Mutant::ALL.iter().map(|mutant| mutant.invariants()[0]).collect();
        let all: BTreeSet<u8> = (1..=21).chain([23, 24]).chain(26..=29).chain(37..=46).chain(48..=53).collect();
        assert_eq!(proved, all);
    }
}
