//! Warnings in advance: programs that cannot be dispatched again, and free space that is scarce or in small blocks.

use super::*;
use crate::snapshot::Severity;

const MESH: Scope = Scope::Allocator(1);
/// Dispatches of every other program between two of the one that is blocked.
const OTHERS: u64 = 10;

fn in_banks(space: Space, base: u64, bytes_per_bank: u64) -> Input {
    let spaces = vec![Banks { space, banks: 4, base, bytes_per_bank }];
    Input::Allocator(Allocator { id: 1, chips: vec![chip(0)], spaces })
}

fn buffer(space: Space, at: u64, bytes: u64) -> Input {
    let extent = Some(Extent { occupied: bytes, bytes_per_bank: bytes, banks: 4 });
    Input::Alloc(Alloc { extent, ..alloc(MESH, space, at, bytes) })
}

fn circular_buffer(program: u32, at: u64, bytes: u64) -> Input {
    let extent = Some(Extent { occupied: bytes, bytes_per_bank: bytes, banks: 1 });
    Input::Alloc(Alloc { program, cores: 1, extent, ..alloc(MESH, Space::Cb, at, bytes) })
}

fn dispatch(id: u32, dispatches: u64) -> Input {
    let class = KernelClass::Application;
    Input::Program(Program {
        scope: MESH,
        id,
        cores: 1,
        site: 0,
        class,
        dispatches,
        dispatched: Some(Mono(0)),
    })
}

/// Two programs: the first needs L1 up to 600, the second up to 200.
struct Machine {
    state: State,
    now: u64,
    dispatches: [u64; 2],
}

impl Machine {
    fn new() -> Self {
        let mut machine = Self { state: machine(), now: 1, dispatches: [0; 2] };
        register(&mut machine.state, events(1));
        machine.apply(in_banks(Space::L1, 100, 900));
        machine.apply(Input::Cores(1, CoreSet::rectangle((0, 0), (2, 2))));
        machine.apply(circular_buffer(1, 100, 500));
        machine.apply(circular_buffer(2, 100, 100));
        machine
    }

    fn apply(&mut self, input: Input) {
        self.now += 1;
        self.state.apply(Mono(self.now * Mono::SECOND), events(1), input);
        self.state.tick(Mono(self.now * Mono::SECOND));
    }

    fn dispatch(&mut self, program: usize) {
        self.dispatches[program - 1] += 1;
        self.apply(dispatch(program as u32, self.dispatches[program - 1]));
    }

    fn warning(&self) -> Option<crate::snapshot::Finding> {
        found(&self.state, FindingKind::WouldClash)
    }

    fn would_clash(&self) -> Vec<bool> {
        let detail = Detail { programs: true, ..Detail::NONE };
        let shot = self.state.snapshot(Timestamp::UNIX_EPOCH, &detail);
        shot.processes[0].programs.iter().flatten().map(|it| it.would_clash).collect()
    }

    /// A step of a loop: the second program many times, then the first. `activation`: beside a buffer in the way of the first, which is
    /// gone by then.
    fn step(&mut self, activation: bool) {
        for n in 0..OTHERS {
            if activation {
                self.apply(buffer(Space::L1, 300 + n % 3 * 32, 32));
            }
            self.dispatch(2);
            assert_eq!(self.would_clash(), [activation, false]);
            if activation {
                self.apply(free(MESH, Some(Space::L1), 300 + n % 3 * 32));
            }
        }
        self.dispatch(1);
    }
}

#[test]
fn program_is_blocked_when_a_buffer_stays_in_its_way() {
    let mut machine = Machine::new();
    for _ in 0..5 {
        machine.step(true);
        assert_eq!(machine.warning(), None, "each buffer was gone in time");
    }
    machine.apply(buffer(Space::L1, 500, 32));
    assert_eq!(machine.would_clash(), [true, false]);
    for _ in 0..2 * OTHERS {
        machine.dispatch(2);
        assert_eq!(machine.warning(), None, "the loop may just be slow");
    }
    for _ in 0..3 * OTHERS {
        machine.dispatch(2);
    }
    let warning = machine.warning().expect("it should have been dispatched long ago");
    assert_eq!((warning.severity, warning.pid, warning.bytes), (Severity::Warning, Some(1), Some(100)));
    assert!(
        warning.text.contains("it needs L1 up to 0x258, and a buffer has been at 0x1f4"),
        "{}",
        warning.text
    );
    machine.apply(free(MESH, Some(Space::L1), 500));
    assert_eq!((machine.warning(), machine.would_clash()), (None, vec![false, false]));
}

#[test]
fn program_that_ran_once_is_not_missed() {
    let mut machine = Machine::new();
    machine.dispatch(1);
    machine.apply(buffer(Space::L1, 500, 32));
    for _ in 0..200 {
        machine.dispatch(2);
    }
    assert_eq!((machine.warning(), machine.would_clash()), (None, vec![true, false]));
}

#[test]
fn scarce_and_scattered_free_space_is_reported() {
    let mut state = machine();
    register(&mut state, events(1));
    state.apply(Mono(2), events(1), in_banks(Space::Dram, 0, 1000));
    let fragmentation = |state: &State| state.usage_of(chip(0)).dram.unwrap().fragmentation_percent;
    let kinds =
        |state: &State| -> Vec<FindingKind> { shot(state).findings.iter().map(|it| it.kind).collect() };
    // Every second block of 50 bytes.
    for n in 0..10 {
        state.apply(Mono(3), events(1), buffer(Space::Dram, n * 100, 50));
    }
    assert_eq!((fragmentation(&state), kinds(&state)), (Some(90.0), vec![FindingKind::Fragmented]));
    let text = &found(&state, FindingKind::Fragmented).unwrap().text;
    assert_eq!(
        text,
        "device 0: DRAM is fragmented: 2.0 KiB are free, but the largest free block has 50 B per bank"
    );
    for n in 0..8 {
        state.apply(Mono(4), events(1), free(MESH, Some(Space::Dram), n * 100));
    }
    assert_eq!((fragmentation(&state), kinds(&state)), (Some(11.1), vec![]));
    state.apply(Mono(5), events(1), buffer(Space::Dram, 0, 780));
    state.apply(Mono(5), events(1), buffer(Space::Dram, 850, 50));
    state.apply(Mono(5), events(1), buffer(Space::Dram, 950, 25));
    assert_eq!(kinds(&state), [FindingKind::NearlyFull]);
    let text = &found(&state, FindingKind::NearlyFull).unwrap().text;
    assert_eq!(
        text,
        "device 0: DRAM is 95.5% full: 180 B of 3.9 KiB are free, largest free block 25 B per bank"
    );
}
