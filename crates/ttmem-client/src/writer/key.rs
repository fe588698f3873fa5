//! What tells one live thing from another.

use super::Words;
use crate::live::hash;
use ttmem_wire::record::{Kind, Space, flags};

/// Which slot is meant: the words that tell, and what they must be.
pub(super) struct Key {
    pub(super) hash: u64,
    mask: [u64; 4],
    want: [u64; 4],
}

impl Key {
    pub(super) const HEAD: u64 = 0xffff_ffff;

    pub(super) fn head(kind: Kind, space: u8, allocator: u16) -> u64 {
        kind as u64 | u64::from(space) << 8 | u64::from(allocator) << 16
    }

    pub(super) fn memory(
        space: Space,
        allocator: u16,
        id: u64,
        program: u32,
        requested: u64,
        cores: u16,
    ) -> Self {
        let head = Self::head(Kind::Alloc, space as u8, allocator);
        if is_stacked(space) {
            // Programs lay several of these over one address.
            let cores = u64::from(cores) << 48;
            let program = u64::from(program) << 32;
            return Self {
                hash: hash(id, head | program, requested | cores),
                mask: [Self::HEAD | 0xffff << 48, u64::MAX, u64::MAX, Self::HEAD << 32],
                want: [head | cores, id, requested, program],
            };
        }
        Self { hash: hash(id, head, 0), mask: [Self::HEAD, u64::MAX, 0, 0], want: [head, id, 0, 0] }
    }

    /// A program's slot holds what happened to it last, so its kind does not count; nothing else has no space.
    pub(super) fn program(allocator: u16, program: u32) -> Self {
        let head = Self::head(Kind::ProgramBegin, 0, allocator);
        let program = u64::from(program) << 32;
        Self {
            hash: hash(program, head, 1),
            mask: [Self::HEAD & !0xff, 0, 0, Self::HEAD << 32],
            want: [head & !0xff, 0, 0, program],
        }
    }

    pub(super) fn audit(allocator: u16, space: Space) -> Self {
        let head = Self::head(Kind::Audit, space as u8, allocator);
        Self { hash: hash(0, head, 2), mask: [Self::HEAD, 0, 0, 0], want: [head, 0, 0, 0] }
    }

    pub(super) fn trace(allocator: u16, trace: u64) -> Self {
        let head = Self::head(Kind::Trace, Space::Trace as u8, allocator);
        let mask = [Self::HEAD, u64::MAX, 0, 0];
        Self { hash: hash(trace, head, 4), mask, want: [head, trace, 0, 0] }
    }

    /// The key that finds a slot with these words.
    pub(super) fn of(words: &Words) -> Self {
        let (allocator, program) = ((words[2] >> 16) as u16, (words[6] >> 32) as u32);
        match (words[2] as u8, Space::from_byte((words[2] >> 8) as u8)) {
            (kind, Some(space)) if kind == Kind::Audit as u8 => Self::audit(allocator, space),
            (kind, Some(_)) if kind == Kind::Trace as u8 => Self::trace(allocator, words[3]),
            (_, Some(space)) => {
                Self::memory(space, allocator, words[3], program, words[4], (words[2] >> 48) as u16)
            }
            (_, None) => Self::program(allocator, program),
        }
    }

    #[inline]
    pub(super) fn fits(&self, head: u64, id: u64, requested: u64, program: u64) -> bool {
        let words = [head, id, requested, program];
        (0..4).all(|n| words[n] & self.mask[n] == self.want[n])
    }
}

/// Whether several things of this space may lie at one address.
#[inline]
pub(super) fn is_stacked(space: Space) -> bool {
    matches!(space, Space::Cb | Space::Dfb | Space::Scratch | Space::L1Core)
}

#[inline]
pub(crate) fn is_program(space: Space) -> bool {
    matches!(space, Space::Cb | Space::Dfb | Space::Scratch | Space::Kernel)
}

/// Whether things of this space are charged on their cores, not in banks.
#[inline]
pub(super) fn is_on_cores(space: u8) -> bool {
    (Space::Cb as u8..=Space::Kernel as u8).contains(&space) || space == Space::L1Core as u8
}

/// Whether a slot's words count nothing: what they tell of is another's.
#[inline]
pub(super) fn is_anothers(words: &Words) -> bool {
    (words[2] >> 32) as u16 & (flags::MIRROR | flags::VIEW) != 0
}

/// What a slot's words add to what is asked for.
#[inline]
pub(super) fn own_bytes(words: &Words) -> u64 {
    if is_anothers(words) { 0 } else { words[4] }
}
