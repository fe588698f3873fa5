//! Names of blocks (`with ttmem.track("name")`), which become call sites of the allocations inside. A context variable of Python
//! holds them, which works in threads, tasks and generators. It is only read while such a block is open.

use crate::arguments::{cut_name, display_name};
use crate::tracker::generation;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use ttmem_client::{SiteNumber, Tracker as Client};

/// Number of open blocks, in all threads.
static OPEN_BLOCKS: AtomicUsize = AtomicUsize::new(0);
/// The method `get` of the context variable.
static GET_LABEL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Sets the context variable that holds the [`Label`] of the innermost block; its default is `None`.
#[pyfunction]
pub(crate) fn set_label_variable(py: Python<'_>, variable: &Bound<'_, PyAny>) -> PyResult<()> {
    let _ = GET_LABEL.set(py, variable.getattr("get")?.unbind());
    Ok(())
}

/// Counts a block that begins.
#[pyfunction]
pub(crate) fn label_entered() {
    OPEN_BLOCKS.fetch_add(1, Ordering::Relaxed);
}

/// Counts a block that ends.
#[pyfunction]
pub(crate) fn label_left() {
    let _ = OPEN_BLOCKS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| open.checked_sub(1));
}

/// Returns the call site to record: the given one, else the innermost block. It is unknown if there is no space for another name: the
/// allocation matters more than its name.
#[inline]
pub(crate) fn find_site(py: Python<'_>, given: Option<&Bound<'_, PyString>>) -> PyResult<SiteNumber> {
    if given.is_none() && OPEN_BLOCKS.load(Ordering::Relaxed) == 0 {
        return Ok(SiteNumber::default());
    }
    find_site_slow(py, given)
}

fn find_site_slow(py: Python<'_>, given: Option<&Bound<'_, PyString>>) -> PyResult<SiteNumber> {
    if let Some(given) = given {
        return Ok(Client::global().define_site(&display_name(given)).unwrap_or_default());
    }
    let Some(get) = GET_LABEL.get(py) else { return Ok(SiteNumber::default()) };
    let label = get.bind(py).call0()?;
    Ok(label.cast::<Label>().map_or_else(|_| SiteNumber::default(), |label| label.get().number()))
}

/// Name of a block, after the names of the blocks around it.
#[pyclass(module = "ttmem", frozen)]
pub(crate) struct Label {
    text: String,
    /// Upper half: generation of the tracker. Lower half: number of the call site in it. 0: none yet.
    number: AtomicU64,
}

impl Label {
    #[inline]
    fn number(&self) -> SiteNumber {
        let known = self.number.load(Ordering::Relaxed);
        if known >> 32 == generation() {
            return SiteNumber::new(known as u32);
        }
        let number = Client::global().define_site(&self.text).unwrap_or_default();
        if number != SiteNumber::default() {
            self.number.store(generation() << 32 | u64::from(number.get()), Ordering::Relaxed);
        }
        number
    }
}

#[pymethods]
impl Label {
    #[new]
    fn new(text: &Bound<'_, PyString>, outer: Option<&Bound<'_, Self>>) -> Self {
        let own = display_name(text);
        let text = outer.map_or_else(|| own.clone(), |outer| format!("{} / {own}", outer.get().text));
        Self { text: cut_name(text), number: AtomicU64::new(0) }
    }

    fn __str__(&self) -> &str {
        &self.text
    }
}
