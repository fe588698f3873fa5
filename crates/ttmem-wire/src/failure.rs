//! A failure as a record: what could not be allocated, and the figures of that moment.

use crate::record::{Kind, Record, Space, flags};
use ttmem_types::FailureKind;

/// Unit of [`Failure::free`] in a record.
const FREE_UNIT: u64 = 32;

/// What could not be allocated, and what there was.
///
/// | kind | `requested` | `needed` | `available` | `free` |
/// |---|---|---|---|---|
/// | out of memory | bytes of the buffer | bytes in each bank | largest free block in a bank | free bytes in a bank |
/// | clash | - | end of the program's memory on its cores | lowest address of an L1 buffer | - |
/// | beyond L1 | - | end of the program's memory on its cores | size of L1 | - |
/// | kernel config buffer | bytes of the program | - | bytes of the buffer | - |
/// | trace region | bytes of all traces | - | bytes of the region | - |
/// | unsupported | bytes of the buffer | bytes in each bank | - | - |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Why it failed.
    pub kind: FailureKind,
    /// Space; of program memory, that of the parts that did not fit.
    pub space: Option<Space>,
    /// Number of the allocator's definition.
    pub allocator: u16,
    /// See above; 0: unknown or none. So for the next two.
    pub requested: u64,
    /// See above.
    pub needed: u64,
    /// See above; `None`: unknown.
    pub available: Option<u64>,
    /// See above; `None`: unknown.
    pub free: Option<u64>,
    /// Number of the set of cores on which it failed; 0: all or unknown.
    pub cores: u16,
    /// Key of the program; 0: none.
    pub program: u32,
    /// Number of the call site's definition; 0: unknown.
    pub site: u32,
}

impl Failure {
    /// Returns a failure of which nothing else is known.
    pub const fn new(kind: FailureKind, space: Option<Space>, allocator: u16) -> Self {
        Self {
            kind,
            space,
            allocator,
            requested: 0,
            needed: 0,
            available: None,
            free: None,
            cores: 0,
            program: 0,
            site: 0,
        }
    }

    /// Returns the failure as a record without sequence and time.
    pub fn record(&self) -> Record {
        let (kind, how) = match self.kind {
            FailureKind::OutOfMemory => (Kind::OutOfMemory, 0),
            kind => (Kind::Failure, kind as u16),
        };
        let measured = if self.available.is_some() { flags::MEASURED } else { 0 };
        // Plus 1, so that 0 is unknown.
        let free = self.free.map_or(0, |free| (free / FREE_UNIT + 1).min(u64::from(u32::MAX)) as u32);
        Record {
            flags: (how | measured).into(),
            cores: self.cores.into(),
            id: self.available.unwrap_or(0).into(),
            requested: self.requested.into(),
            bytes_per_bank: self.needed.into(),
            padding: free.into(),
            program: self.program.into(),
            site: self.site.into(),
            ..Record::new(kind, self.space, self.allocator)
        }
    }

    /// Returns the failure that a record describes; `None` for any other record, and for kinds of a later version.
    pub fn of(record: &Record) -> Option<Self> {
        let how = record.flags.get();
        let kind = match Kind::from_byte(record.kind)? {
            Kind::OutOfMemory => FailureKind::OutOfMemory,
            Kind::Failure => FailureKind::from_number((how & flags::FAILURE) as u8)?,
            _ => return None,
        };
        // Writers of version 1.0 had another padding.
        let free = record.padding.get().checked_sub(1).filter(|&free| free < u32::MAX - 1);
        Some(Self {
            kind,
            space: record.space(),
            allocator: record.allocator.get(),
            requested: record.requested.get(),
            needed: record.bytes_per_bank.get(),
            available: (how & flags::MEASURED != 0).then(|| record.id.get()),
            free: free.map(|free| u64::from(free) * FREE_UNIT),
            cores: record.cores.get(),
            program: record.program.get(),
            site: record.site.get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_survive_their_record() {
        for kind in FailureKind::ALL {
            let failure = Failure {
                requested: 1 << 40,
                needed: 0x6_1560,
                available: Some(0x2_e000),
                free: Some(4_277_141_376),
                cores: 3,
                program: 7,
                site: 9,
                ..Failure::new(kind, Some(Space::L1), 2)
            };
            assert_eq!(Failure::of(&failure.record()), Some(failure));
            let unknown = Failure { available: None, free: None, ..failure };
            assert_eq!(Failure::of(&unknown.record()), Some(unknown));
        }
    }

    #[test]
    fn other_records_are_no_failures() {
        assert_eq!(Failure::of(&Record::new(Kind::Audit, Some(Space::L1), 1)), None);
        let later = Record { flags: 99.into(), ..Record::new(Kind::Failure, None, 1) };
        assert_eq!(Failure::of(&later), None);
        let older =
            Record { padding: u32::MAX.into(), ..Record::new(Kind::OutOfMemory, Some(Space::Dram), 1) };
        assert_eq!(Failure::of(&older).map(|it| it.free), Some(None));
    }
}
