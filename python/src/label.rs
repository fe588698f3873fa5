//! Names of blocks (`with ttmem.track("name")`), which become the track of the allocations inside. A context variable of Python
//! holds them, which works in threads, tasks and generators. It is only read while such a block is open.

use crate::arguments::{cut_name, display_name};
use crate::tracker::generation;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use ttmem_client::agent::set_track_in_agent;
use ttmem_client::{CallSite, SiteNumber, Tracker as Client};

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

/// Counts a block that begins. `in_task`: another task of the thread may run before it ends.
#[pyfunction]
pub(crate) fn label_entered(py: Python<'_>, in_task: bool) -> PyResult<()> {
    OPEN_BLOCKS.fetch_add(1, Ordering::Relaxed);
    name_for_agent(py, in_task)
}

/// Counts a block that has ended.
#[pyfunction]
pub(crate) fn label_left(py: Python<'_>, in_task: bool) -> PyResult<()> {
    let _ = OPEN_BLOCKS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| open.checked_sub(1));
    name_for_agent(py, in_task)
}

/// Passes the name of the calling thread's block to the agent, if there is one. The agent sees no change of tasks: in these it knows the
/// block around their event loop.
fn name_for_agent(py: Python<'_>, in_task: bool) -> PyResult<()> {
    if !in_task {
        let label = current(py)?;
        set_track_in_agent(label.as_ref().map_or("", |label| label.get().text.as_str()));
    }
    Ok(())
}

/// The innermost block.
fn current(py: Python<'_>) -> PyResult<Option<Bound<'_, Label>>> {
    let Some(get) = GET_LABEL.get(py) else { return Ok(None) };
    let label = get.bind(py).call0()?;
    Ok(label.cast_into::<Label>().ok())
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
    Ok(current(py)?.map_or_else(SiteNumber::default, |label| label.get().number()))
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
        let site = CallSite::new("", 0).track(&self.text);
        let number = Client::global().define_call_site(&site).unwrap_or_default();
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
