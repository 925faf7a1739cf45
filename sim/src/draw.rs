//! A run as one page to look at: time runs to the right, each host has a lane.
//!
//! `Film` collects what is seen while a run goes on; `page` draws it. The page needs nothing from anywhere: styles
//! and drawing are in it.

mod film;
mod lanes;
mod scale;
mod text;

use std::cell::RefCell;
use std::rc::Rc;

use crate::plan::Plan;
use crate::report::Report;
use crate::seen::Seen;
use crate::trial::Trial;
use film::Film;

/// Runs a plan and draws it: what came of it, and the page as HTML.
#[must_use]
pub fn run(plan: Plan) -> (Trial, String) {
    let film = Rc::new(RefCell::new(Film::new(&plan)));
    let watcher = Rc::clone(&film);
    let see = move |seen: &Seen| watcher.borrow_mut().see(seen);
    let trial = Trial::with(plan, |world| world.watch(see));
    let page = page(&film.borrow(), &trial.report);
    (trial, page)
}

fn page(film: &Film, report: &Report) -> String {
    let outcome = if report.is_ok() { "holds" } else { "fails" };
    let title = format!("{} seed {}: {outcome}", text::escape(&report.scenario), report.seed);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title>\n<style>{STYLE}</style></head>\n<body>\n{}{}{}\
         </body></html>\n",
        text::header(report),
        lanes::drawing(film, report),
        text::details(report),
    )
}

const STYLE: &str = include_str!("draw/style.css");

#[cfg(test)]
mod tests;
