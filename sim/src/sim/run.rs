//! A run that is over, and its story.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

use super::notes::Line;
use crate::invariants;
use crate::oracle::{Class, Violation};
use crate::report::Report;
use crate::seen::Item;

/// A run that is over.
#[derive(Debug)]
pub struct Run<S> {
    /// What outlived the processes.
    pub state: S,
    /// What became of each message, in the order of sending.
    pub messages: Vec<Message>,
    /// The simulator's own report, with the plan.
    pub report: Report,
    pub(super) story: Vec<Line>,
}

/// A message, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where to.
    pub topic: String,
    /// What was sent.
    pub body: Bytes,
    /// What its sender was told; none if it was refused at once, or never told.
    pub sent: Option<Class>,
    /// How often it was stored. A sender in doubt stores a message twice.
    pub stored: u32,
    /// How often a handler was called with it.
    pub calls: u32,
    /// How often a handler said [`Verdict::Done`](super::Verdict::Done).
    pub done: u32,
    /// It has become a dead letter.
    pub dead: bool,
}

impl Message {
    /// Its sender was told that it is stored.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        self.sent == Some(Class::Stored)
    }

    /// What was sent, as text.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }
}

impl<S> Run<S> {
    /// Whether everything held: what you wanted and what Flota promises.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.report.is_ok()
    }

    /// The first thing that did not hold. Your own checks are [`invariants::CHECK`], panics [`invariants::PANIC`].
    #[must_use]
    pub fn failure(&self) -> Option<&Violation> {
        self.report.violations.first()
    }

    /// What happened to the messages that a text names by their bodies, and to everybody meanwhile: a line each. To all
    /// messages, if it names none.
    #[must_use]
    pub fn story(&self, of: &str) -> Vec<String> {
        let named: Vec<bool> = self.messages.iter().map(|message| names(of, &message.text())).collect();
        let all = !named.contains(&true);
        let is_named = |item: Item| all || named.get(item.0 as usize).copied().unwrap_or(false);
        let from = self.story.iter().find(|line| line.item.is_some_and(is_named)).map_or(0, |line| line.at);
        let to = self.story.iter().rfind(|line| line.item.is_some_and(is_named)).map_or(u64::MAX, |line| line.at);
        let lines = self.story.iter().filter(|line| (from..=to).contains(&line.at) && line.item.is_none_or(is_named));
        lines.map(|line| format!("{:>5}.{:06}  {}", line.at / 1_000_000, line.at % 1_000_000, line.text)).collect()
    }

    /// The run itself, if everything held.
    ///
    /// # Panics
    ///
    /// When something did not, with the seed and the story.
    #[track_caller]
    pub fn expect_ok(self) -> Self {
        assert!(self.is_ok(), "{self}");
        self
    }
}

/// Whether a text has a name in it that does not go on there: `order 1` is not in `order 17`.
fn names(text: &str, name: &str) -> bool {
    let goes_on = |rest: &str| rest.chars().next().is_some_and(char::is_alphanumeric);
    !name.is_empty() && text.match_indices(name).any(|(at, _)| !goes_on(&text[at + name.len()..]))
}

/// The outcome; of a failure the seed, the faults and the last lines of its story, too.
impl<S> fmt::Display for Run<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = self.report.seed;
        let Some(failure) = self.failure() else {
            return write!(f, "seed {seed}: everything held for {} messages", self.messages.len());
        };
        writeln!(f, "seed {seed}: {}: {}", invariants::title(failure.invariant), failure.text)?;
        match self.report.plan.faults.len() {
            0 => writeln!(f, "nothing went wrong around it")?,
            faults => writeln!(f, "what went wrong around it ({faults}), in milliseconds:")?,
        }
        for fault in self.report.plan.faults.iter().take(LINES) {
            writeln!(f, "  {}..{}  {:?}", fault.at_ms, fault.until_ms(), fault.what)?;
        }
        writeln!(f, "what happened, in seconds:")?;
        let story = self.story(&failure.text);
        let skipped = story.len().saturating_sub(LINES);
        if skipped > 0 {
            writeln!(f, "  … {skipped} lines before")?;
        }
        for line in story.iter().skip(skipped) {
            writeln!(f, "  {line}")?;
        }
        write!(f, "the same run again: the same `Sim` with seed {seed}")
    }
}

/// A failure shows so many lines of each kind.
const LINES: usize = 40;
