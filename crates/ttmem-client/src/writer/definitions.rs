//! Definitions: appended once, found again after that.

use super::{AllocatorState, REMEMBERED_DEFINITIONS, Writer};
use crate::live::hash;
use crate::publish::Ordering;
use crate::types::Result;
use ttmem_types::Fault;
use ttmem_types::limits::MAX_DEVICE_NUMBER;
use ttmem_wire::record::{Kind, Record, Space};
use ttmem_wire::segment::definition::{Banks, Chip, Definition, MAX_BANKS, MAX_CHIPS, ROOM};
use ttmem_wire::segment::word;
use zerocopy::FromZeros;
use zerocopy::little_endian::{U16, U64};

impl Writer {
    /// Appends a definition.
    pub(super) fn define(&mut self, definition: &Definition<'_>) -> Result<()> {
        let mut room = [0; ROOM];
        let encoded = definition.encode(&mut room);
        let used = self.blocks_used;
        let Some(segment) = self.segment() else { return Err(Fault::Lost) };
        // Names may not take the room of what nothing can be tracked without.
        let named = matches!(definition, Definition::Program(..) | Definition::Site(..));
        let room_left = segment.plan().definition_blocks as usize / if named { 2 } else { 1 };
        let blocks = encoded.filter(|&blocks| used as usize + blocks <= room_left);
        let Some(blocks) = blocks else {
            return Err(self.refuse(Fault::DefinitionsFull, None, 0, 0));
        };
        for (n, bytes) in room.chunks_exact(ttmem_wire::segment::BLOCK).take(blocks).enumerate() {
            let Some(line) = segment.block(used as usize + n) else { return Err(Fault::Lost) };
            for (word, bytes) in line.iter().zip(bytes.chunks_exact(8)) {
                let bytes = <[u8; 8]>::try_from(bytes).unwrap_or_default();
                word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
            }
        }
        let used = used + blocks as u32;
        segment.word(word::BLOCKS_USED).store(u64::from(used), Ordering::Release);
        self.blocks_used = used;
        Ok(())
    }

    /// A hash of a definition's contents, never 0.
    pub(super) fn fingerprint(definition: &Definition<'_>) -> u64 {
        let mut room = [0; ROOM];
        let blocks = definition.encode(&mut room).unwrap_or(0);
        let words = room[..blocks * ttmem_wire::segment::BLOCK].chunks_exact(8);
        let words = words.map(|bytes| u64::from_le_bytes(<[u8; 8]>::try_from(bytes).unwrap_or_default()));
        words.fold(1, |sum, word| hash(word, sum, 3)) | 1
    }

    /// Whether a definition is new; from now on it is not.
    pub(super) fn remember(&mut self, definition: &Definition<'_>, number: u64) -> bool {
        let print = Self::fingerprint(definition);
        match self.recall(print) {
            Some(_) => false,
            None => {
                self.keep(print, number);
                true
            }
        }
    }

    pub(super) fn recall(&self, print: u64) -> Option<u64> {
        let mut at = print as usize;
        // There is room for more than there can be definitions, so this ends soon.
        for _ in 0..REMEMBERED_DEFINITIONS {
            at = (at + 1) % REMEMBERED_DEFINITIONS;
            match self.known[at] {
                [0, _] => return None,
                [known, number] if known == print => return Some(number),
                _ => {}
            }
        }
        None
    }

    /// Keeps a number, if there is room: a definition that is not found is only made again.
    pub(super) fn keep(&mut self, print: u64, number: u64) {
        let mut at = print as usize;
        for _ in 0..REMEMBERED_DEFINITIONS {
            at = (at + 1) % REMEMBERED_DEFINITIONS;
            if self.known[at][0] == 0 || self.known[at][0] == print {
                self.known[at] = [print, number];
                return;
            }
        }
    }

    pub(crate) fn define_chip(&mut self, chip: &Chip) -> Result<u16> {
        let print = Self::fingerprint(&Definition::Chip(0, chip));
        if let Some(number) = self.recall(print) {
            return Ok(number as u16);
        }
        if self.chips_used == u16::MAX {
            return Err(self.refuse(Fault::DefinitionsFull, None, 0, 0));
        }
        let number = self.chips_used + 1;
        self.define(&Definition::Chip(number, chip))?;
        self.chip_index[usize::from(number)] = chip.index.get();
        self.chips_used = number;
        self.keep(print, u64::from(number));
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
        let room = self.covered.len() - self.covered_used as usize;
        let fits = count <= MAX_CHIPS.min(room) && banks.len() <= MAX_BANKS;
        if !fits || self.allocators_used >= u16::MAX - 1 {
            return Err(self.refuse(Fault::DefinitionsFull, None, 0, 0));
        }
        let number = self.allocators_used + 1;
        for ((place, covered), chip) in
            numbers.iter_mut().zip(&mut self.covered[self.covered_used as usize..]).zip(chips)
        {
            (*place, *covered) = (chip.into(), chip);
        }
        // A device that is opened again is the same allocator again.
        let print = Self::fingerprint(&Definition::Allocator(0, banks, &numbers[..count]));
        if let Some(known) = self.recall(print) {
            let known = known as u16;
            let state = self.allocators[usize::from(known)];
            if state.open == 0 {
                if state.print != print {
                    self.define(&Definition::Allocator(known, banks, &numbers[..count]))?;
                    self.allocators[usize::from(known)].print = print;
                }
                return self.open_allocator(known);
            }
        }
        self.define(&Definition::Allocator(number, banks, &numbers[..count]))?;
        self.keep(print, u64::from(number));
        let mut state = AllocatorState {
            chips: count as u16,
            first_chip: self.covered_used,
            print,
            ..AllocatorState::new_zeroed()
        };
        for it in banks.iter().filter(|it| usize::from(it.space) < Space::NUMBERS) {
            state.banks[usize::from(it.space)] = it.banks.get();
        }
        self.allocators[usize::from(number)] = state;
        self.covered_used += count as u32;
        self.allocators_used = number;
        self.open_allocator(number)
    }

    /// The allocator that stands for a set of devices, known by their numbers only: the same set, in whatever order, the same
    /// one.
    pub(crate) fn devices(&mut self, devices: &[u32]) -> Result<u16> {
        let sum = devices.iter().fold(0u64, |sum, &it| sum.wrapping_add(hash(u64::from(it), 2, 5)));
        let print = hash(devices.len() as u64, sum, 5) | 1;
        match self.recall(print) {
            Some(known) if self.allocator(known as u16).is_some() => Ok(known as u16),
            Some(known) => self.open_allocator(known as u16),
            None => self.define_devices(devices, print),
        }
    }

    #[cold]
    fn define_devices(&mut self, devices: &[u32], print: u64) -> Result<u16> {
        let mut chips = [0u16; MAX_CHIPS];
        let mut count = 0;
        for &device in devices {
            // No runtime numbers so many. An error that was passed on as a number is one of these.
            if device > MAX_DEVICE_NUMBER {
                return Err(self.refuse(Fault::UnknownChip, None, 0, u64::from(device)));
            }
            // What the process calls by that number, if it has said which chip that is.
            let known = (1..=self.chips_used).rev().find(|&it| self.chip_index[usize::from(it)] == device);
            let chip = match known {
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
        self.keep(print, u64::from(number));
        Ok(number)
    }

    /// Defines an open allocator's banks anew.
    pub(crate) fn resize_allocator(&mut self, number: u16, banks: &[Banks]) -> Result<()> {
        let Some(&state) = self.allocator(number) else {
            return Err(self.refuse(Fault::UnknownAllocator, None, number, 0));
        };
        let mut chips = [U16::new(0); MAX_CHIPS];
        let count = usize::from(state.chips).min(MAX_CHIPS);
        let covered = self.covered.iter().skip(state.first_chip as usize);
        for (place, &chip) in chips.iter_mut().zip(covered).take(count) {
            *place = chip.into();
        }
        if banks.len() > MAX_BANKS {
            return Err(self.refuse(Fault::DefinitionsFull, None, 0, 0));
        }
        let print = Self::fingerprint(&Definition::Allocator(0, banks, &chips[..count]));
        if state.print != print {
            self.define(&Definition::Allocator(number, banks, &chips[..count]))?;
            self.allocators[usize::from(number)].print = print;
        }
        Ok(())
    }

    fn open_allocator(&mut self, number: u16) -> Result<u16> {
        if !self.begin(&mut Record::new(Kind::AllocatorBegin, None, number)) {
            return Err(Fault::Lost);
        }
        let state = &mut self.allocators[usize::from(number)];
        state.open = 1;
        let banks = state.banks;
        // So that readers can tell an allocator that holds nothing from one that was closed.
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
        let print = Self::fingerprint(&Definition::Cores(0, &words));
        if let Some(number) = self.recall(print) {
            return Ok(number as u16);
        }
        if self.cores_used == u16::MAX {
            return Err(self.refuse(Fault::DefinitionsFull, None, 0, 0));
        }
        let number = self.cores_used + 1;
        self.define(&Definition::Cores(number, &words))?;
        self.core_counts[usize::from(number)] = cores.iter().map(|word| word.count_ones() as u16).sum();
        self.cores_used = number;
        self.keep(print, u64::from(number));
        Ok(number)
    }

    pub(crate) fn define_site(&mut self, site: &str) -> Result<u32> {
        let print = Self::fingerprint(&Definition::Site(0, site));
        if let Some(number) = self.recall(print) {
            return Ok(number as u32);
        }
        let number = self.sites_used + 1;
        self.define(&Definition::Site(number, site))?;
        self.sites_used = number;
        self.keep(print, u64::from(number));
        Ok(number)
    }
}
