//! Call sites.

use ttmem_types::{Purpose, Tensor};

/// The place in a program that allocates: file, line, function, the operation that it calls, and the tensor that is allocated.
///
/// ```
/// use ttmem_client::{CallSite, Options, Tracker};
///
/// let tracker = Tracker::new(&Options::default());
/// let site = CallSite::new("model.py", 42).function("forward").op("ttnn.matmul");
/// let site = tracker.define_call_site(&site)?;
/// # Ok::<(), ttmem_client::Fault>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallSite<'a> {
    /// Path of the file.
    pub file: &'a str,
    /// Line; 0: unknown.
    pub line: u32,
    /// Function, with its class if it has one; empty: unknown.
    pub function: &'a str,
    /// Operation that the line calls, such as `ttnn.matmul`; empty: none.
    pub op: &'a str,
    /// Tensor that is allocated.
    pub tensor: Option<Tensor>,
    /// What the memory is for.
    pub purpose: Purpose,
    /// Track: the part of the program that the line runs in, such as `decode / attention`; empty: none.
    pub track: &'a str,
}

impl<'a> CallSite<'a> {
    /// Returns the call site of a line.
    ///
    /// ```
    /// # use ttmem_client::CallSite;
    /// assert_eq!(CallSite::new("model.py", 42).op, "");
    /// ```
    pub const fn new(file: &'a str, line: u32) -> Self {
        Self { file, line, function: "", op: "", tensor: None, purpose: Purpose::Unknown, track: "" }
    }

    /// Sets the function.
    ///
    /// ```
    /// # use ttmem_client::CallSite;
    /// assert_eq!(CallSite::new("model.py", 42).function("forward").function, "forward");
    /// ```
    #[must_use]
    pub const fn function(mut self, function: &'a str) -> Self {
        self.function = function;
        self
    }

    /// Sets the operation.
    ///
    /// ```
    /// # use ttmem_client::CallSite;
    /// assert_eq!(CallSite::new("model.py", 42).op("ttnn.matmul").op, "ttnn.matmul");
    /// ```
    #[must_use]
    pub const fn op(mut self, op: &'a str) -> Self {
        self.op = op;
        self
    }

    /// Sets the tensor, which is then also the purpose of the memory.
    ///
    /// ```
    /// # use ttmem_client::{CallSite, Purpose, Tensor};
    /// assert_eq!(CallSite::new("model.py", 42).tensor(Tensor::new(&[32])).purpose, Purpose::Tensor);
    /// ```
    #[must_use]
    pub const fn tensor(mut self, tensor: Tensor) -> Self {
        self.tensor = Some(tensor);
        self.purpose = Purpose::Tensor;
        self
    }

    /// Sets the track.
    ///
    /// ```
    /// # use ttmem_client::CallSite;
    /// assert_eq!(CallSite::new("model.py", 42).track("decode").track, "decode");
    /// ```
    #[must_use]
    pub const fn track(mut self, track: &'a str) -> Self {
        self.track = track;
        self
    }

    /// Sets what the memory is for.
    ///
    /// ```
    /// # use ttmem_client::{CallSite, Purpose};
    /// assert_eq!(CallSite::new("model.py", 42).purpose(Purpose::Semaphore).purpose, Purpose::Semaphore);
    /// ```
    #[must_use]
    pub const fn purpose(mut self, purpose: Purpose) -> Self {
        self.purpose = purpose;
        self
    }
}
