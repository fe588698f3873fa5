//! The words everything else is written in.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A moment on the reader's monotonic clock, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub u64);

impl Mono {
    /// Nanoseconds in a second.
    pub const SECOND: u64 = 1_000_000_000;

    /// Nanoseconds since `earlier`, 0 if that is later.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Space {
    /// Device DRAM.
    Dram,
    /// L1 buffers.
    L1,
    /// The reserved top of L1.
    L1Small,
    /// The trace region, in DRAM.
    Trace,
    /// Circular buffers, in L1, outside its allocator.
    Cb,
    /// Dataflow buffers, in L1, outside its allocator.
    Dfb,
    /// Scratchpads, in L1, outside its allocator.
    Scratch,
    /// Kernel code.
    Kernel,
    /// Host memory mapped for the device: followed so that its frees match, never counted as the device's.
    Host,
    /// L1 buffers that lie on some cores only, on each wherever there was room.
    L1Core,
}

impl Space {
    /// Spaces that buffers live in and one allocator call fills.
    pub const BUFFERS: [Self; 6] =
        [Self::Dram, Self::L1, Self::L1Small, Self::Trace, Self::Host, Self::L1Core];

    /// Spaces that programs register and only a dispatched program occupies.
    pub const PROGRAM: [Self; 4] = [Self::Cb, Self::Dfb, Self::Scratch, Self::Kernel];

    /// Whether memory of this space belongs to a program.
    pub fn is_program(self) -> bool {
        Self::PROGRAM.contains(&self)
    }

    /// Whether several things of this space may lie at one address: programs lay theirs over each other, and buffers on
    /// single cores beside each other. Any other buffer has its address to itself, and a kernel its id.
    pub fn is_stacked(self) -> bool {
        matches!(self, Self::Cb | Self::Dfb | Self::Scratch | Self::L1Core)
    }

    /// The name used in snapshots.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dram => "dram",
            Self::L1 => "l1",
            Self::L1Small => "l1_small",
            Self::Trace => "trace",
            Self::Cb => "cb",
            Self::Dfb => "dfb",
            Self::Scratch => "scratch",
            Self::Kernel => "kernel",
            Self::Host => "host",
            Self::L1Core => "l1_core",
        }
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a buffer lies in its banks or on its cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Not said.
    #[default]
    Unknown,
    /// Page by page over all banks.
    Interleaved,
    /// In pieces of some rows, one to a core.
    HeightSharded,
    /// In pieces of some columns.
    WidthSharded,
    /// In rectangles.
    BlockSharded,
    /// In pieces of as many dimensions as it has.
    NdSharded,
    /// It is another allocator's, and lies there; this one only keeps clear of it.
    Mirror,
    /// It belongs to a program, but is only another way to look at a buffer that is counted by itself.
    View,
}

impl Layout {
    /// Whether what lies so is counted elsewhere, and is nobody's use here.
    pub fn is_anothers(self) -> bool {
        matches!(self, Self::Mirror | Self::View)
    }

    /// For people.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Unknown => return None,
            Self::Interleaved => "interleaved",
            Self::HeightSharded => "height sharded",
            Self::WidthSharded => "width sharded",
            Self::BlockSharded => "block sharded",
            Self::NdSharded => "ND sharded",
            Self::Mirror => "kept clear of",
            Self::View => "view of a buffer",
        })
    }
}

/// One ASIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChipId {
    /// Its 64-bit unique id.
    Unique(u64),
    /// Where no unique id is known: where it is on the bus.
    Pci(PciAddress),
    /// Where nothing else is known: the number a client calls it by.
    Ordinal(u32),
}

/// A place on the PCI bus, as `0000:01:00.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Domain.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device and function.
    pub slot: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, slot } = self;
        write!(f, "{domain:04x}:{bus:02x}:{:02x}.{:x}", slot >> 3, slot & 7)
    }
}

impl FromStr for PciAddress {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str, most: u32| match u32::from_str_radix(text, 16) {
            Ok(n) if n <= most && text.bytes().all(|b| b.is_ascii_hexdigit()) => Ok(n),
            _ => Err(()),
        };
        let (rest, function) = text.split_once('.').ok_or(())?;
        let (rest, device) = rest.rsplit_once(':').ok_or(())?;
        let (domain, bus) = rest.split_once(':').ok_or(())?;
        let slot = (number(device, 31)? << 3 | number(function, 7)?) as u8;
        Ok(Self { domain: number(domain, u32::MAX)?, bus: number(bus, 255)? as u8, slot })
    }
}

impl fmt::Display for ChipId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unique(id) => write!(f, "0x{id:016x}"),
            Self::Pci(address) => write!(f, "pci-{address}"),
            Self::Ordinal(n) => write!(f, "ordinal-{n}"),
        }
    }
}

/// One process, told from a later one with the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// As the reader sees it; 0 where it cannot.
    pub pid: u32,
    /// The kernel's start time of the process, or any number the source makes unique.
    pub start: u64,
}

/// Where a figure comes from, best first. Of one process on one chip in one space only the best is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Every allocation and free, from the process's own segment.
    Events,
    /// Levels that tt-metal keeps.
    Counters,
    /// Messages of the old socket protocol.
    Legacy,
    /// None: it is only known that there is something to know. Or one that a later version has.
    #[serde(other)]
    Unknown,
}

impl Basis {
    /// The name used in snapshots.
    pub fn name(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Counters => "counters",
            Self::Legacy => "legacy",
            Self::Unknown => "unknown",
        }
    }
}

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The machine: chips, host.
    Machine,
    /// A process, by this way.
    Process(ProcessId, Basis),
}

/// What an address is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// One runtime allocator of the process, by the number of its definition.
    Allocator(u32),
    /// One chip, where the source knows of no allocators.
    Chip(ChipId),
}

/// Chip architectures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Arch {
    /// Wormhole B0.
    WormholeB0,
    /// Blackhole.
    Blackhole,
}

impl Arch {
    /// The name people use.
    pub fn title(self) -> &'static str {
        match self {
            Self::WormholeB0 => "Wormhole",
            Self::Blackhole => "Blackhole",
        }
    }
}

/// What its source does not know of something that a program keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gaps {
    /// Where it lies; its id only tells it from others.
    pub unplaced: bool,
    /// How large it is: that is an estimate.
    pub estimated: bool,
    /// When its program is dispatched, and so whether it is resident.
    pub unfollowed: bool,
}

/// What kind of kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum KernelClass {
    /// Part of a user's program.
    Application,
    /// Ethernet fabric.
    Fabric,
    /// Command dispatch.
    Dispatch,
    /// The source did not say.
    Unknown,
}

impl KernelClass {
    /// The name the old server's log used.
    pub fn title(self) -> &'static str {
        match self {
            Self::Application => "Application",
            Self::Fabric => "Fabric",
            Self::Dispatch => "Dispatch",
            Self::Unknown => "Unknown",
        }
    }
}

/// A size in binary units, three digits or so: `0 B`, `1023 B`, `1.5 KiB`, `12.0 GiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 KiB would be shown as 1024.0 KiB.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Numbers as ranges: `0-3,7`.
pub fn ranges(numbers: &[u32]) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for n in sorted {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == n => *last = n,
            _ => parts.push((n, n)),
        }
    }
    let parts = parts.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
    parts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_on_the_bus_are_read_and_written() {
        for good in ["0000:01:00.0", "0000:c1:1f.7", "10000:00:00.0"] {
            assert_eq!(good.parse::<PciAddress>().unwrap().to_string(), good);
        }
        for bad in
            ["", "0000:01:00", "0000:01:20.0", "0000:01:00.8", "0000:100:00.0", "x:01:00.0", "+1:01:00.0"]
        {
            assert!(bad.parse::<PciAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_read_well() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1_048_575, "1.0 MiB"),
            (95_944_704, "91.5 MiB"),
            (12 << 30, "12.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn numbers_fold_into_ranges() {
        assert_eq!(ranges(&[]), "");
        assert_eq!(ranges(&[3, 1, 2, 7, 2]), "1-3,7");
        assert_eq!(ranges(&[u32::MAX, u32::MAX - 1]), "4294967294-4294967295");
    }
}
