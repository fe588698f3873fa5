//! Allocations that have something in common, together.

use super::Figures;
use super::{ByNumber, NOTHING, PoolView, Words, most_first, turned, used};
use crate::detail::{BufferGrouping, BufferQuery, BufferSort};
use crate::event::Name;
use crate::snapshot::{BufferGroup, Buffers};
use crate::state::visible;
use crate::words::{Scope, Space};
use std::cmp::Ordering;
use ttmem_types::program_number;

/// What is known of a group while it is put together.
struct Group<'a> {
    /// Place of its process among all.
    process: u32,
    /// The space, program or site it is put together by; 0: none.
    number: u32,
    of: &'a PoolView<'a>,
    /// The first scope that anything in it is of: a program has its name there.
    scope: Scope,
    space: Option<Space>,
    count: u64,
    requested: u64,
    used: u64,
}

impl Group<'_> {
    /// The name of the site it is put together by.
    fn site(&self, grouping: BufferGrouping) -> Option<&String> {
        let site = (grouping == BufferGrouping::Site).then_some(Name::Site(self.number))?;
        self.of.process.names.get(&site)
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
        self.visit(pools, words, |_, entry, pool| {
            let used = used(entry, pool);
            all.count += 1;
            all.requested_bytes += entry.requested;
            all.used_bytes += used;
            let number = match grouping {
                BufferGrouping::Process => pool.space.into(),
                BufferGrouping::Program => entry.program,
                BufferGrouping::Site => entry.site,
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
            let key = |it: &Group| {
                let numbered = |by| if grouping == by && it.number != 0 { it.number.into() } else { NOTHING };
                let key = match query.sort {
                    BufferSort::Size => most_first(it.used),
                    BufferSort::Requested => most_first(it.requested),
                    BufferSort::Age => most_first(it.count),
                    BufferSort::Process => it.process.into(),
                    BufferSort::Space => it.space.map_or(NOTHING, |space| space as u64),
                    BufferSort::Program => numbered(BufferGrouping::Program),
                    BufferSort::Address | BufferSort::Device | BufferSort::Site => 0,
                };
                turned(key, query.reversed)
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
        all.groups = page.map(|group| describe(group, grouping)).collect();
        all
    }
}

/// What has no name comes last either way.
fn by_name(a: Option<&String>, b: Option<&String>, reversed: bool) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) if reversed => b.cmp(a),
        (Some(a), Some(b)) => a.cmp(b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

fn describe(group: &Group, grouping: BufferGrouping) -> BufferGroup {
    let process = group.of.process;
    let number = |by| (grouping == by && group.number != 0).then_some(group.number);
    let (program, site) = (number(BufferGrouping::Program), number(BufferGrouping::Site));
    BufferGroup {
        pid: visible(group.of.process_id),
        process_name: process.info.name.clone(),
        space: group.space,
        program: program.map(program_number),
        program_name: program.and_then(|number| process.program_name(group.scope, number).cloned()),
        site,
        site_name: site.and_then(|number| process.names.get(&Name::Site(number)).cloned()),
        count: group.count,
        requested_bytes: group.requested,
        used_bytes: group.used,
    }
}
