//! The L1 of each core: where programs end, where buffers begin, and what is between.

use super::core_map::{CoreMap, LayerStack, Layers};
use super::plan::{ChipGroup, IN_L1};
use super::program_usage::Resident;
use super::{Clock, Figures, Tenant};
use crate::core_set::CoreSet;
use crate::machine::CoreLayout;
use crate::ranges::Range;
use crate::snapshot::{Core, CoreClass, CoreProgram, CoreRoom, Cores};
use crate::state::visible;
use crate::words::{Basis, ChipId, Layout, Scope, Space};
use std::sync::Arc;
use ttmem_types::program_number;

/// Where the banks of L1 are in each core.
#[derive(Debug)]
struct Bounds {
    /// End of buffers: where L1_SMALL begins, or the banks end.
    buffers: u64,
    small: Vec<Range>,
    /// End of all banks.
    banks: u64,
}

impl Figures<'_> {
    /// The core with the smallest free gap, if the layout of cores is known and a tenant has an exact basis.
    pub(super) fn tightest_core(&mut self, number: usize, group: &ChipGroup) -> Option<CoreRoom> {
        let (rooms, basis) = (self.rooms(number, group)?, self.l1_basis(group));
        let tightest = rooms.iter().min_by_key(|room| (room.free_gap_bytes, room.y, room.x))?;
        Some(CoreRoom { basis, ..*tightest })
    }

    /// The L1 of every core of a chip, by row and column.
    pub(super) fn cores_of(
        &mut self,
        chip: ChipId,
        number: usize,
        group: &ChipGroup,
        clock: Clock,
    ) -> Option<Cores> {
        let (rooms, maps) = (self.rooms(number, group)?, self.maps(number, group)?);
        let basis = self.l1_basis(group);
        let peaks = self.state.chips.get(&chip).map(|state| &state.core_peaks);
        let residents = self.residents_of(number, group);
        let cores = rooms.iter().map(|room| {
            let number = usize::from(room.y) * usize::from(CoreSet::WIDTH) + usize::from(room.x);
            let map = maps.iter().find(|map| map.cores.has(number));
            Core {
                room: CoreRoom { basis, ..*room },
                program: residents
                    .iter()
                    .find(|it| it.cores.has(number))
                    .map(|it| self.describe_resident(it)),
                intervals: map.map(|map| map.intervals.clone()).unwrap_or_default(),
                peak: peaks.and_then(|peaks| peaks.of(number, clock, self.viewer)),
            }
        });
        Some(Cores(cores.collect()))
    }

    fn describe_resident(&self, resident: &Resident) -> CoreProgram {
        let &Resident { tenant: Tenant { process, scope }, program, .. } = resident;
        let known = self.state.processes.get(&process);
        let name = known.and_then(|known| known.program_name(scope, program));
        let row = CoreProgram {
            pid: visible(process),
            allocator: match scope {
                Scope::Allocator(number) => Some(number),
                Scope::Chip(_) => None,
            },
            id: program_number(program),
            hidden: false,
            name: name.cloned(),
        };
        self.viewer.show(known.and_then(|known| known.info.uid), row)
    }

    /// The weakest basis of all L1 in use on a chip.
    fn l1_basis(&self, group: &ChipGroup) -> Basis {
        let pools = group.spaces.iter().filter(|of| IN_L1.contains(&of.space)).flat_map(|of| &of.pools);
        let held =
            pools.map(|&pool| self.state.ledger.pool(pool)).filter(|it| it.used() > 0 || it.totals.count > 0);
        held.map(|pool| pool.key.basis).max().unwrap_or(Basis::Exact)
    }

    fn rooms(&mut self, number: usize, group: &ChipGroup) -> Option<Arc<[CoreRoom]>> {
        let layout = group.core_layout.filter(|_| !group.tenants.is_empty())?;
        let version = self.version_of_l1(group);
        if let Some((_, rooms)) = self.cache.groups[number].rooms.as_ref().filter(|(of, _)| *of == version) {
            return Some(Arc::clone(rooms));
        }
        let residents = self.residents_of(number, group);
        let rooms: Arc<[CoreRoom]> = self.find_rooms(&layout, &group.tenants, &residents).into();
        self.cache.groups[number].rooms = Some((version, Arc::clone(&rooms)));
        Some(rooms)
    }

    fn find_rooms(
        &mut self,
        layout: &CoreLayout,
        tenants: &[Tenant],
        residents: &[Resident],
    ) -> Vec<CoreRoom> {
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
            for (space, pool) in self.state.pools_of(tenant, &[Space::L1, Space::L1Core]) {
                if space == Space::L1 {
                    // The allocator allocates on all cores in lock-step.
                    let first = self.lowest_address(space, pool).unwrap_or(u64::MAX);
                    on_all = on_all.min(first);
                    continue;
                }
                let entries = self.state.ledger.entries(pool).map(|(_, entry)| entry);
                let Some(process) = self.state.processes.get(&tenant.process) else { continue };
                for entry in entries {
                    for core in process.cores.get(&entry.cores).copied().unwrap_or_default().iter() {
                        lowest[core] = lowest[core].min(entry.id);
                    }
                }
            }
            for &(cores, end) in self.program_memory(tenant).ends() {
                raise(&mut registered, cores, end);
            }
        }
        lowest = lowest.map(|known| known.min(on_all));
        for it in residents {
            for part in self.program_memory(it.tenant).of(it.program) {
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

    /// Where the banks of the tenants are.
    fn bounds(&self, layout: &CoreLayout, tenants: &[Tenant]) -> Bounds {
        let banks = |space: Space| {
            let known = tenants.iter().filter_map(move |tenant| {
                self.state.processes.get(&tenant.process)?.banks(tenant.scope, space)
            });
            known.filter(|it| it.bytes_per_bank > 0).map(|it| Range::new(it.base, it.bytes_per_bank))
        };
        let small: Vec<Range> = banks(Space::L1Small).collect();
        let end = banks(Space::L1).chain(small.iter().copied()).map(|bank| bank.end).max();
        let banks = end.unwrap_or(layout.end).min(layout.end);
        let buffers = small.iter().map(|bank| bank.start).min().unwrap_or(banks).min(banks);
        Bounds { buffers, small, banks }
    }

    fn maps(&mut self, number: usize, group: &ChipGroup) -> Option<Arc<[CoreMap]>> {
        let layout = group.core_layout.filter(|_| !group.tenants.is_empty())?;
        let version = self.version_of_l1(group);
        if let Some((_, maps)) = self.cache.groups[number].maps.as_ref().filter(|(of, _)| *of == version) {
            return Some(Arc::clone(maps));
        }
        let residents = self.residents_of(number, group);
        let maps: Arc<[CoreMap]> = self.find_maps(&layout, &group.tenants, &residents).into();
        self.cache.groups[number].maps = Some((version, Arc::clone(&maps)));
        Some(maps)
    }

    fn find_maps(&mut self, layout: &CoreLayout, tenants: &[Tenant], residents: &[Resident]) -> Vec<CoreMap> {
        let grid = layout.grid();
        let mut layers = LayerStack::new(grid);
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
        for &Resident { tenant, program, cores } in residents {
            for part in self.program_memory(tenant).of(program).iter().filter(|part| part.is_placed()) {
                let class = match part.space {
                    Space::Cb => CoreClass::Cb,
                    Space::Dfb => CoreClass::Dfb,
                    Space::Scratch => CoreClass::Scratch,
                    _ => continue,
                };
                layers.add(class, part.cores.within(cores), part.range);
            }
        }
        layers.maps(layout.end)
    }

    /// The buffers of one tenant, as layers.
    fn buffers_of(&mut self, tenant: Tenant, grid: CoreSet) -> Layers {
        let version = self.state.version_in(tenant, &[Space::L1, Space::L1Small, Space::L1Core]);
        let key = (tenant, grid);
        if let Some((_, known)) = self.cache.layers.get(&key).filter(|(of, _)| *of == version) {
            return Arc::clone(known);
        }
        let mut layers = LayerStack::new(grid);
        self.add_buffers(tenant, &mut layers);
        let found: Layers = layers.into_unions().into();
        self.cache.layers.insert(key, (version, Arc::clone(&found)));
        found
    }

    /// Adds the buffers of one tenant: on their cores or on all, and reserved by lock-step on the others.
    fn add_buffers(&self, tenant: Tenant, layers: &mut LayerStack) {
        let Some(process) = self.state.processes.get(&tenant.process) else { return };
        for (space, pool) in self.state.pools_of(tenant, &[Space::L1, Space::L1Small, Space::L1Core]) {
            for (_, entry) in self.state.ledger.entries(pool) {
                let range = Range::new(entry.id, entry.bytes_per_bank);
                let named = process.cores.get(&entry.cores).copied();
                let class = match space {
                    Space::L1Small => CoreClass::L1Small,
                    _ => CoreClass::Buffer,
                };
                match (space, entry.layout == Layout::Mirror) {
                    // The allocator that handed it out shows it.
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
