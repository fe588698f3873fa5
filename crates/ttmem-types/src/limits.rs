//! Limits that writers and readers agree on.

/// No allocation is larger. With this and the number of records that a reader keeps, no sum leaves 64 bits.
pub const MAX_ALLOCATION_BYTES: u64 = 1 << 40;

/// The largest number that a runtime gives a device.
pub const MAX_DEVICE_NUMBER: u32 = 0xffff;

/// Frees that are remembered, to distinguish double frees from frees of unknown buffers.
pub const REMEMBERED_FREES: usize = 256;

/// Crash segments of one user that are kept: the newest.
pub const CRASH_SEGMENTS: usize = 8;

/// Columns and rows of the largest grid of cores.
pub const MAX_GRID: u8 = 16;
