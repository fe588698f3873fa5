//! The clock of a segment's writer. In another time namespace, the monotonic clock differs from ours; the wall clock is the same
//! everywhere, and the header has both as they were at one moment.

use crate::lock::{LockHolder, lock_holder};
use crate::monotonic;
use jiff::Timestamp;
use rustix::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use ttmem_core::words::Mono;
use ttmem_wire::segment::Header;

/// Difference between two readings of clocks that shows that the wall clock was set.
const CLOCK_WAS_SET_NS: i128 = 100_000_000;

/// The monotonic clock of a writer, which differs from ours in another time namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriterClock {
    /// The wall clock minus the writer's clock, in nanoseconds.
    pub(super) wall_offset: i128,
    /// Our clock minus the writer's, in nanoseconds.
    pub(super) shift: i128,
}

impl WriterClock {
    /// As the writer read its clocks, so that all readers agree, unless the wall clock was set since.
    pub(super) fn new(header: &Header, is_elsewhere: impl Fn() -> bool) -> Self {
        let written = i128::from(header.wall_ns.get()) - i128::from(header.mono_ns.get());
        let now = Timestamp::now().as_nanosecond() - i128::from(monotonic().0);
        if (written - now).abs() < CLOCK_WAS_SET_NS {
            Self { wall_offset: written, shift: 0 }
        } else if is_elsewhere() {
            Self { wall_offset: written, shift: written - now }
        } else {
            Self { wall_offset: now, shift: 0 }
        }
    }
}

/// Whether the writer of a segment has, or had, another monotonic clock than this process.
pub(super) fn is_in_other_time_namespace(file: &OwnedFd, header: &Header) -> bool {
    let of_process = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/time")).ok();
    let of_writer = match lock_holder(file.as_fd()) {
        LockHolder::Process(pid) => of_process(&pid.to_string()),
        _ => None,
    };
    match (of_writer, of_process("self")) {
        (Some(writer), Some(own)) => writer != own,
        // Not known: containers have namespaces of several kinds.
        _ => {
            let own = std::fs::metadata("/proc/self/ns/pid").map_or(0, |it| it.ino());
            header.mono_ns.get() > monotonic().0 || ![0, own].contains(&header.pid_namespace.get())
        }
    }
}

/// A time of a clock that is so many nanoseconds behind ours, by our clock.
pub(crate) fn shifted(at_ns: u64, shift: i128) -> Mono {
    Mono(u64::try_from(i128::from(at_ns) + shift).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn clock_of_another_time_namespace_is_not_a_clock_that_was_set() {
        let day = 86_400 * Mono::SECOND;
        let mut header = Header::new_zeroed();
        header.mono_ns = (monotonic().0 + day).into();
        header.wall_ns = (Timestamp::now().as_nanosecond() as u64).into();
        let moment = header.mono_ns.get();
        let clock = WriterClock::new(&header, || true);
        let age_ns = monotonic().since(shifted(moment, clock.shift));
        assert!(age_ns < 60 * Mono::SECOND, "{age_ns}");
        assert_eq!(clock.wall_offset + i128::from(moment), i128::from(header.wall_ns.get()));
        // The wall clock was set by a day: times of the monotonic clock are as before.
        assert_eq!(WriterClock::new(&header, || false).shift, 0);
        header.mono_ns = monotonic().0.into();
        let unchanged = WriterClock::new(&header, || panic!("the clocks agree"));
        assert_eq!(unchanged.shift, 0);
    }
}
