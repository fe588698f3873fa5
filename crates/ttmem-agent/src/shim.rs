//! The shim as Rust sees it: what it reports, and how to query it. `shared.def` lists all of it; the structs are written here,
//! and the compiler checks their layouts against that list.
#![allow(unsafe_code)]

use crate::flight::{Line, Page, State};
use crate::runtime::{BufferLayout, ProgramLayout};
use core::ffi::c_void;
use ttmem_client::{Layout, Space};

// Constants, types of functions, declarations of the shim's variables and functions; checks of layouts and of the functions
// that the shim calls.
include!(concat!(env!("OUT_DIR"), "/shared.rs"));

/// The size of a field, for the checks.
const fn bytes_of<Owner, Field>(_: fn(&Owner) -> &Field) -> usize {
    size_of::<Field>()
}

/// A span of the C++ library, which passes it in two registers.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Span {
    pub(crate) begin: *mut c_void,
    pub(crate) len: usize,
}

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
        self.known & INTERLEAVED != 0
    }

    pub(crate) fn has_cores(&self) -> bool {
        self.known & CORES != 0
    }

    pub(crate) fn is_per_core(&self) -> bool {
        self.known & PER_CORE != 0
    }

    pub(crate) fn layout(&self) -> Layout {
        // The runtime's number, and 1; it has one of its own that is not used any more.
        match self.known >> LAYOUT_SHIFT {
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

/// One core of a buffer that has an address on each core.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct CoreAddress {
    /// `y * 16 + x`.
    pub(crate) core: u64,
    pub(crate) address: u64,
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
            PART_CB => Space::Cb,
            PART_DFB => Space::Dfb,
            PART_SCRATCH.. => Space::Scratch,
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
