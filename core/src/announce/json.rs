//! An announcement as one line of JSON, for people and for tests.
//!
//! Written by hand because the shape is fixed and the only difficulty is a strange name.

use core::fmt::{Result, Write};

use super::{Announcement, Reject, Status, Transport};

impl Announcement<'_> {
    /// Writes it as one JSON object without white space or a newline, keys in this order: `status`, `name`, `guid`,
    /// `address`, and for an `up` also `interval_ms` and `transport` (`plain`, `tls` or `unspecified`).
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_json(&self, out: &mut impl Write) -> Result {
        let status = match self.status {
            Status::Up { .. } => "up",
            Status::Down => "down",
        };
        write!(out, r#"{{"status":"{status}","name":""#)?;
        Escaped(out).write_str(self.name)?;
        write!(out, r#"","guid":"{}","address":""#, self.guid)?;
        // Nothing in a parsed address needs it, but a host name can also come from elsewhere.
        write!(Escaped(out), "{}", self.address)?;
        out.write_char('"')?;
        if let Status::Up { interval, transport } = self.status {
            let transport = match transport {
                Transport::Plain => "plain",
                Transport::Tls => "tls",
                Transport::Unspecified => "unspecified",
            };
            write!(out, r#","interval_ms":{},"transport":"{transport}""#, interval.as_millis())?;
        }
        out.write_char('}')
    }
}

impl Reject {
    /// Writes it as one JSON object: `{"reject":"TooLong"}`.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_json(self, out: &mut impl Write) -> Result {
        write!(out, r#"{{"reject":"{self}"}}"#)
    }
}

/// Writes the inside of a JSON string. Only what JSON demands is escaped; other characters stay readable.
struct Escaped<'a, W>(&'a mut W);

impl<W: Write> Write for Escaped<'_, W> {
    fn write_str(&mut self, text: &str) -> Result {
        text.chars().try_for_each(|c| self.write_char(c))
    }

    fn write_char(&mut self, c: char) -> Result {
        let out = &mut *self.0;
        match c {
            '"' => out.write_str("\\\""),
            '\\' => out.write_str("\\\\"),
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            '\u{8}' => out.write_str("\\b"),
            '\u{c}' => out.write_str("\\f"),
            '\0'..='\u{1f}' => write!(out, "\\u{:04x}", u32::from(c)),
            _ => out.write_char(c),
        }
    }
}
