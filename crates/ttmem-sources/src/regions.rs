//! tt-metal's own counters: one file a chip, in which every process that uses the chip keeps what it holds. They are read,
//! never repaired: what dead processes left there is told apart here, and nothing is written.
//!
//! A file says a pid as its process knows itself. Whose that is follows from who there is: a process with that pid, in
//! whatever namespace, that sees the file, had started when the entry was last changed, and has the name it says or the
//! file mapped.

use crate::bus::Bus;
use crate::inventory::RegionFile;
use crate::openers::Opened;
use crate::owner::Census;
use crate::place::Place;
use crate::process::{Owner, Processes, Watch};
use crate::segment::{FileId, Skip, is_in_memory, look_at, not_a_file};
use crate::segments::EventSink;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ttmem_core::event::Event;
use ttmem_core::machine::{Chip, Ghost, RegionReport};
use ttmem_core::snapshot::Skipped;
use ttmem_core::words::{Basis, ChipId, ProcessId, Space, size};
use ttmem_wire::region::{self, Clock, Layout, Levels, ProcessSlot, Region, RegionError};

/// How often a file is read again that is being made, or whose parts do not fit together yet.
const TRIES: usize = 5;
/// How long to wait for one that is being made, and how often in one look: there may be many that never will be.
const MAKING: Duration = Duration::from_micros(500);
const NAPS: usize = 2 * TRIES;
/// Files of one user that are held open in one folder: whoever makes more hides only his own.
const MOST_FILES: usize = 1024;
/// Reasons that are told.
const MOST_SKIPPED: usize = 64;
/// No chip has more of anything.
const MOST_HELD: u64 = 1 << 40;
/// Clocks are read at other moments than processes start, and ticks are a hundredth of a second.
const SLACK_NS: u64 = 50_000_000;

struct Known {
    file: OwnedFd,
    /// What was last read and understood, and what was said of it.
    bytes: Vec<u8>,
    living: Vec<Living>,
    report: Option<RegionReport>,
    path: PathBuf,
    /// The folder it lies in.
    place: (u64, u64),
    /// The chip's id, from the file's name.
    name: u64,
    /// Whose pids are whose, as far as was found out.
    fates: BTreeMap<u32, Verdict>,
    /// Which chip it is of, once somebody lives who uses it.
    chip: Option<ChipId>,
    /// What it was like when it was last read; `None`: it could not be.
    layout: Option<Layout>,
}

/// Who is in a file and lives: its pid here, what it was called, and who it is to the rest of ttmem.
struct Living {
    pid: u32,
    name: String,
    process: ProcessId,
}

#[derive(Clone, Copy)]
struct Verdict {
    fate: Fate,
    /// The entry's last change that it was found at.
    updated_ns: u64,
}

/// What became of the process behind an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It lives, and this is its pid here, and when it started.
    Lives(u32, u64),
    Dead,
    /// It may live where we cannot see it, or cannot see that it is the one.
    Unseen,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Regions {
    known: BTreeMap<FileId, Known>,
    /// Files that cannot be opened, and those that cannot be understood.
    skipped: Vec<Skipped>,
    unreadable: Vec<Skipped>,
    /// What was told of which process, so that it can be taken back.
    told: BTreeSet<(ProcessId, ChipId)>,
    reports: Vec<RegionReport>,
    lives: Lives,
}

/// Processes that are in some file, by pid: when they started, and their lives.
type Lives = BTreeMap<u32, (u64, Watch)>;

/// What a look needs besides the files.
pub(crate) struct Around<'a> {
    pub(crate) places: &'a [Place],
    pub(crate) processes: &'a mut Processes,
    pub(crate) bus: &'a Bus,
    pub(crate) opened: &'a Opened,
    /// Processes of which that was found out already.
    pub(crate) who: &'a BTreeMap<u32, Owner>,
    /// Whether it is time to look whether processes are still what they were.
    pub(crate) surveyed: bool,
    pub(crate) census: &'a Census,
}

/// One look: what it knows and found out so far.
struct Look<'a, 'b, L> {
    around: &'a mut Around<'b>,
    sink: &'a mut L,
    lives: &'a mut Lives,
    /// Who ended since the last look.
    ended: BTreeSet<u32>,
    who: BTreeMap<u32, Option<Owner>>,
    met: BTreeMap<u32, ProcessId>,
    told: BTreeSet<(ProcessId, ChipId)>,
    naps: usize,
    /// Chips on the bus that a file in use is named for.
    named: BTreeSet<ChipId>,
}

impl<L: EventSink> Look<'_, '_, L> {
    fn who(&mut self, pid: u32) -> Option<&Owner> {
        let around = &*self.around;
        let known = || around.who.get(&pid).cloned().or_else(|| around.processes.who(pid));
        self.who.entry(pid).or_insert_with(known).as_ref()
    }

    fn meet(&mut self, pid: u32, own_pid: u32) -> ProcessId {
        if let Some(&met) = self.met.get(&pid) {
            return met;
        }
        let unknown = Owner { pid, own_pid, uid: u32::MAX, name: String::new(), start: None };
        let owner = self.who(pid).cloned().unwrap_or(unknown);
        let process = self.sink.register(&owner, Basis::Counters);
        self.met.insert(pid, process);
        process
    }
}

impl Regions {
    /// Files that are read.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Those files, and who is in them.
    pub(crate) fn files(&self) -> impl Iterator<Item = RegionFile> {
        self.known.values().map(|it| {
            let of = |fits: fn(Fate) -> bool| it.fates.values().filter(|verdict| fits(verdict.fate)).count();
            RegionFile {
                path: it.path.clone(),
                layout: it.layout,
                bytes: rustix::fs::fstat(&it.file).map_or(0, |it| (it.st_blocks as u64).saturating_mul(512)),
                living: of(|fate| matches!(fate, Fate::Lives(..))),
                dead: of(|fate| fate == Fate::Dead),
                unseen: of(|fate| fate == Fate::Unseen),
            }
        })
    }

    /// Files that are not, and why.
    pub(crate) fn skipped(&self) -> impl Iterator<Item = &Skipped> {
        self.skipped.iter().chain(&self.unreadable).take(MOST_SKIPPED)
    }

    /// Chips changed: which one each file is of must be found out, and told, anew.
    pub(crate) fn forget_chips(&mut self) {
        for known in self.known.values_mut() {
            (known.chip, known.bytes) = (None, Vec::new());
        }
    }

    pub(crate) fn look(&mut self, around: &mut Around<'_>, sink: &mut impl EventSink) {
        if around.surveyed {
            self.open_all(around);
        }
        let mut lives = std::mem::take(&mut self.lives);
        let ended: BTreeSet<u32> =
            lives.iter().filter(|(_, (_, life))| life.ended()).map(|(&pid, _)| pid).collect();
        lives.retain(|pid, _| !ended.contains(pid));
        let (places, bus) = (around.places, around.bus);
        let (who, met, told, named) = Default::default();
        let mut look = Look { around, sink, lives: &mut lives, ended, who, met, told, naps: NAPS, named };
        let mut reports = Vec::new();
        self.unreadable.clear();
        // Those whose name says which chip they are of come first: the others are not of these chips.
        let mut all: Vec<&mut Known> = self.known.values_mut().collect();
        all.sort_by_cached_key(|it| bus.by_name(it.name).is_none());
        for known in all {
            let Some(place) = places.iter().find(|place| place.id == known.place) else { continue };
            match known.look(place, &mut look) {
                Ok(()) => {
                    let named = bus.by_name(known.name).filter(|_| !known.living.is_empty());
                    look.named.extend(named.map(|chip| chip.id));
                    reports.extend(known.report.clone());
                }
                Err(Unreadable { reason, odd }) => {
                    reports.extend(odd.then(|| unreadable(known, &reason)));
                    self.unreadable.push(Skipped { path: known.path.display().to_string(), reason });
                }
            }
        }
        let told = look.told;
        for &(process, chip) in self.told.difference(&told) {
            sink.emit(process, Basis::Counters, Event::Levels(chip, Vec::new()));
        }
        self.told = told;
        let used: BTreeSet<u32> =
            self.known.values().flat_map(|it| it.living.iter().map(|living| living.pid)).collect();
        lives.retain(|pid, _| used.contains(pid));
        self.lives = lives;
        if reports != self.reports {
            self.reports.clone_from(&reports);
            sink.emit_machine(Event::Regions(reports));
        }
    }

    /// Opens what is new, and lets go of what is gone. Files come and go seldom; what is in them is read at every look.
    fn open_all(&mut self, around: &mut Around<'_>) {
        self.skipped.clear();
        let mut seen = BTreeSet::new();
        let mut of_user = BTreeMap::new();
        for place in around.places {
            for file in place.names(region::FILE_PREFIX) {
                let Some(name) = region::parse_name(&file) else { continue };
                let path = place.path.join(&file);
                match self.open(place, &file, name, &path, &mut of_user) {
                    Ok(id) => seen.extend(id),
                    Err(why) => {
                        let remedy = remedy(place, &file, &why, around.processes);
                        self.skip(&path, remedy.unwrap_or_else(|| why.to_string()));
                    }
                }
            }
        }
        self.known.retain(|id, _| seen.contains(id));
    }

    fn skip(&mut self, path: &Path, reason: String) {
        if self.skipped.len() < MOST_SKIPPED {
            self.skipped.push(Skipped { path: path.display().to_string(), reason });
        }
    }

    /// Opens a file, unless it is open. `None`: it is gone already.
    fn open(
        &mut self,
        place: &Place,
        file: &str,
        name: u64,
        path: &Path,
        of_user: &mut BTreeMap<((u64, u64), u32), usize>,
    ) -> Result<Option<FileId>, Skip> {
        let (handle, found) = match look_at(place.folder.as_fd(), file) {
            Err(Skip::Io(e)) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        let id = (found.st_dev, found.st_ino);
        let of_user = of_user.entry((place.id, found.st_uid)).or_default();
        *of_user += 1;
        if *of_user > MOST_FILES {
            return Err(Skip::Foreign("is one file too many of its user".to_owned()));
        }
        if self.known.contains_key(&id) {
            return Ok(Some(id));
        }
        not_a_file(&found)?;
        if place.in_memory && !is_in_memory(handle.as_fd()) {
            return Err(Skip::NotInMemory);
        }
        // A thread may have descriptors of its own.
        let again = format!("/proc/thread-self/fd/{}", handle.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::open(again, flags, Mode::empty())?;
        let (bytes, living, report, fates, chip, layout) = Default::default();
        let path = path.to_owned();
        let place = place.id;
        self.known.insert(id, Known { file, bytes, living, report, path, place, name, fates, chip, layout });
        Ok(Some(id))
    }
}

/// What to do about a file that belongs to somebody else.
fn remedy(place: &Place, file: &str, why: &Skip, processes: &mut Processes) -> Option<String> {
    let Skip::Io(e) = why else { return None };
    if e.kind() != std::io::ErrorKind::PermissionDenied {
        return None;
    }
    let (_, found) = look_at(place.folder.as_fd(), file).ok()?;
    let user = processes.user(found.st_uid);
    Some(format!(
        "belongs to {user} and is readable only by that user: run ttmem as {user} or root, or run `ttmem serve` as root"
    ))
}

/// Why a file says nothing.
struct Unreadable {
    reason: String,
    /// Whether that is worth a finding: one that is being made is not odd yet.
    odd: bool,
}

impl From<RegionError> for Unreadable {
    fn from(why: RegionError) -> Self {
        Self { odd: why != RegionError::BeingMade, reason: why.to_string() }
    }
}

impl From<rustix::io::Errno> for Unreadable {
    fn from(e: rustix::io::Errno) -> Self {
        Self { odd: true, reason: Skip::from(e).to_string() }
    }
}

fn unreadable(known: &Known, reason: &str) -> RegionReport {
    RegionReport {
        path: known.path.display().to_string(),
        chip: ChipId::Unique(known.name),
        ghosts: Vec::new(),
        unattributed: Vec::new(),
        troubles: vec![format!("cannot be read: {reason}")],
    }
}

/// All bytes of a file, if it is not larger than it can be.
fn read(file: &OwnedFd) -> rustix::io::Result<Vec<u8>> {
    let mut bytes = vec![0; region::MAX_BYTES + 1];
    let mut len = 0;
    while len < bytes.len() {
        match rustix::io::pread(file, &mut bytes[len..], len as u64) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e),
        }
        // The next call would only say that there is no more.
        if region::Layout::ALL.iter().any(|it| it.bytes() == len) {
            break;
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// Whether the totals are the sums of the entries.
fn fits(region: &Region) -> bool {
    let sums =
        spaces(region, |of| region.processes.iter().map(|slot| of(&slot.held)).fold(0, u64::saturating_add));
    let totals = spaces(region, |of| of(&region.totals));
    sums.into_iter().zip(totals).all(|((_, sum), (_, total))| sum == total)
}

/// Takes one space's figure out of a set of them.
type Of = fn(&Levels) -> u64;

/// Something of each space that the counters know.
fn spaces<T>(region: &Region, value: impl Fn(Of) -> T) -> Vec<(Space, T)> {
    let all: [(Space, Of); 6] = [
        (Space::Dram, |it| it.dram),
        (Space::L1, |it| it.l1),
        (Space::L1Small, |it| it.l1_small),
        (Space::Trace, |it| it.trace),
        (Space::Cb, |it| it.cb),
        (Space::Kernel, |it| it.kernel),
    ];
    let known = all.into_iter().filter(|(space, _)| *space != Space::Kernel || region.layout.has_kernels());
    known.map(|(space, of)| (space, value(of))).collect()
}

impl Known {
    /// Reads the file until its parts fit together, or do not change any more: its writers never wait, so a copy may show
    /// half of a change. What is as it was is told as it was.
    fn look<L: EventSink>(&mut self, place: &Place, look: &mut Look<'_, '_, L>) -> Result<(), Unreadable> {
        if look.around.surveyed {
            // Whoever goes on as another program holds nothing any more, and has another name as a rule.
            for it in &self.living {
                if look.who(it.pid).is_none_or(|who| who.name != it.name) {
                    self.fates.retain(|_, known| !matches!(known.fate, Fate::Lives(pid, _) if pid == it.pid));
                    self.bytes.clear();
                }
            }
        }
        let mut last = None;
        for attempt in 0..TRIES {
            let bytes = read(&self.file)?;
            let alive = self.living.iter().all(|it| !look.ended.contains(&it.pid));
            if alive && !bytes.is_empty() && bytes == self.bytes {
                let chip = self.chip;
                look.told.extend(self.living.iter().filter_map(|it| Some((it.process, chip?))));
                return Ok(());
            }
            match region::parse(&bytes) {
                Err(RegionError::BeingMade) if attempt + 1 < TRIES && look.naps > 0 => {
                    look.naps -= 1;
                    std::thread::sleep(MAKING);
                }
                Err(why) => {
                    (self.bytes, self.living, self.layout) = Default::default();
                    return Err(why.into());
                }
                Ok(region) => {
                    let settled = fits(&region) || last.as_ref() == Some(&bytes);
                    if settled || attempt + 1 == TRIES {
                        self.layout = Some(region.layout);
                        self.report = self.tell(&region, place, look);
                        self.bytes = bytes;
                        return Ok(());
                    }
                    last = Some(bytes);
                }
            }
        }
        Err(RegionError::BeingMade.into())
    }

    /// Tells what living processes hold; returns what is odd.
    fn tell<L: EventSink>(
        &mut self,
        region: &Region,
        place: &Place,
        look: &mut Look<'_, '_, L>,
    ) -> Option<RegionReport> {
        let (mut ghosts, mut troubles) = (Vec::new(), Vec::new());
        let mut living: BTreeMap<u32, (u32, Vec<(Space, u64)>)> = BTreeMap::new();
        for slot in &region.processes {
            let held = spaces(region, |of| of(&slot.held));
            match self.fate(slot, region, place, look) {
                Fate::Lives(pid, _) => {
                    let possible = |&(space, bytes): &(Space, u64)| {
                        if bytes > MOST_HELD {
                            let what = format!("report {} of {space} for pid {pid}", size(bytes));
                            troubles.push(format!("{what}, more than any device has; ignored"));
                        }
                        bytes <= MOST_HELD
                    };
                    let held: Vec<_> = held.into_iter().filter(possible).collect();
                    let it = living.entry(pid).or_insert((slot.pid, Vec::new()));
                    for (space, bytes) in held {
                        match it.1.iter_mut().find(|(of, _)| *of == space) {
                            Some((_, sum)) => *sum = sum.saturating_add(bytes),
                            None => it.1.push((space, bytes)),
                        }
                    }
                }
                fate => {
                    let bytes = held.iter().map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
                    if bytes > 0 {
                        let perhaps_unseen = fate == Fate::Unseen;
                        ghosts.push(Ghost { pid: slot.pid, name: slot.name.clone(), bytes, perhaps_unseen });
                    }
                }
            }
        }
        self.fates.retain(|pid, _| region.processes.iter().any(|slot| slot.pid == *pid));
        self.living.clear();
        if !living.is_empty() {
            let chip = self.chip(region, living.keys().copied(), look);
            for (pid, (own_pid, held)) in living {
                let process = look.meet(pid, own_pid);
                let name = look.who(pid).map(|it| it.name.clone()).unwrap_or_default();
                self.living.push(Living { pid, name, process });
                look.told.insert((process, chip));
                look.sink.emit(process, Basis::Counters, Event::Levels(chip, held));
            }
        }
        let mut unattributed = Vec::new();
        for (space, (total, sum)) in spaces(region, |of| {
            let sum = region.processes.iter().map(|slot| of(&slot.held)).fold(0, u64::saturating_add);
            (of(&region.totals), sum)
        }) {
            if total > sum {
                unattributed.push((space, total - sum));
            } else if total < sum && ghosts.is_empty() {
                let (total, sum) = (size(total), size(sum));
                troubles.push(format!("have a total of {total} of {space}, but {sum} for their processes"));
            }
        }
        if region.is_full() {
            let slots = region::PROCESS_SLOTS;
            troubles
                .push(format!("are full: all {slots} entries are in use, further processes are not counted"));
        }
        if region.broken_slots > 0 {
            troubles.push(format!("have {} entries with impossible pids", region.broken_slots));
        }
        if region.chips.iter().filter(|it| it.held != Levels::default()).count() > 1 {
            troubles.push("cover several devices without saying which process uses which".to_owned());
        }
        let odd = !ghosts.is_empty() || !unattributed.is_empty() || !troubles.is_empty();
        odd.then(|| RegionReport {
            path: self.path.display().to_string(),
            chip: self.chip.unwrap_or_else(|| chip_by_name(self.name, look.around.bus)),
            ghosts,
            unattributed,
            troubles,
        })
    }

    /// The chip that the counters are of, made known where it is not.
    fn chip<L: EventSink>(
        &mut self,
        region: &Region,
        mut users: impl Iterator<Item = u32>,
        look: &mut Look<'_, '_, L>,
    ) -> ChipId {
        let around = &look.around;
        if let Some(chip) = self.chip {
            return chip;
        }
        let name = self.name;
        let index = region.device_id;
        let on_bus = around.bus.by_name(name).cloned();
        let behind = around.bus.behind(name).map(|it| Chip { index, ..it });
        // Where the name says nothing, the number does: a runtime numbers the chips that it has open by their places. But
        // not if another file is of that chip: this one may be of one that left, after which the others were numbered anew.
        let numbered = || {
            users.find_map(|pid| {
                let nodes = around.opened.get(&pid)?;
                let mut chips: Vec<&Chip> =
                    nodes.iter().filter_map(|node| Some(&around.bus.chips.get(node)?.chip)).collect();
                chips.sort_by_key(|chip| chip.index);
                let chip = chips.get(index as usize).copied()?;
                (!look.named.contains(&chip.id)).then(|| chip.clone())
            })
        };
        let told_by_name = behind.is_some() || around.bus.has_left(name);
        let on_bus = if told_by_name { on_bus } else { on_bus.or_else(numbered) };
        let chip = match on_bus {
            // Its place tells which it is, whatever it is called. What number it has was said already.
            Some(it) => Chip { id: ChipId::Unique(name), names: unique(it.id), node: None, ..it },
            None => behind.unwrap_or_else(|| Chip::new(ChipId::Unique(name), index)),
        };
        let id = chip.id;
        look.sink.emit_machine(Event::Chip(chip));
        self.chip = Some(id);
        id
    }

    fn fate<L: EventSink>(
        &mut self,
        slot: &ProcessSlot,
        region: &Region,
        place: &Place,
        look: &mut Look<'_, '_, L>,
    ) -> Fate {
        if let Some(known) = self.fates.get(&slot.pid) {
            let holds = match known.fate {
                Fate::Lives(pid, start) => look.lives.get(&pid).is_some_and(|(of, _)| *of == start),
                Fate::Dead | Fate::Unseen => known.updated_ns == slot.updated_ns,
            };
            if holds {
                return known.fate;
            }
        }
        let direct = Some(slot.pid).filter(|_| place.own);
        let mut unsure = !look.around.processes.sees_all();
        let mut author = |pid, look: &mut Look<'_, '_, L>| {
            let found = self.author(pid, slot, region, place, look);
            unsure |= found == Some(Fate::Unseen);
            found.filter(|fate| *fate != Fate::Unseen)
        };
        let found = direct.and_then(|pid| author(pid, look)).or_else(|| {
            // Looking at every process is the last resort.
            let others = look.around.census.known_as(slot.pid, look.around.processes);
            let mut others = others.into_iter().filter(|&pid| Some(pid) != direct);
            others.find_map(|pid| author(pid, look))
        });
        let fate = found.unwrap_or(if unsure { Fate::Unseen } else { Fate::Dead });
        self.fates.insert(slot.pid, Verdict { fate, updated_ns: slot.updated_ns });
        fate
    }

    /// Whether a process is the one that an entry is of, and lives, or may be.
    fn author<L: EventSink>(
        &self,
        pid: u32,
        slot: &ProcessSlot,
        region: &Region,
        place: &Place,
        look: &mut Look<'_, '_, L>,
    ) -> Option<Fate> {
        let who = look.who(pid).filter(|it| it.own_pid == slot.pid)?;
        let (start, named) = (who.start?, who.name == slot.name);
        let processes = &mut *look.around.processes;
        // One that started after the entry's last change is a later process with the same pid, unless somebody set the
        // clock meanwhile.
        let started_ns = match region.layout.clock() {
            Clock::Monotonic => Some(Processes::nanoseconds(start)),
            Clock::Wall => processes.wall(start).map(|it| it.as_nanosecond().max(0) as u64),
        };
        let later = started_ns.is_some_and(|at| at > slot.updated_ns.saturating_add(SLACK_NS));
        let later = later && slot.updated_ns != 0;
        if (!place.own || pid != slot.pid) && !place.is_of(pid, processes) {
            return None;
        }
        if later || !named || !processes.sees_all() {
            let file = rustix::fs::fstat(&self.file).ok()?;
            let mapped = processes.has_mapped(pid, (file.st_dev, file.st_ino));
            // Where we may not know: whoever had the pid when the entry was last changed has it still, and may have taken
            // another name. But in another namespace the same pid is another's.
            if mapped.is_none() && !named && !later && slot.updated_ns != 0 {
                return Some(Fate::Unseen);
            }
            if !mapped.unwrap_or(named && !later) {
                return None;
            }
        }
        if let Entry::Vacant(life) = look.lives.entry(pid) {
            life.insert((start, processes.watch(pid, Some(start))?));
        }
        Some(Fate::Lives(pid, start))
    }
}

/// A chip's unique id, if it has one.
fn unique(id: ChipId) -> Vec<u64> {
    match id {
        ChipId::Unique(id) => vec![id],
        ChipId::Pci(_) | ChipId::Ordinal(_) => Vec::new(),
    }
}

fn chip_by_name(name: u64, bus: &Bus) -> ChipId {
    bus.by_name(name).map_or(ChipId::Unique(name), |chip| chip.id)
}
