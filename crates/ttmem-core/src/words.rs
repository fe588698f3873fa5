//! Names of chips, processes, bases and scopes; sizes as text.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

pub use ttmem_types::{
    Arch, DataType, Fault, KernelClass, Layout, Pages, Purpose, Space, Tensor, TensorLayout, Uncertainty,
};

/// A moment on the reader's monotonic clock, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mono(pub u64);

impl Mono {
    /// Nanoseconds in a second.
    pub const SECOND: u64 = 1_000_000_000;

    /// Nanoseconds since `earlier`, 0 if that is later.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// One ASIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ChipId {
    /// Its 64-bit unique id.
    Unique(u64),
    /// Its place on the bus, if no unique id is known.
    Pci(PciAddress),
    /// The number that a client uses, if nothing else is known.
    Ordinal(u32),
}

/// A place on the PCI bus, as `0000:01:00.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

/// One process, as opposed to a later one with the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// The pid in the reader's namespace; 0 if it is not visible there.
    pub pid: u32,
    /// The kernel's start time of the process, or another number that the source makes unique.
    pub start: u64,
}

/// Where a figure comes from, best first. For one process on one chip in one space only the best is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Every allocation and free, from the process's own segment.
    Exact,
    /// tt-metal's own counters.
    Counters,
    /// Messages of the old socket protocol: what programs requested.
    Reported,
    /// No basis, or one of a later version.
    #[serde(other)]
    Unknown,
}

impl Basis {
    /// The name used in snapshots.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Counters => "counters",
            Self::Reported => "reported",
            Self::Unknown => "unknown",
        }
    }
}

/// The origin of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The machine: chips, host.
    Machine,
    /// A process, on this basis.
    Process(ProcessId, Basis),
}

/// What an address is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// One runtime allocator of the process, by the number of its definition.
    Allocator(u32),
    /// One chip, if the source knows no allocators.
    Chip(ChipId),
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
    fn pci_addresses_round_trip() {
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
