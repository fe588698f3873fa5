//! `ttmem dump --report`: the CSV files that tt-metal's `DumpDeviceMemoryState` writes, for a process from outside.
//!
//! The runtime numbers blocks in the order in which its allocator created them. That order is not known here, so blocks are
//! numbered in the direction in which the allocator hands out memory, and no numbers are unused.

use crate::blocks::{describe_allocator, fetch};
use crate::cli::DumpArgs;
use crate::{Exit, print};
use anyhow::{Context, bail, ensure};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{Block, BlockMap, BlockState};
use ttmem_core::words::Space;
use ttmem_reader::Reader;

/// The spaces of a report, with their titles.
const SPACES: [(Space, &str); 3] = [(Space::Dram, "DRAM"), (Space::L1, "L1"), (Space::L1Small, "L1_SMALL")];

/// Free blocks of up to twice this size are in the first size class.
const FIRST_CLASS: u64 = 1024;
/// The last size class begins here, or earlier.
const LAST_CLASS: u64 = 128 << 20;

/// Width of a column of the table of blocks.
const WIDTH: usize = 12;

/// One space of an allocator, as a report describes it.
#[derive(Default)]
struct SpaceReport {
    banks: u64,
    bytes_per_bank: u64,
    free: u64,
    largest_free: u64,
    /// Bytes of a bank before the allocator was shrunk, which determine its size classes.
    initial_bytes: u64,
    blocks: Vec<ReportedBlock>,
}

/// A block: its address relative to the bank's first one, and its size.
#[derive(Clone, Copy)]
struct ReportedBlock {
    address: u64,
    bytes: u64,
    is_free: bool,
}

pub(crate) fn write(args: &DumpArgs, folder: &Path, source: &mut Reader) -> anyhow::Result<Exit> {
    let Some(snapshot) = fetch(args, source)? else { return Ok(Exit::NoDaemon) };
    let Some(maps) = select_allocator(&snapshot)? else { return Ok(Exit::NothingFound) };
    let mut spaces = Vec::new();
    for (space, title) in SPACES {
        let map = maps.iter().find(|it| it.space == space);
        spaces.push((title, map.map(|map| describe_space(&snapshot, map)).transpose()?.unwrap_or_default()));
    }
    let files = [
        ("l1_usage_summary.csv", format_l1_summary(&spaces)),
        ("memory_usage_summary.csv", format_summary(&spaces)),
        ("detailed_memory_usage.csv", format_details(&spaces)),
    ];
    let paths = write_files(folder, &files)?;
    let lines = paths.iter().flat_map(|path| [path.as_os_str().as_encoded_bytes(), b"\n"]);
    print(&lines.collect::<Vec<_>>().concat())
}

/// The maps of the only allocator that matches the arguments; `None` if none is known.
fn select_allocator(snapshot: &Snapshot) -> anyhow::Result<Option<Vec<&BlockMap>>> {
    let maps = snapshot.block_maps.as_deref().unwrap_or_default();
    let with_blocks = maps.iter().filter(|it| it.allocator.is_some());
    let mut allocators: Vec<(String, Vec<&BlockMap>)> = Vec::new();
    for map in with_blocks {
        let name = describe_allocator(map);
        match allocators.iter_mut().find(|(other, _)| *other == name) {
            Some((_, maps)) => maps.push(map),
            None => allocators.push((name, vec![map])),
        }
    }
    if allocators.len() > 1 {
        let names: Vec<&str> = allocators.iter().map(|(name, _)| name.as_str()).collect();
        bail!(
            "--report is for one allocator, and there are {}: {}; choose one with --pid, --device and --allocator",
            names.len(),
            names.join("; ")
        );
    }
    let Some((name, maps)) = allocators.pop() else {
        let _ = writeln!(
            io::stderr(),
            "ttmem: --report: no allocator is known{}; start the program with `ttmem run`",
            maps.first().and_then(|it| it.unknown.as_ref()).map(|it| format!(": {it}")).unwrap_or_default()
        );
        return Ok(None);
    };
    for map in maps.iter().filter(|it| SPACES.iter().any(|(space, _)| *space == it.space)) {
        if let Some(reason) = &map.unknown {
            bail!("--report: the blocks of {} of {name} are not known: {reason}", map.space);
        }
        ensure!(map.omitted_blocks == 0, "--report: {name} has more blocks than a daemon lists; use --local");
    }
    Ok(Some(maps))
}

fn describe_space(snapshot: &Snapshot, map: &BlockMap) -> anyhow::Result<SpaceReport> {
    let known = map.banks.zip(map.base).zip(map.bytes_per_bank);
    let ((banks, base), bytes_per_bank) = known.context("a map without a reason has a layout")?;
    let device = snapshot.devices.iter().find(|it| map.devices.contains(&it.id));
    // The runtime's addresses are relative to where L1 began before it was shrunk for a sub-device.
    let unshrunk =
        device.and_then(|it| it.core_layout).map(|it| it.unreserved).filter(|_| map.space == Space::L1);
    let origin = unshrunk.filter(|it| (1..=base).contains(it)).unwrap_or(base);
    let mut end = base;
    let mut blocks = Vec::with_capacity(map.blocks.len());
    for &Block { address, bytes, state, .. } in &map.blocks {
        ensure!(
            address == end,
            "--report: blocks of {} of {} overlap at {address:#x}; `ttmem check` compares them with the runtime",
            map.space,
            describe_allocator(map)
        );
        end = address.saturating_add(bytes);
        blocks.push(ReportedBlock { address: address - origin, bytes, is_free: state == BlockState::Free });
    }
    // L1 is handed out from the top.
    if map.space != Space::Dram {
        blocks.reverse();
    }
    Ok(SpaceReport {
        banks: u64::from(banks),
        bytes_per_bank,
        free: map.free_bytes_per_bank.unwrap_or(0),
        largest_free: map.largest_free_bytes_per_bank.unwrap_or(0),
        initial_bytes: bytes_per_bank.saturating_add(base - origin),
        blocks,
    })
}

type Spaces = [(&'static str, SpaceReport)];

fn format_l1_summary(spaces: &Spaces) -> String {
    let mut text = "This report indicates available space for interleaving L1 buffers\n\
                    , Largest Contiguous Free Block (B), Total Free L1 Space (B)\n"
        .to_owned();
    for (_, space) in spaces.iter().filter(|(title, _)| *title == "L1") {
        let _ = writeln!(text, ",{},{}", space.largest_free, space.largest_free.saturating_mul(space.banks));
    }
    text
}

fn format_summary(spaces: &Spaces) -> String {
    let mut text =
        ", Total Allocatable Size (B), Total Allocated (B), Total Free (B), Largest Free Block (B)\n"
            .to_owned();
    for (_, space) in spaces {
        let SpaceReport { bytes_per_bank, free, largest_free, .. } = space;
        let _ = writeln!(text, ",{bytes_per_bank},{},{free},{largest_free}", bytes_per_bank - free);
    }
    text
}

fn format_details(spaces: &Spaces) -> String {
    let mut text = String::new();
    for (title, space) in spaces {
        let SpaceReport { banks, bytes_per_bank, free, .. } = space;
        let _ = writeln!(text, ",{title}");
        let _ = writeln!(text, ",Total allocatable (B):,{}", bytes_per_bank.saturating_mul(*banks));
        let _ = writeln!(text, ",Total allocated (B):,{}", (bytes_per_bank - free).saturating_mul(*banks));
        let _ = writeln!(text, ",Total free (B):,{}", free.saturating_mul(*banks));
        add_blocks(&mut text, space);
    }
    text
}

/// Adds the free blocks by size class, and the table of all blocks.
fn add_blocks(text: &mut String, space: &SpaceReport) {
    // A bank of no bytes is one free block.
    let empty = [ReportedBlock { address: 0, bytes: 0, is_free: true }];
    let blocks = if space.blocks.is_empty() { &empty[..] } else { &space.blocks };
    let classes = class_count(space.initial_bytes);
    let mut free: Vec<(usize, &ReportedBlock)> =
        blocks.iter().enumerate().filter(|it| it.1.is_free).collect();
    free.sort_by_key(|(_, block)| block.address);
    text.push_str("FreeListOpt allocator info:\nsegregated free blocks by size:\n");
    for class in 0..classes {
        let from = FIRST_CLASS << class;
        let to = if class + 1 == classes { "inf".to_owned() } else { (from * 2).to_string() };
        let _ = write!(text, "  Size class {class}: ({from} - {to}) blocks: ");
        for (number, _) in free.iter().filter(|(_, block)| class_of(block.bytes, classes) == class) {
            let _ = write!(text, "{number} ");
        }
        text.push('\n');
    }
    text.push_str("Free slots in block table: \nBlock table:\n");
    for title in ["Block", "Address", "Size", "PrevID", "NextID", "Allocated"] {
        let _ = write!(text, "{title:>WIDTH$} ");
    }
    text.push('\n');
    let last = blocks.len() - 1;
    let goes_down = blocks[0].address > blocks[last].address;
    for (number, block) in blocks.iter().enumerate() {
        let neighbour = |is_next: bool| {
            let other = if is_next == goes_down { number.checked_sub(1) } else { Some(number + 1) };
            other.filter(|&it| it <= last).map_or_else(|| "none".to_owned(), |it| it.to_string())
        };
        let _ = writeln!(
            text,
            "{number:>WIDTH$} {:>WIDTH$} {:>WIDTH$} {:>WIDTH$} {:>WIDTH$} {:>WIDTH$}",
            block.address,
            block.bytes,
            neighbour(false),
            neighbour(true),
            if block.is_free { "no" } else { "yes" }
        );
    }
}

/// Number of size classes of a bank.
fn class_count(bytes: u64) -> u32 {
    let bits = |n: u64| u64::BITS - n.leading_zeros();
    bits(bytes / FIRST_CLASS).clamp(2, bits(LAST_CLASS / FIRST_CLASS))
}

/// The size class of a free block.
fn class_of(bytes: u64, classes: u32) -> u32 {
    (bytes / FIRST_CLASS).checked_ilog2().unwrap_or(0).min(classes - 1)
}

/// Writes files into a folder, which is created if only its last part is missing. They replace older ones, as the runtime's
/// do, and only when all of them are written.
fn write_files(folder: &Path, files: &[(&str, String)]) -> anyhow::Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        std::fs::create_dir(folder)
            .with_context(|| format!("--report: cannot create {}", folder.display()))?;
    }
    let mut written = Vec::new();
    for (name, text) in files {
        let path = folder.join(name);
        let file = tempfile::Builder::new()
            .prefix(".ttmem-report-")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666))
            .tempfile_in(folder)
            .and_then(|mut file| file.write_all(text.as_bytes()).map(|()| file))
            .with_context(|| format!("--report: cannot write {}", path.display()))?;
        ensure!(!path.is_dir(), "--report: cannot write {}: it is a folder", path.display());
        written.push((file, path));
    }
    let mut paths = Vec::new();
    for (file, path) in written {
        file.persist(&path).with_context(|| format!("--report: cannot write {}", path.display()))?;
        paths.push(path);
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_are_the_runtimes() {
        for (bank, count) in [(0, 2), (1024, 2), (8192, 4), (1_385_120, 11), (1 << 27, 18), (1 << 40, 18)] {
            assert_eq!(class_count(bank), count, "{bank}");
        }
        for (bytes, class) in [(0, 0), (1023, 0), (2047, 0), (2048, 1), (10_240, 3), (1 << 40, 17)] {
            assert_eq!(class_of(bytes, 18), class, "{bytes}");
        }
        assert_eq!(class_of(16_384, 4), 3, "the last class has no end");
    }

    #[test]
    fn blocks_of_a_shrunk_bank_keep_their_addresses() {
        let block = |address, bytes, is_free| ReportedBlock { address, bytes, is_free };
        let blocks = vec![block(4096, 1024, false), block(2048, 2048, true)];
        let space = SpaceReport {
            banks: 2,
            bytes_per_bank: 3072,
            free: 2048,
            largest_free: 2048,
            initial_bytes: 5120,
            blocks,
        };
        let text = format_details(&[("L1", space)]);
        assert!(
            text.starts_with(",L1\n,Total allocatable (B):,6144\n,Total allocated (B):,2048\n"),
            "{text}"
        );
        assert!(text.contains("  Size class 1: (2048 - 4096) blocks: 1 \n"), "{text}");
        assert!(text.contains("  Size class 2: (4096 - inf) blocks: \n"), "{text}");
        let rows: Vec<&str> = text.lines().rev().take(2).collect();
        assert_eq!(rows[1].split_whitespace().collect::<Vec<_>>(), ["0", "4096", "1024", "1", "none", "yes"]);
        assert_eq!(rows[0].split_whitespace().collect::<Vec<_>>(), ["1", "2048", "2048", "none", "0", "no"]);
    }
}
