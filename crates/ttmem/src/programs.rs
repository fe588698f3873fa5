//! `ttmem dump --programs`: every program that is loaded or cached, and its memory in L1.

use crate::cli::DumpArgs;
use crate::source::unless_absent;
use crate::{Exit, print, show};
use jiff::Timestamp;
use serde::Serialize;
use std::fmt::Write;
use ttmem_core::snapshot::{Process, Program};
use ttmem_core::{Detail, Snapshot};
use ttmem_reader::Reader;
use ttmem_render::program::{DUMP, Row};
use ttmem_render::{heading, line};

#[derive(Serialize)]
struct Dump<'a> {
    schema: u32,
    at: Timestamp,
    simulated: bool,
    programs: Vec<Listed<'a>>,
}

/// A program, and whose it is.
#[derive(Serialize)]
struct Listed<'a> {
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reported_pid: Option<i64>,
    #[serde(flatten)]
    program: &'a Program,
}

pub(crate) fn dump(args: &DumpArgs, source: &mut Reader) -> anyhow::Result<Exit> {
    let detail = Detail { programs: true, ..Detail::NONE };
    let Some(snapshot) = unless_absent(source.snapshot(&detail))? else { return Ok(Exit::NoDaemon) };
    let snapshot = show::only(snapshot, &args.only)?;
    let dump = Dump {
        schema: snapshot.schema,
        at: snapshot.at,
        simulated: snapshot.simulated,
        programs: listed(&snapshot),
    };
    if args.json {
        let mut line = serde_json::to_vec(&dump)?;
        line.push(b'\n');
        return print(&line);
    }
    print(render(&dump).as_bytes())
}

/// By device, process and number.
fn listed(snapshot: &Snapshot) -> Vec<Listed<'_>> {
    let of = |process: &Process| (process.pid, process.reported_pid);
    let all = snapshot.processes.iter().flat_map(|it| it.programs.iter().flatten().map(move |p| (of(it), p)));
    let mut all: Vec<Listed<'_>> =
        all.map(|((pid, reported_pid), program)| Listed { pid, reported_pid, program }).collect();
    all.sort_by(|a, b| {
        let key = |it: &Listed<'_>| (it.pid, it.reported_pid, it.program.id, it.program.allocator);
        a.program.indexes.cmp(&b.program.indexes).then_with(|| key(a).cmp(&key(b)))
    });
    all
}

fn render(dump: &Dump<'_>) -> String {
    let mut page = heading(DUMP) + "\n";
    for Listed { pid, reported_pid, program } in &dump.programs {
        let row = Row { pid: *pid, reported_pid: *reported_pid, process_name: None, program, now: dump.at };
        let _ = writeln!(page, "{}", line(DUMP, &row));
    }
    let active = dump.programs.iter().filter(|it| it.program.resident_cores > 0).count();
    let dispatches = dump.programs.iter().map(|it| it.program.dispatches).fold(0, u64::saturating_add);
    let unknown = match dump.programs.iter().filter(|it| it.program.residency_unknown).count() {
        0 => String::new(),
        n => format!(", {n} active or cached"),
    };
    let _ = writeln!(
        page,
        "{} programs, {active} active{unknown}, dispatched {dispatches} times; kernel sizes are per core, others per device",
        dump.programs.len(),
    );
    page
}
