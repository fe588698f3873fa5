mod analysis;
mod blocks;
mod event_log;
mod flame;
mod kernels;
mod keyframe;
mod l1_total;
mod leaks;
mod listing;
mod machine;
mod programs;
mod sites;
mod users;
mod warnings;

use super::*;
use crate::Detail;
use crate::core_set::CoreSet;
use crate::input::{
    Alloc, Audit, Banks, Extent, Failure, Free, Program, SensorReading, Site, SiteDefinition, Trace,
};
use crate::machine::{Capacity, Sensors};
use crate::snapshot::{FindingKind, Snapshot};
use crate::testing::Model as State;
use jiff::Timestamp;
use proptest::prelude::*;

const CHIPS: u32 = 3;

fn capacity() -> Capacity {
    Capacity {
        dram_bytes: 12 << 30,
        dram_channels: 6,
        dram_bytes_per_channel: 2 << 30,
        l1_bytes: 64 * 1_499_136,
        cores: 64,
        l1_bytes_per_core: 1_499_136,
        dram_allocatable_bytes: None,
        l1_allocatable_bytes: None,
        origin: CapacityOrigin::Board,
    }
}

fn machine() -> State {
    machine_with(Limits::default())
}

fn machine_with(limits: Limits) -> State {
    let mut state = State::new(limits, 7);
    for index in 0..CHIPS {
        let chip = Chip { capacity: Some(capacity()), ..Chip::unknown(index) };
        state.apply(Mono(0), Origin::Machine, Input::Chip(Box::new(chip)));
    }
    state
}

fn chip(index: u32) -> ChipId {
    ChipId::Ordinal(index)
}

fn on(index: u32) -> Scope {
    Scope::Chip(chip(index))
}

fn id(pid: u32) -> ProcessId {
    ProcessId { pid, start: u64::from(pid) * 10 }
}

fn legacy(pid: u32) -> Origin {
    Origin::Process(id(pid), Basis::Reported)
}

fn events(pid: u32) -> Origin {
    Origin::Process(id(pid), Basis::Exact)
}

fn register(state: &mut State, from: Origin) {
    state.apply(Mono(1), from, Input::Registered(Box::default()));
}

/// A call site of which only a text is known.
fn named_site(number: u32, text: &str) -> Input {
    Input::Site(Box::new(SiteDefinition::Site(number, Site { text: text.to_owned(), ..Site::default() })))
}

fn alloc(scope: Scope, space: Space, at: u64, requested: u64) -> Alloc {
    Alloc {
        scope,
        space,
        id: at,
        requested,
        at: None,
        extent: None,
        cores: 0,
        program: 0,
        site: 0,
        layout: crate::words::Layout::Unknown,
        class: KernelClass::Application,
        uncertainty: crate::words::Uncertainty::default(),
    }
}

fn free(scope: Scope, space: Option<Space>, at: u64) -> Input {
    Input::Free(Free { scope, space, id: at, program: 0, size: None, cores: 0 })
}

fn shot(state: &State) -> Snapshot {
    state.snapshot(Timestamp::UNIX_EPOCH, &Detail::NONE)
}

fn used(state: &State, index: u32, space: Space) -> u64 {
    state.usage_of(chip(index)).used(space).map_or(0, |u| u.0)
}

fn found(state: &State, kind: FindingKind) -> Option<crate::snapshot::Finding> {
    shot(state).findings.into_iter().find(|finding| finding.kind == kind)
}

#[test]
fn equal_allocation_adds_a_reference() {
    let mut state = machine();
    register(&mut state, legacy(1));
    let it = Input::Alloc(alloc(on(0), Space::Dram, 0x1000, 4096));
    for references in 1..=3 {
        assert_eq!(state.apply(Mono(2), legacy(1), it.clone()), Outcome::Held { references });
        assert_eq!(used(&state, 0, Space::Dram), 4096);
    }
    for references in (0..3).rev() {
        let released = Outcome::Released {
            space: Space::Dram,
            bytes: 4096,
            references,
            class: KernelClass::Application,
        };
        assert_eq!(state.apply(Mono(3), legacy(1), free(on(0), None, 0x1000)), released);
    }
    assert_eq!(used(&state, 0, Space::Dram), 0);
    let twice = state.apply(Mono(4), legacy(1), free(on(0), None, 0x1000));
    assert_eq!(twice, Outcome::NotHeld { freed_before: true });
    let never = state.apply(Mono(4), legacy(1), free(on(0), None, 0x9999));
    assert_eq!(never, Outcome::NotHeld { freed_before: false });
    assert_eq!(found(&state, FindingKind::DoubleFree).unwrap().count, 1);
    assert_eq!(found(&state, FindingKind::UnknownFree).unwrap().count, 1);
}

#[test]
fn reallocation_with_another_size_replaces() {
    let mut state = machine();
    register(&mut state, legacy(1));
    state.apply(Mono(2), legacy(1), Input::Alloc(alloc(on(0), Space::L1, 0x1000, 524_288)));
    let again = state.apply(Mono(3), legacy(1), Input::Alloc(alloc(on(0), Space::L1, 0x1000, 98_304)));
    assert_eq!(again, Outcome::Replaced { old_bytes: 524_288 });
    assert_eq!(used(&state, 0, Space::L1), 98_304);
    assert!(found(&state, FindingKind::Replaced).is_some());
}

#[test]
fn ambiguous_free_frees_the_newest() {
    let mut state = machine();
    register(&mut state, legacy(1));
    state.apply(Mono(2), legacy(1), Input::Alloc(alloc(on(0), Space::L1, 0x1000, 10)));
    state.apply(Mono(2), legacy(1), Input::Alloc(alloc(on(0), Space::Dram, 0x1000, 20)));
    state.apply(Mono(3), legacy(1), free(on(0), None, 0x1000));
    assert_eq!((used(&state, 0, Space::L1), used(&state, 0, Space::Dram)), (10, 0));
    assert!(found(&state, FindingKind::AmbiguousFree).is_some());
}

#[test]
fn circular_buffers_count_the_union_of_their_ranges() {
    let mut state = machine();
    register(&mut state, legacy(1));
    for (at, size) in [(0x1000, 4096), (0x1000, 8192), (0x2000, 4096), (0x8000, 100)] {
        state.apply(Mono(2), legacy(1), Input::Alloc(alloc(on(0), Space::Cb, at, size)));
    }
    let cb = state.usage_of(chip(0)).cb.unwrap();
    assert_eq!((cb.registered_bytes, cb.resident_bytes, cb.count), (8192 + 100, None, Some(4)));
    let shrink = Input::Free(Free {
        scope: on(0),
        space: Some(Space::Cb),
        id: 0x1000,
        program: 0,
        size: Some(8192),
        cores: 0,
    });
    state.apply(Mono(3), legacy(1), shrink);
    // 0x1000..0x2000 and 0x2000..0x3000 remain.
    assert_eq!(state.usage_of(chip(0)).cb.unwrap().registered_bytes, 8192 + 100);
}

fn mesh(number: u32, chips: &[u32]) -> Input {
    Input::Allocator(Allocator {
        id: number,
        chips: chips.iter().map(|&c| chip(c)).collect(),
        spaces: vec![Banks { space: Space::Dram, banks: 12, base: 1000, bytes_per_bank: 100_000 }],
    })
}

fn banked(number: u32, at: u64, per_bank: u64) -> Input {
    Input::Alloc(Alloc {
        extent: Some(Extent { occupied: per_bank, bytes_per_bank: per_bank, banks: 12 }),
        ..alloc(Scope::Allocator(number), Space::Dram, at, per_bank)
    })
}

#[test]
fn mesh_buffer_is_one_record_on_every_chip() {
    let mut state = machine();
    register(&mut state, events(1));
    state.apply(Mono(2), events(1), mesh(1, &[0, 1, 2]));
    state.apply(Mono(3), events(1), banked(1, 1000, 2048));
    assert_eq!(state.live_records(), 1);
    for index in 0..3 {
        let dram = state.usage_of(chip(index)).dram.unwrap();
        assert_eq!((dram.requested_bytes, dram.occupied_bytes), (2048, Some(2048)));
        assert_eq!(dram.allocated_bytes, Some(2048 * 12));
        assert_eq!(dram.allocatable_bytes, Some(1_200_000));
        assert_eq!(dram.free_bytes, Some((100_000 - 2048) * 12));
    }
}

#[test]
fn free_blocks_come_from_the_live_ranges() {
    let mut state = machine();
    register(&mut state, events(1));
    state.apply(Mono(2), events(1), mesh(1, &[0]));
    for at in [1000, 11_000, 51_000] {
        state.apply(Mono(3), events(1), banked(1, at, 10_000));
    }
    let largest = |state: &State| state.usage_of(chip(0)).dram.unwrap().largest_free_bytes_per_bank;
    assert_eq!(largest(&state), Some(101_000 - 61_000));
    state.apply(Mono(4), events(1), free(Scope::Allocator(1), Some(Space::Dram), 51_000));
    assert_eq!(largest(&state), Some(101_000 - 21_000));
}

#[test]
fn empty_allocator_is_all_free() {
    let mut state = machine();
    register(&mut state, events(1));
    let spaces = vec![
        Banks { space: Space::Dram, banks: 12, base: 1000, bytes_per_bank: 100_000 },
        Banks { space: Space::Trace, banks: 12, base: 101_000, bytes_per_bank: 500 },
    ];
    state.apply(Mono(2), events(1), Input::Allocator(Allocator { id: 1, chips: vec![chip(0)], spaces }));
    for (space, free) in [(Space::Dram, 100_000), (Space::Trace, 500)] {
        let audit = Audit {
            allocator: 1,
            space,
            allocated_bytes: 0,
            free_bytes: free * 12,
            largest_free_bytes_per_bank: free,
            quiet: true,
            sequence: 1,
        };
        state.apply(Mono(3), events(1), Input::Audit(audit));
    }
    assert!(found(&state, FindingKind::Drift).is_none(), "{:#?}", shot(&state).findings);
}

#[test]
fn overlapping_allocators_are_a_union_and_a_finding() {
    let mut state = machine();
    register(&mut state, events(1));
    state.apply(Mono(2), events(1), mesh(1, &[0, 1]));
    state.apply(Mono(2), events(1), mesh(2, &[1]));
    state.apply(Mono(3), events(1), banked(1, 1000, 2000));
    state.apply(Mono(3), events(1), banked(2, 2000, 2000));
    assert_eq!(state.usage_of(chip(0)).dram.unwrap().allocated_bytes, Some(2000 * 12));
    assert_eq!(state.usage_of(chip(1)).dram.unwrap().allocated_bytes, Some(3000 * 12));
    let aliased = found(&state, FindingKind::Aliased).unwrap();
    assert_eq!((aliased.bytes, aliased.device.as_deref()), (Some(12_000), Some("ordinal-1")));
    state.apply(Mono(4), events(1), Input::AllocatorClosed(2));
    assert_eq!(state.usage_of(chip(1)).dram.unwrap().allocated_bytes, Some(2000 * 12));
    assert!(found(&state, FindingKind::Aliased).is_none());
}

proptest! {
    /// What several allocators hold together does not depend on how often it was asked for before.
    #[test]
    fn allocators_over_one_chip_agree_with_a_bitmap(
        steps in prop::collection::vec((0usize..3, 0u64..90, 1u64..10), 1..60)
    ) {
        const UNIT: u64 = 1000;
        let mut state = machine();
        // Two of one process, one of which is on one chip only, and one of another process.
        let who = [(1, 1, &[0, 1][..]), (1, 2, &[1][..]), (2, 1, &[0, 1][..])];
        register(&mut state, events(1));
        register(&mut state, events(2));
        for (pid, number, chips) in who {
            state.apply(Mono(2), events(pid), mesh(number, chips));
        }
        let mut held: [BTreeMap<u64, u64>; 3] = Default::default();
        for (which, at, len) in steps {
            let (pid, number, _) = who[which];
            let overlaps = |(&other, &size): (&u64, &u64)| other < at + len && at < other + size;
            if held[which].remove(&at).is_some() {
                let gone = free(Scope::Allocator(number), Some(Space::Dram), 1000 + at * UNIT);
                state.apply(Mono(3), events(pid), gone);
            } else if !held[which].iter().any(overlaps) {
                held[which].insert(at, len);
                state.apply(Mono(3), events(pid), banked(number, 1000 + at * UNIT, len * UNIT));
            }
            for chip_number in 0..2 {
                let mut cells = [0u64; 100];
                let here = (0..3).filter(|&n| who[n].2.contains(&chip_number));
                for (&at, &len) in here.flat_map(|n| &held[n]) {
                    cells[at as usize..(at + len) as usize].iter_mut().for_each(|it| *it += 1);
                }
                let Some(dram) = state.usage_of(chip(chip_number)).dram else { continue };
                let taken = cells.iter().filter(|&&it| it > 0).count() as u64;
                let largest = cells.split(|&it| it > 0).map(<[u64]>::len).max().unwrap_or(0) as u64;
                prop_assert_eq!(dram.allocated_bytes, Some(taken * UNIT * 12));
                prop_assert_eq!(dram.free_bytes, Some((100 - taken) * UNIT * 12));
                prop_assert_eq!(dram.largest_free_bytes_per_bank, Some(largest * UNIT));
                let aliased: u64 = cells.iter().map(|it| it.saturating_sub(1)).sum();
                let name = format!("ordinal-{chip_number}");
                let found = shot(&state).findings.into_iter().find(|it| {
                    it.kind == FindingKind::Aliased && it.device.as_deref() == Some(&name)
                });
                prop_assert_eq!(found.and_then(|it| it.bytes), (aliased > 0).then_some(aliased * UNIT * 12));
            }
        }
    }
}

#[test]
fn only_the_best_basis_of_a_process_is_shown() {
    let mut state = machine();
    register(&mut state, legacy(1));
    state.apply(Mono(2), legacy(1), Input::Alloc(alloc(on(0), Space::Dram, 1000, 2048)));
    state.apply(Mono(2), events(1), mesh(1, &[0]));
    state.apply(Mono(3), events(1), banked(1, 1000, 2048));
    let dram = state.usage_of(chip(0)).dram.unwrap();
    assert_eq!((dram.basis, dram.count, dram.used_bytes), (Basis::Exact, Some(1), 2048 * 12));
    let counters = Origin::Process(id(2), Basis::Counters);
    register(&mut state, counters);
    state.apply(Mono(4), counters, Input::Levels(ChipId::Ordinal(1), vec![(Space::Dram, 77)]));
    let dram = state.usage_of(chip(1)).dram.unwrap();
    assert_eq!((dram.basis, dram.used_bytes, dram.allocated_bytes), (Basis::Counters, 77, None));
}

fn dispatched(scope: Scope, id: u32) -> Input {
    let class = KernelClass::Application;
    Input::Program(Program { scope, id, cores: 0, site: 0, class, dispatches: 1, dispatched: Some(Mono(0)) })
}

#[test]
fn last_dispatched_program_is_resident() {
    let mut state = machine();
    register(&mut state, events(1));
    state.apply(Mono(2), events(1), mesh(1, &[0]));
    let scope = Scope::Allocator(1);
    state.apply(Mono(2), events(1), Input::Cores(1, CoreSet::rectangle((0, 0), (3, 0))));
    state.apply(Mono(2), events(1), Input::Cores(2, CoreSet::rectangle((2, 0), (3, 0))));
    for (program, cores, size) in [(1, 1, 4096), (2, 2, 8192)] {
        let cb = Alloc { program, cores, ..alloc(scope, Space::Cb, 0x1000, size) };
        state.apply(Mono(3), events(1), Input::Alloc(cb));
    }
    let cb = |state: &State| {
        let cb = state.usage_of(chip(0)).cb.unwrap();
        (cb.registered_bytes, cb.resident_bytes.unwrap())
    };
    let registered = 2 * 4096 + 2 * 8192;
    assert_eq!(cb(&state), (registered, 0));
    state.apply(Mono(4), events(1), dispatched(scope, 1));
    assert_eq!(cb(&state), (registered, 4 * 4096));
    state.apply(Mono(5), events(1), dispatched(scope, 2));
    assert_eq!(cb(&state), (registered, 2 * 4096 + 2 * 8192));
    state.apply(Mono(6), events(1), Input::ProgramEnded(scope, 2));
    // Of the programs that are left, the first is the last that was dispatched there.
    assert_eq!(cb(&state), (4 * 4096, 4 * 4096));
}

#[test]
fn audit_is_compared_only_if_quiet() {
    let mut state = machine();
    register(&mut state, events(1));
    state.apply(Mono(2), events(1), mesh(1, &[0]));
    state.apply(Mono(3), events(1), banked(1, 1000, 2048));
    let audit = |allocated_bytes, largest: u64, quiet| {
        Input::Audit(Audit {
            allocator: 1,
            space: Space::Dram,
            allocated_bytes,
            free_bytes: (100_000 - 2048) * 12,
            largest_free_bytes_per_bank: largest,
            quiet,
            sequence: 1,
        })
    };
    state.apply(Mono(4), events(1), audit(0, 0, false));
    assert!(found(&state, FindingKind::Drift).is_none());
    assert!(!shot(&state).processes[0].audit[0].compared);
    state.apply(Mono(4), events(1), audit(2048 * 12, 97_952, true));
    let result = shot(&state).processes[0].audit[0].clone();
    assert_eq!((result.drift_bytes, result.free_drift_bytes), (0, Some(0)));
    assert_eq!(result.largest_free_drift_bytes, Some(0));
    assert!(found(&state, FindingKind::Drift).is_none());
    state.apply(Mono(4), events(1), audit(2048 * 12 + 5, 97_952, true));
    assert_eq!(shot(&state).processes[0].audit[0].drift_bytes, -5);
    assert_eq!(found(&state, FindingKind::Drift).unwrap().bytes, Some(5));
    state.apply(Mono(4), events(1), audit(2048 * 12, 97_000, true));
    assert_eq!(shot(&state).processes[0].audit[0].largest_free_drift_bytes, Some(952));
    assert!(found(&state, FindingKind::Drift).is_some());
}

#[test]
fn reused_pool_number_has_no_old_figures() {
    let mut state = machine();
    for (pid, size) in [(2, 1000), (3, 2000)] {
        register(&mut state, legacy(pid));
        state.apply(Mono(2), legacy(pid), Input::Alloc(alloc(on(0), Space::Cb, u64::from(pid) << 20, size)));
    }
    assert_eq!(used(&state, 0, Space::Cb), 3000);
    state.apply(Mono(3), legacy(2), Input::Exited);
    assert_eq!(used(&state, 0, Space::Cb), 2000);
    register(&mut state, legacy(1));
    let refused = state.apply(Mono(4), legacy(1), Input::Alloc(alloc(on(0), Space::Cb, u64::MAX, 5)));
    assert_eq!(refused, Outcome::Refused(Fault::BeyondAddresses));
    assert_eq!(used(&state, 0, Space::Cb), 2000);
    state.apply(Mono(4), legacy(1), Input::Alloc(alloc(on(0), Space::Cb, 0, 5)));
    assert_eq!(used(&state, 0, Space::Cb), 2005);
}

#[test]
fn new_layout_changes_free_space() {
    let mut state = machine();
    register(&mut state, events(1));
    state.apply(Mono(2), events(1), mesh(1, &[0]));
    state.apply(Mono(3), events(1), banked(1, 1000, 2048));
    let free = |state: &State| state.usage_of(chip(0)).dram.unwrap().free_bytes;
    assert_eq!(free(&state), Some((100_000 - 2048) * 12));
    let Input::Allocator(mut larger) = mesh(1, &[0]) else { unreachable!() };
    larger.spaces[0].bytes_per_bank = 200_000;
    state.apply(Mono(4), events(1), Input::Allocator(larger));
    assert_eq!(free(&state), Some((200_000 - 2048) * 12));
}

#[test]
fn use_over_capacity_is_reported_not_clamped() {
    let mut state = machine();
    register(&mut state, legacy(1));
    state.apply(Mono(2), legacy(1), Input::Alloc(alloc(on(1), Space::L1, 0, 64 * 1_499_136)));
    assert!(found(&state, FindingKind::OverCapacity).is_none());
    state.apply(Mono(2), legacy(1), Input::Alloc(alloc(on(1), Space::L1Small, 0, 1)));
    let over = found(&state, FindingKind::OverCapacity).unwrap();
    assert_eq!((over.bytes, over.device.as_deref()), (Some(1), Some("ordinal-1")));
    // The trace region is DRAM, and does not weigh on L1.
    state.apply(Mono(2), legacy(1), Input::Alloc(alloc(on(0), Space::Trace, 0, 1 << 30)));
    let usage = state.usage_of(chip(0));
    assert_eq!(usage.dram_total.unwrap().capacity_bytes, Some(12 << 30));
    assert!(usage.l1_total.is_none());
}

#[test]
fn limits_refuse_until_something_is_freed() {
    let mut state = machine_with(Limits { records_per_process: 3, records: 4, ..Limits::default() });
    register(&mut state, legacy(1));
    register(&mut state, legacy(2));
    let take = |state: &mut State, pid, at| {
        state.apply(Mono(2), legacy(pid), Input::Alloc(alloc(on(0), Space::Dram, at, 8)))
    };
    for at in 1..=3 {
        assert_eq!(take(&mut state, 1, at), Outcome::Held { references: 1 });
    }
    assert_eq!(take(&mut state, 1, 4), Outcome::Refused(Fault::ProcessLimit));
    assert_eq!(take(&mut state, 1, 3), Outcome::Held { references: 2 }, "no new record");
    take(&mut state, 2, 1);
    assert_eq!(take(&mut state, 2, 2), Outcome::Refused(Fault::TotalLimit));
    state.apply(Mono(3), legacy(1), free(on(0), None, 1));
    assert_eq!(take(&mut state, 2, 2), Outcome::Held { references: 1 });
    assert!(found(&state, FindingKind::Refused).is_some());
    assert_eq!(used(&state, 0, Space::Dram), 4 * 8);
}

#[test]
fn impossible_sizes_are_refused() {
    let mut state = machine();
    register(&mut state, legacy(1));
    for (size, why) in
        [(0, Fault::ZeroSize), (u64::MAX, Fault::TooLarge), (MAX_ALLOCATION_BYTES + 1, Fault::TooLarge)]
    {
        let outcome = state.apply(Mono(2), legacy(1), Input::Alloc(alloc(on(0), Space::Dram, 1, size)));
        assert_eq!(outcome, Outcome::Refused(why));
    }
    let huge = Extent { occupied: 1, bytes_per_bank: u64::MAX, banks: u16::MAX };
    let huge = Alloc { extent: Some(huge), ..alloc(on(0), Space::Dram, 1, 1) };
    assert_eq!(state.apply(Mono(2), legacy(1), Input::Alloc(huge)), Outcome::Refused(Fault::TooLarge));
    let nowhere = alloc(on(99), Space::Dram, 1, 1);
    assert_eq!(state.apply(Mono(2), legacy(1), Input::Alloc(nowhere)), Outcome::Refused(Fault::UnknownChip));
    assert_eq!(state.live_records(), 0);
}

#[test]
fn input_of_exited_process_is_ignored() {
    let mut state = machine();
    register(&mut state, legacy(1));
    let event = Input::Alloc(alloc(on(0), Space::Dram, 1, 8));
    state.apply(Mono(2), legacy(1), event.clone());
    let gone = Reclaimed { buffers: (1, 8), ..Reclaimed::default() };
    assert_eq!(state.apply(Mono(3), legacy(1), Input::Exited), Outcome::Reclaimed(gone));
    assert_eq!(state.apply(Mono(4), legacy(1), event), Outcome::UnknownProcess);
    assert_eq!(state.live_records(), 0);
    assert_eq!(used(&state, 0, Space::Dram), 0);
    assert_eq!(found(&state, FindingKind::Reclaimed).unwrap().bytes, Some(8));
}

#[test]
fn findings_expire_and_peaks_outlive_their_process() {
    let mut state = machine();
    register(&mut state, legacy(1));
    state.apply(Mono(2), legacy(1), Input::Alloc(alloc(on(0), Space::Dram, 1, 800)));
    state.apply(Mono(3), legacy(1), Input::Exited);
    assert!(found(&state, FindingKind::Reclaimed).is_some());
    state.tick(Mono(3 + 601 * Mono::SECOND));
    assert!(found(&state, FindingKind::Reclaimed).is_none());
    register(&mut state, legacy(2));
    state.apply(Mono(4), legacy(2), Input::Alloc(alloc(on(0), Space::Dram, 1, 8)));
    let dram = shot(&state).devices[0].usage.dram.clone().unwrap();
    assert_eq!((dram.used_bytes, dram.peak_bytes), (8, 800));
}

#[test]
fn findings_of_an_exited_process_expire_with_its_exit() {
    let mut state = machine();
    register(&mut state, legacy(1));
    state.apply(Mono(2), legacy(1), Input::Alloc(alloc(on(0), Space::Dram, 1, 800)));
    state.apply(Mono(2), legacy(1), Input::Alloc(alloc(on(0), Space::Dram, 2, 800)));
    for _ in 0..2 {
        state.apply(Mono(3), legacy(1), free(on(0), None, 1));
    }
    let exit = 700 * Mono::SECOND;
    state.apply(Mono(exit - 1), legacy(1), free(on(0), None, 1));
    state.apply(Mono(exit), legacy(1), Input::Exited);
    state.tick(Mono(exit + 599 * Mono::SECOND));
    let kinds: Vec<FindingKind> = shot(&state).findings.iter().map(|it| it.kind).collect();
    assert!(kinds.contains(&FindingKind::Reclaimed) && kinds.contains(&FindingKind::DoubleFree), "{kinds:?}");
    state.tick(Mono(exit + 601 * Mono::SECOND));
    assert_eq!(shot(&state).findings, []);
}

#[test]
fn many_exits_do_not_hide_errors() {
    let mut state = machine();
    for pid in 1..=3000 {
        register(&mut state, legacy(pid));
        state.apply(Mono(2), legacy(pid), Input::Alloc(alloc(on(0), Space::Dram, 1, 8)));
        state.apply(Mono(3), legacy(pid), Input::Exited);
    }
    assert!(found(&state, FindingKind::Truncated).is_some());
    register(&mut state, legacy(9999));
    state.apply(Mono(4), legacy(9999), Input::Alloc(alloc(on(0), Space::Dram, 1, 8)));
    for _ in 0..2 {
        state.apply(Mono(4), legacy(9999), free(on(0), None, 1));
    }
    assert!(found(&state, FindingKind::DoubleFree).is_some());
    assert!(shot(&state).findings.len() <= 1100);
    state.tick(Mono(700 * Mono::SECOND));
    assert!(shot(&state).findings.is_empty());
}

#[test]
fn steady_growth_is_a_finding_until_it_falls() {
    let mut state = machine();
    register(&mut state, legacy(1));
    for second in 1..=90u64 {
        let now = Mono(second * Mono::SECOND);
        state.apply(now, legacy(1), Input::Alloc(alloc(on(0), Space::Dram, second, 100)));
        // Freed at once: coming and going is no growth.
        state.apply(now, legacy(1), Input::Alloc(alloc(on(1), Space::Dram, second, 100)));
        state.apply(now, legacy(1), free(on(1), None, second));
        state.tick(now);
    }
    let leaks: Vec<_> = shot(&state).findings.into_iter().filter(|f| f.kind == FindingKind::Leak).collect();
    assert_eq!(leaks.len(), 1);
    assert_eq!(leaks[0].device.as_deref(), Some("ordinal-0"));
    for second in 1..=90 {
        state.apply(Mono(91 * Mono::SECOND), legacy(1), free(on(0), None, second));
    }
    state.tick(Mono(101 * Mono::SECOND));
    assert!(found(&state, FindingKind::Leak).is_none());
}

#[test]
fn history_is_taken_at_ticks() {
    let mut state = machine();
    register(&mut state, legacy(1));
    for second in 1..=5u64 {
        state.apply(Mono(second), legacy(1), Input::Alloc(alloc(on(0), Space::Trace, second, 100)));
        state.tick(Mono(second * Mono::SECOND));
    }
    state.tick(Mono(6 * Mono::SECOND));
    let at = Timestamp::from_second(1_000).unwrap();
    let history = state.snapshot(at, &Detail { history: true, ..Detail::default() }).devices[0]
        .history
        .clone()
        .unwrap();
    let bytes: Vec<u64> = history.dram_total.iter().map(|s| s.mean_bytes).collect();
    assert_eq!(bytes, [100, 200, 300, 400, 500, 500]);
    assert_eq!(history.dram_total[0].at, Timestamp::from_second(995).unwrap());
    assert_eq!(history.asic_celsius, [], "no sensor was read");
}

#[test]
fn sensors_have_a_history_of_their_readings() {
    let mut state = machine();
    for second in 1..=4u64 {
        let sensors = Sensors { asic_celsius: Some(40.25 + second as f64), ..Sensors::default() };
        let reading = SensorReading { at: Some(Mono(second / 2 * Mono::SECOND)), sensors, why: None };
        state.apply(Mono(second), Origin::Machine, Input::Sensors(chip(0), Box::new(reading)));
        state.tick(Mono(second * Mono::SECOND));
    }
    let at = Timestamp::from_second(1_000).unwrap();
    let history = |since: Option<i64>| {
        let history_since = since.map(|it| Timestamp::from_second(it).unwrap());
        let detail = Detail { history: since.is_none(), history_since, ..Detail::default() };
        state.snapshot(at, &detail).devices[0].history.clone().unwrap()
    };
    // Read at the seconds 0, 1, 1 and 2: three readings.
    let all: Vec<(i64, f64)> =
        history(None).asic_celsius.iter().map(|it| (it.at.as_second(), it.mean)).collect();
    assert_eq!(all, [(997, 41.25), (998, 42.25), (1000, 44.25)]);
    assert_eq!(history(None).power_watts, []);
    assert_eq!(history(Some(998)).asic_celsius.len(), 1);
}

/// The simplest thing that can be right: a list, searched from end to end.
#[derive(Default)]
struct Naive {
    held: Vec<Held>,
}

#[derive(Clone, Debug)]
struct Held {
    pid: u32,
    chip: u32,
    space: Space,
    at: u64,
    size: u64,
    refs: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Alloc { pid: u32, chip: u32, space: Space, at: u64, size: u64 },
    Free { pid: u32, chip: u32, space: Option<Space>, at: u64, size: Option<u64> },
    Exit { pid: u32 },
}

impl Naive {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Alloc { pid, chip, space, at, size } => {
                let key = |h: &Held| (h.pid, h.chip, h.space, h.at) == (pid, chip, space, at);
                if let Some(held) = self.held.iter_mut().find(|h| key(h) && h.size == size) {
                    held.refs += 1;
                    return;
                }
                if space != Space::Cb {
                    self.held.retain(|h| !key(h));
                }
                self.held.push(Held { pid, chip, space, at, size, refs: 1 });
            }
            Step::Free { pid, chip, space, at, size } => {
                let fits = |h: &Held| {
                    (h.pid, h.chip, h.at) == (pid, chip, at)
                        && space.map_or(Space::BUFFERS.contains(&h.space), |s| s == h.space)
                };
                let newest = |sized: bool| {
                    self.held.iter().rposition(|h| fits(h) && (!sized || size.is_none_or(|s| s == h.size)))
                };
                if let Some(index) = newest(true).or_else(|| newest(false)) {
                    self.held[index].refs -= 1;
                    if self.held[index].refs == 0 {
                        self.held.remove(index);
                    }
                }
            }
            Step::Exit { pid } => self.held.retain(|h| h.pid != pid),
        }
    }

    /// Bytes at addresses of a chip's space that several processes hold: all but the largest of each.
    fn aliased(&self) -> u64 {
        let mut places: BTreeMap<(u32, Space, u64), Vec<u64>> = BTreeMap::new();
        for held in self.held.iter().filter(|held| !held.space.is_program()) {
            places.entry((held.chip, held.space, held.at)).or_default().push(held.size);
        }
        places.values().map(|sizes| sizes.iter().sum::<u64>() - sizes.iter().max().unwrap()).sum()
    }

    fn used(&self, pid: Option<u32>, chip: u32, space: Space) -> u64 {
        let of = |h: &&Held| pid.is_none_or(|pid| pid == h.pid) && h.chip == chip && h.space == space;
        let held = self.held.iter().filter(of);
        if space == Space::Cb {
            let mut bytes = std::collections::BTreeSet::new();
            held.for_each(|h| bytes.extend(h.at..h.at + h.size));
            bytes.len() as u64
        } else {
            held.map(|h| h.size).sum()
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let space = prop::sample::select(vec![
        Space::Dram,
        Space::L1,
        Space::L1Small,
        Space::Trace,
        Space::Cb,
        Space::Kernel,
    ]);
    let (pid, chip, at, size) = (1u32..4, 0..CHIPS, 0u64..6, 1u64..4);
    let which = prop_oneof![
        2 => Just(None),
        1 => Just(Some(Space::Cb)),
        1 => Just(Some(Space::Kernel)),
        1 => Just(Some(Space::L1)),
    ];
    let step = prop_oneof![
        20 => (pid.clone(), chip.clone(), space, at.clone(), size.clone())
            .prop_map(|(pid, chip, space, at, size)| Step::Alloc { pid, chip, space, at, size }),
        14 => (pid.clone(), chip, which, at, prop::option::of(size))
            .prop_map(|(pid, chip, space, at, size)| Step::Free { pid, chip, space, at, size }),
        1 => pid.prop_map(|pid| Step::Exit { pid }),
    ];
    prop::collection::vec(step, 0..160)
}

fn drive(seed: u64, steps: &[Step], mut check: impl FnMut(&State, &Naive)) -> State {
    let mut state = State::new(Limits::default(), seed);
    for index in 0..CHIPS {
        state.apply(Mono(0), Origin::Machine, Input::Chip(Box::new(Chip::unknown(index))));
    }
    let mut naive = Naive::default();
    for (n, step) in steps.iter().enumerate() {
        // Several steps share one moment, as the messages of one read do.
        let now = Mono(n as u64 / 4);
        let (pid, event) = match *step {
            Step::Alloc { pid, chip, space, at, size } => {
                (pid, Input::Alloc(alloc(on(chip), space, at, size)))
            }
            Step::Free { pid, chip, space, at, size } => {
                (pid, Input::Free(Free { scope: on(chip), space, id: at, program: 0, size, cores: 0 }))
            }
            Step::Exit { pid } => (pid, Input::Exited),
        };
        state.apply(now, legacy(pid), Input::Registered(Box::default()));
        state.apply(now, legacy(pid), event);
        if n % 7 == 0 {
            state.tick(now);
        }
        naive.step(step);
        check(&state, &naive);
    }
    state
}

proptest! {
    #[test]
    fn totals_equal_a_naive_model_after_every_step(steps in steps()) {
        drive(1, &steps, |state, naive| {
            let shot = shot(state);
            for index in 0..CHIPS {
                for space in [Space::Dram, Space::L1, Space::L1Small, Space::Trace, Space::Cb, Space::Kernel] {
                    let expected = naive.used(None, index, space);
                    assert_eq!(used(state, index, space), expected, "chip {index} {space}");
                    let device = &shot.devices[index as usize];
                    assert_eq!(device.usage.used(space).map_or(0, |u| u.0), expected);
                    for process in &shot.processes {
                        let mine = process.usage.iter().find(|u| u.device == device.id);
                        let mine = mine.and_then(|u| u.usage.used(space)).map_or(0, |u| u.0);
                        assert_eq!(mine, naive.used(process.pid, index, space));
                    }
                }
            }
            let aliased: u64 =
                shot.findings.iter().filter(|f| f.kind == FindingKind::Aliased).filter_map(|f| f.bytes).sum();
            assert_eq!(aliased, naive.aliased());
            assert_eq!(state.live_records(), naive.held.len());
            let (all, next) = state.allocations(0, usize::MAX, state.now());
            assert_eq!((all.len(), next), (naive.held.len(), None));
        });
    }

    #[test]
    fn output_does_not_depend_on_the_seed(steps in steps(), seed: u64) {
        let one = serde_json::to_string(&shot(&drive(1, &steps, |_, _| ()))).unwrap();
        let other = serde_json::to_string(&shot(&drive(seed, &steps, |_, _| ()))).unwrap();
        prop_assert_eq!(one, other);
    }

    #[test]
    fn exits_leave_nothing(steps in steps()) {
        let mut state = drive(1, &steps, |_, _| ());
        for pid in 1..4 {
            state.apply(Mono(1000), legacy(pid), Input::Exited);
        }
        prop_assert_eq!(state.live_records(), 0);
        for index in 0..CHIPS {
            let usage = state.usage_of(chip(index));
            prop_assert_eq!(usage, crate::snapshot::Usage::default());
        }
        prop_assert!(shot(&state).processes.is_empty());
    }
}
