//! Lines below tables: what their marks and words mean, and what is not in them.

use super::breakdown::COUNTERS;
use crate::text::{Style, plain, wrapped};
use std::fmt::Write;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{Process, Tracking};

/// Files shown that were not read.
const SKIPPED: usize = 4;

/// A line, wrapped.
pub(super) fn note(page: &mut String, text: &str, style: Style) {
    for line in wrapped(text, style.width) {
        let _ = writeln!(page, "{line}");
    }
}

/// Sensors whose values are old.
pub(super) fn stale(page: &mut String, snapshot: &Snapshot) {
    for device in &snapshot.devices {
        let Some(sensors) = device.sensors.as_ref().filter(|it| it.stale) else { continue };
        let age = sensors.age_ms as f64 / 1000.0;
        let why = device.sensors_absent.as_deref().map_or_else(String::new, |it| format!(": {}", plain(it)));
        let _ = writeln!(page, "* sensors of device {} are {age:.1} s old{why}", device.index);
    }
}

/// What the less exact ways of tracking mean.
pub(super) fn tracking(page: &mut String, snapshot: &Snapshot, style: Style) {
    let any = |quality: Tracking| snapshot.processes.iter().any(|it: &Process| it.tracking == quality);
    if any(Tracking::Untracked) {
        let text = "untracked: has a device open and publishes nothing; start it with `ttmem run` to see its memory.";
        note(page, text, style);
    }
    if any(Tracking::Counters) {
        note(page, COUNTERS, style);
    }
}

/// Files that were not read: what is in them is not in the figures above.
pub(super) fn skipped(page: &mut String, snapshot: &Snapshot, style: Style) {
    let all = &snapshot.health.skipped;
    if all.is_empty() {
        return;
    }
    page.push_str("\nNot read:\n");
    for it in all.iter().take(SKIPPED) {
        for line in wrapped(&plain(&format!("{} {}", it.path, it.reason)), style.width.saturating_sub(2)) {
            let _ = writeln!(page, "  {line}");
        }
    }
    if all.len() > SKIPPED {
        let _ = writeln!(page, "  and {} more: ttmem --json", all.len() - SKIPPED);
    }
}
