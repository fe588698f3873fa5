//! Kernels by class: the classes sum to all kernels.

use super::*;
use crate::detail::BufferQuery;
use crate::input::Holding;
use crate::snapshot::{KernelClassUsage, ProgramUsage};

const MESH: Scope = Scope::Allocator(1);
/// Processes whose kernels come from segments; the last process sends messages of the old protocol.
const TRACKED: u32 = 2;

#[derive(Clone, Debug)]
enum Step {
    Load { pid: u32, id: u64, class: KernelClass, bytes: u64, program: u32 },
    Unload { pid: u32, id: u64 },
    Dispatch { pid: u32, program: u32, cores: u32 },
    EndProgram { pid: u32, program: u32 },
    Unlisted { pid: u32, bytes: u64 },
    Levels { bytes: u64 },
    Exit { pid: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pid = || 1..=TRACKED + 1;
    let class = prop::sample::select(KernelClass::ALL.to_vec());
    let step = prop_oneof![
        8 => (pid(), 0u64..12, class, 1u64..5000, 1u32..4)
            .prop_map(|(pid, id, class, bytes, program)| Step::Load { pid, id, class, bytes, program }),
        3 => (pid(), 0u64..12).prop_map(|(pid, id)| Step::Unload { pid, id }),
        4 => (1..=TRACKED, 1u32..4, 1u32..4)
            .prop_map(|(pid, program, cores)| Step::Dispatch { pid, program, cores }),
        1 => (1..=TRACKED, 1u32..4).prop_map(|(pid, program)| Step::EndProgram { pid, program }),
        1 => (1..=TRACKED, 0u64..9000).prop_map(|(pid, bytes)| Step::Unlisted { pid, bytes }),
        1 => (0u64..9000).prop_map(|bytes| Step::Levels { bytes }),
        1 => pid().prop_map(|pid| Step::Exit { pid }),
    ];
    prop::collection::vec(step, 1..40)
}

fn start(state: &mut State, pid: u32) {
    if pid > TRACKED {
        return register(state, legacy(pid));
    }
    register(state, events(pid));
    let allocator = Allocator { id: 1, chips: vec![chip(0), chip(1)], spaces: Vec::new() };
    state.apply(Mono(1), events(pid), Input::Allocator(allocator));
    for (number, width) in [(1, 0), (2, 1), (3, 3)] {
        state.apply(Mono(1), events(pid), Input::Cores(number, CoreSet::rectangle((0, 0), (width, 1))));
    }
}

fn apply(state: &mut State, now: Mono, step: &Step) {
    let (from, event) = match *step {
        Step::Load { pid, id, class, bytes, .. } if pid > TRACKED => {
            (legacy(pid), Input::Alloc(Alloc { class, ..alloc(on(0), Space::Kernel, id, bytes) }))
        }
        Step::Load { pid, id, class, bytes, program } => {
            let cores = 1 + id as u32 % 3;
            let banks = [2, 4, 8][id as usize % 3];
            let extent = Some(Extent { occupied: bytes, bytes_per_bank: bytes, banks });
            let kernel = alloc(MESH, Space::Kernel, id, bytes);
            (events(pid), Input::Alloc(Alloc { class, program, cores, extent, ..kernel }))
        }
        Step::Unload { pid, id } if pid > TRACKED => (legacy(pid), free(on(0), Some(Space::Kernel), id)),
        Step::Unload { pid, id } => {
            let free = Free { scope: MESH, space: Some(Space::Kernel), id, program: 1, size: None, cores: 0 };
            (events(pid), Input::Free(free))
        }
        Step::Dispatch { pid, program, cores } => {
            let (class, dispatched) = (KernelClass::Application, Some(now));
            let program =
                Program { scope: MESH, id: program, cores, site: 0, class, dispatches: 1, dispatched };
            (events(pid), Input::Program(program))
        }
        Step::EndProgram { pid, program } => (events(pid), Input::ProgramEnded(MESH, program)),
        Step::Unlisted { pid, bytes } => {
            let holding = Holding { requested: bytes, allocated: bytes, count: bytes / 10 };
            (events(pid), Input::Unlisted { scope: MESH, space: Space::Kernel, holding })
        }
        Step::Levels { bytes } => {
            let from = Origin::Process(id(9), Basis::Counters);
            register(state, from);
            (from, Input::Levels(chip(1), vec![(Space::Kernel, bytes)]))
        }
        Step::Exit { pid } => {
            let from = if pid > TRACKED { legacy(pid) } else { events(pid) };
            state.apply(now, from, Input::Exited);
            return start(state, pid);
        }
    };
    state.apply(now, from, event);
}

fn sums(kernels: &ProgramUsage) -> (u64, Option<u64>) {
    let registered = kernels.by_class.iter().map(|it| it.registered_bytes).sum();
    let resident = kernels.by_class.iter().map(|it| it.resident_bytes);
    (registered, if kernels.resident_bytes.is_some() { resident.sum() } else { None })
}

proptest! {
    #[test]
    fn kernel_classes_sum_to_all_kernels(steps in steps()) {
        let mut state = machine();
        (1..=TRACKED + 1).for_each(|pid| start(&mut state, pid));
        for (n, step) in steps.iter().enumerate() {
            apply(&mut state, Mono(10 + n as u64), step);
            let buffers = Some(BufferQuery { limit: 1000, ..BufferQuery::default() });
            let snapshot = state.snapshot(Timestamp::UNIX_EPOCH, &Detail { buffers, ..Detail::NONE });
            let of_processes = snapshot.processes.iter().flat_map(|it| &it.usage).map(|it| &it.usage);
            for usage in snapshot.devices.iter().map(|it| &it.usage).chain(of_processes) {
                let Some(kernels) = &usage.kernel else { continue };
                prop_assert_eq!(sums(kernels), (kernels.registered_bytes, kernels.resident_bytes));
                prop_assert!(kernels.by_class.windows(2).all(|it| it[0].class < it[1].class));
            }
            // A class has what the list of live kernels has of it, on each device.
            let list = snapshot.buffers.unwrap().list;
            for device in &snapshot.devices {
                let Some(kernels) = &device.usage.kernel else { continue };
                for class in [KernelClass::Application, KernelClass::Fabric, KernelClass::Dispatch] {
                    let listed = list.iter().filter(|it| it.kernel == Some(class));
                    let here = listed.filter(|it| it.indexes.contains(&device.index));
                    let expected: u64 = here.map(|it| it.allocated_bytes.unwrap_or(it.requested_bytes)).sum();
                    let found = kernels.by_class.iter().find(|it| it.class == class);
                    prop_assert_eq!(found.map_or(0, |it| it.registered_bytes), expected, "{:?}", class);
                }
            }
        }
    }
}

#[test]
fn kernels_without_a_class_count_as_unknown() {
    let mut state = machine();
    register(&mut state, legacy(1));
    let load = |class, id, bytes| Input::Alloc(Alloc { class, ..alloc(on(0), Space::Kernel, id, bytes) });
    state.apply(Mono(2), legacy(1), load(KernelClass::Dispatch, 1, 300));
    state.apply(Mono(2), legacy(1), load(KernelClass::Application, 2, 500));
    state.apply(Mono(2), legacy(1), load(KernelClass::Unknown, 3, 70));
    let kernels = state.usage_of(chip(0)).kernel.unwrap();
    let of = |class, registered_bytes| KernelClassUsage { class, registered_bytes, resident_bytes: None };
    let expected =
        [of(KernelClass::Application, 500), of(KernelClass::Dispatch, 300), of(KernelClass::Unknown, 70)];
    assert_eq!((kernels.by_class, kernels.registered_bytes), (expected.to_vec(), 870));
}

#[test]
fn only_active_kernels_are_resident_in_their_class() {
    let mut state = machine();
    start(&mut state, 1);
    let load = |class, id, program| Step::Load { pid: 1, id, class, bytes: 100, program };
    // Two kernels of 2 x 1 columns and rows, then a program that replaces the first on these cores.
    apply(&mut state, Mono(5), &load(KernelClass::Application, 0, 1));
    apply(&mut state, Mono(5), &load(KernelClass::Fabric, 3, 2));
    apply(&mut state, Mono(6), &Step::Dispatch { pid: 1, program: 1, cores: 1 });
    let resident = |state: &State| -> Vec<(KernelClass, Option<u64>)> {
        let kernels = state.usage_of(chip(0)).kernel.unwrap();
        kernels.by_class.iter().map(|it| (it.class, it.resident_bytes)).collect()
    };
    let (application, fabric) = (KernelClass::Application, KernelClass::Fabric);
    assert_eq!(resident(&state), [(application, Some(200)), (fabric, Some(0))]);
    apply(&mut state, Mono(7), &Step::Dispatch { pid: 1, program: 2, cores: 1 });
    assert_eq!(resident(&state), [(application, Some(0)), (fabric, Some(200))]);
}
