//! Definitions: what records refer to by number.
//!
//! A definition is a number of 64-byte blocks. Its head has its kind and its number of blocks, so that a reader can skip kinds
//! that it does not know. A later definition of the same kind and number replaces an earlier one.

use super::BLOCK;
use ttmem_types::{DataType, Tensor, TensorLayout};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the largest definition.
pub const MAX_BYTES: usize = 4096;
/// Most chips of an allocator.
pub const MAX_CHIPS: usize = 1024;
/// Most spaces of an allocator.
pub const MAX_BANKS: usize = 16;
/// Most frames of a stack's definition. Longer stacks have a parent.
pub const MAX_FRAMES: usize = 13;
/// Bytes of the longest build id.
pub const MAX_BUILD_ID: usize = 64;
/// Bytes of the longest name or call site.
pub const MAX_TEXT: usize = MAX_BYTES - size_of::<Head>();

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
const FILE: u8 = 6;
const FRAME: u8 = 7;
const STACK: u8 = 8;
const OP: u8 = 9;
const CALL_SITE: u8 = 10;
const TRACK: u8 = 11;
const LIBRARY: u8 = 12;

/// A chip, as its process describes it; 0 means unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Chip {
    /// Unique id.
    pub unique_id: U64,
    /// Device number in the process.
    pub index: U32,
    /// 1 Wormhole B0, 2 Blackhole.
    pub arch: u8,
    /// 1: reached through another chip.
    pub remote: u8,
    /// Zero.
    pub reserved: U16,
    /// DRAM in bytes.
    pub dram_bytes: U64,
    /// Bytes of a DRAM channel that the runtime uses.
    pub dram_bytes_per_channel: U64,
    /// L1 of one core in bytes.
    pub l1_bytes_per_core: U64,
    /// DRAM that the runtime can allocate, in bytes.
    pub dram_allocatable: U64,
    /// L1 that the runtime can allocate, in bytes.
    pub l1_allocatable: U64,
    /// DRAM channels.
    pub dram_channels: U32,
    /// Tensix cores, without harvested ones.
    pub cores: U32,
    /// Board name.
    pub board: [u8; 24],
    /// PCI address.
    pub pci: [u8; 16],
    /// Start address of the kernel config buffer in a core's L1.
    pub kernel_config: U32,
    /// End of the kernel config buffer, where memory of programs and buffers begins.
    pub unreserved: U32,
    /// Columns of cores that programs can use.
    pub columns: u8,
    /// Rows of cores that programs can use.
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

/// Layout of one memory space of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Banks {
    /// A [`crate::record::Space`] by number.
    pub space: u8,
    reserved: u8,
    /// Banks, which allocate in lock-step.
    pub banks: U16,
    reserved_word: U32,
    /// First allocatable address in a bank.
    pub base: U64,
    /// Allocatable bytes in a bank.
    pub bytes_per_bank: U64,
}

impl Banks {
    /// Returns the layout of a space.
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

/// A line of a function, or an address in a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Frame {
    /// Number of the file or library.
    pub file: U32,
    /// Line; 0: unknown.
    pub line: U32,
    /// Address in the library; 0: this is a line of a file.
    pub offset: U64,
}

/// The part of a call site's definition in front of its dimensions and text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CallSite {
    /// Number of the frame that is displayed; 0: unknown.
    pub frame: U32,
    /// Number of the whole stack; 0: not recorded.
    pub stack: U32,
    /// Number of the operation; 0: none.
    pub op: U32,
    /// Number of the track that it is in; 0: none.
    pub track: U32,
    /// A [`ttmem_types::Purpose`] by number.
    pub purpose: u8,
    /// A [`ttmem_types::DataType`] by number, plus 1; 0: unknown.
    pub data_type: u8,
    /// A [`ttmem_types::TensorLayout`] by number, plus 1; 0: unknown.
    pub layout: u8,
    /// Number of dimensions, plus 1; 0: there is no tensor.
    pub rank: u8,
}

impl CallSite {
    /// The tensor with these dimensions, if there is one.
    pub fn tensor(&self, dimensions: &[U32]) -> Option<Tensor> {
        let rank = self.rank.checked_sub(1)?;
        let mut shape = [0; Tensor::MAX_RANK];
        let len = usize::from(rank).min(dimensions.len()).min(shape.len());
        for (to, from) in shape.iter_mut().zip(&dimensions[..len]) {
            *to = from.get();
        }
        let mut tensor = Tensor::new(&shape[..len]);
        tensor.data_type = self.data_type.checked_sub(1).and_then(DataType::from_number);
        tensor.layout = self.layout.checked_sub(1).and_then(TensorLayout::from_number);
        Some(tensor)
    }
}

const _: () = assert!(size_of::<Frame>() == 16 && size_of::<CallSite>() == 20);

/// A definition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Definition<'a> {
    /// A chip's number and description.
    Chip(u16, &'a Chip),
    /// An allocator's number, its spaces, and its chips by number.
    Allocator(u16, &'a [Banks], &'a [U16]),
    /// A core set's number and its bitmap: core `x` of row `y` is bit `16 y + x`.
    Cores(u16, &'a [U64; 4]),
    /// A program's number and name.
    Program(u32, &'a str),
    /// A call site's number and text, if that is all there is.
    Site(u32, &'a str),
    /// The number and the path of a file or library.
    File(u32, &'a str),
    /// A frame's number, its place, and its function.
    Frame(u32, &'a Frame, &'a str),
    /// A stack's number, the number of the stack that its outermost frame was called from, and its frames, innermost first.
    Stack(u32, u32, &'a [U32]),
    /// An operation's number and name.
    Op(u32, &'a str),
    /// The number and the name of a track: a part of the program that names its allocations.
    Track(u32, &'a str),
    /// A call site's number, its parts, the dimensions of its tensor, and its text.
    CallSite(u32, &'a CallSite, &'a [U32], &'a str),
    /// A library's number among files, its build id, which may be empty, and its path.
    Library(u32, &'a [u8], &'a str),
}

impl<'a> Definition<'a> {
    /// Writes the definition and returns its length in blocks; `None` if it is too large.
    pub fn encode(&self, bytes: &mut [u8; MAX_BYTES]) -> Option<usize> {
        let (kind, number, length) = match *self {
            Self::Chip(number, _) => (CHIP, u32::from(number), 0),
            Self::Allocator(number, _, chips) if chips.len() <= MAX_CHIPS => {
                (ALLOCATOR, u32::from(number), chips.len())
            }
            Self::Cores(number, _) => (CORES, u32::from(number), 0),
            Self::Program(number, name) => (PROGRAM, number, name.len()),
            Self::Site(number, site) => (SITE, number, site.len()),
            Self::File(number, path) => (FILE, number, path.len()),
            Self::Frame(number, _, function) => (FRAME, number, function.len()),
            Self::Stack(number, _, frames) if frames.len() <= MAX_FRAMES => (STACK, number, frames.len()),
            Self::Op(number, name) => (OP, number, name.len()),
            Self::Track(number, name) => (TRACK, number, name.len()),
            Self::CallSite(number, _, dimensions, text) if dimensions.len() <= Tensor::MAX_RANK => {
                (CALL_SITE, number, text.len())
            }
            Self::Library(number, build_id, path) if build_id.len() <= MAX_BUILD_ID => {
                (LIBRARY, number, path.len())
            }
            // Too large.
            Self::Allocator(..) | Self::Stack(..) | Self::CallSite(..) | Self::Library(..) => return None,
        };
        let count;
        let word;
        let parts: [&[u8]; 3] = match *self {
            Self::Chip(_, chip) => [chip.as_bytes(), &[], &[]],
            Self::Allocator(_, banks, chips) => {
                count = U64::new(banks.len() as u64);
                [count.as_bytes(), banks.as_bytes(), chips.as_bytes()]
            }
            Self::Cores(_, cores) => [cores.as_bytes(), &[], &[]],
            Self::Program(_, text)
            | Self::Site(_, text)
            | Self::File(_, text)
            | Self::Op(_, text)
            | Self::Track(_, text) => [text.as_bytes(), &[], &[]],
            Self::Frame(_, frame, function) => [frame.as_bytes(), function.as_bytes(), &[]],
            Self::Stack(_, parent, frames) => {
                word = U32::new(parent);
                [word.as_bytes(), frames.as_bytes(), &[]]
            }
            Self::CallSite(_, site, dimensions, text) => {
                [site.as_bytes(), dimensions.as_bytes(), text.as_bytes()]
            }
            Self::Library(_, build_id, path) => {
                word = U32::new(build_id.len() as u32);
                [word.as_bytes(), build_id, path.as_bytes()]
            }
        };
        let mut end = size_of::<Head>();
        for part in parts {
            bytes.get_mut(end..end + part.len())?.copy_from_slice(part);
            end += part.len();
        }
        let blocks = end.div_ceil(BLOCK);
        bytes[end..blocks * BLOCK].fill(0);
        let head = Head { kind, blocks: blocks as u8, length: (length as u16).into(), number: number.into() };
        head.write_to_prefix(bytes).ok()?;
        Some(blocks)
    }

    /// Returns the definition at the beginning of `bytes`, if its kind is known and it is complete, and the bytes after it.
    fn decode(bytes: &'a [u8]) -> Option<(Option<Self>, &'a [u8])> {
        let (head, _) = Head::read_from_prefix(bytes).ok()?;
        // With a length of 0, the parser would not advance.
        let len = usize::from(head.blocks).max(1) * BLOCK;
        let rest = bytes.get(len..)?;
        let body = bytes.get(size_of::<Head>()..len)?;
        Some((Self::decode_body(head, body), rest))
    }

    fn decode_body(head: Head, body: &'a [u8]) -> Option<Self> {
        let number = head.number.get();
        let small = u16::try_from(number).ok();
        let length = usize::from(head.length.get());
        let text_of = |bytes: &'a [u8]| core::str::from_utf8(bytes.get(..length)?).ok();
        let text = || text_of(body);
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
            FILE => Some(Self::File(number, text()?)),
            FRAME => {
                let (frame, function) = Frame::ref_from_prefix(body).ok()?;
                Some(Self::Frame(number, frame, text_of(function)?))
            }
            STACK => {
                let (parent, frames) = U32::read_from_prefix(body).ok()?;
                let (frames, _) = <[U32]>::ref_from_prefix_with_elems(frames, length).ok()?;
                Some(Self::Stack(number, parent.get(), frames))
            }
            OP => Some(Self::Op(number, text()?)),
            TRACK => Some(Self::Track(number, text()?)),
            CALL_SITE => {
                let (site, body) = CallSite::ref_from_prefix(body).ok()?;
                let rank = usize::from(site.rank.saturating_sub(1));
                let (dimensions, text) = <[U32]>::ref_from_prefix_with_elems(body, rank).ok()?;
                Some(Self::CallSite(number, site, dimensions, text_of(text)?))
            }
            LIBRARY => {
                let (bytes, body) = U32::read_from_prefix(body).ok()?;
                let bytes = usize::try_from(bytes.get()).ok().filter(|&bytes| bytes <= MAX_BUILD_ID)?;
                let (build_id, path) = body.split_at_checked(bytes)?;
                Some(Self::Library(number, build_id, text_of(path)?))
            }
            _ => None,
        }
    }
}

/// Parses the definitions in a part of their area; `None` for one that is of an unknown kind or invalid.
pub fn parse(mut bytes: &[u8]) -> impl Iterator<Item = Option<Definition<'_>>> {
    core::iter::from_fn(move || {
        let (definition, rest) = Definition::decode(bytes)?;
        bytes = rest;
        Some(definition)
    })
}
