//! The announcement datagram: how a broker says that it is there, or leaving.
//!
//! ```text
//! NAME ⇥ GUID ⇥ up   ⇥ HOST:PORT [⇥ SECONDS [⇥ plain|tls]]
//! NAME ⇥ GUID ⇥ down ⇥ HOST:PORT
//! ```
//!
//! One UDP datagram is one record, its fields are separated by a TAB and nothing ends it. Fields were only ever
//! appended, so what follows the ones used here is ignored. Anyone can send such a datagram: [`parse`] takes any bytes,
//! borrows from them, never allocates, and names the reason when it refuses.

use alloc::vec::Vec;
use core::fmt::{self, Write as _};
use core::net::{Ipv4Addr, Ipv6Addr};
use core::num::NonZeroU16;
use core::str;

use nom::character::complete::{char, digit1};
use nom::combinator::{all_consuming, opt};
use nom::sequence::preceded;
use nom::{IResult, Parser};
use uuid::Uuid;

mod json;
#[cfg(test)]
pub(crate) mod tests;

/// The longest datagram [`parse`] looks at, in bytes.
pub const ACCEPTED_BYTES_MAX: usize = 1024;

/// The longest datagram [`Announcement::encode`] emits, in bytes. Listeners and announcers in the field use buffers of
/// 256 bytes that end with a NUL, and cut silently.
pub const EMITTED_BYTES_MAX: usize = 255;

/// Reads one datagram.
///
/// CR, LF and NUL at its end are ignored. Status, transport and GUID are read in any letter case.
///
/// # Errors
///
/// The first [`Reject`], in the order of [`Reject::ALL`], that applies.
pub fn parse(datagram: &[u8]) -> Result<Announcement<'_>, Reject> {
    if datagram.len() > ACCEPTED_BYTES_MAX {
        return Err(Reject::TooLong);
    }
    let text = str::from_utf8(without_end(datagram)).map_err(|_| Reject::NotUtf8)?;
    let (_, fields) = fields(text).map_err(|_| Reject::MissingField)?;

    if fields.name.is_empty() {
        return Err(Reject::EmptyName);
    }
    let guid = Guid::parse(fields.guid).ok_or(Reject::BadGuid)?;
    let up = up(fields.status)?;
    let address = address(fields.address)?;
    let status = if up {
        Status::Up {
            interval: fields.interval.map_or(Ok(Interval::default()), interval)?,
            transport: fields.marker.map_or(Transport::Unspecified, transport),
        }
    } else {
        Status::Down
    };
    Ok(Announcement { name: fields.name, guid, address, status })
}

/// What one broker says about itself, borrowed from the datagram that said it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement<'a> {
    /// The fleet it wants to belong to: any text without a TAB, never empty.
    pub name: &'a str,
    /// Which start of which server speaks.
    pub guid: Guid,
    /// Where it can be reached.
    pub address: Address<'a>,
    /// Whether it is there.
    pub status: Status,
}

impl Announcement<'_> {
    /// Appends the wire form, at most [`EMITTED_BYTES_MAX`] bytes. [`parse`] reads it back to an equal value.
    ///
    /// # Errors
    ///
    /// An [`EncodeError`] when no datagram can say this; `out` is then as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.name.is_empty() {
            return Err(EncodeError::EmptyName);
        }
        if self.name.contains('\t') {
            return Err(EncodeError::TabInName);
        }
        if let Host::Name(host) = self.address.host
            && !is_host_name(host)
        {
            return Err(EncodeError::BadHost);
        }

        let start = out.len();
        // Appending to a vector does not fail, so neither does formatting into it.
        let _ = self.write_wire(&mut Appender(out));
        let bytes = out.len() - start;
        if bytes > EMITTED_BYTES_MAX {
            out.truncate(start);
            return Err(EncodeError::TooLong { bytes });
        }
        Ok(())
    }

    fn write_wire(&self, out: &mut Appender<'_>) -> fmt::Result {
        let Self { name, guid, address, status } = self;
        match status {
            Status::Up { interval, transport } => {
                write!(out, "{name}\t{guid}\tup\t{address}\t{interval}")?;
                match transport {
                    Transport::Plain => out.write_str("\tplain"),
                    Transport::Tls => out.write_str("\ttls"),
                    Transport::Unspecified => Ok(()),
                }
            }
            // No interval and no marker here: listeners in the field drop a `down` whose fifth field is no number.
            Status::Down => write!(out, "{name}\t{guid}\tdown\t{address}"),
        }
    }
}

/// Whether a broker is there, and what it says about that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is there.
    Up {
        /// How often it promises to repeat this.
        interval: Interval,
        /// What it says its port speaks.
        transport: Transport,
    },
    /// It is leaving.
    Down,
}

/// What an announcement says the port speaks. It is a hint from a stranger, never a reason to drop TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// `plain`.
    Plain,
    /// `tls`.
    Tls,
    /// No marker, or one that is not known here.
    Unspecified,
}

/// The time between two announcements of one broker, in milliseconds. Zero when the datagram names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval(u64);

impl Interval {
    /// An interval of so many milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// In milliseconds. Any value up to `u64::MAX`, since a stranger chose it: clamp it before adding to it.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

/// Seconds with as many decimals as needed, as on the wire: `1`, `1.5`, `0.001`.
impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.0 / 1000, self.0 % 1000);
        match millis {
            0 => write!(f, "{seconds}"),
            _ if millis % 100 == 0 => write!(f, "{seconds}.{}", millis / 100),
            _ if millis % 10 == 0 => write!(f, "{seconds}.{:02}", millis / 10),
            _ => write!(f, "{seconds}.{millis:03}"),
        }
    }
}

/// Which start of which server speaks: the announcers in the field draw a new one each time a server starts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid([u8; 16]);

impl Guid {
    /// A GUID of these bytes, in the order they are written.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes, in the order they are written.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Reads the hyphenated form of 36 characters, in any letter case. `None` for anything else, the other ways to
    /// write a UUID included.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        const HYPHENATED_BYTES: usize = 36;
        if text.len() != HYPHENATED_BYTES {
            return None;
        }
        Uuid::try_parse(text).ok().map(|uuid| Self(uuid.into_bytes()))
    }
}

/// Hyphenated, in lower case.
impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Uuid::from_bytes(self.0).as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where a broker can be reached.
///
/// Host names compare as written, so two spellings of one name are two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address<'a> {
    /// Which host.
    pub host: Host<'a>,
    /// Which TCP port.
    pub port: NonZeroU16,
}

/// As on the wire: `10.0.4.12:6379`, `[2001:db8::7]:6379`, `redis-1.local:6379`.
impl fmt::Display for Address<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.port;
        match self.host {
            Host::V4(ip) => write!(f, "{ip}:{port}"),
            Host::V6(ip) => write!(f, "[{ip}]:{port}"),
            Host::Name(name) => write!(f, "{name}:{port}"),
        }
    }
}

/// The host of an [`Address`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host<'a> {
    /// A dotted IPv4 literal.
    V4(Ipv4Addr),
    /// An IPv6 literal; in brackets on the wire.
    V6(Ipv6Addr),
    /// A name of RFC 1123 labels, as written, that nobody has resolved yet.
    Name(&'a str),
}

/// Why a datagram was refused. In the order in which the reasons are tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reject {
    /// Longer than [`ACCEPTED_BYTES_MAX`].
    TooLong,
    /// Not UTF-8.
    NotUtf8,
    /// Fewer than four fields.
    MissingField,
    /// The name is empty.
    EmptyName,
    /// The GUID is no hyphenated UUID.
    BadGuid,
    /// The status is neither `up` nor `down`.
    BadStatus,
    /// The host is neither an IPv4 literal, a bracketed IPv6 literal nor a host name, or no port follows it.
    BadAddress,
    /// The port is not written in digits only, or not in 1–65535.
    BadPort,
    /// The interval of an `up` is not written as digits with an optional fraction.
    BadInterval,
}

impl Reject {
    /// Every reason, in the order in which they are tested; `ALL[reject.index()] == reject`.
    pub const ALL: [Self; 9] = [
        Self::TooLong,
        Self::NotUtf8,
        Self::MissingField,
        Self::EmptyName,
        Self::BadGuid,
        Self::BadStatus,
        Self::BadAddress,
        Self::BadPort,
        Self::BadInterval,
    ];

    /// Its place in [`Reject::ALL`], for an array of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name of the variant.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooLong => "TooLong",
            Self::NotUtf8 => "NotUtf8",
            Self::MissingField => "MissingField",
            Self::EmptyName => "EmptyName",
            Self::BadGuid => "BadGuid",
            Self::BadStatus => "BadStatus",
            Self::BadAddress => "BadAddress",
            Self::BadPort => "BadPort",
            Self::BadInterval => "BadInterval",
        }
    }
}

/// The name of the variant.
impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl core::error::Error for Reject {}

/// Why an announcement cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// The fleet name is empty.
    EmptyName,
    /// The fleet name holds a TAB, which would shift every field behind it.
    TabInName,
    /// The host is a name that listeners would refuse.
    BadHost,
    /// The datagram would be longer than [`EMITTED_BYTES_MAX`].
    TooLong {
        /// How long it would be.
        bytes: usize,
    },
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyName => f.write_str("cannot announce under an empty fleet name: set one, such as imq-broker"),
            Self::TabInName => f.write_str("cannot announce under a fleet name that holds a TAB: remove it"),
            Self::BadHost => f.write_str(
                "cannot announce this host: use an IP address, or a host name of letters, digits and inner hyphens",
            ),
            Self::TooLong { bytes } => write!(
                f,
                "cannot announce in a datagram of {bytes} bytes, at most {EMITTED_BYTES_MAX} are sent: shorten the \
                 fleet name or the host name",
            ),
        }
    }
}

impl core::error::Error for EncodeError {}

/// The datagram without the CR, LF and NUL at its end.
fn without_end(datagram: &[u8]) -> &[u8] {
    let mut rest = datagram;
    while let [before @ .., b'\r' | b'\n' | b'\0'] = rest {
        rest = before;
    }
    rest
}

/// The fields of a datagram, as they were written.
struct Fields<'a> {
    name: &'a str,
    guid: &'a str,
    status: &'a str,
    address: &'a str,
    interval: Option<&'a str>,
    marker: Option<&'a str>,
}

fn fields(text: &str) -> IResult<&str, Fields<'_>, ()> {
    (field, next_field, next_field, next_field, opt(next_field), opt(next_field))
        .map(|(name, guid, status, address, interval, marker)| Fields { name, guid, status, address, interval, marker })
        .parse(text)
}

fn next_field(text: &str) -> IResult<&str, &str, ()> {
    preceded(char('\t'), field).parse(text)
}

fn field(text: &str) -> IResult<&str, &str, ()> {
    // Over bytes: nom's own search goes over characters, which costs a fifth of the whole parse. A TAB is one byte and
    // never a part of another character.
    let end = text.bytes().position(|byte| byte == b'\t').unwrap_or(text.len());
    let (field, rest) = text.split_at(end);
    Ok((rest, field))
}

/// Whether the status is `up`.
fn up(text: &str) -> Result<bool, Reject> {
    if text.eq_ignore_ascii_case("up") {
        Ok(true)
    } else if text.eq_ignore_ascii_case("down") {
        Ok(false)
    } else {
        Err(Reject::BadStatus)
    }
}

fn address(text: &str) -> Result<Address<'_>, Reject> {
    // The last colon, so that an IPv6 literal without brackets is refused as a host and never read as another port.
    let (host_text, port_text) = text.rsplit_once(':').ok_or(Reject::BadAddress)?;
    let host = host(host_text).ok_or(Reject::BadAddress)?;
    let port = port(port_text).ok_or(Reject::BadPort)?;
    Ok(Address { host, port })
}

fn host(text: &str) -> Option<Host<'_>> {
    if let Some(rest) = text.strip_prefix('[') {
        return rest.strip_suffix(']')?.parse().ok().map(Host::V6);
    }
    if let Ok(ip) = text.parse() {
        return Some(Host::V4(ip));
    }
    is_host_name(text).then_some(Host::Name(text))
}

/// Labels as in RFC 1123, the last of them not all digits: resolvers take `10.0.4` or `010.0.4.12` for an IPv4 address,
/// and do not agree on which.
fn is_host_name(text: &str) -> bool {
    const NAME_BYTES_MAX: usize = 253;
    const LABEL_BYTES_MAX: usize = 63;

    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let ends_in_number = text.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    text.len() <= NAME_BYTES_MAX && text.split('.').all(is_label) && !ends_in_number
}

fn port(text: &str) -> Option<NonZeroU16> {
    // The digits are checked first because the number parser would also take a sign.
    let (_, digits) = whole(digit1).parse(text).ok()?;
    digits.parse().ok()
}

fn interval(text: &str) -> Result<Interval, Reject> {
    let (_, (whole_digits, fraction_digits)) =
        whole((digit1, opt(preceded(char('.'), digit1)))).parse(text).map_err(|_| Reject::BadInterval)?;
    // Only digits are left, so the one thing that can go wrong is that there are too many.
    let seconds: u64 = whole_digits.parse().unwrap_or(u64::MAX);
    let millis = fraction_digits.map_or(0, thousandths);
    Ok(Interval(seconds.saturating_mul(1000).saturating_add(millis)))
}

/// A decimal fraction in thousandths, cut and not rounded.
fn thousandths(digits: &str) -> u64 {
    digits.bytes().chain(core::iter::repeat(b'0')).take(3).fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'))
}

fn transport(text: &str) -> Transport {
    if text.eq_ignore_ascii_case("plain") {
        Transport::Plain
    } else if text.eq_ignore_ascii_case("tls") {
        Transport::Tls
    } else {
        Transport::Unspecified
    }
}

/// A parser that must use up the text.
fn whole<'a, P>(parser: P) -> impl Parser<&'a str, Output = P::Output, Error = ()>
where
    P: Parser<&'a str, Error = ()>,
{
    all_consuming(parser)
}

/// Formats into a vector, which knows no `fmt::Write` without std.
struct Appender<'a>(&'a mut Vec<u8>);

impl fmt::Write for Appender<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
