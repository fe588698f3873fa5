//! The calls of the old allocation client, which knows devices by their numbers and nothing of banks or programs.
//!
//! What it does not say stays unknown: what an allocator charges, and whether a circular buffer or a kernel is resident.

use crate::tracker::{BUFFERS, Tracker, only_id};
use crate::types::{Certainty, KernelClass, Result};
use crate::writer::Thing;
use ttmem_wire::record::{Space, flags};

/// The old numbering of what a buffer lies in, which is tt-metal's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BufferType {
    /// Device DRAM.
    Dram = 0,
    /// L1.
    L1 = 1,
    /// Host memory mapped for the device.
    SystemMemory = 2,
    /// The reserved top of L1.
    L1Small = 3,
    /// The trace region, in DRAM.
    Trace = 4,
}

impl BufferType {
    /// The type with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        const ALL: [BufferType; 5] = [
            BufferType::Dram,
            BufferType::L1,
            BufferType::SystemMemory,
            BufferType::L1Small,
            BufferType::Trace,
        ];
        ALL.get(number as usize).copied()
    }

    fn space(self) -> Space {
        match self {
            Self::Dram => Space::Dram,
            Self::L1 => Space::L1,
            Self::SystemMemory => Space::Host,
            Self::L1Small => Space::L1Small,
            Self::Trace => Space::Trace,
        }
    }
}

impl Tracker {
    /// A buffer of so many bytes is held on a device, or on each device of a mesh, from now on.
    pub fn report_allocation(&self, devices: &[u32], size: u64, kind: BufferType, address: u64) -> Result {
        self.event(0, |writer| {
            let allocator = crate::AllocatorNumber(writer.devices(devices)?);
            writer.hold(&Thing { requested: size, ..only_id(allocator, kind.space(), address) })
        })
    }

    /// It is free.
    pub fn report_deallocation(&self, devices: &[u32], address: u64) -> Result {
        self.event(0, |writer| {
            let allocator = crate::AllocatorNumber(writer.devices(devices)?);
            writer.free(&BUFFERS, &only_id(allocator, Space::Dram, address))
        })
    }

    /// A circular buffer is registered: so large on each core, whichever those are.
    pub fn report_cb_allocation(&self, devices: &[u32], size: u64, address: u64) -> Result {
        self.event(0, |writer| {
            let allocator = crate::AllocatorNumber(writer.devices(devices)?);
            let flags = Certainty::default().flags(0);
            let thing = Thing { flags, requested: size, ..only_id(allocator, Space::Cb, address) };
            writer.hold(&Thing { bytes_per_bank: size, ..thing })
        })
    }

    /// It is not any more. Several may lie at one address: the size must be said.
    pub fn report_cb_deallocation(&self, devices: &[u32], size: u64, address: u64) -> Result {
        self.event(0, |writer| {
            let allocator = crate::AllocatorNumber(writer.devices(devices)?);
            writer.free(&[Space::Cb], &Thing { requested: size, ..only_id(allocator, Space::Cb, address) })
        })
    }

    /// A kernel is loaded: so large on all of its cores together.
    pub fn report_kernel_load(&self, devices: &[u32], size: u64, id: u64, class: KernelClass) -> Result {
        self.event(0, |writer| {
            let allocator = crate::AllocatorNumber(writer.devices(devices)?);
            let flags = (class as u16) << flags::CLASS_SHIFT | Certainty::default().flags(0);
            writer.hold(&Thing { flags, requested: size, ..only_id(allocator, Space::Kernel, id) })
        })
    }

    /// It is not any more.
    pub fn report_kernel_unload(&self, devices: &[u32], id: u64) -> Result {
        self.event(0, |writer| {
            let allocator = crate::AllocatorNumber(writer.devices(devices)?);
            writer.free(&[Space::Kernel], &only_id(allocator, Space::Kernel, id))
        })
    }
}
