//! Exceptions. Their classes are in Python (`package/ttmem/_errors.py`); each error of the tracker has the class of its name.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;

static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// An exception of this class of ours.
pub(crate) fn exception(py: Python<'_>, class: &str, text: String) -> PyErr {
    let classes = CLASSES.get_or_try_init(py, || py.import("ttmem._errors").map(Bound::unbind));
    let made = classes.and_then(|classes| {
        let classes = classes.bind(py);
        let class = classes.getattr(class).or_else(|_| classes.getattr("Error"))?;
        class.call1((text.as_str(),))
    });
    match made {
        Ok(made) => PyErr::from_value(made),
        // Half a package: whoever broke it should still read what happened.
        Err(_) => PyRuntimeError::new_err(text),
    }
}

/// What the tracker refused, as an exception.
#[cold]
pub(crate) fn refused(py: Python<'_>, fault: ttmem_client::Fault) -> PyErr {
    exception(py, &format!("{fault:?}"), fault.to_string())
}
