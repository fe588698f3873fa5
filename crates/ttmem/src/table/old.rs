//! The page of `tt_smi_umd`, as that name has always printed it.

use super::breakdown::{Fold, breakdown, tracking};
use super::{moment, notes};
use crate::text::{Style, cut};
use std::fmt::Write;
use ttmem_core::Snapshot;
use ttmem_core::words::Basis;
use ttmem_render::{device, heading, label, line, process};

/// Characters between the borders.
const WIDTH: usize = 98;
/// Findings shown; the rest is counted.
const FINDINGS: usize = 8;

pub(crate) fn render(snapshot: &Snapshot, style: Style) -> String {
    let mut page = String::new();
    devices(&mut page, snapshot);
    breakdown(&mut page, snapshot, Fold::Never, style);
    processes(&mut page, snapshot);
    tracking(&mut page, snapshot);
    findings(&mut page, snapshot, style);
    notes::skipped(&mut page, snapshot, style);
    style.finish(page)
}

fn rule(page: &mut String, left: char, right: char) {
    let _ = writeln!(page, "{left}{}{right}", "─".repeat(WIDTH));
}

fn row(page: &mut String, text: &str) {
    let _ = writeln!(page, "│{text:<WIDTH$}│");
}

fn devices(page: &mut String, snapshot: &Snapshot) {
    let at = moment(snapshot.at);
    let mut title = format!(" ttmem {}", snapshot.host.ttmem);
    if let Some(name) = &snapshot.host.name {
        let _ = write!(title, " on {}", cut(name, 24));
    }
    if let Some(driver) = &snapshot.host.driver {
        let _ = write!(title, ", driver {}", cut(driver, 16));
    }
    if snapshot.health.source == "daemon" {
        title.push_str(", by the daemon");
    }
    if snapshot.simulated {
        title.push_str("  [SIMULATED CHIPS]");
    }
    rule(page, '┌', '┐');
    let gap = WIDTH.saturating_sub(title.chars().count() + at.chars().count() + 1);
    row(page, &format!("{title}{}{at}", " ".repeat(gap)));
    rule(page, '├', '┤');
    row(page, &format!(" {}", heading(device::OLD_TABLE)));
    rule(page, '├', '┤');
    for device in &snapshot.devices {
        row(page, &format!(" {}", line(device::OLD_TABLE, &device::Row { snapshot, device })));
    }
    if snapshot.devices.is_empty() {
        row(page, " No Tenstorrent device found.");
    }
    rule(page, '└', '┘');
    notes::stale(page, snapshot);
}

fn processes(page: &mut String, snapshot: &Snapshot) {
    page.push('\n');
    rule(page, '┌', '┐');
    row(page, &format!(" {}", heading(process::OLD_TABLE)));
    rule(page, '├', '┤');
    for process in &snapshot.processes {
        row(page, &format!(" {}", line(process::OLD_TABLE, &process)));
    }
    if snapshot.processes.is_empty() {
        row(page, " No process uses a device or reports device memory.");
    }
    rule(page, '└', '┘');
    if snapshot.processes.iter().any(|it| it.basis == Basis::Unknown) {
        page.push_str(
            "\"untracked\": has a device open and publishes nothing; `ttmem run` shows what it holds.\n",
        );
    }
}

fn findings(page: &mut String, snapshot: &Snapshot, style: Style) {
    if snapshot.findings.is_empty() {
        return;
    }
    page.push_str("\nFindings:\n");
    for finding in snapshot.findings.iter().take(FINDINGS) {
        let colour = crate::text::severity(finding.severity);
        let name = label::severity(finding.severity);
        let _ = writeln!(page, "  {} {}", style.paint(&format!("{name:<8}"), colour), cut(&finding.text, 88));
    }
    let more = snapshot.findings.len().saturating_sub(FINDINGS);
    if more > 0 {
        let _ = writeln!(page, "  and {more} more: ttmem --json");
    }
}
