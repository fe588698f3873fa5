//! What the sensors of simulated chips say: a function of the chip, the time and how much of its memory is used, so that a
//! screen has something to show that moves for a reason.

use std::f64::consts::TAU;
use ttmem_core::input::SensorReading;
use ttmem_core::machine::{Chip, Firmware, PcieRates, SensorLimits, Sensors};
use ttmem_core::snapshot::{Total, Usage};
use ttmem_core::words::{Arch, ChipId, Mono};

/// What a kind of chip reads when it does nothing, and when it does all it can.
struct Range {
    celsius: [f64; 2],
    watts: [f64; 2],
    volts: [f64; 2],
    aiclk: [f64; 2],
    axiclk: f64,
    arcclk: f64,
    limits: SensorLimits,
}

fn range(arch: Arch) -> Range {
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

/// What a chip's sensors say while so much of its memory is used. A chip that is reached through another has none.
pub(crate) fn reading(chip: &Chip, usage: &Usage, now: Mono) -> Option<SensorReading> {
    let arch = chip.arch.filter(|_| !chip.remote)?;
    Some(SensorReading { at: Some(now), sensors: sensors(chip, arch, load(usage), now), why: None })
}

/// How busy a chip is taken for, from 0 to 1: nothing if it holds nothing; what lies in L1 is what is worked on.
fn load(usage: &Usage) -> f64 {
    let share = |total: &Option<Total>| {
        let total = total.as_ref().filter(|it| it.capacity_bytes.is_some_and(|bytes| bytes > 0));
        total.map_or(0.0, |it| it.used_bytes as f64 / it.capacity_bytes.unwrap_or(1) as f64)
    };
    let (dram, l1) = (share(&usage.dram_total), share(&usage.l1_total));
    if dram == 0.0 && l1 == 0.0 { 0.0 } else { (0.15 + 0.35 * dram + 0.5 * l1).min(1.0) }
}

/// Swings between -1 and 1, each chip at a time of its own.
fn swing(chip: &Chip, now: Mono, seconds: f64) -> f64 {
    let number = match chip.id {
        ChipId::Unique(id) => id,
        ChipId::Pci(_) | ChipId::Ordinal(_) => u64::from(chip.index),
    };
    // The golden ratio spreads consecutive numbers.
    let phase = (number as f64 * 0.618_033_988_75).fract();
    (TAU * (now.0 as f64 / Mono::SECOND as f64 / seconds + phase)).sin()
}

fn sensors(chip: &Chip, arch: Arch, load: f64, now: Mono) -> Sensors {
    let it = range(arch);
    let between = |[idle, busy]: [f64; 2], share: f64| idle + (busy - idle) * share.clamp(0.0, 1.0);
    // Divided, since a tenth times a whole number is seldom what it looks like.
    let to = |value: f64, parts: f64| (value * parts).round() / parts;
    let busy = load > 0.0;
    let work = load * (1.0 + 0.12 * swing(chip, now, 7.0));
    // Warmth follows work slowly.
    let warmth = load * (1.0 + 0.05 * swing(chip, now, 31.0)) + 0.03 * (1.0 + swing(chip, now, 47.0));
    let watts = between(it.watts, work + 0.01 * (1.0 + swing(chip, now, 3.0))).round();
    let volts = to(between(it.volts, work), 1000.0);
    // Only boards with a fan of their own, which are those that end in an `a`, and only where drivers show it.
    let fan = arch == Arch::Blackhole && chip.board.as_ref().is_some_and(|name| name.ends_with('a'));
    let rate = |most: f64| Some((most * work.min(1.0) * (0.6 + 0.4 * swing(chip, now, 5.0))).round());
    let mut sensors = Sensors {
        asic_celsius: Some(to(between(it.celsius, warmth), 10.0)),
        power_watts: Some(watts),
        current_amperes: Some((watts / volts).round()),
        vcore_volts: Some(volts),
        aiclk_mhz: Some(it.aiclk[usize::from(busy)]),
        axiclk_mhz: Some(it.axiclk),
        arcclk_mhz: Some(it.arcclk),
        fan_rpm: fan.then(|| to(between([1500.0, 3600.0], warmth), 0.1)),
        // The firmware counts ten times a second.
        heartbeat: Some(now.0 / (Mono::SECOND / 10)),
        heartbeat_beats: Some(true),
        thermal_trips: Some(0),
        limits: it.limits,
        pcie: Some(PcieRates {
            host_reads_bytes_per_second: rate(120e6),
            host_writes_bytes_per_second: rate(900e6),
            device_reads_bytes_per_second: rate(2.4e9),
            device_writes_bytes_per_second: rate(600e6),
        }),
        ..Sensors::default()
    };
    if !fan {
        sensors.absent.insert("fan_rpm".to_owned(), "this board has no fan of its own".to_owned());
    }
    sensors
}

/// Versions as such chips have them.
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

    /// Every board, at all times, with any load.
    fn all() -> impl Iterator<Item = (Chip, Usage, Mono)> {
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
    fn all_is_below_its_limits_and_nothing_below_nothing() {
        for (chip, usage, now) in all().filter(|(chip, ..)| !chip.remote) {
            let it = reading(&chip, &usage, now).unwrap();
            assert_eq!(it.at, Some(now));
            let it = it.sensors;
            for (value, limit) in [
                (it.asic_celsius, it.limits.asic_celsius),
                (it.power_watts, it.limits.power_watts),
                (it.current_amperes, it.limits.current_amperes),
                (it.vcore_volts, it.limits.vcore_volts),
            ] {
                assert!(
                    value.unwrap() > 0.0 && value <= limit,
                    "{value:?} of {limit:?}: {chip:?} at {now:?}"
                );
            }
            let pcie = it.pcie.unwrap();
            assert!(pcie.host_writes_bytes_per_second.unwrap() >= 0.0);
            assert_eq!(it.fan_rpm.is_none(), it.absent.contains_key("fan_rpm"));
            assert_eq!(reading(&chip, &usage, now), reading(&chip, &usage, now));
            for value in [it.asic_celsius, it.vcore_volts, it.fan_rpm].into_iter().flatten() {
                assert!(value.to_string().len() <= 5, "{value} is as short as it is written");
            }
        }
    }

    #[test]
    fn who_works_is_warmer_and_faster_than_who_does_not() {
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
    fn a_remote_chip_has_none() {
        let chips = "n300".parse::<Machine>().unwrap().chips();
        let has: Vec<bool> = chips.iter().map(|it| reading(it, &usage(1, 1), Mono(1)).is_some()).collect();
        assert_eq!(has, [true, false]);
    }
}
