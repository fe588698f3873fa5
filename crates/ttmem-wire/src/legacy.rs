//! The old allocation server's message family.
//!
//! Requests and answers are the same struct. It grew over time without a version field, so there are four sizes. All of them begin
//! with the same 72 bytes, and every event is complete in those; only answers use the rest:
//!
//! ```text
//! V72   | head 72 |
//! V112  | head 72 | capacity 40 |
//! V128  | head 72 | program 16 | capacity 40 |
//! V144  | head 72 | program 16 | capacity 40 | ring 16 |
//! ```

use zerocopy::little_endian::{I32, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Default path of the legacy socket.
pub const SOCKET_PATH: &str = "/tmp/tt_allocation_server.sock";

/// Size of the part that all vintages share.
pub const HEAD_SIZE: usize = size_of::<Head>();

/// Size of the largest vintage.
pub const MAX_SIZE: usize = 144;

/// One of the four layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Vintage {
    /// October 2025: buffers only.
    V72,
    /// October 2025: with device capacities.
    V112,
    /// November 2025: with circular buffers and kernels.
    V128,
    /// November 2025, the latest: with ring-buffer fields.
    V144,
}

impl Vintage {
    /// All vintages, smallest first.
    pub const ALL: [Self; 4] = [Self::V72, Self::V112, Self::V128, Self::V144];

    /// Returns the bytes of a message.
    pub const fn size(self) -> usize {
        match self {
            Self::V72 => 72,
            Self::V112 => 112,
            Self::V128 => 128,
            Self::V144 => 144,
        }
    }

    /// Returns the vintage with messages of `size` bytes.
    pub fn of_size(size: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|v| v.size() == size)
    }
}

/// Message types, as numbered on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Type {
    /// A buffer was allocated.
    Alloc = 1,
    /// A buffer was freed.
    Free = 2,
    /// Requests the levels of one device.
    Query = 3,
    /// Answers [`Type::Query`].
    Response = 4,
    /// Requests a report of everything still allocated.
    DumpRemaining = 5,
    /// Requests a device's capacities, or with device -1 the number of devices.
    DeviceInfoQuery = 6,
    /// Answers [`Type::DeviceInfoQuery`].
    DeviceInfoResponse = 7,
    /// A circular buffer was registered.
    CbAlloc = 8,
    /// A circular buffer was released.
    CbFree = 9,
    /// A kernel was loaded.
    KernelLoad = 10,
    /// A kernel was unloaded.
    KernelUnload = 11,
    /// Requests a report of all kernels.
    DumpKernels = 12,
}

impl Type {
    /// All types, in wire order.
    pub const ALL: [Self; 12] = [
        Self::Alloc,
        Self::Free,
        Self::Query,
        Self::Response,
        Self::DumpRemaining,
        Self::DeviceInfoQuery,
        Self::DeviceInfoResponse,
        Self::CbAlloc,
        Self::CbFree,
        Self::KernelLoad,
        Self::KernelUnload,
        Self::DumpKernels,
    ];

    /// Returns the type numbered `byte`.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().nth(usize::from(byte).checked_sub(1)?)
    }

    /// Returns whether the server sends an answer, in the size of the request.
    pub fn wants_answer(self) -> bool {
        matches!(self, Self::Query | Self::DeviceInfoQuery)
    }
}

/// `arch_type` of a device-info answer.
pub mod arch {
    /// Unknown.
    pub const INVALID: u32 = 0;
    /// Wormhole B0.
    pub const WORMHOLE_B0: u32 = 2;
    /// Blackhole.
    pub const BLACKHOLE: u32 = 3;
}

/// The first 72 bytes, common to all vintages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Head {
    /// A [`Type`] by number.
    pub kind: u8,
    /// Zero.
    pub pad1: [u8; 3],
    /// Logical device, or -1.
    pub device_id: I32,
    /// Bytes.
    pub size: U64,
    /// Of an ALLOC, a [`ttmem_types::BufferType`]; of a `KERNEL_LOAD`, a [`ttmem_types::KernelClass`] but
    /// `Unknown`. (The old header comments numbered `L1_SMALL` 2 and `TRACE` 3; the programs never did.)
    pub buffer_type: u8,
    /// Zero.
    pub pad2: [u8; 3],
    /// Pid that the sender reports.
    pub process_id: I32,
    /// Device address, or kernel id.
    pub buffer_id: U64,
    /// Wall-clock nanoseconds of the sender.
    pub timestamp: U64,
    /// Answer: bytes of DRAM in use.
    pub dram_allocated: U64,
    /// Answer: bytes of L1 buffers.
    pub l1_allocated: U64,
    /// Answer: bytes of `L1_SMALL`.
    pub l1_small_allocated: U64,
    /// Answer: bytes of TRACE.
    pub trace_allocated: U64,
}

/// Answer fields of V128 and V144, at offset 72.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Program {
    cb_allocated: U64,
    kernel_allocated: U64,
}

/// Answer fields of V112 (at offset 72), V128 and V144 (at offset 88).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Capacity {
    total_dram_size: U64,
    total_l1_size: U64,
    arch_type: U32,
    num_dram_channels: U32,
    dram_size_per_channel: U32,
    l1_size_per_core: U32,
    is_available: U32,
    num_devices: U32,
}

/// Last fields of V144, at offset 128. No server has ever filled them in, and ttmem does not either.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Ring {
    total_size: U32,
    used_bytes: U32,
    num_programs: U32,
    pad3: U32,
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Head>() == 72 && align_of::<Head>() == 1);
    assert!(offset_of!(Head, device_id) == 4 && offset_of!(Head, size) == 8);
    assert!(offset_of!(Head, buffer_type) == 16 && offset_of!(Head, process_id) == 20);
    assert!(offset_of!(Head, buffer_id) == 24 && offset_of!(Head, timestamp) == 32);
    assert!(offset_of!(Head, dram_allocated) == 40 && offset_of!(Head, trace_allocated) == 64);
    assert!(size_of::<Program>() == 16 && size_of::<Capacity>() == 40 && size_of::<Ring>() == 16);
    assert!(offset_of!(Capacity, arch_type) == 16 && offset_of!(Capacity, num_devices) == 36);
    assert!(Vintage::V112.size() == 72 + 40);
    assert!(Vintage::V128.size() == 72 + 16 + 40);
    assert!(Vintage::V144.size() == 72 + 16 + 40 + 16 && Vintage::V144.size() == MAX_SIZE);
};

/// A message of any vintage, as plain numbers. Fields that a vintage lacks are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// A [`Type`] by number.
    pub kind: u8,
    /// Logical device, or -1.
    pub device_id: i32,
    /// Bytes.
    pub size: u64,
    /// Of an ALLOC, a [`ttmem_types::BufferType`]; of a `KERNEL_LOAD`, a [`ttmem_types::KernelClass`] but
    /// `Unknown`. (The old header comments numbered `L1_SMALL` 2 and `TRACE` 3; the programs never did.)
    pub buffer_type: u8,
    /// Pid that the sender reports.
    pub process_id: i32,
    /// Device address, or kernel id.
    pub buffer_id: u64,
    /// Wall-clock nanoseconds of the sender.
    pub timestamp: u64,
    /// Levels in an answer.
    pub levels: Levels,
    /// Capacities in a device-info answer.
    pub capacity: DeviceInfo,
}

/// Levels of one device in a RESPONSE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// DRAM bytes.
    pub dram: u64,
    /// L1 buffer bytes.
    pub l1: u64,
    /// `L1_SMALL` bytes.
    pub l1_small: u64,
    /// TRACE bytes.
    pub trace: u64,
    /// Circular-buffer bytes; V128 and later.
    pub cb: u64,
    /// Kernel bytes; V128 and later.
    pub kernel: u64,
}

/// Capacities of one device in a `DEVICE_INFO_RESPONSE`; V112 and later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// DRAM bytes.
    pub total_dram_size: u64,
    /// L1 bytes of all cores.
    pub total_l1_size: u64,
    /// See [`arch`].
    pub arch_type: u32,
    /// DRAM channels.
    pub num_dram_channels: u32,
    /// Bytes of one channel, at most 4 GiB - 1: the field has 32 bits.
    pub dram_size_per_channel: u32,
    /// L1 bytes of one core.
    pub l1_size_per_core: u32,
    /// 1 if the device exists.
    pub is_available: u32,
    /// Number of devices, in the answer to device -1 only.
    pub num_devices: u32,
}

impl Message {
    /// Returns a message of `kind` with everything else zero.
    pub fn new(kind: Type) -> Self {
        Self { kind: kind as u8, ..Self::default() }
    }

    /// Writes the message in `vintage` into a buffer of [`MAX_SIZE`] and returns the used part of it.
    pub fn encode(self, vintage: Vintage, buffer: &mut [u8; MAX_SIZE]) -> &[u8] {
        let head = Head {
            kind: self.kind,
            pad1: [0; 3],
            device_id: self.device_id.into(),
            size: self.size.into(),
            buffer_type: self.buffer_type,
            pad2: [0; 3],
            process_id: self.process_id.into(),
            buffer_id: self.buffer_id.into(),
            timestamp: self.timestamp.into(),
            dram_allocated: self.levels.dram.into(),
            l1_allocated: self.levels.l1.into(),
            l1_small_allocated: self.levels.l1_small.into(),
            trace_allocated: self.levels.trace.into(),
        };
        let program =
            Program { cb_allocated: self.levels.cb.into(), kernel_allocated: self.levels.kernel.into() };
        let info = self.capacity;
        let capacity = Capacity {
            total_dram_size: info.total_dram_size.into(),
            total_l1_size: info.total_l1_size.into(),
            arch_type: info.arch_type.into(),
            num_dram_channels: info.num_dram_channels.into(),
            dram_size_per_channel: info.dram_size_per_channel.into(),
            l1_size_per_core: info.l1_size_per_core.into(),
            is_available: info.is_available.into(),
            num_devices: info.num_devices.into(),
        };
        *buffer = [0; MAX_SIZE];
        buffer[..72].copy_from_slice(head.as_bytes());
        match vintage {
            Vintage::V72 => {}
            Vintage::V112 => buffer[72..112].copy_from_slice(capacity.as_bytes()),
            Vintage::V128 | Vintage::V144 => {
                buffer[72..88].copy_from_slice(program.as_bytes());
                buffer[88..128].copy_from_slice(capacity.as_bytes());
            }
        }
        &buffer[..vintage.size()]
    }

    /// Reads a message of `vintage`; `None` if `bytes` is too short.
    pub fn decode(vintage: Vintage, bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..vintage.size())?;
        let (head, rest) = Head::read_from_prefix(bytes).ok()?;
        let (program, capacity) = match vintage {
            Vintage::V72 => (Program::new_zeroed(), Capacity::new_zeroed()),
            Vintage::V112 => (Program::new_zeroed(), Capacity::read_from_prefix(rest).ok()?.0),
            Vintage::V128 | Vintage::V144 => {
                let (program, rest) = Program::read_from_prefix(rest).ok()?;
                (program, Capacity::read_from_prefix(rest).ok()?.0)
            }
        };
        let mut message = Self::from_head(&head);
        message.levels.cb = program.cb_allocated.get();
        message.levels.kernel = program.kernel_allocated.get();
        message.capacity = DeviceInfo {
            total_dram_size: capacity.total_dram_size.get(),
            total_l1_size: capacity.total_l1_size.get(),
            arch_type: capacity.arch_type.get(),
            num_dram_channels: capacity.num_dram_channels.get(),
            dram_size_per_channel: capacity.dram_size_per_channel.get(),
            l1_size_per_core: capacity.l1_size_per_core.get(),
            is_available: capacity.is_available.get(),
            num_devices: capacity.num_devices.get(),
        };
        Some(message)
    }

    /// Returns the message in a head, which is all that a client sends.
    pub fn from_head(head: &Head) -> Self {
        Self {
            kind: head.kind,
            device_id: head.device_id.get(),
            size: head.size.get(),
            buffer_type: head.buffer_type,
            process_id: head.process_id.get(),
            buffer_id: head.buffer_id.get(),
            timestamp: head.timestamp.get(),
            levels: Levels {
                dram: head.dram_allocated.get(),
                l1: head.l1_allocated.get(),
                l1_small: head.l1_small_allocated.get(),
                trace: head.trace_allocated.get(),
                cb: 0,
                kernel: 0,
            },
            capacity: DeviceInfo::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Message {
        Message {
            kind: 7,
            device_id: -1,
            size: 0x0102_0304_0506_0708,
            buffer_type: 4,
            process_id: -42,
            buffer_id: u64::MAX - 1,
            timestamp: 0x1112_1314_1516_1718,
            levels: Levels { dram: 21, l1: 22, l1_small: 23, trace: 24, cb: 25, kernel: 26 },
            capacity: DeviceInfo {
                total_dram_size: 31,
                total_l1_size: 32,
                arch_type: 33,
                num_dram_channels: 34,
                dram_size_per_channel: 4_278_190_080,
                l1_size_per_core: 36,
                is_available: 37,
                num_devices: 38,
            },
        }
    }

    #[test]
    fn every_vintage_keeps_its_fields() {
        for vintage in Vintage::ALL {
            let mut buffer = [0xff; MAX_SIZE];
            let bytes = full().encode(vintage, &mut buffer);
            assert_eq!(bytes.len(), vintage.size());
            let mut expected = full();
            if vintage < Vintage::V128 {
                (expected.levels.cb, expected.levels.kernel) = (0, 0);
            }
            if vintage == Vintage::V72 {
                expected.capacity = DeviceInfo::default();
            }
            assert_eq!(Message::decode(vintage, bytes), Some(expected), "{vintage:?}");
            assert_eq!(Message::decode(vintage, &bytes[1..]), None);
        }
    }

    #[test]
    fn fields_have_the_offsets_of_the_old_structs() {
        let mut buffer = [0; MAX_SIZE];
        let v112 = full().encode(Vintage::V112, &mut buffer).to_vec();
        assert_eq!((v112[72], v112[80], v112[88], v112[108]), (31, 32, 33, 38));
        let v144 = full().encode(Vintage::V144, &mut buffer).to_vec();
        assert_eq!((v144[72], v144[80], v144[88], v144[104], v144[124]), (25, 26, 31, 33, 38));
        assert_eq!(v144[112..116], 4_278_190_080_u32.to_le_bytes());
        assert!(v144[128..].iter().all(|&b| b == 0), "ring fields stay zero");
    }

    #[test]
    fn types_are_numbered_one_to_twelve() {
        for byte in 0..=255 {
            assert_eq!(Type::from_byte(byte).map(|t| t as u8), (1..=12).contains(&byte).then_some(byte));
        }
    }
}
