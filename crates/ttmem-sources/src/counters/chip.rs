//! Finds the chip of a file of counters.

use super::Poll;
use super::file::OpenFile;
use crate::bus::Bus;
use crate::event_sink::EventSink;
use ttmem_core::input::Input;
use ttmem_core::machine::Chip;
use ttmem_core::words::{Basis, ChipId};
use ttmem_wire::region::Region;

impl OpenFile {
    /// Finds the chip of this file by its name, or else by the device number in it, and emits it for each process that uses it: the name
    /// of the file is the word of these processes. `users` are their pids here, and in their own namespaces.
    pub(super) fn find_chip<S: EventSink>(
        &mut self,
        region: &Region,
        users: &[(u32, u32)],
        poll: &mut Poll<'_, '_, S>,
    ) -> ChipId {
        let chip = match self.named_chip.take().filter(|_| self.chip.is_some()) {
            Some(chip) => chip,
            None => Box::new(self.name_chip(region, users, poll)),
        };
        for &(pid, namespace_pid) in users {
            let process = poll.register(pid, namespace_pid);
            poll.sink.emit(process, Basis::Counters, Input::Chip(chip.clone()));
        }
        self.chip = Some(chip.id);
        self.named_chip.insert(chip).id
    }

    fn name_chip<S: EventSink>(&self, region: &Region, users: &[(u32, u32)], poll: &Poll<'_, '_, S>) -> Chip {
        let context = &poll.context;
        let unique_id = self.unique_id;
        let index = region.device_id;
        let on_bus = context.bus.find(unique_id).cloned();
        let remote = context.bus.find_remote(unique_id).map(|chip| Chip { index, ..chip });
        // A runtime numbers the chips that it has open by PCI address. A chip for which another file is named is not this
        // file's: this may be the file of a removed chip, after which the others were numbered again.
        let by_number = || {
            users.iter().find_map(|(pid, _)| {
                let nodes = context.open_nodes.get(pid)?;
                let mut chips: Vec<&Chip> =
                    nodes.iter().filter_map(|node| Some(&context.bus.chips.get(node)?.chip)).collect();
                chips.sort_by_key(|chip| chip.index);
                let chip = chips.get(index as usize).copied()?;
                (!poll.named_chips.contains(&chip.id)).then(|| chip.clone())
            })
        };
        let is_known_by_name = remote.is_some() || context.bus.was_removed(unique_id);
        let on_bus = if is_known_by_name { on_bus } else { on_bus.or_else(by_number) };
        match on_bus {
            // The PCI address identifies it, whatever its id; its node was emitted already.
            Some(chip) => {
                Chip { id: ChipId::Unique(unique_id), names: unique_ids(chip.id), node: None, ..chip }
            }
            None => remote.unwrap_or_else(|| Chip::new(ChipId::Unique(unique_id), index)),
        }
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
