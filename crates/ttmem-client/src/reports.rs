//! The calls of the old allocation client, which knows devices by number and has no banks or programs.
//!
//! Allocated bytes, and whether circular buffers and kernels are resident, stay unknown.

use crate::AllocatorNumber;
use crate::tracker::{BUFFERS, Tracker};
use crate::types::{Buffer, BufferType, Kernel, KernelClass, Placement, Result, Space, named};

impl Tracker {
    /// Reports a buffer allocated on a device, or on each device of a mesh.
    pub fn report_allocation(&self, devices: &[u32], size: u64, kind: BufferType, address: u64) -> Result {
        self.event(0, |writer| {
            let allocator = AllocatorNumber(writer.devices(devices)?);
            let space = kind.space();
            writer.allocate(space, &Buffer::new(allocator, space, address, size).record())
        })
    }

    /// Reports a freed buffer.
    pub fn report_deallocation(&self, devices: &[u32], address: u64) -> Result {
        self.event(0, |writer| {
            let allocator = AllocatorNumber(writer.devices(devices)?);
            writer.free(&BUFFERS, &named(allocator, Space::Dram, address))
        })
    }

    /// Registers a circular buffer; `size` is per core, and the cores are unknown.
    pub fn report_cb_allocation(&self, devices: &[u32], size: u64, address: u64) -> Result {
        self.event(0, |writer| match circular_buffer(writer.devices(devices)?, size, address).record() {
            Some(record) => writer.allocate(Space::Cb, &record),
            None => Ok(0),
        })
    }

    /// Removes a circular buffer. Several may share an address, so the size counts.
    pub fn report_cb_deallocation(&self, devices: &[u32], size: u64, address: u64) -> Result {
        self.event(0, |writer| match circular_buffer(writer.devices(devices)?, size, address).record() {
            Some(record) => writer.free(&[Space::Cb], &record),
            None => Ok(0),
        })
    }

    /// Registers a kernel; `size` is the total over its cores.
    pub fn report_kernel_load(&self, devices: &[u32], size: u64, id: u64, class: KernelClass) -> Result {
        self.event(0, |writer| {
            let allocator = AllocatorNumber(writer.devices(devices)?);
            let kernel = Kernel { class, ..Kernel::new(allocator, 0, id, size) };
            writer.allocate(Space::Kernel, &kernel.record())
        })
    }

    /// Removes a kernel.
    pub fn report_kernel_unload(&self, devices: &[u32], id: u64) -> Result {
        self.event(0, |writer| {
            let allocator = AllocatorNumber(writer.devices(devices)?);
            writer.free(&[Space::Kernel], &named(allocator, Space::Kernel, id))
        })
    }
}

fn circular_buffer(allocator: u16, size: u64, address: u64) -> Placement {
    Placement::new(AllocatorNumber(allocator), 0, Space::Cb, address, size)
}
