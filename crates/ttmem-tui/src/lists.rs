//! The rows of each list and their order, for drawing and for moving the cursor.

use crate::addresses;
use crate::ui::{List, ListState, Ui};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use ttmem_core::Snapshot;
use ttmem_core::detail::{BufferGrouping, BufferSort, ProgramKey, ProgramSort};
use ttmem_core::snapshot::{
    Allocation, BufferGroup, Buffers, Device, Event, Finding, Process, ProgramList, ProgramRow,
};
use ttmem_render::format::DASH;
use ttmem_render::{Column, Header, RowKind, allocation, block, device, event, group, process, program};

/// The column headers of a list.
fn headers(list: List) -> Vec<&'static Header> {
    fn collect<K: RowKind>(columns: &'static [Column<K>]) -> Vec<&'static Header> {
        columns.iter().map(|column| &column.header).collect()
    }
    match list {
        List::Devices => collect(device::SCREEN),
        List::Processes => collect(process::SCREEN),
        List::Buffers => collect(allocation::SCREEN),
        List::Programs => collect(program::SCREEN),
        List::Findings => collect(event::FINDING_SCREEN),
        List::Events => collect(event::EVENT_SCREEN),
        List::Blocks => collect(block::SCREEN),
    }
}

/// Keys and titles of the columns that a list can be sorted by.
pub(crate) fn sortable_columns(list: List) -> impl Iterator<Item = (&'static str, &'static str)> {
    headers(list).into_iter().filter(|header| header.sortable).map(|header| (header.key, header.title))
}

/// Keys and titles of the columns that the list on the screen can be sorted by: groups of buffers have fewer.
pub(crate) fn sort_choices(ui: &Ui, list: List) -> Vec<(&'static str, &'static str)> {
    if let Some(grouping) = ui.group.filter(|_| list == List::Buffers) {
        let headers = group::screen_columns(grouping).iter().map(|column| &column.header);
        return headers.filter(|header| header.sortable).map(|header| (header.key, header.title)).collect();
    }
    sortable_columns(list).collect()
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
pub(crate) fn matches_filter(filter: &str, texts: &[&str]) -> bool {
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

/// The pid in the key of a process, or of something that belongs to one.
pub(crate) fn pid_from_key(key: &str) -> Option<u32> {
    key.split(':').next()?.parse().ok().filter(|&pid| pid != 0)
}

pub(crate) fn program_key(row: &ProgramRow) -> String {
    let ProgramKey { pid, allocator, id } = row.key();
    let number = |n: Option<u32>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    format!("{}:{}:{id}", number(pid), number(allocator))
}

/// The program of a key.
pub(crate) fn program_from_key(key: &str) -> Option<ProgramKey> {
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

pub(crate) fn group_key(group: &BufferGroup, grouping: BufferGrouping) -> String {
    let BufferGroup { pid, program, site, label, .. } = group;
    // The space of other groups may change.
    let space = group.space.filter(|_| grouping == BufferGrouping::Process);
    format!("{pid:?}:{space:?}:{program:?}:{site:?}:{label:?}")
}

pub(crate) fn finding_key(finding: &Finding) -> String {
    let Finding { kind, pid, device, space, .. } = finding;
    // A text may contain a count, so it is part of the key only if nothing else distinguishes two findings.
    let text = if pid.is_none() && device.is_none() { finding.text.as_str() } else { "" };
    format!("{kind:?}:{pid:?}:{device:?}:{space:?}:{text}")
}

/// Processes that match the filter, in their sort order.
pub(crate) fn processes<'a>(snapshot: &'a Snapshot, state: &ListState) -> Vec<&'a Process> {
    let text = |text: &'a Option<String>| text.as_deref().unwrap_or("");
    let is_match = |process: &'a Process| {
        let pid = pid_text(process.pid, process.reported_pid);
        let texts = [
            &*pid,
            text(&process.user),
            text(&process.name),
            text(&process.container),
            text(&process.command),
            text(&process.pod),
            process.tracking.name(),
        ];
        matches_filter(&state.filter, &texts)
    };
    let all = snapshot.processes.iter();
    let mut matching: Vec<&Process> = all.filter(|it| state.filter.is_empty() || is_match(it)).collect();
    let by_pid = |a: &Process, b: &Process| (a.pid, a.reported_pid).cmp(&(b.pid, b.reported_pid));
    let key = state.sort.column.or(default_sort_column(List::Processes)).unwrap_or("pid");
    let column = process::SCREEN.iter().find(|it| it.header.key == key && key != "pid");
    matching.sort_by(|&a, &b| {
        let order = column.map_or_else(|| by_pid(a, b), |column| column.compare(&a, &b));
        // Rows that are equal keep their order when it is reversed.
        if state.sort.reversed { order.reverse() } else { order }.then_with(|| by_pid(a, b))
    });
    matching
}

/// The rows of the process list, and the branches of the tree before their names if it is shown.
pub(crate) fn process_rows<'a>(snapshot: &'a Snapshot, ui: &Ui) -> (Vec<&'a Process>, Vec<String>) {
    let matching = processes(snapshot, ui.list_state(List::Processes));
    if !ui.tree {
        return (matching, Vec::new());
    }
    let ancestors: BTreeMap<u32, u32> =
        snapshot.processes.iter().filter_map(|it| Some((it.pid?, it.host.as_ref()?.ancestor_pid?))).collect();
    let pids: BTreeSet<u32> = matching.iter().filter_map(|it| it.pid).collect();
    // The nearest ancestor that the filter does not hide.
    let parent = |process: &Process| {
        let mut above = process.pid;
        for _ in 0..=ancestors.len() {
            above = above.and_then(|pid| ancestors.get(&pid).copied());
            if above.is_none_or(|pid| pids.contains(&pid)) {
                return above.filter(|_| above != process.pid);
            }
        }
        None
    };
    let mut children: BTreeMap<Option<u32>, Vec<&Process>> = BTreeMap::new();
    for process in matching {
        children.entry(parent(process)).or_default().push(process);
    }
    let (mut rows, mut branches) = (Vec::new(), Vec::new());
    add_subtree(None, "", &mut children, &mut rows, &mut branches);
    // Processes that are each other's ancestors, which only a wrong snapshot has, are shown as well.
    for left in children.into_values().flatten() {
        rows.push(left);
        branches.push(String::new());
    }
    (rows, branches)
}

/// Adds the children of a process with all their descendants.
fn add_subtree<'a>(
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
            add_subtree(process.pid, &format!("{before}{below}"), children, rows, branches);
        }
    }
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

/// Findings that match the filter, worst first; without acknowledged ones, unless these are shown.
pub(crate) fn findings<'a>(snapshot: &'a Snapshot, ui: &Ui) -> Vec<&'a Finding> {
    let filter = &ui.list_state(List::Findings).filter;
    let all = snapshot.findings.iter().filter(|it| ui.shows_acknowledged || !ui.is_acknowledged(it));
    all.filter(|it| filter.is_empty() || matches_filter(filter, &[&it.text, &format!("{:?}", it.kind)]))
        .collect()
}

/// Events that match the filter, newest first.
pub(crate) fn events<'a>(snapshot: &'a Snapshot, state: &ListState) -> Vec<&'a Event> {
    let filter = &state.filter;
    let all = snapshot.events.iter().flatten().rev();
    all.filter(|it| filter.is_empty() || matches_filter(filter, &[&it.text, &format!("{:?}", it.kind)]))
        .collect()
}

/// The rows of a list, in order.
enum Rows<'a> {
    Devices(&'a [Device]),
    Processes(Vec<&'a Process>),
    Findings(Vec<&'a Finding>),
    Events(Vec<&'a Event>),
    Blocks(Vec<block::Row<'a>>),
    // The snapshot has only a part of the following lists.
    Programs(Option<&'a ProgramList>),
    Buffers(Option<&'a Buffers>),
    Groups(Option<&'a Buffers>, BufferGrouping),
}

impl<'a> Rows<'a> {
    fn of(snapshot: &'a Snapshot, ui: &Ui, list: List) -> Self {
        match list {
            List::Devices => Self::Devices(&snapshot.devices),
            List::Processes => Self::Processes(process_rows(snapshot, ui).0),
            List::Programs => Self::Programs(snapshot.programs.as_ref()),
            List::Findings => Self::Findings(findings(snapshot, ui)),
            List::Events => Self::Events(events(snapshot, ui.list_state(list))),
            List::Blocks => Self::Blocks(addresses::rows(snapshot, ui)),
            List::Buffers => match ui.group {
                Some(grouping) => Self::Groups(snapshot.buffers.as_ref(), grouping),
                None => Self::Buffers(snapshot.buffers.as_ref()),
            },
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::Devices(all) => all.len(),
            Self::Processes(all) => all.len(),
            Self::Findings(all) => all.len(),
            Self::Events(all) => all.len(),
            Self::Blocks(all) => all.len(),
            Self::Programs(part) => part.map_or(0, |it| it.count as usize),
            Self::Buffers(part) => part.map_or(0, |it| it.count as usize),
            Self::Groups(part, _) => part.map_or(0, |it| it.group_count as usize),
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
            Self::Blocks(all) => all.get(row).map(|it| it.block.address.to_string()),
            Self::Buffers(part) => part.and_then(|it| it.list.get(within(it.offset)?)).map(buffer_key),
            Self::Groups(part, grouping) => {
                let group = part.and_then(|it| it.groups.get(within(it.offset)?));
                group.map(|group| group_key(group, *grouping))
            }
        }
    }

    /// The row with a key.
    fn find(&self, key: &str) -> Option<usize> {
        match self {
            Self::Programs(Some(ProgramList { offset, .. }))
            | Self::Buffers(Some(Buffers { offset, .. }))
            | Self::Groups(Some(Buffers { offset, .. }), _) => {
                let mut rows = (*offset as usize..).map_while(|row| Some((row, self.key(row)?)));
                rows.find(|it| it.1 == key).map(|it| it.0)
            }
            // Where a block became part of another one, that one is found.
            Self::Blocks(all) => {
                let address: u64 = key.parse().ok()?;
                all.partition_point(|row| row.block.address <= address).checked_sub(1)
            }
            _ => (0..self.count()).find(|&row| self.key(row).as_deref() == Some(key)),
        }
    }
}

/// Number of rows of a list.
pub(crate) fn count(snapshot: &Snapshot, ui: &Ui, list: List) -> usize {
    Rows::of(snapshot, ui, list).count()
}

/// The key of the row under the cursor.
pub(crate) fn selected_key(snapshot: &Snapshot, ui: &Ui, list: List) -> Option<String> {
    let state = ui.list_state(list);
    state.key.clone().or_else(|| Rows::of(snapshot, ui, list).key(state.cursor))
}

/// Moves the cursor of each list to the row that the user selected. If that is gone, the cursor keeps its position. A
/// cursor at the top stays there.
pub(crate) fn follow_selected_rows(snapshot: &Snapshot, ui: &mut Ui) {
    for &list in [List::Devices].iter().chain(ui.lists()) {
        let state = ui.list_state(list);
        if state.key.is_none() && state.cursor == 0 {
            continue;
        }
        let rows = Rows::of(snapshot, ui, list);
        let found = state.key.as_ref().and_then(|key| rows.find(key));
        let cursor = found.unwrap_or(state.cursor).min(rows.count().saturating_sub(1));
        // The key is kept while the list is empty: its rows may return.
        let key = state.key.as_ref().and_then(|_| rows.key(cursor));
        let state = ui.list_state_mut(list);
        state.cursor = cursor;
        state.key = key.or(state.key.take());
    }
}

/// Moves the cursor to a row.
pub(crate) fn move_cursor(snapshot: &Snapshot, ui: &mut Ui, list: List, row: usize) {
    let rows = Rows::of(snapshot, ui, list);
    let row = row.min(rows.count().saturating_sub(1));
    let key = rows.key(row);
    let state = ui.list_state_mut(list);
    (state.cursor, state.key) = (row, key);
}

/// The column that a list is sorted by at first.
pub(crate) fn default_sort_column(list: List) -> Option<&'static str> {
    match list {
        List::Processes => Some("dram"),
        List::Buffers => Some("size"),
        List::Programs => Some("last"),
        List::Devices | List::Findings | List::Events | List::Blocks => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The headers of every table of the dashboard.
    fn tables() -> Vec<Vec<&'static Header>> {
        let groups = [BufferGrouping::Process, BufferGrouping::Site]
            .map(|it| group::screen_columns(it).iter().map(|column| &column.header).collect());
        let telemetry = device::TELEMETRY.iter().map(|column| &column.header).collect();
        List::ALL.into_iter().map(headers).chain(groups).chain([telemetry]).collect()
    }

    #[test]
    fn titles_fit_their_columns_with_the_sort_mark() {
        for header in tables().concat() {
            let needed = header.title.chars().count() + usize::from(header.sortable);
            assert!(needed <= usize::from(header.width), "{}", header.title);
        }
    }

    #[test]
    fn fixed_columns_fit_the_smallest_screen() {
        for list in tables() {
            let kept = list.iter().filter(|it| it.drop == 0);
            let width: u16 = kept.map(|it| it.width + 1).sum::<u16>() - 1;
            assert!(width <= crate::views::MIN_SIZE.0 - 4, "{} takes {width}", list[0].title);
        }
    }

    #[test]
    fn filters_match_words_in_any_order_and_case() {
        assert!(matches_filter("", &[]));
        assert!(matches_filter("LLM root", &["root", "demo-llm"]));
        assert!(!matches_filter("llm ada", &["root", "demo-llm"]));
    }
}
