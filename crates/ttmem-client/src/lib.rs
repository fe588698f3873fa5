#![doc = include_str!("../README.md")]

// Public are the types in this module and `compat`. Inside, `tracker` has the lock and detects forks, `writer` has the private
// state, `segment` the mapped file, `publish` the order of stores in it; `slot_index` finds slots, `quota` limits the use of the
// filesystem, and `legacy` has the old protocol.

#[doc(hidden)]
pub mod agent;
mod bus_error;
mod clock;
pub mod compat;
mod descriptor;
mod failure_file;
mod identity;
mod legacy;
mod lock_page;
mod log;
mod memory;
mod options;
mod publish;
mod quota;
mod segment;
mod slot_index;
mod text;
mod tracker;
mod types;
mod writer;

/// Atomics of `publish`, named here because the models in `ttmem-loom` replace them by loom's.
mod atomic {
    pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
}

pub use options::{Options, Transport};
pub use tracker::{AllocatorGuard, ProgramGuard, Tracker};
#[doc(inline)]
pub use ttmem_types::{
    Arch, BufferType, DataType, Fault, KernelClass, Layout, Purpose, Space, Tensor, TensorLayout,
};
pub use types::{
    AllocatorNumber, AuditMark, Banks, Buffer, CallSite, Chip, ChipNumber, CoreRange, CoresNumber, Kernel,
    Placement, Program, Result, SiteNumber, Statistics, Status,
};
