//! What is in each list, in which order: one answer for those who draw it and those who move in it.

use crate::table::Column;
use crate::ui::{List, Place, Ui};
use std::cmp::Ordering;
use ttmem_core::Snapshot;
use ttmem_core::detail::{BufferSort, ProgramKey, ProgramSort};
use ttmem_core::snapshot::{
    Allocation, BufferGroup, Buffers, Device, Finding, Happening, Process, ProgramList, ProgramRow,
};

pub(crate) const DEVICES: &[Column] = &[
    Column::figure("index", "#", 2).unsorted(),
    Column::text("board", "Board", 8).grows(7).unsorted(),
    Column::text("arch", "Chip", 9).drop(3).unsorted(),
    Column::figure("temperature", "°C", 5).unsorted(),
    Column::figure("power", "W", 5).unsorted(),
    Column::figure("aiclk", "MHz", 5).unsorted(),
    Column::text("dram_bar", "DRAM", 6).grows(30).unsorted(),
    Column::figure("dram", "GiB", 5).unsorted(),
    Column::figure("dram_total", "of", 5).unsorted(),
    Column::figure("dram_share", "%", 5).drop(2).unsorted(),
    Column::text("l1_bar", "L1", 5).grows(31).unsorted(),
    Column::figure("l1", "MiB", 5).unsorted(),
    Column::figure("l1_total", "of", 5).unsorted(),
    Column::figure("l1_share", "%", 5).drop(1).unsorted(),
    Column::text("tracking", "Tracking", 9).grows(4).unsorted(),
];

pub(crate) const TELEMETRY: &[Column] = &[
    Column::figure("index", "#", 2).unsorted(),
    Column::text("board", "Board", 8).grows(6).unsorted(),
    Column::figure("temperature", "°C", 5).unsorted(),
    Column::figure("temperature_limit", "max", 4).drop(3).unsorted(),
    Column::figure("power", "W", 6).unsorted(),
    Column::figure("power_limit", "max", 4).drop(4).unsorted(),
    Column::figure("current", "A", 6).unsorted(),
    Column::figure("current_limit", "max", 4).drop(7).unsorted(),
    Column::figure("vcore", "V", 5).unsorted(),
    Column::figure("vcore_limit", "max", 5).drop(10).unsorted(),
    Column::figure("aiclk", "AI MHz", 6).unsorted(),
    Column::figure("axiclk", "AXI MHz", 7).drop(8).unsorted(),
    Column::figure("arcclk", "ARC MHz", 7).drop(9).unsorted(),
    Column::figure("fan", "Fan rpm", 7).drop(6).unsorted(),
    Column::text("heartbeat", "Heart", 6).drop(2).unsorted(),
    Column::figure("trips", "Trips", 5).drop(1).unsorted(),
    Column::figure("pcie_in", "▸chip MiB/s", 11).drop(11).unsorted(),
    Column::figure("pcie_out", "▸host MiB/s", 11).drop(12).unsorted(),
    Column::figure("age", "Age", 5).unsorted(),
];

pub(crate) const PROCESSES: &[Column] = &[
    Column::figure("pid", "PID", 7),
    Column::text("user", "User", 8).grows(2),
    Column::text("name", "Process", 14).grows(4),
    Column::text("container", "Container", 12).drop(3),
    Column::text("chips", "Chips", 6).grows(4),
    Column::figure("dram", "DRAM MiB", 9),
    Column::figure("l1", "L1 MiB", 8),
    Column::figure("cb", "CB MiB", 8),
    Column::figure("kernels", "Kern MiB", 9).drop(2),
    Column::text("state", "State", 9).grows(2),
    Column::text("command", "Command", 10).grows(90).drop(4),
];

pub(crate) const BUFFERS: &[Column] = &[
    Column::figure("size", "KiB", 10),
    Column::figure("requested", "Asked KiB", 10).drop(5),
    Column::text("space", "Space", 8),
    Column::figure("address", "Address", 12),
    Column::text("device", "Chips", 6).grows(5),
    Column::figure("process", "PID", 7),
    Column::figure("per_bank", "KiB a bank", 10).drop(7).unsorted(),
    Column::text("layout", "Layout", 14).drop(4).unsorted(),
    Column::figure("age", "Age", 5),
    Column::figure("program", "Prog", 5).drop(6),
    Column::text("site", "Program or call site", 21).grows(84),
];

pub(crate) const GROUPS: &[Column] = &[
    Column::figure("size", "KiB", 12),
    Column::figure("requested", "Asked KiB", 12).drop(1),
    Column::figure("age", "Count", 8),
    Column::figure("process", "PID", 8),
    Column::text("name", "Process", 14).grows(10).unsorted(),
    Column::text("space", "Space", 8).unsorted(),
    Column::text("site", "Program or call site", 21).grows(80).unsorted(),
];

pub(crate) const PROGRAMS: &[Column] = &[
    Column::figure("pid", "PID", 7),
    Column::text("process", "Process", 10).grows(6).drop(5),
    Column::figure("id", "Prog", 5),
    Column::text("name", "Name", 15).grows(61),
    Column::text("chips", "Chips", 6).grows(3),
    Column::figure("cores", "Cores", 6),
    Column::text("resident", "Resident", 9),
    Column::figure("dispatches", "Runs", 6),
    Column::figure("last", "Last", 5).drop(2),
    Column::figure("cb", "CB KiB", 9),
    Column::figure("dfb", "DFB KiB", 8).drop(4),
    Column::figure("scratch", "Scr KiB", 8).drop(6),
    Column::figure("kernel", "Kern KiB", 9).drop(1),
    Column::figure("end", "Ends at", 8).drop(3),
];

pub(crate) const FINDINGS: &[Column] = &[
    Column::text("severity", "Severity", 8).unsorted(),
    Column::figure("count", "Times", 6).drop(1).unsorted(),
    Column::text("kind", "Kind", 15).drop(2).unsorted(),
    Column::text("text", "What", 30).grows(300).unsorted(),
    Column::figure("last", "Last", 5).unsorted(),
];

pub(crate) const EVENTS: &[Column] = &[
    Column::text("time", "Time", 8).unsorted(),
    Column::text("kind", "Kind", 18).drop(1).unsorted(),
    Column::text("text", "What", 40).grows(300).unsorted(),
];

fn columns(list: List) -> &'static [Column] {
    match list {
        List::Devices => DEVICES,
        List::Processes => PROCESSES,
        List::Buffers => BUFFERS,
        List::Programs => PROGRAMS,
        List::Findings => FINDINGS,
        List::Events => EVENTS,
    }
}

/// Columns that a list can be sorted by: their names and titles.
pub(crate) fn sortable(list: List) -> impl Iterator<Item = (&'static str, &'static str)> {
    columns(list).iter().filter(|column| column.sorts).map(|column| (column.name, column.title))
}

/// The same of what is on the screen: groups have fewer.
pub(crate) fn sortable_now(ui: &Ui, list: List) -> Vec<(&'static str, &'static str)> {
    let grouped = list == List::Buffers && ui.group.is_some();
    let of_groups = GROUPS.iter().filter(|column| column.sorts).map(|column| (column.name, column.title));
    if grouped { of_groups.collect() } else { sortable(list).collect() }
}

/// The daemon's word for a column of buffers.
pub(crate) fn buffer_sort(column: Option<&str>) -> BufferSort {
    match column.unwrap_or_default() {
        "requested" => BufferSort::Requested,
        "space" => BufferSort::Space,
        "address" => BufferSort::Address,
        "device" => BufferSort::Device,
        "process" => BufferSort::Process,
        "age" => BufferSort::Age,
        "program" => BufferSort::Program,
        "site" => BufferSort::Site,
        _ => BufferSort::Size,
    }
}

/// Whether each word of a filter is in one of these texts.
fn fits(filter: &str, texts: &[&str]) -> bool {
    let lower: Vec<String> = texts.iter().map(|text| text.to_lowercase()).collect();
    filter.to_lowercase().split_whitespace().all(|word| lower.iter().any(|text| text.contains(word)))
}

pub(crate) fn pid_text(pid: Option<u32>, reported: Option<i64>) -> String {
    match (pid, reported) {
        (Some(pid), _) => pid.to_string(),
        // Its own word, from a namespace that cannot be seen from here.
        (None, Some(pid)) => format!("({pid})"),
        (None, None) => crate::figure::UNKNOWN.to_owned(),
    }
}

pub(crate) fn process_key(process: &Process) -> String {
    let start = process.start.map_or(0, jiff::Timestamp::as_millisecond);
    format!("{}:{start}:{}", process.pid.unwrap_or(0), process.reported_pid.unwrap_or(0))
}

/// The pid in a key of a process or of something of it.
pub(crate) fn pid_of(key: &str) -> Option<u32> {
    key.split(':').next()?.parse().ok().filter(|&pid| pid != 0)
}

pub(crate) fn program_key(row: &ProgramRow) -> String {
    let ProgramKey { pid, allocator, id } = row.key();
    let number = |it: Option<u32>| it.map_or_else(|| "-".to_owned(), |it| it.to_string());
    format!("{}:{}:{id}", number(pid), number(allocator))
}

/// The program that a key is of.
pub(crate) fn program_of(key: &str) -> Option<ProgramKey> {
    let mut parts = key.split(':');
    let mut number = || parts.next().map(|it| it.parse::<u32>().ok());
    let (pid, allocator) = (number()?, number()?);
    Some(ProgramKey { pid, allocator, id: number()?? })
}

pub(crate) fn buffer_key(buffer: &Allocation) -> String {
    let (pid, program) = (buffer.pid.unwrap_or(0), buffer.program.unwrap_or(0));
    let (allocator, device) = (buffer.allocator, buffer.indexes.first());
    format!("{pid}:{}:{}:{program}:{allocator:?}:{device:?}", buffer.space, buffer.id)
}

pub(crate) fn group_key(group: &BufferGroup) -> String {
    format!("{:?}:{:?}:{:?}:{:?}", group.pid, group.space, group.program, group.site)
}

pub(crate) fn finding_key(finding: &Finding) -> String {
    let Finding { kind, pid, device, space, .. } = finding;
    // Texts hold counts; where nothing else tells two apart, they do.
    let text = if pid.is_none() && device.is_none() { finding.text.as_str() } else { "" };
    format!("{kind:?}:{pid:?}:{device:?}:{space:?}:{text}")
}

/// Processes that the filter leaves, in the chosen order.
pub(crate) fn processes<'a>(snapshot: &'a Snapshot, place: &Place) -> Vec<&'a Process> {
    let name = |text: &'a Option<String>| text.as_deref().unwrap_or("");
    let mut all: Vec<&Process> = snapshot
        .processes
        .iter()
        .filter(|it| {
            place.filter.is_empty()
                || fits(
                    &place.filter,
                    &[
                        &pid_text(it.pid, it.reported_pid),
                        name(&it.user),
                        name(&it.name),
                        name(&it.container),
                        name(&it.command),
                        name(&it.pod),
                        it.summary.quality.name(),
                    ],
                )
        })
        .collect();
    let column = place.sort.column.unwrap_or_default();
    let order = |a: &Process, b: &Process| -> Ordering {
        let (sa, sb) = (&a.summary, &b.summary);
        match column {
            "pid" => Ordering::Equal,
            "user" => name_order(a.user.as_ref(), b.user.as_ref()),
            "name" => name_order(a.name.as_ref(), b.name.as_ref()),
            "container" => name_order(a.container.as_ref(), b.container.as_ref()),
            "command" => name_order(a.command.as_ref(), b.command.as_ref()),
            "chips" => sa.indexes.cmp(&sb.indexes),
            "l1" => sb.l1_bytes.cmp(&sa.l1_bytes),
            "cb" => sb.program_bytes.cmp(&sa.program_bytes),
            "kernels" => sb.kernel_bytes.cmp(&sa.kernel_bytes),
            "state" => sa.quality.cmp(&sb.quality),
            _ => sb.dram_bytes.cmp(&sa.dram_bytes),
        }
    };
    let ids = |a: &Process, b: &Process| (a.pid, a.reported_pid).cmp(&(b.pid, b.reported_pid));
    sort(&mut all, place, |a, b| if column == "pid" { ids(a, b) } else { order(a, b) }, ids);
    all
}

fn name_order(a: Option<&String>, b: Option<&String>) -> Ordering {
    // Who has none comes last.
    (a.is_none(), a).cmp(&(b.is_none(), b))
}

/// Sorts as chosen; what is equal by that stays in an order that does not depend on the direction.
fn sort<T: Copy>(
    all: &mut [T],
    place: &Place,
    order: impl Fn(T, T) -> Ordering,
    ties: impl Fn(T, T) -> Ordering,
) {
    let turned = |order: Ordering| if place.sort.reversed { order.reverse() } else { order };
    all.sort_by(|&a, &b| turned(order(a, b)).then_with(|| ties(a, b)));
}

/// The daemon's word for a column of programs.
pub(crate) fn program_sort(column: Option<&str>) -> ProgramSort {
    match column.unwrap_or_default() {
        "pid" => ProgramSort::Process,
        "process" => ProgramSort::ProcessName,
        "id" => ProgramSort::Id,
        "name" => ProgramSort::Name,
        "chips" => ProgramSort::Device,
        "cores" => ProgramSort::Cores,
        "resident" => ProgramSort::Resident,
        "dispatches" => ProgramSort::Dispatches,
        "cb" => ProgramSort::Cb,
        "dfb" => ProgramSort::Dfb,
        "scratch" => ProgramSort::Scratch,
        "kernel" => ProgramSort::Kernel,
        "end" => ProgramSort::End,
        _ => ProgramSort::Last,
    }
}

/// Findings that the filter leaves, worst first.
pub(crate) fn findings<'a>(snapshot: &'a Snapshot, place: &Place) -> Vec<&'a Finding> {
    let all = snapshot.findings.iter();
    all.filter(|it| place.filter.is_empty() || fits(&place.filter, &[&it.text, &format!("{:?}", it.kind)]))
        .collect()
}

/// What happened, newest first.
pub(crate) fn events<'a>(snapshot: &'a Snapshot, place: &Place) -> Vec<&'a Happening> {
    let all = snapshot.events.iter().flatten().rev();
    all.filter(|it| place.filter.is_empty() || fits(&place.filter, &[&it.text, &format!("{:?}", it.kind)]))
        .collect()
}

/// A list's rows, in their order.
enum Rows<'a> {
    Devices(&'a [Device]),
    Processes(Vec<&'a Process>),
    Findings(Vec<&'a Finding>),
    Events(Vec<&'a Happening>),
    /// Of these only a part is there.
    Programs(Option<&'a ProgramList>),
    Buffers(Option<&'a Buffers>),
    Groups(Option<&'a Buffers>),
}

impl<'a> Rows<'a> {
    fn of(snapshot: &'a Snapshot, ui: &Ui, list: List) -> Self {
        let place = ui.place(list);
        match list {
            List::Devices => Self::Devices(&snapshot.devices),
            List::Processes => Self::Processes(processes(snapshot, place)),
            List::Programs => Self::Programs(snapshot.programs.as_ref()),
            List::Findings => Self::Findings(findings(snapshot, place)),
            List::Events => Self::Events(events(snapshot, place)),
            List::Buffers if ui.group.is_some() => Self::Groups(snapshot.buffers.as_ref()),
            List::Buffers => Self::Buffers(snapshot.buffers.as_ref()),
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::Devices(all) => all.len(),
            Self::Processes(all) => all.len(),
            Self::Findings(all) => all.len(),
            Self::Events(all) => all.len(),
            Self::Programs(part) => part.map_or(0, |it| it.count as usize),
            Self::Buffers(part) => part.map_or(0, |it| it.count as usize),
            Self::Groups(part) => part.map_or(0, |it| it.group_count as usize),
        }
    }

    /// What tells a row from all others.
    fn key(&self, row: usize) -> Option<String> {
        let within = |offset: u64| row.checked_sub(offset as usize);
        match self {
            Self::Devices(all) => all.get(row).map(|it| it.id.clone()),
            Self::Processes(all) => all.get(row).map(|it| process_key(it)),
            Self::Programs(part) => part.and_then(|it| it.list.get(within(it.offset)?)).map(program_key),
            Self::Findings(all) => all.get(row).map(|it| finding_key(it)),
            Self::Events(all) => all.get(row).map(|it| it.sequence.to_string()),
            Self::Buffers(part) => part.and_then(|it| it.list.get(within(it.offset)?)).map(buffer_key),
            Self::Groups(part) => part.and_then(|it| it.groups.get(within(it.offset)?)).map(group_key),
        }
    }

    /// The row with a key.
    fn find(&self, key: &str) -> Option<usize> {
        match self {
            Self::Programs(Some(ProgramList { offset, .. }))
            | Self::Buffers(Some(Buffers { offset, .. }))
            | Self::Groups(Some(Buffers { offset, .. })) => {
                let mut rows = (*offset as usize..).map_while(|row| Some((row, self.key(row)?)));
                rows.find(|it| it.1 == key).map(|it| it.0)
            }
            _ => (0..self.count()).find(|&row| self.key(row).as_deref() == Some(key)),
        }
    }
}

/// How many rows a list has.
pub(crate) fn count(snapshot: &Snapshot, ui: &Ui, list: List) -> usize {
    Rows::of(snapshot, ui, list).count()
}

/// What the cursor is on.
pub(crate) fn chosen(snapshot: &Snapshot, ui: &Ui, list: List) -> Option<String> {
    let place = ui.place(list);
    place.key.clone().or_else(|| Rows::of(snapshot, ui, list).key(place.cursor))
}

/// Moves each list's cursor along with what somebody put it on; what is gone leaves it where it was. Until then it stays at
/// the top, whatever comes there.
pub(crate) fn follow(snapshot: &Snapshot, ui: &mut Ui) {
    for &list in [List::Devices].iter().chain(ui.lists()) {
        let place = ui.place(list);
        if place.key.is_none() && place.cursor == 0 {
            continue;
        }
        let rows = Rows::of(snapshot, ui, list);
        let found = place.key.as_ref().and_then(|key| rows.find(key));
        let cursor = found.unwrap_or(place.cursor).min(rows.count().saturating_sub(1));
        // An empty list may come back with the same rows.
        let key = place.key.as_ref().and_then(|_| rows.key(cursor));
        let place = ui.place_mut(list);
        place.cursor = cursor;
        place.key = key.or(place.key.take());
    }
}

/// Puts the cursor on a row.
pub(crate) fn go_to(snapshot: &Snapshot, ui: &mut Ui, list: List, row: usize) {
    let rows = Rows::of(snapshot, ui, list);
    let row = row.min(rows.count().saturating_sub(1));
    let key = rows.key(row);
    let place = ui.place_mut(list);
    (place.cursor, place.key) = (row, key);
}

/// The column a list is sorted by where nobody chose one.
pub(crate) fn own_order(list: List) -> Option<&'static str> {
    match list {
        List::Processes => Some("dram"),
        List::Buffers => Some("size"),
        List::Programs => Some("last"),
        List::Devices | List::Findings | List::Events => None,
    }
}

/// How many cores rectangles cover.
pub(crate) fn core_count(rectangles: &[[u8; 4]]) -> u64 {
    let side = |from: u8, to: u8| u64::from(to.saturating_sub(from)) + 1;
    rectangles.iter().map(|[x, y, to_x, to_y]| side(*x, *to_x) * side(*y, *to_y)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_title_fits_its_column_with_the_mark_of_an_order() {
        for column in List::ALL.into_iter().flat_map(columns).chain(GROUPS).chain(TELEMETRY) {
            let needed = column.title.chars().count() + usize::from(column.sorts);
            assert!(needed <= usize::from(column.width), "{}", column.title);
        }
    }

    #[test]
    fn what_is_never_dropped_fits_the_smallest_screen() {
        for list in [DEVICES, TELEMETRY, PROCESSES, BUFFERS, GROUPS, PROGRAMS, FINDINGS, EVENTS] {
            let kept = list.iter().filter(|it| it.drop == 0);
            let width: u16 = kept.map(|it| it.width + 1).sum::<u16>() - 1;
            assert!(width <= crate::views::LEAST.0 - 4, "{} takes {width}", list[0].title);
        }
    }

    #[test]
    fn filters_take_words_in_any_order_and_case() {
        assert!(fits("", &[]));
        assert!(fits("LLM root", &["root", "demo-llm"]));
        assert!(!fits("llm ada", &["root", "demo-llm"]));
    }
}
