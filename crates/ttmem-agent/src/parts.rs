//! The parts of a program: how they are collected from the runtime and reported, and which of them move.
#![allow(unsafe_code)]

use crate::agent::{cores_of, tracker};
use crate::shim::{Part, ViewFacts, ttmem_parts, ttmem_views};
use core::ffi::c_void;
use ttmem_client::{AllocatorNumber, Placement, agent};
use ttmem_wire::ViewAddresses;

/// Parts of one program that are collected before they are reported; more are reported in batches.
const MAX_PARTS: usize = 1024;

/// The views of a program as of one moment: their addresses, or a fingerprint if there are too many.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Views {
    Addresses([u64; 2]),
    Fingerprint(u64),
}

impl Views {
    pub(crate) const NONE: Self = Self::Addresses([0; 2]);

    /// Reads the views of a program.
    ///
    /// # Safety
    ///
    /// The address is that of a program that the runtime has just passed, all of whose parts have addresses.
    pub(crate) unsafe fn read(program: usize) -> Self {
        let mut facts = ViewFacts::default();
        // SAFETY: the caller's promise.
        if unsafe { ttmem_views(program, &raw mut facts) } {
            Self::Addresses(facts.addresses)
        } else {
            Self::Fingerprint(facts.fingerprint)
        }
    }

    /// The addresses, none if there are too many.
    pub(crate) fn addresses(self) -> ViewAddresses {
        match self {
            Self::Addresses(words) => ViewAddresses::from_words(words),
            Self::Fingerprint(_) => ViewAddresses::default(),
        }
    }

    /// Whether these views differ from those that were reported. If so, their addresses; without any, the whole program must
    /// be reported again.
    pub(crate) fn moved_from(self, reported: Self) -> Option<ViewAddresses> {
        let is_movable = matches!((self, reported), (Self::Addresses(_), Self::Addresses(_)));
        (self != reported).then(|| if is_movable { self.addresses() } else { ViewAddresses::default() })
    }
}

/// Room for the parts of the program that is being reported.
pub(crate) struct Room([Part; MAX_PARTS]);

impl Room {
    /// Reports all parts of a program.
    ///
    /// # Safety
    ///
    /// As for [`Views::read`].
    pub(crate) unsafe fn report(&mut self, at: usize, scope: AllocatorNumber, program: u32, views: Views) {
        let movable = !views.addresses().is_empty();
        let mut collector = PartCollector { scope, program, parts: &mut self.0, len: 0, movable, views: 0 };
        // SAFETY: the caller's promise. `collector` outlives the call.
        unsafe { ttmem_parts(at, collect_part, (&raw mut collector).cast()) };
        collector.report();
    }
}

/// Collects the parts of a program. A part at the same address on several cores is one placement, and so are parts that are
/// equal: their number is reported. A view that moves is a placement of its own.
struct PartCollector<'a> {
    scope: AllocatorNumber,
    program: u32,
    parts: &'a mut [Part; MAX_PARTS],
    len: usize,
    /// Whether views move.
    movable: bool,
    /// Number of views so far.
    views: usize,
}

impl PartCollector<'_> {
    fn placement(&self, part: &Part) -> Placement {
        let placed = Placement::new(self.scope, self.program, part.space(), part.address, part.bytes);
        placed.cores(cores_of(part.cores)).view(part.view != 0)
    }

    fn report(&mut self) {
        for (n, part) in self.parts[..self.len].iter().enumerate() {
            let is_equal = |other: &&Part| is_same_place(other, part) && other.cores == part.cores;
            if self.parts[..n].iter().any(|other| is_equal(&other)) {
                continue;
            }
            let copies = self.parts[n..self.len].iter().filter(is_equal).count() as u32;
            let _ = tracker().place(&self.placement(part).copies(copies));
        }
        self.len = 0;
    }
}

extern "C" fn collect_part(to: *mut c_void, part: &Part) {
    // SAFETY: the pointer passed to `ttmem_parts` along with this function.
    let collector = unsafe { &mut *to.cast::<PartCollector<'_>>() };
    let number = collector.views;
    collector.views += usize::from(part.view != 0);
    // A part without bytes or cores occupies nothing.
    if part.bytes == 0 || part.cores == [0; 4] {
        return;
    }
    if part.view != 0 && collector.movable {
        let _ = agent::place_movable_view(tracker(), &collector.placement(part), number);
        return;
    }
    let is_elsewhere =
        |other: &Part| other.cores.iter().zip(part.cores).all(|(mine, theirs)| mine & theirs == 0);
    let mut known = collector.parts[..collector.len].iter_mut();
    if let Some(known) = known.find(|other| is_same_place(other, part) && is_elsewhere(other)) {
        for (mine, more) in known.cores.iter_mut().zip(part.cores) {
            *mine |= more;
        }
        return;
    }
    if collector.len == MAX_PARTS {
        collector.report();
    }
    collector.parts[collector.len] = *part;
    collector.len += 1;
}

/// Whether two parts are equal but for their cores.
fn is_same_place(one: &Part, other: &Part) -> bool {
    (one.address, one.bytes, one.space, one.view) == (other.address, other.bytes, other.space, other.view)
}
