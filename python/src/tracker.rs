//! The process's tracker, and its frequent calls.

use crate::arguments::{ChipArgument, Devices, SpaceArgument, define_cores, display_name};
use crate::errors::fault_exception;
use crate::label::find_site;
use crate::program::Program;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString, PyTuple};
use std::sync::atomic::{AtomicU64, Ordering};
use ttmem_client::{
    AllocatorNumber, Banks, Buffer, ChipNumber, Options, Space, Tracker as Client, Transport,
};
use ttmem_wire::segment::definition::{MAX_BANKS, MAX_CHIPS};

/// Generation of the tracker. It increases when the tracker is closed: earlier definitions are invalid then.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// Returns the generation of the tracker.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Enables tracking.
#[pyfunction]
#[pyo3(signature = (folder=None, group=None, runtime=None, log=None, legacy_socket=None, ring=None))]
pub(crate) fn enable(
    folder: Option<String>,
    group: Option<u32>,
    runtime: Option<String>,
    log: Option<String>,
    legacy_socket: Option<String>,
    ring: Option<u32>,
) -> bool {
    let mut options = Options::from_env().writer(concat!("ttmem-python ", env!("CARGO_PKG_VERSION")));
    if let Some(folder) = folder {
        options.folder = folder;
    }
    options.group = group.or(options.group);
    options.runtime = runtime.unwrap_or(options.runtime);
    options.log = log.or(options.log);
    options.ring = ring.or(options.ring);
    if let Some(path) = legacy_socket {
        options.transport = Transport::Legacy(path);
    }
    Client::global().enable(&options)
}

/// Returns whether reports are recorded.
#[pyfunction]
pub(crate) fn is_enabled() -> bool {
    Client::global().is_enabled()
}

/// Ends tracking.
#[pyfunction]
pub(crate) fn close() {
    Client::global().close();
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Retries what failed before.
#[pyfunction]
pub(crate) fn refresh() {
    Client::global().refresh();
}

/// mark(name, number=None)
/// --
///
/// Marks a moment of this process, such as the end of a step, with its number: an event, and `last_mark` in the JSON. If the agent
/// tracks this process, the mark is among the agent's events. Does nothing while tracking is disabled.
#[pyfunction]
#[pyo3(signature = (name, number=None))]
pub(crate) fn mark(py: Python<'_>, name: &Bound<'_, PyString>, number: Option<u64>) -> PyResult<()> {
    Client::global().mark(&display_name(name), number).map(drop).map_err(|e| fault_exception(py, e))
}

/// Returns the fields of `ttmem.Status`, in order.
#[pyfunction]
pub(crate) fn status() -> (bool, Option<String>, Option<String>, u64, u64, u64, u64) {
    let status = Client::global().status();
    (status.on, status.segment, status.reason, status.live, status.unlisted, status.lost, status.queued)
}

/// alloc(device, space, address, size, bytes_per_bank=0, occupied=None, cores=None, site=None)
/// --
///
/// Reports a buffer allocated on a device or on each device of a mesh; see Tracker.alloc.
#[pyfunction]
#[pyo3(signature = (device, space, address, size, bytes_per_bank=0, occupied=None, cores=None, site=None))]
#[expect(clippy::too_many_arguments, reason = "they are Python's, most of them by name")]
#[expect(clippy::needless_pass_by_value, reason = "arguments are made for the call")]
pub(crate) fn alloc(
    py: Python<'_>,
    device: Devices,
    space: SpaceArgument,
    address: u64,
    size: u64,
    bytes_per_bank: u64,
    occupied: Option<u64>,
    cores: Option<&Bound<'_, PyAny>>,
    site: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let allocator = Client::global().define_devices(&device).map_err(|e| fault_exception(py, e))?;
    report_buffer(py, allocator, space.0, address, size, bytes_per_bank, occupied, cores, site)
}

/// free(device, space, address)
/// --
///
/// Reports a freed buffer; see Tracker.free.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "arguments are made for the call")]
pub(crate) fn free(py: Python<'_>, device: Devices, space: SpaceArgument, address: u64) -> PyResult<()> {
    let tracker = Client::global();
    let freed =
        tracker.define_devices(&device).and_then(|allocator| tracker.free(allocator, space.0, address));
    freed.map(drop).map_err(|e| fault_exception(py, e))
}

#[inline]
#[expect(clippy::too_many_arguments, reason = "those of `alloc`")]
fn report_buffer(
    py: Python<'_>,
    allocator: AllocatorNumber,
    space: Space,
    address: u64,
    size: u64,
    bytes_per_bank: u64,
    occupied: Option<u64>,
    cores: Option<&Bound<'_, PyAny>>,
    site: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let mut buffer = Buffer::new(allocator, space, address, size).bytes_per_bank(bytes_per_bank);
    buffer.occupied = occupied;
    if cores.is_some() {
        buffer.cores = define_cores(cores)?;
    }
    buffer.site = find_site(py, site)?;
    Client::global().alloc(&buffer).map(drop).map_err(|e| fault_exception(py, e))
}

/// The devices of a tracker.
enum Scope {
    /// Device numbers, without banks.
    Devices(Vec<u32>),
    Chips(Vec<ChipArgument>, Vec<Banks>),
}

/// Tracker(devices=0, banks=None)
/// --
///
/// Reports the memory of a device or mesh. An allocation of a mesh is one record for all of its devices.
///
/// `devices` is a device number, several of them, a ttnn device or mesh, or a list of `ttmem.Chip`. With `banks`, a list of
/// `ttmem.Banks`, allocated and free bytes are known, too. While tracking is disabled, calls do nothing; reports from before it
/// was closed are forgotten.
#[pyclass(module = "ttmem", frozen)]
pub(crate) struct Tracker {
    scope: Scope,
    /// Upper bits: generation of the tracker. Lower 16 bits: number of the allocator in it. 0: none yet.
    number: AtomicU64,
}

impl Tracker {
    /// Returns the number of the allocator, which is defined at the first use.
    #[inline]
    pub(crate) fn allocator(&self, py: Python<'_>) -> PyResult<AllocatorNumber> {
        let known = self.number.load(Ordering::Relaxed);
        if known >> 16 == generation() { Ok(AllocatorNumber::new(known as u16)) } else { self.define(py) }
    }

    #[cold]
    fn define(&self, py: Python<'_>) -> PyResult<AllocatorNumber> {
        let tracker = Client::global();
        let defined = match &self.scope {
            Scope::Devices(devices) => tracker.define_devices(devices),
            Scope::Chips(chips, banks) => {
                let chips = chips.iter().map(|chip| tracker.define_chip(&chip.as_chip()));
                let chips = chips.collect::<Result<Vec<ChipNumber>, _>>();
                chips.and_then(|chips| tracker.define_allocator(&chips, banks))
            }
        };
        let number = defined.map_err(|e| fault_exception(py, e))?;
        if number.get() != 0 {
            self.number.store(generation() << 16 | u64::from(number.get()), Ordering::Relaxed);
        }
        Ok(number)
    }
}

#[pymethods]
impl Tracker {
    #[new]
    #[pyo3(signature = (devices=None, banks=None))]
    fn new(devices: Option<&Bound<'_, PyAny>>, banks: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let numbers = match devices {
            None => Some(vec![0]),
            Some(given) => match given.extract::<Devices>() {
                Ok(devices) => Some(devices.to_vec()),
                // It may be chips.
                Err(e) if e.is_instance_of::<PyTypeError>(given.py()) => None,
                Err(e) => return Err(e),
            },
        };
        let banks: Vec<Banks> = match banks {
            None => Vec::new(),
            Some(given) => given
                .try_iter()?
                .take(MAX_BANKS + 1)
                .map(|banks| extract_banks(&banks?))
                .collect::<PyResult<_>>()?,
        };
        let scope = match (numbers, devices) {
            (Some(numbers), _) if banks.is_empty() => Scope::Devices(numbers),
            (Some(numbers), _) => {
                Scope::Chips(numbers.into_iter().map(ChipArgument::from_index).collect(), banks)
            }
            (None, Some(given)) => Scope::Chips(extract_chips(given)?, banks),
            (None, None) => Scope::Devices(vec![0]),
        };
        let none = match &scope {
            Scope::Devices(devices) => devices.is_empty(),
            Scope::Chips(chips, _) => chips.is_empty(),
        };
        if none {
            return Err(PyValueError::new_err("tracker needs at least one device"));
        }
        Ok(Self { scope, number: AtomicU64::new(0) })
    }

    /// Device numbers.
    #[getter]
    fn devices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match &self.scope {
            Scope::Devices(devices) => PyTuple::new(py, devices),
            Scope::Chips(chips, _) => PyTuple::new(py, chips.iter().map(ChipArgument::index)),
        }
    }

    /// Reports an allocated buffer; `size` is the requested bytes on each device.
    ///
    /// `bytes_per_bank` is its size in each bank, `occupied` its size in the banks that hold it, `cores` its cores if it is on some
    /// only, each `(x, y)` or `(x0, y0, x1, y1)`. `site` is the call site, a `ttmem.CallSite` or a text; the default is the innermost
    /// `ttmem.track`.
    #[pyo3(signature = (space, address, size, bytes_per_bank=0, occupied=None, cores=None, site=None))]
    #[expect(clippy::too_many_arguments, reason = "they are Python's, most of them by name")]
    fn alloc(
        &self,
        py: Python<'_>,
        space: SpaceArgument,
        address: u64,
        size: u64,
        bytes_per_bank: u64,
        occupied: Option<u64>,
        cores: Option<&Bound<'_, PyAny>>,
        site: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        report_buffer(py, self.allocator(py)?, space.0, address, size, bytes_per_bank, occupied, cores, site)
    }

    /// Reports that the buffer at this address was freed.
    fn free(&self, py: Python<'_>, space: SpaceArgument, address: u64) -> PyResult<()> {
        let freed = Client::global().free(self.allocator(py)?, space.0, address);
        freed.map(drop).map_err(|e| fault_exception(py, e))
    }

    /// Reports that the buffer at this address was freed; every space is searched.
    fn free_anywhere(&self, py: Python<'_>, address: u64) -> PyResult<()> {
        let freed = Client::global().free_anywhere(self.allocator(py)?, address);
        freed.map(drop).map_err(|e| fault_exception(py, e))
    }

    /// Reports that a buffer of space `l1_core` was freed, by its address, size and cores.
    fn free_on_cores(
        &self,
        py: Python<'_>,
        address: u64,
        size: u64,
        cores: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let mut buffer = Buffer::new(self.allocator(py)?, Space::L1Core, address, size);
        buffer.cores = define_cores(Some(cores))?;
        Client::global().free_on_cores(&buffer).map(drop).map_err(|e| fault_exception(py, e))
    }

    /// Reports an allocation of `size` bytes that failed for lack of memory.
    #[pyo3(signature = (space, size, site=None))]
    fn out_of_memory(
        &self,
        py: Python<'_>,
        space: SpaceArgument,
        size: u64,
        site: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let mut buffer = Buffer::new(self.allocator(py)?, space.0, 0, size);
        buffer.site = find_site(py, site)?;
        Client::global().report_out_of_memory(&buffer, None).map(drop).map_err(|e| fault_exception(py, e))
    }

    /// Begins a program; what it registers follows. The default number is unique. If `dispatches` is false, dispatches will not be
    /// reported, and whether its memory is resident is unknown.
    #[pyo3(signature = (name=None, number=None, *, dispatches=true))]
    fn program(
        slf: Bound<'_, Self>,
        name: Option<&Bound<'_, PyString>>,
        number: Option<u32>,
        dispatches: bool,
    ) -> PyResult<Program> {
        Program::begin(slf, name, number, dispatches)
    }

    /// Closes the device or mesh and frees all of its allocations.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let closed = Client::global().close_allocator(self.allocator(py)?);
        closed.map(drop).map_err(|e| fault_exception(py, e))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let devices = self.devices(py)?;
        Ok(format!("ttmem.Tracker({})", devices.repr()?))
    }
}

fn extract_chips(given: &Bound<'_, PyAny>) -> PyResult<Vec<ChipArgument>> {
    if given.hasattr("unique_id")? {
        return Ok(vec![ChipArgument::extract(given)?]);
    }
    let not_devices = || {
        PyTypeError::new_err(
            "devices must be numbers, ttmem.Chip objects, or objects with get_device_ids() or id()",
        )
    };
    if given.is_instance_of::<PyString>() {
        return Err(not_devices());
    }
    let several = given.try_iter().map_err(|_| not_devices())?;
    let chip = |given: PyResult<Bound<'_, PyAny>>| {
        let given = given?;
        if given.is_instance_of::<PyInt>() {
            given.extract().map(ChipArgument::from_index)
        } else {
            ChipArgument::extract(&given)
        }
    };
    several.take(MAX_CHIPS + 1).map(chip).collect()
}

fn extract_banks(given: &Bound<'_, PyAny>) -> PyResult<Banks> {
    let SpaceArgument(space) = given.getattr("space")?.extract()?;
    let number = |name: &str| given.getattr(name)?.extract::<u64>();
    Ok(Banks::new(space, given.getattr("banks")?.extract()?, number("base")?, number("bytes_per_bank")?))
}
