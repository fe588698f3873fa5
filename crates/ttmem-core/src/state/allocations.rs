//! Allocations and frees.

use super::peaks::has_grown;
use super::{Author, Outcome, State, chip_of};
use crate::analysis::{Analysis, Tenant};
use crate::input::{Alloc, Extent, Free};
use crate::ledger::{Entry, Nature, PoolId, PoolKey, Slot};
use crate::words::{Basis, Fault, Scope, Space};
use ttmem_types::charge;
use ttmem_types::limits::{MAX_ALLOCATION_BYTES, REMEMBERED_FREES};

/// Sizes that circular buffers of one program may have at one address; every one is compared with all.
const MAX_VARIANTS: usize = 1024;

impl State {
    #[inline(never)]
    pub(super) fn alloc(&mut self, by: Author, alloc: &Alloc) -> Outcome {
        let Alloc { scope, space, id, requested, extent, .. } = *alloc;
        let charged = extent
            .map_or(0, |e| charge(e.bytes_per_bank, e.banks).unwrap_or(e.bytes_per_bank).max(e.occupied));
        let refusal = if requested == 0 {
            Some(Fault::ZeroSize)
        } else if requested.max(charged) > MAX_ALLOCATION_BYTES {
            Some(Fault::TooLarge)
        } else if space != Space::Kernel && id.checked_add(requested).is_none() {
            Some(Fault::BeyondAddresses)
        } else {
            None
        };
        // A refused report opens no pool.
        let pool = match refusal.map_or_else(|| self.pool(by, scope, space), Err) {
            Ok(pool) => pool,
            Err(fault) => return self.refuse_in(by, fault, scope, space, requested),
        };
        let extent = extent.unwrap_or(Extent { occupied: 0, bytes_per_bank: 0, banks: 0 });
        let mut wanted = Entry::new(id, requested, alloc.at.unwrap_or(self.now).0);
        wanted.occupied = extent.occupied;
        wanted.bytes_per_bank = extent.bytes_per_bank;
        wanted.banks = extent.banks;
        wanted.cores = alloc.cores;
        wanted.program = alloc.program;
        wanted.site = alloc.site;
        wanted.layout = alloc.layout;
        wanted.nature = Nature::new(alloc.class, alloc.uncertainty);
        let same = |held: &Entry| {
            held.requested == wanted.requested
                && held.bytes_per_bank == wanted.bytes_per_bank
                && held.program == wanted.program
                && held.cores == wanted.cores
                && (held.banks == wanted.banks || !space.is_stacked())
        };
        let mut variants = 0;
        let held: Option<(Slot, bool)> = if space.is_stacked() {
            let found = self.ledger.find(pool, id, alloc.program).map(|(slot, held)| (slot, same(held)));
            found.inspect(|_| variants += 1).find(|&(_, same)| same)
        } else {
            self.ledger.find_one(pool, id).map(|slot| (slot, same(self.ledger.get(slot))))
        };
        let mut old_bytes = None;
        match held {
            Some((slot, true)) => return Outcome::Held { references: self.ledger.retain(slot) },
            Some((slot, false)) => {
                let old = *self.ledger.get(slot);
                self.ledger.remove(slot);
                self.note(Fault::Replaced, by, chip_of(scope), Some(space), old.requested, 1, id);
                old_bytes = Some(old.requested);
            }
            None => {
                let Some(process) = self.processes.get_mut(&by.id) else { return Outcome::UnknownProcess };
                let user = self.users.entry(process.info.uid).or_default();
                let most_of_user = match by.basis {
                    Basis::Exact => self.limits.records_per_user,
                    _ => self.limits.reported_per_user,
                };
                let limit = if process.records >= self.limits.records_per_process {
                    Some(Fault::ProcessLimit)
                } else if variants >= MAX_VARIANTS {
                    Some(Fault::VariantLimit)
                } else if self.ledger.live() as u64 >= self.limits.records {
                    Some(Fault::TotalLimit)
                } else if user.records >= most_of_user {
                    Some(Fault::UserLimit)
                } else {
                    None
                };
                if let Some(why) = limit {
                    return self.refuse_in(by, why, scope, space, requested);
                }
                process.records += 1;
                process.counted.records += 1;
                user.records += 1;
            }
        }
        self.ledger.insert(pool, wanted, alloc.at.is_none());
        if space.is_program() && alloc.program != 0 {
            self.reset_recorded_peak(by, scope, alloc.program);
        }
        match old_bytes {
            Some(old_bytes) => Outcome::Replaced { old_bytes },
            None => Outcome::Held { references: 1 },
        }
    }

    #[inline(never)]
    pub(super) fn free(&mut self, analysis: &mut Analysis, by: Author, free: Free) -> Outcome {
        let Free { scope, space, id, program, size, cores } = free;
        let spaces = space.as_ref().map_or(&Space::BUFFERS[..], std::slice::from_ref);
        let mut best: Option<((bool, bool, u64), Slot)> = None;
        let mut kinds = 0;
        for &space in spaces {
            let recent = self.recent.filter(|&(who, of, what, _)| (who, of, what) == (by, scope, space));
            let pool = match recent {
                Some((.., pool)) => pool,
                None => {
                    let process = self.processes.get(&by.id);
                    match process.and_then(|it| it.pools.get(&(scope, space, by.basis))) {
                        Some(&pool) => pool,
                        None => continue,
                    }
                }
            };
            let mut found = false;
            let mut consider = |slot: Slot, held: &Entry| {
                if held.program != program {
                    return;
                }
                found = true;
                // The record with this size, on these cores, else the newest.
                let size_fits = size.is_none_or(|size| size == held.requested);
                let rank = (size_fits, cores == 0 || cores == held.cores, held.allocated_at);
                if best.is_none_or(|(best, _)| rank > best) {
                    best = Some((rank, slot));
                }
            };
            if space.is_stacked() {
                self.ledger.find(pool, id, program).for_each(|(slot, held)| consider(slot, held));
            } else if let Some(slot) = self.ledger.find_one(pool, id) {
                consider(slot, self.ledger.get(slot));
            }
            kinds += usize::from(found);
        }
        let chip = chip_of(scope);
        let Some(((size_fits, _, _), slot)) = best else {
            let freed = self.processes.get(&by.id).into_iter().flat_map(|process| &process.freed);
            let mut freed = freed.filter(|(of, kind, _)| *of == scope && spaces.contains(kind));
            let freed_before = freed.any(|&(.., freed)| freed == id);
            let fault = if freed_before { Fault::DoubleFree } else { Fault::UnknownFree };
            self.note(fault, by, chip, space, size.unwrap_or(0), 1, id);
            return Outcome::NotHeld { freed_before };
        };
        let held = *self.ledger.get(slot);
        let pool = self.ledger.pool(held.pool());
        let space = pool.key.space;
        if has_grown(pool.used(), pool.measured) {
            self.record_peak_before_free(analysis, held.pool());
        }
        let Some(process) = self.processes.get_mut(&by.id) else { return Outcome::UnknownProcess };
        let references = self.ledger.release(slot);
        if references == 0 {
            process.records -= 1;
            process.counted.records -= 1;
            if let Some(user) = self.users.get_mut(&process.info.uid) {
                user.records -= 1;
            }
            if process.freed.len() == REMEMBERED_FREES {
                process.freed.pop_front();
            }
            process.freed.push_back((scope, space, id));
        }
        if kinds > 1 {
            self.note(Fault::AmbiguousFree, by, chip, None, held.requested, 1, id);
        }
        if !size_fits {
            self.note(Fault::SizeMismatch, by, chip, Some(space), held.requested, 1, id);
        }
        Outcome::Released { space, bytes: held.requested, references, class: held.nature.class() }
    }

    /// Drops the records of an allocator before they are listed again. The allocator stays.
    pub(super) fn begin_listing(&mut self, analysis: &mut Analysis, by: Author, allocator: u32) -> Outcome {
        let scope = Scope::Allocator(allocator);
        self.recent = None;
        self.record_dispatches(analysis, Tenant { process: by.id, scope });
        self.structure += 1;
        let Some(process) = self.processes.get_mut(&by.id) else { return Outcome::UnknownProcess };
        // The listing has a record or a level for every space that is known.
        process.pools.retain(|&(of, ..), &mut pool| {
            if of == scope {
                let unlisted = self.ledger.pool(pool).unlisted.count;
                process.records -= self.ledger.close(pool).count - unlisted;
            }
            of != scope
        });
        process.programs.retain(|(of, _), _| *of != scope);
        process.traces.retain(|(of, _), _| *of != scope);
        Outcome::Noted
    }

    /// The pool of an author's events in a space.
    pub(super) fn pool(&mut self, by: Author, scope: Scope, space: Space) -> Result<PoolId, Fault> {
        if let Some((.., pool)) =
            self.recent.filter(|&(who, of, what, _)| (who, of, what) == (by, scope, space))
        {
            return Ok(pool);
        }
        let pool = self.find_or_open_pool(by, scope, space)?;
        self.recent = Some((by, scope, space, pool));
        Ok(pool)
    }

    fn find_or_open_pool(&mut self, by: Author, scope: Scope, space: Space) -> Result<PoolId, Fault> {
        let process = self.processes.get_mut(&by.id).expect("`apply` checks that the process is known");
        if let Some(&pool) = process.pools.get(&(scope, space, by.basis)) {
            return Ok(pool);
        }
        match scope {
            Scope::Chip(chip) if !self.chips.contains_key(&chip) => return Err(Fault::UnknownChip),
            Scope::Allocator(number) if !process.allocators.contains_key(&number) => {
                return Err(Fault::UnknownAllocator);
            }
            _ => {}
        }
        let pool = self.ledger.open(PoolKey { process: by.id, scope, space, basis: by.basis });
        self.structure += 1;
        process.pools.insert((scope, space, by.basis), pool);
        self.count_holdings(by.id);
        Ok(pool)
    }

    /// Forgets the recorded peak of a program whose memory changed.
    #[cold]
    #[inline(never)]
    fn reset_recorded_peak(&mut self, by: Author, scope: Scope, program: u32) {
        let process = self.processes.get_mut(&by.id);
        if let Some(program) = process.and_then(|it| it.programs.get_mut(&(scope, program))) {
            program.recorded_peak = None;
        }
    }
}
