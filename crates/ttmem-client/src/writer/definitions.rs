//! Definitions: appended once, and found again by their fingerprints.

use super::{AllocatorState, REMEMBERED_DEFINITIONS, Writer};
use crate::publish::Ordering;
use crate::slot_index::hash;
use crate::types::{Banks, Result};
use ttmem_types::Fault;
use ttmem_types::limits::MAX_DEVICE_NUMBER;
use ttmem_wire::record::{Kind, Record, Space};
use ttmem_wire::segment::definition::{
    Banks as WireBanks, CallSite as WireCallSite, Chip, Definition, Frame, MAX_BANKS, MAX_BYTES, MAX_CHIPS,
    MAX_FRAMES,
};
use ttmem_wire::segment::word;
use zerocopy::FromZeros;
use zerocopy::little_endian::{U16, U32, U64};

/// Kinds of definitions that may use a part of the space each: none of them can take the space of another.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Chips, allocators and core sets may use all that is left: without them, nothing can be tracked.
    Essential,
    /// Texts of programs and call sites.
    Texts,
    /// Files, libraries, frames, stacks, operations and tracks.
    Frames,
    /// Call sites without a tensor.
    Sites,
    /// Call sites with a tensor: there may be as many as there are shapes.
    Tensors,
}

/// Definitions that are numbered apart from others.
#[derive(Clone, Copy)]
enum Numbers {
    Sites,
    Files,
    Frames,
    Stacks,
    Ops,
    Tracks,
}

/// Number of [`Numbers`].
pub(super) const NUMBERS: usize = 6;

/// Number of [`Part`]s.
pub(super) const PARTS: usize = 5;

impl Part {
    fn of(definition: &Definition<'_>) -> Self {
        match definition {
            Definition::Chip(..) | Definition::Allocator(..) | Definition::Cores(..) => Self::Essential,
            Definition::Program(..) | Definition::Site(..) => Self::Texts,
            Definition::File(..)
            | Definition::Frame(..)
            | Definition::Stack(..)
            | Definition::Op(..)
            | Definition::Track(..)
            | Definition::Library(..) => Self::Frames,
            Definition::CallSite(_, site, ..) if site.rank > 0 => Self::Tensors,
            Definition::CallSite(..) => Self::Sites,
        }
    }

    /// Its share of all blocks. Together, the optional parts leave a quarter to what is essential.
    const fn limit(self, blocks: usize) -> usize {
        match self {
            Self::Essential => blocks,
            Self::Texts | Self::Tensors => blocks / 8,
            Self::Frames => blocks * 5 / 16,
            Self::Sites => blocks * 3 / 16,
        }
    }

    /// The word of the header that counts definitions of this part for which there was no space.
    const fn left_out(self) -> Option<usize> {
        match self {
            Self::Essential | Self::Texts => None,
            Self::Frames => Some(word::LEFT_OUT),
            Self::Sites => Some(word::LEFT_OUT + 8),
            Self::Tensors => Some(word::LEFT_OUT + 16),
        }
    }
}

impl Writer {
    /// Appends a definition.
    pub(super) fn define(&mut self, definition: &Definition<'_>) -> Result<()> {
        let mut bytes = [0; MAX_BYTES];
        let encoded = definition.encode(&mut bytes);
        let used = self.blocks_used;
        let part = Part::of(definition);
        let used_by_part = self.blocks_of_parts[part as usize];
        let Some(segment) = self.segment() else { return Err(Fault::Lost) };
        let all = segment.plan().definition_blocks as usize;
        let fits = |&blocks: &usize| {
            used as usize + blocks <= all && used_by_part as usize + blocks <= part.limit(all)
        };
        let Some(blocks) = encoded.filter(fits) else {
            let Some(left_out) = part.left_out() else {
                return Err(self.refuse(Fault::DefinitionsFull, None, 0, 0));
            };
            let count = segment.word(left_out);
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return Err(Fault::DefinitionsFull);
        };
        for (n, block) in bytes.chunks_exact(ttmem_wire::segment::BLOCK).take(blocks).enumerate() {
            let Some(line) = segment.block(used as usize + n) else { return Err(Fault::Lost) };
            for (word, bytes) in line.iter().zip(block.chunks_exact(8)) {
                let bytes = <[u8; 8]>::try_from(bytes).unwrap_or_default();
                word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
            }
        }
        let used = used + blocks as u32;
        segment.word(word::BLOCKS_USED).store(u64::from(used), Ordering::Release);
        self.blocks_used = used;
        self.blocks_of_parts[part as usize] += blocks as u32;
        Ok(())
    }

    /// Returns a hash of a definition's contents, never 0.
    fn fingerprint(definition: &Definition<'_>) -> u64 {
        let mut bytes = [0; MAX_BYTES];
        let blocks = definition.encode(&mut bytes).unwrap_or(0);
        let words = bytes[..blocks * ttmem_wire::segment::BLOCK].chunks_exact(8);
        let words = words.map(|bytes| u64::from_le_bytes(<[u8; 8]>::try_from(bytes).unwrap_or_default()));
        words.fold(1, |sum, word| hash(word, sum, 3)) | 1
    }

    /// Returns whether a definition is new, and remembers its number.
    pub(super) fn is_new_definition(&mut self, definition: &Definition<'_>, number: u64) -> bool {
        let fingerprint = Self::fingerprint(definition);
        match self.find_definition(fingerprint) {
            Some(_) => false,
            None => {
                self.remember_definition(fingerprint, number);
                true
            }
        }
    }

    fn find_definition(&self, fingerprint: u64) -> Option<u64> {
        let mut at = fingerprint as usize;
        // There are more entries than there can be definitions, so this ends soon.
        for _ in 0..REMEMBERED_DEFINITIONS {
            at = (at + 1) % REMEMBERED_DEFINITIONS;
            match self.definitions[at] {
                [0, _] => return None,
                [known, number] if known == fingerprint => return Some(number),
                _ => {}
            }
        }
        None
    }

    /// Remembers the number of a definition, if there is a free entry: a definition that is not found is only made again.
    fn remember_definition(&mut self, fingerprint: u64, number: u64) {
        let mut at = fingerprint as usize;
        for _ in 0..REMEMBERED_DEFINITIONS {
            at = (at + 1) % REMEMBERED_DEFINITIONS;
            if self.definitions[at][0] == 0 || self.definitions[at][0] == fingerprint {
                self.definitions[at] = [fingerprint, number];
                return;
            }
        }
    }

    pub(crate) fn define_chip(&mut self, chip: &Chip) -> Result<u16> {
        let fingerprint = Self::fingerprint(&Definition::Chip(0, chip));
        if let Some(number) = self.find_definition(fingerprint) {
            return Ok(number as u16);
        }
        if self.chips_used == u16::MAX {
            return Err(self.refuse(Fault::DefinitionsFull, None, 0, 0));
        }
        let number = self.chips_used + 1;
        self.define(&Definition::Chip(number, chip))?;
        self.chip_index[usize::from(number)] = chip.index.get();
        self.chips_used = number;
        self.remember_definition(fingerprint, u64::from(number));
        Ok(number)
    }

    pub(crate) fn define_allocator(
        &mut self,
        banks: &[Banks],
        chips: impl ExactSizeIterator<Item = u16> + Clone,
    ) -> Result<u16> {
        let mut numbers = [U16::new(0); MAX_CHIPS];
        let count = chips.len();
        let unknown = |chip: u16| chip == 0 || chip > self.chips_used;
        if let Some(chip) = chips.clone().find(|&chip| unknown(chip)) {
            return Err(self.refuse(Fault::UnknownChip, None, 0, u64::from(chip)));
        }
        let left = self.allocator_chips.len() - self.allocator_chips_used as usize;
        let fits = count <= MAX_CHIPS.min(left) && banks.len() <= MAX_BANKS;
        if !fits || self.allocators_used >= u16::MAX - 1 {
            return Err(self.refuse(Fault::DefinitionsFull, None, 0, 0));
        }
        let number = self.allocators_used + 1;
        let first = self.allocator_chips_used as usize;
        for ((place, kept), chip) in numbers.iter_mut().zip(&mut self.allocator_chips[first..]).zip(chips) {
            (*place, *kept) = (chip.into(), chip);
        }
        let mut room = [WireBanks::new_zeroed(); MAX_BANKS];
        let wire_banks = to_wire(banks, &mut room);
        // A device that is opened again gets its former allocator.
        let fingerprint = Self::fingerprint(&Definition::Allocator(0, wire_banks, &numbers[..count]));
        if let Some(known) = self.find_definition(fingerprint) {
            let known = known as u16;
            let state = self.allocators[usize::from(known)];
            if state.open == 0 {
                if state.fingerprint != fingerprint {
                    self.define(&Definition::Allocator(known, wire_banks, &numbers[..count]))?;
                    self.allocators[usize::from(known)].fingerprint = fingerprint;
                }
                return self.begin_allocator(known);
            }
        }
        self.define(&Definition::Allocator(number, wire_banks, &numbers[..count]))?;
        self.remember_definition(fingerprint, u64::from(number));
        let mut state = AllocatorState {
            chips: count as u16,
            first_chip: self.allocator_chips_used,
            fingerprint,
            ..AllocatorState::new_zeroed()
        };
        for layout in banks {
            state.banks[layout.space as usize] = layout.banks;
        }
        self.allocators[usize::from(number)] = state;
        self.allocator_chips_used += count as u32;
        self.allocators_used = number;
        self.begin_allocator(number)
    }

    /// Returns the allocator for a set of devices that are known by number only. The order of the devices does not matter.
    pub(crate) fn define_devices(&mut self, devices: &[u32]) -> Result<u16> {
        let sum = devices.iter().fold(0u64, |sum, &device| sum.wrapping_add(hash(u64::from(device), 2, 5)));
        let fingerprint = hash(devices.len() as u64, sum, 5) | 1;
        match self.find_definition(fingerprint) {
            Some(known) if self.open_allocator(known as u16).is_some() => Ok(known as u16),
            Some(known) => self.begin_allocator(known as u16),
            None => self.define_new_devices(devices, fingerprint),
        }
    }

    #[cold]
    fn define_new_devices(&mut self, devices: &[u32], fingerprint: u64) -> Result<u16> {
        let mut chips = [0u16; MAX_CHIPS];
        let mut count = 0;
        for &device in devices {
            // No runtime has such numbers. An error code that was passed on as a number is one of these.
            if device > MAX_DEVICE_NUMBER {
                return Err(self.refuse(Fault::UnknownChip, None, 0, u64::from(device)));
            }
            // The chip that the process defined with that number, if there is one.
            let defined =
                (1..=self.chips_used).rev().find(|&chip| self.chip_index[usize::from(chip)] == device);
            let chip = match defined {
                Some(chip) => chip,
                None => self.define_chip(&Chip { index: device.into(), ..Chip::default() })?,
            };
            if !chips[..count].contains(&chip) {
                let Some(place) = chips.get_mut(count) else {
                    return Err(self.refuse(Fault::DefinitionsFull, None, 0, 0));
                };
                *place = chip;
                count += 1;
            }
        }
        if count == 0 {
            return Err(self.refuse(Fault::UnknownChip, None, 0, 0));
        }
        chips[..count].sort_unstable();
        let number = self.define_allocator(&[], chips[..count].iter().copied())?;
        self.remember_definition(fingerprint, u64::from(number));
        Ok(number)
    }

    /// Redefines the banks of an open allocator.
    pub(crate) fn resize_allocator(&mut self, number: u16, banks: &[Banks]) -> Result<()> {
        let Some(&state) = self.open_allocator(number) else {
            return Err(self.refuse(Fault::UnknownAllocator, None, number, 0));
        };
        let mut chips = [U16::new(0); MAX_CHIPS];
        let count = usize::from(state.chips).min(MAX_CHIPS);
        let covered = self.allocator_chips.iter().skip(state.first_chip as usize);
        for (place, &chip) in chips.iter_mut().zip(covered).take(count) {
            *place = chip.into();
        }
        if banks.len() > MAX_BANKS {
            return Err(self.refuse(Fault::DefinitionsFull, None, 0, 0));
        }
        let mut room = [WireBanks::new_zeroed(); MAX_BANKS];
        let wire_banks = to_wire(banks, &mut room);
        let fingerprint = Self::fingerprint(&Definition::Allocator(0, wire_banks, &chips[..count]));
        if state.fingerprint != fingerprint {
            self.define(&Definition::Allocator(number, wire_banks, &chips[..count]))?;
            self.allocators[usize::from(number)].fingerprint = fingerprint;
        }
        Ok(())
    }

    /// Records that an allocator is open.
    fn begin_allocator(&mut self, number: u16) -> Result<u16> {
        if !self.begin(&mut Record::new(Kind::AllocatorBegin, None, number)) {
            return Err(Fault::Lost);
        }
        let state = &mut self.allocators[usize::from(number)];
        state.open = 1;
        let banks = state.banks;
        // With its rows, readers distinguish an allocator without allocations from a closed one.
        for space in Space::ALL.into_iter().filter(|&space| banks[space as usize] > 0) {
            if let Some(row) = self.row_of(number, space) {
                self.write_row(row);
            }
        }
        self.finish();
        Ok(number)
    }

    pub(crate) fn define_cores(&mut self, cores: [u64; 4]) -> Result<u16> {
        let words = cores.map(U64::new);
        let fingerprint = Self::fingerprint(&Definition::Cores(0, &words));
        if let Some(number) = self.find_definition(fingerprint) {
            return Ok(number as u16);
        }
        if self.cores_used == u16::MAX {
            return Err(self.refuse(Fault::DefinitionsFull, None, 0, 0));
        }
        let number = self.cores_used + 1;
        self.define(&Definition::Cores(number, &words))?;
        self.core_counts[usize::from(number)] = cores.iter().map(|word| word.count_ones() as u16).sum();
        self.cores_used = number;
        self.remember_definition(fingerprint, u64::from(number));
        Ok(number)
    }

    pub(crate) fn define_site(&mut self, site: &str) -> Result<u32> {
        self.find_or_number(Numbers::Sites, |number| Definition::Site(number, site))
    }

    pub(crate) fn define_file(&mut self, path: &str) -> Result<u32> {
        self.find_or_number(Numbers::Files, |number| Definition::File(number, path))
    }

    /// Defines a library by its build id and its path. It is numbered as files are.
    pub(crate) fn define_library(&mut self, build_id: &[u8], path: &str) -> Result<u32> {
        self.find_or_number(Numbers::Files, |number| Definition::Library(number, build_id, path))
    }

    pub(crate) fn define_frame(&mut self, frame: &Frame, function: &str) -> Result<u32> {
        self.find_or_number(Numbers::Frames, |number| Definition::Frame(number, frame, function))
    }

    pub(crate) fn define_op(&mut self, name: &str) -> Result<u32> {
        self.find_or_number(Numbers::Ops, |number| Definition::Op(number, name))
    }

    pub(crate) fn define_track(&mut self, name: &str) -> Result<u32> {
        self.find_or_number(Numbers::Tracks, |number| Definition::Track(number, name))
    }

    /// Returns a number for an operation whose name will be known later.
    pub(crate) fn reserve_op(&mut self) -> u32 {
        self.numbers_used[Numbers::Ops as usize] += 1;
        self.numbers_used[Numbers::Ops as usize]
    }

    /// Returns a number for a frame that will be described later.
    pub(crate) fn reserve_frame(&mut self) -> u32 {
        self.numbers_used[Numbers::Frames as usize] += 1;
        self.numbers_used[Numbers::Frames as usize]
    }

    /// Describes a frame that has a number.
    pub(crate) fn name_frame(&mut self, number: u32, frame: &Frame, function: &str) -> Result<()> {
        self.define(&Definition::Frame(number, frame, function))
    }

    /// Names an operation that has a number.
    pub(crate) fn name_op(&mut self, number: u32, name: &str) -> Result<()> {
        self.define(&Definition::Op(number, name))
    }

    /// Defines a stack by its frames, innermost first. Its outer frames are stacks of their own, which others share.
    pub(crate) fn define_stack(&mut self, frames: &[u32]) -> Result<u32> {
        let mut stack = 0;
        for part in frames.rchunks(MAX_FRAMES) {
            let mut numbers = [U32::new(0); MAX_FRAMES];
            for (place, &frame) in numbers.iter_mut().zip(part) {
                *place = frame.into();
            }
            let part = &numbers[..part.len()];
            stack = self.find_or_number(Numbers::Stacks, |number| Definition::Stack(number, stack, part))?;
        }
        Ok(stack)
    }

    /// Defines a call site. Where there is no space for its tensor, it has none.
    pub(crate) fn define_call_site(
        &mut self,
        site: &WireCallSite,
        dimensions: &[U32],
        text: &str,
    ) -> Result<u32> {
        let defined = self
            .find_or_number(Numbers::Sites, |number| Definition::CallSite(number, site, dimensions, text));
        if defined.is_ok() || site.rank == 0 {
            return defined;
        }
        let site = WireCallSite { data_type: 0, layout: 0, rank: 0, ..*site };
        self.find_or_number(Numbers::Sites, |number| Definition::CallSite(number, &site, &[], text))
    }

    /// Returns the number of a definition, which is appended if it is new.
    fn find_or_number<'a>(
        &mut self,
        numbers: Numbers,
        definition: impl Fn(u32) -> Definition<'a>,
    ) -> Result<u32> {
        let fingerprint = Self::fingerprint(&definition(0));
        if let Some(number) = self.find_definition(fingerprint) {
            return Ok(number as u32);
        }
        let number = self.numbers_used[numbers as usize] + 1;
        self.define(&definition(number))?;
        self.numbers_used[numbers as usize] = number;
        self.remember_definition(fingerprint, u64::from(number));
        Ok(number)
    }
}

/// Converts the layouts of an allocator's spaces to the form of a segment. There are no more than `room` has.
fn to_wire<'a>(banks: &[Banks], room: &'a mut [WireBanks; MAX_BANKS]) -> &'a [WireBanks] {
    for (place, layout) in room.iter_mut().zip(banks) {
        *place = layout.to_wire();
    }
    &room[..banks.len().min(MAX_BANKS)]
}
