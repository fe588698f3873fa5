//! What the agent looks for in a runtime, by the bits of the segment's `hooks_taken` and `hooks_wanted`.

/// One thing that the agent can learn, if the runtime lets it. The number is its bit; numbers are never given anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Hook {
    /// Buffers that are allocated.
    Allocate = 0,
    /// Buffers that are freed.
    Deallocate = 1,
    /// Allocators that free everything.
    DeallocateAll = 2,
    /// Allocators that are emptied.
    Clear = 3,
    /// Allocators that end.
    Destroy = 4,
    /// Other allocators' buffers that an allocator keeps clear of.
    Mirror = 5,
    /// The end of that.
    Unmirror = 6,
    /// Allocators that are set to another's state.
    Override = 7,
    /// Allocators that shrink and grow.
    Resize = 8,
    /// Meshes that open.
    MeshOpen = 9,
    /// Devices that open.
    DeviceOpen = 10,
    /// The allocator's own statistics.
    Statistics = 11,
    /// Banks, their sizes and where they begin.
    Banks = 12,
    /// Sizes and addresses of buffers.
    Buffers = 13,
    /// The cores of sharded buffers.
    Shards = 14,
    /// Buffers that have an address on each core.
    PerCore = 15,
    /// The chips of a mesh.
    Chips = 16,
    /// Unique ids, boards and harvesting of chips.
    Identity = 17,
    /// Programs that are built and destroyed, and their chips.
    Programs = 18,
    /// Programs that are dispatched.
    Dispatch = 19,
    /// Circular buffers of programs.
    CircularBuffers = 20,
    /// Dataflow buffers of programs.
    DataflowBuffers = 21,
    /// Scratchpads of programs.
    Scratchpads = 22,
    /// Code and arguments of programs, and their cores.
    Kernels = 23,
    /// Traces.
    Traces = 24,
    /// The cores of a chip, and how their L1 is divided.
    Cores = 25,
}

impl Hook {
    /// All of them, by number.
    pub const ALL: [Self; 26] = [
        Self::Allocate,
        Self::Deallocate,
        Self::DeallocateAll,
        Self::Clear,
        Self::Destroy,
        Self::Mirror,
        Self::Unmirror,
        Self::Override,
        Self::Resize,
        Self::MeshOpen,
        Self::DeviceOpen,
        Self::Statistics,
        Self::Banks,
        Self::Buffers,
        Self::Shards,
        Self::PerCore,
        Self::Chips,
        Self::Identity,
        Self::Programs,
        Self::Dispatch,
        Self::CircularBuffers,
        Self::DataflowBuffers,
        Self::Scratchpads,
        Self::Kernels,
        Self::Traces,
        Self::Cores,
    ];

    /// Its bit.
    pub const fn bit(self) -> u64 {
        1 << self as u8
    }

    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allocate => "allocate",
            Self::Deallocate => "deallocate",
            Self::DeallocateAll => "deallocate_all",
            Self::Clear => "clear",
            Self::Destroy => "destroy",
            Self::Mirror => "mirror",
            Self::Unmirror => "unmirror",
            Self::Override => "override_state",
            Self::Resize => "resize",
            Self::MeshOpen => "mesh_open",
            Self::DeviceOpen => "device_open",
            Self::Statistics => "statistics",
            Self::Banks => "banks",
            Self::Buffers => "buffers",
            Self::Shards => "shards",
            Self::PerCore => "per_core",
            Self::Chips => "chips",
            Self::Identity => "identity",
            Self::Programs => "programs",
            Self::Dispatch => "dispatch",
            Self::CircularBuffers => "circular_buffers",
            Self::DataflowBuffers => "dataflow_buffers",
            Self::Scratchpads => "scratchpads",
            Self::Kernels => "kernels",
            Self::Traces => "traces",
            Self::Cores => "cores",
        }
    }
}

/// Names of the hooks with these bits.
pub fn names(bits: u64) -> impl Iterator<Item = &'static str> {
    Hook::ALL.into_iter().filter(move |hook| bits & hook.bit() != 0).map(Hook::name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hook_has_the_bit_of_its_number() {
        for (n, hook) in Hook::ALL.into_iter().enumerate() {
            assert_eq!(hook.bit(), 1 << n, "{}", hook.name());
        }
        assert_eq!(names(0b11).collect::<Vec<_>>(), ["allocate", "deallocate"]);
    }
}
