//! `flota watch`: the fleet as it changes.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::time::Duration;

use anstyle::AnsiColor;
use flota_core::announce::Guid;
use flota_core::config::Endpoint;
use flota_core::id::BrokerId;
use flota_core::output::{BrokerChange, BrokerEvent, Unready, Warning};
use flota_tokio::{BrokerInfo, Client, FleetEvent, Inspection};
use serde::Serialize;

use crate::args::WatchArgs;
use crate::error::{Failure, Outcome};
use crate::fleet::{CLOSE, why_unready};
use crate::output::{self, Cell, Style, Table, ago, one_line, wall_ms};
use crate::signal::Signals;

/// How often the table is drawn again when nothing changes, for its ages and counters.
const REDRAW: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: &WatchArgs) -> Outcome {
    let config = args.fleet.config()?;
    let mut signals = Signals::new()?;
    let client = flota_tokio::connect(config).await?;
    // Asked for in this order, nothing can happen between the two.
    let mut events = client.events();
    let present = client.inspect().await?;

    let mut view = View::new(args.json);
    view.begin(&present)?;
    let mut redraw = tokio::time::interval(REDRAW);
    let end = loop {
        tokio::select! {
            end = signals.next() => break end,
            event = events.next() => match event {
                Some(event) => view.change(&event)?,
                None => return Err(flota_tokio::Stopped.into()),
            },
            _ = redraw.tick(), if view.is_table() => view.draw(&client).await?,
        }
    };
    client.close(CLOSE).await?;
    Ok(end)
}

/// One change, as programs read it.
#[derive(Debug, Serialize)]
struct Change {
    at_ms: u64,
    event: &'static str,
    guid: Option<String>,
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    silent_ms: Option<u64>,
}

impl Change {
    fn new(event: &'static str, guid: Option<Guid>, address: &Endpoint) -> Self {
        let guid = guid.map(|guid| guid.to_string());
        let address = address.to_string();
        Self { at_ms: wall_ms(), event, guid, address, reason: None, detail: None, silent_ms: None }
    }

    fn because(mut self, why: &Unready) -> Self {
        self.reason = Some(why.reason.to_string());
        self.detail = Some(why.detail.clone()).filter(|detail| !detail.is_empty());
        self
    }

    /// How a member is that was there before anybody watched.
    fn present(broker: &BrokerInfo) -> Self {
        let change = |event| Self::new(event, broker.guid, &broker.address);
        match &broker.unready {
            _ if broker.ready => change("ready"),
            Some(why) => change("unready").because(why),
            None => change("announced"),
        }
    }

    /// `None` for what nobody outside has to know.
    fn of(event: &BrokerEvent) -> Option<Self> {
        let change = |name| Self::new(name, event.guid, &event.address);
        Some(match &event.change {
            BrokerChange::Announced => change("announced"),
            BrokerChange::Ready => change("ready"),
            BrokerChange::Unready(why) => change("unready").because(why),
            BrokerChange::Withdrawn => change("withdrawn"),
            BrokerChange::Expired { silent_ms } => Self { silent_ms: Some(*silent_ms), ..change("expired") },
            BrokerChange::Restarted => change("restarted"),
            BrokerChange::Forgotten => return None,
        })
    }

    fn human(&self, style: Style) -> String {
        let event = match self.event {
            "ready" => style.good("ready"),
            "unready" | "expired" | "withdrawn" => style.bad(self.event),
            event => event.to_string(),
        };
        let mut line = format!("{} {event}", self.address);
        for more in [&self.reason, &self.detail].into_iter().flatten() {
            line.push_str(&format!(": {}", one_line(more)));
        }
        if let Some(silent) = self.silent_ms {
            line.push_str(&format!(", silent for {}", ago(Duration::from_millis(silent))));
        }
        line
    }
}

/// Datagrams that were not admitted, as programs read it.
#[derive(Debug, Serialize)]
struct RefusedDatagrams<'a> {
    at_ms: u64,
    event: &'static str,
    reason: String,
    count: u64,
    example: &'a str,
}

/// What is shown, and how.
#[derive(Debug)]
struct View {
    shape: Shape,
    style: Style,
    /// Members said to be there in the beginning: their joining may be reported once more.
    present: BTreeMap<BrokerId, &'static str>,
    /// Lines of the table on the screen.
    drawn: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Json,
    Lines,
    Table,
}

impl View {
    fn new(json: bool) -> Self {
        let terminal = io::stdout().is_terminal();
        let shape = match (json, terminal) {
            (true, _) => Shape::Json,
            (false, true) => Shape::Table,
            (false, false) => Shape::Lines,
        };
        Self { shape, style: Style::for_stream(terminal), present: BTreeMap::new(), drawn: 0 }
    }

    fn is_table(&self) -> bool {
        self.shape == Shape::Table
    }

    fn begin(&mut self, inspection: &Inspection) -> Result<(), Failure> {
        for broker in &inspection.fleet {
            let change = Change::present(broker);
            self.present.insert(broker.id, change.event);
            self.say(&change)?;
        }
        Ok(())
    }

    fn change(&mut self, event: &FleetEvent) -> Result<(), Failure> {
        match event {
            FleetEvent::Broker(event) => {
                let Some(change) = Change::of(event) else { return Ok(()) };
                if self.present.remove(&event.broker).is_some_and(|known| known == change.event) {
                    return Ok(());
                }
                self.say(&change)
            }
            FleetEvent::Warning(warning) => self.warning(warning),
            FleetEvent::Skipped(count) => {
                tracing::warn!("{count} changes were skipped: the output is read too slowly");
                Ok(())
            }
        }
    }

    fn say(&mut self, change: &Change) -> Result<(), Failure> {
        match self.shape {
            Shape::Json => output::json(change),
            Shape::Lines => output::line(&change.human(self.style)),
            // The next drawing shows it.
            Shape::Table => Ok(()),
        }
    }

    fn warning(&mut self, warning: &Warning) -> Result<(), Failure> {
        let Warning::NotAdmitted { why, count, example } = warning else {
            crate::logs::warn(warning);
            return Ok(());
        };
        let reason = why.to_string();
        match self.shape {
            Shape::Json => {
                output::json(&RefusedDatagrams { at_ms: wall_ms(), event: "refused", reason, count: *count, example })
            }
            Shape::Lines => {
                output::line(&format!("refused {count} datagrams: {reason}, such as {}", one_line(example)))
            }
            Shape::Table => Ok(()),
        }
    }

    async fn draw(&mut self, client: &Client) -> Result<(), Failure> {
        let text = table(&client.inspect().await?, self.style);
        // Back to where the table began, and away with it.
        let back = if self.drawn > 0 { format!("\x1b[{}A\x1b[J", self.drawn) } else { String::new() };
        self.drawn = text.lines().count();
        output::write(format!("{back}{text}").as_bytes())
    }
}

fn table(inspection: &Inspection, style: Style) -> String {
    let mut table = Table::new(&["ADDRESS", "STATE", "SINCE", "ANNOUNCED", "GUID", "WHY"]);
    for broker in &inspection.fleet {
        let (state, colour) = match (broker.ready, broker.leaving) {
            (_, true) => ("leaving", AnsiColor::Yellow),
            (true, false) => ("ready", AnsiColor::Green),
            (false, false) => ("unready", AnsiColor::Red),
        };
        table.row(vec![
            Cell::text(&broker.address),
            Cell::text(state).painted(colour),
            Cell::number(ago(inspection.at.since(broker.joined))),
            Cell::number(broker.announcements),
            Cell::text(broker.guid.map_or("-".to_string(), |guid| guid.to_string())),
            Cell::text(if broker.ready { String::new() } else { why_unready(broker) }),
        ]);
    }
    let stats = &inspection.stats;
    let refused =
        stats.malformed.iter().sum::<u64>() + stats.other_name + stats.not_allowed + stats.fleet_full + stats.too_fast;
    let summary = format!(
        "{} of {} ready; {} datagrams heard, {refused} not admitted; Ctrl-C ends",
        inspection.fleet.iter().filter(|broker| broker.ready).count(),
        inspection.fleet.len(),
        stats.datagrams
    );
    format!("{}{}\n", table.render(style), style.dim(&summary))
}
