//! A writer's steps, determined by a seed alone, and a simple model of what it holds after each event.

use anyhow::{Context, ensure};
use std::collections::{BTreeMap, BTreeSet};
use ttmem_client::{
    AllocatorNumber, Banks, Buffer, Chip, CoreRange, CoresNumber, Placement, Space, Statistics, Tracker,
};
use ttmem_core::snapshot::Process;
use ttmem_sources::Contents;
use ttmem_wire::record::Kind;

/// Pseudo-random numbers, the same in every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A call of the tracker. Every one succeeds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Alloc { address: u64, bytes: u64 },
    Free { address: u64 },
    Place { program: u32, address: u64, bytes: u64 },
    Dispatch { program: u32 },
    End { program: u32 },
    Audit,
}

/// A slot's contents: kind, address, program, bytes.
type Held = (u8, u64, u32, u64);

/// Most buffers held at once, so that tables are neither tiny nor huge.
const MAX_BUFFERS: u64 = 2000;
const BANKS: u64 = 12;

pub(crate) struct Script {
    random: Random,
    /// The keys of `buffers`, from which one is chosen by index.
    addresses: Vec<u64>,
    buffers: BTreeMap<u64, u64>,
    programs: BTreeMap<u32, BTreeSet<(u64, u64)>>,
    audited: bool,
    last_address: u64,
    sequence: u64,
    /// A step of two events of which the first is done.
    half_done: Option<Step>,
    defined: Option<(AllocatorNumber, CoresNumber)>,
}

impl Script {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            addresses: Vec::new(),
            buffers: BTreeMap::new(),
            programs: BTreeMap::new(),
            audited: false,
            last_address: 0,
            // Opening the allocator is an event, too.
            sequence: 1,
            half_done: None,
            defined: None,
        }
    }

    /// Events so far.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(crate) fn next_step(&mut self) -> Step {
        let bytes = (1 + self.random.below(1000)) * 2048;
        match self.random.below(20) {
            0..=8 if (self.addresses.len() as u64) < MAX_BUFFERS => {
                self.last_address += 1;
                Step::Alloc { address: self.last_address * 4096, bytes }
            }
            0..=15 if !self.addresses.is_empty() => {
                let n = self.random.below(self.addresses.len() as u64) as usize;
                Step::Free { address: self.addresses[n] }
            }
            16 => Step::Audit,
            17 if self.programs.len() > 3 => {
                let n = self.random.below(self.programs.len() as u64) as usize;
                Step::End { program: self.programs.keys().nth(n).copied().unwrap_or(1) }
            }
            18 if !self.programs.is_empty() => {
                let n = self.random.below(self.programs.len() as u64) as usize;
                Step::Dispatch { program: self.programs.keys().nth(n).copied().unwrap_or(1) }
            }
            _ => {
                let program = 1 + self.random.below(8) as u32;
                self.last_address += 1;
                Step::Place { program, address: self.last_address * 64, bytes: 64 }
            }
        }
    }

    /// Applies a step to the model. Returns its number of events.
    pub(crate) fn apply(&mut self, step: Step) -> u64 {
        let mut events = 1;
        match step {
            Step::Alloc { address, bytes } => {
                self.addresses.push(address);
                self.buffers.insert(address, bytes);
            }
            Step::Free { address } => {
                self.buffers.remove(&address);
                if let Some(n) = self.addresses.iter().position(|&it| it == address) {
                    self.addresses.swap_remove(n);
                }
            }
            Step::Place { program, address, bytes } => {
                if !self.programs.contains_key(&program) {
                    events = 2;
                }
                self.programs.entry(program).or_default().insert((address, bytes));
            }
            Step::Dispatch { .. } => {}
            Step::End { program } => {
                self.programs.remove(&program);
            }
            Step::Audit => self.audited = true,
        }
        self.sequence += events;
        events
    }

    /// Applies steps up to the event with a sequence number.
    pub(crate) fn run_to(&mut self, sequence: u64) {
        while self.sequence < sequence {
            let step = match self.half_done.take() {
                Some(step) => step,
                None => self.next_step(),
            };
            match step {
                // The first placement of a program begins it, which is an event of its own.
                Step::Place { program, .. } if !self.programs.contains_key(&program) => {
                    self.programs.insert(program, BTreeSet::new());
                    self.sequence += 1;
                    self.half_done = Some(step);
                }
                step => {
                    self.apply(step);
                }
            }
        }
    }

    /// The model's slots and how often each is held.
    pub(crate) fn held(&self) -> BTreeMap<Held, u32> {
        let mut held = BTreeMap::new();
        let alloc = Kind::Alloc as u8;
        held.extend(self.buffers.iter().map(|(&address, &bytes)| ((alloc, address, 0, bytes), 1)));
        for (&program, placed) in &self.programs {
            held.insert((Kind::ProgramBegin as u8, 0, program, 0), 1);
            held.extend(placed.iter().map(|&(address, bytes)| ((alloc, address, program, bytes), 1)));
        }
        if self.audited {
            held.insert((Kind::Audit as u8, 0, 0, 0), 1);
        }
        held
    }

    /// Defines device, allocator and cores, before the first step.
    pub(crate) fn define(&mut self, tracker: &Tracker) -> anyhow::Result<()> {
        let chip = Chip::default().unique_id(0x7e57);
        let chip = tracker.define_chip(&chip)?;
        let allocator =
            tracker.define_allocator(&[chip], &[Banks::new(Space::Dram, BANKS as u16, 0, 1 << 40)])?;
        let cores = tracker.define_cores(&[CoreRange::new((0, 0), (7, 7))])?;
        self.defined = Some((allocator, cores));
        Ok(())
    }

    /// Makes the tracker's call of a step.
    pub(crate) fn write(&self, tracker: &Tracker, step: Step) -> anyhow::Result<()> {
        let (allocator, cores) = self.defined.context("define() comes first")?;
        match step {
            Step::Alloc { address, bytes } => {
                let bytes_per_bank = bytes.div_ceil(BANKS);
                let buffer = Buffer::new(allocator, Space::Dram, address, bytes);
                tracker.alloc(&buffer.bytes_per_bank(bytes_per_bank).occupied(bytes))?
            }
            Step::Free { address } => tracker.free(allocator, Space::Dram, address)?,
            Step::Place { program, address, bytes } => {
                let placed = Placement::new(allocator, program, Space::Cb, address, bytes);
                tracker.place(&placed.cores(cores))?
            }
            Step::Dispatch { program } => tracker.dispatch(allocator, program)?,
            Step::End { program } => tracker.end_program(allocator, program)?,
            Step::Audit => {
                let statistics = Statistics::default().allocated(1).free(2).largest_free_per_bank(3);
                tracker.audit(Some(tracker.begin_audit()?), allocator, Space::Dram, statistics)?
            }
        };
        Ok(())
    }

    /// Compares a reader's figures of the process with the model, at the reader's sequence number.
    pub(crate) fn check(&mut self, process: &Process, when: &str) -> anyhow::Result<()> {
        let sequence = process.sequence.context("no sequence number")?;
        ensure!(process.complete, "{when}: not exact at event {sequence}");
        ensure!(sequence >= self.sequence, "{when}: event {sequence} after {}", self.sequence);
        self.run_to(sequence);
        let usage = process.usage.first().context("no usage")?;
        let dram = usage.usage.dram.as_ref().map(|it| (it.requested_bytes, it.allocated_bytes, it.count));
        let dram = dram.unwrap_or((0, Some(0), Some(0)));
        let allocated = self.buffers.values().map(|bytes| bytes.div_ceil(BANKS) * BANKS).sum();
        let model = (self.buffers.values().sum(), Some(allocated), Some(self.buffers.len() as u64));
        ensure!(dram == model, "{when}: event {sequence}: DRAM is {dram:?}, the model has {model:?}");
        let placed = self.programs.values().map(|placed| placed.len() as u64).sum::<u64>();
        let cb = usage.usage.cb.as_ref().map_or((Some(0), 0), |it| (it.count, it.registered_bytes));
        // Addresses are never reused, so the union is the sum: 64 bytes on each of 64 cores.
        ensure!(
            cb == (Some(placed), placed * 64 * 64),
            "{when}: event {sequence}: CBs are {cb:?}, not {placed}"
        );
        Ok(())
    }
}

/// A segment's slots and how often each is held.
pub(crate) fn published(contents: &Contents) -> BTreeMap<Held, u32> {
    let mut held = BTreeMap::new();
    for slot in contents.slots.iter().filter(|it| it.sequence.get() != 0) {
        let key = if slot.kind == Kind::Alloc as u8 {
            (slot.kind, slot.id.get(), slot.program.get(), slot.requested.get())
        } else if slot.kind == Kind::Audit as u8 {
            (slot.kind, 0, 0, 0)
        } else {
            (Kind::ProgramBegin as u8, 0, slot.program.get(), 0)
        };
        *held.entry(key).or_default() += 1;
    }
    held
}
