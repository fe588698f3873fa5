//! What a chip's usage was: every sample of the last minute, then coarser, never more than a bounded number.

use crate::words::Mono;
use std::collections::VecDeque;

/// One stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// When it begins.
    pub(crate) at: Mono,
    pub(crate) min: u64,
    pub(crate) mean: u64,
    pub(crate) max: u64,
}

/// A tier of equal stretches; the newest one is still being filled.
#[derive(Debug)]
struct Tier {
    stretch_ns: u64,
    room: usize,
    done: VecDeque<Sample>,
    open: Option<(Sample, u128, u64)>,
}

impl Tier {
    fn new(stretch_seconds: u64, room: usize) -> Self {
        Self { stretch_ns: stretch_seconds * Mono::SECOND, room, done: VecDeque::new(), open: None }
    }

    /// What ended before then.
    fn before(&self, then: Mono) -> impl DoubleEndedIterator<Item = &Sample> {
        self.done.iter().filter(move |it| it.at.0 + self.stretch_ns <= then.0)
    }

    fn push(&mut self, now: Mono, value: u64) {
        let begin = Mono(now.0 - now.0 % self.stretch_ns);
        if let Some((sample, sum, count)) = &mut self.open {
            if sample.at == begin {
                sample.min = sample.min.min(value);
                sample.max = sample.max.max(value);
                *sum += u128::from(value);
                *count += 1;
                sample.mean = (*sum / u128::from(*count)) as u64;
                return;
            }
            if self.done.len() == self.room {
                self.done.pop_front();
            }
            self.done.push_back(*sample);
        }
        self.open = Some((Sample { at: begin, min: value, mean: value, max: value }, u128::from(value), 1));
    }
}

/// One figure over time.
#[derive(Debug)]
pub(crate) struct Series {
    recent: VecDeque<(Mono, u64)>,
    tiers: [Tier; 2],
}

/// Recent samples are kept for this long...
const RECENT_NS: u64 = 60 * Mono::SECOND;
/// ...but never more of them: ten a second.
const RECENT_ROOM: usize = 600;

impl Default for Series {
    fn default() -> Self {
        // 10 s for an hour, 60 s for a day.
        Self { recent: VecDeque::new(), tiers: [Tier::new(10, 360), Tier::new(60, 1440)] }
    }
}

impl Series {
    pub(crate) fn push(&mut self, now: Mono, value: u64) {
        if self.recent.back().is_some_and(|&(at, _)| now <= at) {
            return;
        }
        while self.recent.front().is_some_and(|&(at, _)| now.since(at) > RECENT_NS)
            || self.recent.len() >= RECENT_ROOM
        {
            self.recent.pop_front();
        }
        self.recent.push_back((now, value));
        for tier in &mut self.tiers {
            tier.push(now, value);
        }
    }

    /// Nothing changed since the last value.
    pub(crate) fn repeat(&mut self, now: Mono) {
        if let Some(&(_, value)) = self.recent.back() {
            self.push(now, value);
        }
    }

    /// Everything kept, oldest first: the coarse tiers up to where the finer ones begin.
    pub(crate) fn samples(&self) -> impl DoubleEndedIterator<Item = Sample> {
        let recent = self.recent.iter().map(|&(at, v)| Sample { at, min: v, mean: v, max: v });
        let recent_from = self.recent.front().map_or(Mono(u64::MAX), |&(at, _)| at);
        let fine_from = self.tiers[0].done.front().map_or(recent_from, |s| s.at.min(recent_from));
        let coarse = self.tiers[1].before(fine_from);
        let fine = self.tiers[0].before(recent_from);
        coarse.chain(fine).copied().chain(recent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_in_full_then_coarser_and_bounded() {
        let mut series = Series::default();
        let half = Mono::SECOND / 2;
        for i in 0..2 * 86_400 * 2 {
            series.push(Mono(i * half), i);
        }
        let samples: Vec<Sample> = series.samples().collect();
        assert!(samples.windows(2).all(|w| w[0].at < w[1].at), "oldest first, nothing twice");
        let end = samples.last().unwrap().at;
        let recent = samples.iter().filter(|s| end.since(s.at) <= RECENT_NS).count();
        assert_eq!(recent, 121, "every sample of the last minute");
        assert!(samples.len() <= RECENT_ROOM + 360 + 1440);
        let span = end.since(samples[0].at) / Mono::SECOND;
        assert!((86_000..=86_500).contains(&span), "a day: {span} s");
        assert!(samples.iter().all(|s| s.min <= s.mean && s.mean <= s.max));
    }

    #[test]
    fn a_fast_ticker_stays_bounded_and_a_stuck_clock_adds_nothing() {
        let mut series = Series::default();
        for i in 0..100_000 {
            series.push(Mono(i * 1_000_000), i);
        }
        assert_eq!(series.recent.len(), RECENT_ROOM);
        series.push(Mono(5), 1);
        assert_eq!(series.recent.back().unwrap().1, 99_999);
    }
}
