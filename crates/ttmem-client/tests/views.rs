//! Views that move with the dispatches of their program, against a naive model, through readers that poll always, seldom or once.
#![allow(clippy::unwrap_used, missing_docs)]

use proptest::prelude::*;
use std::collections::BTreeMap;
use ttmem_client::{
    AllocatorNumber, Buffer, Chip, CoreRange, CoresNumber, Options, Placement, Program, Space, Tracker, agent,
};
use ttmem_testkit::Reader;
use ttmem_wire::ViewAddresses;

#[derive(Clone, Debug)]
enum Step {
    /// A program that is built or rebuilt, with views at these addresses.
    Build(u32, Vec<u64>),
    /// A dispatch with the views where they are.
    Dispatch(u32),
    /// A dispatch with views at other addresses, of which as many are used as the program has views.
    Move(u32, Vec<u64>),
    End(u32),
    /// More events than a ring holds.
    Flood,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let program = || 1..4u32;
    // Few addresses, so that views share some.
    let addresses = |count| prop::collection::vec((1..6u64).prop_map(|n| n * 16), count);
    let step = prop_oneof![
        3 => (program(), addresses(0..=ViewAddresses::MOST)).prop_map(|(p, at)| Step::Build(p, at)),
        3 => program().prop_map(Step::Dispatch),
        6 => (program(), addresses(ViewAddresses::MOST..=ViewAddresses::MOST)).prop_map(|(p, at)| Step::Move(p, at)),
        1 => program().prop_map(Step::End),
        1 => Just(Step::Flood),
    ];
    prop::collection::vec(step, 0..40)
}

fn pack(addresses: &[u64]) -> ViewAddresses {
    let mut packed = ViewAddresses::default();
    for (number, &address) in addresses.iter().enumerate() {
        assert!(packed.set(number, address));
    }
    packed
}

/// A tracker with an allocator, and what its views should be: addresses by program.
struct Fixture {
    folder: tempfile::TempDir,
    tracker: Tracker,
    allocator: AllocatorNumber,
    cores: CoresNumber,
    model: BTreeMap<u32, Vec<u64>>,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = Options::default().folder(folder.path().to_str().unwrap()).ring(1024);
        let tracker = Tracker::new(&options);
        let chip = tracker.define_chip(&Chip::default().unique_id(1)).unwrap();
        let allocator = tracker.define_allocator(&[chip], &[]).unwrap();
        let cores = tracker.define_cores(&[CoreRange::new((0, 0), (3, 0))]).unwrap();
        Self { folder, tracker, allocator, cores, model: BTreeMap::new() }
    }

    fn apply(&mut self, step: &Step) {
        let (tracker, allocator, mut slot) = (&self.tracker, self.allocator, u32::MAX);
        match step {
            Step::Build(program, addresses) => {
                let built = Program::new(allocator, *program).cores(self.cores);
                agent::build_program(tracker, &built, pack(addresses)).unwrap();
                for (number, &address) in addresses.iter().enumerate() {
                    let view = Placement::new(allocator, *program, Space::Cb, address, 64);
                    let view = view.cores(self.cores).view(true);
                    agent::place_movable_view(tracker, &view, number).unwrap();
                }
                self.model.insert(*program, addresses.clone());
            }
            Step::Dispatch(program) => {
                let done = agent::dispatch(tracker, allocator, *program, &mut slot, None);
                assert_eq!(done.is_ok(), self.model.contains_key(program));
                let again = agent::dispatch_again(tracker, allocator, *program, slot);
                assert_eq!(again, done.is_ok());
            }
            Step::Move(program, addresses) => {
                let Some(known) = self.model.get_mut(program) else { return };
                *known = addresses[..known.len()].to_vec();
                agent::dispatch(tracker, allocator, *program, &mut slot, Some(pack(known))).unwrap();
            }
            Step::End(program) => {
                let ended = tracker.end_program(allocator, *program);
                assert_eq!(ended.is_ok(), self.model.remove(program).is_some());
            }
            Step::Flood => {
                for _ in 0..600 {
                    tracker.alloc(&Buffer::new(allocator, Space::L1, 1 << 19, 64)).unwrap();
                    tracker.free(allocator, Space::L1, 1 << 19).unwrap();
                }
            }
        }
    }

    /// The views by program and address, and how many there are of each.
    fn expected(&self) -> BTreeMap<(u32, u64), u32> {
        let mut views = BTreeMap::new();
        for (&program, addresses) in &self.model {
            for &address in addresses {
                *views.entry((program, address)).or_default() += 1;
            }
        }
        views
    }
}

/// The views that a reader lists.
fn listed(reader: &mut Reader) -> BTreeMap<(u32, u64), u32> {
    reader.poll();
    let listed = reader.state.allocations(0, usize::MAX, reader.state.now()).0;
    let views = listed.iter().filter(|it| it.program.is_some());
    let address = |id: &str| u64::from_str_radix(id.trim_start_matches("0x"), 16).unwrap();
    let mut found = BTreeMap::new();
    for it in views {
        *found.entry((it.program.unwrap(), address(&it.id))).or_default() += it.references;
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn moved_views_are_where_their_program_was_dispatched(
        steps in steps(), polls in prop::collection::vec(any::<bool>(), 40),
    ) {
        let mut fixture = Fixture::new();
        let (mut always, mut seldom) =
            (Reader::new(fixture.folder.path()), Reader::new(fixture.folder.path()));
        for (step, polled) in steps.iter().zip(polls) {
            fixture.apply(step);
            prop_assert_eq!(listed(&mut always), fixture.expected(), "{:?}", step);
            if polled {
                listed(&mut seldom);
            }
        }
        prop_assert_eq!(listed(&mut seldom), fixture.expected());
        prop_assert_eq!(listed(&mut Reader::new(fixture.folder.path())), fixture.expected());
    }
}
