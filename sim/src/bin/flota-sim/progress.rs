//! How far it has come, on a terminal.

use std::io::{self, IsTerminal};
use std::time::Duration;
#[allow(clippy::disallowed_types, reason = "how fast it goes is real time")]
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Real time since something began.
#[allow(clippy::disallowed_types, reason = "how fast it goes is real time")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch(Instant);

impl Watch {
    #[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "how fast it goes is real time")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// A bar on a terminal's standard error; nothing elsewhere.
pub(crate) struct Progress {
    bar: ProgressBar,
    since: Watch,
    simulated_us: u64,
}

impl Progress {
    /// A bar over so many of something.
    pub(crate) fn over(length: u64, what: &str) -> Self {
        let bar = if io::stderr().is_terminal() {
            ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(5))
        } else {
            ProgressBar::hidden()
        };
        let template = format!("{{bar:30}} {{pos}}/{{len}} {what}  {{msg}}  {{eta}} left");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Self { bar, since: Watch::start(), simulated_us: 0 }
    }

    /// A line without an end in sight.
    pub(crate) fn endless() -> Self {
        let progress = Self::over(0, "");
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            progress.bar.set_style(style);
        }
        progress
    }

    /// One more is done, which took so much simulated time.
    pub(crate) fn one(&mut self, simulated_us: u64) {
        self.simulated_us += simulated_us;
        let seconds = self.since.elapsed().as_secs_f64().max(0.001);
        self.bar.inc(1);
        let seeds = self.bar.position() as f64 / seconds;
        let speed = self.simulated_us as f64 / 1e6 / seconds;
        self.bar.set_message(format!("{seeds:.1}/s, {speed:.0} simulated s per s,"));
    }

    pub(crate) fn say(&self, text: String) {
        self.bar.set_message(text);
        self.bar.tick();
    }

    /// Writes something to standard output that the bar must not run through.
    pub(crate) fn above<R>(&self, write: impl FnOnce() -> R) -> R {
        self.bar.suspend(write)
    }

    pub(crate) fn end(self) {
        self.bar.finish_and_clear();
    }
}
