//! Block maps: every block of an allocator's banks by address, used or free.

use super::Figures;
use crate::detail::BlockQuery;
use crate::input::Banks;
use crate::ledger::{Entry, Pool, PoolId};
use crate::ranges::Range;
use crate::snapshot::{Block, BlockMap, BlockState};
use crate::state::{ProcessState, chips_in, visible};
use crate::words::{Basis, Layout, ProcessId, Scope, Space};
use std::collections::{BTreeMap, BTreeSet};

/// Spaces of device memory in which allocators place buffers.
const SPACES: [Space; 5] = [Space::Dram, Space::Trace, Space::L1, Space::L1Small, Space::L1Core];

/// One space of an allocator, or of a device where allocators are not known.
struct Place<'a> {
    process_id: ProcessId,
    process: &'a ProcessState,
    scope: Scope,
    space: Space,
    pool: Option<PoolId>,
}

impl Figures<'_> {
    /// The block maps that a query requests, by process, allocator and space.
    pub(super) fn block_maps(&mut self, query: &BlockQuery) -> Vec<BlockMap> {
        let state = self.state;
        let plan = self.plan();
        let mut maps = Vec::new();
        let mut room = query.limit as usize;
        for (&process_id, process) in &state.processes {
            if query.pid.is_some_and(|pid| self.shown_pid(process_id, &process.info) != Some(pid)) {
                continue;
            }
            let shares = plan.shares_of(process_id).iter().flat_map(|share| &share.spaces);
            let shown: BTreeSet<PoolId> = shares.flat_map(|it| it.pools.iter().copied()).collect();
            for (scope, space, pool) in places(process) {
                let number = allocator_number(scope);
                let is_wanted = query.space.is_none_or(|it| it == space)
                    && (query.allocator.is_none() || query.allocator == number);
                let is_on =
                    |device| state.names_of(chips_in(&process.allocators, &scope)).1.contains(&device);
                let is_wanted = is_wanted && query.device.is_none_or(is_on);
                // What a better basis describes is not shown a second time.
                let is_shown = pool.is_none_or(|pool| shown.contains(&pool));
                if is_wanted && is_shown {
                    let place = Place { process_id, process, scope, space, pool };
                    maps.extend(self.block_map(&place, query, &mut room));
                }
            }
        }
        maps
    }

    /// The block map of one space; `None` if nothing is there and nothing is known about it.
    fn block_map(&mut self, place: &Place<'_>, query: &BlockQuery, room: &mut usize) -> Option<BlockMap> {
        let Place { process_id, process, scope, space, pool: id } = *place;
        let state = self.state;
        let pool = id.map(|id| state.ledger.pool(id));
        let layout = process.banks(scope, space);
        let used_bytes = pool.map_or(0, Pool::used);
        if layout.is_none() && used_bytes == 0 {
            return None;
        }
        let (devices, indexes) = state.names_of(chips_in(&process.allocators, &scope));
        let mut map = BlockMap {
            pid: visible(process_id),
            reported_pid: process.info.reported_pid,
            process_name: process.info.name.clone(),
            hidden: false,
            allocator: allocator_number(scope),
            devices,
            indexes,
            space,
            basis: pool.map_or(Basis::Exact, |it| it.key.basis),
            used_bytes,
            unknown: explain_unknown(space, layout, pool),
            banks: layout.map(|it| it.banks),
            base: layout.map(|it| it.base),
            bytes_per_bank: layout.map(|it| it.bytes_per_bank),
            used_bytes_per_bank: None,
            free_bytes_per_bank: None,
            largest_free_bytes_per_bank: None,
            largest_free_block_addrs: Vec::new(),
            single_core_bytes: if space == Space::L1 { self.single_core_bytes(process, scope) } else { 0 },
            used_count: None,
            free_count: None,
            blocks: Vec::new(),
            omitted_blocks: 0,
            parts: Vec::new(),
        };
        if process.info.is_hidden_from(&self.viewer) {
            return Some(self.viewer.show(process.info.uid, map));
        }
        if let (None, Some(layout)) = (&map.unknown, layout) {
            self.add_blocks(&mut map, place, layout, query, room);
        }
        Some(map)
    }

    /// Adds the blocks of a bank, as far as there is room, and the figures of all of them.
    fn add_blocks(
        &self,
        map: &mut BlockMap,
        place: &Place<'_>,
        layout: Banks,
        query: &BlockQuery,
        room: &mut usize,
    ) {
        let entries = place.pool.into_iter().flat_map(|id| self.state.ledger.entries(id));
        let mut entries: Vec<&Entry> = entries.map(|(_, entry)| entry).collect();
        entries.retain(|entry| entry.bytes_per_bank > 0);
        entries.sort_unstable_by_key(|it| (it.id, it.bytes_per_bank, it.allocated_at));
        let blocks = with_gaps(&entries, Range::new(layout.base, layout.bytes_per_bank));
        let gaps = || blocks.iter().filter(|(_, entry)| entry.is_none()).map(|&(range, _)| range);
        let free: u64 = gaps().map(Range::len).sum();
        let largest = gaps().map(Range::len).max().unwrap_or(0);
        map.used_bytes_per_bank = Some(layout.bytes_per_bank - free);
        map.free_bytes_per_bank = Some(free);
        map.largest_free_bytes_per_bank = Some(largest);
        map.largest_free_block_addrs = gaps().filter(|it| it.len() == largest).map(|it| it.start).collect();
        map.free_count = Some(gaps().count() as u64);
        map.used_count = Some(entries.len() as u64);
        let used = blocks.iter().filter(|(_, entry)| entry.is_some());
        let parts = query.parts.min(BlockQuery::MOST_PARTS).into();
        map.parts = map.used_parts(used.map(|(range, _)| (range.start, range.end)), parts);
        let is_open = query.open.is_none_or(|key| key == map.key());
        let listed = if is_open { blocks.len().min(*room) } else { 0 };
        *room -= listed;
        map.omitted_blocks = (blocks.len() - listed) as u64;
        map.blocks = blocks[..listed]
            .iter()
            .map(|&(range, entry)| Block {
                address: range.start,
                bytes: range.len(),
                state: match entry {
                    None => BlockState::Free,
                    Some(entry) if entry.layout == Layout::Mirror => BlockState::Reserved,
                    Some(_) => BlockState::Used,
                },
                largest: entry.is_none() && range.len() == largest,
                allocation: entry.and_then(|entry| {
                    let entry = self.origin_of(place, entry);
                    self.state.describe_entry(entry, self.state.now, false)
                }),
            })
            .collect();
    }

    /// Bytes of a process's buffers on single cores of these chips. They are outside of lock-step, so no block contains them.
    fn single_core_bytes(&self, process: &ProcessState, scope: Scope) -> u64 {
        let chips = chips_in(&process.allocators, &scope);
        let pools = process.pools.iter().filter(|((other, space, basis), _)| {
            let shares_chip = || chips_in(&process.allocators, other).iter().any(|it| chips.contains(it));
            *space == Space::L1Core && *basis == Basis::Exact && shares_chip()
        });
        pools.map(|(_, &pool)| self.state.ledger.pool(pool).used()).fold(0, u64::saturating_add)
    }

    /// The record behind a mirror: the buffer at its address in another allocator of the process. Any other record is its own.
    fn origin_of<'e>(&'e self, place: &Place<'_>, entry: &'e Entry) -> &'e Entry {
        if entry.layout != Layout::Mirror {
            return entry;
        }
        let ledger = &self.state.ledger;
        let mut pools = place.process.pools.iter();
        let origin = pools.find_map(|(&(scope, space, basis), &pool)| {
            let is_other = scope != place.scope && space == place.space && basis == Basis::Exact;
            let slot = ledger.find_one(pool, entry.id).filter(|_| is_other)?;
            Some(ledger.get(slot)).filter(|it| it.layout != Layout::Mirror)
        });
        origin.unwrap_or(entry)
    }
}

fn allocator_number(scope: Scope) -> Option<u32> {
    match scope {
        Scope::Allocator(number) => Some(number),
        Scope::Chip(_) => None,
    }
}

/// Everything in which a process may have buffers: each space of its allocators, and its other pools.
fn places(process: &ProcessState) -> Vec<(Scope, Space, Option<PoolId>)> {
    let rank = |space: Space| SPACES.iter().position(|&it| it == space);
    let mut all = BTreeMap::new();
    for (&number, allocator) in &process.allocators {
        for banks in &allocator.spaces {
            all.insert((Scope::Allocator(number), rank(banks.space), Basis::Exact), (banks.space, None));
        }
    }
    for (&(scope, space, basis), &pool) in &process.pools {
        all.insert((scope, rank(space), basis), (space, Some(pool)));
    }
    let ranked = all.into_iter().filter(|((_, rank, _), _)| rank.is_some());
    ranked.map(|((scope, ..), (space, pool))| (scope, space, pool)).collect()
}

/// Why the blocks of a space are not known; `None` if they are. Free space is unknown in the same cases.
fn explain_unknown(space: Space, layout: Option<Banks>, pool: Option<&Pool>) -> Option<String> {
    let basis = pool.map_or(Basis::Exact, |it| it.key.basis);
    let count = |of: fn(&Pool) -> u64| pool.map_or(0, of);
    let (unlisted, uncharged) = (count(|it| it.unlisted.count), count(|it| it.totals.uncharged));
    Some(match (basis, layout) {
        (Basis::Counters, _) => "only tt-metal counters are known, which have no addresses".to_owned(),
        (Basis::Exact, _) if space == Space::L1Core => {
            "buffers on single cores have an address on each: `ttmem dump --cores X,Y` lists them".to_owned()
        }
        (Basis::Exact, None) => "the process does not publish the bank layout".to_owned(),
        (Basis::Exact, Some(_)) if unlisted > 0 => {
            format!(
                "{} not listed: the table of its segment is full",
                plural(unlisted, "allocation is", "allocations are")
            )
        }
        (Basis::Exact, Some(_)) if uncharged > 0 => {
            format!("{} no known bytes per bank", plural(uncharged, "allocation has", "allocations have"))
        }
        (Basis::Exact, Some(_)) => return None,
        _ => "the old protocol reports no bank layout and no bytes per bank".to_owned(),
    })
}

fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Records by address and the gaps between them within a bank, which have none.
fn with_gaps<'e>(entries: &[&'e Entry], bank: Range) -> Vec<(Range, Option<&'e Entry>)> {
    let mut blocks = Vec::with_capacity(2 * entries.len() + 1);
    let mut free_from = bank.start;
    for &entry in entries {
        let used = Range::new(entry.id, entry.bytes_per_bank);
        let gap = Range { start: free_from, end: used.start.min(bank.end) };
        if gap.start < gap.end {
            blocks.push((gap, None));
        }
        blocks.push((used, Some(entry)));
        free_from = free_from.max(used.end);
    }
    if free_from < bank.end {
        blocks.push((Range { start: free_from, end: bank.end }, None));
    }
    blocks
}
