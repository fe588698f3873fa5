//! Publishes what device memory a process holds, for `ttmem` to show.
//!
//! A [`Tracker`] writes a *segment*: a file in `/dev/shm` that any reader may look at, at any time, with or without a
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
//! | `TTMEM_SHM_DIR` | where segments go instead of `/dev/shm` |
//! | `TTMEM_GROUP` | group, by number, that may read the segment, too |
//! | `TTMEM_LOG` | `stderr` or a file: say there what goes wrong; nothing is ever printed otherwise |
//! | `TTMEM_TRANSPORT=legacy` | tell an old server instead, at `TTMEM_LEGACY_SOCKET` |
//!
//! # What it cannot help
//!
//! * A segment must be removed, never truncated: a file that is cut short under a mapping kills whoever has it mapped.
//! * After `mlockall(MCL_FUTURE)` everything that is only reserved is taken at once: some 35 MB, or 170 MB where no file can
//!   be made.
//!
//! # How it is built
//!
//! `tracker` lets one thread in at a time and notices forks; `writer` keeps the books; `segment` is the mapped file,
//! `publish` the order of stores in it; `live` finds slots; `room` keeps to our share of the filesystem; `legacy` is
//! the old protocol.

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
