//! Writes cluster descriptors: the files from which the runtime's mock takes its chips.

use super::board::{Board, channels, lines};
use super::fingerprint;
use super::topology::{Place, Topology};
use std::fmt::Write as _;
use ttmem_types::Arch;

#[cfg(test)]
mod tests;

/// A chip of a descriptor.
pub(crate) struct Chip {
    pub(crate) place: Place,
    pub(crate) unique_id: u64,
    /// A bit for each line of worker cores that is switched off.
    pub(crate) tensix_mask: u32,
    /// A bit for each memory channel that is switched off.
    pub(crate) dram_mask: u32,
    /// A bit for each ethernet channel that is switched off.
    pub(crate) ethernet_mask: u32,
    /// A bit for each PCIe port that is switched off.
    pub(crate) pcie_mask: u32,
}

/// A machine's cluster descriptor.
pub(crate) struct Descriptor {
    pub(crate) board: Board,
    pub(crate) chips: Vec<Chip>,
    pub(crate) topology: Topology,
}

impl Descriptor {
    pub(crate) fn of(board: Board) -> Self {
        let topology = Topology::of(board);
        let chips = topology.places.iter().enumerate().map(|(n, &place)| chip(board, n, place)).collect();
        Self { board, chips, topology }
    }

    /// Numbers of the machine's cards.
    pub(crate) fn card_ids(&self) -> Vec<u64> {
        let cards = self.chips.len() / self.board.card().chips;
        (0..cards).map(|card| card_id(self.board, card)).collect()
    }

    /// The file's text, written without a YAML library since it is so little.
    pub(crate) fn yaml(&self) -> String {
        let mut out = String::new();
        self.write(&mut out).expect("writing to a string does not fail");
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let board = self.board;
        let numbered = || self.chips.iter().enumerate();
        let (rows, columns) = board.mesh();
        writeln!(out, "# {}: a {rows}x{columns} mesh of chips that do not exist.", board.name())?;
        writeln!(out, "arch:")?;
        for (n, _) in numbered() {
            writeln!(out, "  {n}: {}", board.arch().name())?;
        }
        if self.chips.iter().any(|chip| chip.place.coordinates.is_some()) {
            writeln!(out, "chips:")?;
        } else {
            writeln!(out, "chips: {{}}")?;
        }
        for (n, chip) in numbered() {
            if let Some((x, y)) = chip.place.coordinates {
                writeln!(out, "  {n}: [{x}, {y}, 0, 0]")?;
            }
        }
        writeln!(out, "chip_unique_ids:")?;
        for (n, chip) in numbered() {
            writeln!(out, "  {n}: {}", chip.unique_id)?;
        }
        let links = &self.topology.links;
        writeln!(out, "ethernet_connections:{}", if links.is_empty() { " []" } else { "" })?;
        for [a, b] in links {
            let [a, b] = [a, b].map(|end| format!("{{chip: {}, chan: {}}}", end.chip, end.channel));
            writeln!(out, "  - [{a}, {b}]")?;
        }
        writeln!(out, "ethernet_connections_to_remote_devices: []")?;
        writeln!(out, "chips_with_mmio:")?;
        for (n, _) in numbered().filter(|(_, chip)| chip.place.local) {
            writeln!(out, "  - {n}: {n}")?;
        }
        writeln!(out, "io_device_type: PCIe")?;
        writeln!(out, "harvesting:")?;
        for (n, chip) in numbered() {
            writeln!(out, "  {n}:")?;
            writeln!(out, "    noc_translation: true")?;
            writeln!(out, "    harvest_mask: {}", chip.tensix_mask)?;
            writeln!(out, "    dram_harvesting_mask: {}", chip.dram_mask)?;
            writeln!(out, "    eth_harvesting_mask: {}", chip.ethernet_mask)?;
            writeln!(out, "    pcie_harvesting_mask: {}", chip.pcie_mask)?;
            writeln!(out, "    l2cpu_harvesting_mask: 0")?;
        }
        writeln!(out, "chip_to_bus_id:")?;
        for (n, chip) in numbered() {
            writeln!(out, "  {n}: \"0x{:04x}\"", chip.place.bus)?;
        }
        writeln!(out, "boards:")?;
        for (card, id) in self.card_ids().into_iter().enumerate() {
            let on_it = numbered().filter(|(_, chip)| chip.place.card == card).map(|(n, _)| n.to_string());
            writeln!(out, "  - - board_id: {id}")?;
            writeln!(out, "    - board_type: {}", board.card().name)?;
            writeln!(out, "    - chips: [{}]", on_it.collect::<Vec<_>>().join(", "))?;
        }
        writeln!(out, "asic_locations:")?;
        for (n, chip) in numbered() {
            writeln!(out, "  {n}: {}", chip.place.location)?;
        }
        writeln!(out, "chip_pci_bdfs:")?;
        for (n, chip) in numbered().filter(|(_, chip)| chip.place.local) {
            writeln!(out, "  {n}: 0000:{:02x}:00.0", chip.place.bus)?;
        }
        Ok(())
    }
}

fn chip(board: Board, n: usize, place: Place) -> Chip {
    let card = board.card();
    let (lines, _) = lines(card.arch);
    // A Blackhole has two PCIe ports, of which one is used.
    let pcie_mask = match (card.arch, place.location) {
        (Arch::WormholeB0, _) => 0,
        (Arch::Blackhole, 0) => 2,
        (Arch::Blackhole, _) => 1,
    };
    Chip {
        place,
        // Unique across machines, too: the runtime names a file in shared memory after it.
        unique_id: fingerprint(&format!("{} chip {n}", board.name())),
        tensix_mask: mask(n, card.harvested_lines, lines),
        dram_mask: mask(n, card.harvested_dram, 8),
        ethernet_mask: mask(n + 2, card.harvested_ethernet, channels(card.arch)),
        pcie_mask,
    }
}

/// A mask with `bits` of `of` bits set, which differs between chips, since these are harvested where they are faulty.
fn mask(chip: usize, bits: u32, of: u32) -> u32 {
    (0..bits).fold(0, |mask, n| mask | 1 << ((chip as u32 * 3 + n * 5 + 1) % of))
}

/// A card's number, with its kind from bit 36 on; those of Wormhole cards begin with a one.
fn card_id(board: Board, card: usize) -> u64 {
    let serial = fingerprint(&format!("{} card {card}", board.name())) & 0xffff_ffff;
    let begin = if board.arch() == Arch::WormholeB0 { 1 << 56 } else { 0 };
    begin | board.card().code << 36 | serial
}
