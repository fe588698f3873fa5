use super::MIN_INTERVAL;
use super::chip_files::{ChipFiles, LastRound, ONE_READING, hwmon_folder};
use super::gauge::{GAUGES, Gauge, LIMITS};
use super::pcie::{WRAPS_AFTER, counter_names, rates};
use crate::attribute::{Absence, Attribute, Folder};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use ttmem_core::machine::{PcieRates, Sensors as Values};
use ttmem_core::words::ChipId;

const SECOND: Duration = Duration::from_secs(1);

fn ago(time: Duration) -> Instant {
    Instant::now().checked_sub(time).unwrap()
}

fn find_gauge(key: &str) -> &'static Gauge {
    GAUGES.iter().chain(&LIMITS).find(|it| it.key == key).unwrap()
}

fn all(rates: &PcieRates) -> [Option<f64>; 4] {
    [
        rates.host_reads_bytes_per_second,
        rates.host_writes_bytes_per_second,
        rates.device_reads_bytes_per_second,
        rates.device_writes_bytes_per_second,
    ]
}

/// A chip whose files are in a folder, with one value in all PCIe counters.
fn chip_with_counters(folder: &Path, counters: &str) -> ChipFiles {
    fs::create_dir_all(folder.join("pcie_perf_counters")).unwrap();
    let class = Folder::new(folder.to_owned());
    let mut files = BTreeMap::new();
    for name in counter_names() {
        fs::write(folder.join(&name), counters).unwrap();
        let file = Attribute::new(&class, &name, true);
        files.insert(name, Arc::new(Mutex::new(file)));
    }
    ChipFiles {
        id: ChipId::Ordinal(0),
        class,
        device: folder.to_owned(),
        files,
        hwmon: Mutex::new(None),
        last: Mutex::default(),
        repeated: true,
        gauges: &GAUGES,
        thorough: true,
    }
}

#[test]
fn impossible_values_are_refused() {
    for (key, text, value) in [
        ("asic_celsius", "45406", 45.406),
        ("asic_celsius", "0", 0.0),
        ("asic_celsius", "-40000", -40.0),
        ("asic_celsius", "150000", 150.0),
        ("power_watts", "39000000", 39.0),
        ("power_watts", "39123456", 39.123_456),
        ("current_amperes", "53000", 53.0),
        ("vcore_volts", "738", 0.738),
        ("aiclk_mhz", "1000", 1000.0),
        ("fan_rpm", "20000", 20_000.0),
        ("limits.power_watts", "130000000", 130.0),
    ] {
        assert_eq!(find_gauge(key).parse(text), Ok(value), "{key}: {text}");
    }
    for (key, text) in [
        ("asic_celsius", "-40001"),
        ("asic_celsius", "150001"),
        ("asic_celsius", "65535999"),
        ("power_watts", "-1"),
        ("power_watts", "4294967295000000"),
        ("current_amperes", "-1"),
        ("vcore_volts", "65535"),
        ("aiclk_mhz", "4294967295"),
        ("fan_rpm", "65535"),
        ("limits.asic_celsius", "9223372036854775807"),
    ] {
        let why = Absence::Because(format!("{text} is not possible"));
        assert_eq!(find_gauge(key).parse(text), Err(why), "{key}");
    }
    for text in ["", "warm", "45.4", "0x2d", "9223372036854775808", " 1"] {
        let why = Absence::Because(format!("{text:?} is no number"));
        assert_eq!(find_gauge("asic_celsius").parse(text), Err(why));
    }
}

#[test]
fn rates_count_words_of_32_bytes_per_second() {
    let before = [Some(1000); 12];
    let mut after = before;
    assert_eq!(all(&rates(&before, &after, SECOND)), [Some(0.0); 4]);
    // Two counters for each kind of word; posted and other writes are writes.
    for (n, count) in after.iter_mut().enumerate() {
        *count = Some(1000 + (1 << n));
    }
    let words = [0b11, 0b11_1100, 0b1100_0000, 0b1111_0000_0000];
    assert_eq!(all(&rates(&before, &after, SECOND)), words.map(|it| Some(f64::from(it) * 32.0)));
    assert_eq!(all(&rates(&before, &after, 2 * SECOND)), words.map(|it| Some(f64::from(it) * 16.0)));
}

#[test]
fn wrapped_counter_has_a_rate() {
    let before = [Some(u32::MAX - 9); 12];
    let after = [Some(10); 12];
    let [reads, writes, ..] = all(&rates(&before, &after, SECOND));
    assert_eq!((reads, writes), (Some(2.0 * 20.0 * 32.0), Some(4.0 * 20.0 * 32.0)));
}

#[test]
fn reset_or_missing_counter_has_no_rate() {
    let before = [Some(3_000_000_000); 12];
    // A counter that was reset seems to have counted more than any bus carries.
    let mut after = before;
    after[0] = Some(0);
    assert_eq!(all(&rates(&before, &after, SECOND / 10)), [None, Some(0.0), Some(0.0), Some(0.0)]);
    for (n, of) in [(1, 0), (3, 1), (5, 1), (6, 2), (9, 3), (10, 3)] {
        let mut some = before;
        some[n] = None;
        let mut wanted = [Some(0.0); 4];
        wanted[of] = None;
        assert_eq!(all(&rates(&before, &some, SECOND)), wanted, "half a sum is none");
        assert_eq!(all(&rates(&some, &before, SECOND)), wanted);
    }
}

#[test]
fn rate_needs_two_readings_at_a_plausible_distance() {
    let folder = tempfile::tempdir().unwrap();
    let chip = chip_with_counters(folder.path(), "2000\n");
    let mut last = LastRound::default();
    let read = |last: &mut LastRound| {
        let mut absent = BTreeMap::new();
        let rates = chip.read_rates(last, &mut 0, &mut absent);
        (rates, absent.remove("pcie"))
    };
    let none = (None, Some(ONE_READING.to_owned()));
    assert_eq!(read(&mut last), none, "the first");
    let first = last.counters;
    assert_eq!(first.unwrap().1, [Some(2000); 12]);
    last.counters = Some((Instant::now() + SECOND, [Some(0); 12]));
    assert_eq!(read(&mut last), none, "too near");
    assert_eq!(last.counters.unwrap().1, [Some(0); 12], "and kept for the next");
    last.counters = Some((ago(SECOND), [Some(1000); 12]));
    let (rates, why) = read(&mut last);
    let rates = all(&rates.unwrap());
    assert!(rates.iter().all(|rate| rate.is_some_and(|rate| rate > 0.0)) && why.is_none());
    assert_eq!(last.counters.unwrap().1, [Some(2000); 12]);
    last.counters = Some((Instant::now(), [Some(0); 12]));
    assert!(read(&mut last).0.is_some(), "the last rates are kept until there are new ones");
    last.counters = Some((ago(WRAPS_AFTER), [Some(1000); 12]));
    assert_eq!(read(&mut last), none, "they may have wrapped several times");
    assert_eq!(last.counters.unwrap().1, [Some(2000); 12], "but it is the first of two");
    // Without counters nothing is kept, so that the next reading is again the first of two.
    last.rates = Some(PcieRates::default());
    for name in counter_names() {
        fs::write(folder.path().join(name), "many\n").unwrap();
    }
    assert_eq!(read(&mut last), (None, Some("they are no numbers".to_owned())));
    assert!(last.counters.is_none() && last.rates.is_none());
}

#[test]
fn heartbeat_beats_if_readings_apart_differ() {
    let mut last = LastRound::default();
    let check = |last: &mut LastRound, beat: Option<u64>| {
        let mut values = Values { heartbeat: beat, ..Values::default() };
        last.check_heartbeat(&mut values);
        assert_eq!(values.heartbeat, beat);
        values.heartbeat_beats
    };
    let wait = |last: &mut LastRound| {
        let (at, _) = last.heartbeat.as_mut().unwrap();
        *at -= MIN_INTERVAL;
    };
    assert_eq!(check(&mut last, Some(5)), None, "one reading is not enough");
    // As if no time had passed, however slow this machine is.
    last.heartbeat = Some((Instant::now() + SECOND, 5));
    assert_eq!(check(&mut last, Some(5)), None, "nor are two at the same time");
    last.heartbeat = Some((Instant::now(), 5));
    wait(&mut last);
    assert_eq!(check(&mut last, Some(5)), Some(false));
    wait(&mut last);
    assert_eq!(check(&mut last, Some(6)), Some(true));
    last.heartbeat = Some((Instant::now() + SECOND, 6));
    assert_eq!(check(&mut last, Some(6)), Some(true), "too early to know that it stopped");
    last.heartbeat = Some((Instant::now(), 6));
    wait(&mut last);
    assert_eq!(check(&mut last, Some(2)), Some(true), "it was reset");
    assert_eq!(check(&mut last, None), None);
    assert!(last.heartbeat.is_none(), "readings before the gap do not count");
    assert_eq!(check(&mut last, Some(7)), None);
}

#[test]
fn newest_hwmon_folder_is_read() {
    let device = tempfile::tempdir().unwrap();
    assert_eq!(hwmon_folder(device.path()), device.path().join("hwmon/hwmon0"), "there is none to choose");
    for name in ["hwmon9", "hwmon10", "hwmon2", "hwmonx", "power"] {
        fs::create_dir_all(device.path().join("hwmon").join(name)).unwrap();
    }
    assert_eq!(hwmon_folder(device.path()), device.path().join("hwmon/hwmon10"));
}
