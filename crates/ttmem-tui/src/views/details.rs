//! Everything known about one thing, in words: figures with their units, or the reason why there is none.

use super::Scene;
use super::main_view::notes;
use crate::lists;
use crate::ui::Subject;
use ttmem_core::snapshot::{
    Allocation, AuditResult, Core, Device, Event, Finding, Process, ProgramRow, Total, Tracking, Usage,
};
use ttmem_core::words::Space;
use ttmem_render::figure::{DASH, about, age, counted, percent, ranges, rate, rectangle, share, since, size};
use ttmem_render::usage::is_gap_certain;
use ttmem_render::{Reading, Value, device, label, program};

/// How a fact is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Bad,
    Heading,
}

/// One line, or more if it is long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fact {
    pub(super) label: String,
    pub(super) text: String,
    pub(super) tone: Tone,
}

fn fact(label: impl Into<String>, text: impl Into<String>) -> Fact {
    Fact { label: label.into(), text: text.into(), tone: Tone::Plain }
}

fn heading(label: impl Into<String>) -> Fact {
    Fact { label: label.into(), text: String::new(), tone: Tone::Heading }
}

fn known(text: Option<&String>) -> String {
    text.cloned().unwrap_or_else(|| DASH.to_owned())
}

const SPACES: [Space; 10] = [
    Space::Dram,
    Space::Trace,
    Space::L1,
    Space::L1Core,
    Space::L1Small,
    Space::Cb,
    Space::Dfb,
    Space::Scratch,
    Space::Kernel,
    Space::Host,
];

impl Scene<'_> {
    /// The title of a subject, and its facts.
    pub(super) fn facts(&self, subject: &Subject) -> (String, Vec<Fact>) {
        let snapshot = &self.shown.snapshot;
        let gone = |title: &str| (title.to_owned(), vec![fact("", "It no longer exists.")]);
        let process =
            |key: &str| snapshot.processes.iter().find(|it| key.starts_with(&lists::process_key(it)));
        match subject {
            Subject::Device(id) => match snapshot.devices.iter().find(|it| it.id == *id) {
                Some(it) => (format!("Device {}", device::number_and_board(it)), self.device(it)),
                None => gone("Device"),
            },
            Subject::Process(key) => match process(key) {
                Some(it) => {
                    (format!("Process {}", lists::pid_text(it.pid, it.reported_pid)), self.process(it))
                }
                None => gone("Process"),
            },
            Subject::Program(key) => {
                let open = snapshot.programs.as_ref().and_then(|it| it.open.as_ref());
                match open.filter(|it| lists::program_key(it) == *key) {
                    Some(it) => (format!("Program {}", it.program.id), self.program(it)),
                    // It is asked for when it is opened.
                    None if self.shown.detail != self.ui.wanted(self.shown) => {
                        ("Program".to_owned(), vec![fact("", super::LOADING)])
                    }
                    None => gone("Program"),
                }
            }
            Subject::Buffer(key) => {
                let all = snapshot.buffers.iter().flat_map(|it| &it.list);
                match all.into_iter().find(|it| lists::buffer_key(it) == *key) {
                    Some(it) if it.unplaced => ("Allocation at an unknown address".to_owned(), buffer(it)),
                    Some(it) => (format!("Allocation {}", it.id), buffer(it)),
                    None => gone("Allocation"),
                }
            }
            Subject::Finding(key) => match snapshot.findings.iter().find(|it| lists::finding_key(it) == *key)
            {
                Some(it) => ("Finding".to_owned(), self.finding(it)),
                None => gone("Finding"),
            },
            Subject::Event(sequence) => {
                let all = snapshot.events.iter().flatten();
                match all.into_iter().find(|it| it.sequence == *sequence) {
                    Some(it) => ("Event".to_owned(), self.event(it)),
                    None => gone("Event"),
                }
            }
            Subject::Core(id, x, y) => {
                let device = snapshot.devices.iter().find(|it| it.id == *id);
                let core = device
                    .and_then(|it| it.cores.as_ref()?.iter().find(|it| (it.room.x, it.room.y) == (*x, *y)));
                match core {
                    Some(it) => (format!("Core {x},{y}"), self.one_core(it, device)),
                    None => gone("Core"),
                }
            }
        }
    }

    /// The index of a chip that is known by its id.
    fn index(&self, id: &str) -> String {
        let device = self.shown.snapshot.devices.iter().find(|it| it.id == id);
        device.map_or_else(|| id.to_owned(), |it| it.index.to_string())
    }

    fn device(&self, device: &Device) -> Vec<Fact> {
        let mut facts = vec![heading("Memory")];
        facts.extend(total("DRAM", device.usage.dram_total.as_ref()));
        facts.extend(total("L1", device.usage.l1_total.as_ref()));
        if device.usage.dram_total.is_none() && device.usage.l1_total.is_none() {
            facts.push(fact("In use", format!("{DASH} no process reports memory of this device")));
        }
        facts.extend(spaces(&device.usage));
        if let Some(room) = device.tightest_core {
            let text = format!(
                "{}{} at core {},{}: {:#x} to {:#x} ({})",
                size(room.free_gap_bytes),
                if is_gap_certain(&room, &device.usage) { "" } else { " or less" },
                room.x,
                room.y,
                room.program_end,
                room.lowest_buffer,
                room.basis.name()
            );
            facts.push(fact("Smallest free gap", text));
        }
        facts.push(match device.capacity {
            None => fact("Capacity", format!("{DASH} unknown board, and no runtime reported it")),
            Some(it) => {
                let origin = label::capacity_origin(it.origin);
                let text = format!(
                    "{} DRAM in {} channels, {} cores of {} L1; {origin}",
                    size(it.dram_bytes),
                    it.dram_channels,
                    it.cores,
                    size(it.l1_bytes_per_core)
                );
                fact("Capacity", text)
            }
        });
        if !device.peaks.is_empty() {
            facts.push(heading("Peaks"));
        }
        for peak in &device.peaks {
            let holders: Vec<String> = peak
                .holders
                .iter()
                .map(|it| {
                    let pid = it.pid.map_or_else(|| DASH.to_owned(), |pid| pid.to_string());
                    format!("{} ({pid}) {}", known(it.name.as_ref()), size(it.bytes))
                })
                .collect();
            let at = self.shown.clock(peak.at);
            facts.push(fact(
                peak.space.name(),
                format!("{} at {at}: {}", size(peak.bytes), holders.join(", ")),
            ));
        }
        facts.push(heading("Sensors"));
        facts.extend(sensors(device::Row { snapshot: &self.shown.snapshot, device }));
        facts
    }

    fn process(&self, process: &Process) -> Vec<Fact> {
        let start = process.start.map_or_else(
            || DASH.to_owned(),
            |at| format!("{}, {} ago", self.shown.clock(at), since(at, self.now.wall.max(at))),
        );
        let mut facts = vec![
            fact("Name", known(process.name.as_ref())),
            fact(
                "Command",
                match (&process.command, process.hidden) {
                    (None, true) => format!("{DASH} not visible to this user"),
                    (command, _) => known(command.as_ref()),
                },
            ),
            fact("User", known(process.user.as_ref())),
            fact("Started", start),
        ];
        if let Some(pid) = process.reported_pid {
            facts.push(fact("Own pid", format!("{pid} (in its PID namespace)")));
        }
        if let Some(host) = &process.host {
            let parent = host.parent_pid.map_or_else(|| DASH.to_owned(), |pid| format!("pid {pid}"));
            let cpu = host.cpu_percent.map_or_else(|| DASH.to_owned(), |it| format!("{it:.0} %"));
            facts.push(fact("Parent", parent));
            facts.push(fact("Host CPU", cpu));
            facts.push(fact("Host memory", format!("{} resident", size(host.rss_bytes))));
        }
        facts.extend(process.container.as_ref().map(|it| fact("Container", it.as_str())));
        facts.extend(process.pod.as_ref().map(|it| fact("Pod", it.as_str())));
        let opened: Vec<String> = process.open_devices.iter().map(|id| self.index(id)).collect();
        if !opened.is_empty() {
            facts.push(fact("Open devices", opened.join(", ")));
        }
        facts.push(heading("Tracking"));
        let quality = process.tracking;
        let how = match quality {
            Tracking::Untracked => {
                "untracked: has a device open and publishes nothing; start it with `ttmem run` to see its memory"
            }
            it => it.name(),
        };
        let bad = matches!(quality, Tracking::Drift | Tracking::Partial);
        facts.push(Fact { tone: bad_if(bad), ..fact("Tracking", how) });
        if let Some(it) = &process.tracker {
            facts.push(fact("Tracked by", it.writer.as_str()));
            facts.extend(it.runtime.as_ref().map(|it| fact("Runtime", it.as_str())));
            if it.hooks > 0 {
                let missing = it.missing_hooks.len();
                facts.push(if missing == 0 {
                    Fact { tone: Tone::Good, ..fact("Hooks", format!("all {}", it.hooks)) }
                } else {
                    let text = format!("{missing} of {} missing: {}", it.hooks, it.missing_hooks.join(", "));
                    Fact { tone: Tone::Bad, ..fact("Hooks", text) }
                });
            }
            facts.extend(
                it.cost_seconds.map(|it| fact("CPU time of tracking", format!("{:.1} ms", it * 1e3))),
            );
        }
        facts.extend(process.audit.iter().map(audit));
        if !process.allocators.is_empty() {
            facts.push(heading("Allocators"));
        }
        for allocator in &process.allocators {
            let chips: Vec<u32> = self
                .shown
                .snapshot
                .devices
                .iter()
                .filter(|it| allocator.devices.contains(&it.id))
                .map(|it| it.index)
                .collect();
            facts.push(fact(format!("Allocator {}", allocator.id), format!("devices {}", ranges(&chips))));
            for space in &allocator.spaces {
                let it = &space.usage;
                let largest = it.largest_free_bytes_per_bank.map_or_else(String::new, |largest| {
                    format!(", largest free block {} per bank", size(largest))
                });
                let text = format!(
                    "{} of {} in {}; {} x {}{largest}",
                    size(it.used_bytes),
                    it.allocatable_bytes.map_or_else(|| DASH.to_owned(), size),
                    it.count.map_or_else(|| DASH.to_owned(), |n| counted(n, "buffer")),
                    counted(u64::from(space.banks), "bank"),
                    size(space.bytes_per_bank)
                );
                facts.push(fact(format!("  {}", space.space), text));
            }
        }
        // A mesh holds the same on each of its devices, which is shown once.
        let mut alike: Vec<(&Usage, Vec<&str>)> = Vec::new();
        for it in &process.usage {
            match alike.iter_mut().find(|(usage, _)| **usage == it.usage) {
                Some((_, chips)) => chips.push(&it.device),
                None => alike.push((&it.usage, vec![&it.device])),
            }
        }
        for (usage, chips) in alike {
            let all = self.shown.snapshot.devices.iter();
            let indexes: Vec<u32> =
                all.filter(|it| chips.contains(&it.id.as_str())).map(|it| it.index).collect();
            let (each, s) = if indexes.len() > 1 { (" each", "s") } else { ("", "") };
            facts.push(heading(format!("On device{s} {}{each}", ranges(&indexes))));
            facts.extend(spaces(usage));
        }
        facts
    }

    fn program(&self, row: &ProgramRow) -> Vec<Fact> {
        let it = &row.program;
        let pid = lists::pid_text(row.pid, row.reported_pid);
        let of = format!("{} (pid {pid})", known(row.process_name.as_ref()));
        let mut facts = vec![
            fact("Name", known(it.name.as_ref())),
            fact("Process", of),
            fact("Kind", it.class.title()),
            fact("Devices", ranges(&it.indexes)),
        ];
        let (unreported, unsaid) = (format!("{DASH} dispatches are not reported"), "not reported");
        facts.push(match &it.cores[..] {
            [] => fact("Cores", format!("{DASH} {unsaid}")),
            cores => fact("Cores", format!("{}: {}", it.core_count, rectangles(cores))),
        });
        let all = program::all_cores(it);
        let (resident, dispatched) = if it.residency_unknown {
            (unreported.clone(), unreported)
        } else {
            (format!("{} of {all} cores", it.resident_cores), counted(it.dispatches, "time"))
        };
        facts.extend([fact("Active on", resident), fact("Dispatched", dispatched)]);
        facts.extend(it.dispatched.map(|at| {
            fact("Last", format!("{}, {} ago", self.shown.clock(at), since(at, self.now.wall.max(at))))
        }));
        let others = program::others_are_estimated(it);
        for (space, bytes) in
            [(Space::Cb, it.cb_bytes), (Space::Dfb, it.dfb_bytes), (Space::Scratch, it.scratch_bytes)]
        {
            let bytes = about(others && bytes > 0, size(bytes));
            facts.push(fact(label::space(space), format!("{bytes} on each device")));
        }
        let kernels = match it.kernel_bytes {
            0 if it.cores.is_empty() => format!("{DASH} cores unknown"),
            bytes => format!("{} on each core", about(it.estimated, size(bytes))),
        };
        facts.push(fact(label::space(Space::Kernel), kernels));
        if it.estimated {
            facts.push(fact("Estimated", "some of its sizes"));
        }
        facts.extend(it.end.map(|end| fact("Ends at", format!("{end:#x} on the core where it is highest"))));
        if it.view_count > 0 {
            facts.push(fact("Views", format!("{} of buffers (counted as buffers)", it.view_count)));
        }
        if !it.placements.is_empty() {
            facts.push(heading("L1 of the program"));
        }
        for place in &it.placements {
            let address =
                place.address.map_or_else(|| "unknown address".to_owned(), |it| format!("{it:#09x}"));
            let text = format!(
                "{address}, {} on {}{}",
                size(place.bytes),
                rectangles(&place.cores),
                if place.view { ", a view" } else { "" }
            );
            facts.push(fact(place.space.name(), text));
        }
        facts
    }

    fn finding(&self, it: &Finding) -> Vec<Fact> {
        let mut facts = vec![
            fact("Severity", label::severity(it.severity)),
            fact("Kind", label::kind(it.kind)),
            fact("Text", it.text.as_str()),
        ];
        facts.extend(it.device.as_ref().map(|id| fact("Device", self.index(id))));
        facts.extend(it.pid.map(|pid| match &it.process_name {
            Some(name) => fact("Process", format!("{name} (pid {pid})")),
            None => fact("Process", format!("pid {pid}")),
        }));
        facts.extend(it.command.as_ref().map(|it| fact("Command", it.as_str())));
        facts.extend(it.space.map(|it| fact("Space", it.name())));
        facts.extend(it.bytes.map(|it| fact("Bytes", format!("{} ({it} B)", size(it)))));
        facts.push(fact("Count", it.count.to_string()));
        facts.extend(it.first.map(|at| fact("First", self.shown.clock(at))));
        facts.extend(it.last.map(|at| fact("Last", self.shown.clock(at))));
        facts
    }

    fn event(&self, it: &Event) -> Vec<Fact> {
        let mut facts = vec![
            fact("Time", self.shown.clock(it.at)),
            fact("Kind", label::kind(it.kind)),
            fact("Text", it.text.as_str()),
        ];
        facts.extend(it.device.as_ref().map(|id| fact("Device", self.index(id))));
        facts.extend(it.pid.map(|pid| fact("Process", format!("pid {pid}"))));
        facts.extend(it.bytes.map(|it| fact("Bytes", format!("{} ({it} B)", size(it)))));
        facts
    }

    fn one_core(&self, core: &Core, device: Option<&Device>) -> Vec<Fact> {
        let room = &core.room;
        let is_certain = device.is_some_and(|it| is_gap_certain(room, &it.usage));
        let or_less = if is_certain { "" } else { " or less" };
        let mut facts = vec![
            fact("In use", percent(super::map::fill(core))),
            fact("Free gap", format!("{}{or_less} ({})", size(room.free_gap_bytes), room.basis.name())),
            fact(
                "Program ends",
                format!("{:#x}; of all cached programs {:#x}", room.program_end, room.registered_end),
            ),
            fact("Lowest buffer", format!("{:#x}", room.lowest_buffer)),
        ];
        facts.extend(
            core.program
                .as_ref()
                .map(|it| fact("Program", format!("{} {}", it.id, it.name.as_deref().unwrap_or("")))),
        );
        if let Some(peak) = &core.peak {
            let program = match (&peak.program_name, peak.program) {
                (Some(name), _) => format!(", with {name}"),
                (None, Some(id)) => format!(", with program {id}"),
                (None, None) => String::new(),
            };
            let text = format!(
                "{} at {}, of that buffers {}{program}",
                size(peak.bytes),
                self.shown.clock(peak.at),
                size(peak.buffer_bytes)
            );
            facts.push(fact("Peak", text));
        }
        facts.push(heading("Address ranges"));
        let fetched = self.shown.snapshot.core_allocations.as_ref();
        let allocations = device.map(|it| self.shown.allocations_on(it, core)).unwrap_or_default();
        for it in super::map::ranges(core, allocations) {
            facts.push(fact(it.place(), format!("{:>10}  {}", size(it.bytes), it.describe())));
        }
        let more = fetched.map_or(0, |it| it.count.saturating_sub(it.list.len() as u64));
        if more > 0 && !allocations.is_empty() {
            let (x, y) = (room.x, room.y);
            let text = format!("{} more: `ttmem dump --cores {x},{y}`", counted(more, "allocation"));
            facts.push(fact("", text));
        }
        facts
    }
}

fn buffer(it: &Allocation) -> Vec<Fact> {
    let bytes = |value: Option<u64>, why: &str| {
        value.map_or_else(|| format!("{DASH} {why}"), |it| format!("{} ({it} B)", size(it)))
    };
    let why = "not reported";
    let mut facts = vec![
        fact("Space", it.space.name()),
        fact("Devices", ranges(&it.indexes)),
        fact("Process", it.pid.map_or_else(|| DASH.to_owned(), |pid| format!("pid {pid}"))),
        fact("Requested", about(it.estimated, bytes(Some(it.requested_bytes), ""))),
        fact("Occupied", bytes(it.occupied_bytes, why)),
        fact("Allocated", bytes(it.allocated_bytes, why)),
    ];
    if it.estimated {
        facts.push(fact("Estimated", "the size"));
    }
    if it.unplaced {
        facts.push(fact("Address", format!("{DASH} {why}")));
    }
    if let (Some(bytes), Some(banks)) = (it.bytes_per_bank, it.banks) {
        facts.push(fact("Per bank", format!("{} in {}", size(bytes), counted(u64::from(banks), "bank"))));
    }
    facts.extend(it.layout.and_then(ttmem_core::words::Layout::title).map(|it| fact("Layout", it)));
    facts.extend(it.cores.as_ref().map(|it| fact("Cores", rectangles(it))));
    facts.push(fact("Age", age(it.age_seconds)));
    if it.references != 1 {
        facts.push(fact("References", it.references.to_string()));
    }
    facts.extend(it.allocator.map(|it| fact("Allocator", it.to_string())));
    facts.extend(
        it.program.map(|id| fact("Program", format!("{id} {}", it.program_name.as_deref().unwrap_or("")))),
    );
    facts.extend(it.site.map(|id| match &it.site_name {
        Some(name) => fact("Call site", name.as_str()),
        None => fact("Call site", format!("number {id}, name unknown")),
    }));
    facts.push(fact("Basis", it.basis.name()));
    facts
}

fn total(label: &str, total: Option<&Total>) -> Option<Fact> {
    let it = total?;
    let of = it.capacity_bytes.map_or_else(|| DASH.to_owned(), size);
    let share = percent(share(it.used_bytes, it.capacity_bytes));
    Some(fact(label, format!("{} of {of}, {share} ({})", size(it.used_bytes), it.basis.name())))
}

fn spaces(usage: &Usage) -> impl Iterator<Item = Fact> {
    SPACES.into_iter().filter_map(|space| {
        let (used, _) = usage.used(space)?;
        Some(fact(label::space(space), format!("{}: {}", size(used), notes(usage, space).join(", "))))
    })
}

fn audit(it: &AuditResult) -> Fact {
    let label = format!("Drift {} {}", it.allocator, it.space);
    if !it.compared {
        return fact(label, "not audited: allocator busy, or no statistics");
    }
    if it.is_zero() {
        let text = format!("0: the allocator reports {}", size(it.allocated_bytes));
        return Fact { tone: Tone::Good, ..fact(label, text) };
    }
    let known = |drift: Option<i64>| drift.map_or_else(|| DASH.to_owned(), |it| format!("{it:+}"));
    let text = format!(
        "allocated {:+}, free {}, largest free {} bytes",
        it.drift_bytes,
        known(it.free_drift_bytes),
        known(it.largest_free_drift_bytes)
    );
    Fact { tone: Tone::Bad, ..fact(label, text) }
}

fn rectangles(cores: &[[u8; 4]]) -> String {
    match cores {
        [] => "unknown cores".to_owned(),
        all => all.iter().copied().map(rectangle).collect::<Vec<_>>().join(" "),
    }
}

fn bad_if(bad: bool) -> Tone {
    if bad { Tone::Bad } else { Tone::Plain }
}

/// What is known of a chip besides its memory, with the reasons for what is not.
pub(super) fn sensors(row: device::Row<'_>) -> Vec<Fact> {
    let mut facts = Vec::new();
    let device = row.device;
    let sensors = device.sensors.as_ref();
    if let Some(why) = &device.sensors_absent {
        facts.push(fact("Sensors", format!("{DASH} {why}")));
    } else if sensors.is_none() {
        facts.push(fact("Sensors", format!("{DASH} not read")));
    }
    if let Some(it) = sensors {
        let absent = |name: &str| {
            it.absent.get(name).cloned().unwrap_or_else(|| "not reported by the driver".to_owned())
        };
        facts.extend(device::SENSORS.into_iter().map(|(label, field)| {
            let Value::Reading(Reading { value, limit, .. }) = (field.value)(&row) else {
                return fact(label, format!("{DASH} {}", absent(field.name)));
            };
            let (unit, places) = (field.unit.sign(), field.unit.places());
            let of = limit.map_or_else(String::new, |limit| format!(", limit {limit:.places$} {unit}"));
            let over = limit.is_some_and(|limit| value >= limit);
            Fact { tone: bad_if(over), ..fact(label, format!("{value:.places$} {unit}{of}")) }
        }));
        facts.extend([
            Fact {
                tone: bad_if(it.heartbeat_beats == Some(false)),
                ..fact(
                    "Heartbeat",
                    match (it.heartbeat, it.heartbeat_beats) {
                        (None, _) => format!("{DASH} {}", absent("heartbeat")),
                        (Some(n), Some(true)) => format!("{n}, changing"),
                        (Some(n), Some(false)) => format!("{n}, not changing: the firmware may have stopped"),
                        (Some(n), None) => format!("{n}, read once so far"),
                    },
                )
            },
            Fact {
                tone: bad_if(it.thermal_trips.is_some_and(|n| n > 0)),
                ..fact(
                    "Thermal trips",
                    it.thermal_trips
                        .map_or_else(|| format!("{DASH} {}", absent("thermal_trips")), |n| n.to_string()),
                )
            },
        ]);
        match &it.pcie {
            None => facts.push(fact("PCIe", format!("{DASH} {}", absent("pcie")))),
            Some(pcie) => facts.extend([
                fact("Host reads device", rate(pcie.host_reads_bytes_per_second)),
                fact("Host writes device", rate(pcie.host_writes_bytes_per_second)),
                fact("Device reads host", rate(pcie.device_reads_bytes_per_second)),
                fact("Device writes host", rate(pcie.device_writes_bytes_per_second)),
            ]),
        }
        let old = age(it.age_ms as f64 / 1e3);
        facts.push(fact("Read", format!("{old} ago{}", if it.stale { ", out of date" } else { "" })));
    }
    let firmware = &device.firmware;
    let versions: [(&str, &Option<String>); 6] = [
        ("Firmware bundle", &firmware.bundle),
        ("ARC firmware", &firmware.arc),
        ("Ethernet firmware", &firmware.ethernet),
        ("Manager firmware", &firmware.manager),
        ("Manager bootloader", &firmware.manager_boot),
        ("Flasher", &firmware.flasher),
    ];
    facts.extend(versions.into_iter().filter_map(|(label, it)| Some(fact(label, it.as_deref()?))));
    facts.push(fact("Unique id", device.id.as_str()));
    if !device.names.is_empty() {
        facts.push(fact("Other ids", device.names.join(", ")));
    }
    facts.push(fact("PCI", known(device.pci.as_ref())));
    facts.extend(device.node.map(|n| fact("Node", format!("/dev/tenstorrent/{n}"))));
    facts.extend(device.serial.as_ref().map(|it| fact("Serial", it.as_str())));
    facts.push(fact(
        "Architecture",
        format!(
            "{}{}",
            device.arch.map_or(DASH, ttmem_core::words::Arch::title),
            if device.remote { ", reached through another device" } else { "" }
        ),
    ));
    facts
}
