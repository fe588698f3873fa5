//! `ttmem dump`: every live allocation.

use crate::cli::{DumpArgs, Sockets};
use crate::source::{source, unless_absent};
use crate::text::size;
use crate::{Exit, cores, print, programs, show};
use anyhow::Context;
use std::fmt::Write;
use ttmem_core::Detail;
use ttmem_reader::{Dump, Request, Source};
use ttmem_render::allocation::DUMP;
use ttmem_render::{heading, line};

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
    let mut page = heading(DUMP) + "\n";
    let mut total = 0u64;
    for it in &dump.allocations {
        total = total.saturating_add(it.requested_bytes);
        let _ = writeln!(page, "{}", line(DUMP, &it));
    }
    let _ = writeln!(page, "{} live allocations, {} asked for", dump.allocations.len(), size(total));
    page
}
