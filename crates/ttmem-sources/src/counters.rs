//! tt-metal's counters: one file per chip, in which each process that uses the chip keeps how much it holds. The files are
//! only read: entries that exited processes left there are recognised, not removed.
//!
//! [`CounterFiles`] opens and polls the files. `file` reads one and reports it, `attribution` finds the process of an entry,
//! `chip` the chip of a file.

mod attribution;
mod chip;
mod file;

use self::attribution::{EntryProcess, Watches};
use self::file::{OpenFile, Unreadable};
use crate::bus::Bus;
use crate::device_users::OpenNodes;
use crate::event_sink::EventSink;
use crate::files::{FileId, SkipReason, file_id, find_file, is_in_memory, open_found, require_regular_file};
use crate::listing::{ListedFile, Listings};
use crate::process::{ProcessIdentity, Processes};
use crate::shm::ShmFolder;
use crate::writer::PidIndex;
use rustix::fd::AsFd;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use ttmem_core::input::Input;
use ttmem_core::machine::CounterReport;
use ttmem_core::snapshot::Skipped;
use ttmem_core::words::{Basis, ChipId, ProcessId};
use ttmem_wire::region::{self, Layout};

/// Waits for files that are being created, in one poll: some may never be completed.
const MAX_WAITS: usize = 2 * file::TRIES;
/// Skipped files that are reported.
const MAX_SKIPPED: usize = 64;

/// A file of counters, as it was when it was last read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterFile {
    /// Its path.
    pub path: PathBuf,
    /// Its layout; `None` if that is unknown.
    pub layout: Option<Layout>,
    /// Bytes that it takes of its filesystem.
    pub bytes: u64,
    /// Entries whose process is alive.
    pub alive: usize,
    /// Entries whose process has exited.
    pub exited: usize,
    /// Entries whose process may be alive and not visible from here.
    pub unknown: usize,
}

impl CounterFile {
    /// Whether no process can be using it.
    pub fn is_stale(&self) -> bool {
        self.layout.is_some() && self.alive == 0 && self.unknown == 0
    }
}

/// All files of counters.
#[derive(Default)]
pub(crate) struct CounterFiles {
    files: BTreeMap<FileId, OpenFile>,
    /// Files that cannot be opened.
    skipped: Vec<Skipped>,
    /// Files that cannot be parsed.
    unreadable: Vec<Skipped>,
    /// Processes and chips for which levels were emitted, so that they can be withdrawn.
    emitted: BTreeSet<(ProcessId, ChipId)>,
    reports: Vec<CounterReport>,
    watches: Watches,
}

/// What a poll needs besides the files.
pub(crate) struct Context<'a> {
    pub(crate) folders: &'a [ShmFolder],
    pub(crate) listings: &'a Listings,
    pub(crate) processes: &'a mut Processes,
    pub(crate) bus: &'a Bus,
    pub(crate) open_nodes: &'a OpenNodes,
    /// Processes that were identified already.
    pub(crate) identities: &'a BTreeMap<u32, ProcessIdentity>,
    /// Whether a rescan preceded this poll: files are listed, and processes identified, again.
    pub(crate) rescanned: bool,
    pub(crate) pid_index: &'a PidIndex,
}

/// The state of one poll.
struct Poll<'a, 'b, S> {
    context: &'a mut Context<'b>,
    sink: &'a mut S,
    watches: &'a mut Watches,
    has_checked_exits: bool,
    identities: BTreeMap<u32, Option<ProcessIdentity>>,
    registered: BTreeMap<u32, ProcessId>,
    emitted: BTreeSet<(ProcessId, ChipId)>,
    waits_left: usize,
    /// Chips on the bus for which a file in use is named.
    named_chips: BTreeSet<ChipId>,
}

impl<S: EventSink> Poll<'_, '_, S> {
    fn identify(&mut self, pid: u32) -> Option<&ProcessIdentity> {
        let context = &*self.context;
        let identify = || context.identities.get(&pid).cloned().or_else(|| context.processes.identify(pid));
        self.identities.entry(pid).or_insert_with(identify).as_ref()
    }

    /// Stops watching processes that have exited, once in a poll.
    fn check_exits(&mut self) {
        if !std::mem::replace(&mut self.has_checked_exits, true) {
            self.watches.retain(|_, (_, watch)| !watch.has_exited());
        }
    }

    /// Whether the process of an entry was alive when exits were last checked.
    fn is_watched(&self, pid: u32, start: u64) -> bool {
        self.watches.get(&pid).is_some_and(|(watched, _)| *watched == start)
    }

    fn register(&mut self, pid: u32, namespace_pid: u32) -> ProcessId {
        if let Some(&process) = self.registered.get(&pid) {
            return process;
        }
        let unknown = ProcessIdentity { pid, namespace_pid, uid: u32::MAX, name: String::new(), start: None };
        let identity = self.identify(pid).cloned().unwrap_or(unknown);
        let process = self.sink.register(&identity, Basis::Counters);
        self.registered.insert(pid, process);
        process
    }
}

impl CounterFiles {
    /// The number of files that are read.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// The files that are read, with the state of their entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = CounterFile> {
        self.files.values().map(|file| {
            let count = |matches: fn(EntryProcess) -> bool| {
                file.entries.values().filter(|it| matches(it.process)).count()
            };
            CounterFile {
                path: file.path.clone(),
                layout: file.layout,
                bytes: rustix::fs::fstat(&file.fd).map_or(0, |it| (it.st_blocks as u64).saturating_mul(512)),
                alive: count(|process| matches!(process, EntryProcess::Alive { .. })),
                exited: count(|process| process == EntryProcess::Exited),
                unknown: count(|process| process == EntryProcess::Unknown),
            }
        })
    }

    /// Files that are not read, with the reason.
    pub(crate) fn skipped(&self) -> impl Iterator<Item = &Skipped> {
        self.skipped.iter().chain(&self.unreadable).take(MAX_SKIPPED)
    }

    /// Forgets the chip of each file, since chips have changed: the next poll finds and emits it again.
    pub(crate) fn forget_chips(&mut self) {
        for file in self.files.values_mut() {
            (file.chip, file.bytes) = (None, Vec::new());
        }
    }

    /// Forgets a process that has exited: the next poll finds the process of its entries again.
    pub(crate) fn forget_process(&mut self, process: ProcessId) {
        self.watches.remove(&process.pid);
    }

    /// Reads all files and emits what changed.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>, sink: &mut impl EventSink) {
        if context.rescanned {
            self.open_all(context);
        }
        let mut watches = std::mem::take(&mut self.watches);
        let (folders, bus) = (context.folders, context.bus);
        let (identities, registered, emitted, named_chips) = Default::default();
        let mut poll = Poll {
            context,
            sink,
            watches: &mut watches,
            has_checked_exits: false,
            identities,
            registered,
            emitted,
            waits_left: MAX_WAITS,
            named_chips,
        };
        let mut reports = Vec::new();
        self.unreadable.clear();
        // Files that are named for a chip on the bus come first: the others belong to other chips.
        let mut files: Vec<&mut OpenFile> = self.files.values_mut().collect();
        files.sort_by_cached_key(|file| bus.find(file.unique_id).is_none());
        for file in files {
            let Some(folder) = folders.iter().find(|folder| folder.id == file.folder) else { continue };
            match file.poll(folder, &mut poll) {
                Ok(()) => {
                    let named = bus.find(file.unique_id).filter(|_| !file.alive.is_empty());
                    poll.named_chips.extend(named.map(|chip| chip.id));
                    reports.extend(file.report.clone());
                }
                Err(Unreadable { reason, is_finding }) => {
                    reports.extend(is_finding.then(|| file.unreadable_report(&reason)));
                    self.unreadable.push(Skipped { path: file.path.display().to_string(), reason });
                }
            }
        }
        let emitted = poll.emitted;
        for &(process, chip) in self.emitted.difference(&emitted) {
            sink.emit(process, Basis::Counters, Input::Levels(chip, Vec::new()));
        }
        self.emitted = emitted;
        let used: BTreeSet<u32> =
            self.files.values().flat_map(|file| file.alive.iter().map(|process| process.pid)).collect();
        watches.retain(|pid, _| used.contains(pid));
        self.watches = watches;
        if reports != self.reports {
            self.reports.clone_from(&reports);
            sink.emit_machine(Input::Counters(reports));
        }
    }

    /// Opens new files and closes removed ones.
    fn open_all(&mut self, context: &mut Context<'_>) {
        self.skipped.clear();
        let mut seen = BTreeSet::new();
        for (folder, listing) in context.listings.of(context.folders) {
            for ListedFile { name, inode } in &listing.counters {
                let Some(unique_id) = region::parse_name(name) else { continue };
                let known = (folder.id.0, *inode);
                if self.files.contains_key(&known) {
                    seen.insert(known);
                    continue;
                }
                let path = folder.path.join(name);
                match self.open(folder, name, unique_id, &path) {
                    Ok(id) => seen.extend(id),
                    Err(why) => {
                        let remedy = permission_remedy(folder, name, &why, context.processes);
                        self.skip(&path, remedy.unwrap_or_else(|| why.to_string()));
                    }
                }
            }
        }
        self.files.retain(|id, _| seen.contains(id));
    }

    fn skip(&mut self, path: &Path, reason: String) {
        if self.skipped.len() < MAX_SKIPPED {
            self.skipped.push(Skipped { path: path.display().to_string(), reason });
        }
    }

    /// Opens a file, unless it is open. `None`: it was removed meanwhile.
    fn open(
        &mut self,
        folder: &ShmFolder,
        name: &str,
        unique_id: u64,
        path: &Path,
    ) -> Result<Option<FileId>, SkipReason> {
        let (handle, stat) = match find_file(folder.fd.as_fd(), name) {
            Err(SkipReason::Io(e)) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        let id = file_id(&stat);
        if self.files.contains_key(&id) {
            return Ok(Some(id));
        }
        require_regular_file(&stat)?;
        if folder.require_memory && !is_in_memory(handle.as_fd()) {
            return Err(SkipReason::NotInMemory);
        }
        let fd = open_found(&handle)?;
        self.files.insert(id, OpenFile::new(fd, path.to_owned(), folder.id, unique_id, stat.st_uid));
        Ok(Some(id))
    }
}

/// What to do about a file that only another user may read.
fn permission_remedy(
    folder: &ShmFolder,
    name: &str,
    why: &SkipReason,
    processes: &mut Processes,
) -> Option<String> {
    let SkipReason::Io(e) = why else { return None };
    if e.kind() != std::io::ErrorKind::PermissionDenied {
        return None;
    }
    let (_, stat) = find_file(folder.fd.as_fd(), name).ok()?;
    let user = processes.user_name(stat.st_uid);
    Some(format!(
        "belongs to {user} and is readable only by that user: run ttmem as {user} or root, or run `ttmem serve` as root"
    ))
}
