//! Beginnings and ends: the segment is made, made again, inherited, and taken away.

use super::{Live, Slots, Writer};
use crate::identity;
use crate::legacy::Legacy;
use crate::publish::{self, Ordering};
use crate::segment::{Line, Problem, Segment};
use crate::text::Text;
use crate::types::Status;
use rustix::time::ClockId;
use ttmem_types::Fault;
use ttmem_types::limits::REMEMBERED_FREES;
use ttmem_wire::record::{Space, WORDS};
use ttmem_wire::segment::{MAX_SLOTS, state, word};

impl Writer {
    /// This is a forked child: it holds nothing yet, but what was defined is defined here, too.
    pub(crate) fn start_over(&mut self) {
        // The parent's segment is mapped here, too, and must not be written.
        self.inherited = self.segment.take().or_else(|| self.inherited.take());
        self.forked = true;
        self.sequence = 0;
        self.changes = 0;
        self.freed = [0; REMEMBERED_FREES];
        self.faults = [0; Fault::COUNTED];
        self.lost_before = 0;
        self.may_grow = true;
        self.problem = None;
        // Another thread may have been in the middle of replacing these when the fork came: what they point to may be
        // anybody's by now. Nothing is given back that is not known to be ours.
        core::mem::forget(self.overflow.take());
        self.rows_used = 0;
        self.vacant_rows = 0;
        for allocator in self.allocators.iter_mut().take(usize::from(self.allocators_used) + 1) {
            allocator.rows = [0; Space::NUMBERS];
        }
        // If there is no memory for new books, the old ones must do: empty they are not, so nothing is found in them.
        if let (Some(live), Some(shared)) = (Live::new(), Slots::new(MAX_SLOTS)) {
            core::mem::forget(core::mem::replace(&mut self.live, live));
            core::mem::forget(core::mem::replace(&mut self.shared, shared));
        }
        if let Some(path) = &self.settings.legacy {
            self.legacy = Legacy::new(*path);
            self.tells = self.legacy.is_some();
        }
    }

    #[cold]
    pub(super) fn make_segment(&mut self) {
        let header = identity::header(self.settings.writer.as_str(), self.settings.runtime.as_str());
        let (mut made, mut problem) = (None, None);
        if self.legacy.is_none() {
            (made, problem) = Segment::publish(self.settings.folder.as_str(), self.settings.group, &header);
        }
        self.problem = problem;
        self.segment = made.or_else(|| Segment::private(&header));
        if let (Some(segment), Some(from)) = (&self.segment, self.inherited.take()) {
            self.blocks_used = copy_blocks(&from, segment, self.blocks_used);
            core::mem::forget(from);
        }
        self.note_problem();
        self.note_hooks();
        if let Some(segment) = &self.segment {
            segment.reveal();
        }
    }

    pub(crate) fn set_hooks(&mut self, hooks: [u64; 2]) {
        self.settings.hooks = hooks;
        self.note_hooks();
    }

    fn note_hooks(&self) {
        let Some(segment) = &self.segment else { return };
        for (word, value) in [word::HOOKS_TAKEN, word::HOOKS_WANTED].into_iter().zip(self.settings.hooks) {
            segment.word(word).store(value, Ordering::Relaxed);
        }
    }

    /// Whether the segment was touched since the last look.
    pub(crate) fn is_rung(&mut self) -> bool {
        let Some(now) = self.segment.as_ref().and_then(Segment::modified) else { return false };
        let before = core::mem::replace(&mut self.bell, now);
        before != 0 && before != now
    }

    pub(crate) fn set_cost(&self, ns: u64) {
        if let Some(segment) = &self.segment {
            segment.word(word::COST_NS).store(ns, Ordering::Relaxed);
        }
    }

    /// Makes a new segment that readers can see, with everything in it that is known.
    pub(super) fn publish_again(&mut self) {
        let header = identity::header(self.settings.writer.as_str(), self.settings.runtime.as_str());
        let (made, problem) = Segment::publish(self.settings.folder.as_str(), self.settings.group, &header);
        self.problem = problem.or(self.problem.filter(|_| made.is_none()));
        let Some(mut new) = made else { return };
        let Some(old) = self.segment.take() else { return };
        while new.slots() < self.shared.fresh {
            if let Err(problem) = new.grow(self.settings.folder.as_str()) {
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
        for slot in 0..self.shared.fresh {
            copy(old.slot(slot), new.slot(slot));
        }
        for row in 0..self.rows_used.min(new.plan().rows) {
            copy(old.row(row, 0), new.row(row, 0));
            copy(old.row(row, 1), new.row(row, 1));
        }
        new.word(word::ROWS_USED).store(u64::from(self.rows_used), Ordering::Relaxed);
        // Those were told of already.
        self.lost_before += self.faults[Fault::Lost.index()];
        self.faults = [0; Fault::COUNTED];
        // The records themselves stay behind.
        new.word(word::BEGUN).store(self.sequence, Ordering::Relaxed);
        new.word(word::APPLIED).store(self.sequence, Ordering::Relaxed);
        let cost = old.word(word::COST_NS).load(Ordering::Relaxed);
        new.word(word::COST_NS).store(cost, Ordering::Relaxed);
        new.reveal();
        self.segment = Some(new);
        self.note_hooks();
        self.note_problem();
    }

    pub(super) fn note_problem(&self) {
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

    // Upkeep.

    /// Makes good what could not be done before.
    pub(crate) fn refresh(&mut self) {
        self.may_grow = true;
        let gone = self.segment.as_ref().is_some_and(|it| !it.is_linked(self.settings.folder.as_str()));
        if gone && self.legacy.is_none() {
            self.publish_again();
        }
        if let Some(segment) = self.segment() {
            segment.word(word::HEARTBEAT_NS).store(identity::now(ClockId::Monotonic), Ordering::Relaxed);
        }
        if self.legacy.is_some() {
            self.pump();
        }
    }

    /// Ends tracking, though the process lives on.
    pub(crate) fn close(&mut self) {
        self.take_back();
        self.leave_segment(state::CLOSED);
        self.segment = None;
    }

    /// Ends tracking because the process exits. The segment stays mapped and locked until it has: readers that have it open
    /// read from it what the process held.
    pub(crate) fn end(&mut self) {
        self.leave_segment(state::EXITED);
    }

    /// Removes the segment, unless it holds a failure: then it stays as a crash segment.
    fn leave_segment(&self, state: u64) {
        let Some(segment) = &self.segment else { return };
        segment.word(word::STATE).store(state, Ordering::Release);
        if self.faults[Fault::OutOfMemory.index()] == 0 {
            segment.unlink(self.settings.folder.as_str());
        }
    }

    /// Tells an old server that everything is free, as far as it listens now.
    fn take_back(&mut self) {
        let Some(legacy) = &mut self.legacy else { return };
        legacy.all_went();
        loop {
            let before = self.legacy.as_ref().map_or(0, Legacy::queued);
            self.pump();
            let left = self.legacy.as_ref().map_or(0, Legacy::queued);
            if left == 0 || left >= before {
                return;
            }
        }
    }

    pub(crate) fn status(&self) -> Status {
        let unlisted = self.rows.iter().take(self.rows_used as usize).map(|row| row.unlisted).sum();
        Status {
            on: true,
            segment: self.segment.as_ref().and_then(|it| it.name()).map(str::to_owned),
            reason: self.problem.as_ref().map(|it| describe(it).as_str().to_owned()),
            live: self.rows.iter().take(self.rows_used as usize).map(|row| row.count).sum(),
            unlisted,
            lost: self.lost_before + self.faults[Fault::Lost.index()],
            queued: self.legacy.as_ref().map_or(0, Legacy::queued),
        }
    }

    /// Counts events that never got here.
    pub(crate) fn count_lost(&mut self, events: u64) {
        self.count_many(Fault::Lost, events, 0);
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
        Some(errno) => text.push(format_args!("{}: {errno}", problem.what)),
        None => text.push(format_args!("{}", problem.what)),
    }
    text
}
