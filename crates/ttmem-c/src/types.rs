//! The structs and constants of the interface. In a struct, zero means unknown.
#![allow(non_camel_case_types)]

use core::ffi::c_char;

/// Bits of a `flags` field.
#[repr(C)]
pub enum ttmem_flag {
    /// Program memory that is a view of a buffer; the buffer is counted.
    View = 1,
    /// Program memory at an unknown address; `address` only distinguishes it from others.
    Unplaced = 2,
    /// The size is an estimate.
    Estimated = 4,
    /// Program memory whose dispatches are not reported: whether it is resident is unknown.
    Unfollowed = 8,
    /// A buffer of another allocator: it reduces free space here but is counted there.
    Mirror = 16,
}

/// Settings that override the environment; null: as in the environment.
#[repr(C)]
pub struct ttmem_options {
    /// Folder for segments instead of `/dev/shm`.
    pub folder: *const c_char,
    /// Name of what is tracked, for display: `mymodel 1.2`.
    pub runtime: *const c_char,
    /// Where to log problems: `stderr` or a file. Nothing is logged otherwise.
    pub log: *const c_char,
    /// Records that the segment's ring holds, a power of two from 1,024 to 1,048,576. 0: `TTMEM_RING`, or 16,384.
    pub ring: u64,
    /// Reserved; zero.
    pub reserved: [u64; 4],
}

/// Status of tracking.
#[repr(C)]
pub struct ttmem_status {
    /// Live allocations.
    pub live: u64,
    /// Live allocations that do not fit the segment's table: counted, but not listed.
    pub unlisted: u64,
    /// Reports that were not recorded.
    pub lost: u64,
    /// Messages queued for an old server.
    pub queued: u64,
    /// 1 if reports are recorded.
    pub on: u32,
    /// Reserved; zero.
    pub reserved: u32,
    /// File name of the segment, or empty.
    pub segment: [c_char; 64],
    /// Why there is no segment or a smaller one, or why tracking is off; or empty.
    pub reason: [c_char; 128],
}

/// A device; zero or null fields are unknown.
#[repr(C)]
pub struct ttmem_chip {
    /// 64-bit unique id.
    pub unique_id: u64,
    /// DRAM in bytes.
    pub dram_bytes: u64,
    /// Bytes of a DRAM channel that the runtime uses.
    pub dram_bytes_per_channel: u64,
    /// L1 of one core in bytes.
    pub l1_bytes_per_core: u64,
    /// DRAM that the runtime can allocate, in bytes.
    pub dram_allocatable: u64,
    /// L1 that the runtime can allocate, in bytes.
    pub l1_allocatable: u64,
    /// Board name, such as `n300`.
    pub board: *const c_char,
    /// PCI address.
    pub pci: *const c_char,
    /// Device number in this process.
    pub index: u32,
    /// A `ttmem_arch`.
    pub arch: u32,
    /// 1 if it is reached through another device.
    pub remote: u32,
    /// DRAM channels.
    pub dram_channels: u32,
    /// Tensix cores, without harvested ones.
    pub cores: u32,
    /// Start address of the kernel config buffer in a core's L1.
    pub kernel_config: u32,
    /// End of the kernel config buffer, where memory of programs and buffers begins.
    pub unreserved: u32,
    /// Columns of cores that programs can use.
    pub columns: u32,
    /// Rows of cores that programs can use.
    pub rows: u32,
    /// Reserved; zero.
    pub reserved: [u32; 7],
}

/// Layout of one memory space of an allocator.
#[repr(C)]
pub struct ttmem_banks {
    /// A `ttmem_space`.
    pub space: u32,
    /// Banks that allocate in lock-step.
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
    /// Its allocator. The buffer is on all devices of the allocator.
    pub allocator: i32,
    /// A `ttmem_space` for buffers.
    pub space: u32,
    /// Address in each bank.
    pub address: u64,
    /// Requested bytes on each device.
    pub requested: u64,
    /// Bytes in each bank; 0: unknown, and so are the allocated bytes.
    pub bytes_per_bank: u64,
    /// Occupied bytes, in the banks that hold it; 0: unknown.
    pub occupied: u64,
    /// Core set, if the buffer is on some cores only.
    pub cores: i32,
    /// Call site of the allocation.
    pub site: i32,
    /// A `ttmem_layout`.
    pub layout: u32,
    /// `TTMEM_FLAG_MIRROR`.
    pub flags: u32,
    /// Reserved; zero.
    pub reserved: [u64; 2],
}

/// A line of a program that allocates; zero and null fields are unknown.
#[repr(C)]
pub struct ttmem_call_site {
    /// Path of the file, such as `__FILE__`.
    pub file: *const c_char,
    /// Function, such as `__func__`.
    pub function: *const c_char,
    /// Operation that the line calls, such as `ttnn.matmul`.
    pub op: *const c_char,
    /// Part of the program that the line runs in, such as `decode / attention`.
    pub track: *const c_char,
    /// Dimensions of the tensor that is allocated; null: none.
    pub shape: *const u32,
    /// Number of dimensions; of more than 8, the last 8 are kept.
    pub rank: u32,
    /// Line, such as `__LINE__`.
    pub line: u32,
    /// Data type of the tensor, such as `bfloat16`.
    pub data_type: *const c_char,
    /// Order of the tensor's elements: `tile` or `row_major`.
    pub tensor_layout: *const c_char,
    /// A `ttmem_purpose`. Of a tensor it is `TTMEM_PURPOSE_TENSOR`.
    pub purpose: u32,
    /// Reserved; zero.
    pub reserved0: u32,
    /// Reserved; zero.
    pub reserved: [u64; 4],
}

/// Memory of a program on each core of a set.
#[repr(C)]
pub struct ttmem_placement {
    /// Allocator of the program's device or mesh.
    pub allocator: i32,
    /// `TTMEM_SPACE_CB`, `TTMEM_SPACE_DFB` or `TTMEM_SPACE_SCRATCH`.
    pub space: u32,
    /// Address on each core.
    pub address: u64,
    /// Bytes on each core.
    pub bytes: u64,
    /// Program number chosen by the caller; 0: none, and then residency is unknown.
    pub program: u32,
    /// Core set.
    pub cores: i32,
    /// `TTMEM_FLAG_VIEW`, `_UNPLACED`, `_ESTIMATED`, `_UNFOLLOWED`.
    pub flags: u32,
    /// Reserved; zero.
    pub reserved0: u32,
    /// Reserved; zero.
    pub reserved: [u64; 2],
}

/// A kernel of a program.
#[repr(C)]
pub struct ttmem_kernel {
    /// Allocator of the program's device or mesh.
    pub allocator: i32,
    /// Program number chosen by the caller; 0: none, and then residency is unknown.
    pub program: u32,
    /// Id of the kernel, unique in its allocator.
    pub id: u64,
    /// Bytes on each of its cores; if `cores` is 0, in total.
    pub bytes: u64,
    /// Core set it runs on.
    pub cores: i32,
    /// A `ttmem_kernel_class`.
    pub kind: u32,
    /// `TTMEM_FLAG_ESTIMATED`, `_UNFOLLOWED`.
    pub flags: u32,
    /// Reserved; zero.
    pub reserved0: u32,
    /// Reserved; zero.
    pub reserved: [u64; 2],
}

/// An allocator's own statistics of one memory space.
#[repr(C)]
pub struct ttmem_statistics {
    /// Allocated bytes, over all banks.
    pub allocated: u64,
    /// Free bytes, over all banks.
    pub free: u64,
    /// Largest free block in a bank, in bytes.
    pub largest_free_per_bank: u64,
}
