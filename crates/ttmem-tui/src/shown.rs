//! What there is to show: the newest snapshot, how old it is, and what was before.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::collections::BTreeMap;
use std::sync::Arc;
use ttmem_core::snapshot::{Core, CoreAllocation, Device, History, Sample, SensorSample};
use ttmem_core::{Detail, Snapshot};

/// What was fetched, and when.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The newest; empty at first.
    pub snapshot: Arc<Snapshot>,
    /// What was asked for.
    pub detail: Detail,
    /// When it arrived, on the clock of messages; `None`: nothing arrived yet.
    pub received_ms: Option<u64>,
    /// Since when nothing comes, and why.
    pub lost: Option<Lost>,
    /// Usage and sensors of devices over time.
    pub history: Histories,
    /// The time zone of times of day.
    pub zone: TimeZone,
    /// Where the snapshot comes from, for the title: `via daemon`, `local`.
    pub by: String,
}

/// Nothing comes any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// On the clock of messages.
    pub since_ms: u64,
    /// Why, in words.
    pub why: String,
}

impl Shown {
    /// Nothing yet.
    pub fn nothing(zone: TimeZone) -> Self {
        Self {
            snapshot: Arc::default(),
            detail: Detail::NONE,
            received_ms: None,
            lost: None,
            history: Histories::default(),
            zone,
            by: String::new(),
        }
    }

    /// The allocations on a core, if they were fetched.
    pub(crate) fn allocations_on(&self, device: &Device, core: &Core) -> &[CoreAllocation] {
        let wanted = (device.index, core.room.x, core.room.y);
        let fetched = self.snapshot.core_allocations.as_ref();
        fetched.filter(|it| (it.device, it.x, it.y) == wanted).map(|it| &it.list[..]).unwrap_or_default()
    }

    /// As `14:02:11`, in the local time zone.
    pub(crate) fn clock(&self, at: Timestamp) -> String {
        ttmem_render::event::clock(at, &self.zone)
    }
}

/// What is kept of a device over time.
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

/// Sensors are kept as whole numbers: thousandths of their units.
pub(crate) const SENSOR_PARTS: f64 = 1000.0;

/// Usage and sensors of each device over time, put together from the parts in snapshots. Older stretches are coarser.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histories {
    devices: BTreeMap<String, [Vec<Sample>; Series::ALL.len()]>,
}

/// So much of the past is kept in full...
const FINE_S: i64 = 120;
/// ...so much in stretches of so many seconds, and the rest, up to a day, in these.
const MIDDLE: (i64, i64) = (3600, 10);
const COARSE: (i64, i64) = (86_400, 60);
/// Stretches are made when there are so many samples more than after the last time.
const SLACK: usize = 600;

impl Histories {
    /// Takes the history out of a snapshot. `since`: it replaces everything after that time.
    pub(crate) fn take(&mut self, snapshot: &mut Snapshot, since: Option<Timestamp>) {
        for device in &mut snapshot.devices {
            let Some(history) = device.history.take() else { continue };
            let known = self.devices.entry(device.id.clone()).or_default();
            let History { dram_total, l1_total, asic_celsius, power_watts, aiclk_mhz } = history;
            let sensors = [asic_celsius, power_watts, aiclk_mhz].map(in_parts);
            for (known, new) in known.iter_mut().zip([dram_total, l1_total].into_iter().chain(sensors)) {
                append(known, new, since);
            }
        }
        if self.devices.len() > snapshot.devices.len() {
            let here = |id: &String| snapshot.devices.iter().any(|device| device.id == *id);
            self.devices.retain(|id, _| here(id));
        }
    }

    /// One figure of a device, oldest first.
    pub(crate) fn of(&self, device: &str, series: Series) -> &[Sample] {
        self.devices.get(device).map(|all| &all[series as usize][..]).unwrap_or_default()
    }
}

fn in_parts(samples: Vec<SensorSample>) -> Vec<Sample> {
    let parts = |value: f64| (value * SENSOR_PARTS).round() as u64;
    let sample = |SensorSample { at, min, mean, max }: SensorSample| Sample {
        at,
        min_bytes: parts(min),
        mean_bytes: parts(mean),
        max_bytes: parts(max),
    };
    samples.into_iter().map(sample).collect()
}

fn append(known: &mut Vec<Sample>, new: Vec<Sample>, since: Option<Timestamp>) {
    let keep = since.map_or(0, |since| known.partition_point(|sample| sample.at <= since));
    known.truncate(keep);
    let last = known.last().map(|sample| sample.at);
    known.extend(new.into_iter().filter(|sample| last.is_none_or(|last| sample.at > last)));
    if known.len() > (FINE_S * 4) as usize + (MIDDLE.0 / MIDDLE.1 + COARSE.0 / COARSE.1) as usize + SLACK {
        *known = coarsen(known);
    }
}

/// Puts old samples together.
fn coarsen(samples: &[Sample]) -> Vec<Sample> {
    let Some(now) = samples.last().map(|sample| sample.at.as_second()) else { return Vec::new() };
    let mut kept: Vec<Sample> = Vec::new();
    let mut open: Option<(i64, u128)> = None;
    for sample in samples {
        let second = sample.at.as_second();
        let age = now.saturating_sub(second);
        if age > COARSE.0 {
            continue;
        }
        let stretch = match age {
            age if age <= FINE_S => None,
            age if age <= MIDDLE.0 => Some(second.div_euclid(MIDDLE.1) * MIDDLE.1),
            _ => Some(second.div_euclid(COARSE.1) * COARSE.1),
        };
        match (stretch, &mut open, kept.last_mut()) {
            (Some(begin), Some((of, count)), Some(last)) if *of == begin => {
                *count += 1;
                last.min_bytes = last.min_bytes.min(sample.min_bytes);
                last.max_bytes = last.max_bytes.max(sample.max_bytes);
                let sum = u128::from(last.mean_bytes) * (*count - 1) + u128::from(sample.mean_bytes);
                last.mean_bytes = (sum / *count) as u64;
            }
            _ => {
                open = stretch.map(|begin| (begin, 1));
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
    fn what_came_twice_is_kept_once_and_what_is_told_anew_replaces() {
        let mut known = vec![sample(1.0, 1), sample(2.0, 2)];
        append(&mut known, vec![sample(2.0, 9), sample(3.0, 3)], Some(Timestamp::from_second(2).unwrap()));
        assert_eq!(known, [sample(1.0, 1), sample(2.0, 2), sample(3.0, 3)]);
        append(&mut known, vec![sample(0.5, 7), sample(3.0, 8)], Some(Timestamp::from_second(0).unwrap()));
        assert_eq!(known, [sample(0.5, 7), sample(3.0, 8)]);
    }

    #[test]
    fn two_days_stay_small_and_lose_no_extreme() {
        let mut known = Vec::new();
        let end = 2 * 86_400 * 2;
        for n in 0..end {
            let bytes = if n == end - 2 * 5000 { 1000 } else { 7 };
            let since = known.last().map(|it: &Sample| it.at);
            append(&mut known, vec![sample(f64::from(n) / 2.0, bytes)], since);
        }
        assert!(known.len() < 3000, "{}", known.len());
        assert!(known.windows(2).all(|pair| pair[0].at < pair[1].at));
        assert_eq!(known.iter().map(|it| it.max_bytes).max(), Some(1000));
        let span = known.last().unwrap().at.as_second() - known[0].at.as_second();
        assert!((86_000..90_000).contains(&span), "{span}");
    }

    #[test]
    fn a_chip_that_went_takes_its_past_along() {
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
        histories.take(&mut both, None);
        assert!(both.devices[0].history.is_none() && histories.of("b", Series::Dram).len() == 1);
        assert_eq!(histories.of("b", Series::Temperature)[0].mean_bytes, 51_500);
        assert_eq!(histories.of("b", Series::Power), []);
        histories.take(&mut Snapshot { devices: vec![device("a")], ..Snapshot::default() }, None);
        assert_eq!((histories.of("a", Series::Dram).len(), histories.of("b", Series::Dram).len()), (1, 0));
    }
}
