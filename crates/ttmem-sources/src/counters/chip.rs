//! Finds the chip of a file of counters.

use super::Poll;
use super::file::OpenFile;
use crate::bus::Bus;
use crate::event_sink::EventSink;
use ttmem_core::input::Input;
use ttmem_core::machine::Chip;
use ttmem_core::words::ChipId;
use ttmem_wire::region::Region;

impl OpenFile {
    /// Finds the chip of this file by its name, or else by the device number in it. Emits the chip the first time.
    pub(super) fn find_chip<S: EventSink>(
        &mut self,
        region: &Region,
        mut users: impl Iterator<Item = u32>,
        poll: &mut Poll<'_, '_, S>,
    ) -> ChipId {
        let context = &poll.context;
        if let Some(chip) = self.chip {
            return chip;
        }
        let unique_id = self.unique_id;
        let index = region.device_id;
        let on_bus = context.bus.find(unique_id).cloned();
        let remote = context.bus.find_remote(unique_id).map(|chip| Chip { index, ..chip });
        // A runtime numbers the chips that it has open by PCI address. A chip for which another file is named is not this
        // file's: this may be the file of a removed chip, after which the others were numbered again.
        let by_number = || {
            users.find_map(|pid| {
                let nodes = context.open_nodes.get(&pid)?;
                let mut chips: Vec<&Chip> =
                    nodes.iter().filter_map(|node| Some(&context.bus.chips.get(node)?.chip)).collect();
                chips.sort_by_key(|chip| chip.index);
                let chip = chips.get(index as usize).copied()?;
                (!poll.named_chips.contains(&chip.id)).then(|| chip.clone())
            })
        };
        let is_known_by_name = remote.is_some() || context.bus.was_removed(unique_id);
        let on_bus = if is_known_by_name { on_bus } else { on_bus.or_else(by_number) };
        let chip = match on_bus {
            // The PCI address identifies it, whatever its id; its node was emitted already.
            Some(chip) => {
                Chip { id: ChipId::Unique(unique_id), names: unique_ids(chip.id), node: None, ..chip }
            }
            None => remote.unwrap_or_else(|| Chip::new(ChipId::Unique(unique_id), index)),
        };
        let id = chip.id;
        poll.sink.emit_machine(Input::Chip(Box::new(chip)));
        self.chip = Some(id);
        id
    }
}

/// A chip's unique id, if it has one.
fn unique_ids(id: ChipId) -> Vec<u64> {
    match id {
        ChipId::Unique(id) => vec![id],
        ChipId::Pci(_) | ChipId::Ordinal(_) => Vec::new(),
    }
}

/// The chip for which a file is named.
pub(super) fn chip_of_name(unique_id: u64, bus: &Bus) -> ChipId {
    bus.find(unique_id).map_or(ChipId::Unique(unique_id), |chip| chip.id)
}
