//! Block maps: the blocks of an allocator's banks, used and free.

use super::{Allocation, is_false, is_zero};
use crate::detail::BlockMapKey;
use crate::words::{Basis, Space};
use serde::{Deserialize, Serialize};

/// The blocks of one space of an allocator. Banks allocate in lock-step, so one list describes each of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BlockMap {
    /// As [`super::Process::pid`].
    pub pid: Option<u32>,
    /// As [`super::Process::reported_pid`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reported_pid: Option<i64>,
    /// Process name.
    pub process_name: Option<String>,
    /// Whether its blocks are withheld from this user.
    #[serde(skip_serializing_if = "is_false", default)]
    pub hidden: bool,
    /// Number of the allocator within the process; absent where the process reports devices only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub allocator: Option<u32>,
    /// [`super::Device::id`]s it covers.
    pub devices: Vec<String>,
    /// [`super::Device::index`]es it covers.
    pub indexes: Vec<u32>,
    /// Memory space.
    pub space: Space,
    /// Where the blocks come from.
    pub basis: Basis,
    /// Bytes in use, over all banks: allocated bytes where they are known, else requested bytes.
    pub used_bytes: u64,
    /// Why the blocks are not known; then there are none, and their figures are `null`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unknown: Option<String>,
    /// Banks that allocate in lock-step.
    pub banks: Option<u16>,
    /// First address of a bank.
    pub base: Option<u64>,
    /// Bytes of a bank.
    pub bytes_per_bank: Option<u64>,
    /// Bytes of each bank in use, buffers of other allocators included.
    pub used_bytes_per_bank: Option<u64>,
    /// Free bytes of each bank.
    pub free_bytes_per_bank: Option<u64>,
    /// Largest free block per bank: no larger allocation can succeed.
    pub largest_free_bytes_per_bank: Option<u64>,
    /// Addresses of all free blocks of that size, lowest first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub largest_free_block_addrs: Vec<u64>,
    /// Bytes of buffers on single cores of the same devices (`l1_core`), which may be in blocks that are free otherwise.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub single_core_bytes: u64,
    /// Number of blocks in use; `null` if unknown.
    pub used_count: Option<u64>,
    /// Number of free blocks; `null` if unknown.
    pub free_count: Option<u64>,
    /// The blocks by address.
    pub blocks: Vec<Block>,
    /// Number of further blocks, which the request left out.
    pub omitted_blocks: u64,
    /// Used share of equal parts of a bank, from its first address on, in 255ths: 0 only if all of the part is free, 255 only if
    /// all of it is used. On request.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub parts: Vec<u8>,
}

impl BlockMap {
    /// The key that selects this map in a request.
    pub fn key(&self) -> BlockMapKey {
        BlockMapKey { pid: self.pid, allocator: self.allocator, space: self.space }
    }

    /// First address of the part with this number, of `count` equal parts of a bank; of part `count`, the end of the bank.
    pub fn part_address(&self, part: usize, count: usize) -> u64 {
        let bytes = u128::from(self.bytes_per_bank.unwrap_or(0));
        self.base.unwrap_or(0).saturating_add((bytes * part as u128 / count.max(1) as u128) as u64)
    }

    /// Computes [`BlockMap::parts`] from the first and last address of each used block, by address.
    pub fn used_parts(&self, mut used: impl Iterator<Item = (u64, u64)>, count: usize) -> Vec<u8> {
        let mut pending = used.next();
        let share = |part| {
            let (start, end) = (self.part_address(part, count), self.part_address(part + 1, count));
            let (mut covered, mut from) = (0, start);
            while let Some((first, last)) = pending.filter(|&(first, _)| first < end) {
                covered += last.min(end).saturating_sub(first.max(from));
                from = from.max(last.min(end));
                if last > end {
                    break;
                }
                pending = used.next();
            }
            match covered {
                0 => 0,
                covered if covered == end - start => 255,
                covered => (u128::from(covered) * 255 / u128::from(end - start)).clamp(1, 254) as u8,
            }
        };
        (0..count).map(share).collect()
    }
}

/// One block of a bank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Block {
    /// First address within a bank.
    pub address: u64,
    /// Bytes in each bank.
    pub bytes: u64,
    /// Whether it is used or free.
    pub state: BlockState,
    /// Whether it is a free block, and none is larger.
    #[serde(skip_serializing_if = "is_false", default)]
    pub largest: bool,
    /// The allocation that uses it, where it is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub allocation: Option<Allocation>,
}

/// Whether a block is used or free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BlockState {
    /// Free.
    Free,
    /// Allocated by this allocator.
    Used,
    /// Reserved because another allocator of the same devices allocated it.
    Reserved,
}

impl BlockState {
    /// Name as shown on screens.
    pub fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Used => "used",
            Self::Reserved => "reserved",
        }
    }
}
