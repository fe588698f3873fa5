//! What `with ttmem.track("name")` calls whatever is allocated inside: a context variable of Python's, which is right in
//! threads, tasks and generators. It is only asked while any such block is open.

use crate::errors::refused;
use crate::given::name;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
use std::sync::atomic::{AtomicUsize, Ordering};
use ttmem_client::{SiteNumber, Tracker};

/// Blocks that are open, in all threads.
static OPEN: AtomicUsize = AtomicUsize::new(0);
static VARIABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The context variable that holds the name of the innermost block, or `None`.
#[pyfunction]
pub(crate) fn set_label_variable(py: Python<'_>, variable: Py<PyAny>) {
    let _ = VARIABLE.set(py, variable);
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

/// The call site to record: what was said, else the innermost block.
#[inline]
pub(crate) fn site(py: Python<'_>, said: Option<&Bound<'_, PyString>>) -> PyResult<SiteNumber> {
    if said.is_none() && OPEN.load(Ordering::Relaxed) == 0 {
        return Ok(SiteNumber::default());
    }
    find(py, said)
}

fn find(py: Python<'_>, said: Option<&Bound<'_, PyString>>) -> PyResult<SiteNumber> {
    let text = match (said, VARIABLE.get(py)) {
        (Some(said), _) => name(said),
        (None, Some(variable)) => {
            let label = variable.bind(py).call_method1(intern!(py, "get"), (py.None(),))?;
            match label.cast::<PyString>() {
                Ok(label) => name(label),
                Err(_) => return Ok(SiteNumber::default()),
            }
        }
        (None, None) => return Ok(SiteNumber::default()),
    };
    Tracker::global().site(&text).map_err(|e| refused(py, e))
}
