//! Recent events: process start and exit, devices, thresholds, findings. Single allocations are not events.
//!
//! A repetition only increases a count, and the most frequent kind is dropped first: a flood of one kind pushes no other kind
//! out.

use crate::analysis::{Clock, describe_fault};
use crate::faults::{Subject, Tally};
use crate::input::Process;
use crate::label::Label;
use crate::snapshot::{Event, EventKind, FailureKind, Severity};
use crate::state::visible;
use crate::viewer::{Access, Viewer};
use crate::words::{ChipId, Mono, ProcessId, size};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// Events that are kept.
const ROOM: usize = 256;
/// An equal event within this time is a repetition.
const REPEATS_NS: u64 = 60 * Mono::SECOND;
/// Equal events of several devices within this time are one event.
const TOGETHER_NS: u64 = Mono::SECOND;

/// Chips by the index that they had then.
type Chips = BTreeMap<u32, ChipId>;

#[derive(Serialize, Deserialize)]
struct Entry {
    sequence: u64,
    at: Mono,
    kind: EventKind,
    severity: Severity,
    process: Option<ProcessId>,
    chips: Chips,
    bytes: Option<u64>,
    text: Text,
    count: u64,
}

#[derive(Serialize, Deserialize)]
enum Text {
    /// What a process did: label, verb phrase, and details of the last time.
    OfProcess {
        who: Label,
        what: String,
        rest: String,
    },
    /// What happened to devices.
    OfDevices(String),
    Fault(Subject, Tally, Label),
}

impl Entry {
    fn new(at: Mono, kind: EventKind, text: Text) -> Self {
        let (severity, chips) = (Severity::Info, Chips::new());
        Self { sequence: 0, at, kind, severity, process: None, chips, bytes: None, text, count: 1 }
    }

    /// Whether a new event is a repetition of this one.
    fn is_repeated_by(&self, new: &Self) -> bool {
        let age = new.at.since(self.at);
        if self.kind != new.kind || self.process != new.process || age > REPEATS_NS {
            return false;
        }
        match (&self.text, &new.text) {
            (Text::OfProcess { what, .. }, Text::OfProcess { what: new_what, .. }) => {
                what == new_what && self.chips == new.chips
            }
            (Text::OfDevices(what), Text::OfDevices(new_what)) => {
                what == new_what && (self.chips == new.chips || age <= TOGETHER_NS)
            }
            (Text::Fault(subject, ..), Text::Fault(new_subject, ..)) => subject == new_subject,
            _ => false,
        }
    }

    /// Takes over the counts of an old event that this one repeats.
    fn replace(&mut self, old: Self) {
        if self.chips == old.chips {
            self.count = self.count.saturating_add(old.count);
        } else {
            self.chips.extend(old.chips);
            (self.count, self.bytes) = (old.count, None);
        }
        if let (Text::Fault(_, tally, _), Text::Fault(_, before, _)) = (&mut self.text, &old.text) {
            tally.first = before.first;
            tally.count = tally.count.saturating_add(before.count);
            // For requests that failed, the last one counts.
            if tally.failure.is_none() {
                tally.bytes = tally.bytes.saturating_add(before.bytes);
            }
        }
    }

    fn describe(&self, clock: Clock, viewer: Viewer) -> Event {
        let times = if self.count > 1 { format!(" x{}", self.count) } else { String::new() };
        let mut severity = self.severity;
        let owner = match &self.text {
            Text::OfProcess { who: label, .. } | Text::Fault(_, _, label) => Some(label.owner),
            Text::OfDevices(_) => None,
        };
        let access = owner.map_or(Access::Everything, |owner| viewer.access(owner));
        let text = match &self.text {
            Text::OfProcess { who, what, rest } => {
                let who = match access {
                    Access::Everything | Access::NoArguments => who.to_string(),
                    Access::Sums => who.without_command().to_string(),
                    Access::Anonymous => "a process of another user".to_owned(),
                };
                match (times.is_empty(), rest.is_empty()) {
                    (true, _) => format!("{who} {what}{rest}"),
                    (false, true) => format!("{who} {what}{times}"),
                    (false, false) => format!("{who} {what}{times}, last{rest}"),
                }
            }
            Text::OfDevices(what) => format!("{}{what}{times}", devices(&self.chips)),
            Text::Fault(subject, tally, label) => {
                let device = self.chips.keys().next().copied();
                let finding =
                    viewer.show(label.owner, describe_fault(subject, tally, Some(label), device, clock));
                severity = finding.severity;
                finding.text
            }
        };
        let device = match self.chips.values().next() {
            Some(chip) if self.chips.len() == 1 => Some(chip.to_string()),
            _ => None,
        };
        Event {
            sequence: self.sequence,
            at: clock.wall(self.at),
            kind: self.kind,
            severity,
            pid: self.process.and_then(visible).filter(|_| access != Access::Anonymous),
            hidden: access >= Access::Sums,
            device,
            bytes: self.bytes,
            text,
        }
    }
}

/// `device 0`, `devices 0-3, 7`.
fn devices(chips: &Chips) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &index in chips.keys() {
        match ranges.last_mut() {
            Some((_, to)) if *to + 1 == index => *to = index,
            _ => ranges.push((index, index)),
        }
    }
    let listed =
        ranges.iter().map(|&(from, to)| if from == to { from.to_string() } else { format!("{from}-{to}") });
    let listed = listed.collect::<Vec<_>>().join(", ");
    format!("device{} {listed}", if chips.len() == 1 { "" } else { "s" })
}

/// How full a space of a device is: the number of thresholds reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "usize")]
pub(crate) struct Level(usize);

/// Thresholds in percent. A threshold is reported again only after use fell [`SLACK`] percent below it.
const LEVELS: [u64; 2] = [75, 90];
const SLACK: u64 = 5;

impl From<usize> for Level {
    fn from(reached: usize) -> Self {
        Self(reached.min(LEVELS.len()))
    }
}

impl Level {
    /// The level for this use.
    fn of(self, used: u64, capacity: u64) -> Self {
        if capacity == 0 {
            return self;
        }
        let above = |percent: u64| u128::from(used) * 100 >= u128::from(capacity) * u128::from(percent);
        let holds = |(n, &percent): (usize, &u64)| above(if n < self.0 { percent - SLACK } else { percent });
        Self(LEVELS.iter().enumerate().take_while(|&it| holds(it)).count())
    }
}

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct EventLog {
    entries: VecDeque<Entry>,
    count: u64,
}

impl EventLog {
    fn push(&mut self, mut new: Entry) {
        let again = self.entries.iter().rposition(|old| old.is_repeated_by(&new));
        if let Some(old) = again.and_then(|at| self.entries.remove(at)) {
            new.replace(old);
        } else if self.entries.len() >= ROOM {
            self.make_room();
        }
        self.count += 1;
        new.sequence = self.count;
        self.entries.push_back(new);
    }

    /// Drops the oldest event of the most frequent kind.
    fn make_room(&mut self) {
        let mut counts: BTreeMap<EventKind, usize> = BTreeMap::new();
        for entry in &self.entries {
            *counts.entry(entry.kind).or_default() += 1;
        }
        let most = counts.into_iter().min_by_key(|&(_, count)| Reverse(count));
        let oldest = most.and_then(|(kind, _)| self.entries.iter().position(|entry| entry.kind == kind));
        if let Some(at) = oldest {
            self.entries.remove(at);
        }
    }

    fn of_process(
        &mut self,
        now: Mono,
        kind: EventKind,
        process: (ProcessId, &Process),
        what: String,
    ) -> ProcessEvent<'_> {
        let who = Label::new(process.0, process.1);
        let text = Text::OfProcess { who, what, rest: String::new() };
        ProcessEvent { to: self, entry: Entry { process: Some(process.0), ..Entry::new(now, kind, text) } }
    }

    pub(crate) fn process_started(&mut self, now: Mono, id: ProcessId, info: &Process) {
        self.of_process(now, EventKind::ProcessStarted, (id, info), "started".to_owned()).log();
    }

    pub(crate) fn process_exited(
        &mut self,
        now: Mono,
        id: ProcessId,
        info: &Process,
        count: u64,
        bytes: u64,
    ) {
        let rest = match count {
            0 => String::new(),
            1 => format!(" with {} in 1 allocation still allocated", size(bytes)),
            _ => format!(" with {} in {count} allocations still allocated", size(bytes)),
        };
        self.of_process(now, EventKind::ProcessExited, (id, info), "exited".to_owned())
            .with(Some(bytes), rest)
            .log();
    }

    pub(crate) fn allocator_opened(&mut self, now: Mono, id: ProcessId, info: &Process, chips: Chips) {
        let what = format!("opened {}", mesh(&chips));
        self.of_process(now, EventKind::AllocatorOpened, (id, info), what).on(chips).log();
    }

    /// An allocator was closed while `held` bytes were allocated.
    pub(crate) fn allocator_closed(
        &mut self,
        now: Mono,
        id: ProcessId,
        info: &Process,
        chips: Chips,
        held: u64,
    ) {
        let what = format!("closed {}", mesh(&chips));
        let rest = if held > 0 { format!(" with {} still allocated", size(held)) } else { String::new() };
        self.of_process(now, EventKind::AllocatorClosed, (id, info), what)
            .on(chips)
            .with(Some(held), rest)
            .log();
    }

    pub(crate) fn trace_captured(&mut self, now: Mono, id: ProcessId, info: &Process, dispatches: u64) {
        let what = "captured a trace".to_owned();
        let rest = format!(" of {dispatches} dispatch{}", if dispatches == 1 { "" } else { "es" });
        self.of_process(now, EventKind::TraceCaptured, (id, info), what).with(None, rest).log();
    }

    pub(crate) fn trace_released(&mut self, now: Mono, id: ProcessId, info: &Process) {
        self.of_process(now, EventKind::TraceReleased, (id, info), "released a trace".to_owned()).log();
    }

    pub(crate) fn device_added(&mut self, now: Mono, index: u32, id: ChipId) {
        let text = Text::OfDevices(" added".to_owned());
        self.push(Entry { chips: [(index, id)].into(), ..Entry::new(now, EventKind::DeviceAdded, text) });
    }

    pub(crate) fn device_removed(&mut self, now: Mono, index: u32, id: ChipId) {
        let text = Text::OfDevices(" removed".to_owned());
        let severity = Severity::Warning;
        self.push(Entry {
            severity,
            chips: [(index, id)].into(),
            ..Entry::new(now, EventKind::DeviceRemoved, text)
        });
    }

    /// Reports a threshold that the use of a space crossed. Returns the new level.
    pub(crate) fn usage_changed(
        &mut self,
        now: Mono,
        (index, id): (u32, ChipId),
        space: &str,
        before: Level,
        (used, capacity): (u64, u64),
    ) -> Level {
        let level = before.of(used, capacity);
        if level == before {
            return before;
        }
        let rises = level.0 > before.0;
        let percent = LEVELS[if rises { level.0 - 1 } else { level.0 }];
        let does = if rises { "rose above" } else { "fell below" };
        let text = Text::OfDevices(format!(": {space} {does} {percent} %"));
        let high = rises && level.0 == LEVELS.len();
        self.push(Entry {
            severity: if high { Severity::Warning } else { Severity::Info },
            chips: [(index, id)].into(),
            bytes: Some(used),
            ..Entry::new(now, EventKind::UsageThreshold, text)
        });
        level
    }

    pub(crate) fn fault(
        &mut self,
        now: Mono,
        subject: Subject,
        label: Label,
        index: Option<u32>,
        tally: Tally,
    ) {
        let bytes = Some(tally.bytes).filter(|&bytes| bytes > 0);
        self.push(Entry {
            process: subject.process,
            chips: index.zip(subject.chip).into_iter().collect(),
            bytes,
            ..Entry::new(now, EventKind::Finding, Text::Fault(subject, tally, label))
        });
    }

    /// Allocations failed, of which the tally has the last one.
    pub(crate) fn failed(&mut self, subject: Subject, label: Label, chips: Chips, tally: Tally) {
        let is_memory = subject.failure == Some(FailureKind::OutOfMemory);
        let kind = if is_memory { EventKind::OutOfMemory } else { EventKind::Failed };
        self.push(Entry {
            process: subject.process,
            chips,
            bytes: Some(tally.bytes),
            ..Entry::new(tally.last, kind, Text::Fault(subject, tally, label))
        });
    }

    /// All of them, oldest first.
    pub(crate) fn list(&self, clock: Clock, viewer: Viewer) -> Vec<Event> {
        self.entries.iter().map(|entry| entry.describe(clock, viewer)).collect()
    }
}

fn mesh(chips: &Chips) -> String {
    match chips.len() {
        0 => "no device".to_owned(),
        1 => devices(chips),
        many => format!("a mesh of {many} devices"),
    }
}

/// An event of a process, under construction.
struct ProcessEvent<'a> {
    to: &'a mut EventLog,
    entry: Entry,
}

impl ProcessEvent<'_> {
    fn on(mut self, chips: Chips) -> Self {
        self.entry.chips = chips;
        self
    }

    fn with(mut self, bytes: Option<u64>, text: String) -> Self {
        self.entry.bytes = bytes;
        if let Text::OfProcess { rest, .. } = &mut self.entry.text {
            *rest = text;
        }
        self
    }

    fn log(self) {
        self.to.push(self.entry);
    }
}
