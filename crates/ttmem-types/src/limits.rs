//! Limits that writers and readers agree on.

/// Bytes of the largest allocation. With this and the number of records that a reader keeps, no sum exceeds 64 bits.
pub const MAX_ALLOCATION_BYTES: u64 = 1 << 40;

/// Largest device number of a runtime.
pub const MAX_DEVICE_NUMBER: u32 = 0xffff;

/// Number of frees that are remembered, to distinguish double frees from frees of unknown buffers.
pub const REMEMBERED_FREES: usize = 256;

/// Number of crash segments of one user that are kept, the newest ones.
pub const CRASH_SEGMENTS: usize = 8;

/// Columns and rows of the largest grid of cores.
pub const MAX_GRID: u8 = 16;
