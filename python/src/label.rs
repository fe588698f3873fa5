//! Call sites: lines that a program names (`ttmem.CallSite`), and names of blocks (`with ttmem.track("name")`), which become the track of
//! the allocations inside. A context variable of Python holds these, which works in threads, tasks and generators. It is only read
//! while such a block is open.

use crate::arguments::{cut_name, display_name, extract_name};
use crate::tracker::generation;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use ttmem_client::agent::set_track_in_agent;
use ttmem_client::{
    CallSite as ClientSite, DataType, Purpose, SiteNumber, Tensor, TensorLayout, Tracker as Client,
};

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
pub(crate) fn find_site(py: Python<'_>, given: Option<&Bound<'_, PyAny>>) -> PyResult<SiteNumber> {
    if given.is_none() && OPEN_BLOCKS.load(Ordering::Relaxed) == 0 {
        return Ok(SiteNumber::default());
    }
    find_site_slow(py, given)
}

fn find_site_slow(py: Python<'_>, given: Option<&Bound<'_, PyAny>>) -> PyResult<SiteNumber> {
    let label = if OPEN_BLOCKS.load(Ordering::Relaxed) > 0 { current(py)? } else { None };
    let Some(given) = given else {
        return Ok(label.map_or_else(SiteNumber::default, |label| label.get().number()));
    };
    if let Ok(text) = given.cast::<PyString>() {
        return Ok(Client::global().define_site(&display_name(text)).unwrap_or_default());
    }
    let site = given
        .cast::<CallSite>()
        .map_err(|_| PyTypeError::new_err("site must be a string or a ttmem.CallSite"))?;
    Ok(match label {
        Some(label) => site.get().define(&label.get().text),
        None => site.get().number.get_or_define(|| site.get().define("")),
    })
}

/// Number of a call site that is defined at its first use.
#[derive(Default)]
struct CachedNumber {
    /// Upper half: generation of the tracker. Lower half: number of the call site in it. 0: none yet.
    number: AtomicU64,
}

impl CachedNumber {
    #[inline]
    fn get_or_define(&self, define: impl FnOnce() -> SiteNumber) -> SiteNumber {
        let known = self.number.load(Ordering::Relaxed);
        if known >> 32 == generation() {
            return SiteNumber::new(known as u32);
        }
        let number = define();
        if number != SiteNumber::default() {
            self.number.store(generation() << 32 | u64::from(number.get()), Ordering::Relaxed);
        }
        number
    }
}

/// Name of a block, after the names of the blocks around it.
#[pyclass(module = "ttmem", frozen)]
pub(crate) struct Label {
    text: String,
    number: CachedNumber,
}

impl Label {
    #[inline]
    fn number(&self) -> SiteNumber {
        self.number.get_or_define(|| {
            let site = ClientSite::new("", 0).track(&self.text);
            Client::global().define_call_site(&site).unwrap_or_default()
        })
    }
}

#[pymethods]
impl Label {
    #[new]
    fn new(text: &Bound<'_, PyString>, outer: Option<&Bound<'_, Self>>) -> Self {
        let own = display_name(text);
        let text = outer.map_or_else(|| own.clone(), |outer| format!("{} / {own}", outer.get().text));
        Self { text: cut_name(text), number: CachedNumber::default() }
    }

    fn __str__(&self) -> &str {
        &self.text
    }
}

/// CallSite(file="", line=0, function="", *, op="", shape=None, dtype=None, layout=None, purpose=None)
/// --
///
/// The line of a program that allocates: its file, line and function, the operation that it calls, and the tensor that is allocated.
///
/// `shape` has the tensor's dimensions, `dtype` its data type, such as ``bfloat16``, and `layout` is ``tile`` or ``row_major``.
/// `purpose` is what the memory is for, if it is no tensor: ``semaphore``, ``kernels``, ``trace`` or ``raw``.
#[pyclass(module = "ttmem", frozen)]
pub(crate) struct CallSite {
    file: String,
    line: u32,
    function: String,
    op: String,
    tensor: Option<Tensor>,
    purpose: Purpose,
    number: CachedNumber,
}

impl CallSite {
    fn define(&self, track: &str) -> SiteNumber {
        let site = ClientSite::new(&self.file, self.line).function(&self.function).op(&self.op).track(track);
        let site = site.purpose(self.purpose);
        let site = self.tensor.map_or(site, |tensor| site.tensor(tensor));
        Client::global().define_call_site(&site).unwrap_or_default()
    }
}

#[pymethods]
impl CallSite {
    #[new]
    #[pyo3(signature = (file=None, line=0, function=None, *, op=None, shape=None, dtype=None, layout=None, purpose=None))]
    #[expect(clippy::too_many_arguments, reason = "they are Python's, most of them by name")]
    #[expect(clippy::needless_pass_by_value, reason = "arguments are made for the call")]
    fn new(
        file: Option<&Bound<'_, PyString>>,
        line: u32,
        function: Option<&Bound<'_, PyString>>,
        op: Option<&Bound<'_, PyString>>,
        shape: Option<Vec<u32>>,
        dtype: Option<&Bound<'_, PyString>>,
        layout: Option<&Bound<'_, PyString>>,
        purpose: Option<&Bound<'_, PyString>>,
    ) -> PyResult<Self> {
        let text = |given: Option<&Bound<'_, PyString>>| given.map(display_name).unwrap_or_default();
        let mut tensor = Tensor::new(shape.as_deref().unwrap_or_default());
        tensor.data_type =
            extract_name("dtype", dtype, DataType::from_name, &DataType::ALL.map(DataType::name))?;
        tensor.layout = extract_name(
            "layout",
            layout,
            TensorLayout::from_name,
            &TensorLayout::ALL.map(TensorLayout::name),
        )?;
        let purpose = extract_name("purpose", purpose, Purpose::from_name, &Purpose::ALL.map(Purpose::name))?;
        let is_tensor = shape.is_some() || tensor != Tensor::new(&[]);
        Ok(Self {
            file: text(file),
            line,
            function: text(function),
            op: text(op),
            tensor: is_tensor.then_some(tensor),
            purpose: purpose.unwrap_or_default(),
            number: CachedNumber::default(),
        })
    }

    fn __repr__(&self) -> String {
        format!("ttmem.CallSite({:?}, {}, {:?})", self.file, self.line, self.function)
    }
}
