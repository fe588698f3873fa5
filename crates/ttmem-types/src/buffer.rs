//! What is said of one allocation besides its size and place.

use crate::Space;

vocabulary! {
    /// How a buffer lies in its banks or on its cores.
    #[derive(Default)]
    pub enum Layout: u8 {
        #[default]
        Unknown = 0, "unknown": "Not reported.",
        Interleaved = 1, "interleaved": "Page by page over all banks.",
        HeightSharded = 2, "height_sharded": "In pieces of some rows, one to a core.",
        WidthSharded = 3, "width_sharded": "In pieces of some columns, one to a core.",
        BlockSharded = 4, "block_sharded": "In rectangles, one to a core.",
        NdSharded = 5, "nd_sharded": "In pieces of as many dimensions as it has.",
        Mirror = 6, "mirror": "A buffer of another allocator, which this one only keeps clear of: it takes free space here, and counts there.",
        View = 7, "view": "Program memory that is a view of a buffer, which counts by itself.",
    }
}

impl Layout {
    /// Whether the allocation counts elsewhere, and not as use here.
    #[inline]
    pub const fn is_alias(self) -> bool {
        matches!(self, Self::Mirror | Self::View)
    }

    /// The name for people; `None` where nothing was reported.
    pub const fn title(self) -> Option<&'static str> {
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

vocabulary! {
    /// What kind of kernel, or of program.
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
    /// The name in the old server's log.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Application => "Application",
            Self::Fabric => "Fabric",
            Self::Dispatch => "Dispatch",
            Self::Unknown => "Unknown",
        }
    }
}

/// What is not known of program memory. The default is that all is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uncertainty {
    /// Its address is not known; its id only distinguishes it from others.
    pub unplaced: bool,
    /// Its size is an estimate.
    pub estimated: bool,
    /// Dispatches of its program are not reported, so whether it is resident is not known.
    pub unfollowed: bool,
}

vocabulary! {
    /// tt-metal's own number for what a buffer lies in, which the old protocol uses as well.
    pub enum BufferType: u8 {
        Dram = 0, "dram": "Device DRAM.",
        L1 = 1, "l1": "L1.",
        SystemMemory = 2, "system_memory": "Host memory mapped for the device.",
        L1Small = 3, "l1_small": "The reserved top of L1.",
        Trace = 4, "trace": "The trace region, in DRAM.",
    }
}

impl BufferType {
    /// The space that such a buffer lies in.
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
        assert!((0..8).all(|n| Layout::from_number(n).is_some_and(|it| it as u8 == n)));
        assert!((0..4).all(|n| KernelClass::from_number(n).is_some_and(|it| it as u8 == n)));
        assert!((0..5).all(|n| BufferType::from_number(n).is_some_and(|it| it as u8 == n)));
        assert_eq!((Layout::from_number(8), KernelClass::from_number(4)), (None, None));
        assert_eq!(BufferType::from_number(5), None);
    }
}
