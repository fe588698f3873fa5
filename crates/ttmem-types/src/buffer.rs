//! Attributes of an allocation besides size and address.

use crate::Space;

vocabulary! {
    /// Memory layout of a buffer in its banks or on its cores.
    #[derive(Default)]
    pub enum Layout: u8 {
        #[default]
        Unknown = 0, "unknown": "Not reported.",
        Interleaved = 1, "interleaved": "Pages are distributed over all banks.",
        HeightSharded = 2, "height_sharded": "Sharded by rows, one shard per core.",
        WidthSharded = 3, "width_sharded": "Sharded by columns, one shard per core.",
        BlockSharded = 4, "block_sharded": "Sharded in blocks, one shard per core.",
        NdSharded = 5, "nd_sharded": "Sharded in N dimensions.",
        Mirror = 6, "mirror": "A buffer of another allocator: it reduces the free space here and counts as used there.",
        View = 7, "view": "Program memory that is a view of a buffer; the buffer is counted.",
    }
}

impl Layout {
    /// Returns whether the allocation is counted elsewhere.
    ///
    /// ```
    /// # use ttmem_types::Layout;
    /// assert!(Layout::Mirror.is_alias() && !Layout::Interleaved.is_alias());
    /// ```
    #[inline]
    pub const fn is_alias(self) -> bool {
        matches!(self, Self::Mirror | Self::View)
    }

    /// Returns the display name; `None` if the layout is unknown.
    ///
    /// ```
    /// # use ttmem_types::Layout;
    /// assert_eq!(Layout::HeightSharded.title(), Some("height sharded"));
    /// ```
    pub const fn title(self) -> Option<&'static str> {
        Some(match self {
            Self::Unknown => return None,
            Self::Interleaved => "interleaved",
            Self::HeightSharded => "height sharded",
            Self::WidthSharded => "width sharded",
            Self::BlockSharded => "block sharded",
            Self::NdSharded => "ND sharded",
            Self::Mirror => "mirror of another allocator",
            Self::View => "view of a buffer",
        })
    }
}

vocabulary! {
    /// Class of a kernel or program.
    #[derive(Default)]
    pub enum KernelClass: u8 {
        Application = 0, "application": "Part of a user's program.",
        Fabric = 1, "fabric": "Ethernet fabric.",
        Dispatch = 2, "dispatch": "Command dispatch.",
        #[default]
        Unknown = 3, "unknown": "Not reported.",
    }
}

impl KernelClass {
    /// Returns the name in the old server's log.
    ///
    /// ```
    /// # use ttmem_types::KernelClass;
    /// assert_eq!(KernelClass::Fabric.title(), "Fabric");
    /// ```
    pub const fn title(self) -> &'static str {
        match self {
            Self::Application => "Application",
            Self::Fabric => "Fabric",
            Self::Dispatch => "Dispatch",
            Self::Unknown => "Unknown",
        }
    }
}

/// Unknown properties of program memory. By default everything is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uncertainty {
    /// The address is unknown; the id only distinguishes the memory from others.
    pub unplaced: bool,
    /// The size is an estimate.
    pub estimated: bool,
    /// Dispatches of the program are not reported, so whether the memory is resident is unknown.
    pub unfollowed: bool,
}

vocabulary! {
    /// Buffer type, numbered as in tt-metal and in the old protocol.
    pub enum BufferType: u8 {
        Dram = 0, "dram": "Device DRAM.",
        L1 = 1, "l1": "L1.",
        SystemMemory = 2, "system_memory": "Host memory mapped for the device.",
        L1Small = 3, "l1_small": "The reserved top of L1.",
        Trace = 4, "trace": "The trace region, in DRAM.",
    }
}

impl BufferType {
    /// Returns the memory space of buffers of this type.
    ///
    /// ```
    /// # use ttmem_types::{BufferType, Space};
    /// assert_eq!(BufferType::SystemMemory.space(), Space::Host);
    /// ```
    pub const fn space(self) -> Space {
        match self {
            Self::Dram => Space::Dram,
            Self::L1 => Space::L1,
            Self::SystemMemory => Space::Host,
            Self::L1Small => Space::L1Small,
            Self::Trace => Space::Trace,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_match_positions() {
        assert!((0..8).all(|n| Layout::from_number(n).is_some_and(|value| value as u8 == n)));
        assert!((0..4).all(|n| KernelClass::from_number(n).is_some_and(|value| value as u8 == n)));
        assert!((0..5).all(|n| BufferType::from_number(n).is_some_and(|value| value as u8 == n)));
        assert_eq!((Layout::from_number(8), KernelClass::from_number(4)), (None, None));
        assert_eq!(BufferType::from_number(5), None);
    }
}
