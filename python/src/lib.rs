//! The native half of the Python package `ttmem`: the process's tracker, what this process holds by its own segments, and
//! what the machine's memory is used for.
//!
//! `tracker` is what is called often, and takes its arguments by position; `program` what programs keep; `own` finds and reads
//! this process's segments; `machine` asks for snapshots. `given` understands arguments, `errors` makes exceptions. Everything
//! else is Python, in `package/ttmem`.

mod errors;
mod given;
mod label;
mod machine;
mod own;
mod program;
mod tracker;

use pyo3::prelude::*;

/// The native half of the package ttmem.
#[pymodule(name = "_ttmem")]
mod native {
    #[pymodule_export]
    use crate::label::{Label, label_entered, label_left, set_label_variable};
    #[pymodule_export]
    use crate::machine::ask;
    #[pymodule_export]
    use crate::own::{figures, reset_agents_peaks, reset_own_peak};
    #[pymodule_export]
    use crate::program::{Kernel, Placement, Program};
    #[pymodule_export]
    use crate::tracker::{Tracker, alloc, close, enable, free, is_enabled, refresh, status};
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
