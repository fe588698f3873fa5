//! How soon the ring of a busy writer must be read again.

use std::time::Duration;
use ttmem_core::words::Mono;

/// Shortest time between two polls of one segment, however fast its writer is.
const SHORTEST: Duration = Duration::from_millis(2);
/// Time after which a new segment is polled again, to measure its writer.
const FIRST: Duration = Duration::from_millis(10);
/// The part of a ring that a writer may fill between two polls.
const PART: u64 = 4;

/// The measured rate of a writer.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Time of the last measurement.
    measured: Option<Mono>,
    /// Records since then.
    records: u64,
    /// Records per second, at most half of what it was in the measurement before.
    rate: f64,
    /// When the ring must be read again; `None`: the writer is idle.
    due: Option<Mono>,
}

impl Pace {
    /// Notes that `ahead` new records were found in a ring of `ring` records.
    pub(crate) fn note(&mut self, now: Mono, ahead: u64, ring: u64) {
        let Some(before) = self.measured else {
            self.measured = Some(now);
            self.due = (ahead > 0).then(|| later(now, FIRST));
            return;
        };
        self.records = self.records.saturating_add(ahead);
        let elapsed = Duration::from_nanos(now.since(before));
        // Polls of one moment are one measurement.
        if elapsed >= SHORTEST / 2 {
            self.measured = Some(now);
            let rate = std::mem::take(&mut self.records) as f64 / elapsed.as_secs_f64();
            // A writer that pauses may continue at its earlier rate.
            self.rate = rate.max(self.rate / 2.0);
        }
        let part = (ring / PART).max(1) as f64;
        // Less than a record a second is as good as none.
        self.due =
            (self.rate >= 1.0).then(|| later(now, Duration::from_secs_f64(part / self.rate).max(SHORTEST)));
    }

    /// When the ring must be read again; `None`: the writer is idle.
    pub(crate) fn due(&self) -> Option<Mono> {
        self.due
    }
}

fn later(now: Mono, by: Duration) -> Mono {
    Mono(now.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = Mono::SECOND / 1000;

    fn in_ms(pace: &Pace, now: u64) -> Option<u64> {
        pace.due().map(|due| due.since(Mono(now)) / MILLISECOND)
    }

    #[test]
    fn steady_writer_fills_a_quarter_of_its_ring() {
        let mut pace = Pace::default();
        let (mut now, mut written) = (0, 0);
        pace.note(Mono(now), 1, 16_384);
        assert_eq!(in_ms(&pace, now), Some(10), "a new writer is measured soon");
        for _ in 0..100 {
            let next = pace.due().unwrap().0;
            // 100,000 records per second.
            let ahead = (next - now) / 10_000;
            assert!(ahead <= 16_384 / 4, "{ahead}");
            written += ahead;
            now = next;
            pace.note(Mono(now), ahead, 16_384);
        }
        assert_eq!(in_ms(&pace, now), Some(40));
        assert!(written > 300_000, "few polls: {written}");
    }

    #[test]
    fn interval_has_a_floor_and_ends_when_idle() {
        let mut pace = Pace::default();
        pace.note(Mono(0), 1, 256);
        pace.note(Mono(10 * MILLISECOND), 1 << 20, 256);
        assert_eq!(in_ms(&pace, 10 * MILLISECOND), Some(2));
        pace.note(Mono(10 * MILLISECOND), 5, 256);
        assert_eq!(in_ms(&pace, 10 * MILLISECOND), Some(2), "no time has passed");
        let mut now = 20 * MILLISECOND;
        for _ in 0..64 {
            pace.note(Mono(now), 0, 256);
            now += 500 * MILLISECOND;
        }
        assert_eq!(pace.due(), None);
        let mut idle = Pace::default();
        idle.note(Mono(5), 0, 256);
        assert_eq!(idle.due(), None);
        idle.note(Mono(u64::MAX), u64::MAX, 1);
        assert_eq!(idle.due(), Some(Mono(u64::MAX)));
    }
}
