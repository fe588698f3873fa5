//! The wall clock of a session.

use jiff::Timestamp;
use ttmem_core::words::Mono;
use ttmem_sources::monotonic;

/// Difference above which the system's clock was set, and not only adjusted.
const TOLERANCE_MS: i64 = 100;

/// The wall clock as a fixed distance from the monotonic clock, so that a moment has the same wall time in every snapshot. It
/// follows the system's clock when that is set.
#[derive(Debug)]
pub(crate) struct WallClock {
    /// Wall time at 0 of the monotonic clock, in whole milliseconds: two processes derive the same.
    zero_ms: i64,
}

impl WallClock {
    pub(crate) fn new() -> Self {
        Self { zero_ms: zero_of_system_clock() }
    }

    /// The wall time of a moment.
    pub(crate) fn at(&mut self, moment: Mono) -> Timestamp {
        self.follow(zero_of_system_clock());
        let ns = i128::from(self.zero_ms) * 1_000_000 + i128::from(moment.0);
        Timestamp::from_nanosecond(ns).unwrap_or(Timestamp::MAX)
    }

    fn follow(&mut self, zero_ms: i64) {
        if (zero_ms - self.zero_ms).abs() > TOLERANCE_MS {
            self.zero_ms = zero_ms;
        }
    }
}

fn zero_of_system_clock() -> i64 {
    let (before, wall, after) = (monotonic(), Timestamp::now(), monotonic());
    let moment = before.0 / 2 + after.0 / 2;
    ((wall.as_nanosecond() - i128::from(moment) + 500_000).div_euclid(1_000_000)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moment_keeps_its_wall_time_until_the_clock_is_set() {
        let mut clock = WallClock::new();
        let moment = monotonic();
        let wall = clock.at(moment);
        assert!((Timestamp::now().as_millisecond() - wall.as_millisecond()).abs() < 10_000);
        clock.follow(clock.zero_ms + TOLERANCE_MS);
        clock.follow(clock.zero_ms - TOLERANCE_MS);
        assert_eq!(clock.at(moment), wall);
        let zero_ms = clock.zero_ms;
        clock.follow(zero_ms + 3_600_000);
        assert_eq!(clock.zero_ms, zero_ms + 3_600_000);
    }
}
