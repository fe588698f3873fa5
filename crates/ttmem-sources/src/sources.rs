//! Everything that is read, in the order in which it makes sense: first the chips, then who says what of them.

use crate::board;
use crate::bus::Bus;
use crate::crew::Captain;
use crate::inventory::RegionFile;
use crate::openers::{Opened, Openers};
use crate::owner::Census;
use crate::place::{Place, containers};
use crate::process::{Owner, Processes};
use crate::regions::{self, Regions};
use crate::root::Root;
use crate::segment::{SegmentFile, Skip};
use crate::segments::{self, EventSink, Keep, Segments};
use crate::sensors::Sensors;
use crate::topology::{Topology, TopologyChip};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind::NotFound;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ttmem_core::event::Event;
use ttmem_core::machine::{CapacityOrigin, Chip, Host};
use ttmem_core::snapshot::{Health, Skipped};
use ttmem_core::words::{Basis, ChipId, Mono, PciAddress, ProcessId};

/// How long [`Sources::settle`] waits for sensors that do not answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is read, and where.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Where the machine's files are.
    pub root: Root,
    /// The folder for shared memory.
    pub folder: PathBuf,
    /// Whether the machine itself is read: its chips, who has them open, and tt-metal's own counters. Not if its chips
    /// are simulated.
    pub machine: bool,
    /// How the chips are connected, and what is harvested of them, if somebody said so.
    pub topology: Option<Topology>,
    /// Whether there will be more than one look.
    pub again: bool,
    /// Whether all sensors and versions are wanted, or only what fits into a table: on a large machine that is a third
    /// of the work.
    pub thorough: bool,
    /// What is known of the machine beforehand.
    pub host: Host,
}

impl Reading {
    /// The segments in a folder, and nothing else.
    pub fn segments(folder: &Path) -> Self {
        Self {
            root: Root::default(),
            folder: folder.to_owned(),
            machine: false,
            topology: None,
            again: true,
            thorough: true,
            host: Host::default(),
        }
    }
}

/// All sources of a machine.
pub struct Sources {
    reading: Reading,
    processes: Processes,
    places: Vec<Place>,
    /// Why the machine's own folder for shared memory is not among them.
    unread: Option<Skipped>,
    bus: Bus,
    sensors: Sensors,
    /// Ends those who read for the two above.
    _captain: Captain,
    openers: Openers,
    regions: Regions,
    segments: Segments,
    surveys: u64,
    /// Since the last look.
    surveyed: bool,
    /// Nodes that processes have open.
    nodes: Opened,
    /// Who they are.
    who: BTreeMap<u32, Owner>,
    /// What was told of who has which chips open.
    opened: BTreeMap<ProcessId, BTreeSet<u32>>,
    unseen: BTreeMap<ChipId, usize>,
    /// Chips changed, and who has which open must be told whatever was told before.
    retell: bool,
}

impl Sources {
    /// Nothing is read yet.
    pub fn new(reading: Reading) -> Self {
        let root = &reading.root;
        let captain = Captain::default();
        Self {
            processes: Processes::new(root),
            bus: Bus::new(root, &captain.0, reading.thorough),
            openers: Openers::new(root),
            sensors: Sensors::new(&captain.0, reading.again, reading.thorough),
            _captain: captain,
            segments: Segments::new(&reading.folder),
            places: Vec::new(),
            unread: None,
            regions: Regions::default(),
            surveys: 0,
            surveyed: false,
            nodes: Opened::new(),
            who: BTreeMap::new(),
            opened: BTreeMap::new(),
            unseen: BTreeMap::new(),
            retell: false,
            reading,
        }
    }

    /// Looks for what seldom changes: chips, who has them open, and the folders of containers. It means looking at every
    /// process, and comes before the first look.
    pub fn survey(&mut self, sink: &mut impl EventSink) {
        let Reading { root, folder, machine, .. } = &self.reading;
        let name = root.name_of(folder);
        let own = Place::own(root, folder, &name);
        // Whoever showed us another machine need not have shown us this of it.
        let shown = |why: &&Skip| root.is_own() || !matches!(why, Skip::Io(e) if e.kind() == NotFound);
        let reason = own.as_ref().err().filter(shown).map(ToString::to_string);
        self.unread = reason.map(|reason| Skipped { path: folder.display().to_string(), reason });
        let own = own.ok();
        let others = containers(root, &self.processes, &name, own.as_ref());
        self.places = own.into_iter().chain(others).collect();
        if *machine {
            self.look_at_bus(sink);
            self.look_at_openers(sink);
        } else if self.surveys == 0 {
            sink.emit_machine(Event::Host(self.reading.host.clone()));
        }
        self.surveys += 1;
        self.surveyed = true;
    }

    /// Takes in everything that happened since the last look. Returns whether any writer of a segment is so busy that
    /// the next look should come soon.
    pub fn look(&mut self, now: Mono, sink: &mut impl EventSink) -> bool {
        let census = Census::default();
        let around = segments::Around { places: &self.places, processes: &self.processes, census: &census };
        let busy = self.segments.look(&around, sink);
        if self.reading.machine {
            // What the survey just found out need not be asked again; the next time it may be another's pid.
            let who = std::mem::take(&mut self.who);
            let mut around = regions::Around {
                places: &self.places,
                processes: &mut self.processes,
                bus: &self.bus,
                opened: &self.nodes,
                who: &who,
                surveyed: std::mem::take(&mut self.surveyed),
                census: &census,
            };
            self.regions.look(&mut around, sink);
            self.tell_sensors(now, sink);
        }
        busy
    }

    /// After the first look: gives sensors the time to be read once, and no more than that to those that hang.
    pub fn settle(&mut self, now: impl Fn() -> Mono, sink: &mut impl EventSink) {
        self.sensors.wait(PATIENCE);
        self.tell_sensors(now(), sink);
    }

    fn tell_sensors(&mut self, now: Mono, sink: &mut impl EventSink) {
        for (chip, reading) in self.sensors.news(now) {
            sink.emit_machine(Event::Sensors(chip, Box::new(reading)));
        }
    }

    /// Looks again at what one process publishes while it may still live: whatever it did last.
    pub fn process_ended(&mut self, process: ProcessId, sink: &mut impl EventSink) {
        self.segments.process_ended(process, sink);
        self.opened.remove(&process);
    }

    /// Somebody looks at the figures: they are worth being new.
    pub fn attend(&mut self) {
        self.sensors.attend();
    }

    fn look_at_bus(&mut self, sink: &mut impl EventSink) {
        let driver = self.bus.driver.clone();
        let change = self.bus.look();
        if self.surveys == 0 || self.bus.driver != driver {
            let driver = self.bus.driver.clone();
            sink.emit_machine(Event::Host(Host { driver, ..self.reading.host.clone() }));
        }
        for gone in change.gone {
            sink.emit_machine(Event::ChipGone(gone));
        }
        if change.any || self.surveys == 0 {
            for chip in self.chips() {
                sink.emit_machine(Event::Chip(chip));
            }
        }
        if change.any {
            // What was said of a chip under another name must be said again.
            self.retell = true;
            self.regions.forget_chips();
            self.sensors.follow(self.bus.chips.values());
            self.openers.forget(&self.bus.chips.keys().copied().collect());
        }
    }

    /// The chips there are: those on the bus, with what the topology knows of them, and those that only it knows.
    fn chips(&self) -> Vec<Chip> {
        let mut on_bus: BTreeMap<u32, Chip> =
            self.bus.chips.iter().map(|(&node, it)| (node, it.chip.clone())).collect();
        let listed = self.reading.topology.iter().flat_map(|it| it.chips.iter());
        let mut chips: Vec<Chip> = listed
            .map(|it| {
                let id = it.unique_id.map_or(ChipId::Ordinal(it.logical), ChipId::Unique);
                let place: Option<PciAddress> = it.pci.as_ref().and_then(|text| text.parse().ok());
                let fits = |chip: &&Chip| {
                    let name = it.unique_id.is_some_and(|name| chip.guesses.contains(&name));
                    chip.id == id || name || (place.is_some() && place == chip.pci)
                };
                let node = on_bus.values().find(fits).and_then(|chip| chip.node);
                // Numbers of nodes change; they are believed only where the file has nothing better.
                let by_node = it.node.filter(|_| place.is_none());
                let found = node.or(by_node).and_then(|node| on_bus.remove(&node));
                described(it, found.unwrap_or_else(|| Chip { pci: place, ..Chip::new(id, it.logical) }))
            })
            .collect();
        // What the file does not list gets numbers that it does not use.
        let mut taken: BTreeSet<u32> = chips.iter().map(|chip| chip.index).collect();
        for mut chip in on_bus.into_values() {
            if !taken.insert(chip.index) {
                chip.index =
                    (0..=taken.len() as u32).find(|index| taken.insert(*index)).unwrap_or(chip.index);
            }
            chips.push(chip);
        }
        chips.sort_by_key(|chip| chip.index);
        chips
    }

    fn look_at_openers(&mut self, sink: &mut impl EventSink) {
        let found = self.openers.look(self.bus.chips.keys().copied(), &self.processes);
        let chip = |node: &u32| self.bus.chips.get(node).map(|it| it.chip.id);
        let mut told = BTreeMap::new();
        for (&pid, nodes) in &found.opened {
            let Some(owner) = found.who.get(&pid) else { continue };
            let process = sink.register(owner, Basis::Unknown);
            if self.retell || self.opened.get(&process) != Some(nodes) {
                let chips = nodes.iter().filter_map(chip).collect();
                sink.emit(process, Basis::Unknown, Event::Opened(chips));
            }
            told.insert(process, nodes.clone());
        }
        for &process in self.opened.keys().filter(|process| !told.contains_key(process)) {
            sink.emit(process, Basis::Unknown, Event::Opened(Vec::new()));
        }
        (self.opened, self.retell) = (told, false);
        let unseen: BTreeMap<ChipId, usize> =
            found.unseen.iter().filter_map(|(node, &times)| Some((chip(node)?, times))).collect();
        for (&chip, &times) in unseen.iter().filter(|(chip, times)| self.unseen.get(chip) != Some(times)) {
            sink.emit_machine(Event::OpenUnseen(chip, times as u32));
        }
        for &chip in self.unseen.keys().filter(|chip| !unseen.contains_key(chip)) {
            sink.emit_machine(Event::OpenUnseen(chip, 0));
        }
        self.unseen = unseen;
        (self.nodes, self.who) = (found.opened, found.who);
    }

    /// Rings at every segment: whoever writes it may audit its allocators now.
    pub fn ring(&self) {
        self.segments.ring();
    }

    /// Removes black boxes that are too many, too old, or take too much of the filesystem.
    pub fn expire(&mut self, now: Mono, keep: Keep) {
        self.segments.expire(&self.places, now, keep);
    }

    /// Descriptors that are held open for processes' files.
    pub fn descriptors(&self) -> usize {
        self.places.len() + self.segments.descriptors() + self.regions.len()
    }

    /// Segments of dead processes.
    pub fn black_boxes(&self) -> impl Iterator<Item = (&Path, &SegmentFile)> {
        self.segments.black_boxes()
    }

    /// tt-metal's own files of counters.
    pub fn regions(&self) -> impl Iterator<Item = RegionFile> {
        self.regions.files()
    }

    /// Why chips cannot be listed, if that is not because there are none.
    pub fn trouble(&self) -> Option<&Skipped> {
        self.bus.trouble.as_ref()
    }

    /// Whether every process there is can be seen from here.
    pub fn sees_all(&self) -> bool {
        self.processes.sees_all()
    }

    /// Says in a snapshot what was read, and what was not.
    pub fn report(&self, health: &mut Health) {
        health.segments = self.segments.living() as u64;
        health.crash_segments = self.segments.black_boxes().count() as u64;
        health.counter_files = self.regions.len() as u64;
        health.skipped = self.segments.skipped();
        health.skipped.extend(self.regions.skipped().cloned());
        health.skipped.extend(self.bus.trouble.clone());
        health.skipped.extend(self.unread.clone());
        health.skipped.extend(out_of_descriptors());
    }
}

/// A chip, with what a descriptor says of it.
fn described(it: &TopologyChip, mut chip: Chip) -> Chip {
    chip.index = it.logical;
    chip.arch = Some(it.arch);
    chip.remote = it.remote;
    // The driver tells variants of a board apart; a descriptor does not.
    chip.board = chip.board.or_else(|| it.board.clone());
    chip.serial = chip.serial.or(it.board_id);
    chip.capacity = Some(board::capacity(it.arch, it.cores, it.dram_channels, CapacityOrigin::Descriptor));
    chip.names.extend(it.unique_id.filter(|&name| chip.id != ChipId::Unique(name)));
    chip
}

/// Whether files could not be opened because this process has too many open: then anything may be missing.
fn out_of_descriptors() -> Option<Skipped> {
    let one_more = std::fs::File::open("/");
    let full =
        one_more.err().and_then(|e| rustix::io::Errno::from_io_error(&e)) == Some(rustix::io::Errno::MFILE);
    full.then(|| Skipped {
        path: "ttmem itself".to_owned(),
        reason: "has as many files open as it may (`ulimit -n`): not everything could be read".to_owned(),
    })
}
