//! The monotonic clock, at less than half of the cost of a call to the kernel. The kernel's clock is read some thirty times a
//! second; in between, the processor's counter gives the time that has passed. Where the kernel does not trust that counter,
//! it is not used here either.
#![allow(unsafe_code)]

use crate::identity;
use rustix::time::ClockId;

/// Ticks that a span must have for the length of a tick to be measured.
const MIN_CALIBRATION_TICKS: u64 = 1 << 20;
/// Ticks after which the kernel's clock is read again: some 30 ms.
const RESYNC_TICKS: u64 = 100_000_000;

pub(crate) struct Clock {
    /// Counter when the kernel's clock was last read.
    ticks: u64,
    /// Time when the kernel's clock was last read.
    ns: u64,
    /// Nanoseconds per tick, in units of 2^-32.
    scale: u64,
    /// Ticks after which the kernel's clock is read again; 0: always, since the scale is not known, or the counter not trusted.
    valid_ticks: u64,
    /// Latest time that was returned: the clock never goes back.
    latest: u64,
    trusted: bool,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { ticks: 0, ns: 0, scale: 0, valid_ticks: 0, latest: 0, trusted: is_counter_trusted() }
    }

    #[inline]
    pub(crate) fn now(&mut self) -> u64 {
        let ticks = read_counter();
        let passed = ticks.wrapping_sub(self.ticks);
        let now = if passed < self.valid_ticks {
            self.ns + ((u128::from(passed) * u128::from(self.scale)) >> 32) as u64
        } else {
            self.resync(ticks, passed)
        };
        self.latest = self.latest.max(now);
        self.latest
    }

    /// Makes every later time larger than those so far.
    pub(crate) fn advance(&mut self) {
        self.latest += 1;
    }

    #[cold]
    fn resync(&mut self, ticks: u64, passed: u64) -> u64 {
        let now = identity::now(ClockId::Monotonic);
        if !self.trusted {
            return now;
        }
        if self.ticks == 0 {
            (self.ticks, self.ns) = (ticks, now);
        } else if passed >= MIN_CALIBRATION_TICKS {
            // Over a long pause the counter may have stopped or restarted: then the scale would be absurd.
            let scale = (u128::from(now.wrapping_sub(self.ns)) << 32) / u128::from(passed);
            let plausible = (1 << 28)..(1 << 35);
            self.scale = u64::try_from(scale).ok().filter(|scale| plausible.contains(scale)).unwrap_or(0);
            self.valid_ticks = if self.scale == 0 { 0 } else { RESYNC_TICKS };
            (self.ticks, self.ns) = (ticks, now);
        }
        now
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn read_counter() -> u64 {
    // SAFETY: every x86-64 processor has this instruction, and the kernel's own clock uses it in user space.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn read_counter() -> u64 {
    0
}

fn is_counter_trusted() -> bool {
    const PATH: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let mut buffer = [0; 16];
    cfg!(target_arch = "x86_64")
        && identity::read_file(PATH, &mut buffer).is_some_and(|name| name.starts_with(b"tsc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_after_an_advance_are_later() {
        let mut clock = Clock::new();
        for _ in 0..100_000 {
            let before = clock.now();
            clock.advance();
            assert!(clock.now() > before);
        }
    }

    #[test]
    fn clock_follows_the_kernels_clock() {
        let mut clock = Clock::new();
        let mut latest = 0;
        for round in 0..200_000u32 {
            let before = identity::now(ClockId::Monotonic);
            let now = clock.now();
            let after = identity::now(ClockId::Monotonic);
            // The length of a tick is known to some parts in a million, over spans of hundredths of a second.
            assert!(now + 200_000 > before && now < after + 200_000, "{before} {now} {after}");
            assert!(now >= latest);
            latest = now;
            if round % 40_000 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(60));
            }
        }
    }
}
