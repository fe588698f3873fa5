//! The report of a run as a page of text: what was allocated at the peak and at the end, and what failed.

use crate::format::{percent, plural, ranges, share, size, truncate};
use crate::site::describe_site;
use crate::text_page::{Line, TextPage};
use crate::{Tone, leaks, postmortem};
use std::fmt::Write as _;
use ttmem_core::snapshot::{FullestCore, HeldBySite, ProcessReport, RunEnd, RunReport, SpaceReport};

/// Call sites that are listed of each peak.
const MAX_SITES: usize = 3;
/// Call sites that are listed where only peaks are shown.
const MAX_PEAK_SITES: usize = 12;
/// Why the buffers of a peak are unknown.
const NOT_FOLLOWED: &str = "  Its buffers are unknown, since ttmem did not follow the process then: use `ttmem run`, the daemon or the dashboard.";
/// Processes that are described.
const MAX_PROCESSES: usize = 4;
/// Characters of a program's name: one without an operation is a list of kernels.
const MAX_NAME: usize = 40;
/// Leaks that are described.
const MAX_LEAKS: usize = 3;
/// Failures that are described.
const MAX_FAILURES: usize = 2;

/// The peaks of a report's processes and what they consisted of, wrapped at `width` columns. Rows of lists are not wrapped.
pub fn peaks(report: &RunReport, width: usize) -> Vec<Line> {
    let mut page = TextPage::new(width);
    for process in &report.processes {
        if !page.lines.is_empty() {
            page.blank();
        }
        page.title(&label(process));
        for space in process.spaces.iter().filter(|it| it.peak_bytes > 0) {
            let peak = describe_peak(space);
            match &space.at_peak {
                Some(sites) => {
                    add_sites(&mut page, &format!("{peak}, {:.0}", space.peak_at), sites, MAX_PEAK_SITES);
                }
                None => {
                    page.list(&peak, &[], &[], 0);
                    page.paragraph(NOT_FOLLOWED, Tone::Faint);
                }
            }
        }
    }
    page.lines
}

/// The page of a report, wrapped at `width` columns. Rows of lists are not wrapped.
pub fn page(report: &RunReport, width: usize) -> Vec<Line> {
    let mut page = TextPage::new(width);
    let tone = if report.end.as_ref().is_some_and(is_failed) { Tone::Bad } else { Tone::Plain };
    page.paragraph(&describe_end(report), tone);
    if report.processes.is_empty() {
        return page.lines;
    }
    let are_many = report.processes.len() > 1;
    for process in report.processes.iter().take(MAX_PROCESSES) {
        add_process(&mut page, process, are_many);
    }
    let more = report.processes.len().saturating_sub(MAX_PROCESSES) as u64 + report.unlisted_processes;
    if more > 0 {
        page.blank();
        page.paragraph(
            &format!("{} with device memory", plural_more(more, "process", "processes")),
            Tone::Faint,
        );
    }
    for leak in report.processes.iter().flat_map(|process| &process.leaks).take(MAX_LEAKS) {
        page.blank();
        page.paragraph(&leaks::describe(leak), Tone::Warn);
    }
    if let Some(core) = &report.fullest_core {
        page.blank();
        page.paragraph(&describe_core(core), Tone::Plain);
    }
    for post_mortem in report.post_mortems.iter().take(MAX_FAILURES) {
        page.blank();
        for (number, sentence) in postmortem::summary(post_mortem).iter().enumerate() {
            page.paragraph(sentence, if number == 0 { Tone::Bad } else { Tone::Plain });
        }
        if let Some(pid) = post_mortem.pid {
            page.paragraph(&format!("All of it: ttmem postmortem {pid}"), Tone::Faint);
        }
    }
    page.blank();
    let (text, has_drift) = describe_tracking(report);
    page.paragraph(&text, if has_drift { Tone::Warn } else { Tone::Faint });
    for process in &report.processes {
        if let Some(path) = &process.crash_segment {
            page.paragraph(&format!("Crash segment{}: {path}", of_process(process, are_many)), Tone::Faint);
        }
    }
    page.lines
}

fn is_failed(end: &RunEnd) -> bool {
    end.code != Some(0)
}

/// The command and how it ended: `ttmem: python model.py: exit code 1 after 12.3 s`.
fn describe_end(report: &RunReport) -> String {
    let mut text = format!("ttmem: {}", report.command.join(" "));
    if let Some(RunEnd { code, signal, signal_name, seconds }) = &report.end {
        let how = match (code, signal, signal_name) {
            (Some(code), ..) => format!("exit code {code}"),
            (None, Some(signal), Some(name)) => format!("ended by signal {signal} ({name})"),
            (None, Some(signal), None) => format!("ended by signal {signal}"),
            (None, None, _) => "ended".to_owned(),
        };
        let _ = write!(text, ": {how} after {seconds:.1} s");
    }
    if report.processes.is_empty() {
        text.push_str("; no process allocated device memory");
    }
    text
}

fn add_process(page: &mut TextPage, process: &ProcessReport, are_many: bool) {
    if are_many {
        page.blank();
        page.title(&label(process));
    }
    for space in process.spaces.iter().filter(|it| it.peak_bytes > 0) {
        let title = describe_peak(space);
        match &space.at_peak {
            Some(sites) => add_sites(page, &title, sites, MAX_SITES),
            None => {
                page.list(&title, &[], &[], 0);
                page.paragraph(
                    "  Its buffers are unknown: more events than the ring holds were written before they were read.",
                    Tone::Faint,
                );
            }
        }
    }
    for space in process.spaces.iter().filter(|it| !it.left.is_empty()) {
        let (count, bytes) = space.left.iter().fold((0u64, 0u64), |sum, it| {
            (sum.0.saturating_add(it.count), sum.1.saturating_add(it.used_bytes))
        });
        let when = if process.exited { "when the device was closed or the process ended" } else { "now" };
        let title = format!(
            "Still allocated in {} on {} {when}: {} in {}",
            space.space.title(),
            devices(&space.indexes),
            size(bytes),
            plural(count, "buffer")
        );
        add_sites(page, &title, &space.left, MAX_SITES);
    }
}

fn describe_peak(space: &SpaceReport) -> String {
    let of = space.allocatable_bytes.map_or_else(String::new, |all| {
        format!(" of {} ({})", size(all), percent(share(space.peak_bytes, Some(all))))
    });
    let each = if space.indexes.len() > 1 { " each" } else { "" };
    let (name, devices) = (space.space.title(), devices(&space.indexes));
    format!("Peak of {name} on {devices}: {}{of}{each}", size(space.peak_bytes))
}

fn devices(indexes: &[u32]) -> String {
    match indexes {
        [one] => format!("device {one}"),
        [] => "an unknown device".to_owned(),
        many => format!("devices {}", ranges(many)),
    }
}

fn add_sites(page: &mut TextPage, title: &str, sites: &[HeldBySite], most: usize) {
    let all = sites.iter().map(|it| it.used_bytes).fold(0, u64::saturating_add);
    let row = |held: &HeldBySite| {
        let site = describe_site(held.site_name.as_deref(), held.origin.op.as_deref(), held.origin.purpose);
        vec![
            size(held.used_bytes),
            percent(share(held.used_bytes, Some(all))),
            held.count.to_string(),
            site.unwrap_or_else(|| "unknown".to_owned()),
        ]
    };
    let rows: Vec<Vec<String>> = sites.iter().take(most).map(row).collect();
    let more = sites.len().saturating_sub(most) as u64;
    page.list(title, &["SIZE", "SHARE", "COUNT", "CALL SITE"], &rows, more);
}

fn describe_core(core: &FullestCore) -> String {
    let of = core.allocatable_bytes.map_or_else(String::new, |all| format!(" of {}", size(all)));
    let program = core
        .program_name
        .as_deref()
        .map_or_else(String::new, |name| format!(", during {}", truncate(name, MAX_NAME)));
    let (bytes, buffers) = (size(core.bytes), size(core.buffer_bytes));
    format!("Fullest core: {bytes}{of} of L1 on device {}{program}; buffers had {buffers} of it", core.index)
}

/// Drift, what was lost and what tracking took; and whether there was drift.
fn describe_tracking(report: &RunReport) -> (String, bool) {
    let all = &report.processes;
    let audits: u64 = all.iter().map(|it| it.audits).sum();
    let with_drift: u64 = all.iter().map(|it| it.audits_with_drift).sum();
    let comparisons = plural(audits, "comparison");
    let mut parts = vec![match (audits, with_drift) {
        (0, _) => "not compared with the runtime's allocators".to_owned(),
        (_, 0) => format!("drift 0 in {comparisons} with the runtime's allocators"),
        _ => format!("drift in {with_drift} of {comparisons} with the runtime's allocators"),
    }];
    let inexact = all.iter().filter(|it| !it.exact).count() as u64;
    if inexact > 0 {
        parts.push(format!("figures of {} are not exact", plural_of(inexact, "process", "processes")));
    }
    let costs: Vec<f64> = all.iter().filter_map(|it| it.tracker.as_ref()?.cost_seconds).collect();
    if !costs.is_empty() {
        let seconds: f64 = costs.iter().sum();
        let took = if seconds < 0.005 { "less than 0.01".to_owned() } else { format!("{seconds:.2}") };
        parts.push(format!("tracking took {took} s of processor time"));
    }
    let text = parts.join("; ");
    (text[..1].to_uppercase() + &text[1..], with_drift > 0)
}

fn label(process: &ProcessReport) -> String {
    let name = process.name.as_deref().unwrap_or("unknown");
    process.pid.map_or_else(|| name.to_owned(), |pid| format!("pid {pid} ({name})"))
}

fn of_process(process: &ProcessReport, are_many: bool) -> String {
    if are_many { format!(" of {}", label(process)) } else { String::new() }
}

fn plural_of(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

fn plural_more(n: u64, one: &str, many: &str) -> String {
    format!("{n} more {}", if n == 1 { one } else { many })
}
