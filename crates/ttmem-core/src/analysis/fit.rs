//! Whether a buffer fits into an allocator's banks, and at which address.
//!
//! The runtime's allocators work alike in every space. A buffer needs the same range in each bank. Its size in a bank is rounded
//! up to the alignment of DRAM, also in L1. It goes to the end of the first free block that is large enough: of the lowest one in
//! DRAM, of the highest one in L1, unless the buffer has a direction of its own. The runtime's limit for interleaved buffers in L1
//! is the first address of a bank, so that it excludes nothing.

use super::room::{self, Placed};
use crate::ranges::Range;
use crate::snapshot::{Block, BlockMap, BlockState, FailedBank, MakeRoom, OpenWith, Shortage};
use crate::words::Space;
use serde::Serialize;
use ttmem_types::Arch;

/// Buffers that are listed one by one.
const MAX_BUFFERS: usize = 64;

/// Buffers of equal size, which are allocated one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FitRequest {
    /// The size of each.
    pub size: FitSize,
    /// The end of the free block that they go to; `None`: that of their space.
    pub from: Option<End>,
    /// Number of buffers.
    pub count: u64,
}

/// The size of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FitSize {
    /// Bytes in each bank.
    PerBank(u64),
    /// Pages, which are distributed over all banks.
    Pages {
        /// Bytes of a page.
        bytes: u64,
        /// Number of pages.
        count: u64,
    },
    /// Pages in a shard, of which each bank has at most one.
    Shard {
        /// Bytes of a page.
        bytes: u64,
        /// Number of pages.
        count: u64,
    },
}

/// An end of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The lowest address.
    Bottom,
    /// The highest address.
    Top,
}

impl End {
    /// The end that buffers of a space go to, unless they have a direction of their own.
    pub fn of(space: Space) -> Self {
        if matches!(space, Space::Dram | Space::Trace) { Self::Bottom } else { Self::Top }
    }
}

/// What is known about an allocator besides its blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FitContext {
    /// Architecture of its devices; `None`: unknown.
    pub arch: Option<Arch>,
    /// Why its blocks do not say where a buffer goes.
    pub unknown: Option<String>,
    /// An address below which memory may be used by others, and by what.
    pub floor: Option<(u64, String)>,
    /// Whether the allocator is in HYBRID mode, in which pages of L1 are aligned as those of DRAM; `None`: unknown.
    pub is_hybrid: Option<bool>,
    /// Addresses and bytes of buffers on single cores, which buffers of all cores avoid.
    pub single_core: Vec<(u64, u64)>,
}

/// Whether a request fits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// Bytes that each bank needs for one buffer; `null` if unknown.
    pub needed_bytes_per_bank: Option<u64>,
    /// The answer.
    #[serde(flatten)]
    pub answer: FitAnswer,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum FitAnswer {
    /// All buffers fit.
    Fits {
        /// The address of each, in the order of allocation.
        addresses: Vec<u64>,
        /// The end of the free block that they go to.
        from: End,
    },
    /// At least one does not fit.
    DoesNotFit {
        /// Number of buffers that fit.
        fitting_count: u64,
        /// The banks, and why they have no block.
        bank: FailedBank,
        /// The cheapest neighbouring buffers whose freeing leaves one block for all of them; `null`: the bank is smaller, or there are
        /// buffers on single cores.
        make_room: Option<MakeRoom>,
        /// The parameter with which the device has to be opened.
        open_with: Option<OpenWith>,
    },
    /// It is not known.
    Unknown {
        /// Why.
        reason: String,
    },
}

/// Returns whether buffers fit into the banks of an allocator.
pub fn fit(map: &BlockMap, request: &FitRequest, context: &FitContext) -> Fit {
    let unknown = |reason: &str| FitAnswer::Unknown { reason: reason.to_owned() };
    let in_mode = |is_hybrid: bool| {
        let (arch, banks) = context.arch.zip(map.banks)?;
        let memory = arch.memory();
        let is_l1 = map.space == Space::L1Small || map.space == Space::L1 && !is_hybrid;
        let page_alignment = if is_l1 { memory.l1_alignment } else { memory.dram_alignment };
        let bytes = request.size.in_bank(banks, page_alignment);
        Some(round_up(bytes.max(1), memory.dram_alignment))
    };
    let needed = in_mode(context.is_hybrid.unwrap_or(false));
    let is_mode_unknown = context.is_hybrid.is_none() && needed != in_mode(true);
    let reason = map.unknown.as_deref().or(context.unknown.as_deref());
    let answer = match (reason, needed, map.base.zip(map.bytes_per_bank)) {
        (Some(reason), ..) => unknown(reason),
        (None, None, _) => unknown("the architecture of the device is unknown, and with it the alignment"),
        (None, _, None) => unknown("the process does not publish the bank layout"),
        _ if is_mode_unknown => {
            unknown("in HYBRID mode pages of L1 are larger, and the mode is not known before L1 is used")
        }
        _ if map.omitted_blocks > 0 => unknown("not all blocks are listed: use --local"),
        (None, Some(needed), Some((base, bytes))) => {
            place(map, Range::new(base, bytes), needed, request, context)
        }
    };
    Fit { needed_bytes_per_bank: needed.filter(|_| !is_mode_unknown), answer }
}

impl FitSize {
    /// Bytes in each bank: whole pages, each aligned.
    fn in_bank(self, banks: u16, alignment: u64) -> u64 {
        let whole = |count: u64, page: u64| count.saturating_mul(round_up(page, alignment));
        match self {
            Self::PerBank(bytes) => bytes,
            Self::Pages { bytes, count } => whole(count.div_ceil(u64::from(banks.max(1))), bytes),
            Self::Shard { bytes, count } => whole(count, bytes),
        }
    }
}

fn round_up(bytes: u64, to: u64) -> u64 {
    bytes.checked_next_multiple_of(to).unwrap_or(u64::MAX)
}

fn place(map: &BlockMap, bank: Range, needed: u64, request: &FitRequest, context: &FitContext) -> FitAnswer {
    let used = map.blocks.iter().enumerate().filter(|(_, block)| block.state != BlockState::Free);
    let placed = |(index, block): (usize, &Block)| Placed {
        range: Range::new(block.address, block.bytes),
        group: 0,
        index: index as u32,
    };
    let on_cores: &[_] = if map.space == Space::L1 { &context.single_core } else { &[] };
    let has_single_cores = !on_cores.is_empty();
    let on_cores = on_cores.iter().map(|&(address, bytes)| Range::new(address, bytes));
    let on_cores = on_cores.map(|range| Placed { range, group: 0, index: u32::MAX });
    let mut used: Vec<Placed> = used.map(placed).chain(on_cores).collect();
    room::sort(bank, &mut used);
    let holes = room::holes(bank, &used);
    let from = request.from.unwrap_or_else(|| End::of(map.space));
    let addresses = first_fit(&holes, needed, from, request.count);
    let lowest = addresses.iter().min().copied();
    if addresses.len() as u64 == request.count {
        return match &context.floor {
            Some((floor, reason)) if lowest.is_some_and(|lowest| lowest < *floor) => {
                let reason = format!("below {floor:#x}, where a buffer would go, {reason}");
                FitAnswer::Unknown { reason }
            }
            _ => FitAnswer::Fits { addresses, from },
        };
    }
    let total = needed.saturating_mul(request.count);
    let free: u64 = holes.iter().map(|hole| hole.len()).sum();
    // Buffers on single cores overlap, so that a window does not have all that is in the way.
    let window = room::cheapest_window(bank, &used, total).filter(|_| !has_single_cores);
    let make_room = window.map(|window| {
        let freed = &used[window.buffers];
        let allocation = |it: &Placed| map.blocks.get(it.index as usize)?.allocation.clone();
        MakeRoom {
            bytes_per_bank: window.freed,
            address: window.block.start,
            block_bytes_per_bank: window.block.end - window.block.start,
            count: freed.len() as u64,
            buffers: freed.iter().filter_map(allocation).take(MAX_BUFFERS).collect(),
        }
    });
    // A larger region begins at a lower address, so that a free block at its beginning grows.
    let at_start = holes.first().filter(|hole| hole.start == bank.start).map_or(0, |hole| hole.len());
    let l1_small_size = OpenWith {
        parameter: "l1_small_size".to_owned(),
        bytes: bank.len().saturating_add(total.saturating_sub(at_start)),
    };
    FitAnswer::DoesNotFit {
        fitting_count: addresses.len() as u64,
        bank: FailedBank {
            space: map.space,
            banks: map.banks.unwrap_or(0),
            base: bank.start,
            bytes_per_bank: bank.len(),
            used_bytes_per_bank: bank.len() - free,
            free_bytes_per_bank: free,
            largest_free_bytes_per_bank: holes.iter().map(|hole| hole.len()).max().unwrap_or(0),
            used_count: map.blocks.iter().filter(|it| it.state == BlockState::Used).count() as u64,
            free_count: holes.len() as u64,
            shortage: Some(match total {
                _ if total > bank.len() => Shortage::TooLarge,
                _ if total > free => Shortage::Full,
                _ => Shortage::Fragmented,
            }),
        },
        make_room,
        open_with: (map.space == Space::L1Small).then_some(l1_small_size),
    }
}

/// The addresses of buffers that are allocated one after the other, as far as they fit. They are of one size, so that a block that is
/// too small for one of them is too small for all that follow.
fn first_fit(holes: &[Range], needed: u64, from: End, count: u64) -> Vec<u64> {
    let in_hole = |hole: &Range| {
        let Range { start, end } = *hole;
        let fitting = (end - start) / needed;
        (0..fitting).map(move |n| match from {
            End::Bottom => start + n * needed,
            End::Top => end - (n + 1) * needed,
        })
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    match from {
        End::Bottom => holes.iter().flat_map(in_hole).take(count).collect(),
        End::Top => holes.iter().rev().flat_map(in_hole).take(count).collect(),
    }
}

#[cfg(test)]
mod tests;
