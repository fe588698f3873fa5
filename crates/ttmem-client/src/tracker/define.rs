//! Definitions: what reports refer to by number.

use super::{AllocatorGuard, Tracker};
use crate::agent::{SiteParts, define_frame, define_op, define_site as define_part_site, define_track};
use crate::types::{
    AllocatorNumber, Banks, CallSite, Chip, ChipNumber, CoreRange, CoresNumber, Result, SiteNumber,
};

/// Definitions.
impl Tracker {
    /// Defines a chip. An identical definition returns the same number.
    ///
    /// ```
    /// # use ttmem_client::{Chip, Options, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let chip = tracker.define_chip(&Chip::default().unique_id(0x1234).board("n150"))?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn define_chip(&self, chip: &Chip<'_>) -> Result<ChipNumber> {
        self.event(ChipNumber(0), |writer| writer.define_chip(&chip.to_wire()).map(ChipNumber))
    }

    /// Defines the allocator of a device, mesh or submesh, and returns a guard that closes the allocator when it is dropped. Each
    /// of its allocations is on all of `chips`, in one record.
    ///
    /// ```
    /// # use ttmem_client::{Banks, Chip, Options, Space, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let chip = tracker.define_chip(&Chip::default().unique_id(0x1234))?;
    /// let device = tracker.open_allocator(&[chip], &[Banks::new(Space::Dram, 12, 1 << 20, 1 << 30)])?;
    /// device.close()?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn open_allocator(&self, chips: &[ChipNumber], banks: &[Banks]) -> Result<AllocatorGuard<'_>> {
        AllocatorGuard::open(self, chips, banks)
    }

    /// Defines the allocator of a device, mesh or submesh, which stays open until [`Tracker::close_allocator`]. For callers that
    /// keep numbers only, such as bindings of other languages; see [`Tracker::open_allocator`].
    ///
    /// ```
    /// # use ttmem_client::{Banks, Chip, Options, Space, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let chip = tracker.define_chip(&Chip::default().unique_id(0x1234))?;
    /// let device = tracker.define_allocator(&[chip], &[Banks::new(Space::Dram, 12, 1 << 20, 1 << 30)])?;
    /// tracker.close_allocator(device)?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn define_allocator(&self, chips: &[ChipNumber], banks: &[Banks]) -> Result<AllocatorNumber> {
        self.event(AllocatorNumber(0), |writer| {
            writer.define_allocator(banks, chips.iter().map(|chip| chip.0)).map(AllocatorNumber)
        })
    }

    /// Closes an allocator and frees all of its allocations.
    ///
    /// ```
    /// # use ttmem_client::{Buffer, Options, Space, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// tracker.alloc(&Buffer::new(device, Space::Dram, 0x10_0000, 4096))?;
    /// tracker.close_allocator(device)?;
    /// assert_eq!(tracker.status().live, 0);
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn close_allocator(&self, allocator: AllocatorNumber) -> Result {
        self.event(0, |writer| writer.close_allocator(allocator.0))
    }

    /// Defines an allocator for one or more devices that are known by number only. The same devices return the same allocator.
    /// Its allocations are on all of them; its allocated bytes are unknown.
    ///
    /// ```
    /// # use ttmem_client::{Options, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let mesh = tracker.define_devices(&[0, 1])?;
    /// assert_eq!(tracker.define_devices(&[1, 0])?, mesh);
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn define_devices(&self, devices: &[u32]) -> Result<AllocatorNumber> {
        self.event(AllocatorNumber(0), |writer| writer.define_devices(devices).map(AllocatorNumber))
    }

    /// Defines a set of cores by rectangles of columns and rows up to 15. An identical set returns the same number.
    ///
    /// ```
    /// # use ttmem_client::{CoreRange, Options, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let row = tracker.define_cores(&[CoreRange::new((0, 0), (7, 0))])?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn define_cores(&self, ranges: &[CoreRange]) -> Result<CoresNumber> {
        let mut cores = [0u64; 4];
        for range in ranges {
            for y in range.from.1..=range.to.1.min(15) {
                for x in range.from.0..=range.to.0.min(15) {
                    cores[usize::from(y) >> 2] |= 1 << ((y & 3) * 16 + x);
                }
            }
        }
        self.define_core_bitmap(cores)
    }

    /// Defines a set of cores by a bitmap; see [`crate::agent::define_core_bitmap`].
    pub(crate) fn define_core_bitmap(&self, cores: [u64; 4]) -> Result<CoresNumber> {
        self.event(CoresNumber(0), |writer| writer.define_cores(cores).map(CoresNumber))
    }

    /// Defines a call site, such as `model.py:42 forward`. An identical one returns the same number.
    ///
    /// ```
    /// # use ttmem_client::{Options, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let site = tracker.define_site("model.py:42 forward")?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn define_site(&self, site: &str) -> Result<SiteNumber> {
        self.event(SiteNumber(0), |writer| writer.define_site(site).map(SiteNumber))
    }

    /// Defines a call site by file, line, function, operation and tensor. An identical one returns the same number.
    ///
    /// ```
    /// # use ttmem_client::{Buffer, CallSite, DataType, Options, Space, Tensor, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// let weight = Tensor::new(&[512, 1536]).data_type(DataType::Bfloat16);
    /// let site = CallSite::new("model.py", 42).function("Attention.load").op("ttnn.from_torch").tensor(weight);
    /// let site = tracker.define_call_site(&site)?;
    /// tracker.alloc(&Buffer::new(device, Space::Dram, 0x10_0000, 4096).site(site))?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn define_call_site(&self, site: &CallSite<'_>) -> Result<SiteNumber> {
        let &CallSite { file, line, function, op, tensor, purpose, track } = site;
        let is_known = !file.is_empty() || !function.is_empty();
        let frame = if is_known { define_frame(self, file, line, 0, function).unwrap_or(0) } else { 0 };
        let op = if op.is_empty() { 0 } else { define_op(self, op).unwrap_or(0) };
        let track = if track.is_empty() { 0 } else { define_track(self, track).unwrap_or(0) };
        define_part_site(self, &SiteParts { frame, op, track, tensor, purpose, ..SiteParts::default() })
    }
}
