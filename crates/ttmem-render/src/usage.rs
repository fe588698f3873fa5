//! The memory of a space in words: the notes beside its figure.

use crate::format::{plural, share, size};
use ttmem_core::snapshot::{BufferUsage, CoreRoom, KernelClassUsage, ProgramUsage, Usage};
use ttmem_core::words::{Basis, KernelClass, Space};

/// The buffers of a space; `None` if it is a space of programs, or unknown.
pub fn buffers(usage: &Usage, space: Space) -> Option<&BufferUsage> {
    match space {
        Space::Dram => usage.dram.as_ref(),
        Space::L1 => usage.l1.as_ref(),
        Space::L1Small => usage.l1_small.as_ref(),
        Space::L1Core => usage.l1_core.as_ref(),
        Space::Trace => usage.trace.as_ref(),
        Space::Host => usage.host.as_ref(),
        Space::Cb | Space::Dfb | Space::Scratch | Space::Kernel => None,
    }
}

/// The program memory of a space; `None` if it is a space of buffers, or unknown.
pub fn programs(usage: &Usage, space: Space) -> Option<&ProgramUsage> {
    match space {
        Space::Cb => usage.cb.as_ref(),
        Space::Dfb => usage.dfb.as_ref(),
        Space::Scratch => usage.scratch.as_ref(),
        Space::Kernel => usage.kernel.as_ref(),
        _ => None,
    }
}

/// The notes on the buffers of a space. Each table puts them in its own order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferNotes {
    /// Number of buffers.
    pub count: Option<String>,
    /// Peak.
    pub peak: String,
    /// Requested bytes, or that the figure is the requested bytes.
    pub requested: String,
    /// Occupied bytes.
    pub occupied: Option<String>,
    /// Free bytes and the largest free block.
    pub free: Option<String>,
    /// Basis of the figures.
    pub basis: String,
}

impl BufferNotes {
    /// Creates the notes on the buffers of a space.
    pub fn new(usage: &BufferUsage) -> Self {
        let free = usage.free_bytes.zip(usage.largest_free_bytes_per_bank);
        Self {
            count: usage.count.map(|n| plural(n, "buffer")),
            peak: format!("peak {}", size(usage.peak_bytes)),
            requested: match usage.allocated_bytes {
                Some(_) => format!("{} requested", size(usage.requested_bytes)),
                None => "as requested".to_owned(),
            },
            occupied: usage.occupied_bytes.map(|bytes| format!("{} occupied", size(bytes))),
            free: free.map(|(free, largest)| {
                format!("{} free, largest block {} per bank", size(free), size(largest))
            }),
            basis: basis_note(usage.basis),
        }
    }
}

/// The notes on the program memory of a space: how much of it is active, on one core only, or estimated.
pub fn program_notes(space: Space, usage: &ProgramUsage) -> Vec<String> {
    let all = size(usage.registered_bytes);
    let state = match (usage.resident_bytes, usage.residency_unknown_bytes) {
        (None, _) if space == Space::Kernel => "loaded, not in the total".to_owned(),
        (None, _) => "active or cached".to_owned(),
        (Some(_), 0) => format!("active; {all} with cached programs"),
        // The figure before this note is the sum of both.
        (Some(active), unknown) => {
            format!("{} active, {} active or cached; {all} in all", size(active), size(unknown))
        }
    };
    let estimated = usage.estimated_bytes;
    let estimated = (estimated > 0).then(|| format!("{} estimated", size(estimated)));
    let per_core = match usage.per_core_bytes {
        0 => None,
        bytes if bytes == usage.registered_bytes => Some("per core".to_owned()),
        bytes => Some(format!("{} of it per core", size(bytes))),
    };
    [state].into_iter().chain(per_core).chain(estimated).collect()
}

/// The share of its memory's capacity that a space uses; `None` if the capacity is unknown or the space is not part of
/// the memory's total.
pub fn share_of_capacity(usage: &Usage, space: Space) -> Option<f64> {
    let total = match space {
        Space::Host => None,
        Space::Dram | Space::Trace => usage.dram_total.as_ref(),
        _ => usage.l1_total.as_ref(),
    };
    let (used, _) = usage.used(space).filter(|_| usage.is_in_total(space))?;
    share(used, total?.capacity_bytes)
}

/// Kernels of each class, and how much of each is active: `application`, `12.0 KiB active of 40.0 KiB`. Empty if no class
/// is known.
pub fn kernel_classes(usage: &ProgramUsage) -> Vec<(&'static str, String)> {
    let is_known = usage.by_class.iter().any(|it| it.class != KernelClass::Unknown);
    let of_class = |it: &KernelClassUsage| {
        let all = size(it.registered_bytes);
        let text = it.resident_bytes.map(|active| format!("{} active of {all}", size(active)));
        (it.class.name(), text.unwrap_or(all))
    };
    usage.by_class.iter().filter(|_| is_known).map(of_class).collect()
}

/// The note on the basis of a figure.
pub fn basis_note(basis: Basis) -> String {
    basis.name().to_owned()
}

/// Program memory that shares the L1 of cores with buffers. Kernels have a buffer of their own there.
pub fn shared_program_usage(usage: &Usage) -> impl Iterator<Item = (Space, &ProgramUsage)> {
    [Space::Cb, Space::Dfb, Space::Scratch]
        .into_iter()
        .filter_map(|space| Some((space, programs(usage, space)?)))
}

/// Whether the dispatches of all program memory are known. If not, free space may be in use.
pub fn is_followed(usage: &Usage) -> bool {
    shared_program_usage(usage).all(|(_, it)| it.is_followed())
}

/// Whether the free gap of a core is certain. If not, memory with an unknown address or dispatch may be in it.
pub fn is_gap_certain(room: &CoreRoom, usage: &Usage) -> bool {
    room.basis == Basis::Exact && is_followed(usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cb(resident_bytes: Option<u64>, residency_unknown_bytes: u64, registered_bytes: u64) -> Usage {
        let (estimated_bytes, count, basis) = (0, None, Basis::Exact);
        let cb = ProgramUsage {
            registered_bytes,
            resident_bytes,
            residency_unknown_bytes,
            estimated_bytes,
            per_core_bytes: 0,
            by_class: Vec::new(),
            count,
            basis,
        };
        Usage { cb: Some(cb), ..Usage::default() }
    }

    #[test]
    fn possibly_active_memory_is_not_shown_as_active() {
        let notes = |usage: &Usage| {
            let cb = programs(usage, Space::Cb).unwrap();
            [program_notes(Space::Cb, cb), vec![basis_note(cb.basis)]].concat().join(", ")
        };
        assert_eq!(notes(&cb(Some(1024), 0, 4096)), "active; 4.0 KiB with cached programs, exact");
        assert_eq!(
            notes(&cb(Some(1024), 2048, 4096)),
            "1.0 KiB active, 2.0 KiB active or cached; 4.0 KiB in all, exact"
        );
        assert_eq!(notes(&cb(None, 0, 4096)), "active or cached, exact");
    }

    #[test]
    fn kernels_of_each_class_are_named() {
        let of = |class, registered_bytes, resident_bytes| KernelClassUsage {
            class,
            registered_bytes,
            resident_bytes,
        };
        let kernels = |by_class| ProgramUsage { by_class, ..cb(Some(0), 0, 4096).cb.unwrap() };
        let (fabric, unknown) = (KernelClass::Fabric, KernelClass::Unknown);
        let known = kernels(vec![of(fabric, 4096, Some(1024)), of(unknown, 2048, None)]);
        assert_eq!(
            kernel_classes(&known),
            [("fabric", "1.0 KiB active of 4.0 KiB".to_owned()), ("unknown", "2.0 KiB".to_owned()),]
        );
        assert_eq!(kernel_classes(&kernels(vec![of(unknown, 4096, None)])), [], "no class is known");
    }

    #[test]
    fn gap_is_certain_only_if_all_memory_is_known() {
        let room = |basis| CoreRoom {
            x: 0,
            y: 0,
            program_end: 0,
            registered_end: 0,
            lowest_buffer: 0,
            free_gap_bytes: 0,
            basis,
        };
        let certain = |usage: &Usage| is_gap_certain(&room(Basis::Exact), usage);
        assert!(certain(&Usage::default()) && certain(&cb(Some(1), 0, 2)) && certain(&cb(None, 0, 0)));
        assert!(!certain(&cb(Some(1), 1, 2)), "some memory has unknown residency");
        assert!(!certain(&cb(None, 0, 2)), "all memory has unknown residency");
        assert!(!is_gap_certain(&room(Basis::Reported), &Usage::default()), "addresses are unknown");
        let kernels = Usage { kernel: cb(None, 0, 2).cb, ..Usage::default() };
        assert!(certain(&kernels), "kernels have a buffer of their own");
    }
}
