//! Writing to standard output: lines, JSON, tables. Everything is flushed as it is written.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anstyle::{AnsiColor, Color};
use serde::{Serialize, Serializer};

use crate::error::Failure;

/// Writes bytes to standard output.
pub(crate) fn write(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .map_err(|error| Failure::io("cannot write to standard output", &error))
}

/// Writes one line to standard output.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    write(format!("{text}\n").as_bytes())
}

/// Writes one object as a line of JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    write(to_json(value).as_bytes())
}

/// One object as a line of JSON, with its newline.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    // Structs with text and numbers always serialize.
    let mut text =
        serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"error\":{:?}}}", error.to_string()));
    text.push('\n');
    text
}

/// Bytes in JSON: text if they are UTF-8, else `{"base64":…}`.
#[derive(Clone, Debug)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use base64::Engine as _;
        #[derive(Serialize)]
        struct Binary {
            base64: String,
        }
        match std::str::from_utf8(self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => Binary { base64: base64::engine::general_purpose::STANDARD.encode(self.0) }.serialize(serializer),
        }
    }
}

/// Milliseconds since 1970.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A duration as people say it: `450ms`, `2.5s`, `3m 20s`, `5h 2m`, `3d 4h`.
pub(crate) fn ago(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..60 => format!("{}.{}s", seconds, duration.subsec_millis() / 100),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Writes to standard error. Whoever closed it does not read it.
pub(crate) fn show(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// A line on a terminal's standard error that says how far something long has come.
#[derive(Debug)]
pub(crate) struct Progress {
    wanted: bool,
    next: Instant,
    shown: bool,
}

impl Progress {
    /// Nothing is said of what takes less than a second.
    const FIRST: Duration = Duration::from_secs(1);
    const AGAIN: Duration = Duration::from_millis(200);

    pub(crate) fn new() -> Self {
        let wanted = io::stderr().is_terminal() && tracing::enabled!(tracing::Level::WARN);
        Self { wanted, next: Instant::now() + Self::FIRST, shown: false }
    }

    pub(crate) fn say(&mut self, text: impl fmt::Display) {
        let now = Instant::now();
        if self.wanted && now >= self.next {
            show(format_args!("\r\x1b[K{text}"));
            self.next = now + Self::AGAIN;
            self.shown = true;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            show(format_args!("\r\x1b[K"));
        }
    }
}

/// Text from strangers on one line: control characters escaped, so that nothing reaches the terminal as a command.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().fold(String::new(), |mut line, c| {
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
        line
    })
}

/// Colours, where somebody sees them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    colour: bool,
}

impl Style {
    /// Colours for a terminal, unless NO_COLOR is set.
    pub(crate) fn for_stream(terminal: bool) -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { colour: terminal && !unwanted }
    }

    pub(crate) fn colours(self) -> bool {
        self.colour
    }

    pub(crate) fn good(self, text: &str) -> String {
        self.paint(AnsiColor::Green, text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.paint(AnsiColor::Red, text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint(AnsiColor::BrightBlack, text)
    }

    fn paint(self, colour: AnsiColor, text: &str) -> String {
        if !self.colour {
            return text.to_string();
        }
        let style = anstyle::Style::new().fg_color(Some(Color::Ansi(colour)));
        format!("{style}{text}{style:#}")
    }
}

/// A cell of a table.
#[derive(Debug)]
pub(crate) struct Cell {
    text: String,
    right: bool,
    paint: Option<AnsiColor>,
}

impl Cell {
    pub(crate) fn text(text: impl fmt::Display) -> Self {
        Self { text: one_line(&text.to_string()), right: false, paint: None }
    }

    pub(crate) fn number(number: impl fmt::Display) -> Self {
        Self { text: number.to_string(), right: true, paint: None }
    }

    pub(crate) fn painted(mut self, colour: AnsiColor) -> Self {
        self.paint = Some(colour);
        self
    }
}

/// Rows under headings, aligned.
#[derive(Debug)]
pub(crate) struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(headings: &[&'static str]) -> Self {
        Self { headings: headings.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.headings.len());
        self.rows.push(cells);
    }

    pub(crate) fn render(&self, style: Style) -> String {
        let width_of = |column: usize, heading: &str| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.text.chars().count());
            cells.chain([heading.len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = self.headings.iter().enumerate().map(|(i, heading)| width_of(i, heading)).collect();
        let right = |column: usize| self.rows.iter().any(|row| row.get(column).is_some_and(|cell| cell.right));
        let mut text = String::new();
        let heading = self.headings.iter().enumerate().map(|(i, heading)| {
            let width = widths.get(i).copied().unwrap_or(0);
            if right(i) { format!("{heading:>width$}") } else { format!("{heading:<width$}") }
        });
        let heading = heading.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "{}", style.dim(heading.trim_end()));
        for row in &self.rows {
            let cells = row.iter().zip(&widths).enumerate().map(|(i, (cell, width))| {
                let padding = " ".repeat(width.saturating_sub(cell.text.chars().count()));
                let painted = cell.paint.map_or_else(|| cell.text.clone(), |colour| style.paint(colour, &cell.text));
                match (cell.right, i + 1 == row.len()) {
                    (true, _) => format!("{padding}{painted}"),
                    (false, true) => painted,
                    (false, false) => format!("{painted}{padding}"),
                }
            });
            let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["NAME", "N"]);
        table.row(vec![Cell::text("a"), Cell::number(5)]);
        table.row(vec![Cell::text("größer"), Cell::number(12345)]);
        let text = table.render(Style { colour: false });
        assert_eq!(text, "NAME        N\na           5\ngrößer  12345\n");
    }

    #[test]
    fn what_strangers_send_cannot_move_the_cursor() {
        assert_eq!(one_line("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
    }

    #[test]
    fn bodies_are_text_or_base64() {
        assert_eq!(to_json(&Bytes(b"h\"i")), "\"h\\\"i\"\n");
        assert_eq!(to_json(&Bytes(&[0xff, 0])), "{\"base64\":\"/wA=\"}\n");
    }

    #[test]
    fn durations_read_like_speech() {
        let said: Vec<String> =
            [450, 2500, 200_000, 18_120_000, 273_600_000].map(|ms| ago(Duration::from_millis(ms))).into();
        assert_eq!(said, ["450ms", "2.5s", "3m 20s", "5h 2m", "3d 4h"]);
    }
}
