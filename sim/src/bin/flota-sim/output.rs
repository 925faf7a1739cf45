//! Writing to standard output and to files.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use anstyle::{AnsiColor, Color};
use serde::Serialize;

use crate::error::Failure;

/// Writes text to standard output at once.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::io("cannot write to standard output", &error))
}

/// Writes one object as a line of JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    write(&format!("{}\n", to_json(value)))
}

fn to_json(value: &impl Serialize) -> String {
    // Structs with text and numbers always serialize.
    serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"error\":{:?}}}", error.to_string()))
}

/// Writes a file.
pub(crate) fn file(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure::io(format!("cannot write {}", path.display()), &error))
}

/// A duration as people say it.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..60 => format!("{}.{} s", seconds, duration.subsec_millis() / 100),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_like_speech() {
        let said: Vec<String> =
            [450, 2_500, 200_000, 18_120_000, 273_600_000].map(Duration::from_millis).map(span).into();
        assert_eq!(said, ["450 ms", "2.5 s", "3 min 20 s", "5 h 2 min", "3 d 4 h"]);
    }
}
