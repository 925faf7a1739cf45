use std::fs;

use super::*;

/// A folder of a test's own, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flota-log-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join(FILE)
    }

    /// Opens the log and answers what is in it.
    fn read(&self) -> io::Result<(Vec<Logged>, Replayed)> {
        let mut found = Vec::new();
        let (_, replayed) = Log::open(&self.0, Fsync::No, |logged| {
            found.push(logged.clone());
        })?;
        Ok((found, replayed))
    }

    fn write(&self, records: &[Logged]) {
        let (mut log, _) = Log::open(&self.0, Fsync::No, |_| {}).unwrap();
        records.iter().for_each(|logged| log.append(logged.clone()));
        log.write().unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn records() -> Vec<Logged> {
    let words = |words: &[&[u8]]| words.iter().map(|word| Bytes::copy_from_slice(word)).collect();
    vec![
        Logged { at: ServerTime(1), args: words(&[b"SET", b"k", b"\r\n\0\xff"]) },
        Logged { at: ServerTime(u64::MAX), args: words(&[b"DEL", b""]) },
        Logged { at: ServerTime(7), args: words(&[b"XADD", b"s", b"*", b"f", &[b'v'; 5000]]) },
    ]
}

#[test]
fn the_checksum_is_the_one_everybody_has() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    assert_eq!(crc32(b""), 0);
}

#[test]
fn what_was_written_is_read_and_written_after() {
    let folder = Folder::new("roundtrip");
    let records = records();
    assert_eq!(folder.read().unwrap().0, []);
    folder.write(&records);
    assert_eq!(folder.read().unwrap().0, records);
    folder.write(&records[..1]);
    let (found, replayed) = folder.read().unwrap();
    assert_eq!((found.len(), replayed.commands, replayed.torn), (4, 4, 0));
    assert_eq!(found[3], records[0]);
}

#[test]
fn a_log_cut_anywhere_keeps_its_whole_records_and_can_be_written_on() {
    let folder = Folder::new("torn");
    let mut records = records();
    records.pop();
    folder.write(&records);
    let bytes = fs::read(folder.file()).unwrap();
    for length in 0..bytes.len() {
        fs::write(folder.file(), &bytes[..length]).unwrap();
        let (found, replayed) = folder.read().unwrap();
        assert_eq!(found, records[..found.len()], "cut at {length}");
        assert!(found.len() < 2);
        let whole = fs::metadata(folder.file()).unwrap().len();
        let kept = if length < MAGIC.len() { 0 } else { whole };
        assert_eq!(kept + replayed.torn, length as u64, "cut at {length}");
        folder.write(&records[..1]);
        let again = folder.read().unwrap().0;
        assert_eq!((again.len(), &again[found.len()]), (found.len() + 1, &records[0]), "cut at {length}");
    }
}

#[test]
fn a_transaction_is_there_as_a_whole_or_not_at_all() {
    let folder = Folder::new("whole");
    let word = |word: &'static str| Logged { at: ServerTime(5), args: vec![Bytes::from_static(word.as_bytes())] };
    let whole = [word("MULTI"), word("A"), word("B"), word("EXEC"), word("C")];
    folder.write(&whole);
    assert_eq!(folder.read().unwrap().0, whole);
    let bytes = fs::read(folder.file()).unwrap();
    for length in MAGIC.len()..bytes.len() {
        fs::write(folder.file(), &bytes[..length]).unwrap();
        let found = folder.read().unwrap().0.len();
        assert!([0, 4].contains(&found), "{found} commands of one cut at {length}");
    }
}

#[test]
fn every_flipped_bit_before_the_last_record_is_an_error_that_changes_nothing() {
    let folder = Folder::new("flipped");
    let mut records = records();
    records.truncate(2);
    folder.write(&records[..1]);
    let last = fs::read(folder.file()).unwrap().len();
    folder.write(&records[1..]);
    let bytes = fs::read(folder.file()).unwrap();
    for place in 0..last {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1 << (place % 8);
        fs::write(folder.file(), &damaged).unwrap();
        let said = folder.read().unwrap_err().to_string();
        let at = if place < MAGIC.len() { 0 } else { MAGIC.len() };
        assert!(said.contains(&format!("damaged at byte {at}")) && said.contains("truncate"), "{place}: {said}");
        assert_eq!(fs::read(folder.file()).unwrap(), damaged, "{place}");
    }
}

#[test]
fn a_file_that_grew_before_its_contents_were_there_is_cut_off() {
    let folder = Folder::new("zeros");
    folder.write(&records());
    let whole = fs::read(folder.file()).unwrap();
    let mut longer = whole.clone();
    longer.extend([0; 10_000]);
    fs::write(folder.file(), &longer).unwrap();
    let (found, replayed) = folder.read().unwrap();
    assert_eq!((found, replayed.torn), (records(), 10_000));
    assert_eq!(fs::read(folder.file()).unwrap(), whole);
    longer.push(1);
    fs::write(folder.file(), &longer).unwrap();
    assert!(folder.read().is_err(), "something follows the zeros");
}

#[test]
fn two_brokers_cannot_have_one_folder() {
    let folder = Folder::new("locked");
    let (log, _) = Log::open(&folder.0, Fsync::No, |_| {}).unwrap();
    let said = folder.read().unwrap_err().to_string();
    assert!(said.contains("another broker"), "{said}");
    drop(log);
    folder.read().unwrap();
}
