//! Reads a cluster descriptor: the YAML file of a machine's chips that tt-umd writes and the runtime's mock reads.
//!
//! It is the only source of chips that are reached through other chips, and of what is harvested in each. Files of many
//! versions exist, so what is optional in any of them is optional here; but a file that contradicts itself is refused,
//! since a guess would give wrong capacities.
//!
//! The file is untrusted. It is parsed event by event and only what is needed is kept: memory is proportional to the number of
//! chips, which is bounded, as is the text. Aliases are refused, and recursion does not depend on the file.
//!
//! `sections` parses the sections, `yaml` is the reader below it; this module puts them together.

mod error;
mod sections;
#[cfg(test)]
mod tests;
mod yaml;

pub use self::error::TopologyError;

use self::error::Result;
use self::sections::{
    ARCH, BOARDS, DRAM_MASK, HARVESTING, LOCATIONS, MMIO, Masks, PCI, Section, Sections, TENSIX_MASK,
    UNIQUE_IDS,
};
use self::yaml::{Item, YamlReader};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use ttmem_core::words::Arch;

/// Longest descriptor that is read. One of 1,024 chips with all links takes less than 1 MiB.
pub const MAX_TEXT: usize = 4 << 20;

/// Chips of one descriptor at most.
pub const MAX_CHIPS: usize = 1024;

/// The chips of a machine, by logical id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// All chips, in order of their logical ids.
    pub chips: Vec<TopologyChip>,
}

/// A chip of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyChip {
    /// Its logical id, which programs use that have all chips open.
    pub logical: u32,
    /// Its architecture.
    pub arch: Arch,
    /// The kind of its board, as the descriptor has it: `n300`, `p150`, `ubb`.
    pub board: Option<String>,
    /// The id of its board.
    pub board_id: Option<u64>,
    /// Its unique id.
    pub unique_id: Option<u64>,
    /// The number of its device node. `None` for a remote chip, and where chips are reached through JTAG.
    pub node: Option<u32>,
    /// Its PCI address, as `dddd:bb:dd.f` in lower case.
    pub pci: Option<String>,
    /// Its location on the board.
    pub location: Option<u32>,
    /// Whether it is reached only through another chip.
    pub remote: bool,
    /// Tensix cores that are not harvested.
    pub cores: u32,
    /// DRAM channels that are not harvested.
    pub dram_channels: u32,
    /// Ethernet cores that are not harvested; `None` in files from before there was a mask for them.
    pub ethernet_cores: Option<u32>,
}

/// Parses a cluster descriptor.
pub fn parse(text: &str) -> Result<Topology> {
    if text.len() > MAX_TEXT {
        return Err(TopologyError::TooLong { len: text.len() });
    }
    let mut yaml = YamlReader::new(text);
    let mut sections = Sections::default();
    if yaml.next()? == Item::DocumentStart {
        sections.read(&mut yaml)?;
        // The document's end.
        yaml.next()?;
        if yaml.next()? != Item::StreamEnd {
            return Err(TopologyError::SecondDocument { line: yaml.line });
        }
    }
    join(sections)
}

/// Joins the sections by chip, and checks that they agree.
fn join(mut sections: Sections) -> Result<Topology> {
    if let Some(key) = [ARCH, MMIO, HARVESTING].into_iter().find(|key| !sections.seen.contains(key)) {
        return Err(TopologyError::NoKey { key });
    }
    if sections.arch.is_empty() {
        return Err(TopologyError::NoChips);
    }
    require_listed(MMIO, &sections.nodes, ARCH, &sections.arch)?;
    require_listed(HARVESTING, &sections.harvesting, ARCH, &sections.arch)?;
    require_listed(BOARDS, &sections.boards, ARCH, &sections.arch)?;
    require_listed(UNIQUE_IDS, &sections.unique_ids, ARCH, &sections.arch)?;
    require_listed(LOCATIONS, &sections.locations, ARCH, &sections.arch)?;
    require_listed(PCI, &sections.pci, MMIO, &sections.nodes)?;
    let direct: BTreeSet<u32> = sections.nodes.keys().copied().collect();
    if sections.jtag {
        // These are numbers of probes, not of device nodes.
        sections.nodes.clear();
    }
    require_unique(MMIO, sections.nodes.iter().map(|(&chip, &(line, node))| (chip, line, node)))?;
    require_unique(UNIQUE_IDS, sections.unique_ids.iter().map(|(&chip, &(line, id))| (chip, line, id)))?;
    let addresses = sections.pci.iter();
    require_unique(PCI, addresses.filter_map(|(&chip, (line, pci))| Some((chip, *line, pci.as_ref()?))))?;

    let mut chips = Vec::with_capacity(sections.arch.len());
    for (&logical, &(line, arch)) in &sections.arch {
        let Some((_, masks)) = sections.harvesting.get(&logical) else {
            let path = format!("{ARCH}: chip {logical}");
            return Err(TopologyError::Missing { line, path, missing: HARVESTING });
        };
        let board = sections.boards.get(&logical).map(|(_, board)| board.clone()).unwrap_or_default();
        chips.push(TopologyChip {
            logical,
            arch,
            board: board.kind,
            board_id: board.id,
            unique_id: sections.unique_ids.get(&logical).map(|&(_, id)| id),
            node: sections.nodes.get(&logical).map(|&(_, node)| node),
            pci: sections.pci.get(&logical).and_then(|(_, pci)| pci.clone()),
            location: sections.locations.get(&logical).map(|&(_, location)| location),
            remote: !direct.contains(&logical),
            cores: count_cores(arch, logical, masks)?,
            dram_channels: count_dram_channels(arch, logical, masks)?,
            ethernet_cores: count_ethernet_cores(arch, masks),
        });
    }
    Ok(Topology { chips })
}

/// Requires that every chip of a section is also in another one.
fn require_listed<T, U>(
    section: &'static str,
    chips: &Section<T>,
    missing_in: &'static str,
    listed: &Section<U>,
) -> Result<()> {
    match chips.iter().find(|(chip, _)| !listed.contains_key(chip)) {
        Some((&chip, &(line, _))) => Err(TopologyError::UnlistedChip { line, section, chip, missing_in }),
        None => Ok(()),
    }
}

/// Requires that no two chips have the same value, since chips are found by it.
fn require_unique<T: Ord + Display>(
    section: &'static str,
    values: impl Iterator<Item = (u32, usize, T)>,
) -> Result<()> {
    let mut seen: BTreeMap<T, u32> = BTreeMap::new();
    for (chip, line, value) in values {
        if let Some(&other) = seen.get(&value) {
            return Err(TopologyError::NotUnique { line, section, chip, other, value: value.to_string() });
        }
        seen.insert(value, chip);
    }
    Ok(())
}

/// Counts the Tensix cores that are left. Of Wormhole, rows of 8 cores are harvested, of 10 rows; of Blackhole, columns of
/// 10 cores, of 14 columns.
fn count_cores(arch: Arch, chip: u32, masks: &Masks) -> Result<u32> {
    let (line, mask) = masks.tensix;
    match arch {
        Arch::WormholeB0 if mask >> 10 != 0 => {
            Err(mask_too_wide(chip, TENSIX_MASK, line, mask, "a mask of 10 rows"))
        }
        Arch::WormholeB0 => Ok(80 - 8 * mask.count_ones()),
        // Bits beyond the 14 columns with cores are ignored.
        Arch::Blackhole => Ok(140 - 10 * (mask & 0x3fff).count_ones()),
    }
}

/// Counts the DRAM channels that are left. Of Wormhole, none are harvested.
fn count_dram_channels(arch: Arch, chip: u32, masks: &Masks) -> Result<u32> {
    let (line, mask) = masks.dram;
    match arch {
        Arch::WormholeB0 => Ok(6),
        Arch::Blackhole if mask >> 8 != 0 => {
            Err(mask_too_wide(chip, DRAM_MASK, line, mask, "a mask of 8 channels"))
        }
        Arch::Blackhole => Ok(8 - mask.count_ones()),
    }
}

/// Counts the ethernet cores that are left: of 16 on Wormhole, of 14 on Blackhole. Bits beyond these are ignored.
fn count_ethernet_cores(arch: Arch, masks: &Masks) -> Option<u32> {
    let (_, mask) = masks.ethernet?;
    Some(match arch {
        Arch::WormholeB0 => 16 - (mask & 0xffff).count_ones(),
        Arch::Blackhole => 14 - (mask & 0x3fff).count_ones(),
    })
}

fn mask_too_wide(chip: u32, key: &str, line: usize, mask: u32, wanted: &'static str) -> TopologyError {
    let path = format!("{HARVESTING}: chip {chip}: {key}");
    TopologyError::Value { line, path, found: mask.to_string(), wanted }
}
