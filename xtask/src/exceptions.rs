//! Generates Python's exceptions: a class for each fault that the tracker returns, and the package's own classes.

use ttmem_types::Fault;

const BEGINNING: &str = r#""""Exceptions. Every class is a subclass of :class:`Error`; its ``kind`` is its name in snake case.

Generated from crates/ttmem-types by ``cargo xtask gen``; edit it there or in xtask/src/exceptions.rs.
"""

from __future__ import annotations

from typing import ClassVar


class Error(Exception):
    """A report was refused, or recorded differently. Each class documents its effect on the figures."""

    kind: ClassVar[str] = "error"
"#;

/// Errors that have no fault: name, kind, description.
const OF_THE_PACKAGE: [(&str, &str, &str); 2] = [
    ("NotTracked", "not_tracked", "This process is not tracked, so its memory is unknown, not zero."),
    ("ReadError", "read_error", "The machine could not be read, or the daemon could not be queried."),
];

/// Faults that only pointers and numbers of C can cause.
const OF_C: [Fault; 4] = [Fault::Null, Fault::NotUtf8, Fault::BadValue, Fault::Internal];

/// The module `_errors.py`.
pub(crate) fn module() -> String {
    let faults = Fault::ALL.into_iter().filter(|fault| fault.is_returned() && !OF_C.contains(fault));
    let mut classes = vec![BEGINNING.to_owned()];
    classes.extend(faults.map(|fault| class(&format!("{fault:?}"), fault.name(), fault.description())));
    classes.extend(OF_THE_PACKAGE.map(|(name, kind, text)| class(name, kind, text)));
    classes.join("\n\n")
}

fn class(name: &str, kind: &str, description: &str) -> String {
    format!("class {name}(Error):\n    \"\"\"{description}\"\"\"\n\n    kind = \"{kind}\"\n")
}
