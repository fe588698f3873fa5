//! Kinds of information that the agent can get from a runtime: the bits of a segment's `hooks_taken` and `hooks_wanted`.

/// Declares the enum, the list of all hooks and their names from one table: number, name and description.
macro_rules! hooks {
    ($($number:literal $name:literal $hook:ident: $doc:literal;)*) => {
        /// A kind of information that the agent can get, if the runtime has the functions for it. The number is its bit;
        /// numbers are never reused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Hook {
            $(#[doc = $doc] $hook = $number,)*
        }

        impl Hook {
            /// All hooks, by number.
            pub const ALL: [Self; [$($number),*].len()] = [$(Self::$hook),*];

            /// Returns the name in JSON and on screens.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$hook => $name,)*
                }
            }
        }
    };
}

hooks! {
    0 "allocate" Allocate: "Allocated buffers.";
    1 "deallocate" Deallocate: "Freed buffers.";
    2 "deallocate_all" DeallocateAll: "Allocators that free everything.";
    3 "clear" Clear: "Allocators that are emptied.";
    4 "destroy" Destroy: "Destroyed allocators.";
    5 "mirror" Mirror: "Ranges that an allocator reserves because another allocator uses them.";
    6 "unmirror" Unmirror: "The end of such a reservation.";
    7 "override_state" Override: "Allocators that are set to another allocator's state.";
    8 "resize" Resize: "Allocators that shrink and grow.";
    9 "mesh_open" MeshOpen: "Opened meshes.";
    10 "device_open" DeviceOpen: "Opened devices.";
    11 "statistics" Statistics: "The allocator's own statistics.";
    12 "banks" Banks: "Banks, their sizes and where they begin.";
    13 "buffers" Buffers: "Sizes and addresses of buffers.";
    14 "shards" Shards: "The cores of sharded buffers.";
    15 "per_core" PerCore: "Buffers that have an address on each core.";
    16 "chips" Chips: "The chips of a mesh.";
    17 "identity" Identity: "Unique ids, boards and harvesting of chips.";
    18 "programs" Programs: "Programs that are built and destroyed, and their chips.";
    19 "dispatch" Dispatch: "Dispatched programs.";
    20 "circular_buffers" CircularBuffers: "Circular buffers of programs.";
    21 "dataflow_buffers" DataflowBuffers: "Dataflow buffers of programs.";
    22 "scratchpads" Scratchpads: "Scratchpads of programs.";
    23 "kernels" Kernels: "Code and arguments of programs, and their cores.";
    24 "traces" Traces: "Traces.";
    25 "cores" Cores: "The cores of a chip, and how their L1 is divided.";
    26 "failures" Failures: "Programs that the runtime refuses, since their memory would overlap buffers or exceed L1.";
}

impl Hook {
    /// Returns the bit of the hook.
    pub const fn bit(self) -> u64 {
        1 << self as u8
    }
}

/// Returns the names of the hooks with these bits.
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
