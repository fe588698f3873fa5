//! Calls of the old allocation client, which knows devices by number and has no banks or programs.
//!
//! Allocated bytes, and whether circular buffers and kernels are resident, stay unknown. New code reports through
//! [`Tracker`] itself.
//!
//! ```
//! use ttmem_client::compat::AllocationClient;
//! use ttmem_client::{BufferType, Tracker};
//!
//! let client = AllocationClient::new(Tracker::global());
//! client.report_allocation(&[0], 4096, BufferType::Dram, 0x1_0000)?;
//! client.report_deallocation(&[0], 0x1_0000)?;
//! # Ok::<(), ttmem_client::Fault>(())
//! ```

use crate::tracker::{SEARCHED_SPACES, Tracker};
use crate::types::{AllocatorNumber, Buffer, Kernel, Placement, Result, identifying_record};
use ttmem_types::{BufferType, KernelClass, Space};

/// The old allocation client's calls, on a tracker. `devices` are one device, or all devices of a mesh.
///
/// ```
/// use ttmem_client::compat::AllocationClient;
/// use ttmem_client::{Options, Tracker};
///
/// let tracker = Tracker::new(&Options::default());
/// let client = AllocationClient::new(&tracker);
/// client.report_cb_allocation(&[0], 4096, 0x2_0000)?;
/// assert_eq!(tracker.status().live, 1);
/// # Ok::<(), ttmem_client::Fault>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AllocationClient<'t> {
    tracker: &'t Tracker,
}

impl<'t> AllocationClient<'t> {
    /// Returns the calls on a tracker.
    ///
    /// ```
    /// # use ttmem_client::{Tracker, compat::AllocationClient};
    /// let client = AllocationClient::new(Tracker::global());
    /// ```
    #[inline]
    pub const fn new(tracker: &'t Tracker) -> Self {
        Self { tracker }
    }

    /// Reports a buffer allocated on a device, or on each device of a mesh.
    ///
    /// ```
    /// # use ttmem_client::{BufferType, Options, Tracker, compat::AllocationClient};
    /// # let tracker = Tracker::new(&Options::default());
    /// AllocationClient::new(&tracker).report_allocation(&[0, 1], 4096, BufferType::L1, 0x2_0000)?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn report_allocation(&self, devices: &[u32], size: u64, kind: BufferType, address: u64) -> Result {
        self.tracker.event(0, |writer| {
            let allocator = AllocatorNumber(writer.define_devices(devices)?);
            let space = kind.space();
            writer.allocate(space, &Buffer::new(allocator, space, address, size).record())
        })
    }

    /// Reports a freed buffer.
    ///
    /// ```
    /// # use ttmem_client::{BufferType, Options, Tracker, compat::AllocationClient};
    /// # let tracker = Tracker::new(&Options::default());
    /// # let client = AllocationClient::new(&tracker);
    /// client.report_allocation(&[0], 4096, BufferType::Dram, 0x1_0000)?;
    /// client.report_deallocation(&[0], 0x1_0000)?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn report_deallocation(&self, devices: &[u32], address: u64) -> Result {
        self.tracker.event(0, |writer| {
            let allocator = AllocatorNumber(writer.define_devices(devices)?);
            writer.free(&SEARCHED_SPACES, &identifying_record(allocator, Space::Dram, address))
        })
    }

    /// Registers a circular buffer; `size` is per core, and the cores are unknown.
    ///
    /// ```
    /// # use ttmem_client::{Options, Tracker, compat::AllocationClient};
    /// # let tracker = Tracker::new(&Options::default());
    /// AllocationClient::new(&tracker).report_cb_allocation(&[0], 4096, 0x2_0000)?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn report_cb_allocation(&self, devices: &[u32], size: u64, address: u64) -> Result {
        self.tracker.event(0, |writer| {
            match circular_buffer(writer.define_devices(devices)?, size, address).record() {
                Some(record) => writer.allocate(Space::Cb, &record),
                None => Ok(0),
            }
        })
    }

    /// Removes a circular buffer. Several may share an address, so the size counts.
    ///
    /// ```
    /// # use ttmem_client::{Options, Tracker, compat::AllocationClient};
    /// # let tracker = Tracker::new(&Options::default());
    /// # let client = AllocationClient::new(&tracker);
    /// client.report_cb_allocation(&[0], 4096, 0x2_0000)?;
    /// client.report_cb_deallocation(&[0], 4096, 0x2_0000)?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn report_cb_deallocation(&self, devices: &[u32], size: u64, address: u64) -> Result {
        self.tracker.event(0, |writer| {
            match circular_buffer(writer.define_devices(devices)?, size, address).record() {
                Some(record) => writer.free(&[Space::Cb], &record),
                None => Ok(0),
            }
        })
    }

    /// Registers a kernel; `size` is the total over its cores.
    ///
    /// ```
    /// # use ttmem_client::{KernelClass, Options, Tracker, compat::AllocationClient};
    /// # let tracker = Tracker::new(&Options::default());
    /// AllocationClient::new(&tracker).report_kernel_load(&[0], 51_200, 1, KernelClass::Application)?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn report_kernel_load(&self, devices: &[u32], size: u64, id: u64, class: KernelClass) -> Result {
        self.tracker.event(0, |writer| {
            let allocator = AllocatorNumber(writer.define_devices(devices)?);
            writer.allocate(Space::Kernel, &Kernel::new(allocator, 0, id, size).class(class).record())
        })
    }

    /// Removes a kernel.
    ///
    /// ```
    /// # use ttmem_client::{KernelClass, Options, Tracker, compat::AllocationClient};
    /// # let tracker = Tracker::new(&Options::default());
    /// # let client = AllocationClient::new(&tracker);
    /// client.report_kernel_load(&[0], 51_200, 1, KernelClass::Application)?;
    /// client.report_kernel_unload(&[0], 1)?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn report_kernel_unload(&self, devices: &[u32], id: u64) -> Result {
        self.tracker.event(0, |writer| {
            let allocator = AllocatorNumber(writer.define_devices(devices)?);
            writer.free(&[Space::Kernel], &identifying_record(allocator, Space::Kernel, id))
        })
    }
}

fn circular_buffer(allocator: u16, size: u64, address: u64) -> Placement {
    Placement::new(AllocatorNumber(allocator), 0, Space::Cb, address, size)
}
