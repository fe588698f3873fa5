//! What crosses the border: plain structs in which zero means "not said", and numbers.
#![allow(non_camel_case_types)]

use core::ffi::c_char;

/// What is special about something: bits of a `flags` field.
#[repr(C)]
pub enum ttmem_flag {
    /// Of what a program keeps: it is a buffer, counted as such; this is only another way to look at it.
    View = 1,
    /// Of what a program keeps: where it lies is not known. `address` only tells it from others.
    Unplaced = 2,
    /// Its size is an estimate.
    Estimated = 4,
    /// Of what a program keeps: nobody will tell when the program is dispatched, so whether it is resident is not known.
    Unfollowed = 8,
    /// Of a buffer: another allocator's, which this one only keeps clear of.
    Mirror = 16,
}

/// How to track, where that differs from what the environment says; null: as it says.
#[repr(C)]
pub struct ttmem_options {
    /// Where segments go instead of `/dev/shm`.
    pub folder: *const c_char,
    /// What is tracked, for people: `mymodel 1.2`.
    pub runtime: *const c_char,
    /// Where to say what goes wrong: `stderr` or a file. Nothing is printed otherwise.
    pub log: *const c_char,
    /// For later; zero.
    pub reserved: [u64; 5],
}

/// How tracking is going.
#[repr(C)]
pub struct ttmem_status {
    /// Live allocations.
    pub live: u64,
    /// Of these, how many did not fit the table; they are counted, but readers cannot list them.
    pub unlisted: u64,
    /// Events that could not be recorded.
    pub lost: u64,
    /// Messages that wait for an old server to take them.
    pub queued: u64,
    /// 1: events are recorded.
    pub on: u32,
    /// For later; zero.
    pub reserved: u32,
    /// The segment's file name, or empty.
    pub segment: [c_char; 64],
    /// Why there is none, or a smaller one, or why tracking is off; or empty.
    pub reason: [c_char; 128],
}

/// A chip, as far as the process knows it.
#[repr(C)]
pub struct ttmem_chip {
    /// Its 64-bit unique id.
    pub unique_id: u64,
    /// All of DRAM.
    pub dram_bytes: u64,
    /// The part of a channel the runtime uses.
    pub dram_bytes_per_channel: u64,
    /// L1 of one core.
    pub l1_bytes_per_core: u64,
    /// What the runtime can hand out of DRAM.
    pub dram_allocatable: u64,
    /// What the runtime can hand out of L1.
    pub l1_allocatable: u64,
    /// Board name, as `n300`.
    pub board: *const c_char,
    /// PCI address.
    pub pci: *const c_char,
    /// The number the process calls it by.
    pub index: u32,
    /// A `ttmem_arch`.
    pub arch: u32,
    /// 1: reached through another chip.
    pub remote: u32,
    /// DRAM channels.
    pub dram_channels: u32,
    /// Tensix cores, harvested ones left out.
    pub cores: u32,
    /// Where the ring of kernels begins in a core's L1.
    pub kernel_config: u32,
    /// Where it ends, and what programs and buffers share begins.
    pub unreserved: u32,
    /// Columns of cores that programs can use.
    pub columns: u32,
    /// Rows of them.
    pub rows: u32,
    /// For later; zero.
    pub reserved: [u32; 7],
}

/// How one space of an allocator is laid out.
#[repr(C)]
pub struct ttmem_banks {
    /// A `ttmem_space`.
    pub space: u32,
    /// Banks that the allocator moves in lock-step.
    pub banks: u32,
    /// First allocatable address in a bank.
    pub base: u64,
    /// Allocatable bytes in a bank.
    pub bytes_per_bank: u64,
}

/// A rectangle of cores, both corners included; columns and rows up to 15.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ttmem_core_range {
    /// Lowest column.
    pub x0: u32,
    /// Lowest row.
    pub y0: u32,
    /// Highest column.
    pub x1: u32,
    /// Highest row.
    pub y1: u32,
}

/// A buffer.
#[repr(C)]
pub struct ttmem_buffer {
    /// Who handed it out. All chips of the allocator hold it.
    pub allocator: i32,
    /// A `ttmem_space`, of buffers.
    pub space: u32,
    /// Its address in each bank.
    pub address: u64,
    /// What the program asked for, on each chip.
    pub requested: u64,
    /// What it takes in each bank; 0: not known, and then neither is what the allocator charges.
    pub bytes_per_bank: u64,
    /// What it takes in the banks that really hold it; 0: not known.
    pub occupied: u64,
    /// The cores it lies on, if it lies on some only.
    pub cores: i32,
    /// Where in the program it was asked for.
    pub site: i32,
    /// A `ttmem_layout`.
    pub layout: u32,
    /// `TTMEM_FLAG_MIRROR`.
    pub flags: u32,
    /// For later; zero.
    pub reserved: [u64; 2],
}

/// What a program keeps on each of some cores.
#[repr(C)]
pub struct ttmem_placement {
    /// The allocator of the device or mesh that the program is for.
    pub allocator: i32,
    /// `TTMEM_SPACE_CB`, `TTMEM_SPACE_DFB` or `TTMEM_SPACE_SCRATCH`.
    pub space: u32,
    /// Address on each core.
    pub address: u64,
    /// Bytes on each core.
    pub bytes: u64,
    /// The program, by a number of the caller's; 0: not said, and then it is not known whether it is resident.
    pub program: u32,
    /// Which cores.
    pub cores: i32,
    /// `TTMEM_FLAG_VIEW`, `_UNPLACED`, `_ESTIMATED`, `_UNFOLLOWED`.
    pub flags: u32,
    /// For later; zero.
    pub reserved0: u32,
    /// For later; zero.
    pub reserved: [u64; 2],
}

/// A kernel of a program.
#[repr(C)]
pub struct ttmem_kernel {
    /// The allocator of the device or mesh that the program is for.
    pub allocator: i32,
    /// The program, by a number of the caller's; 0: not said, and then it is not known whether it is resident.
    pub program: u32,
    /// A number that no other kernel of this allocator has.
    pub id: u64,
    /// Its size on each of its cores; where those are not said, on all of them together.
    pub bytes: u64,
    /// Which cores it runs on.
    pub cores: i32,
    /// A `ttmem_kernel_class`.
    pub kind: u32,
    /// `TTMEM_FLAG_ESTIMATED`, `_UNFOLLOWED`.
    pub flags: u32,
    /// For later; zero.
    pub reserved0: u32,
    /// For later; zero.
    pub reserved: [u64; 2],
}

/// An allocator's own statistics of one space.
#[repr(C)]
pub struct ttmem_statistics {
    /// Allocated bytes, over all banks.
    pub allocated: u64,
    /// Free bytes, over all banks.
    pub free: u64,
    /// The largest free block in a bank.
    pub largest_free_per_bank: u64,
}
