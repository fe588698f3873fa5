//! `ttmem fit`: whether a buffer will fit, and at which address; or what to free.

use crate::blocks::{describe_allocator, fetch_maps};
use crate::cli::{BufferSize, FitArgs, Sharding, Sockets, TensorMemory};
use crate::listing::{fetch_allocations, print_json};
use crate::sim::Machine;
use crate::source::open_source;
use crate::text::Style;
use crate::{Exit, UsageError, print};
use serde::Serialize;
use std::io::{self, Write as _};
use ttmem_core::snapshot::{Allocation, Block, BlockMap, BlockState, SCHEMA};
use ttmem_core::words::{Basis, Pages, Space, size};
use ttmem_core::{Fit, FitAnswer, FitContext, FitRequest, FitSize, Snapshot, fit};
use ttmem_reader::Reader;
use ttmem_render::block::is_partial;

/// Bytes of a page of an interleaved buffer: a tile of bfloat16.
const DEFAULT_PAGE: u64 = 2048;

/// Bytes by which the first address of L1 differs between releases of tt-metal.
const L1_BASE_RANGE: u64 = 4096;

/// An answer in JSON.
#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    pid: Option<u32>,
    process_name: Option<&'a str>,
    allocator: Option<u32>,
    indexes: &'a [u32],
    /// The empty board; `null`: the state of a process.
    board: Option<String>,
    space: Space,
    banks: Option<u16>,
    count: u64,
    #[serde(flatten)]
    fit: &'a Fit,
}

pub(crate) fn run(args: &FitArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    let space = requested_space(args);
    let (map, context) = match &args.board {
        Some(board) => empty_board(board, space),
        None => {
            let mut source = match &args.segment {
                Some(file) => Reader::of_segment(file)?,
                None => open_source(sockets, false, false)?,
            };
            // All allocators of the process count, since some affect others.
            let Some(snapshot) = fetch_maps(&args.filter, None, None, &mut source)? else {
                return Ok(Exit::NoDaemon);
            };
            let Some(map) = select_map(&snapshot, args, space)? else { return Ok(Exit::NothingFound) };
            let Some(context) = context_of(map, &snapshot, &mut source)? else { return Ok(Exit::NoDaemon) };
            (map.clone(), context)
        }
    };
    let request = FitRequest {
        size: requested_size(args, map.banks)?,
        from: args.from.map(Into::into),
        count: args.count,
    };
    let found = fit(&map, &request, &context);
    if args.json {
        let BlockMap { pid, process_name, allocator, indexes, banks, .. } = &map;
        let report = Report {
            schema: SCHEMA,
            pid: *pid,
            process_name: process_name.as_deref(),
            allocator: *allocator,
            indexes,
            board: args.board.map(|board| board.to_string()),
            space,
            banks: *banks,
            count: args.count,
            fit: &found,
        };
        print_json(&report, None)?;
    } else {
        let style = Style::new(args.text.ascii);
        let owner = match &args.board {
            Some(board) => format!("empty {board} with default settings"),
            None => describe_allocator(&map),
        };
        let place = format!("{owner}, {} banks of {}", map.banks.unwrap_or(0), space.title());
        let lines = ttmem_render::fit::page(&place, args.count, &found, style.list_width);
        print(style.format_page(lines).as_bytes())?;
    }
    Ok(match found.answer {
        FitAnswer::Fits { .. } => Exit::Done,
        FitAnswer::DoesNotFit { .. } => Exit::Failed,
        FitAnswer::Unknown { .. } => Exit::NothingFound,
    })
}

fn requested_space(args: &FitArgs) -> Space {
    match (args.l1, args.l1_small, args.tensor) {
        (Some(_), ..) => Space::L1,
        (_, Some(_), _) => Space::L1Small,
        (.., Some(_)) if args.memory == TensorMemory::L1 => Space::L1,
        _ => Space::Dram,
    }
}

/// The size of one buffer. A shard of a buffer without a shape is a page.
fn requested_size(args: &FitArgs, banks: Option<u16>) -> Result<FitSize, UsageError> {
    let usage = |text: String| Err(UsageError(text));
    let cores = args.sharded.map(Sharding::core_count);
    if let (Some(cores), Some(banks)) = (cores, banks.filter(|&it| cores > Some(it.into()))) {
        return usage(format!("--sharded: {cores} cores, and the allocator has {banks} banks"));
    }
    if let Some(tensor) = args.tensor {
        let (columns, rows) = args.sharded.map_or((1, 1), |it| it.parts);
        let Some(Pages { bytes, count }) = tensor.shard_pages(columns, rows) else {
            return usage(format!("--tensor: no pages of {tensor} are known"));
        };
        let is_sharded = args.sharded.is_some();
        return Ok(if is_sharded {
            FitSize::Shard { bytes, count }
        } else {
            FitSize::Pages { bytes, count }
        });
    }
    let Some(BufferSize { bytes, is_per_bank }) = args.dram.or(args.l1).or(args.l1_small) else {
        return usage("no size is given".to_owned());
    };
    match cores {
        Some(_) if is_per_bank => {
            usage(format!("--sharded needs the size over all cores, not {} on each", size(bytes)))
        }
        Some(cores) => Ok(FitSize::Shard { bytes: bytes.div_ceil(cores), count: 1 }),
        None if is_per_bank => Ok(FitSize::PerBank(bytes)),
        None if args.l1_small.is_some() => {
            usage("--l1-small needs --sharded, or a size for each core as 8KiB/core: interleaved buffers are not supported there".to_owned())
        }
        None => {
            let page = args.page.unwrap_or(DEFAULT_PAGE).min(bytes);
            Ok(FitSize::Pages { bytes: page, count: bytes.div_ceil(page) })
        }
    }
}

/// The map of the only allocator that matches the arguments; `None`, with a message on standard error, if there is none.
fn select_map<'a>(
    snapshot: &'a Snapshot,
    args: &FitArgs,
    space: Space,
) -> Result<Option<&'a BlockMap>, UsageError> {
    let maps = || snapshot.block_maps.iter().flatten();
    let with_mirrors: Vec<_> =
        maps().filter(|map| has_mirrors(map)).map(|map| (map.pid, map.allocator)).collect();
    let is_wanted = |map: &&BlockMap| {
        // Programs allocate from the mesh, not from its devices.
        let is_named = args.allocator.map_or(!with_mirrors.contains(&(map.pid, map.allocator)), |number| {
            map.allocator == Some(number)
        });
        map.space == space && is_named
    };
    let found: Vec<&BlockMap> = maps().filter(is_wanted).collect();
    if let [_, _, ..] = found[..] {
        let names: Vec<String> = found.iter().map(|map| describe_allocator(map)).collect();
        return Err(UsageError(format!(
            "fit is for one allocator, and there are {}: {}; choose one with --pid, --device and --allocator",
            names.len(),
            names.join("; ")
        )));
    }
    if found.is_empty() {
        let remedy = match space {
            Space::L1Small if maps().next().is_some() => "open the device with l1_small_size",
            _ => "start programs with `ttmem run -- CMD`, or name an empty board with --board",
        };
        let _ = writeln!(io::stderr(), "ttmem: no allocator of {} is known; {remedy}", space.title());
    }
    Ok(found.first().copied())
}

/// What is known about the allocator of a map besides its blocks; `None` if the daemon does not answer.
fn context_of(
    map: &BlockMap,
    snapshot: &Snapshot,
    source: &mut Reader,
) -> anyhow::Result<Option<FitContext>> {
    let device = snapshot.devices.iter().find(|it| map.devices.contains(&it.id));
    let maps = snapshot.block_maps.iter().flatten();
    let is_of_process = |it: &&BlockMap| (it.pid, it.reported_pid) == (map.pid, map.reported_pid);
    let of_process: Vec<&BlockMap> = maps.filter(is_of_process).collect();
    let mut context = FitContext {
        arch: device.and_then(|it| it.arch),
        unknown: None,
        floor: sub_device_floor(map, &of_process),
        is_hybrid: mode(map, &of_process),
        single_core: Vec::new(),
    };
    if is_partial(snapshot, map.pid) {
        context.unknown = Some("not all buffers of the process are known; see `ttmem check`".to_owned());
    } else if has_mirrors(map) {
        context.unknown =
            Some("other allocators of its devices decide, too: choose that of the mesh".to_owned());
    } else if map.single_core_bytes > 0 {
        let Some(dump) = fetch_allocations(source)? else { return Ok(None) };
        let is_on_cores = |it: &&Allocation| {
            let is_of_process = (it.pid, it.reported_pid) == (map.pid, map.reported_pid);
            is_of_process && it.space == Space::L1Core && it.devices.iter().any(|id| map.devices.contains(id))
        };
        let range = |it: &Allocation| {
            let address = u64::from_str_radix(it.id.strip_prefix("0x")?, 16).ok()?;
            Some((address, it.bytes_per_bank?))
        };
        match dump.allocations.iter().filter(is_on_cores).map(range).collect() {
            Some(ranges) => context.single_core = ranges,
            None => context.unknown = Some("the size of a buffer on single cores is unknown".to_owned()),
        }
    }
    Ok(Some(context))
}

/// Whether the allocator is in HYBRID mode. Then its buffers in L1 have mirrors in allocators of its devices.
fn mode(map: &BlockMap, of_process: &[&BlockMap]) -> Option<bool> {
    if of_process.iter().any(|it| it.single_core_bytes > 0 || has_mirrors(it)) {
        return Some(true);
    }
    let is_used = map.blocks.iter().any(|block| block.state == BlockState::Used);
    (map.space != Space::L1 || is_used).then_some(false)
}

/// Whether an allocator reserves buffers of others: that of a device of a mesh, in HYBRID mode.
fn has_mirrors(map: &BlockMap) -> bool {
    map.blocks.iter().any(|block| block.state == BlockState::Reserved)
}

/// The end of the lowest part of L1, if an allocator of sub-devices may have it: while sub-devices are loaded, the device's own
/// allocator does not use that part.
fn sub_device_floor(map: &BlockMap, of_process: &[&BlockMap]) -> Option<(u64, String)> {
    let end = |it: &BlockMap| Some(it.base?.saturating_add(it.bytes_per_bank?));
    let is_lower_part = |it: &&&BlockMap| {
        let shares_device = it.devices.iter().any(|id| map.devices.contains(id));
        shares_device && it.space == map.space && it.base == map.base && end(it) < end(map)
    };
    if map.space != Space::L1 {
        return None;
    }
    let ends = of_process.iter().filter(is_lower_part).filter_map(|it| end(it));
    Some((ends.max()?, "sub-devices may have L1 of their own".to_owned()))
}

/// The map of an empty board as ttnn opens it without parameters.
fn empty_board(board: &Machine, space: Space) -> (BlockMap, FitContext) {
    let banks = board.default_banks().into_iter().find(|it| it.space == space);
    let (count, base, bytes) = banks.map_or((0, 0, 0), |it| (it.banks, it.base, it.bytes_per_bank));
    let hole = Block { address: base, bytes, state: BlockState::Free, largest: true, allocation: None };
    let map = BlockMap {
        pid: None,
        reported_pid: None,
        process_name: None,
        hidden: false,
        allocator: None,
        devices: Vec::new(),
        indexes: vec![0],
        space,
        basis: Basis::Exact,
        used_bytes: 0,
        unknown: None,
        banks: Some(count),
        base: Some(base),
        bytes_per_bank: Some(bytes),
        used_bytes_per_bank: Some(0),
        free_bytes_per_bank: Some(bytes),
        largest_free_bytes_per_bank: Some(bytes),
        largest_free_block_addrs: vec![base],
        single_core_bytes: 0,
        used_count: Some(0),
        free_count: Some(1),
        blocks: vec![hole],
        omitted_blocks: 0,
        parts: Vec::new(),
    };
    let reason = "releases of tt-metal differ in the first address of L1".to_owned();
    let floor = (space == Space::L1).then_some((base + L1_BASE_RANGE, reason));
    (map, FitContext { arch: Some(board.arch()), is_hybrid: Some(false), floor, ..FitContext::default() })
}
