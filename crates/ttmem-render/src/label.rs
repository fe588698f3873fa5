//! Names on screens and pages: of spaces, the parts of a core, the origins of capacities, and the kinds of events.

use ttmem_core::machine::CapacityOrigin;
use ttmem_core::snapshot::{CoreClass, Severity};
use ttmem_core::words::Space;

/// The name of a space by itself.
pub fn space(space: Space) -> &'static str {
    match space {
        Space::Dram => "DRAM buffers",
        Space::L1 => "L1 buffers",
        Space::L1Small => "L1_SMALL",
        Space::L1Core => "L1 per core",
        Space::Trace => "Trace",
        Space::Cb => "Circular buffers",
        Space::Dfb => "Dataflow buffers",
        Space::Scratch => "Scratchpads",
        Space::Kernel => "Kernels",
        Space::Host => "Host memory",
    }
}

/// The name of a space at the start of a line, below a heading that names its memory.
pub fn part(space: Space) -> &'static str {
    match space {
        Space::Dram | Space::L1 => "Buffers",
        // As tt-metal and its old tools write it.
        Space::Trace => "TRACE",
        Space::Cb => "CBs",
        Space::Dfb => "DFBs",
        Space::Scratch => "Scratch",
        other => self::space(other),
    }
}

/// The name of a space within a line that names its memory.
pub fn part_within(space: Space) -> &'static str {
    match space {
        Space::Dram | Space::L1 => "buffers",
        Space::L1Core => "per core",
        Space::Trace => "trace",
        Space::Scratch => "scratch",
        Space::Kernel => "kernels",
        Space::Host => "host memory",
        Space::L1Small | Space::Cb | Space::Dfb => part(space),
    }
}

/// The use of an address range of a core's L1.
pub fn core_class(class: CoreClass) -> &'static str {
    match class {
        CoreClass::Reserved => "reserved",
        CoreClass::KernelConfig => "kernel config buffer",
        CoreClass::Buffer => "buffers",
        CoreClass::L1Small => "L1_SMALL buffers",
        CoreClass::Cb => "circular buffers",
        CoreClass::Dfb => "dataflow buffers",
        CoreClass::Scratch => "scratchpads",
        CoreClass::Lockstep => "reserved by lock-step",
        CoreClass::L1SmallFree => "free in L1_SMALL",
        CoreClass::Free => "free",
        CoreClass::Other => "other",
    }
}

/// The origin of a capacity.
pub fn capacity_origin(origin: CapacityOrigin) -> &'static str {
    match origin {
        CapacityOrigin::Simulated => "simulated",
        CapacityOrigin::Runtime => "reported by the runtime",
        CapacityOrigin::Descriptor => "from the cluster descriptor",
        CapacityOrigin::Board => "assumed from the board",
    }
}

/// The name of a severity.
pub fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "info",
    }
}

/// The name of a kind of finding or event: as in JSON, with spaces.
pub fn kind(kind: impl std::fmt::Debug) -> String {
    let mut name = String::new();
    for c in format!("{kind:?}").chars() {
        if c.is_uppercase() && !name.is_empty() {
            name.push(' ');
        }
        name.extend(c.to_lowercase());
    }
    name
}
