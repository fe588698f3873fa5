//! Arguments and results of the tracker.

/// Declares setters of a `Copy` struct that take the struct by value, each with an example in its documentation. The first
/// literal is an expression for the value in the examples; the literal after each field is an argument.
macro_rules! setters {
    ($value:literal; $($(#[$doc:meta])* $field:ident: $type:ty = $example:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// ```
        /// # use ttmem_client::*;
        #[doc = concat!("let value = ", $value, ".", stringify!($field), "(", $example, ");")]
        #[doc = concat!("assert_eq!(value.", stringify!($field), ", ", $example, ");")]
        /// ```
        #[inline]
        #[must_use]
        pub const fn $field(mut self, $field: $type) -> Self {
            self.$field = $field;
            self
        }
    )*};
}

mod audit;
mod buffer;
mod chip;
mod numbers;
mod program;
mod site;

pub use audit::{AuditMark, Statistics};
pub use buffer::Buffer;
pub use chip::{Banks, Chip, CoreRange};
pub use numbers::{AllocatorNumber, ChipNumber, CoresNumber, SiteNumber};
pub use program::{Kernel, Placement, Program};
pub use site::CallSite;

use ttmem_types::{Fault, Space};
use ttmem_wire::record::{Kind, PADDING_UNKNOWN, Record};

/// Result of a report: its sequence number, 0 while tracking is off.
///
/// ```
/// use ttmem_client::{AllocatorNumber, Fault, Options, Result, Space, Tracker};
///
/// let tracker = Tracker::new(&Options::default());
/// let freed: Result = tracker.free(AllocatorNumber::new(7), Space::Dram, 0x1000);
/// assert_eq!(freed, Err(Fault::UnknownAllocator));
///
/// tracker.close();
/// let freed: Result = tracker.free(AllocatorNumber::new(7), Space::Dram, 0x1000);
/// assert_eq!(freed, Ok(0));
/// ```
pub type Result<T = u64> = core::result::Result<T, Fault>;

/// Status of tracking.
///
/// ```
/// use ttmem_client::Tracker;
///
/// let status = Tracker::disabled().status();
/// assert!(!status.on);
/// assert_eq!((status.live, status.lost), (0, 0));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Whether reports are recorded.
    pub on: bool,
    /// File name of the segment, if there is one.
    pub segment: Option<String>,
    /// Why there is no segment or a smaller one, or why tracking is off.
    pub reason: Option<String>,
    /// Live allocations.
    pub live: u64,
    /// Live allocations that do not fit the segment's table: counted, but not listed.
    pub unlisted: u64,
    /// Reports that were not recorded.
    pub lost: u64,
    /// Messages queued for an old server, with the legacy transport.
    pub queued: u64,
}

/// Returns a record that only identifies an allocation.
#[inline]
pub(crate) fn identifying_record(allocator: AllocatorNumber, space: Space, id: u64) -> Record {
    Record {
        id: id.into(),
        padding: PADDING_UNKNOWN.into(),
        ..Record::new(Kind::Alloc, Some(space), allocator.0)
    }
}
