//! All sources of a machine, read in order: first the chips, then the processes that use them.

use crate::board;
use crate::bus::Bus;
use crate::counters::{self, CounterFile, CounterFiles};
use crate::device_users::{DeviceUsers, OpenNodes};
use crate::event_sink::{EventSink, SegmentEvent};
use crate::failures::{FailureFile, WhichFailure};
use crate::files::SkipReason;
use crate::listing::Listings;
use crate::monotonic;
use crate::process::{ProcessIdentity, Processes};
use crate::root::Root;
use crate::segment::SegmentFile;
use crate::segments::{self, RecentRecords, Retention, Segments};
use crate::sensors::Sensors;
use crate::shm::{ShmFolder, open_container_folders};
use crate::topology::{Topology, TopologyChip};
use crate::worker_pool::PoolGuard;
use crate::writer::PidIndex;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind::NotFound;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ttmem_core::input::Input;
use ttmem_core::machine::{CapacityOrigin, Chip, Host};
use ttmem_core::snapshot::{Health, Skipped};
use ttmem_core::words::{Basis, ChipId, Mono, PciAddress, ProcessId};

/// How long [`Sources::wait_for_sensors`] waits for sensors that do not answer.
const SENSOR_TIMEOUT: Duration = Duration::from_secs(1);

/// What is read, and where.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// Where the machine's files are.
    pub root: Root,
    /// The folder for shared memory.
    pub folder: PathBuf,
    /// Whether the machine itself is read: its chips, the processes that have them open, and tt-metal's counters. Not if
    /// its chips are simulated.
    pub machine: bool,
    /// The cluster descriptor, if there is one.
    pub topology: Option<Topology>,
    /// Whether there will be more than one poll.
    pub repeated: bool,
    /// Whether all sensors and versions are read, or only those that a table shows: on a large machine that is a third of
    /// the work.
    pub thorough: bool,
    /// The machine's name and software versions.
    pub host: Host,
    /// The only run whose segments are read; `None`: all are.
    pub run: Option<u64>,
}

impl SourceConfig {
    /// Only the segments in a folder.
    pub fn segments(folder: &Path) -> Self {
        Self {
            root: Root::default(),
            folder: folder.to_owned(),
            machine: false,
            topology: None,
            repeated: true,
            thorough: true,
            host: Host::default(),
            run: None,
        }
    }
}

/// All sources of a machine.
pub struct Sources {
    config: SourceConfig,
    processes: Processes,
    folders: Vec<ShmFolder>,
    listings: Listings,
    /// Why the machine's folder for shared memory cannot be read.
    skipped_folder: Option<Skipped>,
    bus: Bus,
    sensors: Sensors,
    /// Ends the threads that read bus and sensors.
    _pool: PoolGuard,
    device_users: DeviceUsers,
    counters: CounterFiles,
    segments: Segments,
    rescans: u64,
    /// Whether there was a rescan since the last poll.
    rescanned: bool,
    /// Device nodes that processes have open, by pid.
    open_nodes: OpenNodes,
    /// Processes that the last rescan identified, by pid.
    identities: BTreeMap<u32, ProcessIdentity>,
    /// Device nodes that processes have open, as emitted.
    emitted_users: BTreeMap<ProcessId, BTreeSet<u32>>,
    /// Open descriptors of processes that are not visible, as emitted.
    emitted_hidden: BTreeMap<ChipId, usize>,
    /// Whether the next rescan emits all users again, since chips have changed.
    must_emit_users: bool,
    /// Chips that were inferred, as emitted.
    inferred: BTreeSet<ChipId>,
}

impl Sources {
    /// Sources of which nothing is read yet.
    pub fn new(config: SourceConfig) -> Self {
        let root = &config.root;
        let pool = PoolGuard::default();
        Self {
            processes: Processes::new(root),
            bus: Bus::new(root, &pool.0, config.thorough),
            device_users: DeviceUsers::new(root),
            sensors: Sensors::new(&pool.0, config.repeated, config.thorough),
            _pool: pool,
            segments: Segments::new(&config.folder, config.run),
            folders: Vec::new(),
            listings: Listings::default(),
            skipped_folder: None,
            counters: CounterFiles::default(),
            rescans: 0,
            rescanned: false,
            open_nodes: OpenNodes::new(),
            identities: BTreeMap::new(),
            emitted_users: BTreeMap::new(),
            emitted_hidden: BTreeMap::new(),
            must_emit_users: false,
            inferred: BTreeSet::new(),
            config,
        }
    }

    /// The failed allocations of all segments, of each the wanted one. There must have been a rescan.
    pub fn failures(&self, which: WhichFailure) -> Vec<FailureFile> {
        let listed = self.listings.of(&self.folders);
        let segments =
            listed.flat_map(|(folder, files)| files.segments.iter().map(move |file| (folder, file)));
        let found = segments.filter_map(|(folder, file)| FailureFile::find(folder, &file.name, which));
        let run = self.config.run;
        found.filter(|it| run.is_none_or(|run| it.file.header().run.get() == run)).collect()
    }

    /// Finds new sources: chips, the processes that have them open, folders of containers. It reads `/proc` of every process,
    /// and must come before the first poll.
    pub fn rescan(&mut self, sink: &mut impl EventSink) {
        let SourceConfig { root, folder, machine, .. } = &self.config;
        let inner_path = root.path_on_machine(folder);
        let of_machine = ShmFolder::open_of_machine(root, folder, &inner_path);
        // A copy of another machine's files may lack this folder.
        let is_reported = |why: &&SkipReason| {
            root.is_this_machine() || !matches!(why, SkipReason::Io(e) if e.kind() == NotFound)
        };
        let reason = of_machine.as_ref().err().filter(is_reported).map(ToString::to_string);
        self.skipped_folder = reason.map(|reason| Skipped { path: folder.display().to_string(), reason });
        let of_machine = of_machine.ok();
        let of_containers = open_container_folders(root, &self.processes, &inner_path, of_machine.as_ref());
        self.folders = of_machine.into_iter().chain(of_containers).collect();
        self.listings.refresh(&self.folders, monotonic());
        if *machine {
            self.rescan_bus(sink);
            self.rescan_device_users(sink);
        } else if self.rescans == 0 {
            sink.emit_machine(Input::Host(self.config.host.clone()));
        }
        self.rescans += 1;
        self.rescanned = true;
    }

    /// Emits what changed since the last poll. Returns when the ring of a segment must be read again, so that it is never more
    /// than half full; `None`: all writers are idle.
    pub fn poll(&mut self, now: Mono, sink: &mut impl EventSink) -> Option<Mono> {
        self.listings.refresh(&self.folders, now);
        let pid_index = PidIndex::default();
        let (folders, listings, processes) = (&self.folders, &self.listings, &self.processes);
        let context = segments::Context { now, folders, listings, processes, pid_index: &pid_index };
        self.segments.poll(&context, sink);
        if self.config.machine {
            // Used once: later, another process may have one of these pids.
            let identities = std::mem::take(&mut self.identities);
            let mut context = counters::Context {
                folders: &self.folders,
                listings: &self.listings,
                processes: &mut self.processes,
                bus: &self.bus,
                open_nodes: &self.open_nodes,
                identities: &identities,
                rescanned: std::mem::take(&mut self.rescanned),
                pid_index: &pid_index,
            };
            self.counters.poll(&mut context, sink);
            self.emit_sensors(now, sink);
        }
        self.segments.next_due()
    }

    /// Emits what changed since the last poll in segments whose writers are busy. Returns when a ring must be read again.
    pub fn poll_busy(&mut self, now: Mono, sink: &mut impl EventSink) -> Option<Mono> {
        let pid_index = PidIndex::default();
        let (folders, listings, processes) = (&self.folders, &self.listings, &self.processes);
        let context = segments::Context { now, folders, listings, processes, pid_index: &pid_index };
        self.segments.poll_busy(&context, sink);
        self.segments.next_due()
    }

    /// Starts a listing of the records that the rings of segments still hold.
    pub fn recent_records(&self) -> RecentRecords {
        self.segments.recent_records()
    }

    /// Continues a listing with at most `most` records. Returns whether these were the last.
    pub fn list_recent(
        &self,
        listing: &mut RecentRecords,
        most: usize,
        emit: &mut dyn FnMut(ProcessId, &SegmentEvent<'_>),
    ) -> bool {
        self.segments.list_recent(listing, most, emit)
    }

    /// Waits after the first poll until sensors were read once, or one second for those that hang.
    pub fn wait_for_sensors(&mut self, now: impl Fn() -> Mono, sink: &mut impl EventSink) {
        self.sensors.wait(SENSOR_TIMEOUT);
        self.emit_sensors(now(), sink);
    }

    fn emit_sensors(&mut self, now: Mono, sink: &mut impl EventSink) {
        for (chip, reading) in self.sensors.take_readings(now) {
            sink.emit_machine(Input::Sensors(chip, Box::new(reading)));
        }
    }

    /// Reads the segments of a process that has exited to their end.
    pub fn finish_process(&mut self, process: ProcessId, sink: &mut impl EventSink) {
        self.segments.finish_process(process, sink);
        self.counters.forget_process(process);
        self.emitted_users.remove(&process);
    }

    /// Notes that a snapshot was requested: sensors are read more often for a while.
    pub fn note_request(&mut self) {
        self.sensors.note_request();
    }

    fn rescan_bus(&mut self, sink: &mut impl EventSink) {
        let driver = self.bus.driver.clone();
        let change = self.bus.rescan();
        if self.rescans == 0 || self.bus.driver != driver {
            let driver = self.bus.driver.clone();
            sink.emit_machine(Input::Host(Host { driver, ..self.config.host.clone() }));
        }
        for removed in change.removed {
            sink.emit_machine(Input::ChipRemoved(removed));
        }
        if change.any || self.rescans == 0 {
            let chips = self.chips();
            let inferred = chips.iter().filter(|chip| chip.inferred).map(|chip| chip.id).collect();
            let before = std::mem::replace(&mut self.inferred, inferred);
            for removed in before.difference(&self.inferred) {
                sink.emit_machine(Input::ChipRemoved(*removed));
            }
            for chip in chips {
                sink.emit_machine(Input::Chip(Box::new(chip)));
            }
        }
        if change.any {
            // Everything that names a chip by its old id is emitted again.
            self.must_emit_users = true;
            self.counters.forget_chips();
            self.sensors.set_chips(self.bus.chips.values());
            self.device_users.retain(&self.bus.chips.keys().copied().collect());
        }
    }

    /// All chips: those of the descriptor, merged with those on the bus, and the others on the bus.
    fn chips(&self) -> Vec<Chip> {
        let mut on_bus: BTreeMap<u32, Chip> =
            self.bus.chips.iter().map(|(&node, it)| (node, it.chip.clone())).collect();
        let described = self.config.topology.iter().flat_map(|topology| topology.chips.iter());
        let mut chips: Vec<Chip> = described
            .map(|described| {
                let id = described.unique_id.map_or(ChipId::Ordinal(described.logical), ChipId::Unique);
                let pci: Option<PciAddress> = described.pci.as_ref().and_then(|text| text.parse().ok());
                let is_same = |chip: &&Chip| {
                    let is_guess = described.unique_id.is_some_and(|id| chip.guesses.contains(&id));
                    chip.id == id || is_guess || (pci.is_some() && pci == chip.pci)
                };
                let node = on_bus.values().find(is_same).and_then(|chip| chip.node);
                // Node numbers change, so they count only where the descriptor has no PCI address.
                let by_node = described.node.filter(|_| pci.is_none());
                let found = node.or(by_node).and_then(|node| on_bus.remove(&node));
                let chip = found.unwrap_or_else(|| Chip { pci, ..Chip::new(id, described.logical) });
                merge(described, chip)
            })
            .collect();
        // Chips that the descriptor lacks get numbers that it does not use.
        let mut taken: BTreeSet<u32> = chips.iter().map(|chip| chip.index).collect();
        for mut chip in on_bus.into_values() {
            if !taken.insert(chip.index) {
                chip.index =
                    (0..=taken.len() as u32).find(|index| taken.insert(*index)).unwrap_or(chip.index);
            }
            chips.push(chip);
        }
        // A descriptor has all remote chips.
        if self.config.topology.is_none() {
            chips.extend(self.bus.remote_chips());
        }
        chips.sort_by_key(|chip| chip.index);
        chips
    }

    fn rescan_device_users(&mut self, sink: &mut impl EventSink) {
        let found = self.device_users.find(self.bus.chips.keys().copied(), &self.processes);
        let chip = |node: &u32| self.bus.chips.get(node).map(|it| it.chip.id);
        let mut users = BTreeMap::new();
        for (&pid, nodes) in &found.open_nodes {
            let Some(identity) = found.identities.get(&pid) else { continue };
            let process = sink.register(identity, Basis::Unknown);
            if self.must_emit_users || self.emitted_users.get(&process) != Some(nodes) {
                let chips = nodes.iter().filter_map(chip).collect();
                sink.emit(process, Basis::Unknown, Input::Opened(chips));
            }
            users.insert(process, nodes.clone());
        }
        for &process in self.emitted_users.keys().filter(|process| !users.contains_key(process)) {
            sink.emit(process, Basis::Unknown, Input::Opened(Vec::new()));
        }
        (self.emitted_users, self.must_emit_users) = (users, false);
        let hidden: BTreeMap<ChipId, usize> =
            found.hidden.iter().filter_map(|(node, &count)| Some((chip(node)?, count))).collect();
        for (&chip, &count) in
            hidden.iter().filter(|(chip, count)| self.emitted_hidden.get(chip) != Some(count))
        {
            sink.emit_machine(Input::OpenedByHidden(chip, count as u32));
        }
        for &chip in self.emitted_hidden.keys().filter(|chip| !hidden.contains_key(chip)) {
            sink.emit_machine(Input::OpenedByHidden(chip, 0));
        }
        self.emitted_hidden = hidden;
        (self.open_nodes, self.identities) = (found.open_nodes, found.identities);
    }

    /// Requests an audit of its allocators from every process that writes a segment.
    pub fn request_audits(&self) {
        self.segments.request_audits();
    }

    /// Removes the segments whose writers have finished, and left them to be removed by the reader of their run.
    pub fn remove_done_segments(&self) {
        self.segments.remove_done();
    }

    /// Removes crash segments that are too many, too old, or take too much of the filesystem.
    pub fn expire_crash_segments(&mut self, now: Mono, retention: Retention) {
        self.segments.expire_crash_segments(&self.folders, now, retention);
    }

    /// The number of descriptors that are open for the files of processes.
    pub fn descriptors(&self) -> usize {
        self.folders.len() + self.segments.descriptors() + self.counters.len()
    }

    /// Segments whose process has exited.
    pub fn crash_segments(&self) -> impl Iterator<Item = (&Path, &SegmentFile)> {
        self.segments.crash_segments()
    }

    /// The files of tt-metal's counters.
    pub fn counter_files(&self) -> impl Iterator<Item = CounterFile> {
        self.counters.iter()
    }

    /// Why chips cannot be listed; `None` if they can, or if there is no driver.
    pub fn bus_failure(&self) -> Option<&Skipped> {
        self.bus.failure.as_ref()
    }

    /// Whether every process of the machine is visible.
    pub fn are_all_processes_visible(&self) -> bool {
        self.processes.are_all_visible()
    }

    /// Fills in how many files are read, and which are skipped.
    pub fn fill_health(&self, health: &mut Health) {
        health.segments = self.segments.live_count() as u64;
        health.crash_segments = self.segments.crash_segments().count() as u64;
        health.counter_files = self.counters.len() as u64;
        health.skipped = self.segments.skipped();
        health.skipped.extend(self.counters.skipped().cloned());
        health.skipped.extend(self.listings.skipped(&self.folders));
        health.skipped.extend(self.bus.failure.clone());
        health.skipped.extend(self.skipped_folder.clone());
        health.skipped.extend(out_of_descriptors());
    }
}

/// Adds what a descriptor has of a chip.
fn merge(described: &TopologyChip, mut chip: Chip) -> Chip {
    chip.index = described.logical;
    chip.arch = Some(described.arch);
    chip.remote = described.remote;
    // The driver's name of the board has its variant; the descriptor's does not.
    chip.board = chip.board.or_else(|| described.board.clone());
    chip.serial = chip.serial.or(described.board_id);
    let (cores, channels) = (described.cores, described.dram_channels);
    chip.capacity = Some(board::capacity(described.arch, cores, channels, CapacityOrigin::Descriptor));
    chip.ethernet_cores = described.ethernet_cores;
    chip.names.extend(described.unique_id.filter(|&id| chip.id != ChipId::Unique(id)));
    chip
}

/// Reports that this process cannot open more files, in which case anything may be missing.
fn out_of_descriptors() -> Option<Skipped> {
    let one_more = std::fs::File::open("/");
    let full =
        one_more.err().and_then(|e| rustix::io::Errno::from_io_error(&e)) == Some(rustix::io::Errno::MFILE);
    full.then(|| Skipped {
        path: "ttmem itself".to_owned(),
        reason: "has as many files open as it may (`ulimit -n`): not everything could be read".to_owned(),
    })
}
