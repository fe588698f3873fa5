//! What an analysis keeps never shows: one that was asked all the time answers as a new one.

use super::*;
use crate::detail::{BlockQuery, BufferQuery, ProgramKey, ProgramQuery, ProgramSort};
use crate::machine::CoreLayout;
use crate::words::Layout;

#[derive(Clone, Debug)]
pub(super) enum Change {
    Alloc { pid: u32, number: u32, space: Space, at: u64, len: u64, program: u32, layout: Layout },
    Free { pid: u32, number: u32, space: Space, at: u64 },
    Define { pid: u32, number: u32, chips: Vec<u32>, base: u64 },
    Close { pid: u32, number: u32 },
    Relist { pid: u32, number: u32 },
    Levels { pid: u32, chip: u32, dram: Option<u64> },
    Unlisted { pid: u32, number: u32, bytes: u64 },
    Peak { pid: u32, number: u32, bytes: u64 },
    Cores { pid: u32, number: u32, width: u8 },
    Dispatch { pid: u32, number: u32, program: u32 },
    EndProgram { pid: u32, number: u32, program: u32 },
    Trace { pid: u32, number: u32 },
    CoreLayout { chip: u32, rows: u8 },
    Exit { pid: u32 },
    Tick,
}

pub(super) fn changes() -> impl Strategy<Value = Vec<Change>> {
    let (pid, number) = (1u32..4, 1u32..3);
    let who = (pid.clone(), number);
    let space = prop::sample::select(vec![
        Space::Dram,
        Space::Dram,
        Space::L1,
        Space::L1,
        Space::L1Small,
        Space::L1Core,
        Space::Trace,
        Space::Cb,
        Space::Kernel,
    ]);
    let layout = prop::sample::select(vec![
        Layout::Interleaved,
        Layout::Interleaved,
        Layout::HeightSharded,
        Layout::Mirror,
        Layout::View,
    ]);
    let (at, len, program) = (0u64..40, 0u64..4, 0u32..4);
    let chips = prop::sample::select(vec![vec![0], vec![0, 1], vec![0, 1, 2], vec![2]]);
    let change = prop_oneof![
        24 => (who.clone(), space.clone(), at.clone(), len, program.clone(), layout).prop_map(
            |((pid, number), space, at, len, program, layout)| {
                Change::Alloc { pid, number, space, at, len, program, layout }
            }
        ),
        14 => (who.clone(), space, at)
            .prop_map(|((pid, number), space, at)| Change::Free { pid, number, space, at }),
        4 => (who.clone(), chips, 0u64..3)
            .prop_map(|((pid, number), chips, base)| Change::Define { pid, number, chips, base }),
        1 => who.clone().prop_map(|(pid, number)| Change::Close { pid, number }),
        1 => who.clone().prop_map(|(pid, number)| Change::Relist { pid, number }),
        2 => (pid.clone(), 0..CHIPS, prop::option::of(1u64..1000))
            .prop_map(|(pid, chip, dram)| Change::Levels { pid, chip, dram }),
        1 => (who.clone(), 0u64..50).prop_map(|((pid, number), bytes)| Change::Unlisted { pid, number, bytes }),
        1 => (who.clone(), 0u64..90_000).prop_map(|((pid, number), bytes)| Change::Peak { pid, number, bytes }),
        2 => (pid.clone(), 1u32..3, 1u8..6).prop_map(|(pid, number, width)| Change::Cores { pid, number, width }),
        4 => (who.clone(), program.clone())
            .prop_map(|((pid, number), program)| Change::Dispatch { pid, number, program }),
        1 => (who.clone(), program)
            .prop_map(|((pid, number), program)| Change::EndProgram { pid, number, program }),
        1 => who.prop_map(|(pid, number)| Change::Trace { pid, number }),
        1 => (0..CHIPS, 1u8..4).prop_map(|(chip, rows)| Change::CoreLayout { chip, rows }),
        1 => pid.prop_map(|pid| Change::Exit { pid }),
        2 => Just(Change::Tick),
    ];
    prop::collection::vec(change, 0..120)
}

fn banks_of(space: Space) -> u16 {
    if matches!(space, Space::Dram | Space::Trace) { 12 } else { 16 }
}

pub(super) fn apply(state: &mut State, now: Mono, change: &Change) {
    let scope = Scope::Allocator;
    let (from, event) = match *change {
        Change::Alloc { pid, number, space, at, len, program, layout } => {
            let banks = banks_of(space);
            let held = Alloc {
                // Some take nothing anywhere, and some do not say.
                extent: (len != 1).then_some(Extent {
                    occupied: len * 100,
                    bytes_per_bank: len * 100,
                    banks,
                }),
                cores: program.min(2),
                program: if space.is_program() { program } else { 0 },
                site: program,
                layout,
                ..alloc(scope(number), space, 1000 + at * 100, len * 100 + 1)
            };
            (events(pid), Input::Alloc(held))
        }
        Change::Free { pid, number, space, at } => {
            (events(pid), free(scope(number), Some(space), 1000 + at * 100))
        }
        Change::Define { pid, number, ref chips, base } => {
            let bank =
                |space, base, bytes_per_bank| Banks { space, banks: banks_of(space), base, bytes_per_bank };
            let allocator = Allocator {
                id: number,
                chips: chips.iter().map(|&it| chip(it)).collect(),
                spaces: vec![
                    bank(Space::Dram, 1000 + base * 50, 3500),
                    bank(Space::L1, 1000, 3000 - base * 10),
                    bank(Space::L1Small, 3000, 1000),
                ],
            };
            (events(pid), Input::Allocator(allocator))
        }
        Change::Close { pid, number } => (events(pid), Input::AllocatorClosed(number)),
        Change::Relist { pid, number } => (events(pid), Input::ListingBegun(number)),
        Change::Levels { pid, chip, dram } => {
            let held = dram.map(|bytes| (Space::Dram, bytes)).into_iter().collect();
            (Origin::Process(id(pid), Basis::Counters), Input::Levels(ChipId::Ordinal(chip), held))
        }
        Change::Unlisted { pid, number, bytes } => {
            let holding = Holding { requested: bytes, allocated: bytes, count: bytes / 10 };
            (events(pid), Input::Unlisted { scope: scope(number), space: Space::Dram, holding })
        }
        Change::Peak { pid, number, bytes } => {
            (events(pid), Input::Peak { scope: scope(number), space: Space::Dram, bytes: Some(bytes) })
        }
        Change::Cores { pid, number, width } => {
            (events(pid), Input::Cores(number, CoreSet::rectangle((0, 0), (width, 1))))
        }
        Change::Dispatch { pid, number, program } => (events(pid), dispatched(scope(number), program + 1)),
        Change::EndProgram { pid, number, program } => {
            (events(pid), Input::ProgramEnded(scope(number), program))
        }
        Change::Trace { pid, number } => {
            let trace = Trace { scope: scope(number), id: 1, dispatches: 1, replays: 0, captured: now };
            (events(pid), Input::Trace(trace))
        }
        Change::CoreLayout { chip, rows } => {
            let layout = CoreLayout {
                columns: 4,
                rows,
                kernel_config: 100,
                unreserved: 500 + u64::from(rows),
                end: 6000,
            };
            (
                Origin::Machine,
                Input::Chip(Box::new(Chip { core_layout: Some(layout), ..Chip::unknown(chip) })),
            )
        }
        Change::Exit { pid } => (events(pid), Input::Exited),
        Change::Tick => return state.tick(now),
    };
    if let Origin::Process(..) = from {
        state.apply(now, from, Input::Registered(Box::default()));
    }
    state.apply(now, from, event);
}

pub(super) fn all() -> Detail {
    let buffers = Some(BufferQuery { limit: 1000, ..BufferQuery::default() });
    let blocks = Some(BlockQuery { limit: 1000, ..BlockQuery::default() });
    Detail { history: true, cores: true, programs: true, buffers, blocks, ..Detail::NONE }
}

fn brief() -> Detail {
    Detail { brief: true, programs: true, pid: Some(2), ..Detail::NONE }
}

proptest! {
    #[test]
    fn a_used_analysis_answers_as_a_new_one(changes in changes(), each in 1usize..9) {
        let mut used = machine();
        let mut fresh = machine();
        for (n, change) in changes.iter().enumerate() {
            let now = Mono(n as u64 * Mono::SECOND / 8);
            apply(&mut used, now, change);
            apply(&mut fresh, now, change);
            if n % each == 0 || n + 1 == changes.len() {
                fresh.forget_analysis();
                for detail in [all(), brief()] {
                    let [one, other] = [&used, &fresh].map(|it| it.snapshot(Timestamp::UNIX_EPOCH, &detail));
                    prop_assert_eq!(one, other);
                }
            }
        }
    }

    #[test]
    fn brief_snapshot_only_leaves_out(changes in changes()) {
        let mut state = machine();
        for (n, change) in changes.iter().enumerate() {
            apply(&mut state, Mono(n as u64), change);
        }
        let full = state.snapshot(Timestamp::UNIX_EPOCH, &Detail { programs: true, ..Detail::NONE });
        let mut expected = full.clone();
        for process in &mut expected.processes {
            let mut again = process.clone();
            again.summarise(|id| full.devices.iter().find(|it| it.id == id).map(|it| it.index));
            prop_assert_eq!(&again.summary, &process.summary);
            if process.pid != Some(2) {
                (process.usage, process.allocators, process.audit) = Default::default();
                for it in process.programs.iter_mut().flatten() {
                    it.placements.clear();
                    it.devices.clear();
                }
            }
        }
        prop_assert_eq!(state.snapshot(Timestamp::UNIX_EPOCH, &brief()), expected);
    }
}

fn sorts() -> impl Strategy<Value = ProgramSort> {
    use ProgramSort as S;
    prop::sample::select(vec![
        S::Last,
        S::Process,
        S::Id,
        S::Name,
        S::Device,
        S::Cores,
        S::Resident,
        S::Dispatches,
        S::Cb,
        S::Dfb,
        S::Scratch,
        S::Kernel,
        S::End,
    ])
}

proptest! {
    #[test]
    fn page_of_programs_is_part_of_the_list(
        changes in changes(),
        sort in sorts(),
        reversed in any::<bool>(),
        pids in prop::sample::select(vec![vec![], vec![1], vec![2, 3], vec![99]]),
        text in prop::sample::select(vec!["", "1", "APPLICATION", "2 1", "nothing"]),
        (offset, limit) in (0u64..6, 0u32..8),
    ) {
        let mut state = machine();
        for (n, change) in changes.iter().enumerate() {
            apply(&mut state, Mono(n as u64), change);
        }
        let at = Timestamp::UNIX_EPOCH;
        let everything = state.snapshot(at, &all());
        let fits = |pid: Option<u32>, program: &crate::snapshot::Program| {
            let texts = [
                pid.map_or_else(String::new, |pid| pid.to_string()),
                program.id.to_string(),
                program.class.title().to_lowercase(),
                program.name.clone().unwrap_or_default().to_lowercase(),
            ];
            text.to_lowercase().split_whitespace().all(|word| texts.iter().any(|text| text.contains(word)))
        };
        let mut expected = Vec::new();
        for process in &everything.processes {
            let asked = pids.is_empty() || process.pid.is_some_and(|pid| pids.contains(&pid));
            let named = process.name.as_ref().is_some_and(|name| name.contains(text) && !text.is_empty());
            prop_assume!(!named);
            for it in process.programs.iter().flatten().filter(|it| asked && fits(process.pid, it)) {
                expected.push((process.pid, it.clone()));
            }
        }
        let key = |(_, program): &(Option<u32>, crate::snapshot::Program)| -> i128 {
            let most_first = |n: u64| -i128::from(n);
            match sort {
                ProgramSort::Last => program.dispatched.map_or(i128::MAX, |at| -at.as_nanosecond()),
                ProgramSort::Id => program.id.into(),
                ProgramSort::Device => program.indexes.first().map_or(-1, |&index| index.into()),
                ProgramSort::Cores => most_first(program.core_count.into()),
                ProgramSort::Resident => most_first(program.resident_cores.into()),
                ProgramSort::Dispatches => most_first(program.dispatches),
                ProgramSort::Cb => most_first(program.cb_bytes),
                ProgramSort::Dfb => most_first(program.dfb_bytes),
                ProgramSort::Scratch => most_first(program.scratch_bytes),
                ProgramSort::Kernel => most_first(program.kernel_bytes),
                ProgramSort::End => program.end.map_or(1, most_first),
                ProgramSort::Process | ProgramSort::Name | ProgramSort::ProcessName => 0,
            }
        };
        let open = expected.last().map(|(pid, it)| ProgramKey { pid: *pid, allocator: it.allocator, id: it.id });
        let text = text.to_owned();
        let query = ProgramQuery { sort, reversed, pids, text, offset, limit, open, ..ProgramQuery::default() };
        let whole = ProgramQuery { offset: 0, limit: ProgramQuery::MOST, ..query.clone() };
        let list = |query: &ProgramQuery| {
            let detail = Detail { brief: true, program_list: Some(query.clone()), ..Detail::NONE };
            state.snapshot(at, &detail).programs.unwrap()
        };
        let (page, whole) = (list(&query), list(&whole));
        prop_assert_eq!(page.count, expected.len() as u64);
        prop_assert_eq!(whole.list.len(), expected.len());
        // In order, each once, and as it is anywhere else but for where things are.
        let keys: Vec<i128> = whole.list.iter().map(|it| key(&(it.pid, it.program.clone()))).collect();
        let in_order = |pair: &[i128]| if reversed { pair[0] >= pair[1] } else { pair[0] <= pair[1] };
        // Moments are shown to the millisecond, and sorted by more than that.
        prop_assert!(sort == ProgramSort::Last || keys.windows(2).all(in_order), "{:?}", keys);
        for (pid, mut program) in expected.clone() {
            program.devices.clear();
            program.placements.clear();
            let found = whole.list.iter().filter(|row| row.pid == pid && row.program == program).count();
            prop_assert!(found >= 1, "{:?} {:?}", pid, program);
        }
        let part: Vec<_> = whole.list.iter().skip(offset as usize).take(limit as usize).cloned().collect();
        prop_assert_eq!(&page.list, &part);
        prop_assert_eq!(page.open.map(|it| (it.pid, it.program)), expected.last().cloned());
    }
}

#[test]
fn partial_requests_are_parts_of_full_ones() {
    let mut state = machine();
    for chip in 0..CHIPS {
        apply(&mut state, Mono(0), &Change::CoreLayout { chip, rows: 2 });
    }
    apply(&mut state, Mono(0), &Change::Define { pid: 1, number: 1, chips: vec![0, 1, 2], base: 0 });
    for second in 1..200u64 {
        let at = second % 40;
        let (space, layout) = (Space::Dram, Layout::Interleaved);
        let held = Change::Alloc { pid: 1, number: 1, space, at, len: 1, program: 0, layout };
        apply(&mut state, Mono(second * Mono::SECOND), &held);
        state.tick(Mono(second * Mono::SECOND));
    }
    let at = Timestamp::from_second(10_000).unwrap();
    let everything = state.snapshot(at, &all());
    let since = Timestamp::from_second(10_000 - 70).unwrap();
    let part = state.snapshot(at, &Detail { history_since: Some(since), cores_of: Some(1), ..Detail::NONE });
    for (all, part) in everything.devices.iter().zip(&part.devices) {
        assert!(all.cores.is_some());
        assert_eq!(part.cores, all.cores.clone().filter(|_| part.index == 1));
        let mut history = all.history.clone().unwrap();
        let before = history.dram_total.len();
        history.dram_total.retain(|it| it.at > since);
        history.l1_total.retain(|it| it.at > since);
        assert!((1..before).contains(&history.dram_total.len()));
        assert_eq!(part.history.as_ref(), Some(&history));
    }
    let none = state.snapshot(at, &Detail { history_since: Some(at), ..Detail::NONE });
    assert_eq!(none.devices[0].history.as_ref().unwrap().l1_total, []);
}
