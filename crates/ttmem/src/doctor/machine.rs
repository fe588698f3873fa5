//! The driver, the cards, and the permissions of their nodes.

use super::{Check, Inputs, MAX_ITEMS, join_first, plural};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use ttmem_core::snapshot::Device;
use ttmem_core::words::Arch;
use ttmem_core::words::ranges;
use ttmem_sources::process::Processes;
use ttmem_sources::{Card, NOT_SHOWN, RESETTING, board, cards as cards_on_bus};

type Version = (u32, u32);

/// Features of the driver by version and architecture, newest first.
const FEATURES: [(Version, Option<Arch>, &str); 10] = [
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
/// The recommended version: older drivers lack figures that ttmem shows.
const RECOMMENDED: Version = (2, 5);

const INSTALL: &str = "install a newer driver from https://github.com/tenstorrent/tt-kmd/releases";
const DEMO: &str = "check the bus with `lspci -d 1e52:`; try ttmem without hardware: `ttmem demo`";

pub(super) fn check_driver(inputs: &Inputs<'_>) -> Vec<Check> {
    let snapshot = &inputs.snapshot;
    let on_bus = cards_on_bus(&inputs.root);
    let loaded = inputs.root.path("/sys/module/tenstorrent").exists();
    vec![match &snapshot.host.driver {
        Some(version) => check_version(version, &snapshot.devices),
        None if loaded => Check::note("driver", "loaded, version unknown"),
        None if on_bus.is_empty() => Check::note("driver", "not loaded; no card needs it"),
        None => {
            let addresses: Vec<String> = on_bus.iter().map(|it| it.pci.to_string()).collect();
            let addresses = join_first(&addresses, MAX_ITEMS);
            Check::broken("driver", format!("cards found but the driver is not loaded: {addresses}")).remedy(
                "`modprobe tenstorrent`; if there is no such module, install \
                 https://github.com/tenstorrent/tt-kmd/releases",
            )
        }
    }]
}

fn check_version(version: &str, devices: &[Device]) -> Check {
    let Some(parsed) = board::parse_version(version) else {
        return Check::note("driver", format!("tenstorrent {version}: unknown version"));
    };
    let is_present = |arch: Option<Arch>| {
        devices.iter().any(|it| it.node.is_some() && (arch.is_none() || it.arch == arch))
    };
    let missing: Vec<&str> = FEATURES
        .into_iter()
        .filter(|&(since, arch, _)| parsed < since && is_present(arch))
        .map(|(.., feature)| feature)
        .collect();
    let found = format!("tenstorrent {version}");
    if missing.is_empty() {
        return Check::ok("driver", found);
    }
    let found = format!("{found} does not show {}", missing.join(", "));
    if parsed < RECOMMENDED {
        Check::warning("driver", found).remedy(INSTALL)
    } else {
        Check::note("driver", found)
    }
}

pub(super) fn check_cards(inputs: &Inputs<'_>) -> Vec<Check> {
    let devices = &inputs.snapshot.devices;
    let on_bus = devices.iter().filter(|it| it.node.is_some()).count();
    let mut checks = Vec::new();
    if let Some(problem) = inputs.sources.bus_failure() {
        checks.push(
            Check::broken("cards", format!("{} {}", problem.path, problem.reason))
                .remedy("make /sys readable for this user"),
        );
    }
    let mut boards: BTreeMap<&str, usize> = BTreeMap::new();
    for device in devices.iter().filter(|it| it.node.is_some()) {
        *boards.entry(device.board.as_deref().unwrap_or("unknown board")).or_default() += 1;
    }
    let boards: Vec<String> = boards.into_iter().map(|(board, n)| format!("{n} {board}")).collect();
    let cards = cards_on_bus(&inputs.root);
    // New users of an n300 expect two devices.
    let lacks_remote =
        devices.iter().any(|it| it.board.as_deref() == Some("n300")) && devices.iter().all(|it| !it.remote);
    let remote_note = if lacks_remote {
        "; the second device of an n300 appears when a program uses it, or with --topology"
    } else {
        ""
    };
    if on_bus > 0 {
        checks.push(Check::ok(
            "cards",
            format!("{} on the bus: {}{remote_note}", plural(on_bus, "device"), boards.join(", ")),
        ));
    } else if cards.is_empty() && inputs.sources.bus_failure().is_none() {
        checks.push(Check::warning("cards", "no Tenstorrent card found").remedy(DEMO));
    }
    let driver = inputs.snapshot.host.driver.as_deref();
    for device in devices {
        checks.extend(check_device(device, driver.and_then(board::parse_version)));
    }
    // A missing driver is reported by its own check.
    if driver.is_some() {
        let is_unlisted = |card: &&Card| devices.iter().all(|it| it.pci != Some(card.pci.to_string()));
        checks.extend(cards.iter().filter(is_unlisted).map(check_unlisted_card));
    }
    checks
}

/// Checks a card that the driver does not list.
fn check_unlisted_card(card: &Card) -> Check {
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

/// Checks one device.
fn check_device(device: &Device, driver: Option<Version>) -> Vec<Check> {
    let name = format!("device {}", device.index);
    let text = describe_device(device);
    if device.remote {
        let inferred = if device.inferred { "; inferred from its board, not used yet" } else { "" };
        return vec![Check::ok(&name, format!("{text}{inferred}; remote, so its sensors are not readable"))];
    }
    let Some(node) = device.node else {
        let found = format!("{text}; reported by a process, but not listed by the driver");
        return vec![Check::note(&name, found)];
    };
    let mut checks = Vec::new();
    let reason = device.sensors_absent.as_deref();
    let is_blackhole = device.arch == Some(Arch::Blackhole);
    // The first version with sensors of this architecture.
    let since = if is_blackhole { (1, 32) } else { (1, 27) };
    checks.push(match (&device.sensors, reason) {
        (Some(sensors), None) => {
            let readings =
                [(sensors.asic_celsius, "°C"), (sensors.power_watts, "W"), (sensors.aiclk_mhz, "MHz")];
            let known =
                readings.into_iter().filter_map(|(value, unit)| Some(format!("{:.0} {unit}", value?)));
            Check::ok(&name, format!("{text}: {}", known.collect::<Vec<_>>().join(", ")))
        }
        (_, Some(reason)) if reason == RESETTING => Check::warning(&name, format!("{text}: being reset"))
            .remedy("run `ttmem doctor` again after the reset"),
        (Some(_), Some(reason)) => Check::warning(&name, format!("{text}: {reason}"))
            .remedy(format!("unless it is being reset, {RESET}")),
        (None, _) if driver.is_some_and(|version| version < since) => {
            Check::note(&name, format!("{text}: this driver has no sensors for it"))
        }
        (None, reason) => {
            Check::broken(&name, format!("{text}: {}", reason.unwrap_or("no sensor values"))).remedy(RESET)
        }
    });
    let has_ids = driver.is_none_or(|version| version >= if is_blackhole { (2, 1) } else { (2, 3) });
    if !device.id.starts_with("0x") && has_ids {
        let found = format!("node {node} has no unique id: tt-metal counters may not be attributed to it");
        checks.push(
            Check::warning(&name, found).remedy("update its firmware, or reset it if it had an id before"),
        );
    }
    let Some(sensors) = &device.sensors else { return checks };
    let keys = ["asic_celsius", "power_watts", "current_amperes", "vcore_volts", "aiclk_mhz"];
    let absent = keys.iter().filter_map(|&key| Some((key, sensors.absent.get(key)?)));
    let invalid: Vec<String> =
        absent.filter(|(_, why)| *why != NOT_SHOWN).map(|(key, why)| format!("{key}: {why}")).collect();
    if !invalid.is_empty() && reason.is_none() {
        checks.push(
            Check::warning(&name, format!("invalid sensor values: {}", invalid.join("; "))).remedy(RESET),
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
fn describe_device(device: &Device) -> String {
    let board = device.board.as_deref().unwrap_or("unknown board");
    let mut text = format!("{board} ({})", device.arch.map_or("unknown", Arch::title));
    let more = [
        device.pci.as_ref().map(|pci| format!(" at {pci}")),
        device.node.map(|node| format!(", node {node}")),
        device.remote.then(|| ", remote".to_owned()),
        device.firmware.bundle.as_ref().map(|version| format!(", firmware {version}")),
        device.id.starts_with("0x").then(|| format!(", id {}", device.id)),
    ];
    text.extend(more.into_iter().flatten());
    text
}

const RULE: &str = "install the driver's udev rule, SUBSYSTEM==\"tenstorrent\", MODE=\"0666\", as \
                    /etc/udev/rules.d/50-tenstorrent.rules; then `udevadm control --reload` and \
                    `udevadm trigger --subsystem-match=tenstorrent`";

/// Checks the device nodes, without opening them.
pub(super) fn check_nodes(inputs: &Inputs<'_>) -> Vec<Check> {
    let mut by_access: BTreeMap<Option<(u32, u32, u32)>, Vec<u32>> = BTreeMap::new();
    for node in inputs.snapshot.devices.iter().filter_map(|it| it.node) {
        let found = fs::metadata(inputs.root.path(&format!("/dev/tenstorrent/{node}"))).ok();
        let access = found.map(|it| (it.mode() & 0o777, it.uid(), it.gid()));
        by_access.entry(access).or_default().push(node);
    }
    let mut users = Processes::new(&inputs.root);
    let check = |(access, nodes): (Option<(u32, u32, u32)>, Vec<u32>)| {
        let nodes = format!("/dev/tenstorrent/{}", ranges(&nodes));
        let Some((mode, uid, gid)) = access else {
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
    by_access.into_iter().map(check).collect()
}
