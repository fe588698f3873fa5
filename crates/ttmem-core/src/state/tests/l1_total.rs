//! The total of L1: one rule for all sources, and never above the capacity without a finding.

use super::analysis::{Change, changes};
use super::*;
use crate::snapshot::Usage;
use crate::words::Uncertainty;
use std::collections::BTreeMap;

fn l1_total(state: &State, index: u32) -> u64 {
    state.usage_of(chip(index)).l1_total.map_or(0, |it| it.used_bytes)
}

#[test]
fn loaded_kernels_are_not_in_the_l1_total() {
    let mut state = machine();
    register(&mut state, legacy(1));
    for kernel in 0..100 {
        state.apply(Mono(2), legacy(1), Input::Alloc(alloc(on(0), Space::Kernel, kernel, 2 << 20)));
    }
    let usage = state.usage_of(chip(0));
    assert_eq!(usage.kernel.unwrap().registered_bytes, 200 << 20);
    let total = usage.l1_total.unwrap();
    assert_eq!((total.used_bytes, total.basis), (0, Basis::Reported));
    assert!(found(&state, FindingKind::OverCapacity).is_none());
}

/// A circular buffer on so many cores, which its source does not name.
fn on_cores(scope: Scope, at: u64, bytes_per_bank: u64, banks: u16) -> Alloc {
    let occupied = bytes_per_bank * u64::from(banks);
    let extent = Some(Extent { occupied, bytes_per_bank, banks });
    Alloc { extent, ..alloc(scope, Space::Cb, at, bytes_per_bank) }
}

#[test]
fn all_transports_have_the_same_l1_total() {
    let mut state = machine();
    let define = Allocator { id: 1, chips: vec![chip(1)], spaces: Vec::new() };
    register(&mut state, legacy(1));
    register(&mut state, events(2));
    state.apply(Mono(1), events(2), Input::Allocator(define));
    state.apply(Mono(1), events(2), Input::Cores(1, CoreSet::rectangle((0, 0), (7, 7))));
    let named = |it: Alloc| Alloc { cores: 1, ..it };
    let unfollowed = Uncertainty { unfollowed: true, ..Uncertainty::default() };
    for (origin, scope) in [(legacy(1), on(0)), (events(2), Scope::Allocator(1))] {
        // Two programs whose circular buffers overlap, of which one is known per core only.
        let mut parts = vec![
            alloc(scope, Space::L1, 0x8_0000, 65_536),
            on_cores(scope, 0x2_0000, 4096, 64),
            on_cores(scope, 0x2_0800, 4096, 64),
            alloc(scope, Space::Cb, 0x4_0000, 1024),
            alloc(scope, Space::Kernel, 7, 50 << 10),
        ];
        if scope != on(0) {
            parts[1] = named(parts[1]);
            parts[2] = named(parts[2]);
            for part in &mut parts {
                part.uncertainty = unfollowed;
            }
        }
        for part in parts {
            state.apply(Mono(2), origin, Input::Alloc(part));
        }
    }
    assert_eq!(l1_total(&state, 0), 65_536 + 64 * 6144 + 1024);
    assert_eq!(l1_total(&state, 1), l1_total(&state, 0));
    let [one, other] = [0, 1].map(|index| state.usage_of(chip(index)).cb.unwrap());
    assert_eq!((one.registered_bytes, one.per_core_bytes), (64 * 6144 + 1024, 1024));
    assert_eq!((other.registered_bytes, other.per_core_bytes), (one.registered_bytes, 1024));
}

/// A message of an old client.
#[derive(Clone, Debug)]
enum Message {
    Alloc { pid: u32, chip: u32, space: Space, at: u64, bytes: u64, cores: u16 },
    Free { pid: u32, chip: u32, space: Space, at: u64 },
}

#[derive(Clone, Debug)]
enum Step {
    Message(Message),
    Event(Change),
}

fn messages() -> impl Strategy<Value = Message> {
    let space = prop::sample::select(vec![
        Space::Dram,
        Space::L1,
        Space::L1Small,
        Space::Trace,
        Space::Cb,
        Space::Kernel,
    ]);
    // Kernels are loaded again and again; a few sizes are absurd.
    let bytes = prop_oneof![9 => 1u64..100_000, 1 => Just(70u64 << 20), 1 => Just(99u64 << 30)];
    prop_oneof![
        3 => (1u32..4, 0..CHIPS, space.clone(), 0u64..30, bytes, 0u16..70).prop_map(
            |(pid, chip, space, at, bytes, cores)| Message::Alloc { pid, chip, space, at, bytes, cores }
        ),
        1 => (1u32..4, 0..CHIPS, space, 0u64..30)
            .prop_map(|(pid, chip, space, at)| Message::Free { pid, chip, space, at }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let events = changes().prop_map(|all| all.into_iter().map(Step::Event).collect::<Vec<_>>());
    let messages = prop::collection::vec(messages().prop_map(Step::Message), 0..80);
    (events, messages, any::<u64>()).prop_map(|(mut steps, messages, seed)| {
        for (n, message) in messages.into_iter().enumerate() {
            let at = (seed.rotate_left(n as u32 * 7) % (steps.len() as u64 + 1)) as usize;
            steps.insert(at, message);
        }
        steps
    })
}

/// Applies a message as the daemon does.
fn apply_message(state: &mut State, now: Mono, message: &Message) -> Outcome {
    let (pid, input) = match *message {
        Message::Alloc { pid, chip, space, at, bytes, cores } if space == Space::Cb && cores > 0 => {
            (pid, Input::Alloc(on_cores(on(chip), 1000 + at * 100, bytes, cores)))
        }
        Message::Alloc { pid, chip, space, at, bytes, .. } => {
            (pid, Input::Alloc(alloc(on(chip), space, 1000 + at * 100, bytes)))
        }
        Message::Free { pid, chip, space, at } => (pid, free(on(chip), Some(space), 1000 + at * 100)),
    };
    register(state, legacy(pid));
    state.apply(now, legacy(pid), input)
}

/// The sum of all spaces of L1, of kernels only the resident ones.
fn sum(usage: &Usage) -> u64 {
    let spaces = [Space::L1, Space::L1Small, Space::L1Core, Space::Cb, Space::Dfb, Space::Scratch];
    let kernels = usage.kernel.as_ref().and_then(|it| it.resident_bytes).unwrap_or(0);
    spaces.iter().filter_map(|&space| usage.used(space)).fold(kernels, |sum, it| sum.saturating_add(it.0))
}

proptest! {
    #[test]
    fn use_above_capacity_is_a_finding(steps in steps()) {
        let mut state = machine();
        // Kernels that old clients hold: by process, device and id.
        let mut kernels: BTreeMap<(u32, u32, u64), (u64, u64)> = BTreeMap::new();
        for (n, step) in steps.iter().enumerate() {
            let now = Mono(n as u64 * Mono::SECOND / 8);
            match step {
                Step::Event(Change::Exit { pid }) => {
                    super::analysis::apply(&mut state, now, &Change::Exit { pid: *pid });
                    kernels.retain(|(of, ..), _| of != pid);
                }
                Step::Event(change) => super::analysis::apply(&mut state, now, change),
                Step::Message(message) => {
                    let outcome = apply_message(&mut state, now, message);
                    match (message.clone(), outcome) {
                        (Message::Alloc { pid, chip, space: Space::Kernel, at, bytes, .. }, Outcome::Held { references }) => {
                            kernels.insert((pid, chip, at), (bytes, references.into()));
                        }
                        (Message::Alloc { pid, chip, space: Space::Kernel, at, bytes, .. }, Outcome::Replaced { .. }) => {
                            kernels.insert((pid, chip, at), (bytes, 1));
                        }
                        (Message::Free { pid, chip, space: Space::Kernel, at }, Outcome::Released { references: 0, .. }) => {
                            kernels.remove(&(pid, chip, at));
                        }
                        _ => {}
                    }
                }
            }
            let snapshot = shot(&state);
            for device in &snapshot.devices {
                let usage = &device.usage;
                prop_assert_eq!(usage.l1_total.as_ref().map_or(0, |it| it.used_bytes), sum(usage));
                for total in [&usage.dram_total, &usage.l1_total].into_iter().flatten() {
                    let over = total.used_bytes > total.capacity_bytes.unwrap();
                    let is_found = snapshot.findings.iter().any(|it| {
                        it.kind == FindingKind::OverCapacity && it.device.as_deref() == Some(&*device.id)
                    });
                    prop_assert!(!over || is_found, "{}: {:?}", device.id, total);
                }
                // A kernel counts once, whichever way its process reports it.
                let resident = usage.kernel.as_ref().and_then(|it| it.resident_bytes).unwrap_or(0);
                prop_assert!(resident <= usage.kernel.as_ref().map_or(0, |it| it.registered_bytes));
            }
            for process in &snapshot.processes {
                let Some(pid) = process.pid else { continue };
                for of in &process.usage {
                    let device = snapshot.devices.iter().find(|it| it.id == of.device).unwrap();
                    let Some(kernel) = of.usage.kernel.as_ref().filter(|it| it.basis == Basis::Reported) else { continue };
                    let expected = kernels.iter().filter(|((by, chip, _), _)| (*by, *chip) == (pid, device.index));
                    prop_assert_eq!(kernel.registered_bytes, expected.map(|(_, held)| held.0).sum::<u64>());
                }
            }
        }
    }
}
