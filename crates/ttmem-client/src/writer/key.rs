//! Keys: what distinguishes one live slot from another.

use crate::slot_index::hash;
use ttmem_wire::record::{Head, Kind, Record, Space, word};

/// Identity of a slot: its hash in the index, and the words that it must have.
pub(super) struct Key {
    pub(super) hash: u64,
    head: Head,
    id: u64,
    requested: u64,
    program: u32,
    compare: Compare,
}

/// Which words of a slot are compared.
enum Compare {
    /// Kind, space and allocator: there is only one such slot.
    Space,
    /// Kind, space, allocator and id.
    Id,
    /// Kind, space, allocator, id, cores, size and program: several placements may share an address.
    Placement,
    /// Allocator and program. Its slot has the last record of the program, so the kind does not count; no other slot lacks a space.
    Program,
}

impl Key {
    #[inline]
    pub(super) fn memory(
        space: Space,
        allocator: u16,
        id: u64,
        program: u32,
        requested: u64,
        cores: u16,
    ) -> Self {
        let head = Head::new(Kind::Alloc, Some(space), allocator);
        if !space.is_stacked() {
            return Self {
                hash: hash(id, head.identity(), 0),
                head,
                id,
                requested: 0,
                program: 0,
                compare: Compare::Id,
            };
        }
        let mixed = hash(id, head.identity() | u64::from(program) << 32, requested | u64::from(cores) << 48);
        Self {
            hash: mixed,
            head: head.with_cores(cores),
            id,
            requested,
            program,
            compare: Compare::Placement,
        }
    }

    pub(super) fn program(allocator: u16, program: u32) -> Self {
        let head = Head::new(Kind::ProgramBegin, None, allocator);
        let hash = hash(u64::from(program) << 32, head.identity(), 1);
        Self { hash, head, id: 0, requested: 0, program, compare: Compare::Program }
    }

    pub(super) fn audit(allocator: u16, space: Space) -> Self {
        let head = Head::new(Kind::Audit, Some(space), allocator);
        let hash = hash(0, head.identity(), 2);
        Self { hash, head, id: 0, requested: 0, program: 0, compare: Compare::Space }
    }

    pub(super) fn trace(allocator: u16, trace: u32) -> Self {
        let head = Head::new(Kind::Trace, Some(Space::Trace), allocator);
        let id = u64::from(trace);
        Self { hash: hash(id, head.identity(), 4), head, id, requested: 0, program: 0, compare: Compare::Id }
    }

    /// Returns the key of a slot with this record.
    pub(super) fn of(held: &Record) -> Self {
        let (allocator, program) = (held.allocator.get(), held.program.get());
        match (Kind::from_byte(held.kind), held.space()) {
            (Some(Kind::Audit), Some(space)) => Self::audit(allocator, space),
            (Some(Kind::Trace), Some(_)) => Self::trace(allocator, held.id.get() as u32),
            (_, Some(space)) => {
                Self::memory(space, allocator, held.id.get(), program, held.requested.get(), held.cores.get())
            }
            (_, None) => Self::program(allocator, program),
        }
    }

    /// Returns whether a slot with these words has this key.
    #[inline]
    pub(super) fn matches(&self, at: impl Fn(usize) -> u64) -> bool {
        let head = Head::from_word(at(Head::WORD));
        let same = || head.identity() == self.head.identity();
        let same_program = || word::program(at(word::PROGRAM)) == self.program;
        match self.compare {
            Compare::Space => same(),
            Compare::Id => same() && at(word::ID) == self.id,
            Compare::Placement => {
                same()
                    && head.cores() == self.head.cores()
                    && at(word::ID) == self.id
                    && at(word::REQUESTED) == self.requested
                    && same_program()
            }
            Compare::Program => head.owner() == self.head.owner() && same_program(),
        }
    }
}
