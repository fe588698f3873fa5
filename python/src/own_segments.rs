//! Figures of this process, from its own segments: of this package's tracker, of the agent, or of any other tracker.
//!
//! They are read where they are mapped, through `/proc/self/mem`: opening and closing a segment of this process would drop its lock.
//! Memory that was unmapped meanwhile is an error there, not a crash.

use crate::arguments::SpaceArgument;
use crate::errors::fault_exception;
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
    BLOCK, FILE_PREFIX, HEADER_BYTES, Header, Layout, MAGIC, RowCopy, Vitals, newest_copy, parse_name, state,
    text, word,
};
use zerocopy::{FromZeros, IntoBytes};

/// A segment of this process, and the address of its mapping.
#[derive(Clone)]
struct MappedSegment {
    name: String,
    path: PathBuf,
    address: u64,
}

/// Segments found the last time: searching the mappings of a large process takes a while.
static FOUND: Mutex<Vec<MappedSegment>> = Mutex::new(Vec::new());

/// Totals of one allocator in one space.
struct Figure {
    allocator: u16,
    devices: Vec<u32>,
    space: Space,
    row: RowCopy,
}

/// Returns the names of this process's segments in a folder.
fn segment_names(folder: &Path, pid: u32) -> Vec<String> {
    let prefix = format!("{FILE_PREFIX}{pid}.");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&prefix)).collect()
}

/// Searches this process's mappings for its own segments.
fn find_mapped(pid: u32) -> Vec<MappedSegment> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut found: Vec<MappedSegment> = Vec::new();
    for line in maps.lines() {
        // Address, rights, offset, device, inode, path.
        let mut words = line.splitn(6, ' ');
        let (Some(range), _, Some(offset), _, _, Some(rest)) =
            (words.next(), words.next(), words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        let path = Path::new(rest.trim_start());
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let own = parse_name(name.as_bytes()).is_some_and(|(of, _)| of == pid);
        if !own || u64::from_str_radix(offset, 16) != Ok(0) || found.iter().any(|known| known.name == name) {
            continue;
        }
        let start = range.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok());
        if let Some(address) = start {
            found.push(MappedSegment { name: name.to_owned(), path: path.to_owned(), address });
        }
    }
    found
}

/// Returns this process's segments. The mappings are searched only if the folders have other segments than the last time.
fn own_segments() -> Vec<MappedSegment> {
    let pid = std::process::id();
    let folder = std::env::var_os("TTMEM_SHM_DIR").filter(|folder| !folder.is_empty());
    let folder = folder.map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
    let mut known = FOUND.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut present = segment_names(&folder, pid);
    for other in known.iter().filter_map(|segment| segment.path.parent()).filter(|other| **other != *folder) {
        present.extend(segment_names(other, pid));
    }
    let own = Client::global().status().segment;
    let is_known = |name: &String| known.iter().any(|segment| segment.name == *name);
    let same = present.len() == known.len() && present.iter().chain(&own).all(is_known);
    if !same {
        *known = find_mapped(pid);
    }
    known.clone()
}

/// Reads the writer and the figures of a segment; `None` if it is gone or closed.
fn read_segment(memory: &File, mapped: &MappedSegment) -> Option<(String, Vec<Figure>)> {
    let bytes = fs::metadata(&mapped.path).ok()?.len();
    let mut header = Header::new_zeroed();
    memory.read_exact_at(header.as_mut_bytes(), mapped.address).ok()?;
    let name = parse_name(mapped.name.as_bytes())?;
    if header.magic.get() != MAGIC || (header.pid.get(), header.nonce.get()) != name {
        return None;
    }
    let layout = Layout::of(&header, bytes).ok()?;
    debug_assert!(word::SLOTS + size_of::<Vitals>() <= HEADER_BYTES);
    let mut vitals = Vitals::new_zeroed();
    memory.read_exact_at(vitals.as_mut_bytes(), mapped.address + word::SLOTS as u64).ok()?;
    if vitals.state.get() != state::OPEN {
        return None;
    }
    let (offset, blocks) = layout.definitions;
    let used = vitals.blocks_used.get().min(u64::from(blocks)) as usize;
    let mut definitions = vec![0; used * BLOCK];
    memory.read_exact_at(&mut definitions, mapped.address + offset).ok()?;
    let (offset, row_count, row_bytes) = layout.rows;
    let used = vitals.rows_used.get().min(u64::from(row_count)) as usize;
    let mut rows = vec![0; used * row_bytes as usize];
    memory.read_exact_at(&mut rows, mapped.address + offset).ok()?;

    let mut chips = BTreeMap::new();
    let mut allocators = BTreeMap::new();
    for definition in definition::parse(&definitions).flatten() {
        match definition {
            Definition::Chip(number, chip) => drop(chips.insert(number, chip.index.get())),
            Definition::Allocator(number, _, chips) => drop(allocators.insert(number, chips)),
            _ => {}
        }
    }
    let figure = |row: RowCopy| {
        let allocator = row.allocator.get();
        let covered = allocators.get(&allocator)?;
        let devices = covered.iter().filter_map(|chip| chips.get(&chip.get()).copied()).collect();
        Some(Figure { allocator, devices, space: Space::from_number(row.space)?, row })
    };
    let rows = rows.chunks_exact(row_bytes as usize).filter_map(newest_copy);
    Some((text(&header.writer).to_owned(), rows.filter_map(figure).collect()))
}

/// Returns the figures of this process: for each segment its name, its writer, whether it is this package's, and for each allocator
/// and space in it (allocator, devices, space, allocated, peak, whether it is closed).
#[pyfunction]
pub(crate) fn figures(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let own = Client::global().status().segment;
    let all = PyList::empty(py);
    let memory = File::open("/proc/self/mem")?;
    for segment in own_segments() {
        let Some((writer, figures)) = read_segment(&memory, &segment) else { continue };
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

/// Resets a peak of this package's tracker.
#[pyfunction]
pub(crate) fn reset_own_peak(py: Python<'_>, allocator: u16, space: SpaceArgument) -> PyResult<()> {
    let reset = Client::global().reset_peak(AllocatorNumber::new(allocator), space.0);
    reset.map(drop).map_err(|e| fault_exception(py, e))
}

/// Resets all peaks of the agent in this process; false if no agent tracks it.
#[pyfunction]
pub(crate) fn reset_agent_peaks() -> bool {
    ttmem_client::agent::reset_agent_peaks()
}
