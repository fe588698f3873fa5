//! Groups of allocations that have something in common.

use super::{ByNumber, Figures, NOTHING, PoolView, Words, directed, most_first, text, used};
use crate::detail::{BufferGrouping, BufferQuery, BufferSort};
use crate::sites::SiteKey;
use crate::snapshot::{BufferGroup, Buffers};
use crate::state::visible;
use crate::words::{Scope, Space};
use std::cmp::Ordering;
use ttmem_types::program_number;

/// The number of the group of program memory, of which the program is known instead of a call site.
const PROGRAMS: u32 = u32::MAX;

/// The number of the group of everything in a process that the viewer may see only as a sum.
const HIDDEN: u32 = u32::MAX - 1;

/// A group under construction.
struct Group<'a> {
    /// Rank of its process.
    process: u32,
    /// The space, program or call site that it has in common; 0: none.
    number: u32,
    of: &'a PoolView<'a>,
    /// The first scope in it, which has the name of a program.
    scope: Scope,
    space: Option<Space>,
    count: u64,
    requested: u64,
    used: u64,
}

impl Group<'_> {
    /// The name of the call site that it has in common.
    fn site(&self, grouping: BufferGrouping) -> Option<&String> {
        self.of.process.sites.name(self.number).filter(|_| grouping == BufferGrouping::Site)
    }
}

impl Figures<'_> {
    pub(super) fn buffer_groups<'p>(
        &self,
        query: &BufferQuery,
        grouping: BufferGrouping,
        pools: &'p [PoolView<'p>],
        words: &Words,
    ) -> Buffers {
        let mut all = Buffers::default();
        let mut groups: Vec<Group> = Vec::new();
        let mut index: Vec<ByNumber<usize>> = self.state.processes.iter().map(|_| ByNumber::new()).collect();
        let key = SiteKey::of(grouping);
        let sites: Vec<ByNumber<u32>> = key
            .iter()
            .flat_map(|&key| {
                self.state.processes.values().map(move |it| it.sites.groups(key).into_iter().collect())
            })
            .collect();
        self.visit(pools, words, |_, entry, pool| {
            let used = used(entry, pool);
            all.count += 1;
            all.requested_bytes += entry.requested;
            all.used_bytes += used;
            let number = match grouping {
                _ if pool.is_hidden => HIDDEN,
                BufferGrouping::Process => pool.space.into(),
                BufferGrouping::Program => entry.program,
                _ if entry.site == 0 && self.state.ledger.pool(pool.id).key.space.is_program() => PROGRAMS,
                // A call site that was never defined is a group of its own.
                BufferGrouping::Site => sites[pool.number as usize].get(entry.site).unwrap_or(entry.site),
                _ => sites[pool.number as usize].get(entry.site).unwrap_or(0),
            };
            let index = &mut index[pool.number as usize];
            let place = index.get(number).unwrap_or_else(|| {
                let space = Some(self.state.ledger.pool(pool.id).key.space);
                let (process, scope) = (pool.number, pool.scope);
                let (count, requested, used) = (0, 0, 0);
                groups.push(Group { process, number, of: pool, scope, space, count, requested, used });
                index.insert(number, groups.len() - 1);
                groups.len() - 1
            });
            let group = &mut groups[place];
            group.count += 1;
            group.requested += entry.requested;
            group.used += used;
            group.scope = group.scope.min(pool.scope);
            if group.space.is_some_and(|space| space as u8 != pool.space) {
                group.space = None;
            }
        });
        let limit = query.limit.min(BufferQuery::MOST) as usize;
        let offset = usize::try_from(query.offset).unwrap_or(usize::MAX);
        groups.sort_unstable_by(|a, b| {
            let key = |group: &Group| {
                let &Group { process, number, space, count, requested, used, .. } = group;
                let numbered = |by| if grouping == by && number != 0 { number.into() } else { NOTHING };
                let key = match query.sort {
                    BufferSort::Size => most_first(used),
                    BufferSort::Requested => most_first(requested),
                    BufferSort::Age => most_first(count),
                    BufferSort::Process => process.into(),
                    BufferSort::Space => space.map_or(NOTHING, |space| space as u64),
                    BufferSort::Program => numbered(BufferGrouping::Program),
                    BufferSort::Address | BufferSort::Device | BufferSort::Site => 0,
                };
                directed(key, query.reversed)
            };
            let rest = |it: &Group| (it.process, it.number);
            let named = match query.sort {
                BufferSort::Site => by_name(a.site(grouping), b.site(grouping), query.reversed),
                _ => Ordering::Equal,
            };
            named.then_with(|| key(a).cmp(&key(b))).then_with(|| rest(a).cmp(&rest(b)))
        });
        all.group_count = groups.len() as u64;
        all.offset = query.offset.min(all.group_count);
        let page = groups.iter().skip(offset).take(limit);
        let row = |group: &Group| self.viewer.show(group.of.process.info.uid, describe(group, grouping));
        all.groups = page.map(row).collect();
        all
    }
}

/// Compares names; a missing one comes last either way.
fn by_name(a: Option<&String>, b: Option<&String>, reversed: bool) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) if reversed => b.cmp(a),
        (Some(a), Some(b)) => a.cmp(b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

fn describe(group: &Group, grouping: BufferGrouping) -> BufferGroup {
    let process = group.of.process;
    let is_programs = grouping.is_of_sites() && group.number == PROGRAMS;
    let number = |by| (grouping == by && group.number != 0 && !is_programs).then_some(group.number);
    let (program, site) = (number(BufferGrouping::Program), number(BufferGrouping::Site));
    let label = |key| {
        if is_programs { Some(text::PROGRAMS.to_owned()) } else { process.sites.label(group.number, key) }
    };
    BufferGroup {
        pid: visible(group.of.process_id),
        process_name: process.info.name.clone(),
        hidden: false,
        space: group.space,
        program: program.map(program_number),
        program_name: program.and_then(|number| process.program_name(group.scope, number).cloned()),
        site,
        site_name: site.and_then(|number| process.sites.name(number).cloned()),
        label: SiteKey::of(grouping).and_then(label),
        count: group.count,
        requested_bytes: group.requested,
        used_bytes: group.used,
    }
}
