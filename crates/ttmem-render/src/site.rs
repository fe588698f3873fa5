//! Call sites as text, and the fields and table of usage by call site.

use crate::column::Column;
use crate::field::{Field, RowKind, find_field};
use crate::value::{Unit, Value};
use std::borrow::Cow;
use ttmem_core::snapshot::{Origin, SiteUsage};
use ttmem_core::words::Purpose;

/// Describes a call site with the operation that it calls: `ttnn.matmul, model.py:42 (forward)`. If the memory is not
/// that of a tensor, the text begins with what it is for: `semaphore: model.py:42 (forward)`.
pub fn describe_site(site: Option<&str>, op: Option<&str>, purpose: Option<Purpose>) -> Option<String> {
    // A call site of which only the operation is known has its name.
    let parts: Vec<&str> = [op.filter(|_| op != site), site].into_iter().flatten().collect();
    let text = parts.join(", ");
    match (special_purpose(purpose), text.is_empty()) {
        (None, true) => None,
        (None, false) => Some(text),
        (Some(purpose), true) => Some(purpose.to_owned()),
        (Some(purpose), false) => Some(format!("{purpose}: {text}")),
    }
}

/// The purpose of memory that is not that of a tensor.
pub fn special_purpose(purpose: Option<Purpose>) -> Option<&'static str> {
    purpose.filter(|it| !matches!(it, Purpose::Tensor | Purpose::Unknown)).map(Purpose::name)
}

/// The last part of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

/// Describes a function with its file: `Layer.forward (model.py)`.
pub fn describe_function(origin: &Origin) -> Option<String> {
    let file = origin.file.as_deref().map(file_name);
    match (&origin.function, file) {
        (Some(function), Some(file)) => Some(format!("{function} ({file})")),
        (Some(function), None) => Some(function.clone()),
        (None, Some(file)) => Some(format!("? ({file})")),
        (None, None) => None,
    }
}

/// Rows of usage by call site.
#[derive(Debug)]
pub enum Sites {}

impl RowKind for Sites {
    type Row<'a> = Row<'a>;
}

/// A row of a list of call sites.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The call site and its usage.
    pub usage: &'a SiteUsage,
    /// Name of the process.
    pub process_name: Option<&'a str>,
}

const fn text(
    name: &'static str,
    help: &'static str,
    value: for<'r> fn(&'r Row<'_>) -> Value<'r>,
) -> Field<Sites> {
    Field::<Sites>::new(name, Unit::None, help, value)
}

/// The fields of usage by call site.
pub static FIELDS: &[Field<Sites>] = &[
    Field::<Sites>::new(
        "used_bytes",
        Unit::Bytes,
        "allocated bytes per device, or else requested bytes",
        |r| Value::Bytes(r.usage.used_bytes),
    )
    .queried(),
    Field::<Sites>::new("requested_bytes", Unit::Bytes, "requested bytes per device", |r| {
        Value::Bytes(r.usage.requested_bytes)
    })
    .queried(),
    text("count", "number of buffers", |r| Value::Count(r.usage.count)).queried(),
    text("devices", "devices", |r| Value::indexes(&r.usage.indexes)).queried(),
    text("space", "space", |r| Value::Space(r.usage.space)).queried(),
    text("pid", "process", |r| Value::pid(r.usage.pid, r.usage.reported_pid)).queried(),
    text("process_name", "name of the process", |r| absent(r.process_name)).queried(),
    text("site", "operation and call site", |r| {
        let SiteUsage { site_name, origin, .. } = r.usage;
        let site = describe_site(site_name.as_deref(), origin.op.as_deref(), origin.purpose);
        let none = if r.usage.hidden { "withheld" } else { "unknown" };
        Value::Text(site.map_or(Cow::Borrowed(none), Cow::Owned))
    }),
    text("op", "operation that the line called", |r| absent(r.usage.origin.op.as_deref())).queried(),
    text("call_site", "call site", |r| absent(r.usage.site_name.as_deref())).queried(),
    text("file", "path of the file", |r| absent(r.usage.origin.file.as_deref())).queried(),
    text("line", "line of the file", |r| line(&r.usage.origin)).queried(),
    text("function", "function", |r| absent(r.usage.origin.function.as_deref())).queried(),
    text("purpose", "what the memory is for", |r| purpose(&r.usage.origin)).queried(),
    text("tensor", "tensor of one of the buffers", |r| absent(r.usage.origin.tensor.as_deref())).queried(),
    text("track", "track of one of the buffers", |r| absent(r.usage.origin.track.as_deref())).queried(),
    Field::<Sites>::new(
        "peak_bytes",
        Unit::Bytes,
        "bytes per device when the process's memory of this space was largest",
        |r| r.usage.peak_bytes.map_or(Value::Nothing, Value::Bytes),
    )
    .queried(),
    text("peak_count", "number of buffers at that time", |r| {
        r.usage.peak_count.map_or(Value::Nothing, Value::Count)
    })
    .queried(),
];

const fn page(name: &str, title: &'static str, width: u16) -> Column<Sites> {
    Column::page(find_field(FIELDS, name), title, width)
}

/// The table of `ttmem --sites`.
pub static TABLE: &[Column<Sites>] = &[
    page("used_bytes", "SIZE", 9).right(),
    page("count", "COUNT", 0).right(),
    page("peak_bytes", "AT PEAK", 9).right().drop(2),
    page("devices", "DEVICE", 11).apart().cut(),
    page("space", "SPACE", 0),
    page("pid", "PID", 0).right(),
    page("process_name", "PROCESS", 15).drop(1).cut(),
    page("site", "CALL SITE", 9).grows(u16::MAX).apart().cut().comfort(44),
];

/// A text that need not be known.
pub(crate) fn absent(text: Option<&str>) -> Value<'_> {
    text.map_or(Value::Nothing, |text| Value::Text(Cow::Borrowed(text)))
}

pub(crate) fn line(origin: &Origin) -> Value<'_> {
    origin.line.map_or(Value::Nothing, |line| Value::Count(line.into()))
}

pub(crate) fn purpose(origin: &Origin) -> Value<'_> {
    origin.purpose.map_or(Value::Nothing, |purpose| Value::Name(purpose.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_sites_name_operation_and_purpose() {
        let site = Some("model.py:42 (forward)");
        for (site, op, purpose, expected) in [
            (site, Some("ttnn.matmul"), Some(Purpose::Tensor), Some("ttnn.matmul, model.py:42 (forward)")),
            (site, None, None, Some("model.py:42 (forward)")),
            (site, None, Some(Purpose::Semaphore), Some("semaphore: model.py:42 (forward)")),
            (Some("ttnn.matmul"), Some("ttnn.matmul"), None, Some("ttnn.matmul")),
            (None, Some("ttnn.matmul"), Some(Purpose::Kernels), Some("kernels: ttnn.matmul")),
            (None, None, Some(Purpose::Trace), Some("trace")),
            (None, None, Some(Purpose::Tensor), None),
        ] {
            assert_eq!(describe_site(site, op, purpose).as_deref(), expected);
        }
    }

    #[test]
    fn functions_have_their_file() {
        let origin = |file: Option<&str>, function: Option<&str>| Origin {
            file: file.map(str::to_owned),
            function: function.map(str::to_owned),
            ..Origin::default()
        };
        let describe = |file, function| describe_function(&origin(file, function));
        assert_eq!(describe(Some("/me/model.py"), Some("run")).as_deref(), Some("run (model.py)"));
        assert_eq!(describe(Some("model.py"), None).as_deref(), Some("? (model.py)"));
        assert_eq!(describe(None, None), None);
    }
}
