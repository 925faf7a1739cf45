//! Counters: what an engine has done since it started. Plain numbers, never reset.

use crate::announce::Reject;

/// Everything that is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Datagrams seen.
    pub datagrams: u64,
    /// Datagrams that are no announcements, by reason (see [`Reject::index`]).
    pub malformed: [u64; Reject::ALL.len()],
    /// Well-formed announcements that were not admitted: other name.
    pub other_name: u64,
    /// … outside the allowed networks, host names, or another sender.
    pub not_allowed: u64,
    /// … because the fleet is full.
    pub fleet_full: u64,
    /// … because their sender introduces newcomers too fast.
    pub too_fast: u64,
    /// Readings of the monotonic clock that were earlier than the one before.
    pub clock_reversals: u64,
    /// Dials.
    pub dials: u64,
    /// Connections that closed or failed.
    pub closes: u64,
    /// Inputs for connections that no longer exist.
    pub stale_inputs: u64,
    /// Replies of another shape than expected, each of which closed its connection.
    pub misshapen: u64,
    /// RESP3 pushes, dropped.
    pub pushes: u64,
    /// Commands sent.
    pub commands: u64,
    /// Replies matched.
    pub replies: u64,
    /// Scripts sent again by text because the server had forgotten them.
    pub noscript: u64,
    /// Operations accepted.
    pub ops: u64,
    /// Messages stored.
    pub stored: u64,
    /// Sends placed again because they certainly had not been sent.
    pub placed_again: u64,
    /// Sends placed again although they may have been stored.
    pub ambiguous_again: u64,
    /// Reads answered without a message.
    pub empty_reads: u64,
    /// Reads answered with messages.
    pub reads: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Messages acknowledged.
    pub acked: u64,
    /// `XACK` commands.
    pub acks: u64,
    /// Acknowledgements that changed nothing: somebody else had settled the message.
    pub acked_elsewhere: u64,
    /// Messages claimed from others.
    pub claimed: u64,
    /// Messages put away for a retry.
    pub deferred: u64,
    /// Messages that were due and moved to their streams: retries and scheduled ones, whoever had put them away.
    pub moved: u64,
    /// Messages moved to the dead letters by this process.
    pub dead: u64,
    /// Entries removed because every group had done with them.
    pub trimmed: u64,
    /// Messages given back.
    pub released: u64,
    /// Held messages that turned out to be somebody else's.
    pub fenced: u64,
    /// Pending messages whose bodies were gone.
    pub bodies_lost: u64,
}
