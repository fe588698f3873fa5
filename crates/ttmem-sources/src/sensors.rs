//! Sensors, read by a crew of their own: nobody else waits for a chip that does not answer. Its files are tried again
//! without the one that hangs, and if others hang, too, the chip is said not to answer.

use crate::attribute::{Absent, Attribute, Folder};
use crate::bus::BusChip;
use crate::clock::monotonic;
use crate::crew::{Crew, DEADLINE, lock};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};
use ttmem_core::event::SensorReading;
use ttmem_core::machine::{PcieRates, Sensors as Values};
use ttmem_core::words::{ChipId, Mono};

/// How often sensors are read while somebody looks. The firmware measures ten times a second.
const PERIOD: Duration = Duration::from_secs(1);
/// The same while nobody does.
const IDLE_PERIOD: Duration = Duration::from_secs(5);
/// How long after somebody looked that is so.
const ATTENTION: Duration = Duration::from_secs(10);
/// How many files of a chip must hang before the chip is said to.
const HANGING: usize = 2;

/// One sensor: where it is, what its value means, and what is possible.
struct Gauge {
    key: &'static str,
    file: &'static str,
    scale: f64,
    range: (f64, f64),
    value: fn(&mut Values) -> &mut Option<f64>,
}

const CELSIUS: (f64, f64) = (-40.0, 150.0);
const WATTS: (f64, f64) = (0.0, 1000.0);
const AMPERES: (f64, f64) = (0.0, 2000.0);
const VOLTS: (f64, f64) = (0.0, 2.0);
const MEGAHERTZ: (f64, f64) = (0.0, 3000.0);

const fn gauge(
    key: &'static str,
    file: &'static str,
    scale: f64,
    range: (f64, f64),
    value: fn(&mut Values) -> &mut Option<f64>,
) -> Gauge {
    Gauge { key, file, scale, range, value }
}

/// What is read every time, what fits into a table first. A file with a slash is hwmon's.
const GAUGES: [Gauge; 8] = [
    gauge("asic_celsius", "hwmon/temp1_input", 1e-3, CELSIUS, |it| &mut it.asic_celsius),
    gauge("power_watts", "hwmon/power1_input", 1e-6, WATTS, |it| &mut it.power_watts),
    gauge("aiclk_mhz", "tt_aiclk", 1.0, MEGAHERTZ, |it| &mut it.aiclk_mhz),
    gauge("current_amperes", "hwmon/curr1_input", 1e-3, AMPERES, |it| &mut it.current_amperes),
    gauge("vcore_volts", "hwmon/in0_input", 1e-3, VOLTS, |it| &mut it.vcore_volts),
    gauge("axiclk_mhz", "tt_axiclk", 1.0, MEGAHERTZ, |it| &mut it.axiclk_mhz),
    gauge("arcclk_mhz", "tt_arcclk", 1.0, MEGAHERTZ, |it| &mut it.arcclk_mhz),
    gauge("fan_rpm", "hwmon/fan1_input", 1.0, (0.0, 20_000.0), |it| &mut it.fan_rpm),
];

/// How many of these fit into a table.
const IN_A_TABLE: usize = 3;

/// What does not change, and is read until it was read once.
const LIMITS: [Gauge; 4] = [
    gauge("limits.asic_celsius", "hwmon/temp1_max", 1e-3, CELSIUS, |it| &mut it.limits.asic_celsius),
    gauge("limits.power_watts", "hwmon/power1_max", 1e-6, WATTS, |it| &mut it.limits.power_watts),
    gauge("limits.current_amperes", "hwmon/curr1_max", 1e-3, AMPERES, |it| &mut it.limits.current_amperes),
    gauge("limits.vcore_volts", "hwmon/in0_max", 1e-3, VOLTS, |it| &mut it.limits.vcore_volts),
];

/// Counters of 32-byte words that wrap at 32 bits: two of each, to be added.
const WORDS: [(&str, usize); 6] = [
    ("slv_rd_data_word_sent", 0),
    ("slv_posted_wr_data_word_received", 1),
    ("slv_nonposted_wr_data_word_received", 1),
    ("mst_rd_data_word_received", 2),
    ("mst_posted_wr_data_word_sent", 3),
    ("mst_nonposted_wr_data_word_sent", 3),
];
const WORD_BYTES: f64 = 32.0;
/// More than any bus carries: the counter was set back.
const MOST_BYTES_PER_SECOND: f64 = 70e9;
/// After this long a counter may have wrapped unnoticed.
const WRAPS_AFTER: Duration = Duration::from_secs(4);
/// Two readings must be so far apart to say anything about what is between them.
const APART: Duration = Duration::from_millis(250);

const ONE_READING: &str = "a rate needs two readings";

type Shared<T> = Arc<Mutex<T>>;

/// The files of one chip. Each has a lock of its own: a thread that waits for one keeps the others readable.
struct Files {
    id: ChipId,
    class: Folder,
    device: PathBuf,
    files: BTreeMap<String, Shared<Attribute>>,
    hwmon: Mutex<Option<Folder>>,
    memory: Mutex<Memory>,
    /// Whether it is read more than once, so that there are rates, and descriptors are kept.
    rates: bool,
    gauges: &'static [Gauge],
    thorough: bool,
}

/// What is kept of a chip between two rounds.
#[derive(Default)]
struct Memory {
    limits: Values,
    counters: Option<(Instant, [Option<u32>; 12])>,
    rates: Option<PcieRates>,
    heartbeat: Option<(Instant, u64)>,
    beats: Option<bool>,
}

/// A chip that is followed, and what its readers said.
struct Followed {
    files: Arc<Files>,
    slot: Shared<Slot>,
    /// Of the chip's folder.
    inode: u64,
}

#[derive(Default)]
struct Slot {
    reading: Option<SensorReading>,
    /// Whether it is new.
    news: bool,
    /// Readers sent so far, the last of them that came back, and when one last began.
    sent: u64,
    back: u64,
    begun: Option<Instant>,
    /// Readers sent in this round, and whether one of them is back.
    tries: usize,
    answered: bool,
}

/// All sensors.
pub(crate) struct Sensors {
    crew: Crew,
    chips: Vec<Followed>,
    round: Option<Instant>,
    attention: Option<Instant>,
    /// Where PCIe counters are wanted: they mean nothing unless they are read twice.
    rates: bool,
    thorough: bool,
}

impl Sensors {
    pub(crate) fn new(crew: &Crew, rates: bool, thorough: bool) -> Self {
        Self { crew: crew.clone(), chips: Vec::new(), round: None, attention: None, rates, thorough }
    }

    /// From now on these chips are read, beginning now. What is known of those that were read before stays known.
    pub(crate) fn follow<'a>(&mut self, chips: impl Iterator<Item = &'a BusChip>) {
        let before = std::mem::take(&mut self.chips).into_iter();
        let mut before: BTreeMap<_, _> = before.map(|it| ((it.files.id, it.inode), it)).collect();
        let follow = |it: &BusChip| {
            before.remove(&(it.chip.id, it.inode)).unwrap_or_else(|| Followed {
                files: Arc::new(Files::new(it, self.rates, self.thorough)),
                slot: Shared::default(),
                inode: it.inode,
            })
        };
        self.chips = chips.map(follow).collect();
        self.begin();
    }

    /// Somebody looks: sensors are worth reading often.
    pub(crate) fn attend(&mut self) {
        self.attention = Some(Instant::now());
    }

    /// A new round.
    fn begin(&mut self) {
        self.round = Some(Instant::now());
        for chip in &self.chips {
            let mut slot = lock(&chip.slot);
            (slot.tries, slot.answered) = (0, false);
            drop(slot);
            self.send(chip);
        }
    }

    /// Sends a reader to a chip.
    fn send(&self, chip: &Followed) {
        let (files, slot) = (Arc::clone(&chip.files), Arc::clone(&chip.slot));
        let mut it = lock(&chip.slot);
        it.sent += 1;
        it.tries += 1;
        it.begun = None;
        let number = it.sent;
        drop(it);
        self.crew.submit(move || {
            lock(&slot).begun = Some(Instant::now());
            let (mut reading, hangs) = files.read();
            let mut slot = lock(&slot);
            // Whoever was overtaken brings old news.
            if number > slot.back {
                (slot.back, slot.answered, slot.news) = (number, true, true);
                // What a chip last said is still worth something while it does not answer.
                if let Some(old) = slot.reading.take().filter(|_| hangs && reading.at.is_none()) {
                    (reading.at, reading.sensors) = (old.at, old.sensors);
                }
                slot.reading = Some(reading);
            }
        });
    }

    /// Sends others where readers hang, and everybody anew when it is time. Returns whether all are back.
    fn tend(&mut self) -> bool {
        self.crew.keep_going();
        let mut back = true;
        for chip in &self.chips {
            let slot = lock(&chip.slot);
            let hangs = slot.begun.is_some_and(|at| at.elapsed() > DEADLINE);
            let again = !slot.answered && hangs && slot.tries <= HANGING;
            back &= slot.answered;
            drop(slot);
            if again {
                self.send(chip);
            }
        }
        back
    }

    /// Waits until every chip was read once, or does not answer, or the time is over.
    pub(crate) fn wait(&mut self, most: Duration) {
        let crew = self.crew.clone();
        crew.wait(most, || self.tend());
    }

    /// What is new since the last time.
    pub(crate) fn news(&mut self, now: Mono) -> Vec<(ChipId, SensorReading)> {
        let back = self.tend();
        let attended = self.attention.is_some_and(|at| at.elapsed() < ATTENTION);
        let period = if attended { PERIOD } else { IDLE_PERIOD };
        let mut news = Vec::new();
        for chip in &self.chips {
            let mut slot = lock(&chip.slot);
            let hangs = !slot.answered && slot.begun.is_some_and(|at| at.elapsed() > DEADLINE);
            if !std::mem::take(&mut slot.news) && !hangs && slot.reading.is_some() {
                continue;
            }
            let mut reading = slot.reading.clone().unwrap_or_default();
            if hangs || slot.reading.is_none() {
                reading.why.get_or_insert_with(|| "its sensors have not answered yet".to_owned());
            }
            reading.at = reading.at.map(|at| at.min(now));
            news.push((chip.files.id, reading));
        }
        if back && self.round.is_some_and(|at| at.elapsed() >= period) {
            self.begin();
        }
        news
    }
}

impl Files {
    fn new(chip: &BusChip, rates: bool, thorough: bool) -> Self {
        let it = Self {
            id: chip.chip.id,
            class: chip.class.clone(),
            device: chip.device.clone(),
            files: BTreeMap::new(),
            hwmon: Mutex::new(None),
            memory: Mutex::default(),
            rates,
            gauges: if thorough { &GAUGES } else { &GAUGES[..IN_A_TABLE] },
            thorough,
        };
        let mut names: Vec<String> =
            GAUGES.iter().chain(&LIMITS).map(|gauge| gauge.file.to_owned()).collect();
        names.extend(["tt_heartbeat", "tt_therm_trip_count"].map(str::to_owned));
        if rates {
            names.extend(counter_names());
        }
        let files = names.into_iter().map(|name| {
            let file = it.attribute(&name);
            (name, Arc::new(Mutex::new(file)))
        });
        let files = files.collect();
        Self { files, ..it }
    }

    fn attribute(&self, name: &str) -> Attribute {
        match name.strip_prefix("hwmon/") {
            None => Attribute::new(&self.class, name, self.rates),
            Some(name) => {
                let mut folder = lock(&self.hwmon);
                let folder = folder.get_or_insert_with(|| Folder::new(hwmon(&self.device)));
                Attribute::new(folder, name, self.rates)
            }
        }
    }

    /// What a file says; if another thread waits for it, that it does not answer.
    fn value(&self, name: &str, hanging: &mut usize) -> Result<String, Absent> {
        let Some(file) = self.files.get(name) else { return Err(Absent::NotShown) };
        if *hanging >= HANGING {
            return Err(Absent::because("the device does not answer"));
        }
        let mut file = match file.try_lock() {
            Ok(file) => file,
            Err(TryLockError::Poisoned(file)) => file.into_inner(),
            Err(TryLockError::WouldBlock) => {
                *hanging += 1;
                return Err(Absent::because("it does not answer"));
            }
        };
        let read = file.read();
        if read == Err(Absent::Gone) && name.starts_with("hwmon/") {
            // Its folder has another name after a reset.
            *lock(&self.hwmon) = None;
            *file = self.attribute(name);
            return file.read();
        }
        read
    }

    /// What all of them say, and whether some hang.
    fn read(&self) -> (SensorReading, bool) {
        let mut values = Values::default();
        let mut absent = BTreeMap::new();
        let mut hanging = 0;
        let now = monotonic();
        let mut memory = Memory::default();
        if let Ok(mut kept) = self.memory.try_lock() {
            memory = std::mem::take(&mut *kept);
        }
        let (mut answers, mut resetting) = (0, false);
        for gauge in self.gauges {
            match self.value(gauge.file, &mut hanging).and_then(|text| gauge.parse(&text)) {
                Ok(value) => {
                    answers += 1;
                    *(gauge.value)(&mut values) = Some(value);
                }
                Err(why) => {
                    resetting |= why == Absent::Resetting;
                    absent.insert(gauge.key.to_owned(), why.text());
                }
            }
        }
        for gauge in LIMITS.iter().filter(|_| self.thorough) {
            if (gauge.value)(&mut memory.limits).is_none() {
                match self.value(gauge.file, &mut hanging).and_then(|text| gauge.parse(&text)) {
                    Ok(value) => *(gauge.value)(&mut memory.limits) = Some(value),
                    Err(why) => {
                        absent.insert(gauge.key.to_owned(), why.text());
                    }
                }
            }
        }
        values.limits = memory.limits.limits.clone();
        let mut number = |name: &str, key: &str| {
            let parsed = self.value(name, &mut hanging).and_then(|text| {
                text.parse::<u64>().map_err(|_| Absent::Because(format!("{text:?} is no number")))
            });
            parsed.map_err(|why| absent.insert(key.to_owned(), why.text())).ok()
        };
        if self.thorough {
            values.heartbeat = number("tt_heartbeat", "heartbeat");
            values.thermal_trips = number("tt_therm_trip_count", "thermal_trips");
        }
        // These are read without the lock that guards the rest during a reset: what they say then is nothing.
        if resetting {
            memory.counters = None;
            absent.insert("pcie".to_owned(), Absent::Resetting.text());
        } else if self.rates {
            values.pcie = self.rates(&mut memory, &mut hanging, &mut absent);
        } else {
            absent.insert("pcie".to_owned(), ONE_READING.to_owned());
        }
        memory.feel(&mut values);
        *lock(&self.memory) = memory;
        let why = (hanging > 0).then(|| "some sensors do not answer".to_owned());
        let why = why.or_else(|| {
            // What is said of one is said of all of them.
            let of_first = absent.get(GAUGES[0].key).cloned().unwrap_or_default();
            let none = || {
                if resetting { Absent::Resetting.text() } else { format!("no sensor answers: {of_first}") }
            };
            (answers == 0).then(none)
        });
        values.absent = absent;
        (SensorReading { at: (answers > 0).then_some(now), sensors: values, why }, hanging > 0)
    }

    fn rates(
        &self,
        memory: &mut Memory,
        hanging: &mut usize,
        absent: &mut BTreeMap<String, String>,
    ) -> Option<PcieRates> {
        let now = Instant::now();
        let mut counters = [None; 12];
        let mut why = None;
        for (counter, name) in counters.iter_mut().zip(counter_names()) {
            match self.value(&name, hanging) {
                Ok(text) => *counter = text.parse().ok(),
                Err(e) => why = Some(e.text()),
            }
        }
        if counters.iter().all(Option::is_none) {
            let why = why.unwrap_or_else(|| "they are no numbers".to_owned());
            absent.insert("pcie".to_owned(), why);
            (memory.counters, memory.rates) = (None, None);
            return None;
        }
        let since = memory.counters.map(|(at, _)| now.duration_since(at));
        match (memory.counters, since) {
            (Some((_, before)), Some(since)) if since >= APART => {
                memory.rates = (since < WRAPS_AFTER).then(|| rates(&before, &counters, since));
                memory.counters = Some((now, counters));
            }
            (None, _) => memory.counters = Some((now, counters)),
            _ => {}
        }
        if memory.rates.is_none() {
            absent.insert("pcie".to_owned(), ONE_READING.to_owned());
        }
        memory.rates.clone()
    }
}

fn rates(before: &[Option<u32>; 12], after: &[Option<u32>; 12], since: Duration) -> PcieRates {
    let mut sums = [Some(0.0f64); 4];
    for (n, (&then, &now)) in before.iter().zip(after).enumerate() {
        let sum = &mut sums[WORDS[n / 2].1];
        let words = then.zip(now).map(|(then, now)| f64::from(now.wrapping_sub(then)));
        *sum = sum.zip(words).map(|(sum, words)| sum + words * WORD_BYTES / since.as_secs_f64());
    }
    let [host_reads, host_writes, chip_reads, chip_writes] =
        sums.map(|rate| rate.filter(|&rate| rate <= MOST_BYTES_PER_SECOND).map(f64::round));
    PcieRates {
        host_reads_bytes_per_second: host_reads,
        host_writes_bytes_per_second: host_writes,
        device_reads_bytes_per_second: chip_reads,
        device_writes_bytes_per_second: chip_writes,
    }
}

fn counter_names() -> impl Iterator<Item = String> {
    WORDS.iter().flat_map(|(name, _)| [0, 1].map(|n| format!("pcie_perf_counters/{name}{n}")))
}

impl Memory {
    /// Whether the heart beats.
    fn feel(&mut self, values: &mut Values) {
        let Some(beat) = values.heartbeat else {
            (self.heartbeat, self.beats) = (None, None);
            return;
        };
        match self.heartbeat {
            Some((at, _)) if at.elapsed() < APART => {}
            Some((_, before)) => {
                self.beats = Some(before != beat);
                self.heartbeat = Some((Instant::now(), beat));
            }
            None => self.heartbeat = Some((Instant::now(), beat)),
        }
        values.heartbeat_beats = self.beats;
    }
}

impl Gauge {
    /// A hung chip reads as all ones, and a missing sensor as some other nonsense: what cannot be is not shown.
    fn parse(&self, text: &str) -> Result<f64, Absent> {
        let raw: i64 = text.parse().map_err(|_| Absent::Because(format!("{text:?} is no number")))?;
        // In three steps of ten rather than by a factor that no float has exactly.
        let value = if self.scale < 1.0 { raw as f64 / (1.0 / self.scale).round() } else { raw as f64 };
        if (self.range.0..=self.range.1).contains(&value) {
            Ok(value)
        } else {
            Err(Absent::Because(format!("{raw} is not possible")))
        }
    }
}

/// The folder of a device's sensors. One old driver left a second one behind after a reset: the newest counts.
fn hwmon(device: &Path) -> PathBuf {
    let folder = device.join("hwmon");
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let number = |name: &std::ffi::OsStr| name.to_str()?.strip_prefix("hwmon")?.parse::<u32>().ok();
    let newest = entries.filter_map(|entry| Some((number(&entry.file_name())?, entry.path()))).max();
    newest.map_or_else(|| folder.join("hwmon0"), |(_, path)| path)
}

#[cfg(test)]
mod tests;
