//! Arguments, as Python gives them.

use crate::errors::refused;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};
use ttmem_client::{Arch, Chip, CoresNumber, Space, Tracker};

/// Longer names are cut.
const MAX_NAME: usize = 512;

/// No mesh has more devices.
const MAX_DEVICES: usize = ttmem_wire::segment::definition::MAX_CHIPS;

/// No set of cores is said in more parts.
const MAX_RANGES: usize = 4096;

/// A space, by its name.
#[derive(Clone, Copy)]
pub(crate) struct InSpace(pub(crate) Space);

impl<'a, 'py> FromPyObject<'a, 'py> for InSpace {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let name = given.cast::<PyString>().map_err(|_| PyTypeError::new_err("space must be a string"))?;
        let name = name.to_str()?;
        Space::from_name(name).map(Self).ok_or_else(|| {
            let all = Space::ALL.map(Space::name);
            PyValueError::new_err(format!("unknown space {name:?}; expected one of: {}", all.join(", ")))
        })
    }
}

/// A name for people: whatever is no text in it is replaced, and it is cut where it is too long.
pub(crate) fn name(given: &Bound<'_, PyString>) -> String {
    cut(given.to_string_lossy().into_owned())
}

/// Cuts a name where it is too long.
pub(crate) fn cut(mut name: String) -> String {
    if name.len() > MAX_NAME {
        name.truncate(name.floor_char_boundary(MAX_NAME));
    }
    name
}

/// The numbers of a device, of several, or of what has such: a mesh of ttnn (`get_device_ids()`), or a device (`id()`).
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
            given.extract().map(|it| Self::One([it]))
        } else {
            several(&given)
        }
    }
}

#[cold]
fn several(given: &Bound<'_, PyAny>) -> PyResult<Devices> {
    if let Some(ids) = given.getattr_opt("get_device_ids")? {
        return numbers(&ids.call0()?);
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
        Err(_) => numbers(given),
    }
}

fn numbers(given: &Bound<'_, PyAny>) -> PyResult<Devices> {
    // One more than there can be, so that a list without an end has one.
    let numbers = given.try_iter()?.take(MAX_DEVICES + 1).map(|it| it?.extract());
    let numbers: Vec<u32> = numbers.collect::<PyResult<_>>()?;
    if numbers.len() > MAX_DEVICES {
        return Err(PyValueError::new_err(format!("too many devices: at most {MAX_DEVICES}")));
    }
    Ok(Devices::Many(numbers))
}

/// A set of cores: each a column and a row, or a rectangle from column and row to column and row.
pub(crate) fn cores(given: Option<&Bound<'_, PyAny>>) -> PyResult<CoresNumber> {
    let Some(given) = given else { return Ok(CoresNumber::NONE) };
    let mut set = [0u64; 4];
    for (n, range) in given.try_iter()?.enumerate() {
        if n == MAX_RANGES {
            return Err(PyValueError::new_err(format!("too many core ranges: at most {MAX_RANGES}")));
        }
        let range = range?.try_iter()?.take(5).map(|it| it?.extract());
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
    Tracker::global().core_set(set).map_err(|e| refused(given.py(), e))
}

/// A chip, as `ttmem.Chip` has it.
pub(crate) struct GivenChip {
    chip: Chip<'static>,
    board: String,
    pci: String,
}

impl GivenChip {
    /// A chip of which only the number is known.
    pub(crate) fn numbered(index: u32) -> Self {
        Self { chip: Chip { index, ..Chip::default() }, board: String::new(), pci: String::new() }
    }

    pub(crate) fn index(&self) -> u32 {
        self.chip.index
    }

    /// As the tracker knows it.
    pub(crate) fn as_chip(&self) -> Chip<'_> {
        Chip { board: &self.board, pci: &self.pci, ..self.chip }
    }

    pub(crate) fn of(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        let number = |name: &str| given.getattr(name)?.extract::<u64>();
        let small = |name: &str| given.getattr(name)?.extract::<u32>();
        let text = |name: &str| PyResult::Ok(self::name(given.getattr(name)?.cast::<PyString>()?));
        let arch: Option<String> = given.getattr("arch")?.extract()?;
        let unknown = |name: &str| PyValueError::new_err(format!("unknown architecture {name:?}"));
        let arch = arch.map(|name| Arch::from_name(&name).ok_or_else(|| unknown(&name))).transpose()?;
        let chip = Chip {
            unique_id: number("unique_id")?,
            index: small("index")?,
            arch,
            remote: given.getattr("remote")?.extract()?,
            board: "",
            pci: "",
            dram_bytes: number("dram_bytes")?,
            dram_channels: small("dram_channels")?,
            dram_bytes_per_channel: number("dram_bytes_per_channel")?,
            cores: small("cores")?,
            l1_bytes_per_core: number("l1_bytes_per_core")?,
            dram_allocatable: number("dram_allocatable")?,
            l1_allocatable: number("l1_allocatable")?,
            kernel_config: small("kernel_config")?,
            unreserved: small("unreserved")?,
            grid: given.getattr("grid")?.extract()?,
        };
        Ok(Self { chip, board: text("board")?, pci: text("pci")? })
    }
}
