//! The sensors of simulated devices: a function of the device, the time and the memory in use.

use std::f64::consts::TAU;
use ttmem_core::input::SensorReading;
use ttmem_core::machine::{Chip, Firmware, PcieRates, SensorLimits, Sensors};
use ttmem_core::snapshot::{Total, Usage};
use ttmem_core::words::{Arch, ChipId, Mono};

/// The readings of an architecture, idle and at full load.
struct Range {
    celsius: [f64; 2],
    watts: [f64; 2],
    volts: [f64; 2],
    aiclk: [f64; 2],
    axiclk: f64,
    arcclk: f64,
    limits: SensorLimits,
}

fn range_of(arch: Arch) -> Range {
    let limits = |celsius, watts, amperes, volts| SensorLimits {
        asic_celsius: Some(celsius),
        power_watts: Some(watts),
        current_amperes: Some(amperes),
        vcore_volts: Some(volts),
    };
    match arch {
        Arch::WormholeB0 => Range {
            celsius: [37.0, 66.0],
            watts: [12.0, 84.0],
            volts: [0.72, 0.84],
            aiclk: [500.0, 1000.0],
            axiclk: 900.0,
            arcclk: 540.0,
            limits: limits(75.0, 100.0, 140.0, 0.95),
        },
        Arch::Blackhole => Range {
            celsius: [38.0, 71.0],
            watts: [22.0, 134.0],
            volts: [0.70, 0.83],
            aiclk: [800.0, 1350.0],
            axiclk: 960.0,
            arcclk: 800.0,
            limits: limits(83.0, 150.0, 200.0, 0.90),
        },
    }
}

/// The sensor readings of a device with this memory in use. Remote devices have none.
pub(crate) fn reading(chip: &Chip, usage: &Usage, now: Mono) -> Option<SensorReading> {
    let arch = chip.arch.filter(|_| !chip.remote)?;
    Some(SensorReading { at: Some(now), sensors: sensors(chip, arch, load(usage), now), why: None })
}

/// The load of a device from 0 to 1, derived from its memory in use: L1 counts most.
fn load(usage: &Usage) -> f64 {
    let share = |total: &Option<Total>| {
        let total = total.as_ref().filter(|it| it.capacity_bytes.is_some_and(|bytes| bytes > 0));
        total.map_or(0.0, |it| it.used_bytes as f64 / it.capacity_bytes.unwrap_or(1) as f64)
    };
    let (dram, l1) = (share(&usage.dram_total), share(&usage.l1_total));
    if dram == 0.0 && l1 == 0.0 { 0.0 } else { (0.15 + 0.35 * dram + 0.5 * l1).min(1.0) }
}

/// A sine wave with this period; each device has a phase of its own.
fn wave(chip: &Chip, now: Mono, seconds: f64) -> f64 {
    let number = match chip.id {
        ChipId::Unique(id) => id,
        ChipId::Pci(_) | ChipId::Ordinal(_) => u64::from(chip.index),
    };
    // The golden ratio spreads the phases of consecutive ids.
    let phase = (number as f64 * 0.618_033_988_75).fract();
    (TAU * (now.0 as f64 / Mono::SECOND as f64 / seconds + phase)).sin()
}

fn sensors(chip: &Chip, arch: Arch, load: f64, now: Mono) -> Sensors {
    let range = range_of(arch);
    let between = |[idle, busy]: [f64; 2], share: f64| idle + (busy - idle) * share.clamp(0.0, 1.0);
    // A division gives the shortest decimal number; a multiplication by 0.1 does not.
    let round_to = |value: f64, parts: f64| (value * parts).round() / parts;
    let is_busy = load > 0.0;
    let work = load * (1.0 + 0.12 * wave(chip, now, 7.0));
    // The temperature changes slowly.
    let warmth = load * (1.0 + 0.05 * wave(chip, now, 31.0)) + 0.03 * (1.0 + wave(chip, now, 47.0));
    let watts = between(range.watts, work + 0.01 * (1.0 + wave(chip, now, 3.0))).round();
    let volts = round_to(between(range.volts, work), 1000.0);
    // Boards whose name ends with `a` have a fan; the driver shows it on Blackhole only.
    let has_fan = arch == Arch::Blackhole && chip.board.as_ref().is_some_and(|name| name.ends_with('a'));
    let rate = |most: f64| Some((most * work.min(1.0) * (0.6 + 0.4 * wave(chip, now, 5.0))).round());
    let mut sensors = Sensors {
        asic_celsius: Some(round_to(between(range.celsius, warmth), 10.0)),
        power_watts: Some(watts),
        current_amperes: Some((watts / volts).round()),
        vcore_volts: Some(volts),
        aiclk_mhz: Some(range.aiclk[usize::from(is_busy)]),
        axiclk_mhz: Some(range.axiclk),
        arcclk_mhz: Some(range.arcclk),
        fan_rpm: has_fan.then(|| round_to(between([1500.0, 3600.0], warmth), 0.1)),
        // The firmware counts ten times a second.
        heartbeat: Some(now.0 / (Mono::SECOND / 10)),
        heartbeat_beats: Some(true),
        thermal_trips: Some(0),
        limits: range.limits,
        pcie: Some(PcieRates {
            host_reads_bytes_per_second: rate(120e6),
            host_writes_bytes_per_second: rate(900e6),
            device_reads_bytes_per_second: rate(2.4e9),
            device_writes_bytes_per_second: rate(600e6),
        }),
        ..Sensors::default()
    };
    if !has_fan {
        sensors.absent.insert("fan_rpm".to_owned(), "this board has no fan of its own".to_owned());
    }
    sensors
}

/// Typical firmware versions of an architecture.
pub(super) fn firmware(arch: Arch) -> Firmware {
    let version = |text: &str| Some(text.to_owned());
    let bundle = version("19.6.0.0");
    match arch {
        Arch::WormholeB0 => Firmware {
            bundle,
            arc: version("2.38.0.0"),
            ethernet: version("7.3.0"),
            manager: version("5.12.0.2"),
            manager_boot: version("129.2.0.0"),
            flasher: version("3.5.1.0"),
        },
        Arch::Blackhole => Firmware { bundle, manager: version("0.22.0.0"), ..Firmware::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{BOARDS, Machine};
    use ttmem_core::words::Basis;

    fn usage(dram: u64, l1: u64) -> Usage {
        let total = |used_bytes| Total { used_bytes, capacity_bytes: Some(100), basis: Basis::Exact };
        Usage { dram_total: Some(total(dram)), l1_total: Some(total(l1)), ..Usage::default() }
    }

    /// Every board at many times with several loads.
    fn all_cases() -> impl Iterator<Item = (Chip, Usage, Mono)> {
        let chips = BOARDS.iter().flat_map(|board| board.name.parse::<Machine>().unwrap().chips());
        let loads = [usage(0, 0), usage(1, 0), usage(50, 20), usage(100, 100)];
        let times: Vec<Mono> = (0..100).map(|n| Mono(n * 1_700_000_000)).collect();
        chips.flat_map(move |chip| {
            let (loads, times) = (loads.clone(), times.clone());
            times.into_iter().flat_map(move |now| {
                let chip = chip.clone();
                loads.clone().into_iter().map(move |usage| (chip.clone(), usage, now))
            })
        })
    }

    #[test]
    fn readings_are_positive_and_below_their_limits() {
        for (chip, usage, now) in all_cases().filter(|(chip, ..)| !chip.remote) {
            let reading_now = reading(&chip, &usage, now).unwrap();
            assert_eq!(reading_now.at, Some(now));
            let sensors = reading_now.sensors;
            let limits = &sensors.limits;
            for (value, limit) in [
                (sensors.asic_celsius, limits.asic_celsius),
                (sensors.power_watts, limits.power_watts),
                (sensors.current_amperes, limits.current_amperes),
                (sensors.vcore_volts, limits.vcore_volts),
            ] {
                assert!(
                    value.unwrap() > 0.0 && value <= limit,
                    "{value:?} of {limit:?}: {chip:?} at {now:?}"
                );
            }
            let pcie = sensors.pcie.unwrap();
            assert!(pcie.host_writes_bytes_per_second.unwrap() >= 0.0);
            assert_eq!(sensors.fan_rpm.is_none(), sensors.absent.contains_key("fan_rpm"));
            assert_eq!(reading(&chip, &usage, now), reading(&chip, &usage, now));
            for value in [sensors.asic_celsius, sensors.vcore_volts, sensors.fan_rpm].into_iter().flatten() {
                assert!(value.to_string().len() <= 5, "{value} has few digits");
            }
        }
    }

    #[test]
    fn busy_devices_are_warmer_and_faster() {
        for board in &BOARDS {
            let chip = &board.name.parse::<Machine>().unwrap().chips()[0];
            let at = Mono(90 * Mono::SECOND);
            let [idle, busy] = [usage(0, 0), usage(80, 60)].map(|it| reading(chip, &it, at).unwrap().sensors);
            assert!(busy.asic_celsius > idle.asic_celsius && busy.power_watts > idle.power_watts);
            assert!(busy.aiclk_mhz > idle.aiclk_mhz && busy.vcore_volts > idle.vcore_volts);
            assert!(busy.fan_rpm >= idle.fan_rpm, "{board:?}");
            let later = reading(chip, &usage(0, 0), Mono(at.0 + Mono::SECOND)).unwrap().sensors;
            assert!(later.heartbeat > idle.heartbeat);
        }
    }

    #[test]
    fn remote_device_has_no_sensors() {
        let chips = "n300".parse::<Machine>().unwrap().chips();
        let has: Vec<bool> = chips.iter().map(|it| reading(it, &usage(1, 1), Mono(1)).is_some()).collect();
        assert_eq!(has, [true, false]);
    }
}
