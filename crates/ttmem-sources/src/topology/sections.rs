//! Parses the sections of a cluster descriptor.

use super::MAX_CHIPS;
use super::error::{Result, TopologyError};
use super::yaml::{Item, YamlReader};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use ttmem_core::words::Arch;

/// The entries of a section by chip, each with its line.
pub(super) type Section<T> = BTreeMap<u32, (usize, T)>;

pub(super) const ARCH: &str = "arch";
pub(super) const MMIO: &str = "chips_with_mmio";
pub(super) const HARVESTING: &str = "harvesting";
pub(super) const BOARDS: &str = "boards";
pub(super) const UNIQUE_IDS: &str = "chip_unique_ids";
pub(super) const LOCATIONS: &str = "asic_locations";
pub(super) const PCI: &str = "chip_pci_bdfs";
const IO: &str = "io_device_type";

/// The sections that are read. All others are skipped.
const KEYS: [&str; 8] = [ARCH, MMIO, HARVESTING, BOARDS, UNIQUE_IDS, LOCATIONS, PCI, IO];

pub(super) const TENSIX_MASK: &str = "harvest_mask";
pub(super) const DRAM_MASK: &str = "dram_harvesting_mask";
pub(super) const ETHERNET_MASK: &str = "eth_harvesting_mask";

/// All sections of a descriptor.
#[derive(Default)]
pub(super) struct Sections {
    /// Keys of the sections that it has.
    pub(super) seen: BTreeSet<&'static str>,
    pub(super) arch: Section<Arch>,
    pub(super) nodes: Section<u32>,
    pub(super) harvesting: Section<Masks>,
    pub(super) boards: Section<Board>,
    pub(super) unique_ids: Section<u64>,
    pub(super) locations: Section<u32>,
    pub(super) pci: Section<Option<String>>,
    pub(super) jtag: bool,
}

/// What is harvested in a chip, each with its line.
pub(super) struct Masks {
    pub(super) tensix: (usize, u32),
    pub(super) dram: (usize, u32),
    /// Only newer files have it.
    pub(super) ethernet: Option<(usize, u32)>,
}

/// A board's kind and id.
#[derive(Clone, Default)]
pub(super) struct Board {
    pub(super) kind: Option<String>,
    pub(super) id: Option<u64>,
}

impl Sections {
    /// Reads all sections of a document.
    pub(super) fn read(&mut self, yaml: &mut YamlReader) -> Result<()> {
        yaml.read_map(|yaml, name| {
            let Some(&key) = KEYS.iter().find(|key| **key == name) else { return yaml.skip() };
            yaml.within(key, |yaml| {
                if !self.seen.insert(key) {
                    return Err(yaml.duplicate());
                }
                match key {
                    ARCH => self.arch = yaml.read_by_chip(parse_arch)?,
                    MMIO => self.nodes = parse_nodes(yaml)?,
                    HARVESTING => self.harvesting = yaml.read_by_chip(parse_masks)?,
                    BOARDS => self.boards = parse_boards(yaml)?,
                    UNIQUE_IDS => {
                        self.unique_ids =
                            yaml.read_by_chip(|yaml| yaml.read_number("a number of 64 bits"))?;
                    }
                    LOCATIONS => {
                        self.locations = yaml.read_by_chip(|yaml| yaml.read_number("a number of 32 bits"))?;
                    }
                    PCI => self.pci = yaml.read_by_chip(parse_pci)?,
                    _ => {
                        self.jtag =
                            yaml.read_scalar("a word")?.is_some_and(|io| io.eq_ignore_ascii_case("jtag"));
                    }
                }
                Ok(())
            })
        })
    }
}

fn parse_arch(yaml: &mut YamlReader) -> Result<Arch> {
    const NAMES: [(&str, Arch); 3] =
        [("wormhole_b0", Arch::WormholeB0), ("wormhole", Arch::WormholeB0), ("blackhole", Arch::Blackhole)];
    yaml.parse_scalar("wormhole_b0 or blackhole", |text| {
        NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|&(_, arch)| arch)
    })
}

/// Parses a list of maps of one entry, logical id to node number; or of plain ids, where both numbers are the same.
fn parse_nodes(yaml: &mut YamlReader) -> Result<Section<u32>> {
    let mut nodes = Section::new();
    yaml.read_list(|yaml, item| match item {
        Item::Map => yaml.read_rest_of_map(|yaml, key| {
            yaml.read_chip(&key, &mut nodes, |yaml, _| yaml.read_number("a number of 32 bits"))
        }),
        Item::Scalar(chip) => yaml.read_chip(&chip, &mut nodes, |_, chip| Ok(chip)),
        other => Err(yaml.unexpected(&other, "a map of chip and node")),
    })?;
    Ok(nodes)
}

fn parse_masks(yaml: &mut YamlReader) -> Result<Masks> {
    let start = yaml.line;
    let (mut tensix, mut dram, mut ethernet) = (None, None, None);
    yaml.read_map(|yaml, name| {
        let (key, mask) = match &*name {
            TENSIX_MASK => (TENSIX_MASK, &mut tensix),
            DRAM_MASK => (DRAM_MASK, &mut dram),
            ETHERNET_MASK => (ETHERNET_MASK, &mut ethernet),
            _ => return yaml.skip(),
        };
        yaml.within(key, |yaml| {
            yaml.read_once(mask, |yaml| {
                let value = yaml.read_number("a mask of 32 bits")?;
                Ok((yaml.line, value))
            })
        })
    })?;
    match tensix {
        // Files from before there was a mask for DRAM are of chips without harvested DRAM.
        Some(tensix) => Ok(Masks { tensix, dram: dram.unwrap_or((start, 0)), ethernet }),
        None => Err(TopologyError::Missing { line: start, path: yaml.path.clone(), missing: TENSIX_MASK }),
    }
}

/// Parses a list of boards, each a list of maps of one entry.
fn parse_boards(yaml: &mut YamlReader) -> Result<Section<Board>> {
    let mut boards = Section::new();
    yaml.read_list(|yaml, item| {
        let (mut kind, mut id, mut chips) = (None, None, Section::new());
        let mut entry = |yaml: &mut YamlReader, name: Cow<str>| match &*name {
            "board_type" => yaml.within("board_type", |yaml| yaml.read_once(&mut kind, parse_board_type)),
            "board_id" => yaml.within("board_id", |yaml| {
                yaml.read_once(&mut id, |yaml| yaml.read_number::<u64>("a number of 64 bits"))
            }),
            "chips" => yaml.within("chips", |yaml| {
                yaml.read_list(|yaml, item| match item {
                    Item::Scalar(chip) => yaml.read_chip(&chip, &mut chips, |_, _| Ok(())),
                    other => Err(yaml.unexpected(&other, "a chip's number")),
                })
            }),
            _ => yaml.skip(),
        };
        match item {
            Item::List => yaml.read_rest_of_list(|yaml, item| match item {
                Item::Map => yaml.read_rest_of_map(&mut entry),
                other => Err(yaml.unexpected(&other, "a map of a board")),
            })?,
            Item::Map => yaml.read_rest_of_map(&mut entry)?,
            other => return Err(yaml.unexpected(&other, "a board")),
        }
        let board = Board { kind: kind.flatten(), id };
        for (chip, (line, ())) in chips {
            if boards.len() >= MAX_CHIPS {
                return Err(TopologyError::TooManyChips { line, path: BOARDS.to_owned() });
            }
            if boards.insert(chip, (line, board.clone())).is_some() {
                let path = format!("{BOARDS}: chip {chip}");
                return Err(TopologyError::Duplicate { line, path });
            }
        }
        Ok(())
    })?;
    Ok(boards)
}

/// Parses the kind of a board. It is displayed, so control characters are refused.
fn parse_board_type(yaml: &mut YamlReader) -> Result<Option<String>> {
    let wanted = "a kind of board";
    let Some(text) = yaml.read_scalar(wanted)? else { return Ok(None) };
    let plain = text.len() <= 32 && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if plain && !text.is_empty() {
        Ok(Some(text.into_owned()))
    } else {
        Err(yaml.unexpected(&Item::Scalar(text), wanted))
    }
}

/// Parses a PCI address. YAML 1.1 has numbers to base 60, so a tool that rewrote the file may have turned it into one
/// (`0000:41:00.0` into 2460.0), from which the address cannot be recovered.
fn parse_pci(yaml: &mut YamlReader) -> Result<Option<String>> {
    let wanted = "a PCI address";
    let Some(text) = yaml.read_scalar(wanted)? else { return Ok(None) };
    let rewritten = text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || ".+e".contains(c));
    match normalize_address(&text) {
        None if rewritten => Ok(None),
        None => Err(yaml.unexpected(&Item::Scalar(text), wanted)),
        found => Ok(found),
    }
}

/// Writes a PCI address as `dddd:bb:dd.f`; `None` if it is none.
fn normalize_address(text: &str) -> Option<String> {
    let hex = |text: &str, digits: usize| {
        let right = (1..=digits).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
        right.then(|| u32::from_str_radix(text, 16).ok()).flatten()
    };
    let (rest, function) = text.rsplit_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    // Most tools omit a domain of 0.
    let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
    let (domain, bus) = (hex(domain, 8)?, hex(bus, 2)?);
    let device = hex(device, 2).filter(|&device| device < 32)?;
    let function = hex(function, 1).filter(|&function| function < 8)?;
    Some(format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"))
}
