//! A page of the list of programs: filtered and sorted by their numbers, and only what is to be seen of it described.

use crate::detail::{ProgramKey, ProgramQuery, ProgramSort};
use crate::programs::{ScopeNames, Summed};
use crate::snapshot::{ProgramList, ProgramRow};
use crate::state::{ProcessState, State, chips_in};
use crate::view::{Clock, visible};
use crate::words::{KernelClass, ProcessId};
use std::cmp::Ordering;

/// A program, and whose it is.
struct Row<'a> {
    id: ProcessId,
    process: &'a ProcessState,
    it: Summed<'a>,
    /// Cores it runs on, where that is what is sorted by.
    cores: u32,
}

impl State {
    pub(crate) fn program_list(&self, query: &ProgramQuery, clock: Clock) -> ProgramList {
        let filter = query.text.to_lowercase();
        let words: Vec<&str> = filter.split_whitespace().collect();
        let mut names = ScopeNames::default();
        let mut describe = |row: &Row, full: bool| ProgramRow {
            pid: visible(row.id),
            reported_pid: row.process.info.reported_pid,
            start: row.process.info.start,
            process_name: row.process.info.name.clone(),
            hidden: false,
            program: self.describe_program(row.id, row.process, &row.it, &mut names, clock, full),
        };
        let mut list = ProgramList::default();
        let mut all: Vec<Row> = Vec::new();
        for (&id, process) in self.processes.iter().filter(|(_, process)| process.is_shown()) {
            let wanted = query.pids.is_empty() || visible(id).is_some_and(|pid| query.pids.contains(&pid));
            let open = query.open.filter(|key| key.pid == visible(id));
            if !wanted && open.is_none() {
                continue;
            }
            let words_of_process = words_of_process(&words, id, process);
            for it in self.summed_programs(id, process) {
                let row = Row { id, process, it, cores: 0 };
                if open.is_some_and(|key| (row.it.allocator(), row.it.number()) == (key.allocator, key.id)) {
                    list.open = Some(describe(&row, true));
                }
                if wanted && self.is_for(&row, &query.devices) && fits(&words_of_process, &row) {
                    let cores = if query.sort == ProgramSort::Cores { self.core_count(&row) } else { 0 };
                    all.push(Row { cores, ..row });
                }
            }
        }
        list.count = all.len() as u64;
        list.resident_count = all.iter().filter(|row| row.it.resident_cores > 0).count() as u64;
        list.has_dfbs = all.iter().any(|row| row.it.sums.dfb > 0);
        list.has_scratch = all.iter().any(|row| row.it.sums.scratch > 0);
        list.offset = query.offset.min(list.count);
        let order = order(query.sort);
        let ties = |row: &Row| (row.id, row.it.allocator(), row.it.number());
        all.sort_unstable_by(|a, b| {
            let first = order(self, a, b);
            let first = if query.reversed { first.reverse() } else { first };
            first.then_with(|| ties(a).cmp(&ties(b)))
        });
        let limit = query.limit.min(ProgramQuery::MOST) as usize;
        let page = all.iter().skip(list.offset as usize).take(limit);
        list.list = page.map(|row| describe(row, false)).collect();
        list
    }

    /// Whether it is for one of these devices, by index; none: for any.
    fn is_for(&self, row: &Row, devices: &[u32]) -> bool {
        let mut chips = chips_in(&row.process.allocators, &row.it.scope).iter();
        let index = |chip| self.chips.get(chip).map(|state| state.chip.index);
        devices.is_empty() || chips.any(|chip| index(chip).is_some_and(|index| devices.contains(&index)))
    }

    fn core_count(&self, row: &Row) -> u32 {
        let kept = self.kept(crate::programs::Tenant { process: row.id, scope: row.it.scope });
        row.process.cores_of_program(row.it.scope, row.it.key, kept.of(row.it.key)).count()
    }

    /// The least index of a program's devices.
    fn device_of(&self, row: &Row) -> Option<u32> {
        let chips = chips_in(&row.process.allocators, &row.it.scope).iter();
        chips.filter_map(|chip| self.chips.get(chip)).map(|state| state.chip.index).min()
    }
}

impl ProgramRow {
    /// What it is asked for by.
    pub fn key(&self) -> ProgramKey {
        ProgramKey { pid: self.pid, allocator: self.program.allocator, id: self.program.id }
    }
}

/// Those words that a process's own pid and name do not have: its programs must.
fn words_of_process<'w>(words: &[&'w str], id: ProcessId, process: &ProcessState) -> Vec<&'w str> {
    let name = process.info.name.as_deref().unwrap_or_default().to_lowercase();
    let pid = visible(id).map(i64::from).or(process.info.reported_pid);
    let pid = pid.map_or_else(String::new, |pid| pid.to_string());
    words.iter().copied().filter(|word| !name.contains(word) && !pid.contains(word)).collect()
}

/// Whether each word is part of something that is to be read of a program.
fn fits(words: &[&str], row: &Row) -> bool {
    if words.is_empty() {
        return true;
    }
    let name = row.it.name.map_or_else(String::new, |name| name.to_lowercase());
    let class = row.it.state.map_or(KernelClass::Unknown, |it| it.class).title().to_lowercase();
    let number = row.it.number().to_string();
    words.iter().all(|word| [&name, &class, &number].iter().any(|text| text.contains(word)))
}

/// Chosen once, not for each comparison: there may be thousands of programs.
fn order(sort: ProgramSort) -> fn(&State, &Row, &Row) -> Ordering {
    // Who has no name comes last.
    fn by_name(a: Option<&String>, b: Option<&String>) -> Ordering {
        (a.is_none(), a).cmp(&(b.is_none(), b))
    }
    match sort {
        ProgramSort::Last => |_, a, b| {
            let last = |row: &Row| row.it.state.and_then(|it| it.last);
            last(b).cmp(&last(a))
        },
        ProgramSort::Process => |_, a, b| a.id.cmp(&b.id),
        ProgramSort::ProcessName => {
            |_, a, b| by_name(a.process.info.name.as_ref(), b.process.info.name.as_ref())
        }
        ProgramSort::Id => |_, a, b| a.it.number().cmp(&b.it.number()),
        ProgramSort::Name => |_, a, b| by_name(a.it.name, b.it.name),
        ProgramSort::Device => |state, a, b| state.device_of(a).cmp(&state.device_of(b)),
        ProgramSort::Cores => |_, a, b| b.cores.cmp(&a.cores),
        ProgramSort::Resident => |_, a, b| b.it.resident_cores.cmp(&a.it.resident_cores),
        ProgramSort::Dispatches => |_, a, b| {
            let times = |row: &Row| row.it.state.map_or(0, |it| it.dispatches);
            times(b).cmp(&times(a))
        },
        ProgramSort::Cb => |_, a, b| b.it.sums.cb.cmp(&a.it.sums.cb),
        ProgramSort::Dfb => |_, a, b| b.it.sums.dfb.cmp(&a.it.sums.dfb),
        ProgramSort::Scratch => |_, a, b| b.it.sums.scratch.cmp(&a.it.sums.scratch),
        ProgramSort::Kernel => |_, a, b| b.it.sums.kernel.cmp(&a.it.sums.kernel),
        ProgramSort::End => |_, a, b| b.it.sums.end.cmp(&a.it.sums.end),
    }
}
