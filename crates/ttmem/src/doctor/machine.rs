//! The driver, the cards, and the permissions of their nodes.

use super::{Check, MOST, Patient, count, some};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use ttmem_core::snapshot::Device;
use ttmem_core::words::Arch;
use ttmem_core::words::ranges;
use ttmem_sources::process::Processes;
use ttmem_sources::{Card, NOT_SHOWN, RESETTING, board, cards as cards_on_bus};

type Version = (u32, u32);

/// What came with which version of the driver, for which architecture, newest first.
const NEWS: [(Version, Option<Arch>, &str); 10] = [
    ((2, 9), Some(Arch::Blackhole), "the limits of sensors"),
    ((2, 7), None, "the firmware's heartbeat"),
    ((2, 5), None, "processes that have a device open (except for root)"),
    ((2, 3), Some(Arch::WormholeB0), "unique ids of devices"),
    ((2, 1), Some(Arch::Blackhole), "unique ids of devices"),
    ((2, 0), None, "PCIe traffic"),
    ((1, 32), Some(Arch::Blackhole), "boards, clocks and sensors"),
    ((1, 29), Some(Arch::WormholeB0), "the version of the firmware"),
    ((1, 28), Some(Arch::WormholeB0), "boards and clocks"),
    ((1, 27), Some(Arch::WormholeB0), "temperature and power"),
];
/// Older drivers lack figures that ttmem shows.
const GOOD: Version = (2, 5);

const INSTALL: &str = "install a newer driver from https://github.com/tenstorrent/tt-kmd/releases";
const DEMO: &str = "check the bus with `lspci -d 1e52:`; try ttmem without hardware: `ttmem demo`";

pub(super) fn driver(patient: &Patient<'_>) -> Vec<Check> {
    let snapshot = &patient.snapshot;
    let on_bus = cards_on_bus(&patient.root);
    let loaded = patient.root.path("/sys/module/tenstorrent").exists();
    vec![match &snapshot.host.driver {
        Some(version) => by_version(version, &snapshot.devices),
        None if loaded => Check::note("driver", "loaded, version unknown"),
        None if on_bus.is_empty() => Check::note("driver", "not loaded; no card needs it"),
        None => {
            let places: Vec<String> = on_bus.iter().map(|it| it.pci.to_string()).collect();
            Check::broken(
                "driver",
                format!("cards found but the driver is not loaded: {}", some(&places, MOST)),
            )
            .remedy(
                "`modprobe tenstorrent`; if there is no such module, install \
                 https://github.com/tenstorrent/tt-kmd/releases",
            )
        }
    }]
}

fn by_version(version: &str, devices: &[Device]) -> Check {
    let Some(parsed) = board::parse_version(version) else {
        return Check::note("driver", format!("tenstorrent {version}: unknown version"));
    };
    let here = |arch: Option<Arch>| {
        devices.iter().any(|it| it.node.is_some() && (arch.is_none() || it.arch == arch))
    };
    let lacks: Vec<&str> = NEWS
        .into_iter()
        .filter(|&(since, arch, _)| parsed < since && here(arch))
        .map(|(.., what)| what)
        .collect();
    let found = format!("tenstorrent {version}");
    if lacks.is_empty() {
        return Check::ok("driver", found);
    }
    let found = format!("{found} does not show {}", lacks.join(", "));
    if parsed < GOOD { Check::warning("driver", found).remedy(INSTALL) } else { Check::note("driver", found) }
}

pub(super) fn cards(patient: &Patient<'_>) -> Vec<Check> {
    let devices = &patient.snapshot.devices;
    let on_bus = devices.iter().filter(|it| it.node.is_some()).count();
    let mut checks = Vec::new();
    if let Some(trouble) = patient.sources.bus_failure() {
        checks.push(
            Check::broken("cards", format!("{} {}", trouble.path, trouble.reason))
                .remedy("make /sys readable for this user"),
        );
    }
    let mut boards: BTreeMap<&str, usize> = BTreeMap::new();
    for device in devices.iter().filter(|it| it.node.is_some()) {
        *boards.entry(device.board.as_deref().unwrap_or("unknown board")).or_default() += 1;
    }
    let boards: Vec<String> = boards.into_iter().map(|(board, n)| format!("{n} {board}")).collect();
    let seen = cards_on_bus(&patient.root);
    // New users miss half of their devices.
    let halves =
        devices.iter().any(|it| it.board.as_deref() == Some("n300")) && devices.iter().all(|it| !it.remote);
    let behind = if halves {
        "; the second device of an n300 appears when a program uses it, or with --topology"
    } else {
        ""
    };
    if on_bus > 0 {
        checks.push(Check::ok(
            "cards",
            format!("{} on the bus: {}{behind}", count(on_bus, "device"), boards.join(", ")),
        ));
    } else if seen.is_empty() && patient.sources.bus_failure().is_none() {
        checks.push(Check::warning("cards", "no Tenstorrent card found").remedy(DEMO));
    }
    let driver = patient.snapshot.host.driver.as_deref();
    for device in devices {
        checks.extend(of_device(device, driver.and_then(board::parse_version)));
    }
    // Without a driver, its own check says so.
    if driver.is_some() {
        let taken = |card: &&Card| devices.iter().all(|it| it.pci != Some(card.pci.to_string()));
        checks.extend(seen.iter().filter(taken).map(left_out));
    }
    checks
}

/// A card that the driver does not list.
fn left_out(card: &Card) -> Check {
    let Card { pci, device, driver } = card;
    match driver.as_deref() {
        _ if card.is_grayskull() => {
            Check::warning("cards", format!("{pci} is a Grayskull, which current drivers do not support"))
                .remedy("ttmem does not support Grayskull; tt-kmd before 2.2 does")
        }
        Some(other) if other != "tenstorrent" => {
            Check::note("cards", format!("{pci} ({device}) is bound to {other}, as for a virtual machine"))
        }
        _ => {
            Check::broken("cards", format!("{pci} ({device}) is on the bus, but the driver does not list it"))
                .remedy("see `dmesg | grep tenstorrent`; reset the card or power-cycle the machine")
        }
    }
}

const RESET: &str = "reset it with `tt-smi -r`, or else power-cycle the machine";

/// One device: what it is, and what is wrong with it.
fn of_device(device: &Device, driver: Option<Version>) -> Vec<Check> {
    let name = format!("device {}", device.index);
    let what = described(device);
    if device.remote {
        return vec![Check::ok(&name, format!("{what}; remote, so its sensors are not readable"))];
    }
    let Some(node) = device.node else {
        let found = format!("{what}; reported by a process, but not listed by the driver");
        return vec![Check::note(&name, found)];
    };
    let mut checks = Vec::new();
    let why = device.sensors_absent.as_deref();
    // Which version shows sensors of it at all.
    let since = if device.arch == Some(Arch::Blackhole) { (1, 32) } else { (1, 27) };
    checks.push(match (&device.sensors, why) {
        (Some(it), None) => {
            let values = [(it.asic_celsius, "°C"), (it.power_watts, "W"), (it.aiclk_mhz, "MHz")];
            let values = values.map(|(value, unit)| value.map(|value| format!("{value:.0} {unit}")));
            Check::ok(
                &name,
                format!("{what}: {}", values.into_iter().flatten().collect::<Vec<_>>().join(", ")),
            )
        }
        (_, Some(why)) if why == RESETTING => Check::warning(&name, format!("{what}: being reset"))
            .remedy("run `ttmem doctor` again after the reset"),
        (Some(_), Some(why)) => Check::warning(&name, format!("{what}: {why}"))
            .remedy(format!("unless it is being reset, {RESET}")),
        (None, _) if driver.is_some_and(|it| it < since) => {
            Check::note(&name, format!("{what}: this driver has no sensors for it"))
        }
        (None, why) => {
            Check::broken(&name, format!("{what}: {}", why.unwrap_or("no sensor values"))).remedy(RESET)
        }
    });
    let has_ids =
        driver.is_none_or(|it| it >= if device.arch == Some(Arch::Blackhole) { (2, 1) } else { (2, 3) });
    if !device.id.starts_with("0x") && has_ids {
        let found = format!("node {node} has no unique id: tt-metal counters may not be attributed to it");
        checks.push(
            Check::warning(&name, found).remedy("update its firmware, or reset it if it had an id before"),
        );
    }
    let Some(sensors) = &device.sensors else { return checks };
    let wrong = ["asic_celsius", "power_watts", "current_amperes", "vcore_volts", "aiclk_mhz"];
    let wrong = wrong.iter().filter_map(|&key| Some((key, sensors.absent.get(key)?)));
    let wrong: Vec<String> =
        wrong.filter(|(_, why)| *why != NOT_SHOWN).map(|(key, why)| format!("{key}: {why}")).collect();
    if !wrong.is_empty() && why.is_none() {
        checks.push(
            Check::warning(&name, format!("invalid sensor values: {}", wrong.join("; "))).remedy(RESET),
        );
    }
    if let (Some(now), Some(limit)) = (sensors.asic_celsius, sensors.limits.asic_celsius)
        && now >= limit
    {
        let found = format!("{now:.0} °C: it throttles at {limit:.0} °C");
        checks.push(Check::warning(&name, found).remedy("check its cooling"));
    }
    if let Some(trips) = sensors.thermal_trips.filter(|&trips| trips > 0) {
        let found = format!("{trips} thermal shutdowns since power-on");
        checks.push(Check::warning(&name, found).remedy("check its cooling"));
    }
    checks
}

/// Board, architecture and address of a device.
fn described(device: &Device) -> String {
    let board = device.board.as_deref().unwrap_or("unknown board");
    let mut what = format!("{board} ({})", device.arch.map_or("unknown", Arch::title));
    let more = [
        device.pci.as_ref().map(|pci| format!(" at {pci}")),
        device.node.map(|node| format!(", node {node}")),
        device.remote.then(|| ", remote".to_owned()),
        device.firmware.bundle.as_ref().map(|version| format!(", firmware {version}")),
        device.id.starts_with("0x").then(|| format!(", id {}", device.id)),
    ];
    what.extend(more.into_iter().flatten());
    what
}

const RULE: &str = "install the driver's udev rule, SUBSYSTEM==\"tenstorrent\", MODE=\"0666\", as \
                    /etc/udev/rules.d/50-tenstorrent.rules; then `udevadm control --reload` and \
                    `udevadm trigger --subsystem-match=tenstorrent`";

/// The device nodes, which are never opened.
pub(super) fn nodes(patient: &Patient<'_>) -> Vec<Check> {
    let mut alike: BTreeMap<Option<(u32, u32, u32)>, Vec<u32>> = BTreeMap::new();
    for node in patient.snapshot.devices.iter().filter_map(|it| it.node) {
        let found = fs::metadata(patient.root.path(&format!("/dev/tenstorrent/{node}"))).ok();
        let who = found.map(|it| (it.mode() & 0o777, it.uid(), it.gid()));
        alike.entry(who).or_default().push(node);
    }
    let mut users = Processes::new(&patient.root);
    let judge = |(who, nodes): (Option<(u32, u32, u32)>, Vec<u32>)| {
        let nodes = format!("/dev/tenstorrent/{}", ranges(&nodes));
        let Some((mode, uid, gid)) = who else {
            return Check::warning("nodes", format!("{nodes} missing: programs cannot open these devices"))
                .remedy("run `udevadm trigger --subsystem-match=tenstorrent`; start containers with --device /dev/tenstorrent");
        };
        let (user, may) = (users.user_name(uid), |bits: u32| mode & bits == bits);
        if may(0o666) {
            Check::ok("nodes", format!("{nodes}: every user has access ({mode:04o})"))
        } else if may(0o660) && gid != 0 {
            Check::note("nodes", format!("{nodes}: only {user} and group {gid} have access ({mode:04o})"))
                .remedy(format!("add users of the devices to group {gid}"))
        } else {
            Check::warning("nodes", format!("{nodes}: only {user} has access ({mode:04o})")).remedy(RULE)
        }
    };
    alike.into_iter().map(judge).collect()
}
