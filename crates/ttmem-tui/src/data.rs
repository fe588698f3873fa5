//! The data to show: the newest snapshot, its age, and the history of devices.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::collections::BTreeMap;
use std::sync::Arc;
use ttmem_core::snapshot::{
    Core, CoreAllocation, Device, Finding, History, PostMortem, Sample, SensorSample,
};
use ttmem_core::{Detail, Snapshot};

/// The fetched data, and when it arrived.
#[derive(Clone, Debug)]
pub struct Data {
    /// The newest snapshot; empty at first.
    pub snapshot: Arc<Snapshot>,
    /// The detail that was requested with it.
    pub detail: Detail,
    /// When it arrived, on the clock of [`crate::update()`]; `None` before the first snapshot.
    pub received_ms: Option<u64>,
    /// Set while no snapshots arrive.
    pub outage: Option<Outage>,
    /// Usage and sensors of devices over time.
    pub history: Histories,
    /// The time zone of times of day.
    pub zone: TimeZone,
    /// Source of the snapshot, for the title: `via daemon`, `local`.
    pub source: String,
    /// The last post-mortem that was read, or why there is none.
    pub post_mortem: Option<(FailureKey, Result<Arc<PostMortem>, String>)>,
}

/// A failed allocation: its process, and its number among the events of that process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureKey {
    /// Pid.
    pub pid: u32,
    /// Number of the event.
    pub sequence: u64,
}

impl FailureKey {
    /// The failed allocation that a finding is about.
    pub(crate) fn of(finding: &Finding) -> Option<Self> {
        Some(Self { pid: finding.pid?, sequence: finding.failure.as_ref()?.sequence? })
    }
}

/// A time without snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Start of the outage, on the clock of [`crate::update()`].
    pub since_ms: u64,
    /// Reason, as text.
    pub reason: String,
}

impl Data {
    /// Creates the state before the first snapshot.
    pub fn empty(zone: TimeZone) -> Self {
        Self {
            snapshot: Arc::default(),
            detail: Detail::NONE,
            received_ms: None,
            outage: None,
            history: Histories::default(),
            zone,
            source: String::new(),
            post_mortem: None,
        }
    }

    /// The allocations on a core, if they were fetched.
    pub(crate) fn allocations_on(&self, device: &Device, core: &Core) -> &[CoreAllocation] {
        let wanted = (device.index, core.room.x, core.room.y);
        let fetched = self.snapshot.core_allocations.as_ref();
        fetched.filter(|it| (it.device, it.x, it.y) == wanted).map(|it| &it.list[..]).unwrap_or_default()
    }

    /// A time of day in the local time zone, as `14:02:11`.
    pub(crate) fn time_of_day(&self, at: Timestamp) -> String {
        ttmem_render::event::time_of_day(at, &self.zone)
    }
}

/// A figure of a device over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Series {
    Dram,
    L1,
    Temperature,
    Power,
    Clock,
}

impl Series {
    pub(crate) const ALL: [Self; 5] = [Self::Dram, Self::L1, Self::Temperature, Self::Power, Self::Clock];
}

/// Sensor readings are stored as whole numbers of this part of their unit.
pub(crate) const SENSOR_PARTS: f64 = 1000.0;

/// Usage and sensors of each device over time, collected from snapshots. Older samples are merged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histories {
    devices: BTreeMap<String, [Vec<Sample>; Series::ALL.len()]>,
}

/// Age in seconds up to which every sample is kept.
const FINE_S: i64 = 120;
/// Age up to which samples are merged into periods, and the length of these, in seconds.
const MIDDLE: (i64, i64) = (3600, 10);
/// Age up to which older samples are kept, and the length of their periods, in seconds.
const COARSE: (i64, i64) = (86_400, 60);
/// Samples are merged again after this many more have arrived.
const SLACK: usize = 600;

impl Histories {
    /// Moves the history out of a snapshot. With `since`, it replaces everything after that time.
    pub(crate) fn take_from(&mut self, snapshot: &mut Snapshot, since: Option<Timestamp>) {
        for device in &mut snapshot.devices {
            let Some(history) = device.history.take() else { continue };
            let series = self.devices.entry(device.id.clone()).or_default();
            let History { dram_total, l1_total, asic_celsius, power_watts, aiclk_mhz } = history;
            let sensors = [asic_celsius, power_watts, aiclk_mhz].map(scale_sensors);
            for (samples, new) in series.iter_mut().zip([dram_total, l1_total].into_iter().chain(sensors)) {
                append(samples, new, since);
            }
        }
        if self.devices.len() > snapshot.devices.len() {
            let is_present = |id: &String| snapshot.devices.iter().any(|device| device.id == *id);
            self.devices.retain(|id, _| is_present(id));
        }
    }

    /// The samples of one series of a device, oldest first.
    pub(crate) fn samples(&self, device: &str, series: Series) -> &[Sample] {
        self.devices.get(device).map(|all| &all[series as usize][..]).unwrap_or_default()
    }
}

fn scale_sensors(samples: Vec<SensorSample>) -> Vec<Sample> {
    let parts = |value: f64| (value * SENSOR_PARTS).round() as u64;
    let sample = |SensorSample { at, min, mean, max }: SensorSample| Sample {
        at,
        min_bytes: parts(min),
        mean_bytes: parts(mean),
        max_bytes: parts(max),
    };
    samples.into_iter().map(sample).collect()
}

/// Appends new samples, which replace everything after `since`.
fn append(samples: &mut Vec<Sample>, new: Vec<Sample>, since: Option<Timestamp>) {
    let keep = since.map_or(0, |since| samples.partition_point(|sample| sample.at <= since));
    samples.truncate(keep);
    let last = samples.last().map(|sample| sample.at);
    samples.extend(new.into_iter().filter(|sample| last.is_none_or(|last| sample.at > last)));
    let merged = (FINE_S * 4) as usize + (MIDDLE.0 / MIDDLE.1 + COARSE.0 / COARSE.1) as usize;
    if samples.len() > merged + SLACK {
        *samples = merge_old(samples);
    }
}

/// Merges old samples into one per period, with the extremes and the mean of it.
fn merge_old(samples: &[Sample]) -> Vec<Sample> {
    let Some(now) = samples.last().map(|sample| sample.at.as_second()) else { return Vec::new() };
    let mut kept: Vec<Sample> = Vec::new();
    // Start of the current period, and the number of samples in it.
    let mut period: Option<(i64, u128)> = None;
    for sample in samples {
        let second = sample.at.as_second();
        let age = now.saturating_sub(second);
        if age > COARSE.0 {
            continue;
        }
        let begin = match age {
            age if age <= FINE_S => None,
            age if age <= MIDDLE.0 => Some(second.div_euclid(MIDDLE.1) * MIDDLE.1),
            _ => Some(second.div_euclid(COARSE.1) * COARSE.1),
        };
        match (begin, &mut period, kept.last_mut()) {
            (Some(begin), Some((current, count)), Some(last)) if *current == begin => {
                *count += 1;
                last.min_bytes = last.min_bytes.min(sample.min_bytes);
                last.max_bytes = last.max_bytes.max(sample.max_bytes);
                let sum = u128::from(last.mean_bytes) * (*count - 1) + u128::from(sample.mean_bytes);
                last.mean_bytes = (sum / *count) as u64;
            }
            _ => {
                period = begin.map(|begin| (begin, 1));
                kept.push(sample.clone());
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(second: f64, bytes: u64) -> Sample {
        let at = Timestamp::from_millisecond((second * 1000.0) as i64).unwrap();
        Sample { at, min_bytes: bytes, mean_bytes: bytes, max_bytes: bytes }
    }

    #[test]
    fn repeated_samples_are_skipped_or_replaced() {
        let mut samples = vec![sample(1.0, 1), sample(2.0, 2)];
        append(&mut samples, vec![sample(2.0, 9), sample(3.0, 3)], Some(Timestamp::from_second(2).unwrap()));
        assert_eq!(samples, [sample(1.0, 1), sample(2.0, 2), sample(3.0, 3)]);
        append(&mut samples, vec![sample(0.5, 7), sample(3.0, 8)], Some(Timestamp::from_second(0).unwrap()));
        assert_eq!(samples, [sample(0.5, 7), sample(3.0, 8)]);
    }

    #[test]
    fn two_days_stay_small_and_lose_no_extreme() {
        let mut samples = Vec::new();
        let end = 2 * 86_400 * 2;
        for n in 0..end {
            let bytes = if n == end - 2 * 5000 { 1000 } else { 7 };
            let since = samples.last().map(|it: &Sample| it.at);
            append(&mut samples, vec![sample(f64::from(n) / 2.0, bytes)], since);
        }
        assert!(samples.len() < 3000, "{}", samples.len());
        assert!(samples.windows(2).all(|pair| pair[0].at < pair[1].at));
        assert_eq!(samples.iter().map(|it| it.max_bytes).max(), Some(1000));
        let span = samples.last().unwrap().at.as_second() - samples[0].at.as_second();
        assert!((86_000..90_000).contains(&span), "{span}");
    }

    #[test]
    fn history_of_a_removed_device_is_dropped() {
        let device = |id: &str| -> Device {
            let text = format!(
                r#"{{"id":"{id}","index":0,"arch":null,"board":null,"remote":false,"capacity":null,"usage":{{}},
                "history":{{"dram_total":[{{"at":"2026-03-14T14:02:11Z","min_bytes":1,"mean_bytes":2,"max_bytes":3}}],
                "l1_total":[],"asic_celsius":[{{"at":"2026-03-14T14:02:11Z","min":50,"mean":51.5,"max":52}}]}}}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let mut histories = Histories::default();
        let mut both = Snapshot { devices: vec![device("a"), device("b")], ..Snapshot::default() };
        histories.take_from(&mut both, None);
        assert!(both.devices[0].history.is_none() && histories.samples("b", Series::Dram).len() == 1);
        assert_eq!(histories.samples("b", Series::Temperature)[0].mean_bytes, 51_500);
        assert_eq!(histories.samples("b", Series::Power), []);
        histories.take_from(&mut Snapshot { devices: vec![device("a")], ..Snapshot::default() }, None);
        assert_eq!(
            (histories.samples("a", Series::Dram).len(), histories.samples("b", Series::Dram).len()),
            (1, 0)
        );
    }
}
