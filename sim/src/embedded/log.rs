//! The command log: what makes a broker's data outlive its process. Its format is with [`FILE`].

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::{FlockOperation, flock};

use super::Fsync;
use crate::broker::{Logged, ServerTime};

/// The name of the command log in a broker's folder.
///
/// The file begins with [`MAGIC`]; records follow, each for what changed at once: by a command, or by a transaction or a
/// script, with `MULTI` before and `EXEC` behind its commands.
///
/// ```text
/// u32  length of the payload
/// u32  CRC-32 of these four bytes
/// u32  CRC-32 of the payload
/// payload:
///   u64  the server's clock when it took effect, in microseconds since 1970-01-01
///   commands up to the end of the payload:
///     u32  number of words
///     each word: u32 its length, then its bytes
/// ```
///
/// Numbers are little-endian; the CRC is that of zip and of Python's `zlib.crc32`. Commands executed again in this
/// order, each at its time, give the same data.
///
/// Records are handed to the system before the replies of their commands leave, so what was answered survives the kill
/// of the process. It survives the death of the machine only with [`Fsync::Always`]. The log is never rewritten: it grows
/// with every change, and a start executes all of it, some 200,000 changes a second.
pub const FILE: &str = "commands.log";
/// What a log begins with: the version of its format.
pub const MAGIC: &[u8] = b"flota commands 1\n";

/// Of a record's header.
const HEADER: usize = 12;
/// Larger than any command a client may send; a header that says more was not written by this program.
const PAYLOAD_MAX: usize = 1 << 30;
/// Records are collected up to this size while commands are executed; it bounds memory, not a record.
const KEEP: usize = 1 << 20;

/// A log that is written to. Nobody else has it open: two brokers on one folder would destroy it.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    path: PathBuf,
    fsync: Fsync,
    /// Records that the system does not have yet.
    pending: Vec<u8>,
    /// The record of a transaction that has no end yet.
    open: Option<Vec<Logged>>,
}

/// What was found in a log.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    /// Commands.
    pub(super) commands: u64,
    /// Bytes of an unfinished last record, which were cut off.
    pub(super) torn: u64,
}

impl Log {
    /// Opens the log in `folder`, which is made if it is not there, and hands every record to `apply`, in order.
    ///
    /// A last record that is not whole was never answered for: it is cut off.
    ///
    /// # Errors
    ///
    /// The system's own; a folder that another broker uses; a record that is damaged.
    pub(super) fn open(folder: &Path, fsync: Fsync, apply: impl FnMut(&Logged)) -> io::Result<(Self, Replayed)> {
        let failed = |what: &str, path: &Path, why: &io::Error| {
            io::Error::new(why.kind(), format!("cannot {what} {}: {why}", path.display()))
        };
        std::fs::create_dir_all(folder).map_err(|why| failed("make the folder", folder, &why))?;
        let path = folder.join(FILE);
        let file = File::options().read(true).append(true).create(true).open(&path);
        let file = file.map_err(|why| failed("open the command log", &path, &why))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|why| {
            let next = "is another broker running on this folder? Stop it, or name another folder";
            io::Error::new(io::ErrorKind::ResourceBusy, format!("cannot lock {}: {why}; {next}", path.display()))
        })?;
        let mut log = Self { file, path, fsync, pending: Vec::new(), open: None };
        let replayed = log.replay(apply)?;
        Ok((log, replayed))
    }

    /// Adds a command; the system has it after the next [`write`](Self::write), or with the `EXEC` of its transaction.
    pub(super) fn append(&mut self, logged: Logged) {
        let is = |word: &str| logged.args.first().is_some_and(|name| name.as_ref() == word.as_bytes());
        let (begins, ends) = (is("MULTI"), is("EXEC"));
        match &mut self.open {
            Some(open) => open.push(logged),
            None if begins => self.open = Some(vec![logged]),
            None => return encode(&[logged], &mut self.pending),
        }
        if ends && let Some(whole) = self.open.take() {
            encode(&whole, &mut self.pending);
        }
    }

    /// Hands what was added to the system, and with [`Fsync::Always`] to the disk.
    ///
    /// # Errors
    ///
    /// The system's own. What was added may then be in the file in part; the log must not be written to any more.
    pub(super) fn write(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.file.write_all(&self.pending).map_err(|why| self.failed(&why))?;
        self.pending.clear();
        self.pending.shrink_to(KEEP);
        if self.fsync == Fsync::Always { self.sync() } else { Ok(()) }
    }

    /// Waits until the disk has it.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data().map_err(|why| self.failed(&why))
    }

    fn failed(&self, why: &io::Error) -> io::Error {
        let next = "see to the disk and start the broker again: nothing was answered that is not in the log";
        io::Error::new(why.kind(), format!("cannot write {}: {why}; {next}", self.path.display()))
    }

    fn replay(&mut self, mut apply: impl FnMut(&Logged)) -> io::Result<Replayed> {
        let length = self.file.seek(SeekFrom::End(0))?;
        self.file.seek(SeekFrom::Start(0))?;
        let mut reader = Records { file: BufReader::with_capacity(1 << 18, &self.file), at: 0, length };
        let mut replayed = Replayed::default();
        let mut whole = 0;
        if reader.magic().map_err(|why| self.damaged(0, &why))? {
            whole = reader.at;
            while let Some(record) = reader.next().map_err(|why| self.damaged(whole, &why))? {
                record.iter().for_each(&mut apply);
                replayed.commands += record.len() as u64;
                whole = reader.at;
            }
        }
        drop(reader);
        replayed.torn = length - whole;
        if replayed.torn > 0 {
            self.file.set_len(whole).map_err(|why| self.failed(&why))?;
        }
        if whole == 0 {
            self.file.write_all(MAGIC).map_err(|why| self.failed(&why))?;
        }
        Ok(replayed)
    }

    fn damaged(&self, at: u64, fault: &Fault) -> io::Error {
        match fault {
            Fault::Io(why) => io::Error::new(why.kind(), format!("cannot read {}: {why}", self.path.display())),
            Fault::Damaged(why) => {
                let path = self.path.display();
                let next = format!(
                    "nothing was changed. Move the file away to start empty, or keep what comes before it: \
                     `truncate -s {at} {path}`, which loses every later change"
                );
                io::Error::new(io::ErrorKind::InvalidData, format!("{path} is damaged at byte {at}: {why}; {next}"))
            }
        }
    }
}

/// Why a log cannot be read on.
#[derive(Debug)]
enum Fault {
    Io(io::Error),
    Damaged(String),
}

impl From<io::Error> for Fault {
    fn from(why: io::Error) -> Self {
        Self::Io(why)
    }
}

impl From<&str> for Fault {
    fn from(why: &str) -> Self {
        Self::Damaged(why.to_string())
    }
}

/// Reads records.
struct Records<R> {
    file: R,
    /// How far it has read.
    at: u64,
    length: u64,
}

impl<R: Read> Records<R> {
    /// False when the file ends within it, as one whose broker died at its very start.
    fn magic(&mut self) -> Result<bool, Fault> {
        let there = usize::try_from(self.left()).unwrap_or(usize::MAX).min(MAGIC.len());
        let read = self.bytes(there)?;
        if !MAGIC.starts_with(&read) {
            return Err("it does not begin as a command log of this version".into());
        }
        Ok(read.len() == MAGIC.len())
    }

    /// None at the end, and where the last record is not whole.
    fn next(&mut self) -> Result<Option<Vec<Logged>>, Fault> {
        if self.left() < HEADER as u64 {
            return Ok(None);
        }
        let header = self.bytes(HEADER)?;
        let mut words = Words(&header);
        let (length, of_length, of_payload) = (words.u32(), words.u32(), words.u32());
        let (Some(length), Some(of_length), Some(of_payload)) = (length, of_length, of_payload) else {
            return Ok(None);
        };
        if crc32(&length.to_le_bytes()) != of_length {
            // A file may have grown before its contents were there, when the machine died.
            let empty = header.iter().all(|byte| *byte == 0) && self.rest_is_zero()?;
            return if empty { Ok(None) } else { Err("a record's header has the wrong checksum".into()) };
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > PAYLOAD_MAX {
            return Err("a record is longer than any can be".into());
        }
        if self.left() < length as u64 {
            return Ok(None);
        }
        let payload = self.bytes(length)?;
        if crc32(&payload) != of_payload {
            return if self.left() == 0 { Ok(None) } else { Err("a record has the wrong checksum".into()) };
        }
        decode(&payload).map(Some).ok_or_else(|| "a record has a right checksum and no meaning".into())
    }

    fn rest_is_zero(&mut self) -> Result<bool, Fault> {
        let mut rest = [0; 4096];
        loop {
            match self.file.read(&mut rest)? {
                0 => return Ok(true),
                n if rest.iter().take(n).any(|byte| *byte != 0) => return Ok(false),
                _ => {}
            }
        }
    }

    fn left(&self) -> u64 {
        self.length.saturating_sub(self.at)
    }

    fn bytes(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.file.read_exact(&mut bytes)?;
        self.at += count as u64;
        Ok(bytes)
    }
}

/// One record. All of it took effect at the same time.
fn encode(record: &[Logged], into: &mut Vec<u8>) {
    // Clients cannot send words or commands near 4 GiB: the codec refuses them.
    let u32 = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
    let length = |logged: &Logged| 4 + logged.args.iter().map(|word| 4 + word.len()).sum::<usize>();
    let length = 8 + record.iter().map(length).sum::<usize>();
    into.extend(u32(length));
    into.extend(crc32(&u32(length)).to_le_bytes());
    let checksum = into.len();
    into.extend([0; 4]);
    into.extend(record.first().map_or(0, |logged| logged.at.0).to_le_bytes());
    for logged in record {
        into.extend(u32(logged.args.len()));
        for word in &logged.args {
            into.extend(u32(word.len()));
            into.extend_from_slice(word);
        }
    }
    let crc = crc32(into.get(checksum + 4..).unwrap_or_default());
    if let Some(place) = into.get_mut(checksum..checksum + 4) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
}

fn decode(payload: &[u8]) -> Option<Vec<Logged>> {
    let mut words = Words(payload);
    let at = ServerTime(words.u64()?);
    let mut record = Vec::new();
    while !words.0.is_empty() {
        let count = words.u32()?;
        let mut args = Vec::new();
        for _ in 0..count {
            let length = usize::try_from(words.u32()?).ok()?;
            args.push(Bytes::copy_from_slice(words.take(length)?));
        }
        record.push(Logged { at, args });
    }
    Some(record)
}

/// Numbers and bytes, one after another.
struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}

/// CRC-32 as zip has it, so that whoever wants to read a log has it at hand.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        let index = (crc as u8 ^ byte) as usize;
        CRC_TABLE.get(index).copied().unwrap_or_default() ^ (crc >> 8)
    })
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let mut value = n as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { 0xedb8_8320 ^ (value >> 1) } else { value >> 1 };
            bit += 1;
        }
        table[n] = value;
        n += 1;
    }
    table
};

#[cfg(test)]
mod tests;
