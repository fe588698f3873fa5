//! The page of `tt_smi_umd`, as that name has always printed it.

use super::breakdown::{Folding, add_breakdown, add_tracking};
use super::{format_time, notes};
use crate::text::{Style, severity_colour, truncate};
use std::fmt::Write;
use ttmem_core::Snapshot;
use ttmem_core::words::Basis;
use ttmem_render::{device, format_heading, format_row, label, process};

/// Characters between the borders.
const WIDTH: usize = 98;
/// The most findings; the rest is counted.
const MAX_FINDINGS: usize = 8;

pub(crate) fn render(snapshot: &Snapshot, style: Style) -> String {
    let mut page = String::new();
    add_devices(&mut page, snapshot);
    add_breakdown(&mut page, snapshot, Folding::None, style);
    add_processes(&mut page, snapshot);
    add_tracking(&mut page, snapshot);
    add_findings(&mut page, snapshot, style);
    notes::add_skipped(&mut page, snapshot, style);
    style.encode(page)
}

fn add_rule(page: &mut String, left: char, right: char) {
    let _ = writeln!(page, "{left}{}{right}", "─".repeat(WIDTH));
}

fn add_row(page: &mut String, text: &str) {
    let _ = writeln!(page, "│{text:<WIDTH$}│");
}

fn add_devices(page: &mut String, snapshot: &Snapshot) {
    let at = format_time(snapshot.at);
    let mut title = format!(" ttmem {}", snapshot.host.ttmem);
    if let Some(name) = &snapshot.host.name {
        let _ = write!(title, " on {}", truncate(name, 24));
    }
    if let Some(driver) = &snapshot.host.driver {
        let _ = write!(title, ", driver {}", truncate(driver, 16));
    }
    if snapshot.health.source == "daemon" {
        title.push_str(", by the daemon");
    }
    if snapshot.simulated {
        title.push_str("  [SIMULATED CHIPS]");
    }
    add_rule(page, '┌', '┐');
    let gap = WIDTH.saturating_sub(title.chars().count() + at.chars().count() + 1);
    add_row(page, &format!("{title}{}{at}", " ".repeat(gap)));
    add_rule(page, '├', '┤');
    add_row(page, &format!(" {}", format_heading(device::OLD_TABLE)));
    add_rule(page, '├', '┤');
    for device in &snapshot.devices {
        add_row(page, &format!(" {}", format_row(device::OLD_TABLE, &device::Row { snapshot, device })));
    }
    if snapshot.devices.is_empty() {
        add_row(page, " No Tenstorrent device found.");
    }
    add_rule(page, '└', '┘');
    notes::add_stale_sensors(page, snapshot);
}

fn add_processes(page: &mut String, snapshot: &Snapshot) {
    page.push('\n');
    add_rule(page, '┌', '┐');
    add_row(page, &format!(" {}", format_heading(process::OLD_TABLE)));
    add_rule(page, '├', '┤');
    for process in &snapshot.processes {
        add_row(page, &format!(" {}", format_row(process::OLD_TABLE, &process)));
    }
    if snapshot.processes.is_empty() {
        add_row(page, " No process uses a device or reports device memory.");
    }
    add_rule(page, '└', '┘');
    if snapshot.processes.iter().any(|it| it.basis == Basis::Unknown) {
        page.push_str(
            "\"untracked\": has a device open and publishes nothing; `ttmem run` shows what it holds.\n",
        );
    }
}

fn add_findings(page: &mut String, snapshot: &Snapshot, style: Style) {
    if snapshot.findings.is_empty() {
        return;
    }
    page.push_str("\nFindings:\n");
    for finding in snapshot.findings.iter().take(MAX_FINDINGS) {
        let name = format!("{:<8}", label::severity(finding.severity));
        let name = style.paint(&name, severity_colour(finding.severity));
        let _ = writeln!(page, "  {name} {}", truncate(&finding.text, 88));
    }
    let more = snapshot.findings.len().saturating_sub(MAX_FINDINGS);
    if more > 0 {
        let _ = writeln!(page, "  and {more} more: ttmem --json");
    }
}
