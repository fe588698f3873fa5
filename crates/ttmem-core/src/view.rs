//! From state to snapshot: which figures are shown, how pools combine, and what follows from them.

use crate::detail::Detail;
use crate::event::{Banks, Name};
use crate::judgement::{describe_incident, finding};
use crate::ledger::{Entry, FreeSpace, PoolId};
use crate::machine::{CapacityOrigin, Firmware, Sensors};
use crate::programs::DERIVED_ROOM;
use crate::ranges::{self, Range};
use crate::snapshot::{
    Allocation, AllocatorSpace, AllocatorUsage, AuditResult, BufferUsage, Device, Finding, FindingKind,
    Group, Health, History, Peak, Process, ProcessUsage, ProgramUsage, SCHEMA, Sample, Severity, Snapshot,
    Total, Tracker, Usage,
};
use crate::state::{ChipState, ProcessState, State, chips_in};
use crate::words::{Basis, ChipId, Layout, Mono, ProcessId, Scope, Space};
use jiff::{SignedDuration, Timestamp, TimestampRound, Unit};
use std::collections::BTreeMap;

/// Allocations listed one by one in a report, however many groups it has.
pub const REPORT_ROOM: usize = 10_000;

/// Sensors are read every second; a reading older than this is not what the chip is like now.
const STALE_MS: u64 = 15_000;

/// The pools that make up one figure: of one process, or of all, on one chip in one space.
pub(crate) type Cells = BTreeMap<(ChipId, Space), Vec<PoolId>>;

impl State {
    /// Everything known, sorted. `at` is the wall-clock time of the last `now`.
    pub fn snapshot(&self, at: Timestamp, detail: &Detail) -> Snapshot {
        let at = at.round(TimestampRound::new().smallest(Unit::Millisecond)).unwrap_or(at);
        let clock = Clock { at, now: self.now };
        let mut all = Cells::new();
        let processes = self
            .processes
            .iter()
            .filter(|(_, process)| process.is_shown())
            .map(|(id, process)| {
                let cells = shown(process, None);
                let usage = self.usage_in(&cells);
                merge(&mut all, cells);
                Process {
                    traces: self.traces_of(*id, process, clock),
                    programs: detail.programs.then(|| self.programs_of(*id, process, clock)),
                    ..describe_process(id, process, usage, self.allocators_of(process))
                }
            })
            .collect();
        let mut usage = self.usage_in(&all);
        let mut findings = Vec::new();
        let mut devices: Vec<Device> = self
            .chips
            .iter()
            .map(|(id, state)| {
                let mut usage = usage.remove(id).unwrap_or_default();
                let peaks = self.peaks_of(*id, state, &all, &usage, clock);
                // A chip's peak can be higher than that of any one pool.
                for peak in peaks.iter().filter(|peak| !peak.space.is_program()) {
                    if let Some(usage) = usage.buffers_mut(peak.space) {
                        usage.peak_bytes = usage.peak_bytes.max(peak.bytes);
                    }
                }
                self.judge_device(id, state, &usage, &all, &mut findings);
                Device {
                    peaks,
                    tightest_core: self.tightest_core(*id, &all),
                    cores: if detail.cores { self.cores_of(*id, &all, clock) } else { None },
                    ..self.describe_device(id, state, usage, detail.history.then_some(clock))
                }
            })
            .collect();
        devices.sort_by(|a, b| (a.index, &a.id).cmp(&(b.index, &b.id)));
        self.judge_processes(&mut findings);
        self.judge_regions(&mut findings);
        findings
            .extend(self.findings.iter().map(|(subject, tally)| describe_incident(subject, tally, clock)));
        if self.findings.dropped > 0 {
            let text = format!("more findings than fit: {} made room for others", self.findings.dropped);
            findings.push(finding(FindingKind::Truncated, Severity::Info, text, self.findings.dropped));
        }
        findings.sort_by(|a, b| {
            let key = |f: &Finding| (f.severity, f.kind, f.pid, f.device.clone(), f.space);
            key(a).cmp(&key(b)).then_with(|| a.text.cmp(&b.text))
        });
        Snapshot {
            schema: SCHEMA,
            at,
            simulated: self.is_simulated(),
            host: self.host.clone(),
            devices,
            processes,
            findings,
            events: detail.events.then(|| self.happenings.list(clock)),
            buffers: None,
            health: Health {
                source: "local".into(),
                live_records: self.ledger.live() as u64,
                lost_records: self.lost,
                ..Health::default()
            },
        }
    }

    /// What one chip's spaces hold, as a snapshot would say, without making one.
    pub fn usage_of(&self, chip: ChipId) -> Usage {
        self.usage_in(&self.cells(Some(chip))).remove(&chip).unwrap_or_default()
    }

    /// The highest use of each space of a chip, with what was seen since the last tick.
    fn peaks_of(
        &self,
        id: ChipId,
        state: &ChipState,
        cells: &Cells,
        usage: &Usage,
        clock: Clock,
    ) -> Vec<Peak> {
        let all = Space::BUFFERS.into_iter().chain(Space::PROGRAM);
        let peaks = all.filter_map(|space| {
            let used = usage.used(space).map_or(0, |it| it.0);
            let pools = cells.get(&(id, space)).map(Vec::as_slice).unwrap_or_default();
            let now = self.high_now(id, space, pools, used);
            now.as_ref().or_else(|| state.peaks.get(&space)).map(|high| high.describe(space, clock))
        });
        peaks.filter(|peak| peak.bytes > 0).collect()
    }

    /// The pools of all processes that are shown, of one chip or of all.
    pub(crate) fn cells(&self, only: Option<ChipId>) -> Cells {
        let mut all = Cells::new();
        for process in self.processes.values() {
            merge(&mut all, shown(process, only));
        }
        all
    }

    /// Live allocations among the next `places` from `cursor` on, and where to go on. Together the pages hold every
    /// allocation that lives through all of them, in no order.
    pub fn allocations(&self, cursor: usize, places: usize) -> (Vec<Allocation>, Option<usize>) {
        let (entries, next) = self.ledger.page(cursor, places);
        (entries.filter_map(|entry| self.describe_entry(entry)).collect(), next)
    }

    /// Bytes recorded on a chip in a space, by all processes. Of circular buffers this is the sum of their sizes, not
    /// what they cover: use [`State::usage_of`] for that.
    pub fn recorded(&self, chip: ChipId, space: Space) -> u64 {
        let pools = self.processes.values().flat_map(|process| {
            let on_chip = move |scope: &Scope| chips_in(&process.allocators, scope).contains(&chip);
            process.pools.iter().filter(move |((scope, of, _), _)| *of == space && on_chip(scope))
        });
        let pools = pools.map(|(_, &pool)| pool);
        let listed = pools.map(|pool| self.ledger.pool(pool));
        listed.map(|pool| pool.totals.requested - pool.unlisted.requested).fold(0, u64::saturating_add)
    }

    /// Everything held, by chip and space. Single allocations are listed where there are at most `listed` of them in
    /// their group, or else the first `listed` if `cut`, and only the first [`REPORT_ROOM`] in all.
    pub fn report(&self, spaces: &[Space], listed: u64, cut: bool) -> Vec<Group> {
        let mut room = REPORT_ROOM;
        let mut pools: BTreeMap<(u32, Space), Vec<PoolId>> = BTreeMap::new();
        for process in self.processes.values() {
            for ((scope, space, _), &pool) in process.pools.iter().filter(|(key, _)| spaces.contains(&key.1))
            {
                for chip in chips_in(&process.allocators, scope).iter().filter_map(|id| self.chips.get(id)) {
                    pools.entry((chip.chip.index, *space)).or_default().push(pool);
                }
            }
        }
        let groups = pools.into_iter().map(|((index, space), pools)| {
            let totals = || pools.iter().map(|&pool| self.ledger.pool(pool).totals);
            let count = totals().map(|t| t.count).sum();
            let entries = pools.iter().flat_map(|&pool| self.ledger.entries(pool).map(|(_, entry)| entry));
            let listed = if count <= listed || cut { (listed as usize).min(room) } else { 0 };
            let listed: Vec<_> =
                entries.take(listed).filter_map(|entry| self.describe_entry(entry)).collect();
            room -= listed.len();
            Group {
                index,
                space,
                count,
                bytes: totals().map(|t| t.requested).fold(0, u64::saturating_add),
                listed,
            }
        });
        groups.filter(|group| group.count > 0).collect()
    }

    /// What chips are called, by index, and their indexes.
    pub(crate) fn names_of(&self, chips: &[ChipId]) -> (Vec<String>, Vec<u32>) {
        let mut named: Vec<(Option<u32>, ChipId)> =
            chips.iter().map(|&chip| (self.chips.get(&chip).map(|it| it.chip.index), chip)).collect();
        named.sort_unstable();
        let names = named.iter().map(|(_, chip)| chip.to_string()).collect();
        (names, named.into_iter().filter_map(|(index, _)| index).collect())
    }

    /// `None`: it is no allocation of its own.
    fn describe_entry(&self, entry: &Entry) -> Option<Allocation> {
        if entry.layout == Layout::Mirror {
            return None;
        }
        let key = self.ledger.pool(entry.pool()).key;
        let process = self.processes.get(&key.process)?;
        let chips = chips_in(&process.allocators, &key.scope);
        let (devices, indexes) = self.names_of(chips);
        let known = (key.basis == Basis::Events).then_some(());
        Some(Allocation {
            pid: visible(key.process),
            reported_pid: process.info.reported_pid,
            devices,
            indexes,
            allocator: match key.scope {
                Scope::Allocator(number) => Some(number),
                Scope::Chip(_) => None,
            },
            space: key.space,
            id: format!("0x{:x}", entry.id),
            requested_bytes: entry.requested,
            occupied_bytes: known.map(|()| entry.occupied).filter(|&bytes| bytes > 0),
            allocated_bytes: known.and_then(|()| entry.allocated()),
            bytes_per_bank: known.map(|()| entry.bytes_per_bank).filter(|&bytes| bytes > 0),
            banks: known.map(|()| entry.banks).filter(|&banks| banks > 0),
            layout: Some(entry.layout).filter(|&layout| layout != Layout::Unknown),
            cores: process.cores.get(&entry.cores).map(|cores| cores.rectangles()),
            references: entry.refs,
            age_seconds: (self.now.since(Mono(entry.born)) / 1_000_000) as f64 / 1000.0,
            kernel: (key.space == Space::Kernel).then_some(entry.class),
            program: (entry.program != 0).then_some(entry.program),
            site: (entry.site != 0).then_some(entry.site),
            site_name: process.names.get(&Name::Site(entry.site)).cloned(),
            program_name: (entry.program != 0)
                .then(|| process.program_name(key.scope, entry.program).cloned())
                .flatten(),
            basis: key.basis,
        })
    }

    pub(crate) fn usage_in(&self, cells: &Cells) -> BTreeMap<ChipId, Usage> {
        let mut all: BTreeMap<ChipId, Usage> = BTreeMap::new();
        for (&(chip, space), pools) in cells {
            let usage = all.entry(chip).or_default();
            if space.is_program() {
                let residents = self.residents(chip);
                *usage.program_mut(space) = Some(self.program_usage(space, &residents, pools));
            } else {
                *usage.buffers_mut(space) = Some(self.buffer_usage(space, pools));
            }
        }
        for (chip, usage) in &mut all {
            let capacity = self.chips.get(chip).and_then(|state| state.chip.capacity);
            usage.dram_total = usage.total(&[Space::Dram, Space::Trace], capacity.map(|c| c.dram_bytes));
            let l1 = [
                Space::L1,
                Space::L1Small,
                Space::L1Core,
                Space::Cb,
                Space::Dfb,
                Space::Scratch,
                Space::Kernel,
            ];
            usage.l1_total = usage.total(&l1, capacity.map(|c| c.l1_bytes));
        }
        all
    }

    fn describe_device(
        &self,
        id: &ChipId,
        state: &ChipState,
        usage: Usage,
        history: Option<Clock>,
    ) -> Device {
        let chip = &state.chip;
        let samples = |series: &crate::history::Series, clock: Clock| {
            let samples = series.samples().into_iter();
            samples
                .map(|s| Sample {
                    at: clock.wall(s.at),
                    min_bytes: s.min,
                    mean_bytes: s.mean,
                    max_bytes: s.max,
                })
                .collect()
        };
        let (sensors, sensors_absent) = self.sensors_of(state);
        Device {
            id: id.to_string(),
            index: chip.index,
            arch: chip.arch,
            board: chip.board.clone(),
            remote: chip.remote,
            pci: chip.pci.map(|it| it.to_string()),
            node: chip.node,
            serial: chip.serial.map(|it| format!("{it:016x}")),
            names: state.called.iter().map(ToString::to_string).collect(),
            firmware: Firmware::clone(&chip.firmware),
            capacity: chip.capacity,
            usage,
            sensors,
            sensors_absent,
            peaks: Vec::new(),
            tightest_core: None,
            core_layout: chip.core_layout,
            cores: None,
            history: history.map(|clock| History {
                dram_total: samples(&state.dram, clock),
                l1_total: samples(&state.l1, clock),
            }),
        }
    }

    /// What a chip's sensors said, with its age, or why they say nothing.
    fn sensors_of(&self, state: &ChipState) -> (Option<Sensors>, Option<String>) {
        let reading = &state.sensors;
        let why = reading.why.clone();
        let Some(at) = reading.at else {
            let unknown = if state.chip.remote {
                "remote: only the chip it is reached through has sensors that can be read"
            } else if state.chip.capacity.is_some_and(|it| it.origin == CapacityOrigin::Simulated) {
                "simulated"
            } else {
                "the driver does not show this chip"
            };
            return (None, why.or_else(|| Some(unknown.to_owned())));
        };
        let age_ms = self.now.since(at) / 1_000_000;
        let stale = why.is_some() || age_ms > STALE_MS;
        (Some(Sensors { age_ms, stale, ..reading.sensors.clone() }), why)
    }

    /// What each allocator of a process holds, by itself.
    fn allocators_of(&self, process: &ProcessState) -> Vec<AllocatorUsage> {
        let space_of = |number: u32, banks: &Banks| {
            let pool = process.pools.get(&(Scope::Allocator(number), banks.space, Basis::Events));
            AllocatorSpace {
                space: banks.space,
                banks: banks.banks,
                base: banks.base,
                bytes_per_bank: banks.bytes_per_bank,
                usage: self.buffer_usage(banks.space, pool.map(std::slice::from_ref).unwrap_or_default()),
            }
        };
        let of = |(&number, it): (&u32, &crate::event::Allocator)| AllocatorUsage {
            id: number,
            devices: it.chips.iter().map(ToString::to_string).collect(),
            spaces: it.spaces.iter().map(|banks| space_of(number, banks)).collect(),
        };
        // One without banks only says which chips a program is for, unless its banks are just not known.
        let has_buffers = |number: u32| {
            let mut pools = process.pools.keys().filter(|(_, space, _)| !space.is_program());
            pools.any(|(scope, ..)| *scope == Scope::Allocator(number))
        };
        let all = process.allocators.iter();
        all.filter(|(number, it)| !it.spaces.is_empty() || has_buffers(**number)).map(of).collect()
    }

    pub(crate) fn buffer_usage(&self, space: Space, pools: &[PoolId]) -> BufferUsage {
        let mut sum = BufferUsage {
            used_bytes: 0,
            requested_bytes: 0,
            occupied_bytes: None,
            allocated_bytes: None,
            allocatable_bytes: None,
            free_bytes: None,
            largest_free_bytes_per_bank: None,
            peak_bytes: 0,
            count: None,
            basis: Basis::Events,
        };
        let mut count = 0;
        let (mut occupied, mut allocated, mut largest) = (0, 0, 0);
        let (mut uncharged, mut vague, mut unlisted) = (0, 0, 0);
        for pool in pools.iter().map(|&pool| self.ledger.pool(pool)) {
            // What is listed cannot leave 64 bits; what is only said to be held could, if many say so.
            let requested = pool.level.unwrap_or(pool.totals.requested);
            sum.requested_bytes = sum.requested_bytes.saturating_add(requested);
            let charged = pool.key.basis == Basis::Events && pool.totals.uncharged == 0;
            let used = if charged { pool.totals.allocated } else { requested };
            sum.used_bytes = sum.used_bytes.saturating_add(used);
            occupied += pool.totals.occupied;
            allocated = pool.totals.allocated.saturating_add(allocated);
            largest = pool.totals.allocated.max(largest);
            uncharged += pool.totals.uncharged;
            vague += pool.totals.vague;
            unlisted += pool.unlisted.count;
            count += pool.totals.own_count();
            sum.peak_bytes = sum.peak_bytes.max(pool.peak);
            sum.basis = sum.basis.max(pool.key.basis);
        }
        if sum.basis == Basis::Events {
            let layout = self.layout(space, pools);
            sum.occupied_bytes = (vague == 0).then_some(occupied);
            // However much they overlap, together they are no less than the largest of them.
            sum.allocated_bytes = (uncharged == 0)
                .then(|| allocated.saturating_sub(self.aliased_bytes(layout, pools)).max(largest));
            // What is not listed lies somewhere, too.
            if let Some(layout) = layout.filter(|_| uncharged + unlisted == 0) {
                let free = self.free_space(layout, pools);
                sum.allocatable_bytes = Some(layout.bytes_per_bank.saturating_mul(u64::from(layout.banks)));
                sum.free_bytes = Some(free.bytes_per_bank.saturating_mul(u64::from(layout.banks)));
                sum.largest_free_bytes_per_bank = Some(free.largest);
            }
        }
        sum.used_bytes = sum.allocated_bytes.unwrap_or(sum.used_bytes);
        sum.count = self.are_listed(pools).then_some(count);
        sum.peak_bytes = sum.peak_bytes.max(sum.used_bytes);
        sum
    }

    /// Whether there is a record of everything in them, rather than a mere sum.
    pub(crate) fn are_listed(&self, pools: &[PoolId]) -> bool {
        pools.iter().all(|&pool| self.ledger.pool(pool).level.is_none())
    }

    /// The bank layout all pools share, if they do.
    pub(crate) fn layout(&self, space: Space, pools: &[PoolId]) -> Option<Banks> {
        let mut layouts = pools.iter().map(|&pool| {
            let key = self.ledger.pool(pool).key;
            self.processes.get(&key.process)?.banks(key.scope, space)
        });
        let first = layouts.next()??;
        layouts.all(|layout| layout == Some(first)).then_some(first)
    }

    fn bank_ranges(&self, pools: &[PoolId]) -> Vec<Range> {
        let entries = pools.iter().flat_map(|&pool| self.ledger.entries(pool));
        entries.map(|(_, entry)| Range::new(entry.id, entry.bytes_per_bank)).collect()
    }

    /// The same of what the pools' own allocators handed out.
    fn own_ranges(&self, pools: &[PoolId]) -> Vec<Range> {
        let entries = pools.iter().flat_map(|&pool| self.ledger.entries(pool));
        let own = entries.filter(|(_, entry)| entry.layout != Layout::Mirror);
        own.map(|(_, entry)| Range::new(entry.id, entry.bytes_per_bank)).collect()
    }

    pub(crate) fn free_space(&self, layout: Banks, pools: &[PoolId]) -> FreeSpace {
        let pool = match pools {
            [] => return free_in(layout, &[]),
            [pool] => *pool,
            [..] => return self.together(layout, pools).free,
        };
        let cache = &self.ledger.pool(pool).free;
        if let Some(free) = cache.get() {
            return free;
        }
        let free = free_in(layout, &ranges::union(self.bank_ranges(pools)));
        cache.set(Some(free));
        free
    }

    /// Bytes that several allocators hold at once, counted as often as they are held too much.
    pub(crate) fn aliased_bytes(&self, layout: Option<Banks>, pools: &[PoolId]) -> u64 {
        let (Some(layout), [_, _, ..]) = (layout, pools) else { return 0 };
        self.together(layout, pools).aliased.saturating_mul(u64::from(layout.banks))
    }

    /// What several pools of one layout hold together. All chips of a mesh ask for the same, and more than once.
    fn together(&self, layout: Banks, pools: &[PoolId]) -> Together {
        let version = pools.iter().map(|&pool| self.ledger.pool(pool).version).max().unwrap_or(0);
        if let Some(&(_, known)) = self.derived.borrow().together.get(pools).filter(|(of, _)| *of == version)
        {
            return known;
        }
        let each: u64 =
            pools.iter().map(|&pool| ranges::covered(&ranges::union(self.own_ranges(&[pool])))).sum();
        let own = ranges::covered(&ranges::union(self.own_ranges(pools)));
        let free = free_in(layout, &ranges::union(self.bank_ranges(pools)));
        let found = Together { free, aliased: each - own };
        let room = &mut self.derived.borrow_mut().together;
        if room.len() >= DERIVED_ROOM {
            room.clear();
        }
        room.insert(pools.to_vec(), (version, found));
        found
    }
}

/// What several pools hold in each bank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Together {
    free: FreeSpace,
    /// Held by more than one, as often as it is too much.
    aliased: u64,
}

fn free_in(layout: Banks, used: &[Range]) -> FreeSpace {
    let gaps = ranges::gaps(used, Range::new(layout.base, layout.bytes_per_bank));
    FreeSpace {
        bytes_per_bank: ranges::covered(&gaps),
        largest: gaps.iter().map(|gap| gap.len()).max().unwrap_or(0),
    }
}

impl Usage {
    fn buffers_mut(&mut self, space: Space) -> &mut Option<BufferUsage> {
        match space {
            Space::L1 => &mut self.l1,
            Space::L1Small => &mut self.l1_small,
            Space::Trace => &mut self.trace,
            Space::Host => &mut self.host,
            Space::L1Core => &mut self.l1_core,
            _ => &mut self.dram,
        }
    }

    fn program_mut(&mut self, space: Space) -> &mut Option<ProgramUsage> {
        match space {
            Space::Dfb => &mut self.dfb,
            Space::Scratch => &mut self.scratch,
            Space::Kernel => &mut self.kernel,
            _ => &mut self.cb,
        }
    }

    /// What one space holds, and the basis of that; `None` where nothing is known of it.
    pub fn used(&self, space: Space) -> Option<(u64, Basis)> {
        let buffers = |usage: &Option<BufferUsage>| usage.as_ref().map(|u| (u.used_bytes, u.basis));
        let program = |usage: &Option<ProgramUsage>| usage.as_ref().map(|u| (u.used_bytes(), u.basis));
        match space {
            Space::Dram => buffers(&self.dram),
            Space::L1 => buffers(&self.l1),
            Space::L1Small => buffers(&self.l1_small),
            Space::Trace => buffers(&self.trace),
            Space::Host => buffers(&self.host),
            Space::L1Core => buffers(&self.l1_core),
            Space::Cb => program(&self.cb),
            Space::Dfb => program(&self.dfb),
            Space::Scratch => program(&self.scratch),
            Space::Kernel => program(&self.kernel),
        }
    }

    fn total(&self, spaces: &[Space], capacity_bytes: Option<u64>) -> Option<Total> {
        // Kernels that are only registered are not in L1: adding up what was loaded says nothing of what is there.
        let registered_only = |space: Space| {
            let kernels = self.kernel.as_ref().filter(|_| space == Space::Kernel);
            kernels.is_some_and(|it| it.basis == Basis::Events && it.resident_bytes.is_none())
        };
        let parts: Vec<_> = spaces
            .iter()
            .filter(|&&space| !registered_only(space))
            .filter_map(|&space| self.used(space))
            .collect();
        let basis = parts.iter().map(|part| part.1).max()?;
        let used_bytes = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.0));
        Some(Total { used_bytes, capacity_bytes, basis })
    }
}

fn merge(all: &mut Cells, cells: Cells) {
    for (cell, pools) in cells {
        all.entry(cell).or_default().extend(pools);
    }
}

/// A process's pools that are shown, of one chip or of all: in each space those with the best basis.
fn shown(process: &ProcessState, only: Option<ChipId>) -> Cells {
    let mut cells: BTreeMap<(ChipId, Space), (Basis, Vec<PoolId>)> = BTreeMap::new();
    for (&(ref scope, space, basis), &pool) in &process.pools {
        for &chip in chips_in(&process.allocators, scope) {
            if only.is_some_and(|only| only != chip) {
                continue;
            }
            let (best, pools) = cells.entry((chip, space)).or_insert((basis, Vec::new()));
            if basis < *best {
                (*best, *pools) = (basis, vec![pool]);
            } else if basis == *best {
                pools.push(pool);
            }
        }
    }
    cells.into_iter().map(|(cell, (_, pools))| (cell, pools)).collect()
}

pub(crate) fn visible(id: ProcessId) -> Option<u32> {
    (id.pid != 0).then_some(id.pid)
}

/// Turns monotonic moments into wall-clock ones.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    at: Timestamp,
    now: Mono,
}

impl Clock {
    pub(crate) fn wall(self, then: Mono) -> Timestamp {
        let ago = SignedDuration::from_millis((self.now.since(then) / 1_000_000) as i64);
        self.at.checked_sub(ago).unwrap_or(self.at)
    }
}

fn describe_process(
    id: &ProcessId,
    process: &ProcessState,
    usage: BTreeMap<ChipId, Usage>,
    allocators: Vec<AllocatorUsage>,
) -> Process {
    let info = &process.info;
    let tracking = process.pools.keys().map(|&(_, _, basis)| basis).min().unwrap_or(process.basis);
    Process {
        pid: visible(*id),
        reported_pid: info.reported_pid,
        start: info.start,
        name: info.name.clone(),
        command: info.command.clone(),
        user: info.user.clone(),
        container: info.container.clone(),
        pod: info.pod.clone(),
        opened: process.opened.iter().map(ToString::to_string).collect(),
        tracking,
        exact: tracking == Basis::Events && process.lost == 0 && process.refused == 0 && process.seen_exactly,
        sequence: process.sequence,
        tracker: process.tracked.as_ref().map(|it| Tracker {
            writer: it.writer.clone(),
            runtime: it.runtime.clone(),
            hooks: it.hooks,
            missing_hooks: it.missing.clone(),
            cost_seconds: it.cost_ns.map(|ns| (ns / 1000) as f64 / 1e6),
        }),
        allocators,
        summary: crate::snapshot::Summary::default(),
        usage: usage
            .into_iter()
            .map(|(chip, usage)| ProcessUsage { device: chip.to_string(), usage })
            .collect(),
        audit: process
            .audits
            .iter()
            .map(|(&(allocator, space), audit)| AuditResult {
                allocator,
                chips: chips_in(&process.allocators, &Scope::Allocator(allocator))
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
                space,
                drift_bytes: audit.drift.allocated,
                free_drift_bytes: audit.drift.free,
                largest_free_drift_bytes: audit.drift.largest_free,
                judged: audit.theirs.quiet,
                allocated_bytes: audit.theirs.allocated_bytes,
                free_bytes: audit.theirs.free_bytes,
                largest_free_bytes_per_bank: audit.theirs.largest_free_bytes_per_bank,
                sequence: audit.theirs.sequence,
            })
            .collect(),
        traces: Vec::new(),
        programs: None,
    }
}
