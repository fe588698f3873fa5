//! The rows of each list and their order, for drawing and for moving the cursor.

use crate::ui::{List, Place, Ui};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use ttmem_core::Snapshot;
use ttmem_core::detail::{BufferSort, ProgramKey, ProgramSort};
use ttmem_core::snapshot::{
    Allocation, BufferGroup, Buffers, Device, Event, Finding, Process, ProgramList, ProgramRow,
};
use ttmem_render::figure::DASH;
use ttmem_render::{Column, Head, Kind, allocation, device, event, process, program};

/// The columns of a list, by what they are called and where they stand.
fn heads(list: List) -> Vec<&'static Head> {
    fn of<K: Kind>(columns: &'static [Column<K>]) -> Vec<&'static Head> {
        columns.iter().map(|column| &column.head).collect()
    }
    match list {
        List::Devices => of(device::SCREEN),
        List::Processes => of(process::SCREEN),
        List::Buffers => of(allocation::SCREEN),
        List::Programs => of(program::SCREEN),
        List::Findings => of(event::FINDING_SCREEN),
        List::Events => of(event::EVENT_SCREEN),
    }
}

/// Columns that a list can be sorted by: their keys and titles.
pub(crate) fn sortable(list: List) -> impl Iterator<Item = (&'static str, &'static str)> {
    heads(list).into_iter().filter(|head| head.sorts).map(|head| (head.key, head.title))
}

/// Columns that what is on the screen can be sorted by: groups have fewer.
pub(crate) fn sortable_now(ui: &Ui, list: List) -> Vec<(&'static str, &'static str)> {
    if list == List::Buffers && ui.group.is_some() {
        let heads = allocation::GROUP_SCREEN.iter().map(|column| &column.head);
        return heads.filter(|head| head.sorts).map(|head| (head.key, head.title)).collect();
    }
    sortable(list).collect()
}

/// The sort order of a query for a column of the buffer list.
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

/// A process's pid, as the dashboard writes it.
pub(crate) fn pid_text(pid: Option<u32>, reported: Option<i64>) -> Cow<'static, str> {
    process::pid(pid, reported, DASH)
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
    // Texts hold counts, so they are part of the key only where nothing else distinguishes two findings.
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
                        it.tracking.name(),
                    ],
                )
        })
        .collect();
    let column = place.sort.column.unwrap_or_default();
    let host = |it: &'a Process| it.host.as_ref();
    let cpu = |it: &'a Process| host(it).and_then(|it| it.cpu_percent).unwrap_or(-1.0);
    let rss = |it: &'a Process| host(it).map(|it| it.rss_bytes);
    let order = |a: &'a Process, b: &'a Process| -> Ordering {
        let (sa, sb) = (&a.summary, &b.summary);
        match column {
            "pid" => Ordering::Equal,
            "user" => name_order(a.user.as_ref(), b.user.as_ref()),
            "name" => name_order(a.name.as_ref(), b.name.as_ref()),
            "container" => name_order(a.container.as_ref(), b.container.as_ref()),
            "command" => name_order(a.command.as_ref(), b.command.as_ref()),
            "devices" => sa.indexes.cmp(&sb.indexes),
            "cpu" => cpu(b).total_cmp(&cpu(a)),
            "host" => rss(b).cmp(&rss(a)),
            "l1" => sb.l1_bytes.cmp(&sa.l1_bytes),
            "programs" => sb.program_bytes.cmp(&sa.program_bytes),
            "kernels" => sb.kernel_bytes.cmp(&sa.kernel_bytes),
            "tracking" => a.tracking.cmp(&b.tracking),
            _ => sb.dram_bytes.cmp(&sa.dram_bytes),
        }
    };
    let ids = |a: &'a Process, b: &'a Process| (a.pid, a.reported_pid).cmp(&(b.pid, b.reported_pid));
    sort(&mut all, place, |a, b| if column == "pid" { ids(a, b) } else { order(a, b) }, ids);
    all
}

/// Processes as the list shows them, and what is drawn before their names: the branches of the tree, if there is one.
pub(crate) fn process_rows<'a>(snapshot: &'a Snapshot, ui: &Ui) -> (Vec<&'a Process>, Vec<String>) {
    let all = processes(snapshot, ui.place(List::Processes));
    if !ui.tree {
        return (all, Vec::new());
    }
    let ancestors: BTreeMap<u32, u32> =
        snapshot.processes.iter().filter_map(|it| Some((it.pid?, it.host.as_ref()?.ancestor_pid?))).collect();
    let shown: BTreeSet<u32> = all.iter().filter_map(|it| it.pid).collect();
    // Above a process that the filter hides is the next one.
    let parent = |it: &Process| {
        let mut above = it.pid;
        for _ in 0..=ancestors.len() {
            above = above.and_then(|pid| ancestors.get(&pid).copied());
            if above.is_none_or(|pid| shown.contains(&pid)) {
                return above.filter(|_| above != it.pid);
            }
        }
        None
    };
    let mut children: BTreeMap<Option<u32>, Vec<&Process>> = BTreeMap::new();
    for process in all {
        children.entry(parent(process)).or_default().push(process);
    }
    let (mut rows, mut branches) = (Vec::new(), Vec::new());
    grow(None, "", &mut children, &mut rows, &mut branches);
    // Two that are each other's ancestors, which only a wrong snapshot has, are shown all the same.
    for left in children.into_values().flatten() {
        rows.push(left);
        branches.push(String::new());
    }
    (rows, branches)
}

fn grow<'a>(
    parent: Option<u32>,
    before: &str,
    children: &mut BTreeMap<Option<u32>, Vec<&'a Process>>,
    rows: &mut Vec<&'a Process>,
    branches: &mut Vec<String>,
) {
    let here = children.remove(&parent).unwrap_or_default();
    let last = here.len().saturating_sub(1);
    for (n, process) in here.into_iter().enumerate() {
        let (branch, below) = match (parent, n == last) {
            (None, _) => ("", ""),
            (Some(_), true) => ("└ ", "  "),
            (Some(_), false) => ("├ ", "│ "),
        };
        rows.push(process);
        branches.push(format!("{before}{branch}"));
        if process.pid.is_some() {
            grow(process.pid, &format!("{before}{below}"), children, rows, branches);
        }
    }
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

/// The sort order of a query for a column of the program list.
pub(crate) fn program_sort(column: Option<&str>) -> ProgramSort {
    match column.unwrap_or_default() {
        "pid" => ProgramSort::Process,
        "process" => ProgramSort::ProcessName,
        "id" => ProgramSort::Id,
        "name" => ProgramSort::Name,
        "devices" => ProgramSort::Device,
        "cores" => ProgramSort::Cores,
        "active" => ProgramSort::Resident,
        "dispatches" => ProgramSort::Dispatches,
        "cb" => ProgramSort::Cb,
        "dfb" => ProgramSort::Dfb,
        "scratch" => ProgramSort::Scratch,
        "kernel" => ProgramSort::Kernel,
        "end" => ProgramSort::End,
        _ => ProgramSort::Last,
    }
}

/// Findings that the filter leaves, worst first; without those that were acknowledged, unless they are to be shown.
pub(crate) fn findings<'a>(snapshot: &'a Snapshot, ui: &Ui) -> Vec<&'a Finding> {
    let place = ui.place(List::Findings);
    let all = snapshot.findings.iter().filter(|it| ui.shows_acknowledged || !ui.is_acknowledged(it));
    all.filter(|it| place.filter.is_empty() || fits(&place.filter, &[&it.text, &format!("{:?}", it.kind)]))
        .collect()
}

/// What happened, newest first.
pub(crate) fn events<'a>(snapshot: &'a Snapshot, place: &Place) -> Vec<&'a Event> {
    let all = snapshot.events.iter().flatten().rev();
    all.filter(|it| place.filter.is_empty() || fits(&place.filter, &[&it.text, &format!("{:?}", it.kind)]))
        .collect()
}

/// A list's rows, in their order.
enum Rows<'a> {
    Devices(&'a [Device]),
    Processes(Vec<&'a Process>),
    Findings(Vec<&'a Finding>),
    Events(Vec<&'a Event>),
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
            List::Processes => Self::Processes(process_rows(snapshot, ui).0),
            List::Programs => Self::Programs(snapshot.programs.as_ref()),
            List::Findings => Self::Findings(findings(snapshot, ui)),
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

    /// The key that identifies a row.
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

/// Moves each list's cursor along with the row the user put it on; if that is gone, it stays where it was. A cursor at the top
/// stays there.
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

/// The column a list is sorted by until the user chooses one.
pub(crate) fn own_order(list: List) -> Option<&'static str> {
    match list {
        List::Processes => Some("dram"),
        List::Buffers => Some("size"),
        List::Programs => Some("last"),
        List::Devices | List::Findings | List::Events => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every table of the dashboard.
    fn tables() -> Vec<Vec<&'static Head>> {
        let groups = allocation::GROUP_SCREEN.iter().map(|column| &column.head).collect();
        let telemetry = device::TELEMETRY.iter().map(|column| &column.head).collect();
        List::ALL.into_iter().map(heads).chain([groups, telemetry]).collect()
    }

    #[test]
    fn every_title_fits_its_column_with_the_mark_of_an_order() {
        for head in tables().concat() {
            let needed = head.title.chars().count() + usize::from(head.sorts);
            assert!(needed <= usize::from(head.width), "{}", head.title);
        }
    }

    #[test]
    fn what_is_never_dropped_fits_the_smallest_screen() {
        for list in tables() {
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
