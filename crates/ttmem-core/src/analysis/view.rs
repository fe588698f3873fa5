//! A snapshot of everything known.

use super::Figures;
use super::blocked::judge_free_space;
use super::findings::{describe_fault, finding};
use super::plan::{ChipGroup, ProcessShare};
use super::program_usage::Resident;
use super::usage::{GroupUsage, with_totals};
use crate::detail::Detail;
use crate::history::{SENSOR_PARTS, Series};
use crate::input::{Allocator, Tracked};
use crate::machine::{CapacityOrigin, Firmware, Sensors};
use crate::snapshot::{
    AllocatorSpace, AllocatorUsage, AuditResult, CoreRoom, Device, Finding, FindingKind, Health, History,
    Mark, Peak, Process, ProcessUsage, SCHEMA, Sample, SensorSample, Severity, Snapshot, Summary, Tracker,
    Tracking, Usage,
};
use crate::state::{ChipState, ProcessState, State, chips_in, visible};
use crate::words::{Basis, ChipId, Mono, ProcessId, Scope, Space};
use jiff::{SignedDuration, Timestamp, TimestampRound, Unit};
use std::sync::Arc;

/// Sensors are read every second; a reading older than this is stale.
const STALE_MS: u64 = 15_000;

/// The most addresses of largest free blocks: where all holes have one size, there may be one per buffer.
const MAX_LARGEST_FREE: usize = 256;

/// What all chips of a group have in common.
struct GroupView<'a> {
    number: usize,
    group: &'a ChipGroup,
    indexes: Vec<u32>,
    usage: Arc<GroupUsage>,
    residents: Arc<[Resident]>,
    tightest: Option<CoreRoom>,
}

impl Figures<'_> {
    pub(super) fn snapshot(&mut self, at: Timestamp, detail: &Detail) -> Snapshot {
        let (state, viewer) = (self.state, self.viewer);
        let at = at.round(TimestampRound::new().smallest(Unit::Millisecond)).unwrap_or(at);
        let clock = Clock { at, now: state.now };
        let plan = self.plan();
        let mut groups: Vec<GroupView> = Vec::with_capacity(plan.groups.len());
        for (number, group) in plan.groups.iter().enumerate() {
            groups.push(self.view_of(number, group));
        }
        let mut processes = Vec::new();
        for (&id, process) in state.processes.iter().filter(|(_, process)| process.is_shown()) {
            let full =
                !detail.brief || detail.pid.is_some_and(|pid| self.shown_pid(id, &process.info) == Some(pid));
            let row = Process {
                traces: self.traces_of(id, process, clock),
                last_mark: process.last_mark.map(|mark| Mark {
                    name: process.sites.name(mark.name).cloned(),
                    number: mark.number,
                    at: clock.wall(mark.at),
                    compared: process.growth.marks(),
                }),
                programs: detail.programs.then(|| self.programs_of(id, process, clock, full)),
                ..self.describe_process(id, process, plan.shares_of(id), &groups, full)
            };
            processes.push(self.viewer.show(process.info.uid, row));
        }
        let mut findings = Vec::new();
        let mut devices: Vec<Device> = Vec::with_capacity(state.chips.len());
        for (&id, chip) in &state.chips {
            let view = plan.group_of(id).map(|number| &groups[number]);
            let mut usage = view.map(|it| it.usage.on(state, id)).unwrap_or_default();
            let peaks = self.peaks_of(id, chip, view, clock);
            // A chip's peak can be higher than that of any one pool.
            for peak in peaks.iter().filter(|peak| !peak.space.is_program()) {
                if let Some(usage) = usage.buffers_mut(peak.space) {
                    usage.peak_bytes = usage.peak_bytes.max(peak.bytes);
                }
            }
            let spaces = view.map(|it| &it.usage.spaces[..]).unwrap_or_default();
            self.judge_device(&id, chip, &usage, spaces, &mut findings);
            judge_free_space(&id, chip, &usage, &mut findings);
            let with_cores = detail.cores || detail.cores_of == Some(chip.chip.index);
            let cores = view.filter(|_| with_cores);
            devices.push(Device {
                peaks,
                tightest_core: view.and_then(|it| it.tightest),
                cores: cores.and_then(|it| self.cores_of(id, it.number, it.group, clock)),
                history: history(chip, detail, clock),
                ..describe_device(state, &id, chip, usage)
            });
        }
        devices.sort_by(|a, b| (a.index, &a.id).cmp(&(b.index, &b.id)));
        self.judge_processes(&mut findings, clock);
        self.judge_counters(&mut findings);
        findings.extend(state.faults.iter().map(|(subject, tally)| {
            let label = subject.process.map(|id| state.label_of(id));
            let device = subject.chip.and_then(|id| state.chips.get(&id)).map(|it| it.chip.index);
            let owner = label.as_ref().and_then(|it| it.owner);
            viewer.show(owner, describe_fault(subject, tally, label.as_ref(), device, clock))
        }));
        if state.faults.dropped > 0 {
            let text = format!("{} older findings dropped: too many at once", state.faults.dropped);
            findings.push(finding(FindingKind::Truncated, Severity::Info, text, state.faults.dropped));
        }
        findings.sort_by(|a, b| rank(a).cmp(&rank(b)));
        Snapshot {
            schema: SCHEMA,
            at,
            simulated: self.state.is_simulated(),
            host: self.state.host.clone(),
            devices,
            processes,
            findings,
            events: detail.events.then(|| state.event_log.list(clock, viewer)),
            buffers: detail.buffers.as_ref().map(|query| self.buffers(query, !detail.brief)),
            programs: detail.program_list.as_ref().map(|query| self.program_list(query, clock)),
            core_allocations: detail.core.as_ref().and_then(|query| self.core_allocations(query)),
            block_maps: detail.blocks.as_ref().map(|query| self.block_maps(query)),
            sites: detail.sites.then(|| self.site_usages()),
            leaks: detail.leaks.then(|| self.leaks(clock)),
            flame: detail.flame.map(|moment| self.flame(moment, clock)),
            health: Health {
                source: "local".into(),
                live_records: self.state.ledger.live() as u64,
                lost_records: self.state.lost,
                ..Health::default()
            },
        }
    }

    fn view_of<'g>(&mut self, number: usize, group: &'g ChipGroup) -> GroupView<'g> {
        GroupView {
            number,
            group,
            indexes: self.state.indexes_of(&group.chips),
            usage: self.usage_of_group(number, group),
            residents: self.residents_of(number, group),
            tightest: self.tightest_core(number, group),
        }
    }

    /// The peak of each space of a chip, as of now.
    fn peaks_of(
        &mut self,
        id: ChipId,
        chip: &ChipState,
        view: Option<&GroupView>,
        clock: Clock,
    ) -> Vec<Peak> {
        let mut peaks = Vec::new();
        for space in Space::BUFFERS.into_iter().chain(Space::PROGRAM) {
            let new = view.and_then(|view| {
                let spaces = &view.usage.spaces;
                let at = spaces.iter().position(|it| it.space == space)?;
                self.new_peak(id, view.number, view.group, at, &spaces[at])
            });
            let peak = new.as_ref().or_else(|| chip.peaks.get(&space));
            let peak = peak.filter(|peak| peak.bytes > 0).map(|peak| peak.describe(space, clock));
            peaks.extend(peak.map(|mut peak| {
                // The owners of holders that exited are not known any more.
                peak.holders = peak.holders.into_iter().map(|it| self.viewer.show(None, it)).collect();
                peak
            }));
        }
        peaks
    }

    /// What each allocator of a process holds, by itself.
    fn allocators_of(&mut self, process: &ProcessState) -> Vec<AllocatorUsage> {
        // An allocator without banks is only the set of chips of a program, unless its banks are unknown.
        let has_buffers = |number: u32| {
            let mut pools = process.pools.keys().filter(|(_, space, _)| !space.is_program());
            pools.any(|(scope, ..)| *scope == Scope::Allocator(number))
        };
        let all = process.allocators.iter();
        all.filter(|(number, it)| !it.spaces.is_empty() || has_buffers(**number))
            .map(|(&number, it)| self.describe_allocator(process, number, it))
            .collect()
    }

    fn describe_allocator(
        &mut self,
        process: &ProcessState,
        number: u32,
        allocator: &Allocator,
    ) -> AllocatorUsage {
        let spaces = allocator.spaces.iter().map(|banks| {
            let pool = process.pools.get(&(Scope::Allocator(number), banks.space, Basis::Exact)).copied();
            let mut usage = self.buffer_usage(banks.space, pool.as_slice());
            if pool.is_none() {
                // Nothing was allocated yet: the whole bank is free.
                let total = banks.bytes_per_bank.saturating_mul(u64::from(banks.banks));
                (usage.allocatable_bytes, usage.free_bytes) = (Some(total), Some(total));
                usage.largest_free_bytes_per_bank = Some(banks.bytes_per_bank);
            }
            AllocatorSpace {
                space: banks.space,
                banks: banks.banks,
                base: banks.base,
                bytes_per_bank: banks.bytes_per_bank,
                largest_free_block_addrs: match usage.free_bytes {
                    Some(_) => self.largest_free_addrs(*banks, pool, MAX_LARGEST_FREE),
                    None => Vec::new(),
                },
                usage,
            }
        });
        AllocatorUsage {
            id: number,
            spaces: spaces.collect(),
            devices: allocator.chips.iter().map(ToString::to_string).collect(),
        }
    }

    /// Totals of a process over all its devices.
    fn summary_of(
        &mut self,
        process: &ProcessState,
        shares: &[ProcessShare],
        groups: &[GroupView],
    ) -> Summary {
        let mut summary = Summary::default();
        for share in shares {
            let view = &groups[share.group];
            for space in &share.spaces {
                let used = self.used_in(space, &view.residents);
                summary.add(space.space, used, view.group.chips.len() as u64);
            }
            summary.indexes.extend(&view.indexes);
        }
        let opened = process.opened.iter().filter_map(|id| self.state.chips.get(id));
        summary.indexes.extend(opened.map(|it| it.chip.index));
        summary.indexes.sort_unstable();
        summary.indexes.dedup();
        summary
    }

    /// What a process holds, chip by chip.
    fn usage_of_process(&mut self, shares: &[ProcessShare], groups: &[GroupView]) -> Vec<ProcessUsage> {
        let state = self.state;
        let mut all = Vec::new();
        for share in shares {
            let view = &groups[share.group];
            let usage = self.usage_in(&share.spaces, &view.residents);
            let chips = view.group.chips.iter();
            all.extend(chips.map(|&chip| (chip, with_totals(state, chip, usage.clone()))));
        }
        all.sort_by_key(|(chip, _)| *chip);
        all.into_iter().map(|(chip, usage)| ProcessUsage { device: chip.to_string(), usage }).collect()
    }

    /// A process. `full`: with its usage by device and by allocator, and its audits.
    fn describe_process(
        &mut self,
        id: ProcessId,
        process: &ProcessState,
        shares: &[ProcessShare],
        groups: &[GroupView],
        full: bool,
    ) -> Process {
        let info = &process.info;
        let basis = process.pools.keys().map(|&(_, _, basis)| basis).min().unwrap_or(process.basis);
        let complete =
            basis == Basis::Exact && process.lost == 0 && process.refused == 0 && process.is_complete;
        let tracker = process.tracked.as_ref().map(Tracker::from);
        let audits = process.audits.values().filter(|it| it.theirs.quiet).map(|it| !it.drift.is_zero());
        let tracking = Tracking::of(basis, complete, tracker.as_ref(), audits);
        Process {
            pid: visible(id),
            reported_pid: info.reported_pid,
            start: info.start,
            name: info.name.clone(),
            command: info.command.clone(),
            user: info.user.clone(),
            uid: info.uid,
            container: info.container.clone(),
            pod: info.pod.clone(),
            hidden: false,
            open_devices: process.opened.iter().map(ToString::to_string).collect(),
            tracking,
            basis,
            complete,
            sequence: process.sequence,
            tracker,
            summary: self.summary_of(process, shares, groups),
            usage: if full { self.usage_of_process(shares, groups) } else { Vec::new() },
            allocators: if full { self.allocators_of(process) } else { Vec::new() },
            audit: if full { audits_of(process) } else { Vec::new() },
            traces: Vec::new(),
            last_mark: None,
            programs: None,
            host: None,
        }
    }
}

fn describe_device(state: &State, id: &ChipId, of: &ChipState, usage: Usage) -> Device {
    let chip = &of.chip;
    let (sensors, sensors_absent) = sensors_of(state, of);
    Device {
        id: id.to_string(),
        index: chip.index,
        arch: chip.arch,
        board: chip.board.clone(),
        remote: chip.remote,
        inferred: chip.inferred,
        pci: chip.pci.map(|it| it.to_string()),
        node: chip.node,
        serial: chip.serial.map(|it| format!("{it:016x}")),
        names: of.names(*id).iter().map(ToString::to_string).collect(),
        firmware: Firmware::clone(&chip.firmware),
        capacity: chip.capacity,
        usage,
        sensors,
        sensors_absent,
        peaks: Vec::new(),
        tightest_core: None,
        core_layout: chip.core_layout,
        other_cores: chip.other_cores(),
        cores: None,
        history: None,
    }
}

/// The readings of a chip's sensors with their age, or why there are none.
fn sensors_of(state: &State, of: &ChipState) -> (Option<Sensors>, Option<String>) {
    let reading = &of.sensors;
    let why = reading.why.clone();
    let Some(at) = reading.at else {
        let unknown = if of.chip.remote {
            "remote device: its sensors cannot be read by the host"
        } else if of.chip.capacity.is_some_and(|it| it.origin == CapacityOrigin::Simulated) {
            "simulated"
        } else {
            "the driver does not list this device"
        };
        return (None, why.or_else(|| Some(unknown.to_owned())));
    };
    let age_ms = state.now.since(at) / 1_000_000;
    let stale = why.is_some() || age_ms > STALE_MS;
    (Some(Sensors { age_ms, stale, ..reading.sensors.clone() }), why)
}

impl Snapshot {
    /// Adds a problem of the reader itself, in the order of the others.
    pub fn add_finding(&mut self, kind: FindingKind, severity: Severity, text: String) {
        let new = finding(kind, severity, text, 1);
        let at = self.findings.partition_point(|it| rank(it) < rank(&new));
        self.findings.insert(at, new);
    }
}

/// The sort key of a finding.
fn rank(finding: &Finding) -> impl Ord {
    let Finding { severity, kind, pid, space, .. } = *finding;
    (severity, kind, pid, finding.device.as_deref(), space, finding.text.as_str())
}

/// A chip's usage and sensors over time, if they are wanted.
fn history(state: &ChipState, detail: &Detail, clock: Clock) -> Option<History> {
    let since = detail.history_since;
    if !detail.history && since.is_none() {
        return None;
    }
    let is_wanted = |at: Timestamp| since.is_none_or(|since| at > since);
    let bytes = |series: &Series<u64>| {
        let samples = series.samples().rev().map(|sample| Sample {
            at: clock.wall(sample.at),
            min_bytes: sample.min,
            mean_bytes: sample.mean,
            max_bytes: sample.max,
        });
        let mut samples: Vec<Sample> = samples.take_while(|it| is_wanted(it.at)).collect();
        samples.reverse();
        samples
    };
    let readings = |series: &Series<u32>| {
        let value = |parts: u32| f64::from(parts) / SENSOR_PARTS;
        let samples = series.samples().rev().map(|sample| SensorSample {
            at: clock.wall(sample.at),
            min: value(sample.min),
            mean: value(sample.mean),
            max: value(sample.max),
        });
        let mut samples: Vec<SensorSample> = samples.take_while(|it| is_wanted(it.at)).collect();
        samples.reverse();
        samples
    };
    Some(History {
        dram_total: bytes(&state.dram),
        l1_total: bytes(&state.l1),
        asic_celsius: readings(&state.sensor_history.asic_celsius),
        power_watts: readings(&state.sensor_history.power_watts),
        aiclk_mhz: readings(&state.sensor_history.aiclk_mhz),
    })
}

/// Converts monotonic time to wall-clock time.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    pub(super) at: Timestamp,
    pub(super) now: Mono,
}

impl Clock {
    pub(crate) fn wall(self, then: Mono) -> Timestamp {
        let ago = SignedDuration::from_nanos(i64::try_from(self.now.since(then)).unwrap_or(i64::MAX));
        self.at.checked_sub(ago).unwrap_or(self.at)
    }
}

impl From<&Tracked> for Tracker {
    fn from(tracked: &Tracked) -> Self {
        Self {
            writer: tracked.writer.clone(),
            runtime: tracked.runtime.clone(),
            hooks: tracked.hooks,
            missing_hooks: tracked.missing.clone(),
            cost_seconds: tracked.cost_ns.map(|ns| (ns / 1000) as f64 / 1e6),
            left_out: tracked.left_out,
        }
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
