//! Reads the sensors of one chip.

use super::gauge::{GAUGES, Gauge, IN_TABLE, LIMITS};
use super::pcie::{COUNTERS, Counters, WRAPS_AFTER, counter_names, rates};
use super::{MAX_HUNG_FILES, MIN_INTERVAL};
use crate::attribute::{Absence, Attribute, Folder};
use crate::bus::BusChip;
use crate::clock::monotonic;
use crate::worker_pool::lock;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Instant;
use ttmem_core::input::SensorReading;
use ttmem_core::machine::{PcieRates, Sensors as Values};
use ttmem_core::words::ChipId;

pub(super) const ONE_READING: &str = "a rate needs two readings";

/// The sensor files of one chip. Each has its own lock: a thread that hangs in one does not block the others.
pub(super) struct ChipFiles {
    pub(super) id: ChipId,
    pub(super) class: Folder,
    pub(super) device: PathBuf,
    pub(super) files: BTreeMap<String, Arc<Mutex<Attribute>>>,
    pub(super) hwmon: Mutex<Option<Folder>>,
    pub(super) last: Mutex<LastRound>,
    /// Whether the chip is read more than once: only then there are rates, and descriptors are kept.
    pub(super) repeated: bool,
    pub(super) gauges: &'static [Gauge],
    pub(super) thorough: bool,
}

/// What is kept of a chip from one round to the next.
#[derive(Default)]
pub(super) struct LastRound {
    limits: Values,
    pub(super) counters: Option<(Instant, Counters)>,
    pub(super) rates: Option<PcieRates>,
    pub(super) heartbeat: Option<(Instant, u64)>,
    is_beating: Option<bool>,
}

impl ChipFiles {
    pub(super) fn new(chip: &BusChip, repeated: bool, thorough: bool) -> Self {
        let empty = Self {
            id: chip.chip.id,
            class: chip.class.clone(),
            device: chip.device.clone(),
            files: BTreeMap::new(),
            hwmon: Mutex::new(None),
            last: Mutex::default(),
            repeated,
            gauges: if thorough { &GAUGES } else { &GAUGES[..IN_TABLE] },
            thorough,
        };
        let mut names: Vec<String> =
            GAUGES.iter().chain(&LIMITS).map(|gauge| gauge.file.to_owned()).collect();
        names.extend(["tt_heartbeat", "tt_therm_trip_count"].map(str::to_owned));
        if repeated {
            names.extend(counter_names());
        }
        let files = names.into_iter().map(|name| {
            let file = empty.attribute(&name);
            (name, Arc::new(Mutex::new(file)))
        });
        let files = files.collect();
        Self { files, ..empty }
    }

    fn attribute(&self, name: &str) -> Attribute {
        match name.strip_prefix("hwmon/") {
            None => Attribute::new(&self.class, name, self.repeated),
            Some(name) => {
                let mut folder = lock(&self.hwmon);
                let folder = folder.get_or_insert_with(|| Folder::new(hwmon_folder(&self.device)));
                Attribute::new(folder, name, self.repeated)
            }
        }
    }

    /// Reads a file. If another thread hangs in it, that is counted and returned as the reason.
    fn read_value(&self, name: &str, hung: &mut usize) -> Result<String, Absence> {
        let Some(file) = self.files.get(name) else { return Err(Absence::NotShown) };
        if *hung >= MAX_HUNG_FILES {
            return Err(Absence::because("the device does not answer"));
        }
        let mut file = match file.try_lock() {
            Ok(file) => file,
            Err(TryLockError::Poisoned(file)) => file.into_inner(),
            Err(TryLockError::WouldBlock) => {
                *hung += 1;
                return Err(Absence::because("it does not answer"));
            }
        };
        let read = file.read();
        if read == Err(Absence::Gone) && name.starts_with("hwmon/") {
            // The hwmon folder has another name after a reset.
            *lock(&self.hwmon) = None;
            *file = self.attribute(name);
            return file.read();
        }
        read
    }

    /// Reads all sensors. Returns the reading, and whether some files hang.
    pub(super) fn read(&self) -> (SensorReading, bool) {
        let mut values = Values::default();
        let mut absent = BTreeMap::new();
        let mut hung = 0;
        let now = monotonic();
        let mut last = LastRound::default();
        if let Ok(mut kept) = self.last.try_lock() {
            last = std::mem::take(&mut *kept);
        }
        let (mut answers, mut resetting) = (0, false);
        for gauge in self.gauges {
            match self.read_value(gauge.file, &mut hung).and_then(|text| gauge.parse(&text)) {
                Ok(value) => {
                    answers += 1;
                    *(gauge.value)(&mut values) = Some(value);
                }
                Err(why) => {
                    resetting |= why == Absence::Resetting;
                    absent.insert(gauge.key.to_owned(), why.text());
                }
            }
        }
        for gauge in LIMITS.iter().filter(|_| self.thorough) {
            if (gauge.value)(&mut last.limits).is_none() {
                match self.read_value(gauge.file, &mut hung).and_then(|text| gauge.parse(&text)) {
                    Ok(value) => *(gauge.value)(&mut last.limits) = Some(value),
                    Err(why) => {
                        absent.insert(gauge.key.to_owned(), why.text());
                    }
                }
            }
        }
        values.limits = last.limits.limits.clone();
        let mut read_number = |name: &str, key: &str| {
            let parsed = self.read_value(name, &mut hung).and_then(|text| {
                text.parse::<u64>().map_err(|_| Absence::Because(format!("{text:?} is no number")))
            });
            parsed.map_err(|why| absent.insert(key.to_owned(), why.text())).ok()
        };
        if self.thorough {
            values.heartbeat = read_number("tt_heartbeat", "heartbeat");
            values.thermal_trips = read_number("tt_therm_trip_count", "thermal_trips");
        }
        // The driver reads these without the lock that guards the others during a reset: their values mean nothing then.
        if resetting {
            last.counters = None;
            absent.insert("pcie".to_owned(), Absence::Resetting.text());
        } else if self.repeated {
            values.pcie = self.read_rates(&mut last, &mut hung, &mut absent);
        } else {
            absent.insert("pcie".to_owned(), ONE_READING.to_owned());
        }
        last.check_heartbeat(&mut values);
        *lock(&self.last) = last;
        let why = (hung > 0).then(|| "some sensors do not answer".to_owned());
        let why = why.or_else(|| {
            // The reason of the first sensor stands for all.
            let of_first = absent.get(GAUGES[0].key).cloned().unwrap_or_default();
            let none = || {
                if resetting { Absence::Resetting.text() } else { format!("no sensor answers: {of_first}") }
            };
            (answers == 0).then(none)
        });
        values.absent = absent;
        (SensorReading { at: (answers > 0).then_some(now), sensors: values, why }, hung > 0)
    }

    /// Reads the PCIe counters and computes rates since the last round.
    pub(super) fn read_rates(
        &self,
        last: &mut LastRound,
        hung: &mut usize,
        absent: &mut BTreeMap<String, String>,
    ) -> Option<PcieRates> {
        let now = Instant::now();
        let mut counters = [None; COUNTERS];
        let mut why = None;
        for (counter, name) in counters.iter_mut().zip(counter_names()) {
            match self.read_value(&name, hung) {
                Ok(text) => *counter = text.parse().ok(),
                Err(e) => why = Some(e.text()),
            }
        }
        if counters.iter().all(Option::is_none) {
            let why = why.unwrap_or_else(|| "they are no numbers".to_owned());
            absent.insert("pcie".to_owned(), why);
            (last.counters, last.rates) = (None, None);
            return None;
        }
        let since = last.counters.map(|(at, _)| now.duration_since(at));
        match (last.counters, since) {
            (Some((_, before)), Some(since)) if since >= MIN_INTERVAL => {
                last.rates = (since < WRAPS_AFTER).then(|| rates(&before, &counters, since));
                last.counters = Some((now, counters));
            }
            (None, _) => last.counters = Some((now, counters)),
            _ => {}
        }
        if last.rates.is_none() {
            absent.insert("pcie".to_owned(), ONE_READING.to_owned());
        }
        last.rates.clone()
    }
}

impl LastRound {
    /// Determines whether the heartbeat counter changes.
    pub(super) fn check_heartbeat(&mut self, values: &mut Values) {
        let Some(beat) = values.heartbeat else {
            (self.heartbeat, self.is_beating) = (None, None);
            return;
        };
        match self.heartbeat {
            Some((at, _)) if at.elapsed() < MIN_INTERVAL => {}
            Some((_, before)) => {
                self.is_beating = Some(before != beat);
                self.heartbeat = Some((Instant::now(), beat));
            }
            None => self.heartbeat = Some((Instant::now(), beat)),
        }
        values.heartbeat_beats = self.is_beating;
    }
}

/// The hwmon folder of a device. One old driver left a second one behind after a reset: the newest counts.
pub(super) fn hwmon_folder(device: &Path) -> PathBuf {
    let folder = device.join("hwmon");
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let number = |name: &std::ffi::OsStr| name.to_str()?.strip_prefix("hwmon")?.parse::<u32>().ok();
    let newest = entries.filter_map(|entry| Some((number(&entry.file_name())?, entry.path()))).max();
    newest.map_or_else(|| folder.join("hwmon0"), |(_, path)| path)
}
