//! Publishes the device memory that a process uses, for `ttmem` to show.
//!
//! A [`Tracker`] writes a *segment*: a file in `/dev/shm` that any reader may read, at any time, with or without a
//! daemon, and still after the process was killed. A process that exits by itself removes it, unless an allocation failed.
//! A tracker never sends anything, never waits for a reader, and costs some tens of nanoseconds an event; switched off,
//! one load.
//!
//! ```
//! use ttmem_client::{Banks, Buffer, Chip, Space, Tracker};
//!
//! let tracker = Tracker::global(); // on with TTMEM=1 in the environment
//! let chip = tracker.chip(&Chip { unique_id: 0x1234, ..Chip::default() })?;
//! let mesh = tracker.allocator(&[chip], &[Banks::new(Space::Dram, 12, 1 << 20, 1 << 30)])?;
//! let buffer = Buffer { bytes_per_bank: 2048, ..Buffer::new(mesh, Space::Dram, 0x10_0000, 2048) };
//! tracker.alloc(&buffer)?;
//! tracker.free(mesh, Space::Dram, 0x10_0000)?;
//! # Ok::<(), ttmem_client::Fault>(())
//! ```
//!
//! # Environment
//!
//! | variable | means |
//! |---|---|
//! | `TTMEM=1`, `TT_ALLOC_TRACKING_ENABLED=1` | track |
//! | `TTMEM_SHM_DIR` | folder for segments instead of `/dev/shm` |
//! | `TTMEM_GROUP` | group, by number, that may read the segment |
//! | `TTMEM_LOG` | `stderr` or a file for problems; nothing is logged otherwise |
//! | `TTMEM_TRANSPORT=legacy` | report to an old server instead, at `TTMEM_LEGACY_SOCKET` |
//!
//! # Limitations
//!
//! * A segment must be removed, never truncated: truncating a mapped file kills the processes that have it mapped.
//! * After `mlockall(MCL_FUTURE)` reserved address space is allocated at once: some 35 MB, or 170 MB if no file can be
//!   created.
//!
//! # Modules
//!
//! `tracker` has the lock and detects forks; `writer` has the private state; `segment` is the mapped file, `publish` the order
//! of stores in it; `live` finds slots; `room` keeps within ttmem's share of the filesystem; `legacy` is the old protocol.

mod beside;
mod clock;
mod descriptor;
mod identity;
mod legacy;
mod live;
mod log;
mod memory;
mod publish;
mod reports;
mod room;
mod segment;
mod text;
mod tracker;
mod types;
mod writer;

/// Atomics of `publish`, named here because the models in `ttmem-loom` replace them by loom's.
mod atomic {
    pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
}

pub use beside::reset_agents_peaks;
pub use tracker::{Options, Tracker, Transport};
pub use types::{
    AllocatorNumber, Arch, Banks, Buffer, BufferType, Chip, ChipNumber, CoreRange, CoresNumber, Fault,
    Kernel, KernelClass, Layout, Mark, Placement, Program, Result, SiteNumber, Space, Statistics, Status,
    Uncertainty,
};
