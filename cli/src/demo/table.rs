//! What people see meanwhile: a live table on a terminal, lines elsewhere.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anstyle::AnsiColor;
use tokio::sync::Notify;
use tokio::time::interval;

use super::board::{Board, State};
use crate::output::{Cell, Style, Table};

/// Fast enough to look alive, slow enough to read.
const DRAW_EVERY: Duration = Duration::from_millis(200);
/// A line of progress where nothing can be drawn over.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// Where progress goes.
#[derive(Debug)]
pub(crate) struct Screen {
    board: Arc<Board>,
    start: Instant,
    live: bool,
    /// Standard output is for one JSON object.
    json: bool,
    style: Style,
    drawn_lines: usize,
    next_line: Instant,
}

impl Screen {
    /// Times are told from `start` on.
    pub(crate) fn new(board: Arc<Board>, json: bool, start: Instant) -> Self {
        let live = !json && io::stdout().is_terminal();
        let style = Style::for_stream(live);
        Self { board, start, live, json, style, drawn_lines: 0, next_line: Instant::now() + LINE_EVERY }
    }

    /// Shows what happens until `end` is told. The last look stays.
    pub(crate) async fn show(mut self, end: Arc<Notify>) {
        let mut draw = interval(DRAW_EVERY);
        loop {
            let last = tokio::select! {
                _ = draw.tick() => false,
                () = end.notified() => true,
            };
            self.draw(last);
            if last {
                return;
            }
        }
    }

    fn draw(&mut self, last: bool) {
        let text = {
            let mut state = self.board.lock();
            let news: Vec<_> = state.news.drain(..).collect();
            let mut text = String::new();
            for (at, what) in news {
                text.push_str(&format!("{}  {what}\n", self.style.dim(&self.clock(at))));
            }
            if self.live {
                let table = self.tables(&state);
                text.insert_str(0, &erase(self.drawn_lines));
                self.drawn_lines = table.lines().count();
                text.push_str(&table);
            } else if last || Instant::now() >= self.next_line {
                self.next_line = Instant::now() + LINE_EVERY;
                text.push_str(&format!("{}  {}\n", self.clock(Instant::now()), totals(&state)));
            }
            text
        };
        // A demo that nobody watches any more goes on and is counted all the same.
        let _ = if self.json {
            io::stderr().write_all(text.as_bytes())
        } else {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush())
        };
    }

    fn clock(&self, at: Instant) -> String {
        format!("{:6.2} s", at.saturating_duration_since(self.start).as_secs_f64())
    }

    fn tables(&self, state: &State) -> String {
        let mut brokers = Table::new(&["BROKER", "ADDRESS", "STATE", "STORED", "PENDING"]);
        for row in &state.brokers {
            let said = if row.killed && !row.state.starts_with("expired") {
                format!("killed ({})", row.state)
            } else {
                row.state.clone()
            };
            brokers.row(vec![
                Cell::number(row.number),
                Cell::text(row.address),
                Cell::text(said).painted(if row.ready { AnsiColor::Green } else { AnsiColor::Red }),
                Cell::number(state.placed_at(row.address).map_or(0, |placed| placed.count)),
                Cell::number(row.pending.filter(|_| row.ready).map_or("-".into(), |n| n.to_string())),
            ]);
        }
        let mut workers = Table::new(&["WORKER", "PROCESS", "STATE", "HANDLED"]);
        for row in &state.workers {
            let colour = if row.state == "running" { AnsiColor::Green } else { AnsiColor::Red };
            workers.row(vec![
                Cell::number(row.number),
                Cell::number(row.pid),
                Cell::text(row.state).painted(colour),
                Cell::number(row.handled),
            ]);
        }
        let line = format!("{}  {}\n", self.clock(Instant::now()), totals(state));
        format!("\n{}\n{}\n{line}", brokers.render(self.style), workers.render(self.style))
    }
}

fn totals(state: &State) -> String {
    // What a broker that is away holds cannot be asked.
    let pending: u64 = state.brokers.iter().filter(|row| row.ready).filter_map(|row| row.pending).sum();
    format!(
        "sent {} of {}, handled {}, pending {pending}, more than once {}",
        state.ledger.sent_count(),
        state.messages,
        state.ledger.handled_count(),
        state.ledger.redelivered_count()
    )
}

/// Back to the first line of what was drawn, and nothing below it.
fn erase(lines: usize) -> String {
    if lines == 0 { String::new() } else { format!("\x1b[{lines}A\r\x1b[J") }
}
