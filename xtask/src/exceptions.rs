//! Generates Python's exceptions: a class for each fault that the tracker returns, and those of the package itself.

use ttmem_types::Fault;

const BEGINNING: &str = r#""""What can go wrong. Every class here is a :class:`Error`, and its ``kind`` is its name in snake case.

Made from crates/ttmem-types by ``cargo xtask gen``; changes belong there, or in xtask/src/exceptions.rs.
"""

from __future__ import annotations

from typing import ClassVar


class Error(Exception):
    """A report that was refused, or recorded otherwise than meant. Each class says what that did to the figures."""

    kind: ClassVar[str] = "error"
"#;

/// Errors that have no fault: name, kind, description.
const OF_THE_PACKAGE: [(&str, &str, &str); 2] = [
    (
        "NotTracked",
        "not_tracked",
        "Nothing of this process is tracked where it could be read, so what it holds is not known. It is not zero.",
    ),
    ("ReadError", "read_error", "The machine could not be read, or the daemon not be asked."),
];

/// Faults that only C's pointers and numbers can have.
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
