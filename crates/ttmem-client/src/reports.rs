//! The calls of the old allocation client, which knows devices by their numbers and nothing of banks or programs.
//!
//! What it does not say stays unknown: what an allocator charges, and whether a circular buffer or a kernel is resident.

use crate::AllocatorNumber;
use crate::tracker::{BUFFERS, Tracker};
use crate::types::{Buffer, BufferType, Kernel, KernelClass, Placement, Result, Space, named};

impl Tracker {
    /// A buffer of so many bytes is held on a device, or on each device of a mesh, from now on.
    pub fn report_allocation(&self, devices: &[u32], size: u64, kind: BufferType, address: u64) -> Result {
        self.event(0, |writer| {
            let allocator = AllocatorNumber(writer.devices(devices)?);
            let space = kind.space();
            writer.allocate(space, &Buffer::new(allocator, space, address, size).record())
        })
    }

    /// It is free.
    pub fn report_deallocation(&self, devices: &[u32], address: u64) -> Result {
        self.event(0, |writer| {
            let allocator = AllocatorNumber(writer.devices(devices)?);
            writer.free(&BUFFERS, &named(allocator, Space::Dram, address))
        })
    }

    /// A circular buffer is registered: so large on each core, whichever those are.
    pub fn report_cb_allocation(&self, devices: &[u32], size: u64, address: u64) -> Result {
        self.event(0, |writer| match circular_buffer(writer.devices(devices)?, size, address).record() {
            Some(record) => writer.allocate(Space::Cb, &record),
            None => Ok(0),
        })
    }

    /// It is not any more. Several may lie at one address: the size must be said.
    pub fn report_cb_deallocation(&self, devices: &[u32], size: u64, address: u64) -> Result {
        self.event(0, |writer| match circular_buffer(writer.devices(devices)?, size, address).record() {
            Some(record) => writer.free(&[Space::Cb], &record),
            None => Ok(0),
        })
    }

    /// A kernel is loaded: so large on all of its cores together.
    pub fn report_kernel_load(&self, devices: &[u32], size: u64, id: u64, class: KernelClass) -> Result {
        self.event(0, |writer| {
            let allocator = AllocatorNumber(writer.devices(devices)?);
            let kernel = Kernel { class, ..Kernel::new(allocator, 0, id, size) };
            writer.allocate(Space::Kernel, &kernel.record())
        })
    }

    /// It is not any more.
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
