//! Applies any events in any order: nothing panics or overflows, and totals are the sums of what is listed.

use arbitrary::{Arbitrary, Unstructured};
use std::collections::BTreeMap;
use ttmem_core::detail::{BufferQuery, ProgramQuery};
use ttmem_core::input::{Alloc, Allocator, Audit, Banks, Extent, Free, Holding, Program};
use ttmem_core::machine::Chip;
use ttmem_core::words::{
    Basis, ChipId, Fault, KernelClass, Layout, Mono, Origin, ProcessId, Scope, Space, Uncertainty,
};
use ttmem_core::{Analysis, CoreSet, Detail, Input, Limits, State};

const ALL: Detail = Detail { history: true, cores: true, programs: true, ..Detail::NONE };

#[derive(Arbitrary, Debug)]
enum Step {
    Started(u8),
    Exited(u8),
    Chip(u8),
    Allocator {
        by: u8,
        number: u8,
        chips: [u8; 2],
        banks: u8,
        base: u8,
        size: u16,
    },
    AllocatorClosed {
        by: u8,
        number: u8,
    },
    Cores {
        by: u8,
        number: u8,
        from: (u8, u8),
        to: (u8, u8),
    },
    Alloc {
        by: u8,
        target: Target,
        id: u64,
        requested: u64,
        extent: Option<(u64, u64, u16)>,
        cores: u8,
        program: u8,
    },
    Small {
        by: u8,
        target: Target,
        id: u8,
        requested: u8,
        cores: u8,
        program: u8,
    },
    Free {
        by: u8,
        target: Target,
        any: bool,
        id: u8,
        program: u8,
        size: Option<u8>,
    },
    Dispatched {
        by: u8,
        target: Target,
        program: u8,
    },
    ProgramEnded {
        by: u8,
        target: Target,
        program: u8,
    },
    Level {
        by: u8,
        target: Target,
        bytes: u64,
    },
    Audit {
        by: u8,
        number: u8,
        space: u8,
        bytes: u64,
        quiet: bool,
    },
    Lost {
        by: u8,
        records: u64,
    },
    Refused(u8),
    Relisted {
        by: u8,
        number: u8,
    },
    Unlisted {
        by: u8,
        target: Target,
        requested: u64,
        allocated: u64,
        count: u64,
    },
    Peak {
        by: u8,
        target: Target,
        bytes: Option<u64>,
    },
    Tick(u32),
}

#[derive(Arbitrary, Debug)]
struct Target {
    allocator: bool,
    number: u8,
    space: u8,
}

impl Target {
    fn scope(&self) -> Scope {
        if self.allocator {
            Scope::Allocator(u32::from(self.number % 4))
        } else {
            Scope::Chip(chip(self.number))
        }
    }
}

fn chip(number: u8) -> ChipId {
    ChipId::Ordinal(u32::from(number % 4))
}

/// An uncertainty from bits that nothing else uses.
fn uncertainty(bits: u8) -> Uncertainty {
    let has = |bit: u8| bits & bit != 0;
    Uncertainty { unplaced: has(0x20), estimated: has(0x40), unfollowed: has(0x80) }
}

fn space(number: u8) -> Space {
    let all: Vec<Space> = Space::BUFFERS.into_iter().chain(Space::PROGRAM).collect();
    all[usize::from(number) % all.len()]
}

fn origin(by: u8) -> Origin {
    let basis = [Basis::Exact, Basis::Counters, Basis::Reported][usize::from(by / 4 % 3)];
    Origin::Process(ProcessId { pid: u32::from(by % 4), start: 0 }, basis)
}

/// Applies the steps that the bytes decode to, and compares totals with what is listed.
pub fn ledger(data: &[u8]) {
    // libFuzzer decodes a typed input in this way.
    if let Ok(steps) = Vec::<Step>::arbitrary_take_rest(Unstructured::new(data)) {
        apply_all(steps);
    }
}

fn apply_all(steps: Vec<Step>) {
    let limits = Limits {
        records_per_process: 50,
        records: 120,
        records_per_user: 100,
        chips: 3,
        definitions: 3,
        ..Limits::default()
    };
    let (mut state, mut analysis) = (State::new(limits, 42), Analysis::default());
    let mut now = Mono(0);
    for step in steps {
        let (from, input) = match step {
            Step::Started(by) => (origin(by), Input::Registered(Box::default())),
            Step::Exited(by) => (origin(by), Input::Exited),
            Step::Chip(number) => {
                (Origin::Machine, Input::Chip(Box::new(Chip::unknown(u32::from(number % 4)))))
            }
            Step::Allocator { by, number, chips, banks, base, size } => {
                let spaces = [Space::Dram, Space::L1].map(|space| Banks {
                    space,
                    banks: u16::from(banks),
                    base: u64::from(base),
                    bytes_per_bank: u64::from(size),
                });
                let id = u32::from(number % 4);
                let chips = chips.map(chip).to_vec();
                (origin(by), Input::Allocator(Allocator { id, chips, spaces: spaces.to_vec() }))
            }
            Step::AllocatorClosed { by, number } => {
                (origin(by), Input::AllocatorClosed(u32::from(number % 4)))
            }
            Step::Cores { by, number, from, to } => {
                (origin(by), Input::Cores(u32::from(number % 4), CoreSet::rectangle(from, to)))
            }
            Step::Alloc { by, target, id, requested, extent, cores, program } => {
                let extent = extent.map(|(occupied, bytes_per_bank, banks)| Extent {
                    occupied,
                    bytes_per_bank,
                    banks,
                });
                let alloc = Alloc {
                    scope: target.scope(),
                    space: space(target.space),
                    id,
                    requested,
                    at: None,
                    extent,
                    cores: u32::from(cores % 4),
                    program: u32::from(program % 4),
                    site: 0,
                    layout: if cores % 5 == 4 { Layout::Mirror } else { Layout::Interleaved },
                    class: KernelClass::Unknown,
                    uncertainty: uncertainty(cores),
                };
                (origin(by), Input::Alloc(alloc))
            }
            Step::Small { by, target, id, requested, cores, program } => {
                let requested = u64::from(requested);
                let alloc = Alloc {
                    scope: target.scope(),
                    space: space(target.space),
                    id: u64::from(id % 8),
                    requested,
                    at: None,
                    extent: Some(Extent { occupied: requested, bytes_per_bank: requested / 2, banks: 3 }),
                    cores: u32::from(cores % 4),
                    program: u32::from(program % 4),
                    site: 0,
                    layout: if cores % 5 == 4 { Layout::Mirror } else { Layout::Interleaved },
                    class: KernelClass::Unknown,
                    uncertainty: uncertainty(cores),
                };
                (origin(by), Input::Alloc(alloc))
            }
            Step::Free { by, target, any, id, program, size } => {
                let free = Free {
                    scope: target.scope(),
                    space: (!any).then(|| space(target.space)),
                    id: u64::from(id % 8),
                    program: u32::from(program % 4),
                    size: size.map(u64::from),
                    cores: u32::from(program % 3),
                };
                (origin(by), Input::Free(free))
            }
            Step::Dispatched { by, target, program } => (
                origin(by),
                Input::Program(Program {
                    scope: target.scope(),
                    id: u32::from(program % 4),
                    cores: u32::from(program / 4 % 4),
                    site: 0,
                    class: KernelClass::Application,
                    dispatches: u64::from(program / 16),
                    dispatched: (program >= 16).then_some(Mono(u64::from(program / 16))),
                }),
            ),
            Step::ProgramEnded { by, target, program } => {
                (origin(by), Input::ProgramEnded(target.scope(), u32::from(program % 4)))
            }
            Step::Level { by, target, bytes } => {
                (origin(by), Input::Levels(chip(target.number), vec![(space(target.space), bytes)]))
            }
            Step::Audit { by, number, space: of, bytes, quiet } => {
                let audit = Audit {
                    allocator: u32::from(number % 4),
                    space: space(of),
                    allocated_bytes: bytes,
                    free_bytes: bytes,
                    largest_free_bytes_per_bank: bytes,
                    quiet,
                    sequence: 1,
                };
                (origin(by), Input::Audit(audit))
            }
            Step::Lost { by, records } => (origin(by), Input::Lost(records)),
            Step::Refused(by) => (origin(by), Input::Fault(Fault::BrokenStream.into())),
            Step::Relisted { by, number } => (origin(by), Input::ListingBegun(u32::from(number % 4))),
            Step::Unlisted { by, target, requested, allocated, count } => {
                let holding = Holding { requested, allocated, count };
                (origin(by), Input::Unlisted { scope: target.scope(), space: space(target.space), holding })
            }
            Step::Peak { by, target, bytes } => {
                (origin(by), Input::Peak { scope: target.scope(), space: space(target.space), bytes })
            }
            Step::Tick(ms) => {
                now = Mono(now.0 + u64::from(ms) * 1_000_000);
                state.tick(&mut analysis, now);
                continue;
            }
        };
        state.apply(&mut analysis, now, from, input);
    }
    check(&state, &mut analysis);
    for by in 0..=255 {
        state.apply(&mut analysis, now, origin(by), Input::Exited);
    }
    assert_eq!(state.live_records(), 0);
    assert!(analysis.snapshot(&state, jiff::Timestamp::UNIX_EPOCH, &ALL).processes.is_empty());
}

fn check(state: &State, analysis: &mut Analysis) {
    let snapshot = analysis.snapshot(state, jiff::Timestamp::UNIX_EPOCH, &ALL);
    let json = serde_json::to_string(&snapshot).expect("a snapshot is JSON");
    let back: ttmem_core::Snapshot = serde_json::from_str(&json).expect("and comes back");
    assert_eq!(back, snapshot);
    let (all, next) = state.allocations(0, usize::MAX, state.now());
    assert_eq!(next, None);
    assert!(all.len() <= state.live_records(), "mirrors are not listed");
    let pages = Detail {
        brief: true,
        events: true,
        buffers: Some(BufferQuery { offset: 3, limit: 10, ..BufferQuery::default() }),
        program_list: Some(ProgramQuery { limit: 10, ..ProgramQuery::default() }),
        ..Detail::NONE
    };
    let page = analysis.snapshot(state, jiff::Timestamp::UNIX_EPOCH, &pages);
    let listed: usize = snapshot.processes.iter().flat_map(|it| &it.programs).map(Vec::len).sum();
    assert_eq!(page.buffers.map(|it| it.count), Some(all.len() as u64));
    assert_eq!(page.programs.map(|it| it.count), Some(listed as u64));
    // Recorded sums are those of the list, for each chip and space.
    let mut sums: BTreeMap<(u32, Space), u64> = BTreeMap::new();
    for allocation in &all {
        let indexes: std::collections::BTreeSet<u32> = allocation.indexes.iter().copied().collect();
        for index in indexes {
            *sums.entry((index, allocation.space)).or_default() += allocation.requested_bytes;
        }
    }
    for device in &snapshot.devices {
        let id = ChipId::Ordinal(device.index);
        for space in Space::BUFFERS.into_iter().chain(Space::PROGRAM) {
            assert_eq!(state.recorded(id, space), sums.get(&(device.index, space)).copied().unwrap_or(0));
        }
        assert_eq!(device.usage.dram_total.as_ref().map(|t| t.used_bytes), {
            let usage = analysis.usage_of(state, id);
            usage.dram_total.map(|t| t.used_bytes)
        });
        for usage in [&device.usage.dram, &device.usage.l1].into_iter().flatten() {
            assert!(usage.peak_bytes >= usage.used_bytes);
            if let (Some(free), Some(all)) = (usage.free_bytes, usage.allocatable_bytes) {
                assert!(free <= all);
            }
        }
        for usage in [&device.usage.cb, &device.usage.dfb, &device.usage.scratch].into_iter().flatten() {
            assert!(usage.resident_bytes.is_none_or(|resident| resident <= usage.registered_bytes));
        }
    }
}
