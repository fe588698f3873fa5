//! Block maps against a bank of bytes, and against the free space of a snapshot.

use super::analysis::{apply, changes};
use super::*;
use crate::detail::{BlockMapKey, BlockQuery};
use crate::snapshot::{AllocatorSpace, BlockMap, BlockState};
use crate::words::Layout;

const BASE: u64 = 100;
const BANK: u64 = 400;

fn query() -> BlockQuery {
    BlockQuery { limit: 1000, ..BlockQuery::default() }
}

fn detail(query: BlockQuery) -> Detail {
    Detail { blocks: Some(query), ..Detail::NONE }
}

fn maps(state: &State, query: BlockQuery) -> Vec<BlockMap> {
    state.snapshot(Timestamp::UNIX_EPOCH, &detail(query)).block_maps.unwrap()
}

/// A process with two allocators of one chip: L1 has two banks, and DRAM 12.
fn two_allocators() -> State {
    let mut state = machine();
    let registered = Process { name: Some("python".into()), ..Process::default() };
    state.apply(Mono(0), events(1), Input::Registered(Box::new(registered)));
    for number in [1, 2] {
        let bank = |space, banks| Banks { space, banks, base: BASE, bytes_per_bank: BANK };
        let spaces = vec![bank(Space::Dram, 12), bank(Space::L1, 2)];
        let allocator = Allocator { id: number, chips: vec![chip(0)], spaces };
        state.apply(Mono(0), events(1), Input::Allocator(allocator));
    }
    state
}

fn buffer(number: u32, space: Space, at: u64, len: u64, layout: Layout) -> Input {
    let banks = if space == Space::Dram { 12 } else { 2 };
    let extent = Some(Extent { occupied: len, bytes_per_bank: len, banks });
    Input::Alloc(Alloc { extent, layout, ..alloc(Scope::Allocator(number), space, at, len + 1) })
}

#[test]
fn map_lists_blocks_and_holes_by_address() {
    let mut state = two_allocators();
    let keep = |at, len| buffer(1, Space::Dram, at, len, Layout::Interleaved);
    for (at, len) in [(300, 50), (100, 20), (140, 60)] {
        state.apply(Mono(1), events(1), keep(at, len));
    }
    let query = BlockQuery { space: Some(Space::Dram), allocator: Some(1), pid: Some(1), ..query() };
    let [map] = &maps(&state, query.clone())[..] else { panic!() };
    let found: Vec<_> = map.blocks.iter().map(|it| (it.address, it.bytes, it.state, it.largest)).collect();
    let (used, free) = (BlockState::Used, BlockState::Free);
    let expected = [
        (100, 20, used, false),
        (120, 20, free, false),
        (140, 60, used, false),
        (200, 100, free, false),
        (300, 50, used, false),
        (350, 150, free, true),
    ];
    assert_eq!(found, expected);
    assert_eq!((map.used_bytes_per_bank, map.free_bytes_per_bank), (Some(130), Some(270)));
    assert_eq!((map.largest_free_bytes_per_bank, &map.largest_free_block_addrs[..]), (Some(150), &[350][..]));
    assert_eq!((map.used_count, map.free_count, map.banks), (Some(3), Some(3), Some(12)));
    assert_eq!(map.blocks[0].allocation.as_ref().unwrap().requested_bytes, 21);
    let [cut] = &maps(&state, BlockQuery { limit: 2, ..query })[..] else { panic!() };
    assert_eq!((cut.blocks.len(), cut.omitted_blocks), (2, 4), "figures are of all blocks");
    assert_eq!(cut.largest_free_block_addrs, [350]);
}

#[test]
fn query_opens_one_map_of_a_device() {
    let mut state = two_allocators();
    state.apply(Mono(1), events(1), buffer(1, Space::Dram, 100, 150, Layout::Interleaved));
    let open = Some(BlockMapKey { pid: Some(1), allocator: Some(1), space: Space::Dram });
    let query = BlockQuery { device: Some(0), open, parts: 4, ..query() };
    let all = maps(&state, query.clone());
    let found: Vec<_> = all.iter().map(|it| (it.blocks.len(), it.omitted_blocks, &it.parts[..])).collect();
    let free = (0, 1, &[0, 0, 0, 0][..]);
    assert_eq!(found, [(2, 0, &[255, 127, 0, 0][..]), free, free, free]);
    assert_eq!(maps(&state, BlockQuery { device: Some(1), ..query.clone() }), []);
    let [first, ..] = &maps(&state, BlockQuery { parts: u16::MAX, ..query })[..] else { panic!() };
    assert_eq!(first.parts.len(), usize::from(BlockQuery::MOST_PARTS));
}

#[test]
fn allocator_without_buffers_is_one_hole() {
    let state = two_allocators();
    let all = maps(&state, query());
    assert_eq!(all.len(), 4);
    for map in &all {
        let [block] = &map.blocks[..] else { panic!("{map:?}") };
        assert_eq!((block.address, block.bytes, block.state), (BASE, BANK, BlockState::Free));
    }
    let snapshot = state.snapshot(Timestamp::UNIX_EPOCH, &Detail::NONE);
    let space = &snapshot.processes[0].allocators[0].spaces[0];
    assert_eq!((space.usage.free_bytes, &space.largest_free_block_addrs[..]), (Some(12 * BANK), &[BASE][..]));
}

#[test]
fn mirror_is_reserved_for_its_owner() {
    let mut state = two_allocators();
    state.apply(Mono(1), events(1), buffer(1, Space::L1, 200, 30, Layout::HeightSharded));
    state.apply(Mono(1), events(1), buffer(2, Space::L1, 200, 30, Layout::Mirror));
    state.apply(Mono(1), events(1), buffer(2, Space::L1, 300, 10, Layout::Mirror));
    let query = BlockQuery { allocator: Some(2), space: Some(Space::L1), ..query() };
    let [map] = &maps(&state, query)[..] else { panic!() };
    let reserved: Vec<_> = map.blocks.iter().filter(|it| it.state == BlockState::Reserved).collect();
    assert_eq!(reserved.len(), 2);
    let owner = reserved[0].allocation.as_ref().unwrap();
    assert_eq!((owner.allocator, owner.layout), (Some(1), Some(Layout::HeightSharded)));
    assert_eq!(reserved[1].allocation, None, "no other allocator has a buffer there");
    assert_eq!((map.used_bytes, map.used_bytes_per_bank), (0, Some(40)));
}

#[test]
fn map_says_that_single_cores_have_buffers() {
    let mut state = two_allocators();
    let query = BlockQuery { allocator: Some(1), space: Some(Space::L1), ..query() };
    let bytes = |state: &State| maps(state, query.clone())[0].single_core_bytes;
    assert_eq!(bytes(&state), 0);
    let extent = Some(Extent { occupied: 60, bytes_per_bank: 30, banks: 2 });
    let on_cores = Alloc { extent, ..alloc(Scope::Allocator(2), Space::L1Core, 300, 60) };
    state.apply(Mono(1), events(1), Input::Alloc(on_cores));
    assert_eq!(bytes(&state), 60, "of another allocator of the same device");
}

#[test]
fn unknown_blocks_have_a_reason_and_no_holes() {
    let mut state = machine();
    for from in [legacy(1), Origin::Process(id(2), Basis::Counters), events(3)] {
        state.apply(Mono(0), from, Input::Registered(Box::default()));
    }
    state.apply(Mono(0), legacy(1), Input::Alloc(alloc(on(0), Space::Dram, 0x1000, 4096)));
    let counters = Origin::Process(id(2), Basis::Counters);
    state.apply(Mono(0), counters, Input::Levels(chip(0), vec![(Space::L1, 4096)]));
    let bank = Banks { space: Space::Dram, banks: 12, base: BASE, bytes_per_bank: BANK };
    let with_banks = |id, spaces| Input::Allocator(Allocator { id, chips: vec![chip(0)], spaces });
    for (number, spaces) in [(1, vec![]), (2, vec![bank]), (3, vec![bank])] {
        state.apply(Mono(0), events(3), with_banks(number, spaces));
        let vague = alloc(Scope::Allocator(number), Space::Dram, 200, 10);
        let extent = Some(Extent { occupied: 10, bytes_per_bank: 10, banks: 12 });
        let extent = extent.filter(|_| number != 2);
        state.apply(Mono(0), events(3), Input::Alloc(Alloc { extent, ..vague }));
    }
    let holding = Holding { requested: 10, allocated: 120, count: 1 };
    let unlisted = Input::Unlisted { scope: Scope::Allocator(3), space: Space::Dram, holding };
    state.apply(Mono(0), events(3), unlisted);
    let on_core = Alloc { cores: 1, ..alloc(Scope::Allocator(3), Space::L1Core, 80, 64) };
    state.apply(Mono(0), events(3), Input::Alloc(on_core));
    let all = maps(&state, query());
    let found: Vec<_> = all.iter().map(|it| (it.pid, it.allocator, it.unknown.as_deref().unwrap())).collect();
    let expected = [
        (Some(1), None, "the old protocol reports no bank layout and no bytes per bank"),
        (Some(2), None, "only tt-metal counters are known, which have no addresses"),
        (Some(3), Some(1), "the process does not publish the bank layout"),
        (Some(3), Some(2), "1 allocation has no known bytes per bank"),
        (Some(3), Some(3), "1 allocation is not listed: the table of its segment is full"),
        (
            Some(3),
            Some(3),
            "buffers on single cores have an address on each: `ttmem dump --cores X,Y` lists them",
        ),
    ];
    assert_eq!(found, expected);
    for map in &all {
        assert!(map.blocks.is_empty() && map.free_bytes_per_bank.is_none() && map.used_bytes > 0, "{map:?}");
    }
}

/// The space of an allocator in a snapshot that a map describes.
fn space_of<'a>(snapshot: &'a Snapshot, map: &BlockMap) -> Option<&'a AllocatorSpace> {
    let process = snapshot.processes.iter().find(|it| it.pid == map.pid)?;
    let allocator = process.allocators.iter().find(|it| Some(it.id) == map.allocator)?;
    allocator.spaces.iter().find(|it| it.space == map.space)
}

proptest! {
    #[test]
    fn blocks_agree_with_a_bank_of_bytes(
        steps in prop::collection::vec((1u32..3, any::<bool>(), BASE / 10..(BASE + BANK) / 10, 1u64..9, 0u8..4), 0..60),
    ) {
        let mut state = two_allocators();
        let mut banks: BTreeMap<(u32, Space), Vec<Option<u64>>> = BTreeMap::new();
        for (number, is_dram, at, len, how) in steps {
            let space = if is_dram { Space::Dram } else { Space::L1 };
            let (at, len) = (at * 10, len * 10);
            let bank = banks.entry((number, space)).or_insert_with(|| vec![None; (BASE + BANK) as usize]);
            if how == 3 {
                if bank[at as usize] == Some(at) {
                    bank.iter_mut().filter(|it| **it == Some(at)).for_each(|it| *it = None);
                    state.apply(Mono(1), events(1), free(Scope::Allocator(number), Some(space), at));
                }
                continue;
            }
            // As an allocator does: nothing overlaps, and nothing is beyond the end.
            let room = bank.get_mut(at as usize..(at + len) as usize);
            if let Some(room) = room.filter(|room| room.iter().all(Option::is_none)) {
                room.fill(Some(at));
                let layout = if how == 2 { Layout::Mirror } else { Layout::Interleaved };
                state.apply(Mono(1), events(1), buffer(number, space, at, len, layout));
            }
        }
        for map in maps(&state, query()) {
            let key = (map.allocator.unwrap(), map.space);
            let bank = banks.remove(&key).unwrap_or_else(|| vec![None; (BASE + BANK) as usize]);
            let bank = &bank[BASE as usize..];
            let mut address = BASE;
            for (block, expected) in map.blocks.iter().zip(bank.chunk_by(|a, b| a == b)) {
                prop_assert_eq!((block.address, block.bytes), (address, expected.len() as u64));
                prop_assert_eq!(block.state == BlockState::Free, expected[0].is_none());
                address += block.bytes;
            }
            prop_assert_eq!(address, BASE + BANK, "blocks fill the bank");
        }
    }

    #[test]
    fn blocks_agree_with_the_free_space(changes in changes()) {
        let mut state = machine();
        for (n, change) in changes.iter().enumerate() {
            apply(&mut state, Mono(n as u64), change);
        }
        let snapshot = state.snapshot(Timestamp::UNIX_EPOCH, &detail(query()));
        for map in snapshot.block_maps.as_ref().unwrap() {
            let space = space_of(&snapshot, map);
            let free_bytes = space.and_then(|it| it.usage.free_bytes);
            let found = map.free_bytes_per_bank.map(|it| it * u64::from(map.banks.unwrap()));
            prop_assert_eq!(found, free_bytes, "{:?}", map);
            prop_assert_eq!(map.unknown.is_none(), found.is_some());
            let Some(space) = space.filter(|_| found.is_some()) else { continue };
            prop_assert_eq!(map.largest_free_bytes_per_bank, space.usage.largest_free_bytes_per_bank);
            prop_assert_eq!(&map.largest_free_block_addrs, &space.largest_free_block_addrs);
            let gaps: u64 =
                map.blocks.iter().filter(|it| it.state == BlockState::Free).map(|it| it.bytes).sum();
            prop_assert_eq!(Some(gaps), map.free_bytes_per_bank);
            prop_assert!(map.blocks.is_sorted_by_key(|it| it.address));
        }
    }
}
