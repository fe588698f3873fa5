//! Declarations of the shim for Rust: the structs that it passes, and the functions that query it. `shared.def` lists all of
//! them; the structs are written here, and the compiler checks their layouts against that list.
#![allow(unsafe_code)]

use crate::flight::{Line, Page, State};
use crate::runtime::{BufferLayout, ProgramLayout};
use core::cell::Cell;
use core::ffi::{c_char, c_void};
use ttmem_client::{Layout, Space};
use ttmem_wire::ViewAddresses;

// Constants, function types, declarations of the shim's variables and functions, checks of layouts and of the functions that
// the shim calls.
include!(concat!(env!("OUT_DIR"), "/shared.rs"));

/// The size of a field, for the layout checks.
const fn bytes_of<Owner, Field>(_: fn(&Owner) -> &Field) -> usize {
    size_of::<Field>()
}

/// `std::span`, which is passed in two registers.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Span {
    pub(crate) begin: *mut c_void,
    pub(crate) len: usize,
}

/// Facts about a buffer.
#[repr(C)]
pub(crate) struct BufferFacts {
    pub(crate) address: u64,
    pub(crate) requested: u64,
    pub(crate) page_size: u64,
    pub(crate) kind: u32,
    pub(crate) known: u32,
    // The rest is not filled in for an interleaved buffer.
    pub(crate) aligned_page_size: u64,
    pub(crate) aligned_size_per_bank: u64,
    pub(crate) occupied: u64,
    pub(crate) cores: [u64; 4],
}

impl BufferFacts {
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
        // The runtime's number plus 1; the missing number is of a layout that is no longer used.
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

/// Facts about the place of an allocation, and its tensor.
#[repr(C)]
pub(crate) struct SiteFacts {
    /// The line that called the runtime, if it was not Python; 0: unknown.
    pub(crate) caller: u64,
    pub(crate) purpose: u32,
    /// As the runtime numbers it; unknown ones are larger than any number.
    pub(crate) data_type: u32,
    pub(crate) layout: u32,
    /// Number of dimensions, plus 1; 0: no tensor.
    pub(crate) rank: u32,
    pub(crate) dimensions: [u32; MOST_DIMENSIONS as usize],
}

/// Facts about a chip; unknown ones are 0.
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

/// The banks of one space: their number, and the bytes of each.
#[derive(Default)]
#[repr(C)]
pub(crate) struct BankFacts {
    pub(crate) banks: u64,
    pub(crate) bytes: u64,
}

/// An allocator's own statistics of one space, per bank.
#[derive(Default)]
#[repr(C)]
pub(crate) struct RuntimeStatistics {
    pub(crate) allocatable: u64,
    pub(crate) allocated: u64,
    pub(crate) free: u64,
    pub(crate) largest_free: u64,
}

/// One core of a buffer with per-core addresses.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct CoreAddress {
    /// `y * 16 + x`.
    pub(crate) core: u64,
    pub(crate) address: u64,
}

/// Memory of a program on its cores: a circular buffer, a dataflow buffer or a scratchpad.
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

/// The addresses of a program's views.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct ViewFacts {
    /// [`ViewAddresses`], if there are few enough.
    pub(crate) addresses: [u64; 2],
    /// Fingerprint of their addresses and sizes; 0: there are none.
    pub(crate) fingerprint: u64,
}

const _: () = assert!(
    VIEW_BITS as usize == ViewAddresses::BITS
        && VIEW_UNIT as u64 == ViewAddresses::UNIT
        && MOST_VIEWS as usize == ViewAddresses::MOST
);

/// The device and the queue that a program runs on.
#[repr(C)]
pub(crate) struct ProgramTarget {
    /// A mesh or a chip; 0: unknown.
    pub(crate) device: usize,
    /// The range of the mesh; 0: all of it.
    pub(crate) range: usize,
    pub(crate) mesh: u32,
    pub(crate) queue: u32,
    pub(crate) is_mesh: bool,
    /// Whether all parts of the program have addresses.
    pub(crate) placed: bool,
}

/// The text of an exception of the runtime.
#[repr(C)]
pub(crate) struct CaughtText {
    /// Null: unknown.
    pub(crate) text: *const c_char,
    /// The text that it shall have; null: as it is.
    pub(crate) longer: Cell<*mut c_char>,
}

/// Facts about a program, without its parts.
#[repr(C)]
pub(crate) struct ProgramFacts {
    pub(crate) kernel_bytes: u32,
    pub(crate) name_len: u32,
    pub(crate) cores: [u64; 4],
    pub(crate) name: [u8; 192],
}
