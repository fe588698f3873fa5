//! Lifecycle of the segment: it is created, created again, inherited by a forked child, and removed.

use super::{Slots, Writer};
use crate::identity;
use crate::legacy::Legacy;
use crate::publish::{self, Ordering};
use crate::segment::{Line, Problem, Segment};
use crate::slot_index::SlotIndex;
use crate::text::Text;
use crate::types::Status;
use rustix::time::ClockId;
use ttmem_types::Fault;
use ttmem_types::limits::REMEMBERED_FREES;
use ttmem_wire::record::{Space, WORDS};
use ttmem_wire::segment::{MAX_SLOTS, state, word};

impl Writer {
    /// Starts again in a forked child, without allocations but with the parent's definitions.
    pub(crate) fn start_in_child(&mut self) {
        // The parent's segment is mapped here, too, and must not be written.
        self.inherited = self.segment.take().or_else(|| self.inherited.take());
        self.forked = true;
        self.sequence = 0;
        self.changes = 0;
        self.recent_frees = [0; REMEMBERED_FREES];
        self.faults = [0; Fault::COUNTED];
        self.saved = super::failures::Saved::default();
        self.lost_before = 0;
        self.may_grow = true;
        self.is_damaged = false;
        self.problem = None;
        // Another thread may have been replacing these at the time of the fork, so they may point to memory that is not ours any more.
        // None of it is released.
        core::mem::forget(self.overflow.take());
        self.rows_used = 0;
        self.vacant_rows = 0;
        for allocator in self.allocators.iter_mut().take(usize::from(self.allocators_used) + 1) {
            allocator.rows = [0; Space::NUMBERS];
        }
        // If there is no memory for new ones, the old ones are used: their entries match no slot of the new segment.
        if let (Some(index), Some(slots)) = (SlotIndex::new(), Slots::new(MAX_SLOTS)) {
            core::mem::forget(core::mem::replace(&mut self.index, index));
            core::mem::forget(core::mem::replace(&mut self.slots, slots));
        }
        if let Some(path) = &self.settings.legacy {
            self.legacy = Legacy::new(*path);
            self.has_legacy = self.legacy.is_some();
        }
    }

    #[cold]
    pub(super) fn create_segment(&mut self) {
        let header = self.settings.make_header();
        let (mut created, mut problem) = (None, None);
        if self.legacy.is_none() {
            (created, problem) = self.settings.create_segment(&header);
        }
        self.problem = problem;
        self.segment = created.or_else(|| Segment::create_private(&header));
        if let (Some(segment), Some(from)) = (&self.segment, self.inherited.take()) {
            self.blocks_used = copy_blocks(&from, segment, self.blocks_used);
            core::mem::forget(from);
        }
        self.publish_problem();
        self.publish_hooks();
        if let Some(segment) = &self.segment {
            segment.make_visible();
        }
    }

    pub(crate) fn set_hooks(&mut self, hooks: [u64; 2]) {
        self.settings.hooks = hooks;
        self.publish_hooks();
    }

    fn publish_hooks(&self) {
        let Some(segment) = &self.segment else { return };
        for (word, value) in [word::HOOKS_TAKEN, word::HOOKS_WANTED].into_iter().zip(self.settings.hooks) {
            segment.word(word).store(value, Ordering::Relaxed);
        }
    }

    /// Returns whether the segment's time of modification has changed since the last call.
    pub(crate) fn take_audit_request(&mut self) -> bool {
        let Some(now) = self.segment.as_ref().and_then(Segment::modified) else { return false };
        let before = core::mem::replace(&mut self.last_modified, now);
        before != 0 && before != now
    }

    pub(crate) fn set_cost(&self, ns: u64) {
        if let Some(segment) = &self.segment {
            segment.word(word::COST_NS).store(ns, Ordering::Relaxed);
        }
    }

    /// Creates a new segment in a file, and copies the private or removed one into it.
    fn recreate_segment(&mut self) {
        let header = self.settings.make_header();
        let (created, problem) = self.settings.create_segment(&header);
        self.problem = problem.or(self.problem.filter(|_| created.is_none()));
        let Some(mut new) = created else { return };
        let Some(old) = self.segment.take() else { return };
        while new.slots() < self.slots.fresh {
            if let Err(problem) = new.grow() {
                self.problem = Some(problem);
                new.unlink(self.settings.folder.as_str());
                self.segment = Some(old);
                return;
            }
        }
        self.blocks_used = copy_blocks(&old, &new, self.blocks_used);
        let copy = |from: Option<&Line>, to: Option<&Line>| {
            if let (Some(from), Some(to)) = (from, to) {
                let words: [u64; WORDS] = core::array::from_fn(|n| from[n].load(Ordering::Relaxed));
                publish::put(to, &words);
            }
        };
        for slot in 0..self.slots.fresh {
            copy(old.slot(slot), new.slot(slot));
        }
        for row in 0..self.rows_used.min(new.plan().rows) {
            copy(old.row(row, 0), new.row(row, 0));
            copy(old.row(row, 1), new.row(row, 1));
        }
        new.word(word::ROWS_USED).store(u64::from(self.rows_used), Ordering::Relaxed);
        // Readers know the counts of the old segment.
        self.lost_before += self.faults[Fault::Lost.index()];
        self.faults = [0; Fault::COUNTED];
        // The records of the ring are not copied.
        new.word(word::BEGUN).store(self.sequence, Ordering::Relaxed);
        new.word(word::APPLIED).store(self.sequence, Ordering::Relaxed);
        let cost = old.word(word::COST_NS).load(Ordering::Relaxed);
        new.word(word::COST_NS).store(cost, Ordering::Relaxed);
        new.make_visible();
        self.segment = Some(new);
        self.publish_hooks();
        self.publish_problem();
    }

    /// Writes the current problem to the segment and to the log.
    pub(super) fn publish_problem(&self) {
        let (Some(segment), Some(problem)) = (&self.segment, &self.problem) else { return };
        let reason = describe(problem);
        let mut words = [0u64; 16];
        let bytes = zerocopy::IntoBytes::as_mut_bytes(&mut words[..]);
        ttmem_wire::segment::set_text(bytes, reason.as_str());
        for (n, &value) in words.iter().enumerate() {
            segment.word(word::REASON + n * 8).store(value, Ordering::Relaxed);
        }
        crate::log::write(reason.as_str());
    }

    /// Returns the folder whose use has to be measured before [`Writer::refresh`], since the table has grown.
    pub(crate) fn folder_to_measure(&self) -> Option<Text<200>> {
        self.segment.as_ref().filter(|segment| segment.has_grown()).map(|_| self.settings.folder)
    }

    /// Finds out whether another program changed the segment's file.
    pub(crate) fn check_segment(&mut self) {
        if self.is_damaged {
            return;
        }
        self.problem = match self.segment.as_ref().and_then(Segment::find_damage) {
            None => return,
            problem => problem,
        };
        self.is_damaged = true;
        self.publish_problem();
        // What was in it is lost.
        self.count_lost(1);
    }

    /// Retries what failed before, and updates the heartbeat. `growth`: by how many bytes the file may grow, if that was measured.
    pub(crate) fn refresh(&mut self, growth: Option<u64>) {
        self.may_grow = true;
        if let (Some(segment), Some(growth)) = (&mut self.segment, growth) {
            segment.set_growth(growth);
        }
        self.check_segment();
        let folder = self.settings.folder;
        let unlinked = self.segment.as_ref().is_some_and(|segment| !segment.is_linked(folder.as_str()));
        if unlinked && self.legacy.is_none() && !self.is_damaged {
            self.recreate_segment();
        }
        if let Some(segment) = self.segment() {
            segment.word(word::HEARTBEAT_NS).store(identity::now(ClockId::Monotonic), Ordering::Relaxed);
        }
        if self.legacy.is_some() {
            self.send_queued();
        }
    }

    /// Ends tracking while the process continues.
    pub(crate) fn close(&mut self) {
        self.free_all_at_server();
        self.leave_segment(state::CLOSED);
        self.segment = None;
    }

    /// Ends tracking because the process exits. The segment stays mapped and locked until then, so that readers that have it open
    /// read what the process had allocated.
    pub(crate) fn end(&mut self) {
        self.leave_segment(state::EXITED);
    }

    /// Removes the segment, unless it holds a failure: then it stays as a crash segment. `ttmem run` removes those of its processes.
    fn leave_segment(&self, state: u64) {
        let Some(segment) = &self.segment else { return };
        segment.word(word::STATE).store(state, Ordering::Release);
        let folder = self.settings.folder.as_str();
        if self.saved.failures() > 0 {
            return;
        }
        if identity::is_followed(folder, self.settings.run) {
            segment.remove_from_index(folder);
        } else {
            segment.unlink(folder);
        }
    }

    /// Reports to an old server that everything is free, as far as it accepts messages now.
    fn free_all_at_server(&mut self) {
        let Some(legacy) = &mut self.legacy else { return };
        legacy.all_freed();
        loop {
            let before = self.legacy.as_ref().map_or(0, Legacy::queued);
            self.send_queued();
            let left = self.legacy.as_ref().map_or(0, Legacy::queued);
            if left == 0 || left >= before {
                return;
            }
        }
    }

    pub(crate) fn status(&mut self) -> Status {
        self.check_segment();
        let unlisted = self.rows.iter().take(self.rows_used as usize).map(|row| row.unlisted).sum();
        Status {
            on: true,
            segment: self.segment.as_ref().and_then(Segment::name).map(str::to_owned),
            reason: self.problem.as_ref().map(|problem| describe(problem).as_str().to_owned()),
            live: self.rows.iter().take(self.rows_used as usize).map(|row| row.count).sum(),
            unlisted,
            lost: self.lost_before + self.faults[Fault::Lost.index()],
            queued: self.legacy.as_ref().map_or(0, Legacy::queued),
        }
    }
}

fn copy_blocks(from: &Segment, to: &Segment, used: u32) -> u32 {
    let used = used.min(to.plan().definition_blocks);
    for block in 0..used as usize {
        if let (Some(from), Some(to)) = (from.block(block), to.block(block)) {
            for (from, to) in from.iter().zip(to) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }
    to.word(word::BLOCKS_USED).store(u64::from(used), Ordering::Release);
    used
}

fn describe(problem: &Problem) -> Text<128> {
    let mut text = Text::new();
    match problem.errno {
        Some(errno) => text.push(format_args!("{}: {errno}", problem.text)),
        None => text.push(format_args!("{}", problem.text)),
    }
    text
}
