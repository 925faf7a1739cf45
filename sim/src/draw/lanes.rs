//! The drawing: lanes from top to bottom, time from left to right.

use std::fmt::Write;

use super::film::{Film, Mark, State, View};
use super::scale::{LEFT, RIGHT, Scale, pack, spans};
use super::text::{escape, is_instant, place, seconds, trouble};
use crate::invariants;
use crate::plan::{Fault, Plan};
use crate::report::Report;
use crate::seen::{Host, Phase};

/// More hosts of a kind than this are not drawn: nobody can read them.
const HOSTS: usize = 24;
/// More rows of faults than this are not drawn in one lane: the table has them all.
const FAULT_ROWS: usize = 8;
const FAULT_HEIGHT: f64 = 14.0;
const MARKS_HEIGHT: f64 = 22.0;
/// Of one broker's row in a service's lane.
const VIEW_HEIGHT: f64 = 6.0;

pub(super) fn drawing(film: &Film, report: &Report) -> String {
    let scale = Scale::to(film.end, film.healed_at().unwrap_or(0));
    let canvas = |y| Canvas { svg: String::new(), y, scale, end: film.end };
    let (mut back, mut over) = (canvas(0.0), canvas(0.0));
    let mut canvas = canvas(56.0);
    canvas.network(&report.plan);
    for (index, broker) in film.brokers.iter().enumerate().take(HOSTS) {
        canvas.begin_lane(&format!("broker {index}"));
        canvas.states(&broker.states);
        canvas.marks(&broker.moments, &["stored", "given out", "acknowledged", "claimed", "dead letters"]);
        canvas.faults(&report.plan, |fault| {
            fault.what.clone().broker_mut().map(|broker| *broker as usize) == Some(index)
        });
    }
    for (index, service) in film.services.iter().enumerate().take(HOSTS) {
        canvas.begin_lane(&format!("service {index}"));
        canvas.states(&service.states);
        for (broker, views) in service.views.iter().take(HOSTS) {
            canvas.views(*broker, views);
        }
        canvas.marks(&service.moments, &["sent", "delivered", "handled", "to retry", "refused"]);
        let hit = |fault: &Fault| {
            let mut what = fault.what.clone();
            what.broker_mut().is_none() && what.service_mut().map(|service| *service as usize) == Some(index)
        };
        canvas.faults(&report.plan, hit);
    }
    canvas.y += 8.0;
    let bottom = canvas.y;
    back.phases(&film.phases, bottom);
    back.axis(bottom);
    over.moments_of_failure(report, bottom);
    let width = RIGHT + 12.0;
    let left_out = film.brokers.len().saturating_sub(HOSTS) + film.services.len().saturating_sub(HOSTS);
    let note =
        if left_out == 0 { String::new() } else { format!("<p class=\"facts\">{left_out} hosts are not drawn</p>") };
    format!(
        "{LEGEND}<div class=\"scroll\"><svg viewBox=\"0 0 {width} {bottom:.0}\" role=\"img\" \
         aria-label=\"the run over simulated time\">\n{}{}{}</svg></div>{note}\n",
        back.svg, canvas.svg, over.svg
    )
}

const LEGEND: &str = "<div class=\"legend\">\
<span><i class=\"up\" style=\"background:var(--up)\"></i>runs</span>\
<span><i style=\"background:var(--pause)\"></i>paused or stopping</span>\
<span><i style=\"background:var(--down)\"></i>down</span>\
<span><i style=\"background:var(--ready)\"></i>a service can use the broker</span>\
<span><i style=\"background:var(--member)\"></i>it is a member, not ready</span>\
<span><i style=\"background:var(--fault-soft);border:1px solid var(--fault)\"></i>fault</span>\
<span><i style=\"background:var(--sent)\"></i>sent, stored</span>\
<span><i style=\"background:var(--given)\"></i>delivered</span>\
<span><i style=\"background:var(--acked)\"></i>handled, acknowledged</span>\
<span><i style=\"background:var(--retried)\"></i>to retry, claimed</span>\
<span><i style=\"background:var(--dead)\"></i>refused, dead letter</span></div>\n";

/// A drawing that grows downwards.
struct Canvas {
    svg: String,
    y: f64,
    scale: Scale,
    end: u64,
}

impl Canvas {
    fn rect(&mut self, (from, to): (f64, f64), (y, height): (f64, f64), class: &str, title: &str) {
        let width = (to - from).max(1.2);
        let _ = writeln!(
            self.svg,
            "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"><title>{}\
             </title></rect>",
            escape(title)
        );
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let _ = writeln!(self.svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(text));
    }

    fn phases(&mut self, phases: &[(u64, Phase)], bottom: f64) {
        for (n, (from, to, phase)) in spans(phases, self.end).enumerate() {
            let name = match phase {
                Phase::WarmUp => "warm-up",
                Phase::Safety => "work and faults",
                Phase::Liveness if self.scale.is_bent() => "healed (compressed)",
                Phase::Liveness => "healed",
                Phase::Quiesce => "shutdown",
                Phase::End => continue,
            };
            let (from, to) = (self.scale.x(from), self.scale.x(to));
            if n % 2 == 0 {
                self.rect((from, to), (30.0, bottom - 30.0), "band", name);
            }
            if to - from > name.len() as f64 * 7.0 {
                self.text(from + 4.0, 26.0, "dim", name);
            }
        }
    }

    fn axis(&mut self, bottom: f64) {
        for at in self.scale.ticks() {
            let x = self.scale.x(at);
            let _ =
                writeln!(self.svg, "<line class=\"grid\" x1=\"{x:.1}\" y1=\"46\" x2=\"{x:.1}\" y2=\"{bottom:.0}\"/>");
            self.text(x + 3.0, 43.0, "dim", &format!("{} s", at / 1_000_000));
        }
    }

    fn begin_lane(&mut self, name: &str) {
        self.y += 8.0;
        let y = self.y;
        let _ = writeln!(self.svg, "<line class=\"edge\" x1=\"0\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/>");
        self.y += 6.0;
        self.text(4.0, self.y + 10.0, "name", name);
    }

    fn states(&mut self, states: &[(u64, State)]) {
        let (y, begins) = (self.y, states.first().map_or(self.end, |(at, _)| *at));
        self.rect((self.scale.x(0), self.scale.x(begins)), (y, 11.0), "downtime", "not started yet");
        for (from, to, state) in spans(states, self.end) {
            let (class, word) = match state {
                State::Up => ("up", "runs"),
                State::Down => ("downtime", "down"),
                State::Paused => ("pause", "paused"),
                State::Stopping => ("stopping", "stopping"),
            };
            let title = format!("{word} from {} to {}", seconds(from), seconds(to));
            self.rect((self.scale.x(from), self.scale.x(to)), (y, 11.0), class, &title);
        }
        self.y += 14.0;
    }

    fn views(&mut self, broker: u32, views: &[(u64, View)]) {
        let y = self.y;
        self.text(LEFT - 20.0, y + VIEW_HEIGHT, "dim small", &format!("b{broker}"));
        for (from, to, view) in spans(views, self.end) {
            let (class, word) = match view {
                View::Unknown => continue,
                View::Member => ("member", "is a member, not ready"),
                View::Ready => ("ready", "is ready"),
            };
            let title = format!("broker {broker} {word} from {} to {}", seconds(from), seconds(to));
            self.rect((self.scale.x(from), self.scale.x(to)), (y, VIEW_HEIGHT - 1.0), class, &title);
        }
        self.y += VIEW_HEIGHT + 1.5;
    }

    /// Moments, counted in bins: a stack per bin, the tallest as high as the strip.
    fn marks(&mut self, moments: &[(u64, Mark)], names: &[&str; 5]) {
        let mut bins = vec![[0u32; 5]; Scale::BINS];
        for (at, mark) in moments {
            if let Some(bin) = bins.get_mut(self.scale.bin(*at)) {
                bin[*mark as usize] += 1;
            }
        }
        let most = bins.iter().map(|bin| bin.iter().sum::<u32>()).max().unwrap_or(0).max(8);
        let (top, bottom) = (self.y, self.y + MARKS_HEIGHT);
        for (n, bin) in bins.iter().enumerate() {
            let counts = bin.iter().zip(names).filter(|(count, _)| **count > 0);
            let said: Vec<String> = counts.map(|(count, name)| format!("{count} {name}")).collect();
            if said.is_empty() {
                continue;
            }
            let ((from, begins), (to, ends)) = (self.scale.bin_begins(n), self.scale.bin_begins(n + 1));
            let title = format!("{} to {}: {}", seconds(begins), seconds(ends), said.join(", "));
            let mut y = bottom;
            for (count, class) in bin.iter().zip(["sent", "given", "acked", "retried", "dead"]) {
                if *count > 0 {
                    // What is rare must be seen, too.
                    let height = (f64::from(*count) / f64::from(most) * MARKS_HEIGHT).max(2.5);
                    y = (y - height).max(top);
                    self.rect((from, to - 0.6), (y, height.min(bottom - y)), class, &title);
                }
            }
        }
        self.y = bottom + 2.0;
    }

    /// What happens to no single host.
    fn network(&mut self, plan: &Plan) {
        let common = |fault: &Fault| {
            let mut what = fault.what.clone();
            what.broker_mut().is_none() && what.service_mut().is_none()
        };
        if plan.faults.iter().any(common) {
            self.begin_lane("network");
            self.faults(plan, common);
            self.y += 4.0;
        }
    }

    fn faults(&mut self, plan: &Plan, here: impl Fn(&Fault) -> bool) {
        let shown: Vec<&Fault> =
            plan.faults.iter().filter(|fault| here(fault) && fault.at_ms * 1000 <= self.end).collect();
        let bars: Vec<(f64, f64, String)> = shown.iter().map(|fault| self.bar(plan, fault)).collect();
        let room: Vec<(f64, f64)> = bars
            .iter()
            .map(|(from, to, label)| (*from, to.max(from + 8.0 + label.chars().count() as f64 * 5.4)))
            .collect();
        let rows = pack(&room);
        for ((fault, (from, to, label)), row) in shown.iter().zip(&bars).zip(&rows) {
            if *row >= FAULT_ROWS {
                continue;
            }
            let y = self.y + *row as f64 * FAULT_HEIGHT;
            let until = fault.until_ms() * 1000;
            let title = format!("{}: {label}, {} to {}", place(fault), seconds(fault.at_ms * 1000), seconds(until));
            self.rect((*from, *to), (y, FAULT_HEIGHT - 2.0), "trouble", &title);
            // A label that would leave the page ends where the page does.
            let x = (from + 4.0).min(RIGHT - label.chars().count() as f64 * 5.4);
            let inside = to - from > 8.0 + label.chars().count() as f64 * 5.4;
            self.text(x, y + 9.0, if inside { "fault" } else { "small" }, label);
        }
        let rows = rows.iter().map(|row| row + 1).max().unwrap_or(0);
        self.y += rows.min(FAULT_ROWS) as f64 * FAULT_HEIGHT;
    }

    fn bar(&self, plan: &Plan, fault: &Fault) -> (f64, f64, String) {
        let from = fault.at_ms.max(plan.warm_up_ms);
        let until = if is_instant(&fault.what) { from } else { fault.until_ms().min(plan.heal_at_ms) };
        let from_x = self.scale.x(from * 1000);
        (from_x, self.scale.x(until * 1000).max(from_x + 3.0), trouble(&fault.what))
    }

    fn moments_of_failure(&mut self, report: &Report, bottom: f64) {
        for violation in &report.violations {
            let x = self.scale.x(violation.at);
            let _ = writeln!(
                self.svg,
                "<line class=\"moment-line\" x1=\"{x:.1}\" y1=\"16\" x2=\"{x:.1}\" y2=\"{bottom:.0}\"><title>{}</title></line>",
                escape(&violation.text)
            );
            let host = match violation.host {
                Host::World => String::new(),
                host => format!(", {host}"),
            };
            let label = format!("{}{host}", invariants::title(violation.invariant));
            let x = (x + 4.0).min(RIGHT - label.chars().count() as f64 * 6.0);
            self.text(x, 12.0, "moment", &label);
        }
    }
}
