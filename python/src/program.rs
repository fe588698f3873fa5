//! Programs, and the memory that they register on their cores.

use crate::arguments::{SpaceArgument, define_cores, display_name};
use crate::errors::fault_exception;
use crate::tracker::{Tracker, generation};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use ttmem_client::{Fault, KernelClass, Space, Tracker as Client, agent};

/// Next number for a program without one: far from those that runtimes use.
static NEXT_PROGRAM: AtomicU32 = AtomicU32::new(1 << 31);
/// Next number for memory without an address, and for kernels.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A program; see Tracker.program. As a context manager, it ends with the block.
#[pyclass(module = "ttmem", frozen)]
pub(crate) struct Program {
    tracker: Py<Tracker>,
    /// Number of the program.
    #[pyo3(get)]
    number: u32,
    dispatches: bool,
    /// Hint for the next dispatch.
    slot: AtomicU32,
}

impl Program {
    pub(crate) fn begin(
        tracker: Bound<'_, Tracker>,
        name: Option<&Bound<'_, PyString>>,
        number: Option<u32>,
        dispatches: bool,
    ) -> PyResult<Self> {
        let py = tracker.py();
        if number == Some(0) {
            return Err(PyValueError::new_err("program number must not be 0"));
        }
        let number = number.unwrap_or_else(|| NEXT_PROGRAM.fetch_add(1, Ordering::Relaxed) | 1 << 31);
        let name = name.map(display_name).unwrap_or_default();
        let begun = Client::global().begin_program(tracker.get().allocator(py)?, number, &name);
        begun.map_err(|e| fault_exception(py, e))?;
        Ok(Self { tracker: tracker.unbind(), number, dispatches, slot: AtomicU32::new(u32::MAX) })
    }

    fn register(
        &self,
        py: Python<'_>,
        space: Space,
        bytes: u64,
        address: Option<u64>,
        cores: Option<&Bound<'_, PyAny>>,
        (view, estimated): (bool, bool),
    ) -> PyResult<Placement> {
        let (allocator, unplaced) = (self.tracker.get().allocator(py)?, address.is_none());
        let address = address.unwrap_or_else(|| NEXT_ID.fetch_add(1, Ordering::Relaxed));
        let placement = ttmem_client::Placement::new(allocator, self.number, space, address, bytes)
            .cores(define_cores(cores)?)
            .view(view)
            .unplaced(unplaced)
            .estimated(estimated)
            .unfollowed(!self.dispatches);
        Client::global().place(&placement).map_err(|e| fault_exception(py, e))?;
        Ok(Placement { placement, generation: generation() })
    }
}

#[pymethods]
impl Program {
    /// Registers a circular buffer of `bytes` per core. Without an address, it counts in addition to all others of the program.
    #[pyo3(signature = (bytes, address=None, cores=None, *, view=false, estimated=false))]
    fn cb(
        &self,
        py: Python<'_>,
        bytes: u64,
        address: Option<u64>,
        cores: Option<&Bound<'_, PyAny>>,
        view: bool,
        estimated: bool,
    ) -> PyResult<Placement> {
        self.register(py, Space::Cb, bytes, address, cores, (view, estimated))
    }

    /// Registers memory of space `cb`, `dfb` or `scratch`, as in cb().
    #[pyo3(signature = (space, bytes, address=None, cores=None, *, view=false, estimated=false))]
    #[expect(clippy::too_many_arguments, reason = "they are Python's, most of them by name")]
    fn place(
        &self,
        py: Python<'_>,
        space: SpaceArgument,
        bytes: u64,
        address: Option<u64>,
        cores: Option<&Bound<'_, PyAny>>,
        view: bool,
        estimated: bool,
    ) -> PyResult<Placement> {
        self.register(py, space.0, bytes, address, cores, (view, estimated))
    }

    /// Registers a kernel; `bytes` is per core, or the total if `cores` is omitted. `kind` is `application`, `fabric` or `dispatch`.
    #[pyo3(signature = (bytes, cores=None, *, kind="application", estimated=false))]
    fn kernel(
        &self,
        py: Python<'_>,
        bytes: u64,
        cores: Option<&Bound<'_, PyAny>>,
        kind: &str,
        estimated: bool,
    ) -> PyResult<Kernel> {
        let class = KernelClass::from_name(kind).filter(|&class| class != KernelClass::Unknown);
        let unknown = || PyValueError::new_err(format!("unknown kernel kind {kind:?}"));
        let class = class.ok_or_else(unknown)?;
        let allocator = self.tracker.get().allocator(py)?;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let kernel = ttmem_client::Kernel::new(allocator, self.number, id, bytes)
            .cores(define_cores(cores)?)
            .class(class)
            .estimated(estimated)
            .unfollowed(!self.dispatches);
        Client::global().load_kernel(&kernel).map_err(|e| fault_exception(py, e))?;
        Ok(Kernel { kernel, generation: generation() })
    }

    /// Reports a dispatch: the program's memory becomes resident and replaces what was resident on its cores.
    fn dispatch(&self, py: Python<'_>) -> PyResult<()> {
        let mut slot = self.slot.load(Ordering::Relaxed);
        let allocator = self.tracker.get().allocator(py)?;
        let done = agent::dispatch(Client::global(), allocator, self.number, &mut slot, None);
        self.slot.store(slot, Ordering::Relaxed);
        done.map(drop).map_err(|e| fault_exception(py, e))
    }

    /// Ends the program and removes everything it registered.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        let ended = Client::global().end_program(self.tracker.get().allocator(py)?, self.number);
        ended.map(drop).map_err(|e| fault_exception(py, e))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<bool> {
        self.end(py)?;
        Ok(false)
    }

    fn __repr__(&self) -> String {
        format!("<ttmem.Program {}>", self.number)
    }
}

/// Removes memory that was registered in a generation of the tracker. Closing the tracker removed what was registered before: that is
/// unknown once tracking is on again, and while it is off, removing does nothing.
fn remove_registered<T>(
    py: Python<'_>,
    registered_in: u64,
    remove: impl FnOnce(&Client) -> ttmem_client::Result<T>,
) -> PyResult<()> {
    let tracker = Client::global();
    let removed = if registered_in == generation() {
        remove(tracker).map(drop)
    } else if tracker.is_enabled() {
        Err(Fault::UnknownFree)
    } else {
        Ok(())
    };
    removed.map_err(|e| fault_exception(py, e))
}

/// Memory that a program registered on its cores.
#[pyclass(module = "ttmem", frozen)]
pub(crate) struct Placement {
    placement: ttmem_client::Placement,
    generation: u64,
}

#[pymethods]
impl Placement {
    /// Removes the memory.
    fn remove(&self, py: Python<'_>) -> PyResult<()> {
        remove_registered(py, self.generation, |tracker| tracker.displace(&self.placement))
    }
}

/// A kernel of a program.
#[pyclass(module = "ttmem", frozen)]
pub(crate) struct Kernel {
    kernel: ttmem_client::Kernel,
    generation: u64,
}

#[pymethods]
impl Kernel {
    /// Removes the kernel.
    fn remove(&self, py: Python<'_>) -> PyResult<()> {
        let (allocator, id) = (self.kernel.allocator, self.kernel.id);
        remove_registered(py, self.generation, |tracker| tracker.unload_kernel(allocator, id))
    }
}
