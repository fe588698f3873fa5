//! A figure of a device over time: every sample of the last minute, then coarser, never more than a bounded number.

use crate::machine::Sensors;
use crate::words::Mono;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// A figure that is kept over time.
pub(crate) trait Figure: Copy + Ord + Into<u64> + TryFrom<u64> {}

impl<V: Copy + Ord + Into<u64> + TryFrom<u64>> Figure for V {}

/// The values of one stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sample<V> {
    /// Begin of the stretch.
    pub(crate) at: Mono,
    pub(crate) min: V,
    pub(crate) mean: V,
    pub(crate) max: V,
}

/// Samples of equal stretches; the newest one is still being filled.
#[derive(Debug, Serialize, Deserialize)]
struct Tier<V> {
    done: VecDeque<Sample<V>>,
    /// With the sum and number of its values.
    open: Option<(Sample<V>, u128, u64)>,
}

/// Length of a tier's stretches, and how many it keeps: 10 s for an hour, 60 s for a day.
const TIERS: [(u64, usize); 2] = [(10 * Mono::SECOND, 360), (60 * Mono::SECOND, 1440)];

impl<V: Figure> Tier<V> {
    /// Samples of stretches that ended before `then`.
    fn before(&self, then: Mono, stretch_ns: u64) -> impl DoubleEndedIterator<Item = &Sample<V>> {
        self.done.iter().filter(move |sample| sample.at.0.saturating_add(stretch_ns) <= then.0)
    }

    fn push(&mut self, now: Mono, value: V, (stretch_ns, room): (u64, usize)) {
        let begin = Mono(now.0 - now.0 % stretch_ns);
        if let Some((sample, sum, count)) = &mut self.open {
            if sample.at == begin {
                sample.min = sample.min.min(value);
                sample.max = sample.max.max(value);
                *sum += u128::from(value.into());
                *count += 1;
                sample.mean = V::try_from((*sum / u128::from(*count)) as u64).unwrap_or(value);
                return;
            }
            if self.done.len() >= room {
                self.done.pop_front();
            }
            self.done.push_back(*sample);
        }
        let sum = u128::from(value.into());
        self.open = Some((Sample { at: begin, min: value, mean: value, max: value }, sum, 1));
    }
}

impl<V> Default for Tier<V> {
    fn default() -> Self {
        Self { done: VecDeque::new(), open: None }
    }
}

/// One figure over time.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Series<V> {
    recent: VecDeque<(Mono, V)>,
    tiers: [Tier<V>; TIERS.len()],
}

/// Recent samples are kept for this long...
const RECENT_NS: u64 = 60 * Mono::SECOND;
/// ...but never more of them: ten a second.
const RECENT_ROOM: usize = 600;

impl<V> Default for Series<V> {
    fn default() -> Self {
        Self { recent: VecDeque::new(), tiers: Default::default() }
    }
}

impl<V: Figure> Series<V> {
    pub(crate) fn push(&mut self, now: Mono, value: V) {
        if self.recent.back().is_some_and(|&(at, _)| now <= at) {
            return;
        }
        while self.recent.front().is_some_and(|&(at, _)| now.since(at) > RECENT_NS)
            || self.recent.len() >= RECENT_ROOM
        {
            self.recent.pop_front();
        }
        self.recent.push_back((now, value));
        for (tier, shape) in self.tiers.iter_mut().zip(TIERS) {
            tier.push(now, value, shape);
        }
    }

    /// Repeats the last value, which did not change.
    pub(crate) fn repeat(&mut self, now: Mono) {
        if let Some(&(_, value)) = self.recent.back() {
            self.push(now, value);
        }
    }

    /// Everything kept, oldest first: the coarse tier up to where the finer ones begin.
    pub(crate) fn samples(&self) -> impl DoubleEndedIterator<Item = Sample<V>> {
        let [(fine_ns, _), (coarse_ns, _)] = TIERS;
        let recent = self.recent.iter().map(|&(at, v)| Sample { at, min: v, mean: v, max: v });
        let recent_from = self.recent.front().map_or(Mono(u64::MAX), |&(at, _)| at);
        let fine_from = self.tiers[0].done.front().map_or(recent_from, |s| s.at.min(recent_from));
        let coarse = self.tiers[1].before(fine_from, coarse_ns);
        let fine = self.tiers[0].before(recent_from, fine_ns);
        coarse.chain(fine).copied().chain(recent)
    }
}

/// A device's sensors over time, in thousandths of their units: half the size of bytes, and a new sample only with a new reading.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct SensorSeries {
    pub(crate) asic_celsius: Series<u32>,
    pub(crate) power_watts: Series<u32>,
    pub(crate) aiclk_mhz: Series<u32>,
    /// Time of the reading that was added last.
    added: Option<Mono>,
}

/// Parts of a sensor's unit that are kept.
pub(crate) const SENSOR_PARTS: f64 = 1000.0;

impl SensorSeries {
    /// Adds a reading, unless it was added already.
    pub(crate) fn push(&mut self, now: Mono, read: Option<Mono>, sensors: &Sensors) {
        if read.is_none() || read == self.added {
            return;
        }
        self.added = read;
        let Sensors { asic_celsius, power_watts, aiclk_mhz, .. } = sensors;
        let series = [&mut self.asic_celsius, &mut self.power_watts, &mut self.aiclk_mhz];
        for (series, value) in series.into_iter().zip([asic_celsius, power_watts, aiclk_mhz]) {
            if let Some(value) = value.filter(|it| it.is_finite()) {
                // Below zero and beyond the range is the nearest that can be kept.
                series.push(now, (value * SENSOR_PARTS).round() as u32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sensors_are_sampled_once_for_each_reading() {
        let mut series = SensorSeries::default();
        let sensors = Sensors { asic_celsius: Some(51.5), power_watts: Some(-1.0), ..Sensors::default() };
        series.push(Mono(5), None, &sensors);
        for now in 10..20 {
            series.push(Mono(now), Some(Mono(9)), &sensors);
        }
        series.push(Mono(20), Some(Mono(19)), &Sensors { asic_celsius: Some(52.25), ..sensors });
        let values = |series: &Series<u32>| series.samples().map(|it| (it.at.0, it.mean)).collect::<Vec<_>>();
        assert_eq!(values(&series.asic_celsius), [(10, 51_500), (20, 52_250)]);
        assert_eq!(values(&series.power_watts), [(10, 0), (20, 0)]);
        assert_eq!(values(&series.aiclk_mhz), [], "a sensor that is absent has no samples");
    }

    #[test]
    fn history_is_fine_for_a_minute_then_coarser() {
        let mut series = Series::<u64>::default();
        let half = Mono::SECOND / 2;
        for i in 0..2 * 86_400 * 2 {
            series.push(Mono(i * half), i);
        }
        let samples: Vec<Sample<u64>> = series.samples().collect();
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
    fn fast_ticks_are_bounded_and_equal_times_ignored() {
        let mut series = Series::<u64>::default();
        for i in 0..100_000 {
            series.push(Mono(i * 1_000_000), i);
        }
        assert_eq!(series.recent.len(), RECENT_ROOM);
        series.push(Mono(5), 1);
        assert_eq!(series.recent.back().unwrap().1, 99_999);
    }
}
