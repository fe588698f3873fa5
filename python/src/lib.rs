//! The native half of the Python package `ttmem`: the process's tracker, figures of this process from its own segments, and
//! snapshots of the machine.
//!
//! `tracker` has the frequent calls, which take their arguments by position; `program` has memory of programs, `label` call sites and
//! names of blocks; `own_segments` reads this process's segments, `query` requests snapshots. `arguments` converts arguments, `errors` makes
//! exceptions. Everything else is Python, in `package/ttmem`.

mod arguments;
mod errors;
mod label;
mod own_segments;
mod program;
mod query;
mod tracker;

use pyo3::prelude::*;

/// The native half of the package ttmem.
#[pymodule(name = "_ttmem")]
mod native {
    #[pymodule_export]
    use crate::label::{CallSite, Label, label_entered, label_left, set_label_variable};
    #[pymodule_export]
    use crate::own_segments::{figures, reset_agent_peaks, reset_own_peak};
    #[pymodule_export]
    use crate::program::{Kernel, Placement, Program};
    #[pymodule_export]
    use crate::query::{Follower, ask};
    #[pymodule_export]
    use crate::tracker::{Tracker, alloc, close, enable, free, is_enabled, mark, refresh, status};
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
