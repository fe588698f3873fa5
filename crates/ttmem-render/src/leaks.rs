//! Call sites that leak, as a page of text.

use crate::Tone;
use crate::format::{plural, ranges, size};
use crate::site::describe_site;
use crate::text_page::{Line, TextPage};
use ttmem_core::snapshot::{Leak, Process};

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
        page.paragraph(&describe_process(process, own.len()), tone);
    }
    if !leaks.is_empty() {
        let rows: Vec<Vec<String>> = leaks.iter().take(MAX_ROWS).map(row).collect();
        page.list("Buffers that only grow:", &HEADER, &rows, leaks.len().saturating_sub(MAX_ROWS) as u64);
    }
    page.lines
}

const HEADER: [&str; 7] = ["GREW BY", "BUFFERS", "GREW IN", "DEVICE", "SPACE", "PID", "CALL SITE"];

fn describe_process(process: &Process, leaks: usize) -> String {
    let pid = process.pid.map_or_else(|| "unknown process".to_owned(), |pid| format!("pid {pid}"));
    let name = process.name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
    let compared = process.last_mark.as_ref().map_or(0, |mark| mark.compared);
    let marks = plural(compared.into(), "mark");
    match (compared, leaks) {
        (0, _) => format!("{pid}{name}: no marks; call ttmem.mark(\"step\", n) at the end of each step"),
        (1..MARKS, _) => format!("{pid}{name}: {marks} so far; leaks are found from {MARKS} on"),
        (_, 0) => format!("{pid}{name}: no leak found in {marks}"),
        (_, 1) => format!("{pid}{name}: 1 call site leaks, by {marks}"),
        (_, leaks) => format!("{pid}{name}: {leaks} call sites leak, by {marks}"),
    }
}

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
    let mark = leak.mark.as_deref().unwrap_or("mark");
    format!("{} of {}", leak.grown_intervals, plural(leak.intervals.into(), mark))
}

/// Call site, operation and tensor.
fn describe_place(leak: &Leak) -> String {
    let site = describe_site(leak.site_name.as_deref(), leak.origin.op.as_deref(), leak.origin.purpose);
    let site = site.unwrap_or_else(|| "unknown".to_owned());
    leak.origin.tensor.as_ref().map_or_else(|| site.clone(), |tensor| format!("{site}, {tensor}"))
}

/// A leak in a sentence.
pub(crate) fn describe(leak: &Leak) -> String {
    format!(
        "Leak in {}: {} kept {}, {}; it grew in {}.",
        leak.space.title(),
        describe_place(leak),
        plural(leak.grown_count, "more buffer"),
        size(leak.grown_bytes),
        describe_rate(leak),
    )
}
