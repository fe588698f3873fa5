use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn ago(time: Duration) -> Instant {
    Instant::now().checked_sub(time).unwrap()
}

fn gauge_of(key: &str) -> &'static Gauge {
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

/// A chip whose files are in a folder, all of them that are counters with the same number.
fn chip(folder: &Path, counters: &str) -> Files {
    fs::create_dir_all(folder.join("pcie_perf_counters")).unwrap();
    let class = Folder::new(folder.to_owned());
    let mut files = BTreeMap::new();
    for name in counter_names() {
        fs::write(folder.join(&name), counters).unwrap();
        let file = Attribute::new(&class, &name, true);
        files.insert(name, Arc::new(Mutex::new(file)));
    }
    Files {
        id: ChipId::Ordinal(0),
        class,
        device: folder.to_owned(),
        files,
        hwmon: Mutex::new(None),
        memory: Mutex::default(),
        rates: true,
        gauges: &GAUGES,
        thorough: true,
    }
}

#[test]
fn what_a_file_says_is_a_value_or_cannot_be() {
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
        assert_eq!(gauge_of(key).parse(text), Ok(value), "{key}: {text}");
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
        let why = Absent::Because(format!("{text} is not possible"));
        assert_eq!(gauge_of(key).parse(text), Err(why), "{key}");
    }
    for text in ["", "warm", "45.4", "0x2d", "9223372036854775808", " 1"] {
        let why = Absent::Because(format!("{text:?} is no number"));
        assert_eq!(gauge_of("asic_celsius").parse(text), Err(why));
    }
}

#[test]
fn rates_are_words_of_32_bytes_in_a_second() {
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
fn a_counter_that_wrapped_goes_on() {
    let before = [Some(u32::MAX - 9); 12];
    let after = [Some(10); 12];
    let [reads, writes, ..] = all(&rates(&before, &after, SECOND));
    assert_eq!((reads, writes), (Some(2.0 * 20.0 * 32.0), Some(4.0 * 20.0 * 32.0)));
}

#[test]
fn a_counter_that_was_set_back_or_is_missing_has_no_rate() {
    let before = [Some(3_000_000_000); 12];
    // One that began anew seems to have counted more than any bus carries.
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
fn a_rate_needs_two_readings_that_are_neither_too_near_nor_too_far() {
    let folder = tempfile::tempdir().unwrap();
    let chip = chip(folder.path(), "2000\n");
    let mut memory = Memory::default();
    let read = |memory: &mut Memory| {
        let mut absent = BTreeMap::new();
        let rates = chip.rates(memory, &mut 0, &mut absent);
        (rates, absent.remove("pcie"))
    };
    let none = (None, Some(ONE_READING.to_owned()));
    assert_eq!(read(&mut memory), none, "the first");
    let first = memory.counters;
    assert_eq!(first.unwrap().1, [Some(2000); 12]);
    memory.counters = Some((Instant::now() + SECOND, [Some(0); 12]));
    assert_eq!(read(&mut memory), none, "too near");
    assert_eq!(memory.counters.unwrap().1, [Some(0); 12], "and kept for the next");
    memory.counters = Some((ago(SECOND), [Some(1000); 12]));
    let (rates, why) = read(&mut memory);
    assert!(all(&rates.unwrap()).iter().all(|it| it.is_some_and(|it| it > 0.0)) && why.is_none());
    assert_eq!(memory.counters.unwrap().1, [Some(2000); 12]);
    memory.counters = Some((Instant::now(), [Some(0); 12]));
    assert!(read(&mut memory).0.is_some(), "what was found out is told until there is something new");
    memory.counters = Some((ago(WRAPS_AFTER), [Some(1000); 12]));
    assert_eq!(read(&mut memory), none, "who knows how often they wrapped");
    assert_eq!(memory.counters.unwrap().1, [Some(2000); 12], "but it is a beginning");
    // Without counters nothing is kept: after that, what they say is a beginning, too.
    memory.rates = Some(PcieRates::default());
    for name in counter_names() {
        fs::write(folder.path().join(name), "many\n").unwrap();
    }
    assert_eq!(read(&mut memory), (None, Some("they are no numbers".to_owned())));
    assert!(memory.counters.is_none() && memory.rates.is_none());
}

#[test]
fn a_heart_beats_if_it_changes_between_readings_that_are_apart() {
    let mut memory = Memory::default();
    let feel = |memory: &mut Memory, beat: Option<u64>| {
        let mut values = Values { heartbeat: beat, ..Values::default() };
        memory.feel(&mut values);
        assert_eq!(values.heartbeat, beat);
        values.heartbeat_beats
    };
    let later = |memory: &mut Memory| {
        let (at, _) = memory.heartbeat.as_mut().unwrap();
        *at -= APART;
    };
    assert_eq!(feel(&mut memory, Some(5)), None, "one reading says nothing");
    // As if no time had passed, however slow this machine is.
    memory.heartbeat = Some((Instant::now() + SECOND, 5));
    assert_eq!(feel(&mut memory, Some(5)), None, "nor do two at the same time");
    memory.heartbeat = Some((Instant::now(), 5));
    later(&mut memory);
    assert_eq!(feel(&mut memory, Some(5)), Some(false));
    later(&mut memory);
    assert_eq!(feel(&mut memory, Some(6)), Some(true));
    memory.heartbeat = Some((Instant::now() + SECOND, 6));
    assert_eq!(feel(&mut memory, Some(6)), Some(true), "too early to say that it stopped");
    memory.heartbeat = Some((Instant::now(), 6));
    later(&mut memory);
    assert_eq!(feel(&mut memory, Some(2)), Some(true), "it began anew");
    assert_eq!(feel(&mut memory, None), None);
    assert!(memory.heartbeat.is_none(), "what was before it was lost does not count");
    assert_eq!(feel(&mut memory, Some(7)), None);
}

#[test]
fn of_two_folders_of_sensors_the_newest_counts() {
    let device = tempfile::tempdir().unwrap();
    assert_eq!(hwmon(device.path()), device.path().join("hwmon/hwmon0"), "there is none to choose");
    for name in ["hwmon9", "hwmon10", "hwmon2", "hwmonx", "power"] {
        fs::create_dir_all(device.path().join("hwmon").join(name)).unwrap();
    }
    assert_eq!(hwmon(device.path()), device.path().join("hwmon/hwmon10"));
}
