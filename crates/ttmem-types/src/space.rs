//! Kinds of memory.

use core::fmt;

vocabulary! {
    /// A kind of memory.
    pub enum Space: u8 {
        Dram = 1, "dram": "Device DRAM.",
        L1 = 2, "l1": "L1 buffers.",
        L1Small = 3, "l1_small": "`L1_SMALL` buffers, at the top of L1.",
        Trace = 4, "trace": "The trace region, in DRAM.",
        Cb = 5, "cb": "Circular buffers, in L1, outside its allocator.",
        Dfb = 6, "dfb": "Dataflow buffers, in L1, outside its allocator.",
        Scratch = 7, "scratch": "Scratchpads, in L1, outside its allocator.",
        Kernel = 8, "kernel": "Kernel code.",
        Host = 9, "host": "Host memory mapped for the device. It is tracked so that frees match, and never counted as device memory.",
        L1Core = 10, "l1_core": "L1 buffers allocated on some cores only, at an address of its own on each.",
    }
}

impl Space {
    /// Length of an array with one element for each space's number; element 0 is for "no space".
    pub const NUMBERS: usize = Self::ALL.len() + 1;

    /// Spaces of buffers, which allocators allocate.
    pub const BUFFERS: [Self; 6] =
        [Self::Dram, Self::L1, Self::L1Small, Self::Trace, Self::Host, Self::L1Core];

    /// Spaces of program memory, which is registered and only resident after a dispatch.
    pub const PROGRAM: [Self; 4] = [Self::Cb, Self::Dfb, Self::Scratch, Self::Kernel];

    /// Returns the name on screens and in messages.
    ///
    /// ```
    /// # use ttmem_types::Space;
    /// assert_eq!(Space::Cb.title(), "circular buffers");
    /// ```
    pub const fn title(self) -> &'static str {
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

    /// Returns whether memory of this space belongs to a program.
    ///
    /// ```
    /// # use ttmem_types::Space;
    /// assert!(Space::Kernel.is_program() && !Space::L1.is_program());
    /// ```
    #[inline]
    pub const fn is_program(self) -> bool {
        matches!(self, Self::Cb | Self::Dfb | Self::Scratch | Self::Kernel)
    }

    /// Returns whether several allocations of this space may have the same address: memory of programs overlaps, and buffers on
    /// single cores are on different cores. Any other buffer has an address of its own, and a kernel an id of its own.
    ///
    /// ```
    /// # use ttmem_types::Space;
    /// assert!(Space::L1Core.is_stacked() && !Space::Dram.is_stacked());
    /// ```
    #[inline]
    pub const fn is_stacked(self) -> bool {
        matches!(self, Self::Cb | Self::Dfb | Self::Scratch | Self::L1Core)
    }

    /// Returns whether allocations of this space are charged on their cores rather than in an allocator's banks.
    ///
    /// ```
    /// # use ttmem_types::Space;
    /// assert!(Space::Cb.is_on_cores() && !Space::L1.is_on_cores());
    /// ```
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
