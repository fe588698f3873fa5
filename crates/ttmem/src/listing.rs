//! `ttmem dump`: every live allocation.

use crate::cli::{DumpArgs, Sockets};
use crate::source::{source, unless_absent};
use crate::text::{UNKNOWN, plain, ranges, size};
use crate::{Exit, cores, print, programs, show};
use anyhow::Context;
use std::fmt::Write;
use ttmem_core::Detail;
use ttmem_core::words::{KernelClass, Layout};
use ttmem_reader::{Dump, Request, Source};

pub(crate) fn dump(args: &DumpArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    let mut source = match &args.segment {
        Some(file) => Source::of_file(file)?,
        None => source(sockets, false, false)?,
    };
    if args.programs {
        return programs::dump(args, &mut source);
    }
    if let Some(wanted) = args.cores {
        return cores::dump(args, wanted, &mut source);
    }
    let Some(mut dump) = all(&mut source)? else { return Ok(Exit::NoDaemon) };
    if let Some(pid) = args.only.pid {
        dump.allocations.retain(|it| it.pid == Some(pid));
    }
    if !args.only.is_everything() {
        // Who is whose and which device is which, the snapshot knows; and whether there is any such thing at all.
        let Some(snapshot) = unless_absent(source.snapshot(&Detail::NONE))? else {
            return Ok(Exit::NoDaemon);
        };
        let snapshot = show::only(snapshot, &args.only)?;
        dump.allocations.retain(|it| {
            let device = snapshot.devices.iter().any(|device| it.devices.contains(&device.id));
            let user =
                args.only.user.is_none() || snapshot.processes.iter().any(|process| process.pid == it.pid);
            device && user
        });
    }
    dump.allocations.sort_by_cached_key(|it| {
        let id = u64::from_str_radix(it.id.trim_start_matches("0x"), 16).unwrap_or(u64::MAX);
        (it.indexes.clone(), it.space, id, it.pid, it.requested_bytes)
    });
    if args.json {
        let mut line = serde_json::to_vec(&dump)?;
        line.push(b'\n');
        return print(&line);
    }
    print(render(&dump).as_bytes())
}

/// Every live allocation, in no order.
pub(crate) fn all(source: &mut Source) -> anyhow::Result<Option<Dump>> {
    let Some(answer) = unless_absent(source.ask(&Request::Allocations))? else { return Ok(None) };
    Ok(Some(serde_json::from_slice(&answer).context("cannot read the answer")?))
}

fn render(dump: &Dump) -> String {
    let mut page = String::new();
    let _ = writeln!(
        page,
        "{:<8} {:<9} {:>18} {:>12} {:>12} {:>5} {:>9} {:>9}  NOTES",
        "DEVICE", "SPACE", "ADDRESS", "BYTES", "ALLOCATED", "REFS", "PID", "AGE"
    );
    let mut total = 0u64;
    for it in &dump.allocations {
        total = total.saturating_add(it.requested_bytes);
        let allocated = it.allocated_bytes.map_or_else(|| UNKNOWN.to_owned(), |bytes| bytes.to_string());
        let pid = match (it.pid, it.reported_pid) {
            (Some(pid), _) => pid.to_string(),
            (None, Some(pid)) => format!("({pid})"),
            (None, None) => UNKNOWN.to_owned(),
        };
        let mut notes = Vec::new();
        if let Some(class) = it.kernel.filter(|class| *class != KernelClass::Unknown) {
            notes.push(class.title().to_lowercase());
        }
        if let Some(layout) = it.layout.and_then(Layout::title) {
            let cores = it.cores.as_deref().unwrap_or_default();
            notes.push(format!("{layout}{}", on_cores(cores)));
        }
        if it.estimated {
            notes.push("estimated".to_owned());
        }
        if let Some(program) = it.program {
            let name = it.program_name.as_ref().map(|name| format!(" {}", plain(name))).unwrap_or_default();
            notes.push(format!("program {program}{name}"));
        }
        if let Some(site) = &it.site_name {
            notes.push(format!("at {}", plain(site)));
        }
        notes.push(it.basis.name().to_owned());
        let _ = writeln!(
            page,
            "{:<8} {:<9} {:>18} {:>12} {:>12} {:>5} {:>9} {:>8.1}s  {}",
            ranges(&it.indexes),
            it.space,
            if it.unplaced { UNKNOWN } else { &it.id },
            it.requested_bytes,
            allocated,
            it.references,
            pid,
            it.age_seconds,
            notes.join(", ")
        );
    }
    let _ = writeln!(page, "{} live allocations, {} asked for", dump.allocations.len(), size(total));
    page
}

/// `on 4 cores 0,0-3,0`, as far as there is room.
fn on_cores(rectangles: &[[u8; 4]]) -> String {
    let wide = |[x0, y0, x1, y1]: [u8; 4]| u32::from(x1 - x0 + 1) * u32::from(y1 - y0 + 1);
    let count: u32 = rectangles.iter().copied().map(wide).sum();
    let shown = |[x0, y0, x1, y1]: &[u8; 4]| format!(" {x0},{y0}-{x1},{y1}");
    match rectangles {
        [] => String::new(),
        [..] if rectangles.len() <= 3 => {
            format!(" on {count} cores{}", rectangles.iter().map(shown).collect::<String>())
        }
        [..] => format!(" on {count} cores"),
    }
}
