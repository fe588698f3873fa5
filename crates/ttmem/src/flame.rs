//! `ttmem flame`: live buffers by the calls that allocated them, as collapsed stacks or for speedscope.

use crate::cli::{FlameArgs, FlameFormat, Sockets};
use crate::listing::{describe_unlisted, fetch_allocations, filter_allocations};
use crate::source::{answer_or_report, open_source};
use crate::{Exit, print, show};
use anyhow::Context as _;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use ttmem_core::snapshot::Allocation;
use ttmem_core::words::Space;
use ttmem_core::{Detail, Snapshot};
use ttmem_reader::Reader;
use ttmem_render::format::sanitize;
use ttmem_render::site::special_purpose;

/// A frame: its name, and its file and line if they are known.
type Frame = (String, Option<(String, Option<u32>)>);

/// Bytes of each stack, outermost frame first, by space.
type Stacks = BTreeMap<Space, BTreeMap<Vec<Frame>, u64>>;

pub(crate) fn run(args: &FlameArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    let mut source = match &args.segment {
        Some(file) => Reader::of_segment(file)?,
        None => open_source(sockets, false, false)?,
    };
    let Some(mut dump) = fetch_allocations(&mut source)? else { return Ok(Exit::NoDaemon) };
    let Some(snapshot) = answer_or_report(source.snapshot(&Detail::NONE))? else {
        return Ok(Exit::NoDaemon);
    };
    let snapshot = show::apply_filter(snapshot, &args.filter)?;
    filter_allocations(&mut dump, &snapshot, &args.filter);
    if let Some(note) = describe_unlisted(&snapshot) {
        let _ = writeln!(io::stderr(), "ttmem: {note}");
    }
    let stacks = add_up(&dump.allocations, &snapshot);
    if stacks.is_empty() {
        let _ =
            writeln!(io::stderr(), "ttmem: no buffers are allocated; start programs with `ttmem run -- CMD`");
        return Ok(Exit::NothingFound);
    }
    let text = match args.format() {
        FlameFormat::Collapsed => collapsed(&stacks),
        FlameFormat::Speedscope => speedscope(&stacks)? + "\n",
    };
    let Some(path) = &args.output else { return print(text.as_bytes()) };
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Exit::Done)
}

fn add_up(allocations: &[Allocation], snapshot: &Snapshot) -> Stacks {
    let mut stacks = Stacks::new();
    for allocation in allocations.iter().filter(|it| !it.space.is_program()) {
        // On those devices that are selected.
        let devices = snapshot.devices.iter().filter(|it| allocation.devices.contains(&it.id)).count().max(1);
        let bytes = allocation.allocated_bytes.unwrap_or(allocation.requested_bytes);
        let sum =
            stacks.entry(allocation.space).or_default().entry(frames(allocation, snapshot)).or_default();
        *sum = sum.saturating_add(bytes.saturating_mul(devices as u64));
    }
    stacks
}

/// The frames of an allocation: process, calls, operation, tensor.
fn frames(allocation: &Allocation, snapshot: &Snapshot) -> Vec<Frame> {
    let origin = &allocation.origin;
    let mut all = vec![(describe_process(allocation, snapshot), None)];
    let place = origin.file.clone().map(|file| (file, origin.line));
    let calls = origin.stack.iter().rev().map(|call| (call.clone(), None));
    all.extend(calls);
    match (origin.stack.is_empty(), all.last_mut()) {
        // The innermost call is the line itself.
        (false, Some(innermost)) => innermost.1 = place,
        _ => all.push((allocation.site_name.clone().unwrap_or_else(|| "unknown".to_owned()), place)),
    }
    let op = origin.op.clone().filter(|op| Some(op) != allocation.site_name.as_ref());
    let what = special_purpose(origin.purpose).map(str::to_owned).or_else(|| origin.tensor.clone());
    all.extend([op, what].into_iter().flatten().map(|name| (name, None)));
    all
}

fn describe_process(allocation: &Allocation, snapshot: &Snapshot) -> String {
    let key = (allocation.pid, allocation.reported_pid);
    let process = snapshot.processes.iter().find(|it| (it.pid, it.reported_pid) == key);
    let name = process.and_then(|it| it.name.as_deref()).unwrap_or("unknown");
    allocation.pid.map_or_else(|| name.to_owned(), |pid| format!("{name} (pid {pid})"))
}

/// One line for each stack: frames, outermost first, and bytes. The space is the first frame.
fn collapsed(stacks: &Stacks) -> String {
    let mut text = String::new();
    for (space, stacks) in stacks {
        for (frames, bytes) in stacks {
            text.push_str(space.title());
            for (name, _) in frames {
                // These separate frames and lines.
                let _ = write!(text, ";{}", sanitize(name).replace(';', ","));
            }
            let _ = writeln!(text, " {bytes}");
        }
    }
    text
}

/// The file format of speedscope: a profile for each space.
fn speedscope(stacks: &Stacks) -> serde_json::Result<String> {
    let mut numbers: BTreeMap<&Frame, usize> = BTreeMap::new();
    let mut frames = Vec::new();
    for frame in stacks.values().flat_map(BTreeMap::keys).flatten() {
        numbers.entry(frame).or_insert_with(|| {
            let (name, place) = frame;
            let mut described = json!({ "name": sanitize(name) });
            if let Some((file, line)) = place {
                described["file"] = json!(sanitize(file));
                if let Some(line) = line {
                    described["line"] = json!(line);
                }
            }
            frames.push(described);
            frames.len() - 1
        });
    }
    let profile = |(space, stacks): (&Space, &BTreeMap<Vec<Frame>, u64>)| {
        let samples: Vec<Vec<usize>> =
            stacks.keys().map(|stack| stack.iter().map(|frame| numbers[frame]).collect()).collect();
        let total: u64 = stacks.values().copied().fold(0, u64::saturating_add);
        json!({
            "type": "sampled",
            "name": space.title(),
            "unit": "bytes",
            "startValue": 0,
            "endValue": total,
            "samples": samples,
            "weights": stacks.values().collect::<Vec<_>>(),
        })
    };
    serde_json::to_string(&json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": "device memory",
        "exporter": concat!("ttmem ", env!("CARGO_PKG_VERSION")),
        "shared": { "frames": frames },
        "profiles": stacks.iter().map(profile).collect::<Vec<_>>(),
    }))
}
