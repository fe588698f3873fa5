//! Snapshots of the machine, from a daemon or read by this process.

use crate::errors::make_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::error::Error;
use std::fmt::Write;
use ttmem_reader::{Follower as Reader, ReaderOptions, Request, ask_isolated};

/// Follows the segments of this machine in a thread of its own, as long as it exists.
#[pyclass(frozen)]
pub(crate) struct Follower(Reader);

#[pymethods]
impl Follower {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        let started = Reader::start(&ReaderOptions::from_env());
        started.map(Self).map_err(|e| make_exception(py, "ReadError", e.to_string()))
    }

    /// Returns what processes allocated until now, as the protocol's `report`; `None` in a forked child.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let Some(report) = py.detach(|| self.0.report()) else { return Ok(None) };
        let report = serde_json::to_vec(&report).map_err(|e| PyValueError::new_err(e.to_string()))?;
        Ok(Some(PyBytes::new(py, &report)))
    }
}

/// Returns the answer to a request of the query protocol, one line of JSON. Other threads run meanwhile.
#[pyfunction]
pub(crate) fn ask<'py>(py: Python<'py>, local: bool, request: &str) -> PyResult<Bound<'py, PyBytes>> {
    let request: Request =
        serde_json::from_str(request).map_err(|e| PyValueError::new_err(format!("invalid request: {e}")))?;
    let options = ReaderOptions { local, ..ReaderOptions::from_env() };
    match py.detach(|| ask_isolated(&options, &request)) {
        Ok(answer) => Ok(PyBytes::new(py, &answer)),
        Err(e) => {
            let mut text = e.to_string();
            let mut cause = e.source();
            while let Some(e) = cause {
                let _ = write!(text, ": {e}");
                cause = e.source();
            }
            Err(make_exception(py, "ReadError", text))
        }
    }
}
