//! Limits per user, and what processes say of chips.

use super::analysis::{apply, changes};
use super::*;
use crate::input::Frame;

/// Registers a process of a user.
fn register_of(state: &mut State, from: Origin, user: u32) {
    let info = Process { uid: Some(user), ..Process::default() };
    state.apply(Mono(1), from, Input::Registered(Box::new(info)));
}

fn take(state: &mut State, from: Origin, at: u64) -> Outcome {
    let scope = if from == events(9) { Scope::Allocator(1) } else { on(0) };
    state.apply(Mono(2), from, Input::Alloc(alloc(scope, Space::Dram, at, 64)))
}

const TAKEN: Outcome = Outcome::Held { references: 1 };

#[test]
fn flood_of_one_user_leaves_room_for_others() {
    let limits = Limits { reported_per_user: 4, records_per_user: 6, ..Limits::default() };
    let mut state = machine_with(limits);
    for (pid, user) in [(1, 1000), (2, 1000), (3, 1001)] {
        register_of(&mut state, legacy(pid), user);
    }
    for at in 1..=2 {
        assert_eq!(take(&mut state, legacy(1), at), TAKEN);
        assert_eq!(take(&mut state, legacy(2), at), TAKEN);
    }
    for pid in [1, 2] {
        assert_eq!(take(&mut state, legacy(pid), 3), Outcome::Refused(Fault::UserLimit));
    }
    assert_eq!(take(&mut state, legacy(3), 3), TAKEN, "another user is not affected");
    // Records of segments have a higher limit.
    register_of(&mut state, events(9), 1000);
    let mesh = Input::Allocator(Allocator { id: 1, chips: vec![chip(0)], spaces: Vec::new() });
    state.apply(Mono(2), events(9), mesh);
    assert_eq!(
        [1, 2, 3].map(|at| take(&mut state, events(9), at)),
        [TAKEN, TAKEN, Outcome::Refused(Fault::UserLimit)]
    );
    // What is freed makes room, however it is freed.
    state.apply(Mono(2), legacy(1), free(on(0), None, 1));
    assert_eq!(take(&mut state, events(9), 3), TAKEN);
    state.apply(Mono(3), events(9), Input::AllocatorClosed(1));
    state.apply(Mono(3), legacy(2), Input::Exited);
    assert_eq!([5, 6, 7].map(|at| take(&mut state, legacy(1), at)), [TAKEN; 3]);
    assert_eq!(take(&mut state, legacy(1), 8), Outcome::Refused(Fault::UserLimit));
}

#[test]
fn definitions_of_one_user_are_bounded() {
    let mut state = machine_with(Limits { definition_bytes_per_user: 100_000, ..Limits::default() });
    for (pid, user) in [(1, 1000), (2, 1000), (3, 1001)] {
        register_of(&mut state, events(pid), user);
    }
    let long = "x".repeat(4000);
    let file = |number| Input::Site(Box::new(SiteDefinition::File(number, long.clone())));
    let mut define = |from, input| state.apply(Mono(2), from, input);
    let taken = (0..100).filter(|&n| define(events(1), file(n)) == Outcome::Noted).count();
    assert!((20..30).contains(&taken), "{taken}");
    let full = Outcome::Refused(Fault::DefinitionsFull);
    assert_eq!(define(events(2), file(1)), full);
    assert_eq!(define(events(2), Input::Cores(1, CoreSet::default())), full);
    assert_eq!(define(events(1), file(1)), Outcome::Noted, "one that is known may be repeated");
    assert_eq!(define(events(3), file(1)), Outcome::Noted);
    assert_eq!(define(events(1), Input::Exited), Outcome::Reclaimed(Reclaimed::default()));
    assert_eq!(define(events(2), file(1)), Outcome::Noted);
}

#[test]
fn names_of_many_sites_of_one_line_are_bounded() {
    let limit = 4 << 20;
    let mut state = machine_with(Limits { definition_bytes_per_user: limit, ..Limits::default() });
    register_of(&mut state, events(1), 1000);
    for number in 1..60_000 {
        let site = Site { frame: 1, ..Site::default() };
        state.apply(Mono(2), events(1), Input::Site(Box::new(SiteDefinition::Site(number, site))));
    }
    // Only now do all of these sites have a name: each its own copy.
    let frame = Frame { line: 1, function: "f".repeat(4000), ..Frame::default() };
    state.apply(Mono(2), events(1), Input::Site(Box::new(SiteDefinition::Frame(1, frame))));
    let bytes = state.state.holdings_of_user(id(1)).definition_bytes;
    assert!(bytes < 32 << 20, "{bytes}");
}

proptest! {
    #[test]
    fn holdings_of_users_are_sums(changes in changes()) {
        let mut state = machine();
        for (n, change) in changes.iter().enumerate() {
            apply(&mut state, Mono(n as u64), change);
        }
        let counted = state.state.users.clone();
        state.restore();
        prop_assert_eq!(counted, state.state.users.clone());
    }
}

fn named(number: u64) -> Input {
    Input::Chip(Box::new(Chip::new(ChipId::Unique(number), 0)))
}

#[test]
fn named_chips_are_bounded_and_forgotten() {
    let mut state = machine_with(Limits { chips: 20, chips_per_user: 8, ..Limits::default() });
    for (pid, user) in [(1, 1000), (2, 1000), (3, 1001)] {
        register_of(&mut state, events(pid), user);
    }
    let count = |state: &State| shot(state).devices.len();
    for number in 0..100 {
        state.apply(Mono(2), events(1), named(0x1000 + number));
    }
    assert_eq!(count(&state), CHIPS as usize + 8);
    let full = Outcome::Refused(Fault::DefinitionsFull);
    assert_eq!(state.apply(Mono(2), events(2), named(0x2000)), full);
    assert_eq!(state.apply(Mono(2), events(2), named(0x1000)), Outcome::Noted, "it is known already");
    assert_eq!(state.apply(Mono(2), events(3), named(0x2000)), Outcome::Noted);
    // The machine's own are always listed.
    for number in 0..20 {
        state.apply(Mono(2), Origin::Machine, named(0x3000 + number));
    }
    assert_eq!(count(&state), CHIPS as usize + 8 + 1 + 20);
    state.restore();
    state.apply(Mono(3), events(1), Input::Exited);
    assert_eq!(count(&state), CHIPS as usize + 1 + 1 + 20, "one is named by the other process, too");
    state.apply(Mono(3), events(2), Input::Exited);
    state.apply(Mono(3), events(3), Input::Exited);
    assert_eq!(count(&state), CHIPS as usize + 20);
    assert!(state.state.users.is_empty() && state.state.claimed.is_empty());
}

#[test]
fn process_does_not_change_a_listed_chip() {
    let mut state = machine();
    for (pid, user) in [(1, 1000), (2, 1001)] {
        register_of(&mut state, events(pid), user);
    }
    let layout =
        |end| crate::machine::CoreLayout { columns: 8, rows: 8, kernel_config: 0, unreserved: 0, end };
    let claim = |dram_bytes, cores, end| {
        let capacity = Capacity { dram_bytes, cores, origin: CapacityOrigin::Runtime, ..capacity() };
        let core_layout = Some(layout(end));
        let board = Some("other".to_owned());
        let chip = Chip { capacity: Some(capacity), core_layout, board, remote: true, ..Chip::unknown(0) };
        Input::Chip(Box::new(chip))
    };
    let before = shot(&state).devices[0].clone();
    state.apply(Mono(2), events(1), claim(1 << 20, 1, 4096));
    state.apply(Mono(2), events(1), Input::Opened(vec![chip(0)]));
    let seen = shot(&state).devices[0].clone();
    assert_eq!((seen.capacity, seen.remote, seen.core_layout), (before.capacity, false, None));
    // A process that has the chip open knows its harvested cores.
    state.apply(Mono(2), events(2), Input::Opened(vec![chip(0)]));
    state.apply(Mono(2), events(2), claim(12 << 30, 56, 1_499_136));
    let seen = shot(&state).devices[0].clone();
    assert_eq!((seen.capacity.unwrap().cores, seen.core_layout), (56, Some(layout(1_499_136))));
    state.restore();
    assert_eq!(shot(&state).devices[0], seen);
    for pid in [1, 2] {
        state.apply(Mono(3), events(pid), Input::Exited);
    }
    let seen = shot(&state).devices[0].clone();
    assert_eq!((seen.capacity, seen.board, seen.core_layout), (before.capacity, None, None), "nothing stays");
}

#[test]
fn impossible_peak_is_not_kept() {
    let mut state = machine();
    let counters = Origin::Process(id(1), Basis::Counters);
    register(&mut state, counters);
    let peak = |state: &State| {
        let peaks = &shot(state).devices[0].peaks;
        peaks.iter().find(|it| it.space == Space::Dram).map(|it| it.bytes)
    };
    state.apply(Mono(2), counters, Input::Levels(chip(0), vec![(Space::Dram, 11 << 30)]));
    state.tick(Mono(3));
    assert_eq!(peak(&state), Some(11 << 30));
    state.apply(Mono(4), counters, Input::Levels(chip(0), vec![(Space::Dram, 20 << 30)]));
    assert!(found(&state, FindingKind::OverCapacity).is_some(), "it is a finding");
    state.tick(Mono(5));
    state.apply(Mono(6), counters, Input::Exited);
    assert_eq!(peak(&state), Some(11 << 30));
}
