//! Conversion of arguments from Python.

use crate::errors::fault_exception;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};
use ttmem_client::{Arch, Chip, CoresNumber, Space, Tracker, agent};

/// Bytes of the longest name; longer ones are cut.
const MAX_NAME: usize = 512;

/// Most devices of a mesh.
const MAX_DEVICES: usize = ttmem_wire::segment::definition::MAX_CHIPS;

/// Most ranges of a core set.
const MAX_RANGES: usize = 4096;

/// A space, converted from its name.
#[derive(Clone, Copy)]
pub(crate) struct SpaceArgument(pub(crate) Space);

impl<'a, 'py> FromPyObject<'a, 'py> for SpaceArgument {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let name = given.cast::<PyString>().map_err(|_| PyTypeError::new_err("space must be a string"))?;
        let name = name.to_str()?;
        let unknown = || unknown_name("space", name, &Space::ALL.map(Space::name));
        Space::from_name(name).map(Self).ok_or_else(unknown)
    }
}

fn unknown_name(what: &str, name: &str, all: &[&str]) -> PyErr {
    PyValueError::new_err(format!("unknown {what} {name:?}; expected one of: {}", all.join(", ")))
}

/// Returns what a name means, which is one of `all`.
pub(crate) fn extract_name<T>(
    what: &str,
    given: Option<&Bound<'_, PyString>>,
    meaning: impl FnOnce(&str) -> Option<T>,
    all: &[&str],
) -> PyResult<Option<T>> {
    let Some(given) = given else { return Ok(None) };
    let name = given.to_str()?;
    meaning(name).map(Some).ok_or_else(|| unknown_name(what, name, all))
}

/// Returns a name for display: invalid characters are replaced, and it is cut if it is too long.
pub(crate) fn display_name(given: &Bound<'_, PyString>) -> String {
    cut_name(given.to_string_lossy().into_owned())
}

/// Cuts a name that is too long.
pub(crate) fn cut_name(mut name: String) -> String {
    if name.len() > MAX_NAME {
        name.truncate(name.floor_char_boundary(MAX_NAME));
    }
    name
}

/// Device numbers, converted from a number, several numbers, a mesh of ttnn (`get_device_ids()`) or a device (`id()`).
pub(crate) enum Devices {
    One([u32; 1]),
    Many(Vec<u32>),
}

impl std::ops::Deref for Devices {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        match self {
            Self::One(device) => device,
            Self::Many(devices) => devices,
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Devices {
    type Error = PyErr;

    #[inline]
    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if given.is_instance_of::<PyInt>() {
            given.extract().map(|device| Self::One([device]))
        } else {
            extract_several(&given)
        }
    }
}

#[cold]
fn extract_several(given: &Bound<'_, PyAny>) -> PyResult<Devices> {
    if let Some(ids) = given.getattr_opt("get_device_ids")? {
        return extract_numbers(&ids.call0()?);
    }
    if let Some(id) = given.getattr_opt("id")? {
        let id = if id.is_callable() { id.call0()? } else { id };
        return Ok(Devices::One([id.extract()?]));
    }
    if given.is_instance_of::<PyString>() || given.is_none() {
        return Err(PyTypeError::new_err(
            "device must be a number, several numbers, or an object with id() or get_device_ids()",
        ));
    }
    match given.extract() {
        Ok(device) => Ok(Devices::One([device])),
        Err(_) => extract_numbers(given),
    }
}

fn extract_numbers(given: &Bound<'_, PyAny>) -> PyResult<Devices> {
    // One more than is valid: an iterator may be endless.
    let numbers = given.try_iter()?.take(MAX_DEVICES + 1).map(|number| number?.extract());
    let numbers: Vec<u32> = numbers.collect::<PyResult<_>>()?;
    if numbers.len() > MAX_DEVICES {
        return Err(PyValueError::new_err(format!("too many devices: at most {MAX_DEVICES}")));
    }
    Ok(Devices::Many(numbers))
}

/// Defines a set of cores: each element is a column and a row, or a rectangle from column and row to column and row.
pub(crate) fn define_cores(given: Option<&Bound<'_, PyAny>>) -> PyResult<CoresNumber> {
    let Some(given) = given else { return Ok(CoresNumber::NONE) };
    let mut set = [0u64; 4];
    for (n, range) in given.try_iter()?.enumerate() {
        if n == MAX_RANGES {
            return Err(PyValueError::new_err(format!("too many core ranges: at most {MAX_RANGES}")));
        }
        let range = range?.try_iter()?.take(5).map(|value| value?.extract());
        let range: Vec<u8> = range.collect::<PyResult<_>>()?;
        let (x0, y0, x1, y1) = match range[..] {
            [x, y] => (x, y, x, y),
            [x0, y0, x1, y1] => (x0, y0, x1, y1),
            _ => return Err(PyValueError::new_err("each core range must be (x, y) or (x0, y0, x1, y1)")),
        };
        if x1 > 15 || y1 > 15 || x0 > x1 || y0 > y1 {
            return Err(PyValueError::new_err(format!(
                "invalid core range ({x0}, {y0}, {x1}, {y1}): expected 0 to 15, lowest first"
            )));
        }
        for y in y0..=y1 {
            for x in x0..=x1 {
                set[usize::from(y) >> 2] |= 1 << ((y & 3) * 16 + x);
            }
        }
    }
    if set == [0; 4] {
        return Err(PyValueError::new_err("core set is empty"));
    }
    agent::define_core_bitmap(Tracker::global(), set).map_err(|e| fault_exception(given.py(), e))
}

/// A chip, converted from `ttmem.Chip`.
pub(crate) struct ChipArgument {
    chip: Chip<'static>,
    board: String,
    pci: String,
}

impl ChipArgument {
    /// Returns a chip of which only the number is known.
    pub(crate) fn from_index(index: u32) -> Self {
        Self { chip: Chip::default().index(index), board: String::new(), pci: String::new() }
    }

    pub(crate) fn index(&self) -> u32 {
        self.chip.index
    }

    /// Returns the chip as an argument of the tracker.
    pub(crate) fn as_chip(&self) -> Chip<'_> {
        self.chip.board(&self.board).pci(&self.pci)
    }

    /// Converts a `ttmem.Chip`.
    pub(crate) fn extract(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        let number = |name: &str| given.getattr(name)?.extract::<u64>();
        let small = |name: &str| given.getattr(name)?.extract::<u32>();
        let text = |name: &str| PyResult::Ok(display_name(given.getattr(name)?.cast::<PyString>()?));
        let arch: Option<String> = given.getattr("arch")?.extract()?;
        let unknown = |name: &str| PyValueError::new_err(format!("unknown architecture {name:?}"));
        let arch = arch.map(|name| Arch::from_name(&name).ok_or_else(|| unknown(&name))).transpose()?;
        let mut chip = Chip::default()
            .unique_id(number("unique_id")?)
            .index(small("index")?)
            .remote(given.getattr("remote")?.extract()?)
            .dram_bytes(number("dram_bytes")?)
            .dram_channels(small("dram_channels")?)
            .dram_bytes_per_channel(number("dram_bytes_per_channel")?)
            .cores(small("cores")?)
            .l1_bytes_per_core(number("l1_bytes_per_core")?)
            .dram_allocatable(number("dram_allocatable")?)
            .l1_allocatable(number("l1_allocatable")?)
            .kernel_config(small("kernel_config")?)
            .unreserved(small("unreserved")?)
            .grid(given.getattr("grid")?.extract()?);
        chip.arch = arch;
        Ok(Self { chip, board: text("board")?, pci: text("pci")? })
    }
}
