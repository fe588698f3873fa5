//! What a space holds, in words: the notes behind its figure.

use crate::figure::{counted, size};
use ttmem_core::snapshot::{BufferUsage, CoreRoom, ProgramUsage, Usage};
use ttmem_core::words::{Basis, Space};

/// What buffers hold in a space; `None` if programs hold it, or nothing is known.
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

/// What programs hold in a space; `None` if buffers hold it, or nothing is known.
pub fn programs(usage: &Usage, space: Space) -> Option<&ProgramUsage> {
    match space {
        Space::Cb => usage.cb.as_ref(),
        Space::Dfb => usage.dfb.as_ref(),
        Space::Scratch => usage.scratch.as_ref(),
        Space::Kernel => usage.kernel.as_ref(),
        _ => None,
    }
}

/// The notes on buffers; each place puts them in its own order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferNotes {
    /// How many there are.
    pub count: Option<String>,
    /// The most there was.
    pub peak: String,
    /// What was requested, or that the figure itself is that.
    pub requested: String,
    /// What is occupied.
    pub occupied: Option<String>,
    /// What is free.
    pub free: Option<String>,
    /// Where the figures come from.
    pub basis: String,
}

impl BufferNotes {
    /// The notes on what buffers hold in a space.
    pub fn new(it: &BufferUsage) -> Self {
        let free = it.free_bytes.zip(it.largest_free_bytes_per_bank);
        Self {
            count: it.count.map(|n| counted(n, "buffer")),
            peak: format!("peak {}", size(it.peak_bytes)),
            requested: match it.allocated_bytes {
                Some(_) => format!("{} requested", size(it.requested_bytes)),
                None => "as requested".to_owned(),
            },
            occupied: it.occupied_bytes.map(|bytes| format!("{} occupied", size(bytes))),
            free: free.map(|(free, largest)| {
                format!("{} free, largest block {} per bank", size(free), size(largest))
            }),
            basis: by(it.basis),
        }
    }
}

/// The notes on what programs hold in a space: how much of it is active, and how much is estimated.
pub fn program_notes(it: &ProgramUsage) -> Vec<String> {
    let all = size(it.registered_bytes);
    let state = match (it.resident_bytes, it.residency_unknown_bytes) {
        (None, _) => "active or cached".to_owned(),
        (Some(_), 0) => format!("active; {all} with cached programs"),
        // The figure before this is all that is or may be active.
        (Some(active), unknown) => {
            format!("{} active, {} active or cached; {all} in all", size(active), size(unknown))
        }
    };
    let estimated = (it.estimated_bytes > 0).then(|| format!("{} estimated", size(it.estimated_bytes)));
    [state].into_iter().chain(estimated).collect()
}

/// Where a figure comes from.
pub fn by(basis: Basis) -> String {
    basis.name().to_owned()
}

/// What programs keep on cores beside buffers. Kernels have a place of their own.
pub fn on_cores(usage: &Usage) -> impl Iterator<Item = (Space, &ProgramUsage)> {
    [Space::Cb, Space::Dfb, Space::Scratch]
        .into_iter()
        .filter_map(|space| Some((space, programs(usage, space)?)))
}

/// Whether the dispatches of all program memory are known. Otherwise free space may be in use.
pub fn is_followed(usage: &Usage) -> bool {
    on_cores(usage).all(|(_, it)| it.is_followed())
}

/// Whether the free gap of a core is certain. Otherwise memory with an unknown address or time may be in it.
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
            count,
            basis,
        };
        Usage { cb: Some(cb), ..Usage::default() }
    }

    #[test]
    fn what_may_be_resident_is_not_said_to_be() {
        let notes = |usage: &Usage| {
            let it = programs(usage, Space::Cb).unwrap();
            [program_notes(it), vec![by(it.basis)]].concat().join(", ")
        };
        assert_eq!(notes(&cb(Some(1024), 0, 4096)), "active; 4.0 KiB with cached programs, exact");
        assert_eq!(
            notes(&cb(Some(1024), 2048, 4096)),
            "1.0 KiB active, 2.0 KiB active or cached; 4.0 KiB in all, exact"
        );
        assert_eq!(notes(&cb(None, 0, 4096)), "active or cached, exact");
    }

    #[test]
    fn a_gap_is_certain_only_if_all_of_it_is_known() {
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
        assert!(!certain(&cb(Some(1), 1, 2)), "some of unknown residence");
        assert!(!certain(&cb(None, 0, 2)), "all of it");
        assert!(!is_gap_certain(&room(Basis::Reported), &Usage::default()), "its place is not known");
        let kernels = Usage { kernel: cb(None, 0, 2).cb, ..Usage::default() };
        assert!(certain(&kernels), "they have a place of their own");
    }
}
