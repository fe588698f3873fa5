//! The shim's side that we see: what it tells of, and what it can be asked. All of it is as in shim.hpp.
#![allow(unsafe_code)]

use core::ffi::c_void;
use ttmem_client::{Layout, Space};

// The runtime's numbers of spaces. It has one more, of which it has no allocator.
pub(crate) const DRAM: u32 = 0;
pub(crate) const L1: u32 = 1;
pub(crate) const L1_SMALL: u32 = 3;
pub(crate) const TRACE: u32 = 4;
/// The runtime's numbers of memories.
pub(crate) const MEMORY_L1: u64 = 0;
pub(crate) const MEMORY_DRAM: u64 = 1;

/// A buffer.
#[repr(C)]
pub(crate) struct Facts {
    pub(crate) address: u64,
    pub(crate) requested: u64,
    pub(crate) page_size: u64,
    pub(crate) kind: u32,
    pub(crate) known: u32,
    // Not filled in if it is interleaved.
    pub(crate) aligned_page_size: u64,
    pub(crate) aligned_size_per_bank: u64,
    pub(crate) occupied: u64,
    pub(crate) cores: [u64; 4],
}

impl Facts {
    pub(crate) fn is_interleaved(&self) -> bool {
        self.known & 1 != 0
    }

    pub(crate) fn has_cores(&self) -> bool {
        self.known & 2 != 0
    }

    pub(crate) fn is_per_core(&self) -> bool {
        self.known & 4 != 0
    }

    pub(crate) fn layout(&self) -> Layout {
        // The runtime's number, and 1; it has one of its own that is not used any more.
        match self.known >> 8 {
            1 => Layout::Interleaved,
            3 => Layout::HeightSharded,
            4 => Layout::WidthSharded,
            5 => Layout::BlockSharded,
            6 => Layout::NdSharded,
            _ => Layout::Unknown,
        }
    }
}

/// A chip; what is not known is 0.
#[derive(Default)]
#[repr(C)]
pub(crate) struct ChipFacts {
    pub(crate) unique_id: u64,
    pub(crate) board_id: u64,
    pub(crate) index: u32,
    pub(crate) arch: u32,
    pub(crate) harvested_cores: u32,
    pub(crate) harvested_dram: u32,
    pub(crate) known: u32,
    pub(crate) remote: u32,
    pub(crate) pci: [u8; 16],
}

/// Banks of one space: how many, and bytes of each.
#[derive(Default)]
#[repr(C)]
pub(crate) struct BankFacts {
    pub(crate) banks: u64,
    pub(crate) bytes: u64,
}

/// An allocator's own figures of one space, in each bank.
#[derive(Default)]
#[repr(C)]
pub(crate) struct RuntimeStatistics {
    pub(crate) allocatable: u64,
    pub(crate) allocated: u64,
    pub(crate) free: u64,
    pub(crate) largest_free: u64,
}

/// What a program keeps on its cores.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Part {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) space: u32,
    pub(crate) view: u32,
    pub(crate) cores: [u64; 4],
}

impl Part {
    pub(crate) fn space(&self) -> Space {
        match self.space {
            0 => Space::Cb,
            1 => Space::Dfb,
            _ => Space::Scratch,
        }
    }
}

/// Where a program runs.
#[repr(C)]
pub(crate) struct Where {
    /// A mesh or a chip; 0: not known.
    pub(crate) device: usize,
    /// The part of the mesh; 0: all of it.
    pub(crate) range: usize,
    pub(crate) mesh: u32,
    pub(crate) queue: u32,
    pub(crate) is_mesh: bool,
    /// Whether everything that it keeps has its place.
    pub(crate) placed: bool,
}

/// A program, apart from what it keeps.
#[repr(C)]
pub(crate) struct ProgramFacts {
    pub(crate) kernel_bytes: u32,
    pub(crate) name_len: u32,
    pub(crate) cores: [u64; 4],
    pub(crate) name: [u8; 192],
}

unsafe extern "C" {
    pub(crate) fn ttmem_program(program: usize, out: *mut ProgramFacts) -> bool;
    pub(crate) fn ttmem_parts(
        program: usize,
        only_views: bool,
        tell: extern "C" fn(*mut c_void, &Part),
        to: *mut c_void,
    ) -> bool;
    pub(crate) fn ttmem_chips_of(device: usize, range: usize, out: *mut u32, room: usize) -> usize;
    pub(crate) fn ttmem_impl_chips(behind: usize, out: *mut u32, room: usize) -> usize;
    pub(crate) fn ttmem_cores(device: usize, columns: *mut u32, rows: *mut u32, most_unreserved: *mut u64);
    pub(crate) fn ttmem_statistics(allocator: usize, kind: u64, out: *mut RuntimeStatistics) -> bool;
    pub(crate) fn ttmem_bank(allocator: usize, kind: u64, out: *mut BankFacts) -> bool;
    pub(crate) fn ttmem_base(allocator: usize, memory: u64, out: *mut u64) -> bool;
    pub(crate) fn ttmem_alignment(allocator: usize, kind: u32, out: *mut u32) -> bool;
    pub(crate) fn ttmem_worker_l1(allocator: usize) -> u64;
    pub(crate) fn ttmem_chips(device: usize, out: *mut u32, room: usize) -> usize;
    pub(crate) fn ttmem_chip(index: u32, out: *mut ChipFacts);
    pub(crate) fn ttmem_device_of(buffer: *mut c_void) -> usize;
    pub(crate) fn ttmem_core_addresses(buffer: *mut c_void, out: *mut [u64; 2], room: usize) -> usize;
    pub(crate) fn ttmem_blocks(
        allocator: usize,
        kind: u64,
        tell: extern "C" fn(*mut c_void, u64, u64),
        to: *mut c_void,
    ) -> bool;
}
