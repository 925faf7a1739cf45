//! The words around the drawing: what was run, what came of it, the last transitions, the faults.

use std::fmt::Write;

use crate::invariants;
use crate::plan::{Fault, FloodKind, Trouble, Way};
use crate::report::Report;

/// Text inside of HTML.
pub(super) fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut all, c| {
        match c {
            '&' => all.push_str("&amp;"),
            '<' => all.push_str("&lt;"),
            '>' => all.push_str("&gt;"),
            '"' => all.push_str("&quot;"),
            c => all.push(c),
        }
        all
    })
}

/// Microseconds as seconds.
pub(super) fn seconds(us: u64) -> String {
    format!("{}.{:03} s", us / 1_000_000, us / 1_000 % 1_000)
}

pub(super) fn header(report: &Report) -> String {
    let plan = &report.plan;
    let badge =
        if report.is_ok() { "<span class=\"badge ok\">holds</span>" } else { "<span class=\"badge bad\">fails</span>" };
    let mut html = format!(
        "<h1>{} <span class=\"mono\">seed {}</span>{badge}</h1>\n<p class=\"facts\"><b>{}</b> simulated · <b>{}</b> \
         events · trace hash <b class=\"mono\">{:016x}</b> · {} brokers, {} services, {} messages, {} faults",
        escape(&report.scenario),
        report.seed,
        seconds(report.simulated_us),
        report.events,
        report.hash,
        plan.brokers.len(),
        plan.services.len(),
        plan.work.len(),
        plan.faults.len(),
    );
    if let Some(mutant) = &plan.knobs.mutant {
        let _ = write!(html, " · planted fault <b>{}</b>", escape(mutant));
    }
    html.push_str("</p>\n");
    for violation in &report.violations {
        let _ = writeln!(
            html,
            "<div class=\"verdict\"><p><strong>{}</strong> at {}, {}</p><p>{}</p></div>",
            escape(&invariants::title(violation.invariant)),
            seconds(violation.at),
            violation.host,
            escape(&violation.text),
        );
    }
    html
}

pub(super) fn details(report: &Report) -> String {
    let mut html = String::from("<h2>Last transitions</h2>\n<pre>");
    for line in &report.tail {
        html.push_str(&escape(line));
        html.push('\n');
    }
    html.push_str("</pre>\n");
    html.push_str(&faults(report));
    let _ = write!(html, "<h2>Marks</h2>\n<details><summary>what happened how often</summary><table>");
    for (name, hits) in report.marks.iter() {
        let _ = write!(html, "<tr><td>{}</td><td class=\"n\">{hits}</td></tr>", escape(name));
    }
    html.push_str("</table></details>\n");
    html
}

fn faults(report: &Report) -> String {
    let plan = &report.plan;
    if plan.faults.is_empty() {
        return "<h2>Faults</h2>\n<p class=\"facts\">none</p>\n".to_string();
    }
    let mut html = String::from(
        "<h2>Faults</h2>\n<table><tr><th class=\"n\">#</th><th class=\"n\">from</th><th class=\"n\">for</th>\
         <th>where</th><th>what</th><th></th></tr>",
    );
    for (n, fault) in plan.faults.iter().enumerate() {
        let reached = fault.at_ms * 1000 <= report.simulated_us;
        let _ = write!(
            html,
            "<tr><td class=\"n\">{n}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            seconds(fault.at_ms * 1000),
            seconds(fault.for_ms * 1000),
            place(fault),
            escape(&trouble(&fault.what)),
            if reached { "" } else { "not reached" },
        );
    }
    html.push_str("</table>\n");
    html
}

/// Where a fault happens.
pub(super) fn place(fault: &Fault) -> String {
    let mut what = fault.what.clone();
    let service = what.service_mut().map(|service| format!("service {service}"));
    let broker = what.broker_mut().map(|broker| format!("broker {broker}"));
    match (service, broker) {
        (Some(service), Some(broker)) => format!("{service}, {broker}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => "network".to_string(),
    }
}

/// What a fault is, in a few words; the host it happens to is said elsewhere.
pub(super) fn trouble(what: &Trouble) -> String {
    match what {
        Trouble::ServiceCrash { machine, .. } | Trouble::BrokerCrash { machine, .. } => {
            if *machine { "machine crash" } else { "crash" }.to_string()
        }
        Trouble::ServiceStop { grace_ms, .. } => format!("stop, grace {grace_ms} ms"),
        Trouble::BrokerStop { .. } => "stop".to_string(),
        Trouble::ServicePause { .. } | Trouble::BrokerPause { .. } => "pause".to_string(),
        Trouble::ServiceStep { by_ms, .. } | Trouble::BrokerStep { by_ms, .. } => format!("clock {by_ms:+} ms"),
        Trouble::BrokerSlow { times, .. } => format!("slow ×{times}"),
        Trouble::BrokerLoading { .. } => "loading".to_string(),
        Trouble::BrokerFull { .. } => "memory full".to_string(),
        Trouble::BrokerReplica { .. } => "replica".to_string(),
        Trouble::BrokerMisconf { .. } => "refuses writes".to_string(),
        Trouble::BrokerCrowded { .. } => "no connections".to_string(),
        Trouble::ScriptFlush { .. } => "SCRIPT FLUSH".to_string(),
        Trouble::FlushAll { .. } => "FLUSHALL".to_string(),
        Trouble::Trim { keep, .. } => format!("trimmed to {keep}"),
        Trouble::KillClients { .. } => "CLIENT KILL".to_string(),
        Trouble::Partition { services, brokers, way } => {
            let arrow = match way {
                Way::Both => "⇎",
                Way::ToBrokers => "⇏",
                Way::ToServices => "⇍",
            };
            format!("services {} {arrow} brokers {}", list(services), list(brokers))
        }
        Trouble::Reset { service, .. } => format!("reset by service {service}"),
        Trouble::ResetOne { service, .. } => format!("one reset by service {service}"),
        Trouble::AnnouncerSilent { .. } => "not announced".to_string(),
        Trouble::AnnouncerDown { .. } => "goodbye".to_string(),
        Trouble::AnnouncerTwo { .. } => "two GUIDs".to_string(),
        Trouble::AnnouncerInterval { interval_ms, .. } => format!("interval {interval_ms} ms"),
        Trouble::ForgedDown { .. } => "forged down".to_string(),
        Trouble::Readdressed { .. } => "second address".to_string(),
        Trouble::Flood { per_second, kind } => format!("{} {per_second}/s", kind_name(*kind)),
        Trouble::UdpLoss { parts } => format!("datagram loss {} %", parts / 10_000),
    }
}

fn kind_name(kind: FloodKind) -> &'static str {
    match kind {
        FloodKind::Noise => "noise",
        FloodKind::NearlyRight => "nearly right",
        FloodKind::Newcomers => "newcomers",
        FloodKind::Outside => "outsiders",
        FloodKind::Aliases => "aliases",
    }
}

fn list(hosts: &[u32]) -> String {
    let names: Vec<String> = hosts.iter().map(u32::to_string).collect();
    names.join(",")
}

/// Whether a fault is over at once: how long it lasts says nothing then.
pub(super) fn is_instant(what: &Trouble) -> bool {
    matches!(
        what,
        Trouble::ServiceStep { .. }
            | Trouble::BrokerStep { .. }
            | Trouble::ScriptFlush { .. }
            | Trouble::FlushAll { .. }
            | Trouble::Trim { .. }
            | Trouble::KillClients { .. }
            | Trouble::Reset { .. }
            | Trouble::ResetOne { .. }
            | Trouble::ForgedDown { .. }
    )
}
