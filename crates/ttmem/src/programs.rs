//! `ttmem dump --programs`: every program that is loaded or cached, and what it keeps in L1.

use crate::cli::DumpArgs;
use crate::source::unless_absent;
use crate::text::{UNKNOWN, cut, ranges, size};
use crate::{Exit, print, show};
use jiff::Timestamp;
use serde::Serialize;
use std::fmt::Write;
use ttmem_core::snapshot::{Process, Program};
use ttmem_core::words::KernelClass;
use ttmem_core::{Detail, Snapshot};
use ttmem_reader::Source;

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

pub(crate) fn dump(args: &DumpArgs, source: &mut Source) -> anyhow::Result<Exit> {
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
    let mut page = String::new();
    let _ = writeln!(
        page,
        "{:<8} {:>9} {:>10} {:>5} {:>10} {:>10} {:>10} {:>10} {:>5} {:>9} {:>10} {:>9}  {:<18} NAME",
        "DEVICE",
        "PID",
        "PROGRAM",
        "CORES",
        "KERNEL",
        "CB",
        "DFB",
        "SCRATCH",
        "VIEWS",
        "END",
        "DISPATCHES",
        "LAST",
        "STATE"
    );
    for it in &dump.programs {
        let program = it.program;
        let pid = match (it.pid, it.reported_pid) {
            (Some(pid), _) => pid.to_string(),
            (None, Some(pid)) => format!("({pid})"),
            (None, None) => UNKNOWN.to_owned(),
        };
        let end = program.end.map_or_else(|| "-".to_owned(), |end| format!("{end:#x}"));
        let last = program.dispatched.map_or_else(|| "-".to_owned(), |last| age(dump.at, last));
        let name = program.name.as_deref().map_or_else(|| "-".to_owned(), |name| cut(name, 60));
        let cores = Some(program.core_count).filter(|_| !program.cores.is_empty());
        let unknown = || "?".to_owned();
        // Kernels are what is estimated, if there are any. On cores that nobody names, none has a size on each.
        let kernels = match program.kernel_bytes {
            0 if cores.is_none() => unknown(),
            bytes => estimated(program.estimated, bytes),
        };
        let others = program.estimated && program.kernel_bytes == 0 && cores.is_some();
        // What is not a user's program says so.
        let name = match program.class {
            KernelClass::Fabric | KernelClass::Dispatch => {
                format!("[{}] {name}", program.class.title().to_lowercase())
            }
            KernelClass::Application | KernelClass::Unknown => name,
        };
        let _ = writeln!(
            page,
            "{:<8} {:>9} {:>10} {:>5} {:>10} {:>10} {:>10} {:>10} {:>5} {:>9} {:>10} {:>9}  {:<18} {}",
            ranges(&program.indexes),
            pid,
            program.id,
            cores.map_or_else(unknown, |cores| cores.to_string()),
            kernels,
            estimated(others, program.cb_bytes),
            estimated(others, program.dfb_bytes),
            estimated(others, program.scratch_bytes),
            program.view_count,
            end,
            if program.unfollowed { "-".to_owned() } else { program.dispatches.to_string() },
            last,
            state(program),
            name
        );
    }
    let resident = dump.programs.iter().filter(|it| it.program.resident_cores > 0).count();
    let dispatches = dump.programs.iter().map(|it| it.program.dispatches).fold(0, u64::saturating_add);
    let unknown = match dump.programs.iter().filter(|it| it.program.unfollowed).count() {
        0 => String::new(),
        n => format!(", {n} of unknown residence"),
    };
    let _ = writeln!(
        page,
        "{} programs, {resident} resident{unknown}, dispatched {dispatches} times; kernels are per core, the rest per device",
        dump.programs.len(),
    );
    page
}

/// A size, with a mark if it is an estimate; nothing is easier to overlook as a dash.
fn estimated(is_estimate: bool, bytes: u64) -> String {
    match (bytes, is_estimate) {
        (0, _) => "-".to_owned(),
        (_, true) => format!("~{}", size(bytes)),
        (_, false) => size(bytes),
    }
}

/// How long ago, in seconds.
fn age(now: Timestamp, then: Timestamp) -> String {
    format!("{:.1}s", now.duration_since(then).as_secs_f64().max(0.0))
}

/// On how many of all the cores that it is for it is resident, or that it is on none.
fn state(program: &Program) -> String {
    match program.resident_cores {
        _ if program.unfollowed => "unknown".to_owned(),
        0 => "registered".to_owned(),
        n => format!("resident {n}/{}", program.core_count as usize * program.indexes.len().max(1)),
    }
}
