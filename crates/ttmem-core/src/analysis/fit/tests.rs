use super::*;
use crate::words::Basis;
use proptest::prelude::*;

const BASE: u64 = 96;
const UNITS: u64 = 64;

/// A map with used blocks, in units of 32 bytes from the base; overlaps are left out.
fn map(space: Space, used: &[(u64, u64)]) -> BlockMap {
    let block = |address, bytes, state| Block { address, bytes, state, largest: false, allocation: None };
    let mut blocks = Vec::new();
    let mut from = 0;
    let mut used = used.to_vec();
    used.sort_unstable();
    for (start, len) in used {
        let end = (start + len).min(UNITS);
        if start >= from && start < end {
            if start > from {
                blocks.push(block(BASE + from * 32, (start - from) * 32, BlockState::Free));
            }
            blocks.push(block(BASE + start * 32, (end - start) * 32, BlockState::Used));
            from = end;
        }
    }
    if from < UNITS {
        blocks.push(block(BASE + from * 32, (UNITS - from) * 32, BlockState::Free));
    }
    BlockMap {
        pid: Some(42),
        reported_pid: None,
        process_name: None,
        hidden: false,
        allocator: Some(1),
        devices: Vec::new(),
        indexes: vec![0],
        space,
        basis: Basis::Exact,
        used_bytes: 0,
        unknown: None,
        banks: Some(4),
        base: Some(BASE),
        bytes_per_bank: Some(UNITS * 32),
        used_bytes_per_bank: None,
        free_bytes_per_bank: None,
        largest_free_bytes_per_bank: None,
        largest_free_block_addrs: Vec::new(),
        single_core_bytes: 0,
        used_count: None,
        free_count: None,
        blocks,
        omitted_blocks: 0,
        parts: Vec::new(),
    }
}

fn context() -> FitContext {
    FitContext { arch: Some(Arch::WormholeB0), is_hybrid: Some(false), ..FitContext::default() }
}

fn per_bank(bytes: u64, count: u64) -> FitRequest {
    FitRequest { size: FitSize::PerBank(bytes), from: None, count }
}

fn needed(space: Space, arch: Arch, size: FitSize) -> u64 {
    let request = FitRequest { size, from: None, count: 1 };
    let context = FitContext { arch: Some(arch), ..context() };
    fit(&map(space, &[]), &request, &context).needed_bytes_per_bank.unwrap()
}

fn unknown_reason(map: &BlockMap, request: &FitRequest, context: &FitContext) -> String {
    match fit(map, request, context).answer {
        FitAnswer::Unknown { reason } => reason,
        other => panic!("{other:?}"),
    }
}

/// Places buffers one by one, by trying every address.
fn place_by_trying(map: &BlockMap, units: u64, count: u64, from: End) -> Vec<u64> {
    let mut used = vec![false; UNITS as usize];
    let unit = |address: u64| (address - BASE) / 32;
    for block in map.blocks.iter().filter(|it| it.state == BlockState::Used) {
        (unit(block.address)..unit(block.address + block.bytes)).for_each(|at| used[at as usize] = true);
    }
    let mut addresses = Vec::new();
    for _ in 0..count {
        let mut starts: Vec<u64> = (0..(UNITS + 1).saturating_sub(units)).collect();
        if from == End::Top {
            starts.reverse();
        }
        let is_free = |start: &u64| (*start..start + units).all(|at| !used[at as usize]);
        let Some(start) = starts.into_iter().find(is_free) else { break };
        (start..start + units).for_each(|at| used[at as usize] = true);
        addresses.push(BASE + start * 32);
    }
    addresses
}

proptest! {
    #[test]
    fn placement_equals_trying_every_address(
        used in prop::collection::vec((0..UNITS, 1u64..12), 0..14),
        bytes in 1u64..UNITS * 40,
        count in 1u64..5,
        space in prop::sample::select(vec![Space::Dram, Space::L1, Space::L1Small]),
        from in prop::sample::select(vec![None, Some(End::Bottom), Some(End::Top)]),
    ) {
        let map = map(space, &used);
        let request = FitRequest { from, ..per_bank(bytes, count) };
        let found = fit(&map, &request, &context());
        let needed = bytes.next_multiple_of(32);
        prop_assert_eq!(found.needed_bytes_per_bank, Some(needed));
        let expected = place_by_trying(&map, needed / 32, count, from.unwrap_or(End::of(space)));
        match found.answer {
            FitAnswer::Fits { addresses, .. } => prop_assert_eq!(addresses, expected),
            FitAnswer::DoesNotFit { fitting_count, make_room, bank, .. } => {
                prop_assert_eq!(fitting_count, expected.len() as u64);
                prop_assert!(fitting_count < count);
                let total = needed * count;
                prop_assert_eq!(make_room.is_none(), total > UNITS * 32);
                let is_fragmented = bank.shortage == Some(Shortage::Fragmented);
                prop_assert_eq!(is_fragmented, total <= bank.free_bytes_per_bank);
                // What is to be freed makes room for all of them.
                if let Some(room) = make_room {
                    let end = room.address + room.block_bytes_per_bank;
                    let mut freed = map.clone();
                    let inside = |it: &Block| it.address >= room.address && it.address + it.bytes <= end;
                    freed.blocks.iter_mut().filter(|it| inside(it)).for_each(|it| it.state = BlockState::Free);
                    let answer = fit(&freed, &request, &context()).answer;
                    prop_assert!(matches!(answer, FitAnswer::Fits { .. }), "{:?}", answer);
                }
            }
            FitAnswer::Unknown { reason } => prop_assert!(false, "{}", reason),
        }
    }
}

#[test]
fn pages_are_aligned_and_spread_over_banks() {
    let pages = |bytes, count| FitSize::Pages { bytes, count };
    let wormhole = |space, size| needed(space, Arch::WormholeB0, size);
    assert_eq!(wormhole(Space::Dram, pages(2048, 4)), 2048);
    assert_eq!(wormhole(Space::Dram, pages(2048, 5)), 4096, "a bank holds two");
    // Two pages of 48 bytes: aligned to 64 each in DRAM, 96 bytes in L1.
    assert_eq!(wormhole(Space::Dram, pages(48, 8)), 128);
    assert_eq!(wormhole(Space::L1, pages(48, 8)), 96);
    assert_eq!(needed(Space::L1, Arch::Blackhole, pages(48, 8)), 128, "rounded up to 64");
    assert_eq!(needed(Space::Dram, Arch::Blackhole, pages(16, 8)), 128);
    assert_eq!(wormhole(Space::L1, FitSize::Shard { bytes: 16, count: 3 }), 64);
    assert_eq!(wormhole(Space::L1, FitSize::PerBank(0)), 32, "an empty buffer takes a unit");
}

#[test]
fn single_core_buffers_are_avoided() {
    let context = FitContext {
        is_hybrid: Some(true),
        single_core: vec![(BASE + 40 * 32, 64), (BASE + 40 * 32, 128), (BASE + 50 * 32, 32)],
        ..context()
    };
    let map = map(Space::L1, &[(60, 4)]);
    let address = |bytes| match fit(&map, &per_bank(bytes, 1), &context).answer {
        FitAnswer::Fits { addresses, .. } => (addresses[0] - BASE) / 32,
        other => panic!("{other:?}"),
    };
    assert_eq!((address(9 * 32), address(10 * 32), address(40 * 32)), (51, 30, 0));
    let pages = FitRequest { size: FitSize::Pages { bytes: 48, count: 8 }, from: None, count: 1 };
    assert_eq!(fit(&map, &pages, &context).needed_bytes_per_bank, Some(128), "each page is aligned to 32");
    let answer = fit(&map, &per_bank(41 * 32, 1), &context).answer;
    assert!(matches!(answer, FitAnswer::DoesNotFit { make_room: None, .. }), "{answer:?}");
}

#[test]
fn sizes_without_limit_do_not_fit() {
    for size in [
        FitSize::PerBank(u64::MAX),
        FitSize::Pages { bytes: u64::MAX, count: u64::MAX },
        FitSize::Shard { bytes: u64::MAX - 1, count: 9 },
    ] {
        let request = FitRequest { size, from: None, count: u64::MAX };
        let answer = fit(&map(Space::L1, &[(3, 4)]), &request, &context()).answer;
        let FitAnswer::DoesNotFit { bank, make_room, fitting_count: 0, .. } = answer else {
            panic!("{answer:?}")
        };
        assert_eq!((bank.shortage, make_room), (Some(Shortage::TooLarge), None));
    }
}

#[test]
fn region_grows_by_what_is_missing() {
    // The lowest 10 units are free, 54 are used.
    let answer = fit(&map(Space::L1Small, &[(10, 54)]), &per_bank(12 * 32, 1), &context()).answer;
    let FitAnswer::DoesNotFit { open_with: Some(parameter), .. } = answer else { panic!("{answer:?}") };
    assert_eq!((parameter.parameter.as_str(), parameter.bytes), ("l1_small_size", (UNITS + 2) * 32));
}

#[test]
fn what_is_not_known_is_not_answered() {
    let (map, request) = (map(Space::L1, &[(4, 60)]), per_bank(32, 1));
    let reason = "only tt-metal counters are known, which have no addresses";
    let counters = BlockMap { unknown: Some(reason.to_owned()), ..map.clone() };
    assert_eq!(unknown_reason(&counters, &request, &context()), reason);
    let hidden = FitContext { unknown: Some("not all buffers are known".to_owned()), ..context() };
    assert_eq!(unknown_reason(&map, &request, &hidden), "not all buffers are known");
    assert!(unknown_reason(&map, &request, &FitContext::default()).contains("alignment"));
    let unaligned_pages = FitRequest { size: FitSize::Pages { bytes: 48, count: 8 }, from: None, count: 1 };
    let no_mode = FitContext { is_hybrid: None, ..context() };
    assert!(unknown_reason(&map, &unaligned_pages, &no_mode).contains("HYBRID"));
    assert!(matches!(fit(&map, &request, &no_mode).answer, FitAnswer::Fits { .. }), "both modes agree");
    let cut = BlockMap { omitted_blocks: 1, ..map.clone() };
    assert!(unknown_reason(&cut, &request, &context()).contains("--local"));
    let banks = BlockMap { bytes_per_bank: None, ..map.clone() };
    assert!(unknown_reason(&banks, &request, &context()).contains("bank layout"));
    // The only free block ends at unit 4.
    let floor =
        |units: u64| FitContext { floor: Some((BASE + units * 32, "others are".to_owned())), ..context() };
    assert_eq!(unknown_reason(&map, &request, &floor(4)), "below 0xe0, where a buffer would go, others are");
    assert!(matches!(fit(&map, &request, &floor(3)).answer, FitAnswer::Fits { .. }));
}
