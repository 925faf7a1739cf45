//! A reply as it was on the wire, with everything RESP2 and RESP3 tell apart.

use std::fmt;

use bytes::Bytes;

/// A reply, or a part of one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wire {
    /// `$-1`, `*-1` or `_`, by its first byte.
    Nil(char),
    Int(i64),
    Status(Bytes),
    Error(String),
    Bulk(Bytes),
    /// As written.
    Double(String),
    Bool(bool),
    Verbatim(Bytes),
    Array(Vec<Wire>),
    /// Names and values in turn.
    Map(Vec<Wire>),
    Set(Vec<Wire>),
    Push(Vec<Wire>),
}

/// What is wrong with bytes that are no reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub String);

/// Takes the first reply off `bytes`: the reply and its length; none if it is not all there.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Wire, usize)>, Malformed> {
    let mut at = 0;
    Ok(value(bytes, &mut at)?.map(|wire| (wire, at)))
}

fn value(bytes: &[u8], at: &mut usize) -> Result<Option<Wire>, Malformed> {
    let Some(line) = line(bytes, at) else { return Ok(None) };
    let Some((&mark, rest)) = line.split_first() else { return Err(Malformed("an empty line".into())) };
    let text = || String::from_utf8_lossy(rest).into_owned();
    let count = || text().parse::<i64>().map_err(|_| Malformed(format!("{}{} as a length", mark as char, text())));
    Ok(Some(match mark {
        b'+' => Wire::Status(Bytes::copy_from_slice(rest)),
        b'-' => Wire::Error(text()),
        b':' => Wire::Int(count()?),
        b',' => Wire::Double(text()),
        b'_' => Wire::Nil('_'),
        b'#' => Wire::Bool(rest == b"t"),
        b'$' | b'=' => {
            let Ok(length) = usize::try_from(count()?) else { return Ok(Some(Wire::Nil('$'))) };
            let Some(body) = bytes.get(*at..*at + length + 2) else { return Ok(None) };
            *at += length + 2;
            let body = Bytes::copy_from_slice(&body[..length]);
            if mark == b'$' { Wire::Bulk(body) } else { Wire::Verbatim(body) }
        }
        b'*' | b'%' | b'~' | b'>' => {
            let Ok(mut length) = usize::try_from(count()?) else { return Ok(Some(Wire::Nil('*'))) };
            if mark == b'%' {
                length *= 2;
            }
            let mut items = Vec::new();
            for _ in 0..length {
                let Some(item) = value(bytes, at)? else { return Ok(None) };
                items.push(item);
            }
            match mark {
                b'*' => Wire::Array(items),
                b'%' => Wire::Map(items),
                b'~' => Wire::Set(items),
                _ => Wire::Push(items),
            }
        }
        other => return Err(Malformed(format!("a reply beginning with {:?}", other as char))),
    }))
}

fn line<'a>(bytes: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let rest = bytes.get(*at..)?;
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    *at += end + 2;
    Some(&rest[..end])
}

/// A command as clients send it.
pub(crate) fn command(args: &[Bytes]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Bytes as a person reads them.
pub(crate) fn readable(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

impl Wire {
    /// What an array or a like reply holds.
    pub(crate) fn items(&self) -> Option<&[Self]> {
        match self {
            Self::Array(items) | Self::Map(items) | Self::Set(items) | Self::Push(items) => Some(items),
            _ => None,
        }
    }

    /// Bytes, whether they came as a status or in bulk.
    pub(crate) fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Status(bytes) | Self::Bulk(bytes) | Self::Verbatim(bytes) => Some(bytes),
            _ => None,
        }
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, mark: &str, items: &[Self]| {
            f.write_str(mark)?;
            f.debug_list().entries(items).finish()
        };
        match self {
            Self::Nil(mark) => write!(f, "nil{mark}"),
            Self::Int(n) => write!(f, "{n}"),
            Self::Status(text) => write!(f, "+{}", readable(text)),
            Self::Error(text) => write!(f, "-{text}"),
            Self::Bulk(text) => write!(f, "\"{}\"", readable(text)),
            Self::Double(text) => write!(f, ",{text}"),
            Self::Bool(yes) => write!(f, "#{yes}"),
            Self::Verbatim(text) => write!(f, "=\"{}\"", readable(text)),
            Self::Array(items) => list(f, "", items),
            Self::Map(items) => list(f, "%", items),
            Self::Set(items) => list(f, "~", items),
            Self::Push(items) => list(f, ">", items),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_replies_are_read_and_partial_ones_waited_for() {
        let bytes = b"*3\r\n:1\r\n$2\r\nab\r\n%1\r\n+k\r\n_\r\n-ERR x\r\n";
        let (wire, length) = parse(bytes).unwrap().unwrap();
        assert_eq!(format!("{wire:?}"), "[1, \"ab\", %[+k, nil_]]");
        assert_eq!(&bytes[length..], b"-ERR x\r\n");
        for cut in 0..length {
            assert_eq!(parse(&bytes[..cut]).unwrap(), None, "at {cut}");
        }
        assert!(parse(b"?\r\n").is_err());
    }
}
