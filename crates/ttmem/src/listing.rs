//! `ttmem dump`: every live allocation, or groups of them.

use crate::cli::{DumpArgs, Filter, GroupBy, Sockets, SortBy};
use crate::query::Format;
use crate::source::{answer_or_report, open_source};
use crate::text::{Style, size, wrap};
use crate::{Exit, blocks, cores, print, programs, report, show};
use anyhow::Context;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use ttmem_core::snapshot::{Allocation, Origin, Process};
use ttmem_core::words::{Basis, Layout, Space};
use ttmem_core::{Detail, Snapshot};
use ttmem_reader::{Dump, Reader, Request, json};
use ttmem_render::allocation::{DUMP, FIELDS, describe_origin};
use ttmem_render::format::{plural, sanitize};
use ttmem_render::holder::{HOLDER_FIELDS, Holder, HolderKey, dump_columns};
use ttmem_render::site::{describe_function, describe_site, special_purpose};
use ttmem_render::{format_csv, format_heading, format_row, format_table, process};

/// The most groups on a terminal without `--top`: with titles and totals they fit 24 lines.
const MAX_GROUPS: usize = 18;

pub(crate) fn dump(args: &DumpArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    let mut source = match &args.segment {
        Some(file) => Reader::of_segment(file)?,
        None => open_source(sockets, false, false)?,
    };
    if args.blocks {
        return blocks::dump(args, &mut source);
    }
    if let Some(folder) = &args.report {
        return report::write(args, folder, &mut source);
    }
    if args.programs {
        return programs::dump(args, &mut source);
    }
    if let Some(selection) = args.cores {
        return cores::dump(args, selection, &mut source);
    }
    let Some(mut dump) = fetch_allocations(&mut source)? else { return Ok(Exit::NoDaemon) };
    let Some(snapshot) = answer_or_report(source.snapshot(&Detail::NONE))? else {
        return Ok(Exit::NoDaemon);
    };
    let snapshot = show::apply_filter(snapshot, &args.filter)?;
    filter_allocations(&mut dump, &snapshot, &args.filter);
    let unlisted = describe_unlisted(&snapshot);
    let unlisted = unlisted.as_deref();
    let style = Style::new(false);
    let format = args.format();
    let is_list = args.all
        || format != Format::Table
        || args.sort.is_some()
        || args.top.is_some()
        || !io::stdout().is_terminal();
    let group_by = args.group_by.or((!is_list).then_some(GroupBy::Size));
    let is_short = format == Format::Table && group_by.is_some() && io::stdout().is_terminal() && !args.all;
    let top = args.top.or(is_short.then_some(MAX_GROUPS));
    let Some(by) = group_by else {
        sort(&mut dump.allocations, args);
        let more = dump.allocations.split_off(top.unwrap_or(usize::MAX).min(dump.allocations.len()));
        return match format {
            Format::Json => print_json(&dump, unlisted),
            Format::Csv(options) => print_csv(&format_csv(FIELDS, &dump.allocations, options), unlisted),
            Format::Table => print(format_list(&dump, &more, unlisted, style).as_bytes()),
        };
    };
    let mut groups = group(&dump.allocations, by, &snapshot);
    groups.sort_by(|a, b| match args.sort.unwrap_or(SortBy::Size) {
        SortBy::Size => b.total_bytes.cmp(&a.total_bytes),
        SortBy::Age => b.age_seconds.total_cmp(&a.age_seconds).then(b.total_bytes.cmp(&a.total_bytes)),
        SortBy::Count => b.count.cmp(&a.count).then(b.total_bytes.cmp(&a.total_bytes)),
    });
    let more = groups.split_off(top.unwrap_or(usize::MAX).min(groups.len()));
    match format {
        Format::Json => print_json(&GroupedDump::new(&dump, by, &groups, &more), unlisted),
        Format::Csv(options) => print_csv(&format_csv(HOLDER_FIELDS, &groups, options), unlisted),
        Format::Table => print(format_groups(&dump, by, &groups, &more, unlisted, style).as_bytes()),
    }
}

/// Prints a value as one line of JSON, and a note on standard error.
pub(crate) fn print_json(value: &impl Serialize, note: Option<&str>) -> anyhow::Result<Exit> {
    let mut line = json::to_vec(value)?;
    line.push(b'\n');
    print_with_note(&line, note)
}

/// Prints CSV, and a note on standard error.
pub(crate) fn print_csv(page: &str, note: Option<&str>) -> anyhow::Result<Exit> {
    print_with_note(page.as_bytes(), note)
}

/// Prints a page, and a note on standard error.
pub(crate) fn print_with_note(output: &[u8], note: Option<&str>) -> anyhow::Result<Exit> {
    if let Some(note) = note {
        let _ = writeln!(io::stderr(), "ttmem: {note}");
    }
    print(output)
}

/// Removes allocations that do not match the filter.
pub(crate) fn filter_allocations(dump: &mut Dump, snapshot: &Snapshot, filter: &Filter) {
    if let Some(pid) = filter.pid {
        dump.allocations.retain(|it| it.pid == Some(pid));
    }
    if filter.user.is_some() {
        dump.allocations.retain(|it| snapshot.processes.iter().any(|process| process.pid == it.pid));
    }
    if !filter.device.is_empty() {
        dump.allocations.retain(|it| snapshot.devices.iter().any(|device| it.devices.contains(&device.id)));
    }
}

/// Fetches every live allocation, in no order.
pub(crate) fn fetch_allocations(source: &mut Reader) -> anyhow::Result<Option<Dump>> {
    let Some(answer) = answer_or_report(source.ask(&Request::Allocations))? else { return Ok(None) };
    Ok(Some(serde_json::from_slice(&answer).context("cannot read the answer")?))
}

/// Sorts by device, space and address, or by the order of the arguments.
fn sort(allocations: &mut [Allocation], args: &DumpArgs) {
    match args.sort.or(args.top.map(|_| SortBy::Size)) {
        Some(SortBy::Size) => allocations.sort_by_key(|it| Reverse(total_bytes(it))),
        Some(SortBy::Age) => allocations.sort_by(|a, b| b.age_seconds.total_cmp(&a.age_seconds)),
        Some(SortBy::Count) => allocations.sort_by_key(|it| Reverse(it.references)),
        None => allocations.sort_by_cached_key(|it| {
            let id = u64::from_str_radix(it.id.trim_start_matches("0x"), 16).unwrap_or(u64::MAX);
            (it.indexes.clone(), it.space, id, it.pid, it.requested_bytes)
        }),
    }
}

/// Bytes of an allocation on each of its devices.
fn bytes_per_device(allocation: &Allocation) -> u64 {
    allocation.allocated_bytes.unwrap_or(allocation.requested_bytes)
}

/// Bytes of an allocation on all its devices.
fn total_bytes(allocation: &Allocation) -> u64 {
    bytes_per_device(allocation).saturating_mul(allocation.indexes.len().max(1) as u64)
}

/// The key of a group: the values that its allocations share.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    process: Option<(Option<u32>, Option<i64>)>,
    space: Option<Space>,
    bytes: Option<u64>,
    program: Option<(Option<u32>, Option<u32>)>,
    origin: Option<String>,
    devices: Option<Vec<u32>>,
    /// Parts of a call site.
    parts: Vec<Option<String>>,
}

impl Key {
    fn new(allocation: &Allocation, by: GroupBy) -> Self {
        let Allocation { pid, reported_pid, allocator, program, space, .. } = *allocation;
        let process = Some((pid, reported_pid));
        match by {
            GroupBy::Space => Self { space: Some(space), ..Self::default() },
            GroupBy::Process => Self { process, ..Self::default() },
            GroupBy::Program => Self { process, program: Some((allocator, program)), ..Self::default() },
            GroupBy::Site
            | GroupBy::Op
            | GroupBy::Function
            | GroupBy::File
            | GroupBy::Tensor
            | GroupBy::Track => Self { parts: site_parts(allocation, by), ..Self::default() },
            GroupBy::Device => Self::default(),
            GroupBy::Size => Self {
                process,
                space: Some(space),
                bytes: Some(bytes_per_device(allocation)),
                origin: describe_origin(allocation),
                devices: Some(allocation.indexes.clone()),
                ..Self::default()
            },
        }
    }
}

/// The parts of a call site by which allocations are grouped. If these are unknown, memory that is not that of a tensor is
/// grouped by what it is for.
fn site_parts(allocation: &Allocation, by: GroupBy) -> Vec<Option<String>> {
    let Allocation { site_name, origin, .. } = allocation;
    let Origin { file, line, function, op, tensor, purpose, track, .. } = origin;
    let mut parts = match by {
        GroupBy::Op => vec![op.clone()],
        GroupBy::Function => vec![file.clone(), function.clone()],
        GroupBy::File => vec![file.clone()],
        GroupBy::Tensor => vec![tensor.clone()],
        GroupBy::Track => vec![track.clone()],
        _ => {
            let name = site_name.clone().filter(|_| line.is_none());
            vec![file.clone(), line.map(|line| line.to_string()), function.clone(), name]
        }
    };
    if parts.iter().all(Option::is_none) {
        parts.push(special_purpose(*purpose).map(str::to_owned));
    }
    parts
}

/// What the allocations of a group have in common, as text, if it is known.
fn describe_group(group: &Holder, by: GroupBy) -> Option<String> {
    let Holder { origin, ops, .. } = group;
    let common = match by {
        GroupBy::Site => {
            let ops = match &ops[..] {
                [] => None,
                [one] => Some(one.clone()),
                many => Some(plural(many.len() as u64, "operation")),
            };
            let site = group.origins.first().map(String::as_str);
            return describe_site(site, ops.as_deref(), origin.purpose);
        }
        GroupBy::Op => origin.op.clone(),
        GroupBy::Function => describe_function(origin),
        GroupBy::File => origin.file.clone(),
        GroupBy::Tensor => origin.tensor.clone(),
        GroupBy::Track => origin.track.clone(),
        _ => return None,
    };
    common.or_else(|| special_purpose(origin.purpose).map(str::to_owned))
}

/// Whether a grouping counts an allocation. Cached programs share addresses, so their sum may exceed the capacity: their
/// memory is counted by space and program only. Views of buffers are counted as these.
fn is_counted(allocation: &Allocation, by: GroupBy) -> bool {
    let is_program = Space::PROGRAM.contains(&allocation.space);
    match by {
        _ if allocation.layout == Some(Layout::View) => false,
        GroupBy::Space => true,
        GroupBy::Program => is_program,
        _ => !is_program,
    }
}

fn group(allocations: &[Allocation], by: GroupBy, snapshot: &Snapshot) -> Vec<Holder> {
    let is_shown = |index: &&u32| snapshot.devices.iter().any(|it| it.index == **index);
    let mut groups: BTreeMap<Key, Holder> = BTreeMap::new();
    for allocation in allocations.iter().filter(|it| is_counted(it, by)) {
        let devices: Vec<u32> = allocation.indexes.iter().filter(is_shown).copied().collect();
        let key = Key::new(allocation, by);
        if by == GroupBy::Device {
            for device in devices {
                let key = Key { devices: Some(vec![device]), ..key.clone() };
                add_to_group(groups.entry(key).or_default(), allocation, by, &[device]);
            }
        } else {
            add_to_group(groups.entry(key).or_default(), allocation, by, &devices);
        }
    }
    let mut groups: Vec<Holder> = groups.into_values().collect();
    let all = groups.iter().map(|it| it.total_bytes).fold(0, u64::saturating_add).max(1);
    for group in &mut groups {
        group.share_percent = round(group.total_bytes as f64 / all as f64 * 100.0);
        if holder_key(by) != HolderKey::Size {
            group.label = Some(describe_group(group, by).unwrap_or_else(|| "unknown".to_owned()));
        }
        if let [(pid, reported)] = group.processes[..] {
            let process = snapshot.processes.iter().find(|it| (it.pid, it.reported_pid) == (pid, reported));
            group.process_name = process.and_then(|it| it.name.clone());
        }
    }
    groups
}

/// A number with two decimals.
fn round(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

fn add_to_group(group: &mut Holder, allocation: &Allocation, by: GroupBy, devices: &[u32]) {
    fn push_unique<T: PartialEq>(all: &mut Vec<T>, one: T) {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    if group.count == 0 {
        group.origin = Origin { stack: Vec::new(), ..allocation.origin.clone() };
    } else {
        keep_common(&mut group.origin, &allocation.origin);
    }
    let bytes = bytes_per_device(allocation);
    group.each_bytes = (group.count == 0 || group.each_bytes == Some(bytes)).then_some(bytes);
    group.total_bytes = group.total_bytes.saturating_add(bytes.saturating_mul(devices.len().max(1) as u64));
    group.count += 1;
    group.age_seconds = group.age_seconds.max(allocation.age_seconds);
    push_unique(&mut group.spaces, allocation.space);
    push_unique(&mut group.processes, (allocation.pid, allocation.reported_pid));
    for &device in devices {
        push_unique(&mut group.devices, device);
    }
    // Call sites are shown with all their operations.
    let origin = if by == GroupBy::Site { allocation.site_name.clone() } else { describe_origin(allocation) };
    if let Some(origin) = origin {
        push_unique(&mut group.origins, origin);
    }
    if let Some(op) = &allocation.origin.op {
        push_unique(&mut group.ops, op.clone());
    }
}

/// Removes what differs from another call site.
fn keep_common(common: &mut Origin, other: &Origin) {
    fn keep<T: PartialEq>(common: &mut Option<T>, other: Option<&T>) {
        if common.as_ref() != other {
            *common = None;
        }
    }
    keep(&mut common.file, other.file.as_ref());
    keep(&mut common.line, other.line.as_ref());
    keep(&mut common.function, other.function.as_ref());
    keep(&mut common.op, other.op.as_ref());
    keep(&mut common.purpose, other.purpose.as_ref());
    keep(&mut common.tensor, other.tensor.as_ref());
    keep(&mut common.track, other.track.as_ref());
}

#[derive(Serialize)]
struct GroupedDump<'a> {
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
    share_percent: f64,
    count: u64,
    each_bytes: Option<u64>,
    indexes: &'a [u32],
    spaces: &'a [Space],
    pids: Vec<Option<u32>>,
    process_name: Option<&'a str>,
    age_seconds: f64,
    origins: &'a [String],
    ops: &'a [String],
    #[serde(flatten)]
    origin: &'a Origin,
}

impl<'a> GroupedDump<'a> {
    fn new(dump: &Dump, group_by: GroupBy, groups: &'a [Holder], more: &[Holder]) -> Self {
        let group = |holder: &'a Holder| Group {
            total_bytes: holder.total_bytes,
            share_percent: holder.share_percent,
            count: holder.count,
            each_bytes: holder.each_bytes,
            indexes: &holder.devices,
            spaces: &holder.spaces,
            pids: holder.processes.iter().map(|(pid, _)| *pid).collect(),
            process_name: holder.process_name.as_deref(),
            age_seconds: holder.age_seconds,
            origins: &holder.origins,
            ops: &holder.ops,
            origin: &holder.origin,
        };
        let Dump { schema, at, simulated, .. } = *dump;
        Self { schema, at, simulated, group_by, groups: groups.iter().map(group).collect(), more: more.len() }
    }
}

fn holder_key(by: GroupBy) -> HolderKey {
    match by {
        GroupBy::Site => HolderKey::Site,
        GroupBy::Op => HolderKey::Op,
        GroupBy::Function => HolderKey::Function,
        GroupBy::File => HolderKey::File,
        GroupBy::Tensor => HolderKey::Tensor,
        GroupBy::Track => HolderKey::Track,
        GroupBy::Space | GroupBy::Size | GroupBy::Process | GroupBy::Program | GroupBy::Device => {
            HolderKey::Size
        }
    }
}

fn format_groups(
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
        for line in format_table(None, dump_columns(holder_key(by)), &rows, style.list_width, |cell| {
            style.paint_cell(cell)
        }) {
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    let sum = |all: &[Holder]| all.iter().map(|it| it.total_bytes).fold(0, u64::saturating_add);
    if !more.is_empty() {
        let (rows, bytes) = (plural(more.len() as u64, "more group"), size(sum(more)));
        let _ = writeln!(text, "{rows} with {bytes}; --top N shows more, --all lists every allocation");
    }
    let count = dump.allocations.iter().filter(|it| is_counted(it, by)).count() as u64;
    if count > 0 || unlisted.is_none() {
        let bytes = size(sum(groups).saturating_add(sum(more)));
        let _ = writeln!(text, "{}, {bytes} on all devices", plural(count, "allocation"));
    }
    let of_programs = dump.allocations.iter().filter(|it| Space::PROGRAM.contains(&it.space)).count() as u64;
    if of_programs > 0 && !matches!(by, GroupBy::Space | GroupBy::Program) {
        let _ = writeln!(
            text,
            "not included: {} of programs; see `ttmem dump --programs`",
            plural(of_programs, "allocation")
        );
    }
    add_note(&mut text, unlisted, style);
    text
}

fn format_list(dump: &Dump, more: &[Allocation], unlisted: Option<&str>, style: Style) -> String {
    let mut text = format_heading(DUMP) + "\n";
    for allocation in &dump.allocations {
        let _ = writeln!(text, "{}", format_row(DUMP, &allocation));
    }
    let sum = |all: &[Allocation]| all.iter().map(|it| it.requested_bytes).fold(0, u64::saturating_add);
    if !more.is_empty() {
        let _ = writeln!(text, "{} more with {} requested", more.len(), size(sum(more)));
    }
    let count = (dump.allocations.len() + more.len()) as u64;
    if count > 0 || unlisted.is_none() {
        let bytes = size(sum(&dump.allocations).saturating_add(sum(more)));
        let _ = writeln!(text, "{}, {bytes} requested per device", plural(count, "allocation"));
    }
    add_note(&mut text, unlisted, style);
    text
}

pub(crate) fn add_note(page: &mut String, note: Option<&str>, style: Style) {
    for line in note.into_iter().flat_map(|note| wrap(note, style.width)) {
        let _ = writeln!(page, "{line}");
    }
}

/// The processes whose buffers are not listed, and the remedy.
pub(crate) fn describe_unlisted(snapshot: &Snapshot) -> Option<String> {
    let describe = |process: &Process| {
        let pid = process::pid(process.pid, process.reported_pid, "?");
        match &process.name {
            Some(name) => format!("pid {pid} ({})", sanitize(name)),
            None => format!("pid {pid}"),
        }
    };
    let those = |wanted: &dyn Fn(&&Process) -> bool| -> Vec<String> {
        snapshot.processes.iter().filter(wanted).map(describe).collect()
    };
    let kinds =
        [(Basis::Counters, "only tt-metal counters are known"), (Basis::Unknown, "nothing is published")];
    let mut parts: Vec<String> = kinds
        .into_iter()
        .map(|(basis, reason)| (those(&|it| it.basis == basis), reason))
        .filter(|(processes, _)| !processes.is_empty())
        .map(|(processes, reason)| format!("{reason} of {}", processes.join(", ")))
        .collect();
    if let Some(last) = parts.last_mut() {
        last.push_str("; start programs with `ttmem run -- CMD` to list theirs");
    }
    let is_hidden = |it: &&Process| it.hidden && !kinds.iter().any(|(basis, _)| it.basis == *basis);
    let hidden = those(&is_hidden);
    if !hidden.is_empty() {
        parts.push(format!(
            "other users' are withheld: {}; root and the group of `ttmem serve --share-group` see them",
            hidden.join(", ")
        ));
    }
    (!parts.is_empty()).then(|| format!("buffers not listed: {}", parts.join("; ")))
}
