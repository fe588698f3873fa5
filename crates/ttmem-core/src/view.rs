//! From state to snapshot: which figures are shown, how pools combine, and what follows from them.

use crate::detail::Detail;
use crate::event::{Banks, Name};
use crate::history::{SENSOR_PARTS, Series};
use crate::judgement::{describe_fault, finding};
use crate::ledger::{Entry, PoolId};
use crate::machine::{CapacityOrigin, Firmware, Sensors};
use crate::plan::{Kind, Share};
use crate::programs::Resident;
use crate::snapshot::{
    Allocation, AllocatorSpace, AllocatorUsage, AuditResult, CoreRoom, Device, Finding, FindingKind, Group,
    Health, History, Peak, Process, ProcessUsage, SCHEMA, Sample, SensorSample, Severity, Snapshot, Summary,
    Tracker, Tracking, Usage,
};
use crate::state::{ChipState, ProcessState, State, chips_in};
use crate::usage::KindUsage;
use crate::words::{Basis, ChipId, Layout, Mono, ProcessId, Scope, Space};
use jiff::{SignedDuration, Timestamp, TimestampRound, Unit};
use std::collections::BTreeMap;
use std::sync::Arc;
use ttmem_types::program_number;

/// Allocations listed one by one in a report, however many groups it has.
pub const REPORT_ROOM: usize = 10_000;

/// Sensors are read every second; a reading older than this is not what the chip is like now.
const STALE_MS: u64 = 15_000;

/// What is the same for all chips of a kind, and what their processes need of it.
struct KindView<'a> {
    number: usize,
    kind: &'a Kind,
    indexes: Vec<u32>,
    usage: Arc<KindUsage>,
    residents: Arc<[Resident]>,
    tightest: Option<CoreRoom>,
}

impl State {
    /// Everything known, sorted. `at` is the wall-clock time of the last `now`.
    pub fn snapshot(&self, at: Timestamp, detail: &Detail) -> Snapshot {
        let at = at.round(TimestampRound::new().smallest(Unit::Millisecond)).unwrap_or(at);
        let clock = Clock { at, now: self.now };
        let plan = self.plan();
        let kinds: Vec<KindView> =
            plan.kinds.iter().enumerate().map(|(number, kind)| self.view_of(number, kind)).collect();
        let shown = self.processes.iter().filter(|(_, process)| process.is_shown());
        let processes = shown
            .map(|(&id, process)| {
                let full = !detail.brief || detail.pid.is_some_and(|pid| visible(id) == Some(pid));
                let programs = || self.programs_of(id, process, clock, full);
                Process {
                    traces: self.traces_of(id, process, clock),
                    programs: detail.programs.then(programs),
                    ..self.describe_process(id, process, plan.shares_of(id), &kinds, full)
                }
            })
            .collect();
        let mut findings = Vec::new();
        let mut devices: Vec<Device> = Vec::with_capacity(self.chips.len());
        for (&id, state) in &self.chips {
            let kind = plan.kind_of(id).map(|number| &kinds[number]);
            let mut usage = kind.map(|it| self.usage_on(id, &it.usage)).unwrap_or_default();
            let peaks = self.peaks_of(id, state, kind, clock);
            // A chip's peak can be higher than that of any one pool.
            for peak in peaks.iter().filter(|peak| !peak.space.is_program()) {
                if let Some(usage) = usage.buffers_mut(peak.space) {
                    usage.peak_bytes = usage.peak_bytes.max(peak.bytes);
                }
            }
            let spaces = kind.map(|it| &it.usage.spaces[..]).unwrap_or_default();
            self.judge_device(&id, state, &usage, spaces, &mut findings);
            let with_cores = detail.cores || detail.cores_of == Some(state.chip.index);
            let cores = kind.filter(|_| with_cores);
            devices.push(Device {
                peaks,
                tightest_core: kind.and_then(|it| it.tightest),
                cores: cores.and_then(|it| self.cores_of(id, it.number, it.kind, clock)),
                history: history(state, detail, clock),
                ..self.describe_device(&id, state, usage)
            });
        }
        devices.sort_by(|a, b| (a.index, &a.id).cmp(&(b.index, &b.id)));
        self.judge_processes(&mut findings);
        self.judge_regions(&mut findings);
        findings.extend(self.findings.iter().map(|(subject, tally)| {
            let label = subject.process.map(|id| self.label_of(id));
            let device = subject.chip.and_then(|id| self.chips.get(&id)).map(|it| it.chip.index);
            describe_fault(subject, tally, label.as_ref(), device, clock)
        }));
        if self.findings.dropped > 0 {
            let text = format!("{} older findings dropped: too many at once", self.findings.dropped);
            findings.push(finding(FindingKind::Truncated, Severity::Info, text, self.findings.dropped));
        }
        findings.sort_by(|a, b| rank(a).cmp(&rank(b)));
        Snapshot {
            schema: SCHEMA,
            at,
            simulated: self.is_simulated(),
            host: self.host.clone(),
            devices,
            processes,
            findings,
            events: detail.events.then(|| self.event_log.list(clock)),
            buffers: detail.buffers.as_ref().map(|query| self.buffers(query, !detail.brief)),
            programs: detail.program_list.as_ref().map(|query| self.program_list(query, clock)),
            core_allocations: detail.core.as_ref().and_then(|query| self.core_allocations(query)),
            health: Health {
                source: "local".into(),
                live_records: self.ledger.live() as u64,
                lost_records: self.lost,
                ..Health::default()
            },
        }
    }

    fn view_of<'a>(&self, number: usize, kind: &'a Kind) -> KindView<'a> {
        KindView {
            number,
            kind,
            indexes: self.indexes_of(&kind.chips),
            usage: self.usage_of_kind(number, kind),
            residents: self.residents_of_kind(number, kind),
            tightest: self.tightest_core(number, kind),
        }
    }

    /// The highest use of each space of a chip, with what was seen since the last tick.
    fn peaks_of(&self, id: ChipId, state: &ChipState, kind: Option<&KindView>, clock: Clock) -> Vec<Peak> {
        let all = Space::BUFFERS.into_iter().chain(Space::PROGRAM);
        let peaks = all.filter_map(|space| {
            let now = kind.and_then(|it| {
                let spaces = &it.usage.spaces;
                let at = spaces.iter().position(|it| it.space == space)?;
                self.high_now(id, it.number, it.kind, at, &spaces[at])
            });
            now.as_ref().or_else(|| state.peaks.get(&space)).map(|high| high.describe(space, clock))
        });
        peaks.filter(|peak| peak.bytes > 0).collect()
    }

    /// The indexes of chips, lowest first.
    fn indexes_of(&self, chips: &[ChipId]) -> Vec<u32> {
        let known = chips.iter().filter_map(|id| self.chips.get(id));
        let mut indexes: Vec<u32> = known.map(|it| it.chip.index).collect();
        indexes.sort_unstable();
        indexes
    }

    /// Live allocations among the next `places` from `cursor` on, and where to go on. Together the pages hold every
    /// allocation that lives through all of them, in no order. Ages are those at `now`.
    pub fn allocations(&self, cursor: usize, places: usize, now: Mono) -> (Vec<Allocation>, Option<usize>) {
        let (entries, next) = self.ledger.page(cursor, places);
        (entries.filter_map(|entry| self.describe_entry(entry, now, true)).collect(), next)
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
                entries.take(listed).filter_map(|entry| self.describe_entry(entry, self.now, true)).collect();
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

    /// `full`: with what its chips are called. `None`: it is no allocation of its own.
    pub(crate) fn describe_entry(&self, entry: &Entry, now: Mono, full: bool) -> Option<Allocation> {
        if entry.layout == Layout::Mirror {
            return None;
        }
        let key = self.ledger.pool(entry.pool()).key;
        let process = self.processes.get(&key.process)?;
        let chips = chips_in(&process.allocators, &key.scope);
        let (devices, indexes) =
            if full { self.names_of(chips) } else { (Vec::new(), self.indexes_of(chips)) };
        let known = (key.basis == Basis::Exact).then_some(());
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
            estimated: entry.nature.uncertainty().estimated,
            unplaced: entry.nature.uncertainty().unplaced,
            references: entry.refs,
            age_seconds: (now.since(Mono(entry.born)) / 1_000_000) as f64 / 1000.0,
            kernel: (key.space == Space::Kernel).then_some(entry.nature.class()),
            program: (entry.program != 0).then(|| program_number(entry.program)),
            site: (entry.site != 0).then_some(entry.site),
            site_name: process.names.get(&Name::Site(entry.site)).cloned(),
            program_name: (entry.program != 0)
                .then(|| process.program_name(key.scope, entry.program).cloned())
                .flatten(),
            hidden: false,
            basis: key.basis,
        })
    }

    fn describe_device(&self, id: &ChipId, state: &ChipState, usage: Usage) -> Device {
        let chip = &state.chip;
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
            history: None,
        }
    }

    /// What a chip's sensors said, with its age, or why they say nothing.
    fn sensors_of(&self, state: &ChipState) -> (Option<Sensors>, Option<String>) {
        let reading = &state.sensors;
        let why = reading.why.clone();
        let Some(at) = reading.at else {
            let unknown = if state.chip.remote {
                "remote device: its sensors cannot be read by the host"
            } else if state.chip.capacity.is_some_and(|it| it.origin == CapacityOrigin::Simulated) {
                "simulated"
            } else {
                "the driver does not list this device"
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
            let pool = process.pools.get(&(Scope::Allocator(number), banks.space, Basis::Exact));
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

    /// Totals of a process over all its devices.
    fn summary_of(&self, process: &ProcessState, shares: &[Share], kinds: &[KindView]) -> Summary {
        let mut summary = Summary::default();
        for share in shares {
            let view = &kinds[share.kind];
            for cell in &share.cells {
                summary.add(cell.space, self.used_in(cell, &view.residents), view.kind.chips.len() as u64);
            }
            summary.indexes.extend(&view.indexes);
        }
        let opened = process.opened.iter().filter_map(|id| self.chips.get(id));
        summary.indexes.extend(opened.map(|it| it.chip.index));
        summary.indexes.sort_unstable();
        summary.indexes.dedup();
        summary
    }

    /// What a process holds, chip by chip.
    fn usage_of_process(&self, shares: &[Share], kinds: &[KindView]) -> Vec<ProcessUsage> {
        let mut all = Vec::new();
        for share in shares {
            let view = &kinds[share.kind];
            let usage = self.usage_in(&share.cells, &view.residents);
            all.extend(view.kind.chips.iter().map(|&chip| (chip, self.with_totals(chip, usage.clone()))));
        }
        all.sort_by_key(|(chip, _)| *chip);
        all.into_iter().map(|(chip, usage)| ProcessUsage { device: chip.to_string(), usage }).collect()
    }

    /// `full`: with what it holds by device and by allocator, and its audits.
    fn describe_process(
        &self,
        id: ProcessId,
        process: &ProcessState,
        shares: &[Share],
        kinds: &[KindView],
        full: bool,
    ) -> Process {
        let info = &process.info;
        let basis = process.pools.keys().map(|&(_, _, basis)| basis).min().unwrap_or(process.basis);
        let complete =
            basis == Basis::Exact && process.lost == 0 && process.refused == 0 && process.seen_exactly;
        let tracker = process.tracked.as_ref().map(|it| Tracker {
            writer: it.writer.clone(),
            runtime: it.runtime.clone(),
            hooks: it.hooks,
            missing_hooks: it.missing.clone(),
            cost_seconds: it.cost_ns.map(|ns| (ns / 1000) as f64 / 1e6),
        });
        let audits = process.audits.values().filter(|it| it.theirs.quiet).map(|it| !it.drift.is_zero());
        let tracking = Tracking::of(basis, complete, tracker.as_ref(), audits);
        Process {
            pid: visible(id),
            reported_pid: info.reported_pid,
            start: info.start,
            name: info.name.clone(),
            command: info.command.clone(),
            user: info.user.clone(),
            container: info.container.clone(),
            pod: info.pod.clone(),
            hidden: false,
            open_devices: process.opened.iter().map(ToString::to_string).collect(),
            tracking,
            basis,
            complete,
            sequence: process.sequence,
            tracker,
            summary: self.summary_of(process, shares, kinds),
            usage: if full { self.usage_of_process(shares, kinds) } else { Vec::new() },
            allocators: if full { self.allocators_of(process) } else { Vec::new() },
            audit: if full { audits_of(process) } else { Vec::new() },
            traces: Vec::new(),
            programs: None,
            host: None,
        }
    }
}

/// What findings are sorted by.
fn rank(it: &Finding) -> impl Ord {
    (it.severity, it.kind, it.pid, it.device.as_deref(), it.space, it.text.as_str())
}

/// A chip's usage over time, as far as it is wanted.
fn history(state: &ChipState, detail: &Detail, clock: Clock) -> Option<History> {
    let since = detail.history_since;
    if !detail.history && since.is_none() {
        return None;
    }
    let is_wanted = |at: Timestamp| since.is_none_or(|since| at > since);
    let bytes = |series: &Series<u64>| {
        let samples = series.samples().rev().map(|it| Sample {
            at: clock.wall(it.at),
            min_bytes: it.min,
            mean_bytes: it.mean,
            max_bytes: it.max,
        });
        let mut samples: Vec<Sample> = samples.take_while(|it| is_wanted(it.at)).collect();
        samples.reverse();
        samples
    };
    let readings = |series: &Series<u32>| {
        let value = |parts: u32| f64::from(parts) / SENSOR_PARTS;
        let samples = series.samples().rev().map(|it| SensorSample {
            at: clock.wall(it.at),
            min: value(it.min),
            mean: value(it.mean),
            max: value(it.max),
        });
        let mut samples: Vec<SensorSample> = samples.take_while(|it| is_wanted(it.at)).collect();
        samples.reverse();
        samples
    };
    Some(History {
        dram_total: bytes(&state.dram),
        l1_total: bytes(&state.l1),
        asic_celsius: readings(&state.sensed.asic_celsius),
        power_watts: readings(&state.sensed.power_watts),
        aiclk_mhz: readings(&state.sensed.aiclk_mhz),
    })
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

/// Comparisons with the runtime's own statistics.
fn audits_of(process: &ProcessState) -> Vec<AuditResult> {
    let audits = process.audits.iter().map(|(&(allocator, space), audit)| AuditResult {
        allocator,
        devices: chips_in(&process.allocators, &Scope::Allocator(allocator))
            .iter()
            .map(ToString::to_string)
            .collect(),
        space,
        drift_bytes: audit.drift.allocated,
        free_drift_bytes: audit.drift.free,
        largest_free_drift_bytes: audit.drift.largest_free,
        compared: audit.theirs.quiet,
        allocated_bytes: audit.theirs.allocated_bytes,
        free_bytes: audit.theirs.free_bytes,
        largest_free_bytes_per_bank: audit.theirs.largest_free_bytes_per_bank,
        sequence: audit.theirs.sequence,
    });
    audits.collect()
}
