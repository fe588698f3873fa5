//! The machine: its chips with all their ids, their sensors, and tt-metal's counters.

use super::claims::Claims;
use super::peaks::{CorePeaks, SpacePeak};
use super::{Author, Outcome, State};
use crate::event_log::Level;
use crate::history::{SensorSeries, Series};
use crate::input::SensorReading;
use crate::machine::{Chip, CounterReport};
use crate::words::{Basis, ChipId, Fault, Scope, Space};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Other ids per chip, on average.
pub(super) const NAMES_A_CHIP: usize = 16;
/// Reports on tt-metal's counters that are kept.
const MAX_COUNTER_REPORTS: usize = 1024;

/// A chip with its peaks and history.
#[derive(Serialize, Deserialize)]
pub(crate) struct ChipState {
    /// All that is known of it: what the machine says, with the claims of processes.
    #[serde(skip, default = "unnamed")]
    pub(crate) chip: Chip,
    /// What the machine says of it; if it is not listed, only an id and a number.
    pub(super) base: Chip,
    /// Whether the machine has it. Otherwise only processes name it.
    pub(super) is_listed: bool,
    /// If it is not listed, the user whose process named it first.
    pub(super) added_by: Option<u32>,
    pub(super) claims: Claims,
    pub(crate) peaks: BTreeMap<Space, SpacePeak>,
    pub(crate) core_peaks: CorePeaks,
    pub(crate) dram: Series<u64>,
    pub(crate) l1: Series<u64>,
    pub(crate) sensors: SensorReading,
    pub(crate) sensor_history: SensorSeries,
    /// Ids that sources called it by, besides its key.
    pub(crate) called: BTreeSet<ChipId>,
    /// Thresholds that the use of its DRAM and its L1 reached.
    pub(super) levels: [Level; 2],
    /// Whether it was removed from the bus.
    pub(crate) gone: bool,
    /// How often it is open in processes that are not visible.
    pub(crate) opened_by_hidden: u32,
}

/// The place of a chip that is derived after its other parts were restored.
fn unnamed() -> Chip {
    Chip::unknown(0)
}

impl ChipState {
    pub(super) fn new(base: Chip, is_listed: bool, added_by: Option<u32>) -> Self {
        let (peaks, core_peaks, dram, l1, sensors, sensor_history, called, levels, gone, opened_by_hidden) =
            Default::default();
        Self {
            chip: base.clone(),
            base,
            is_listed,
            added_by,
            claims: Claims::default(),
            peaks,
            core_peaks,
            dram,
            l1,
            sensors,
            sensor_history,
            called,
            levels,
            gone,
            opened_by_hidden,
        }
    }

    /// Whether so many bytes of a space can be in use, as far as that is known.
    pub(super) fn has_room(&self, space: Space, bytes: u64) -> bool {
        self.chip.capacity.is_none_or(|capacity| capacity.has_room(space, bytes))
    }
}

impl State {
    /// The key of a chip, by any of its ids.
    pub fn resolve(&self, id: ChipId) -> ChipId {
        if self.chips.contains_key(&id) {
            return id;
        }
        self.names.get(&id).or_else(|| self.claimed.get(&id)).copied().unwrap_or(id)
    }

    /// The key of a known chip: by its key, by another id, by its place on the bus, or by its number if it has nothing else.
    pub(super) fn find_chip(&self, chip: &Chip) -> Option<ChipId> {
        // At two places of the bus there are two chips, whatever ids a client uses.
        let apart = |it: &ChipState| it.chip.pci.zip(chip.pci).is_some_and(|(one, other)| one != other);
        let known = |id: ChipId| {
            let key = self.resolve(id);
            self.chips.get(&key).is_some_and(|it| key == chip.id || !apart(it)).then_some(key)
        };
        let at = |chips: &BTreeMap<ChipId, ChipState>, fits: &dyn Fn(&Chip) -> bool| {
            chips.iter().find(|(_, state)| fits(&state.chip)).map(|(&id, _)| id)
        };
        known(chip.id)
            .or_else(|| {
                let mut names = chip.names.iter().chain(&chip.guesses);
                names.find_map(|&name| known(ChipId::Unique(name)))
            })
            .or_else(|| {
                let place = chip.pci?;
                at(&self.chips, &|it| it.pci == Some(place))
            })
            .or_else(|| match chip.id {
                ChipId::Ordinal(index) => at(&self.chips, &|it| it.index == index),
                _ => None,
            })
            .or_else(|| {
                // A runtime's id of a chip that was inferred may be any.
                let is_it = |it: &Chip| it.inferred && it.arch == chip.arch && it.board == chip.board;
                if chip.remote && !chip.inferred { at(&self.chips, &is_it) } else { None }
            })
    }

    /// Adds a chip that the machine has, or what else the machine says of one.
    pub(super) fn define_chip(&mut self, mut chip: Chip) -> Outcome {
        let id = chip.id;
        let number = Some(chip.index).filter(|_| chip.node.is_some());
        let mut called: Vec<ChipId> = chip.names.iter().map(|&name| ChipId::Unique(name)).collect();
        called.push(id);
        let guesses: Vec<ChipId> = chip.guesses.iter().map(|&name| ChipId::Unique(name)).collect();
        let mut added = false;
        let key = match self.find_chip(&chip) {
            Some(key) => {
                if let Some(known) = self.chips.get_mut(&key) {
                    added = known.gone;
                    if !known.is_listed {
                        Self::forget_added_chip(&mut self.users, known.added_by);
                    }
                    (known.gone, known.is_listed) = (false, true);
                    known.base.learn(chip);
                }
                self.derive_chip(key);
                key
            }
            // No limit: what the machine has is always listed.
            None => {
                chip.index = self.free_index(chip.index);
                self.chips.insert(id, ChipState::new(chip, true, None));
                added = true;
                id
            }
        };
        if let Some(number) = number {
            self.renumber(key, number);
        }
        for &name in called.iter().chain(&guesses) {
            let room = self.names.len() < self.limits.chips * NAMES_A_CHIP;
            if name != key && room && !self.chips.contains_key(&name) {
                self.names.entry(name).or_insert(key);
            }
        }
        if let Some(state) = self.chips.get_mut(&key) {
            if added {
                self.event_log.device_added(self.now, state.chip.index, key);
            }
            let new = called.into_iter().filter(|name| *name != key);
            let room = NAMES_A_CHIP.saturating_sub(state.called.len());
            state.called.extend(new.take(room));
        }
        Outcome::Noted
    }

    /// A number that no chip has. A process that sees only some chips, or another machine's, may use one that is taken.
    pub(super) fn free_index(&self, wanted: u32) -> u32 {
        let taken: BTreeSet<u32> = self.chips.values().map(|it| it.chip.index).collect();
        let free = || (0..=taken.len() as u32).find(|index| !taken.contains(index));
        if taken.contains(&wanted) { free().unwrap_or(wanted) } else { wanted }
    }

    /// Gives a chip on the bus the number that it has there, which changes with the chips on the bus. The chip that had that
    /// number gets the other one.
    fn renumber(&mut self, key: ChipId, number: u32) {
        let Some(before) = self.chips.get(&key).map(|it| it.chip.index) else { return };
        for (&id, state) in self.chips.iter_mut().filter(|_| before != number) {
            if id == key {
                (state.base.index, state.chip.index) = (number, number);
            } else if state.chip.index == number {
                (state.base.index, state.chip.index) = (before, before);
            }
        }
    }

    /// Marks a chip as removed from the bus. It is shown while a process has memory on it.
    pub(super) fn remove_chip(&mut self, id: ChipId) -> Outcome {
        let id = self.resolve(id);
        if let Some(state) = self.chips.get_mut(&id) {
            if !state.gone {
                self.event_log.device_removed(self.now, state.chip.index, id);
            }
            (state.gone, state.base.pci, state.base.node) = (true, None, None);
            (state.chip.pci, state.chip.node) = (None, None);
            let why = Some("the device was removed".to_owned());
            state.sensors = SensorReading { why, ..SensorReading::default() };
        }
        for process in self.processes.values_mut() {
            process.opened.remove(&id);
        }
        self.forget_removed_chips();
        Outcome::Noted
    }

    /// Forgets removed chips that no process refers to.
    pub(super) fn forget_removed_chips(&mut self) {
        if self.chips.values().all(|state| !state.gone) {
            return;
        }
        let mut used = BTreeSet::new();
        for process in self.processes.values() {
            used.extend(process.allocators.values().flat_map(|it| it.chips.iter().copied()));
            used.extend(process.pools.keys().filter_map(|(scope, ..)| match scope {
                Scope::Chip(chip) => Some(*chip),
                Scope::Allocator(_) => None,
            }));
        }
        let is_kept = |(id, state): &(&ChipId, &mut ChipState)| !state.gone || used.contains(id);
        for (_, state) in self.chips.extract_if(.., |id, state| !is_kept(&(id, state))) {
            if !state.is_listed {
                Self::forget_added_chip(&mut self.users, state.added_by);
            }
        }
        self.names.retain(|_, key| self.chips.contains_key(key));
        self.claimed.retain(|_, key| self.chips.contains_key(key));
    }

    pub(super) fn set_sensors(&mut self, id: ChipId, reading: SensorReading) -> Outcome {
        let id = self.resolve(id);
        if let Some(state) = self.chips.get_mut(&id) {
            state.sensors = reading;
        }
        Outcome::Noted
    }

    pub(super) fn set_counters(&mut self, mut reports: Vec<CounterReport>) -> Outcome {
        reports.truncate(MAX_COUNTER_REPORTS);
        for report in &mut reports {
            report.chip = self.resolve(report.chip);
        }
        self.counters = reports;
        Outcome::Noted
    }

    /// Sets all that a process holds on a chip.
    pub(super) fn set_levels(&mut self, by: Author, chip: ChipId, held: &[(Space, u64)]) -> Outcome {
        let chip = self.resolve(chip);
        let scope = Scope::Chip(chip);
        if !self.chips.contains_key(&chip) {
            return self.refuse(by, Fault::UnknownChip, None, None, 0);
        }
        self.recent = None;
        let Some(mut process) = self.processes.remove(&by.id) else { return Outcome::UnknownProcess };
        process.basis = process.basis.min(by.basis);
        let mut any_gone = false;
        let mut pools = std::mem::take(&mut process.pools);
        pools.retain(|&(of, space, basis), &mut pool| {
            let gone = of == scope && basis == by.basis && held.iter().all(|(it, _)| *it != space);
            if gone {
                self.keep_peak(&process, of, pool);
                let unlisted = self.ledger.pool(pool).unlisted.count;
                process.records -= self.ledger.close(pool).count - unlisted;
            }
            any_gone |= gone;
            !gone
        });
        process.pools = pools;
        self.processes.insert(by.id, process);
        if any_gone {
            self.structure += 1;
        }
        for &(space, bytes) in held {
            if let Ok(pool) = self.pool(by, scope, space) {
                self.ledger.set_level(pool, bytes.min(ttmem_types::limits::MAX_ALLOCATION_BYTES));
            }
        }
        Outcome::Noted
    }

    /// Sets the chips that a process has open.
    pub(super) fn set_open_chips(&mut self, by: Author, chips: &[ChipId]) -> Outcome {
        let known = chips.iter().map(|&chip| self.resolve(chip)).filter(|chip| self.chips.contains_key(chip));
        let opened: BTreeSet<ChipId> = known.collect();
        let Some(process) = self.processes.get_mut(&by.id) else { return Outcome::UnknownProcess };
        let before = std::mem::replace(&mut process.opened, opened.clone());
        // A process may say more of chips that it has open.
        for &chip in before.symmetric_difference(&opened) {
            self.derive_chip(chip);
        }
        Outcome::Noted
    }
}

impl super::ProcessState {
    /// Whether snapshots have it: not if it only had a chip open once, or was in tt-metal's counters.
    pub(crate) fn is_shown(&self) -> bool {
        self.basis < Basis::Unknown && self.basis != Basis::Counters
            || !self.pools.is_empty()
            || !self.opened.is_empty()
    }
}
