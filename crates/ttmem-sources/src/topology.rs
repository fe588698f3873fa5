//! What a cluster descriptor says of a machine's chips: the YAML file that tt-umd writes, and the runtime's mock reads.
//!
//! It is the only source that knows of chips behind other chips, and of what is switched off in each. Files of many
//! years are about, so what is optional in any of them is optional here; but a file that contradicts itself is refused,
//! since a guess would make wrong capacities.
//!
//! The file may be anybody's. Events of the parser are taken one by one, and only what is wanted is kept: memory goes
//! by the number of chips, which is bounded, as is the text. There are no aliases to expand, and nothing recurses by
//! what the file says.

use self::walk::{Item, Walk};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use ttmem_core::words::Arch;

#[cfg(test)]
mod tests;
mod walk;

/// Longest descriptor that is read. One of 1,024 chips with all their links is shorter than 1 MiB.
pub const MAX_TEXT: usize = 4 << 20;

/// Most chips of one descriptor.
pub const MAX_CHIPS: usize = 1024;

/// The chips of a machine, by logical id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Each logical id once, in rising order.
    pub chips: Vec<TopologyChip>,
}

/// One chip, as the descriptor has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyChip {
    /// The number that descriptors, and programs that see all chips, call it by.
    pub logical: u32,
    /// Its architecture.
    pub arch: Arch,
    /// The kind of its board, in the descriptor's word: `n300`, `p150`, `ubb`.
    pub board: Option<String>,
    /// Its board.
    pub board_id: Option<u64>,
    /// Tells it from others in the same file.
    pub unique_id: Option<u64>,
    /// The driver's number for it. `None` for a remote chip, and where chips are reached through JTAG.
    pub node: Option<u32>,
    /// Its PCI address, as `dddd:bb:dd.f` in lower case.
    pub pci: Option<String>,
    /// Its place on the board.
    pub location: Option<u32>,
    /// Whether it is reached only through another chip.
    pub remote: bool,
    /// Tensix cores that are not switched off.
    pub cores: u32,
    /// DRAM channels that are not switched off.
    pub dram_channels: u32,
}

/// Why a text is no topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// It is longer than any descriptor.
    #[error("descriptor of {len} bytes, more than {MAX_TEXT}")]
    TooLong {
        /// Bytes.
        len: usize,
    },
    /// It is not YAML, or nested too deeply.
    #[error("line {line}: {reason}")]
    Yaml {
        /// Where.
        line: usize,
        /// The parser's word.
        reason: String,
    },
    /// Descriptors have no anchors, and bombs are made of them.
    #[error("line {line}: anchors and aliases are not read")]
    Anchor {
        /// Where.
        line: usize,
    },
    /// Another document follows, and which one is meant?
    #[error("line {line}: a second document")]
    SecondDocument {
        /// Where.
        line: usize,
    },
    /// A section that every descriptor has is not there.
    #[error("no key {key}")]
    NoKey {
        /// Which.
        key: &'static str,
    },
    /// The descriptor has no chips.
    #[error("no chips in arch")]
    NoChips,
    /// Something that must be there is not.
    #[error("line {line}: {place}: no {missing}")]
    Missing {
        /// Of what: where that begins.
        line: usize,
        /// Of what.
        place: String,
        /// Which.
        missing: &'static str,
    },
    /// A value is not what it should be.
    #[error("line {line}: {place}: {found} instead of {wanted}")]
    Value {
        /// Where.
        line: usize,
        /// What it is the value of.
        place: String,
        /// What there is.
        found: String,
        /// What should be.
        wanted: &'static str,
    },
    /// Something is said twice.
    #[error("line {line}: {place} for the second time")]
    Twice {
        /// Where the second is.
        line: usize,
        /// What.
        place: String,
    },
    /// A section is about a chip that another section, which should name it, does not.
    #[error("line {line}: {place}: chip {chip} is not in {missing_in}")]
    Stranger {
        /// Where.
        line: usize,
        /// The section about it.
        place: &'static str,
        /// Which.
        chip: u32,
        /// The section without it.
        missing_in: &'static str,
    },
    /// Two chips have what only one can have.
    #[error("line {line}: {place}: chip {chip} has {value}, as chip {other}")]
    Shared {
        /// Where.
        line: usize,
        /// The section.
        place: &'static str,
        /// The one.
        chip: u32,
        /// The other.
        other: u32,
        /// What they share.
        value: String,
    },
    /// More chips than any machine has.
    #[error("line {line}: {place}: more than {MAX_CHIPS} chips")]
    TooManyChips {
        /// Where.
        line: usize,
        /// The section.
        place: String,
    },
}

type Result<T> = std::result::Result<T, TopologyError>;

/// Reads a cluster descriptor.
pub fn parse(text: &str) -> Result<Topology> {
    if text.len() > MAX_TEXT {
        return Err(TopologyError::TooLong { len: text.len() });
    }
    let mut walk = Walk::new(text);
    let mut told = Told::default();
    if walk.next()? == Item::Document {
        told.read(&mut walk)?;
        // The document's end.
        walk.next()?;
        if walk.next()? != Item::Over {
            return Err(TopologyError::SecondDocument { line: walk.line });
        }
    }
    told.join()
}

/// By chip, what a section says and in which line.
type Section<T> = BTreeMap<u32, (usize, T)>;

const ARCH: &str = "arch";
const MMIO: &str = "chips_with_mmio";
const HARVESTING: &str = "harvesting";
const BOARDS: &str = "boards";
const UNIQUE_IDS: &str = "chip_unique_ids";
const LOCATIONS: &str = "asic_locations";
const PCI: &str = "chip_pci_bdfs";
const IO: &str = "io_device_type";

/// The sections that are read. All others are passed over.
const KEYS: [&str; 8] = [ARCH, MMIO, HARVESTING, BOARDS, UNIQUE_IDS, LOCATIONS, PCI, IO];

const TENSIX_MASK: &str = "harvest_mask";
const DRAM_MASK: &str = "dram_harvesting_mask";

/// What a descriptor says, section by section.
#[derive(Default)]
struct Told {
    seen: BTreeSet<&'static str>,
    arch: Section<Arch>,
    nodes: Section<u32>,
    harvesting: Section<Masks>,
    boards: Section<Board>,
    unique_ids: Section<u64>,
    locations: Section<u32>,
    pci: Section<Option<String>>,
    jtag: bool,
}

/// What is switched off in a chip, each with its line.
struct Masks {
    tensix: (usize, u32),
    dram: (usize, u32),
}

#[derive(Clone, Default)]
struct Board {
    kind: Option<String>,
    id: Option<u64>,
}

impl Told {
    fn read(&mut self, walk: &mut Walk) -> Result<()> {
        walk.map(|walk, name| {
            let Some(&key) = KEYS.iter().find(|key| **key == name) else { return walk.skip() };
            walk.within(key, |walk| {
                if !self.seen.insert(key) {
                    return Err(walk.twice());
                }
                match key {
                    ARCH => self.arch = walk.by_chip(arch)?,
                    MMIO => self.nodes = nodes(walk)?,
                    HARVESTING => self.harvesting = walk.by_chip(masks)?,
                    BOARDS => self.boards = boards(walk)?,
                    UNIQUE_IDS => {
                        self.unique_ids = walk.by_chip(|walk| walk.number("a number of 64 bits"))?;
                    }
                    LOCATIONS => self.locations = walk.by_chip(|walk| walk.number("a number of 32 bits"))?,
                    PCI => self.pci = walk.by_chip(pci)?,
                    _ => self.jtag = walk.scalar("a word")?.is_some_and(|io| io.eq_ignore_ascii_case("jtag")),
                }
                Ok(())
            })
        })
    }

    /// Puts the sections together.
    fn join(mut self) -> Result<Topology> {
        if let Some(key) = [ARCH, MMIO, HARVESTING].into_iter().find(|key| !self.seen.contains(key)) {
            return Err(TopologyError::NoKey { key });
        }
        if self.arch.is_empty() {
            return Err(TopologyError::NoChips);
        }
        no_strangers(MMIO, &self.nodes, ARCH, &self.arch)?;
        no_strangers(HARVESTING, &self.harvesting, ARCH, &self.arch)?;
        no_strangers(BOARDS, &self.boards, ARCH, &self.arch)?;
        no_strangers(UNIQUE_IDS, &self.unique_ids, ARCH, &self.arch)?;
        no_strangers(LOCATIONS, &self.locations, ARCH, &self.arch)?;
        no_strangers(PCI, &self.pci, MMIO, &self.nodes)?;
        let direct: BTreeSet<u32> = self.nodes.keys().copied().collect();
        if self.jtag {
            // These count probes, not the driver's nodes.
            self.nodes.clear();
        }
        none_shared(MMIO, self.nodes.iter().map(|(&chip, &(line, node))| (chip, line, node)))?;
        none_shared(UNIQUE_IDS, self.unique_ids.iter().map(|(&chip, &(line, id))| (chip, line, id)))?;
        let addresses = self.pci.iter();
        none_shared(PCI, addresses.filter_map(|(&chip, (line, pci))| Some((chip, *line, pci.as_ref()?))))?;

        let mut chips = Vec::with_capacity(self.arch.len());
        for (&logical, &(line, arch)) in &self.arch {
            let Some((_, masks)) = self.harvesting.get(&logical) else {
                let place = format!("{ARCH}: chip {logical}");
                return Err(TopologyError::Missing { line, place, missing: HARVESTING });
            };
            let board = self.boards.get(&logical).map(|(_, board)| board.clone()).unwrap_or_default();
            chips.push(TopologyChip {
                logical,
                arch,
                board: board.kind,
                board_id: board.id,
                unique_id: self.unique_ids.get(&logical).map(|&(_, id)| id),
                node: self.nodes.get(&logical).map(|&(_, node)| node),
                pci: self.pci.get(&logical).and_then(|(_, pci)| pci.clone()),
                location: self.locations.get(&logical).map(|&(_, location)| location),
                remote: !direct.contains(&logical),
                cores: cores(arch, logical, masks)?,
                dram_channels: dram_channels(arch, logical, masks)?,
            });
        }
        Ok(Topology { chips })
    }
}

/// Every chip of a section must be in another one.
fn no_strangers<T, U>(
    place: &'static str,
    section: &Section<T>,
    missing_in: &'static str,
    named: &Section<U>,
) -> Result<()> {
    match section.iter().find(|(chip, _)| !named.contains_key(chip)) {
        Some((&chip, &(line, _))) => Err(TopologyError::Stranger { line, place, chip, missing_in }),
        None => Ok(()),
    }
}

/// No two chips may have the same: whatever finds a chip by it would find the wrong one.
fn none_shared<T: Ord + Display>(
    place: &'static str,
    values: impl Iterator<Item = (u32, usize, T)>,
) -> Result<()> {
    let mut owners: BTreeMap<T, u32> = BTreeMap::new();
    for (chip, line, value) in values {
        if let Some(&other) = owners.get(&value) {
            return Err(TopologyError::Shared { line, place, chip, other, value: value.to_string() });
        }
        owners.insert(value, chip);
    }
    Ok(())
}

/// Wormhole loses rows of 8 cores, of 10 rows; Blackhole columns of 10 cores, of 14 columns.
fn cores(arch: Arch, chip: u32, masks: &Masks) -> Result<u32> {
    let (line, mask) = masks.tensix;
    match arch {
        Arch::WormholeB0 if mask >> 10 != 0 => Err(wide(chip, TENSIX_MASK, line, mask, "a mask of 10 rows")),
        Arch::WormholeB0 => Ok(80 - 8 * mask.count_ones()),
        // Only so many columns have cores, whatever bits there are for others.
        Arch::Blackhole => Ok(140 - 10 * (mask & 0x3fff).count_ones()),
    }
}

/// Wormhole never loses a channel.
fn dram_channels(arch: Arch, chip: u32, masks: &Masks) -> Result<u32> {
    let (line, mask) = masks.dram;
    match arch {
        Arch::WormholeB0 => Ok(6),
        Arch::Blackhole if mask >> 8 != 0 => Err(wide(chip, DRAM_MASK, line, mask, "a mask of 8 channels")),
        Arch::Blackhole => Ok(8 - mask.count_ones()),
    }
}

fn wide(chip: u32, key: &str, line: usize, mask: u32, wanted: &'static str) -> TopologyError {
    let place = format!("{HARVESTING}: chip {chip}: {key}");
    TopologyError::Value { line, place, found: mask.to_string(), wanted }
}

fn arch(walk: &mut Walk) -> Result<Arch> {
    const NAMES: [(&str, Arch); 3] =
        [("wormhole_b0", Arch::WormholeB0), ("wormhole", Arch::WormholeB0), ("blackhole", Arch::Blackhole)];
    walk.read("wormhole_b0 or blackhole", |text| {
        NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|&(_, arch)| arch)
    })
}

/// A list of maps of one entry, logical id to driver's number; or of plain ids, where both are the same.
fn nodes(walk: &mut Walk) -> Result<Section<u32>> {
    let mut nodes = Section::new();
    walk.list(|walk, item| match item {
        Item::Map => walk.rest_of_map(|walk, key| {
            walk.chip(&key, &mut nodes, |walk, _| walk.number("a number of 32 bits"))
        }),
        Item::Scalar(chip) => walk.chip(&chip, &mut nodes, |_, chip| Ok(chip)),
        other => Err(walk.refuse(&other, "a map of chip and node")),
    })?;
    Ok(nodes)
}

fn masks(walk: &mut Walk) -> Result<Masks> {
    let start = walk.line;
    let (mut tensix, mut dram) = (None, None);
    walk.map(|walk, name| {
        let (key, mask) = match &*name {
            TENSIX_MASK => (TENSIX_MASK, &mut tensix),
            DRAM_MASK => (DRAM_MASK, &mut dram),
            _ => return walk.skip(),
        };
        walk.within(key, |walk| {
            walk.once(mask, |walk| {
                let value = walk.number("a mask of 32 bits")?;
                Ok((walk.line, value))
            })
        })
    })?;
    match tensix {
        // Files from before there was a mask for DRAM are of chips with all of it.
        Some(tensix) => Ok(Masks { tensix, dram: dram.unwrap_or((start, 0)) }),
        None => Err(TopologyError::Missing { line: start, place: walk.place.clone(), missing: TENSIX_MASK }),
    }
}

/// A list of boards, each a list of maps of one entry.
fn boards(walk: &mut Walk) -> Result<Section<Board>> {
    let mut boards = Section::new();
    walk.list(|walk, item| {
        let (mut kind, mut id, mut chips) = (None, None, Section::new());
        let mut entry = |walk: &mut Walk, name: Cow<str>| match &*name {
            "board_type" => walk.within("board_type", |walk| walk.once(&mut kind, board_type)),
            "board_id" => walk.within("board_id", |walk| {
                walk.once(&mut id, |walk| walk.number::<u64>("a number of 64 bits"))
            }),
            "chips" => walk.within("chips", |walk| {
                walk.list(|walk, item| match item {
                    Item::Scalar(chip) => walk.chip(&chip, &mut chips, |_, _| Ok(())),
                    other => Err(walk.refuse(&other, "a chip's number")),
                })
            }),
            _ => walk.skip(),
        };
        match item {
            Item::List => walk.rest_of_list(|walk, item| match item {
                Item::Map => walk.rest_of_map(&mut entry),
                other => Err(walk.refuse(&other, "a map of a board")),
            })?,
            Item::Map => walk.rest_of_map(&mut entry)?,
            other => return Err(walk.refuse(&other, "a board")),
        }
        let board = Board { kind: kind.flatten(), id };
        for (chip, (line, ())) in chips {
            if boards.len() >= MAX_CHIPS {
                return Err(TopologyError::TooManyChips { line, place: BOARDS.to_owned() });
            }
            if boards.insert(chip, (line, board.clone())).is_some() {
                let place = format!("{BOARDS}: chip {chip}");
                return Err(TopologyError::Twice { line, place });
            }
        }
        Ok(())
    })?;
    Ok(boards)
}

/// A board's word for itself, which people will see: nothing in it may move a cursor.
fn board_type(walk: &mut Walk) -> Result<Option<String>> {
    let wanted = "a kind of board";
    let Some(text) = walk.scalar(wanted)? else { return Ok(None) };
    let plain = text.len() <= 32 && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if plain && !text.is_empty() {
        Ok(Some(text.into_owned()))
    } else {
        Err(walk.refuse(&Item::Scalar(text), wanted))
    }
}

/// A PCI address. Older YAML has numbers to base 60, so a tool that rewrote the file may have made one of it (2460.0 of
/// `0000:41:00.0`): what it was cannot be told any more.
fn pci(walk: &mut Walk) -> Result<Option<String>> {
    let wanted = "a PCI address";
    let Some(text) = walk.scalar(wanted)? else { return Ok(None) };
    let rewritten = text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || ".+e".contains(c));
    match address(&text) {
        None if rewritten => Ok(None),
        None => Err(walk.refuse(&Item::Scalar(text), wanted)),
        found => Ok(found),
    }
}

fn address(text: &str) -> Option<String> {
    let hex = |text: &str, digits: usize| {
        let right = (1..=digits).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
        right.then(|| u32::from_str_radix(text, 16).ok()).flatten()
    };
    let (rest, function) = text.rsplit_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    // Most tools leave out a domain of 0.
    let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
    let (domain, bus) = (hex(domain, 8)?, hex(bus, 2)?);
    let device = hex(device, 2).filter(|&device| device < 32)?;
    let function = hex(function, 1).filter(|&function| function < 8)?;
    Some(format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"))
}
