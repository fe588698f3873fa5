//! Translates the records of a segment into events.

use super::{Emit, Follower};
use ttmem_core::input::{Alloc, Audit, Extent, Free, Input, Mark, Program, Trace};
use ttmem_core::words::{KernelClass, Scope, Space, Uncertainty};
use ttmem_types::charged_banks;
use ttmem_wire::record::{Kind, NO_SLOT, PADDING_UNKNOWN, Record, flags};

impl Follower {
    /// Emits the event of a record.
    #[inline]
    pub(super) fn emit_record(&mut self, record: &Record, emit: Emit<'_>) {
        // Kinds and spaces of later versions are ignored.
        let Some(kind) = Kind::from_byte(record.kind) else { return };
        let allocator = record.allocator.get();
        let scope = self.scope(allocator);
        let space = Space::from_number(record.space);
        let program = record.program.get();
        if !matches!(kind, Kind::AllocatorEnd | Kind::Refused | Kind::Mark) {
            self.reopen(allocator, emit);
        }
        match (kind, space) {
            (Kind::Alloc | Kind::Free, Some(_)) if record.slot.get() == NO_SLOT => {
                self.count_unlisted(record, kind);
            }
            (Kind::Alloc, Some(space)) => {
                let record = &self.add_view(record);
                let alloc = self.to_alloc(record, scope, space);
                for _ in 0..copies_in(record, space) {
                    emit(Input::Alloc(alloc));
                }
            }
            (Kind::Free, Some(space)) => {
                let free = self.to_free(record, scope, space);
                for _ in 0..copies_in(record, space) {
                    emit(Input::Free(free));
                }
            }
            (Kind::ProgramBegin | Kind::Dispatch, _) => {
                self.move_views(record, emit);
                emit(Input::Program(Program {
                    scope,
                    id: program,
                    cores: self.cores_of(record),
                    site: self.site_id(record.site.get()),
                    class: record.class(),
                    dispatches: record.requested.get().max(u64::from(kind == Kind::Dispatch)),
                    dispatched: (kind == Kind::Dispatch).then(|| self.time(record.at_ns.get())),
                }));
            }
            (Kind::Trace, _) => emit(Input::Trace(Trace {
                scope,
                id: record.id.get() as u32,
                dispatches: record.requested.get(),
                replays: u64::from(record.padding.get()),
                captured: self.time(record.bytes_per_bank.get()),
            })),
            (Kind::TraceEnd, _) => emit(Input::TraceEnded(scope, record.id.get() as u32)),
            (Kind::ProgramEnd, _) => {
                let is_program = |space: u8| Space::from_number(space).is_some_and(Space::is_program);
                let has_unlisted = self
                    .unlisted
                    .iter()
                    .any(|(&(of, space), holding)| of == allocator && holding.count > 0 && is_program(space));
                self.must_relist |= has_unlisted;
                self.views.remove(&(allocator, program));
                emit(Input::ProgramEnded(scope, program));
            }
            (Kind::AllocatorBegin, _) => {
                let info = self.allocator(allocator);
                for banks in info.iter().flat_map(|info| &info.definition.spaces) {
                    emit(Input::Peak { scope, space: banks.space, bytes: Some(0) });
                }
            }
            (Kind::AllocatorEnd, _) if record.flags.get() & flags::CLEARED != 0 => {
                self.forget_allocations(allocator);
                emit(Input::AllocatorCleared(self.definition_id(allocator)));
            }
            (Kind::AllocatorEnd, _) => {
                self.open_allocators.remove(&allocator);
                self.recent_allocator = None;
                self.forget_allocations(allocator);
                emit(Input::AllocatorClosed(self.definition_id(allocator)));
            }
            (Kind::Audit, Some(space)) => emit(Input::Audit(Audit {
                allocator: self.definition_id(allocator),
                space,
                allocated_bytes: record.id.get(),
                free_bytes: record.requested.get(),
                largest_free_bytes_per_bank: record.bytes_per_bank.get(),
                quiet: record.flags.get() & flags::QUIET != 0,
                sequence: record.sequence.get(),
            })),
            (Kind::Mark, _) => emit(Input::Mark(Mark {
                name: self.site_id(record.site.get()),
                number: (record.flags.get() & flags::MEASURED != 0).then(|| record.id.get()),
                at: self.time(record.at_ns.get()),
            })),
            (Kind::PeakReset, Some(space)) => emit(Input::Peak { scope, space, bytes: None }),
            // Refusals and failures are counted in the header, so that none is missed; the others lack a space.
            (
                Kind::Refused
                | Kind::OutOfMemory
                | Kind::Failure
                | Kind::Alloc
                | Kind::Free
                | Kind::Audit
                | Kind::PeakReset,
                _,
            ) => {}
        }
    }

    /// Adds or subtracts an allocation that has no slot.
    fn count_unlisted(&mut self, record: &Record, kind: Kind) {
        // Without a definition there is nothing to count for, and no limit.
        if self.allocator(record.allocator.get()).is_none() {
            return;
        }
        let charge = self.charge_of(record);
        let sum = self.unlisted.entry((record.allocator.get(), record.space)).or_default();
        let change = |of: &mut u64, by: u64| {
            *of = if kind == Kind::Alloc { of.saturating_add(by) } else { of.saturating_sub(by) };
        };
        change(&mut sum.requested, record.own_requested());
        change(&mut sum.allocated, charge);
        change(&mut sum.count, 1);
    }

    /// Forgets what an allocator held.
    fn forget_allocations(&mut self, allocator: u16) {
        self.unlisted.retain(|&(of, _), _| of != allocator);
        self.views.retain(|&(of, _), _| of != allocator);
    }

    pub(super) fn to_free(&self, record: &Record, scope: Scope, space: Space) -> Free {
        Free {
            scope,
            space: Some(space),
            id: record.id.get(),
            program: if space.is_program() { record.program.get() } else { 0 },
            size: Some(record.requested.get()),
            cores: self.cores_of(record),
        }
    }

    #[inline]
    pub(super) fn to_alloc(&self, record: &Record, scope: Scope, space: Space) -> Alloc {
        let (requested, bytes_per_bank) = (record.requested.get(), record.bytes_per_bank.get());
        let banks = self.banks_of(record);
        let occupied = match record.padding.get() {
            _ if space.is_program() => bytes_per_bank.saturating_mul(u64::from(banks)),
            PADDING_UNKNOWN => 0,
            padding => requested.saturating_add(u64::from(padding)),
        };
        let extent = (bytes_per_bank > 0 && banks > 0).then_some(Extent { occupied, bytes_per_bank, banks });
        Alloc {
            scope,
            space,
            id: record.id.get(),
            requested,
            at: Some(self.time(record.at_ns.get())),
            extent,
            cores: self.cores_of(record),
            program: if space.is_program() { record.program.get() } else { 0 },
            site: self.site_id(record.site.get()),
            layout: record.layout(),
            class: if space == Space::Kernel { record.class() } else { KernelClass::Unknown },
            uncertainty: if space.is_program() { uncertainty(record, space) } else { Uncertainty::default() },
        }
    }

    /// The id of a record's set of cores; 0 if it has none.
    #[inline]
    fn cores_of(&self, record: &Record) -> u32 {
        match record.cores.get() {
            0 => 0,
            cores => self.definition_id(cores),
        }
    }

    /// The number of banks or cores on which an allocation is charged.
    #[inline]
    fn banks_of(&self, record: &Record) -> u16 {
        let Some(space) = record.space() else { return 0 };
        let cores = || self.core_counts.get(&record.cores.get()).copied().unwrap_or(0);
        let banks = || self.allocator(record.allocator.get()).map_or(0, |info| info.banks[space as usize]);
        charged_banks(space, cores, banks)
    }

    /// The bytes that an allocation is charged.
    pub(super) fn charge_of(&self, record: &Record) -> u64 {
        record.charge(self.banks_of(record))
    }
}

/// More equal parts of one program than any has.
const MAX_COPIES: u32 = 64;

/// The number of equal parts of a program that a record stands for.
#[inline]
fn copies_in(record: &Record, space: Space) -> u32 {
    match record.padding.get() {
        PADDING_UNKNOWN => 1,
        _ if record.view_number().is_some() => 1,
        more if space.is_program() => more.saturating_add(1).min(MAX_COPIES),
        _ => 1,
    }
}

/// What is unknown of program memory.
fn uncertainty(record: &Record, space: Space) -> Uncertainty {
    let uncertainty = record.uncertainty();
    Uncertainty {
        // A kernel has no address.
        unplaced: uncertainty.unplaced && space != Space::Kernel,
        // Without its cores, a program cannot be followed.
        unfollowed: uncertainty.unfollowed || record.cores.get() == 0,
        ..uncertainty
    }
}
