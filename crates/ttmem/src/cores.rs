//! `ttmem dump --cores`: the L1 of each core by address.

use crate::cli::{Cores, DumpArgs};
use crate::source::unless_absent;
use crate::text::{cut, size};
use crate::{Exit, listing, print, show};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use ttmem_core::machine::{CapacityOrigin, CoreLayout};
use ttmem_core::snapshot::{self, Allocation, Core, CoreClass, CorePeak, CoreProgram, Device, Interval};
use ttmem_core::words::{Basis, Layout, Space};
use ttmem_core::{CoreSet, Detail, Snapshot};
use ttmem_reader::Reader;
use ttmem_render::cores::{DUMP, titled};
use ttmem_render::figure::rectangle;
use ttmem_render::{device, heading, label, line, usage};

/// Rectangles of cores that are shown one by one.
const RECTANGLES: usize = 3;

#[derive(Serialize)]
struct Dump<'a> {
    schema: u32,
    at: jiff::Timestamp,
    simulated: bool,
    devices: Vec<OnDevice<'a>>,
}

#[derive(Serialize)]
struct OnDevice<'a> {
    id: &'a str,
    index: u32,
    core_layout: Option<CoreLayout>,
    /// `null` where the core layout is unknown.
    cores: Option<snapshot::Cores>,
    /// The allocations on the core, if one was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    allocations: Option<Vec<&'a Allocation>>,
}

pub(crate) fn dump(args: &DumpArgs, wanted: Cores, source: &mut Reader) -> anyhow::Result<Exit> {
    let Some(snapshot) = unless_absent(source.snapshot(&Detail { cores: true, ..Detail::NONE }))? else {
        return Ok(Exit::NoDaemon);
    };
    let snapshot = show::only(snapshot, &args.only)?;
    let mut allocations = Vec::new();
    if let Cores::One(x, y) = wanted {
        check(&snapshot, x, y)?;
        let Some(all) = listing::all(source)? else { return Ok(Exit::NoDaemon) };
        allocations = all.allocations;
    }
    if args.json {
        let mut line = serde_json::to_vec(&as_data(&snapshot, wanted, &allocations))?;
        line.push(b'\n');
        print(&line)?;
    } else {
        print(render(&snapshot, wanted, &allocations).as_bytes())?;
    }
    if snapshot.devices.iter().all(|device| device.cores.is_none()) {
        if args.json || snapshot.devices.is_empty() {
            let _ = writeln!(
                io::stderr(),
                "ttmem: the core layout of no device is known; run the program with `ttmem run`"
            );
        }
        return Ok(Exit::NothingThere);
    }
    Ok(Exit::Done)
}

/// Fails if no device has that core.
fn check(snapshot: &Snapshot, x: u8, y: u8) -> anyhow::Result<()> {
    let mut grids = Vec::new();
    for device in &snapshot.devices {
        let Some(layout) = device.core_layout.filter(|_| device.cores.is_some()) else { continue };
        if x < layout.columns && y < layout.rows {
            return Ok(());
        }
        grids.push(format!(
            "device {} has {} x {} cores, 0,0 to {},{}",
            device.index,
            layout.columns,
            layout.rows,
            layout.columns.saturating_sub(1),
            layout.rows.saturating_sub(1)
        ));
    }
    grids.dedup_by(|a, b| a.split_once(" has ").map(|it| it.1) == b.split_once(" has ").map(|it| it.1));
    anyhow::ensure!(grids.is_empty(), "--cores {x},{y}: no such core; {}", grids.join("; "));
    Ok(())
}

fn as_data<'a>(snapshot: &'a Snapshot, wanted: Cores, all: &'a [Allocation]) -> Dump<'a> {
    let of = |device: &'a Device| {
        let chosen = |it: &&Core| wanted.has(it.room.x, it.room.y);
        let cores: Option<Vec<Core>> =
            device.cores.as_ref().map(|cores| cores.iter().filter(chosen).cloned().collect());
        let one = cores.as_ref().and_then(|cores| cores.first()).filter(|_| wanted != Cores::All);
        OnDevice {
            id: &device.id,
            index: device.index,
            core_layout: device.core_layout,
            allocations: one.map(|core| on_core(device, core, all).into_iter().map(|it| it.0).collect()),
            cores: cores.map(snapshot::Cores),
        }
    };
    Dump {
        schema: snapshot.schema,
        at: snapshot.at,
        simulated: snapshot.simulated,
        devices: snapshot.devices.iter().map(of).collect(),
    }
}

fn render(snapshot: &Snapshot, wanted: Cores, allocations: &[Allocation]) -> String {
    let mut page = String::new();
    for (n, device) in snapshot.devices.iter().enumerate() {
        if n > 0 {
            page.push('\n');
        }
        let _ = write!(page, "Device {} ({}, {})", device.index, device::name(device), device.id);
        let (Some(layout), Some(cores)) = (device.core_layout, &device.cores) else {
            let why = why_unknown(device);
            let _ = writeln!(page, ": core layout unknown:\n  {why}");
            continue;
        };
        let Cores::One(x, y) = wanted else {
            all_cores(&mut page, device, &layout, cores);
            continue;
        };
        match cores.iter().find(|it| (it.room.x, it.room.y) == (x, y)) {
            Some(core) => one_core(&mut page, device, core, &on_core(device, core, allocations)),
            None => {
                let _ = writeln!(page, ": no core {x},{y}; it has {} x {}", layout.columns, layout.rows);
            }
        }
    }
    page
}

/// A table of all cores of a device.
fn all_cores(page: &mut String, device: &Device, layout: &CoreLayout, cores: &[Core]) {
    // The others are the runtime's own, to dispatch from.
    let of_all = device.capacity.map(|it| it.cores).filter(|&all| all as usize > cores.len());
    let _ = writeln!(
        page,
        ": {} x {}{} cores; L1 of each: {} reserved, {} kernel config buffer, shared from {:#x} to {:#x}",
        layout.columns,
        layout.rows,
        of_all.map(|all| format!(" of {all}")).unwrap_or_default(),
        size(layout.kernel_config),
        size(layout.unreserved - layout.kernel_config.min(layout.unreserved)),
        layout.unreserved,
        layout.end
    );
    let mut groups: Vec<(String, CoreSet)> = Vec::new();
    for core in cores {
        // Cores that show the same share a row, whatever else is known of them.
        let shown = line(DUMP, &core);
        let number = core.room.y * CoreSet::WIDTH + core.room.x;
        match groups.iter_mut().find(|(it, _)| *it == shown) {
            Some((_, set)) => set.insert(number),
            None => {
                let mut set = CoreSet::default();
                set.insert(number);
                groups.push((shown, set));
            }
        }
    }
    let names: Vec<String> = groups.iter().map(|(_, set)| places(*set)).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0).max("CORES".len());
    let _ = writeln!(page, "{:<width$} {}", "CORES", heading(DUMP));
    for ((shown, _), name) in groups.iter().zip(names) {
        let _ = writeln!(page, "{name:<width$} {shown}");
    }
    may_be_less(page, device, cores.iter().all(|core| core.room.basis == Basis::Exact));
}

/// Why the core layout of a device is unknown, and what to do about it.
fn why_unknown(device: &Device) -> &'static str {
    let mut programs = Space::PROGRAM.iter().filter_map(|space| usage::programs(&device.usage, *space));
    let published = programs.any(|it| it.basis == Basis::Exact);
    let sized = device.capacity.is_some_and(|it| it.origin == CapacityOrigin::Runtime);
    match (published, sized) {
        (false, _) => "no process there publishes programs; start it with `ttmem run`",
        (true, true) => {
            "the process that publishes programs there does not publish the core grid (columns and rows)"
        }
        (true, false) => {
            "the process that publishes programs there does not publish the core grid (columns and rows) or \
             l1_bytes_per_core"
        }
    }
}

/// Says so if free gaps may be smaller than shown.
fn may_be_less(page: &mut String, device: &Device, placed: bool) {
    for (space, it) in usage::on_cores(&device.usage) {
        let bytes =
            if it.resident_bytes.is_some() { it.residency_unknown_bytes } else { it.registered_bytes };
        if bytes > 0 {
            let what = label::space(space).to_lowercase();
            let _ = writeln!(page, "{} of {what} on the device may be active or only cached", size(bytes));
        }
    }
    if !placed || !usage::is_followed(&device.usage) {
        page.push_str("Not all L1 memory has a known address and time: the free gap may be smaller.\n");
    }
}

/// One core, address by address.
fn one_core(page: &mut String, device: &Device, core: &Core, held: &[(&Allocation, CoreClass)]) {
    let room = core.room;
    let _ = writeln!(
        page,
        ", core {},{}: free gap {}, {:#x} to {:#x}",
        room.x,
        room.y,
        size(room.free_gap_bytes),
        room.program_end,
        room.lowest_buffer
    );
    match &core.program {
        Some(program) => {
            let _ = writeln!(page, "Last program: {}", titled(program));
        }
        None => page.push_str("No program was dispatched.\n"),
    }
    if let Some(peak) = &core.peak {
        let _ = writeln!(page, "Peak: {}", peaked(peak));
    }
    for it in core.intervals.iter() {
        let end = it.start + it.bytes;
        let _ = writeln!(
            page,
            "{:#08x}-{end:#08x} {:>11}  {}",
            it.start,
            size(it.bytes),
            label::core_class(it.class)
        );
        for (allocation, _) in held.iter().filter(|(of, class)| *class == it.class && lies_in(of, it)) {
            let _ = writeln!(page, "{:31}{}", "", described(allocation));
        }
    }
    let unplaced = |class: CoreClass| {
        let of = held.iter().filter(|(it, of)| it.unplaced && *of == class);
        of.map(|(it, _)| bytes_here(it)).fold(0, u64::saturating_add)
    };
    let mut placed = room.basis == Basis::Exact;
    for class in [CoreClass::Cb, CoreClass::Dfb, CoreClass::Scratch] {
        let bytes = unplaced(class);
        if bytes > 0 {
            placed = false;
            let _ = writeln!(page, "{} of {} at unknown addresses", size(bytes), label::core_class(class));
        }
    }
    may_be_less(page, device, placed);
}

fn peaked(peak: &CorePeak) -> String {
    let mut text = format!("{}, {} of it buffers", size(peak.bytes), size(peak.buffer_bytes));
    if let Some(id) = peak.program {
        let name = peak.program_name.clone();
        let program = CoreProgram { pid: peak.pid, allocator: None, id, name };
        let _ = write!(text, ", with {}", titled(&program));
    }
    text
}

fn described(it: &Allocation) -> String {
    let mut text = format!("{} {}", it.id, size(bytes_here(it)));
    let _ = write!(text, ", {}", it.space);
    if let Some(layout) = it.layout.and_then(Layout::title) {
        let _ = write!(text, " {layout}");
    }
    if let Some(pid) = it.pid {
        let _ = write!(text, ", pid {pid}");
    }
    if let Some(program) = it.program {
        let name = it.program_name.as_ref().map(|name| format!(" {}", cut(name, 40))).unwrap_or_default();
        let _ = write!(text, ", program {program}{name}");
    }
    if let Some(site) = &it.site_name {
        let _ = write!(text, ", at {}", cut(site, 40));
    }
    text
}

fn address(it: &Allocation) -> u64 {
    u64::from_str_radix(it.id.trim_start_matches("0x"), 16).unwrap_or(u64::MAX)
}

/// Bytes on each core.
fn bytes_here(it: &Allocation) -> u64 {
    it.bytes_per_bank.unwrap_or(it.requested_bytes)
}

/// Whether an allocation overlaps an interval; one without an address does not.
fn lies_in(it: &Allocation, interval: &Interval) -> bool {
    let start = address(it);
    let end = start.saturating_add(bytes_here(it));
    !it.unplaced && start < interval.start + interval.bytes && end > interval.start
}

/// The allocations on a core with their class, by address.
fn on_core<'a>(device: &Device, core: &Core, all: &'a [Allocation]) -> Vec<(&'a Allocation, CoreClass)> {
    let (x, y) = (core.room.x, core.room.y);
    let within = |&[x0, y0, x1, y1]: &[u8; 4]| (x0..=x1).contains(&x) && (y0..=y1).contains(&y);
    let class = |it: &Allocation| {
        if it.basis != Basis::Exact || !it.devices.contains(&device.id) {
            return None;
        }
        let on = it.cores.as_ref().map(|cores| cores.iter().any(within));
        let resident = || {
            let program = core.program.as_ref()?;
            let mine =
                (it.pid, it.allocator, it.program) == (program.pid, program.allocator, Some(program.id));
            // Where no cores are named, the first stands for all.
            (mine && on.unwrap_or((x, y) == (0, 0)) && it.layout != Some(Layout::View)).then_some(())
        };
        match it.space {
            Space::L1 | Space::L1Small if on == Some(false) => Some(CoreClass::Lockstep),
            Space::L1 => Some(CoreClass::Buffer),
            Space::L1Small => Some(CoreClass::L1Small),
            Space::L1Core => on.filter(|on| *on).map(|_| CoreClass::Buffer),
            Space::Cb => resident().map(|()| CoreClass::Cb),
            Space::Dfb => resident().map(|()| CoreClass::Dfb),
            Space::Scratch => resident().map(|()| CoreClass::Scratch),
            Space::Dram | Space::Trace | Space::Kernel | Space::Host => None,
        }
    };
    let mut found: Vec<_> = all.iter().filter_map(|it| Some((it, class(it)?))).collect();
    found.sort_by_key(|(it, _)| (address(it), it.pid, it.requested_bytes));
    found
}

/// `0,0-7,6`, as far as there is room.
fn places(cores: CoreSet) -> String {
    let rectangles = cores.rectangles();
    let mut text: Vec<String> = rectangles.iter().take(RECTANGLES).copied().map(rectangle).collect();
    if rectangles.len() > RECTANGLES {
        text.push(format!("... ({} cores)", cores.count()));
    }
    text.join(" ")
}
