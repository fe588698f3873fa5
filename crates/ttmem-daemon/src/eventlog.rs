//! The event log and the reports in the format of the old server, so that scripts that read them keep working.
//!
//! Errors of the old server are corrected: reports also list circular buffers and kernels, totals are those recorded, and the
//! pid is the kernel's.

use jiff::Timestamp;
use std::fmt::Write;
use ttmem_core::machine::Chip;
use ttmem_core::snapshot::{Allocation, Group, HiddenMemory, MemoryEvent, MemoryEventKind, ProgramLevel};
use ttmem_core::words::{Basis, Fault, KernelClass, ProcessId, Space};
use ttmem_core::{Outcome, Reclaimed, State};
use ttmem_reader::old_log::{self, OldLine, OldSubject, mib, six_digits};
use ttmem_reader::{hex, process_event};
use ttmem_types::BufferType;
use ttmem_wire::legacy::{Message, Type};

const MIB: f64 = 1_048_576.0;

/// A message of an old client, with its outcome.
#[derive(Clone, Copy)]
pub(crate) struct Reported {
    pub(crate) at: Timestamp,
    /// Its process; the message may have another pid.
    pub(crate) process: ProcessId,
    /// Number of its user.
    pub(crate) owner: Option<u32>,
    pub(crate) kind: Type,
    pub(crate) message: Message,
    pub(crate) outcome: Outcome,
    /// Program memory of the device after it, if that was needed.
    pub(crate) level: Option<ProgramLevel>,
}

impl Reported {
    /// The pid that the kernel knows, or else the one that the client reported.
    fn pid(&self) -> i64 {
        match self.process.pid {
            0 => i64::from(self.message.process_id),
            pid => i64::from(pid),
        }
    }
}

/// Writes the line of the log for a message, if it has one.
pub(crate) fn write_line(reported: &Reported, log: &mut String) {
    let &Reported { kind, message, outcome, level, .. } = reported;
    let mut buffer = itoa::Buffer::new();
    let subject = OldSubject {
        pid: buffer.format(reported.pid()),
        device: i64::from(message.device_id),
        id: message.buffer_id,
    };
    let cbs = level.map(|level| level.cb_bytes);
    let kernels = level.map(|level| level.kernel_bytes);
    let line = match (kind, outcome) {
        (Type::Alloc, Outcome::Held { .. } | Outcome::Replaced { .. }) => {
            if let Outcome::Replaced { old_bytes } = outcome {
                OldLine::Replaced { old_bytes }.write(subject, log);
            }
            let references = if let Outcome::Held { references } = outcome { references } else { 1 };
            OldLine::Allocated { bytes: message.size, space: buffer_space(message.buffer_type), references }
        }
        (Type::Free, Outcome::Released { bytes, references, .. }) => OldLine::Freed { bytes, references },
        (Type::Free, Outcome::NotHeld { freed_before }) => OldLine::UnknownFree { freed_before },
        (Type::CbAlloc, Outcome::Held { .. } | Outcome::Replaced { .. }) => {
            OldLine::Level { class: None, is_free: false, bytes: message.size, total: cbs }
        }
        (Type::CbFree, Outcome::Released { bytes, references, .. }) => {
            let bytes = if references == 0 { bytes } else { 0 };
            OldLine::Level { class: None, is_free: true, bytes, total: cbs }
        }
        (Type::KernelLoad, Outcome::Held { .. } | Outcome::Replaced { .. }) => {
            let class = Some(kernel_class(message.buffer_type).title());
            OldLine::Level { class, is_free: false, bytes: message.size, total: kernels }
        }
        (Type::KernelUnload, Outcome::Released { bytes, references, class, .. }) => {
            let bytes = if references == 0 { bytes } else { 0 };
            OldLine::Level { class: Some(class.title()), is_free: true, bytes, total: kernels }
        }
        (Type::CbFree | Type::KernelUnload, Outcome::NotHeld { freed_before }) => {
            OldLine::NotHeld { is_kernel: kind == Type::KernelUnload, freed_before }
        }
        _ => return,
    };
    line.write(subject, log);
}

/// Describes a message as an event; `None` if it changed nothing and was not refused.
pub(crate) fn describe(reported: &Reported, state: &State) -> Option<MemoryEvent> {
    let &Reported { at, process, owner, kind, message, outcome, level } = reported;
    let mut event = process_event(state, process, Basis::Reported, MemoryEventKind::Refused, at);
    event.owner = owner;
    if process.pid == 0 {
        event.reported_pid = Some(i64::from(message.process_id));
    }
    event.indexes = u32::try_from(message.device_id).into_iter().collect();
    event.id = Some(hex(message.buffer_id));
    event.levels = level.into_iter().collect();
    event.space = match kind {
        Type::Alloc => Some(buffer_space(message.buffer_type)),
        Type::CbAlloc | Type::CbFree => Some(Space::Cb),
        Type::KernelLoad | Type::KernelUnload => Some(Space::Kernel),
        _ => None,
    };
    let (allocates, to) = match kind {
        Type::Alloc => (true, MemoryEventKind::Allocated),
        Type::Free => (false, MemoryEventKind::Freed),
        Type::CbAlloc => (true, MemoryEventKind::Placed),
        Type::CbFree => (false, MemoryEventKind::Displaced),
        Type::KernelLoad => (true, MemoryEventKind::KernelLoaded),
        Type::KernelUnload => (false, MemoryEventKind::KernelUnloaded),
        _ => return None,
    };
    if kind == Type::KernelLoad {
        event.kernel = Some(kernel_class(message.buffer_type));
    }
    match outcome {
        Outcome::Held { .. } | Outcome::Replaced { .. } if allocates => {
            event.kind = to;
            event.requested_bytes = Some(message.size);
            match outcome {
                Outcome::Replaced { old_bytes } => event.replaced_bytes = Some(old_bytes),
                Outcome::Held { references } => event.references = Some(references),
                _ => {}
            }
        }
        Outcome::Released { space, bytes, references, class } => {
            event.kind = to;
            (event.space, event.requested_bytes) = (Some(space), Some(bytes));
            event.references = Some(references);
            event.kernel = Some(class).filter(|_| space == Space::Kernel);
        }
        Outcome::NotHeld { freed_before } => {
            let fault = if freed_before { Fault::DoubleFree } else { Fault::UnknownFree };
            event.fault = Some(fault.name().to_owned());
        }
        Outcome::Refused(fault) => {
            event.fault = Some(fault.name().to_owned());
            event.requested_bytes = Some(message.size).filter(|_| allocates);
        }
        _ => return None,
    }
    Some(event)
}

/// What was reclaimed when a process exited.
pub(crate) fn format_cleanup(pid: &str, reclaimed: Reclaimed) -> String {
    let mut text = String::new();
    old_log::write_cleanup(pid, "ended", Some(reclaimed.into()), &mut text);
    text
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
pub(crate) fn format_remaining(groups: impl Iterator<Item = Group>) -> String {
    let (mut text, mut total) = (String::new(), 0);
    let mut device = None;
    for group in groups {
        total += group.count;
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
        add_hidden(&mut text, &group);
        add_rest(&mut text, &group);
    }
    if total == 0 {
        text.push_str("No allocations remain.\n");
    }
    format!("{}Total tracked allocations: {total}\n{text}", boxed("REMAINING ALLOCATED BUFFERS"))
}

/// The report of all kernels.
pub(crate) fn format_kernels(groups: impl Iterator<Item = Group>) -> String {
    let mut text = boxed("DETAILED KERNEL ALLOCATIONS");
    let mut groups = groups.peekable();
    if groups.peek().is_none() {
        text.push_str("No kernels are loaded.\n");
    }
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
        add_rest(&mut text, &group);
    }
    text
}

/// Adds a line for each process whose allocations the reader may not see.
fn add_hidden(text: &mut String, group: &Group) {
    for sum in &group.hidden {
        let HiddenMemory { count, requested_bytes, user, .. } = sum;
        let pid = describe_pid(sum.pid, sum.reported_pid);
        let user = user.as_deref().unwrap_or("unknown");
        let (_, many) = nouns(group.space);
        let _ = writeln!(
            text,
            "    - {count} {many} of another user: {} KB in all (PID {pid}, user {user})",
            six_digits(*requested_bytes as f64 / 1024.0)
        );
    }
}

/// Adds the number of allocations that are not listed.
fn add_rest(text: &mut String, group: &Group) {
    let hidden: u64 = group.hidden.iter().map(|it| it.count).sum();
    let more = group.count.saturating_sub(group.listed.len() as u64).saturating_sub(hidden);
    if more > 0 {
        let _ = writeln!(text, "    … and {more} more; all: ttmem dump --all");
    }
}

/// The statistics that are logged at exit, on SIGUSR1 and every ten seconds of activity.
pub(crate) fn format_statistics(groups: impl Iterator<Item = Group>) -> String {
    let groups: Vec<Group> = groups.collect();
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
    describe_pid(it.pid, it.reported_pid)
}

fn describe_pid(pid: Option<u32>, reported_pid: Option<i64>) -> String {
    match (pid, reported_pid) {
        (Some(pid), _) => pid.to_string(),
        (None, Some(pid)) => format!("{pid} in its own namespace"),
        (None, None) => "unknown".to_owned(),
    }
}

fn buffer_space(byte: u8) -> Space {
    BufferType::from_number(byte).map_or(Space::Trace, BufferType::space)
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
