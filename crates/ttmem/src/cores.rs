//! `ttmem dump --cores`: the L1 of each core by address.

use crate::cli::{CoreSelection, DumpArgs};
use crate::listing::{self, print_csv, print_json};
use crate::query::Format;
use crate::source::answer_or_report;
use crate::text::{size, truncate};
use crate::{Exit, print, show};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use ttmem_core::machine::{CapacityOrigin, CoreLayout};
use ttmem_core::snapshot::{self, Allocation, Core, CoreClass, CorePeak, CoreProgram, Device, Interval};
use ttmem_core::words::{Basis, Layout, Space};
use ttmem_core::{CoreSet, Detail, Snapshot};
use ttmem_reader::Reader;
use ttmem_render::allocation::call_site;
use ttmem_render::cores::{DUMP, FIELDS, program_title};
use ttmem_render::format::core_range;
use ttmem_render::{CsvOptions, CsvPage, Unit, Value, csv_header, csv_values};
use ttmem_render::{device, format_heading, format_row, label, other_cores, usage};

/// The most core ranges that are listed one by one.
const MAX_CORE_RANGES: usize = 3;

#[derive(Serialize)]
struct Dump<'a> {
    schema: u32,
    at: jiff::Timestamp,
    simulated: bool,
    devices: Vec<DeviceCores<'a>>,
}

#[derive(Serialize)]
struct DeviceCores<'a> {
    id: &'a str,
    index: u32,
    core_layout: Option<CoreLayout>,
    /// `null` where the core layout is unknown.
    cores: Option<snapshot::Cores>,
    /// The allocations on the core, if one was selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    allocations: Option<Vec<&'a Allocation>>,
}

pub(crate) fn dump(args: &DumpArgs, selection: CoreSelection, source: &mut Reader) -> anyhow::Result<Exit> {
    let Some(snapshot) = answer_or_report(source.snapshot(&Detail { cores: true, ..Detail::NONE }))? else {
        return Ok(Exit::NoDaemon);
    };
    let snapshot = show::apply_filter(snapshot, &args.filter)?;
    let mut allocations = Vec::new();
    if let CoreSelection::One(x, y) = selection {
        ensure_core_exists(&snapshot, x, y)?;
        let Some(dump) = listing::fetch_allocations(source)? else { return Ok(Exit::NoDaemon) };
        allocations = dump.allocations;
    }
    let format = args.format();
    match format {
        Format::Json => print_json(&collect(&snapshot, selection, &allocations), None)?,
        Format::Csv(options) => print_csv(&format_csv(&snapshot, selection, options), None)?,
        Format::Table => print(format_page(&snapshot, selection, &allocations).as_bytes())?,
    };
    if snapshot.devices.iter().all(|device| device.cores.is_none()) {
        if format != Format::Table || snapshot.devices.is_empty() {
            let _ = writeln!(
                io::stderr(),
                "ttmem: the core layout of no device is known; run the program with `ttmem run`"
            );
        }
        return Ok(Exit::NothingFound);
    }
    Ok(Exit::Done)
}

/// Fails if no device has that core.
fn ensure_core_exists(snapshot: &Snapshot, x: u8, y: u8) -> anyhow::Result<()> {
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

/// Collects the content of the JSON output.
fn collect<'a>(snapshot: &'a Snapshot, selection: CoreSelection, all: &'a [Allocation]) -> Dump<'a> {
    let device_cores = |device: &'a Device| {
        let is_selected = |it: &&Core| selection.contains(it.room.x, it.room.y);
        let cores: Option<Vec<Core>> =
            device.cores.as_ref().map(|cores| cores.iter().filter(is_selected).cloned().collect());
        let first = cores.as_ref().and_then(|cores| cores.first());
        let one = first.filter(|_| selection != CoreSelection::All);
        let allocations = one.map(|core| allocations_on_core(device, core, all));
        DeviceCores {
            id: &device.id,
            index: device.index,
            core_layout: device.core_layout,
            allocations: allocations.map(|found| found.into_iter().map(|it| it.0).collect()),
            cores: cores.map(snapshot::Cores),
        }
    };
    Dump {
        schema: snapshot.schema,
        at: snapshot.at,
        simulated: snapshot.simulated,
        devices: snapshot.devices.iter().map(device_cores).collect(),
    }
}

/// Formats the selected cores as CSV, one line each.
fn format_csv(snapshot: &Snapshot, selection: CoreSelection, options: CsvOptions) -> String {
    let mut page = CsvPage::new(options);
    let names = ["device", "core"].map(|name| (Cow::Borrowed(name), Unit::None));
    page.add_header(names.into_iter().chain(csv_header(FIELDS)));
    for device in &snapshot.devices {
        let cores = device.cores.iter().flat_map(|cores| cores.iter());
        for core in cores.filter(|it| selection.contains(it.room.x, it.room.y)) {
            let place = Value::Text(Cow::Owned(format!("{},{}", core.room.x, core.room.y)));
            let names = [(Value::Count(device.index.into()), Unit::None), (place, Unit::None)];
            page.add_row(names.into_iter().chain(csv_values(FIELDS, &core)));
        }
    }
    page.into_text()
}

fn format_page(snapshot: &Snapshot, selection: CoreSelection, allocations: &[Allocation]) -> String {
    let mut page = String::new();
    for (n, device) in snapshot.devices.iter().enumerate() {
        if n > 0 {
            page.push('\n');
        }
        let _ = write!(page, "Device {} ({}, {})", device.index, device::arch_title(device), device.id);
        let (Some(layout), Some(cores)) = (device.core_layout, &device.cores) else {
            let reason = explain_unknown_layout(device);
            let _ = writeln!(page, ": core layout unknown:\n  {reason}");
            continue;
        };
        let CoreSelection::One(x, y) = selection else {
            add_all_cores(&mut page, device, &layout, cores);
            continue;
        };
        match cores.iter().find(|core| (core.room.x, core.room.y) == (x, y)) {
            Some(core) => {
                add_one_core(&mut page, device, core, &allocations_on_core(device, core, allocations));
            }
            None => {
                let _ = writeln!(page, ": no core {x},{y}; it has {} x {}", layout.columns, layout.rows);
            }
        }
    }
    page
}

/// Adds a table of all cores of a device.
fn add_all_cores(page: &mut String, device: &Device, layout: &CoreLayout, cores: &[Core]) {
    // The runtime uses the other cores for dispatch.
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
    // Cores with equal rows share one.
    let mut rows: Vec<(String, CoreSet)> = Vec::new();
    for core in cores {
        let row = format_row(DUMP, &core);
        let number = core.room.y * CoreSet::WIDTH + core.room.x;
        match rows.iter_mut().find(|(other, _)| *other == row) {
            Some((_, set)) => set.insert(number),
            None => {
                let mut set = CoreSet::default();
                set.insert(number);
                rows.push((row, set));
            }
        }
    }
    let names: Vec<String> = rows.iter().map(|(_, set)| format_cores(*set)).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0).max("CORES".len());
    let _ = writeln!(page, "{:<width$} {}", "CORES", format_heading(DUMP));
    for ((row, _), name) in rows.iter().zip(names) {
        let _ = writeln!(page, "{name:<width$} {row}");
    }
    add_gap_notes(page, device, cores.iter().all(|core| core.room.basis == Basis::Exact));
    if let Some([summary, _]) = other_cores::summaries(&device.other_cores) {
        let _ = writeln!(page, "{summary}; {}", other_cores::UNTRACKED_NOTE);
    }
}

/// Why the core layout of a device is unknown, and the remedy.
fn explain_unknown_layout(device: &Device) -> &'static str {
    let mut programs = Space::PROGRAM.iter().filter_map(|space| usage::programs(&device.usage, *space));
    let has_programs = programs.any(|it| it.basis == Basis::Exact);
    let has_capacity = device.capacity.is_some_and(|it| it.origin == CapacityOrigin::Runtime);
    match (has_programs, has_capacity) {
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

/// Adds notes if free gaps may be smaller than shown.
fn add_gap_notes(page: &mut String, device: &Device, has_all_addresses: bool) {
    for (space, programs) in usage::shared_program_usage(&device.usage) {
        let bytes = match programs.resident_bytes {
            Some(_) => programs.residency_unknown_bytes,
            None => programs.registered_bytes,
        };
        if bytes > 0 {
            let name = label::space(space).to_lowercase();
            let _ = writeln!(page, "{} of {name} on the device may be active or only cached", size(bytes));
        }
    }
    if !has_all_addresses || !usage::is_followed(&device.usage) {
        page.push_str("Not all L1 memory has a known address and time: the free gap may be smaller.\n");
    }
}

/// Adds one core by address.
fn add_one_core(page: &mut String, device: &Device, core: &Core, allocations: &[(&Allocation, CoreClass)]) {
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
            let _ = writeln!(page, "Last program: {}", program_title(program));
        }
        None => page.push_str("No program was dispatched.\n"),
    }
    if let Some(peak) = &core.peak {
        let _ = writeln!(page, "Peak: {}", format_peak(peak));
    }
    for interval in core.intervals.iter() {
        let Interval { class, start, bytes } = *interval;
        let end = start + bytes;
        let name = label::core_class(class);
        let _ = writeln!(page, "{start:#08x}-{end:#08x} {:>11}  {name}", size(bytes));
        let inside = |(it, of): &&(&Allocation, CoreClass)| *of == class && overlaps(it, interval);
        for (allocation, _) in allocations.iter().filter(inside) {
            let _ = writeln!(page, "{:31}{}", "", format_allocation(allocation));
        }
    }
    let unplaced_bytes = |class: CoreClass| {
        let unplaced = allocations.iter().filter(|(it, of)| it.unplaced && *of == class);
        unplaced.map(|(it, _)| bytes_per_core(it)).fold(0, u64::saturating_add)
    };
    let mut has_all_addresses = room.basis == Basis::Exact;
    for class in [CoreClass::Cb, CoreClass::Dfb, CoreClass::Scratch] {
        let bytes = unplaced_bytes(class);
        if bytes > 0 {
            has_all_addresses = false;
            let _ = writeln!(page, "{} of {} at unknown addresses", size(bytes), label::core_class(class));
        }
    }
    add_gap_notes(page, device, has_all_addresses);
}

fn format_peak(peak: &CorePeak) -> String {
    let mut text = format!("{}, {} of it buffers", size(peak.bytes), size(peak.buffer_bytes));
    if let Some(id) = peak.program {
        let name = peak.program_name.clone();
        let program = CoreProgram { pid: peak.pid, hidden: peak.hidden, allocator: None, id, name };
        let _ = write!(text, ", with {}", program_title(&program));
    }
    text
}

fn format_allocation(allocation: &Allocation) -> String {
    let mut text = format!("{} {}", allocation.id, size(bytes_per_core(allocation)));
    let _ = write!(text, ", {}", allocation.space);
    if let Some(layout) = allocation.layout.and_then(Layout::title) {
        let _ = write!(text, " {layout}");
    }
    if let Some(pid) = allocation.pid {
        let _ = write!(text, ", pid {pid}");
    }
    if let Some(program) = allocation.program {
        let name = allocation.program_name.as_ref().map(|name| format!(" {}", truncate(name, 40)));
        let _ = write!(text, ", program {program}{}", name.unwrap_or_default());
    }
    if let Some(site) = call_site(allocation) {
        let _ = write!(text, ", {}", truncate(&site, 60));
    }
    text
}

fn address(allocation: &Allocation) -> u64 {
    u64::from_str_radix(allocation.id.trim_start_matches("0x"), 16).unwrap_or(u64::MAX)
}

/// Bytes of an allocation on each core.
fn bytes_per_core(allocation: &Allocation) -> u64 {
    allocation.bytes_per_bank.unwrap_or(allocation.requested_bytes)
}

/// Whether an allocation overlaps an interval; one without an address does not.
fn overlaps(allocation: &Allocation, interval: &Interval) -> bool {
    let start = address(allocation);
    let end = start.saturating_add(bytes_per_core(allocation));
    !allocation.unplaced && start < interval.start + interval.bytes && end > interval.start
}

/// The allocations on a core with their class, by address.
fn allocations_on_core<'a>(
    device: &Device,
    core: &Core,
    all: &'a [Allocation],
) -> Vec<(&'a Allocation, CoreClass)> {
    let mut found: Vec<_> =
        all.iter().filter_map(|it| Some((it, class_on_core(device, core, it)?))).collect();
    found.sort_by_key(|(it, _)| (address(it), it.pid, it.requested_bytes));
    found
}

/// The class of an allocation on a core; `None` if it is not on that core.
fn class_on_core(device: &Device, core: &Core, allocation: &Allocation) -> Option<CoreClass> {
    if allocation.basis != Basis::Exact || !allocation.devices.contains(&device.id) {
        return None;
    }
    let (x, y) = (core.room.x, core.room.y);
    let has_core = |&[x0, y0, x1, y1]: &[u8; 4]| (x0..=x1).contains(&x) && (y0..=y1).contains(&y);
    let is_on_core = allocation.cores.as_ref().map(|cores| cores.iter().any(has_core));
    let Allocation { pid, allocator, program, space, layout, .. } = *allocation;
    let active = |class: CoreClass| {
        let last = core.program.as_ref()?;
        let is_last = (pid, allocator, program) == (last.pid, last.allocator, Some(last.id));
        // An allocation without cores is shown on the first core.
        let is_here = is_on_core.unwrap_or((x, y) == (0, 0));
        (is_last && is_here && layout != Some(Layout::View)).then_some(class)
    };
    match space {
        Space::L1 | Space::L1Small if is_on_core == Some(false) => Some(CoreClass::Lockstep),
        Space::L1 => Some(CoreClass::Buffer),
        Space::L1Small => Some(CoreClass::L1Small),
        Space::L1Core => is_on_core.filter(|is| *is).map(|_| CoreClass::Buffer),
        Space::Cb => active(CoreClass::Cb),
        Space::Dfb => active(CoreClass::Dfb),
        Space::Scratch => active(CoreClass::Scratch),
        Space::Dram | Space::Trace | Space::Kernel | Space::Host => None,
    }
}

/// Cores as `0,0-7,6`; after a few ranges, their number.
fn format_cores(cores: CoreSet) -> String {
    let rectangles = cores.rectangles();
    let mut text: Vec<String> = rectangles.iter().take(MAX_CORE_RANGES).copied().map(core_range).collect();
    if rectangles.len() > MAX_CORE_RANGES {
        text.push(format!("... ({} cores)", cores.count()));
    }
    text.join(" ")
}
