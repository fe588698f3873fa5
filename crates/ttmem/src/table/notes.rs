//! Notes below tables: what marks and words mean, and which data is left out.

use super::breakdown::COUNTERS_NOTE;
use crate::text::{Style, sanitize, wrap};
use std::fmt::Write;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{Process, Tracking};

/// The most files that are listed as not read.
const MAX_SKIPPED: usize = 4;

/// Adds a note, wrapped.
pub(super) fn add_note(page: &mut String, text: &str, style: Style) {
    for line in wrap(text, style.width) {
        let _ = writeln!(page, "{line}");
    }
}

/// Adds the age of sensor values that are out of date.
pub(super) fn add_stale_sensors(page: &mut String, snapshot: &Snapshot) {
    for device in &snapshot.devices {
        let Some(sensors) = device.sensors.as_ref().filter(|it| it.stale) else { continue };
        let age = sensors.age_ms as f64 / 1000.0;
        let reason = device.sensors_absent.as_deref();
        let reason = reason.map_or_else(String::new, |reason| format!(": {}", sanitize(reason)));
        let _ = writeln!(page, "* sensors of device {} are {age:.1} s old{reason}", device.index);
    }
}

/// Explains the less exact kinds of tracking in the table.
pub(super) fn add_tracking_notes(page: &mut String, snapshot: &Snapshot, style: Style) {
    let any = |tracking: Tracking| snapshot.processes.iter().any(|it: &Process| it.tracking == tracking);
    if any(Tracking::Untracked) {
        let text = "untracked: has a device open and publishes nothing; start it with `ttmem run` to see its memory.";
        add_note(page, text, style);
    }
    if any(Tracking::Counters) {
        add_note(page, COUNTERS_NOTE, style);
    }
}

/// Lists files that were not read. Their content is missing from the figures.
pub(super) fn add_skipped(page: &mut String, snapshot: &Snapshot, style: Style) {
    let all = &snapshot.health.skipped;
    if all.is_empty() {
        return;
    }
    page.push_str("\nNot read:\n");
    for file in all.iter().take(MAX_SKIPPED) {
        let text = sanitize(&format!("{} {}", file.path, file.reason));
        for line in wrap(&text, style.width.saturating_sub(2)) {
            let _ = writeln!(page, "  {line}");
        }
    }
    if all.len() > MAX_SKIPPED {
        let _ = writeln!(page, "  and {} more: ttmem --json", all.len() - MAX_SKIPPED);
    }
}
