//! What each invariant says, by its number: for messages and tables.

/// The simulator's own: a command that the model broker lacks.
pub const GAP: u8 = 0;
/// Not an invariant by itself: the run panicked, in the core or in the simulator.
pub const PANIC: u8 = u8::MAX;
/// Not one of the simulator's: what the writer of an application wants to hold, see [`Sim`](crate::Sim).
pub const CHECK: u8 = PANIC - 1;

/// Every invariant: its number, its name, and what must hold.
pub const ALL: &[(u8, &str, &str)] = &[
    (0, "complete model", "the model broker has every command that is sent"),
    (
        1,
        "no acknowledged message is lost",
        "what was reported stored is acknowledged, dead, trimmed, lost by a crash that may lose it, or still stored",
    ),
    (2, "not sent is true", "no broker executes what was reported as not sent"),
    (3, "refused is true", "what was reported as refused changed nothing"),
    (
        4,
        "exactly one resolution",
        "each accepted operation is resolved once, a rejected one never, none after the stop",
    ),
    (5, "no phantom", "each delivered body is, byte for byte, a submitted one"),
    (
        6,
        "one store per operation",
        "a message is stored twice only if an attempt was ambiguous and its policy allows it",
    ),
    (7, "cold start", "without a ready broker an operation gives up at its deadline, not earlier and not later"),
    (8, "reply matches request", "each reply is the reply to that very command"),
    (9, "eviction, lower bound", "no broker expires earlier than its interval and 5 s after its last announcement"),
    (10, "eviction, upper bound", "a silent broker expires at most one turn after that"),
    (11, "down is prompt", "nothing new is placed on a broker that said goodbye until it is back"),
    (12, "fleet view", "each service's fleet is that of a reference model of the accepted announcements"),
    (13, "bad datagrams", "malformed and inadmissible datagrams change nothing but counters"),
    (14, "admission", "nothing outside of the policy is dialled, and no credentials go there"),
    (15, "bounded fleet", "under any flood the fleet and its connections stay within their limits"),
    (16, "fairness", "while the ready brokers stay the same, counts of messages without a key differ by at most one"),
    (17, "health", "nothing is placed on a broker that is withdrawn, expired or not ready"),
    (18, "work conservation", "nothing waits while a ready broker has room"),
    (19, "at least once", "once healed, each stored message is delivered, and acknowledged if it is handled"),
    (20, "an acknowledgement is final", "what is acknowledged is never delivered again by that group"),
    (21, "no acknowledgement without a verdict", "entries are acknowledged only after a verdict"),
    (
        23,
        "lease exclusion",
        "no two members believe in one partition at once, unless the server lost data or its clock leapt",
    ),
    (24, "belief inside truth", "a member's belief ends before the server's"),
    (26, "claims not too early", "no entry changes its owner before it was idle for long enough"),
    (27, "attempts", "a message is delivered at most so often, and then becomes a dead letter, once"),
    (28, "backoff", "a retry is never lost, and comes neither before it is due nor much later"),
    (29, "credits", "a subscription never holds more than it may have in flight"),
    (37, "connections", "one connection and its readers per broker, none during a backoff"),
    (38, "the wait contract", "asking before the deadline yields nothing and keeps the deadline"),
    (39, "no past deadline", "a deadline lies after the last input"),
    (40, "no spin", "outputs and timeouts without effect are bounded"),
    (41, "accounts", "what the engine counts is what its structures hold, within their limits"),
    (42, "shutdown", "a shutdown ends within its grace, and nothing happens afterwards"),
    (43, "replay", "the recorded inputs give a fresh engine the same outputs"),
    (44, "fidelity", "both fidelities agree on what applications see"),
    (45, "orphans", "no entry stays pending under a living consumer in nobody's hand for long"),
    (
        46,
        "fence",
        "the tokens of a partition grow, unless the server lost them and its clock is behind and nobody knew better",
    ),
    (48, "progress in need", "consumption goes on while a broker's memory is full"),
    (49, "shares", "members have all partitions in equal shares soon after a change"),
    (
        50,
        "no needless move",
        "a change moves no partition between two members that stay, and none if nobody came or went",
    ),
    (
        51,
        "drained before given",
        "a partition is given up when its messages are done with, or its time for that is over",
    ),
    (52, "retries are private", "no group ever sees a retry of another"),
    (
        53,
        "scheduled messages",
        "a scheduled message is moved once, neither before it is due nor much later, and never lost",
    ),
];

/// An invariant's short name.
#[must_use]
pub fn name(number: u8) -> &'static str {
    match number {
        PANIC => "a panic",
        CHECK => "your check",
        _ => ALL.iter().find(|(id, ..)| *id == number).map_or("unnamed", |(_, name, _)| name),
    }
}

/// How an invariant is called in messages: `invariant 9 (eviction, lower bound)`, or `panic`.
#[must_use]
pub fn title(number: u8) -> String {
    match number {
        PANIC => "panic".to_string(),
        CHECK => name(CHECK).to_string(),
        _ => format!("invariant {number} ({})", name(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flota_core::mutant::Mutant;

    #[test]
    fn the_readme_lists_them() {
        let readme = include_str!("../README.md");
        for (number, name, what) in ALL {
            assert!(readme.contains(&format!("| {number} | {name} | {what} |")), "{number} {name}");
        }
    }

    #[test]
    fn every_invariant_that_a_planted_fault_breaks_has_a_name() {
        for mutant in Mutant::ALL {
            for number in mutant.invariants() {
                assert_ne!(name(*number), "unnamed", "{mutant} breaks {number}");
            }
        }
        assert!(ALL.is_sorted_by(|a, b| a.0 < b.0));
    }
}
