//! Buffers.

use super::{AllocatorNumber, CoresNumber, SiteNumber, identifying_record};
use ttmem_types::{Layout, Space};
use ttmem_wire::record::{PADDING_UNKNOWN, Record, flags};

/// Description of a buffer that a runtime allocates. It owns no memory: [`Tracker::free`](crate::Tracker::free) reports that the
/// runtime freed the buffer.
///
/// ```
/// use ttmem_client::{Buffer, Layout, Options, Space, Tracker};
///
/// let tracker = Tracker::new(&Options::default());
/// let device = tracker.define_devices(&[0])?;
/// let site = tracker.define_site("model.py:42 forward")?;
/// let buffer = Buffer::new(device, Space::L1, 0x2_0000, 4096).layout(Layout::Interleaved).site(site);
/// tracker.alloc(&buffer)?;
/// tracker.free(device, Space::L1, 0x2_0000)?;
/// # Ok::<(), ttmem_client::Fault>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Buffer {
    /// Its allocator. The buffer is on all chips of the allocator.
    pub allocator: AllocatorNumber,
    /// [`Space::Dram`], [`Space::L1`], [`Space::L1Small`], [`Space::Trace`], [`Space::Host`], or [`Space::L1Core`] if only its
    /// cores are charged.
    pub space: Space,
    /// Address in each bank.
    pub address: u64,
    /// Requested bytes on each chip.
    pub requested: u64,
    /// Bytes in each bank; 0: unknown, and so are the allocated bytes.
    pub bytes_per_bank: u64,
    /// Occupied bytes, in the banks that hold it, if known.
    pub occupied: Option<u64>,
    /// Core set, if the buffer is on some cores only.
    pub cores: CoresNumber,
    /// Memory layout. [`Layout::Mirror`]: a buffer of another allocator, which only reduces the free space of this one.
    pub layout: Layout,
    /// Call site of the allocation.
    pub site: SiteNumber,
}

impl Buffer {
    /// Returns a buffer whose other properties are unknown.
    ///
    /// ```
    /// # use ttmem_client::{AllocatorNumber, Buffer, Space};
    /// let buffer = Buffer::new(AllocatorNumber::new(1), Space::Dram, 0x10_0000, 4096);
    /// assert_eq!((buffer.requested, buffer.bytes_per_bank, buffer.occupied), (4096, 0, None));
    /// ```
    #[inline]
    pub const fn new(allocator: AllocatorNumber, space: Space, address: u64, requested: u64) -> Self {
        Self {
            allocator,
            space,
            address,
            requested,
            bytes_per_bank: 0,
            occupied: None,
            cores: CoresNumber::NONE,
            layout: Layout::Unknown,
            site: SiteNumber(0),
        }
    }

    /// Sets the bytes that the buffer occupies in the banks that hold it.
    ///
    /// ```
    /// # use ttmem_client::{AllocatorNumber, Buffer, Space};
    /// let buffer = Buffer::new(AllocatorNumber::new(1), Space::Dram, 0x10_0000, 4000).occupied(4096);
    /// assert_eq!(buffer.occupied, Some(4096));
    /// ```
    #[inline]
    #[must_use]
    pub const fn occupied(mut self, bytes: u64) -> Self {
        self.occupied = Some(bytes);
        self
    }

    setters! {
        "Buffer::new(AllocatorNumber::new(1), Space::Dram, 0x10_0000, 4096)";
        /// Sets the bytes in each bank.
        bytes_per_bank: u64 = "2048";
        /// Sets the core set, for a buffer that is on some cores only.
        cores: CoresNumber = "CoresNumber::new(1)";
        /// Sets the memory layout.
        layout: Layout = "Layout::Interleaved";
        /// Sets the call site of the allocation.
        site: SiteNumber = "SiteNumber::new(1)";
    }

    /// Returns the occupied bytes beyond the requested ones.
    #[inline]
    pub(crate) fn padding(&self) -> u32 {
        let padding = self.occupied.and_then(|occupied| occupied.checked_sub(self.requested));
        padding.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(PADDING_UNKNOWN)
    }

    /// Returns the record of the allocation, without sequence, time and slot.
    #[inline]
    pub(crate) fn record(&self) -> Record {
        Record {
            flags: flags::of_layout(self.layout).into(),
            cores: self.cores.0.into(),
            requested: self.requested.into(),
            bytes_per_bank: self.bytes_per_bank.into(),
            padding: self.padding().into(),
            site: self.site.0.into(),
            ..identifying_record(self.allocator, self.space, self.address)
        }
    }
}
