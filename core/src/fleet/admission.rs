//! Which announcements are believed. Anyone can send one, so this is what a stranger can make a process do: be dialled
//! where the configuration allows it, at a limited rate, up to a limited number.
//!
//! Saying no is as cheap as saying yes: a refused datagram costs no memory, and operators hear of it once a second.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use super::index::HashKey;
use crate::announce::{Announcement, Host, Reject};
use crate::config::{Discovery, Limits};
use crate::effect::{Cx, Timer};
use crate::output::{Event, NotAdmitted, Warning};
use crate::stats::Stats;
use crate::time::Mono;
use crate::timers::TimerSlot;

/// The rules that need no memory, in the order in which they are tested.
pub(super) fn check(discovery: &Discovery, from: SocketAddr, said: &Announcement<'_>) -> Result<(), NotAdmitted> {
    if discovery.name.as_deref().is_some_and(|name| name != said.name) {
        return Err(NotAdmitted::OtherName);
    }
    let announced = match said.address.host {
        Host::V4(ip) => Some(IpAddr::V4(ip)),
        Host::V6(ip) => Some(IpAddr::V6(ip).to_canonical()),
        Host::Name(_) if !discovery.host_names => return Err(NotAdmitted::HostName),
        Host::Name(_) => None,
    };
    if let Some(ip) = announced
        && !discovery.allow.is_empty()
        && !discovery.allow.iter().any(|network| network.contains(ip))
    {
        return Err(NotAdmitted::Network);
    }
    // A host name has no address yet, so it is not known to be the sender's.
    if discovery.same_sender && announced != Some(from.ip().to_canonical()) {
        return Err(NotAdmitted::Sender);
    }
    Ok(())
}

/// How many newcomers each sending address may still introduce: a token bucket per source.
///
/// A fixed number of sources is remembered, four to a row, the row chosen by a keyed hash. A source that finds its row
/// full takes the place of the one with the most tokens, which loses the least by being forgotten. Who forges source
/// addresses gets a full bucket for each; what holds then is the limit on the fleet.
pub(super) struct Sources {
    key: HashKey,
    buckets: Vec<Bucket>,
    tokens_per_second: u64,
    full_microtokens: u64,
}

const SOURCE_ROWS: usize = 256;
const SOURCES_PER_ROW: usize = 4;
const MICROTOKENS: u64 = 1_000_000;

#[derive(Clone, Copy)]
struct Bucket {
    source: Option<IpAddr>,
    microtokens: u64,
    at: Mono,
}

impl Sources {
    pub(super) fn new(key: HashKey, limits: &Limits) -> Self {
        let full_microtokens = u64::from(limits.newcomers_burst) * MICROTOKENS;
        let unused = Bucket { source: None, microtokens: full_microtokens, at: Mono::default() };
        Self {
            key,
            buckets: alloc::vec![unused; SOURCE_ROWS * SOURCES_PER_ROW],
            tokens_per_second: u64::from(limits.newcomers_per_second),
            full_microtokens,
        }
    }

    /// Takes a token of this source, if it has one.
    pub(super) fn draw(&mut self, source: IpAddr, now: Mono) -> Result<(), NotAdmitted> {
        let source = source.to_canonical();
        let (rate, full) = (self.tokens_per_second, self.full_microtokens);
        let level = |bucket: &Bucket| {
            let elapsed_us = now.0.saturating_sub(bucket.at.0);
            bucket.microtokens.saturating_add(elapsed_us.saturating_mul(rate)).min(full)
        };
        let Some(bucket) = self.bucket(source, level) else { unreachable!("a row has places") };
        let microtokens = if bucket.source == Some(source) { level(bucket) } else { full };
        *bucket = Bucket { source: Some(source), microtokens, at: now };
        bucket.microtokens = microtokens.checked_sub(MICROTOKENS).ok_or(NotAdmitted::TooFast)?;
        Ok(())
    }

    /// The source's own bucket, or the one in its row that it replaces.
    fn bucket(&mut self, source: IpAddr, level: impl Fn(&Bucket) -> u64) -> Option<&mut Bucket> {
        let row = self.key.hash_ip(source) as usize % SOURCE_ROWS;
        let row = self.buckets.chunks_exact_mut(SOURCES_PER_ROW).nth(row)?;
        row.iter_mut().max_by_key(|bucket| (bucket.source == Some(source), bucket.source.is_none(), level(bucket)))
    }
}

/// Tells operators about refused datagrams: the first of a reason at once, the others as a number, once a second.
pub(super) struct Reports {
    reports: Box<[Report; REASONS]>,
    timer: Option<TimerSlot>,
}

const REASONS: usize = Reject::ALL.len() + 6;
const REPORT_EVERY: Duration = Duration::from_secs(1);
const EXAMPLE_BYTES_MAX: usize = 128;

#[derive(Clone, Copy)]
struct Report {
    last: Option<Mono>,
    /// The reason and the number of those not yet told about.
    waiting: Option<(NotAdmitted, u64)>,
    /// The first of them, cut: here, so that remembering it takes no memory.
    example: [u8; EXAMPLE_BYTES_MAX],
    example_bytes: usize,
}

impl Report {
    const NONE: Self = Self { last: None, waiting: None, example: [0; EXAMPLE_BYTES_MAX], example_bytes: 0 };

    /// When the next event of this reason may be.
    fn due(&self) -> Mono {
        self.last.map_or(Mono::default(), |last| last + REPORT_EVERY)
    }
}

impl Reports {
    pub(super) fn new() -> Self {
        Self { reports: Box::new([Report::NONE; REASONS]), timer: None }
    }

    #[cfg(any(test, feature = "mutants"))]
    pub(super) fn owns_timer(&self, slot: TimerSlot) -> bool {
        self.timer == Some(slot)
    }

    pub(super) fn refused(&mut self, why: NotAdmitted, datagram: &[u8], cx: &mut Cx<'_>) {
        count(why, cx.stats);
        let Some(report) = self.reports.get_mut(reason(why)) else { unreachable!("every reason has a report") };
        if let Some((_, count)) = &mut report.waiting {
            *count += 1;
            return;
        }
        if report.due() <= cx.now.mono {
            report.last = Some(cx.now.mono);
            return tell(why, 1, datagram, cx);
        }
        report.waiting = Some((why, 1));
        let shown = cut(datagram);
        report.example[..shown.len()].copy_from_slice(shown);
        report.example_bytes = shown.len();
        let timer = *self.timer.get_or_insert_with(|| cx.timers.register(Timer::AdmissionReport));
        cx.timers.arm_no_later(timer, report.due());
    }

    pub(super) fn report(&mut self, cx: &mut Cx<'_>) {
        for report in self.reports.iter_mut() {
            let Some((why, count)) = report.waiting else { continue };
            if report.due() <= cx.now.mono {
                report.waiting = None;
                report.last = Some(cx.now.mono);
                tell(why, count, &report.example[..report.example_bytes], cx);
            } else if let Some(timer) = self.timer {
                cx.timers.arm_no_later(timer, report.due());
            }
        }
    }
}

fn tell(why: NotAdmitted, count: u64, datagram: &[u8], cx: &mut Cx<'_>) {
    // A stranger wrote it, and it goes to a terminal: only printable ASCII is left.
    let example = format!("{}", cut(datagram).escape_ascii());
    cx.event(Event::Warning(Box::new(Warning::NotAdmitted { why, count, example })));
}

fn cut(datagram: &[u8]) -> &[u8] {
    datagram.get(..EXAMPLE_BYTES_MAX).unwrap_or(datagram)
}

fn reason(why: NotAdmitted) -> usize {
    const WELL_FORMED: usize = Reject::ALL.len();
    match why {
        NotAdmitted::Malformed(reject) => reject.index(),
        NotAdmitted::OtherName => WELL_FORMED,
        NotAdmitted::Network => WELL_FORMED + 1,
        NotAdmitted::HostName => WELL_FORMED + 2,
        NotAdmitted::Sender => WELL_FORMED + 3,
        NotAdmitted::FleetFull => WELL_FORMED + 4,
        NotAdmitted::TooFast => WELL_FORMED + 5,
    }
}

fn count(why: NotAdmitted, stats: &mut Stats) {
    let counter = match why {
        NotAdmitted::Malformed(reject) => &mut stats.malformed[reject.index()],
        NotAdmitted::OtherName => &mut stats.other_name,
        NotAdmitted::Network | NotAdmitted::HostName | NotAdmitted::Sender => &mut stats.not_allowed,
        NotAdmitted::FleetFull => &mut stats.fleet_full,
        NotAdmitted::TooFast => &mut stats.too_fast,
    };
    *counter += 1;
}
