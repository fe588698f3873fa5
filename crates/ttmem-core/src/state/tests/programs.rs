//! Which programs are resident, what lies on each core, and the most there was.

use super::*;
use crate::detail::CoreQuery;
use crate::input::{Program, Trace};
use crate::machine::CoreLayout;
use crate::snapshot::{Core, CoreAllocation, CoreAllocations, CoreClass, Severity};
use crate::words::{Layout, Uncertainty};

const LAYOUT: CoreLayout = CoreLayout { columns: 4, rows: 2, kernel_config: 16, unreserved: 32, end: 256 };
const L1: Banks = Banks { space: Space::L1, banks: 8, base: 32, bytes_per_bank: 192 };
const SMALL: Banks = Banks { space: Space::L1Small, banks: 8, base: 224, bytes_per_bank: 24 };

/// Chips with cores that are laid out, and processes each with an allocator over all of them.
fn laid_out(chips: u32, processes: u32) -> State {
    let mut state = State::new(Limits::default(), 7);
    for index in 0..chips {
        let chip = Chip { capacity: Some(capacity()), core_layout: Some(LAYOUT), ..Chip::unknown(index) };
        state.apply(Mono(0), Origin::Machine, Input::Chip(Box::new(chip)));
    }
    for pid in 1..=processes {
        register(&mut state, events(pid));
        let chips = (0..chips).map(chip).collect();
        let it = Allocator { id: 1, chips, spaces: vec![L1, SMALL] };
        state.apply(Mono(1), events(pid), Input::Allocator(it));
        for (number, cores) in SETS.into_iter().enumerate().skip(1) {
            let cores = CoreSet::rectangle((cores[0], cores[1]), (cores[2], cores[3]));
            state.apply(Mono(1), events(pid), Input::Cores(number as u32, cores));
        }
    }
    state
}

const MESH: Scope = Scope::Allocator(1);
/// Sets of cores by number, as corners; 0 is none. One is partly beyond the grid.
const SETS: [[u8; 4]; 6] = [[0; 4], [0, 0, 3, 1], [0, 0, 1, 0], [1, 0, 2, 1], [3, 1, 3, 1], [2, 1, 9, 9]];

fn keep(space: Space, program: u32, cores: u32, at: u64, bytes: u64) -> Input {
    let banks = if cores == 0 { 1 } else { 8 };
    Input::Alloc(Alloc {
        program,
        cores,
        extent: Some(Extent { occupied: bytes, bytes_per_bank: bytes, banks }),
        ..alloc(MESH, space, at, bytes)
    })
}

fn dispatch(id: u32, cores: u32, at: u64) -> Input {
    let class = KernelClass::Application;
    let dispatched = Some(Mono(at));
    Input::Program(Program { scope: MESH, id, cores, site: 0, class, dispatches: 1, dispatched })
}

fn full(state: &State) -> Snapshot {
    state.snapshot(Timestamp::UNIX_EPOCH, &Detail { cores: true, programs: true, ..Detail::NONE })
}

fn cores(state: &State, index: usize) -> Vec<Core> {
    full(state).devices[index].cores.clone().unwrap().0
}

fn on_core(state: &State, index: usize, core: Option<[u8; 2]>, limit: u32) -> CoreAllocations {
    let query = CoreQuery { device: index as u32, core, limit };
    let detail = Detail { core: Some(query), ..Detail::NONE };
    state.snapshot(Timestamp::UNIX_EPOCH, &detail).core_allocations.unwrap()
}

fn bytes(core: &Core, class: CoreClass) -> u64 {
    core.intervals.iter().filter(|it| it.class == class).map(|it| it.bytes).sum()
}

#[test]
fn allocations_on_a_core_name_their_owners() {
    let mut state = laid_out(1, 1);
    state.apply(Mono(2), events(1), named_site(7, "model.py:12"));
    state.apply(Mono(2), events(1), Input::ProgramNamed(3, "matmul".to_owned()));
    state.apply(Mono(2), events(1), keep(Space::Cb, 3, 1, 32, 8));
    state.apply(Mono(3), events(1), dispatch(3, 0, 3));
    let Input::Alloc(buffer) = keep(Space::L1, 0, 2, 200, 16) else { unreachable!() };
    state.apply(Mono(4), events(1), Input::Alloc(Alloc { site: 7, ..buffer }));
    let (there, beside) = (on_core(&state, 0, Some([1, 0]), 9), on_core(&state, 0, Some([3, 0]), 9));
    let owners = |it: &CoreAllocations| -> Vec<(CoreClass, u64, u64, Option<u32>)> {
        it.list.iter().map(|it| (it.class, it.start, it.bytes, it.program)).collect()
    };
    let cb = (CoreClass::Cb, 32, 8, Some(3));
    assert_eq!(owners(&there), [cb, (CoreClass::Buffer, 200, 16, None)]);
    assert_eq!(owners(&beside), [cb, (CoreClass::Lockstep, 200, 16, None)]);
    assert_eq!(there.list[0].program_name.as_deref(), Some("matmul"));
    assert_eq!((there.list[1].site_name.as_deref(), there.list[1].pid), (Some("model.py:12"), Some(1)));
    // Without a core, the one with the smallest free gap is meant; a list that is cut says how much there is.
    let first = on_core(&state, 0, None, 1);
    let tightest = shot(&state).devices[0].tightest_core.unwrap();
    assert_eq!((first.x, first.y, first.count), (tightest.x, tightest.y, 2));
    assert_eq!(owners(&first), [cb]);
    let none = Detail { core: Some(CoreQuery { device: 5, core: None, limit: 1 }), ..Detail::NONE };
    assert_eq!(state.snapshot(Timestamp::UNIX_EPOCH, &none).core_allocations, None);
}

/// A runtime counts its programs from 0, which is no key of a record.
#[test]
fn first_program_of_a_runtime_is_program_0_on_its_cores() {
    let mut state = laid_out(1, 1);
    let key = ttmem_types::program_key(0);
    state.apply(Mono(2), events(1), keep(Space::Cb, key, 1, 32, 8));
    state.apply(Mono(3), events(1), dispatch(key, 0, 3));
    assert_eq!(on_core(&state, 0, Some([1, 0]), 9).list[0].program, Some(0));
    assert_eq!(cores(&state, 0)[0].program.as_ref().map(|it| it.id), Some(0));
}

#[test]
fn program_without_memory_replaces_others() {
    let mut state = laid_out(1, 1);
    state.apply(Mono(2), events(1), keep(Space::Cb, 1, 1, 32, 8));
    state.apply(Mono(3), events(1), dispatch(1, 0, 3));
    assert_eq!(state.usage_of(chip(0)).cb.unwrap().resident_bytes, Some(8 * 8));
    state.apply(Mono(4), events(1), dispatch(2, 2, 4));
    assert_eq!(state.usage_of(chip(0)).cb.unwrap().resident_bytes, Some(6 * 8));
    let programs = full(&state).processes[0].programs.clone().unwrap();
    assert_eq!(programs.iter().map(|it| it.resident_cores).collect::<Vec<_>>(), [6, 2]);
}

#[test]
fn dispatch_of_another_process_replaces() {
    let mut state = laid_out(2, 2);
    for pid in [1, 2] {
        state.apply(Mono(2), events(pid), keep(Space::Cb, 1, 1, 32, 8 * u64::from(pid)));
    }
    // Reported in another order than it happened.
    state.apply(Mono(9), events(2), dispatch(1, 0, 9));
    state.apply(Mono(9), events(1), dispatch(1, 0, 8));
    for index in 0..2 {
        assert_eq!(state.usage_of(chip(index)).cb.unwrap().resident_bytes, Some(8 * 16));
    }
    let resident =
        |shot: &Snapshot, n: usize| shot.processes[n].usage[0].usage.cb.clone().unwrap().resident_bytes;
    assert_eq!((resident(&shot(&state), 0), resident(&shot(&state), 1)), (Some(0), Some(8 * 16)));
    state.apply(Mono(10), events(2), Input::Exited);
    assert_eq!(resident(&shot(&state), 0), Some(8 * 8), "what is left was dispatched last");
}

#[test]
fn kernels_add_up() {
    let mut state = laid_out(1, 1);
    for (id, program, cores) in [(1u64, 1, 1), (2, 1, 1), (3, 2, 2)] {
        state.apply(Mono(2), events(1), keep(Space::Kernel, program, cores, id, 100));
    }
    let kernel = |state: &State| {
        let it = state.usage_of(chip(0)).kernel.unwrap();
        (it.registered_bytes, it.resident_bytes)
    };
    assert_eq!(kernel(&state), (3 * 8 * 100, Some(0)));
    state.apply(Mono(3), events(1), dispatch(1, 0, 3));
    assert_eq!(kernel(&state), (2400, Some(8 * 200)));
    state.apply(Mono(4), events(1), dispatch(2, 0, 4));
    assert_eq!(kernel(&state), (2400, Some(6 * 200 + 2 * 100)));
    assert_eq!(state.usage_of(chip(0)).l1_total.unwrap().used_bytes, 1400);
    // A kernel without a size on each core.
    let vague = Alloc { program: 1, cores: 1, ..alloc(MESH, Space::Kernel, 9, 7) };
    state.apply(Mono(5), events(1), Input::Alloc(vague));
    assert_eq!(kernel(&state), (2407, None));
}

fn with_uncertainty(event: &Input, uncertainty: Uncertainty) -> Input {
    let Input::Alloc(alloc) = event else { unreachable!() };
    Input::Alloc(Alloc { uncertainty, ..*alloc })
}

const UNPLACED: Uncertainty = Uncertainty { unplaced: true, estimated: false, unfollowed: true };
const UNFOLLOWED: Uncertainty = Uncertainty { unplaced: false, ..UNPLACED };

#[test]
fn unreported_dispatches_leave_residency_unknown() {
    let mut state = laid_out(1, 1);
    let usage = |state: &State| {
        let cb = state.usage_of(chip(0)).cb.unwrap();
        (cb.registered_bytes, cb.resident_bytes, cb.residency_unknown_bytes, cb.used_bytes())
    };
    // On cores 1,0 to 2,1, where also the others may lie.
    state.apply(Mono(2), events(1), with_uncertainty(&keep(Space::Cb, 0, 3, 40, 10), UNFOLLOWED));
    state.apply(Mono(2), events(1), with_uncertainty(&keep(Space::Cb, 0, 3, 45, 10), UNFOLLOWED));
    assert_eq!(usage(&state), (4 * 15, None, 0, 60), "where they overlap they count once");
    // Beside others it takes nothing from what is known of those.
    state.apply(Mono(3), events(1), keep(Space::Cb, 1, 1, 40, 8));
    assert_eq!(usage(&state), (60 + 4 * 8, Some(0), 60, 60));
    state.apply(Mono(4), events(1), dispatch(1, 0, 4));
    assert_eq!(usage(&state), (92, Some(64), 28, 92), "what is resident lies over a part of it");
    let rooms = cores(&state, 0);
    assert!(rooms.iter().all(|core| bytes(core, CoreClass::Cb) == 8), "and is on no map of what is there");
    assert!(full(&state).processes[0].programs.as_ref().unwrap().iter().all(|it| it.id != 0));
}

#[test]
fn unplaced_memory_counts_in_addition() {
    let mut state = laid_out(1, 1);
    for (id, bytes) in [(1, 10), (2, 10), (3, 5)] {
        state.apply(Mono(2), events(1), with_uncertainty(&keep(Space::Cb, 7, 1, id, bytes), UNPLACED));
    }
    let cb = state.usage_of(chip(0)).cb.unwrap();
    assert_eq!((cb.registered_bytes, cb.resident_bytes, cb.count), (8 * 25, None, Some(3)));
    let program = full(&state).processes[0].programs.as_ref().unwrap()[0].clone();
    assert_eq!((program.cb_bytes, program.end, program.residency_unknown), (200, None, true));
    assert!(program.placements.iter().all(|it| it.address.is_none()));
    let (listed, _) = state.allocations(0, usize::MAX, state.now());
    assert!(listed.iter().all(|it| it.unplaced && !it.estimated));
    // Programs lie over each other: on each core the one with the most counts.
    state.apply(Mono(2), events(1), with_uncertainty(&keep(Space::Cb, 8, 2, 1, 30), UNPLACED));
    assert_eq!(state.usage_of(chip(0)).cb.unwrap().registered_bytes, 2 * 30 + 6 * 25);
    state.apply(Mono(2), events(1), Input::ProgramEnded(MESH, 8));
    // Even if it is dispatched after all, no map shows it anywhere.
    state.apply(Mono(3), events(1), dispatch(7, 0, 3));
    let core = &cores(&state, 0)[0];
    assert_eq!((core.room.program_end, core.room.registered_end), (LAYOUT.unreserved, LAYOUT.unreserved));
    assert_eq!(bytes(core, CoreClass::Cb), 0);
}

#[test]
fn estimates_are_marked() {
    let mut state = laid_out(1, 1);
    let estimated = Uncertainty { estimated: true, unfollowed: true, ..Uncertainty::default() };
    state.apply(Mono(2), events(1), keep(Space::Kernel, 1, 1, 1, 100));
    state.apply(Mono(2), events(1), with_uncertainty(&keep(Space::Kernel, 1, 1, 2, 50), estimated));
    let vague = Input::Alloc(Alloc { program: 0, ..alloc(MESH, Space::Kernel, 9, 7) });
    state.apply(Mono(2), events(1), with_uncertainty(&vague, estimated));
    let kernel = |state: &State| state.usage_of(chip(0)).kernel.unwrap();
    let it = kernel(&state);
    assert_eq!((it.registered_bytes, it.estimated_bytes, it.resident_bytes), (1207, 407, Some(0)));
    state.apply(Mono(3), events(1), dispatch(1, 0, 3));
    assert_eq!(
        kernel(&state).resident_bytes,
        Some(800),
        "those that are known are resident, whatever else there is"
    );
    let (listed, _) = state.allocations(0, usize::MAX, state.now());
    assert_eq!(listed.iter().map(|it| it.estimated).collect::<Vec<_>>(), [false, true, true]);
    let Input::Alloc(of) = vague else { unreachable!() };
    let free = Free { scope: of.scope, space: Some(of.space), id: 9, program: 0, size: Some(7), cores: 0 };
    state.apply(Mono(4), events(1), Input::Free(free));
    assert_eq!(kernel(&state).estimated_bytes, 400);
}

#[test]
fn views_count_nothing_but_are_listed() {
    let mut state = laid_out(1, 1);
    let Input::Alloc(cb) = keep(Space::Cb, 1, 1, 200, 16) else { unreachable!() };
    state.apply(Mono(2), events(1), Input::Alloc(Alloc { layout: Layout::View, ..cb }));
    state.apply(Mono(3), events(1), dispatch(1, 0, 3));
    let cb = state.usage_of(chip(0)).cb.unwrap();
    assert_eq!((cb.registered_bytes, cb.resident_bytes, cb.count), (0, Some(0), Some(0)));
    let (listed, _) = state.allocations(0, usize::MAX, state.now());
    assert_eq!(listed.iter().map(|it| it.layout).collect::<Vec<_>>(), [Some(Layout::View)]);
    let program = full(&state).processes[0].programs.as_ref().unwrap()[0].clone();
    assert_eq!((program.view_count, program.cb_bytes, program.end), (1, 0, None));
    assert!(program.placements[0].view);
    assert!(cores(&state, 0).iter().all(|core| bytes(core, CoreClass::Cb) == 0));
    let room = cores(&state, 0)[0].room;
    assert_eq!((room.program_end, room.registered_end), (LAYOUT.unreserved, LAYOUT.unreserved));
}

#[test]
fn later_of_two_simultaneous_dispatches_counts() {
    for (first, second) in [(1, 2), (2, 1)] {
        let mut state = laid_out(2, 1);
        state.apply(Mono(3), events(1), dispatch(first, 1, 3));
        state.apply(Mono(3), events(1), dispatch(second, 1, 3));
        let programs = full(&state).processes[0].programs.clone().unwrap();
        let resident: Vec<_> = programs.iter().filter(|it| it.resident_cores > 0).collect();
        assert_eq!(
            resident.iter().map(|it| (it.id, it.resident_cores)).collect::<Vec<_>>(),
            [(second, 2 * 8)]
        );
    }
}

#[test]
fn program_is_listed_from_its_first_memory() {
    let mut state = laid_out(1, 1);
    state.apply(Mono(2), events(1), keep(Space::Cb, 5, 1, 100, 8));
    state.apply(Mono(2), events(1), keep(Space::Scratch, 5, 1, 40, 8));
    let of = |state: &State| full(state).processes[0].programs.as_ref().unwrap()[0].clone();
    assert_eq!((of(&state).id, of(&state).dispatches, of(&state).name), (5, 0, None));
    assert_eq!(
        of(&state).placements.iter().map(|placement| placement.address).collect::<Vec<_>>(),
        [Some(40), Some(100)]
    );
    let Input::Program(program) = dispatch(5, 0, 3) else { unreachable!() };
    state.apply(Mono(3), events(1), Input::Program(Program { site: 9, ..program }));
    state.apply(Mono(3), events(1), named_site(9, "reader+writer"));
    assert_eq!(of(&state).name.as_deref(), Some("reader+writer"), "what it is made of");
    state.apply(Mono(4), events(1), Input::ProgramNamed(5, "matmul".to_owned()));
    assert_eq!(of(&state).name.as_deref(), Some("matmul"));
}

#[test]
fn memory_without_addresses_is_not_resident() {
    let mut state = laid_out(1, 0);
    register(&mut state, legacy(9));
    state.apply(Mono(2), legacy(9), Input::Alloc(alloc(on(0), Space::Cb, 32, 8)));
    assert!(shot(&state).devices[0].tightest_core.is_none(), "nobody tells what is there");
    assert_eq!(state.usage_of(chip(0)).cb.unwrap().resident_bytes, None);
    register(&mut state, events(1));
    state.apply(Mono(3), events(1), Input::Alloc(alloc(on(0), Space::Cb, 32, 8)));
    let cb = state.usage_of(chip(0)).cb.unwrap();
    assert_eq!((cb.basis, cb.resident_bytes), (Basis::Reported, None), "no better than the vaguest");
}

#[test]
fn allocator_without_banks_is_a_set_of_chips() {
    let mut state = laid_out(2, 1);
    let part = Allocator { id: 2, chips: vec![chip(1)], spaces: Vec::new() };
    state.apply(Mono(2), events(1), Input::Allocator(part));
    let Input::Alloc(cb) = keep(Space::Cb, 5, 1, 32, 8) else { unreachable!() };
    let scope = Scope::Allocator(2);
    state.apply(Mono(3), events(1), Input::Alloc(Alloc { scope, ..cb }));
    state.apply(Mono(3), events(1), dispatched(scope, 5));
    let shot = full(&state);
    assert_eq!(shot.processes[0].allocators.len(), 1);
    assert!(shot.devices[0].usage.cb.is_none());
    assert_eq!(shot.devices[1].usage.cb.as_ref().unwrap().resident_bytes, Some(8 * 8));
    let program = &shot.processes[0].programs.as_ref().unwrap()[0];
    assert_eq!((program.allocator, &program.indexes[..]), (Some(2), &[1][..]));
}

#[test]
fn tightest_core_has_the_smallest_gap() {
    let mut state = laid_out(1, 1);
    let room = |state: &State| shot(state).devices[0].tightest_core.unwrap();
    assert_eq!(
        (room(&state).x, room(&state).y, room(&state).free_gap_bytes),
        (0, 0, 224 - 32),
        "nothing is there"
    );
    state.apply(Mono(2), events(1), keep(Space::Cb, 1, 3, 32, 50));
    state.apply(Mono(3), events(1), dispatch(1, 0, 3));
    assert_eq!((room(&state).x, room(&state).y, room(&state).free_gap_bytes), (1, 0, 224 - 82));
    let on_one = Extent { occupied: 64, bytes_per_bank: 64, banks: 1 };
    let buffer = Alloc { cores: 4, extent: Some(on_one), ..alloc(MESH, Space::L1Core, 80, 64) };
    state.apply(Mono(4), events(1), Input::Alloc(buffer));
    assert_eq!((room(&state).x, room(&state).y, room(&state).free_gap_bytes), (3, 1, 80 - 32));
    state.apply(Mono(5), events(1), keep(Space::L1, 0, 2, 70, 10));
    assert_eq!((room(&state).x, room(&state).free_gap_bytes), (1, 0), "in lock-step it is everywhere");
    assert_eq!(room(&state).basis, Basis::Exact);
    register(&mut state, legacy(9));
    state.apply(Mono(6), legacy(9), Input::Alloc(alloc(on(0), Space::L1, 1, 1)));
    assert_eq!(room(&state).basis, Basis::Reported, "it does not say where its buffers lie");
}

#[test]
fn buffers_newer_than_a_trace_are_endangered() {
    let mut state = laid_out(1, 2);
    let buffer = |space, at: u64, allocated_at: u64| {
        let Input::Alloc(it) = keep(space, 0, 0, at, 8) else { unreachable!() };
        Alloc { at: Some(Mono(allocated_at)), ..it }
    };
    let trace = Trace { scope: MESH, id: 4, dispatches: 10, replays: 2, captured: Mono(100) };
    state.apply(Mono(90), events(1), Input::Alloc(buffer(Space::L1, 40, 90)));
    state.apply(Mono(110), events(1), Input::Trace(trace));
    let of = |state: &State| {
        let it = shot(state).processes[0].traces[0].clone();
        (it.endangered_count, it.endangered_bytes)
    };
    assert_eq!(of(&state), (0, 0));
    state.apply(Mono(120), events(1), Input::Alloc(buffer(Space::L1, 80, 120)));
    state.apply(Mono(120), events(1), Input::Alloc(buffer(Space::L1Small, 224, 120)));
    state.apply(Mono(120), events(1), Input::Alloc(buffer(Space::Trace, 0, 120)));
    let mirror = Alloc { layout: Layout::Mirror, ..buffer(Space::L1, 120, 120) };
    state.apply(Mono(120), events(1), Input::Alloc(mirror));
    assert_eq!(of(&state), (2, 16));
    state.apply(Mono(120), events(2), Input::Alloc(buffer(Space::L1, 160, 120)));
    assert_eq!(of(&state), (2, 16), "another process's buffers are not where this one's traces write");
    state.apply(Mono(125), events(1), Input::Trace(Trace { captured: Mono(125), ..trace }));
    assert_eq!(of(&state), (0, 0), "it was captured anew");
    state.apply(Mono(126), events(1), Input::Trace(trace));
    let found = found(&state, FindingKind::TraceOverwrite).unwrap();
    assert_eq!(
        (found.severity, found.pid, found.count, found.bytes),
        (Severity::Warning, Some(1), 2, Some(16))
    );
    assert!(
        found.text.contains("replaying trace 4 may overwrite 2 buffers (16 B) allocated after its capture"),
        "{}",
        found.text
    );
    state.apply(Mono(130), events(1), free(MESH, Some(Space::L1), 80));
    state.apply(Mono(130), events(1), free(MESH, Some(Space::L1Small), 224));
    assert_eq!(of(&state), (0, 0));
    for end in [Input::TraceEnded(MESH, 4), Input::ListingBegun(1), Input::AllocatorClosed(1)] {
        state.apply(Mono(140), events(1), Input::Trace(trace));
        state.apply(Mono(140), events(1), end);
        assert!(shot(&state).processes[0].traces.is_empty());
    }
}

#[test]
fn peak_keeps_its_holders() {
    let mut state = machine();
    for (pid, size) in [(1, 100), (2, 300)] {
        let name = Some(format!("p{pid}"));
        state.apply(
            Mono(1),
            legacy(pid),
            Input::Registered(Box::new(Process { name, ..Process::default() })),
        );
        state.apply(Mono(2), legacy(pid), Input::Alloc(alloc(on(0), Space::Dram, u64::from(pid), size)));
    }
    let peak = |state: &State| {
        let peak = shot(state).devices[0].peaks.iter().find(|it| it.space == Space::Dram).cloned().unwrap();
        let holders: Vec<_> = peak.holders.into_iter().map(|it| (it.pid.unwrap(), it.bytes)).collect();
        (peak.bytes, holders)
    };
    assert_eq!(peak(&state), (400, vec![(2, 300), (1, 100)]), "it is what it is now");
    state.apply(Mono(3), legacy(1), free(on(0), None, 1));
    assert_eq!(peak(&state), (400, vec![(2, 300), (1, 100)]), "noticed before it shrank");
    state.apply(Mono(4), legacy(2), Input::Exited);
    state.apply(Mono(4), legacy(1), Input::Exited);
    state.tick(Mono(5));
    assert_eq!(peak(&state), (400, vec![(2, 300), (1, 100)]));
}

#[test]
fn short_peak_of_one_process_is_exact() {
    let mut state = laid_out(1, 1);
    for round in 1..=40u64 {
        state.apply(Mono(round), events(1), keep(Space::L1, 0, 0, 40, round));
        state.apply(Mono(round), events(1), free(MESH, Some(Space::L1), 40));
    }
    state.tick(Mono(100));
    state.apply(Mono(101), events(1), keep(Space::L1, 0, 0, 40, 3));
    let peak = shot(&state).devices[0].peaks[0].clone();
    assert_eq!((peak.space, peak.bytes, peak.holders.len()), (Space::L1, 40, 1));
    assert_eq!(shot(&state).devices[0].usage.l1.as_ref().unwrap().peak_bytes, 40);
}

#[test]
fn core_peak_includes_buffers_at_dispatch() {
    let mut state = laid_out(2, 1);
    state.apply(Mono(1), events(1), Input::ProgramNamed(1, "matmul".to_owned()));
    state.apply(Mono(2), events(1), keep(Space::Cb, 1, 2, 32, 50));
    let Input::Alloc(buffer) = keep(Space::L1, 0, 0, 100, 24) else { unreachable!() };
    let everywhere = Extent { occupied: 24, bytes_per_bank: 24, banks: 8 };
    let buffer = Input::Alloc(Alloc { extent: Some(everywhere), ..buffer });
    state.apply(Mono(3), events(1), buffer.clone());
    state.apply(Mono(4), events(1), dispatch(1, 1, 4));
    state.apply(Mono(5), events(1), free(MESH, Some(Space::L1), 100));
    state.apply(Mono(6), events(1), dispatch(1, 1, 6));
    state.tick(Mono(10));
    state.apply(Mono(11), events(1), Input::Exited);
    register(&mut state, events(2));
    let allocator = Allocator { id: 1, chips: vec![chip(0), chip(1)], spaces: vec![L1] };
    state.apply(Mono(12), events(2), Input::Allocator(allocator));
    for index in 0..2 {
        for core in cores(&state, index) {
            let peak = core.peak.unwrap();
            let kept = if core.room.x < 2 && core.room.y == 0 { 50 } else { 0 };
            assert_eq!((peak.bytes, peak.buffer_bytes), (kept + 24, 24));
            assert_eq!((peak.pid, peak.program), (Some(1), Some(1)), "though it is gone");
            assert_eq!(peak.program_name.as_deref(), Some("matmul"));
        }
    }
}

/// A mesh's buffers are one allocator's, and what its programs refer to is another, which hands out nothing.
#[test]
fn core_peaks_count_buffers_of_all_allocators() {
    let mut state = laid_out(2, 1);
    let scope = Scope::Allocator(2);
    let part = Allocator { id: 2, chips: vec![chip(1)], spaces: Vec::new() };
    state.apply(Mono(2), events(1), Input::Allocator(part));
    let trace = Trace { scope, id: 0, dispatches: 1, replays: 0, captured: Mono(2) };
    state.apply(Mono(2), events(1), Input::Trace(trace));
    let Input::Alloc(buffer) = keep(Space::L1, 0, 0, 100, 24) else { unreachable!() };
    let everywhere = Extent { occupied: 24, bytes_per_bank: 24, banks: 8 };
    let buffer = Input::Alloc(Alloc { extent: Some(everywhere), at: Some(Mono(3)), ..buffer });
    state.apply(Mono(3), events(1), buffer);
    let Input::Alloc(on_core) = keep(Space::L1Core, 0, 4, 140, 6) else { unreachable!() };
    state.apply(Mono(3), events(1), Input::Alloc(Alloc { at: Some(Mono(3)), ..on_core }));
    let Input::Alloc(cb) = keep(Space::Cb, 5, 1, 32, 8) else { unreachable!() };
    state.apply(Mono(4), events(1), Input::Alloc(Alloc { scope, ..cb }));
    state.apply(Mono(5), events(1), dispatched(scope, 5));
    state.apply(Mono(6), events(1), free(MESH, Some(Space::L1), 100));
    state.tick(Mono(7));
    let peaks = cores(&state, 1).into_iter().map(|core| core.peak.unwrap());
    let peaks: Vec<_> = peaks.map(|it| (it.bytes, it.buffer_bytes, it.program)).collect();
    assert_eq!(peaks[0], (8 + 24, 24, Some(5)));
    assert_eq!(peaks[7], (8 + 24 + 6, 24 + 6, Some(5)), "the last core has a buffer of its own");
    let it = shot(&state).processes[0].traces[0].clone();
    assert_eq!((it.endangered_count, it.endangered_bytes), (1, 6), "the other one is gone");
    let other = Allocator { id: 3, chips: vec![chip(0)], spaces: vec![L1] };
    state.apply(Mono(8), events(1), Input::Allocator(other));
    let elsewhere = Alloc { scope: Scope::Allocator(3), at: Some(Mono(8)), ..alloc(MESH, Space::L1, 40, 8) };
    state.apply(Mono(8), events(1), Input::Alloc(elsewhere));
    assert_eq!(
        shot(&state).processes[0].traces[0].endangered_count,
        1,
        "on another chip nothing is in danger"
    );
}

#[test]
fn short_program_counts_for_core_peaks() {
    let ends =
        [Input::ProgramEnded(MESH, 3), Input::ListingBegun(1), Input::AllocatorClosed(1), Input::Exited];
    for end in ends {
        // The other process is there to the end, so that cores are shown.
        let mut state = laid_out(1, 2);
        state.apply(Mono(2), events(1), keep(Space::Scratch, 3, 4, 32, 70));
        state.apply(Mono(3), events(1), dispatch(3, 0, 3));
        state.apply(Mono(4), events(1), end.clone());
        state.tick(Mono(5));
        let all = cores(&state, 0);
        let peaks: Vec<_> =
            all.iter().filter_map(|core| core.peak.as_ref().map(|it| (core.room.x, it.bytes))).collect();
        assert_eq!(peaks, [(3, 70)], "{end:?}");
    }
}

/// Of each core the highest use: its bytes, those of buffers, and the program.
fn peaks(state: &State) -> Vec<(u64, u64, Option<u32>)> {
    let peaks = cores(state, 0).into_iter().map(|core| core.peak);
    peaks.map(|it| it.map_or((0, 0, None), |it| (it.bytes, it.buffer_bytes, it.program))).collect()
}

#[test]
fn core_peak_is_the_union_of_a_programs_parts() {
    let mut state = laid_out(1, 1);
    state.apply(Mono(2), events(1), keep(Space::Cb, 1, 1, 32, 50));
    state.apply(Mono(2), events(1), keep(Space::Scratch, 1, 1, 60, 40));
    state.apply(Mono(2), events(1), keep(Space::Kernel, 1, 1, 1, 120));
    let Input::Alloc(view) = keep(Space::Cb, 1, 1, 200, 16) else { unreachable!() };
    state.apply(Mono(2), events(1), Input::Alloc(Alloc { layout: Layout::View, ..view }));
    // What another allocator handed out is counted there.
    let Input::Alloc(mirror) = keep(Space::L1Core, 0, 1, 150, 6) else { unreachable!() };
    state.apply(Mono(2), events(1), Input::Alloc(Alloc { layout: Layout::Mirror, ..mirror }));
    state.apply(Mono(3), events(1), dispatch(1, 0, 3));
    state.tick(Mono(4));
    assert_eq!(peaks(&state), [(68, 0, Some(1)); 8]);
}

#[test]
fn grown_program_raises_core_peak() {
    let mut state = laid_out(1, 1);
    state.apply(Mono(2), events(1), keep(Space::Cb, 1, 1, 32, 8));
    state.apply(Mono(3), events(1), dispatch(1, 0, 3));
    state.tick(Mono(4));
    state.apply(Mono(5), events(1), keep(Space::Cb, 1, 1, 40, 8));
    state.apply(Mono(6), events(1), dispatch(1, 0, 6));
    // Gone before the next tick.
    state.apply(Mono(7), events(1), dispatch(2, 1, 7));
    state.tick(Mono(8));
    assert_eq!(peaks(&state), [(16, 0, Some(1)); 8]);
}

/// Buffers that come while nothing is dispatched lie beside what is resident, and only beside that.
#[test]
fn later_buffers_count_with_the_resident_program() {
    let mut state = laid_out(1, 1);
    state.apply(Mono(2), events(1), keep(Space::Cb, 1, 1, 32, 50));
    state.apply(Mono(3), events(1), dispatch(1, 1, 3));
    state.apply(Mono(4), events(1), dispatch(2, 2, 4));
    let everywhere = Extent { occupied: 24, bytes_per_bank: 24, banks: 8 };
    let buffer = Alloc { extent: Some(everywhere), ..alloc(MESH, Space::L1, 100, 24) };
    state.apply(Mono(5), events(1), Input::Alloc(buffer));
    state.apply(Mono(5), events(1), keep(Space::L1Core, 0, 4, 140, 6));
    state.tick(Mono(6));
    let mut expected = [(50 + 24, 24, Some(1)); 8];
    expected[..2].fill((50, 0, Some(1)));
    expected[7] = (50 + 24 + 6, 24 + 6, Some(1));
    assert_eq!(peaks(&state), expected);
    state.apply(Mono(7), events(1), Input::ProgramEnded(MESH, 1));
    state.apply(Mono(7), events(1), Input::ProgramEnded(MESH, 2));
    state.apply(
        Mono(8),
        events(1),
        Input::Alloc(Alloc { extent: Some(everywhere), ..alloc(MESH, Space::L1, 40, 24) }),
    );
    state.apply(
        Mono(8),
        events(1),
        Input::Alloc(Alloc { extent: Some(everywhere), ..alloc(MESH, Space::L1, 70, 24) }),
    );
    state.tick(Mono(9));
    assert_eq!(peaks(&state)[0], (3 * 24, 3 * 24, None), "there is no program then");
}

/// The time of a peak is when it was reached, not when it was last measured.
#[test]
fn peak_has_the_time_it_was_reached() {
    const MS: u64 = 1_000_000;
    let mut state = laid_out(1, 1);
    let everywhere = Extent { occupied: 24, bytes_per_bank: 24, banks: 8 };
    let buffer = Alloc { extent: Some(everywhere), ..alloc(MESH, Space::L1, 100, 24) };
    for tick in 2..6 {
        // As much again is no more than before.
        state.apply(Mono((tick - 1) * 10 * MS), events(1), Input::Alloc(buffer));
        state.tick(Mono(tick * 10 * MS));
        state.apply(Mono(tick * 10 * MS), events(1), free(MESH, Some(Space::L1), 100));
    }
    let before = |ms: i64| Timestamp::from_millisecond(-ms).unwrap();
    assert_eq!(full(&state).devices[0].peaks[0].at, before(50 - 10));
    assert_eq!(cores(&state, 0)[0].peak.as_ref().unwrap().at, before(50 - 20), "at the first look");
}

/// Programs lie over each other: what all of them registered was never there at once.
#[test]
fn peak_of_programs_counts_resident_memory() {
    let mut state = laid_out(1, 2);
    for program in [1, 2] {
        state.apply(Mono(2), events(1), keep(Space::Cb, program, 1, 32, 50));
    }
    state.apply(Mono(3), events(1), dispatch(1, 0, 3));
    state.tick(Mono(4));
    let peak = |state: &State| {
        let peaks = shot(state).devices[0].peaks.clone();
        peaks.iter().find(|it| it.space == Space::Cb).map(|it| it.bytes)
    };
    assert_eq!(peak(&state), Some(8 * 50));
    state.apply(Mono(5), events(1), Input::Exited);
    assert_eq!(peak(&state), Some(8 * 50));
}

#[test]
fn rebuilt_program_is_resident_after_dispatch() {
    let mut state = laid_out(1, 1);
    state.apply(Mono(2), events(1), keep(Space::Cb, 1, 1, 32, 8));
    state.apply(Mono(2), events(1), keep(Space::Cb, 2, 1, 32, 16));
    state.apply(Mono(3), events(1), dispatch(1, 1, 3));
    state.apply(Mono(4), events(1), dispatch(2, 1, 4));
    state.apply(Mono(5), events(1), Input::ProgramEnded(MESH, 1));
    let Input::Program(program) = dispatch(1, 1, 3) else { unreachable!() };
    state.apply(Mono(5), events(1), Input::Program(Program { dispatches: 1, dispatched: None, ..program }));
    state.apply(Mono(5), events(1), keep(Space::Cb, 1, 1, 32, 8));
    let resident = |state: &State| full(state).devices[0].usage.cb.as_ref().unwrap().resident_bytes;
    assert_eq!(resident(&state), Some(8 * 16));
    state.apply(
        Mono(6),
        events(1),
        Input::Program(Program { dispatches: 2, dispatched: Some(Mono(6)), ..program }),
    );
    assert_eq!(resident(&state), Some(8 * 8));
    assert_eq!(full(&state).processes[0].programs.as_ref().unwrap()[0].dispatches, 2);
}

#[test]
fn cores_that_are_alike_are_written_once() {
    let mut state = laid_out(1, 1);
    state.apply(Mono(2), events(1), keep(Space::Cb, 1, 2, 32, 50));
    state.apply(Mono(3), events(1), dispatch(1, 2, 3));
    let device = full(&state).devices.remove(0);
    let written = serde_json::to_value(&device.cores).unwrap();
    assert_eq!(written["maps"].as_array().unwrap().len(), 2);
    let maps: Vec<u64> =
        written["list"].as_array().unwrap().iter().map(|it| it["map"].as_u64().unwrap()).collect();
    assert_eq!(maps, [0, 0, 1, 1, 1, 1, 1, 1]);
    let read: Option<crate::snapshot::Cores> = serde_json::from_value(written).unwrap();
    assert_eq!(read, device.cores);
}

/// Layouts that no runtime makes cost a reader only so much.
#[test]
fn oversized_maps_are_left_out() {
    let mut state = laid_out(1, 1);
    let wide = CoreLayout { columns: 16, rows: 16, kernel_config: 0, unreserved: 0, end: 1 << 40 };
    let known = Chip { core_layout: Some(wide), ..Chip::unknown(0) };
    state.apply(Mono(1), Origin::Machine, Input::Chip(Box::new(known)));
    let banks = Banks { bytes_per_bank: 1 << 40, base: 0, ..L1 };
    let it = Allocator { id: 1, chips: vec![chip(0)], spaces: vec![banks] };
    state.apply(Mono(1), events(1), Input::Allocator(it));
    for core in 0..64u8 {
        let only = CoreSet::rectangle((core % 16, core / 16), (core % 16, core / 16));
        state.apply(Mono(1), events(1), Input::Cores(100 + u32::from(core), only));
        for n in 0..5000 {
            state.apply(Mono(2), events(1), keep(Space::L1Core, 0, 100 + u32::from(core), n * 16, 8));
        }
    }
    let all = cores(&state, 0);
    assert_eq!(all[0].intervals.len(), 10_000);
    assert!(all.iter().map(|it| it.intervals.len()).sum::<usize>() < 400_000);
    assert!(
        all[63].intervals.is_empty() && all[63].room.lowest_buffer == 0,
        "what is left out is still known"
    );
}

/// Something that lies somewhere, for the naive model.
#[derive(Clone, Debug)]
enum Lies {
    Buffer { pid: u32, space: Space, cores: u32, at: u64, bytes: u64, mirror: bool },
    Kept { pid: u32, space: Space, program: u32, cores: u32, at: u64, bytes: u64, view: bool },
    Dispatch { pid: u32, program: u32, cores: u32 },
}

fn lies() -> impl Strategy<Value = Vec<Lies>> {
    let (pid, set, at) = (1u32..3, 0..SETS.len() as u32, 32u64..250);
    let buffer = (
        pid.clone(),
        prop::sample::select(vec![Space::L1, Space::L1Small, Space::L1Core]),
        set.clone(),
        at.clone(),
        1u64..40,
        prop::bool::weighted(0.1),
    );
    let kept = (
        pid.clone(),
        prop::sample::select(vec![Space::Cb, Space::Dfb, Space::Scratch]),
        1u32..4,
        1..SETS.len() as u32,
        at,
        1u64..60,
        prop::bool::weighted(0.1),
    );
    let one = prop_oneof![
        3 => buffer.prop_map(|(pid, space, cores, at, bytes, mirror)| {
            Lies::Buffer { pid, space, cores, at, bytes, mirror }
        }),
        3 => kept.prop_map(|(pid, space, program, cores, at, bytes, view)| {
            Lies::Kept { pid, space, program, cores, at, bytes, view }
        }),
        2 => (pid, 1u32..4, set).prop_map(|(pid, program, cores)| Lies::Dispatch { pid, program, cores }),
    ];
    prop::collection::vec(one, 0..30)
}

fn has(set: u32, x: u8, y: u8) -> bool {
    let [x0, y0, x1, y1] = SETS[set as usize];
    (x0..=x1).contains(&x) && (y0..=y1).contains(&y)
}

/// Byte by byte, and core by core: what is there, as the first of all classes that say so.
fn naive(all: &[Lies], x: u8, y: u8) -> Vec<CoreClass> {
    // A buffer at an address that is taken already takes its place.
    let mut last: BTreeMap<(u32, Space, u64), usize> = BTreeMap::new();
    let mut programs: BTreeMap<(u32, u32), (usize, u32)> = BTreeMap::new();
    for (n, it) in all.iter().enumerate() {
        match *it {
            Lies::Buffer { pid, space, at, .. } if space != Space::L1Core => {
                last.insert((pid, space, at), n);
            }
            Lies::Dispatch { pid, program, cores } => {
                programs.insert((pid, program), (n, cores));
            }
            _ => {}
        }
    }
    let on = |(who, &(_, cores)): (&(u32, u32), &(usize, u32))| match cores {
        0 => all.iter().any(|it| match *it {
            Lies::Kept { pid, program, cores, .. } => (pid, program) == *who && has(cores, x, y),
            _ => false,
        }),
        cores => has(cores, x, y),
    };
    let resident = programs.iter().filter(|&it| on(it)).max_by_key(|(_, (n, _))| *n).map(|(who, _)| *who);
    let mut map = vec![CoreClass::Free; LAYOUT.end as usize];
    let mut put = |class: CoreClass, from: u64, to: u64| {
        for byte in &mut map[(from.min(256)) as usize..(to.min(256)) as usize] {
            *byte = class.min(*byte);
        }
    };
    put(CoreClass::Reserved, 0, 16);
    put(CoreClass::KernelConfig, 16, 32);
    put(CoreClass::L1SmallFree, 224, 248);
    put(CoreClass::Reserved, 248, 256);
    for (n, it) in all.iter().enumerate() {
        match *it {
            Lies::Buffer { pid, space, cores, at, bytes, mirror } => {
                if last.get(&(pid, space, at)).is_some_and(|&last| last != n) {
                    continue;
                }
                let own = if space == Space::L1Small { CoreClass::L1Small } else { CoreClass::Buffer };
                let here = cores == 0 || has(cores, x, y);
                let class = match (space, here, mirror) {
                    (Space::L1Core, true, _) if cores == 0 => continue,
                    (Space::L1Core, false, _) => continue,
                    (_, _, true) | (_, false, _) => CoreClass::Lockstep,
                    (_, true, false) => own,
                };
                put(class, at, at + bytes);
            }
            Lies::Kept { pid, space, program, cores, at, bytes, view } => {
                let class = match space {
                    Space::Cb => CoreClass::Cb,
                    Space::Dfb => CoreClass::Dfb,
                    _ => CoreClass::Scratch,
                };
                if resident == Some((pid, program)) && has(cores, x, y) && !view {
                    put(class, at, at + bytes);
                }
            }
            Lies::Dispatch { .. } => {}
        }
    }
    map
}

proptest! {
    #[test]
    fn maps_agree_with_a_byte_by_byte_model(all in lies()) {
        let mut state = laid_out(2, 2);
        // A record is reported once: the first report counts.
        let mut reported = std::collections::BTreeSet::new();
        let mut kept = Vec::new();
        for part in all {
            let key = match part {
                Lies::Buffer { pid, space, cores, at, bytes, .. } => (pid, space, 0, cores, at, bytes),
                Lies::Kept { pid, space, program, cores, at, bytes, .. } => (pid, space, program, cores, at, bytes),
                Lies::Dispatch { .. } => (0, Space::Host, 0, 0, 0, kept.len() as u64),
            };
            if reported.insert(key) {
                kept.push(part);
            }
        }
        for (n, part) in kept.iter().enumerate() {
            let now = Mono(10 + n as u64);
            let (pid, event) = match *part {
                Lies::Buffer { pid, space, cores, at, bytes, mirror } => {
                    let Input::Alloc(it) = keep(space, 0, cores, at, bytes) else { unreachable!() };
                    let layout = if mirror { Layout::Mirror } else { Layout::Unknown };
                    (pid, Input::Alloc(Alloc { layout, ..it }))
                }
                Lies::Kept { pid, space, program, cores, at, bytes, view } => {
                    let Input::Alloc(it) = keep(space, program, cores, at, bytes) else { unreachable!() };
                    let layout = if view { Layout::View } else { Layout::Unknown };
                    (pid, Input::Alloc(Alloc { layout, ..it }))
                }
                Lies::Dispatch { pid, program, cores } => (pid, dispatch(program, cores, now.0)),
            };
            state.apply(now, events(pid), event);
            if n % 5 == 0 {
                state.tick(now);
                full(&state);
            }
        }
        for index in 0..2 {
            let cores = cores(&state, index);
            prop_assert_eq!(cores.len(), 8);
            for core in &cores {
                let mut map = Vec::new();
                for interval in core.intervals.iter() {
                    prop_assert_eq!(interval.start as usize, map.len(), "no gap");
                    prop_assert!(interval.bytes > 0);
                    map.resize(map.len() + interval.bytes as usize, interval.class);
                }
                prop_assert!(core.intervals.windows(2).all(|it| it[0].class != it[1].class), "nothing in two pieces");
                prop_assert_eq!(&map, &naive(&kept, core.room.x, core.room.y), "core {},{}", core.room.x, core.room.y);
                let ends = core.room;
                prop_assert!(ends.program_end <= ends.registered_end && ends.registered_end <= LAYOUT.end);
                prop_assert_eq!(ends.free_gap_bytes, ends.lowest_buffer.saturating_sub(ends.program_end));
                // Every byte of an allocation is of its class, or of one that counts before it; and has an owner.
                let owned = on_core(&state, index, Some([ends.x, ends.y]), 1000);
                prop_assert!(owned.list.windows(2).all(|it| it[0].start <= it[1].start));
                for (at, &class) in map.iter().enumerate() {
                    let here = |it: &&CoreAllocation| (it.start..it.start + it.bytes).contains(&(at as u64));
                    let first = owned.list.iter().filter(here).map(|it| it.class).min();
                    let owner = first.filter(|it| !matches!(class, CoreClass::Reserved | CoreClass::KernelConfig) && *it < CoreClass::Free);
                    let is_owned = !matches!(
                        class,
                        CoreClass::Reserved | CoreClass::KernelConfig | CoreClass::Free | CoreClass::L1SmallFree
                    );
                    prop_assert_eq!(owner, is_owned.then_some(class), "address {} of core {},{}", at, ends.x, ends.y);
                }
            }
            let tightest = shot(&state).devices[index].tightest_core.unwrap();
            prop_assert!(cores.iter().all(|core| core.room.free_gap_bytes >= tightest.free_gap_bytes));
        }
    }
}

/// A cache of many programs is cleared at once, and a program whose views moved is rebuilt: neither may visit the records of all
/// others.
#[test]
fn program_end_visits_its_own_records() {
    const PROGRAMS: u32 = 200;
    let mut state = machine();
    register(&mut state, events(1));
    for program in 1..=PROGRAMS {
        for part in 0..4 {
            let it = alloc(on(0), Space::Dfb, 0x1_8000 + part * 4096, 4096);
            state.apply(Mono(2), events(1), Input::Alloc(Alloc { program, ..it }));
        }
    }
    let pool = *state.processes[&id(1)].pools.values().next().unwrap();
    for program in 1..=PROGRAMS {
        assert_eq!(state.ledger.records_of_program(pool, program).count(), 4);
        state.apply(Mono(3), events(1), Input::ProgramEnded(on(0), program));
        assert_eq!(state.ledger.records_of_program(pool, program).count(), 0);
    }
    assert_eq!(state.ledger.live(), 0);
}
