//! Answers any request on a state with buffers, programs and call sites: nothing panics, and every answer is JSON within the limits
//! of the request.

use std::cell::RefCell;
use ttmem_core::detail::BufferQuery;
use ttmem_core::input::{Alloc, Allocator, Banks, Extent, Frame, Program, Site, SiteDefinition};
use ttmem_core::machine::Chip;
use ttmem_core::words::{
    Basis, ChipId, KernelClass, Layout, Mono, Origin, ProcessId, Scope, Space, Uncertainty,
};
use ttmem_core::{Analysis, CoreSet, Detail, Input, Limits, Snapshot, State};
use ttmem_reader::Request;

const BUFFERS: u64 = 40;

thread_local! {
    /// No request changes the state, so one is enough.
    static STATE: RefCell<(State, Analysis)> = RefCell::new(example());
}

/// Two processes with buffers, a program and call sites on a device.
fn example() -> (State, Analysis) {
    let (mut state, mut analysis) = (State::new(Limits::default(), 7), Analysis::default());
    let mut apply = |from: Origin, input: Input| {
        state.apply(&mut analysis, Mono(1_000_000_000), from, input);
    };
    apply(Origin::Machine, Input::Chip(Box::new(Chip::unknown(0))));
    for pid in [7, 8] {
        let by = Origin::Process(ProcessId { pid, start: 1 }, Basis::Exact);
        let spaces = [Space::Dram, Space::L1].map(|space| Banks {
            space,
            banks: 8,
            base: 64,
            bytes_per_bank: 1 << 16,
        });
        let allocator = Allocator { id: 1, chips: vec![ChipId::Ordinal(0)], spaces: spaces.to_vec() };
        let frame = Frame { file: 1, line: 42, offset: 0, function: "forward".to_owned() };
        let site = |number| SiteDefinition::Site(number, Site { frame: 1, op: 1, ..Site::default() });
        for input in [
            Input::Registered(Box::default()),
            Input::Allocator(allocator),
            Input::Cores(1, CoreSet::from_words([0xff, 0, 0, 0])),
            Input::Site(Box::new(SiteDefinition::File(1, "/m/model.py".to_owned()))),
            Input::Site(Box::new(SiteDefinition::Frame(1, frame))),
            Input::Site(Box::new(SiteDefinition::Op(1, "ttnn.add".to_owned()))),
            Input::Site(Box::new(site(1))),
            Input::Program(Program {
                scope: Scope::Allocator(1),
                id: 3,
                cores: 1,
                site: 1,
                class: KernelClass::Unknown,
                dispatches: 1,
                dispatched: Some(Mono(1_000_000_000)),
            }),
        ] {
            apply(by, input);
        }
        for n in 0..BUFFERS {
            let space = if n % 2 == 0 { Space::Dram } else { Space::L1 };
            apply(
                by,
                Input::Alloc(Alloc {
                    scope: Scope::Allocator(1),
                    space,
                    id: 64 + n * 128,
                    requested: 64 + n,
                    at: None,
                    extent: Some(Extent { occupied: 128, bytes_per_bank: 64, banks: 8 }),
                    cores: 0,
                    program: 0,
                    site: u32::from(n % 3 == 0),
                    layout: Layout::Unknown,
                    class: KernelClass::Unknown,
                    uncertainty: Uncertainty::default(),
                }),
            );
        }
    }
    (state, analysis)
}

/// Answers each line of the input.
pub fn query(data: &[u8]) {
    for line in data.split(|&byte| byte == b'\n') {
        match Request::parse(line) {
            Ok(Request::Snapshot(detail)) => answer(&detail),
            Ok(request) => assert!(Request::parse(&serde_json::to_vec(&request).unwrap()) == Ok(request)),
            Err(why) => assert!(!why.is_empty()),
        }
    }
}

fn answer(detail: &Detail) {
    let snapshot = STATE
        .with_borrow_mut(|(state, analysis)| analysis.snapshot(state, jiff::Timestamp::UNIX_EPOCH, detail));
    let json = serde_json::to_vec(&snapshot).unwrap();
    let again: Snapshot = serde_json::from_slice(&json).unwrap();
    assert_eq!(again.processes.len(), 2);
    if let (Some(buffers), Some(query)) = (&snapshot.buffers, &detail.buffers) {
        assert!(
            buffers.count <= 2 * BUFFERS && buffers.list.len() <= query.limit.min(BufferQuery::MOST) as usize
        );
    }
    if let (Some(maps), Some(query)) = (&snapshot.block_maps, &detail.blocks) {
        let listed: usize = maps.iter().map(|map| map.blocks.len()).sum();
        assert!(listed <= query.limit as usize);
    }
}
