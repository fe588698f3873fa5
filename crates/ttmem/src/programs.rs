//! `ttmem dump --programs`: every program that is loaded or cached, and its memory in L1.

use crate::cli::DumpArgs;
use crate::listing::{print_csv, print_json, print_with_note};
use crate::query::Format;
use crate::source::answer_or_report;
use crate::{Exit, show};
use jiff::Timestamp;
use serde::Serialize;
use std::fmt::Write;
use ttmem_core::snapshot::{Process, Program};
use ttmem_core::{Detail, Snapshot};
use ttmem_reader::Reader;
use ttmem_render::format::plural;
use ttmem_render::program::{DUMP, FIELDS, Row};
use ttmem_render::{format_csv, format_heading, format_row};

#[derive(Serialize)]
struct Dump<'a> {
    schema: u32,
    at: Timestamp,
    simulated: bool,
    programs: Vec<ListedProgram<'a>>,
}

/// A program and its process.
#[derive(Serialize)]
struct ListedProgram<'a> {
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reported_pid: Option<i64>,
    #[serde(flatten)]
    program: &'a Program,
}

pub(crate) fn dump(args: &DumpArgs, source: &mut Reader) -> anyhow::Result<Exit> {
    let detail = Detail { programs: true, ..Detail::NONE };
    let Some(snapshot) = answer_or_report(source.snapshot(&detail))? else { return Ok(Exit::NoDaemon) };
    let snapshot = show::apply_filter(snapshot, &args.filter)?;
    let dump = Dump {
        schema: snapshot.schema,
        at: snapshot.at,
        simulated: snapshot.simulated,
        programs: list_programs(&snapshot),
    };
    let withheld = snapshot.processes.iter().any(|it| it.hidden);
    let withheld = withheld.then_some("programs of other users' processes are withheld from this user");
    match args.format() {
        Format::Json => print_json(&dump, withheld),
        Format::Csv(options) => {
            let rows = dump.programs.iter().map(|it| it.row(&snapshot));
            print_csv(&format_csv(FIELDS, rows, options), withheld)
        }
        Format::Table => print_with_note(format_page(&dump, &snapshot).as_bytes(), withheld),
    }
}

impl<'a> ListedProgram<'a> {
    /// The program as a row of a list.
    fn row(&self, snapshot: &'a Snapshot) -> Row<'a> {
        let Self { pid, reported_pid, program } = *self;
        let of = |it: &&Process| (it.pid, it.reported_pid) == (pid, reported_pid);
        let process_name = snapshot.processes.iter().find(of).and_then(|it| it.name.as_deref());
        Row { pid, reported_pid, process_name, program, now: snapshot.at }
    }
}

/// All programs, sorted by device, process and id.
fn list_programs(snapshot: &Snapshot) -> Vec<ListedProgram<'_>> {
    let mut all = Vec::new();
    for Process { pid, reported_pid, programs, .. } in &snapshot.processes {
        let programs = programs.iter().flatten();
        let listed = |program| ListedProgram { pid: *pid, reported_pid: *reported_pid, program };
        all.extend(programs.map(listed));
    }
    all.sort_by(|a, b| {
        let key = |it: &ListedProgram<'_>| (it.pid, it.reported_pid, it.program.id, it.program.allocator);
        a.program.indexes.cmp(&b.program.indexes).then_with(|| key(a).cmp(&key(b)))
    });
    all
}

fn format_page(dump: &Dump<'_>, snapshot: &Snapshot) -> String {
    let mut page = format_heading(DUMP) + "\n";
    for program in &dump.programs {
        let _ = writeln!(page, "{}", format_row(DUMP, &program.row(snapshot)));
    }
    let active = dump.programs.iter().filter(|it| it.program.resident_cores > 0).count();
    let dispatches = dump.programs.iter().map(|it| it.program.dispatches).fold(0, u64::saturating_add);
    let unknown = match dump.programs.iter().filter(|it| it.program.residency_unknown).count() {
        0 => String::new(),
        n => format!(", {n} active or cached"),
    };
    let _ = writeln!(
        page,
        "{}, {active} active{unknown}, dispatched {}; kernel sizes are per core, others per device",
        plural(dump.programs.len() as u64, "program"),
        plural(dispatches, "time"),
    );
    page
}
