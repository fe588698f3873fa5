//! Programs in snapshots: those of a process, and a page of the list of all, filtered and sorted by their numbers. Only what is
//! shown is described.

use super::programs::{ProgramSums, placements};
use super::{Clock, Figures, Tenant};
use crate::detail::{ProgramKey, ProgramQuery, ProgramSort};
use crate::snapshot::{Program, ProgramList, ProgramRow};
use crate::state::{ProcessState, ProgramState, State, chips_in, visible};
use crate::words::{Basis, KernelClass, ProcessId, Scope};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use ttmem_types::program_number;

/// A program in numbers.
struct ProgramFigures<'a> {
    scope: Scope,
    key: u32,
    state: Option<&'a ProgramState>,
    name: Option<&'a String>,
    sums: ProgramSums,
    resident_cores: u32,
}

impl ProgramFigures<'_> {
    /// The runtime's number of the program.
    fn number(&self) -> u32 {
        program_number(self.key)
    }

    fn allocator(&self) -> Option<u32> {
        match self.scope {
            Scope::Allocator(number) => Some(number),
            Scope::Chip(_) => None,
        }
    }
}

/// Names and indexes of the chips of scopes, found once each.
#[derive(Default)]
struct ScopeNames(BTreeMap<(ProcessId, Scope), (Vec<String>, Vec<u32>)>);

/// A program and its process.
struct Row<'a> {
    id: ProcessId,
    process: &'a ProcessState,
    program: ProgramFigures<'a>,
    /// Cores it runs on, if the list is sorted by that.
    cores: u32,
}

impl<'a> Figures<'a> {
    /// Every program of a process, by number. `full`: with its memory by address.
    pub(super) fn programs_of(
        &mut self,
        id: ProcessId,
        process: &'a ProcessState,
        clock: Clock,
        full: bool,
    ) -> Vec<Program> {
        let mut names = ScopeNames::default();
        let mut all = self.program_figures(id, process);
        all.sort_by_key(|it| (it.number(), it.scope));
        all.iter().map(|it| self.describe_program(id, process, it, &mut names, clock, full)).collect()
    }

    /// Every program of a process in numbers, in no order.
    fn program_figures(&mut self, id: ProcessId, process: &'a ProcessState) -> Vec<ProgramFigures<'a>> {
        let plan = self.plan();
        let mut found = Vec::new();
        let exact = process.pools.keys().filter(|(.., basis)| *basis == Basis::Exact);
        let begun = process.programs.keys().map(|&(scope, _)| scope);
        let scopes: BTreeSet<Scope> = begun.chain(exact.map(|&(scope, ..)| scope)).collect();
        for scope in scopes {
            let tenant = Tenant { process: id, scope };
            let memory = self.program_memory(tenant);
            let begun = process.programs_in(scope).map(|(&(_, program), _)| program);
            let with_memory = memory.parts().iter().map(|part| part.program).filter(|&program| program != 0);
            let keys: BTreeSet<u32> = begun.chain(with_memory).collect();
            let chips = chips_in(&process.allocators, &scope);
            let mut resident: BTreeMap<u32, u32> = BTreeMap::new();
            let mut chips_per_group = vec![0; plan.groups.len()];
            for number in chips.iter().filter_map(|&chip| plan.group_of(chip)) {
                chips_per_group[number] += 1;
            }
            for (number, &count) in chips_per_group.iter().enumerate().filter(|(_, count)| **count > 0) {
                let residents = self.residents_of(number, &plan.groups[number]);
                for it in residents.iter().filter(|it| it.tenant == tenant) {
                    *resident.entry(it.program).or_default() += it.cores.count() * count;
                }
            }
            found.extend(keys.into_iter().map(|key| ProgramFigures {
                scope,
                key,
                state: process.programs.get(&(scope, key)),
                name: process.program_name(scope, key),
                sums: memory.sums_of(key),
                resident_cores: resident.get(&key).copied().unwrap_or(0),
            }));
        }
        found
    }

    /// A program for snapshots. `full`: with its memory by address.
    fn describe_program(
        &mut self,
        id: ProcessId,
        process: &ProcessState,
        program: &ProgramFigures,
        names: &mut ScopeNames,
        clock: Clock,
        full: bool,
    ) -> Program {
        let &ProgramFigures { scope, key, state, sums, .. } = program;
        let memory = self.program_memory(Tenant { process: id, scope });
        let lowest = self.lowest_buffer(process, scope);
        let parts = memory.of(key);
        let cores = process.cores_of_program(scope, key, parts);
        let named = || self.state.names_of(chips_in(&process.allocators, &scope));
        let (devices, indexes) = names.0.entry((id, scope)).or_insert_with(named);
        Program {
            id: program.number(),
            allocator: program.allocator(),
            devices: if full { devices.clone() } else { Vec::new() },
            indexes: indexes.clone(),
            name: program.name.cloned(),
            kernels: state.and_then(|it| process.sites.kernels(it.site).cloned()),
            site_name: state.and_then(|it| process.sites.line(it.site)),
            class: state.map_or(KernelClass::Unknown, |it| it.class),
            cores: cores.rectangles(),
            core_count: cores.count(),
            resident_cores: program.resident_cores,
            dispatches: state.map_or(0, |it| it.dispatches),
            residency_unknown: state.is_none_or(|it| it.dispatches == 0)
                && parts.iter().any(|part| part.unfollowed),
            estimated: parts.iter().any(|part| part.estimated),
            dispatched: state.and_then(|it| it.last).map(|(at, _)| clock.wall(at)),
            kernel_bytes: sums.kernel,
            cb_bytes: sums.cb,
            dfb_bytes: sums.dfb,
            scratch_bytes: sums.scratch,
            view_count: sums.views,
            end: sums.end,
            would_clash: sums.end.zip(lowest).is_some_and(|(end, lowest)| end > lowest),
            placements: if full { placements(parts) } else { Vec::new() },
        }
    }

    /// The page of the list of programs that a query wants.
    pub(super) fn program_list(&mut self, query: &ProgramQuery, clock: Clock) -> ProgramList {
        let state = self.state;
        let filter = query.text.to_lowercase();
        let words: Vec<&str> = filter.split_whitespace().collect();
        let mut names = ScopeNames::default();
        let mut list = ProgramList::default();
        let mut all: Vec<Row> = Vec::new();
        for (&id, process) in state.processes.iter().filter(|(_, process)| process.is_shown()) {
            let pid = self.shown_pid(id, &process.info);
            let wanted = query.pids.is_empty() || pid.is_some_and(|pid| query.pids.contains(&pid));
            let open = query.open.filter(|key| key.pid == pid);
            if !wanted && open.is_none() {
                continue;
            }
            if process.info.is_hidden_from(&self.viewer) {
                list.hidden_processes += u64::from(wanted);
                continue;
            }
            let rest = words_beyond_process(&words, id, process);
            for program in self.program_figures(id, process) {
                let key = (program.allocator(), program.number());
                let row = Row { id, process, program, cores: 0 };
                if open.is_some_and(|open| key == (open.allocator, open.id)) {
                    list.open = Some(self.describe_row(&row, &mut names, clock, true));
                }
                if wanted && is_on_devices(state, &row, &query.devices) && has_words(&rest, &row) {
                    let cores = if query.sort == ProgramSort::Cores { self.core_count(&row) } else { 0 };
                    all.push(Row { cores, ..row });
                }
            }
        }
        list.count = all.len() as u64;
        list.resident_count = all.iter().filter(|row| row.program.resident_cores > 0).count() as u64;
        list.has_dfbs = all.iter().any(|row| row.program.sums.dfb > 0);
        list.has_scratch = all.iter().any(|row| row.program.sums.scratch > 0);
        list.offset = query.offset.min(list.count);
        let order = order(query.sort);
        let ties = |row: &Row| (row.id, row.program.allocator(), row.program.number());
        all.sort_unstable_by(|a, b| {
            let first = order(state, a, b);
            let first = if query.reversed { first.reverse() } else { first };
            first.then_with(|| ties(a).cmp(&ties(b)))
        });
        let limit = query.limit.min(ProgramQuery::MOST) as usize;
        for row in all.iter().skip(list.offset as usize).take(limit) {
            list.list.push(self.describe_row(row, &mut names, clock, false));
        }
        list
    }

    fn describe_row(&mut self, row: &Row, names: &mut ScopeNames, clock: Clock, full: bool) -> ProgramRow {
        ProgramRow {
            pid: visible(row.id),
            reported_pid: row.process.info.reported_pid,
            start: row.process.info.start,
            process_name: row.process.info.name.clone(),
            hidden: false,
            program: self.describe_program(row.id, row.process, &row.program, names, clock, full),
        }
    }

    fn core_count(&mut self, row: &Row) -> u32 {
        let ProgramFigures { scope, key, .. } = row.program;
        let memory = self.program_memory(Tenant { process: row.id, scope });
        row.process.cores_of_program(scope, key, memory.of(key)).count()
    }
}

/// Whether a program is on one of these devices, by index; none: on any.
fn is_on_devices(state: &State, row: &Row, devices: &[u32]) -> bool {
    devices.is_empty() || indexes_of(state, row).any(|index| devices.contains(&index))
}

/// The indexes of a program's devices.
fn indexes_of(state: &State, row: &Row) -> impl Iterator<Item = u32> {
    let chips = chips_in(&row.process.allocators, &row.program.scope).iter();
    chips.filter_map(|chip| state.chips.get(chip)).map(|it| it.chip.index)
}

impl ProgramRow {
    /// The key of this row in a [`ProgramQuery`].
    pub fn key(&self) -> ProgramKey {
        ProgramKey { pid: self.pid, allocator: self.program.allocator, id: self.program.id }
    }
}

/// The words that are no part of a process's pid and name, so that its programs must have them.
fn words_beyond_process<'w>(words: &[&'w str], id: ProcessId, process: &ProcessState) -> Vec<&'w str> {
    let name = process.info.name.as_deref().unwrap_or_default().to_lowercase();
    let pid = visible(id).map(i64::from).or(process.info.reported_pid);
    let pid = pid.map_or_else(String::new, |pid| pid.to_string());
    words.iter().copied().filter(|word| !name.contains(word) && !pid.contains(word)).collect()
}

/// Whether each word is part of a program's name, class or number.
fn has_words(words: &[&str], row: &Row) -> bool {
    if words.is_empty() {
        return true;
    }
    let name = row.program.name.map_or_else(String::new, |name| name.to_lowercase());
    let class = row.program.state.map_or(KernelClass::Unknown, |it| it.class).title().to_lowercase();
    let number = row.program.number().to_string();
    words.iter().all(|word| [&name, &class, &number].iter().any(|text| text.contains(word)))
}

/// Chosen once, not for each comparison: there may be thousands of programs.
fn order(sort: ProgramSort) -> fn(&State, &Row, &Row) -> Ordering {
    // Without a name comes last.
    fn by_name(a: Option<&String>, b: Option<&String>) -> Ordering {
        (a.is_none(), a).cmp(&(b.is_none(), b))
    }
    match sort {
        ProgramSort::Last => |_, a, b| {
            let last = |row: &Row| row.program.state.and_then(|it| it.last);
            last(b).cmp(&last(a))
        },
        ProgramSort::Process => |_, a, b| a.id.cmp(&b.id),
        ProgramSort::ProcessName => {
            |_, a, b| by_name(a.process.info.name.as_ref(), b.process.info.name.as_ref())
        }
        ProgramSort::Id => |_, a, b| a.program.number().cmp(&b.program.number()),
        ProgramSort::Name => |_, a, b| by_name(a.program.name, b.program.name),
        ProgramSort::Device => |state, a, b| indexes_of(state, a).min().cmp(&indexes_of(state, b).min()),
        ProgramSort::Cores => |_, a, b| b.cores.cmp(&a.cores),
        ProgramSort::Resident => |_, a, b| b.program.resident_cores.cmp(&a.program.resident_cores),
        ProgramSort::Dispatches => |_, a, b| {
            let times = |row: &Row| row.program.state.map_or(0, |it| it.dispatches);
            times(b).cmp(&times(a))
        },
        ProgramSort::Cb => |_, a, b| b.program.sums.cb.cmp(&a.program.sums.cb),
        ProgramSort::Dfb => |_, a, b| b.program.sums.dfb.cmp(&a.program.sums.dfb),
        ProgramSort::Scratch => |_, a, b| b.program.sums.scratch.cmp(&a.program.sums.scratch),
        ProgramSort::Kernel => |_, a, b| b.program.sums.kernel.cmp(&a.program.sums.kernel),
        ProgramSort::End => |_, a, b| b.program.sums.end.cmp(&a.program.sums.end),
    }
}
