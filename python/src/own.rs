//! What this process holds, by its own segments: our tracker's, the agent's, or any other's.
//!
//! They are read where they are mapped, through `/proc/self/mem`: opening and closing one's own segment would drop its lock, and
//! memory that is gone by then is an error there, not a crash.

use crate::errors::refused;
use crate::given::InSpace;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use ttmem_client::{AllocatorNumber, Space, Tracker as Client};
use ttmem_wire::segment::definition::{self, Definition};
use ttmem_wire::segment::{
    BLOCK, FILE_PREFIX, HEADER_BYTES, Header, Layout, MAGIC, RowCopy, Vitals, newest, parse_name, state,
    text, word,
};
use zerocopy::{FromZeros, IntoBytes};

/// A segment of this process, and where it is mapped.
#[derive(Clone)]
struct Mapped {
    name: String,
    path: PathBuf,
    address: u64,
}

/// What was found the last time: looking through a large process's mappings takes a while.
static KNOWN: Mutex<Vec<Mapped>> = Mutex::new(Vec::new());

/// One space of one allocator.
struct Figure {
    allocator: u16,
    devices: Vec<u32>,
    space: Space,
    row: RowCopy,
}

/// This process's segments, as their names say.
fn names(folder: &Path, pid: u32) -> Vec<String> {
    let prefix = format!("{FILE_PREFIX}{pid}.");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|it| it.file_name().into_string().ok()).filter(|it| it.starts_with(&prefix)).collect()
}

/// Where this process has segments of its own mapped.
fn mapped(pid: u32) -> Vec<Mapped> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut found: Vec<Mapped> = Vec::new();
    for line in maps.lines() {
        // Address, rights, offset, device, inode, path.
        let mut words = line.splitn(6, ' ');
        let (Some(range), _, Some(offset), _, _, Some(rest)) =
            (words.next(), words.next(), words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        let path = Path::new(rest.trim_start());
        let Some(name) = path.file_name().and_then(|it| it.to_str()) else { continue };
        let ours = parse_name(name.as_bytes()).is_some_and(|(of, _)| of == pid);
        if !ours || u64::from_str_radix(offset, 16) != Ok(0) || found.iter().any(|it| it.name == name) {
            continue;
        }
        let start = range.split('-').next().and_then(|it| u64::from_str_radix(it, 16).ok());
        if let Some(address) = start {
            found.push(Mapped { name: name.to_owned(), path: path.to_owned(), address });
        }
    }
    found
}

/// This process's segments. Those that were there the last time are looked for where they were.
fn segments() -> Vec<Mapped> {
    let pid = std::process::id();
    let folder = std::env::var_os("TTMEM_SHM_DIR").filter(|it| !it.is_empty());
    let folder = folder.map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
    let mut known = KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut there = names(&folder, pid);
    for other in known.iter().filter_map(|it| it.path.parent()).filter(|it| **it != *folder) {
        there.extend(names(other, pid));
    }
    let own = Client::global().status().segment;
    let is_known = |name: &String| known.iter().any(|it| it.name == *name);
    let same = there.len() == known.len() && there.iter().chain(&own).all(is_known);
    if !same {
        *known = mapped(pid);
    }
    known.clone()
}

/// What a segment says, and who writes it. `None`: it is gone, or closed.
fn read(memory: &File, it: &Mapped) -> Option<(String, Vec<Figure>)> {
    let bytes = fs::metadata(&it.path).ok()?.len();
    let mut header = Header::new_zeroed();
    memory.read_exact_at(header.as_mut_bytes(), it.address).ok()?;
    let named = parse_name(it.name.as_bytes())?;
    if header.magic.get() != MAGIC || (header.pid.get(), header.nonce.get()) != named {
        return None;
    }
    let layout = Layout::of(&header, bytes).ok()?;
    debug_assert!(word::SLOTS + size_of::<Vitals>() <= HEADER_BYTES);
    let mut vitals = Vitals::new_zeroed();
    memory.read_exact_at(vitals.as_mut_bytes(), it.address + word::SLOTS as u64).ok()?;
    if vitals.state.get() != state::OPEN {
        return None;
    }
    let (offset, blocks) = layout.definitions;
    let used = vitals.blocks_used.get().min(u64::from(blocks)) as usize;
    let mut definitions = vec![0; used * BLOCK];
    memory.read_exact_at(&mut definitions, it.address + offset).ok()?;
    let (offset, most, row_bytes) = layout.rows;
    let used = vitals.rows_used.get().min(u64::from(most)) as usize;
    let mut rows = vec![0; used * row_bytes as usize];
    memory.read_exact_at(&mut rows, it.address + offset).ok()?;

    let mut chips = BTreeMap::new();
    let mut allocators = BTreeMap::new();
    for definition in definition::parse(&definitions).flatten() {
        match definition {
            Definition::Chip(number, chip) => drop(chips.insert(number, chip.index.get())),
            Definition::Allocator(number, _, of) => drop(allocators.insert(number, of)),
            _ => {}
        }
    }
    let figure = |row: RowCopy| {
        let allocator = row.allocator.get();
        let of = allocators.get(&allocator)?;
        let devices = of.iter().filter_map(|chip| chips.get(&chip.get()).copied()).collect();
        Some(Figure { allocator, devices, space: Space::from_number(row.space)?, row })
    };
    let rows = rows.chunks_exact(row_bytes as usize).filter_map(newest);
    Some((text(&header.writer).to_owned(), rows.filter_map(figure).collect()))
}

/// What this process holds: for each segment its name, its writer, whether it is our tracker's, and for each allocator and
/// space in it (allocator, devices, space, allocated, peak, whether it is closed).
#[pyfunction]
pub(crate) fn figures(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let own = Client::global().status().segment;
    let all = PyList::empty(py);
    let memory = File::open("/proc/self/mem")?;
    for segment in segments() {
        let Some((writer, figures)) = read(&memory, &segment) else { continue };
        let rows = PyList::empty(py);
        for Figure { allocator, devices, space, row } in figures {
            let (allocated, peak, closed) = (row.allocated.get(), row.peak.get(), row.closed.get() != 0);
            let devices = PyTuple::new(py, devices)?;
            rows.append((allocator, devices, space.name(), allocated, peak, closed))?;
        }
        all.append((&segment.name, writer, own.as_ref() == Some(&segment.name), rows))?;
    }
    Ok(all)
}

/// Lets a peak of our own tracker begin anew.
#[pyfunction]
pub(crate) fn reset_own_peak(py: Python<'_>, allocator: u16, space: InSpace) -> PyResult<()> {
    let reset = Client::global().reset_peak(AllocatorNumber::new(allocator), space.0);
    reset.map(drop).map_err(|e| refused(py, e))
}

/// Lets all peaks of the agent in this process begin anew; false: there is none that could.
#[pyfunction]
pub(crate) fn reset_agents_peaks() -> bool {
    ttmem_client::reset_agents_peaks()
}
