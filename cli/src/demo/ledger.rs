//! What was sent, what was handled, and whether the two agree.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Instant;

use flota_tokio::topic::MessageId;

/// The books of one demo.
#[derive(Debug)]
pub(crate) struct Ledger {
    sent: HashSet<MessageId>,
    sent_log: File,
    handled: HashMap<MessageId, Vec<Handling>>,
    dead: HashSet<MessageId>,
    redelivered: usize,
    last_handled: Option<Instant>,
}

/// One worker's line about one message.
#[derive(Clone, Copy, Debug)]
struct Handling {
    worker: usize,
    seen: Instant,
}

/// How the books balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// Messages a broker answered for.
    pub(crate) sent: usize,
    /// Distinct ones of these that a worker handled and that are no dead letters.
    pub(crate) handled: usize,
    /// The rest.
    pub(crate) lost: usize,
    /// Messages handled more than once.
    pub(crate) redelivered: usize,
}

impl Ledger {
    /// Opens the books; ids sent go to `sent_log`, too.
    pub(crate) fn new(sent_log: &Path) -> io::Result<Self> {
        Ok(Self {
            sent: HashSet::new(),
            sent_log: File::create(sent_log)?,
            handled: HashMap::new(),
            dead: HashSet::new(),
            redelivered: 0,
            last_handled: None,
        })
    }

    /// A broker has stored it.
    pub(crate) fn sent(&mut self, id: MessageId) -> io::Result<()> {
        if self.sent.insert(id) { writeln!(self.sent_log, "{id}") } else { Ok(()) }
    }

    /// A worker has logged it.
    pub(crate) fn handled(&mut self, id: MessageId, worker: usize, seen: Instant) {
        let handlings = self.handled.entry(id).or_default();
        handlings.push(Handling { worker, seen });
        self.redelivered += usize::from(handlings.len() == 2);
        self.last_handled = Some(seen);
    }

    /// It lies among the dead letters.
    pub(crate) fn dead(&mut self, id: MessageId) {
        self.dead.insert(id);
    }

    /// How many were sent so far.
    pub(crate) fn sent_count(&self) -> usize {
        self.sent.len()
    }

    /// How many distinct messages were handled so far.
    pub(crate) fn handled_count(&self) -> usize {
        self.handled.len()
    }

    /// How many were handled more than once so far.
    pub(crate) fn redelivered_count(&self) -> usize {
        self.redelivered
    }

    /// Whether each message sent has been handled.
    pub(crate) fn is_settled(&self) -> bool {
        // Most looks end at the first comparison: there are many looks and many messages.
        self.sent.len() <= self.handled.len() && self.sent.iter().all(|id| self.handled.contains_key(id))
    }

    /// When the last line of a worker was seen.
    pub(crate) fn last_handled(&self) -> Option<Instant> {
        self.last_handled
    }

    /// When the last of these had been handled after `since` by another than `worker`; `None` while one has not.
    pub(crate) fn taken_over(&self, ids: &[MessageId], worker: usize, since: Instant) -> Option<Instant> {
        let by_another = |id: &MessageId| {
            let handlings = self.handled.get(id)?;
            handlings.iter().filter(|h| h.worker != worker && h.seen >= since).map(|h| h.seen).min()
        };
        ids.iter().map(by_another).try_fold(since, |last, seen| Some(last.max(seen?)))
    }

    /// The balance. A message that lies among the dead letters counts as not handled, whatever the logs say.
    pub(crate) fn account(&self) -> Account {
        let good = |id: &&MessageId| self.handled.contains_key(id) && !self.dead.contains(id);
        let handled = self.sent.iter().filter(good).count();
        Account { sent: self.sent.len(), handled, lost: self.sent.len() - handled, redelivered: self.redelivered }
    }

    /// Messages that a worker handled and nobody sent. There should be none.
    pub(crate) fn strangers(&self) -> usize {
        self.handled.keys().filter(|id| !self.sent.contains(id)).count()
    }
}

/// Reads what a worker's log grows by.
#[derive(Debug)]
pub(crate) struct Tail {
    file: File,
    rest: Vec<u8>,
}

impl Tail {
    /// From the start of the file, which is made if it is not there.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).append(true).read(true).open(path)?;
        Ok(Self { file, rest: Vec::new() })
    }

    /// The ids on the lines that were finished since the last time.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or a line is not a message id.
    pub(crate) fn ids(&mut self) -> io::Result<Vec<MessageId>> {
        self.file.read_to_end(&mut self.rest)?;
        let end = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines: Vec<u8> = self.rest.drain(..end).collect();
        lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(parse).collect()
    }
}

fn parse(line: &[u8]) -> io::Result<MessageId> {
    std::str::from_utf8(line).ok().and_then(MessageId::parse).ok_or_else(|| {
        io::Error::other(format!("a worker's log has the line \"{}\", which is no message id", line.escape_ascii()))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use std::time::Duration;

    fn id(n: u8) -> MessageId {
        MessageId([n; 16])
    }

    fn ledger(name: &str) -> (Ledger, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("flota-ledger-{}-{name}", std::process::id()));
        (Ledger::new(&path).unwrap(), path)
    }

    #[test]
    fn the_account_counts_messages_not_handlings() {
        let (mut ledger, path) = ledger("account");
        let now = Instant::now();
        for n in 0..4 {
            ledger.sent(id(n)).unwrap();
        }
        ledger.sent(id(3)).unwrap();
        for n in [0, 0, 0, 1, 2] {
            ledger.handled(id(n), 1, now);
        }
        assert!(!ledger.is_settled());
        ledger.dead(id(2));
        ledger.handled(id(9), 2, now);
        assert_eq!(ledger.account(), Account { sent: 4, handled: 2, lost: 2, redelivered: 1 });
        assert_eq!(ledger.strangers(), 1);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 4);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_message_is_taken_over_by_another_worker_after_the_kill() {
        let (mut ledger, path) = ledger("taken");
        let kill = Instant::now();
        let later = |ms| kill + Duration::from_millis(ms);
        ledger.handled(id(1), 1, kill);
        ledger.handled(id(1), 1, later(5));
        assert_eq!(ledger.taken_over(&[id(1)], 1, kill), None, "by the one that was killed");
        ledger.handled(id(1), 2, later(30));
        ledger.handled(id(1), 3, later(90));
        assert_eq!(ledger.taken_over(&[id(1)], 1, kill), Some(later(30)));
        assert_eq!(ledger.taken_over(&[id(1), id(2)], 1, kill), None, "one is missing");
        ledger.handled(id(2), 3, later(40));
        assert_eq!(ledger.taken_over(&[id(1), id(2)], 1, kill), Some(later(40)));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_tail_gives_whole_lines_once() {
        let path = std::env::temp_dir().join(format!("flota-tail-{}", std::process::id()));
        let mut tail = Tail::new(&path).unwrap();
        let mut writer = File::options().append(true).open(&path).unwrap();
        let text = format!("{}\n{}\n", id(1), id(2));
        let (first, second) = text.split_at(40);
        writer.write_all(first.as_bytes()).unwrap();
        assert_eq!(tail.ids().unwrap(), [id(1)]);
        writer.write_all(second.as_bytes()).unwrap();
        assert_eq!(tail.ids().unwrap(), [id(2)]);
        assert_eq!(tail.ids().unwrap(), []);
        writer.write_all(b"nonsense\n").unwrap();
        assert!(tail.ids().is_err());
        std::fs::remove_file(path).unwrap();
    }
}
