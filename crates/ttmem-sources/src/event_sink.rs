//! Where sources deliver what they read.

use crate::process::ProcessIdentity;
use ttmem_core::input::Input;
use ttmem_core::words::{Basis, ProcessId};

/// Receives what sources read.
pub trait EventSink {
    /// Registers a process that a source found on this basis, and returns the id by which its input names it. A process
    /// that is registered already keeps its id.
    fn register(&mut self, process: &ProcessIdentity, basis: Basis) -> ProcessId;
    /// Takes input of one process.
    fn emit(&mut self, process: ProcessId, basis: Basis, input: Input);
    /// Takes input of the machine.
    fn emit_machine(&mut self, input: Input);
}
