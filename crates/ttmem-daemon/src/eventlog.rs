//! The event log and the reports in the format of the old server, so that scripts that read them keep working.
//!
//! Errors of the old server are corrected: reports also list circular buffers and kernels, totals are those recorded, and the
//! pid is the kernel's.

use std::fmt::Write;
use ttmem_core::machine::Chip;
use ttmem_core::snapshot::{Allocation, Group};
use ttmem_core::words::{KernelClass, Space};
use ttmem_core::{Outcome, Reclaimed};
use ttmem_types::BufferType;
use ttmem_wire::legacy::{Message, Type};

const MIB: f64 = 1_048_576.0;

/// Writes the line of the log for a message, if it has one.
pub(crate) fn write_line(message: &Message, pid: i64, outcome: Outcome, recorded: u64, log: &mut String) {
    let (device, id) = (message.device_id, message.buffer_id);
    // Writing to a String cannot fail.
    let _ = match (Type::from_byte(message.kind), outcome) {
        (Some(Type::Alloc), Outcome::Held { .. } | Outcome::Replaced { .. }) => {
            if let Outcome::Replaced { old_bytes } = outcome {
                let _ = writeln!(
                    log,
                    "⚠ [PID {pid}] Buffer 0x{id:x} on device {device} taken again before it was freed ({old_bytes} bytes dropped)"
                );
            }
            // Most lines are of this kind and the next, and `format!` would be most of their cost.
            let again = match outcome {
                Outcome::Held { references } if references > 1 => format!(", ref_count={references}"),
                _ => String::new(),
            };
            let kind = buffer_type_name(message.buffer_type);
            log.push_str("✓ [PID ");
            log.push_str(itoa::Buffer::new().format(pid));
            log.push_str("] Allocated ");
            log.push_str(itoa::Buffer::new().format(message.size));
            log.push_str(" bytes of ");
            log.push_str(kind);
            log.push_str(" on device ");
            log.push_str(itoa::Buffer::new().format(device));
            log.push_str(" (buffer_id=0x");
            push_hex(log, id);
            log.push_str(&again);
            log.push_str(")\n");
            Ok(())
        }
        (Some(Type::Free), Outcome::Released { bytes, references: 0, .. }) => {
            log.push_str("✗ [PID ");
            log.push_str(itoa::Buffer::new().format(pid));
            log.push_str("] Freed buffer 0x");
            push_hex(log, id);
            log.push_str(" on device ");
            log.push_str(itoa::Buffer::new().format(device));
            log.push_str(" (");
            log.push_str(itoa::Buffer::new().format(bytes));
            log.push_str(" bytes, FINAL)\n");
            Ok(())
        }
        (Some(Type::Free), Outcome::Released { bytes, references, .. }) => writeln!(
            log,
            "✗ [PID {pid}] Freed buffer 0x{id:x} on device {device} ({bytes} bytes, ref_count={references} remaining)"
        ),
        (Some(Type::Free), Outcome::NotHeld { freed_before: true }) => {
            writeln!(log, "⚠ [PID {pid}] Double free of buffer 0x{id:x} on device {device}")
        }
        (Some(Type::Free), Outcome::NotHeld { .. }) => writeln!(
            log,
            "⚠ [PID {pid}] Deallocation for unknown buffer 0x{id:x} on device {device} (allocated before tracking started)"
        ),
        (Some(Type::CbAlloc), Outcome::Held { .. } | Outcome::Replaced { .. }) => writeln!(
            log,
            "✓ [CB_ALLOC] Device {device}: +{} MB (Total: {} MB)",
            mib(message.size),
            mib(recorded)
        ),
        (Some(Type::CbFree), Outcome::Released { bytes, references, .. }) => {
            let freed = if references == 0 { bytes } else { 0 };
            writeln!(log, "✗ [CB_FREE] Device {device}: -{} MB (Total: {} MB)", mib(freed), mib(recorded))
        }
        (Some(Type::KernelLoad), Outcome::Held { .. } | Outcome::Replaced { .. }) => writeln!(
            log,
            "✓ [KERNEL_LOAD] {} kernel on Device {device}: +{} MB (Total: {} MB)",
            kernel_class(message.buffer_type).title(),
            mib(message.size),
            mib(recorded)
        ),
        (Some(Type::KernelUnload), Outcome::Released { bytes, references, class, .. }) => {
            let freed = if references == 0 { bytes } else { 0 };
            writeln!(
                log,
                "✗ [KERNEL_UNLOAD] {} kernel on Device {device}: -{} MB (Total: {} MB)",
                class.title(),
                mib(freed),
                mib(recorded)
            )
        }
        (Some(kind @ (Type::CbFree | Type::KernelUnload)), Outcome::NotHeld { freed_before }) => {
            let what = if kind == Type::CbFree { "CB_FREE" } else { "KERNEL_UNLOAD" };
            let why = if freed_before { "freed before" } else { "never seen" };
            writeln!(log, "⚠ [{what}] Device {device}: 0x{id:x} is not held by PID {pid} ({why})")
        }
        _ => Ok(()),
    };
}

/// What was reclaimed when a process exited.
pub(crate) fn format_cleanup(pid: &str, reclaimed: Reclaimed) -> String {
    let mut text = String::new();
    for (what, (count, bytes)) in
        [("buffers", reclaimed.buffers), ("CBs", reclaimed.cbs), ("kernels", reclaimed.kernels)]
    {
        if count > 0 {
            let _ = writeln!(text, "   Removed {count} {what} ({} MB) from PID {pid}", mib(bytes));
        }
    }
    if text.is_empty() { text } else { format!("⚠ Process {pid} ended; taking back what it held:\n{text}") }
}

/// The first lines of the log.
pub(crate) fn format_greeting<'a>(
    chips: impl Iterator<Item = &'a Chip>,
    simulated: bool,
    path: &str,
) -> String {
    let mut text = String::from("🔍 Device detection");
    text.push_str(if simulated { " (simulated chips):\n" } else { ":\n" });
    let mut count = 0;
    for chip in chips {
        count += 1;
        let name = chip.arch.map_or("Unknown", |arch| arch.title());
        let size = chip.capacity.map_or_else(
            || "capacity unknown".to_owned(),
            |c| {
                format!(
                    "{:.1} GiB DRAM, {:.1} MiB L1",
                    c.dram_bytes as f64 / MIB / 1024.0,
                    c.l1_bytes as f64 / MIB
                )
            },
        );
        let link = if chip.remote { "Remote Ethernet" } else { "Local PCIe" };
        let _ = writeln!(text, "   Device {}: {name} ({size}) [{link}]", chip.index);
    }
    match count {
        0 => text.push_str("   Devices are not known; they show up as clients name them\n"),
        n => {
            let _ = writeln!(text, "   Total: {n} device(s) detected");
        }
    }
    let _ =
        write!(text, "🚀 Allocation Server started\n   Listening on: {path}\n   Press Ctrl+C to stop\n\n");
    text
}

/// A title in a box.
fn boxed(title: &str) -> String {
    let line = "═".repeat(62);
    format!("╔{line}╗\n║{title:^62}║\n╚{line}╝\n")
}

/// The report of everything that is allocated.
pub(crate) fn format_remaining(groups: &[Group]) -> String {
    let mut text = boxed("REMAINING ALLOCATED BUFFERS");
    let total: u64 = groups.iter().map(|group| group.count).sum();
    let _ = writeln!(text, "Total tracked allocations: {total}");
    let mut device = None;
    for group in groups {
        if device != Some(group.index) {
            device = Some(group.index);
            let _ = writeln!(text, "\nDevice {}:", group.index);
        }
        let (one, many) = nouns(group.space);
        let title = space_title(group.space);
        let _ = writeln!(text, "  {title}: {} {many}, {} MB total", group.count, mib(group.bytes));
        for allocation in &group.listed {
            let _ = writeln!(
                text,
                "    - {one} {}: {} KB (PID {}, ref_count={})",
                allocation.id,
                six_digits(allocation.requested_bytes as f64 / 1024.0),
                pid_of(allocation),
                allocation.references
            );
        }
    }
    if total == 0 {
        text.push_str("No allocations remain.\n");
    }
    text
}

/// The report of all kernels.
pub(crate) fn format_kernels(groups: &[Group]) -> String {
    let mut text = boxed("DETAILED KERNEL ALLOCATIONS");
    for group in groups {
        let _ = writeln!(
            text,
            "\nDevice {}: {} kernels, {} MB total",
            group.index,
            group.count,
            mib(group.bytes)
        );
        for kernel in &group.listed {
            let _ = writeln!(
                text,
                "    - Kernel {}: {} KB ({}, PID {}, age {:.0} s)",
                kernel.id,
                six_digits(kernel.requested_bytes as f64 / 1024.0),
                kernel.kernel.unwrap_or(KernelClass::Unknown).title(),
                pid_of(kernel),
                kernel.age_seconds
            );
        }
        let more = group.count - group.listed.len() as u64;
        if more > 0 {
            let _ = writeln!(text, "    … and {more} more");
        }
    }
    if groups.is_empty() {
        text.push_str("No kernels are loaded.\n");
    }
    text
}

/// The statistics that are logged at exit, on SIGUSR1 and every ten seconds of activity.
pub(crate) fn format_statistics(groups: &[Group]) -> String {
    let mut text = String::from("📊 Current Statistics:\n");
    let mut indexes: Vec<u32> = groups.iter().map(|group| group.index).collect();
    indexes.dedup();
    for index in indexes {
        let of = |space| {
            groups
                .iter()
                .filter(move |group| group.index == index && group.space == space)
                .fold((0, 0), |sum, group| (sum.0 + group.count, sum.1 + group.bytes))
        };
        let buffers: u64 = Space::BUFFERS.into_iter().map(|space| of(space).0).sum();
        let total: u64 = groups.iter().filter(|group| group.index == index).map(|group| group.bytes).sum();
        let kb = |bytes: u64| six_digits(bytes as f64 / 1024.0);
        let _ = writeln!(text, "  Device {index}:\n    Buffers: {buffers}");
        for (name, space) in [
            ("DRAM", Space::Dram),
            ("L1", Space::L1),
            ("L1_SMALL", Space::L1Small),
            ("TRACE", Space::Trace),
            ("CBs", Space::Cb),
            ("Kernels", Space::Kernel),
        ] {
            let (count, bytes) = of(space);
            if count > 0 {
                let _ = writeln!(text, "    {name}: {bytes} bytes ({} KB)", kb(bytes));
            }
        }
        let _ = writeln!(text, "    Total: {total} bytes ({} KB)", kb(total));
    }
    // A buffer of a mesh is listed under each of its devices.
    let active: u64 = groups.iter().map(|group| group.count).sum();
    let _ = writeln!(text, "  Active allocations: {active}");
    text
}

/// The kernel class in a message.
pub(crate) fn kernel_class(byte: u8) -> KernelClass {
    KernelClass::from_number(byte).unwrap_or_default()
}

fn pid_of(it: &Allocation) -> String {
    match (it.pid, it.reported_pid) {
        (Some(pid), _) => pid.to_string(),
        (None, Some(pid)) => format!("{pid} in its own namespace"),
        (None, None) => "unknown".to_owned(),
    }
}

fn buffer_type_name(byte: u8) -> &'static str {
    space_title(BufferType::from_number(byte).map_or(Space::Trace, BufferType::space))
}

fn space_title(space: Space) -> &'static str {
    match space {
        Space::Dram => "DRAM",
        Space::L1 => "L1",
        Space::L1Small => "L1_SMALL",
        Space::L1Core => "L1_CORE",
        Space::Trace => "TRACE",
        Space::Host => "SYSTEM_MEMORY",
        Space::Cb => "CBs",
        Space::Dfb => "DFBs",
        Space::Scratch => "Scratchpads",
        Space::Kernel => "Kernels",
    }
}

/// Singular and plural of what is allocated in a space.
fn nouns(space: Space) -> (&'static str, &'static str) {
    match space {
        Space::Kernel => ("Kernel", "kernels"),
        Space::Cb => ("CB", "CBs"),
        _ => ("Buffer", "buffers"),
    }
}

fn push_hex(log: &mut String, value: u64) {
    let digits = (64 - value.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        let nibble = (value >> (digit * 4)) as u32 & 15;
        log.push(char::from_digit(nibble, 16).unwrap_or('0'));
    }
}

fn mib(bytes: u64) -> String {
    six_digits(bytes as f64 / MIB)
}

/// Six significant digits without trailing zeros, as C++ streams print by default.
fn six_digits(value: f64) -> String {
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
    use super::{push_hex, six_digits};

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
