//! The clock of everything that is read.

use rustix::time::{ClockId, clock_gettime};
use ttmem_core::words::Mono;

/// The time now on `CLOCK_MONOTONIC`, which the writers of segments use too.
pub fn monotonic() -> Mono {
    let now = clock_gettime(ClockId::Monotonic);
    Mono(now.tv_sec as u64 * Mono::SECOND + now.tv_nsec as u64)
}
