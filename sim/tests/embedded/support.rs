//! A client that knows as much of the protocol as tests need, and folders that go with their tests.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Longer than anything here takes: what hangs fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { reader: BufReader::new(stream.try_clone().unwrap()), stream }
    }

    /// Sends a command given as words, and answers the reply.
    pub(crate) fn ask(&mut self, command: &str) -> Reply {
        self.send(command);
        self.reply()
    }

    pub(crate) fn send(&mut self, command: &str) {
        self.stream.write_all(&request(&command.split(' ').collect::<Vec<_>>())).unwrap();
    }

    pub(crate) fn reply(&mut self) -> Reply {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        let Some(kind) = line.chars().next() else { return Reply::Closed };
        let rest = line[1..].trim_end().to_string();
        let count = || rest.parse::<i64>().unwrap();
        match kind {
            '+' => Reply::Text(rest),
            '-' => Reply::Error(rest),
            ':' => Reply::Int(count()),
            '_' => Reply::Nil,
            '$' | '*' if count() < 0 => Reply::Nil,
            '$' | '=' => {
                let mut bytes = vec![0; usize::try_from(count()).unwrap() + 2];
                self.reader.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                let text = String::from_utf8(bytes).unwrap();
                Reply::Text(if kind == '=' { text[4..].to_string() } else { text })
            }
            '*' | '~' => Reply::Items((0..count()).map(|_| self.reply()).collect()),
            '>' => Reply::Push((0..count()).map(|_| self.reply()).collect()),
            '%' => Reply::Map((0..count()).map(|_| (self.reply(), self.reply())).collect()),
            _ => panic!("not a reply: {line:?}"),
        }
    }
}

/// A command as clients send it.
pub(crate) fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    words.iter().for_each(|word| bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
    bytes
}

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    /// The server has closed the connection.
    Closed,
    Nil,
    Int(i64),
    Text(String),
    Error(String),
    Items(Vec<Reply>),
    Push(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed"),
            Self::Nil => f.write_str("nil"),
            Self::Int(n) => n.fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::Error(text) => write!(f, "-{text}"),
            Self::Items(items) | Self::Push(items) => {
                let items: Vec<String> = items.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", items.join(" "))
            }
            Self::Map(pairs) => {
                let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
                write!(f, "{{{}}}", pairs.join(" "))
            }
        }
    }
}

/// A folder that is removed with it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("flota-embedded-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
