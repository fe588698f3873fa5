//! What sources that follow segments say besides allocations and frees.

use super::*;
use crate::Viewer;
use crate::detail::{BufferGrouping, BufferQuery};
use crate::input::{FaultReport, Frame, Holding, Mark};
use crate::words::{Fault, Layout, Purpose};
use ttmem_types::{DataType, Tensor};

fn tracked() -> State {
    let mut state = machine();
    register(&mut state, events(1));
    state.apply(Mono(2), events(1), mesh(1, &[0]));
    state.apply(Mono(2), events(1), mesh(2, &[0]));
    state
}

fn dram(state: &State) -> crate::snapshot::BufferUsage {
    shot(state).processes[0].usage[0].usage.dram.clone().unwrap()
}

#[test]
fn listing_drops_records_of_one_allocator() {
    let mut state = tracked();
    state.apply(Mono(3), events(1), banked(1, 1000, 100));
    state.apply(Mono(3), events(1), banked(1, 2000, 100));
    state.apply(Mono(3), events(1), banked(2, 5000, 7));
    state.apply(Mono(4), events(1), Input::ListingBegun(1));
    assert_eq!((dram(&state).requested_bytes, state.live_records()), (7, 1));
    state.apply(Mono(4), events(1), banked(1, 1000, 100));
    assert_eq!(dram(&state).requested_bytes, 107);
    let peak = Input::Peak { scope: Scope::Allocator(1), space: Space::Dram, bytes: Some(2400) };
    state.apply(Mono(4), events(1), peak);
    assert_eq!(dram(&state).peak_bytes, 2400, "as the listing says");
    assert!(shot(&state).findings.is_empty());
    // The process's limit counts what is there, not what was listed.
    let mut state = machine_with(Limits { records_per_process: 2, ..Limits::default() });
    register(&mut state, events(1));
    state.apply(Mono(2), events(1), mesh(1, &[0]));
    for _ in 0..5 {
        state.apply(Mono(3), events(1), Input::ListingBegun(1));
        for at in [1000, 2000] {
            assert_eq!(state.apply(Mono(3), events(1), banked(1, at, 1)), Outcome::Held { references: 1 });
        }
    }
}

#[test]
fn report_lists_the_first_and_counts_all() {
    let mut state = tracked();
    for at in 1..=20 {
        state.apply(Mono(3), events(1), banked(1, at * 1000, 100));
    }
    let holding = Holding { requested: 50, allocated: 600, count: 5 };
    let unlisted = Input::Unlisted { scope: Scope::Allocator(1), space: Space::Dram, holding };
    state.apply(Mono(4), events(1), unlisted);
    // A mirror is another allocator's buffer.
    let Input::Alloc(mirror) = banked(2, 90_000, 100) else { unreachable!() };
    state.apply(Mono(4), events(1), Input::Alloc(Alloc { layout: Layout::Mirror, ..mirror }));
    for (most, listed) in [(0, 0), (1, 1), (20, 20), (1000, 20)] {
        let groups: Vec<_> = state.report(&[Space::Dram], most, Viewer::ALL).collect();
        let [group] = &groups[..] else { panic!("{groups:?}") };
        assert_eq!((group.count, group.bytes, group.listed.len()), (25, 2050, listed), "at most {most}");
    }
    assert_eq!(state.report(&[Space::L1], 10, Viewer::ALL).count(), 0);
}

#[test]
fn unlisted_allocations_are_counted() {
    let mut state = tracked();
    state.apply(Mono(3), events(1), banked(1, 1000, 100));
    let unlisted = |requested, allocated, count| Input::Unlisted {
        scope: Scope::Allocator(1),
        space: Space::Dram,
        holding: Holding { requested, allocated, count },
    };
    state.apply(Mono(4), events(1), unlisted(50, 600, 5));
    let it = dram(&state);
    assert_eq!((it.requested_bytes, it.allocated_bytes, it.count), (150, Some(1800), Some(6)));
    assert_eq!((it.occupied_bytes, it.free_bytes), (None, None), "where it lies nobody knows");
    // It is a level: another report replaces it.
    state.apply(Mono(5), events(1), unlisted(20, 240, 2));
    assert_eq!(dram(&state).requested_bytes, 120);
    state.apply(Mono(6), events(1), unlisted(0, 0, 0));
    assert_eq!((dram(&state).requested_bytes, dram(&state).occupied_bytes), (100, Some(100)));
    // And goes with its allocator.
    state.apply(Mono(7), events(1), unlisted(u64::MAX, u64::MAX, u64::MAX));
    assert_eq!(dram(&state).requested_bytes, MAX_ALLOCATION_BYTES + 100);
    state.apply(Mono(8), events(1), Input::AllocatorClosed(1));
    assert!(shot(&state).processes[0].usage.is_empty());
    assert_eq!(state.apply(Mono(9), events(1), Input::Exited), Outcome::Reclaimed(Reclaimed::default()));
}

#[test]
fn incomplete_figures_are_marked() {
    let mut state = tracked();
    let scope = Scope::Allocator(1);
    state.apply(Mono(3), events(1), banked(1, 1000, 100));
    state.apply(Mono(3), events(1), Input::Alloc(alloc(scope, Space::Dram, 5000, 64)));
    let it = dram(&state);
    assert_eq!((it.requested_bytes, it.allocated_bytes, it.occupied_bytes), (164, None, None));
    assert_eq!(it.free_bytes, None);
    state.apply(Mono(4), events(1), free(scope, Some(Space::Dram), 5000));
    assert_eq!(dram(&state).allocated_bytes, Some(1200));
}

#[test]
fn reported_peak_replaces_derived_peak() {
    let mut state = tracked();
    let scope = Scope::Allocator(1);
    let peak = |bytes| Input::Peak { scope, space: Space::Dram, bytes };
    state.apply(Mono(3), events(1), banked(1, 1000, 100));
    state.apply(Mono(3), events(1), peak(Some(5000)));
    assert_eq!(dram(&state).peak_bytes, 5000);
    state.apply(Mono(3), events(1), peak(None));
    assert_eq!(dram(&state).peak_bytes, 1200);
    state.apply(Mono(3), events(1), peak(Some(1)));
    assert_eq!(dram(&state).peak_bytes, 1200, "no less than what is in use");
}

#[test]
fn counted_faults_are_findings() {
    let mut state = tracked();
    let report = |fault, count, id| Input::Fault(FaultReport { fault, count, id });
    state.apply(Mono(3), events(1), report(Fault::DoubleFree, 3, 0x10));
    state.apply(Mono(3), events(1), report(Fault::OutOfMemory, 1, 2 << 20));
    assert!(shot(&state).processes[0].complete, "nothing is missing");
    state.apply(Mono(3), events(1), report(Fault::ZeroSize, 2, 0));
    let shot = shot(&state);
    assert!(!shot.processes[0].complete);
    let text =
        |kind| shot.findings.iter().find(|f| f.kind == kind).map(|f| (f.count, f.text.clone())).unwrap();
    assert_eq!(text(FindingKind::DoubleFree).0, 3);
    assert_eq!(text(FindingKind::OutOfMemory).1, "out of memory: pid 1 requested 2.0 MiB");
    assert_eq!(text(FindingKind::Refused), (2, "pid 1: 2 reports rejected: size is zero".to_owned()));
}

#[test]
fn names_and_progress_are_shown() {
    let mut state = tracked();
    let at = Alloc { site: 4, ..alloc(Scope::Allocator(1), Space::Dram, 1000, 64) };
    state.apply(Mono(5_000_000_000), events(1), named_site(4, "model.py:7"));
    state.apply(Mono(5_000_000_000), events(1), Input::Alloc(Alloc { at: Some(Mono(2_000_000_000)), ..at }));
    state.apply(Mono(5_000_000_000), events(1), Input::Progress { sequence: 9, exact: false });
    let (listed, _) = state.allocations(0, 10, state.now());
    assert_eq!(listed[0].site_name.as_deref(), Some("model.py:7"));
    assert!((listed[0].age_seconds - 3.0).abs() < 0.01, "by the writer's own clock");
    let it = &shot(&state).processes[0];
    assert_eq!((it.sequence, it.complete), (Some(9), false));
}

#[test]
fn process_reports_complete_a_chip() {
    let mut state = State::new(Limits::default(), 7);
    let plain = Chip::unknown(0);
    let full = Chip { board: Some("n300".into()), capacity: Some(capacity()), ..plain.clone() };
    state.apply(Mono(0), Origin::Machine, Input::Chip(Box::new(full)));
    state.apply(Mono(0), events(1), Input::Chip(Box::new(plain.clone())));
    assert_eq!(state.chip(chip(0)).unwrap().board.as_deref(), Some("n300"), "nothing known is forgotten");
    let simulated = Capacity { origin: CapacityOrigin::Simulated, ..capacity() };
    state.apply(
        Mono(0),
        Origin::Machine,
        Input::Chip(Box::new(Chip { capacity: Some(simulated), ..plain.clone() })),
    );
    let runtime = Capacity { origin: CapacityOrigin::Runtime, ..capacity() };
    state.apply(Mono(0), events(1), Input::Chip(Box::new(Chip { capacity: Some(runtime), ..plain })));
    assert!(state.is_simulated(), "that a chip is simulated nobody can deny");
}

#[test]
fn buffers_are_found_and_grouped_by_parts_of_call_sites() {
    let mut state = tracked();
    let frame = Frame { file: 1, line: 42, offset: 0, function: "forward".to_owned() };
    let tensor = Some(Tensor::new(&[32, 512]).data_type(DataType::Bfloat16));
    let site = |op, tensor| Site { frame: 1, op, tensor, purpose: Purpose::Tensor, ..Site::default() };
    for definition in [
        SiteDefinition::File(1, "/home/me/model.py".to_owned()),
        SiteDefinition::Frame(1, frame),
        SiteDefinition::Op(1, "ttnn.matmul".to_owned()),
        SiteDefinition::Op(2, "ttnn.add".to_owned()),
        SiteDefinition::Site(4, site(1, tensor)),
        SiteDefinition::Track(3, "decode / attention".to_owned()),
        SiteDefinition::Site(5, Site { track: 3, ..site(2, None) }),
    ] {
        state.apply(Mono(1), events(1), Input::Site(Box::new(definition)));
    }
    for site in [4, 5, 0] {
        let at = alloc(Scope::Allocator(1), Space::Dram, 1000 * u64::from(site + 1), 64);
        state.apply(Mono(1), events(1), Input::Alloc(Alloc { site, ..at }));
    }
    let query = |text: &str, group| {
        let buffers = BufferQuery { text: text.to_owned(), group, limit: 9, ..BufferQuery::default() };
        let detail = Detail { buffers: Some(buffers), ..Detail::NONE };
        state.snapshot(Timestamp::UNIX_EPOCH, &detail).buffers.unwrap()
    };
    for (text, count) in [
        ("ttnn.matmul", 1),
        ("/home/me/", 2),
        ("model.py:42 tensor", 2),
        ("bfloat16", 1),
        ("attention", 1),
        ("nothing", 0),
    ] {
        assert_eq!(query(text, None).count, count, "{text}");
    }
    for (group, labels) in [
        (BufferGrouping::Op, ["ttnn.matmul", "ttnn.add"].as_slice()),
        (BufferGrouping::Function, &["forward (model.py)"]),
        (BufferGrouping::File, &["/home/me/model.py"]),
        (BufferGrouping::Tensor, &["bfloat16 [32, 512]"]),
        (BufferGrouping::Track, &["decode / attention"]),
    ] {
        let found = query("", Some(group)).groups;
        let mut found: Vec<&str> = found.iter().filter_map(|it| it.label.as_deref()).collect();
        found.sort_unstable_by_key(|label| labels.iter().position(|it| it == label));
        assert_eq!(found, labels);
    }
}

#[test]
fn last_mark_of_a_process_is_shown() {
    let mut state = tracked();
    assert!(shot(&state).processes[0].last_mark.is_none());
    state.apply(Mono(3), events(1), named_site(4, "step"));
    for (at, number) in [(4, Some(11)), (5, Some(12))] {
        state.apply(Mono(at), events(1), Input::Mark(Mark { name: 4, number, at: Mono(at) }));
    }
    let mark = shot(&state).processes[0].last_mark.clone().unwrap();
    assert_eq!((mark.name.as_deref(), mark.number), (Some("step"), Some(12)));
    state.apply(Mono(6), events(1), Input::Mark(Mark { name: 0, number: None, at: Mono(6) }));
    let mark = shot(&state).processes[0].last_mark.clone().unwrap();
    assert_eq!((mark.name, mark.number), (None, None), "there was no space for its name");
}
