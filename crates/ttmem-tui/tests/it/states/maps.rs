//! The blocks of allocators.

use super::buffers::allocation;
use super::{KIB, MIB};
use ttmem_core::snapshot::{Allocation, Block, BlockMap, BlockState, Process, Tracking};
use ttmem_core::words::{Basis, Space};

/// The maps of tracked processes: DRAM with holes, L1 that is almost empty, and trace regions that are not known.
pub(super) fn maps(processes: &[Process]) -> Vec<BlockMap> {
    let tracked = processes
        .iter()
        .filter(|it| !matches!(it.tracking, Tracking::Counters | Tracking::Reported | Tracking::Untracked));
    tracked
        .flat_map(|process| {
            let dram: Vec<(u64, u64)> = (0..24).map(|n| (n * 42 * MIB, (n % 5 + 1) * 8 * MIB)).collect();
            let l1 = [(1024 * KIB, 256 * KIB), (1280 * KIB, 80 * KIB + 672)];
            let trace = BlockMap {
                unknown: Some("the process does not publish the bank layout".to_owned()),
                banks: None,
                base: None,
                bytes_per_bank: None,
                used_bytes_per_bank: None,
                free_bytes_per_bank: None,
                largest_free_bytes_per_bank: None,
                largest_free_block_addrs: Vec::new(),
                used_count: None,
                free_count: None,
                blocks: Vec::new(),
                ..map(process, Space::Trace, 12, (0, 16 * MIB), &[(0, MIB)])
            };
            [
                map(process, Space::Dram, 12, (0, 1023 * MIB), &dram),
                map(process, Space::L1, 64, (103 * KIB, 1_393_312), &l1),
                trace,
            ]
        })
        .collect()
}

/// A map with these buffers in a bank with this first address and length.
fn map(
    process: &Process,
    space: Space,
    banks: u16,
    (base, bytes): (u64, u64),
    used: &[(u64, u64)],
) -> BlockMap {
    let mut blocks = Vec::new();
    let mut free_from = base;
    let block = |address, bytes, allocation: Option<Allocation>| Block {
        address,
        bytes,
        state: if allocation.is_some() { BlockState::Used } else { BlockState::Free },
        largest: false,
        allocation,
    };
    for (n, &(at, len)) in used.iter().enumerate() {
        if at > free_from {
            blocks.push(block(free_from, at - free_from, None));
        }
        let mut owner = allocation(n as u64, process.pid.unwrap_or(0), &process.summary.indexes);
        (owner.id, owner.space, owner.program, owner.program_name) = (format!("{at:#x}"), space, None, None);
        blocks.push(block(at, len, Some(owner)));
        free_from = at + len;
    }
    if free_from < base + bytes {
        blocks.push(block(free_from, base + bytes - free_from, None));
    }
    let free = |it: &&Block| it.state == BlockState::Free;
    let largest = blocks.iter().filter(free).map(|it| it.bytes).max().unwrap_or(0);
    for block in &mut blocks {
        block.largest = block.state == BlockState::Free && block.bytes == largest;
    }
    let used_bytes = used.iter().map(|it| it.1).sum::<u64>();
    BlockMap {
        pid: process.pid,
        reported_pid: None,
        process_name: process.name.clone(),
        allocator: Some(1),
        devices: Vec::new(),
        indexes: process.summary.indexes.clone(),
        space,
        basis: Basis::Exact,
        used_bytes: used_bytes * u64::from(banks),
        unknown: None,
        banks: Some(banks),
        base: Some(base),
        bytes_per_bank: Some(bytes),
        used_bytes_per_bank: Some(used_bytes),
        free_bytes_per_bank: Some(bytes - used_bytes),
        largest_free_bytes_per_bank: Some(largest),
        largest_free_block_addrs: blocks.iter().filter(|it| it.largest).map(|it| it.address).collect(),
        single_core_bytes: 0,
        used_count: Some(used.len() as u64),
        free_count: Some(blocks.iter().filter(free).count() as u64),
        blocks,
        omitted_blocks: 0,
        parts: Vec::new(),
    }
}
