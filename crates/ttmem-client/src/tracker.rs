//! The tracker: enabled or disabled, locked for one thread at a time, and separate in each forked process.
//!
//! `control` enables and ends it, `lock` has the lock, `define` and `report` have the calls, `guards` has the values that end an
//! allocator or a program when they are dropped.
#![allow(unsafe_code)]

mod control;
mod define;
mod guards;
mod lock;
mod report;

pub use guards::{AllocatorGuard, ProgramGuard};
pub(crate) use lock::thread_id;
pub(crate) use report::SEARCHED_SPACES;

use crate::lock_page::LockPage;
use crate::writer::Writer;
use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};

/// Value of `Tracker::page` before the environment is read.
const ENV_NOT_READ: *mut LockPage = ptr::without_provenance_mut(1);

/// Records the device memory of a process. Methods may be called from any thread; while tracking is off they do nothing.
///
/// [`Tracker::global`] is the tracker of the process and ends with it. A tracker made by [`Tracker::new`] is closed when it is
/// dropped.
///
/// ```
/// use ttmem_client::{Buffer, Space, Tracker};
///
/// // Without TTMEM=1 in the environment, tracking is off and these calls do nothing.
/// let tracker = Tracker::global();
/// let device = tracker.define_devices(&[0])?;
/// tracker.alloc(&Buffer::new(device, Space::Dram, 0x10_0000, 4096))?;
/// tracker.free(device, Space::Dram, 0x10_0000)?;
/// # Ok::<(), ttmem_client::Fault>(())
/// ```
#[repr(C)]
pub struct Tracker {
    /// Null: off. [`ENV_NOT_READ`]: the first use reads the environment.
    page: AtomicPtr<LockPage>,
    writer: UnsafeCell<Option<Writer>>,
    /// Reports that could not take the lock.
    locked_out: AtomicU64,
    /// Thread that kept the lock too long: no other thread waits for it again.
    stuck_owner: AtomicU64,
    /// When a thread first found itself the owner of the lock; 0: it has not.
    interrupted_ns: AtomicU64,
    /// Page of a closed tracker, for reuse.
    spare: AtomicPtr<LockPage>,
    /// Changes when numbers become invalid: when the tracker is closed, and in a forked child.
    pub(crate) generation: AtomicU64,
    /// Whether the agent tracks this process instead.
    yielded: AtomicBool,
    /// Whether the process exits: a segment that is created now would stay.
    exiting: AtomicBool,
}

// SAFETY: `writer` is only used by the thread whose number is in the lock page.
unsafe impl Sync for Tracker {}

impl Tracker {
    const fn with_page(page: *mut LockPage) -> Self {
        Self {
            page: AtomicPtr::new(page),
            writer: UnsafeCell::new(None),
            locked_out: AtomicU64::new(0),
            stuck_owner: AtomicU64::new(0),
            interrupted_ns: AtomicU64::new(0),
            spare: AtomicPtr::new(ptr::null_mut()),
            generation: AtomicU64::new(0),
            yielded: AtomicBool::new(false),
            exiting: AtomicBool::new(false),
        }
    }
}

impl Default for Tracker {
    /// Returns a tracker that is off.
    fn default() -> Self {
        Self::disabled()
    }
}

impl core::fmt::Debug for Tracker {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Tracker").field("enabled", &self.is_enabled()).finish_non_exhaustive()
    }
}
