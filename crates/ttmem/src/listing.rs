//! `ttmem dump`: every live allocation, or what holds the memory.

use crate::cli::{DumpArgs, GroupBy, Sockets, SortBy};
use crate::source::{source, unless_absent};
use crate::text::{Style, size, wrapped};
use crate::{Exit, cores, print, programs, show};
use anyhow::Context;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use ttmem_core::snapshot::{Allocation, Process};
use ttmem_core::words::{Basis, Layout, Space};
use ttmem_core::{Detail, Snapshot};
use ttmem_reader::{Dump, Reader, Request};
use ttmem_render::allocation::{DUMP, HOLDER_DUMP, Holder, origin_of};
use ttmem_render::figure::{counted, plain};
use ttmem_render::{heading, line, page, process};

/// Groups on a terminal without `--top`: with titles and totals they fit 24 lines.
const TOP: usize = 18;

pub(crate) fn dump(args: &DumpArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    let mut source = match &args.segment {
        Some(file) => Reader::of_segment(file)?,
        None => source(sockets, false, false)?,
    };
    if args.programs {
        return programs::dump(args, &mut source);
    }
    if let Some(wanted) = args.cores {
        return cores::dump(args, wanted, &mut source);
    }
    let Some(mut dump) = all(&mut source)? else { return Ok(Exit::NoDaemon) };
    let Some(snapshot) = unless_absent(source.snapshot(&Detail::NONE))? else { return Ok(Exit::NoDaemon) };
    let snapshot = show::only(snapshot, &args.only)?;
    narrow(&mut dump, &snapshot, args);
    let unlisted = unlisted(&snapshot);
    let unlisted = unlisted.as_deref();
    let style = Style::new(false);
    let is_list =
        args.all || args.json || args.sort.is_some() || args.top.is_some() || !io::stdout().is_terminal();
    let group_by = args.group_by.or((!is_list).then_some(GroupBy::Size));
    let top = args.top.or((group_by.is_some() && io::stdout().is_terminal() && !args.all).then_some(TOP));
    let Some(by) = group_by else {
        sort(&mut dump.allocations, args);
        let more = dump.allocations.split_off(top.unwrap_or(usize::MAX).min(dump.allocations.len()));
        return if args.json {
            as_json(&dump, unlisted)
        } else {
            print(listed(&dump, &more, unlisted, style).as_bytes())
        };
    };
    let mut groups = grouped(&dump.allocations, by, &snapshot);
    groups.sort_by(|a, b| match args.sort.unwrap_or(SortBy::Size) {
        SortBy::Size => b.total_bytes.cmp(&a.total_bytes),
        SortBy::Age => b.age_seconds.total_cmp(&a.age_seconds).then(b.total_bytes.cmp(&a.total_bytes)),
        SortBy::Count => b.count.cmp(&a.count).then(b.total_bytes.cmp(&a.total_bytes)),
    });
    let more = groups.split_off(top.unwrap_or(usize::MAX).min(groups.len()));
    if args.json {
        return as_json(&Groups::new(&dump, by, &groups, &more), unlisted);
    }
    print(held(&dump, by, &groups, &more, unlisted, style).as_bytes())
}

fn as_json(what: &impl Serialize, unlisted: Option<&str>) -> anyhow::Result<Exit> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    if let Some(note) = unlisted {
        let _ = writeln!(io::stderr(), "ttmem: {note}");
    }
    print(&line)
}

/// Leaves the allocations of the chosen devices and processes; of an allocation, the chosen devices.
fn narrow(dump: &mut Dump, snapshot: &Snapshot, args: &DumpArgs) {
    if let Some(pid) = args.only.pid {
        dump.allocations.retain(|it| it.pid == Some(pid));
    }
    if args.only.user.is_some() {
        dump.allocations.retain(|it| snapshot.processes.iter().any(|process| process.pid == it.pid));
    }
    if !args.only.device.is_empty() {
        dump.allocations.retain(|it| snapshot.devices.iter().any(|device| it.devices.contains(&device.id)));
    }
}

/// Every live allocation, in no order.
pub(crate) fn all(source: &mut Reader) -> anyhow::Result<Option<Dump>> {
    let Some(answer) = unless_absent(source.ask(&Request::Allocations))? else { return Ok(None) };
    Ok(Some(serde_json::from_slice(&answer).context("cannot read the answer")?))
}

/// Sorts by device, space and address, unless an order was chosen.
fn sort(all: &mut [Allocation], args: &DumpArgs) {
    match args.sort.or(args.top.map(|_| SortBy::Size)) {
        Some(SortBy::Size) => all.sort_by_key(|it| Reverse(total(it))),
        Some(SortBy::Age) => all.sort_by(|a, b| b.age_seconds.total_cmp(&a.age_seconds)),
        Some(SortBy::Count) => all.sort_by_key(|it| Reverse(it.references)),
        None => all.sort_by_cached_key(|it| {
            let id = u64::from_str_radix(it.id.trim_start_matches("0x"), 16).unwrap_or(u64::MAX);
            (it.indexes.clone(), it.space, id, it.pid, it.requested_bytes)
        }),
    }
}

/// Bytes of an allocation on each of its devices.
fn each(it: &Allocation) -> u64 {
    it.allocated_bytes.unwrap_or(it.requested_bytes)
}

/// Bytes of an allocation on all its devices.
fn total(it: &Allocation) -> u64 {
    each(it).saturating_mul(it.indexes.len().max(1) as u64)
}

/// What allocations of one group have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    process: Option<(Option<u32>, Option<i64>)>,
    space: Option<Space>,
    bytes: Option<u64>,
    program: Option<(Option<u32>, Option<u32>)>,
    origin: Option<String>,
    devices: Option<Vec<u32>>,
}

impl Key {
    fn new(it: &Allocation, by: GroupBy) -> Self {
        let process = Some((it.pid, it.reported_pid));
        match by {
            GroupBy::Space => Self { space: Some(it.space), ..Self::default() },
            GroupBy::Process => Self { process, ..Self::default() },
            GroupBy::Program => {
                Self { process, program: Some((it.allocator, it.program)), ..Self::default() }
            }
            GroupBy::Site => Self { origin: origin_of(it), ..Self::default() },
            GroupBy::Device => Self::default(),
            GroupBy::Size => Self {
                process,
                space: Some(it.space),
                bytes: Some(each(it)),
                origin: origin_of(it),
                devices: Some(it.indexes.clone()),
                ..Self::default()
            },
        }
    }
}

/// Whether a grouping counts an allocation. Cached programs use the same addresses, so their memory adds up to more than
/// there is: it is only shown by space or program, and views of buffers are counted as these.
fn counts(it: &Allocation, by: GroupBy) -> bool {
    let is_program = Space::PROGRAM.contains(&it.space);
    match by {
        _ if it.layout == Some(Layout::View) => false,
        GroupBy::Space => true,
        GroupBy::Program => is_program,
        GroupBy::Size | GroupBy::Process | GroupBy::Site | GroupBy::Device => !is_program,
    }
}

fn grouped(all: &[Allocation], by: GroupBy, snapshot: &Snapshot) -> Vec<Holder> {
    let shown = |index: &&u32| snapshot.devices.iter().any(|it| it.index == **index);
    let mut groups: BTreeMap<Key, Holder> = BTreeMap::new();
    for it in all.iter().filter(|it| counts(it, by)) {
        let devices: Vec<u32> = it.indexes.iter().filter(shown).copied().collect();
        let key = Key::new(it, by);
        if by == GroupBy::Device {
            for device in devices {
                let key = Key { devices: Some(vec![device]), ..key.clone() };
                add(groups.entry(key).or_default(), it, &[device]);
            }
        } else {
            add(groups.entry(key).or_default(), it, &devices);
        }
    }
    let mut groups: Vec<Holder> = groups.into_values().collect();
    for group in &mut groups {
        if let [(pid, reported)] = group.processes[..] {
            let process = snapshot.processes.iter().find(|it| (it.pid, it.reported_pid) == (pid, reported));
            group.process_name = process.and_then(|it| it.name.clone());
        }
    }
    groups
}

fn add(group: &mut Holder, it: &Allocation, devices: &[u32]) {
    fn note<T: PartialEq>(all: &mut Vec<T>, one: T) {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    let bytes = each(it);
    group.each_bytes = (group.count == 0 || group.each_bytes == Some(bytes)).then_some(bytes);
    group.total_bytes = group.total_bytes.saturating_add(bytes.saturating_mul(devices.len().max(1) as u64));
    group.count += 1;
    group.age_seconds = group.age_seconds.max(it.age_seconds);
    note(&mut group.spaces, it.space);
    note(&mut group.processes, (it.pid, it.reported_pid));
    for &device in devices {
        note(&mut group.devices, device);
    }
    if let Some(origin) = origin_of(it) {
        note(&mut group.origins, origin);
    }
}

#[derive(Serialize)]
struct Groups<'a> {
    schema: u32,
    at: jiff::Timestamp,
    simulated: bool,
    group_by: GroupBy,
    groups: Vec<Group<'a>>,
    /// Groups that `--top` leaves out.
    more: usize,
}

#[derive(Serialize)]
struct Group<'a> {
    total_bytes: u64,
    count: u64,
    each_bytes: Option<u64>,
    indexes: &'a [u32],
    spaces: &'a [Space],
    pids: Vec<Option<u32>>,
    process_name: Option<&'a str>,
    age_seconds: f64,
    origins: &'a [String],
}

impl<'a> Groups<'a> {
    fn new(dump: &Dump, group_by: GroupBy, groups: &'a [Holder], more: &[Holder]) -> Self {
        let group = |it: &'a Holder| Group {
            total_bytes: it.total_bytes,
            count: it.count,
            each_bytes: it.each_bytes,
            indexes: &it.devices,
            spaces: &it.spaces,
            pids: it.processes.iter().map(|(pid, _)| *pid).collect(),
            process_name: it.process_name.as_deref(),
            age_seconds: it.age_seconds,
            origins: &it.origins,
        };
        let Dump { schema, at, simulated, .. } = *dump;
        Self { schema, at, simulated, group_by, groups: groups.iter().map(group).collect(), more: more.len() }
    }
}

/// What holds the memory.
fn held(
    dump: &Dump,
    by: GroupBy,
    groups: &[Holder],
    more: &[Holder],
    unlisted: Option<&str>,
    style: Style,
) -> String {
    let mut text = String::new();
    let rows: Vec<&Holder> = groups.iter().collect();
    if !rows.is_empty() {
        for line in page(None, HOLDER_DUMP, &rows, style.width, |it| style.part(it)) {
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    let sum = |all: &[Holder]| all.iter().map(|it| it.total_bytes).fold(0, u64::saturating_add);
    if !more.is_empty() {
        let (rows, bytes) = (counted(more.len() as u64, "more group"), size(sum(more)));
        let _ = writeln!(text, "{rows} with {bytes}; --top N shows more, --all lists every allocation");
    }
    let counted_here = dump.allocations.iter().filter(|it| counts(it, by)).count() as u64;
    if counted_here > 0 || unlisted.is_none() {
        let bytes = size(sum(groups).saturating_add(sum(more)));
        let _ = writeln!(text, "{}, {bytes} on all devices", counted(counted_here, "allocation"));
    }
    let of_programs = dump.allocations.iter().filter(|it| Space::PROGRAM.contains(&it.space)).count() as u64;
    if of_programs > 0 && !matches!(by, GroupBy::Space | GroupBy::Program) {
        let _ = writeln!(
            text,
            "not included: {} of programs; see `ttmem dump --programs`",
            counted(of_programs, "allocation")
        );
    }
    note(&mut text, unlisted, style);
    text
}

/// Every allocation.
fn listed(dump: &Dump, more: &[Allocation], unlisted: Option<&str>, style: Style) -> String {
    let mut text = heading(DUMP) + "\n";
    for it in &dump.allocations {
        let _ = writeln!(text, "{}", line(DUMP, &it));
    }
    let sum = |all: &[Allocation]| all.iter().map(|it| it.requested_bytes).fold(0, u64::saturating_add);
    if !more.is_empty() {
        let _ = writeln!(text, "{} more with {} requested", more.len(), size(sum(more)));
    }
    let count = (dump.allocations.len() + more.len()) as u64;
    if count > 0 || unlisted.is_none() {
        let bytes = size(sum(&dump.allocations).saturating_add(sum(more)));
        let _ = writeln!(text, "{}, {bytes} requested per device", counted(count, "allocation"));
    }
    note(&mut text, unlisted, style);
    text
}

fn note(page: &mut String, note: Option<&str>, style: Style) {
    for line in note.into_iter().flat_map(|it| wrapped(it, style.width)) {
        let _ = writeln!(page, "{line}");
    }
}

/// Says whose buffers are not listed, and what to do about it.
fn unlisted(snapshot: &Snapshot) -> Option<String> {
    let named = |it: &Process| {
        let pid = process::pid(it.pid, it.reported_pid, "?");
        it.name.as_ref().map_or_else(|| format!("pid {pid}"), |name| format!("pid {pid} ({})", plain(name)))
    };
    let of = |basis: Basis| -> Vec<String> {
        snapshot.processes.iter().filter(|it| it.basis == basis).map(named).collect()
    };
    let kinds =
        [(Basis::Counters, "only tt-metal counters are known"), (Basis::Unknown, "nothing is published")];
    let parts: Vec<String> = kinds
        .into_iter()
        .map(|(basis, why)| (of(basis), why))
        .filter(|(of, _)| !of.is_empty())
        .map(|(of, why)| format!("{why} of {}", of.join(", ")))
        .collect();
    (!parts.is_empty()).then(|| {
        format!(
            "buffers not listed: {}; start programs with `ttmem run -- CMD` to list theirs",
            parts.join("; ")
        )
    })
}
