//! `TTMEM_EXPLAIN`: the short form of a post-mortem, appended to the exception of a failed allocation.
//!
//! Everything is read from the segment of this process, as `ttmem postmortem` does with the copy of it.
#![allow(unsafe_code)]

use crate::agent::tracker;
use crate::shim::CaughtText;
use core::fmt::Write as _;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use ttmem_client::Space;
use ttmem_client::agent::{self, SegmentCopy};
use ttmem_types::{FailureKind, Purpose, cheapest_window};
use ttmem_wire::failure::Failure;
use ttmem_wire::record::{Kind, Record, flags};
use ttmem_wire::segment::definition::{CallSite, Definition, Frame, parse};
use zerocopy::little_endian::U32;

/// Call sites and buffers that are listed.
const MAX_LISTED: usize = 3;

static IS_ON: AtomicBool = AtomicBool::new(false);

/// Reads from the environment whether exceptions are extended. Called when the agent starts.
pub(crate) fn configure() {
    let is_on = agent::variable("TTMEM_EXPLAIN").is_some_and(|value| value != "0");
    IS_ON.store(is_on, Ordering::Relaxed);
}

/// Appends the post-mortem of a failure to the text of its exception, if the user asked for it.
pub(crate) fn append(failure: &Failure, caught: &CaughtText) {
    if !IS_ON.load(Ordering::Relaxed) || caught.text.is_null() {
        return;
    }
    // A defect of ours must not replace the program's own exception.
    let text = std::panic::catch_unwind(|| describe(failure)).ok().flatten();
    let Some(text) = text else { return };
    // SAFETY: the text of an exception that is being handled.
    let mut longer = unsafe { CStr::from_ptr(caught.text) }.to_bytes().to_vec();
    longer.extend_from_slice(text.as_bytes());
    if let Ok(longer) = CString::new(longer) {
        caught.longer.set(longer.into_raw());
    }
}

/// Frees a text that was made for an exception.
pub(crate) fn drop_text(caught: &CaughtText) {
    let longer = caught.longer.replace(core::ptr::null_mut());
    if !longer.is_null() {
        // SAFETY: only this module sets it, to a text of its own.
        drop(unsafe { CString::from_raw(longer) });
    }
}

fn describe(failure: &Failure) -> Option<String> {
    let copy = agent::copy_segment(tracker())?;
    let names = Names::of(&copy);
    let mut text = String::from("\nttmem:\n");
    let mut line = |line: String| {
        let _ = writeln!(text, "  {line}");
    };
    line(format!("requested by {}", names.describe(failure.site)));
    let is_program = matches!(failure.kind, FailureKind::Clash | FailureKind::BeyondL1);
    let space = if is_program { Some(Space::L1) } else { failure.space };
    let bank = space.and_then(|space| Bank::of(&copy, failure, space));
    if let Some(bank) = &bank {
        match failure.kind {
            FailureKind::OutOfMemory => bank.describe_shortage(failure.needed, &names, &mut line),
            FailureKind::Clash => bank.describe_clash(failure.needed, &names, &mut line),
            _ => {}
        }
        bank.describe_holders(&names, &mut line);
    }
    line(format!("full report: ttmem postmortem {}", std::process::id()));
    Some(text)
}

/// The banks that a failure concerns, with their buffers by address.
struct Bank<'a> {
    range: Range<u64>,
    space: Space,
    buffers: Vec<&'a Record>,
}

impl<'a> Bank<'a> {
    fn of(copy: &'a SegmentCopy, failure: &Failure, space: Space) -> Option<Self> {
        let is_buffer = |record: &&Record| {
            record.sequence.get() != 0
                && record.kind == Kind::Alloc as u8
                && record.space == space as u8
                && record.flags.get() & flags::VIEW == 0
        };
        let mut by_allocator: BTreeMap<u16, Vec<&Record>> = BTreeMap::new();
        for record in copy.slots.iter().filter(is_buffer) {
            by_allocator.entry(record.allocator.get()).or_default().push(record);
        }
        // A program's scope has no banks: then the allocator with the most buffers counts.
        let mut allocators: Vec<(u16, Range<u64>)> = Vec::new();
        for definition in parse(&copy.definitions).flatten() {
            if let Definition::Allocator(number, banks, _) = definition
                && let Some(it) = banks.iter().find(|it| it.space == space as u8)
            {
                let base = it.base.get();
                allocators.push((number, base..base.saturating_add(it.bytes_per_bank.get())));
            }
        }
        let count = |number: u16| by_allocator.get(&number).map_or(0, Vec::len);
        let (number, range) =
            allocators.into_iter().max_by_key(|&(number, _)| (number == failure.allocator, count(number)))?;
        let mut buffers = by_allocator.remove(&number).unwrap_or_default();
        buffers.sort_unstable_by_key(|it| it.id.get());
        // What overlaps or is outside is a defect of a report; the rest is listed all the same.
        let mut covered = range.start;
        buffers.retain(|it| {
            let addresses = addresses(it);
            let fits = addresses.start >= covered && addresses.end <= range.end;
            covered = if fits { addresses.end } else { covered };
            fits
        });
        Some(Self { range, space, buffers })
    }

    fn describe_shortage(&self, needed: u64, names: &Names<'_>, line: &mut impl FnMut(String)) {
        let starts = self.buffers.iter().map(|it| it.id.get()).chain([self.range.end]);
        let ends = [self.range.start].into_iter().chain(self.buffers.iter().map(|it| addresses(it).end));
        let holes: Vec<u64> = starts.zip(ends).map(|(start, end)| start.saturating_sub(end)).collect();
        let (free, largest) = (holes.iter().sum::<u64>(), holes.iter().max().copied().unwrap_or(0));
        let bank = self.range.end - self.range.start;
        let why = match needed {
            needed if needed > bank => "too large",
            needed if needed > free => "full",
            _ => "fragmented",
        };
        line(format!(
            "{why}: needed {} per bank of {}, free {}, largest free block {}",
            size(needed),
            size(bank),
            size(free),
            size(largest)
        ));
        let window =
            cheapest_window(self.range.clone(), self.buffers.len(), |n| addresses(self.buffers[n]), needed);
        if let Some(window) = window.filter(|it| !it.buffers.is_empty()) {
            let freed = &self.buffers[window.buffers];
            line(format!("to make room, free {} ({} per bank):", plural(freed.len()), size(window.freed)));
            list_buffers(freed, names, line);
        }
    }

    fn describe_clash(&self, end: u64, names: &Names<'_>, line: &mut impl FnMut(String)) {
        let mut low: Vec<&Record> = self.buffers.iter().copied().filter(|it| it.id.get() < end).collect();
        low.sort_by_key(|it| core::cmp::Reverse(it.bytes_per_bank.get()));
        line(format!("in the way of the program, which ends at {end:#x}: {}", plural(low.len())));
        list_buffers(&low, names, line);
        line("free them and allocate them again, largest first, or move them to DRAM".to_owned());
    }

    fn describe_holders(&self, names: &Names<'_>, line: &mut impl FnMut(String)) {
        let mut holders: BTreeMap<String, (usize, u64)> = BTreeMap::new();
        let mut by_site: BTreeMap<u32, (usize, u64)> = BTreeMap::new();
        for record in &self.buffers {
            let sum = by_site.entry(record.site.get()).or_default();
            *sum = (sum.0 + 1, sum.1 + record.bytes_per_bank.get());
        }
        for (site, (count, bytes)) in by_site {
            let sum = holders.entry(names.describe(site)).or_default();
            *sum = (sum.0 + count, sum.1 + bytes);
        }
        let mut holders: Vec<(String, (usize, u64))> = holders.into_iter().collect();
        holders.sort_by_key(|(_, (_, bytes))| core::cmp::Reverse(*bytes));
        if !holders.is_empty() {
            line(format!("allocated in {}, per bank:", self.space.title()));
        }
        for (name, (count, bytes)) in holders.iter().take(MAX_LISTED) {
            line(format!("  {} in {}: {name}", size(*bytes), plural(*count)));
        }
        if let Some(more) = holders.len().checked_sub(MAX_LISTED).filter(|&more| more > 0) {
            line(format!("  {more} more"));
        }
    }
}

fn list_buffers(buffers: &[&Record], names: &Names<'_>, line: &mut impl FnMut(String)) {
    for it in buffers.iter().take(MAX_LISTED) {
        let name = names.describe(it.site.get());
        line(format!("  {} at {:#x}: {name}", size(it.bytes_per_bank.get()), it.id.get()));
    }
    if let Some(more) = buffers.len().checked_sub(MAX_LISTED).filter(|&more| more > 0) {
        line(format!("  {more} more"));
    }
}

fn addresses(record: &Record) -> Range<u64> {
    let start = record.id.get();
    start..start.saturating_add(record.bytes_per_bank.get())
}

/// The names of call sites.
#[derive(Default)]
struct Names<'a> {
    files: BTreeMap<u32, &'a str>,
    frames: BTreeMap<u32, (&'a Frame, &'a str)>,
    ops: BTreeMap<u32, &'a str>,
    sites: BTreeMap<u32, (&'a CallSite, &'a [U32], &'a str)>,
}

impl<'a> Names<'a> {
    fn of(copy: &'a SegmentCopy) -> Self {
        let mut names = Self::default();
        for definition in parse(&copy.definitions).flatten() {
            match definition {
                Definition::File(number, path) | Definition::Library(number, _, path) => {
                    names.files.insert(number, path);
                }
                Definition::Frame(number, frame, function) => {
                    names.frames.insert(number, (frame, function));
                }
                Definition::Op(number, name) => drop(names.ops.insert(number, name)),
                Definition::CallSite(number, site, dimensions, text) => {
                    names.sites.insert(number, (site, dimensions, text));
                }
                _ => {}
            }
        }
        names
    }

    /// `ttnn.zeros, model.py:42 (forward), bfloat16 [32, 512] tile`, as far as it is known.
    fn describe(&self, site: u32) -> String {
        let Some((site, dimensions, text)) = self.sites.get(&site) else { return "unknown".to_owned() };
        let mut parts: Vec<String> = Vec::new();
        let purpose = Purpose::from_number(site.purpose).unwrap_or_default();
        if !matches!(purpose, Purpose::Tensor | Purpose::Unknown) {
            parts.push(purpose.name().to_owned());
        }
        parts.extend(self.ops.get(&site.op.get()).map(|&op| op.to_owned()));
        if let Some((frame, function)) = self.frames.get(&site.frame.get()) {
            let path = self.files.get(&frame.file.get()).copied().unwrap_or("?");
            let file = path.rsplit('/').next().unwrap_or(path);
            parts.push(match (frame.line.get(), *function) {
                (0, "") => format!("{file}+{:#x}", frame.offset.get()),
                (0, _) => format!("{file} ({function})"),
                (line, _) => format!("{file}:{line} ({function})"),
            });
        } else if !text.is_empty() {
            parts.push((*text).to_owned());
        }
        parts.extend(site.tensor(dimensions).map(|tensor| tensor.to_string()));
        if parts.is_empty() { "unknown".to_owned() } else { parts.join(", ") }
    }
}

fn plural(count: usize) -> String {
    format!("{count} buffer{}", if count == 1 { "" } else { "s" })
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}
