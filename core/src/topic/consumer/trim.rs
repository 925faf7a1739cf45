//! Retention: entries that every registered group has done with are removed, or a stream grows for ever.
//!
//! Whoever acknowledges sees to it, some seconds later, so that a busy stream is trimmed and an idle one costs nothing.
//! The script decides by the registry of groups: one whose consumers are away keeps what it has not read. What is done
//! with stays for a minute, so that a group that is made a moment later still finds it, unless memory is nearly full.
//! A retry stream is one group's: nobody else waits for what is in it, and it is trimmed whatever is kept of the messages.

use core::time::Duration;

use super::reader::{Reader, is_retry_stream};
use super::{Answer, Consumer, Task};
use crate::command::{By, Command, Eval};
use crate::effect::Cx;
use crate::key;
use crate::op::Retention;
use crate::output::{Event, Warning};
use crate::reply::Reply;
use crate::script::Script;
use crate::topic::fnv1a;

/// Between an acknowledgement and the trim it brings about, on average.
const PERIOD: Duration = Duration::from_secs(10);
/// How long a message stays at least, while there is memory: milliseconds.
const YOUNG_MS: u32 = 60_000;
/// Entries removed by one call at most; a call that removed as many is followed by another.
const LIMIT: u32 = 10_000;
/// So many acknowledgements do not wait for the period.
const SOON: u64 = 10_000;

impl Consumer {
    /// Entries of this reader are done with: the stream may be trimmed.
    pub(super) fn note_done(&mut self, at: u32, stream: u16, entries: u64, cx: &mut Cx<'_>) {
        if entries == 0 || !self.trims(stream) {
            return;
        }
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        reader.done += entries;
        if reader.done >= SOON && reader.trimming == 0 {
            self.trim(at, cx);
        } else if !core::mem::replace(&mut reader.trim_planned, true) {
            // Half to one and a half periods, by the consumer's name: the consumers of a group take turns.
            let share = u32::try_from(fnv1a(self.name.as_bytes()) % 100).unwrap_or(0);
            self.plan(cx.now.mono + PERIOD / 2 + PERIOD * share / 100, Task::Trim(at), cx);
        }
    }

    /// Whether anything is removed from a stream.
    fn trims(&self, stream: u16) -> bool {
        is_retry_stream(stream) || self.spec.retention != Retention::Forever
    }

    pub(super) fn on_trim_time(&mut self, at: u32, cx: &mut Cx<'_>) {
        if let Some(reader) = self.readers.get_mut(at as usize) {
            reader.trim_planned = false;
            self.trim(at, cx);
        }
    }

    pub(super) fn trim(&mut self, at: u32, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        if !reader.is_live() || reader.trimming > 0 {
            return;
        }
        reader.done = 0;
        let streams: alloc::vec::Vec<u16> = reader.readable().map(|(_, stream)| stream).collect();
        for stream in streams {
            if !self.trims(stream) {
                continue;
            }
            self.trim_stream(at, stream, cx);
        }
    }

    fn trim_stream(&mut self, at: u32, stream: u16, cx: &mut Cx<'_>) {
        let (registry, young) =
            if is_retry_stream(stream) { (key::nothing(), 0) } else { (key::groups(self.spec.topic.name()), YOUNG_MS) };
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        let Some(source) = reader.key(stream).cloned() else { return };
        reader.trimming += 1;
        // No caps on length or age: only what is done with.
        let args = alloc::vec!["1".into(), "-1".into(), "-1".into(), LIMIT.into(), young.into()];
        let eval = Eval { script: Script::Trim, keys: alloc::vec![source, registry], args };
        self.command(at, Command::Eval(eval.into(), By::Sha1), Answer::Trim(stream), cx);
    }

    /// `{ok, removed, …}`, `{missing, groups}` or `{none}`
    pub(super) fn on_trimmed(&mut self, at: u32, stream: u16, reply: &Reply, cx: &mut Cx<'_>) {
        self.on_trim_orphan(at);
        if let Reply::Error(error) = reply {
            let Some(reader) = self.readers.get_mut(at as usize) else { return };
            if !core::mem::replace(&mut reader.trim_refused, true) {
                let warning =
                    Warning::Refused { broker: reader.at.clone(), what: "trimming (EVAL)", error: error.text().into() };
                cx.event(Event::Warning(warning.into()));
            }
            return;
        }
        let mut parts = reply.view().items().into_iter().flatten();
        match parts.next().and_then(|part| part.as_str()) {
            Some("ok") => {
                let removed =
                    parts.next().and_then(|part| part.as_int()).and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
                cx.stats.trimmed = cx.stats.trimmed.saturating_add(removed);
                // Redis stops before the node that would exceed the limit: less than the limit may still be all it may.
                if removed >= u64::from(LIMIT) / 2 {
                    self.trim_stream(at, stream, cx);
                }
            }
            // A registered group does not exist there: nothing was removed, and it must be created first.
            Some("missing") if self.readers.get(at as usize).is_some_and(Reader::is_live) => self.ensure(at, cx),
            // No stream, or not now: the next acknowledgement tries again.
            _ => {}
        }
    }

    pub(super) fn on_trim_orphan(&mut self, at: u32) {
        if let Some(reader) = self.readers.get_mut(at as usize) {
            reader.trimming = reader.trimming.saturating_sub(1);
        }
    }
}
