//! An allocator's own statistics.

/// An allocator's own statistics of one space.
///
/// ```
/// use ttmem_client::Statistics;
///
/// let statistics = Statistics::default().allocated(24_576).free(12 << 30).largest_free_per_bank(1 << 30);
/// assert_eq!(statistics.allocated, 24_576);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Allocated bytes, over all banks.
    pub allocated: u64,
    /// Free bytes, over all banks.
    pub free: u64,
    /// Largest free block in a bank, in bytes.
    pub largest_free_per_bank: u64,
}

impl Statistics {
    setters! {
        "Statistics::default()";
        /// Sets the allocated bytes, over all banks.
        allocated: u64 = "24_576";
        /// Sets the free bytes, over all banks.
        free: u64 = "12 << 30";
        /// Sets the bytes of the largest free block in a bank.
        largest_free_per_bank: u64 = "1 << 30";
    }
}

/// A moment before an allocator's own statistics are read; see [`Tracker::begin_audit`](crate::Tracker::begin_audit).
///
/// ```
/// use ttmem_client::{Options, Tracker};
///
/// let tracker = Tracker::new(&Options::default());
/// assert_eq!(tracker.begin_audit()?, tracker.begin_audit()?);
/// # Ok::<(), ttmem_client::Fault>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditMark(pub(crate) u64);

impl AuditMark {
    /// Returns the moment with a number that the tracker returned before.
    ///
    /// ```
    /// # use ttmem_client::AuditMark;
    /// assert_eq!(AuditMark::new(3).get(), 3);
    /// ```
    #[inline]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number of the moment.
    ///
    /// ```
    /// # use ttmem_client::{Options, Tracker};
    /// let tracker = Tracker::new(&Options::default());
    /// assert_eq!(tracker.begin_audit()?.get(), 0);
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
}
