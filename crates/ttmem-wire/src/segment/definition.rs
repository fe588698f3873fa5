//! Definitions: what records refer to by number.
//!
//! Each begins on a 64-byte block and takes whole blocks. Its head says what it is and how many blocks it has, so that a
//! reader can step over what it does not know. A later definition of the same kind and number replaces an earlier one.

use super::BLOCK;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Largest definition, in bytes.
pub const ROOM: usize = 4096;
/// Most chips an allocator can name.
pub const MAX_CHIPS: usize = 1024;
/// Most spaces an allocator can lay out.
pub const MAX_BANKS: usize = 16;
/// Longest name or call site.
pub const MAX_TEXT: usize = ROOM - size_of::<Head>();

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    kind: u8,
    blocks: u8,
    /// Bytes of text, or number of chips.
    length: U16,
    number: U32,
}

const CHIP: u8 = 1;
const ALLOCATOR: u8 = 2;
const CORES: u8 = 3;
const PROGRAM: u8 = 4;
const SITE: u8 = 5;

/// A chip, as its process knows it. What is not known is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Chip {
    /// Its unique id.
    pub unique_id: U64,
    /// The number the process calls it by.
    pub index: U32,
    /// 1 Wormhole B0, 2 Blackhole.
    pub arch: u8,
    /// 1: reached through another chip.
    pub remote: u8,
    /// Zero.
    pub reserved: U16,
    /// All of DRAM.
    pub dram_bytes: U64,
    /// The part of a channel the runtime uses.
    pub dram_bytes_per_channel: U64,
    /// L1 of one core.
    pub l1_bytes_per_core: U64,
    /// What the runtime can hand out of DRAM.
    pub dram_allocatable: U64,
    /// What the runtime can hand out of L1.
    pub l1_allocatable: U64,
    /// DRAM channels.
    pub dram_channels: U32,
    /// Tensix cores, harvested ones left out.
    pub cores: U32,
    /// Board name.
    pub board: [u8; 24],
    /// PCI address.
    pub pci: [u8; 16],
    /// Where the ring of kernels begins in a core's L1.
    pub kernel_config: U32,
    /// Where it ends, and what programs and buffers share begins.
    pub unreserved: U32,
    /// Columns of cores that programs can use.
    pub columns: u8,
    /// Rows of them.
    pub rows: u8,
    /// Zero.
    pub reserved_bytes: [u8; 6],
}

const _: () = assert!(size_of::<Head>() == 8 && size_of::<Chip>() == 2 * BLOCK - size_of::<Head>());

impl Default for Chip {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// How one space of an allocator is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Banks {
    /// A [`crate::record::Space`] by number.
    pub space: u8,
    reserved: u8,
    /// Banks that move in lock-step.
    pub banks: U16,
    reserved_word: U32,
    /// First allocatable address in a bank.
    pub base: U64,
    /// Allocatable bytes in a bank.
    pub bytes_per_bank: U64,
}

impl Banks {
    /// A layout.
    pub fn new(space: crate::record::Space, banks: u16, base: u64, bytes_per_bank: u64) -> Self {
        Self {
            space: space as u8,
            banks: banks.into(),
            base: base.into(),
            bytes_per_bank: bytes_per_bank.into(),
            ..Self::new_zeroed()
        }
    }
}

/// One definition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Definition<'a> {
    /// A chip and its number.
    Chip(u16, &'a Chip),
    /// An allocator, the spaces it has and the chips it covers, by number.
    Allocator(u16, &'a [Banks], &'a [U16]),
    /// A set of cores: bit `16 y + x`.
    Cores(u16, &'a [U64; 4]),
    /// A program's name.
    Program(u32, &'a str),
    /// A call site.
    Site(u32, &'a str),
}

impl<'a> Definition<'a> {
    /// Writes the definition and returns its length in blocks. `None`: it is too large.
    pub fn encode(&self, room: &mut [u8; ROOM]) -> Option<usize> {
        let (kind, number, length) = match *self {
            Self::Chip(number, _) => (CHIP, u32::from(number), 0),
            Self::Allocator(number, _, chips) if chips.len() <= MAX_CHIPS => {
                (ALLOCATOR, u32::from(number), chips.len())
            }
            Self::Allocator(..) => return None,
            Self::Cores(number, _) => (CORES, u32::from(number), 0),
            Self::Program(number, name) => (PROGRAM, number, name.len()),
            Self::Site(number, site) => (SITE, number, site.len()),
        };
        let text;
        let count;
        let parts: [&[u8]; 3] = match *self {
            Self::Chip(_, chip) => [chip.as_bytes(), &[], &[]],
            Self::Allocator(_, banks, chips) => {
                count = U64::new(banks.len() as u64);
                [count.as_bytes(), banks.as_bytes(), chips.as_bytes()]
            }
            Self::Cores(_, cores) => [cores.as_bytes(), &[], &[]],
            Self::Program(_, name) | Self::Site(_, name) => {
                text = name.as_bytes();
                [text, &[], &[]]
            }
        };
        let mut end = size_of::<Head>();
        for part in parts {
            room.get_mut(end..end + part.len())?.copy_from_slice(part);
            end += part.len();
        }
        let blocks = end.div_ceil(BLOCK);
        room[end..blocks * BLOCK].fill(0);
        let head = Head { kind, blocks: blocks as u8, length: (length as u16).into(), number: number.into() };
        head.write_to_prefix(room).ok()?;
        Some(blocks)
    }

    /// The definition at the beginning of `bytes`, if it is one we know and whole, and what follows it.
    fn decode(bytes: &'a [u8]) -> Option<(Option<Self>, &'a [u8])> {
        let (head, _) = Head::read_from_prefix(bytes).ok()?;
        // A length of 0 would never end.
        let len = usize::from(head.blocks).max(1) * BLOCK;
        let rest = bytes.get(len..)?;
        let body = bytes.get(size_of::<Head>()..len)?;
        Some((Self::decode_body(head, body), rest))
    }

    fn decode_body(head: Head, body: &'a [u8]) -> Option<Self> {
        let number = head.number.get();
        let small = u16::try_from(number).ok();
        let length = usize::from(head.length.get());
        let text = || core::str::from_utf8(body.get(..length)?).ok();
        match head.kind {
            CHIP => Some(Self::Chip(small?, Chip::ref_from_prefix(body).ok()?.0)),
            ALLOCATOR => {
                let (count, body) = U64::read_from_prefix(body).ok()?;
                let count = usize::try_from(count.get()).ok().filter(|&count| count <= MAX_BANKS)?;
                let (banks, body) = <[Banks]>::ref_from_prefix_with_elems(body, count).ok()?;
                let (chips, _) = <[U16]>::ref_from_prefix_with_elems(body, length).ok()?;
                Some(Self::Allocator(small?, banks, chips))
            }
            CORES => Some(Self::Cores(small?, <[U64; 4]>::ref_from_prefix(body).ok()?.0)),
            PROGRAM => Some(Self::Program(number, text()?)),
            SITE => Some(Self::Site(number, text()?)),
            _ => None,
        }
    }
}

/// The definitions in a piece of the area that holds whole ones; `None` for one that is not known or broken.
pub fn parse(mut bytes: &[u8]) -> impl Iterator<Item = Option<Definition<'_>>> {
    core::iter::from_fn(move || {
        let (definition, rest) = Definition::decode(bytes)?;
        bytes = rest;
        Some(definition)
    })
}
