//! A page of the list of programs: filtered, sorted, and only what is to be seen of it.

use crate::detail::{ProgramKey, ProgramQuery, ProgramSort};
use crate::snapshot::{Program, ProgramList, ProgramRow};
use crate::state::{ProcessState, State};
use crate::view::{Clock, visible};
use crate::words::ProcessId;
use std::cmp::Ordering;

impl State {
    pub(crate) fn program_list(&self, query: &ProgramQuery, clock: Clock) -> ProgramList {
        let filter = query.text.to_lowercase();
        let words: Vec<&str> = filter.split_whitespace().collect();
        let row = |id: ProcessId, process: &ProcessState, program: Program| ProgramRow {
            pid: visible(id),
            reported_pid: process.info.reported_pid,
            start: process.info.start,
            process_name: process.info.name.clone(),
            program,
        };
        let mut list = ProgramList::default();
        let mut all: Vec<ProgramRow> = Vec::new();
        for (&id, process) in self.processes.iter().filter(|(_, process)| process.is_shown()) {
            if !query.pids.is_empty() && visible(id).is_none_or(|pid| !query.pids.contains(&pid)) {
                continue;
            }
            let programs = self.programs_of(id, process, clock, false).into_iter();
            let on_chip = |it: &Program| {
                query.devices.is_empty() || it.indexes.iter().any(|index| query.devices.contains(index))
            };
            let rows = programs.filter(on_chip).map(|program| row(id, process, program));
            all.extend(rows.filter(|row| words.is_empty() || fits(&words, row)));
            if let Some(key) = query.open.filter(|key| key.pid == visible(id)) {
                let programs = self.programs_of(id, process, clock, true).into_iter();
                let found = programs.into_iter().find(|it| (it.allocator, it.id) == (key.allocator, key.id));
                list.open = list.open.or_else(|| found.map(|program| row(id, process, program)));
            }
        }
        let order = order(query.sort);
        let ties = |row: &ProgramRow| (row.pid, row.reported_pid, row.program.allocator, row.program.id);
        all.sort_by(|a, b| {
            let first = order(a, b);
            let first = if query.reversed { first.reverse() } else { first };
            first.then_with(|| ties(a).cmp(&ties(b)))
        });
        list.count = all.len() as u64;
        list.resident_count = all.iter().filter(|it| it.program.resident_cores > 0).count() as u64;
        list.has_dfbs = all.iter().any(|it| it.program.dfb_bytes > 0);
        list.has_scratch = all.iter().any(|it| it.program.scratch_bytes > 0);
        list.offset = query.offset.min(list.count);
        let limit = query.limit.min(ProgramQuery::MOST) as usize;
        list.list = all.into_iter().skip(list.offset as usize).take(limit).collect();
        list
    }
}

impl ProgramRow {
    /// What it is asked for by.
    pub fn key(&self) -> ProgramKey {
        ProgramKey { pid: self.pid, allocator: self.program.allocator, id: self.program.id }
    }
}

/// Whether each word is part of something that is to be read of a program.
fn fits(words: &[&str], row: &ProgramRow) -> bool {
    let lower = |text: &Option<String>| text.as_deref().unwrap_or_default().to_lowercase();
    let pid = row.pid.map(i64::from).or(row.reported_pid).map_or_else(String::new, |pid| pid.to_string());
    let (process, name) = (lower(&row.process_name), lower(&row.program.name));
    let (id, class) = (row.program.id.to_string(), row.program.class.title().to_lowercase());
    words.iter().all(|word| [&pid, &process, &name, &id, &class].iter().any(|text| text.contains(word)))
}

/// Chosen once, not for each comparison: there may be thousands of programs.
fn order(sort: ProgramSort) -> fn(&ProgramRow, &ProgramRow) -> Ordering {
    // Who has no name comes last.
    fn by_name(a: Option<&String>, b: Option<&String>) -> Ordering {
        (a.is_none(), a).cmp(&(b.is_none(), b))
    }
    match sort {
        ProgramSort::Last => |a, b| b.program.dispatched.cmp(&a.program.dispatched),
        ProgramSort::Process => |a, b| a.pid.cmp(&b.pid),
        ProgramSort::ProcessName => |a, b| by_name(a.process_name.as_ref(), b.process_name.as_ref()),
        ProgramSort::Id => |a, b| a.program.id.cmp(&b.program.id),
        ProgramSort::Name => |a, b| by_name(a.program.name.as_ref(), b.program.name.as_ref()),
        ProgramSort::Device => |a, b| a.program.indexes.cmp(&b.program.indexes),
        ProgramSort::Cores => |a, b| b.program.core_count.cmp(&a.program.core_count),
        ProgramSort::Resident => |a, b| b.program.resident_cores.cmp(&a.program.resident_cores),
        ProgramSort::Dispatches => |a, b| b.program.dispatches.cmp(&a.program.dispatches),
        ProgramSort::Cb => |a, b| b.program.cb_bytes.cmp(&a.program.cb_bytes),
        ProgramSort::Dfb => |a, b| b.program.dfb_bytes.cmp(&a.program.dfb_bytes),
        ProgramSort::Scratch => |a, b| b.program.scratch_bytes.cmp(&a.program.scratch_bytes),
        ProgramSort::Kernel => |a, b| b.program.kernel_bytes.cmp(&a.program.kernel_bytes),
        ProgramSort::End => |a, b| b.program.end.cmp(&a.program.end),
    }
}
