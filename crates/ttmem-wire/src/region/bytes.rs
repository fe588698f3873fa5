//! The layouts of a region as bytes.

use super::{CHIP_SLOTS, ChipSlot, Layout, Levels, NAME_BYTES, PROCESS_SLOTS, ProcessSlot, Region};
use zerocopy::little_endian::{I32, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Ready word of version 4: the region may be read.
pub(super) const READY: u32 = 0x5245_4459;
/// Ready words of version 4 while the region is not initialised: not begun, and in progress.
pub(super) const READINESS_INCOMPLETE: [u32; 2] = [0, 1];

/// Chip id of a free slot, since version 2.
const NO_CHIP: u32 = u32::MAX;
/// Pid of a free slot.
const NO_PID: i32 = 0;
/// Pid, in version 4, of a slot whose bytes are being subtracted from the totals.
const RELEASING: i32 = -1;
/// A pid that is invalid in every version, for [`super::build`].
const BROKEN: i32 = i32::MIN;

/// The part that all layouts share.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    version: U32,
    active_processes: U32,
    updated_ns: U64,
    reference_count: U32,
    pad1: U32,
    board_serial: U64,
    asic_id: U64,
    device_id: U32,
    pad2: U32,
}

/// Counters without kernels.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Plain {
    dram: U64,
    l1: U64,
    l1_small: U64,
    trace: U64,
    cb: U64,
}

/// Counters with kernels.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct WithKernels {
    plain: Plain,
    kernel: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Chip<C> {
    chip_id: U32,
    is_remote: U32,
    held: C,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Process<C> {
    pid: I32,
    pad: U32,
    held: C,
    updated_ns: U64,
    name: [u8; NAME_BYTES],
}

/// A whole region, with counters `C` and tail `T`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Bytes<C, T> {
    head: Head,
    totals: C,
    chips: [Chip<C>; CHIP_SLOTS],
    processes: [Process<C>; PROCESS_SLOTS],
    pub(super) tail: T,
}

/// The bytes after the process slots, except in [`Layout::Poc`].
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Tail {
    /// Version 4: [`READY`], or a value of [`READINESS_INCOMPLETE`]. In earlier versions it is padding and always zero, so a reader
    /// must check the version first.
    pub(super) readiness: U32,
    pad: [u8; 36],
}

pub(super) type PocBytes = Bytes<WithKernels, [u8; 96]>;
pub(super) type PlainBytes = Bytes<Plain, Tail>;

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Head>() == 48 && size_of::<Plain>() == 40 && size_of::<WithKernels>() == 48);
    assert!(offset_of!(Head, version) == 0 && offset_of!(Head, active_processes) == 4);
    assert!(offset_of!(Head, updated_ns) == 8 && offset_of!(Head, reference_count) == 16);
    assert!(offset_of!(Head, board_serial) == 24 && offset_of!(Head, asic_id) == 32);
    assert!(offset_of!(Head, device_id) == 40);
    assert!(offset_of!(Plain, dram) == 0 && offset_of!(Plain, l1) == 8 && offset_of!(Plain, l1_small) == 16);
    assert!(offset_of!(Plain, trace) == 24 && offset_of!(Plain, cb) == 32);
    assert!(offset_of!(WithKernels, kernel) == 40);

    assert!(size_of::<Chip<Plain>>() == 48 && size_of::<Process<Plain>>() == 120);
    assert!(offset_of!(Chip<Plain>, is_remote) == 4 && offset_of!(Chip<Plain>, held) == 8);
    assert!(offset_of!(Process<Plain>, held) == 8 && offset_of!(Process<Plain>, updated_ns) == 48);
    assert!(offset_of!(Process<Plain>, name) == 56);
    assert!(size_of::<PlainBytes>() == 8576 && offset_of!(PlainBytes, totals) == 48);
    assert!(offset_of!(PlainBytes, chips) == 88 && offset_of!(PlainBytes, processes) == 856);
    assert!(offset_of!(PlainBytes, tail) == 8536);

    assert!(size_of::<Chip<WithKernels>>() == 56 && size_of::<Process<WithKernels>>() == 128);
    assert!(offset_of!(Chip<WithKernels>, held) == 8 && offset_of!(Process<WithKernels>, held) == 8);
    assert!(
        offset_of!(Process<WithKernels>, updated_ns) == 56 && offset_of!(Process<WithKernels>, name) == 64
    );
    assert!(size_of::<PocBytes>() == 9280 && offset_of!(PocBytes, totals) == 48);
    assert!(offset_of!(PocBytes, chips) == 96 && offset_of!(PocBytes, processes) == 992);
    assert!(offset_of!(PocBytes, tail) == 9184);
    assert!(super::MAX_BYTES >= size_of::<PlainBytes>());
};

/// Counters of a layout.
pub(super) trait Counters: FromZeros + Copy {
    fn levels(&self) -> Levels;
    fn of(levels: &Levels) -> Self;
}

impl Counters for Plain {
    fn levels(&self) -> Levels {
        Levels {
            dram: self.dram.get(),
            l1: self.l1.get(),
            l1_small: self.l1_small.get(),
            trace: self.trace.get(),
            cb: self.cb.get(),
            kernel: 0,
        }
    }

    fn of(levels: &Levels) -> Self {
        Self {
            dram: levels.dram.into(),
            l1: levels.l1.into(),
            l1_small: levels.l1_small.into(),
            trace: levels.trace.into(),
            cb: levels.cb.into(),
        }
    }
}

impl Counters for WithKernels {
    fn levels(&self) -> Levels {
        Levels { kernel: self.kernel.get(), ..self.plain.levels() }
    }

    fn of(levels: &Levels) -> Self {
        Self { plain: Plain::of(levels), kernel: levels.kernel.into() }
    }
}

impl<C: Counters, T: FromZeros> Bytes<C, T> {
    pub(super) fn region(&self, layout: Layout) -> Region {
        let head = &self.head;
        let mut region = Region {
            active_processes: head.active_processes.get(),
            updated_ns: head.updated_ns.get(),
            reference_count: head.reference_count.get(),
            board_serial: head.board_serial.get(),
            asic_id: head.asic_id.get(),
            device_id: head.device_id.get(),
            totals: self.totals.levels(),
            chips: self.chips(layout),
            ..Region::new(layout)
        };
        // All slots are read: they are sparse, so the number of processes is no bound.
        for (slot, process) in self.processes.iter().enumerate() {
            match process.pid.get() {
                NO_PID => {}
                RELEASING if layout == Layout::V4 => region.releasing_slots += 1,
                pid => match u32::try_from(pid) {
                    Ok(pid) => region.processes.push(ProcessSlot {
                        slot,
                        pid,
                        held: process.held.levels(),
                        updated_ns: process.updated_ns.get(),
                        name: name(&process.name),
                    }),
                    Err(_) => region.broken_slots += 1,
                },
            }
        }
        region
    }

    fn chips(&self, layout: Layout) -> Vec<ChipSlot> {
        // Where zeros mark a free slot, a slot of chip 0 without bytes has only zeros, too. Writers use the first such slot for it, so in
        // a region of device 0 that slot is not free.
        let own = match self.head.device_id.get() {
            0 => self.chips.iter().position(|chip| chip.chip_id.get() == 0),
            _ => None,
        };
        let free = |slot: usize, chip: &ChipSlot| {
            let empty = *chip == ChipSlot { chip_id: 0, remote: false, held: Levels::default() };
            let marked = layout.has_mark() && chip.chip_id == NO_CHIP;
            marked || (layout.zero_is_free() && empty && own != Some(slot))
        };
        let chips = self.chips.iter().map(|chip| ChipSlot {
            chip_id: chip.chip_id.get(),
            remote: chip.is_remote.get() != 0,
            held: chip.held.levels(),
        });
        chips.enumerate().filter(|(slot, chip)| !free(*slot, chip)).map(|(_, chip)| chip).collect()
    }

    pub(super) fn of(layout: Layout, region: &Region) -> Self {
        let mut bytes = Self::new_zeroed();
        bytes.head = Head {
            version: layout.version().into(),
            active_processes: region.active_processes.into(),
            updated_ns: region.updated_ns.into(),
            reference_count: region.reference_count.into(),
            board_serial: region.board_serial.into(),
            asic_id: region.asic_id.into(),
            device_id: region.device_id.into(),
            ..Head::new_zeroed()
        };
        bytes.totals = C::of(&region.totals);
        if layout.has_mark() {
            for chip in &mut bytes.chips {
                chip.chip_id = NO_CHIP.into();
            }
        }
        for (slot, chip) in bytes.chips.iter_mut().zip(&region.chips) {
            slot.chip_id = chip.chip_id.into();
            slot.is_remote = u32::from(chip.remote).into();
            slot.held = C::of(&chip.held);
        }
        for process in &region.processes {
            if let Some(slot) = bytes.processes.get_mut(process.slot) {
                slot.pid = (process.pid as i32).into();
                slot.held = C::of(&process.held);
                slot.updated_ns = process.updated_ns.into();
                crate::segment::set_text(&mut slot.name, &process.name);
            }
        }
        // The positions of these slots are not kept.
        let releasing = if layout == Layout::V4 { region.releasing_slots as usize } else { 0 };
        let pids = core::iter::repeat_n(RELEASING, releasing)
            .chain(core::iter::repeat_n(BROKEN, region.broken_slots as usize));
        let free = bytes.processes.iter_mut().filter(|slot| slot.pid.get() == NO_PID);
        for (slot, pid) in free.zip(pids) {
            slot.pid = pid.into();
        }
        bytes
    }
}

/// Returns a process's name that is safe to display: any process that may write the region may have set it.
fn name(field: &[u8; NAME_BYTES]) -> String {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    let mut name = String::new();
    for c in String::from_utf8_lossy(&field[..end]).chars() {
        let c = if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        // A replacement character may be longer than the replaced bytes.
        if name.len() + c.len_utf8() > NAME_BYTES {
            break;
        }
        name.push(c);
    }
    name
}
