//! Call sites that leak, as a page of text.

use crate::Tone;
use crate::format::{age, plural, ranges, size};
use crate::site::describe_site;
use crate::text_page::{Line, TextPage};
use ttmem_core::snapshot::{Leak, LeakBasis, Process};

/// Rows of the list.
const MAX_ROWS: usize = 20;
/// Marks after which leaks are found.
const MARKS: u32 = 10;

/// The page of the leaks of some processes, wrapped at `width` columns. Rows of the list are not wrapped.
pub fn page(leaks: &[Leak], processes: &[&Process], width: usize) -> Vec<Line> {
    let mut page = TextPage::new(width);
    for process in processes {
        let own: Vec<&Leak> = leaks
            .iter()
            .filter(|it| (it.pid, it.reported_pid) == (process.pid, process.reported_pid))
            .collect();
        let tone = if own.is_empty() { Tone::Plain } else { Tone::Warn };
        page.paragraph(&describe_process(process, &own), tone);
    }
    if !leaks.is_empty() {
        let rows: Vec<Vec<String>> = leaks.iter().take(MAX_ROWS).map(row).collect();
        page.list("Buffers that only grow:", &HEADER, &rows, leaks.len().saturating_sub(MAX_ROWS) as u64);
    }
    page.lines
}

const HEADER: [&str; 7] = ["GREW BY", "BUFFERS", "GREW IN", "DEVICE", "SPACE", "PID", "CALL SITE"];

fn describe_process(process: &Process, leaks: &[&Leak]) -> String {
    let pid = process.pid.map_or_else(|| "unknown process".to_owned(), |pid| format!("pid {pid}"));
    let name = process.name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
    let compared = process.last_mark.as_ref().map_or(0, |mark| mark.compared);
    let marks = plural(compared.into(), "mark");
    let count = match leaks.len() {
        1 => "1 call site leaks".to_owned(),
        count => format!("{count} call sites leak"),
    };
    let found = match leaks.first().map(|leak| leak.basis) {
        Some(LeakBasis::Replays) => format!("{count}, by replays of a trace"),
        Some(LeakBasis::LateSurvivors) => {
            format!("{count}, by the age of buffers, without marks; marks find more: {CALL_MARK}")
        }
        Some(_) => format!("{count}, by {marks}"),
        None if compared == 0 => format!("no marks; {CALL_MARK}"),
        None if compared < MARKS => format!("{marks} so far; leaks are found from {MARKS} on"),
        None => format!("no leak found in {marks}"),
    };
    format!("{pid}{name}: {found}")
}

const CALL_MARK: &str = "call ttmem.mark(\"step\", n) at the end of each step";

fn row(leak: &Leak) -> Vec<String> {
    vec![
        size(leak.grown_bytes),
        leak.grown_count.to_string(),
        describe_rate(leak),
        ranges(&leak.indexes),
        leak.space.name().to_owned(),
        leak.pid.map_or_else(String::new, |pid| pid.to_string()),
        describe_place(leak),
    ]
}

/// In how many intervals it grew: `12 of 14 steps`, if the marks are called `step`.
fn describe_rate(leak: &Leak) -> String {
    let noun = match leak.basis {
        LeakBasis::LateSurvivors => "interval",
        LeakBasis::Replays => "replay",
        _ => leak.mark.as_deref().unwrap_or("mark"),
    };
    format!("{} of {}", leak.grown_intervals, plural(leak.intervals.into(), noun))
}

/// Call site, operation and tensor.
fn describe_place(leak: &Leak) -> String {
    let site = describe_site(leak.site_name.as_deref(), leak.origin.op.as_deref(), leak.origin.purpose);
    let site = site.unwrap_or_else(|| "unknown".to_owned());
    leak.origin.tensor.as_ref().map_or_else(|| site.clone(), |tensor| format!("{site}, {tensor}"))
}

/// A leak in a sentence.
pub(crate) fn describe(leak: &Leak) -> String {
    let late = leak.late_after_ns.map_or_else(String::new, |late| {
        let age = age(late as f64 / 1e9);
        format!(" Found without marks: these are older than {age}, 10 times the median life of the others.")
    });
    format!(
        "Leak in {}: {} kept {}, {}; it grew in {}.{late}",
        leak.space.title(),
        describe_place(leak),
        plural(leak.grown_count, "more buffer"),
        size(leak.grown_bytes),
        describe_rate(leak),
    )
}
