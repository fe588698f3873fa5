//! Where sources deliver what they read.

use crate::process::ProcessIdentity;
use ttmem_core::event::Event;
use ttmem_core::words::{Basis, ProcessId};

/// Receives what sources read.
pub trait EventSink {
    /// Registers a process that a source found on this basis, and returns the id by which its events name it. A process
    /// that is registered already keeps its id.
    fn register(&mut self, process: &ProcessIdentity, basis: Basis) -> ProcessId;
    /// Takes an event of one process.
    fn emit(&mut self, process: ProcessId, basis: Basis, event: Event);
    /// Takes an event of the machine itself.
    fn emit_machine(&mut self, event: Event);
}
