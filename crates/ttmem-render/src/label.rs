//! What things are called on screens and pages: spaces, parts of a core, where capacities come from, kinds of events.

use ttmem_core::machine::CapacityOrigin;
use ttmem_core::snapshot::{CoreClass, Severity};
use ttmem_core::words::Space;

/// What a space is called by itself.
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

/// What a space is called below a heading that names its memory, at the beginning of a line.
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

/// What a space is called beside the name of its memory, within a line.
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

/// What a stretch of a core's L1 is used for.
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

/// Where a capacity comes from.
pub fn capacity_origin(origin: CapacityOrigin) -> &'static str {
    match origin {
        CapacityOrigin::Simulated => "simulated",
        CapacityOrigin::Runtime => "reported by the runtime",
        CapacityOrigin::Descriptor => "from the cluster descriptor",
        CapacityOrigin::Board => "assumed from the board",
    }
}

/// How bad something is.
pub fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "info",
    }
}

/// A kind of finding or event: its name in JSON, with spaces.
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
