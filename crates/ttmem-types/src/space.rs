//! Kinds of memory.

use core::fmt;

vocabulary! {
    /// A kind of memory.
    pub enum Space: u8 {
        Dram = 1, "dram": "Device DRAM.",
        L1 = 2, "l1": "L1 buffers.",
        L1Small = 3, "l1_small": "L1_SMALL: the reserved top of L1.",
        Trace = 4, "trace": "The trace region, in DRAM.",
        Cb = 5, "cb": "Circular buffers, in L1, outside its allocator.",
        Dfb = 6, "dfb": "Dataflow buffers, in L1, outside its allocator.",
        Scratch = 7, "scratch": "Scratchpads, in L1, outside its allocator.",
        Kernel = 8, "kernel": "Kernel code.",
        Host = 9, "host": "Host memory mapped for the device: tracked so that its frees match, never counted as device memory.",
        L1Core = 10, "l1_core": "L1 buffers on some cores only, at any free address of each; only those cores are charged.",
    }
}

impl Space {
    /// Length of an array with one element for each space's number; element 0 is for "no space".
    pub const NUMBERS: usize = Self::ALL.len() + 1;

    /// Spaces that allocators hand out buffers of.
    pub const BUFFERS: [Self; 6] =
        [Self::Dram, Self::L1, Self::L1Small, Self::Trace, Self::Host, Self::L1Core];

    /// Spaces that programs register and only a dispatched program occupies.
    pub const PROGRAM: [Self; 4] = [Self::Cb, Self::Dfb, Self::Scratch, Self::Kernel];

    /// The name in messages, as in `512 MiB of DRAM`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Dram => "DRAM",
            Self::L1 | Self::L1Core => "L1",
            Self::L1Small => "L1_SMALL",
            Self::Trace => "TRACE",
            Self::Cb => "circular buffers",
            Self::Dfb => "dataflow buffers",
            Self::Scratch => "scratchpads",
            Self::Kernel => "kernels",
            Self::Host => "host memory",
        }
    }

    /// Whether memory of this space belongs to a program.
    #[inline]
    pub const fn is_program(self) -> bool {
        matches!(self, Self::Cb | Self::Dfb | Self::Scratch | Self::Kernel)
    }

    /// Whether several allocations of this space may share an address: programs lay theirs over each other, and buffers
    /// on single cores lie beside each other. Any other buffer has its address to itself, and a kernel its id.
    #[inline]
    pub const fn is_stacked(self) -> bool {
        matches!(self, Self::Cb | Self::Dfb | Self::Scratch | Self::L1Core)
    }

    /// Whether allocations of this space are charged on their cores rather than in an allocator's banks.
    #[inline]
    pub const fn is_on_cores(self) -> bool {
        self.is_program() || matches!(self, Self::L1Core)
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_match_positions() {
        for (n, space) in (1..).zip(Space::ALL) {
            assert_eq!(space as u8, n);
            assert_eq!(Space::from_number(n), Some(space));
            assert_eq!(Space::from_name(space.name()), Some(space));
        }
        assert_eq!(Space::from_number(0), None);
        assert_eq!(Space::from_number(Space::NUMBERS as u8), None);
    }

    #[test]
    fn every_space_is_for_buffers_or_programs() {
        for space in Space::ALL {
            assert_eq!(Space::PROGRAM.contains(&space), space.is_program(), "{space}");
            assert_ne!(Space::BUFFERS.contains(&space), space.is_program(), "{space}");
        }
    }
}
