//! Exceptions. Their classes are in Python (`package/ttmem/_errors.py`); each error of the tracker has the class of its name.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;

static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// Returns an exception of one of the package's classes.
pub(crate) fn make_exception(py: Python<'_>, class: &str, text: String) -> PyErr {
    let classes = CLASSES.get_or_try_init(py, || py.import("ttmem._errors").map(Bound::unbind));
    let exception = classes.and_then(|classes| {
        let classes = classes.bind(py);
        let class = classes.getattr(class).or_else(|_| classes.getattr("Error"))?;
        class.call1((text.as_str(),))
    });
    match exception {
        Ok(exception) => PyErr::from_value(exception),
        // The package is incomplete; the text of the error is still shown.
        Err(_) => PyRuntimeError::new_err(text),
    }
}

/// Returns the exception for an error of the tracker.
#[cold]
pub(crate) fn fault_exception(py: Python<'_>, fault: ttmem_client::Fault) -> PyErr {
    make_exception(py, &format!("{fault:?}"), fault.to_string())
}
