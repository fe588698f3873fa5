//! Findings and events.

use super::ago;
use ttmem_core::snapshot::{Event, EventKind, Finding, FindingKind, Severity};

pub(super) fn event(sequence: u64, kind: EventKind, severity: Severity, text: &str) -> Event {
    Event {
        hidden: false,
        sequence,
        at: ago(600 - sequence as i64 * 13),
        kind,
        severity,
        pid: None,
        device: None,
        bytes: None,
        text: text.to_owned(),
    }
}

pub(super) fn events() -> Vec<Event> {
    use EventKind::{
        AllocatorOpened, DeviceAdded, Finding as Found, Other, ProcessExited, ProcessStarted, TraceCaptured,
        UsageThreshold,
    };
    let all = [
        (DeviceAdded, Severity::Info, "device 0 added"),
        (ProcessStarted, Severity::Info, "pid 48213 (python3) started"),
        (AllocatorOpened, Severity::Info, "pid 48213 (python3) opened a mesh of 8 devices"),
        (ProcessStarted, Severity::Info, "pid 48977 (llama-serve) started"),
        (TraceCaptured, Severity::Info, "pid 48213 (python3) captured a trace of 312 dispatches"),
        (UsageThreshold, Severity::Warning, "device 0: DRAM rose above 75 %"),
        (UsageThreshold, Severity::Error, "device 0: DRAM rose above 90 %"),
        (
            Found,
            Severity::Warning,
            "pid 48213 (python3): freed unknown buffers (last 0x1f4000); they may predate tracking",
        ),
        (
            ProcessExited,
            Severity::Info,
            "pid 47001 (train.py) exited with 3.2 GiB in 612 allocations still allocated",
        ),
        (Other, Severity::Info, "an event of a later version"),
    ];
    let events = all.into_iter().enumerate();
    events.map(|(n, (kind, severity, text))| event(n as u64, kind, severity, text)).collect()
}

pub(super) fn finding(kind: FindingKind, severity: Severity, text: &str) -> Finding {
    Finding {
        kind,
        severity,
        device: None,
        pid: None,
        process_name: None,
        command: None,
        hidden: false,
        space: None,
        bytes: None,
        count: 1,
        first: None,
        last: None,
        failure: None,
        text: text.to_owned(),
    }
}
