//! Who receives an answer, and what of other users' processes is withheld from it.
//!
//! Figures and caches are the same for all. A [`Viewer`] decides for each process by its owner, and what it may not know is taken out
//! of the value that is sent: lists leave out the process, or have one sum for it; other rows lose their names. Each type is taken
//! apart in full here, so that a new field does not compile before it is decided who may see it.

use crate::input::Process as Info;
use crate::label::program_and_script;
use crate::snapshot::{
    AllocatorUsage, BlockMap, BufferGroup, CorePeak, CoreProgram, Finding, FlamePool, FullestCore,
    HiddenMemory, Holder, MemoryEvent, MemoryEventKind, Origin, Process, ProcessReport, SiteUsage,
    SpaceReport,
};
use crate::words::size;
use std::borrow::Cow;

/// What a viewer may know of a process, most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Everything.
    Everything,
    /// Everything but the arguments of its command line.
    NoArguments,
    /// Pid, user, name and sums.
    Sums,
    /// Sums without pid, user and name: this machine hides processes from other users.
    Anonymous,
}

/// Who receives an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Viewer {
    /// Its user; `None`: it may know everything.
    user: Option<u32>,
    /// What it may know of other users' processes.
    others: Access,
}

impl Viewer {
    /// A viewer that may know everything, such as root, or a program that reads the machine itself.
    pub const ALL: Self = Self { user: None, others: Access::Everything };

    /// A user, and what it may know of other users' processes.
    pub fn user(uid: u32, others: Access) -> Self {
        Self { user: Some(uid), others }
    }

    /// What this viewer may know of a process of this owner. A process whose owner is unknown is another user's.
    pub fn access(&self, owner: Option<u32>) -> Access {
        match self.user {
            Some(uid) if owner != Some(uid) => self.others,
            _ => Access::Everything,
        }
    }

    /// Whether names, call sites, buffers and programs of a process of this owner are withheld.
    pub fn hides(&self, owner: Option<u32>) -> bool {
        self.access(owner) >= Access::Sums
    }

    /// Whether pids of processes that may be other users' are withheld.
    pub fn hides_pids(&self) -> bool {
        self.access(None) == Access::Anonymous
    }

    /// An event of memory, as far as this viewer may see it; `None`: not at all, since it is about a single buffer or program of
    /// another user.
    pub fn event<'e>(&self, event: &'e MemoryEvent) -> Option<Cow<'e, MemoryEvent>> {
        use MemoryEventKind::{AllocatorClosed, AllocatorOpened, ProcessExited};
        match self.access(event.owner) {
            Access::Everything | Access::NoArguments => Some(Cow::Borrowed(event)),
            Access::Sums if matches!(event.kind, AllocatorOpened | AllocatorClosed | ProcessExited) => {
                let mut event = event.clone();
                event.redact(Access::Sums);
                Some(Cow::Owned(event))
            }
            Access::Sums | Access::Anonymous => None,
        }
    }

    /// A row about a process of this owner, as far as this viewer may see it.
    pub(crate) fn show<T: Redact>(&self, owner: Option<u32>, mut row: T) -> T {
        let access = self.access(owner);
        if access != Access::Everything {
            row.redact(access);
        }
        row
    }
}

/// A row of an answer about one process.
pub(crate) trait Redact {
    /// Takes out what this access does not include.
    fn redact(&mut self, access: Access);
}

/// Takes out the values of these fields.
macro_rules! clear {
    ($($field:ident),* $(,)?) => { $(*$field = Default::default();)* };
}

impl Redact for Process {
    fn redact(&mut self, access: Access) {
        let Self {
            pid,
            reported_pid,
            start,
            name,
            command,
            user,
            uid,
            container,
            pod,
            hidden,
            open_devices: _,
            tracking: _,
            basis: _,
            complete: _,
            sequence: _,
            tracker: _,
            summary: _,
            usage: _,
            allocators,
            audit: _,
            traces,
            last_mark,
            programs,
            host: _,
        } = self;
        *command = command.take().and_then(|it| program_and_script(name.as_deref(), Some(&it)));
        if access < Access::Sums {
            return;
        }
        *hidden = true;
        clear!(command, traces, last_mark, programs);
        for AllocatorUsage { id: _, devices: _, spaces } in allocators {
            for space in spaces {
                space.largest_free_block_addrs.clear();
            }
        }
        if access == Access::Anonymous {
            clear!(pid, reported_pid, start, name, user, uid, container, pod);
        }
    }
}

impl Redact for Finding {
    fn redact(&mut self, access: Access) {
        let Self {
            kind,
            severity: _,
            device: _,
            pid,
            process_name,
            command,
            hidden,
            space,
            bytes,
            count,
            first: _,
            last: _,
            failure,
            text,
        } = self;
        *command = command.take().and_then(|it| program_and_script(process_name.as_deref(), Some(&it)));
        if access < Access::Sums {
            return;
        }
        *hidden = true;
        clear!(command, failure);
        if access == Access::Anonymous {
            clear!(pid, process_name);
        }
        let title = program_and_script(process_name.as_deref(), None);
        *text = match (*pid, title) {
            (Some(pid), Some(name)) => format!("pid {pid} ({name})"),
            (Some(pid), None) => format!("pid {pid}"),
            (None, _) => "a process of another user".to_owned(),
        };
        text.push_str(": ");
        text.push_str(&words_of(kind));
        let sum = bytes.map(size).into_iter().chain(space.map(|it| it.title().to_owned()));
        let sum = sum.collect::<Vec<_>>().join(" of ");
        let times = if *count > 1 { format!("x{count}") } else { String::new() };
        for part in [sum, times].iter().filter(|part| !part.is_empty()) {
            text.push_str(", ");
            text.push_str(part);
        }
        text.push_str("; details are withheld from other users");
    }
}

/// The name of a variant as words: `out of memory` of `OutOfMemory`.
fn words_of(kind: &impl std::fmt::Debug) -> String {
    let mut words = String::new();
    for letter in format!("{kind:?}").chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

impl Redact for MemoryEvent {
    /// Only for events of a process or allocator: others are not shown at all.
    fn redact(&mut self, access: Access) {
        if access < Access::Sums {
            return;
        }
        *self = Self {
            pid: self.pid,
            reported_pid: self.reported_pid,
            process_name: self.process_name.take(),
            indexes: std::mem::take(&mut self.indexes),
            allocator: self.allocator,
            sequence: self.sequence,
            released: self.released.take(),
            hidden: true,
            owner: self.owner,
            ..Self::new(self.at, self.kind, self.basis)
        };
    }
}

impl Redact for BufferGroup {
    /// The group of a whole process: it has no names but that of the process.
    fn redact(&mut self, access: Access) {
        let Self {
            pid,
            process_name,
            hidden,
            space: _,
            program,
            program_name,
            site,
            site_name,
            label,
            count: _,
            requested_bytes: _,
            used_bytes: _,
        } = self;
        if access < Access::Sums {
            return;
        }
        *hidden = true;
        clear!(program, program_name, site, site_name, label);
        if access == Access::Anonymous {
            clear!(pid, process_name);
        }
    }
}

impl Redact for CoreProgram {
    fn redact(&mut self, access: Access) {
        let Self { pid, hidden, allocator: _, id: _, name } = self;
        if access < Access::Sums {
            return;
        }
        *hidden = true;
        clear!(name);
        if access == Access::Anonymous {
            clear!(pid);
        }
    }
}

impl Redact for CorePeak {
    fn redact(&mut self, access: Access) {
        let Self { bytes: _, buffer_bytes: _, at: _, pid, hidden, program, program_name } = self;
        if access < Access::Sums {
            return;
        }
        *hidden = true;
        clear!(program, program_name);
        if access == Access::Anonymous {
            clear!(pid);
        }
    }
}

impl Redact for FullestCore {
    fn redact(&mut self, access: Access) {
        let Self {
            index: _,
            bytes: _,
            allocatable_bytes: _,
            buffer_bytes: _,
            at: _,
            pid,
            hidden,
            program_name,
        } = self;
        if access < Access::Sums {
            return;
        }
        *hidden = true;
        clear!(program_name);
        if access == Access::Anonymous {
            clear!(pid);
        }
    }
}

impl Redact for Holder {
    fn redact(&mut self, access: Access) {
        let Self { pid, name, bytes: _ } = self;
        if access == Access::Anonymous {
            clear!(pid, name);
        }
    }
}

impl Redact for BlockMap {
    /// A map without blocks and names: its blocks are not made for a viewer that may not see them.
    fn redact(&mut self, access: Access) {
        if access < Access::Sums {
            return;
        }
        self.hidden = true;
        self.unknown = Some("withheld: the process is another user's".to_owned());
        self.blocks.clear();
        self.largest_free_block_addrs.clear();
        if access == Access::Anonymous {
            (self.pid, self.reported_pid, self.process_name) = (None, None, None);
        }
    }
}

impl Redact for SiteUsage {
    /// The usage of a whole process in one space.
    fn redact(&mut self, access: Access) {
        let Self {
            pid,
            reported_pid,
            hidden,
            indexes: _,
            space: _,
            site_name,
            origin,
            count: _,
            requested_bytes: _,
            used_bytes: _,
            peak_count: _,
            peak_bytes: _,
        } = self;
        if access < Access::Sums {
            return;
        }
        *hidden = true;
        clear!(site_name, origin);
        if access == Access::Anonymous {
            clear!(pid, reported_pid);
        }
    }
}

impl Redact for FlamePool {
    /// A pool whose stacks are one sum already.
    fn redact(&mut self, access: Access) {
        let Self {
            pid,
            reported_pid,
            process_name,
            hidden,
            indexes: _,
            space: _,
            bytes: _,
            at: _,
            gap: _,
            stacks: _,
        } = self;
        if access < Access::Sums {
            return;
        }
        *hidden = true;
        if access == Access::Anonymous {
            clear!(pid, reported_pid, process_name);
        }
    }
}

impl Redact for HiddenMemory {
    fn redact(&mut self, access: Access) {
        let Self {
            pid,
            reported_pid,
            process_name,
            user,
            indexes: _,
            space: _,
            count: _,
            requested_bytes: _,
            used_bytes: _,
        } = self;
        if access == Access::Anonymous {
            clear!(pid, reported_pid, process_name, user);
        }
    }
}

impl Redact for ProcessReport {
    fn redact(&mut self, access: Access) {
        let Self {
            pid,
            name,
            hidden,
            exited: _,
            spaces,
            leaks,
            failures: _,
            audits: _,
            audits_with_drift: _,
            exact: _,
            tracker: _,
            crash_segment,
        } = self;
        if access < Access::Sums {
            return;
        }
        *hidden = true;
        clear!(leaks, crash_segment);
        if access == Access::Anonymous {
            clear!(pid, name);
        }
        for SpaceReport { at_peak, left, .. } in spaces {
            for held in at_peak.iter_mut().flatten().chain(left) {
                (held.site_name, held.origin) = (None, Origin::default());
            }
        }
    }
}

impl Info {
    /// Whether names, call sites, buffers and programs of the process are withheld from a viewer.
    pub(crate) fn is_hidden_from(&self, viewer: &Viewer) -> bool {
        viewer.hides(self.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::FindingKind;
    use crate::words::Basis;
    use jiff::Timestamp;

    #[test]
    fn owner_decides_what_a_viewer_may_know() {
        let viewer = Viewer::user(7, Access::Sums);
        assert_eq!(viewer.access(Some(7)), Access::Everything);
        assert!(viewer.hides(Some(8)) && viewer.hides(None) && !viewer.hides_pids());
        let open = Viewer::user(7, Access::NoArguments);
        assert!(!open.hides(Some(8)) && open.access(Some(8)) == Access::NoArguments);
        assert!(Viewer::user(7, Access::Anonymous).hides_pids());
        assert_eq!(Viewer::ALL.access(None), Access::Everything);
    }

    #[test]
    fn single_events_of_others_are_not_shown() {
        let viewer = Viewer::user(7, Access::Sums);
        let event = |kind, owner| MemoryEvent {
            owner,
            pid: Some(4242),
            site_name: Some("model.py:1".to_owned()),
            id: Some("0x1000".to_owned()),
            ..MemoryEvent::new(Timestamp::UNIX_EPOCH, kind, Basis::Exact)
        };
        let mine = event(MemoryEventKind::Allocated, Some(7));
        assert!(matches!(viewer.event(&mine), Some(Cow::Borrowed(_))));
        assert_eq!(viewer.event(&event(MemoryEventKind::Allocated, Some(8))), None);
        let exit = event(MemoryEventKind::ProcessExited, Some(8));
        let shown = viewer.event(&exit).unwrap();
        assert_eq!((shown.pid, shown.hidden, &shown.site_name, &shown.id), (Some(4242), true, &None, &None));
        assert_eq!(Viewer::user(7, Access::Anonymous).event(&exit), None);
    }

    #[test]
    fn kinds_are_named_in_words() {
        assert_eq!(words_of(&FindingKind::OutOfMemory), "out of memory");
        assert_eq!(words_of(&FindingKind::Leak), "leak");
    }
}
