//! `ttmem check --limit`: whether the memory of devices, or of one process on them, is below limits.

use crate::cli::{CheckArgs, Sockets};
use crate::listing::print_json;
use crate::source::{answer_or_report, open_source};
use crate::{Exit, print};
use serde::Serialize;
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::str::FromStr;
use ttmem_core::snapshot::{BufferUsage, SCHEMA, Usage};
use ttmem_core::words::{Space, size};
use ttmem_core::{Detail, Snapshot};

/// Spaces that can be limited.
const SPACES: [Space; 4] = [Space::Dram, Space::L1, Space::L1Small, Space::Trace];
/// Units of sizes, and their bytes.
const UNITS: [(&str, u64); 8] = [
    ("B", 1),
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// A limit, as `dram<10GiB` or `l1_peak<=90%`.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    text: String,
    space: Space,
    is_of_peak: bool,
    may_be_equal: bool,
    bound: Bound,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    Bytes(u64),
    /// Percent of the bytes that the allocator manages.
    Percent(f64),
}

/// A text that is no limit: which part of it, and what is expected.
#[derive(Debug)]
pub(crate) struct BadLimit(String);

impl fmt::Display for BadLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadLimit {}

impl FromStr for Limit {
    type Err = BadLimit;

    fn from_str(text: &str) -> Result<Self, BadLimit> {
        let expected = "expected a limit such as dram<10GiB or l1_peak<90%";
        let (name, bound) = text.split_once('<').ok_or_else(|| BadLimit(expected.to_owned()))?;
        let (may_be_equal, bound) = bound.strip_prefix('=').map_or((false, bound), |bound| (true, bound));
        let name = name.trim();
        let (space, is_of_peak) = name.strip_suffix("_peak").map_or((name, false), |space| (space, true));
        let found = SPACES.into_iter().find(|it| it.name() == space);
        let names = SPACES.map(Space::name).join(", ");
        let space = found
            .ok_or_else(|| BadLimit(format!("unknown space {space:?}; expected {names}, or with _peak")))?;
        Ok(Self {
            text: text.trim().to_owned(),
            space,
            is_of_peak,
            may_be_equal,
            bound: parse_bound(bound.trim())?,
        })
    }
}

fn parse_bound(text: &str) -> Result<Bound, BadLimit> {
    let units = UNITS.map(|(name, _)| name).join(", ");
    let unknown = || BadLimit(format!("unknown size {text:?}; expected a number with %, {units}"));
    match split_number(text).ok_or_else(unknown)? {
        (percent, "%") => Ok(Bound::Percent(percent)),
        (number, unit) => Ok(Bound::Bytes(bytes_of(number, unit).ok_or_else(unknown)?)),
    }
}

/// Reads a size such as `64KiB`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let bytes = split_number(text).and_then(|(number, unit)| bytes_of(number, unit));
    let units = UNITS.map(|(name, _)| name).join(", ");
    bytes.ok_or_else(|| format!("unknown size {text:?}; expected a number with {units}"))
}

/// A number and the unit after it.
fn split_number(text: &str) -> Option<(f64, &str)> {
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    Some((text[..digits].parse().ok()?, text[digits..].trim()))
}

fn bytes_of(number: f64, unit: &str) -> Option<u64> {
    let (_, bytes) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    Some((number * bytes as f64) as u64)
}

/// A limit and what was found.
#[derive(Serialize)]
struct Checked<'a> {
    limit: &'a str,
    index: u32,
    /// `null`: unknown.
    bytes: Option<u64>,
    limit_bytes: Option<u64>,
    /// `null`: cannot be said.
    within: Option<bool>,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    limits: Vec<Checked<'a>>,
}

pub(crate) fn run(args: &CheckArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    let mut source = open_source(sockets, false, false)?;
    let Some(snapshot) = answer_or_report(source.snapshot(&Detail::NONE))? else { return Ok(Exit::NoDaemon) };
    let usages = usages(&snapshot, args.pid);
    if usages.is_empty() {
        let what = args.pid.map_or_else(|| "no device".to_owned(), |pid| format!("no memory of pid {pid}"));
        let _ = writeln!(io::stderr(), "ttmem: nothing to check: {what} was found");
        return Ok(Exit::NothingFound);
    }
    let limits: Vec<Checked<'_>> = args
        .limit
        .iter()
        .flat_map(|limit| usages.iter().map(|&(index, usage)| limit.check(index, usage)))
        .collect();
    let all_hold = limits.iter().all(|it| it.within == Some(true));
    let exit = if all_hold { Exit::Done } else { Exit::Failed };
    if args.json {
        print_json(&Report { schema: SCHEMA, limits }, None)?;
    } else {
        print(format_page(&limits, args.pid).as_bytes())?;
    }
    Ok(exit)
}

/// The usage of each device, or what one process uses on each.
fn usages(snapshot: &Snapshot, pid: Option<u32>) -> Vec<(u32, &Usage)> {
    let Some(pid) = pid else { return snapshot.devices.iter().map(|it| (it.index, &it.usage)).collect() };
    let of_process = snapshot.processes.iter().filter(|it| it.pid == Some(pid)).flat_map(|it| &it.usage);
    let index_of = |id: &str| snapshot.devices.iter().find(|it| it.id == id).map(|it| it.index);
    of_process.filter_map(|it| Some((index_of(&it.device)?, &it.usage))).collect()
}

impl Limit {
    fn check(&self, index: u32, usage: &Usage) -> Checked<'_> {
        let buffers = match self.space {
            Space::L1 => &usage.l1,
            Space::L1Small => &usage.l1_small,
            Space::Trace => &usage.trace,
            _ => &usage.dram,
        };
        // A device that no process uses has no figures; a process untracked there is not known to use nothing.
        let figure =
            |it: &BufferUsage| if self.is_of_peak { it.peak_bytes.max(it.used_bytes) } else { it.used_bytes };
        let bytes = buffers.as_ref().map(figure);
        let limit_bytes = match self.bound {
            Bound::Bytes(bytes) => Some(bytes),
            Bound::Percent(percent) => {
                let all = buffers.as_ref().and_then(|it| it.allocatable_bytes);
                all.map(|all| (all as f64 * percent / 100.0) as u64)
            }
        };
        let is_below =
            |(bytes, limit): (u64, u64)| if self.may_be_equal { bytes <= limit } else { bytes < limit };
        Checked { limit: &self.text, index, bytes, limit_bytes, within: bytes.zip(limit_bytes).map(is_below) }
    }
}

fn format_page(limits: &[Checked<'_>], pid: Option<u32>) -> String {
    let mut page = String::new();
    let of = pid.map_or_else(String::new, |pid| format!(", pid {pid}"));
    for Checked { limit, index, bytes, limit_bytes, within } in limits {
        let found = bytes.map_or_else(|| "unknown".to_owned(), size);
        let limit_text = limit_bytes.map_or_else(|| "unknown".to_owned(), size);
        let verdict = match within {
            Some(true) => "ok",
            Some(false) => "above the limit",
            None => "unknown: no process reports memory of this space",
        };
        let _ = writeln!(page, "{limit} on device {index}{of}: {found} of {limit_text}: {verdict}");
    }
    page
}
