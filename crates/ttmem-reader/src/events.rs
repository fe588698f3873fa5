//! Single events of memory: which are requested, and how records of segments are described.
//!
//! `stream` reads events from a daemon, or follows segments in this process.

mod stream;

pub use stream::{EventLine, EventStream, StreamStatus};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use ttmem_core::snapshot::{MemoryEvent, MemoryEventKind, Missed};
use ttmem_core::words::{Basis, Fault, KernelClass, Layout, ProcessId, Scope, Space};
use ttmem_core::{Outcome, State};
use ttmem_sources::{SegmentEvent, SegmentRecord};
use ttmem_types::FailureKind;
use ttmem_wire::failure::Failure;
use ttmem_wire::record::{Kind, flags};

/// Which events are requested. JSON leaves out what has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EventQuery {
    /// Whether new events follow, as they happen, until the connection is closed.
    #[serde(skip_serializing_if = "is_default")]
    pub follow: bool,
    /// Only events since this time. By default, those that are still known; with `follow`, only new ones.
    #[serde(skip_serializing_if = "is_default")]
    pub since: Option<Timestamp>,
    /// Only events of these processes, and all if there are none. So for the next two.
    #[serde(skip_serializing_if = "is_default")]
    pub pids: Vec<u32>,
    /// Only events of these devices, by index.
    #[serde(skip_serializing_if = "is_default")]
    pub devices: Vec<u32>,
    /// Only events of these kinds.
    #[serde(skip_serializing_if = "is_default")]
    pub kinds: Vec<MemoryEventKind>,
    /// Whether events that change program memory have the levels of their devices.
    #[serde(skip_serializing_if = "is_default")]
    pub levels: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl EventQuery {
    /// Whether an event is requested.
    pub fn matches(&self, event: &MemoryEvent) -> bool {
        self.since.is_none_or(|since| event.at >= since) && self.matches_new(event)
    }

    /// Whether an event that has just happened is requested. Its time does not matter: clocks can be set. A gap may have had any
    /// event of its process.
    pub fn matches_new(&self, event: &MemoryEvent) -> bool {
        let is_gap = event.kind == MemoryEventKind::Gap;
        let pid = event.pid.map(i64::from).or(event.reported_pid);
        let of_device = || event.indexes.iter().any(|index| self.devices.contains(index));
        (self.pids.is_empty() || self.pids.iter().any(|&wanted| pid == Some(wanted.into())))
            && (self.devices.is_empty() || is_gap || event.indexes.is_empty() || of_device())
            && (self.kinds.is_empty() || is_gap || self.kinds.contains(&event.kind))
    }
}

/// Receives events as they are read.
pub struct EventConsumer<'a> {
    /// Takes one event, and whether it has happened since the last poll. Otherwise it was in the ring of a new segment.
    pub take: &'a mut dyn FnMut(MemoryEvent, bool),
    /// Whether events that change program memory have the levels of their devices.
    pub levels: bool,
}

impl EventConsumer<'_> {
    /// Returns a consumer that hands its events to this one.
    pub fn reborrow(&mut self) -> EventConsumer<'_> {
        EventConsumer { take: &mut *self.take, levels: self.levels }
    }
}

/// An event of a process on this basis, with the names that are known of the process.
pub fn process_event(
    state: &State,
    process: ProcessId,
    basis: Basis,
    kind: MemoryEventKind,
    at: Timestamp,
) -> MemoryEvent {
    let info = state.process(process);
    MemoryEvent {
        pid: (process.pid != 0).then_some(process.pid),
        reported_pid: info.and_then(|info| info.reported_pid),
        process_name: info.and_then(|info| info.name.clone()),
        owner: info.and_then(|info| info.uid),
        ..MemoryEvent::new(at, kind, basis)
    }
}

/// Describes what was read from a segment. `outcome` is that of the record's input, if it was applied.
pub(crate) fn describe(
    state: &State,
    process: ProcessId,
    event: &SegmentEvent<'_>,
    outcome: Option<Outcome>,
    levels: bool,
) -> MemoryEvent {
    match event {
        SegmentEvent::Gap(gap) => MemoryEvent {
            missed: Some(Missed {
                count: gap.last - gap.first + 1,
                first: Some(gap.first),
                last: Some(gap.last),
            }),
            ..process_event(state, process, Basis::Exact, MemoryEventKind::Gap, gap.at)
        },
        SegmentEvent::Record(record) => describe_record(state, process, record, outcome, levels),
    }
}

fn describe_record(
    state: &State,
    process: ProcessId,
    read: &SegmentRecord<'_>,
    outcome: Option<Outcome>,
    levels: bool,
) -> MemoryEvent {
    use MemoryEventKind as To;

    let record = read.record;
    let has = |flag: u16| record.flags.get() & flag != 0;
    let known = Kind::from_byte(record.kind);
    let space = record.space();
    let is_program = space.is_some_and(Space::is_program);
    let kind = match (known, space) {
        (Some(Kind::Alloc), Some(Space::Kernel)) => To::KernelLoaded,
        (Some(Kind::Free), Some(Space::Kernel)) => To::KernelUnloaded,
        (Some(Kind::Alloc), Some(_)) if is_program => To::Placed,
        (Some(Kind::Free), Some(_)) if is_program => To::Displaced,
        (Some(Kind::Alloc), Some(_)) => To::Allocated,
        (Some(Kind::Free), Some(_)) => To::Freed,
        (Some(Kind::ProgramBegin), _) => To::ProgramBuilt,
        (Some(Kind::Dispatch), _) => To::ProgramDispatched,
        (Some(Kind::ProgramEnd), _) => To::ProgramEnded,
        (Some(Kind::Trace), _) if record.padding.get() > 0 => To::TraceReplayed,
        (Some(Kind::Trace), _) => To::TraceCaptured,
        (Some(Kind::TraceEnd), _) => To::TraceReleased,
        (Some(Kind::AllocatorBegin), _) => To::AllocatorOpened,
        (Some(Kind::AllocatorEnd), _) if has(flags::CLEARED) => To::AllocatorCleared,
        (Some(Kind::AllocatorEnd), _) => To::AllocatorClosed,
        (Some(Kind::OutOfMemory), _) => To::OutOfMemory,
        (Some(Kind::Failure), _) => To::Failed,
        (Some(Kind::Refused), _) => To::Refused,
        (Some(Kind::Audit), _) => To::Audited,
        (Some(Kind::PeakReset), _) => To::PeakReset,
        (Some(Kind::Mark), _) => To::Marked,
        // A kind or space of a later version.
        (None, _) | (Some(Kind::Alloc | Kind::Free), None) => To::Other,
    };
    let mut event = MemoryEvent {
        sequence: Some(record.sequence.get()),
        indexes: state.device_indexes(read.chips),
        allocator: Some(read.allocator),
        space,
        ..process_event(state, process, Basis::Exact, kind, read.at)
    };
    let scope = Scope::Allocator(read.allocator);
    let of_program = matches!(kind, To::ProgramBuilt | To::ProgramDispatched | To::ProgramEnded);
    let is_failure = kind == To::Failed;
    if record.program.get() != 0 && (is_program || of_program || is_failure) {
        // The site of a program is its description.
        let site = if of_program { read.site } else { 0 };
        event.program = Some(ttmem_types::program_number(record.program.get()));
        event.program_name =
            state.program_name(process, scope, record.program.get(), site).map(ToOwned::to_owned);
    }
    if read.site != 0 && !of_program {
        event.site_name = state.site_name(process, read.site).map(ToOwned::to_owned);
    }
    let class = Some(record.class()).filter(|&class| class != KernelClass::Unknown);
    match kind {
        To::Allocated | To::Freed | To::Placed | To::Displaced | To::KernelLoaded | To::KernelUnloaded => {
            event.id = Some(hex(record.id.get()));
            event.requested_bytes = Some(record.requested.get());
            event.allocated_bytes = Some(read.allocated_bytes);
            event.layout = Some(record.layout()).filter(|&layout| layout != Layout::Unknown);
            event.kernel = class.filter(|_| space == Some(Space::Kernel));
            event.implied = matches!(known, Some(Kind::Free)) && has(flags::IMPLIED);
        }
        To::ProgramBuilt | To::ProgramDispatched => {
            event.kernel = class;
            event.dispatches = Some(record.requested.get()).filter(|&n| n > 0);
        }
        To::TraceCaptured | To::TraceReplayed => {
            event.id = Some(hex(record.id.get()));
            event.dispatches = Some(record.requested.get());
            event.replays = Some(u64::from(record.padding.get()));
        }
        To::TraceReleased => event.id = Some(hex(record.id.get())),
        To::Marked => event.number = has(flags::MEASURED).then(|| record.id.get()),
        To::OutOfMemory | To::Failed => {
            let failure = Failure::of(record);
            event.failure = failure.map(|it| it.kind);
            event.requested_bytes = failure.map(|it| it.requested).filter(|&bytes| bytes > 0);
            let largest = failure.filter(|it| it.kind == FailureKind::OutOfMemory);
            event.largest_free_bytes_per_bank = largest.and_then(|it| it.available);
        }
        To::Refused => {
            event.id = Some(hex(record.id.get()));
            let fault = Fault::ALL.get(usize::from(record.flags.get()));
            event.fault = fault.map(|fault| fault.name().to_owned());
        }
        To::Audited => {
            event.allocated_bytes = Some(record.id.get());
            event.free_bytes = Some(record.requested.get());
            event.largest_free_bytes_per_bank = Some(record.bytes_per_bank.get());
        }
        _ => {}
    }
    if let Some(Outcome::Reclaimed(reclaimed)) = outcome {
        event.released = Some(reclaimed.into());
    }
    let changes_programs =
        matches!(kind, To::Placed | To::Displaced | To::KernelLoaded | To::KernelUnloaded | To::ProgramEnded);
    if levels && read.is_applied && changes_programs {
        event.levels = read.chips.iter().filter_map(|&chip| state.program_level(chip)).collect();
        event.levels.sort_unstable_by_key(|level| level.index);
    }
    event
}

/// An address or number as JSON has it.
pub fn hex(number: u64) -> String {
    format!("0x{number:x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_selects_events_and_keeps_gaps() {
        let at = Timestamp::from_second(100).unwrap();
        let event = MemoryEvent {
            pid: Some(7),
            indexes: vec![1, 2],
            ..MemoryEvent::new(at, MemoryEventKind::Freed, Basis::Exact)
        };
        let gap = MemoryEvent { pid: Some(7), ..MemoryEvent::new(at, MemoryEventKind::Gap, Basis::Exact) };
        let query = EventQuery {
            since: Some(at),
            pids: vec![7, 8],
            devices: vec![2],
            kinds: vec![MemoryEventKind::Freed],
            ..EventQuery::default()
        };
        assert!(query.matches(&event) && query.matches(&gap));
        assert!(EventQuery::default().matches(&event));
        for other in [
            EventQuery { since: Timestamp::from_second(101).ok(), ..query.clone() },
            EventQuery { pids: vec![8], ..query.clone() },
        ] {
            assert!(!other.matches(&event) && !other.matches(&gap), "{other:?}");
        }
        for other in [
            EventQuery { devices: vec![0], ..query.clone() },
            EventQuery { kinds: vec![MemoryEventKind::Allocated], ..query.clone() },
        ] {
            assert!(!other.matches(&event) && other.matches(&gap), "{other:?}");
        }
    }
}
