//! The clock by which everything that is read is timed.

use rustix::time::{ClockId, clock_gettime};
use ttmem_core::words::Mono;

/// The time now, on the clock that nothing sets back. Writers of segments use the same one.
pub fn monotonic() -> Mono {
    let now = clock_gettime(ClockId::Monotonic);
    Mono(now.tv_sec as u64 * Mono::SECOND + now.tv_nsec as u64)
}
