//! Against the simplest thing that can be right: all allocations described, filtered, sorted and cut.

use crate::detail::{BufferGrouping, BufferQuery, BufferSort};
use crate::input::{Alloc, Allocator, Extent, Input, Process, Program, Site, SiteDefinition};
use crate::machine::Chip;
use crate::snapshot::{Allocation, BufferGroup};
use crate::testing::Model as State;
use crate::words::{Basis, ChipId, KernelClass, Layout, Mono, Origin, ProcessId, Scope, Space, Uncertainty};
use crate::{Detail, Limits};
use jiff::Timestamp;
use proptest::prelude::*;
use std::cmp::Ordering;
use std::collections::BTreeMap;

const SPACES: [Space; 5] = [Space::Dram, Space::L1, Space::Cb, Space::Kernel, Space::L1Core];
const LAYOUTS: [Layout; 4] = [Layout::Interleaved, Layout::HeightSharded, Layout::Mirror, Layout::Unknown];
const NAMES: [&str; 4] = ["Matmul.py:12", "conv2d", "ärger", "attention <0x40>"];

type Held = (u32, u32, usize, u64, u64, u32, u32, usize, bool);

fn state(held: &[Held], names: &[(u32, u32, usize, bool)]) -> State {
    let mut state = State::new(Limits::default(), 3);
    for index in [5, 1, 3] {
        state.apply(Mono(0), Origin::Machine, Input::Chip(Box::new(Chip::unknown(index))));
    }
    let chips =
        [vec![5, 3], vec![1], vec![3]].map(|all| all.into_iter().map(ChipId::Ordinal).collect::<Vec<_>>());
    for pid in 0..4 {
        for basis in [Basis::Exact, Basis::Reported] {
            let from = Origin::Process(ProcessId { pid, start: 1 }, basis);
            let name = (pid != 3).then(|| format!("Worker-{pid}"));
            let reported_pid = (pid == 0).then_some(4711);
            state.apply(
                Mono(0),
                from,
                Input::Registered(Box::new(Process { name, reported_pid, ..Process::default() })),
            );
            for (id, chips) in (1..).zip(chips.clone()) {
                state.apply(Mono(0), from, Input::Allocator(Allocator { id, chips, spaces: Vec::new() }));
            }
        }
    }
    for &(pid, number, name, site) in names {
        let from = Origin::Process(ProcessId { pid, start: 1 }, Basis::Exact);
        let text = NAMES[name].to_owned();
        let input = if site {
            Input::Site(Box::new(SiteDefinition::Site(number, Site { text, ..Site::default() })))
        } else {
            Input::ProgramNamed(number, text)
        };
        state.apply(Mono(0), from, input);
        let program = Program {
            scope: Scope::Allocator(number % 3 + 1),
            id: number,
            cores: 0,
            site: number / 2 + 1,
            class: KernelClass::Application,
            dispatches: 0,
            dispatched: None,
        };
        state.apply(Mono(0), from, Input::Program(program));
    }
    for (n, &(pid, number, space, id, size, program, site, layout, by_events)) in held.iter().enumerate() {
        let basis = if by_events { Basis::Exact } else { Basis::Reported };
        let scope = Scope::Allocator(number);
        let extent = (size % 3 != 0).then_some(Extent { occupied: size, bytes_per_bank: size % 5, banks: 4 });
        let (space, layout) = (SPACES[space], LAYOUTS[layout]);
        let class = KernelClass::Application;
        let requested = size + 1;
        let (at, cores, uncertainty) = (None, 0, Uncertainty::default());
        let alloc = Alloc {
            scope,
            space,
            id,
            requested,
            at,
            extent,
            cores,
            program,
            site,
            layout,
            class,
            uncertainty,
        };
        let from = Origin::Process(ProcessId { pid, start: 1 }, basis);
        // From 1 ms on: at 0 the state makes alloc 1 ns, and an age is a whole number of milliseconds.
        state.apply(Mono((n as u64 + 1) * 1_000_000), from, Input::Alloc(alloc));
    }
    state
}

fn fits(allocation: &Allocation, process_name: Option<&str>, query: &BufferQuery) -> bool {
    let pid =
        allocation.pid.map(|pid| pid.to_string()).or(allocation.reported_pid.map(|pid| pid.to_string()));
    let layout = allocation.layout.and_then(Layout::title).map(str::to_owned);
    let names =
        [allocation.program_name.clone(), allocation.site_name.clone(), process_name.map(str::to_owned)];
    let programs = allocation.space.is_program().then(|| "programs".to_owned());
    let texts =
        [Some(allocation.id.clone()), Some(allocation.space.name().to_owned()), layout, pid, programs];
    let texts: Vec<String> =
        texts.into_iter().chain(names).flatten().map(|text| text.to_lowercase()).collect();
    (query.devices.is_empty() || allocation.indexes.iter().any(|index| query.devices.contains(index)))
        && (query.pids.is_empty() || allocation.pid.is_some_and(|pid| query.pids.contains(&pid)))
        && query.space.is_none_or(|space| allocation.space == space)
        && query.text.split_whitespace().all(|word| {
            let word = word.to_lowercase();
            texts.iter().any(|text| text.contains(&word))
        })
}

fn used(it: &Allocation) -> u64 {
    it.allocated_bytes.unwrap_or(it.requested_bytes)
}

fn address(it: &Allocation) -> u64 {
    u64::from_str_radix(&it.id[2..], 16).unwrap()
}

/// What is missing comes last either way.
fn order<T: Ord>(a: Option<T>, b: Option<T>, reversed: bool) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => {
            if reversed {
                b.cmp(&a)
            } else {
                a.cmp(&b)
            }
        }
        (a, b) => a.is_none().cmp(&b.is_none()),
    }
}

fn compare(a: &Allocation, b: &Allocation, query: &BufferQuery) -> Ordering {
    use std::cmp::Reverse;
    let turned = query.reversed;
    let age = |it: &Allocation| Some(Reverse((it.age_seconds * 1000.0).round() as u64));
    match query.sort {
        BufferSort::Size => order(Some(Reverse(used(a))), Some(Reverse(used(b))), turned),
        BufferSort::Requested => {
            order(Some(Reverse(a.requested_bytes)), Some(Reverse(b.requested_bytes)), turned)
        }
        BufferSort::Age => order(age(a), age(b), turned),
        BufferSort::Address => order(Some(address(a)), Some(address(b)), turned),
        BufferSort::Process => order(Some(a.pid), Some(b.pid), turned),
        BufferSort::Device => order(a.indexes.iter().min(), b.indexes.iter().min(), turned),
        BufferSort::Space => order(Some(a.space), Some(b.space), turned),
        BufferSort::Program => order(a.program, b.program, turned),
        BufferSort::Site => order(a.site_name.as_ref(), b.site_name.as_ref(), turned),
    }
    .then_with(|| (a.pid, a.space, address(a)).cmp(&(b.pid, b.space, address(b))))
}

/// What identifies a call site: its name, else its number.
fn site_key(name: Option<&String>, number: Option<u32>) -> String {
    name.cloned().unwrap_or_else(|| format!("{}", number.unwrap_or(0)))
}

fn group_key(allocation: &Allocation, by: BufferGrouping) -> (Option<u32>, String) {
    let key = match by {
        BufferGrouping::Process => (allocation.space as u64).to_string(),
        BufferGrouping::Program => allocation.program.unwrap_or(0).to_string(),
        _ if allocation.space.is_program() && allocation.site.is_none() => "programs".to_owned(),
        BufferGrouping::Site => site_key(allocation.site_name.as_ref(), allocation.site),
        // Sites of which only a text is known have no operation, function, file or tensor.
        _ => String::new(),
    };
    (allocation.pid, key)
}

fn compare_groups(a: &BufferGroup, b: &BufferGroup, query: &BufferQuery) -> Ordering {
    use std::cmp::Reverse;
    let turned = query.reversed;
    let most = |of: fn(&BufferGroup) -> u64| order(Some(Reverse(of(a))), Some(Reverse(of(b))), turned);
    match query.sort {
        BufferSort::Size => most(|it| it.used_bytes),
        BufferSort::Requested => most(|it| it.requested_bytes),
        BufferSort::Age => most(|it| it.count),
        BufferSort::Process => order(Some(a.pid), Some(b.pid), turned),
        BufferSort::Space => order(a.space, b.space, turned),
        BufferSort::Program => order(a.program, b.program, turned),
        BufferSort::Site => order(a.site_name.as_ref(), b.site_name.as_ref(), turned),
        BufferSort::Address | BufferSort::Device => Ordering::Equal,
    }
}

fn queries() -> impl Strategy<Value = BufferQuery> {
    let sort = prop::sample::select(vec![
        BufferSort::Size,
        BufferSort::Requested,
        BufferSort::Age,
        BufferSort::Address,
        BufferSort::Process,
        BufferSort::Device,
        BufferSort::Space,
        BufferSort::Program,
        BufferSort::Site,
    ]);
    let text = prop::sample::select(vec![
        "",
        "",
        "",
        "mat",
        "WORKER-1",
        "0x4",
        "4",
        "sharded l1",
        "Ä",
        "dram 1",
        "nothing",
        "py 12",
        "4711",
        "x",
    ]);
    let devices = prop::sample::select(vec![vec![], vec![], vec![1], vec![3, 1], vec![9]]);
    let group = prop::sample::select(vec![
        None,
        None,
        Some(BufferGrouping::Process),
        Some(BufferGrouping::Program),
        Some(BufferGrouping::Site),
        Some(BufferGrouping::Op),
    ]);
    let space = prop::option::weighted(0.2, prop::sample::select(SPACES.to_vec()));
    let pids = prop::sample::select(vec![vec![], vec![], vec![], vec![1], vec![2, 3], vec![0]]);
    let page = (0u64..20, 0u32..30, any::<bool>());
    (sort, text, devices, group, space, pids, page).prop_map(
        |(sort, text, devices, group, space, pids, (offset, limit, reversed))| {
            let text = text.to_owned();
            BufferQuery { sort, reversed, devices, pids, space, text, group, offset, limit }
        },
    )
}

proptest! {
    #[test]
    fn page_is_part_of_the_sorted_list(
        held in prop::collection::vec(
            (0u32..4, 1u32..4, 0usize..5, 60u64..90, 0u64..20, 0u32..4, 0u32..4, 0usize..4, prop::bool::weighted(0.8)),
            0..80,
        ),
        names in prop::collection::vec((0u32..4, 1u32..4, 0usize..4, any::<bool>()), 0..8),
        query in queries(),
    ) {
        let state = state(&held, &names);
        let shot = state.snapshot(Timestamp::UNIX_EPOCH, &Detail { buffers: Some(query.clone()), ..Detail::NONE });
        let answer = shot.buffers.unwrap();
        let process_name = |pid: Option<u32>| {
            shot.processes.iter().find(|it| it.pid == pid).and_then(|it| it.name.as_deref())
        };
        let mut all = state.allocations(0, usize::MAX, state.now()).0;
        all.retain(|it| fits(it, process_name(it.pid), &query));
        prop_assert_eq!(answer.count, all.len() as u64);
        prop_assert_eq!(answer.requested_bytes, all.iter().map(|it| it.requested_bytes).sum::<u64>());
        prop_assert_eq!(answer.used_bytes, all.iter().map(used).sum::<u64>());
        let (from, most) = (query.offset as usize, query.limit as usize);
        if let Some(by) = query.group {
            prop_assert!(answer.list.is_empty());
            let mut groups: BTreeMap<(Option<u32>, String), Vec<&Allocation>> = BTreeMap::new();
            for it in &all {
                groups.entry(group_key(it, by)).or_default().push(it);
            }
            prop_assert_eq!(answer.group_count, groups.len() as u64);
            prop_assert_eq!(answer.groups.len(), groups.len().saturating_sub(from).min(most));
            for group in &answer.groups {
                let key = match by {
                    BufferGrouping::Process => group.space.map_or(0, |it| it as u64).to_string(),
                    BufferGrouping::Program => group.program.unwrap_or(0).to_string(),
                    _ if group.label.is_some() => "programs".to_owned(),
                    BufferGrouping::Site => site_key(group.site_name.as_ref(), group.site),
                    _ => String::new(),
                };
                let mine = groups.remove(&(group.pid, key)).unwrap();
                prop_assert_eq!(group.count, mine.len() as u64);
                prop_assert_eq!(group.used_bytes, mine.iter().map(|it| used(it)).sum::<u64>());
                prop_assert_eq!(group.requested_bytes, mine.iter().map(|it| it.requested_bytes).sum::<u64>());
                prop_assert_eq!(group.process_name.as_deref(), process_name(group.pid));
                let space = mine.iter().all(|it| it.space == mine[0].space).then_some(mine[0].space);
                prop_assert_eq!(group.space, space);
            }
            let sorted = answer.groups.windows(2).all(|it| compare_groups(&it[0], &it[1], &query).is_le());
            prop_assert!(sorted, "{:#?}", answer.groups);
        } else {
            all.sort_by(|a, b| compare(a, b, &query));
            let expected: Vec<_> = all.into_iter().skip(from).take(most).collect();
            prop_assert_eq!(answer.list.len(), expected.len());
            for (is, should) in answer.list.iter().zip(&expected) {
                prop_assert!(compare(is, should, &query).is_eq(), "{:#?} {:#?}", is, should);
            }
            // What is at one address of one space may be in any order, but not listed twice.
            let one_by_one: Vec<_> = (0..answer.list.len() as u64)
                .flat_map(|n| {
                    let query = BufferQuery { offset: query.offset + n, limit: 1, ..query.clone() };
                    state.buffers(&query, true).list
                })
                .collect();
            prop_assert_eq!(answer.list, one_by_one);
        }
    }
}

#[test]
fn long_list_is_cut_to_a_page() {
    let held: Vec<Held> =
        (0..20_000).map(|n| (n % 4, 1, 0, u64::from(n), u64::from(n * 7 % 6000), 0, 0, 0, true)).collect();
    let state = state(&held, &[]);
    let mut all = state.allocations(0, usize::MAX, state.now()).0;
    let query = BufferQuery { limit: u32::MAX, ..BufferQuery::default() };
    all.sort_by(|a, b| compare(a, b, &query));
    for offset in [0, 1, 999, 12_345, 19_990, 30_000] {
        let answer = state.buffers(&BufferQuery { offset, ..query.clone() }, true);
        let expected: Vec<_> =
            all.iter().skip(offset as usize).take(BufferQuery::MOST as usize).cloned().collect();
        assert_eq!((answer.count, answer.offset), (20_000, offset.min(20_000)));
        assert!(answer.list == expected, "{offset}");
    }
}
