//! A second announcement parser, written from the grammar alone: the oracle of the corpus test and of the fuzz target.
//!
//! It shares no code and no technique with the first: it splits, copies and compares, one rule after the other, in the
//! order in which the reasons are promised. Where both agree on every input, a slip would have to be made twice.

use std::net::{Ipv4Addr, Ipv6Addr};

/// What an accepted announcement says, in plain fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NaiveAnnouncement {
    /// `"up"` or `"down"`.
    pub status: &'static str,
    pub name: String,
    /// Lower-case, with hyphens.
    pub guid: String,
    /// `HOST:PORT` in its canonical form: IPv6 in brackets, no leading zeros.
    pub address: String,
    /// Milliseconds; `None` for `down`.
    pub interval_ms: Option<u64>,
    /// `"plain"`, `"tls"` or `"unspecified"`; `None` for `down`.
    pub transport: Option<&'static str>,
}

/// Parses one datagram. The error is the name of the first reason to reject it.
pub fn naive_parse(datagram: &[u8]) -> Result<NaiveAnnouncement, &'static str> {
    if datagram.len() > 1024 {
        return Err("TooLong");
    }
    let text = String::from_utf8(datagram.to_vec()).map_err(|_| "NotUtf8")?;
    let text = text.trim_end_matches(['\r', '\n', '\0']);
    let fields: Vec<&str> = text.split('\t').collect();
    if fields.len() < 4 {
        return Err("MissingField");
    }
    let name = fields[0].to_string();
    if name.is_empty() {
        return Err("EmptyName");
    }
    let guid = guid(fields[1]).ok_or("BadGuid")?;
    let status = match fields[2].to_ascii_lowercase().as_str() {
        "up" => "up",
        "down" => "down",
        _ => return Err("BadStatus"),
    };
    // The last colon, because an IPv6 literal has colons of its own. Without any there is no HOST:PORT at all.
    let (host_text, port_text) = fields[3].rsplit_once(':').ok_or("BadAddress")?;
    let host = host(host_text).ok_or("BadAddress")?;
    let port = port(port_text).ok_or("BadPort")?;
    let address = format!("{host}:{port}");
    if status == "down" {
        return Ok(NaiveAnnouncement { status, name, guid, address, interval_ms: None, transport: None });
    }
    let interval_ms = match fields.get(4) {
        None => 0,
        Some(seconds) => milliseconds(seconds).ok_or("BadInterval")?,
    };
    let transport = match fields.get(5).map(|marker| marker.to_ascii_lowercase()).as_deref() {
        Some("plain") => "plain",
        Some("tls") => "tls",
        _ => "unspecified",
    };
    Ok(NaiveAnnouncement { status, name, guid, address, interval_ms: Some(interval_ms), transport: Some(transport) })
}

/// Five groups of hexadecimal digits, 8-4-4-4-12.
fn guid(text: &str) -> Option<String> {
    let groups: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    let is_uuid = lengths == [8, 4, 4, 4, 12] && groups.concat().chars().all(|c| c.is_ascii_hexdigit());
    is_uuid.then(|| text.to_ascii_lowercase())
}

/// `[IPv6]`, IPv4 or a host name, in canonical form.
fn host(text: &str) -> Option<String> {
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<Ipv6Addr>().ok().map(|ip| format!("[{ip}]"));
    }
    if let Ok(ip) = text.parse::<Ipv4Addr>() {
        return Some(ip.to_string());
    }
    let labels: Vec<&str> = text.split('.').collect();
    let are_labels = text.len() <= 253 && labels.iter().all(|label| is_label(label));
    let is_numeric = labels.last().is_some_and(|last| last.chars().all(|c| c.is_ascii_digit()));
    (are_labels && !is_numeric).then(|| text.to_string())
}

/// One label of a host name as RFC 1123 has it: 1 to 63 letters, digits and hyphens, no hyphen at either end.
fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Decimal digits, 1 to 65535; leading zeros mean nothing.
fn port(text: &str) -> Option<u16> {
    let number = whole(text)?;
    if (1..=65535).contains(&number) { u16::try_from(number).ok() } else { None }
}

/// `DIGITS` or `DIGITS.DIGITS` seconds as whole milliseconds, cut, not rounded; more than 64 bits hold is `u64::MAX`.
fn milliseconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let fraction_is_digits = whole(fraction).is_some();
    let thousandths: String = fraction.chars().chain("000".chars()).take(3).collect();
    let ms = whole(seconds)?.saturating_mul(1000).saturating_add(whole(&thousandths)?);
    fraction_is_digits.then(|| u64::try_from(ms).unwrap_or(u64::MAX))
}

/// One or more decimal digits as a number; far too many are the largest one.
fn whole(text: &str) -> Option<u128> {
    let is_digits = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    is_digits.then(|| text.parse().unwrap_or(u128::MAX))
}

/// The line that `flota decode` prints for a datagram, without a newline.
pub fn to_json_line(outcome: &Result<NaiveAnnouncement, &'static str>) -> String {
    let said = match outcome {
        Err(reason) => return format!("{{\"reject\":\"{reason}\"}}"),
        Ok(said) => said,
    };
    let mut line = format!(
        "{{\"status\":\"{}\",\"name\":\"{}\",\"guid\":\"{}\",\"address\":\"{}\"",
        said.status,
        json_escaped(&said.name),
        said.guid,
        said.address
    );
    if let Some(interval_ms) = said.interval_ms {
        line += &format!(",\"interval_ms\":{interval_ms}");
    }
    if let Some(transport) = said.transport {
        line += &format!(",\"transport\":\"{transport}\"");
    }
    line + "}"
}

/// The inside of a JSON string: what RFC 8259 says must be escaped, in the short form where there is one.
fn json_escaped(text: &str) -> String {
    let escape = |c: char| match c {
        '"' => "\\\"".to_string(),
        '\\' => "\\\\".to_string(),
        '\n' => "\\n".to_string(),
        '\r' => "\\r".to_string(),
        '\t' => "\\t".to_string(),
        '\u{8}' => "\\b".to_string(),
        '\u{c}' => "\\f".to_string(),
        c if c < ' ' => format!("\\u{:04x}", c as u32),
        c => c.to_string(),
    };
    text.chars().map(escape).collect()
}
