//! Lines of the event log in the format of the old server, so that scripts that read them keep working.
//!
//! The daemon writes them for messages of old clients, and `ttmem events --format old` for every event. Lines that the old
//! server did not have begin with a warning sign.

use std::fmt::Write;
use ttmem_core::snapshot::{MemoryEvent, MemoryEventKind, Released};
use ttmem_core::words::{Fault, KernelClass, Layout, Space};

const MIB: f64 = 1_048_576.0;

/// What one line says.
#[derive(Clone, Copy, Debug)]
pub enum OldLine<'a> {
    /// A buffer was allocated, or allocated again.
    Allocated {
        /// Its bytes.
        bytes: u64,
        /// Its space.
        space: Space,
        /// References to it.
        references: u32,
    },
    /// A buffer was allocated where another one was, which is dropped.
    Replaced {
        /// Bytes of the other one.
        old_bytes: u64,
    },
    /// A buffer was freed, or has a reference less.
    Freed {
        /// Its bytes.
        bytes: u64,
        /// References that are left.
        references: u32,
    },
    /// A buffer that is not allocated was freed.
    UnknownFree {
        /// Whether it was freed before.
        freed_before: bool,
    },
    /// The sum of circular buffers or kernels changed.
    Level {
        /// The title of a kernel's class; `None`: circular buffers.
        class: Option<&'a str>,
        /// Whether memory was freed.
        is_free: bool,
        /// By how much it changed.
        bytes: u64,
        /// What it is now, if that is known.
        total: Option<u64>,
    },
    /// A circular buffer or kernel that is not held was freed.
    NotHeld {
        /// Whether it is a kernel.
        is_kernel: bool,
        /// Whether it was freed before.
        freed_before: bool,
    },
    /// An allocation failed.
    OutOfMemory {
        /// Its bytes.
        bytes: u64,
        /// Its space.
        space: Option<Space>,
    },
    /// A report was refused.
    Refused {
        /// Why.
        why: &'a str,
    },
}

/// What all lines have: process, device and id.
#[derive(Clone, Copy, Debug)]
pub struct OldSubject<'a> {
    /// The process.
    pub pid: &'a str,
    /// The device.
    pub device: i64,
    /// Address of a buffer, or id of a kernel.
    pub id: u64,
}

impl OldLine<'_> {
    /// Appends the line.
    pub fn write(&self, subject: OldSubject<'_>, log: &mut String) {
        let OldSubject { pid, device, id } = subject;
        // Writing to a String cannot fail.
        let _ = match *self {
            // Most lines are of this kind and the next, and `format!` would be most of their cost.
            Self::Allocated { bytes, space, references } => {
                log.push_str("✓ [PID ");
                log.push_str(pid);
                log.push_str("] Allocated ");
                log.push_str(itoa::Buffer::new().format(bytes));
                log.push_str(" bytes of ");
                log.push_str(buffer_title(space));
                log.push_str(" on device ");
                log.push_str(itoa::Buffer::new().format(device));
                log.push_str(" (buffer_id=0x");
                push_hex(log, id);
                if references > 1 {
                    log.push_str(", ref_count=");
                    log.push_str(itoa::Buffer::new().format(references));
                }
                log.push_str(")\n");
                Ok(())
            }
            Self::Freed { bytes, references: 0 } => {
                log.push_str("✗ [PID ");
                log.push_str(pid);
                log.push_str("] Freed buffer 0x");
                push_hex(log, id);
                log.push_str(" on device ");
                log.push_str(itoa::Buffer::new().format(device));
                log.push_str(" (");
                log.push_str(itoa::Buffer::new().format(bytes));
                log.push_str(" bytes, FINAL)\n");
                Ok(())
            }
            Self::Freed { bytes, references } => writeln!(
                log,
                "✗ [PID {pid}] Freed buffer 0x{id:x} on device {device} ({bytes} bytes, ref_count={references} remaining)"
            ),
            Self::Replaced { old_bytes } => writeln!(
                log,
                "⚠ [PID {pid}] Buffer 0x{id:x} on device {device} taken again before it was freed ({old_bytes} bytes dropped)"
            ),
            Self::UnknownFree { freed_before: true } => {
                writeln!(log, "⚠ [PID {pid}] Double free of buffer 0x{id:x} on device {device}")
            }
            Self::UnknownFree { freed_before: false } => writeln!(
                log,
                "⚠ [PID {pid}] Deallocation for unknown buffer 0x{id:x} on device {device} (allocated before tracking started)"
            ),
            Self::Level { class, is_free, bytes, total } => {
                let (mark, sign) = if is_free { ("✗", "-") } else { ("✓", "+") };
                let what = match (class, is_free) {
                    (None, false) => "CB_ALLOC",
                    (None, true) => "CB_FREE",
                    (Some(_), false) => "KERNEL_LOAD",
                    (Some(_), true) => "KERNEL_UNLOAD",
                };
                let kernel = class.map(|class| format!("{class} kernel on ")).unwrap_or_default();
                let total = total.map_or_else(|| "unknown".to_owned(), |total| format!("{} MB", mib(total)));
                let bytes = mib(bytes);
                writeln!(log, "{mark} [{what}] {kernel}Device {device}: {sign}{bytes} MB (Total: {total})")
            }
            Self::NotHeld { is_kernel, freed_before } => {
                let what = if is_kernel { "KERNEL_UNLOAD" } else { "CB_FREE" };
                let why = if freed_before { "freed before" } else { "never seen" };
                writeln!(log, "⚠ [{what}] Device {device}: 0x{id:x} is not held by PID {pid} ({why})")
            }
            Self::OutOfMemory { bytes, space } => {
                let space = space.map_or("memory", buffer_title);
                writeln!(log, "⚠ [PID {pid}] Out of memory: {bytes} bytes of {space} on device {device}")
            }
            Self::Refused { why } => {
                writeln!(log, "⚠ [PID {pid}] Report of 0x{id:x} on device {device} refused: {why}")
            }
        };
    }
}

/// Appends the lines of an event: one for each of its devices, none if the old server had none and nothing is wrong.
pub fn write_event(event: &MemoryEvent, log: &mut String) {
    use MemoryEventKind as Kind;

    let pid = pid_of(event);
    match event.kind {
        Kind::Gap => {
            if let Some(missed) = event.missed {
                let numbers = missed.first.zip(missed.last);
                let numbers = numbers.map(|(first, last)| format!(" (numbers {first} to {last})"));
                let numbers = numbers.unwrap_or_default();
                let _ = writeln!(log, "⚠ [PID {pid}] {} events missed{numbers}", missed.count);
            }
            return;
        }
        Kind::ProcessExited => return write_cleanup(&pid, "ended", event.released, log),
        Kind::AllocatorClosed => return write_cleanup(&pid, "closed an allocator", event.released, log),
        Kind::AllocatorCleared => return write_cleanup(&pid, "cleared an allocator", event.released, log),
        _ => {}
    }
    // A mirror or view is reported by the buffer that it belongs to.
    if event.layout.is_some_and(Layout::is_alias) {
        return;
    }
    let id = event.id.as_deref().and_then(|id| id.strip_prefix("0x"));
    let id = id.and_then(|id| u64::from_str_radix(id, 16).ok()).unwrap_or(0);
    for &index in &event.indexes {
        let subject = OldSubject { pid: &pid, device: i64::from(index), id };
        let level = event.levels.iter().find(|level| level.index == index);
        write_for_device(event, level.map(|level| (level.cb_bytes, level.kernel_bytes)), subject, log);
    }
}

fn write_for_device(
    event: &MemoryEvent,
    levels: Option<(u64, u64)>,
    subject: OldSubject<'_>,
    log: &mut String,
) {
    use MemoryEventKind as Kind;

    let requested = event.requested_bytes.unwrap_or(0);
    let class = class_title(event.kernel.unwrap_or_default());
    let is_free = matches!(event.kind, Kind::Displaced | Kind::KernelUnloaded);
    let is_kept = is_free && event.references.is_some_and(|references| references > 0);
    let changed = |bytes| if is_kept { 0 } else { bytes };
    let fault = event.fault.as_deref();
    let not_held = match fault {
        _ if fault == Some(Fault::DoubleFree.name()) => Some(true),
        _ if fault == Some(Fault::UnknownFree.name()) => Some(false),
        _ => None,
    };
    let line = match event.kind {
        Kind::Allocated => {
            if let Some(old_bytes) = event.replaced_bytes {
                OldLine::Replaced { old_bytes }.write(subject, log);
            }
            let (space, references) = (event.space.unwrap_or(Space::Dram), event.references.unwrap_or(1));
            OldLine::Allocated { bytes: requested, space, references }
        }
        Kind::Freed => OldLine::Freed { bytes: requested, references: event.references.unwrap_or(0) },
        Kind::Placed | Kind::Displaced => {
            let total = levels.map(|(cbs, _)| cbs);
            OldLine::Level { class: None, is_free, bytes: changed(requested), total }
        }
        Kind::KernelLoaded | Kind::KernelUnloaded => {
            let total = levels.map(|(_, kernels)| kernels);
            let bytes = changed(event.allocated_bytes.unwrap_or(requested));
            OldLine::Level { class: Some(class), is_free, bytes, total }
        }
        Kind::ProgramEnded => {
            let Some(released) = event.released else { return };
            if released.cbs > 0 {
                let total = levels.map(|(cbs, _)| cbs);
                let line = OldLine::Level { class: None, is_free: true, bytes: released.cb_bytes, total };
                line.write(subject, log);
            }
            if released.kernels == 0 {
                return;
            }
            let total = levels.map(|(_, kernels)| kernels);
            let bytes = released.kernel_core_bytes;
            OldLine::Level { class: Some(class), is_free: true, bytes, total }
        }
        Kind::OutOfMemory => OldLine::OutOfMemory { bytes: requested, space: event.space },
        Kind::Refused => match (not_held, event.space) {
            (Some(freed_before), Some(space)) if space.is_program() => {
                OldLine::NotHeld { is_kernel: space == Space::Kernel, freed_before }
            }
            (Some(freed_before), _) => OldLine::UnknownFree { freed_before },
            (None, _) => {
                let known = fault.and_then(Fault::from_name);
                OldLine::Refused { why: known.map_or(fault.unwrap_or("unknown"), |it| it.text()) }
            }
        },
        _ => return,
    };
    line.write(subject, log);
}

/// Appends what was reclaimed when a process exited or closed an allocator, if anything was.
pub fn write_cleanup(pid: &str, what: &str, released: Option<Released>, log: &mut String) {
    let Some(released) = released else { return };
    let parts = [
        ("buffers", released.buffers, released.buffer_bytes),
        ("CBs", released.cbs, released.cb_bytes),
        ("kernels", released.kernels, released.kernel_bytes),
    ];
    if parts.iter().all(|(_, count, _)| *count == 0) {
        return;
    }
    let _ = writeln!(log, "⚠ Process {pid} {what}; taking back what it held:");
    for (what, count, bytes) in parts.into_iter().filter(|(_, count, _)| *count > 0) {
        let _ = writeln!(log, "   Removed {count} {what} ({} MB) from PID {pid}", mib(bytes));
    }
}

/// The pid of an event as lines have it.
fn pid_of(event: &MemoryEvent) -> String {
    match (event.pid, event.reported_pid) {
        (Some(pid), _) => pid.to_string(),
        (None, Some(pid)) => pid.to_string(),
        (None, None) => "unknown".to_owned(),
    }
}

/// The title of a kernel's class; the old server counted kernels of unknown class as the application's.
fn class_title(class: KernelClass) -> &'static str {
    match class {
        KernelClass::Unknown => KernelClass::Application.title(),
        class => class.title(),
    }
}

/// The name of a buffer's space, as the old protocol has it.
fn buffer_title(space: Space) -> &'static str {
    match space {
        Space::Dram => "DRAM",
        Space::L1 | Space::L1Core => "L1",
        Space::L1Small => "L1_SMALL",
        Space::Trace => "TRACE",
        Space::Host => "SYSTEM_MEMORY",
        Space::Cb | Space::Dfb | Space::Scratch => "CBs",
        Space::Kernel => "Kernels",
    }
}

fn push_hex(log: &mut String, value: u64) {
    let digits = (64 - value.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        let nibble = (value >> (digit * 4)) as u32 & 15;
        log.push(char::from_digit(nibble, 16).unwrap_or('0'));
    }
}

/// Bytes as MiB, with six significant digits.
pub fn mib(bytes: u64) -> String {
    six_digits(bytes as f64 / MIB)
}

/// Six significant digits without trailing zeros, as C++ streams print by default.
pub fn six_digits(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = (5 - magnitude).clamp(0, 12) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use ttmem_core::snapshot::{Missed, ProgramLevel};
    use ttmem_core::words::Basis;

    fn event(kind: MemoryEventKind) -> MemoryEvent {
        MemoryEvent {
            pid: Some(7),
            indexes: vec![0, 3],
            id: Some("0x1000".to_owned()),
            requested_bytes: Some(262_144),
            ..MemoryEvent::new(Timestamp::UNIX_EPOCH, kind, Basis::Exact)
        }
    }

    fn lines(event: &MemoryEvent) -> Vec<String> {
        let mut log = String::new();
        write_event(event, &mut log);
        log.lines().map(ToOwned::to_owned).collect()
    }

    #[test]
    fn each_device_has_a_line() {
        let levels = [(0, 1 << 20), (3, 1 << 19)];
        let levels = levels.map(|(index, cb_bytes)| ProgramLevel { index, cb_bytes, kernel_bytes: 0 });
        let placed = MemoryEvent { levels: levels.to_vec(), ..event(MemoryEventKind::Placed) };
        assert_eq!(
            lines(&placed),
            [
                "✓ [CB_ALLOC] Device 0: +0.25 MB (Total: 1 MB)",
                "✓ [CB_ALLOC] Device 3: +0.25 MB (Total: 0.5 MB)"
            ]
        );
        let unread = event(MemoryEventKind::Placed);
        assert_eq!(lines(&unread)[0], "✓ [CB_ALLOC] Device 0: +0.25 MB (Total: unknown)");
    }

    #[test]
    fn aliases_and_dispatches_have_no_line() {
        let mirror = MemoryEvent { layout: Some(Layout::Mirror), ..event(MemoryEventKind::Allocated) };
        assert!(lines(&mirror).is_empty());
        for &kind in MemoryEventKind::ALL {
            let written = lines(&event(kind)).len();
            let has_lines = matches!(
                kind,
                MemoryEventKind::Allocated
                    | MemoryEventKind::Freed
                    | MemoryEventKind::Placed
                    | MemoryEventKind::Displaced
                    | MemoryEventKind::KernelLoaded
                    | MemoryEventKind::KernelUnloaded
                    | MemoryEventKind::OutOfMemory
                    | MemoryEventKind::Refused
            );
            assert_eq!(written, if has_lines { 2 } else { 0 }, "{kind:?}");
        }
    }

    #[test]
    fn what_is_freed_together_is_one_line_per_kind() {
        let released = Released {
            cbs: 2,
            cb_bytes: 1 << 20,
            kernels: 1,
            kernel_bytes: 1 << 20,
            kernel_core_bytes: 4 << 20,
            ..Released::default()
        };
        let mut ended = event(MemoryEventKind::ProgramEnded);
        (ended.released, ended.indexes) = (Some(released), vec![0]);
        assert_eq!(
            lines(&ended),
            [
                "✗ [CB_FREE] Device 0: -1 MB (Total: unknown)",
                "✗ [KERNEL_UNLOAD] Application kernel on Device 0: -4 MB (Total: unknown)"
            ]
        );
        ended.kind = MemoryEventKind::ProcessExited;
        assert_eq!(
            lines(&ended),
            [
                "⚠ Process 7 ended; taking back what it held:",
                "   Removed 2 CBs (1 MB) from PID 7",
                "   Removed 1 kernels (1 MB) from PID 7"
            ]
        );
        let missed = Missed { count: 5, first: Some(2), last: Some(6) };
        let gap = MemoryEvent { missed: Some(missed), ..event(MemoryEventKind::Gap) };
        assert_eq!(lines(&gap), ["⚠ [PID 7] 5 events missed (numbers 2 to 6)"]);
    }

    #[test]
    fn hexadecimal_is_as_format_writes_it() {
        for value in [0, 1, 15, 16, 255, 0x0188_7000, 0x0abc_def0, u64::MAX] {
            let mut text = String::new();
            push_hex(&mut text, value);
            assert_eq!(text, format!("{value:x}"));
        }
    }

    #[test]
    fn numbers_have_six_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (382.2, "382.2"),
            (2.5, "2.5"),
            (1.0 / 3.0, "0.333333"),
            (123_456.7, "123457"),
            (1_234_567.0, "1234567"),
            (100.0, "100"),
        ] {
            assert_eq!(six_digits(value), text);
        }
    }
}
