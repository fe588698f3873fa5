//! The L1 of each core: where programs end and buffers begin, and what lies at every address.
//!
//! Chips whose processes and layout are the same, as those of one mesh, are looked at once. So are cores that are alike: what
//! lies on a core follows from which sets of cores it is in, and there are few of those.

use crate::footprint::{self, CoreSet};
use crate::machine::CoreLayout;
use crate::plan::{IN_L1, Kind};
use crate::programs::{Resident, Tenant};
use crate::ranges::{self, Range};
use crate::snapshot::{Core, CoreClass, CoreProgram, CoreRoom, Cores, Interval};
use crate::state::State;
use crate::view::{Clock, visible};
use crate::words::{Basis, ChipId, Layout, Scope, Space};
use std::collections::BTreeMap;
use std::sync::Arc;
use ttmem_types::program_number;

/// Intervals of one chip that are told, beyond its first map. No runtime makes as many: whoever does, lays out buffers by the
/// ten thousand on other cores each.
const MOST_INTERVALS: usize = 1 << 18;

/// Cores on which the same lies at the same addresses.
#[derive(Debug)]
pub(crate) struct Alike {
    cores: CoreSet,
    intervals: Arc<[Interval]>,
}

/// Where the banks of L1 lie in each core.
#[derive(Debug)]
struct Bounds {
    /// Where buffers end: where the reserved top begins, or the banks end.
    buffers: u64,
    small: Vec<Range>,
    /// Where all banks end.
    banks: u64,
}

impl State {
    /// The core with the least room, if it is known how cores are laid out and somebody tells what is there.
    pub(crate) fn tightest_core(&self, number: usize, kind: &Kind) -> Option<CoreRoom> {
        let (rooms, basis) = (self.rooms(number, kind)?, self.l1_basis(kind));
        let tightest = rooms.iter().min_by_key(|room| (room.free_gap_bytes, room.y, room.x))?;
        Some(CoreRoom { basis, ..*tightest })
    }

    /// The L1 of every core of a chip of a kind, by row and column.
    pub(crate) fn cores_of(&self, chip: ChipId, number: usize, kind: &Kind, clock: Clock) -> Option<Cores> {
        let (rooms, maps) = (self.rooms(number, kind)?, self.maps(number, kind)?);
        let basis = self.l1_basis(kind);
        let peaks = self.chips.get(&chip).map(|state| &state.core_peaks);
        let residents = self.residents_of_kind(number, kind);
        let cores = rooms.iter().map(|room| {
            let number = usize::from(room.y) * usize::from(CoreSet::WIDTH) + usize::from(room.x);
            let alike = maps.iter().find(|alike| alike.cores.has(number));
            Core {
                room: CoreRoom { basis, ..*room },
                program: residents
                    .iter()
                    .find(|it| it.cores.has(number))
                    .map(|it| self.describe_resident(it)),
                intervals: alike.map(|alike| alike.intervals.clone()).unwrap_or_default(),
                peak: peaks.and_then(|peaks| peaks.of(number, clock)),
            }
        });
        Some(Cores(cores.collect()))
    }

    fn describe_resident(&self, it: &Resident) -> CoreProgram {
        let Tenant { process, scope } = it.tenant;
        let name = self.processes.get(&process).and_then(|known| known.program_name(scope, it.program));
        CoreProgram {
            pid: visible(process),
            allocator: match scope {
                Scope::Allocator(number) => Some(number),
                Scope::Chip(_) => None,
            },
            id: program_number(it.program),
            name: name.cloned(),
        }
    }

    /// The weakest basis of those who hold L1 of a chip.
    fn l1_basis(&self, kind: &Kind) -> Basis {
        let pools = kind.cells.iter().filter(|cell| IN_L1.contains(&cell.space)).flat_map(|cell| &cell.pools);
        let held =
            pools.map(|&pool| self.ledger.pool(pool)).filter(|it| it.used() > 0 || it.totals.count > 0);
        held.map(|pool| pool.key.basis).max().unwrap_or(Basis::Exact)
    }

    fn rooms(&self, number: usize, kind: &Kind) -> Option<Arc<[CoreRoom]>> {
        let layout = kind.core_layout.filter(|_| !kind.tenants.is_empty())?;
        let version = self.version_of_l1(kind);
        if let Some((_, rooms)) =
            self.derived.borrow().kind(number).rooms.as_ref().filter(|it| it.0 == version)
        {
            return Some(Arc::clone(rooms));
        }
        let residents = self.residents_of_kind(number, kind);
        let rooms: Arc<[CoreRoom]> = self.rooms_now(&layout, &kind.tenants, &residents).into();
        self.derived.borrow_mut().kind_mut(number).rooms = Some((version, Arc::clone(&rooms)));
        Some(rooms)
    }

    fn rooms_now(&self, layout: &CoreLayout, tenants: &[Tenant], residents: &[Resident]) -> Vec<CoreRoom> {
        let limit = self.bounds(layout, tenants).buffers;
        let mut lowest = [limit; CoreSet::ROOM];
        let mut ends = [layout.unreserved; CoreSet::ROOM];
        let mut registered = [layout.unreserved; CoreSet::ROOM];
        let raise = |ends: &mut [u64; CoreSet::ROOM], cores: CoreSet, end: u64| {
            for core in cores.iter() {
                ends[core] = end.min(layout.end).max(ends[core]);
            }
        };
        let mut on_all = limit;
        for &tenant in tenants {
            for (space, pool) in self.pools_of(tenant, &[Space::L1, Space::L1Core]) {
                if space == Space::L1 {
                    // The allocator moves all cores in lock-step.
                    let first = self.lowest(space, pool).unwrap_or(u64::MAX);
                    on_all = on_all.min(first);
                    continue;
                }
                let entries = self.ledger.entries(pool).map(|(_, entry)| entry);
                let Some(process) = self.processes.get(&tenant.process) else { continue };
                for entry in entries {
                    for core in process.cores.get(&entry.cores).copied().unwrap_or_default().iter() {
                        lowest[core] = lowest[core].min(entry.id);
                    }
                }
            }
            for &(cores, end) in self.kept(tenant).ends() {
                raise(&mut registered, cores, end);
            }
        }
        lowest = lowest.map(|known| known.min(on_all));
        for it in residents {
            for part in self.kept(it.tenant).of(it.program) {
                if part.is_placed() {
                    raise(&mut ends, part.cores.within(it.cores), part.range.end);
                }
            }
        }
        let grid = (0..layout.rows).flat_map(|y| (0..layout.columns).map(move |x| (x, y)));
        let room = |(x, y): (u8, u8)| {
            let core = usize::from(y) * usize::from(CoreSet::WIDTH) + usize::from(x);
            CoreRoom {
                x,
                y,
                program_end: ends[core],
                registered_end: registered[core],
                lowest_buffer: lowest[core],
                free_gap_bytes: lowest[core].saturating_sub(ends[core]),
                basis: Basis::Exact,
            }
        };
        grid.filter(|&(x, y)| x < CoreSet::WIDTH && y < CoreSet::WIDTH).map(room).collect()
    }

    /// Where those who are there have their banks.
    fn bounds(&self, layout: &CoreLayout, tenants: &[Tenant]) -> Bounds {
        let banks = |space: Space| {
            let known = tenants
                .iter()
                .filter_map(move |tenant| self.processes.get(&tenant.process)?.banks(tenant.scope, space));
            known.filter(|it| it.bytes_per_bank > 0).map(|it| Range::new(it.base, it.bytes_per_bank))
        };
        let small: Vec<Range> = banks(Space::L1Small).collect();
        let end = banks(Space::L1).chain(small.iter().copied()).map(|bank| bank.end).max();
        let banks = end.unwrap_or(layout.end).min(layout.end);
        let buffers = small.iter().map(|bank| bank.start).min().unwrap_or(banks).min(banks);
        Bounds { buffers, small, banks }
    }

    fn maps(&self, number: usize, kind: &Kind) -> Option<Arc<[Alike]>> {
        let layout = kind.core_layout.filter(|_| !kind.tenants.is_empty())?;
        let version = self.version_of_l1(kind);
        if let Some((_, maps)) = self.derived.borrow().kind(number).maps.as_ref().filter(|it| it.0 == version)
        {
            return Some(Arc::clone(maps));
        }
        let residents = self.residents_of_kind(number, kind);
        let maps: Arc<[Alike]> = self.maps_now(&layout, &kind.tenants, &residents).into();
        self.derived.borrow_mut().kind_mut(number).maps = Some((version, Arc::clone(&maps)));
        Some(maps)
    }

    fn maps_now(&self, layout: &CoreLayout, tenants: &[Tenant], residents: &[Resident]) -> Vec<Alike> {
        let grid = layout.grid();
        let mut layers = Stack::new(grid);
        let bounds = self.bounds(layout, tenants);
        layers.add(CoreClass::Reserved, grid, Range { start: 0, end: layout.kernel_config });
        layers.add(
            CoreClass::KernelConfig,
            grid,
            Range { start: layout.kernel_config, end: layout.unreserved },
        );
        layers.add(CoreClass::Reserved, grid, Range { start: bounds.banks, end: layout.end });
        for &bank in &bounds.small {
            layers.add(CoreClass::L1SmallFree, grid, bank);
        }
        for &tenant in tenants {
            for (class, cores, ranges) in self.buffers_of(tenant, grid).iter() {
                layers.add_all(*class, *cores, ranges);
            }
        }
        for it in residents {
            for part in self.kept(it.tenant).of(it.program).iter().filter(|part| part.is_placed()) {
                let class = match part.space {
                    Space::Cb => CoreClass::Cb,
                    Space::Dfb => CoreClass::Dfb,
                    Space::Scratch => CoreClass::Scratch,
                    _ => continue,
                };
                layers.add(class, part.cores.within(it.cores), part.range);
            }
        }
        layers.maps(layout.end)
    }

    /// The buffers of one tenant, as layers of their own.
    fn buffers_of(&self, tenant: Tenant, grid: CoreSet) -> Layers {
        let version = self.version_in(tenant, &[Space::L1, Space::L1Small, Space::L1Core]);
        let key = (tenant, grid);
        if let Some((_, known)) = self.derived.borrow().layers.get(&key).filter(|(of, _)| *of == version) {
            return Arc::clone(known);
        }
        let mut layers = Stack::new(grid);
        self.add_buffers(tenant, &mut layers);
        let found: Layers = layers.into_unions().into();
        self.derived.borrow_mut().layers.insert(key, (version, Arc::clone(&found)));
        found
    }

    /// The buffers of one tenant: on their cores, or on all of them, and in lock-step on the others.
    fn add_buffers(&self, tenant: Tenant, layers: &mut Stack) {
        let Some(process) = self.processes.get(&tenant.process) else { return };
        for (space, pool) in self.pools_of(tenant, &[Space::L1, Space::L1Small, Space::L1Core]) {
            for (_, entry) in self.ledger.entries(pool) {
                let range = Range::new(entry.id, entry.bytes_per_bank);
                let named = process.cores.get(&entry.cores).copied();
                let class = match space {
                    Space::L1Small => CoreClass::L1Small,
                    _ => CoreClass::Buffer,
                };
                match (space, entry.layout == Layout::Mirror) {
                    // Whoever handed it out shows it.
                    (Space::L1Core, true) => {
                        layers.add(CoreClass::Lockstep, named.unwrap_or_default(), range);
                    }
                    (_, true) => layers.add(CoreClass::Lockstep, layers.grid, range),
                    (Space::L1Core, false) => layers.add(class, named.unwrap_or_default(), range),
                    (_, false) => {
                        let cores = named.unwrap_or(layers.grid);
                        layers.add(class, cores, range);
                        layers.add(CoreClass::Lockstep, layers.grid.without(cores), range);
                    }
                }
            }
        }
    }
}

/// What of one class lies on some cores.
type Layer = (CoreClass, CoreSet, Vec<Range>);
pub(crate) type Layers = Arc<[Layer]>;

/// What lies where, on which cores of a grid.
struct Stack {
    grid: CoreSet,
    all: Vec<Layer>,
    index: BTreeMap<(CoreClass, CoreSet), usize>,
    /// Of each class the layer that was added to last: the next is most often for the same cores.
    last: [Option<usize>; CLASSES.len()],
}

impl Stack {
    fn new(grid: CoreSet) -> Self {
        Self { grid, all: Vec::new(), index: BTreeMap::new(), last: [None; CLASSES.len()] }
    }

    fn add(&mut self, class: CoreClass, cores: CoreSet, range: Range) {
        let cores = cores.within(self.grid);
        if !cores.is_empty() && range.start < range.end {
            self.layer(class, cores).push(range);
        }
    }

    fn add_all(&mut self, class: CoreClass, cores: CoreSet, ranges: &[Range]) {
        self.layer(class, cores).extend_from_slice(ranges);
    }

    fn layer(&mut self, class: CoreClass, cores: CoreSet) -> &mut Vec<Range> {
        let last = self.last.get_mut(class as usize);
        let known = last.as_ref().and_then(|it| **it).filter(|&number| self.all[number].1 == cores);
        let number = known.unwrap_or_else(|| {
            let new = self.all.len();
            let number = *self.index.entry((class, cores)).or_insert(new);
            if number == new {
                self.all.push((class, cores, Vec::new()));
            }
            if let Some(last) = last {
                *last = Some(number);
            }
            number
        });
        &mut self.all[number].2
    }

    /// The layers in order, each as few ranges as it takes.
    fn into_unions(self) -> Vec<Layer> {
        let mut layers = self.all;
        layers.sort_unstable_by_key(|&(class, cores, _)| (class, cores));
        for (_, _, ranges) in &mut layers {
            *ranges = ranges::union(std::mem::take(ranges));
        }
        layers
    }

    /// The map of every core up to `end`, cores that are alike together.
    fn maps(self, end: u64) -> Vec<Alike> {
        let grid = self.grid;
        let layers = self.into_unions();
        let groups = footprint::alike(grid, layers.iter().map(|&(_, cores, _)| cores));
        let mut room = MOST_INTERVALS;
        let map = |cores: CoreSet| {
            let here = || layers.iter().filter(|(_, on, _)| !on.within(cores).is_empty());
            // There are at most two for each range, and one more.
            let most = here().fold(1, |sum: usize, (_, _, ranges)| sum.saturating_add(2 * ranges.len()));
            let found = if most > room && room < MOST_INTERVALS {
                Vec::new()
            } else {
                intervals(end, here().map(|(class, _, ranges)| (*class, &ranges[..])))
            };
            room = room.saturating_sub(found.len());
            Alike { cores, intervals: found.into() }
        };
        groups.into_iter().map(map).collect()
    }
}

/// What counts at each address from 0 to `end`: of all classes that have it, the first.
fn intervals<'a>(end: u64, layers: impl Iterator<Item = (CoreClass, &'a [Range])>) -> Vec<Interval> {
    let mut ends: Vec<(u64, CoreClass, bool)> = Vec::new();
    for (class, ranges) in layers {
        for range in ranges.iter().filter(|range| range.start < end) {
            ends.push((range.start, class, true));
            ends.push((range.end.min(end), class, false));
        }
    }
    ends.push((end, CoreClass::Other, true));
    // Layers are in order each by itself, which this sort makes use of.
    ends.sort_by_key(|&(at, ..)| at);
    let mut depth = [0u32; CoreClass::Other as usize + 1];
    let mut found: Vec<Interval> = Vec::new();
    let mut from = 0;
    for (at, class, opens) in ends {
        if at > from {
            let here = CLASSES.into_iter().find(|&it| depth[it as usize] > 0).unwrap_or(CoreClass::Free);
            match found.last_mut().filter(|last| last.class == here) {
                Some(last) => last.bytes += at - from,
                None => found.push(Interval { class: here, start: from, bytes: at - from }),
            }
            from = at;
        }
        let depth = &mut depth[class as usize];
        *depth = if opens { *depth + 1 } else { *depth - 1 };
    }
    found
}

/// Classes of what can lie somewhere, the first that counts first.
const CLASSES: [CoreClass; 9] = [
    CoreClass::Reserved,
    CoreClass::KernelConfig,
    CoreClass::Buffer,
    CoreClass::L1Small,
    CoreClass::Cb,
    CoreClass::Dfb,
    CoreClass::Scratch,
    CoreClass::Lockstep,
    CoreClass::L1SmallFree,
];
