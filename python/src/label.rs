//! What `with ttmem.track("name")` calls whatever is allocated inside: a context variable of Python's, which is right in
//! threads, tasks and generators. It is only asked while any such block is open.

use crate::given::{cut, name};
use crate::tracker::generation;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use ttmem_client::{SiteNumber, Tracker as Client};

/// Blocks that are open, in all threads.
static OPEN: AtomicUsize = AtomicUsize::new(0);
/// The variable's method `get`.
static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The context variable that holds the [`Label`] of the innermost block, or `None`, which is its default.
#[pyfunction]
pub(crate) fn set_label_variable(py: Python<'_>, variable: &Bound<'_, PyAny>) -> PyResult<()> {
    let _ = GET.set(py, variable.getattr("get")?.unbind());
    Ok(())
}

/// A block begins somewhere.
#[pyfunction]
pub(crate) fn label_entered() {
    OPEN.fetch_add(1, Ordering::Relaxed);
}

/// A block ends.
#[pyfunction]
pub(crate) fn label_left() {
    let _ = OPEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| open.checked_sub(1));
}

/// The call site to record: what was said, else the innermost block. None where there is no room for another name: what is allocated is worth
/// more than what it is called.
#[inline]
pub(crate) fn site(py: Python<'_>, said: Option<&Bound<'_, PyString>>) -> PyResult<SiteNumber> {
    if said.is_none() && OPEN.load(Ordering::Relaxed) == 0 {
        return Ok(SiteNumber::default());
    }
    find(py, said)
}

fn find(py: Python<'_>, said: Option<&Bound<'_, PyString>>) -> PyResult<SiteNumber> {
    if let Some(said) = said {
        return Ok(Client::global().site(&name(said)).unwrap_or_default());
    }
    let Some(get) = GET.get(py) else { return Ok(SiteNumber::default()) };
    let label = get.bind(py).call0()?;
    Ok(label.cast::<Label>().map_or_else(|_| SiteNumber::default(), |label| label.get().number()))
}

/// A block's name, behind those of the blocks around it.
#[pyclass(module = "ttmem", frozen)]
pub(crate) struct Label {
    text: String,
    /// Its number as a call site, behind the generation that it was given out in; 0: none yet.
    number: AtomicU64,
}

impl Label {
    #[inline]
    fn number(&self) -> SiteNumber {
        let known = self.number.load(Ordering::Relaxed);
        if known >> 32 == generation() {
            return SiteNumber::new(known as u32);
        }
        let number = Client::global().site(&self.text).unwrap_or_default();
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
        let own = name(text);
        let text = outer.map_or_else(|| own.clone(), |outer| format!("{} / {own}", outer.get().text));
        Self { text: cut(text), number: AtomicU64::new(0) }
    }

    fn __str__(&self) -> &str {
        &self.text
    }
}
