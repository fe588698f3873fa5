//! Reads one file of counters and reports what it contains.

use super::Poll;
use super::attribution::{Attribution, EntryProcess};
use super::chip::chip_of_name;
use crate::event_sink::EventSink;
use crate::files::{FileId, SkipReason};
use crate::shm::ShmFolder;
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use ttmem_core::input::Input;
use ttmem_core::machine::{Chip, CounterReport, Ghost};
use ttmem_core::words::{Basis, ChipId, ProcessId, Space, size};
use ttmem_wire::region::{self, Layout, Levels, Region, RegionError};

/// Attempts at a file that is being created, or whose totals do not match its entries yet.
pub(super) const TRIES: usize = 5;
/// How long to wait for a file that is being created.
const CREATION_WAIT: Duration = Duration::from_micros(500);
/// No chip has more of any memory.
const MAX_HELD: u64 = 1 << 40;

/// An open file of counters, and what was last read from it.
pub(super) struct OpenFile {
    pub(super) fd: OwnedFd,
    /// Its content, as last read and parsed.
    pub(super) bytes: Vec<u8>,
    /// The processes in it that are alive.
    pub(super) alive: Vec<AliveProcess>,
    pub(super) report: Option<CounterReport>,
    pub(super) path: PathBuf,
    /// Its folder.
    pub(super) folder: FileId,
    /// The chip's unique id, from the file's name.
    pub(super) unique_id: u64,
    /// Its user.
    pub(super) uid: u32,
    /// The processes of its entries, by the pid in the entry.
    pub(super) entries: BTreeMap<u32, Attribution>,
    /// Its chip, once a process that is alive uses it.
    pub(super) chip: Option<ChipId>,
    /// The chip as it was emitted.
    pub(super) named_chip: Option<Box<Chip>>,
    /// Its layout; `None` if it could not be read.
    pub(super) layout: Option<Layout>,
}

/// A process in a file that is alive.
pub(super) struct AliveProcess {
    pub(super) pid: u32,
    name: String,
    process: ProcessId,
}

/// Why a file could not be parsed.
pub(super) struct Unreadable {
    pub(super) reason: String,
    /// Whether that is a finding. A file that is being created is not.
    pub(super) is_finding: bool,
}

impl From<RegionError> for Unreadable {
    fn from(why: RegionError) -> Self {
        Self { is_finding: why != RegionError::BeingMade, reason: why.to_string() }
    }
}

impl From<rustix::io::Errno> for Unreadable {
    fn from(e: rustix::io::Errno) -> Self {
        Self { is_finding: true, reason: SkipReason::from(e).to_string() }
    }
}

impl OpenFile {
    pub(super) fn new(fd: OwnedFd, path: PathBuf, folder: FileId, unique_id: u64, uid: u32) -> Self {
        let (bytes, alive, report, entries, chip, named_chip, layout) = Default::default();
        Self { fd, bytes, alive, report, path, folder, unique_id, uid, entries, chip, named_chip, layout }
    }

    /// Reads the file until its totals match its entries, or it does not change any more: writers never wait, so a copy may
    /// contain half of a change. An unchanged file is not emitted again.
    pub(super) fn poll<S: EventSink>(
        &mut self,
        folder: &ShmFolder,
        poll: &mut Poll<'_, '_, S>,
    ) -> Result<(), Unreadable> {
        if poll.context.rescanned {
            self.recheck_names(poll);
        }
        let mut last = None;
        for attempt in 0..TRIES {
            let bytes = read_content(&self.fd)?;
            let is_unchanged = !bytes.is_empty() && bytes == self.bytes;
            // While nothing changes, a check per rescan will do: an exited process is withdrawn by its own watch.
            if !is_unchanged || poll.context.rescanned {
                poll.check_exits();
            }
            let all_alive = self.entries.values().all(|entry| match entry.process {
                EntryProcess::Alive { pid, start } => poll.is_watched(pid, start),
                EntryProcess::Foreign { .. } | EntryProcess::Exited | EntryProcess::Unknown => true,
            });
            if all_alive && is_unchanged {
                let chip = self.chip;
                poll.emitted.extend(self.alive.iter().filter_map(|it| Some((it.process, chip?))));
                return Ok(());
            }
            match region::parse(&bytes) {
                Err(RegionError::BeingMade) if attempt + 1 < TRIES && poll.waits_left > 0 => {
                    poll.waits_left -= 1;
                    std::thread::sleep(CREATION_WAIT);
                }
                Err(why) => {
                    (self.bytes, self.alive, self.layout) = Default::default();
                    return Err(why.into());
                }
                Ok(region) => {
                    let is_consistent = totals_match(&region) || last.as_ref() == Some(&bytes);
                    if is_consistent || attempt + 1 == TRIES {
                        self.layout = Some(region.layout);
                        self.report = self.emit_levels(&region, folder, poll);
                        self.bytes = bytes;
                        return Ok(());
                    }
                    last = Some(bytes);
                }
            }
        }
        Err(RegionError::BeingMade.into())
    }

    /// Attributes entries again whose process has another name by now: after an exec it holds nothing any more, and usually
    /// has another name.
    fn recheck_names<S: EventSink>(&mut self, poll: &mut Poll<'_, '_, S>) {
        for process in &self.alive {
            if poll.identify(process.pid).is_none_or(|identity| identity.name != process.name) {
                let is_its = |entry: &Attribution| matches!(entry.process, EntryProcess::Alive { pid, .. } if pid == process.pid);
                self.entries.retain(|_, entry| !is_its(entry));
                self.bytes.clear();
            }
        }
    }

    /// Emits what processes that are alive hold, and reports problems of the file.
    fn emit_levels<S: EventSink>(
        &mut self,
        region: &Region,
        folder: &ShmFolder,
        poll: &mut Poll<'_, '_, S>,
    ) -> Option<CounterReport> {
        let (mut ghosts, mut problems, mut foreign) = (Vec::new(), Vec::new(), None);
        let mut alive: BTreeMap<u32, (u32, Vec<(Space, u64)>)> = BTreeMap::new();
        for slot in &region.processes {
            let held = per_space(region, |figure| figure(&slot.held));
            match self.find_process(slot, region, folder, poll) {
                EntryProcess::Alive { pid, .. } => {
                    let is_possible = |&(space, bytes): &(Space, u64)| {
                        if bytes > MAX_HELD {
                            let what = format!("report {} of {space} for pid {pid}", size(bytes));
                            problems.push(format!("{what}, more than any device has; ignored"));
                        }
                        bytes <= MAX_HELD
                    };
                    let held: Vec<_> = held.into_iter().filter(is_possible).collect();
                    let (_, sums) = alive.entry(pid).or_insert((slot.pid, Vec::new()));
                    for (space, bytes) in held {
                        match sums.iter_mut().find(|(of, _)| *of == space) {
                            Some((_, sum)) => *sum = sum.saturating_add(bytes),
                            None => sums.push((space, bytes)),
                        }
                    }
                }
                EntryProcess::Foreign { pid } => {
                    if held.iter().any(|(_, bytes)| *bytes > 0) {
                        foreign.get_or_insert(pid);
                    }
                }
                process => {
                    let bytes = held.iter().map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
                    if bytes > 0 {
                        let may_be_hidden = process == EntryProcess::Unknown;
                        ghosts.push(Ghost { pid: slot.pid, name: slot.name.clone(), bytes, may_be_hidden });
                    }
                }
            }
        }
        self.entries.retain(|pid, _| region.processes.iter().any(|slot| slot.pid == *pid));
        self.alive.clear();
        if !alive.is_empty() {
            let pids: Vec<(u32, u32)> = alive.iter().map(|(&pid, (inside, _))| (pid, *inside)).collect();
            let chip = self.find_chip(region, &pids, poll);
            for (pid, (namespace_pid, held)) in alive {
                let process = poll.register(pid, namespace_pid);
                let name = poll.identify(pid).map(|it| it.name.clone()).unwrap_or_default();
                self.alive.push(AliveProcess { pid, name, process });
                poll.emitted.insert((process, chip));
                poll.sink.emit(process, Basis::Counters, Input::Levels(chip, held));
            }
        }
        let mut unattributed = Vec::new();
        for (space, (total, sum)) in
            per_space(region, |figure| (figure(&region.totals), sum_of(region, figure)))
        {
            if total > sum {
                unattributed.push((space, total - sum));
            } else if total < sum && ghosts.is_empty() {
                let (total, sum) = (size(total), size(sum));
                problems.push(format!("have a total of {total} of {space}, but {sum} for their processes"));
            }
        }
        if let Some(pid) = foreign {
            let user = poll.context.processes.user_name(self.uid);
            problems
                .push(format!("belong to {user}, who may not report for pid {pid} of another user; ignored"));
        }
        if region.is_full() {
            let slots = region::PROCESS_SLOTS;
            problems
                .push(format!("are full: all {slots} entries are in use, further processes are not counted"));
        }
        if region.broken_slots > 0 {
            problems.push(format!("have {} entries with impossible pids", region.broken_slots));
        }
        if region.chips.iter().filter(|it| it.held != Levels::default()).count() > 1 {
            problems.push("cover several devices without saying which process uses which".to_owned());
        }
        let is_finding = !ghosts.is_empty() || !unattributed.is_empty() || !problems.is_empty();
        is_finding.then(|| CounterReport {
            path: self.path.display().to_string(),
            chip: self.chip.unwrap_or_else(|| chip_of_name(self.unique_id, poll.context.bus)),
            ghosts,
            unattributed,
            problems,
        })
    }

    /// The report of a file that cannot be read.
    pub(super) fn unreadable_report(&self, reason: &str) -> CounterReport {
        CounterReport {
            path: self.path.display().to_string(),
            chip: ChipId::Unique(self.unique_id),
            ghosts: Vec::new(),
            unattributed: Vec::new(),
            problems: vec![format!("cannot be read: {reason}")],
        }
    }
}

/// Reads a whole file, or one byte more than any layout has.
fn read_content(file: &OwnedFd) -> rustix::io::Result<Vec<u8>> {
    let mut bytes = vec![0; region::MAX_BYTES + 1];
    let mut len = 0;
    while len < bytes.len() {
        match rustix::io::pread(file, &mut bytes[len..], len as u64) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e),
        }
        // A file with the size of a layout ends here; another call would return 0.
        if region::Layout::ALL.iter().any(|it| it.bytes() == len) {
            break;
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// Whether the totals are the sums of the entries.
fn totals_match(region: &Region) -> bool {
    per_space(region, |figure| figure(&region.totals) == sum_of(region, figure))
        .into_iter()
        .all(|(_, same)| same)
}

/// Reads the figure of one space.
type Figure = fn(&Levels) -> u64;

/// The sum of a figure over all entries.
fn sum_of(region: &Region, figure: Figure) -> u64 {
    region.processes.iter().map(|slot| figure(&slot.held)).fold(0, u64::saturating_add)
}

/// Calls a function for each space that the layout counts.
fn per_space<T>(region: &Region, value: impl Fn(Figure) -> T) -> Vec<(Space, T)> {
    let all: [(Space, Figure); 6] = [
        (Space::Dram, |it| it.dram),
        (Space::L1, |it| it.l1),
        (Space::L1Small, |it| it.l1_small),
        (Space::Trace, |it| it.trace),
        (Space::Cb, |it| it.cb),
        (Space::Kernel, |it| it.kernel),
    ];
    let counted = all.into_iter().filter(|(space, _)| *space != Space::Kernel || region.layout.has_kernels());
    counted.map(|(space, figure)| (space, value(figure))).collect()
}
